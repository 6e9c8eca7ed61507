"""Lab 08's picture of recorded training: how far each recipe ends from FP32."""

from statistics import fmean

from labkit.base.pictures import BLUE, GREY, ORANGE, Picture, new_axes
from labkit.labs.fp8_and_fp4.recorded import MARGIN, training_runs


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
        labels=[
            "-0.1",
            "-0.05",
            "0",
            "0.05",
            "0.1",
            "0.2",
            "0.5",
        ],
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
