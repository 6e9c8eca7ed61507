"""Submissions for the tests of the grader: a lab solved, unsolved, or with a cell of our own."""

import hashlib
import json

from labkit.grading.needed import needed
from labkit.grading.records import Exercise, Work
from labkit.paths import NOTEBOOKS


def exercises(lab: str) -> tuple[Exercise, ...]:
    """The exercises of a lab, from the manifest."""
    manifest = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
    (entry,) = (entry for entry in manifest["labs"] if entry["lab"] == lab)
    return tuple(
        Exercise(
            exercise=e["exercise"],
            names=tuple(e["names"]),
            points=e["points"],
            seconds=e["limits"]["seconds"],
        )
        for e in entry["exercises"]
    )


def cells(lab: str, *, solved: bool) -> list[str]:
    """The setup cell, the exercise cells, and what they read from demonstrations."""
    folder = NOTEBOOKS / "solutions" if solved else NOTEBOOKS
    notebook = json.loads((folder / f"{lab}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code = [cell for cell in code if not cell["metadata"].get("nbgrader", {}).get("grade")]
    answers = {i for i, c in enumerate(code) if c["metadata"].get("nbgrader", {}).get("solution")}
    sources = ["".join(cell["source"]) for cell in code]
    return [sources[i] for i in needed(sources, {*range(1, len(code))} - answers)]


def work(lab: str, sources, *, only: tuple[str, ...] = (), seconds: float | None = None) -> Work:
    """A submission of these cells; ``only`` some exercises, under ``seconds`` of CPU time."""
    chosen = [e for e in exercises(lab) if not only or e.exercise in only]
    if seconds is not None:
        chosen = [
            Exercise(exercise=e.exercise, names=e.names, points=e.points, seconds=seconds)
            for e in chosen
        ]
    digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()
    return Work(lab=lab, digest=digest, cells=tuple(sources), exercises=tuple(chosen))
