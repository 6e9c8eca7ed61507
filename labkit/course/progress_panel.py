"""What the log says of a learner, lab by lab: ``labkit progress``, and the panel of a notebook.

The panel's page (``progress_panel.html``) and its text twin (the ``repr``) say the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from labkit.base import progress
from labkit.base.home import LabEntry, ManifestError, read_manifest
from labkit.base.progress import Event
from labkit.course.doctor import aligned
from labkit.labs.engine.misconceptions import (
    Misconception,
    cured_at,
    misconceptions,
    misconceptions_met,
    sure_and_wrong,
)
from labkit.labs.engine.templates import render

_SHOWN = 5  # of each list: a panel is read at a glance, and the log keeps the rest


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


def lab_progress(lab: LabEntry, log: Iterable[Event]) -> list[ExerciseProgress]:
    """How far each exercise of one lab is by these events, in the lab's order."""
    log = [event for event in log if event.kind == "check" and event.lab == lab.lab]
    rows = []
    for exercise in lab.exercises:
        tries = [event for event in log if event.item == exercise.exercise]
        statuses = ["not started", *(event.status for event in tries)]
        rows.append(
            ExerciseProgress(
                exercise=exercise.exercise,
                status="passed" if "passed" in statuses else statuses[-1],
                points=exercise.points,
                tries=sum(event.status != "not attempted" for event in tries),
                last_seen=max((event.at for event in tries), default=None),
            )
        )
    return rows


def overview(labs: Iterable[LabEntry], log: Sequence[Event]) -> list[LabProgress]:
    """How far each of the labs is by these events, in their order."""
    rows = []
    for lab in labs:
        exercises = lab_progress(lab, log)
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


@dataclass(frozen=True, repr=False)
class ProgressPanel:
    """What the panel shows; a notebook displays it as a page, a terminal as text."""

    labs: Sequence[LabProgress]
    sure_and_wrong: Sequence[Event]
    met: Sequence[tuple[str, list[Event]]]
    known: Mapping[str, Misconception]
    remark: str | None

    def __repr__(self) -> str:
        parts = [self.remark] if self.remark else []
        parts.append(as_text(self.labs))
        if self.sure_and_wrong:
            lines = [
                f"- {_where(event)}: you said {_said(event, 'guess')}, it is"
                f" {_said(event, 'truth')}. Look at {cured_at(self.cure_of(event))}."
                for event in self.sure_and_wrong[:_SHOWN]
            ]
            parts.append("\n".join(["Sure and wrong", *lines, *_rest(self.sure_and_wrong)]))
        if self.met:
            lines = [f"- {self._said_of(*one)}" for one in self.met[:_SHOWN]]
            parts.append("\n".join(["Wrong ideas met", *lines, *_rest(self.met)]))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        tools = (_rest, _day, _number, _passed, _where, _said, _times, cured_at)
        named = {tool.__name__.strip("_"): tool for tool in tools}
        return render("course/progress_panel.html", panel=self, shown=_SHOWN, **named)

    def _said_of(self, idea: str, events: list[Event]) -> str:
        if idea not in self.known:
            return f"{idea}. Met {_times(events)}."
        known = self.known[idea]
        return f"{known.en} Met {_times(events)}. Look at {cured_at(known.cure)}."

    def cure_of(self, event: Event) -> str:
        """The section that cures a wrong guess; the prediction's lab where no idea was named."""
        ideas = [idea for idea in event.detail.get("misconceptions", ()) if idea in self.known]
        return self.known[ideas[0]].cure if ideas else event.lab


def progress_panel() -> ProgressPanel:
    """The learner's progress over all labs, the predictions sure and wrong, the wrong ideas met.

    A log or a manifest that cannot be read gives a panel that says so.
    """
    remark = "LABKIT_PROGRESS=off: there is no log." if progress.is_off() else None
    try:
        log = progress.events()
    except progress.ProgressError as problem:
        log, remark = [], str(problem)
    try:
        labs = overview(read_manifest().labs, log)
    except ManifestError as problem:
        labs, remark = [], str(problem)
    met = list(misconceptions_met(log).items())
    return ProgressPanel(labs, sure_and_wrong(log), met, misconceptions(), remark)


def as_text(rows: Iterable[LabProgress | ExerciseProgress]) -> str:
    """Progress of labs, or of one lab's exercises, as lines of text with aligned columns."""
    columns = [_columns(row) for row in rows]
    if not columns:
        return "No labs are listed."
    return "\n".join(aligned([tuple(columns[0]), *(tuple(row.values()) for row in columns)]))


def _columns(row: LabProgress | ExerciseProgress) -> dict[str, str]:
    if isinstance(row, LabProgress):
        return {
            "lab": row.lab,
            "passed": _passed(row),
            "points": f"{row.points_earned:g} of {row.points:g}",
            "last seen": _day(row.last_seen),
        }
    return {
        "exercise": row.exercise,
        "status": row.status,
        "points": f"{row.points:g}" if row.points else "optional",
        "tries": str(row.tries),
        "last seen": _day(row.last_seen),
    }


def _passed(row: LabProgress) -> str:
    more = f" + {row.optional_passed} of {row.optional} optional" if row.optional else ""
    return f"{row.passed} of {row.exercises}{more}"


def _day(at: datetime | None) -> str:
    """The day on the learner's own calendar."""
    return "never" if at is None else at.astimezone().date().isoformat()


def _number(lab: str) -> str:
    return lab.split("_")[0]


def _where(event: Event) -> str:
    return f"{event.item} (lab {_number(event.lab)})"


def _said(event: Event, what: str) -> str:
    return str(event.detail.get(what, "not kept"))


def _times(events: list[Event]) -> str:
    return "once" if len(events) == 1 else f"{len(events)} times"


def _rest(all_of_them: Sequence) -> list[str]:
    more = len(all_of_them) - _SHOWN
    return [f"and {more} more"] if more > 0 else []
