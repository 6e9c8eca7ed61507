"""The progress panel: how far each lab is, and which ideas are worth another look.

It shows records of ``labkit.base.progress`` and computes nothing new. The page
(``progress_panel.html``) and the text twin (the ``repr``) say the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from labkit.base import progress
from labkit.base.manifest import ManifestError, read_manifest
from labkit.base.misconceptions import Misconception, cured_at, misconceptions
from labkit.base.progress import Event, ExerciseProgress, LabProgress, MisconceptionMet
from labkit.base.templates import render

_SHOWN = 5  # of each list: a panel is read at a glance, and the log keeps the rest


@dataclass(frozen=True, repr=False)
class ProgressPanel:
    """What the panel shows; a notebook displays it as a page, a terminal as text."""

    labs: tuple[LabProgress, ...]
    sure_and_wrong: tuple[Event, ...]
    misconceptions_met: tuple[MisconceptionMet, ...]
    known: Mapping[str, Misconception]
    remark: str | None

    def __repr__(self) -> str:
        parts = [self.remark] if self.remark else []
        parts.append(as_text(self.labs))
        if self.sure_and_wrong:
            lines = [
                f"- {_where(event)}: you said {_said(event, 'guess')}, it is"
                f" {_said(event, 'truth')}.{_look_at(self.cure_of(event))}"
                for event in self.sure_and_wrong[:_SHOWN]
            ]
            parts.append("\n".join(["Sure and wrong", *lines, *_rest(self.sure_and_wrong)]))
        if self.misconceptions_met:
            lines = [
                f"- {self._sentence(met)} Met {_times(met)}.{_look_at(self._cure(met))}"
                for met in self.misconceptions_met[:_SHOWN]
            ]
            parts.append("\n".join(["Wrong ideas met", *lines, *_rest(self.misconceptions_met)]))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        return render(
            "course/progress_panel.html",
            panel=self,
            shown=_SHOWN,
            rest=_rest,
            day=_day,
            number=_number,
            share=_share,
            passed=_passed,
            where=_where,
            said=_said,
            times=_times,
            cured_at=cured_at,
        )

    def _sentence(self, met: MisconceptionMet) -> str:
        known = self.known.get(met.misconception)
        return known.en if known else f"{met.misconception}."

    def _cure(self, met: MisconceptionMet) -> str | None:
        known = self.known.get(met.misconception)
        return known.cure if known else None

    def cure_of(self, event: Event) -> str:
        """The section that cures a wrong guess; the prediction's lab where no idea was named."""
        for idea in event.detail.get("misconceptions", ()):
            if idea in self.known:
                return self.known[idea].cure
        return event.lab


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
        labs = progress.overview(read_manifest().labs, log=log)
    except ManifestError as problem:
        labs, remark = [], str(problem)
    try:
        known = misconceptions()
    except FileNotFoundError:
        known = {}
    return ProgressPanel(
        labs=tuple(labs),
        sure_and_wrong=tuple(progress.sure_and_wrong(log)),
        misconceptions_met=tuple(progress.misconceptions_met(log)),
        known=known,
        remark=remark,
    )


def as_text(rows: Iterable[LabProgress | ExerciseProgress]) -> str:
    """Progress of labs, or of one lab's exercises, as lines of text with aligned columns."""
    lines = [_columns(row) for row in rows]
    if not lines:
        return "No labs are listed."
    lines.insert(0, {name: name for name in lines[0]})
    widths = {name: max(len(line[name]) for line in lines) for name in lines[0]}
    return "\n".join(
        "  ".join(line[name].ljust(width) for name, width in widths.items()).rstrip()
        for line in lines
    )


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


def _times(met: MisconceptionMet) -> str:
    return "once" if met.times == 1 else f"{met.times} times"


def _rest(all_of_them: tuple) -> list[str]:
    more = len(all_of_them) - _SHOWN
    return [f"and {more} more"] if more > 0 else []


def _look_at(cure: str | None) -> str:
    return f" Look at {cured_at(cure)}." if cure else ""


def _share(row: LabProgress) -> str:
    return f"{row.passed / row.exercises if row.exercises else 0:.0%}"
