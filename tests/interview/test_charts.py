"""Charts of a learner's answers draw their rows and say them."""

import pytest

from labkit.interview import charts
from labkit.interview.readiness import Estimate

HIGH, LOW = Estimate(0.9, 0.75, 0.95, 9), Estimate(0.4, 0.2, 0.6, 9)
TOPICS = [("Formats", HIGH, LOW, 3, 12), ("Rounding", HIGH, None, 5, 5)]
SURE = [("guessing", 4, 0.25), ("fairly sure", 0, float("nan")), ("certain", 10, 0.9)]
DAYS = [(f"{day} Jan", day % 3) for day in range(1, 29)]


def labels(axis):
    return [label.get_text() for label in axis]


def test_readiness_draws_both_rounds_with_their_intervals():
    picture = charts.readiness_chart(TOPICS, said="You would pass.")
    axes = picture.figure.axes[0]
    screen, dive = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert list(screen.get_xdata()) == [90, 90] and list(dive.get_xdata()) == [40]
    ends = [path.vertices[:, 0].tolist() for bars in axes.collections for path in bars.get_paths()]
    assert ends == [pytest.approx([75, 95])] * 2 + [pytest.approx([20, 60])]
    named = labels(axes.get_yticklabels())
    assert named == ["Formats, 3 of 12 right", "Rounding, 5 of 5 right"] and axes.yaxis_inverted()
    assert picture.caption.endswith("You would pass.")
    assert "Formats, 3 of 12 right: screen 90 % (75–95), deep dive 40 % (20–60)" in picture.alt
    assert "deep dive has no question" in picture.alt


def test_calibration_says_that_a_confidence_has_no_answers():
    picture = charts.calibration_chart(SURE)
    axes = picture.figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [25, 0, 90]
    assert labels(axes.get_xticklabels()) == ["guessing", "fairly sure", "certain"]
    assert [text.get_text() for text in axes.texts] == ["4 answers", "0 answers", "10 answers"]
    assert "guessing: 25 % of 4; fairly sure: no answers; certain: 90 % of 10" in picture.alt


def test_due_by_day_names_at_most_ten_days_and_says_those_with_reviews():
    picture = charts.due_by_day(DAYS, pace="Two a day.")
    axes = picture.figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [count for _, count in DAYS]
    named = labels(axes.get_xticklabels())
    assert named[:2] == ["1 Jan", "4 Jan"] and len(named) == 10
    assert picture.caption.endswith("Two a day.")
    assert "1 Jan: 1; 2 Jan: 2; 4 Jan: 1" in picture.alt and "; 3 Jan" not in picture.alt
    assert not axes.texts


def test_days_without_reviews_say_so_and_count_from_zero():
    picture = charts.due_by_day([("1 Jan", 0), ("2 Jan", 0)], pace="")
    axes = picture.figure.axes[0]
    assert "none" in picture.alt
    assert labels(axes.texts) == ["no reviews yet"]
    assert axes.get_ylim()[0] == 0 and all(tick == int(tick) for tick in axes.get_yticks())


@pytest.mark.parametrize(
    "picture",
    [
        charts.readiness_chart(TOPICS, said=""),
        charts.calibration_chart(SURE),
        charts.due_by_day(DAYS, pace="Two a day."),
    ],
)
def test_a_chart_says_that_it_is_computed_from_the_answers(picture):
    assert picture.caption.startswith("Computed from your ")
    assert picture.figure.axes[0].get_xlabel() or picture.figure.axes[0].get_ylabel()
