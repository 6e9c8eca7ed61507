"""How many submissions a minute? ``python -m tests.benchmarks.bench_grading``.

The submissions are of lab 02, whole: solved, untouched, with one exercise wrong, and half done, in
turn. A comment with its number makes each answer differ; the untouched ones are equal, as in a
class, and labkit grades one of them. Nothing is asserted but that every submission got its grade.
``nbgrader autograde`` grades one after another, ``labkit grade`` one or two at a time in its
sandbox; the start of either is counted. A round runs all of them, and every second round in the
opposite order. The ratio of a round is nbgrader's seconds by labkit's.

Then come the seconds of the same command with nothing left to do: for these submissions, and for
classes of 150 and 300, where each answer fails with a message of its own.

``--submissions 60 --rounds 5`` is the default and takes some twenty minutes.
"""

import argparse
import contextlib
import copy
import csv
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from labkit.base import paths
from labkit.course.lab_source import Lab, read_lab
from labkit.grading.nbgrader.exported_course import write_course
from labkit.grading.records import Outcome, Work
from tests.grading.quick_grader import QuickGrader, grade_command, unlike_any_other

LAB = "02_number_formats"
_WRONG = "def ulp(x):\n    return 2.0**-10 * abs(x)"


def submissions(lab: Lab, count: int) -> Iterator[tuple[str, Any]]:
    """``count`` students and their notebooks of ``lab``, the same for every grader."""
    solved = {
        cell.metadata.nbgrader["grade_id"]: cell.source
        for cell in lab.solution.cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    }
    kinds = [solved, {}, solved | {"ulp": _WRONG}, dict(list(solved.items())[: len(solved) // 2])]
    for number in range(count):
        answers, notebook = kinds[number % len(kinds)], copy.deepcopy(lab.learner)
        for cell in notebook.cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
            if grade_id in answers:
                cell.source = f"{answers[grade_id]}\n# student {number}"
        yield f"student{number:04}", notebook


def with_nbgrader(lab: Lab, count: int) -> float:
    """Seconds that ``nbgrader autograde`` takes over ``count`` submissions."""
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder) / "course"
        write_course(course, [LAB])
        _nbgrader(course, "generate_assignment", LAB)
        for student, notebook in submissions(lab, count):
            path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook, path)
        start = time.perf_counter()
        _nbgrader(course, "autograde", LAB)
        seconds = time.perf_counter() - start
        _nbgrader(course, "export")
        with open(course / "grades.csv", newline="") as file:
            scores = [float(row["score"]) for row in csv.DictReader(file)]
    assert len(scores) == count and (count < 2 or min(scores) == 0 < max(scores)), scores
    return seconds


def _nbgrader(course: Path, *args: str) -> None:
    # nbgrader starts alembic by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "nbgrader", *args]
    done = subprocess.run(
        command, cwd=course, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)


def with_labkit(lab: Lab, count: int, jobs: int) -> tuple[float, float]:
    """Seconds that ``labkit grade`` takes over the same submissions, and then to grade nothing."""
    with tempfile.TemporaryDirectory() as folder:
        words = hand_in(Path(folder), lab, count)
        seconds = _labkit(*words, "--jobs", jobs)
        again = _labkit(*words, "--jobs", jobs)
        with open(Path(folder) / "grades.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    assert len({row["student"] for row in rows}) == count, len(rows)
    assert {row["status"] for row in rows} == {"passed", "failed", "not attempted"}
    return seconds, again


def hand_in(folder: Path, lab: Lab, count: int) -> list:
    """Write the submissions; the words of the command that grades them."""
    handed_in = folder / "handed_in"
    handed_in.mkdir()
    for student, notebook in submissions(lab, count):
        nbformat.write(notebook, handed_in / f"{student}.ipynb")
    return [handed_in, "-o", folder / "grades.csv", "--lab", LAB]


def _labkit(*words: object) -> float:
    command = [sys.executable, "-m", "labkit", "grade", *map(str, words)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    return seconds


class DistinctFailures(QuickGrader):
    """A grader that fails everything, with words that no two failures share."""

    def grade(self, work: Work) -> list[Outcome]:
        """An outcome an exercise."""
        return [
            Outcome(
                exercise=one.exercise,
                status="failed",
                message=unlike_any_other(f"{work.digest} {one.exercise}"),
            )
            for one in work.exercises
        ]


def rerun_of_class(lab: Lab, count: int) -> float:
    """Seconds of a rerun with nothing to grade, for a class whose failures all differ."""
    with tempfile.TemporaryDirectory() as folder:
        words = hand_in(Path(folder), lab, count)
        with contextlib.redirect_stdout(io.StringIO()):
            grade_command(words, DistinctFailures)
        return _labkit(*words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count = options.submissions
    lab = read_lab(paths.NOTEBOOKS / "source" / f"{LAB}.py")
    print(f"{count} submissions of {LAB}, {os.cpu_count()} cores", flush=True)
    graders = {
        "nbgrader": lambda: (with_nbgrader(lab, count), 0.0),
        "labkit, 1 job": lambda: with_labkit(lab, count, 1),
        "labkit, 2 jobs": lambda: with_labkit(lab, count, 2),
    }
    taken: dict[str, list[float]] = {name: [] for name in graders}
    again: list[float] = []
    for number in range(options.rounds):
        for name in list(graders)[:: 1 if number % 2 == 0 else -1]:
            seconds, rerun = graders[name]()
            taken[name].append(seconds)
            again += [rerun] if rerun else []
            print(f"round {number + 1}  {name:<15}{seconds:>8.1f} s", flush=True)
    for name, seconds in taken.items():
        print(
            f"{name:<15}{_spread(seconds)} s, {_spread([each / count for each in seconds])} s each"
        )
    for name in list(graders)[1:]:
        ratios = [a / b for a, b in zip(taken["nbgrader"], taken[name], strict=True)]
        print(f"{name:<15}{_spread(ratios)} times nbgrader's rate")
    print(f"a rerun of {count} with nothing to do: {_spread(again)} s", flush=True)
    for size in (150, 300):
        reruns = [rerun_of_class(lab, size) for _ in range(options.rounds)]
        print(f"a rerun of {size} with nothing to do: {_spread(reruns)} s", flush=True)


def _spread(numbers: list[float]) -> str:
    """The median and the range."""
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


if __name__ == "__main__":
    main()
