"""The figures of lab 08: losses, a wrong scale, narrow accumulators, and recorded training."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from labkit.formats import E4M3, E5M2, FloatFormat, quantize
from labkit.formats.accumulators import add_up
from labkit.labs.fp8_and_fp4.layer_tensors import sqnr
from labkit.labs.fp8_and_fp4.recorded import MARGIN, training_runs
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes

_COLORS = (BLUE, ORANGE, GREY)
_STYLES = ("-", "--", ":")


def losses_picture(runs: Mapping[str, Sequence[float]]) -> Picture:
    """Losses step by step, a line a run.

    Args:
        runs: the losses in nats of each run, by its name; at most three.
    """
    figure, axes = new_axes(height=3)
    for (name, losses), color, style in zip(runs.items(), _COLORS, _STYLES, strict=False):
        axes.plot(losses, color=color, linestyle=style, linewidth=2, label=name)
    axes.set(xlabel="step", ylabel="training loss, nats")
    axes.legend(frameon=False)
    words = "; ".join(
        f"{name}: from {losses[0]:.2f} to {losses[-1]:.2f} nats" for name, losses in runs.items()
    )
    return Picture(figure, "Emulated here: the loss of each step.", words)


def wrong_scale_picture(x: Tensor) -> Picture:
    """SQNR of x in E4M3, E5M2 and INT8 against the factor by which the scale is wrong.

    A factor of 1 takes the largest magnitude to the format's largest value.
    """
    figure, axes = new_axes(height=3.4)
    powers = range(-16, 4)
    spoken = []
    for (name, cast), color, style in zip(_CASTS.items(), _COLORS, _STYLES, strict=True):
        line = [sqnr(x, cast(x, 2.0**power)) for power in powers]
        axes.plot(powers, line, style, color=color, marker=".", label=name)
        shown = ", ".join(f"{line[powers.index(p)]:.0f} dB at 2^{p}" for p in (-12, -4, 0, 2))
        spoken.append(f"{name}: {shown}")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(-16, 4, 4), [f"2$^{{{p}}}$" for p in range(-16, 4, 4)])
    axes.set(xlabel="scale / right scale", ylabel="SQNR, dB", ylim=(-2, 34))
    axes.legend(frameon=False)
    return Picture(
        figure,
        "Computed: one gradient, cast with scales that are too small (left) and too large (right).",
        f"{'; '.join(spoken)}. Right of the line values clip.",
    )


def _float_cast(fmt: FloatFormat):
    def cast(x: Tensor, factor: float) -> Tensor:
        scale = factor * fmt.max / x.abs().max()
        return quantize(x * scale, fmt, saturate=True) / scale

    return cast


def _int8_cast(x: Tensor, factor: float) -> Tensor:
    scale = factor * 127 / x.abs().max()
    return (x * scale).round().clamp(-127, 127) / scale


_CASTS = {"E4M3": _float_cast(E4M3), "E5M2": _float_cast(E5M2), "INT8": _int8_cast}

FOURTEEN_BITS = FloatFormat("14 bits", exponent_bits=8, mantissa_bits=13)
"""A running sum with 14 significant bits, the leading 1 among them."""


def accumulator_errors(intervals: Sequence[int], *, together: int) -> dict[int, float]:
    """The mean relative error of sums of 4,096 products, in percent, for each interval.

    Products of E4M3 numbers from 0 to 1, 16 sums. The running sum has 14 bits and is truncated;
    after each interval of products it moves to a float32 sum.

    Args:
        intervals: in products; multiples of ``together``.
        together: products that are added exactly before each truncation.
    """
    uniform = torch.Generator().manual_seed(0)
    a, b = (quantize(torch.rand(16, 4096, generator=uniform), E4M3).double() for _ in range(2))
    terms = (a * b).unflatten(1, (-1, together)).sum(2)
    exact = terms.sum(1)
    sums = {
        n: add_up(terms, FOURTEEN_BITS, rounding="toward_zero", promote_every=n // together)
        for n in intervals
    }
    return {n: 100 * (total / exact - 1).abs().mean().item() for n, total in sums.items()}


def accumulator_picture(each: Mapping[int, float], many: Mapping[int, float]) -> Picture:
    """Two models of a narrow accumulator: error against the interval of promotion.

    Args:
        each: interval -> error in percent, with a truncation after each product.
        many: the same with a truncation after 32 products.
    """
    figure, axes = new_axes(height=3.2)
    named = {"truncates after each product": each, "truncates after 32 products": many}
    for (name, errors), color, style in zip(named.items(), _COLORS, _STYLES, strict=False):
        axes.loglog(list(errors), list(errors.values()), style, color=color, marker="o", label=name)
    axes.set_xticks(list(each), [f"{n:,}" for n in each])
    axes.minorticks_off()
    axes.set(xlabel="products between promotions to float32", ylabel="mean error, %")
    axes.legend(frameon=False)
    words = "; ".join(
        f"{name}: {', '.join(f'{e:.2g} % at {n:,}' for n, e in errors.items())}"
        for name, errors in named.items()
    )
    return Picture(
        figure,
        "Computed with two models of a 14-bit accumulator: sums of 4,096 positive products.",
        words,
    )


def gaps_picture() -> Picture:
    """The gap of each recipe to FP32: a dot a seed, the mean with its interval, the verdict."""
    runs = list(training_runs().values())
    figure, axes = new_axes(height=0.34 * len(runs) + 1)
    axes.axvspan(-MARGIN, MARGIN, color=GREY, alpha=0.2, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=1)
    for row, run in enumerate(runs):
        low, high = -run.verdict.high, -run.verdict.low
        axes.plot(run.gaps, [row] * len(run.gaps), "o", color=BLUE, alpha=0.35, markersize=4)
        axes.plot([low, high], [row, row], color=ORANGE, linewidth=2)
        axes.plot(fmean(run.gaps), row, "|", color=ORANGE, markersize=12, markeredgewidth=3)
        axes.annotate(
            run.verdict.answer,
            (1.01, row),
            xycoords=("axes fraction", "data"),
            verticalalignment="center",
            fontsize=9,
        )
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xticks(
        [-0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5],
        labels=["-0.1", "-0.05", "0", "0.05", "0.1", "0.2", "0.5"],
    )
    axes.set_yticks(range(len(runs)), labels=[run.name for run in runs])
    axes.invert_yaxis()
    axes.set_xlabel("bits a character above FP32 (worse to the right)")
    return Picture(
        figure,
        f"Emulated, recorded with {len(runs[0].gaps)} seeds: dots are seeds, orange is the mean "
        f"with its 95 % interval, the grey band the margin of {MARGIN:g}. The axis is linear to "
        "0.1 and logarithmic beyond. On the right lab 06's verdict.",
        "; ".join(run.describe() for run in runs),
    )
