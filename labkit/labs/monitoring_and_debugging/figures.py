"""The figures of lab 11: alarms under a loss curve, and how far two runs lie apart."""

import math
from collections.abc import Mapping, Sequence

from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes


def alarms_picture(losses: Sequence[float], rung: Mapping[str, Sequence[int]]) -> Picture:
    """A loss curve, and under it a row of strokes for each rule: the steps at which it rings.

    Args:
        losses: one a step; one that is not finite leaves a gap, marked at the top.
        rung: name of the rule -> steps.
    """
    figure, axes = new_axes(height=3.8)
    finite = [loss if math.isfinite(loss) else math.nan for loss in losses]
    axes.plot(finite, color=GREY, linewidth=1)
    top, bottom = (f(loss for loss in losses if math.isfinite(loss)) for f in (max, min))
    lost = [step for step, loss in enumerate(losses) if not math.isfinite(loss)]
    for step in lost:
        axes.annotate("NaN", (step, top), ha="center", fontsize=8, color=ORANGE)
    rows = {name: bottom / 10 ** (row + 1) for row, name in enumerate(rung)}
    for (name, steps), color in zip(rung.items(), (BLUE, ORANGE), strict=True):
        axes.plot(steps, [rows[name]] * len(steps), "|", color=color, markersize=10)
        axes.text(2, rows[name], name, color=color, va="center", fontsize=8)
    axes.set(yscale="log", xlabel="step", ylabel="loss in nats")
    axes.set_ylim(min(rows.values()) / 5, top * 5)
    words = "; ".join(f"{name} rings at {len(steps)} steps" for name, steps in rung.items())
    return Picture(
        figure,
        "Recorded losses with two planted faults; computed: a stroke for each step at which a rule "
        "rings.",
        f"The loss falls from {losses[0]:.1f} to {losses[-1]:.2g} in {len(losses)} steps, with a "
        f"spike of {top:,.0f} and a NaN at step {', '.join(map(str, lost))}. {words}.",
    )


def difference_picture(first: Sequence[float], others: Mapping[str, Sequence[float]]) -> Picture:
    """How far the losses of other runs lie from those of the first, relative to them.

    Args:
        first: the losses of one run.
        others: name -> the losses of another run at the same steps.
    """
    figure, axes = new_axes(height=3.4)
    words = []
    for (name, losses), style in zip(others.items(), ("o", "s", "^"), strict=True):
        gaps = [abs(a - b) / abs(a) for a, b in zip(first, losses, strict=True)]
        axes.plot([gap or math.nan for gap in gaps], style, markersize=3, label=name)
        words.append(f"{name}: at most {max(gaps):.0e}")
    axes.set(yscale="log", xlabel="step", ylabel="relative difference")
    axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper center")
    axes.set_ylim(1e-8, 1e-1)
    return Picture(
        figure,
        "Measured on this machine: the loss of each run against the first run's. Steps without a "
        "difference have no mark.",
        f"Relative difference of the losses over the steps. {'; '.join(words)}.",
    )
