"""Scores reach nbgrader's gradebook, where nbgrader itself reads them."""

import copy
import csv
import json
import os
import subprocess
import sys
import warnings

import pytest
from handing_in import LAB, RIGHT_ULP, hand_in, small, with_answer
from quick_grader import QuickGrader, answer, grade_command
from sqlalchemy import text

from labkit.grading import command
from labkit.grading.sandbox import bubblewrap as sandbox


class Grader(QuickGrader):
    graded = []  # noqa: RUF012 - this module's own


@pytest.fixture
def book(tmp_path):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path / 'nbgrader.db'}") as opened:
        yield opened


def grade(root, *more):
    words = [root, "-o", root / "grades.csv", "--gradebook", root / "nbgrader.db", *more]
    return grade_command(words, Grader)


def test_scores_are_those_of_the_table_and_nbgrader_exports_them(tmp_path, book):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("fails")), cy=b"")
    (tmp_path / "overrides.csv").write_text(
        "student,lab,exercise,points,reason,possible\n"
        f"bob,{LAB},snap,2.5,oral,\nada,{LAB},essay,3,,5\n*,{LAB},essay,0,,\n"
    )
    assert grade(tmp_path, "--overrides", tmp_path / "overrides.csv") == command.SOME_UNGRADED
    scores = {s: book.find_submission(LAB, s).score for s in ("ada", "bob", "cy")}
    assert scores == {"ada": 5.0, "bob": 2.5, "cy": 0.0}
    assert book.find_assignment(LAB).max_score == 11.0
    ulp = book.find_grade("check-ulp", LAB, LAB, "ada")
    assert (ulp.auto_score, ulp.manual_score, ulp.needs_manual_grade) == (2.0, None, False)
    assert book.find_grade("check-snap", LAB, LAB, "bob").manual_score == 2.5
    assert book.find_grade("check-ulp", LAB, LAB, "cy").needs_manual_grade

    url = f"--CourseDirectory.db_url=sqlite:///{tmp_path / 'nbgrader.db'}"
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "export", "--to", "out.csv", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        exported = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert exported == {"ada": 5.0, "bob": 2.5, "cy": 0.0}


def test_a_gradebook_of_the_course_keeps_what_it_has_and_gets_what_is_missing(tmp_path, book):
    book.add_student("ada", first_name="A", last_name="L", email="a@x")
    book.add_assignment(LAB, duedate="2026-12-01")
    book.add_notebook(LAB, LAB)
    book.add_grade_cell("check-ulp", LAB, LAB, max_score=2, cell_type="code")
    book.add_grade_cell("essay", LAB, LAB, max_score=5, cell_type="markdown")
    with warnings.catch_warnings(action="ignore"):  # nbgrader's own, of SQLAlchemy
        book.add_submission(LAB, "ada")
    book.find_grade("essay", LAB, LAB, "ada").manual_score = 4
    book.db.commit()
    hand_in(tmp_path, ada=small(answer("passes") + "\n" + answer("passes", "snap")))
    assert grade(tmp_path) == command.ALL_GRADED
    assert grade(tmp_path, "--only", "ulp") == command.ALL_GRADED
    book.db.expire_all()
    assert book.find_submission(LAB, "ada").score == 9.0
    assert book.find_student("ada").email == "a@x"
    assert book.find_assignment(LAB).duedate.year == 2026


def test_a_gradebook_is_made_where_the_environment_is_not_activated(tmp_path, monkeypatch):
    """nbgrader calls `alembic` by its name, which is beside Python and need not be on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    hand_in(tmp_path, ada=small(answer("passes")))
    assert grade(tmp_path) == command.ALL_GRADED
    assert os.environ["PATH"] == str(tmp_path / "none")
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path / 'nbgrader.db'}") as book:
        assert book.find_submission(LAB, "ada").score == 2.0
        assert book.db.execute(text("SELECT version_num FROM alembic_version")).scalar()


def test_without_alembic_it_refuses_before_grading(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    hand_in(tmp_path, ada=small(answer("passes")))
    before = len(Grader.graded)
    assert grade(tmp_path) == command.CANNOT_START
    err = capsys.readouterr().err
    assert "alembic" in err and err.count("\n") == 1
    assert len(Grader.graded) == before and not (tmp_path / "grades.csv").exists()


def test_of_a_gradebook_that_cannot_be_finished_nothing_is_left(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "alembic").write_text("#!/bin/sh\nexit 1\n")
    (folder / "alembic").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    hand_in(tmp_path, ada=small(answer("passes")))
    assert grade(tmp_path) == command.SOME_UNGRADED
    assert "cannot be used as a gradebook" in capsys.readouterr().err
    assert (tmp_path / "grades.csv").exists() and not (tmp_path / "nbgrader.db").exists()


def test_a_file_that_is_no_gradebook_is_one_sentence_and_the_grades_are_written(tmp_path, capsys):
    hand_in(tmp_path, ada=small(answer("passes")))
    (tmp_path / "nbgrader.db").write_text("this is no database, though it has some length" * 9)
    assert grade(tmp_path) == command.SOME_UNGRADED
    err = capsys.readouterr().err
    assert "cannot be used as a gradebook" in err and err.count("\n") == 1
    assert (tmp_path / "grades.csv").exists()


@pytest.mark.slow
def test_a_course_for_nbgrader_is_released_handed_in_graded_here_and_exported(tmp_path):
    """What nbgrader hands out is what `labkit grade` takes, and what nbgrader then reports."""
    from labkit.__main__ import main

    def nbgrader(*words: str) -> None:
        command = [sys.executable, "-m", "nbgrader", *words]
        done = subprocess.run(command, cwd=tmp_path / "course", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    course = tmp_path / "course"
    assert main(["nbgrader", str(course), "--labs", "02"]) == 0
    nbgrader("generate_assignment", LAB)
    released = json.loads((course / "release" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8"))
    answered = with_answer(copy.deepcopy(released), "ulp", RIGHT_ULP)
    hand_in(course, ada=answered, bob=released)
    words = [course, "-o", course / "marks.csv", "--gradebook", course / "gradebook.db"]
    words += ["--no-sandbox"] if sandbox.why_not() else []
    assert grade_command(words) == command.ALL_GRADED
    with open(course / "marks.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["repairs"] for row in rows} == {""}
    assert {row["status"] for row in rows if row["student"] == "bob"} == {"not attempted"}
    nbgrader("export", "--to", "out.csv")
    with open(course / "out.csv", encoding="utf-8", newline="") as file:
        exported = {r["student_id"]: (r["score"], r["max_score"]) for r in csv.DictReader(file)}
    assert exported == {"ada": ("2.0", "6.0"), "bob": ("0.0", "6.0")}
