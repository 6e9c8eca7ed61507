"""``labkit grade`` from end to end, with a grader that needs no sandbox."""

import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from handing_in import LAB, POINTS, as_bytes, hand_in, small, solved, unsolved
from quick_grader import QuickGrader, answer, grade_command

from labkit.base.home import NOTEBOOKS
from labkit.grading import command
from labkit.grading.command import ALL_GRADED, CANNOT_START, INTERRUPTED, SOME_UNGRADED
from labkit.grading.intake.deliveries import Handed
from labkit.grading.intake.remarks import Remark
from labkit.grading.report import feedback, tables
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.labs.other_frameworks import frameworks


@pytest.fixture
def grader():
    class Grader(QuickGrader):
        graded = []  # noqa: RUF012 - this test's own

    return Grader


def grade(grader, root: Path, *more: object) -> int:
    words = [root, "-o", root / "grades.csv", "--jobs", "2", *more]
    return grade_command(words, grader)


def rows(root: Path, name: str = "grades.csv") -> list[dict]:
    with open(root / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def row(root: Path, student: str, exercise: str = "ulp") -> dict:
    (one,) = [r for r in rows(root) if (r["student"], r["exercise"]) == (student, exercise)]
    return one


def outputs(root: Path) -> dict[str, bytes]:
    files = sorted(path for path in root.rglob("grades.*") if path.is_file())
    files += sorted((root / "grades.feedback").iterdir())
    return {path.name: path.read_bytes() for path in files if path.suffix != ".db"}


def test_a_class_is_graded_by_its_checks(tmp_path, capsys):
    """With the runner itself, in the sandbox where there is one."""
    hand_in(tmp_path, ada=solved(), bob=unsolved(), cy=as_bytes(solved())[:-99], di=small(""))
    assert grade(None, tmp_path, *(["--no-sandbox"] if sandbox.why_not() else [])) == SOME_UNGRADED
    earned = {(r["student"], r["exercise"]): (r["status"], r["points"]) for r in rows(tmp_path)}
    assert len(earned) == 4 * len(POINTS)
    for exercise, points in POINTS.items():
        assert earned["ada", exercise] == ("passed", str(points))
        assert earned["bob", exercise] == ("not attempted", "0")
        assert earned["cy", exercise] == ("not graded", "")
        assert earned["di", exercise] == ("not attempted", "0")
    totals = {r["student"]: r[LAB] for r in rows(tmp_path, "grades.totals.csv")}
    assert totals == {"ada": f"{sum(POINTS.values())}", "bob": "0", "cy": "", "di": "0"}
    said = capsys.readouterr().out
    assert "Files that were not graded (1):\n  cy: corrupt: " in said


def test_a_rerun_grades_only_what_changed(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("fails")))
    assert grade(grader, tmp_path) == ALL_GRADED
    first = outputs(tmp_path)
    assert len(grader.graded) == 2
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) == 2
    assert outputs(tmp_path) == first
    file = tmp_path / "submitted" / "bob" / LAB / f"{LAB}.ipynb"
    file.write_bytes(as_bytes(small(answer("passes") + "  # now")))
    capsys.readouterr()
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) == 3
    said = capsys.readouterr().out
    assert f"Changed since the last run (1):\n  bob {LAB} ulp: 0 -> 2 (failed -> passed)" in said


def test_copies_and_identical_answers_are_told_and_cost_nothing(tmp_path, grader, capsys):
    own = (
        "def snap(x):  # {}\n    y = math.frexp(x)[1] + math.floor(x / 3 - 1)\n"
        + "    y = y * x + 1\n" * 5
    )
    solutions = solved()
    solutions["cells"] = [c for c in solutions["cells"] if c["cell_type"] == "code"]
    hand_in(
        tmp_path,
        ada=small(own.format("passes")),
        bob=small(own.replace("y", "z").format("passes")),
        eve=small(answer("fails")),
        zoe=solutions,
    )
    assert grade(grader, tmp_path) == ALL_GRADED
    told = {
        (one["kind"], one["who"]): one["remark"] for one in rows(tmp_path, "grades.remarks.csv")
    }
    alike = {key: said for key, said in told.items() if key[0] in ("copied", "identical")}
    assert set(alike) == {("identical", "ada"), ("identical", "bob"), ("copied", "zoe")}
    assert "`ada`, `bob`" in told["identical", "ada"] and "snap" in told["identical", "ada"]
    assert row(tmp_path, "ada", "snap")["points"] == row(tmp_path, "bob", "snap")["points"] == "3"
    said = capsys.readouterr().out
    assert "Identical answers (2):" in said and "Copies of the published solution (1):" in said
    for page in (tmp_path / "grades.feedback").iterdir():
        assert not re.search("identical|published|copied", page.read_text())
    names = (tmp_path / "grades.names.html").read_text()
    for student in ("ada", "bob", "eve", "zoe"):
        (link,) = re.findall(rf'href="\./([^"]*/{student}\.html)"', names)
        assert (tmp_path / link).is_file()
    first = outputs(tmp_path)
    assert grade(grader, tmp_path) == ALL_GRADED and outputs(tmp_path) == first


def test_a_new_check_version_grades_that_exercise_again(tmp_path, grader, monkeypatch):
    hand_in(tmp_path, ada=small(answer("passes")))
    grade(grader, tmp_path)
    course = command.read_course()
    course[LAB].check_versions["snap"] = "new"
    monkeypatch.setattr(command, "read_course", lambda: course)
    grade(grader, tmp_path)
    _, again = grader.graded
    assert [one.exercise for one in again.exercises] == ["snap"]


@pytest.mark.parametrize("change", ["secret", "sandbox", "extra"])
def test_a_setting_that_matters_grades_again(tmp_path, grader, change):
    hand_in(tmp_path, ada=small(answer("passes")))
    grade(grader, tmp_path)
    more = {
        "secret": ["--secret-file", "s"],
        "sandbox": ["--no-sandbox"],
        "extra": ["--extra", "x"],
    }
    (tmp_path / "s").write_text("0123456789abcdef")
    (tmp_path / "x").write_text(EXTRA)
    words = [tmp_path / w if w in ("s", "x") else w for w in more[change]]
    grade(grader, tmp_path, *words)
    assert len(grader.graded) == 2


EXTRA = f"""
from labkit.labs.engine import calls, check
LAB = "{LAB}"
POINTS = {{"ulp": 3}}
@check(calls([1.0]))
def check_ulp(gaps):
    '''Mine.'''
"""


def test_a_hidden_check_is_a_row_of_its_own_and_its_source_is_nowhere(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes")), bob=b"")
    (tmp_path / "mine.py").write_text(EXTRA)
    assert grade(grader, tmp_path, "--extra", tmp_path / "mine.py") == SOME_UNGRADED
    hidden = row(tmp_path, "ada", "hidden-ulp")
    assert (hidden["points"], hidden["possible"], hidden["hidden"]) == ("3", "3", "yes")
    assert row(tmp_path, "bob", "hidden-ulp")["points"] == ""
    total = rows(tmp_path, "grades.totals.csv")[0]
    assert total[f"{LAB} possible"] == f"{sum(POINTS.values()) + 3}"
    for name, content in outputs(tmp_path).items():
        assert b"calls([1.0])" not in content, name


HALVES = {"ulp": "neither", "decode": "the first", "snap": "the judge", "window": "both"}
HALVES_AND_SEEDS = f'''
from labkit.labs.engine import Mistake, attempt, check

LAB = "{LAB}"
POINTS = dict.fromkeys({[*HALVES]}, 2)


def run_plain(answer):
    return [attempt(answer, 1.0), None]


def run_seeded(answer, seed):
    return [attempt(answer, 1.0), seed]


def half_of_one(told):
    if told[0] != 0.5:
        raise Mistake(f"half of 1.0 is {{told[0]}}.")


@check(run_plain)
def check_ulp(told):
    """Neither half takes a seed."""
    half_of_one(told)


@check(run_seeded)
def check_decode(told):
    """The first half alone."""
    half_of_one(told)
    assert 0 <= told[1] < 2**32


@check(run_plain)
def check_snap(told, seed):
    """The judge alone."""
    half_of_one(told)
    assert told[1] is None and 0 <= seed < 2**32


@check(run_seeded)
def check_window(told, seed):
    """Both, and the same one."""
    half_of_one(told)
    assert told[1] == seed
'''


@pytest.mark.parametrize(("part", "due"), [(0.5, ("passed", "2")), (0.25, ("failed", "0"))])
def test_whichever_half_takes_the_seed_an_answer_gets_its_due(tmp_path, part, due):
    answers = "\n\n".join(f"def {name}(x):\n    return {part} * x" for name in HALVES)
    hand_in(tmp_path, ada=small(answers))
    (tmp_path / "mine.py").write_text(HALVES_AND_SEEDS)
    more = ["--no-sandbox"] if sandbox.why_not() else []
    assert grade(None, tmp_path, "--extra", tmp_path / "mine.py", *more) == ALL_GRADED
    for exercise, half in HALVES.items():
        told = row(tmp_path, "ada", f"hidden-{exercise}")
        assert (told["status"], told["points"]) == due, (half, told)


def test_only_grades_one_exercise_again_and_keeps_the_others(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes") + "\n" + answer("fails", "snap")))
    assert grade(grader, tmp_path, "--only", "ulp") == ALL_GRADED
    assert row(tmp_path, "ada")["status"] == "passed"
    assert row(tmp_path, "ada", "snap")["cause"] == "not asked for"
    grade(grader, tmp_path)
    assert grade(grader, tmp_path, "--only", "ulp") == ALL_GRADED
    asked = [[one.exercise for one in work.exercises] for work in grader.graded]
    assert asked == [["ulp"], [e for e in POINTS if e != "ulp"], ["ulp"]]
    assert row(tmp_path, "ada", "snap")["status"] == "failed"


def test_the_graders_own_fault_stops_nothing_and_is_tried_again(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("breaks")), bob=small(answer("passes")))
    assert grade(grader, tmp_path) == SOME_UNGRADED
    assert row(tmp_path, "bob")["status"] == "passed"
    broken = row(tmp_path, "ada")
    assert (broken["status"], broken["cause"], broken["points"]) == ("not graded", "grader", "")
    assert "RuntimeError: the grader's own fault" in broken["message"]
    assert len(grader.graded) == 2
    grade(grader, tmp_path)
    (again,) = grader.graded[2:]
    assert "breaks" in again.cells[-1]


def test_wall_time_marks_the_row_for_another_run(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("again")))
    assert grade(grader, tmp_path) == SOME_UNGRADED
    assert row(tmp_path, "ada")["rerun"] == "yes"
    said = capsys.readouterr().out
    assert "Exercises that are not graded (1):" in said and "tried again by the same" in said
    grade(grader, tmp_path)
    assert [[one.exercise for one in work.exercises] for work in grader.graded[1:]] == [["ulp"]]


def test_an_exercise_that_ran_out_of_time_is_graded(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("stops")))
    assert grade(grader, tmp_path) == ALL_GRADED
    assert (row(tmp_path, "ada")["cause"], row(tmp_path, "ada")["points"]) == ("time", "0")


def test_any_number_of_workers_gives_the_same_bytes(tmp_path, grader):
    words = ["passes", "fails", "believes", "stops"]
    made = {f"s{n}": small(answer(words[n % 4]) + f"  # {n}") for n in range(12)}
    for name, jobs in (("one", 1), ("four", 4)):
        root = hand_in(tmp_path / name, **made)
        (root / "grades.secret").write_text("0123456789abcdef")
        grader.seconds = 0.01
        assert grade(grader, root, "--jobs", jobs) == ALL_GRADED
    assert outputs(tmp_path / "one") == outputs(tmp_path / "four")


def test_the_same_file_of_two_students_is_graded_once(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("passes")))
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) == 1
    assert row(tmp_path, "ada")["points"] == row(tmp_path, "bob")["points"] == "2"


ROSTER = """\
id,name,lms_id,due
ada,Ada Lovelace,7,2026-10-02T00:00+00:00
bob,Bob,8,2026-10-02T00:00+00:00
eve,Eve,9,
"""


def test_a_roster_brings_names_lateness_and_the_missing(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("passes")), zed=small(""))
    (tmp_path / "roster.csv").write_text(ROSTER)
    for student, at in (("ada", "2026-10-01"), ("bob", "2026-10-03")):
        stamp = tmp_path / "submitted" / student / LAB / "timestamp.txt"
        stamp.write_text(f"{at} 12:00:00 UTC")
    assert grade(grader, tmp_path, "--roster", tmp_path / "roster.csv") == SOME_UNGRADED
    ada, bob, eve = (row(tmp_path, student) for student in ("ada", "bob", "eve"))
    assert (ada["name"], ada["lms_id"], ada["late"]) == ("Ada Lovelace", "7", "")
    assert bob["late"] == "yes"
    assert (eve["status"], eve["points"]) == ("missing", "0")
    said = capsys.readouterr().out
    assert "Nothing was handed in (1):\n  eve: " in said
    assert "Not in the roster (1):\n  zed: " in said
    shutil.rmtree(tmp_path / "submitted" / "zed")
    assert grade(grader, tmp_path, "--roster", tmp_path / "roster.csv") == ALL_GRADED


def moodle(root: Path, **words: str) -> None:
    """A folder as Moodle packs it; the keywords are names and numbers such as `Ada_7`."""
    for who, word in words.items():
        folder = root / "in" / f"{who}_assignsubmission_file_"
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_bytes(as_bytes(small(answer(word) + f"  # {who}")))


def remarks(root: Path) -> dict[str, list[str]]:
    """Who stands in the list of remarks, by kind."""
    found: dict[str, list[str]] = {}
    for one in rows(root, "grades.remarks.csv"):
        found.setdefault(one["kind"], []).append(one["who"])
    return found


def grade_moodle(grader, root: Path, *more: object) -> int:
    words = [root / "in", "-o", root / "grades.csv", "--lab", LAB, *more]
    return grade_command(words, grader)


@pytest.mark.parametrize("name", ["Ada Lovelace", "al01", "Bob"])
def test_a_stranger_never_takes_the_place_of_a_listed_student(tmp_path, grader, capsys, name):
    """A namesake, a name that is somebody's id, a name that is another student's."""
    table = tmp_path / "roster.csv"
    table.write_text("id,name,lms_id\nal01,Ada Lovelace,111\nbb02,Bob,222\n")
    moodle(tmp_path, **{"Ada Lovelace_111": "passes", "Bob_222": "passes", f"{name}_999": "fails"})
    assert grade_moodle(grader, tmp_path, "--roster", table) == SOME_UNGRADED
    points = {r["student"]: r["points"] for r in rows(tmp_path) if r["exercise"] == "ulp"}
    assert points == {"al01": "2", "bb02": "2", f"{name} (999)": "0"}
    assert remarks(tmp_path) == {"contradicting": [f"{name} (999)"]}
    assert f"Contradicting identities (1):\n  {name} (999): " in capsys.readouterr().out
    assert "999" not in row(tmp_path, "al01")["repairs"]
    summary = (tmp_path / "grades.summary.html").read_text()
    assert "Contradicting identities" in summary and name not in summary


def test_a_stranger_alone_leaves_the_listed_student_without_a_file(tmp_path, grader):
    table = tmp_path / "roster.csv"
    table.write_text("id,name,lms_id\nal01,Ada Lovelace,111\n")
    moodle(tmp_path, **{"Ada Lovelace_999": "passes"})
    assert grade_moodle(grader, tmp_path, "--roster", table) == SOME_UNGRADED
    assert row(tmp_path, "al01")["status"] == "missing"
    assert remarks(tmp_path) == {
        "contradicting": ["Ada Lovelace (999)"],
        "missing": ["al01"],
    }


def test_a_file_of_no_lab_is_not_nothing(tmp_path, grader):
    """A student of the roster whose only file cannot be read gets no 0 for a missing lab."""
    (tmp_path / "roster.csv").write_text(ROSTER)
    hand_in(tmp_path, ada=small(answer("passes")), eve=small(""))
    (tmp_path / "submitted" / "bob").mkdir()
    (tmp_path / "submitted" / "bob" / "x.ipynb").write_bytes(b"{")
    assert grade(grader, tmp_path, "--roster", tmp_path / "roster.csv") == SOME_UNGRADED
    assert [(r["lab"], r["points"]) for r in rows(tmp_path) if r["student"] == "bob"] == [("", "")]
    assert remarks(tmp_path) == {"dropped": ["bob"]}


def write_at(file: Path, content: bytes, at: int) -> None:
    file.write_bytes(content)
    os.utime(file, (at, at))


def test_a_newer_file_that_cannot_be_read_is_told_and_an_older_one_is_not(tmp_path, grader):
    hand_in(tmp_path, ada=b"", bob=b"")
    for student, broken in (("ada", 2000), ("bob", 1000)):
        folder = tmp_path / "submitted" / student / LAB
        write_at(folder / f"{LAB}.ipynb", as_bytes(small(answer("passes"))), 1500)
        write_at(folder / "new.ipynb", b"{", broken)
    assert grade(grader, tmp_path) == SOME_UNGRADED
    assert {row(tmp_path, student)["points"] for student in ("ada", "bob")} == {"2"}
    assert remarks(tmp_path) == {"merged": ["bob"], "dropped": ["ada"]}


def test_a_notebook_without_an_exercise_does_not_take_the_place_of_an_answer(tmp_path, grader):
    hand_in(tmp_path, ada=b"")
    folder = tmp_path / "submitted" / "ada" / LAB
    write_at(folder / f"{LAB}.ipynb", as_bytes(small(answer("passes"))), 1500)
    write_at(folder / "scratch.ipynb", as_bytes(small("x = 1")), 2000)
    assert grade(grader, tmp_path) == ALL_GRADED
    assert row(tmp_path, "ada")["points"] == "2"
    assert remarks(tmp_path)["merged"] == ["ada"]


def test_the_slowest_are_listed_with_their_seconds(tmp_path, grader, capsys):
    class Slow(grader):
        def grade(self, work):
            seconds = float(work.cells[-1].rpartition("# ")[2])
            first, *others = super().grade(work)
            return [replace(first, wall_seconds=seconds), *others]

    hand_in(tmp_path, **{f"s{n}": small(f"{answer('passes')}  # {n}") for n in range(1, 8)})
    assert grade(Slow, tmp_path) == ALL_GRADED
    assert remarks(tmp_path) == {"slow": ["s7", "s6", "s5", "s4", "s3"]}
    assert "Slowest (5):\n  s7: " in capsys.readouterr().out
    first = rows(tmp_path)[0]
    assert (first["seconds"], first["of_submission"]) == ("1", "1")
    assert row(tmp_path, "s1")["seconds"] == ""


def test_the_list_on_a_terminal_is_bounded_and_the_file_has_all(tmp_path, grader, capsys):
    hand_in(tmp_path, **{f"s{n:02}": b"\0" * (n + 1) for n in range(40)})
    (tmp_path / "submitted" / "zz" / LAB).mkdir(parents=True)
    (tmp_path / "submitted" / "zz" / LAB / "x.ipynb").write_bytes(b"<html>" + b"x" * 9999)
    assert grade(grader, tmp_path) == SOME_UNGRADED
    said = capsys.readouterr().out
    assert "Files that were not graded (41):\n  s00, s01, s02, s03, s04, s05 and 34 more: " in said
    assert "The whole list is in grades.remarks.csv." in said and len(said.splitlines()) < 12
    assert len(remarks(tmp_path)["dropped"]) == 41


def test_a_terminal_that_cannot_show_a_name_stops_nothing(tmp_path, grader, monkeypatch):
    """The names stand in the list after the tables: it raised UnicodeEncodeError."""
    hand_in(tmp_path, **{"李雷": b"", "\udcffé": b""})
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    assert grade(grader, tmp_path) == SOME_UNGRADED
    out.flush()
    assert rb"\u674e\u96f7" in out.buffer.getvalue()
    assert "李雷" in {r["student"] for r in rows(tmp_path)}


def test_a_terminal_that_has_gone_stops_nothing(tmp_path, grader, monkeypatch):
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    hand_in(tmp_path, ada=small(answer("passes")))
    monkeypatch.setattr(sys, "stdout", Gone())
    assert grade(grader, tmp_path) == ALL_GRADED
    assert row(tmp_path, "ada")["points"] == "2"


def test_pages_of_an_earlier_run_go_and_other_files_stay(tmp_path, grader):
    hand_in(
        tmp_path, **{"Ada Lovelace": small(answer("passes")), "bob": small(""), "cy": small("")}
    )
    assert grade(grader, tmp_path) == ALL_GRADED
    pages = tmp_path / "grades.feedback"
    stale = {page.name for page in pages.iterdir()}
    assert len(stale) == 3
    (pages / "notes.html").write_text("mine")
    (pages / "cy.html").write_text("What I think of it.")
    (tmp_path / "roster.csv").write_text("id,name,lms_id\nal01,Ada Lovelace,\nb2,bob,\nc3,cy,\n")
    assert grade(grader, tmp_path, "--roster", tmp_path / "roster.csv") == ALL_GRADED
    there = {page.name for page in pages.iterdir()}
    assert there == {"al01.html", "b2.html", "c3.html", "notes.html", "cy.html"}
    assert (pages / "cy.html").read_text() == "What I think of it."
    assert grade(grader, tmp_path) == ALL_GRADED
    assert {page.name for page in pages.iterdir()} == {*stale, "notes.html"}


def test_a_page_is_made_again_only_where_something_of_it_has_changed(tmp_path, grader, monkeypatch):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("fails")), cy=small(""))
    made = []

    def spied(sheets, course, **options):
        made.append(sheets[0].submission.student)
        return real(sheets, course, **options)

    real = feedback.feedback
    monkeypatch.setattr(feedback, "feedback", spied)
    assert grade(grader, tmp_path) == ALL_GRADED
    pages = tmp_path / "grades.feedback"
    held = {page: page.read_bytes() for page in pages.iterdir()}
    assert made == ["ada", "bob", "cy"]
    assert grade(grader, tmp_path) == ALL_GRADED
    assert made == ["ada", "bob", "cy"]
    (pages / "ada.html").write_text("overwritten")
    (pages / "bob.html").unlink()
    assert grade(grader, tmp_path) == ALL_GRADED
    assert made[3:] == ["ada", "bob"]
    assert held == {page: page.read_bytes() for page in pages.iterdir()}
    assert grade(grader, tmp_path, "--chinese") == ALL_GRADED
    assert made[5:] == ["ada", "bob", "cy"]
    table = "student,lab,exercise,points,reason\ncy,02,snap,1,oral\n"
    (tmp_path / "overrides.csv").write_text(table)
    words = "--chinese", "--overrides", tmp_path / "overrides.csv"
    assert grade(grader, tmp_path, *words) == ALL_GRADED
    assert made[8:] == ["cy"]
    monkeypatch.setattr(feedback, "_maker", lambda: "another labkit")
    assert grade(grader, tmp_path, *words) == ALL_GRADED
    assert made[9:] == ["ada", "bob", "cy"]


def test_a_page_of_a_run_that_was_stopped_is_known_to_the_next(tmp_path, grader, monkeypatch):
    def interrupted(path, content):
        path.write_bytes(content)
        raise KeyboardInterrupt

    hand_in(tmp_path, ada=small(answer("passes")))
    with monkeypatch.context() as patch:
        patch.setattr(feedback, "replace_file", interrupted)
        assert grade(grader, tmp_path) == INTERRUPTED
    (tmp_path / "submitted" / "ada").rename(tmp_path / "submitted" / "bob")
    assert grade(grader, tmp_path) == ALL_GRADED
    assert [page.name for page in (tmp_path / "grades.feedback").iterdir()] == ["bob.html"]


def test_a_ledger_of_before_there_were_pages_opens(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes")))
    assert grade(grader, tmp_path) == ALL_GRADED
    with sqlite3.connect(tmp_path / "grades.ledger.db") as log:
        log.execute("DROP TABLE pages")
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) == 1


def test_chinese_is_on_the_pages_where_it_is_asked_for(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("believes")))
    for more, expected in (([], False), (["--chinese"], True)):
        assert grade(grader, tmp_path, *more) == ALL_GRADED
        page = (tmp_path / "grades.feedback" / "ada.html").read_text()
        assert bool(re.search("[\u4e00-\u9fff]", page)) == expected


def test_the_last_attempt_in_time_counts_and_the_others_are_named(tmp_path, grader):
    (tmp_path / "roster.csv").write_text(ROSTER)
    hand_in(tmp_path, ada=small(answer("fails")))
    folder = tmp_path / "submitted" / "ada" / LAB
    for name, word, at in (("b", "passes", 1759300000), ("c", "fails", 1859300000)):
        (folder / f"{name}.ipynb").write_bytes(as_bytes(small(answer(word))))
        os.utime(folder / f"{name}.ipynb", (at, at))
    os.utime(folder / f"{LAB}.ipynb", (1659300000, 1659300000))
    grade(grader, tmp_path, "--roster", tmp_path / "roster.csv")
    ada = row(tmp_path, "ada")
    assert (ada["status"], ada["late"], ada["file"]) == ("passed", "", f"ada/{LAB}/b.ipynb")
    assert f"`ada/{LAB}/c.ipynb` is another attempt and does not count." in ada["repairs"]


def test_lines_that_a_terminal_does_not_show_are_counted(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("fails")))
    lines = "".join(f"s{n},{LAB},ulp,1,x\n" for n in range(43))
    (tmp_path / "overrides.csv").write_text(f"student,lab,exercise,points,reason\n{lines}")
    grade(grader, tmp_path, "--overrides", tmp_path / "overrides.csv")
    said = capsys.readouterr().out
    assert said.count("An override meets nothing") == 40 and "  and 3 more\n" in said


def test_overrides_are_kept_by_a_regrade(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("fails")))
    table = tmp_path / "overrides.csv"
    head = "student,lab,exercise,points,reason\n"
    table.write_text(f"{head}ada,{LAB},ulp,1.5,oral answer\nnoone,{LAB},ulp,1,x\n")
    assert grade(grader, tmp_path, "--overrides", table) == ALL_GRADED
    assert f"An override meets nothing: noone, {LAB}, ulp." in capsys.readouterr().out
    for more in ([], ["--only", "ulp"]):
        grade(grader, tmp_path, *more)
        ada = row(tmp_path, "ada")
        assert (ada["points"], ada["checked"], ada["override"]) == ("1.5", "0", "oral answer")
    table.write_text(head)
    grade(grader, tmp_path, "--overrides", table)
    assert row(tmp_path, "ada")["points"] == "0"


def test_what_an_instructor_wrote_is_kept_by_a_rerun_without_the_file(tmp_path, grader, capsys):
    hand_in(tmp_path, ada=small(answer("fails")), bob=small(answer("passes")))
    table = tmp_path / "overrides.csv"
    table.write_text(
        "student,lab,exercise,points,reason,comment,possible\n"
        "ada,02,essay,3.5,two of three,Well written.,5\n"
        "*,02,essay,0,nothing came,,\n"
        "*,02,,,,The median is 4.,\n"
    )
    outputs = []
    for more in (["--overrides", table], []):
        assert grade(grader, tmp_path, *more) == ALL_GRADED
        pages = [tmp_path / "grades.feedback" / f"{name}.html" for name in ("ada", "bob")]
        outputs.append([file.read_bytes() for file in (tmp_path / "grades.json", *pages)])
    assert outputs[0] == outputs[1]
    assert all(b"The median is 4." in page for page in outputs[0][1:])
    essays = {r["student"]: r for r in rows(tmp_path) if r["exercise"] == "essay"}
    assert [essays[name]["points"] for name in ("ada", "bob")] == ["3.5", "0"]
    assert {r["possible"] for r in essays.values()} == {"5"}


def test_a_file_of_no_lab_is_named_and_does_not_hide_the_lab(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes")), bob=b"{}")
    (tmp_path / "submitted" / "ada" / "notes.ipynb").write_bytes(b'{"cells": []}')
    assert grade(grader, tmp_path) == SOME_UNGRADED
    assert {r["lab"] for r in rows(tmp_path)} == {LAB}
    assert "`ada/notes.ipynb` was left out" in row(tmp_path, "ada")["repairs"]


def test_what_concerns_the_whole_delivery_is_told_whichever_file_it_stands_with(
    tmp_path, grader, monkeypatch
):
    """The intake tells it with the first file, which may be of another lab."""
    other = small("x = 1")
    other["metadata"]["labkit"] = {"lab": "04_loss_scaling", "version": "x"}
    said = (
        Remark(kind="dropped", who="notes.txt", said="Left out."),
        Remark(kind="dropped", who="ada", said="A helper was left out."),
    )
    files = [
        Handed(student="ada", file="a.ipynb", content=as_bytes(other), remarks=said),
        Handed(student="bob", file="b.ipynb", content=as_bytes(small(answer("passes")))),
    ]
    monkeypatch.setattr(command, "deliveries_in", lambda *_: iter(files))
    assert grade(grader, tmp_path, "--lab", LAB) == SOME_UNGRADED
    assert remarks(tmp_path) == {"dropped": ["notes.txt"]}


def test_notebooks_of_other_labs_are_left_out_with_lab(tmp_path, grader, capsys):
    other = small(answer("passes"))
    other["metadata"]["labkit"] = {"lab": "04_loss_scaling", "version": "x"}
    other["cells"] = []
    hand_in(tmp_path, ada=small(answer("passes")), bob=other)
    assert grade(grader, tmp_path, "--lab", "02") == ALL_GRADED
    assert {r["student"] for r in rows(tmp_path)} == {"ada"}
    assert f"because they are of other labs than {LAB}: 1 notebooks." in capsys.readouterr().out


def test_nothing_of_a_student_becomes_a_formula_or_a_tag(tmp_path, grader):
    evil = '=HYPERLINK("http://x")<script>alert(1)</script>'
    (tmp_path / f"{evil.replace('/', '_')}.ipynb").write_bytes(
        as_bytes(small(answer("fails") + '  # </code><img src=x onerror="alert(1)">'))
    )
    assert grade(grader, tmp_path) == ALL_GRADED
    assert all(r["student"].startswith("'=HYPERLINK") for r in rows(tmp_path))
    (page,) = (tmp_path / "grades.feedback").iterdir()
    text = page.read_text()
    assert "&lt;script&gt;" in text and "&lt;/code&gt;&lt;img" in text.replace("</span>", "")
    for hostile in ("<script", "<img", 'http://x"'):
        assert hostile not in text


CANNOT = {
    "no submissions": (["{root}/none", "-o", "{root}/g.csv"], "does not exist"),
    "an empty folder": (["{root}/empty", "-o", "{root}/g.csv"], "holds no submissions"),
    "an unknown lab": (["{root}", "-o", "{root}/g.csv", "--lab", "77"], "There is no lab '77'"),
    "an unknown exercise": (["{root}", "-o", "{root}/g.csv", "--only", "x"], "no exercise 'x'"),
    "no folder to write": (["{root}", "-o", "{root}/no/g.csv"], "is no folder"),
    "a folder as output": (["{root}", "-o", "{root}/empty"], "is a folder"),
    "no output": (["{root}"], "Name the submissions and the table"),
    "no extra file": (["{root}", "-o", "{root}/g.csv", "--extra", "{root}/x.py"], "x.py"),
    "a broken extra file": (["{root}", "-o", "{root}/g.csv", "--extra", "{root}/bad.py"], "line 3"),
    "a misspelt extra file": (
        ["{root}", "-o", "{root}/g.csv", "--extra", "{root}/typo.py"],
        "(line 2)",
    ),
    "an extra file of no exercise": (
        ["{root}", "-o", "{root}/g.csv", "--extra", "{root}/other.py"],
        "checks 'upl'",
    ),
    "a roster without columns": (
        ["{root}", "-o", "{root}/g.csv", "--roster", "{root}/bad.py"],
        "lacks the column 'id'",
    ),
    "a short secret": (["{root}", "-o", "{root}/g.csv", "--secret-file", "{root}/short"], "16"),
    "a ledger that is none": (["{root}", "-o", "{root}/spoilt.csv"], "spoilt.ledger.db"),
}


@pytest.mark.parametrize(("words", "said"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_start_says_why_in_one_line(tmp_path, grader, capsys, words, said):
    hand_in(tmp_path, ada=small(answer("passes")))
    (tmp_path / "empty").mkdir()
    (tmp_path / "short").write_text("abc")
    (tmp_path / "bad.py").write_text("LAB = 'x'\n\nprint(1 / 0)\n")
    (tmp_path / "typo.py").write_text("LAB = 'x'\ndef (\n")
    (tmp_path / "other.py").write_text(EXTRA.replace("ulp", "upl"))
    (tmp_path / "spoilt.ledger.db").write_text("not a database, and long enough to be read so")
    status = grade_command([word.format(root=tmp_path) for word in words], grader)
    err = capsys.readouterr().err
    assert (status, grader.graded) == (CANNOT_START, [])
    assert said in err and err.count("\n") == 1


def test_an_output_that_cannot_be_written_is_found_before_grading(
    tmp_path, grader, capsys, monkeypatch
):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    hand_in(tmp_path, ada=small(answer("passes")))
    monkeypatch.setattr(Path, "touch", refuse)
    assert (grade(grader, tmp_path), grader.graded) == (CANNOT_START, [])
    assert "grades.csv cannot be written (Permission denied)" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_graded(tmp_path, grader, capsys):
    hand_in(tmp_path, **{f"s{n}": small(answer("passes") + f"  # {n}") for n in range(6)})

    class Stopped(grader):
        def grade(self, work):
            if len(self.graded) == 3:
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.5)
            return super().grade(work)

    assert grade(Stopped, tmp_path, "--jobs", "1") == INTERRUPTED
    said = re.search(r"(\d) of 6 are graded and kept; the same command", capsys.readouterr().err)
    assert not (tmp_path / "grades.csv").exists()
    time.sleep(1)  # for the thread that was stopped in the middle
    before = len(grader.graded)
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) - before == 6 - int(said[1])
    assert {r["points"] for r in rows(tmp_path) if r["exercise"] == "ulp"} == {"2"}


def test_ctrl_c_while_the_tables_are_written_is_one_sentence(tmp_path, grader, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    hand_in(tmp_path, ada=small(answer("passes")))
    monkeypatch.setattr(tables, "write_text", interrupted)
    assert grade(grader, tmp_path) == INTERRUPTED
    assert "What was graded is kept" in capsys.readouterr().err


def test_a_full_disk_after_grading_is_one_sentence(tmp_path, grader, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    hand_in(tmp_path, ada=small(answer("passes")))
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_text", full)
        assert grade(grader, tmp_path) == SOME_UNGRADED
    assert "No space left on device). What was graded is kept" in capsys.readouterr().err
    assert grade(grader, tmp_path) == ALL_GRADED
    assert len(grader.graded) == 1


SLOW = """
import sys
sys.path.insert(0, {folder!r})
from quick_grader import QuickGrader, grade_command
QuickGrader.seconds = 0.2
sys.exit(grade_command({words!r}, QuickGrader))
"""


def test_a_kill_in_the_middle_is_resumed_with_no_row_lost_or_doubled(tmp_path, grader):
    made = {f"s{n}": small(answer("passes") + f"  # {n}") for n in range(12)}
    hand_in(tmp_path / "killed", **made)
    hand_in(tmp_path / "whole", **made)
    for root in ("killed", "whole"):
        (tmp_path / root / "grades.secret").write_text("0123456789abcdef")
    root = tmp_path / "killed"
    words = [str(root), "-o", str(root / "grades.csv"), "--jobs", "2"]
    code = SLOW.format(folder=str(Path(__file__).parent), words=words)

    def graded() -> int:
        try:
            with sqlite3.connect(f"file:{root / 'grades.ledger.db'}?mode=ro", uri=True) as log:
                return log.execute("SELECT count(DISTINCT digest) FROM graded").fetchone()[0]
        except sqlite3.Error:  # not there yet, or just being written
            return 0

    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while graded() < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = graded()
    assert 4 <= kept < 12, "it was killed in the middle"
    assert not (root / "grades.csv").exists()

    assert grade(grader, root) == ALL_GRADED
    assert len(grader.graded) == 12 - kept
    assert grade(grader, tmp_path / "whole") == ALL_GRADED
    assert outputs(root) == outputs(tmp_path / "whole")
    places = [(r["student"], r["exercise"]) for r in rows(root)]
    assert len(places) == len(set(places)) == 12 * len(POINTS)


def test_a_zip_of_an_lms_is_graded(tmp_path, grader):
    hand_in(tmp_path / "in", **{"Ada Lovelace_7_assignsubmission_file_": small(answer("passes"))})
    shutil.make_archive(str(tmp_path / "class"), "zip", tmp_path / "in" / "submitted")
    words = [tmp_path / "class.zip", "-o", tmp_path / "grades.csv"]
    assert grade_command(words, grader) == ALL_GRADED
    ada = row(tmp_path, "Ada Lovelace")
    assert (ada["lms_id"], ada["points"]) == ("7", "2")


def test_without_bubblewrap_it_refuses_and_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "why_not", lambda: "bubblewrap is not installed")
    hand_in(tmp_path, ada=small(answer("passes")))
    assert grade(None, tmp_path) == CANNOT_START
    err = capsys.readouterr().err
    assert "bubblewrap is not installed" in err and "--no-sandbox" in err
    assert not (tmp_path / "grades.csv").exists()


def test_without_a_labs_libraries_it_refuses_and_says_what_to_do(
    tmp_path, grader, monkeypatch, capsys
):
    hand_in(tmp_path, ada=small(answer("passes")))
    there = {"keras": "3.15.1", "jax": None, "optax": None}
    monkeypatch.setattr(frameworks, "installed", lambda: there)
    assert grade(grader, tmp_path) == ALL_GRADED
    (tmp_path / "other").mkdir()
    shutil.copy(NOTEBOOKS / "14_other_frameworks.ipynb", tmp_path / "other" / "bob.ipynb")
    assert grade_command([tmp_path / "other", "-o", tmp_path / "other.csv"], grader) == CANNOT_START
    assert "jax and optax" in capsys.readouterr().err
    assert not (tmp_path / "other.csv").exists()


def test_no_times_are_in_the_json(tmp_path, grader):
    hand_in(tmp_path, ada=small(answer("passes")))
    grade(grader, tmp_path)
    (one,) = json.loads((tmp_path / "grades.json").read_text())["submissions"]
    assert one["points"] == 2.0
    assert "cpu_seconds" not in json.dumps(one)
