"""ReachTheSum without a browser: traits in, traits out, and the words of its text twin."""

import json

import pytest
from traitlets import TraitError

from labkit.formats import BF16, FP16, FP32
from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import STEPS, ReachTheSum


def press(widget: ReachTheSum, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


@pytest.mark.parametrize(("fmt", "end"), [(FP16, 2048), (BF16, 256)])
def test_the_sum_sticks_where_the_gap_is_twice_the_addend(fmt, end):
    widget = ReachTheSum(fmt)
    widget.add(end - 1)
    assert (widget.total, widget.numbers["stuck"], widget.numbers["gap"]) == (end - 1, False, "1")
    shown = press(widget, add=1)
    assert (widget.total, shown["stuck"], shown["gap"]) == (end, True, "2")
    shown = press(widget, add=1000)
    assert (widget.total, shown["presses"], shown["missing"]) == (end, str(end + 1000), "1000")


def test_a_thousand_at_once_is_a_thousand_single_adds():
    at_once, one_by_one = ReachTheSum(BF16), ReachTheSum(BF16)
    at_once.add(300)
    for _ in range(300):
        one_by_one.add(1)
    assert at_once.describe() == one_by_one.describe()


def test_the_bars_are_as_long_as_what_they_stand_for():
    widget = ReachTheSum()
    assert widget.numbers["addend_percent"] == 25
    for adds, percent in ((1000, 100 * 0.5 / 4), (1047, 25), (1, 50)):
        assert press(widget, add=adds)["gap_percent"] == percent


def test_a_press_is_answered_with_its_number():
    widget = ReachTheSum()
    shown = press(widget, add=10)
    assert (shown["seq"], shown["total"], shown["verdict"]) == (1, "10", "Each 1 has arrived.")
    shown = press(widget, format_name="bf16")
    assert (shown["seq"], shown["total"], widget.format_name) == (2, "0", "bf16")
    press(widget, add=300)
    shown = press(widget, format_name="bf16")  # the same format again: reset
    assert (shown["seq"], shown["total"], shown["presses"], widget.presses) == (4, "0", "0", 0)


def test_setting_the_format_begins_again():
    widget = ReachTheSum()
    widget.add(5)
    widget.format_name = "bf16"
    assert (widget.total, widget.presses) == (0, 0)


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match=r"FP16 or BF16, got .*fp32"):
        ReachTheSum(FP32)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        ReachTheSum().add(0)
    with pytest.raises(TraitError):
        ReachTheSum().format_name = "fp32"
    with pytest.raises(TraitError):
        ReachTheSum().total = 5000.0


def test_the_words_say_what_the_picture_shows():
    widget = ReachTheSum()
    widget.add(3000)
    words = widget.describe()
    facts = "FP16", "3000 ones", "sum is 2048", "952 are missing", "gap above it is 2"
    assert [fact for fact in facts if fact not in words] == []
    assert (
        "Stuck" in words
        and "midway to 2050" in words
        and "2048 wins: its mantissa is even" in words
    )
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == widget.describe()
    fresh = ReachTheSum().describe()
    assert "0 ones added" in fresh and "sum is 0" in fresh and "gap above it is 2**-24" in fresh
    assert "missing" not in fresh and "Stuck" not in fresh


def test_what_crosses_to_the_page_is_json_and_holds_the_steps():
    widget = ReachTheSum()
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers
    assert widget.steps == list(STEPS) == [1, 10, 100, 1000]
    assert widget.formats == ["fp16", "bf16"]
