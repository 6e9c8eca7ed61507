"""What was graded already, kept so that nothing is graded twice and nothing is lost.

One SQLite file beside the grades. A row is one exercise of one submission under everything that
its grade depends on, and is on the disk before the next submission is counted as done: after Ctrl-C
or ``kill -9`` a rerun goes on where the first run stopped. One process writes; a second one waits.
"""

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from labkit.grading.course_labs import CourseLab, rest_of_labkit
from labkit.grading.intake.roster import Override
from labkit.grading.records import TWICE, Outcome, Settings, Work, settled

_VERSION = 2
_BUSY_SECONDS = 30
_TABLES = (
    "CREATE TABLE graded (digest TEXT, lab TEXT, exercise TEXT, key TEXT, outcomes TEXT NOT NULL,"
    " PRIMARY KEY (digest, lab, exercise, key)) WITHOUT ROWID",
    # What the last run wrote into its tables, for the list of changes.
    "CREATE TABLE reported (student TEXT, lab TEXT, exercise TEXT, points REAL, status TEXT,"
    " PRIMARY KEY (student, lab, exercise)) WITHOUT ROWID",
    "CREATE TABLE overrides (student TEXT, lab TEXT, exercise TEXT, points REAL, reason TEXT,"
    " comment TEXT NOT NULL DEFAULT '', possible REAL,"
    " PRIMARY KEY (student, lab, exercise)) WITHOUT ROWID",
)
# An older labkit refuses the ledger then: it would leave out what it does not know of.
_FROM_VERSION_1 = (
    "ALTER TABLE overrides ADD COLUMN comment TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE overrides ADD COLUMN possible REAL",
)
# Ledgers of version 1 get it when they are opened; an older labkit does not look at it.
_PAGES = (
    "CREATE TABLE IF NOT EXISTS pages (file TEXT, digest TEXT, PRIMARY KEY (file, digest))"
    " WITHOUT ROWID"
)
# So do they get this: the day on which a row of ``graded`` was written.
_DAYS = (
    "CREATE TABLE IF NOT EXISTS days (digest TEXT, lab TEXT, exercise TEXT, key TEXT,"
    " day TEXT NOT NULL, PRIMARY KEY (digest, lab, exercise, key)) WITHOUT ROWID"
)
# And this: from what a page was made.
_MADE = (
    "CREATE TABLE IF NOT EXISTS made (file TEXT PRIMARY KEY, facts TEXT NOT NULL,"
    " digest TEXT NOT NULL) WITHOUT ROWID"
)


class LedgerError(Exception):
    """A ledger that cannot be used, with what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Basis:
    """What grades depend on besides the submission: the checks, the extra file, the settings."""

    keys: Mapping[tuple[str, str], str]
    """The key of each (lab, exercise)."""

    @classmethod
    def of(cls, course: Iterable[CourseLab], settings: Settings) -> "Basis":
        """The basis of these labs under these settings; raises OSError without the extra file."""
        extra = Path(settings.extra).read_bytes() if settings.extra else b""
        common = {
            "extra": hashlib.sha256(extra).hexdigest() if settings.extra else "",
            "secret": hashlib.sha256(b"labkit grade" + settings.secret).hexdigest(),
            "sandboxed": settings.sandboxed,
            "memory": settings.memory_bytes,
            "minutes": settings.minutes,
            "labkit": rest_of_labkit(),
            # Rounding in torch is what many checks are about.
            "torch": metadata.version("torch"),
        }
        return cls(
            keys={
                (lab.lab, one.exercise): _digest(
                    {
                        **common,
                        "lab": lab.version,
                        "check": lab.check_versions[one.exercise],
                        "names": one.names,
                        "seconds": one.seconds,
                    }
                )
                for lab in course
                for one in lab.exercises
            }
        )


Scores = dict[tuple[str, str, str], tuple[float, str]]
"""Points and status of each (student, lab, exercise)."""


class GradeLedger:
    """The open file; use it in a ``with`` block, from one thread."""

    def __init__(self, file: Path, basis: Basis):
        self.file = file
        self._basis = basis
        with _sentences(file):
            self._log = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
            # Never WAL: homes are often on NFS. FULL: what is said to be kept is on the disk.
            self._log.execute("PRAGMA journal_mode = DELETE")
            self._log.execute("PRAGMA synchronous = FULL")
            self._prepare()

    def __enter__(self) -> "GradeLedger":
        return self

    def __exit__(self, *_) -> None:
        self._log.close()

    def known(self, work: Work) -> dict[str, list[Outcome]]:
        """The outcomes kept of this submission, by exercise, where they still hold.

        One that another run may change, or that the grader itself failed at, does not.
        """
        return {
            exercise: outcomes
            for exercise, outcomes in self.found(work).items()
            if not any(one.rerun or one.cause == "grader" for one in outcomes)
        }

    def found(self, work: Work) -> dict[str, list[Outcome]]:
        """The outcomes kept of this submission, by exercise, also those to be tried again."""
        kept: dict[str, list[Outcome]] = {}
        with _sentences(self.file):
            rows = self._log.execute(
                "SELECT exercise, key, outcomes FROM graded WHERE digest = ? AND lab = ?",
                (work.identity, work.lab),
            ).fetchall()
        for exercise, key, text in rows:
            if key == self._basis.keys.get((work.lab, exercise)):
                with _sentences(self.file):
                    kept[exercise] = [_outcome(one) for one in json.loads(text)]
        return kept

    def keep(self, work: Work, outcomes: Mapping[str, list[Outcome]]) -> None:
        """Write what was found; it is on the disk when this returns, all of it or nothing.

        What ran out of wall time, or may have been killed from outside, is tried again by the next
        run. If it then ends like that a second time, it counts: no run waits for it any more.
        """
        before = self.found(work)
        today = _today().isoformat()
        rows = [
            (
                work.identity,
                work.lab,
                exercise,
                self._basis.keys[work.lab, exercise],
                json.dumps([dataclasses.asdict(one) for one in _twice(before, exercise, found)]),
            )
            for exercise, found in outcomes.items()
        ]
        with self._transaction():
            self._log.executemany("INSERT OR REPLACE INTO graded VALUES (?, ?, ?, ?, ?)", rows)
            days = [(*row[:4], today) for row in rows]
            self._log.executemany("INSERT OR REPLACE INTO days VALUES (?, ?, ?, ?, ?)", days)

    def graded_on(self, work: Work) -> date | None:
        """The day on which the last of what is kept of this submission was graded.

        None where nothing is, and where an older labkit graded all of it.
        """
        with _sentences(self.file):
            rows = self._log.execute(
                "SELECT exercise, key, day FROM days WHERE digest = ? AND lab = ?",
                (work.identity, work.lab),
            ).fetchall()
        days = [
            day for exercise, key, day in rows if key == self._basis.keys.get((work.lab, exercise))
        ]
        return date.fromisoformat(max(days)) if days else None

    def reported(self) -> Scores:
        """The scores that the run before this one wrote."""
        with _sentences(self.file):
            rows = self._log.execute("SELECT * FROM reported").fetchall()
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in rows}

    def report(self, scores: Scores) -> None:
        """Remember the scores of this run, for the next one to compare with."""
        with self._transaction():
            self._log.execute("DELETE FROM reported")
            self._log.executemany(
                "INSERT INTO reported VALUES (?, ?, ?, ?, ?)",
                [(*place, *score) for place, score in scores.items()],
            )

    def overrides(self) -> list[Override]:
        """The points and comments that an earlier run was given, sorted."""
        with _sentences(self.file):
            rows = self._log.execute("SELECT * FROM overrides ORDER BY 1, 2, 3").fetchall()
        names = [field.name for field in dataclasses.fields(Override)]
        return [Override(**dict(zip(names, row, strict=True))) for row in rows]

    def keep_overrides(self, overrides: Iterable[Override]) -> None:
        """Put these in the place of those that are kept."""
        with self._transaction():
            self._log.execute("DELETE FROM overrides")
            self._log.executemany(
                "INSERT INTO overrides VALUES (?, ?, ?, ?, ?, ?, ?)",
                [dataclasses.astuple(override) for override in overrides],
            )

    def pages(self) -> set[tuple[str, str]]:
        """The feedback pages that earlier runs wrote: names and SHA-256 of what they held."""
        with _sentences(self.file):
            return set(self._log.execute("SELECT file, digest FROM pages").fetchall())

    def add_pages(self, pages: Iterable[tuple[str, str]]) -> None:
        """Remember these too."""
        with self._transaction():
            self._log.executemany("INSERT OR IGNORE INTO pages VALUES (?, ?)", sorted(pages))

    def keep_pages(self, pages: Iterable[tuple[str, str]]) -> None:
        """Put these in the place of those that are kept."""
        with self._transaction():
            self._log.execute("DELETE FROM pages")
            self._log.executemany("INSERT INTO pages VALUES (?, ?)", sorted(pages))

    def made(self) -> dict[str, tuple[str, str]]:
        """Of pages that earlier runs wrote: digests of what each was made from and of the page."""
        with _sentences(self.file):
            rows = self._log.execute("SELECT file, facts, digest FROM made").fetchall()
        return {file: (facts, digest) for file, facts, digest in rows}

    def keep_made(self, made: Mapping[str, tuple[str, str]]) -> None:
        """Put these in the place of those that are kept."""
        with self._transaction():
            self._log.execute("DELETE FROM made")
            rows = [(file, *digests) for file, digests in sorted(made.items())]
            self._log.executemany("INSERT INTO made VALUES (?, ?, ?)", rows)

    def _prepare(self) -> None:
        with self._transaction():
            version = self._log.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise LedgerError(
                    f"{self.file} was written by a newer labkit; update this one, or grade to"
                    " another file."
                )
            if version < _VERSION:
                for statement in _TABLES if version == 0 else _FROM_VERSION_1:
                    self._log.execute(statement)
                self._log.execute(f"PRAGMA user_version = {_VERSION}")
            self._log.execute(_PAGES)
            self._log.execute(_DAYS)
            self._log.execute(_MADE)

    @contextmanager
    def _transaction(self):
        with _sentences(self.file):
            self._log.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._log.in_transaction:  # on a full disk SQLite has rolled back itself
                    self._log.execute("ROLLBACK")
                raise
            self._log.execute("COMMIT")


def _twice(
    before: Mapping[str, list[Outcome]], exercise: str, found: list[Outcome]
) -> list[Outcome]:
    """The outcomes of an exercise; those that an earlier run had too are not for a third."""
    again = {
        one.hidden
        for one in before.get(exercise, ())
        if one.rerun or one.message.endswith(TWICE)  # its hidden check may be tried again
    }
    return [settled(one) if one.rerun and one.hidden in again else one for one in found]


def _outcome(fields: dict) -> Outcome:
    return Outcome(**{name: _tupled(value) for name, value in fields.items()})


def _tupled(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _today() -> date:
    return datetime.now().astimezone().date()


def _digest(facts: dict) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@contextmanager
def _sentences(file: Path):
    try:
        yield
    except (sqlite3.Error, KeyError, TypeError, json.JSONDecodeError) as error:
        raise LedgerError(
            f"{file} cannot be used ({error}). Close what else uses it, and see that its disk has"
            " room; if it is damaged, move it away: everything is then graded again."
        ) from error
