"""What lab 17's text says about budgets, bytes and the recorded ladder of methods."""

import json
from itertools import pairwise

import pytest

from labkit.base.home import DATA
from labkit.labs.ship_it.packed import in_integers, nbytes, pack, total_bytes
from labkit.labs.ship_it.recorded import ladder_table
from labkit.labs.ship_it.scoring import BUDGETS
from labkit.labs.ship_it.variants import network

LADDER = json.loads((DATA / "emulated" / "ship_it.json").read_text(encoding="utf-8"))["ladder"]
METHODS = ["round to nearest", "clip search", "bits by sensitivity", "then distilled"]
LARGE, MIDDLE, SMALL = BUDGETS


def uniform(weights, bits, group):
    return {
        name: in_integers(w, bits=bits, group=group) if w.ndim == 2 else pack(w, "bf16")
        for name, w in weights.items()
    }


def kls(method, budget):
    return [seed[str(budget)][method]["sampled"] for seed in LADDER]


def test_each_doubling_of_the_kl_costs_a_third_of_a_budgets_points():
    for scale in BUDGETS.values():
        assert scale.none == pytest.approx(8 * scale.full)
        earned = [scale.earned(scale.full * 2**doublings) for doublings in range(4)]
        assert earned == pytest.approx([scale.share * left / 3 for left in (3, 2, 1, 0)])
    assert BUDGETS[MIDDLE].earned(0.08) == pytest.approx(0.4 / 3)


def test_the_widest_integers_for_all_matrices():
    weights = network(0)
    sizes = {
        (bits, group): total_bytes(uniform(weights, bits, group))
        for bits, group in ((8, None), (4, 32), (5, None), (3, None), (2, 32))
    }
    assert sizes[8, None] == 117_768 <= LARGE
    assert sizes[4, 32] <= MIDDLE < sizes[5, None]
    assert sizes[2, 32] <= SMALL < sizes[3, None] == 48_328
    qkv = weights["blocks.0.qkv.weight"]
    groups, rows = (in_integers(qkv, bits=4, group=group) for group in (32, None))
    codes = qkv.numel() // 2 + 8
    assert (nbytes(groups) - codes, nbytes(rows) - codes) == (768, 384)
    assert (8 * 768 / qkv.numel(), 8 * 384 / qkv.numel()) == (0.5, 0.25)


def test_five_networks_were_recorded_and_all_fit():
    assert len(LADDER) == 5
    for seed in LADDER:
        for budget in BUDGETS:
            assert list(seed[str(budget)]) == METHODS
            assert all(entry["bytes"] <= budget for entry in seed[str(budget)].values())


def test_no_method_is_best_everywhere():
    full = BUDGETS[LARGE].full
    assert max(kls("round to nearest", LARGE)) < full
    assert min(kls("then distilled", LARGE)) > max(kls("round to nearest", LARGE))
    for budget in (MIDDLE, SMALL):
        for one, better in pairwise(METHODS):
            pairs = zip(kls(one, budget), kls(better, budget), strict=True)
            assert all(after < before for before, after in pairs), (budget, better)
    assert min(kls("then distilled", MIDDLE)) > BUDGETS[MIDDLE].full, "points are left"


def test_the_table_has_a_row_a_method_and_the_points_it_earns():
    table = ladder_table()
    assert list(table.index) == METHODS
    assert list(table.columns) == [*(f"KL, {budget:,} bytes" for budget in BUDGETS), "points"]
    best = [
        100 * sum(scale.earned(kls("then distilled", budget)[at])
                  for budget, scale in BUDGETS.items())
        for at in range(len(LADDER))
    ]  # fmt: skip
    low, high = round(min(best)), round(max(best))
    assert table["points"]["then distilled"] == (f"{low} to {high}" if low < high else str(low))
