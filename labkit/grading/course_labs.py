"""The labs as the grader needs them: exercises, and what a learner is given to start with."""

import ast
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from labkit.base import home
from labkit.base.home import NOTEBOOKS, LabEntry, read_manifest
from labkit.grading.records import GradedExercise
from labkit.grading.sandbox.standin import STOOD_FOR
from labkit.labs.other_frameworks import frameworks


@dataclass(frozen=True, kw_only=True)
class CourseLab:
    """A lab of the course.

    ``check_versions`` holds the version of each exercise's check. ``given`` are the texts of the
    code cells that a learner gets, ``stubs`` those in which an answer is to be written; all as
    ``normal_text`` makes them, to be compared. ``setup`` is the lab's first code cell, ``imports``
    are those that only import: each sitting begins with one. ``anchors`` hold the section of each
    exercise as a link names it.
    """

    lab: str
    title: str
    version: str
    exercises: tuple[GradedExercise, ...]
    check_versions: dict[str, str]
    given: frozenset[str]
    stubs: frozenset[str]
    setup: str
    imports: tuple[str, ...]
    anchors: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Every name that a check of this lab asks for."""
        return frozenset(name for exercise in self.exercises for name in exercise.names)

    @property
    def check_names(self) -> frozenset[str]:
        """What its checks are called: `check_ulp` for `ulp`."""
        return frozenset(f"check_{one.exercise.replace('-', '_')}" for one in self.exercises)


def missing_libraries(lab: str) -> str:
    """Why the checks of a lab cannot run in this environment, and what to do; "" if they can."""
    if lab != "14_other_frameworks":
        return ""
    missing = [name for name, version in frameworks.installed().items() if version is None]
    install = 'pip install -e ".[frameworks]"'
    return f"{lab} needs {' and '.join(missing)} where it is graded: {install}" if missing else ""


def normal_text(source: str) -> str:
    """A cell's text without what editors change unasked: ends of lines, and space before them."""
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()


def read_course(notebooks: Path = NOTEBOOKS) -> dict[str, CourseLab]:
    """Every lab of the course by its name, in order.

    Raises OSError where the manifest or a learner notebook is missing: `labkit build` makes them.
    """
    return {entry.lab: _lab(entry, notebooks) for entry in read_manifest(notebooks).labs}


@functools.cache
def rest_of_labkit() -> str:
    """A digest of labkit without the labs' checks, which have their own versions, and pages.

    Answers compute with it and the grader is part of it, so a grade holds for one state of it.
    """
    package = Path(home.__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        module = ".".join(("labkit", *inside.with_suffix("").parts))
        engine = module.startswith("labkit.labs.engine.")
        if inside.parts[0] != "_shipped" and (engine or not STOOD_FOR.match(module)):
            digest.update(inside.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _lab(entry: LabEntry, notebooks: Path) -> CourseLab:
    text = (notebooks / f"{entry.lab}.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    texts = [normal_text("".join(cell["source"])) for cell in code]
    marks = [cell["metadata"].get("nbgrader", {}) for cell in code]
    return CourseLab(
        lab=entry.lab,
        title=entry.title,
        version=entry.version,
        exercises=tuple(
            GradedExercise(
                exercise=exercise.exercise,
                names=exercise.names,
                points=exercise.points,
                seconds=exercise.seconds,
            )
            for exercise in entry.exercises
        ),
        check_versions={e.exercise: e.check_version for e in entry.exercises},
        given=frozenset(texts),
        stubs=frozenset(t for t, m in zip(texts, marks, strict=True) if m.get("solution")),
        setup=texts[0] if texts else "",
        imports=tuple(text for text in texts if _only_imports(text)),
        anchors={item: each.section for each in entry.sections for item in each.items},
    )


def _only_imports(code: str) -> bool:
    try:
        body = ast.parse(code).body
    except SyntaxError:  # a magic
        return False
    return bool(body) and all(isinstance(one, ast.Import | ast.ImportFrom) for one in body)
