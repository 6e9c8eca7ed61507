"""How many submissions a minute? ``python -m tests.benchmarks.bench_grading``.

The submissions are of lab 02, whole: solved, untouched, with one exercise wrong, and half done, in
turn. A comment with its number makes each one differ. Nothing is asserted but that every submission
got its grade. ``nbgrader autograde`` grades one after another, ``labkit grade`` two at a time in
its sandbox; the start of either is counted. The last column is the largest process so far.

``--submissions 60`` is the default and takes some four minutes.
"""

import argparse
import copy
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat

from labkit.base import paths
from labkit.course.lab_source import Lab, read_lab
from labkit.grading.nbgrader.exported_course import write_course

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


def with_labkit(lab: Lab, count: int) -> float:
    """Seconds that ``labkit grade`` takes over the same submissions, two at a time."""
    with tempfile.TemporaryDirectory() as folder:
        handed_in, grades = Path(folder) / "handed_in", Path(folder) / "grades.csv"
        handed_in.mkdir()
        for student, notebook in submissions(lab, count):
            nbformat.write(notebook, handed_in / f"{student}.ipynb")
        command = [sys.executable, "-m", "labkit", "grade", handed_in, "-o", grades, "--jobs", "2"]
        start = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(done.stderr)
        with open(grades, newline="") as file:
            rows = list(csv.DictReader(file))
    assert len({row["student"] for row in rows}) == count, len(rows)
    assert {row["status"] for row in rows} == {"passed", "failed", "not attempted"}
    return seconds


GRADERS: dict[str, Callable[[Lab, int], float]] = {
    "labkit": with_labkit,
    "nbgrader": with_nbgrader,
}
"""Name -> seconds over that many submissions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=60)
    count = parser.parse_args().submissions
    lab = read_lab(paths.NOTEBOOKS / "source" / f"{LAB}.py")
    print(f"{count} submissions of {LAB}, {os.cpu_count()} cores")
    print(f"{'grader':<10}{'seconds':>9}{'s each':>8}{'a minute':>10}{'MiB':>7}")
    taken = {}
    for name, grade in GRADERS.items():
        taken[name] = seconds = grade(lab, count)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        rate = f"{seconds / count:>8.2f}{60 * count / seconds:>10.1f}{largest:>7}"
        print(f"{name:<10}{seconds:>9.1f}{rate}", flush=True)
    print(f"labkit's rate is {taken['nbgrader'] / taken['labkit']:.1f} times nbgrader's")


if __name__ == "__main__":
    main()
