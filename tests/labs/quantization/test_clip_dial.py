"""ClipDial without a browser: errors, the best range, goals, and the words of its text twin."""

import json
import math
import re

import pytest
import torch
from traitlets import TraitError

from labkit.labs.quantization.widget_clip_dial import BITS, LAST, ClipDial
from labkit.training.data import gpt_layers

X = gpt_layers()["activation"]
STEP = X.abs().max().item() / 256


def press(widget: ClipDial, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def dial(low: float, high: float, *, bits: int = 8, symmetric: bool = False) -> ClipDial:
    widget = ClipDial()
    widget.bits, widget.symmetric = bits, symmetric
    widget.low, widget.high = low, high
    return widget


def now(widget: ClipDial) -> dict[str, float]:
    row = widget.numbers["rows"][0]
    return {name: float(row[name]) for name in ("step", "rounding", "clipping", "total")}


def errors(low: float, high: float, bits: int, *, symmetric: bool) -> tuple[float, float]:
    """(rounding, clipping) by torch's own fake quantisation of the same grid."""
    if symmetric:
        first, last, zero = 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1, 0
        scale = 2 * max(-low, high) / (last - first)
    else:
        first, last = 0, 2**bits - 1
        scale = (high - low) / last
        zero = round(-low / scale)
    image, kept = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(
        X.double(), scale, zero, first, last
    )
    squared = (X.double() - image) ** 2
    return squared[kept].sum().item(), squared[~kept].sum().item()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("places", [(-8, 255), (-20, 150), (-40, 60)])
def test_rounding_and_clipping_are_those_of_torch(bits, symmetric, places):
    low, high = (place * STEP for place in places)
    if symmetric:
        low = -high
    widget = dial(low, high, bits=bits, symmetric=symmetric)
    rounding, clipping = errors(low, high, bits, symmetric=symmetric)
    # Written with three digits, four for the total.
    assert now(widget)["rounding"] == pytest.approx(rounding, rel=6e-3)
    assert now(widget)["clipping"] == pytest.approx(clipping, rel=6e-3, abs=1e-12)
    assert now(widget)["total"] == pytest.approx(rounding + clipping, rel=6e-4)


@pytest.mark.parametrize("bits", [8, 4])
def test_no_other_ends_have_a_smaller_total_than_the_best(bits):
    # Beyond these places every grid is coarser, or clips half of the values.
    ends = [(low, high) for low in range(-40, 1) for high in range(64, LAST + 1, 1)]
    widget = ClipDial()
    best = widget._best_total(bits)
    assert best == pytest.approx(min(widget._totals(ends, bits)), rel=1e-9)
    total = widget._totals([(-20, 150)], bits)[0]
    assert total == pytest.approx(sum(errors(-20 * STEP, 150 * STEP, bits, symmetric=False)))


def test_the_best_range_shrinks_with_the_bits():
    highs = []
    for bits in BITS:
        widget = ClipDial()
        ends = [(low, high) for low in range(-24, 1) for high in range(64, LAST + 1)]
        totals = widget._totals(ends, bits)
        highs.append(ends[totals.index(min(totals))][1])
    assert highs[0] > highs[1] > highs[2]
    assert highs[0] >= 250 and highs[2] < 160


def test_symmetric_codes_waste_half_of_themselves_on_what_gelu_gives():
    affine, symmetric = dial(-0.17, 5.22), dial(-5.22, 5.22, symmetric=True)
    assert now(symmetric)["total"] > 3 * now(affine)["total"]
    assert not symmetric.reached and list(affine.reached) == [8]


def test_the_goals_are_reached_at_eight_and_at_four_bits_and_at_no_other():
    widget = dial(-8 * STEP, 255 * STEP)
    assert [target["done"] for target in widget.numbers["targets"]] == [True, False]
    widget.bits = 4
    assert list(widget.reached) == [8]
    widget.high = 142 * STEP
    widget.low = -15 * STEP
    assert list(widget.reached) == [8, 4]
    assert "Goal, reached: At 4 bits" in widget.describe()
    low, high = widget.reached[4]
    assert sum(errors(low, high, 4, symmetric=False)) <= 1.01 * widget._best_total(4)
    widget.high = LAST * STEP  # what was reached stays
    assert [target["done"] for target in widget.numbers["targets"]] == [True, True]
    widget.bits = 6
    widget.low, widget.high = -9 * STEP, 238 * STEP
    assert "the best at these bits" in widget.describe() and 6 not in widget.reached


def test_two_percent_above_the_best_is_not_enough():
    widget = dial(-9 * STEP, 256 * STEP)
    (percent,) = re.findall(r"([\d.]+) % above the best\.", widget.numbers["verdict"])
    assert 1 < float(percent) < 2.5
    assert not widget.reached


def test_an_end_moves_in_steps_and_stays_on_its_side_of_zero():
    widget = ClipDial()
    assert (widget.low, widget.high) == (-LAST * STEP, LAST * STEP)
    widget.low = -1.234
    assert widget.low == round(-1.234 / STEP) * STEP
    widget.low, widget.high = 3.0, -3.0
    assert (widget.low, widget.high) == (0, STEP)
    widget.low, widget.high = -99, 99
    assert (widget.low, widget.high) == (-LAST * STEP, LAST * STEP)


def test_symmetric_ends_move_together():
    widget = dial(-1.0, 3.0)
    widget.symmetric = True
    assert widget.low == -widget.high == -round(3.0 / STEP) * STEP
    widget.low = -2.0
    assert widget.high == -widget.low == round(2.0 / STEP) * STEP
    for _ in range(2):
        widget.low = 0
        assert (widget.low, widget.high) == (-STEP, STEP)
    assert widget.numbers["setting"].startswith("8 bits, symmetric: codes -127 to 127")


def test_zero_has_a_code_at_every_range():
    for low, high in ((-0.17, 5.2), (0, 3.0), (-6, 0.1)):
        for bits in BITS:
            widget = dial(low, high, bits=bits)
            assert len(widget.numbers["grid"]) == 2**bits
            code = int(re.findall(r"0.0 is code (\d+)", widget.numbers["zero"])[0])
            assert widget.numbers["grid"][code] == 0.5  # the middle of the axis


def test_bars_are_the_logarithms_of_counts_and_say_what_is_clipped():
    widget = dial(-0.17, 2.0)
    bars = widget.numbers["bars"]
    width = 2 * LAST * STEP / 160
    counts = torch.histc(X, 160, -LAST * STEP, LAST * STEP)
    assert len(bars) == (counts > 0).sum()
    top = math.log1p(counts.max().item())
    for left, _, height, clipped in bars:
        place = round(left * 160)
        assert height == pytest.approx(math.log1p(counts[place].item()) / top)
        begin = -LAST * STEP + place * width
        if begin > 2.1:
            assert clipped
        elif -0.1 < begin < 1.9:
            assert not clipped


def test_the_error_bar_is_cut_at_five_times_the_best():
    wide, fine = ClipDial(), dial(-8 * STEP, 255 * STEP)
    assert wide.numbers["beyond"] and not fine.numbers["beyond"]
    assert wide.numbers["parts"] == [1.0, 0.0]
    assert sum(fine.numbers["parts"]) == pytest.approx(0.2, rel=2e-3) == fine.numbers["best"]


def test_the_lowest_total_of_each_number_of_bits_stays_in_the_table():
    widget = dial(-8 * STEP, 255 * STEP)
    lowest = widget.numbers["rows"][1]
    widget.high = 100 * STEP
    widget.bits = 3
    rows = {row["what"]: row for row in widget.numbers["rows"]}
    assert list(rows) == ["now", "lowest so far at 8 bits", "lowest so far at 3 bits"]
    assert rows["lowest so far at 8 bits"] == lowest
    assert rows["now"]["total"] == rows["lowest so far at 3 bits"]["total"]


def test_a_request_does_what_it_asks():
    widget = ClipDial()
    assert press(widget, low=-12)["low"] == -12 and widget.low == -12 * STEP
    assert press(widget, high=200)["high"] == 200 and widget.high == 200 * STEP
    assert press(widget, bits=3)["bits"] == widget.bits == 3
    shown = press(widget, symmetric=True)
    assert (shown["seq"], shown["symmetric"], shown["low"]) == (4, True, -200)


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match="inf or NaN"):
        ClipDial(torch.tensor([1.0, math.inf]))
    for equal in (torch.ones(5), torch.tensor([])):
        with pytest.raises(ValueError, match="values are all equal"):
            ClipDial(equal)
    with pytest.raises(TraitError):
        ClipDial().bits = 5
    with pytest.raises(TraitError):
        ClipDial().reached = {8: (0.0, 1.0)}


def test_the_words_say_what_the_picture_shows():
    widget = dial(-0.327, 2.97, bits=4)
    words = widget.describe()
    assert words.startswith("4 bits, affine: codes 0 to 15, the code of 0.0 is 1, a step is 0.22.")
    row = widget.numbers["rows"][0]
    for name in ("range", "step", "rounding", "clipping", "total"):
        assert row[name] in words, name
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == words == widget.numbers["sentence"]


def test_other_values_can_be_given():
    widget = ClipDial(torch.linspace(-1, 1, 101).view(1, 101))
    assert widget.numbers["source"] == "The values given."
    assert widget.high == pytest.approx(1.25)


def test_what_crosses_to_the_page_is_json():
    widget = ClipDial()
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers
