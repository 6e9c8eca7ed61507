"""ScaleTimeline: the loss scale of a run, step by step, and which steps were skipped.

A run is its StepRecords; nothing is measured again here. Python turns them into points and final
text once; the page moves a cursor over them and reports the step.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import traitlets

from labkit.labs.engine.described import DescribedWidget


class ScaleRecord(Protocol):
    """What is read of a ``labkit.training.StepRecord``."""

    step: int
    loss: float
    grad_norm: float
    loss_scale: float
    skipped: bool


class ScaleTimeline(DescribedWidget):
    """The loss scale over the steps of one run or of several, with a cursor that steps through.

    Args:
        runs: StepRecords in order, or a dict of name -> StepRecords.

    ``run`` and ``place`` can be read, set and observed: the name of the run that is shown ("" for
    a single one) and the place of the cursor in it, 0 for the first record.

    Raises:
        ValueError: a run without records. TraitError: an unknown ``run``.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    run = traitlets.Unicode().tag(sync=True)
    place = traitlets.Int(0, min=0).tag(sync=True)
    runs = traitlets.Dict().tag(sync=True)

    def __init__(self, runs: Sequence[ScaleRecord] | Mapping[str, Sequence[ScaleRecord]]) -> None:
        named = dict(runs) if isinstance(runs, Mapping) else {"": runs}
        for name, records in named.items():
            if not records:
                raise ValueError(f"run {name!r} has no records: pass what train() returned")
        if not named:
            raise ValueError("there is no run: pass StepRecords, or a dict of name -> StepRecords")
        self._names = list(named)
        super().__init__(
            runs={name: _picture(records) for name, records in named.items()},
            run=self._names[0],
        )

    @traitlets.validate("run")
    def _known(self, proposal: dict) -> str:
        if proposal["value"] not in self._names:
            raise traitlets.TraitError(f"run is one of {self._names}, not {proposal['value']!r}")
        return proposal["value"]

    @traitlets.observe("run")
    def _begin_again(self, change: dict) -> None:
        self.place = 0

    @traitlets.validate("place")
    def _within(self, proposal: dict) -> int:
        shown = self.runs.get(self.run)
        return min(proposal["value"], len(shown["rows"]) - 1) if shown else proposal["value"]

    def describe(self) -> str:
        """Say in words all that the picture shows; also what print and a plain notebook show."""
        if len(self._names) == 1:
            return self.runs[self.run]["sentence"]
        return "\n".join(f"{name}: {self.runs[name]['sentence']}" for name in self._names)


def _picture(records: Sequence[ScaleRecord]) -> dict:
    """All that the page draws of a run: points in percent of the drawing, rows of text."""
    powers = [_log2(record.loss_scale) for record in records]
    low, high = math.floor(min(powers)) - 1, math.ceil(max(powers)) + 1
    finite = [r.loss for r in records if math.isfinite(r.loss)]
    top = max(finite, default=1.0) or 1.0
    across = 100 / max(len(records) - 1, 1)
    skipped = [record.step for record in records if record.skipped]
    every = max(1, math.ceil((high - low) / 6))
    return {
        "points": [
            [i * across, 100 * (high - power) / (high - low)] for i, power in enumerate(powers)
        ],
        "losses": [
            [i * across, 100 * (1 - r.loss / (1.05 * top))] if math.isfinite(r.loss) else None
            for i, r in enumerate(records)
        ],
        "skipped": [i for i, record in enumerate(records) if record.skipped],
        "ticks": [
            [100 * (high - power) / (high - low), f"2**{power}"]
            for power in range(low + 1, high + 1, every)
        ],
        "steps": [str(records[0].step), str(records[-1].step)],
        "top_loss": f"{top:.3g}",
        "rows": [_row(record) for record in records],
        "sentence": (
            f"{len(records)} steps; the loss scale goes from {_scale(records[0])} to "
            f"{_scale(records[-1])}, between 2**{min(powers):.4g} and 2**{max(powers):.4g}. "
            f"{_skips(skipped)} The loss goes from {records[0].loss:.3g} to "
            f"{records[-1].loss:.3g}."
        ),
    }


def _row(record: ScaleRecord) -> str:
    return (
        f"step {record.step}: scale {_scale(record)}, "
        f"{'skipped' if record.skipped else 'taken'}, loss {record.loss:.3g}, "
        f"gradient norm {record.grad_norm:.3g}"
    )


def _skips(steps: list[int]) -> str:
    if not steps:
        return "No step is skipped."
    shown = ", ".join(map(str, steps[:12])) + (", ..." if len(steps) > 12 else "")
    return f"{len(steps)} skipped: {shown}."


def _log2(scale: float) -> float:
    # A scale that fell to 0 is drawn below float32's smallest subnormal, 2**-149.
    return math.log2(scale) if scale > 0 else -150.0


def _scale(record: ScaleRecord) -> str:
    power = _log2(record.loss_scale)
    if record.loss_scale == 0:
        return "0"
    return f"2**{power:.0f}" if power == round(power) else f"{record.loss_scale:.6g}"
