"""Charts of where a learner stands before an interview: readiness, confidence, reviews to come.

Each function returns a ``labkit.plots.Picture`` of plain rows: the figure, a caption, and a text
that says what a reader would see.
"""

from collections.abc import Sequence

from labkit.interview.readiness import BAR, Estimate
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes


def readiness_chart(
    rows: Sequence[tuple[str, Estimate | None, Estimate | None, int, int]], *, said: str
) -> Picture:
    """What somebody would get right of new questions in each topic: two marks with intervals.

    Args:
        rows: topic, estimate of a screen and of a deep dive, first answers right, first answers.
        said: what it means, for the caption.
    """
    figure, axes = new_axes(height=1.2 + 0.42 * len(rows))
    kinds = (("screen: levels 1 and 2", 1, BLUE, "o"), ("deep dive: level 3", 2, ORANGE, "s"))
    for label, column, color, marker in kinds:
        drawn = [(place, row[column]) for place, row in enumerate(rows) if row[column]]
        places = [place + 0.18 * (2 * column - 3) for place, _ in drawn]
        shares = [100 * estimate.share for _, estimate in drawn]
        below = [100 * (estimate.share - estimate.low) for _, estimate in drawn]
        above = [100 * (estimate.high - estimate.share) for _, estimate in drawn]
        axes.errorbar(
            shares, places, xerr=(below, above), fmt=marker, color=color, label=label, markersize=5
        )
    axes.axvline(100 * BAR, color=GREY, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[3]} of {row[4]} right" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("expected share of new questions right, %")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    spoken = "; ".join(
        f"{topic}, {right} of {answered} right:"
        f" screen {screen.percent if screen else 'has no question'},"
        f" deep dive {dive.percent if dive else 'has no question'}"
        for topic, screen, dive, right, answered in rows
    )
    return Picture(
        figure,
        "Computed from your first answer to each question. Bars are intervals of 80 %: the fewer"
        f" answers, the wider. Dotted: {100 * BAR:.0f} %, where we would call it a pass. {said}",
        f"Readiness by topic. {spoken}.",
    )


def calibration_chart(rows: Sequence[tuple[str, int, float]]) -> Picture:
    """The share of right answers at each stated confidence.

    Args:
        rows: the confidence in words, answers given with it, and the share of them that was right.
    """
    figure, axes = new_axes(height=2.6)
    places = range(len(rows))
    shares = [100 * right if answers else 0 for _, answers, right in rows]
    axes.bar(places, shares, width=0.5, color=BLUE)
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
    figure, axes = new_axes(height=2.4)
    axes.bar(range(len(rows)), [count for _, count in rows], width=0.7, color=BLUE)
    step = -(-len(rows) // 10)
    axes.set_xticks(range(0, len(rows), step), [day for day, _ in rows[::step]])
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("reviews due")
    if not any(count for _, count in rows):
        axes.set_ylim(0, 4)
        axes.text(0.5, 0.5, "no reviews yet", transform=axes.transAxes, ha="center")
    spoken = "; ".join(f"{day}: {count}" for day, count in rows if count) or "none"
    return Picture(
        figure,
        f"Computed from your answers; what is overdue counts today. {pace}",
        f"Reviews due by day. {spoken}.",
    )
