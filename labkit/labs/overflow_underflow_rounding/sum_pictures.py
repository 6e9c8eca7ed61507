"""Pictures of running sums: how a 16-bit weight follows, or does not follow, its small updates."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import Tensor

from labkit.formats import FloatFormat, spacing
from labkit.plots import BLUE, ORANGE, Picture

_STYLES = (
    {"color": "black", "ls": "--", "lw": 1.2},
    {"color": ORANGE, "lw": 1.8, "drawstyle": "steps-post"},
    {"color": BLUE, "lw": 1.8},
    {"color": "#009e73", "lw": 0.9},
    {"color": "#cc79a7", "lw": 0.9},
)


def running_sums(panels: Mapping[str, Mapping[str, Tensor]], *, grid: FloatFormat) -> Picture:
    """Running sums against the number of updates, a panel for each series of updates.

    Args:
        panels: title of a panel -> label of a line -> the values of a sum, equally far apart.
            The first line of a panel is the exact one.
        grid: the format of the sums; its values are drawn as horizontal lines.
    """
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    spoken = []
    for axes, (title, lines) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        for (label, values), style in zip(lines.items(), _STYLES, strict=False):
            share = [100 * n / (len(values) - 1) for n in range(len(values))]
            axes.plot(share, values.tolist(), label=label, **style)
        _draw_grid(axes, grid)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("% of the updates")
        axes.legend(frameon=False, fontsize="small", loc="upper left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        ends = "; ".join(f"{label} {float(values[-1]):.3f}" for label, values in lines.items())
        spoken.append(f"{title} end at: {ends}")
    figure.axes[0].set_ylabel("weight")
    return Picture(
        figure,
        f"Computed. Each grey line is a {grid.name.upper()} value.",
        f"Running sums. {'. '.join(spoken)}.",
    )


def _draw_grid(axes, grid: FloatFormat) -> None:
    """A grey line at each value of the format within the axes' limits."""
    low, high = axes.get_ylim()
    gap = spacing(low, grid)
    value = gap * (low // gap + 1)
    while value < high:
        axes.axhline(value, color="#dddddd", lw=0.7, zorder=0)
        value += spacing(value, grid)
    axes.set_ylim(low, high)
