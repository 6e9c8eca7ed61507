"""Pictures of plain records: matplotlib figures that carry their own words.

Each function returns a ``Picture``: the figure, a caption that says how its numbers were come by
("computed", "measured", "emulated" or "recorded"), and a text that says what a reader would see.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from labkit.base.home import BLUE, COLORS, GREY, ORANGE, Picture, new_axes
from labkit.formats import FloatFormat, decode
from labkit.formats.histograms import RangeReport

__all__ = [
    "BLUE",
    "GREY",
    "ORANGE",
    "Picture",
    "gap_staircase",
    "new_axes",
    "number_line",
    "windows",
]

_HATCHES = ("", "//", "..", "xx")


def number_line(formats: Sequence[FloatFormat], *, limit: float) -> Picture:
    """Every value from -limit to limit of some small formats, a line each.

    Args:
        formats: at most 8 bits each.
        limit: the end of the line, in the unit of the values.
    """
    figure, axes = new_axes(height=0.9 + 0.55 * len(formats))
    spoken = []
    for row, fmt in enumerate(formats):
        # A set, for 0.0 and -0.0 are one place on the line.
        values = sorted({v for code in range(2**fmt.bits) if math.isfinite(v := decode(code, fmt))})
        shown = [v for v in values if abs(v) <= limit]
        axes.plot(shown, [-row] * len(shown), "|", ms=18, mew=2, color=COLORS[row % 4])
        spoken.append(f"{fmt.name}: {len(shown)} values from {shown[0]:g} to {shown[-1]:g}")
    axes.set_yticks([-row for row in range(len(formats))], [fmt.name for fmt in formats])
    axes.set_ylim(-len(formats) + 0.4, 0.6)
    axes.set_xlim(-limit * 1.05, limit * 1.05)
    axes.set_xlabel("value")
    return Picture(
        figure,
        "Computed: each stroke is one value of the format.",
        f"Number lines. {'; '.join(spoken)}. The strokes crowd at zero; "
        "beyond the subnormals the distance doubles at each power of two.",
    )


def gap_staircase(
    gaps: Mapping[str, Callable[[float], float]], *, exponents: range, whose: str
) -> Picture:
    """The gap above x against x, both on axes of powers of two.

    Args:
        gaps: label -> function from x to the gap above x.
        exponents: x runs from 2**exponents[0] to 2**exponents[-1], four values to
            each power of two.
        whose: "your" or "labkit's", for the caption.
    """
    figure, axes = new_axes(height=3.4)
    points = [2.0**e * (1 + quarter / 4) for e in exponents for quarter in range(4)]
    for (label, gap), color, style in zip(
        gaps.items(), COLORS, ("-", "--", ":", "-."), strict=False
    ):
        axes.step(
            points, [gap(x) for x in points], where="post", label=label, color=color, ls=style
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("x")
    axes.set_ylabel("gap above x")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    ends = "; ".join(
        f"{label}: {gap(points[0]):g} at {points[0]:g}, {gap(points[-1]):g} at {points[-1]:g}"
        for label, gap in gaps.items()
    )
    return Picture(
        figure,
        f"Computed: FP16 with {whose} ulp, the rest with labkit's. Among normal values "
        "the gap is constant from one power of two to the next, where it doubles.",
        f"Staircases of the gap above x. {ends}. A stair reaches from one power of two "
        "to the next; on the left the FP16 line is flat.",
    )


def windows(
    reports: Mapping[str, RangeReport], formats: Sequence[FloatFormat], *, provenance: str
) -> Picture:
    """Where the values of some tensors lie, over the window that each format can hold.

    Args:
        reports: name of the tensor -> any report of it (the exponents are the tensor's own).
        formats: their windows are drawn as bars below the histograms.
        provenance: how the tensors were come by, for the caption.
    """
    figure, axes = new_axes(height=3.8)
    for (name, report), color, hatch in zip(reports.items(), COLORS, _HATCHES, strict=False):
        total = sum(count for _, count in report.exponents)
        axes.bar(
            [e for e, _ in report.exponents],
            [100 * count / total for _, count in report.exponents],
            width=1.0, align="edge", alpha=0.55, color=color, hatch=hatch, label=name,
        )  # fmt: skip
    top = axes.get_ylim()[1]
    spoken = []
    for row, fmt in enumerate(formats):
        y = -top * 0.1 * (row + 1)
        low, normal, high = _window(fmt)
        axes.plot([normal, high], [y, y], lw=7, color="#444444", solid_capstyle="butt")
        axes.plot([low, normal], [y, y], lw=7, color="#bbbbbb", solid_capstyle="butt")
        axes.annotate(
            fmt.name,
            (max(low, -42), y),
            (-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},  # over a bar that goes on
        )
        spoken.append(f"{fmt.name} holds 2**{low} to 2**{high}, subnormal below 2**{normal}")
    axes.set_xlim(-48, 20)
    axes.set_ylim(-top * 0.1 * (len(formats) + 0.7), top)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])
    axes.set_xlabel("exponent e: values with 2**e <= |x| < 2**(e+1)")
    axes.set_ylabel("% of non-zero values")
    axes.legend(frameon=False, loc="upper right")
    middles = "; ".join(f"{name} peaks at 2**{_peak(report)}" for name, report in reports.items())
    return Picture(
        figure,
        f"{provenance} Bars below: what each format holds; the pale part is subnormal.",
        f"Histograms of exponents. {middles}. {'; '.join(spoken)}.",
    )


def _window(fmt: FloatFormat) -> tuple[int, int, int]:
    """Exponents: smallest subnormal, smallest normal, the power of two above the largest value."""
    return fmt.min_exponent - fmt.mantissa_bits, fmt.min_exponent, fmt.max_exponent + 1


def _peak(report: RangeReport) -> int:
    return max(report.exponents, key=lambda pair: pair[1])[0]
