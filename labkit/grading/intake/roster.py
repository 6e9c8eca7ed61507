"""The class list, and which of several attempts counts.

**The rule: of a student's notebooks of one lab, the last readable one before the deadline counts.
Where none was in time, the last readable one counts and is marked late. Without a deadline the last
one counts.** "Last" is by the time of the file, then by the LMS's number, then by the name.
"""

import csv
import io
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_NEEDED = ("id", "name", "lms_id")
_EARLY = datetime(1, 1, 1, tzinfo=UTC)


class TableError(Exception):
    """A table of the instructor's that cannot be used: what it lacks, and the line."""


@dataclass(frozen=True, kw_only=True)
class Student:
    """A line of the roster; ``due`` is an aware datetime, or None for no deadline."""

    id: str
    name: str = ""
    lms_id: str = ""
    due: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Override:
    """Points that an instructor set by hand."""

    student: str
    lab: str
    exercise: str
    points: float
    reason: str


class Attempt(Protocol):
    """What ``counting`` needs to know of a submission."""

    at: datetime | None
    attempt: int
    file: str
    marked_late: bool

    @property
    def is_readable(self) -> bool: ...


def read_roster(file: Path) -> dict[str, Student]:
    """The students by their id; raises TableError."""
    students: dict[str, Student] = {}
    for number, row in _rows(file, _NEEDED, optional=("due",)):
        if not row["id"]:
            raise TableError(f"{file}, line {number}: the id is empty.")
        if row["id"] in students:
            raise TableError(f"{file}, line {number}: the id {row['id']!r} stands twice.")
        students[row["id"]] = Student(
            id=row["id"],
            name=row["name"],
            lms_id=row["lms_id"],
            due=_due(row["due"], file, number) if row["due"] else None,
        )
    if not students:
        raise TableError(f"{file} lists no students.")
    return students


def read_overrides(file: Path) -> list[Override]:
    """Points set by hand, in the order of the file; raises TableError."""
    overrides = []
    for number, row in _rows(file, ("student", "lab", "exercise", "points", "reason")):
        try:
            points = float(row["points"])
        except ValueError:
            points = -1.0
        if not 0 <= points < 1e6:
            raise TableError(
                f"{file}, line {number}: points is {row['points']!r}; a number from 0 is needed."
            )
        if not row["reason"]:
            raise TableError(f"{file}, line {number}: the reason is empty; write why.")
        overrides.append(Override(**{**row, "points": points}))
    return overrides


def student_of(name: str, lms_id: str, roster: dict[str, Student]) -> Student | None:
    """The line of the roster that is this student: by id, else by LMS id, else by an only name."""
    if name in roster:
        return roster[name]
    by_lms = [one for one in roster.values() if lms_id and one.lms_id == lms_id]
    if len(by_lms) == 1:
        return by_lms[0]
    by_name = [one for one in roster.values() if one.name and _same_name(one.name, name)]
    return by_name[0] if len(by_name) == 1 else None


def counting(attempts: Iterable[Attempt], due: datetime | None) -> tuple[Attempt, bool]:
    """The attempt that counts, by the rule of this module, and whether it is late."""
    ordered = sorted(attempts, key=lambda one: (one.at or _EARLY, one.attempt, one.file))
    readable = [one for one in ordered if one.is_readable] or ordered
    in_time = [one for one in readable if not _is_late(one, due)]
    chosen = (in_time or readable)[-1]
    return chosen, _is_late(chosen, due)


def _is_late(attempt: Attempt, due: datetime | None) -> bool:
    if due and attempt.at:
        return attempt.at > due
    return attempt.marked_late


def _same_name(ours: str, theirs: str) -> bool:
    # Canvas writes `lovelaceada` for Lovelace, Ada, and Moodle `Ada Lovelace`.
    def letters(name: str) -> str:
        return "".join(c for c in name.casefold() if c.isalnum())

    words = ours.replace(",", " ").split()
    turned = letters("".join(words[-1:] + words[:-1]))
    return letters(theirs) in (letters(ours), turned)


def _due(text: str, file: Path, number: int) -> datetime:
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        raise TableError(
            f"{file}, line {number}: due is {text!r}; write it like 2026-12-01 or"
            " 2026-12-01T23:59+01:00."
        ) from None
    if len(text) == len("2026-12-01"):
        due = due.replace(hour=23, minute=59, second=59)  # the day is theirs to its end
    return due.astimezone(UTC)  # without a zone: the time of this machine


def _rows(
    file: Path, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[tuple[int, dict[str, str]]]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError(f"{file} is not in UTF-8; save it as `CSV UTF-8`.") from None
    except OSError as error:
        raise TableError(f"{file} cannot be read: {error.strerror}.") from None
    text = unicodedata.normalize("NFC", text)  # as the names of what was handed in
    head = text.partition("\n")[0]
    # Where a comma is the decimal mark, spreadsheets part the columns by semicolons.
    reader = csv.DictReader(io.StringIO(text), delimiter=";" if head.count(";") else ",")
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TableError(
            f"{file} lacks the column {missing[0]!r}; its first line must name"
            f" {', '.join(needed)}, and has {', '.join(columns) or 'nothing'}."
        )
    reader.fieldnames = columns
    return [
        (reader.line_num, {name: (row.get(name) or "").strip() for name in (*needed, *optional)})
        for row in reader
        if any(value for value in row.values())
    ]
