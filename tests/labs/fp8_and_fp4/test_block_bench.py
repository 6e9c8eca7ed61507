"""BlockBench without a browser: images, scales, states, goals, and the words of its text twin."""

import json
import math

import numpy as np
import pytest
import torch
from traitlets import TraitError

from labkit.labs.fp8_and_fp4.widget_block_bench import FLUSHING, WIDTH, BlockBench
from labkit.training.data import gpt_layers

ROW = gpt_layers()["gradient"][0]
E2M1_VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def press(widget: BlockBench, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def bench(format_name: str, granularity: str, **settings) -> BlockBench:
    widget = BlockBench(**settings)
    widget.format_name, widget.granularity = format_name, granularity
    return widget


def shares(widget: BlockBench) -> dict[str, str]:
    return dict(widget.numbers["shares"])


def states(widget: BlockBench) -> list[str]:
    return [bar["state"] for bar in widget.numbers["bars"]]


def decibels(x: np.ndarray, image: np.ndarray) -> str:
    return f"{10 * math.log10((x**2).sum() / ((x - image) ** 2).sum()):.1f} dB"


def nearest_e2m1(x: np.ndarray) -> np.ndarray:
    """The nearest of the 15 values; no quotient below is a tie."""
    nearest = E2M1_VALUES[np.abs(np.abs(x)[:, None] - E2M1_VALUES).argmin(axis=1)]
    return np.copysign(nearest, x)


def doubled_until_flushed(widget: BlockBench, place: int) -> float:
    """Double a value until a goal is noted for the format; how often."""
    widget.place = place
    for times in range(1, 33):
        widget.double()
        if widget.format_name in widget.flushing:
            return times
    raise AssertionError("no neighbour became 0")


@pytest.mark.parametrize("granularity", ["tensor", "row", "16"])
def test_an_fp8_image_is_torchs_cast_of_the_quotient(granularity):
    matrix = gpt_layers()["gradient"]
    groups = {"tensor": matrix.reshape(1, -1), "row": matrix, "16": matrix.reshape(-1, 16)}
    group = groups[granularity]
    scale = group.abs().amax(dim=1, keepdim=True) / 448
    image = ((group / scale).to(torch.float8_e4m3fn).float() * scale).reshape(matrix.shape)[0]
    widget = bench("E4M3", granularity)
    assert shares(widget)["SQNR"] == decibels(ROW.double().numpy(), image.double().numpy())
    assert len(widget.numbers["blocks"]) == {"tensor": 1, "row": 1, "16": 4}[granularity]


def test_mxfp4_is_the_floor_rule_of_ocp_with_its_codes_and_its_clipping():
    row = gpt_layers()["gradient"][41]
    widget = bench("E2M1", "32", row=41)
    x = row.double().numpy()
    exponents = [math.floor(math.log2(np.abs(half).max())) - 2 for half in np.split(x, 2)]
    quotients = x / np.repeat([2.0**e for e in exponents], 32)
    image = nearest_e2m1(quotients)
    expected = np.where(np.abs(quotients) >= 7, "clipped", np.where(image == 0, "flushed", "kept"))
    assert states(widget) == expected.tolist()
    assert {"clipped", "flushed", "kept"} == set(expected)
    assert shares(widget)["SQNR"] == decibels(x, image * (x / quotients))
    scales = [row["scale"] for row in widget.numbers["rows"]]
    assert scales == [f"0x{127 + e:02x} = 2**{e}" for e in exponents]


def test_nvfp4_never_clips_a_recorded_row_and_mxfp4_does():
    clipped = {"16": 0, "32": 0}
    for row in range(64):
        for granularity in clipped:
            clipped[granularity] += states(bench("E2M1", granularity, row=row)).count("clipped")
    assert clipped["16"] == 0 < clipped["32"]


def test_a_bar_rises_by_one_power_of_two_for_each_doubling():
    widget = bench("E4M3", "row")
    widget.place = 36  # far below the largest: the axis stays
    ticks = {text: height for height, text in widget.numbers["ticks"]}
    octave = (ticks["2**-12"] - ticks["2**-16"]) / 4
    before = widget.numbers["bars"][36]["height"]
    widget.double(2)
    assert widget.numbers["ticks"] == [[height, text] for text, height in ticks.items()]
    assert widget.numbers["bars"][36]["height"] - before == pytest.approx(2 * octave)
    widget.double(-2)
    assert widget.numbers["bars"][36]["height"] == before


def test_a_band_reaches_from_half_the_smallest_value_to_the_largest():
    widget = bench("E2M1", "16")
    at = {text: height for height, text in widget.numbers["ticks"]}
    octave = (at["2**-12"] - at["2**-16"]) / 4
    for block in widget.numbers["blocks"]:
        # From 0.25 to 6 times the scale.
        assert (block["high"] - block["low"]) / octave == pytest.approx(math.log2(24))


def test_an_outlier_flushes_what_shares_its_scale_and_nothing_else():
    for granularity, size in (("row", 64), ("32", 32), ("16", 16)):
        widget = bench("E2M1", granularity)
        before = states(widget)
        widget.place = 20
        widget.double(8)
        after = states(widget)
        begin = 20 // size * size
        inside = [i for i in range(begin, begin + size) if i != 20]
        assert {after[i] for i in inside} == {"flushed"}
        if granularity != "16":  # NVFP4's tensor scale follows the largest of all
            outside = [i for i in range(WIDTH) if not begin <= i < begin + size]
            assert [after[i] for i in outside] == [before[i] for i in outside]


def test_the_limits_are_those_of_the_formats():
    zero, kept = (
        (torch.tensor([448.0, 448.0 / ratio]) / 1).to(torch.float8_e4m3fn)[1].item()
        for ratio in (FLUSHING["E4M3"], FLUSHING["E4M3"] * (1 - 2**-20))
    )
    assert FLUSHING["E4M3"] == 458752 and zero == 0 < kept
    assert FLUSHING["E2M1"] == 24


@pytest.mark.parametrize("format_name", FLUSHING)
def test_the_first_goal_notes_how_large_the_outlier_was(format_name):
    widget = bench(format_name, "row")
    times = doubled_until_flushed(widget, 0)
    ratio = widget.flushing[format_name]
    assert ratio == pytest.approx((ROW[0] * 2.0**times / ROW[1]).abs().item())
    assert FLUSHING[format_name] <= ratio < 2 * FLUSHING[format_name]
    assert f"{FLUSHING[format_name]:,.0f} times is the limit" in widget.describe()
    widget.double(3)  # a larger one is no news
    assert widget.flushing[format_name] == ratio
    (other,) = set(FLUSHING) - {format_name}
    widget.reset()
    widget.format_name = other
    assert not widget.numbers["targets"][0]["done"]
    doubled_until_flushed(widget, 0)
    assert "Goal 1, reached:" in widget.describe() and widget.numbers["targets"][0]["done"]


@pytest.mark.parametrize("name, value", [("rotated", True), ("rounding", "stochastic")])
def test_only_plain_rounding_to_nearest_reaches_the_first_goal(name, value):
    widget = bench("E2M1", "row")
    setattr(widget, name, value)
    widget.double(20)
    assert not widget.flushing
    widget.rotated, widget.rounding = False, "nearest"
    assert widget.flushing


def test_the_first_goal_is_reached_by_one_value():
    widget = bench("E4M3", "row")
    widget.place = 40
    widget.double(1)
    widget.place = 0
    widget.double(30)
    widget.format_name = "E2M1"
    assert states(widget)[1] == "flushed" and not widget.flushing


def test_a_neighbour_that_was_0_before_does_not_reach_the_first_goal():
    values = torch.ones(1, WIDTH)
    values[0, 1] = 0.01
    widget = bench("E2M1", "row", values=values)
    widget.double(30)
    assert states(widget) == ["kept"] + ["flushed"] * 63 and not widget.flushing


def test_a_neighbour_in_another_block_does_not_count():
    # NVFP4's tensor scale lets an outlier of one block flush another one, too.
    values = torch.ones(1, WIDTH)
    values[0, 14] = 0.5
    widget = bench("E2M1", "16", values=values)
    widget.place = 15
    widget.double(30)
    assert states(widget)[14] == states(widget)[16] == "flushed"
    assert widget.flushing == {"E2M1": 2.0**31}


def clipped_by_mxfp4() -> tuple[BlockBench, int]:
    """A value with a mantissa above 1.75, doubled until it is the largest of its block."""
    fractions = (2 * torch.frexp(ROW).mantissa.abs()).tolist()
    place = max(range(WIDTH), key=lambda i: fractions[i] if fractions[i] < 1.99 else 0)
    widget = bench("E2M1", "32")
    widget.place = place
    while states(widget)[place] != "clipped":
        widget.double()
    return widget, place


def test_the_second_goal_is_seen_clipped_then_seen_whole():
    widget, place = clipped_by_mxfp4()
    assert not widget.clipping and f"MXFP4 clips value {place + 1}" in widget.describe()
    widget.granularity = "16"
    assert widget.clipping and widget.numbers["targets"][1]["done"]
    assert "Goal 2, reached:" in widget.describe()


@pytest.mark.parametrize(
    "instead",
    [
        lambda widget: setattr(widget, "place", widget.place - 1),
        lambda widget: widget.double(-1),
        lambda widget: setattr(widget, "rotated", True),
        lambda widget: setattr(widget, "format_name", "E4M3"),
    ],
    ids=["another value", "another size", "rotated", "another format"],
)
def test_another_value_than_the_clipped_one_does_not_reach_the_second_goal(instead):
    widget, _ = clipped_by_mxfp4()
    instead(widget)
    widget.granularity = "16"
    assert not widget.clipping


def test_stochastic_rounding_costs_once_and_pays_in_the_mean():
    nearest = bench("E2M1", "16")
    widget = bench("E2M1", "16")
    widget.draw()
    assert widget.rounding == "stochastic"
    first = shares(widget)["SQNR"]
    for _ in range(30):
        widget.draw()
    said = shares(widget)
    one, mean, without = (
        float(text.split()[0])
        for text in (said["SQNR"], said["mean of draws: 32"], shares(nearest)["SQNR"])
    )
    assert one < without < mean
    assert said["SQNR"] != first
    widget.place = 9  # looking elsewhere draws nothing
    assert shares(widget) == said
    widget.reset()
    widget.draw()
    assert shares(widget)["SQNR"] == first, "draws follow from their number"


def test_a_rotation_spreads_one_value_over_its_sixteen():
    alone = torch.zeros(2, WIDTH)
    alone[0, 3], alone[1, 0] = 1.0, 1.0
    widget = BlockBench(alone)
    widget.rotated = True
    assert states(widget) == ["kept"] * 16 + ["zero"] * 48
    heights = {bar["height"] for bar in widget.numbers["bars"][:16]}
    assert len(heights) == 1
    assert shares(widget)["SQNR"] == "exact"  # 16 times 1/4, and the scale fits
    widget.place = 3
    assert "Value 4: " in widget.describe() and " 1.000 x 2**-2" in widget.describe()
    assert widget.numbers["bars"][3]["before"] > widget.numbers["bars"][3]["height"]


def test_a_block_of_zeros_has_no_band_and_does_not_stretch_the_axis():
    values = torch.full((1, WIDTH), 2.0**-20)
    values[0, :16] = 0
    widget = bench("E4M3", "16", values=values)
    first, *others = widget.numbers["blocks"]
    assert first["low"] == first["high"] == 0
    assert all(block["high"] > block["low"] for block in others)
    assert widget.numbers["ticks"][-1][1] in ("2**-19", "2**-18")
    widget.double()
    assert states(widget)[0] == "zero" and "Value 1: 0, " in widget.describe()


def test_a_request_does_what_it_asks():
    widget = BlockBench()
    assert press(widget, place=7)["place"] == widget.place == 7
    assert press(widget, move=-9)["place"] == 0
    assert press(widget, move=99)["place"] == 63
    before = widget.numbers["bars"][63]
    assert press(widget, times=3)["bars"][63] != before
    assert press(widget, reset=True)["bars"][63] == before
    assert press(widget, format_name="E5M2")["format_name"] == widget.format_name == "E5M2"
    assert press(widget, granularity="32")["setting"].startswith("MXFP8: E5M2, an E8M0 scale")
    assert press(widget, rotated=True)["rotated"]
    assert press(widget, draw=True)["rounding"] == "stochastic"
    assert press(widget, rounding="nearest")["seq"] == 10


def test_a_value_is_doubled_32_times_and_halved_16_times_at_most():
    widget = BlockBench()
    widget.double(500)
    assert "Recorded as" in widget.describe() and f"x 2**{-13 + 32}," in widget.describe()
    widget.double(-500)
    assert f"x 2**{-13 - 16}," in widget.describe()


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match=r"shape \(64,\): pass rows of 64"):
        BlockBench(torch.ones(64))
    with pytest.raises(ValueError, match="inf or NaN"):
        BlockBench(torch.full((1, 64), math.nan))
    for far in (1e30, 1e-35):
        with pytest.raises(ValueError, match="too large or too small"):
            BlockBench(torch.full((1, 64), far))
    with pytest.raises(ValueError, match="row=1: pass one of 2 rows, and not one of zeros"):
        BlockBench(torch.eye(2, 64) * torch.tensor([[1.0], [0.0]]), row=1)
    with pytest.raises(ValueError, match="row=2"):
        BlockBench(torch.ones(2, 64), row=2)
    for name, value in (("format_name", "FP16"), ("granularity", "64"), ("place", 64)):
        with pytest.raises(TraitError):
            setattr(BlockBench(), name, value)


def test_the_words_say_what_the_picture_shows():
    widget = bench("E2M1", "32", row=41)
    words = widget.describe()
    lines = words.splitlines()
    assert lines[0].startswith("MXFP4: E2M1, an E8M0 scale for 32 values.")
    for name, share in widget.numbers["shares"]:
        assert f"{name} {share}" in lines[1]
    for row, line in zip(widget.numbers["rows"], lines[2:], strict=False):
        facts = (f"Values {row['values']}", row["scale"], row["largest"], f"{row['flushed']} flus")
        assert [fact for fact in facts if fact not in line] == []
        assert f"{row['clipped']} clipped" in line
    assert sum(int(row["flushed"]) for row in widget.numbers["rows"]) == states(widget).count(
        "flushed"
    )
    data, _ = widget._repr_mimebundle_()
    assert widget.numbers["source"] == "Row 42 of 64 of a recorded gradient of the trained GPT."
    assert repr(widget) == data["text/plain"] == words == widget.numbers["sentence"]


def test_what_crosses_to_the_page_is_json():
    widget = BlockBench()
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers
