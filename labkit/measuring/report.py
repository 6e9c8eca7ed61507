"""What ``benchmark`` reports: each mode's steps, and whether they take less time or more.

A notebook shows the report as a table, ``plot`` draws the intervals, and ``describe`` says the
times in a line each. A bad A/A control is said in all three.
"""

from dataclasses import dataclass

from labkit.base.home import Picture
from labkit.measuring.arms import quartiles, ratio
from labkit.measuring.showing import intervals, readable_bytes, table
from labkit.measuring.verdicts import (
    CONTROL_MARGIN,
    TIME_MARGIN,
    TimeVerdict,
    control_trouble,
    time_verdict,
)


@dataclass(frozen=True, kw_only=True)
class ModeResult:
    """What one mode did.

    Args:
        mode: one of PRECISIONS.
        step_ms: milliseconds of each timed step, from its batch to its update.
        time_ratios: for each round the median step over that of the first mode: below 1 is
            faster, NaN where the clock showed 0.
        steps, skipped_steps: all steps trained, and those without an update for inf or NaN.
        final_loss: the mean loss of the last round.
        test_accuracy: the share of right classes, from 0 to 1; None without test data.
        memory_bytes: what ``Benchmark.memory`` says, for one step.
        flop_per_step: of the matrix products and convolutions, forward and backward, of the first
            batch. What checkpointing computes twice counts twice.
        waiting_share: the part of the time of a step that waits for its batch, from 0 to 1, in the
            median round.
        joules_per_step: None where no counter can be read.
    """

    mode: str
    step_ms: tuple[float, ...]
    time_ratios: tuple[float, ...]
    steps: int
    skipped_steps: int
    final_loss: float
    test_accuracy: float | None
    memory_bytes: int
    flop_per_step: int
    waiting_share: float
    joules_per_step: float | None

    @property
    def quartiles_ms(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the milliseconds of a step."""
        return quartiles(self.step_ms)

    @property
    def flop_per_second(self) -> float:
        """At the median step; NaN where that took no time."""
        return ratio(1e3 * self.flop_per_step, self.quartiles_ms[1])


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What ``benchmark`` returns.

    Args:
        device, torch, measured: on what, with which version, when (UTC, ISO 8601).
        emulated: 16 bits were emulated, so the times are those of the emulation.
        results: in the order of the modes; the first is what the others are compared with.
        control: for each round the first mode's second run over its first, as ``time_ratios``.
        memory: what ``memory_bytes`` counts.
        energy: what ``joules_per_step`` counts, or "not measured".
        margin: 0.02 if times from 1/1.02 to 1.02 of the first mode's would not matter.
    """

    device: str
    torch: str
    measured: str
    emulated: bool
    results: tuple[ModeResult, ...]
    control: tuple[float, ...]
    memory: str
    energy: str
    margin: float = TIME_MARGIN

    def result(self, mode: str) -> ModeResult:
        """What a mode did.

        Raises:
            KeyError: the mode did not take part.
        """
        for result in self.results:
            if result.mode == mode:
                return result
        took_part = ", ".join(result.mode for result in self.results)
        raise KeyError(f"{mode} did not take part; these did: {took_part}")

    @property
    def control_verdict(self) -> TimeVerdict:
        """The first mode's second run over its first, against ``CONTROL_MARGIN``, 5 %."""
        return time_verdict(self.control, margin=CONTROL_MARGIN)

    @property
    def trouble(self) -> str:
        """Why these times are not to be trusted: a bad A/A control. Empty if they are."""
        return control_trouble({self.results[0].mode: self.control_verdict})

    def verdict(self, mode: str) -> TimeVerdict:
        """Whether a step of the mode takes less or more time than one of the first mode.

        Raises:
            KeyError: the mode did not take part.
            ValueError: the mode is the first, which the others are compared with.
        """
        if mode == self.results[0].mode:
            raise ValueError(f"the others are compared with {mode}: see control_verdict")
        ratios = self.result(mode).time_ratios
        return time_verdict(ratios, control=self.control, margin=self.margin)

    def describe(self) -> str:
        """The times as lines of text, one a mode."""
        return "\n".join([*self._above(), *map(self._line, self.results)])

    def _above(self) -> list[str]:
        control = self.trouble or f"A/A control: {self.control_verdict.describe()}"
        lines = [f"{self.device}, torch {self.torch}, measured {self.measured[:10]}", control]
        return lines + ["16 bits are emulated here: the times say nothing of a GPU"] * self.emulated

    def _line(self, result: ModeResult) -> str:
        line = f"{result.mode}: {result.quartiles_ms[1]:.3g} ms a step"
        if result is not self.results[0]:
            line += f"; over {self.results[0].mode}, {self.verdict(result.mode).describe()}"
        return line + "; more than half of it waits for data" * (result.waiting_share > 0.5)

    def _repr_html_(self) -> str:
        below = (
            f"Time ratio: over {self.results[0].mode}, round by round; margin "
            f"{100 * self.margin:g} %. Memory: {self.memory}. Energy: {self.energy}."
        )
        return table([*map(self._row, self.results)], above=self._above(), below=below)

    def _row(self, result: ModeResult) -> dict[str, str]:
        low, middle, high = result.quartiles_ms
        first = result is self.results[0]
        found = self.control_verdict if first else self.verdict(result.mode)
        accuracy, joules = result.test_accuracy, result.joules_per_step
        return {
            "mode": result.mode,
            "ms a step (quartiles)": f"{middle:.3g} ({low:.3g} to {high:.3g})",
            "time ratio": f"A/A {found.interval}" if first else found.interval,
            "verdict": "" if first else found.answer,
            "memory": readable_bytes(result.memory_bytes),
            "GFLOP/s": f"{result.flop_per_second / 1e9:.3g}",
            "waits for data": f"{100 * result.waiting_share:.0f} %",
            "loss": f"{result.final_loss:.4g}",
            "skipped steps": f"{result.skipped_steps} of {result.steps}",
            "test accuracy": "" if accuracy is None else f"{accuracy:.4f}",
            "J a step": "" if joules is None else f"{joules:.4g}",
        }

    def plot(self) -> Picture:
        """The time ratios of all rounds with their intervals, the A/A control first."""
        first, *others = self.results
        found = {first.mode: (self.control, self.control_verdict)}
        found |= {other.mode: (other.time_ratios, self.verdict(other.mode)) for other in others}
        said = ["A/A control", *(verdict.answer for _, verdict in list(found.values())[1:])]
        where = f"on {self.device}" + ", 16 bits emulated" * self.emulated
        return intervals(
            {
                mode: (ratios, v.low, v.ratio, v.high, word)
                for (mode, (ratios, v)), word in zip(found.items(), said, strict=True)
            },
            none=1,
            margin=(1 / (1 + self.margin), 1 + self.margin),
            label=f"time of a step over that of {first.mode}",
            caption=f"Measured {where}. {self.trouble}".strip(),
        )
