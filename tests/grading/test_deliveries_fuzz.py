"""Thousands of deliveries by a generator that knows whose each file is.

Whatever the names, layouts, archives, times and rosters: nothing is raised but a sentence, nobody's
file becomes another's, and no file is lost.
"""

import csv
import io
import os
import random
import shutil
import stat
import string
import unicodedata
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from labkit.grading.intake.deliveries import Handed, IntakeError, deliveries_in
from labkit.grading.intake.entries import shown
from labkit.grading.intake.roster import Student, TableError, read_roster
from labkit.grading.judge.batch import Submission, counting_submissions

LABS = ["02_number_formats", "03_rounding", "04_loss_scaling", "05_amp"]
SEEDS = range(5)
CASES = 720  # a seed

PLAIN = ["Ada", "bob", "Cy", "李雷", "zoë", "Jose\u0301", "O'Brien", "van der Berg", "Ünal", "Ng"]
ODD = [
    *("~", ".", "..x", "-", "_", " ", "x ", " x", "x.", "x_", "x__", "(1)", "LATE", "anon", "hw1"),
    *("submitted", "submissions", "class", "__MACOSX", ".git", "unnamed"),
    *(
        "Bob_42_assignsubmission_x",
        "Bob_42_assignsubmission_file",
        "eve_7",
        "eve_7_8",
        "_7_8_",
        "7",
    ),
    *(
        "a\x00b",
        "a\x01b",
        "a\x02b",
        "a\nb",
        "a\tb",
        "a\u200bb",
        "a\u202eb",
        "jos\u00e9",
        "jose\u0301",
    ),
    *("x (2)", "x (7)", "=1+1", "<b>", "`x`", "x,y", 'x"y', "x;y", "x" * 199, "x" * 200, "x" * 230),
    *("02", "1", "2026", "007", "number_formats", "LATE_7", "anon_AbCdE", "anon_AbCdE_7"),
]
LAYOUTS = ["flat", "flat lab", "lab flat", "folder", "folder lab", "labs below", "hw below"]
LAYOUTS += ["labs around", "nbgrader", "moodle", "moodle old", "moodle flat", "canvas"]
OWN = ["x.ipynb", "7_99_x.ipynb", "7_99_02_number_formats.ipynb", "lab 2.IPYNB", "ünal.ipynb"]
OWN += [
    "Bob_42_assignsubmission_file_x.ipynb",
    "_1_2_3_4_.ipynb",
    *(f"{lab}.ipynb" for lab in LABS),
]


@dataclass(kw_only=True)
class Owner:
    """A student as the generator knows them; ``number`` is the LMS's."""

    index: int
    name: str
    number: str


@dataclass(kw_only=True)
class File:
    """A file of a delivery; ``kind``: "notebook", "damaged", "link", "pipe" or "other"."""

    path: str
    owner: Owner
    kind: str = "notebook"


@dataclass(kw_only=True)
class Case:
    """A delivery; ``is_clear``: nothing about it can be read in two ways."""

    owners: list[Owner]
    layout: str
    files: list[File] = field(default_factory=list)
    junk: list[str] = field(default_factory=list)
    is_clear: bool = False


def made_up_name(rng: random.Random, is_plain: bool, in_zip: bool) -> str:
    if is_plain:
        letters = "".join(rng.choices(string.ascii_lowercase, k=5))
        return f"{rng.choice(PLAIN)} {letters}"
    if rng.random() < 0.7:
        name = rng.choice(ODD)
    else:
        alphabet = string.printable + "éñ漢字\u0301\u200d\u00a0\x1b\x7f"
        name = "".join(rng.choices(alphabet, k=rng.choice((1, 2, 3, 8, 20))))
    name = name.replace("/", "_")
    if in_zip:
        return name if name.strip(".") else "dots"
    name = name.replace("\0", "").encode("utf-8")[:150].decode("utf-8", "ignore")
    if rng.random() < 0.1:
        name += "\udcff"  # a byte that is no UTF-8
    return name if name.strip(".") else "dots"


def by_moodle(name: str) -> str:
    return name.replace("_", " ")


def by_canvas(name: str, rng: random.Random) -> str:
    kept = "".join(c for c in name.lower() if c.isalnum() or c == "_") or "nobody"
    for digits in ("7", "8", "42"):
        kept = kept.replace(f"_{digits}_", digits)
    return kept + rng.choice(["", "", "_LATE"])


def made_up(rng: random.Random, in_zip: bool) -> Case:
    """A delivery of a few students in a layout that some desktop or LMS makes."""
    is_plain = rng.random() < 0.5
    count = rng.choice((1, 2, 2, 3, 4, 6, 9))
    layout = rng.choice(LAYOUTS)
    is_lms = layout.startswith(("moodle", "canvas"))
    names: dict[str, None] = {}
    while len(names) < count:
        names[made_up_name(rng, is_plain, in_zip)] = None
    numbers = rng.sample(["7", "8", "42", "77", "100", "4711", "4712", "90001", "90002"], count)
    owners = [
        Owner(index=index, name=name, number=number if is_lms else "")
        for index, (name, number) in enumerate(zip(names, numbers, strict=True))
    ]
    if is_lms and rng.random() < 0.2:
        owners[-1].name = owners[0].name  # namesakes
    case = Case(owners=owners, layout=layout, is_clear=is_plain and count > 1)
    around = "".join(f"{rng.choice(PLAIN)}-class/" for _ in range(rng.choice((0, 0, 1, 2))))
    if around and layout == "labs around":
        case.is_clear = False
    for owner in owners:
        labs = rng.sample(LABS, rng.choice((1, 1, 2)))
        if rng.random() < 0.08 and layout in (
            "folder",
            "labs below",
            "nbgrader",
            "moodle",
            "canvas",
        ):
            labs, case.is_clear = [], False
        for at, lab in enumerate(labs):
            case.files.append(File(path=around + path(layout, owner, lab, at, rng), owner=owner))
        if not labs or rng.random() < 0.1:
            other = path(layout, owner, LABS[0], 9, rng)
            other = other.rsplit("/", 1)[0] + "/lab.pdf" if "/" in other else f"{other}.pdf"
            case.files.append(File(path=around + other, owner=owner, kind="other"))
    for file in case.files:
        if file.kind == "notebook" and rng.random() < 0.1:
            file.kind = rng.choice(["damaged", "link", "pipe"])
    if rng.random() < 0.3:
        case.junk = [f"__MACOSX/{around}._x", f"{around}.DS_Store", f"{around}README.md"]
    seen = [file.path for file in case.files]
    case.files = [file for at, file in enumerate(case.files) if file.path not in seen[:at]]
    return case


def path(layout: str, owner: Owner, lab: str, at: int, rng: random.Random) -> str:
    name, number, own = owner.name, owner.number, rng.choice(OWN)
    attempt = 10_000 + 10 * owner.index + at
    # A hostile name may find a way around what Moodle does to names.
    in_moodle = by_moodle(name) if rng.random() < 0.8 else name
    if layout == "moodle flat":
        own = f"{at}_{own}"
    return {
        "flat": f"{name}.ipynb",
        "flat lab": f"{name}_{lab}.ipynb",
        "lab flat": f"{lab}-{name}.ipynb",
        "folder": f"{name}/{lab}.ipynb",
        "folder lab": f"{name}/{name}_{lab}.ipynb",
        "labs below": f"{name}/{lab}/{own}",
        "hw below": f"{name}/hw{at + 1}/{lab}.ipynb",
        "nbgrader": f"submitted/{name}/{lab}/{own}",
        "moodle": f"{by_moodle(name)}_{number}_assignsubmission_file/{at}/{own}",
        "moodle old": f"{in_moodle}_{number}_assignsubmission_file_/{own}",
        "moodle flat": f"{in_moodle}_{number}_assignsubmission_file_{own}",
        "canvas": f"{by_canvas(name, rng)}_{number}_{attempt}_{own}",
        "labs around": f"{lab}/{name}.ipynb",
    }[layout]


def content(file: File) -> bytes:
    return b"owner %d " % file.owner.index * (40 if file.kind == "damaged" else 1)


def owner_of(handed: Handed) -> int | None:
    return int(handed.content.split()[1]) if handed.content else None


def write_zip(case: Case, where: Path, rng: random.Random) -> None:
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    damaged = []
    with zipfile.ZipFile(where, "w") as archive:
        for file in rng.sample(case.files, len(case.files)):
            day = [rng.randrange(most) for most in (16, 32, 32, 64, 32)]  # zips can say worse
            entry = zipfile.ZipInfo("x", (rng.randint(1980, 2107), *day))
            entry.filename, entry.compress_type = file.path, rng.choice(methods)
            if file.kind == "link":
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, content(file))
            if file.kind == "damaged":
                damaged.append((entry.header_offset + 30 + len(file.path.encode()), entry))
        for name in case.junk:
            archive.writestr(name, b"junk")
    raw = bytearray(where.read_bytes())
    for start, entry in damaged:
        for _ in range(rng.randint(1, 3)):
            raw[start + rng.randrange(entry.compress_size)] ^= rng.randrange(1, 256)
    where.write_bytes(raw)


def write_folder(case: Case, where: Path, rng: random.Random) -> None:
    """As a zip is; what no file system takes is left out of the case."""
    written = []
    for file in case.files + [File(path=name, owner=case.owners[0], kind="") for name in case.junk]:
        target = where / file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.kind == "link":
                target.symlink_to("/etc/passwd")
            elif file.kind == "pipe":
                os.mkfifo(target)
            else:
                target.write_bytes(content(file))
                os.utime(target, (0, rng.choice((0, 10**9, 2 * 10**9, 2**33, -(10**9)))))
        except OSError:  # a file and a folder of one name
            continue
        written.append(file)
    case.files = [file for file in written if file.kind]


def roster_of(case: Case, rng: random.Random, where: Path) -> dict[str, Student]:
    """A class list that is right of some, wrong of others, and lists some who are not there."""
    names, numbers = [one.name for one in case.owners], [one.number for one in case.owners]
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["id", "name", "lms_id", "due"])
    for owner in rng.sample(case.owners, rng.randint(1, len(case.owners))):
        is_wrong = rng.random() < 0.3 and bool(owner.number)  # without a number it is what is so
        written = [owner.name, owner.name.upper(), " ".join(owner.name.split()[::-1])]
        table.writerow(
            [
                rng.choice([f"s{owner.index}", *(names if is_wrong else [owner.name])]),
                rng.choice(names if is_wrong else written),
                rng.choice([*numbers, "", "5"]) if is_wrong else owner.number,
                rng.choice(["", "", "2026-10-01", "2026-10-01T12:00+14:00"]),
            ]
        )
    text = out.getvalue()
    if rng.random() < 0.05:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(['"', ";", "\n", "\0", "é", ""]) + text[at + 1 :]
    where.write_text(text, encoding="utf-8", errors="replace")
    return read_roster(where)


def leads_out(path: str) -> bool:
    return "\\" in path or ":" in path[:2]


def says_it(error: Exception, where: Path) -> bool:
    text = str(error)
    return text.startswith(str(where)) and text.endswith(".") and len(text) < 2000


def check(case: Case, where: Path, rng: random.Random) -> bool:
    """Whether the delivery was read; fails where it was read wrongly."""
    try:
        handed = list(deliveries_in(where, LABS))
    except IntakeError as error:
        assert says_it(error, where) and not case.is_clear, (case, str(error))
        return False
    notebooks = [file for file in case.files if file.kind != "other"]
    without = [one for one in handed if one.cause == "no notebook"]
    astray = [file for file in case.files if file.kind == "other" and leads_out(file.path)]
    astray = astray if where.suffix == ".zip" else []
    rows = len(handed) - len(without) - len(astray)
    assert rows == len(notebooks), "a file is lost, or counted twice"
    told = {file.owner.index for file in notebooks + astray}
    told |= {owner.index for owner in case.owners if owner.name in (".git", "__MACOSX")}
    only_other = {file.owner.index for file in case.files} - told
    dropped = [remark for one in handed for remark in one.remarks if remark.kind == "dropped"]
    assert len(without) + len(dropped) >= len(only_other), "an owner is lost without a word"
    assert_apart(((one.student, one.lms_id), owner_of(one)) for one in handed)
    for one in handed:
        assert one.student and not any(unicodedata.category(c)[0] == "C" for c in one.student)
        assert (one.content is None) == bool(one.cause) == bool(one.trouble)
    assert_identified(handed, {}, [owner.index for owner in case.owners])
    try:
        roster = roster_of(case, rng, where.parent / "roster.csv")
    except TableError as error:
        assert says_it(error, where.parent / "roster.csv"), str(error)
    else:
        assert_identified(handed, roster, [known_by(owner) for owner in case.owners])
    return True


def known_by(owner: Owner) -> str | int:
    """What a roster can tell an owner by: without a number, by the letters of the name."""
    name = shown(owner.name) or "unnamed"
    letters = "".join(c for c in name.casefold() if unicodedata.category(c)[0] in "LMN")
    return owner.index if owner.number else letters or owner.index


def assert_apart(labelled) -> None:
    owners = defaultdict(set)
    for label, owner in labelled:
        if owner is not None:
            owners[label].add(owner)
    merged = {label: found for label, found in owners.items() if len(found) > 1}
    assert not merged, f"several owners became one student: {merged}"


def assert_identified(handed: list[Handed], roster: dict[str, Student], owners: list) -> None:
    """Each file in a lab of its own, so that each has a row, and the rows say whose they are."""
    facts = ("student", "lms_id", "at", "attempt", "marked_late", "cause", "trouble")
    submissions = [
        Submission(file=str(at), lab=f"lab {at}", **{name: getattr(one, name) for name in facts})
        for at, one in enumerate(handed)
    ]
    chosen = counting_submissions(submissions, roster)
    assert sorted(int(one.file) for one in chosen) == list(range(len(handed)))
    found = [(one.student, owner_of(handed[int(one.file)])) for one in chosen]
    assert_apart((student, owners[owner]) for student, owner in found if owner is not None)


@pytest.mark.seeds(SEEDS)
def test_no_delivery_stops_loses_or_merges(tmp_path, seed):
    counts = {True: 0, False: 0}
    for number in range(CASES):
        rng = random.Random(seed * CASES + number)
        in_zip = rng.random() < 0.8
        case = made_up(rng, in_zip)
        where = tmp_path / ("class.zip" if in_zip else "in")
        if in_zip:
            write_zip(case, where, rng)
        else:
            where.mkdir()
            write_folder(case, where, rng)
        try:
            counts[check(case, where, rng)] += 1
        except Exception as error:
            raise AssertionError(f"case {seed * CASES + number}: {error!r}\n{case}") from error
        if not in_zip:
            shutil.rmtree(where)
    assert counts[True] > 0.8 * CASES


@pytest.mark.seeds(SEEDS)
def test_no_damage_to_an_archive_stops_or_merges(tmp_path, seed):
    """Bytes are changed anywhere, so that also names, sizes and the index of the zip are wrong."""
    for number in range(CASES // 3):
        rng = random.Random(seed * CASES + number)
        case = made_up(rng, in_zip=True)
        where = tmp_path / "class.zip"
        write_zip(case, where, rng)
        raw = bytearray(where.read_bytes())
        for _ in range(rng.randint(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        where.write_bytes(raw[: rng.choice((len(raw), len(raw), rng.randrange(len(raw))))])
        try:
            for one in deliveries_in(where, LABS):
                assert (one.content is None) == bool(one.cause) == bool(one.trouble)
        except IntakeError as error:
            assert says_it(error, where), str(error)
