"""Submissions for the tests of the grader: a lab solved, unsolved, or with a cell of our own."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import read_course
from labkit.grading.intake.notebooks_read import read_notebook
from labkit.grading.intake.reader import understand_apart
from labkit.grading.intake.selecting import select_cells
from labkit.grading.records import GradedExercise, Outcome, Work

COURSE = read_course()


def exercises(lab: str) -> tuple[GradedExercise, ...]:
    """The exercises of a lab, from the manifest."""
    return COURSE[lab].exercises


def cells(lab: str, *, solved: bool) -> list[str]:
    """The setup cell, the exercise cells, and what they read from demonstrations."""
    folder = NOTEBOOKS / "solutions" if solved else NOTEBOOKS
    notebook = read_notebook((folder / f"{lab}.ipynb").read_bytes())
    return list(select_cells(notebook, COURSE[lab]).work.cells)


def old_copy(lab: str, *, solved: bool) -> Work:
    """What is run of an old copy of a lab; solved, labkit's answers of today stand in it."""
    path = Path(__file__).parents[1] / "old_copies" / f"{lab}.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    today = json.loads((NOTEBOOKS / "solutions" / path.name).read_text(encoding="utf-8"))
    answers = _answers(today) if solved else {}
    for exercise, cell in _answers(notebook).items():
        cell["source"] = answers.get(exercise, cell)["source"]
    selected = understand_apart(json.dumps(notebook).encode(), COURSE)
    made = work(lab, selected.work.cells, only=tuple(_answers(notebook)))
    assert {e.exercise for e in made.exercises} == _answers(notebook).keys(), "one is gone"
    return made


def _answers(notebook: dict) -> dict[str, dict]:
    """The cells that are answers, by exercise."""
    marks = [(cell, cell["metadata"].get("nbgrader", {})) for cell in notebook["cells"]]
    return {mark["grade_id"]: cell for cell, mark in marks if mark.get("solution")}


def work(lab: str, sources, *, only: tuple[str, ...] = (), seconds: float | None = None) -> Work:
    """A submission of these cells; ``only`` some exercises, under ``seconds`` of CPU time."""
    chosen = [e for e in exercises(lab) if not only or e.exercise in only]
    if seconds is not None:
        chosen = [
            GradedExercise(exercise=e.exercise, names=e.names, points=e.points, seconds=seconds)
            for e in chosen
        ]
    digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()
    return Work(lab=lab, digest=digest, cells=tuple(sources), exercises=tuple(chosen))


def graded(
    grader, content: bytes, only: tuple[str, ...], helpers: tuple[tuple[str, bytes], ...] = ()
) -> dict[str, Outcome]:
    """The outcomes of some exercises of a file, by the path that every file takes."""
    work = understand_apart(content, COURSE).work
    chosen = tuple(one for one in work.exercises if one.exercise in only)
    outcomes = grader.grade(replace(work, exercises=chosen, helpers=helpers))
    return {outcome.exercise: outcome for outcome in outcomes}
