"""The manifest: which labs there are, and what each asks, as ``labkit build`` wrote them down."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.base.paths import NOTEBOOKS

MANIFEST = "manifest.json"


class ManifestError(OSError):
    """The manifest is missing or damaged, in a sentence that says what brings it back.

    ``why`` is what is wrong, in a few words.
    """

    why: str


@dataclass(frozen=True, kw_only=True)
class ExerciseEntry:
    """One exercise: its id, the names that its check asks for, and what passing it is worth.

    ``seconds`` is the CPU time that its check may take. ``check_version`` changes with the text of
    the lab's checks; "" where there are none.
    """

    exercise: str
    names: tuple[str, ...]
    points: int | float
    seconds: int | float
    check_version: str


@dataclass(frozen=True, kw_only=True)
class SectionEntry:
    """One heading of a lab, as links name it, and the exercises and predictions below it."""

    section: str
    items: tuple[str, ...]
    optional: bool


@dataclass(frozen=True, kw_only=True)
class LabEntry:
    """One lab: its name such as "02_number_formats", its title, version and required minutes.

    ``optional_minutes`` is what its optional parts take beyond them. A manifest of an older labkit
    has neither these nor ``sections``.
    """

    lab: str
    title: str
    version: str
    minutes: int
    hardware: str
    exercises: tuple[ExerciseEntry, ...]
    predictions: tuple[str, ...]
    optional_minutes: int = 0
    sections: tuple[SectionEntry, ...] = ()

    @property
    def number(self) -> int:
        """2 for 02_number_formats."""
        return int(self.lab.split("_")[0])


@dataclass(frozen=True)
class Manifest:
    """The labs of the course, in their order."""

    labs: tuple[LabEntry, ...]

    def find(self, name: str) -> LabEntry:
        """The lab of that name, or the one whose number it is; raises ValueError."""
        labs = {entry.lab: entry for entry in self.labs}
        return labs[full_name(name, labs)]


def full_name(name: str, labs: Iterable[str]) -> str:
    """The name of the lab that ``name`` means, itself or a number: 02 is 02_number_formats.

    Raises ValueError, with the names that there are.
    """
    labs = list(labs)
    found = [lab for lab in labs if name in (lab, lab.split("_")[0])]
    if not found:
        raise ValueError(f"There is no lab {name!r}; there are {', '.join(labs) or 'none'}.")
    return found[0]


def read_manifest(notebooks: Path = NOTEBOOKS) -> Manifest:
    """The manifest of a folder of notebooks; raises ManifestError."""
    file = notebooks / MANIFEST
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _trouble(file, "is missing") from None
    except (OSError, ValueError) as error:
        raise _trouble(file, f"cannot be read: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("labs"), list):
        raise _trouble(file, "cannot be read: it holds no list of labs")
    try:
        return Manifest(tuple(_lab(entry) for entry in content["labs"]))
    except KeyError as error:
        raise _trouble(file, f"cannot be read: a lab lacks {error}") from None
    except (TypeError, AttributeError) as error:
        raise _trouble(file, f"cannot be read: {error}") from None


def _trouble(file: Path, why: str) -> ManifestError:
    error = ManifestError(
        f"{file} {why}. It lists the labs: `git checkout {file}` or `python -m labkit build` brings"
        " it back in a checkout, and installing labkit again elsewhere."
    )
    error.why = why
    return error


def _lab(entry: dict[str, Any]) -> LabEntry:
    return LabEntry(
        lab=entry["lab"],
        title=entry["title"],
        version=entry["version"],
        minutes=entry["minutes"],
        hardware=entry["hardware"],
        exercises=tuple(
            ExerciseEntry(
                exercise=exercise["exercise"],
                names=tuple(exercise["names"]),
                points=exercise["points"],
                seconds=exercise["limits"]["seconds"],
                check_version=exercise["check_version"] or "",
            )
            for exercise in entry["exercises"]
        ),
        predictions=tuple(entry["predictions"]),
        optional_minutes=entry.get("optional_minutes", 0),
        sections=tuple(
            SectionEntry(
                section=section["section"],
                items=tuple(section["items"]),
                optional=section["optional"],
            )
            for section in entry.get("sections", [])
        ),
    )


# A learner's copy beside it


@dataclass(frozen=True)
class Copied:
    """Of which lab, and of which version of it, a notebook is a copy."""

    lab: str
    version: str


def copied(notebook: Any) -> Copied | None:
    """What a notebook's content says that it is a copy of; None where it is none of this course."""
    try:
        facts = notebook["metadata"]["labkit"]
        lab, version = facts["lab"], facts["version"]
        sound = all(
            isinstance(cell["metadata"], dict) and "source" in cell for cell in notebook["cells"]
        )
    except (KeyError, TypeError, IndexError):
        return None
    # The version becomes part of a file name.
    if not sound or not re.fullmatch(r"[0-9a-f]{12}", str(version)):
        return None
    return Copied(str(lab), version)


def stale(path: str | os.PathLike[str], *, notebooks: Path = NOTEBOOKS) -> str | None:
    """A sentence where the notebook's version is not the course's, else None.

    A file that is no notebook of this course has no version, so the answer is None too.
    """
    try:
        mine = copied(json.loads(Path(path).read_bytes()))
    except (OSError, ValueError):
        return None
    if mine is None:
        return None
    for lab in read_manifest(notebooks).labs:
        if mine.lab == lab.lab and mine.version != lab.version:
            return (
                f"This copy of {lab.lab} is version {mine.version}, the course now has "
                f"{lab.version}. `python -m labkit start` brings it up to date and keeps "
                "your answers."
            )
    return None
