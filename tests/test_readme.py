"""README and the other documents: two lines do all set-up, and every path leads somewhere."""

import re
import shlex
import subprocess
import sys

import pytest

from labkit.base.home import NOTEBOOKS, read_manifest
from labkit.course.build import TABLE_BEGINS, TABLE_ENDS
from labkit.grading.sandbox.bubblewrap import NOT_PROTECTED

ROOT = NOTEBOOKS.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = "python -m venv .venv && . .venv/bin/activate && pip install -r requirements.txt"
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs", "data", "data/questions")
    for path in (ROOT / folder).glob("*.md")
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.+?)\n```", README, re.DOTALL)


def test_the_readme_gives_exactly_the_two_lines():
    assert blocks("bash") == [
        f"{INSTALL} && jupyter lab notebooks/00_start_here.ipynb",
        f'{INSTALL} -e ".[dev]" && pytest',
    ]


def test_instructors_and_the_doctor_name_the_exercises_that_can_be_deceived():
    text = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
    table = text.partition("| what an answer can fake or read |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d\d) \| (.+?) \|", table, re.MULTILINE)
    known = {
        (entry.lab[:2], one.exercise) for entry in read_manifest().labs for one in entry.exercises
    }
    named = {(lab, name) for lab, names in rows for name in re.findall("`(.+?)`", names)}
    assert len(named) >= len(rows) > 0 and named <= known
    labs = f"labs {', '.join(sorted({lab for lab, _ in named})[:-1])} and {max(named)[0]}"
    assert labs in " ".join(NOT_PROTECTED.split())


def test_ci_runs_the_readmes_line():
    settings = [
        text for text in (ROOT / ".ci" / "run").read_text().splitlines() if re.match(r"\w+=", text)
    ]
    chosen = [text for text in settings if text.startswith(("install=", "line="))]
    shown = subprocess.run(
        ["bash", "-c", "\n".join([*chosen, 'printf %s "$line"'])], capture_output=True, text=True
    )
    assert shown.stdout == blocks("bash")[1]


def test_every_lab_of_the_table_says_what_one_can_do_after_it():
    table = README.partition(TABLE_BEGINS)[2].partition(TABLE_ENDS)[0]
    row = r"^\| \[(\d\d) .*\]\(.*\) \| \d+(?: \+ \d+ optional)? \| (.*) \|$"
    rows = dict(re.findall(row, table, re.MULTILINE))
    assert list(rows) == [lab.lab[:2] for lab in read_manifest().labs]
    assert all(len(outcome) > 20 for outcome in rows.values()), rows


def test_the_readmes_example_prints_what_its_comments_say():
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert "inf" in first and "0.3125" in second and "nan" in second


# What a document may name though no clone holds it: what a reader makes, a name in JavaScript.
MADE = {"notebooks/my_labs/", ".venv/bin/activate", "labkit/elements"}
ENDINGS = r"py|md|js|css|toml|ipynb|yml"
"""Of a name without a folder; a table or a zip is the reader's own."""


def named_paths(text: str) -> list[str]:
    """The links to files, and the paths between backticks that name one file or folder."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    quoted = [word for code in re.findall(r"`([^`\n]+)`", text) for word in words_of(code)]
    looks = re.compile(rf"(\.?[\w-]+/)+([\w.-]+)?|[\w-]+\.({ENDINGS})")
    return links + [word for word in quoted if looks.fullmatch(word) and not is_made_up(word)]


def words_of(code: str) -> list[str]:
    try:
        return shlex.split(code)
    except ValueError:  # an apostrophe in code
        return code.split()


def is_made_up(path: str) -> bool:
    """NAME, TOPIC, OUT.json: capitals stand for what the reader chooses."""
    return bool(re.search(r"\b[A-Z]{2,}\b|_[A-Z]+\b|[A-Z]+_", path.removesuffix(".md")))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(document):
    here = (ROOT / document).parent
    folders = [ROOT / name for name in ("labkit", "tests", "notebooks", "data", "docs")]
    names = {path.name for folder in folders for path in folder.rglob("*")}
    gone = [
        path
        for path in named_paths((ROOT / document).read_text(encoding="utf-8"))
        if path not in MADE
        and not (ROOT / path).exists()
        and not (here / path).exists()
        and not ("/" not in path and path in names)
    ]
    assert gone == []


def test_a_path_that_leads_nowhere_is_seen():
    text = "[a](gone.md#x) `labkit/gone.py` `python -m x gone/` `widget_NAME.js` `a / b` `x.grad`"
    assert named_paths(text) == ["gone.md", "labkit/gone.py", "gone/"]
