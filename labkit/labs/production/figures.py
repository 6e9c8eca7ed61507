"""The figures of lab 15: pairs of runs, looks at a test, flipped bits."""

import math
from collections.abc import Mapping, Sequence
from statistics import median, stdev

import numpy as np

from labkit.labs.production.experiments import pairs_needed
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes

_LOOKS, _PATHS, _SHOWN = 2000, 5_000, 40
_Z = 1.6449  # 95 % of a normal distribution lie below


def pairing_picture(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Picture:
    """Differences in test loss, BF16 minus FP32, by what the two runs of a pair share.

    Args:
        pairs: what is shared -> the losses of FP32 and of BF16, one a pair, as
            ``recorded.pairing()`` has them.
    """
    figure, axes = new_axes(height=3.0)
    spoken = []
    for place, (shared, losses) in enumerate(pairs.items()):
        found = [bf16 - fp32 for fp32, bf16 in zip(*losses, strict=True)]
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(found))
        axes.plot(found, -place + jitter, ".", color=BLUE, alpha=0.5, ms=5)
        words = f"s = {stdev(found):.3f}: {pairs_needed(stdev(found), margin=0.01)} pairs"
        axes.text(1.01, -place, words, transform=axes.get_yaxis_transform(), va="center")
        spoken.append(f"{shared}: {words}")
    axes.axvline(0, color=GREY, lw=1)
    axes.set_yticks([-place for place in range(len(pairs))], list(pairs))
    axes.set(ylabel="a pair shares", xlabel="test loss, BF16 minus FP32, nats")
    return Picture(
        figure,
        f"Recorded: each point is one of {len(found)} pairs, s the standard deviation of a row. "
        "Beside it, how many pairs show with 90 % power that BF16 is not worse by 0.01.",
        f"Differences in test loss between BF16 and FP32. {'; '.join(spoken)}.",
    )


def gate_line(alpha: float, disagreements: int) -> list[float]:
    """The z at which the e-value reaches 1 / alpha, for 1 to so many disagreements; inf before."""
    line, worse = [], 1
    for n in range(1, disagreements + 1):
        while worse <= n and _log_e(worse, n) < -math.log(alpha):
            worse += 1
        line.append((worse - n / 2) / math.sqrt(n / 4) if worse <= n else math.inf)
        worse = max(worse - 1, n // 2 + 1)
    return line


def peeking_picture(seed: int = 0) -> Picture:
    """z of equal candidates over 2,000 disagreements, below three boundaries.

    The raised line is the one that 5 % of the simulated candidates cross within 2,000 looks.
    """
    draw = np.random.default_rng(seed)
    n = np.arange(1, _LOOKS + 1)
    worse = draw.integers(0, 2, (_PATHS, _LOOKS), dtype=np.int8).cumsum(axis=1, dtype=np.int16)
    z = (worse - n / 2).astype(np.float32) / np.sqrt(n / 4).astype(np.float32)
    watched = z[:, 19:]  # no look before the 20th disagreement: z is no normal number there
    raised = float(np.quantile(watched.max(axis=1), 0.95))
    lines = {
        "z = 1.645, right for one look": np.full(_LOOKS, _Z),
        f"z = {raised:.2f}, right for 2,000 looks": np.full(_LOOKS, raised),
        "E = 20, right for any number": np.array(gate_line(0.05, _LOOKS)),
    }
    figure, axes = new_axes(height=3.6)
    axes.plot(n[19:], watched[:_SHOWN].T, color=GREY, lw=0.5, alpha=0.6)
    spoken = []
    for (name, line), color in zip(lines.items(), (ORANGE, "#cc79a7", BLUE), strict=True):
        crossed = float((watched >= line[19:]).any(axis=1).mean())
        axes.plot(n[19:], line[19:], color=color, lw=2, label=f"{name}: {crossed:.0%} cross it")
        spoken.append(f"{name}: {crossed:.1%} cross it")
    axes.set_xscale("log")
    ticks = [20, 50, 100, 200, 500, 1000, 2000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set(xlabel="disagreements", ylabel="z", xlim=(20, _LOOKS), ylim=(-3.2, 6.6))
    axes.legend(frameon=False, loc="upper right")
    return Picture(
        figure,
        f"Simulated: {_SHOWN} of {_PATHS:,} equal candidates, a look after each disagreement from "
        "the 20th on. Above a line, the rule rolls the candidate back.",
        f"Paths of z and three boundaries. {'; '.join(spoken)}.",
    )


def flips_picture(changes: Mapping[int, Sequence[float]]) -> Picture:
    """How far single flipped bits move the loss, by the place of the bit in an FP32 number.

    Args:
        changes: bit, 0 the lowest, -> changes of the loss in nats; inf where it became NaN.
    """
    figure, axes = new_axes(height=3.2)
    floor, roof = 1e-7, 1e2
    fields = {
        "mantissa": (range(23), GREY),
        "exponent": (range(23, 31), BLUE),
        "sign": (range(31, 32), ORANGE),
    }
    spoken = []
    for name, (bits, color) in fields.items():
        points = [(b, min(max(c, floor), roof)) for b in bits for c in changes.get(b, ())]
        axes.plot(*zip(*points, strict=True), ".", color=color, label=name)
        seen = sum(c > 0.01 for b in bits for c in changes.get(b, ()))
        spoken.append(f"{name}: {seen} of {len(points)} above 0.01")
    axes.axhline(0.01, color=GREY, lw=1, ls="--")
    axes.set_yscale("log")
    axes.set(xlabel="flipped bit", ylabel="change of the loss, nats", ylim=(floor / 2, roof * 2))
    axes.set_yticks([1e-6, 1e-4, 1e-2, 1, roof], ["1e-6", "1e-4", "0.01", "1", "NaN"])
    axes.legend(frameon=False, loc="upper left")
    middle = median(c for bits in changes.values() for c in bits)
    return Picture(
        figure,
        "Computed: each point is one flipped bit of one weight. Points on the lowest line changed "
        "the loss by 1e-7 or less; the dashed line is 0.01.",
        f"Changes of the loss by bit. {'; '.join(spoken)}. Half of all flips change it by less "
        f"than {middle:.0e}.",
    )


def _log_e(worse: int, n: int) -> float:
    better = n - worse
    return n * math.log(2) + math.lgamma(worse + 1) + math.lgamma(better + 1) - math.lgamma(n + 2)
