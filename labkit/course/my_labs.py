"""The learner's own copies of the labs: made, brought up to date, never overwritten.

Learners work in ``my_labs/`` and the course's own notebooks stay as they are. ``start`` makes that
folder and may be called any number of times:

- a lab that is not there is copied;
- a copy of another version in which the learner changed nothing is replaced;
- a changed copy of another version is first kept as ``NN_topic.before-<version>.ipynb``; the new
  notebook then gets the learner's answers (by nbgrader's ``grade_id``). Guesses (by
  ``metadata.labkit.predict``) go into the log, where the notebook's cards find them. Cells that the
  learner added stay in the kept file;
- whatever else is in the way is left alone, and the report says so.

A copy shows by itself what was changed: a lab's cell carries the hash of its text in its id, see
``labkit.course.cell_ids.cell_id``.
"""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from labkit.base import progress
from labkit.base.home import IN_CHECKOUT, NOTEBOOKS, LabEntry, read_manifest, replace_file
from labkit.course.cell_ids import cell_id
from labkit.course.lab_source import COMMENT, STUB
from labkit.labs.engine.copies import copied
from labkit.labs.engine.templates import render

FOLDER = "my_labs"
IMAGES = "images"  # what notebooks show from files; copied beside them, so that links hold


@dataclass(frozen=True)
class Started:
    """Where the labs are: file names with titles, what ``start`` changed, and what it could not."""

    folder: Path
    labs: tuple[tuple[str, str], ...]
    updates: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def __repr__(self) -> str:
        width = max((len(name) for name, _ in self.labs), default=0)
        lines = [f"Your labs are in {_shown(self.folder)}:"]
        lines += [f"  {name:{width}}  {title}" for name, title in self.labs]
        return "\n".join([*lines, *self.updates, *self.blocked])

    def _repr_html_(self) -> str:
        # A page resolves a link from the folder of its notebook, where the kernel runs.
        start = os.path.relpath(self.folder).replace(os.sep, "/")
        return render(
            "course/my_labs.html",
            folder=_shown(self.folder),
            labs=[(quote(f"{start}/{name}"), title) for name, title in self.labs],
            notes=(*self.updates, *self.blocked),
        )


@dataclass(frozen=True)
class Guess:
    """A guess that stands in a copy: the text of it, and how sure its author was, 1 to 3."""

    prediction: str
    text: str
    sure: int


@dataclass(frozen=True)
class Carried:
    """What moved from a learner's copy into a new notebook, and what did not.

    ``guesses`` are those of the copy; no notebook holds a guess.
    """

    answers: tuple[str, ...]
    guesses: tuple[Guess, ...]
    gone: tuple[str, ...]
    others: int


def default_folder(*, notebooks: Path = NOTEBOOKS, in_checkout: bool = IN_CHECKOUT) -> Path:
    """``my_labs`` beside the labs of a checkout, elsewhere in the current directory.

    JupyterLab started on ``notebooks/00_start_here.ipynb`` shows ``notebooks/`` and nothing above.
    """
    if in_checkout:
        return notebooks / FOLDER
    here = Path.cwd()
    return here if here.name == FOLDER else here / FOLDER


def start(target: str | os.PathLike[str] | None = None, *, notebooks: Path = NOTEBOOKS) -> Started:
    """Copy the labs into ``target`` and bring old copies up to date; default: ``default_folder()``.

    Raises OSError, with a sentence, where the folder cannot be made or written.
    """
    folder = default_folder(notebooks=notebooks) if target is None else Path(target).expanduser()
    labs = read_manifest(notebooks).labs
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reports = [_one(lab, notebooks=notebooks, folder=folder) for lab in labs]
        _copy_images(notebooks / IMAGES, folder / IMAGES)
    except OSError as error:
        raise OSError(
            f"The labs cannot be copied to {folder}: {error.strerror or error}. "
            "Name a folder that you may write to: labkit start DIR"
        ) from error
    return Started(
        folder=folder,
        labs=tuple((f"{lab.lab}.ipynb", f"{lab.number}. {lab.title}") for lab in labs),
        updates=tuple(said for kind, said in reports if kind == "updated"),
        blocked=tuple(said for kind, said in reports if kind == "blocked"),
    )


def carry(old: dict[str, Any], new: dict[str, Any]) -> Carried:
    """Put the answers of ``old`` into the notebook ``new``, in place, and read its guesses.

    An exercise that is as it was handed out is not carried: the new text stands.
    """
    changed = [cell for cell in _changed(old) if not _is_open(cell)]
    keys = {key: cell for cell in changed if (key := _key(cell))}
    found = {key: _guess(key[1], cell) for key, cell in keys.items() if key[0] == "guess"}
    kept = {key: cell for key, cell in keys.items() if key[0] == "answer" or found[key]}
    places = {key: cell for cell in new["cells"] if (key := _key(cell))}
    for key, cell in places.items():
        if key[0] == "answer" and key in kept:
            cell["source"] = kept[key]["source"]
    return Carried(
        answers=tuple(key[1] for key in places if key[0] == "answer" and key in kept),
        guesses=tuple(guess for key, guess in found.items() if guess and key in places),
        gone=tuple(slug for kind, slug in kept if (kind, slug) not in places),
        others=len(changed) - len(kept),
    )


def _one(lab: LabEntry, *, notebooks: Path, folder: Path) -> tuple[str, str]:
    """Bring one lab's copy up to date: ("copied" | "left" | "updated" | "blocked", a sentence)."""
    name = f"{lab.lab}.ipynb"
    ours, path = (notebooks / name).read_bytes(), folder / name
    if not path.exists() and not path.is_symlink():
        replace_file(path, ours, durable=True)
        return "copied", ""
    try:
        theirs = path.read_bytes()
        old = json.loads(theirs)
        name_of_it, version = copied(old) or ("", "")
        reason = None if name_of_it == lab.lab else "it is not a copy of this lab"
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
    except ValueError as error:
        reason = f"it is damaged ({error})"
    if reason:
        return "blocked", (
            f"{name} is left as it is: {reason}. Rename it and start again to get the lab."
        )
    if version == lab.version:
        return "left", ""
    if not _changed(old):
        replace_file(path, ours, durable=True)
        return "updated", f"{name} is now the current version; you had changed nothing in it."
    new = json.loads(ours)
    carried = carry(old, new)
    # Kept first: whatever stops us here, the learner's file is in one of the two places.
    kept = _keep(path, theirs, version)
    unlogged = _log(lab.lab, carried.guesses)
    replace_file(path, json.dumps(new, indent=1, ensure_ascii=False) + "\n", durable=True)
    return "updated", _sentence(name, kept, carried, unlogged)


def _log(lab: str, guesses: tuple[Guess, ...]) -> list[str]:
    """Log the guesses of predictions that have none in the log; those that cannot be logged.

    What is so is not known here. The prediction's cell judges the guess when it runs.
    """
    if guesses and (progress.is_off() or progress.why_not_writable()):
        return [guess.prediction for guess in guesses]
    there = {event.item for event in progress.events(lab=lab, kind="prediction")}
    for guess in guesses:
        if guess.prediction not in there:
            progress.record(
                "prediction",
                lab=lab,
                item=guess.prediction,
                status="carried",
                guess=guess.text,
                sure=guess.sure,
            )
    return []


def _sentence(name: str, kept: str, carried: Carried, unlogged: list[str]) -> str:
    guesses = [guess.prediction for guess in carried.guesses if guess.prediction not in unlogged]
    work = [f"`{slug}`" for slug in (*carried.answers, *guesses)]
    said = [
        f"{name} is now the current version.",
        f"Carried over: {', '.join(work) or 'nothing'}.",
        f"Your earlier file is {kept}.",
    ]
    if unlogged:
        slugs = ", ".join(f"`{slug}`" for slug in unlogged)
        said.append(f"Your log of progress cannot take the guesses {slugs}; they are in that file.")
    if carried.gone:
        gone = ", ".join(f"`{slug}`" for slug in carried.gone)
        said.append(f"The lab no longer asks for {gone}; what you wrote is in that file.")
    if carried.others:
        said.append(f"Other cells that you added or changed ({carried.others}) stay in that file.")
    return " ".join(said)


def _text(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _changed(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that the learner wrote in: neither empty nor with the text they came with."""
    return [c for c in notebook["cells"] if _text(c).strip() and not _as_given(c)]


def _as_given(cell: dict[str, Any]) -> bool:
    """Whether the cell's id is the one that a lab's cell with its text has."""
    given = str(cell.get("id"))
    occurrence = given.rpartition("-")[2]
    return occurrence.isdecimal() and given == cell_id(
        str(cell.get("cell_type")), _text(cell), int(occurrence)
    )


def _key(cell: dict[str, Any]) -> tuple[str, str] | None:
    """What a cell holds of the learner's: ("answer", slug), ("guess", slug), or None."""
    graded, ours = cell["metadata"].get("nbgrader"), cell["metadata"].get("labkit")
    if isinstance(graded, dict) and graded.get("solution") and graded.get("grade_id"):
        return "answer", str(graded["grade_id"])
    if isinstance(ours, dict) and ours.get("predict"):
        return "guess", str(ours["predict"])
    return None


def _guess(prediction: str, cell: dict[str, Any]) -> Guess | None:
    """The guess in a cell, such as `step.guess(2048, sure=3)`; None without one."""
    try:
        statements = ast.parse(_text(cell)).body
    except SyntaxError:
        return None
    found = None
    for statement in statements:
        match statement:
            case ast.Expr(ast.Call(ast.Attribute(attr="guess"), [value], [])):
                found = value, ast.Constant(2)
            case ast.Expr(ast.Call(ast.Attribute(attr="guess"), [value], [ast.keyword("sure", n)])):
                found = value, n
            case ast.Expr(ast.Call(ast.Attribute(attr="guess"), [value, n], [])):
                found = value, n
    if found is None:
        return None
    text, sure = _written(found[0], _text(cell)), getattr(found[1], "value", None)
    if "..." in text or text == "skip":
        return None
    return Guess(prediction, text, sure if sure in (1, 2, 3) else 2)


def _written(guess: ast.expr, code: str) -> str:
    """A guess as a text that its prediction reads: a word without quotes, a bare list."""
    if isinstance(guess, ast.List | ast.Tuple):
        return ", ".join(_written(entry, code) for entry in guess.elts) or "none"
    if isinstance(guess, ast.Constant) and isinstance(guess.value, str):
        return guess.value.strip()
    text = ast.get_source_segment(code, guess) or ""
    text = text.removeprefix("math.").removeprefix("torch.")
    found = re.fullmatch(r"""float\(['"](.*)['"]\)""", text)
    return found[1] if found else text


def _is_open(cell: dict[str, Any]) -> bool:
    """Whether an exercise still ends in its stub, in a cell whose own id a tool has dropped."""
    last = _text(cell).rstrip().splitlines()[-1].strip()
    return last in (COMMENT, STUB) and not str(cell.get("id")).startswith("lab-")


def _keep(path: Path, content: bytes, version: str) -> str:
    """Write ``content`` beside ``path`` under a name that no other content has; return the name."""
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        kept = path.with_name(f"{path.stem}.before-{version}{suffix}.ipynb")
        if not kept.exists():
            replace_file(kept, content, durable=True)
        if kept.is_file() and kept.read_bytes() == content:
            return kept.name
        number += 1


def _copy_images(source: Path, target: Path) -> None:
    for image in sorted(source.rglob("*")):
        copy = target / image.relative_to(source)
        if image.is_file() and not (copy.exists() and copy.read_bytes() == image.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            replace_file(copy, image.read_bytes(), durable=True)


def _shown(folder: Path) -> str:
    """The folder as a reader of the course knows it: ``my_labs`` wherever that is its name."""
    return f"{FOLDER}/" if folder.name == FOLDER else str(folder)
