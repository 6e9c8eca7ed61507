"""What ``benchmark`` reports, and when two times differ.

A report has units in its names, says beside each ratio what chance alone does, and says "not
measured" where nothing was.
"""

from dataclasses import dataclass
from math import isnan

from labkit.measuring.arms import quartiles, ratio, spread


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
        waiting_share: the part of the time of a step that waited for its batch, from 0 to 1.
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
    def ratio(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of ``time_ratios``."""
        return quartiles(self.time_ratios)

    @property
    def flop_per_second(self) -> float:
        """At the median step; NaN where that took no time."""
        return ratio(1e3 * self.flop_per_step, self.quartiles_ms[1])

    def describe(self) -> str:
        """All of it as lines of text, but for what needs the other modes."""
        low, middle, high = self.quartiles_ms
        tested = "not tested" if self.test_accuracy is None else f"{self.test_accuracy:.4f}"
        energy = self.joules_per_step
        bound = ": input bound" if self.waiting_share > 0.5 else ""
        return "\n".join(
            (
                f"{self.mode}: {middle:.4g} ms a step (quartiles {low:.4g} to {high:.4g})",
                f"  final loss {self.final_loss:.4g}, test accuracy {tested}, "
                f"{self.skipped_steps} of {self.steps} steps skipped",
                f"  memory {self.memory_bytes:,} bytes",
                f"  {self.flop_per_step:,} FLOP a step, {self.flop_per_second:.4g} FLOP/s",
                f"  {100 * self.waiting_share:.1f} % of a step waited for its batch{bound}",
                f"  energy {'not measured' if energy is None else f'{energy:.4g} J a step'}",
            )
        )


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
    """

    device: str
    torch: str
    measured: str
    emulated: bool
    results: tuple[ModeResult, ...]
    control: tuple[float, ...]
    memory: str
    energy: str

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
    def noise(self) -> tuple[float, float, float]:
        """The smallest, the median and the largest ratio of the A/A control."""
        return spread(self.control)

    def verdict(self, mode: str) -> str:
        """Whether the mode is faster or slower than the first, as far as the control allows.

        There is "no measurable difference" when its median ratio lies from the smallest to the
        largest ratio of the control. Of two arms that are equal, chance takes the median out of
        that range in 3 of 100 benchmarks with 9 rounds, in 17 with 5 and in 40 with 3: so many of
        all orders of 2n independent ratios have the middle one of n outside the other n.

        Raises:
            KeyError: the mode did not take part.
        """
        low, _, high = self.noise
        first, middle = self.results[0].mode, self.result(mode).ratio[1]
        if mode == first:
            return "the others are compared with it"
        if isnan(low) or isnan(middle):
            return "not measurable: the clock shows 0 for a step, take more work a step"
        spread = f"the A/A spread of {low:.3f} to {high:.3f}"
        if low <= middle <= high:
            return f"no measurable difference: {middle:.3f} lies inside {spread}"
        faster = "faster" if middle < low else "slower"
        return f"{faster}: a step takes {middle:.3f} of {first}'s time, outside {spread}"

    def describe(self) -> str:
        """All of it as lines of text."""
        first, (low, middle, high) = self.results[0].mode, self.noise
        lines = [
            f"{self.device}, torch {self.torch}, measured {self.measured[:10]}",
            *["16 bits are emulated here: the times say nothing of a GPU"] * self.emulated,
            f"memory: {self.memory}",
            f"energy: {self.energy}",
            f"A/A control, {first} over {first}: {middle:.3f} ({low:.3f} to {high:.3f}, "
            f"{len(self.control)} rounds)",
        ]
        for result in self.results:
            lines.append(result.describe())
            low, middle, high = result.ratio
            if result.mode != first:
                lines.append(
                    f"  time ratio to {first} {middle:.3f} (quartiles {low:.3f} to {high:.3f}; "
                    f"A/A {self.noise[1]:.3f})"
                )
            lines.append(f"  {self.verdict(result.mode)}")
        return "\n".join(lines)
