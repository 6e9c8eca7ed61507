"""From outcomes to points, a sheet for each student and lab.

**The rule: an exercise earns all of its points when its check passes, and none otherwise. An
open-ended exercise earns its points times the score that its check gives. With `--partial` an
answer that failed earns its points times the score that its check gives it, rounded to two
decimals. A hidden check of an instructor's own is a row of its own, `hidden-<exercise>`, with the
points that its file gives it. What could not be graded has no points, neither 0 nor more, until it
is graded or an instructor sets them.**

**The rule of points set by hand: they replace what the checks gave, and may exceed the maximum.
What no check grades has a row for each student of the class, so that all have one maximum. It is
not graded until the instructor says its points. A maximum of 0 makes it a bonus, and who has no
line has 0 points. So has who handed nothing in.**
"""

import hmac
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date

from labkit.grading.course_labs import CourseLab
from labkit.grading.intake.remarks import one_line
from labkit.grading.intake.roster import EVERYONE, Override
from labkit.grading.judge.batch import Submission
from labkit.grading.judge.grade_ledger import Scores
from labkit.grading.records import HIDDEN, Outcome, not_graded


@dataclass(frozen=True, kw_only=True)
class Row:
    """One exercise of one student. ``points`` is None where it was not graded.

    ``status`` is an outcome's, "missing", or "by hand" where an instructor gave the points of a
    ``manual`` row: one that no check grades. ``checked`` are the points before ``override``, the
    instructor's reason for other ones. ``comment`` is the instructor's too. ``score`` is what the
    check says that the answer is worth, from 0 to 1. ``seconds`` is the wall time that grading
    took. ``hidden`` marks an instructor's own check. ``more``, ``wrong``, ``cases`` and
    ``measured`` are an outcome's.
    """

    exercise: str
    status: str
    points: float | None
    possible: float
    message: str
    checked: float | None = None
    misconceptions: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()
    cause: str = ""
    rerun: bool = False
    hidden: bool = False
    override: str = ""
    seconds: float = 0.0
    score: float = 0.0
    comment: str = ""
    manual: bool = False
    more: tuple[str, ...] = ()
    wrong: int = 0
    cases: int = 0
    measured: tuple[tuple[str, float], ...] = ()

    @property
    def idea(self) -> str:
        """The id of the one misconception that the answer shows; "" where it may be another.

        An answer that several ideas explain shows none of them.
        """
        is_wrong = self.status in ("failed", "error")
        return self.misconceptions[0] if is_wrong and len(self.misconceptions) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One lab of one student: the submission that counts, and a row for each exercise.

    ``comment`` is the instructor's on the lab as a whole. ``graded_on`` is the day of the last
    grade, where the ledger knows it.
    """

    submission: Submission
    rows: tuple[Row, ...]
    comment: str = ""
    graded_on: date | None = None

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


def sheet(
    submission: Submission,
    lab: CourseLab | None,
    outcomes: Mapping[str, list[Outcome]],
    hidden: Mapping[str, float],
    *,
    partial: bool = False,
    graded_on: date | None = None,
) -> Sheet:
    """The sheet of a submission; ``outcomes`` are its own, by exercise, as the ledger has them.

    ``hidden`` holds what the instructor's own checks of this lab grant, by exercise. ``partial``
    lets an answer that failed earn a part of the points.
    """
    if lab is None:
        return Sheet(submission=submission, rows=(_ungraded(submission, "", 0.0),))
    rows = []
    for exercise in lab.exercises:
        name, found = exercise.exercise, outcomes.get(exercise.exercise)
        places = [(name, exercise.points, False)]
        if name in hidden:
            places.append((f"{HIDDEN}{name}", hidden[name], True))
        for row_name, possible, own in places:
            if submission.work is None:
                row = _ungraded(submission, row_name, possible)
            elif found is None:
                row = _not_asked_for(row_name, possible)
            else:
                of_it = [one for one in found if one.hidden == own]
                row = _row(row_name, possible, of_it, partial=partial)
            rows.append(replace(row, hidden=own))
    return Sheet(submission=submission, rows=tuple(rows), graded_on=graded_on)


def _row(name: str, possible: float, outcomes: list[Outcome], *, partial: bool) -> Row:
    outcome = outcomes[0] if outcomes else not_graded(name, "The grader gave no verdict.")
    points = None if outcome.status == "not graded" else 0.0
    earning = ("passed", "failed", "error") if partial else ("passed",)
    if outcome.status in earning:
        points = round(possible * outcome.score, 2)
    return Row(
        exercise=name,
        status=outcome.status,
        points=points,
        checked=points,
        possible=float(possible),
        message=one_line(outcome.message),
        misconceptions=outcome.misconceptions,
        shortcuts=outcome.shortcuts,
        cause=outcome.cause,
        rerun=outcome.rerun,
        seconds=outcome.wall_seconds,
        score=outcome.score,
        more=tuple(one_line(said) for said in outcome.more),
        wrong=outcome.wrong,
        cases=outcome.cases,
        measured=outcome.measured,
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
        message=one_line(submission.trouble),
        cause=submission.cause,
    )


def with_overrides(
    sheets: Iterable[Sheet], overrides: Iterable[Override]
) -> tuple[list[Sheet], list[Override]]:
    """The sheets with what an instructor wrote, and the overrides that met nothing."""
    said = _Said(overrides)
    changed = []
    for one in sheets:
        of = one.submission
        names = {row.exercise for row in one.rows}
        manual = [
            _manual(of, exercise, possible)
            for exercise, possible in sorted(said.maxima[of.lab].items())
            if exercise not in names
        ]
        rows = tuple(said.of_row(of, row) for row in (*one.rows, *manual))
        changed.append(replace(one, rows=rows, comment=said.comment(of, "")))
    return changed, [one for place, one in said.lines.items() if place not in said.met]


def _manual(submission: Submission, exercise: str, possible: float) -> Row:
    """The row of what no check grades, before an instructor has said its points."""
    row = _ungraded(submission, exercise, possible)
    if row.status == "missing":
        return replace(row, manual=True)
    row = replace(row, manual=True, message="Your instructor grades this by hand.")
    if not possible:  # a bonus, which nobody has to have
        return replace(row, status="by hand", points=0.0, cause="")
    return replace(row, cause="to be graded by hand")


class _Said:
    """What an instructor wrote, by student, lab and exercise; ``met`` are the places of use."""

    def __init__(self, overrides: Iterable[Override]):
        self.lines = {(one.student, one.lab, one.exercise): one for one in overrides}
        self.met: set[tuple[str, str, str]] = set()
        self.maxima: dict[str, dict[str, float]] = defaultdict(dict)
        for one in self.lines.values():
            if one.possible is not None:
                self.maxima[one.lab][one.exercise] = one.possible

    def of_row(self, of: Submission, row: Row) -> Row:
        """The row with the points and the comment that are said of it."""
        if row.exercise:
            row = replace(row, comment=self.comment(of, row.exercise))
        for one in self._about(of, row.exercise):
            if one.points is not None:
                said = {"points": one.points, "override": one_line(one.reason)}
                if row.manual:
                    said |= {"status": "by hand", "cause": ""}
                return replace(row, **said)
        return row

    def comment(self, of: Submission, exercise: str) -> str:
        """The comment on an exercise of a student, or on the lab where ``exercise`` is ""."""
        return next((one_line(one.comment) for one in self._about(of, exercise) if one.comment), "")

    def _about(self, of: Submission, exercise: str) -> Iterator[Override]:
        """The student's own line, then that for all who handed the lab in."""
        for student in (of.student, EVERYONE) if of.cause != "missing" else (of.student,):
            place = (student, of.lab, exercise)
            if place in self.lines:
                self.met.add(place)
                yield self.lines[place]


HIDDEN_FEEDBACK = RESULT, MESSAGE, NOTHING = "result", "message", "none"
"""What a student is told of a hidden check: passed or failed, its message too, or nothing."""

_NOT_SHOWN = "What this check of your instructor tries is not shown."


def for_student(sheet: Sheet, hidden: str = RESULT) -> Sheet:
    """The sheet as its student may see it; ``hidden`` is one of ``HIDDEN_FEEDBACK``.

    A message of a hidden check may quote what the check tried, and an answer that raises says what
    it likes in it. So under ``RESULT`` nothing is left that the answer's run in a hidden check
    made, but whether it passed, and the points.
    """
    if hidden == MESSAGE:
        return sheet
    status = {row.exercise: row.status for row in sheet.rows}
    rows = []
    for row in sheet.rows:
        if not is_hidden(row) or row.manual:
            rows.append(row)
        elif hidden == RESULT:
            rows.append(_result_alone(row, status.get(row.exercise.removeprefix(HIDDEN), "")))
    return replace(sheet, rows=tuple(rows))


def is_hidden(row: Row) -> bool:
    """Whether a row is that of an instructor's own check."""
    return row.exercise.startswith(HIDDEN)


def _result_alone(row: Row, of_the_lab: str) -> Row:
    """A hidden row without what an answer may have written; ``of_the_lab`` is its own check's."""
    status, message = row.status, _NOT_SHOWN
    if status == "not graded":
        message = "The grader has given no verdict yet."
    elif status == "missing":
        message = row.message
    elif status != "passed":
        # An answer can end its run in several ways, and each would tell what it likes.
        status = of_the_lab if of_the_lab == "not attempted" else "failed"
    return Row(
        exercise=row.exercise,
        status=status,
        points=row.points,
        possible=row.possible,
        message=message,
        hidden=True,
        override=row.override,
        comment=row.comment,
    )


def maxima(sheets: Iterable[Sheet]) -> dict[str, float]:
    """The points possible in each lab of the course, sorted by its name."""
    possible: dict[str, float] = {}
    for one in sheets:
        lab = one.submission.lab
        if lab:
            possible[lab] = max(one.possible, possible.get(lab, 0.0))
    return dict(sorted(possible.items()))


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
