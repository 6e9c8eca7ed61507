"""SensitivityMap without a browser: what a choice costs, both goals, and its words."""

import itertools
import json
import math
import re
from functools import partial

import pytest
from traitlets import TraitError

from labkit.labs.choosing_precision.allocation import optimum, total
from labkit.labs.choosing_precision.sensitivity import joint_kl, kl_by_bits, sizes, text_pieces
from labkit.labs.choosing_precision.solutions import allocate
from labkit.labs.choosing_precision.widget_sensitivity_map import SensitivityMap
from labkit.training import trained_gpt

BUDGET = 0.05
COST = {
    "embed": {2: 0.1, 4: 0.01, 8: 1e-4},
    "body": {2: 0.2, 4: 0.02, 8: 2e-4},
    "head": {2: 0.6, 4: 0.06, 8: 5e-4},
}
SIZE = {"embed": 1000, "body": 2000, "head": 1000}


def toy(budget: float = 0.05, *, factor: float = 1.2) -> SensitivityMap:
    """Measured together, a choice costs ``factor`` times the sum."""
    return SensitivityMap(COST, SIZE, lambda bits: factor * total(bits, COST), budget)


def press(widget: SensitivityMap, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def done(widget: SensitivityMap) -> list[bool]:
    return [target["done"] for target in widget.numbers["targets"]]


@pytest.fixture(scope="module")
def gpt():
    """Costs, sizes and the joint KL that the lab hands to the widget."""
    model, tokens = trained_gpt(), text_pieces(32, part="train")
    return kl_by_bits(model, tokens), sizes(model), partial(joint_kl, model, tokens)


# ---------------------------------------------------------------- on the trained GPT


def test_a_choice_by_the_sum_misses_the_measured_budget(gpt):
    cost, size, joint = gpt
    widget = SensitivityMap(*gpt, BUDGET)
    for chosen in (allocate(cost, size, BUDGET), optimum(cost, size, BUDGET)):
        assert total(chosen, cost) <= BUDGET < joint(chosen)
        widget.bits = chosen
        assert "above the budget of 0.05" in widget.describe()
    assert not widget.reached


def test_both_goals_are_reached_where_the_search_gets_a_smaller_budget(gpt):
    cost, size, joint = gpt
    widget = SensitivityMap(*gpt, BUDGET)
    assert set(widget.bits.values()) == {5} and done(widget) == [False, False]
    widget.bits = {**widget.bits, "blocks.1.attention_out": 4}
    assert done(widget) == [True, False]
    widget.bits = chosen = allocate(cost, size, 0.9 * BUDGET)
    assert joint(chosen) <= BUDGET
    assert done(widget) == [True, True] and widget.reached == chosen


def test_what_is_measured_is_all_matrices_at_once(gpt):
    cost, size, joint = gpt
    widget = SensitivityMap(*gpt, BUDGET)
    widget.bits = bits = {**widget.bits, "token": 3, "head": 8}
    row = widget.numbers["rows"][0]
    assert float(row["measured"]) == pytest.approx(joint(bits), rel=5e-3)
    assert float(row["alone"]) == pytest.approx(sum(cost[n][bits[n]] for n in bits), rel=5e-3)
    mean = sum(size[n] * bits[n] for n in bits) / sum(size.values())
    assert float(row["mean"]) == pytest.approx(mean, rel=5e-3)


# ---------------------------------------------------------------- goals


def every_choice():
    for widths in itertools.product((2, 4, 8), repeat=3):
        yield dict(zip(COST, widths, strict=True))


def used(bits) -> int:
    return sum(SIZE[name] * bits[name] for name in bits)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.2, 1.6])
def test_a_goal_is_reached_by_the_choices_that_it_asks_for_and_by_no_other(factor):
    least = min(used(bits) for bits in every_choice() if total(bits, COST) <= 0.05)
    for bits in every_choice():
        widget = toy(factor=factor)
        alike = used(widget.bits)
        widget.bits = bits
        first = factor * total(bits, COST) <= 0.05 and used(bits) < alike
        assert done(widget) == [first, first and used(bits) <= 1.01 * least], bits


def test_the_smallest_choice_within_the_budget_stays():
    widget = toy(factor=1.0)
    good, larger = {"embed": 4, "body": 4, "head": 8}, {"embed": 4, "body": 8, "head": 8}
    for bits in (good, larger, dict.fromkeys(COST, 2)):
        widget.bits = bits
    assert widget.reached == good
    row = widget.numbers["rows"][-1]
    assert row["what"] == "smallest so far" and row["mean"] == "5" and row["memory"] == "2.5 kB"
    assert "Goal, reached: A measured KL within the budget" in widget.describe()


def test_the_uniform_choice_is_the_first_that_measures_within_the_budget():
    for budget, factor, alike in ((0.1, 1.0, 4), (0.1, 1.2, 8), (0.11, 1.2, 4), (0.05, 0.5, 4)):
        assert set(toy(budget, factor=factor).bits.values()) == {alike}  # the sum at 4 is 0.09


# ---------------------------------------------------------------- settings


def test_a_request_does_what_it_asks():
    widget = toy()
    assert press(widget, layer="body")["layer"] == widget.layer == "body"
    shown = press(widget, layer="head", bits=1)
    assert (shown["seq"], shown["layer"], shown["bits_text"]) == (2, "head", "4 bits")
    assert widget.bits == {"embed": 8, "body": 8, "head": 4}
    press(widget, all=0)
    assert set(widget.bits.values()) == {2} and widget.layer == "head"


def test_what_is_not_possible_is_refused():
    widget = toy()
    for name, wrong, says in (
        ("bits", {"embed": 8}, "give each of embed, body, head one of 2, 4, 8"),
        ("bits", dict.fromkeys(COST, 3), "one of 2, 4, 8"),
        ("layer", "tail", "embed, body, head"),
        ("reached", {}, "read-only"),
    ):
        with pytest.raises(TraitError, match=says):
            setattr(widget, name, wrong)
    with pytest.raises(ValueError, match=r"budget=0.0009: 8 bits for all measure 0.00096"):
        toy(0.0009)
    with pytest.raises(ValueError, match="the least cost of any choice"):
        toy(0.0001)
    with pytest.raises(ValueError, match="name the same"):
        SensitivityMap(COST, {"embed": 1}, lambda bits: 0.0, 0.1)
    with pytest.raises(ValueError, match="give each layer the same"):
        SensitivityMap({**COST, "head": {4: 0.1, 8: 0.0}}, SIZE, lambda bits: 0.0, 0.1)


def test_a_choice_is_measured_once():
    asked = []
    widget = SensitivityMap(COST, SIZE, lambda bits: asked.append(dict(bits)) or 0.01, 0.05)
    for place in (0, 1, 0, 1):
        press(widget, layer="embed", bits=place)
    widget.layer = "body"
    assert len(asked) == len({tuple(bits.values()) for bits in asked})


# ---------------------------------------------------------------- words and heights


def test_the_words_say_what_the_picture_shows():
    widget = toy()
    widget.bits, widget.layer = {"embed": 4, "body": 8, "head": 2}, "body"
    words, numbers = widget.describe(), widget.numbers
    assert words.startswith(
        "2 body: 50 % of the weights, 8 bits, KL alone 0.0002. At 4 bits: +0.02 nats, saves 1 kB."
    )
    verdict = "Measured together 0.732 nats, above the budget of 0.05. 5.5 bits a weight, 31 % less"
    assert verdict in words
    assert "head: 1,000 weights, 2 bits, KL 0.6." in words
    for row in numbers["rows"]:
        for name in ("mean", "memory", "alone", "measured"):
            assert row[name] in words, name
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == words == numbers["sentence"]


def test_the_narrowest_layer_has_no_next_step():
    widget = toy()
    press(widget, layer="embed", bits=0)
    assert "At" not in widget.numbers["reading"]


def test_columns_are_as_wide_as_their_weights_and_as_high_as_their_logarithms():
    widget = toy()
    widget.bits = {"embed": 4, "body": 8, "head": 2}
    columns, decades = widget.numbers["columns"], widget.numbers["decades"]
    assert [column["edges"] for column in columns] == [[0, 0.25], [0.25, 0.75], [0.75, 1]]
    assert [text for _, text in decades] == ["1e-4", "0.001", "0.01", "0.1", "1"]
    places = {float(text): place for place, text in decades}
    decade = places[1.0] - places[0.1]
    for column, (name, bits) in zip(columns, widget.bits.items(), strict=True):
        height = places[1.0] + decade * math.log10(COST[name][bits])
        assert column["kl"] == pytest.approx(height)
        assert column["others"][(2, 4, 8).index(bits)] == column["kl"]
        assert (column["bits"], column["tall"]) == (bits, bits / 8)


def test_gauges_end_at_twice_the_budget_and_at_the_widest_choice():
    widget = toy()
    widget.bits = {"embed": 4, "body": 4, "head": 8}
    kl, used_memory = widget.numbers["gauges"]
    assert kl["at"] == pytest.approx(1.2 * 0.0305 / 0.1) and not kl["beyond"]
    assert used_memory["at"] == pytest.approx(20 / 32) and used_memory["mark"] == 1
    widget.bits = dict.fromkeys(COST, 2)
    assert widget.numbers["gauges"][0]["at"] == 1 and widget.numbers["gauges"][0]["beyond"]


def test_a_measured_nan_is_above_the_budget():
    measured = {8: 0.01}
    widget = SensitivityMap(
        COST, SIZE, lambda bits: measured.get(min(bits.values()), math.nan), BUDGET
    )
    widget.bits = {"embed": 4, "body": 8, "head": 8}
    assert not widget.reached and not widget.numbers["holds"]
    assert re.search(r"Measured together nan nats, above the budget", widget.describe())
    assert json.loads(json.dumps(widget.numbers, allow_nan=False)) == widget.numbers
