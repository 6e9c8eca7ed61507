"""T31: the least memory of all choices, and a greedy one near it on a planted GPT."""

import random
from itertools import product

import pytest
import torch

from labkit.labs.choosing_precision.allocation import memory, optimum, total, uniform
from labkit.labs.choosing_precision.sensitivity import (
    joint_kl,
    kl_by_bits,
    sizes,
    text_pieces,
)
from labkit.labs.choosing_precision.solutions import allocate
from labkit.labs.quantization.weights import plant_outliers
from labkit.training import trained_gpt

FINE, COARSE = (2, 3, 4, 5, 6, 7, 8), (2, 4, 8)


def instance(seed, menu):
    """Costs that fall with bits, some layers with a cliff; sizes from 10 to 3000."""
    draw = random.Random(seed)
    cost, size = {}, {}
    for layer in range(draw.randint(2, 5)):
        name, scale = f"layer{layer}", 10 ** draw.uniform(-2, 0)
        slope = draw.uniform(2, 5)
        cost[name] = {b: scale * slope ** -(b - 2) * draw.uniform(0.8, 1.2) for b in menu}
        if draw.random() < 0.3:
            cliff = draw.choice(menu)
            cost[name] = {b: c + scale * (b < cliff) for b, c in cost[name].items()}
        size[name] = round(10 ** draw.uniform(1, 3.5))
    least, most = (sum(pick(c.values()) for c in cost.values()) for pick in (min, max))
    return cost, size, least + (most - least) * 10 ** draw.uniform(-2.5, -0.3)


def exhaustive(cost, size, budget):
    choices = (dict(zip(cost, bits, strict=True)) for bits in product(*cost.values()))
    return min(memory(b, size) for b in choices if total(b, cost) <= budget)


@pytest.mark.parametrize("menu", [FINE, COARSE])
def test_the_optimum_is_the_least_memory_of_all_choices(menu):
    for seed in range(60):
        cost, size, budget = instance(seed, menu)
        bits = optimum(cost, size, budget)
        assert total(bits, cost) <= budget
        assert memory(bits, size) == exhaustive(cost, size, budget)


def test_the_optimum_of_equal_memory_costs_least():
    cost = {"a": {4: 0.2, 8: 0.0}, "b": {4: 0.1, 8: 0.0}}
    for order in (("a", "b"), ("b", "a")):
        found = optimum({name: cost[name] for name in order}, {"a": 1, "b": 1}, 0.25)
        assert found == {"a": 8, "b": 4}


@pytest.mark.parametrize(
    "cost, size, budget, says",
    [
        ({}, {}, 1.0, "at least one layer"),
        ({"a": {}}, {"a": 1}, 1.0, "one width"),
        ({"a": {8: 0.0}}, {"b": 1}, 1.0, "name the same"),
        ({"a": {8: float("nan")}}, {"a": 1}, 1.0, "NaN"),
        ({"a": {8: 0.5}}, {"a": 1}, 0.4, "least cost of any choice is 0.5"),
        ({"a": {8: 0.5}}, {"a": 1}, float("nan"), "budget"),
    ],
)
def test_what_has_no_answer_is_refused(cost, size, budget, says):
    with pytest.raises(ValueError, match=says):
        optimum(cost, size, budget)


# The course's GPT


def planted_gpt():
    """Two channels moved by 2**5 from a norm into the weights that read it."""
    gpt = trained_gpt()
    first, second = gpt.blocks
    plant_outliers(first.feed_forward_norm, first.feed_forward[0], [3], 2.0**-5)
    plant_outliers(second.attention_norm, second.qkv, [7], 2.0**-5)
    return gpt


def test_planted_channels_leave_the_function_as_it_was():
    x = text_pieces(4)
    with torch.no_grad():
        assert torch.allclose(planted_gpt()(x), trained_gpt()(x), atol=1e-5)


@pytest.mark.parametrize("budget", [0.02, 0.1])
@pytest.mark.seeds([0, 1])
def test_it_beats_one_width_for_all_on_a_planted_gpt(seed, budget):
    text, gpt = text_pieces(16, seed=seed), planted_gpt()
    size, cost = sizes(gpt), kl_by_bits(gpt, text)
    bits = allocate(cost, size, budget)
    assert memory(bits, size) < 0.9 * memory(uniform(cost, budget), size)
    assert memory(bits, size) <= 1.02 * memory(optimum(cost, size, budget), size)
    # Costs are measured one layer at a time, and added.
    assert joint_kl(gpt, text, bits) == pytest.approx(total(bits, cost), rel=0.25)
