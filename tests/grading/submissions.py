"""Submissions for the tests of the grader: a lab solved, unsolved, or with a cell of our own."""

import hashlib
import json

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
    """The setup cell and the exercise cells of a lab, as intake chooses them."""
    folder = NOTEBOOKS / "solutions" if solved else NOTEBOOKS
    notebook = json.loads((folder / f"{lab}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    chosen = [c for c in code if c is code[0] or c["metadata"].get("nbgrader", {}).get("solution")]
    return ["".join(cell["source"]) for cell in chosen]


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
