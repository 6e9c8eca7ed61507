"""The class list, who handed something in, and which of several attempts counts.

**The rule of persons: the LMS's number decides where there is one, for a student chooses the name
that an LMS shows. A number that is another's, or not the one that the roster gives to this name,
contradicts; whoever contradicts is a stranger with a row of their own.** Without a number the id
decides, then the name, if one student alone has it.

**The rule of attempts: of a student's notebooks of one lab, the last readable one before the
deadline counts. Where none was in time, the last readable one counts and is marked late. Without a
deadline the last one counts.** "Last" is by the time of the file, then by the LMS's number, then by
the name.
"""

import csv
import io
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from labkit.base.home import full_name
from labkit.grading.course_labs import CourseLab
from labkit.grading.intake.remarks import quoted
from labkit.grading.records import CHECK, HIDDEN

EVERYONE = "*"
"""In a table of overrides: each student who handed the lab in and has no line of their own."""

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
    """What an instructor wrote of a student: points set by hand, a comment, or both.

    ``student`` may be ``EVERYONE``. ``exercise`` is "" for a comment on the lab as a whole.
    ``possible`` is the maximum of an exercise that no check grades, and None for one of the lab's.
    """

    student: str
    lab: str
    exercise: str
    points: float | None = None
    reason: str = ""
    comment: str = ""
    possible: float | None = None


class Attempt(Protocol):
    """What ``counting_attempt`` needs to know of a submission."""

    at: datetime | None
    attempt: int
    file: str
    marked_late: bool

    @property
    def is_readable(self) -> bool: ...


def read_roster(file: Path) -> dict[str, Student]:
    """The students by their id; raises TableError."""
    students: dict[str, Student] = {}
    numbers: dict[str, str] = {}
    for number, row in _rows(file, _NEEDED, optional=("due",)):
        if not row["id"]:
            raise TableError(f"{file}, line {number}: the id is empty.")
        if row["id"] in students:
            raise TableError(f"{file}, line {number}: the id {row['id']!r} stands twice.")
        if row["lms_id"] in numbers:
            raise TableError(
                f"{file}, line {number}: the lms_id {row['lms_id']!r} stands twice; it is that of"
                f" {numbers[row['lms_id']]!r} too."
            )
        if row["lms_id"]:
            numbers[row["lms_id"]] = row["id"]
        students[row["id"]] = Student(
            id=row["id"],
            name=row["name"],
            lms_id=row["lms_id"],
            due=_due(row["due"], file, number) if row["due"] else None,
        )
    if not students:
        raise TableError(f"{file} lists no students.")
    return students


def read_overrides(file: Path, course: Mapping[str, CourseLab]) -> list[Override]:
    """Points and comments of an instructor, in the order of the file; raises TableError."""
    needed = ("student", "lab", "exercise", "points", "reason")
    lines: dict[tuple[str, str, str], int] = {}
    maxima: dict[tuple[str, str], tuple[float, int]] = {}
    overrides = []
    for number, row in _rows(file, needed, optional=("comment", "possible")):
        where = f"{file}, line {number}"
        one = _override(row, course, where)
        first = lines.setdefault((one.student, one.lab, one.exercise), number)
        if first != number:
            raise TableError(
                f"{where}: line {first} is for the same student, lab and exercise. Keep one of"
                " them."
            )
        if one.possible is not None:
            most, first = maxima.setdefault((one.lab, one.exercise), (one.possible, number))
            if most != one.possible:
                raise TableError(
                    f"{where}: possible is {one.possible:g} for {one.exercise!r}, and {most:g} in"
                    f" line {first}. A class has one maximum."
                )
        overrides.append(one)
    # One line may say the maximum for all.
    completed = [
        replace(one, possible=maxima.get((one.lab, one.exercise), (None, 0))[0])
        for one in overrides
    ]
    for one, number in zip(completed, lines.values(), strict=True):
        if one.points is not None and one.possible is None and not one.reason:
            raise TableError(f"{file}, line {number}: the reason is empty; write why.")
    return completed


def _override(row: Mapping[str, str], course: Mapping[str, CourseLab], where: str) -> Override:
    """A line by itself, its lab under its full name."""
    try:
        lab = full_name(row["lab"], course) if row["lab"] else ""
    except ValueError as error:
        raise TableError(f"{where}: {error}") from None
    points, possible = (_amount(row, name, where) for name in ("points", "possible"))
    exercise = row["exercise"]
    if points is None and not row["comment"]:
        raise TableError(f"{where}: there are neither points nor a comment. Write one of them.")
    if points is not None and lab and not exercise:
        raise TableError(f"{where}: points need an exercise; a comment on the lab needs none.")
    if possible is not None:
        possible = _maximum(possible, lab and course[lab], exercise, where)
    return Override(
        student=row["student"],
        lab=lab,
        exercise=exercise,
        points=points,
        reason=row["reason"],
        comment=row["comment"],
        possible=possible,
    )


def _amount(row: Mapping[str, str], name: str, where: str) -> float | None:
    """A number of points; None where the cell is empty."""
    if not row[name]:
        return None
    try:
        amount = float(row[name])
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e6:
        raise TableError(f"{where}: {name} is {row[name]!r}; a number from 0 is needed.")
    return amount


def _maximum(possible: float, lab: CourseLab | str, exercise: str, where: str) -> float | None:
    """The maximum of an exercise that the lab does not have; None of one that it has."""
    if exercise.startswith(HIDDEN):
        return None  # the file of hidden checks says it
    if not lab or not re.fullmatch(r"[\w-]{1,60}", exercise):
        raise TableError(
            f"{where}: possible belongs to a lab and an exercise that no check grades, with a name"
            f" of letters, digits and hyphens such as 'essay'; the exercise is {exercise!r}."
        )
    if exercise.startswith(CHECK):  # the name of a cell of the lab's own in nbgrader's gradebook
        raise TableError(
            f"{where}: {exercise!r} begins with {CHECK!r}; an exercise's name may not."
        )
    own = {one.exercise: one.points for one in lab.exercises}
    if exercise not in own:
        return possible
    if own[exercise] != possible:
        raise TableError(
            f"{where}: possible is {possible:g}, and the lab gives {exercise!r} {own[exercise]:g}."
            " The lab's own maxima stay as they are; leave the cell empty."
        )
    return None


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who handed something in: ``id`` names their row, ``listed`` is their line of the roster.

    Without a line ``kind`` is "contradicting" or "unknown", as for a remark, and ``said`` tells
    why; both are "" where there is no roster and nothing to say.
    """

    id: str
    listed: Student | None = None
    kind: str = ""
    said: str = ""


Delivered = tuple[str, str]
"""A name and an LMS number, as they were delivered; the number is "" where there was none."""

_ALONE = "It has a row of its own. If you know whose it is, correct the roster or the file's name."


def identify(
    delivered: Iterable[Delivered], roster: Mapping[str, Student]
) -> dict[Delivered, Person]:
    """Who each name and LMS number is.

    Two of them are one person only where the roster has that person, and no two persons share an
    id.
    """
    delivered = sorted(set(delivered))
    index = _Index(roster)
    found = {one: index.find(*one) for one in delivered}
    of_student: dict[str, list[Delivered]] = defaultdict(list)
    for one, match in found.items():
        if match.student:
            of_student[match.student.id].append(one)
    for ours in of_student.values():
        found |= _contradictions(ours, found)
    strangers = [one for one in delivered if not found[one].student]
    found |= _among_strangers(strangers, found)
    so_called = Counter(name for name, _ in strangers)
    taken, people = set(roster), {}
    for one in delivered:
        match = found[one]
        if match.student:
            people[one] = Person(id=match.student.id, listed=match.student)
            continue
        stands_out = bool(roster) and match.kind == "contradicting"
        id_ = _label(*one, taken, by_name=so_called[one[0]] == 1 and not stands_out)
        taken.add(id_)
        if match.kind == "unknown" and not roster:
            people[one] = Person(id=id_)
        else:
            people[one] = Person(id=id_, kind=match.kind, said=match.said)
    return people


def counting_attempt(attempts: Iterable[Attempt], due: datetime | None) -> tuple[Attempt, bool]:
    """The attempt that counts, by the rule of this module, and whether it is late."""
    ordered = sorted(attempts, key=lambda one: (one.at or _EARLY, one.attempt, one.file))
    readable = [one for one in ordered if one.is_readable] or ordered
    in_time = [one for one in readable if not _is_late(one, due)]
    chosen = (in_time or readable)[-1]
    return chosen, _is_late(chosen, due)


@dataclass(frozen=True, kw_only=True)
class _Match:
    """The student of the roster and ``by`` what they were found; or ``kind`` and ``said``."""

    student: Student | None = None
    by: str = ""
    kind: str = ""
    said: str = ""


class _Index:
    """The roster by LMS number, by name, and by how else an LMS may write a name."""

    def __init__(self, roster: Mapping[str, Student]):
        self.roster = roster
        self.by_number = {one.lms_id: one for one in roster.values() if one.lms_id}
        self.by_name: dict[tuple[str, ...], list[Student]] = defaultdict(list)
        self.by_similar: dict[tuple[str, ...], list[Student]] = defaultdict(list)
        for one in roster.values():
            words = _words(one.name)
            # Canvas writes `lovelaceada` for Lovelace, Ada, and Moodle `Ada Lovelace`. Where the
            # family name begins, a roster does not say: `garcialopezmaria` is Maria Garcia Lopez.
            turned = [words[first:] + words[:first] for first in range(len(words))]
            if words:
                self.by_name[words].append(one)
                for similar in {*turned[-1:], *(("".join(name),) for name in turned)}:
                    self.by_similar[similar].append(one)

    def find(self, name: str, number: str) -> _Match:
        """The student of a delivered name and number."""
        words = _words(name)
        exact, similar = self.by_name.get(words, []), self.by_similar.get(words, [])
        by, namesakes = ("name", exact) if exact else ("similar name", similar)
        if number in self.by_number:
            return self._of_number(name, number, [*exact, *similar])
        if number:
            return self._of_new_number(name, number, by, namesakes)
        if name in self.roster:
            return _Match(student=self.roster[name], by="id")
        if len(namesakes) == 1:
            return _Match(student=namesakes[0], by=by)
        if namesakes:
            return _unknown(f"{_came(name)} {len(namesakes)} students of the roster have this name")
        return _unknown(f"{_came(name)} The roster has no such id and no such name")

    def _of_number(self, name: str, number: str, namesakes: list[Student]) -> _Match:
        owner = self.by_number[number]
        named = [*namesakes, *([self.roster[name]] if name in self.roster else [])]
        if named and owner not in named:
            return _contradicting(
                f"{_came(name, number)} The roster gives this number to {quoted(owner.id)} and this"
                f" name to {quoted(named[0].id)}"
            )
        return _Match(student=owner, by="number")

    def _of_new_number(self, name: str, number: str, by: str, namesakes: list[Student]) -> _Match:
        if name in self.roster and self.roster[name] not in namesakes:
            return _contradicting(
                f"{_came(name, number)} {quoted(name)} is the id of a student of the roster, and"
                " the number is not theirs"
            )
        free = [one for one in namesakes if not one.lms_id]
        if free and len(namesakes) == 1:
            return _Match(student=free[0], by=by)
        if free:
            return _unknown(
                f"{_came(name, number)} {len(namesakes)} students of the roster have this name, and"
                " none this number"
            )
        if namesakes:
            theirs = _listed([f"{quoted(one.id)} has {quoted(one.lms_id)}" for one in namesakes])
            return _contradicting(
                f"{_came(name, number)} The roster has this name with another number: {theirs}"
            )
        return _unknown(f"{_came(name, number)} The roster has neither the name nor the number")


def _contradictions(
    ours: list[Delivered], found: Mapping[Delivered, _Match]
) -> dict[Delivered, _Match]:
    """Of all that was found to be one student, what cannot be or need not be the same person."""
    student = found[ours[0]].student
    numbers = sorted({number for _, number in ours if number})
    if len(numbers) > 1:  # by number there is one; by name alone, several people may have come
        said = (
            f"Files named like {quoted(student.id)} came with the LMS numbers"
            f" {_listed(numbers)}, and the roster gives this student none"
        )
        return {one: _contradicting(said) for one in ours if found[one].by != "id"}
    if len({"".join(_words(name)) for name, _ in ours}) == 1:
        return {}
    names = _listed([quoted(name) for name, _ in ours])
    said = f"Files came as {names}, and each of these names may be {quoted(student.id)}"
    return {one: _contradicting(said) for one in ours if found[one].by == "similar name"}


def _among_strangers(
    strangers: list[Delivered], found: Mapping[Delivered, _Match]
) -> dict[Delivered, _Match]:
    """What contradicts among those that no roster tells apart."""
    names: dict[str, list[str]] = defaultdict(list)
    numbers: dict[str, list[str]] = defaultdict(list)
    for name, number in strangers:
        names[number].append(name)
        numbers[name].append(number)
    said: dict[Delivered, _Match] = {}
    for name, number in strangers:
        if found[name, number].kind == "contradicting":
            continue
        if number and len(names[number]) > 1:
            said[name, number] = _contradicting(
                f"The LMS number {number} came with the names"
                f" {_listed([quoted(one) for one in names[number]])}"
            )
        elif not number and len(numbers[name]) > 1:
            said[name, number] = _contradicting(
                f"{_came(name)} Other files of this name came with an LMS number"
                f" ({_listed([one for one in numbers[name] if one])})"
            )
    return said


def _label(name: str, number: str, taken: Collection[str], *, by_name: bool) -> str:
    """What a stranger's row is called: by the name where that is enough, and nobody else's id."""
    wanted = [name] if by_name or not number else []
    wanted += [f"{name} ({number})"] if number else []
    others = (f"{name} ({count})" for count in itertools.count(2))
    return next(one for one in itertools.chain(wanted, others) if one not in taken)


def _came(name: str, number: str = "") -> str:
    return f"It came as {quoted(name)}{f' with the LMS number {number}' if number else ''}."


def _contradicting(said: str) -> _Match:
    return _Match(kind="contradicting", said=f"{said}. {_ALONE}")


def _unknown(said: str) -> _Match:
    return _Match(kind="unknown", said=f"{said}.")


def _listed(words: list[str]) -> str:
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if words[4:] else "")


def _words(name: str) -> tuple[str, ...]:
    """A name's words in small letters; marks that belong to a letter are kept, all others go."""
    words = re.split(r"[\s,_]+", unicodedata.normalize("NFC", name.casefold()))
    kept = ["".join(c for c in word if unicodedata.category(c)[0] in "LMN") for word in words]
    return tuple(word for word in kept if word)


def _is_late(attempt: Attempt, due: datetime | None) -> bool:
    if due and attempt.at:
        return attempt.at > due
    return attempt.marked_late


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
    """The rows that hold something, with their lines."""
    lines = _cells(file)
    _, head = next(lines, (1, []))
    columns = [name.strip().lower() for name in head]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TableError(
            f"{file} lacks the column {missing[0]!r}; its first line must name"
            f" {', '.join(needed)}, and has {', '.join(columns) or 'nothing'}."
        )
    wanted = (*needed, *optional)
    twice = [name for name in wanted if columns.count(name) > 1]
    if twice:
        raise TableError(f"{file}, line 1: the column {twice[0]!r} stands twice.")
    rows = []
    for number, cells in lines:
        if any(cells[len(columns) :]):
            raise TableError(
                f"{file}, line {number}: there are {len(cells)} cells for {len(columns)} columns."
                " Put quotes around a cell that holds a comma or a semicolon."
            )
        row = dict(zip(columns, cells, strict=False))
        if any(cells):
            rows.append((number, {name: row.get(name, "") for name in wanted}))
    return rows


def _cells(file: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table as cells, each with its number; raises TableError."""
    text = _text(file)
    # Where a comma is the decimal mark, spreadsheets part the columns by semicolons.
    mark = ";" if ";" in text.partition("\n")[0] else ","
    reader = csv.reader(io.StringIO(text), delimiter=mark, strict=True)
    number = 1
    try:
        for cells in reader:
            if any("\n" in cell or cell.count('"') % 2 for cell in cells):
                raise csv.Error("a quote is open at the end of the line")
            yield number, [cell.strip() for cell in cells]
            number += 1
    except csv.Error as error:
        raise TableError(
            f"{file}, line {number}: {error}. A cell stands on one line, and its quotes come in"
            " pairs."
        ) from None


def _text(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError(f"{file} is not in UTF-8; save it as `CSV UTF-8`.") from None
    except OSError as error:
        raise TableError(f"{file} cannot be read: {error.strerror}.") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text)  # as the names of what was handed in
