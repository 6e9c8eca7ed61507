"""The recording of lab 12: five seeds of each, and what the lab says of them."""

import pytest

from labkit.labs.choosing_precision.allocation import allocate, memory, optimum, total, uniform
from labkit.labs.choosing_precision.recorded import (
    MARGIN,
    allocation_table,
    gains,
    mismatch_table,
    record,
    training_bits,
    training_verdict,
)
from labkit.labs.choosing_precision.rollouts import PAIRS, mismatch
from labkit.labs.choosing_precision.sensitivity import kl_by_bits, sizes, text_pieces
from labkit.training import trained_gpt


def test_every_part_has_five_seeds_and_says_how_it_was_made():
    file = record()
    for key in ("what", "device", "torch", "date", "by"):
        assert file[key]
    runs = [*file["rollouts"].values(), *file["bits"].values(), *training_bits().values()]
    assert {len(each) for each in runs} == {5}
    assert set(file["rollouts"]) == set(PAIRS)


def test_autocast_trains_as_fp32_and_five_seeds_leave_pure_bf16_open_at_half_the_margin():
    for precision in ("bf16", "fp16"):
        for margin in (MARGIN, MARGIN / 2):
            assert training_verdict(precision, margin=margin).answer == "equivalent"
    assert training_verdict("pure_bf16").answer == "equivalent"
    assert training_verdict("pure_bf16", margin=MARGIN / 2).answer == "inconclusive"


def test_gains_are_above_0_where_bits_are_below_fp32_s():
    bits = training_bits()
    for gain, fp32, pure in zip(gains("pure_bf16"), bits["fp32"], bits["pure_bf16"], strict=True):
        assert (gain > 0) == (pure < fp32)
    assert gains("fp32") == [0.0] * 5


def test_rollouts_are_recorded_as_they_are_measured():
    for engine in ("fp16", "bf16"):
        now, then = mismatch(engine, seed=1), record()["rollouts"][engine][1]
        assert now.mean_abs == pytest.approx(then["mean_abs"], rel=0.1)
    table = mismatch_table()
    assert list(table.index) == list(PAIRS)
    assert table.loc["e4m3", "trainer"] == "bf16 autocast"


def test_bits_are_recorded_as_they_are_measured():
    gpt = trained_gpt()
    row = record()["bits"]["natural"][2]
    cost = kl_by_bits(gpt, text_pieces(16, seed=2), bits=(4,))
    for name, of in cost.items():
        assert of[4] == pytest.approx(row["costs"][name]["4"], rel=0.02)
    assert list(cost) == list(sizes(gpt))


@pytest.mark.parametrize("network", ["natural", "planted"])
@pytest.mark.parametrize("budget", [0.02, 0.1])
def test_recorded_searches_stay_within_the_budget_and_are_those_of_allocation(network, budget):
    size = sizes(trained_gpt())
    for row in record()["bits"][network]:
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
    small = [row["0.02"]["greedy"] for rows in record()["bits"].values() for row in rows]
    large = [row["0.1"]["greedy"] for rows in record()["bits"].values() for row in rows]
    assert all(0.9 < of["measured"] / of["sum"] < 1.1 for of in small)
    assert all(1.05 < of["measured"] / of["sum"] < 1.3 for of in large)
    table = allocation_table(0.1)
    assert table.loc["natural", ("greedy", "measured")] > 0.1
