"""Lab 11's solutions beside other people's arithmetic, and the examples of its statements."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.monitoring_and_debugging.checks import check_layer_row, check_must_stay
from labkit.labs.monitoring_and_debugging.recorded import healthy_runs
from labkit.labs.monitoring_and_debugging.solutions import (
    FirstNonfinite,
    SpikeAlarm,
    layer_row,
    must_stay,
    tolerance,
)


def steps_by_pandas(losses, k, margin):
    """Steps of faults by rolling medians of the 50 losses before, all of them finite."""
    series = pd.Series(losses)
    median = series.rolling(50).median().shift(1)
    mad = series.rolling(50).apply(lambda x: np.median(np.abs(x - np.median(x)))).shift(1)
    fault = series - median > np.maximum(k * 1.4826 * mad, margin)
    return np.flatnonzero(fault & ~fault.shift(1, fill_value=False)).tolist()


@pytest.mark.parametrize("network", ["MLP", "CNN", "GPT"])
@pytest.mark.parametrize(("k", "margin"), [(6.0, 1.0), (3.0, 0.0)])
def test_the_alarm_rings_where_rolling_medians_do(network, k, margin):
    losses = healthy_runs()[network][0].copy()
    losses[[200, 205, 206, 300]] *= [1000, 100, 100, 10]
    alarm = SpikeAlarm(k=k, margin=margin)
    rung = [step for step, loss in enumerate(losses.tolist()) if alarm.see(loss) == "spike"]
    assert rung == steps_by_pandas(losses, k, margin)
    assert {200, 205} <= set(rung)


def test_the_example_of_the_alarm():
    alarm = SpikeAlarm(window=4)
    seen = [alarm.see(loss) for loss in (1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 1.0, math.nan)]
    assert seen == [None] * 4 + ["spike", None, None, "nonfinite"]


def test_the_example_of_the_row_and_its_tie():
    one = torch.tensor([4.0]), torch.tensor([2.0]), torch.tensor([-3.0]), 2.0
    assert layer_row(*one).tolist() == [1.5, 2, 1, 0]
    grad = torch.tensor([0.0, 2.0**-25, 2.0**-25 * 1.001, 1.0])
    lost = ((grad != 0) & (grad.half() == 0)).sum() / (grad != 0).sum()
    assert layer_row(torch.ones(4), torch.ones(4), grad, 1.0)[3] == lost == 1 / 3 * torch.ones(())


def test_the_norm_of_the_row_s_edge_case_is_beyond_fp16():
    grad = torch.full((2000,), 30_000.0).half()
    assert grad.norm() == math.inf
    norm = layer_row(torch.ones(1), torch.ones(1), grad, 1.0)[0].item()
    assert norm == pytest.approx(1.34e6, rel=1e-2)


def test_a_row_that_makes_tensors_elsewhere_is_told_so():
    def row_with_a_zero_of_its_own(weight, before, grad, scale):
        right = layer_row(weight, before, grad, scale)
        return torch.stack([*right[:3], right[3] + 0, torch.zeros(())])[:4]

    result = check_layer_row.result(row_with_a_zero_of_its_own)
    assert (result.status, result.misconceptions) == ("error", ())
    assert "On which device do you make tensors of your own?" in result.message


def test_the_example_of_the_first_operator():
    with FirstNonfinite() as mode:
        torch.zeros(1).log() - 1
    assert mode.found == "aten.log.default"


def test_the_first_operator_is_found_inside_and_outside_of_the_emulation():
    def logits():
        with torch.autocast("cpu", torch.float16):
            return (torch.full((2, 8), 100.0) @ torch.full((8, 3), 200.0)).float().log_softmax(-1)

    with emulate_gpu(), FirstNonfinite() as inside:
        logits()
    with FirstNonfinite() as outside, emulate_gpu():
        logits()
    assert inside.found == outside.found == "aten.mm.default"


def network_of(culprits):
    """`good` of a network with these culprits, and the sets that it was asked about."""
    asked = []

    def good(wide):
        asked.append(set(wide))
        return culprits <= set(wide)

    return good, asked


def test_every_set_of_up_to_three_culprits_among_nine_is_found():
    names = [f"layer{i}" for i in range(9)]
    for count in range(4):
        for culprits in map(set, combinations(names, count)):
            good, asked = network_of(culprits)
            assert must_stay(names, good) == culprits
            assert len(asked) <= count + 1 + count * 4, culprits


def test_two_culprits_among_48_take_fifteen_runs_at_most_and_34_are_allowed():
    names = [f"layer{i}" for i in range(48)]
    for pair in ({"layer30", "layer31"}, {"layer0", "layer47"}):
        good, asked = network_of(pair)
        assert must_stay(names, good) == pair
        assert len(asked) <= 15
    assert math.ceil(2 * 3 * math.log2(48)) == 34


def test_a_right_set_in_too_many_runs_is_told_both_numbers():
    def by_demoting(names, good):
        return {name for name in names if not good(set(names) - {name})}

    message = check_must_stay.result(by_demoting).message
    assert "your set is right, after 48 runs" in message and "at most 23" in message


@pytest.mark.seeds(range(3))
def test_two_orders_of_a_sum_stay_within_the_tolerance_and_a_fault_does_not(seed):
    draw = np.random.default_rng(seed)
    a, b = draw.standard_normal((2, 256)).astype(np.float32)
    allowed = tolerance(torch.from_numpy(a), torch.from_numpy(b))
    sums = []
    for _ in range(200):
        order = draw.permutation(256)
        sums.append(Fraction(float(np.add.accumulate(a[order] * b[order])[-1])))
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True))
    assert 0 < max(sums) - min(sums) <= allowed
    assert max(abs(one - exact) for one in sums) <= allowed / 2
    assert abs(a * b).max() > allowed, "a term that is left out lies outside"


def test_the_example_of_the_tolerance():
    allowed = tolerance(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, -4.0, 0.5]))
    assert allowed == pytest.approx(4.65e-6, rel=1e-3)
