"""Paired rounds: who runs when, what belongs to whom, and what quartiles are."""

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch

from labkit.measuring import throughput as measuring
from labkit.measuring.arms import quartiles, ratio, take_turns


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


@pytest.mark.parametrize("values", [[], [1.0, math.nan, 2.0], [math.nan]])
def test_no_values_or_a_nan_among_them_say_nothing(values):
    assert all(map(math.isnan, quartiles(values)))


def test_a_ratio_with_a_zero_says_nothing():
    assert ratio(1.0, 4.0) == 0.25
    assert math.isnan(ratio(0.0, 4.0)) and math.isnan(ratio(4.0, 0.0))


def test_at_each_size_the_fp32_product_runs_twice(monkeypatch):
    runs = Counter()

    def seconds(operation):
        """Matrices of 32 in fp32 take three times as long when they come again."""
        runs[operation] += 1
        return 3.0 if operation is large and runs[operation] % 2 == 0 else 1.0

    small, large, other, silent, alone = (
        measuring._Operation("matmul", dtype, size, 1.0, torch.device("cpu"), None)
        for dtype, size in (("fp32", 16), ("fp32", 32), ("bf16", 32), ("fp8", 32), ("int8", 64))
    )
    copied = measuring._Operation("copy", "fp32", 128, 1.0, torch.device("cpu"), None)
    running = [small, other, large, alone, copied]
    for operation in running:
        operation.call = print
    monkeypatch.setattr(measuring._Operation, "run", seconds)
    measuring._rounds([*running, silent], deadline=0.0, tick=lambda: None)
    assert runs == {small: 10, large: 10, other: 5, alone: 10, copied: 5}, "five rounds at least"
    assert large.timing().control == tuple({1.0: 3.0, 3.0: 1 / 3}[own] for own in large.seconds)
    assert small.timing().control == alone.timing().control == (1.0,) * 5
    assert other.again == copied.again == silent.again == silent.seconds == ()


def test_rounds_end_when_more_would_show_no_more(monkeypatch):
    operation = measuring._Operation("copy", "fp32", 128, 1.0, torch.device("cpu"), None)
    operation.call = print
    monkeypatch.setattr(measuring._Operation, "run", lambda operation: 1.0)
    measuring._rounds([operation], deadline=math.inf, tick=lambda: None)
    assert len(operation.seconds) == 200


def test_where_nothing_can_run_nothing_is_timed():
    operation = measuring._Operation("copy", "fp32", 128, 1.0, torch.device("cpu"), None)
    measuring._rounds([operation], deadline=math.inf, tick=lambda: None)
    assert operation.seconds == operation.again == ()
