"""The one engine behind every comparison of times in the course: arms take turns in paired rounds.

In a round each arm runs once, in a shuffled order, so a machine that slows down slows them all.
The arm that the others are compared with takes part twice, and the ratio of its two times, round
by round, is the A/A control: what chance alone does. ``measure`` and ``benchmark`` both count this
way, by one clock, and return a ``Measurement``; ``verdicts`` says what its ratios mean.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch
from matplotlib.ticker import AutoLocator, NullLocator

from labkit.base.home import BLUE, GREY, Picture, new_axes
from labkit.measuring.html_tables import readable_bytes, table
from labkit.measuring.verdicts import CONTROL_MARGIN, TIME_MARGIN, Verdict, verdict

Given = TypeVar("Given")


def take_turns(
    arms: Sequence[Callable[[], Given]], *, seed: int = 0
) -> Iterator[tuple[Given, ...]]:
    """Rounds without end: what each arm gave, in the order of ``arms`` whatever order they ran in.

    Args:
        arms: called once a round each, in an order that is shuffled anew every round.
        seed: the same seed gives the same orders.
    """
    shuffle, order = random.Random(seed).shuffle, list(range(len(arms)))
    while True:
        shuffle(order)
        given = {number: arms[number]() for number in order}
        yield tuple(given[number] for number in range(len(arms)))


def clock(device: torch.device) -> float:
    """Seconds, read when all that was launched on the device is done; a CPU has none in flight."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return perf_counter()


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, interpolated; NaN without values or with a NaN."""
    low, middle, high = np.quantile(values or [nan], (0.25, 0.5, 0.75)).tolist()
    return low, middle, high


def _ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round; NaN where the clock showed 0, which leaves no interval."""
    return [one / other if one and other else nan for one, other in zip(times, others, strict=True)]


@dataclass(frozen=True)
class Timing:
    """The times of one arm, one a round, or why there are none.

    Args:
        what: "matmul", "copy", "cast" or "training step".
        dtype: what is multiplied, what float32 is cast to, or the precision of the training.
        size: rows and columns of square matrices, or bytes copied or read; 0 for a step.
        seconds: of one operation, a value a round; of steps the median of each round.
        work: of one operation, in FLOP (operations for int8) or bytes moved.
        why_not: why nothing was timed; empty otherwise.
        again: seconds of its second run in each round, for the arm that the others of its kind and
            size are compared with; empty otherwise.
        facts: what ``benchmark`` says of a training besides, by the names in its docstring.
    """

    what: str
    dtype: str
    size: int = 0
    seconds: tuple[float, ...] = ()
    work: float = 0.0
    why_not: str = ""
    again: tuple[float, ...] = ()
    facts: dict[str, float] = field(default_factory=dict, hash=False)

    @property
    def rate(self) -> float:
        """Work a second at the median time, in FLOP/s or bytes/s; NaN where that is 0 or none."""
        _, middle, _ = quartiles(self.seconds)
        return self.work / middle if middle else nan

    @property
    def name(self) -> str:
        """Such as "bf16", "bf16, 512 x 512" or "fp32, 128 MiB"."""
        return ", ".join(filter(None, (self.dtype, self._readable_size)))

    @property
    def _readable_size(self) -> str:
        if self.what in ("copy", "cast"):
            return readable_bytes(self.size)
        return f"{self.size} x {self.size}" if self.size else ""


_FORMS: dict[str, Callable[[float], str]] = {
    "memory": readable_bytes,
    "waits for data": lambda share: f"{100 * share:.0f} %",
    "loss": "{:.4g}".format,
    "skipped steps": "{:.0f}".format,
    "test accuracy": "{:.4f}".format,
    "J a step": "{:.4g}".format,
}
"""The facts of a training that a table shows, and how."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What ``measure`` and ``benchmark`` return.

    Args:
        device, torch, measured: on what, with which version, when (UTC, ISO 8601).
        timings: every arm, those that could not run included.
        margin: 0.02 if times from 1/1.02 to 1.02 of one another would not matter.
        emulated: 16 bits were emulated, so the times are those of the emulation.
        notes: sentences about the facts, such as what counted the energy.
    """

    device: str
    timings: tuple[Timing, ...]
    torch: str
    measured: str
    margin: float = TIME_MARGIN
    emulated: bool = False
    notes: tuple[str, ...] = ()

    def timing(self, dtype: str, size: int = 0) -> Timing:
        """That of a precision's training step, or of a dtype's operation of that size.

        Raises:
            KeyError: it did not take part.
        """
        for timing in self.timings:
            if (timing.dtype, timing.size) == (dtype, size):
                return timing
        names = "; ".join(timing.name for timing in self.timings)
        raise KeyError(f"{dtype!r} with size {size} did not take part; these did: {names}")

    def verdict(self, dtype: str, size: int = 0) -> Verdict:
        """Whether an arm takes less or more time than the one of its kind that ran twice.

        Of that one itself it is the A/A control, against ``CONTROL_MARGIN``, 5 %.

        Raises:
            KeyError: it did not take part.
            ValueError: it was not timed, or nothing of its kind and size ran twice.
        """
        one = self.timing(dtype, size)
        twice = self._twice(one)
        if twice is None:
            raise ValueError(f"{one.name} has nothing to be compared with: see the table")
        control = _ratios(twice.again, twice.seconds)
        if one is twice:
            return verdict(control, CONTROL_MARGIN, times=True)
        pairs = _ratios(one.seconds, twice.seconds)
        return verdict(pairs, self.margin, control=control, times=True)

    def _twice(self, one: Timing) -> Timing | None:
        """What a timing is compared with; None if there is none, or if it has no times."""
        if one.why_not:
            return None
        kind = one.what, one.size
        return next((t for t in self.timings if t.again and (t.what, t.size) == kind), None)

    def _twice_named(self) -> str:
        return " or ".join(sorted({timing.dtype for timing in self.timings if timing.again}))

    @property
    def trouble(self) -> str:
        """Why these times are not to be trusted: bad A/A controls. Empty if they are.

        A control is bad unless its interval lies within ``CONTROL_MARGIN`` of 1.
        """
        bad = [
            f"{of}: {control.interval}"
            for of, control in self._controls().items()
            if control.answer != "equivalent"
        ]
        if not bad:
            return ""
        return (
            f"Bad A/A control, time ratio of identical runs: {'; '.join(bad)}. The interval should "
            f"lie within {100 * CONTROL_MARGIN:g} % of 1."
        )

    def _controls(self) -> dict[str, Verdict]:
        return {t.name: self.verdict(t.dtype, t.size) for t in self.timings if t.again}

    def describe(self) -> str:
        """The device, the controls and each arm, as lines of text."""
        arms = [
            ", ".join(f"{name} {value}" for name, value in self._row(timing).items() if value)
            for timing in self.timings
        ]
        return "\n".join([*self._above(), *arms, *self.notes])

    def _above(self) -> list[str]:
        lines = [f"{self.device}, torch {self.torch}, measured {self.measured[:10]}"]
        if self.emulated:
            lines.append("16 bits are emulated here: the times say nothing of a GPU")
        controls = [f"A/A control of {of}: {c.describe()}" for of, c in self._controls().items()]
        lines += [self.trouble] if self.trouble else controls
        waiting = [t.name for t in self.timings if t.facts.get("waits for data", 0) > 0.5]
        return lines + [f"{name}: more than half of a step waits for data" for name in waiting]

    def _row(self, timing: Timing) -> dict[str, str]:
        low, middle, high = (1e3 * seconds for seconds in quartiles(timing.seconds))
        unit = "GB/s" if timing.what in ("copy", "cast") else "GFLOP/s"
        if timing.what == "training step":
            row = {"mode": timing.dtype}
        else:
            rate = f"{timing.rate / 1e9:.3g} {unit}" if timing.seconds else ""
            size = timing._readable_size
            row = {"operation": timing.what, "dtype": timing.dtype, "size": size, "rate": rate}
        row["ms (quartiles)"] = timing.why_not or f"{middle:.3g} ({low:.3g} to {high:.3g})"
        row |= {"time ratio": "", "verdict": ""}
        if self._twice(timing):
            found = self.verdict(timing.dtype, timing.size)
            row["time ratio"] = found.interval
            row["verdict"] = "A/A control" if timing.again else found.answer
        facts = timing.facts
        row |= {name: form(facts[name]) if name in facts else "" for name, form in _FORMS.items()}
        if "steps" in facts:
            row["skipped steps"] += f" of {facts['steps']:.0f}"
        return row

    def _repr_html_(self) -> str:
        margin = f"margin {100 * self.margin:g} %"
        ratio = f"Time ratio: over {self._twice_named()}, round by round; {margin}."
        below = [ratio] * any(timing.again for timing in self.timings) + [*self.notes]
        rows = [self._row(timing) for timing in self.timings]
        return table(rows, above=self._above(), below=" ".join(below))

    def plot(self) -> Picture:
        """The time ratios of all rounds with their intervals, and the A/A controls."""
        compared = [timing for timing in self.timings if self._twice(timing)]
        low, high = 1 / (1 + self.margin), 1 + self.margin
        figure, axes = new_axes(height=1.1 + 0.6 * len(compared))
        axes.axvspan(low, high, color="#dddddd", lw=0)
        axes.axvline(1, color=GREY, lw=1)
        labels, spoken = [], []
        for y, timing in enumerate(compared):
            found = self.verdict(timing.dtype, timing.size)
            axes.plot(found.pairs, [y + 0.22] * len(found.pairs), ".", color=GREY, ms=5)
            axes.plot([found.low, found.high], [y, y], lw=4, color=BLUE, solid_capstyle="butt")
            axes.plot([found.mean], [y], "o", color=BLUE, ms=8)
            answer = "A/A control" if timing.again else found.answer
            labels.append(f"{timing.name}\n{answer}")
            spoken.append(f"{timing.name}: {found.interval}, {answer}")
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xscale("log")
        axes.xaxis.set(
            major_locator=AutoLocator(), major_formatter="{x:g}", minor_locator=NullLocator()
        )
        axes.set_xlabel(f"time over that of {self._twice_named()}")
        where = f"on {self.device}" + ", 16 bits emulated" * self.emulated
        words = f"Measured {where}.", self.trouble, "Dots: pairs. Bars: 95 % intervals."
        band = f"Grey band: the margin, {low:.3g} to {high:.3g}."
        caption = " ".join(filter(None, (*words, band)))
        return Picture(figure, caption, f"{'. '.join(spoken)}.")
