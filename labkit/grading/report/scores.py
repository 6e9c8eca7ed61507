"""From outcomes to points, a sheet for each student and lab.

**The rule: an exercise earns all of its points when its check passes, and none otherwise; a hidden
check of an instructor's own is a row of its own, `hidden-<exercise>`, with the points that its file
gives it. What could not be graded has no points, neither 0 nor more, until it is graded or an
instructor sets them.**
"""

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from labkit.grading.course import CourseLab
from labkit.grading.intake.remarks import plain
from labkit.grading.intake.roster import Override
from labkit.grading.judge.batch import Submission, not_graded
from labkit.grading.judge.ledger import Scores
from labkit.grading.records import Outcome


@dataclass(frozen=True, kw_only=True)
class Row:
    """One exercise of one student. ``points`` is None where it was not graded.

    ``status`` is an outcome's, or "missing". ``checked`` are the points before ``override``, the
    instructor's reason for other ones. ``seconds`` is the wall time that grading took.
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
    seconds: float = 0.0

    @property
    def idea(self) -> str:
        """The id of the one misconception that the answer shows; "" where it may be another.

        An answer that several ideas explain shows none of them.
        """
        is_wrong = self.status in ("failed", "error")
        return self.misconceptions[0] if is_wrong and len(self.misconceptions) == 1 else ""


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

    @property
    def seconds(self) -> float:
        """Wall time that grading this submission took, in seconds."""
        return sum(row.seconds for row in self.rows)


HIDDEN = "hidden-"
"""How the row of a hidden check begins; the exercise follows. nbgrader courses say the same."""


def sheet(
    submission: Submission,
    lab: CourseLab | None,
    outcomes: Mapping[str, list[Outcome]],
    hidden: Mapping[str, float],
) -> Sheet:
    """The sheet of a submission; ``outcomes`` are its own, by exercise, as the ledger has them.

    ``hidden`` holds what the instructor's own checks of this lab grant, by exercise.
    """
    if lab is None:
        return Sheet(submission=submission, rows=(_ungraded(submission, "", 0.0),))
    rows = []
    for exercise in lab.exercises:
        name, found = exercise.exercise, outcomes.get(exercise.exercise)
        places = [(name, exercise.points, False)]
        if name in hidden:
            places.append((f"{HIDDEN}{name}", hidden[name], True))
        for row_name, possible, is_hidden in places:
            if submission.work is None:
                rows.append(_ungraded(submission, row_name, possible))
            elif found is None:
                rows.append(_not_asked_for(row_name, possible))
            else:
                of_it = [one for one in found if one.hidden == is_hidden]
                rows.append(_row(row_name, possible, of_it))
    return Sheet(submission=submission, rows=tuple(rows))


def _row(name: str, possible: float, outcomes: list[Outcome]) -> Row:
    outcome = outcomes[0] if outcomes else not_graded(name, "The grader gave no verdict.")
    points = None if outcome.status == "not graded" else 0.0
    if outcome.status == "passed":
        points = float(possible)
    return Row(
        exercise=name,
        status=outcome.status,
        points=points,
        checked=points,
        possible=float(possible),
        message=plain(outcome.message),
        misconceptions=outcome.misconceptions,
        cause=outcome.cause,
        rerun=outcome.rerun,
        hidden=outcome.hidden,
        seconds=outcome.wall_seconds,
    )


def _not_asked_for(name: str, possible: float) -> Row:
    return Row(
        exercise=name,
        status="not graded",
        points=None,
        possible=float(possible),
        message="This exercise was not asked for in this run.",
        cause="not asked for",
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
    return "s" + hmac.digest(secret, f"pseudonym {student}".encode(), "sha256").hex()[:8]


def _points(points: float | None) -> str:
    return "none" if points is None else f"{points:g}"
