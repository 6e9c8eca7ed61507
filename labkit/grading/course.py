"""The labs as the grader needs them: exercises, and what a learner is given to start with."""

import functools
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from labkit import paths
from labkit.grading.records import Exercise
from labkit.paths import NOTEBOOKS


@dataclass(frozen=True, kw_only=True)
class CourseLab:
    """A lab of the course.

    ``check_versions`` holds the version of each exercise's check. ``given`` and ``checks`` are the
    texts of the code cells that a learner gets, ``stubs`` those in which an answer is to be
    written; all as ``normal`` makes them, so that they can be compared.
    """

    lab: str
    title: str
    version: str
    exercises: tuple[Exercise, ...]
    check_versions: dict[str, str]
    given: frozenset[str]
    checks: frozenset[str]
    stubs: frozenset[str]
    setup: str

    @property
    def names(self) -> frozenset[str]:
        """Every name that a check of this lab asks for."""
        return frozenset(name for exercise in self.exercises for name in exercise.names)


def normal(source: str) -> str:
    """A cell's text without what editors change unasked: ends of lines, and space before them."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()


def read_course(notebooks: Path = NOTEBOOKS) -> dict[str, CourseLab]:
    """Every lab of the course by its name, in order.

    Raises OSError where the manifest or a learner notebook is missing: `labkit build` makes them.
    """
    manifest = json.loads((notebooks / "manifest.json").read_text(encoding="utf-8"))
    return {entry["lab"]: _lab(entry, notebooks) for entry in manifest["labs"]}


@functools.cache
def rest_of_labkit() -> str:
    """A digest of labkit without its widgets and what the labs' checks judge with.

    Checks and solutions have their own versions. Answers compute with the rest and the grader is
    part of it, so a grade holds for one state of it.
    """
    package = Path(paths.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        folder = path.relative_to(package).parts[0]
        content = path.read_bytes()
        of_a_lab = folder == "checks" and re.search(rb"^LAB = ", content, re.MULTILINE)
        of_a_lab = of_a_lab or (folder == "labs" and path.name == "solutions.py")
        if folder not in ("widgets", "_shipped") and not of_a_lab:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()


def _lab(entry: dict, notebooks: Path) -> CourseLab:
    text = (notebooks / f"{entry['lab']}.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    texts = [normal("".join(cell["source"])) for cell in code]
    marks = [cell["metadata"].get("nbgrader", {}) for cell in code]
    return CourseLab(
        lab=entry["lab"],
        title=entry["title"],
        version=entry["version"],
        exercises=tuple(
            Exercise(
                exercise=exercise["exercise"],
                names=tuple(exercise["names"]),
                points=exercise["points"],
                seconds=exercise["limits"]["seconds"],
            )
            for exercise in entry["exercises"]
        ),
        check_versions={e["exercise"]: e["check_version"] or "" for e in entry["exercises"]},
        given=frozenset(texts),
        checks=frozenset(t for t, m in zip(texts, marks, strict=True) if m.get("grade")),
        stubs=frozenset(t for t, m in zip(texts, marks, strict=True) if m.get("solution")),
        setup=texts[0] if texts else "",
    )
