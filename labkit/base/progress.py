"""The learner's log: what was tried, when, and how it ended.

One SQLite file holds events, and events are only ever added. An event is on the disk before
``record`` returns, so a killed kernel loses nothing it was told is kept. Kernels may write at once:
each call opens the file, takes the write lock first, adds its row and closes. A log that cannot be
written is said once, in a sentence, and the check goes on. Homes on shared hubs are often network
file systems, where a write-ahead log is unsafe: hence the rollback journal.

``LABKIT_HOME`` moves the file. With ``LABKIT_PROGRESS=off`` there is no log: nothing is written and
nothing read, so graders, CI and pytest see the same empty log everywhere.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from labkit.base.home import LabEntry

CERTAIN = 3
"""``sure`` of a prediction: 1 guessing, 2 fairly sure, 3 certain."""

# Eight kernels that write at once wait milliseconds for each other; five seconds of waiting means
# that something holds the file. After one such wait the next calls give up at once.
_BUSY_SECONDS = 5.0
_BUSY_SECONDS_AFTER_A_FAILURE = 0.2

_VERSION = 1
_TABLE = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, "
    "kind TEXT NOT NULL, lab TEXT NOT NULL, item TEXT NOT NULL, status TEXT NOT NULL, "
    "detail TEXT NOT NULL)",
    "CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events "
    "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END",
    "CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events "
    "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END",
    f"PRAGMA user_version = {_VERSION}",
)
_INSERT = "INSERT INTO events (at, kind, lab, item, status, detail) VALUES (?, ?, ?, ?, ?, ?)"

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
    None. Raises TypeError or ValueError for a detail that is no JSON, ValueError for a ``now``
    without a time zone, and nothing because of the log.
    """
    global _sentence_was_said, _last_write_failed
    now = datetime.now(UTC) if now is None else now
    if now.tzinfo is None:
        raise ValueError(f"now={now!r} has no time zone; pass datetime.now(UTC) or the like.")
    at = now.astimezone(UTC).isoformat(timespec="microseconds")
    row = (at, kind, lab, item, status, json.dumps(detail))
    if is_off():
        return None
    try:
        with _log(writing=True) as log:
            log.execute(_INSERT, row)
    except ProgressError as problem:
        first, _sentence_was_said, _last_write_failed = not _sentence_was_said, True, True
        return f"Your progress is not recorded. {problem}" if first else None
    _last_write_failed = False
    return None


def why_not_writable() -> str | None:
    """Try to write an event and take it back: None where that works, else the reason."""
    try:
        with _log(writing=True) as log:
            log.execute("SAVEPOINT trial")
            log.execute(_INSERT, ("", "trial", "", "", "", "{}"))
            log.execute("ROLLBACK TO trial")
    except ProgressError as problem:
        return str(problem)
    return None


def events(*, lab: str | None = None, kind: str | None = None) -> list[Event]:
    """All events in the order they were recorded, of one lab or one kind if asked.

    An absent log is an empty one. Raises ProgressError where the log cannot be read.
    """
    query = (
        "SELECT at, kind, lab, item, status, detail FROM events"
        " WHERE (:lab IS NULL OR lab = :lab) AND (:kind IS NULL OR kind = :kind) ORDER BY id"
    )
    if is_off():
        return []
    with _sentences():
        if not path().exists():
            return []
    with _log(writing=False) as log:
        rows = log.execute(query, {"lab": lab, "kind": kind}).fetchall()
    names = ("kind", "lab", "item", "status")
    return [
        Event(
            at=datetime.fromisoformat(at),
            detail=json.loads(detail),
            **dict(zip(names, words, strict=True)),
        )
        for at, *words, detail in rows
    ]


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


@contextlib.contextmanager
def _log(*, writing: bool) -> Iterator[sqlite3.Connection]:
    """The log, open, with its table; what the block wrote is on the disk when it ends.

    Raises ProgressError, with what the learner can do, for all that goes wrong.
    """
    file = path()
    patience = _BUSY_SECONDS_AFTER_A_FAILURE if _last_write_failed else _BUSY_SECONDS
    # "rw" for reading too: after a kill the next to open it undoes the half-written event.
    place = f"{file.absolute().as_uri()}?mode={'rwc' if writing else 'rw'}"
    with _sentences():
        if writing:
            # Private: what a learner gets wrong is nobody else's business on a shared machine.
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = sqlite3.connect(place, uri=True, timeout=patience, isolation_level=None)
        # Closing undoes a transaction that was left open.
        with contextlib.closing(log):
            version = _version(log, file)
            log.execute("PRAGMA journal_mode = DELETE")
            log.execute("PRAGMA synchronous = FULL")
            if writing or version < _VERSION:
                log.execute("BEGIN IMMEDIATE")
                if _version(log, file) < _VERSION:
                    for statement in _TABLE:
                        log.execute(statement)
            yield log
            if log.in_transaction:
                log.execute("COMMIT")


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Turn what SQLite and the file system say into what the learner can do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise ProgressError(_sentence(error, path())) from error


def _version(log: sqlite3.Connection, file: Path) -> int:
    """The version of the file, 0 without a table; refused where it is newer than ours."""
    version = log.execute("PRAGMA user_version").fetchone()[0]
    if version > _VERSION:
        raise ProgressError(
            f"{file} was written by a newer labkit (version {version} of the log; this labkit"
            f" knows {_VERSION}). Nothing in it was changed. Update this labkit: `git pull`, then"
            " `pip install -r requirements.txt`."
        )
    return version


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
