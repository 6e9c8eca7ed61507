"""Paired rounds: who runs when, what belongs to whom, and what quartiles and a spread are."""

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch

from labkit.measuring import throughput as measuring
from labkit.measuring.arms import quartiles, ratio, spread, take_turns


def turns(count, rounds, **settings):
    """The rounds of arms that give (who, when), and how often each turn was told."""
    ran, told = [], []

    def arm(who):
        def run():
            ran.append(who)
            return who, len(ran) - 1

        return run

    given = take_turns([arm(n) for n in range(count)], on_turn=lambda: told.append(1), **settings)
    return list(islice(given, rounds)), ran, len(told)


def test_a_round_runs_every_arm_once_and_gives_its_own_to_each():
    rounds, ran, told = turns(4, 12)
    assert told == len(ran) == 48
    for number, given in enumerate(rounds):
        assert [who for who, _ in given] == [0, 1, 2, 3]
        assert sorted(when for _, when in given) == list(range(4 * number, 4 * number + 4))


def test_orders_are_shuffled_anew_each_round_and_follow_from_the_seed():
    _, ran, _ = turns(4, 12, seed=1)
    assert len({tuple(ran[i : i + 4]) for i in range(0, 48, 4)}) > 3
    assert turns(4, 12, seed=1)[1] == ran != turns(4, 12, seed=2)[1]


def test_nothing_runs_before_a_round_is_asked_for():
    assert turns(3, 0) == ([], [], 0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_quartiles_are_those_of_numpy(count):
    values = np.random.default_rng(count).exponential(size=count)
    expected = np.quantile(values, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quartiles(values.tolist()), expected, rtol=1e-14)


def test_a_spread_is_the_whole_range_and_not_the_quartiles():
    assert spread([1.5, 0.5, 1.0, 1.25]) == (0.5, 1.125, 1.5)


@pytest.mark.parametrize("values", [[], [1.0, math.nan, 2.0], [math.nan]])
def test_no_values_or_a_nan_among_them_say_nothing(values):
    assert all(map(math.isnan, (*quartiles(values), *spread(values))))


def test_a_ratio_with_a_zero_says_nothing():
    assert ratio(1.0, 4.0) == 0.25
    assert math.isnan(ratio(0.0, 4.0)) and math.isnan(ratio(4.0, 0.0))


def test_the_control_of_measure_is_the_largest_fp32_product_over_itself(monkeypatch):
    runs = Counter()

    def seconds(operation):
        """That of matrices of 32 in fp32 takes three times as long when it comes again."""
        runs[operation] += 1
        assert operation in (small, large, other)
        return 3.0 if operation is large and runs[operation] % 2 == 0 else 1.0

    small, large, other, silent = (
        measuring._Operation("matmul", dtype, size, 1.0, torch.device("cpu"), None)
        for dtype, size in (("fp32", 16), ("fp32", 32), ("bf16", 32), ("fp8", 32))
    )
    for operation in (small, large, other):
        operation.call = print
    monkeypatch.setattr(measuring._Operation, "run", seconds)
    control = measuring._rounds([small, large, other, silent], deadline=0.0, tick=lambda: None)
    assert runs == {small: 3, large: 6, other: 3}
    assert small.seconds == other.seconds == (1.0, 1.0, 1.0) and silent.seconds == ()
    assert control == tuple({1.0: 3.0, 3.0: 1 / 3}[own] for own in large.seconds)


def test_where_nothing_can_run_there_is_no_control():
    assert measuring._rounds([], deadline=math.inf, tick=lambda: None) == ()
