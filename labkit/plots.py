"""Pictures of plain records: matplotlib figures that carry their own words.

Each function returns a ``Picture``: the figure, a caption that says how its numbers were come by
("computed", "measured", "emulated" or "recorded"), and a text that says what a reader would see.
"""

import base64
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from labkit.formats import FloatFormat, decode
from labkit.formats.histograms import RangeReport

_COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
)  # Okabe and Ito: told apart by colour-blind eyes
_HATCHES = ("", "//", "..", "xx")


@dataclass(frozen=True)
class Picture:
    """A figure with its caption and its words; a screen reader reads ``alt``."""

    figure: Figure
    caption: str
    alt: str

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144, bbox_inches="tight", facecolor="white")
        source = base64.b64encode(buffer.getvalue()).decode()
        alt = html.escape(self.alt)
        image = f'<img style="max-width: 100%" alt="{alt}" src="data:image/png;base64,{source}">'
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return {
            "text/plain": repr(self),
            "text/html": f'<figure style="margin: 0; max-width: 46em">{image}{caption}</figure>',
        }

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.alt}"


def number_line(formats: Sequence[FloatFormat], *, limit: float) -> Picture:
    """Every value from -limit to limit of some small formats, a line each.

    Args:
        formats: at most 8 bits each.
        limit: the end of the line, in the unit of the values.
    """
    figure, axes = _axes(height=0.9 + 0.55 * len(formats))
    spoken = []
    for row, fmt in enumerate(formats):
        # A set, for 0.0 and -0.0 are one place on the line.
        values = sorted({v for code in range(2**fmt.bits) if math.isfinite(v := decode(code, fmt))})
        shown = [v for v in values if abs(v) <= limit]
        axes.plot(shown, [-row] * len(shown), "|", ms=18, mew=2, color=_COLORS[row % 4])
        spoken.append(f"{fmt.name}: {len(shown)} values from {shown[0]:g} to {shown[-1]:g}")
    axes.set_yticks([-row for row in range(len(formats))], [fmt.name for fmt in formats])
    axes.set_ylim(-len(formats) + 0.4, 0.6)
    axes.set_xlim(-limit * 1.05, limit * 1.05)
    axes.set_xlabel("value")
    return Picture(
        figure,
        "Computed: each stroke is one value of the format.",
        f"Number lines. {'; '.join(spoken)}. The strokes crowd at zero; "
        "each octave outward doubles their distance.",
    )


def gap_staircase(
    gaps: Mapping[str, Callable[[float], float]], *, exponents: range, whose: str
) -> Picture:
    """The gap above x against x, both on axes of powers of two.

    Args:
        gaps: label -> function from x to the gap above x.
        exponents: x runs from 2**exponents[0] to 2**exponents[-1], four values an octave.
        whose: "your" or "labkit's", for the caption.
    """
    figure, axes = _axes(height=3.4)
    points = [2.0**e * (1 + quarter / 4) for e in exponents for quarter in range(4)]
    for (label, gap), color, style in zip(
        gaps.items(), _COLORS, ("-", "--", ":", "-."), strict=False
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
        f"Computed: FP16 with {whose} ulp, the rest with labkit's. The gap is flat within an "
        "octave and doubles at each power of two.",
        f"Staircases of the gap above x. {ends}. A stair is one octave wide; "
        "on the left the FP16 stair is flat.",
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
    figure, axes = _axes(height=3.8)
    for (name, report), color, hatch in zip(reports.items(), _COLORS, _HATCHES, strict=False):
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


def readiness(rows: Sequence[tuple[str, float, int, int]], *, when: str) -> Picture:
    """How ready somebody is in each topic, as bars.

    Args:
        rows: topic, expected share of right answers, questions seen, questions there are.
        when: "now", or the day of the interview.
    """
    figure, axes = _axes(height=0.8 + 0.3 * len(rows))
    places = range(len(rows))
    axes.barh(places, [100 * ready for _, ready, _, _ in rows], color=_COLORS[0], height=0.6)
    for place, (_, ready, seen, all_) in zip(places, rows, strict=True):
        axes.annotate(
            f"{seen} of {all_} seen",
            (100 * ready, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(places, [topic for topic, *_ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 115)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("expected share of right answers, %")
    spoken = "; ".join(
        f"{topic}: {100 * ready:.0f} %, {seen} of {all_} seen" for topic, ready, seen, all_ in rows
    )
    return Picture(
        figure,
        f"Computed from your answers, for {when}. A question never seen counts as 0.",
        f"Readiness by topic. {spoken}.",
    )


def calibration(rows: Sequence[tuple[str, int, float]]) -> Picture:
    """The share of right answers at each stated confidence.

    Args:
        rows: the confidence in words, answers given with it, and the share of them that was right.
    """
    figure, axes = _axes(height=2.6)
    places = range(len(rows))
    shares = [100 * right if answers else 0 for _, answers, right in rows]
    axes.bar(places, shares, width=0.5, color=_COLORS[0])
    for place, (_, answers, _) in zip(places, rows, strict=True):
        axes.annotate(
            f"{answers} answers",
            (place, shares[place]),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    axes.set_xticks(places, [words for words, *_ in rows])
    axes.set_ylim(0, 115)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("right, %")
    axes.set_xlabel("stated confidence")
    spoken = "; ".join(
        f"{words}: {100 * right:.0f} % of {answers}" if answers else f"{words}: no answers"
        for words, answers, right in rows
    )
    return Picture(
        figure,
        "Computed from your answers. Well calibrated means: the surer, the more often right.",
        f"Right answers by stated confidence. {spoken}.",
    )


def due_by_day(rows: Sequence[tuple[str, int]], *, pace: str) -> Picture:
    """How many reviews fall due on each day.

    Args:
        rows: the day in words, and the number of reviews.
        pace: a sentence for the caption on what is new.
    """
    figure, axes = _axes(height=2.4)
    axes.bar(range(len(rows)), [count for _, count in rows], width=0.7, color=_COLORS[0])
    step = -(-len(rows) // 10)
    axes.set_xticks(range(0, len(rows), step), [day for day, _ in rows[::step]])
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("reviews due")
    spoken = "; ".join(f"{day}: {count}" for day, count in rows if count) or "none"
    return Picture(
        figure,
        f"Computed from your answers; what is overdue counts today. {pace}",
        f"Reviews due by day. {spoken}.",
    )


def _window(fmt: FloatFormat) -> tuple[int, int, int]:
    """Exponents: smallest subnormal, smallest normal, the power of two above the largest value."""
    return fmt.min_exponent - fmt.mantissa_bits, fmt.min_exponent, fmt.max_exponent + 1


def _peak(report: RangeReport) -> int:
    return max(report.exponents, key=lambda pair: pair[1])[0]


def _axes(*, height: float):
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes
