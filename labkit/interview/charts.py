"""Charts of where a learner stands before an interview: readiness, confidence, reviews to come.

Each function returns a ``labkit.plots.Picture`` of plain rows: the figure, a caption, and a text
that says what a reader would see.
"""

from collections.abc import Sequence

from labkit.plots import BLUE, Picture, new_axes


def readiness(rows: Sequence[tuple[str, float, int, int]], *, when: str) -> Picture:
    """How ready somebody is in each topic, as bars.

    Args:
        rows: topic, expected share of right answers, questions seen, questions there are.
        when: "now", or the day of the interview.
    """
    figure, axes = new_axes(height=0.8 + 0.3 * len(rows))
    places = range(len(rows))
    axes.barh(places, [100 * ready for _, ready, _, _ in rows], color=BLUE, height=0.6)
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
    spoken = "; ".join(f"{day}: {count}" for day, count in rows if count) or "none"
    return Picture(
        figure,
        f"Computed from your answers; what is overdue counts today. {pace}",
        f"Reviews due by day. {spoken}.",
    )
