"""ScaleTimeline without a browser: points, rows, cursor, and the words of its text twin."""

import json
import math

import pytest
from traitlets import TraitError

from labkit.labs.loss_scaling.widget_scale_timeline import ScaleTimeline
from labkit.training import StepRecord

RUN = [
    StepRecord(0, 2.0, 1.5, 1024.0, True),
    StepRecord(1, 2.0, 0.5, 512.0, False),
    StepRecord(2, 1.0, 0.25, 512.0, False),
    StepRecord(3, 0.5, math.inf, 1024.0, True),
]
NANS = [StepRecord(i, math.nan, math.nan, 2.0**-i, True) for i in range(3)]


def test_points_lie_by_the_exponent_of_the_scale():
    drawn = ScaleTimeline(RUN).runs[""]
    assert [x for x, _ in drawn["points"]] == pytest.approx([0, 100 / 3, 200 / 3, 100])
    heights = [y for _, y in drawn["points"]]
    assert heights[0] == heights[3] < heights[1] == heights[2]  # y grows downwards
    ticks = {text: y for y, text in drawn["ticks"]}
    assert ticks["2**10"] == heights[0] and ticks["2**9"] == heights[1]
    assert drawn["skipped"] == [0, 3]


def test_a_loss_that_is_no_number_leaves_a_gap():
    drawn = ScaleTimeline(RUN[:2] + NANS).runs[""]
    assert [point is None for point in drawn["losses"]] == [False, False, True, True, True]
    assert ScaleTimeline(NANS).runs[""]["top_loss"] == "1"


def test_each_step_has_its_words():
    rows = ScaleTimeline(RUN).runs[""]["rows"]
    assert rows[0] == "step 0: scale 2**10, skipped, loss 2, gradient norm 1.5"
    assert rows[1] == "step 1: scale 2**9, taken, loss 2, gradient norm 0.5"
    assert rows[3].endswith("gradient norm inf")


def test_scales_that_are_no_power_of_two_or_zero_are_said_as_they_are():
    odd = [StepRecord(0, 1.0, 1.0, 72089.6, False), StepRecord(1, 1.0, 1.0, 0.0, True)]
    rows = ScaleTimeline(odd).runs[""]["rows"]
    assert "scale 72089.6" in rows[0] and "scale 0," in rows[1]
    assert all(math.isfinite(y) for _, y in ScaleTimeline(odd).runs[""]["points"])


def test_the_cursor_stays_in_the_run_and_another_run_begins_at_its_first_step():
    timeline = ScaleTimeline({"A": RUN, "B": NANS})
    timeline.place = 3
    assert timeline.place == 3
    timeline.place = 99
    assert timeline.place == 3
    timeline.run = "B"
    assert timeline.place == 0
    timeline.place = 3
    assert timeline.place == 2


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match="run '' has no records"):
        ScaleTimeline([])
    with pytest.raises(ValueError, match="run 'B' has no records"):
        ScaleTimeline({"A": RUN, "B": []})
    with pytest.raises(ValueError, match="there is no run"):
        ScaleTimeline({})
    with pytest.raises(TraitError, match="run is one of"):
        ScaleTimeline({"A": RUN}).run = "C"


def test_the_words_say_what_the_picture_shows():
    timeline = ScaleTimeline(RUN)
    words = timeline.describe()
    facts = "4 steps", "from 2**10 to 2**10", "between 2**9 and 2**10", "2 skipped: 0, 3"
    assert [fact for fact in facts if fact not in words] == []
    assert "loss goes from 2 to 0.5" in words
    data, _ = timeline._repr_mimebundle_()
    assert repr(timeline) == data["text/plain"] == words
    two = ScaleTimeline({"A": RUN, "B": NANS}).describe().split("\n")
    assert two[0] == f"A: {words}" and two[1].startswith("B: ")
    assert "3 skipped: 0, 1, 2" in two[1] and "loss goes from nan" in two[1]
    assert "No step is skipped" in ScaleTimeline(RUN[1:3]).describe()


def test_what_crosses_to_the_page_is_json():
    timeline = ScaleTimeline({"A": RUN, "B": NANS})
    assert json.loads(json.dumps(timeline.runs)) == timeline.runs
