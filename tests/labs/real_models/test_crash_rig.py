"""CrashRig without a browser: errors beside other arithmetic, repairs, goals, and its words."""

import itertools
import json
import math

import ml_dtypes
import numpy as np
import pytest
import torch
from traitlets import TraitError

from labkit.labs.real_models.parts import LIMIT, PARTS, PartRun, _head, _query_and_keys, _tokens
from labkit.labs.real_models.widget_crash_rig import CrashRig

NUMPY = {"BF16": ml_dtypes.bfloat16, "FP16": np.float16}
TORCH = {"BF16": torch.bfloat16, "FP16": torch.float16}
GAPS = {"BF16": 2.0**-8, "FP16": 2.0**-11}  # half a gap, relative


def run(part: str, level: int, format_name: str, *repairs: str) -> PartRun:
    return PARTS[part].run(level, TORCH[format_name], frozenset(repairs))


def rig(part: str = "attention", **settings) -> CrashRig:
    widget = CrashRig()
    widget.part = part
    for name, value in settings.items():
        setattr(widget, name, value)
    return widget


def press(widget: CrashRig, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def rounder(format_name: str):
    def rounded(x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.asarray(x, np.float32).astype(NUMPY[format_name]).astype(np.float64)

    return rounded


# ---------------------------------------------------------------- beside numpy


@pytest.mark.parametrize("format_name", TORCH)
@pytest.mark.parametrize("level", [2, 8, 12])
def test_eager_attention_rounds_its_scores_and_its_weights(level, format_name):
    rounded = rounder(format_name)
    q, k = (x.double().numpy() for x in _query_and_keys())
    scores = 2.0**level * (q @ k.T)[0]
    got = run("attention", level, format_name)
    assert got.exact.numpy() == pytest.approx(softmax(scores / 8), rel=1e-12)
    want = rounded(softmax(rounded(scores) / 8))  # a division by 8 is exact
    assert got.computed.numpy() == pytest.approx(want, rel=2 * GAPS[format_name], abs=1e-7)


@pytest.mark.parametrize("format_name", TORCH)
def test_eager_scores_overflow_in_fp16_before_they_are_divided(format_name):
    q, k = (x.double().numpy() for x in _query_and_keys())
    largest = 2.0**14 * (q @ k.T).max()
    assert largest > 65504 > largest / 8
    got = run("attention", 14, format_name)
    assert got.broken == (16 if format_name == "FP16" else 0)
    assert run("attention", 14, format_name, "fused").broken == 0


@pytest.mark.parametrize("format_name", TORCH)
@pytest.mark.parametrize("level", [0, 6, 9])
def test_logits_are_rounded_once_after_the_offset_was_added(level, format_name):
    rounded = rounder(format_name)
    hidden, weight = (x.double().numpy() for x in _head())
    logits = (hidden @ weight.T)[0] + 2.0**level
    got = run("logits", level, format_name)
    assert got.exact.numpy() == pytest.approx(softmax(logits), rel=1e-10)
    # The softmax is on autocast's float32 list.
    assert got.computed.numpy() == pytest.approx(softmax(rounded(logits)), rel=1e-5)


@pytest.mark.parametrize("format_name", TORCH)
@pytest.mark.parametrize("level", [3, 8, 12, 16])
def test_angles_are_a_matmul_of_two_rounded_factors(level, format_name):
    rounded = rounder(format_name)
    inverse = 10000.0 ** -(np.arange(0, 32, 2) / 32)
    position = 2.0**level + 1
    got = run("angles", level, format_name)
    assert got.exact.numpy() == pytest.approx(np.cos(position * inverse), abs=1e-9)
    angles = rounded(rounded(position) * rounded(inverse))
    with np.errstate(invalid="ignore"):
        want = rounded(np.cos(angles))
    if format_name == "FP16" and level == 16:
        assert np.isnan(want).all() and got.broken == 16
    else:
        # A product next to a tie falls either way: an angle may be one gap off.
        gap = 2 * GAPS[format_name] * np.abs(angles)
        assert (np.abs(got.computed.numpy() - want) <= gap + 2 * GAPS[format_name]).all()


@pytest.mark.parametrize("format_name", TORCH)
@pytest.mark.parametrize("level", [4, 8, 10])
def test_a_mean_has_a_rounded_sum_and_a_rounded_count(level, format_name):
    rounded = rounder(format_name)
    tokens = _tokens()[: 2**level + 1].double().numpy()
    got = run("mean", level, format_name)
    assert got.exact.numpy() == pytest.approx(tokens.mean(axis=0), rel=1e-12)
    want = rounded(rounded(tokens.sum(axis=0)) / rounded(len(tokens)))
    assert got.computed.numpy() == pytest.approx(want, rel=2 * GAPS[format_name])


def test_a_count_of_257_is_256_in_bf16_and_a_sum_overflows_in_fp16_alone():
    assert run("mean", 8, "BF16").error == pytest.approx(1 / 256, rel=0.3)
    assert run("mean", 8, "FP16").error < 1e-3
    assert run("mean", 14, "FP16").broken == 16
    assert all(run("mean", level, "BF16").holds for level in PARTS["mean"].levels)


# ---------------------------------------------------------------- what the repairs do


def test_eager_error_grows_with_the_scores_and_the_fused_one_does_not():
    eager, fused = (
        [run("attention", level, "BF16", *repairs).error for level in range(2, 9)]
        for repairs in ((), ("fused",))
    )
    assert eager == sorted(eager) and eager[-1] > 50 * eager[0]
    assert max(fused) < LIMIT


def test_qk_norm_bounds_the_scores_at_every_setting():
    for level in PARTS["attention"].levels:
        got = run("attention", level, "BF16", "qk_norm")
        assert got.held <= 8 and got.passes > 0.7
        # Scores of 4.8 have a gap of 1/32: alone it is not within the limit, in FP16 it is.
        assert LIMIT < got.error < 0.02
        assert run("attention", level, "FP16", "qk_norm").holds


def test_one_key_has_all_the_attention_in_float64_too():
    got = run("attention", 12, "BF16", "before")
    assert got.error < 1e-6 and got.passes < 1e-3 and got.passes_exact < 1e-3
    assert not got.holds
    assert "in float64 too" in rig(level=12, repairs={"before"}).describe()


@pytest.mark.parametrize("part", ["attention", "logits"])
def test_a_cap_over_large_values_looks_exact_and_passes_no_gradient(part):
    level = PARTS[part].levels[-1]
    got = run(part, level, "FP16", "cap")
    assert got.error < LIMIT and got.broken == 0
    assert got.passes == 0 and not got.holds


def test_what_passes_is_what_autograd_gives_the_scores():
    hidden, weight = _head()
    logits = (hidden @ weight.T)[0].double() + 4.0
    for cap in (None, 30.0):

        def weights(x, cap=cap):
            return (x if cap is None else cap * torch.tanh(x / cap)).softmax(0)

        jacobian = torch.autograd.functional.jacobian(weights, logits)
        got = run("logits", 2, "BF16", *(["cap"] if cap else []))
        assert got.passes_exact == pytest.approx(jacobian.trace().item(), rel=1e-9)


@pytest.mark.parametrize("part", ["angles", "logits", "mean"])
@pytest.mark.parametrize("format_name", TORCH)
def test_float_after_the_rounding_repairs_nothing(part, format_name):
    for level in PARTS[part].levels:
        late, plain = run(part, level, format_name, "after"), run(part, level, format_name)
        if plain.error > 2 * LIMIT:
            assert late.error == pytest.approx(plain.error, rel=0.2)
        assert late.broken == plain.broken


@pytest.mark.parametrize("part", PARTS)
def test_a_float32_matmul_is_exact_at_every_setting(part):
    for level in PARTS[part].levels:
        got = run(part, level, "FP16", "before")
        assert got.error < 3e-4 and got.wide


# ---------------------------------------------------------------- goals


@pytest.mark.parametrize("part", PARTS)
def test_a_goal_is_reached_by_the_fewest_repairs_and_by_no_more(part):
    level, format_name = PARTS[part].goal
    fewest = {
        "attention": [{"qk_norm", "fused"}, {"qk_norm", "before"}],
        "angles": [{"before"}],
        "logits": [{"before"}],
        "mean": [{"before"}],
    }[part]
    names = PARTS[part].repairs
    for count in range(len(names) + 1):
        for repairs in map(set, itertools.combinations(names, count)):
            if {"fused", "cap"} <= repairs:
                continue
            widget = rig(part, format_name=format_name, level=level, repairs=repairs)
            assert (part in widget.reached) == (repairs in fewest), repairs


def test_a_goal_asks_for_its_format_and_its_level():
    goals = {name: (2 ** part.goal[0] + part.more, part.goal[1]) for name, part in PARTS.items()}
    assert goals == {
        "attention": (4096, "BF16"),
        "angles": (65537, "BF16"),
        "logits": (256, "BF16"),
        "mean": (4097, "FP16"),
    }
    assert not rig("logits", format_name="FP16", level=8, repairs={"before"}).reached
    widget = rig("logits", level=7, repairs={"before"})
    assert not widget.reached
    widget.level = 9
    assert widget.reached == {"logits": "float32 matmul"}
    widget.level, widget.repairs = 0, set()  # what was reached stays
    assert [target["done"] for target in widget.numbers["targets"]] == [False, False, True, False]
    assert "Goal, reached: logits of the head in BF16" in widget.describe()


# ---------------------------------------------------------------- settings


def test_another_part_begins_at_its_own_level_without_repairs():
    widget = rig(level=14, repairs={"fused"})
    numbers = press(widget, part="logits")
    assert (widget.level, widget.repairs) == (0, set())
    assert numbers["levels"] == [0, 9] and numbers["value"] == "1"
    assert [name for name, _, on in numbers["repairs"]] == ["cap", "after", "before"]
    press(widget, part="attention")
    assert (widget.level, widget.repairs) == (2, set())


def test_what_the_page_asked_for_the_part_before_is_no_error():
    widget = rig("angles", level=17)
    press(widget, part="logits")
    assert press(widget, level=17)["level"] == 9
    assert press(widget, repair="fused")["seq"] == 3 and widget.repairs == set()
    press(widget, part="mean")
    assert press(widget, level=0)["level"] == 4


def test_fused_attention_and_the_cap_turn_each_other_off():
    widget = CrashRig()
    for repair, left in (
        ("fused", {"fused"}),
        ("qk_norm", {"fused", "qk_norm"}),
        ("cap", {"cap", "qk_norm"}),
        ("fused", {"fused", "qk_norm"}),
        ("fused", {"qk_norm"}),
    ):
        press(widget, repair=repair)
        assert widget.repairs == left
    with pytest.raises(TraitError, match="has no soft cap"):
        widget.repairs = {"fused", "cap"}


def test_settings_that_there_are_not_are_refused():
    widget = CrashRig()
    for name, wrong, says in (
        ("part", "experts", "experts"),
        ("level", 15, "attention takes 0 to 14"),
        ("format_name", "FP32", "FP32"),
        ("repairs", {"after"}, "attention takes qk_norm, fused, cap, before"),
        ("reached", {"mean": ""}, "read-only"),
    ):
        with pytest.raises(TraitError, match=says):
            setattr(widget, name, wrong)


# ---------------------------------------------------------------- words and heights


def test_the_words_say_what_the_picture_shows():
    widget = rig(level=8)
    words, numbers = widget.describe(), widget.numbers
    assert words.startswith("attention in BF16, largest score before repairs 256. Repairs: none.")
    for name in ("drawn", "verdict", "reading", "asked"):
        assert numbers[name] in words
    got = run("attention", 8, "BF16")
    place = (got.computed - got.exact).abs().argmax().item()
    assert f"value {place + 1}: {got.computed[place]:.3g} for {got.exact[place]:.3g}" in words
    assert "value 6: inf for" in rig("mean", format_name="FP16", level=11).describe()
    assert "BF16 has a gap of 2" in words
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == words == numbers["sentence"]


def test_what_overflows_has_a_name():
    numbers = rig("mean", format_name="FP16", level=11).numbers
    assert numbers["verdict"].startswith("11 of 16 values are inf or NaN")
    assert "overflows: FP16 ends at 65,504" in numbers["reading"]
    assert [bar["word"] for bar in numbers["bars"]] == [""] * 5 + ["inf"] * 11
    assert numbers["error"]["broken"] and numbers["scale"]["gap"] == 1
    numbers = rig("angles", format_name="FP16", level=17).numbers
    assert {bar["word"] for bar in numbers["bars"]} == {"NaN"}


def test_bars_are_values_over_the_largest_one():
    for part, level in (("attention", 8), ("angles", 9)):
        got, bars = run(part, level, "BF16"), rig(part, level=level).numbers["bars"]
        top = max(got.exact.abs().max(), got.computed.abs().max()).item()
        for name, values in (("exact", got.exact), ("computed", got.computed)):
            assert [bar[name] * top for bar in bars] == pytest.approx(values.tolist())
    assert rig("angles").numbers["signed"] and not rig().numbers["signed"]


def test_the_error_lies_on_a_log_axis():
    for level in (2, 8):
        error = rig(level=level).numbers["error"]
        assert error["at"] == pytest.approx(
            (math.log10(run("attention", level, "BF16").error) + 6) / 6
        )
        assert (error["at"] > error["limit"]) == (level == 8)
    exact = rig(level=14).numbers["error"]  # one key has it all
    assert exact["at"] == 0


def test_gap_and_difference_share_a_scale():
    scale = rig(level=8).numbers["scale"]
    assert scale["gap"] == 1
    assert scale["apart"] == pytest.approx(run("attention", 8, "BF16").apart / 2)
    scale = rig(level=8, repairs={"fused"}).numbers["scale"]
    assert scale["apart"] == 1 and "float32" in scale["gap_text"]
    scale = rig("angles", level=9).numbers["scale"]  # BF16 has a gap of 4 at 513 rad
    assert scale["gap"] == pytest.approx(4 / (2 * math.pi))


def test_the_table_keeps_the_last_settings_of_a_part():
    widget = rig()
    for level in (3, 4, 5, 6, 7, 8, 3):
        widget.level = level
    assert [row["setting"] for row in widget.numbers["rows"]] == [
        "16",
        "32",
        "64",
        "128",
        "256",
        "8",
    ]
    widget.part = "mean"
    assert [row["setting"] for row in widget.numbers["rows"]] == ["17"]


def test_what_crosses_to_the_page_is_json():
    for part in PARTS:
        widget = rig(part, format_name="FP16", level=PARTS[part].levels[-1])
        assert json.loads(json.dumps(widget.numbers, allow_nan=False)) == widget.numbers
