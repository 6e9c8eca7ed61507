"""The learner's log: what was tried, when, and how it ended.

One SQLite file holds events, and events are only ever added. An event is on the disk before
``record`` returns, so a killed kernel loses nothing it was told is kept. Kernels may write at once:
each call opens the file, takes the write lock first, adds its row and closes. A log that cannot be
written is said once, in a sentence, and the check goes on.

Homes on shared hubs are often network file systems, where a write-ahead log is unsafe. Hence the
rollback journal.

``LABKIT_HOME`` moves the file. With ``LABKIT_PROGRESS=off`` there is no log: nothing is written and
nothing read, so graders, CI and pytest see the same empty log everywhere.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from labkit.base.manifest import LabEntry

CERTAIN = 3
"""``sure`` of a prediction: 1 guessing, 2 fairly sure, 3 certain."""

# Eight kernels that write at once wait milliseconds for each other; five seconds of waiting means
# that something holds the file. After one such wait the next calls give up at once.
_BUSY_SECONDS = 5.0
_BUSY_SECONDS_AFTER_A_FAILURE = 0.2

# Step n brings a file from version n to n + 1. Steps are added, never changed.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at TEXT NOT NULL,
            kind TEXT NOT NULL,
            lab TEXT NOT NULL,
            item TEXT NOT NULL,
            status TEXT NOT NULL,
            detail TEXT NOT NULL
        )""",
        """CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END""",
        """CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
        BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END""",
    ),
)

_sentence_was_said = False
_last_write_failed = False


class ProgressError(RuntimeError):
    """The log cannot be used; the message is a sentence for the learner."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened: a check, a prediction, a hint."""

    at: datetime
    kind: str
    lab: str
    item: str
    status: str
    detail: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LabProgress:
    """How far one lab is; ``exercises`` are those with points, ``optional`` those without."""

    lab: str
    title: str
    exercises: int
    passed: int
    optional: int
    optional_passed: int
    points: float
    points_earned: float
    last_seen: datetime | None


@dataclass(frozen=True, kw_only=True)
class ExerciseProgress:
    """How far one exercise is: passed once is passed, else the last status, else "not started"."""

    exercise: str
    status: str
    points: float
    tries: int
    last_seen: datetime | None


@dataclass(frozen=True, kw_only=True)
class MisconceptionMet:
    """A wrong idea that the learner's answers showed, how often, and where it showed last."""

    misconception: str
    times: int
    last: Event


def is_off() -> bool:
    """Whether LABKIT_PROGRESS=off keeps this process out of the log."""
    return os.environ.get("LABKIT_PROGRESS", "").strip().lower() == "off"


def path() -> Path:
    """Where the log lies: $LABKIT_HOME/progress.db, else in the user's data folder."""
    home = os.environ.get("LABKIT_HOME") or platformdirs.user_data_dir("labkit", appauthor=False)
    return Path(os.path.expanduser(home)) / "progress.db"


def record(
    kind: str, *, lab: str, item: str, status: str, now: datetime | None = None, **detail: object
) -> str | None:
    """Add one event to the log; when this returns None, the event is on the disk.

    ``detail`` holds what JSON can hold (NaN and infinities too). ``now`` is an aware datetime, the
    present by default.

    Returns a sentence to show, once per process, where the log cannot be written; after that
    None. Raises TypeError for a detail that is no JSON and ValueError for a ``now`` without a time
    zone, and nothing because of the log.
    """
    global _sentence_was_said, _last_write_failed
    row = (_utc(now), kind, lab, item, status, _json(detail))
    if is_off():
        return None
    try:
        with _write() as log:
            log.execute(_INSERT, row)
    except ProgressError as problem:
        _last_write_failed = True
        if _sentence_was_said:
            return None
        _sentence_was_said = True
        return f"Your progress is not recorded. {problem}"
    _last_write_failed = False
    return None


def why_not_writable() -> str | None:
    """Try to write an event and take it back: None where that works, else the reason."""
    try:
        with _write() as log:
            log.execute("SAVEPOINT trial")
            log.execute(_INSERT, (_utc(None), "trial", "", "", "", "{}"))
            log.execute("ROLLBACK TO trial")
    except ProgressError as problem:
        return str(problem)
    return None


def events(*, lab: str | None = None, kind: str | None = None) -> list[Event]:
    """All events in the order they were recorded, of one lab or one kind if asked.

    An absent log is an empty one. Raises ProgressError where the log cannot be read.
    """
    if is_off():
        return []
    file = path()
    query = (
        "SELECT at, kind, lab, item, status, detail FROM events"
        " WHERE (:lab IS NULL OR lab = :lab) AND (:kind IS NULL OR kind = :kind) ORDER BY id"
    )
    with _sentences(file):
        if not file.exists():
            return []
        # "rw" for reading too: after a kill the next to open it undoes the half-written event.
        with _open(file, mode="rw") as log:
            if _version(log, file) < len(_MIGRATIONS):
                with _transaction(log, file):
                    pass
            rows = log.execute(query, {"lab": lab, "kind": kind}).fetchall()
    return [
        Event(
            at=datetime.fromisoformat(at),
            kind=kind_,
            lab=lab_,
            item=item,
            status=status,
            detail=json.loads(detail),
        )
        for at, kind_, lab_, item, status, detail in rows
    ]


def overview(labs: Iterable[LabEntry], *, log: Iterable[Event] | None = None) -> list[LabProgress]:
    """How far each of the labs is, in their order.

    ``log`` is the list of events, the learner's own by default. An exercise passed once is passed.
    Raises ProgressError where the log cannot be read.
    """
    log = events() if log is None else list(log)
    rows = []
    for lab in labs:
        exercises = lab_progress(lab, log=log)
        passed = [exercise for exercise in exercises if exercise.status == "passed"]
        required = sum(exercise.points > 0 for exercise in exercises)
        required_passed = sum(exercise.points > 0 for exercise in passed)
        rows.append(
            LabProgress(
                lab=lab.lab,
                title=lab.title,
                exercises=required,
                passed=required_passed,
                optional=len(exercises) - required,
                optional_passed=len(passed) - required_passed,
                points=sum(exercise.points for exercise in exercises),
                points_earned=sum(exercise.points for exercise in passed),
                last_seen=max((e.at for e in log if e.lab == lab.lab), default=None),
            )
        )
    return rows


def lab_progress(lab: LabEntry, *, log: Iterable[Event] | None = None) -> list[ExerciseProgress]:
    """How far each exercise of one lab is, in the lab's order.

    Raises ProgressError where the log cannot be read.
    """
    log = events(lab=lab.lab) if log is None else log
    checks: dict[str, list[Event]] = {}
    for event in log:
        if event.kind == "check" and event.lab == lab.lab:
            checks.setdefault(event.item, []).append(event)
    rows = []
    for exercise in lab.exercises:
        tries = checks.get(exercise.exercise, [])
        statuses = [event.status for event in tries]
        last = statuses[-1] if statuses else "not started"
        rows.append(
            ExerciseProgress(
                exercise=exercise.exercise,
                status="passed" if "passed" in statuses else last,
                points=exercise.points,
                tries=sum(status != "not attempted" for status in statuses),
                last_seen=max((event.at for event in tries), default=None),
            )
        )
    return rows


def sections_passed(labs: Iterable[LabEntry], *, log: Iterable[Event]) -> set[str]:
    """The sections that the learner has been through, each as "LAB#Section".

    A section is passed once an exercise or a prediction in it, or further down in its lab, was
    answered; with the last that is not optional, all that follows is passed. An optional section
    is passed with an answer in it; one that only introduces an exercise, with an answer to that.
    Where the log holds no answer at all, all that is not optional counts.
    """
    answered = {
        (event.lab, event.item)
        for event in log
        if event.kind in ("check", "prediction") and event.status != "not attempted"
    }
    passed = set()
    for lab in labs:
        optional = {exercise.exercise for exercise in lab.exercises if not exercise.points}
        ahead = {item for section in lab.sections for item in section.items} - optional
        reached = 0
        for place, section in enumerate(lab.sections, start=1):
            ahead -= set(section.items)
            if not answered or any((lab.lab, item) in answered for item in section.items):
                reached = place if ahead else len(lab.sections)
        below = [section.items for section in lab.sections[1:]] + [()]
        for section, next_items in zip(lab.sections[:reached], below, strict=False):
            items = section.items or next_items
            if not section.optional or any((lab.lab, item) in answered for item in items):
                passed.add(f"{lab.lab}#{section.section}")
    return passed


def sure_and_wrong(log: Iterable[Event]) -> list[Event]:
    """The predictions made with certainty that were wrong, newest first.

    Of several answers to one prediction the first counts: the later ones had seen the truth. A
    guess that was carried from an older copy has not been judged yet, and does not count.
    """
    first: dict[tuple[str, str], Event] = {}
    for event in log:
        if event.kind == "prediction" and "correct" in event.detail:
            first.setdefault((event.lab, event.item), event)
    wrong = [
        event
        for event in first.values()
        if event.detail.get("sure") == CERTAIN and event.detail.get("correct") is False
    ]
    return sorted(wrong, key=lambda event: event.at, reverse=True)


def misconceptions_met(log: Iterable[Event]) -> list[MisconceptionMet]:
    """The misconceptions that answers showed, the one met last first."""
    met: dict[str, list[Event]] = {}
    for event in log:
        for misconception in event.detail.get("misconceptions", ()):
            met.setdefault(misconception, []).append(event)
    found = [
        MisconceptionMet(misconception=name, times=len(seen), last=seen[-1])
        for name, seen in met.items()
    ]
    return sorted(found, key=lambda one: one.last.at, reverse=True)


_INSERT = "INSERT INTO events (at, kind, lab, item, status, detail) VALUES (?, ?, ?, ?, ?, ?)"


def _utc(now: datetime | None) -> str:
    now = datetime.now(UTC) if now is None else now
    if now.tzinfo is None:
        raise ValueError(f"now={now!r} has no time zone; pass datetime.now(UTC) or the like.")
    return now.astimezone(UTC).isoformat(timespec="microseconds")


def _json(detail: dict) -> str:
    try:
        return json.dumps(detail)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"detail {detail!r} cannot be kept: {error}. Allowed are None, bool, int, float, str,"
            " and lists and dicts of them."
        ) from None


@contextmanager
def _write() -> Iterator[sqlite3.Connection]:
    """What the block wrote is on the disk when it ends; ProgressError if that failed."""
    file = path()
    with _sentences(file):
        # Private: what a learner gets wrong is nobody else's business on a shared machine.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open(file, mode="rwc") as log, _transaction(log, file):
            yield log


@contextmanager
def _open(file: Path, *, mode: str) -> Iterator[sqlite3.Connection]:
    patience = _BUSY_SECONDS_AFTER_A_FAILURE if _last_write_failed else _BUSY_SECONDS
    log = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=patience, isolation_level=None
    )
    try:
        _version(log, file)
        log.execute("PRAGMA journal_mode = DELETE")
        log.execute("PRAGMA synchronous = FULL")
        yield log
    finally:
        log.close()  # which undoes a transaction left open


@contextmanager
def _transaction(log: sqlite3.Connection, file: Path) -> Iterator[None]:
    """Hold the write lock on a file of our version, brought up to it if it was older."""
    log.execute("BEGIN IMMEDIATE")
    theirs, ours = _version(log, file), len(_MIGRATIONS)
    for step in _MIGRATIONS[theirs:]:
        for statement in step:
            log.execute(statement)
    if theirs < ours:
        log.execute(f"PRAGMA user_version = {ours}")
    yield
    log.execute("COMMIT")


def _version(log: sqlite3.Connection, file: Path) -> int:
    """The version of the file, refused where it is newer than ours."""
    version, ours = log.execute("PRAGMA user_version").fetchone()[0], len(_MIGRATIONS)
    if version > ours:
        raise ProgressError(
            f"{file} was written by a newer labkit (version {version} of the log; this labkit"
            f" knows {ours}). Nothing in it was changed. Update this labkit: `git pull`, then"
            " `pip install -r requirements.txt`."
        )
    return version


@contextmanager
def _sentences(file: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say into what the learner can do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise ProgressError(_sentence(error, file)) from error


def _sentence(error: Exception, file: Path) -> str:
    # The low byte of an SQLite code is the kind of failure, the rest its detail.
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if os.path.isdir(file):
        return f"{file} is a folder. Rename it, or set LABKIT_HOME to another folder."
    if code == sqlite3.SQLITE_BUSY:
        return (
            f"Another program keeps {file} locked. Nothing in it was changed. Close what else"
            " uses it; the next check tries again."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"{file} is damaged ({error}). Nothing in it was changed. Move it, with"
            f" {file.name}-journal if there is one, to another folder: a new log begins with the"
            " next check, and the command `sqlite3 progress.db .recover` may save what the old"
            " one holds."
        )
    if code == sqlite3.SQLITE_FULL:
        return f"The disk that holds {file} is full. Free some space; the next check tries again."
    return (
        f"{file} cannot be used ({error}). Make {file.parent} a folder that you may write to and"
        " that has space, or set LABKIT_HOME to one."
    )
