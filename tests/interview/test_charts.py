"""Charts of a learner's answers draw their rows and say them."""

import pytest

from labkit.interview import charts

TOPICS = [("Formats", 0.25, 3, 12), ("Rounding", 0.8, 5, 5)]
SURE = [("guessing", 4, 0.25), ("fairly sure", 0, float("nan")), ("certain", 10, 0.9)]
DAYS = [(f"{day} Jan", day % 3) for day in range(1, 29)]


def labels(axis):
    return [label.get_text() for label in axis]


def test_readiness_draws_each_topic_as_a_share_and_says_what_was_seen():
    picture = charts.readiness(TOPICS, when="2027-01-15")
    axes = picture.figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [25, 80]
    assert labels(axes.get_yticklabels()) == ["Formats", "Rounding"] and axes.yaxis_inverted()
    assert [text.get_text() for text in axes.texts] == ["3 of 12 seen", "5 of 5 seen"]
    assert "2027-01-15" in picture.caption and "never seen counts as 0" in picture.caption
    assert "Formats: 25 %, 3 of 12 seen; Rounding: 80 %, 5 of 5 seen" in picture.alt


def test_calibration_says_that_a_confidence_has_no_answers():
    picture = charts.calibration(SURE)
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
    assert "none" in charts.due_by_day([("1 Jan", 0)], pace="").alt


@pytest.mark.parametrize(
    "picture",
    [
        charts.readiness(TOPICS, when="now"),
        charts.calibration(SURE),
        charts.due_by_day(DAYS, pace="Two a day."),
    ],
)
def test_a_chart_says_that_it_is_computed_from_the_answers(picture):
    assert picture.caption.startswith("Computed from your answers")
    assert picture.figure.axes[0].get_xlabel() or picture.figure.axes[0].get_ylabel()
