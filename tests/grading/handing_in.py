"""Notebooks as students hand them in, made from lab 02's own, and a class of them on the disk."""

import hashlib
import json
import os
from pathlib import Path

from labkit.base.home import NOTEBOOKS

LAB = "02_number_formats"
POINTS = {
    "e2m1-value": 1,
    "decode": 0,
    "ulp": 2,
    "snap": 3,
    "window": 0,
    "eight-bits": 0,
}
RIGHT_ULP = """\
def ulp(x):
    return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -14, -14) - 10)
"""
WRONG_ULP = "def ulp(x):\n    return 2.0**-10 * abs(x)\n"


AT = 1_780_000_000
"""When a file was handed in, so that two classes have the same pages: a day in May 2026."""


def unsolved() -> dict:
    return json.loads((NOTEBOOKS / f"{LAB}.ipynb").read_text(encoding="utf-8"))


def solved() -> dict:
    return json.loads((NOTEBOOKS / "solutions" / f"{LAB}.ipynb").read_text(encoding="utf-8"))


def with_answer(notebook: dict, name: str, source: str) -> dict:
    """The notebook with the cell that defines the function ``name`` replaced."""
    (cell,) = [c for c in notebook["cells"] if f"def {name}(" in "".join(c["source"])]
    cell["source"] = source
    return notebook


def cell_of(notebook: dict, text: str) -> dict:
    """The one cell of a notebook with ``text`` in it."""
    (cell,) = [c for c in notebook["cells"] if text in "".join(c["source"])]
    return cell


def code(source: str, **metadata) -> dict:
    return {
        "cell_type": "code",
        "id": hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:8],
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def as_bytes(notebook: dict) -> bytes:
    return json.dumps(notebook).encode()


def hand_in(root: Path, **notebooks: dict | bytes) -> Path:
    """A folder in nbgrader's layout; the argument names are the students."""
    for student, notebook in notebooks.items():
        folder = root / "submitted" / student / LAB
        folder.mkdir(parents=True)
        content = notebook if isinstance(notebook, bytes) else as_bytes(notebook)
        (folder / f"{LAB}.ipynb").write_bytes(content)
        os.utime(folder / f"{LAB}.ipynb", (AT, AT))
    return root


def small(answer: str) -> dict:
    """A notebook of the lab's metadata, its setup cell and one cell: quick to grade."""
    lab = unsolved()
    setup = next(cell for cell in lab["cells"] if cell["cell_type"] == "code")
    return {
        "cells": [setup, code(answer)],
        "metadata": lab["metadata"],
        "nbformat": 4,
        "nbformat_minor": 5,
    }
