"""From outcomes to points, a sheet for each student and lab.

**The rule: an exercise earns all of its points when its check and every hidden check of it pass,
and none otherwise. What could not be graded has no points, neither 0 nor more, until it is graded
or an instructor sets them.**
"""

import hmac
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from labkit.grading.batch import Submission
from labkit.grading.course import CourseLab
from labkit.grading.ledger import Scores
from labkit.grading.records import Exercise, Outcome
from labkit.grading.roster import Override

LONGEST_MESSAGE = 1_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One exercise of one student. ``points`` is None where it was not graded.

    ``status`` is an outcome's, or "missing". ``checked`` are the points before ``override``, the
    instructor's reason for other ones.
    """

    exercise: str
    status: str
    points: float | None
    possible: float
    message: str
    checked: float | None = None
    misconceptions: tuple[str, ...] = ()
    cause: str = ""
    rerun: bool = False
    hidden: bool = False
    override: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One lab of one student: the submission that counts, and a row for each exercise."""

    submission: Submission
    rows: tuple[Row, ...]

    @property
    def points(self) -> float | None:
        """The sum, or None while an exercise is not graded."""
        points = [row.points for row in self.rows]
        return None if None in points or not points else sum(points)

    @property
    def possible(self) -> float:
        return sum(row.possible for row in self.rows)


def sheet(
    submission: Submission, lab: CourseLab | None, outcomes: Mapping[str, list[Outcome]]
) -> Sheet:
    """The sheet of a submission; ``outcomes`` are its own, by exercise, as the ledger has them."""
    if lab is None:
        return Sheet(submission=submission, rows=(_ungraded(submission, "", 0.0),))
    rows = []
    for exercise in lab.exercises:
        found = outcomes.get(exercise.exercise)
        if submission.work is None:
            rows.append(_ungraded(submission, exercise.exercise, exercise.points))
        elif not found:
            rows.append(
                Row(
                    exercise=exercise.exercise,
                    status="not graded",
                    points=None,
                    possible=exercise.points,
                    message="This exercise was not asked for in this run.",
                    cause="not asked for",
                )
            )
        else:
            rows.append(_row(exercise, found))
    return Sheet(submission=submission, rows=tuple(rows))


def _row(exercise: Exercise, outcomes: list[Outcome]) -> Row:
    """The first outcome that has not passed decides; the exercise's own check comes first."""
    decides = next((one for one in outcomes if one.status != "passed"), outcomes[0])
    points = None if decides.status == "not graded" else 0.0
    if decides.status == "passed":
        points = float(exercise.points)
    return Row(
        exercise=exercise.exercise,
        status=decides.status,
        points=points,
        checked=points,
        possible=float(exercise.points),
        message=plain(decides.message),
        misconceptions=decides.misconceptions,
        cause=decides.cause,
        rerun=any(one.rerun for one in outcomes),
        hidden=decides.hidden,
    )


def _ungraded(submission: Submission, exercise: str, possible: float) -> Row:
    missing = submission.cause == "missing"
    return Row(
        exercise=exercise,
        status="missing" if missing else "not graded",
        points=0.0 if missing else None,
        checked=0.0 if missing else None,
        possible=float(possible),
        message=plain(submission.trouble),
        cause=submission.cause,
    )


def with_overrides(
    sheets: Iterable[Sheet], overrides: Iterable[Override]
) -> tuple[list[Sheet], list[Override]]:
    """The sheets with the points set by hand, and the overrides that met no exercise."""
    by_place = {(one.student, one.lab, one.exercise): one for one in overrides}
    changed = []
    for one in sheets:
        of = one.submission
        rows = []
        for row in one.rows:
            override = by_place.pop((of.student, of.lab, row.exercise), None)
            if override:
                row = replace(row, points=override.points, override=plain(override.reason))
            rows.append(row)
        changed.append(replace(one, rows=tuple(rows)))
    return changed, list(by_place.values())


def scores_of(sheets: Iterable[Sheet]) -> Scores:
    """Points and status by student, lab and exercise, as the ledger compares them."""
    return {
        (one.submission.student, one.submission.lab, row.exercise): (row.points, row.status)
        for one in sheets
        for row in one.rows
    }


def changes(before: Scores, now: Scores) -> list[str]:
    """A line for each score that is not what it was; nothing for students who are new."""
    return [
        f"{' '.join(part for part in place if part)}: {_points(before[place][0])} ->"
        f" {_points(now[place][0])} ({before[place][1]} -> {now[place][1]})"
        for place in sorted(before.keys() & now.keys())
        if before[place] != now[place]
    ]


def pseudonym(student: str, secret: bytes) -> str:
    """A name that stands for the student in the class summary, the same in every run."""
    return "s-" + hmac.digest(secret, f"pseudonym {student}".encode(), "sha256").hex()[:8]


def plain(text: str) -> str:
    """A message as one line of text that can be written anywhere."""
    text = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    text = "".join(c if unicodedata.category(c) not in ("Cc", "Cf") else "?" for c in text)
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 4] + " ..."


def _points(points: float | None) -> str:
    return "none" if points is None else f"{points:g}"
