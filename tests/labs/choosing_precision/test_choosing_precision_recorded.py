"""The recording of lab 12: five seeds of each, and what the lab says of them."""

import pytest
import torch

from labkit.labs.choosing_precision.allocation import memory, optimum, total, uniform
from labkit.labs.choosing_precision.recorded import (
    choosing_record,
    gains,
    mismatch_table,
    training_bits,
)
from labkit.labs.choosing_precision.rollouts import PAIRS, mismatch, policies
from labkit.labs.choosing_precision.sensitivity import kl_by_bits, sizes, text_pieces
from labkit.labs.choosing_precision.solutions import allocate
from labkit.measuring import verdict
from labkit.training import trained_gpt


def test_every_part_has_five_seeds_and_says_how_it_was_made():
    file = choosing_record()
    for key in ("what", "device", "torch", "date", "by"):
        assert file[key]
    runs = [*file["rollouts"].values(), *file["bits"].values(), *training_bits().values()]
    assert {len(each) for each in runs} == {5}
    assert set(file["rollouts"]) == set(PAIRS)


def test_autocast_trains_as_fp32_and_five_seeds_leave_pure_bf16_open_at_half_the_margin():
    def answer(precision, margin):
        return verdict(gains(precision), margin, control=gains("control")).answer

    for precision in ("bf16", "fp16"):
        assert answer(precision, 0.02) == answer(precision, 0.01) == "equivalent"
    assert answer("pure_bf16", 0.02) == "equivalent"
    assert answer("pure_bf16", 0.01) == "inconclusive"


def test_gains_are_above_0_where_bits_are_below_fp32_s():
    bits = training_bits()
    for gain, fp32, pure in zip(gains("pure_bf16"), bits["fp32"], bits["pure_bf16"], strict=True):
        assert (gain > 0) == (pure < fp32)
    assert gains("fp32") == (0.0,) * 5


def test_rollouts_are_recorded_as_they_are_measured():
    for engine in ("fp16", "bf16"):
        now, then = mismatch(engine, seed=1), choosing_record()["rollouts"][engine][1]
        assert now.mean_abs == pytest.approx(then["mean_abs"], rel=0.1)
    table = mismatch_table()
    assert list(table.index) == list(PAIRS)
    assert table.loc["e4m3", "trainer"] == "bf16 autocast"


@pytest.mark.parametrize("engine, seed", [("bf16", 0), ("e4m3", 1), ("e5m2", 2)])
def test_the_bias_of_the_gradient_is_autograd_s_over_all_tokens(engine, seed):
    policy, drawn = policies(engine, seed=seed)
    logits = policy.clone().requires_grad_()
    rewards = torch.randn(
        policy.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    gain = rewards - (policy.exp() * rewards).sum(-1, keepdim=True)

    def gradient(weights):
        log_p = logits.log_softmax(-1)
        return torch.autograd.grad((weights * gain * log_p).sum(), logits)[0]

    true, ratio = gradient(policy.exp()), (policy - drawn).exp()
    row = choosing_record()["rollouts"][engine][seed]
    for key, weight in (("bias", 1.0), ("bias_capped_at_2", ratio.clamp(max=2))):
        error = (gradient(drawn.exp() * weight) - true).norm() / true.norm()
        assert row[key] == pytest.approx(error.item(), rel=0.1, abs=1e-9)


def test_a_weight_capped_at_2_takes_most_of_the_bias_away():
    runs = choosing_record()["rollouts"]
    assert all(0.01 < run["bias"] < 0.03 for run in runs["bf16"])
    assert all(0.13 < run["bias"] < 0.16 for run in runs["e4m3"])
    assert all(0.01 <= run["bias_capped_at_2"] < 0.02 for run in runs["e4m3"])
    assert all(run["bias_capped_at_2"] < 0.25 * run["bias"] for of in runs.values() for run in of)


def test_bits_are_recorded_as_they_are_measured():
    gpt = trained_gpt()
    row = choosing_record()["bits"]["natural"][2]
    cost = kl_by_bits(gpt, text_pieces(16, seed=2), bits=(4,))
    for name, of in cost.items():
        assert of[4] == pytest.approx(row["costs"][name]["4"], rel=0.02)
    assert list(cost) == list(sizes(gpt))


@pytest.mark.parametrize("network", ["natural", "planted"])
@pytest.mark.parametrize("budget", [0.02, 0.1])
def test_recorded_searches_stay_within_the_budget_and_are_those_of_allocation(network, budget):
    size = sizes(trained_gpt())
    for row in choosing_record()["bits"][network]:
        cost = {name: {int(b): c for b, c in of.items()} for name, of in row["costs"].items()}
        found = row[f"{budget:g}"]
        for name, search in (("greedy", allocate), ("optimum", optimum)):
            bits = memory(search(cost, size, budget), size) / sum(size.values())
            # The recorded costs have four digits: a search may choose otherwise near the budget.
            assert bits == pytest.approx(found[name]["bits_per_weight"], rel=0.02)
        assert found["uniform"]["bits"] == list(uniform(cost, budget).values())
        for of in found.values():
            assert of["sum"] <= budget
            chosen = dict(zip(cost, of["bits"], strict=True))
            assert total(chosen, cost) == pytest.approx(of["sum"], rel=1e-3)
        assert found["optimum"]["bits_per_weight"] <= found["greedy"]["bits_per_weight"]
        assert found["greedy"]["bits_per_weight"] < 0.9 * found["uniform"]["bits_per_weight"]


def test_the_sum_is_near_the_joint_kl_at_a_small_budget_and_below_it_at_a_large_one():
    small = [row["0.02"]["greedy"] for rows in choosing_record()["bits"].values() for row in rows]
    large = [row["0.1"]["greedy"] for rows in choosing_record()["bits"].values() for row in rows]
    assert all(0.9 < of["measured"] / of["sum"] < 1.1 for of in small)
    assert all(1.05 < of["measured"] / of["sum"] < 1.3 for of in large)
