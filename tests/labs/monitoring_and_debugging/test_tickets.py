"""T28: four tickets a seed, from symptom over test and cause to repair, each measured on a CPU."""

import re
from functools import cache

import pytest
import torch

from labkit.labs.detective.causes import CAUSES, NAN
from labkit.labs.monitoring_and_debugging.tickets import nan_case, tickets

KINDS = {"NaN", "worse accuracy", "out of memory", "slow"}
SEEDS = (0, 1, 3)  # both causes of worse accuracy are among them
drawn_once = cache(tickets)


@pytest.fixture(params=SEEDS)
def drawn(request):
    made = drawn_once(request.param)
    return request.param, {ticket.kind: ticket for ticket in made}, made


def test_each_kind_comes_once_with_all_its_parts(drawn):
    _, by_kind, made = drawn
    assert len(made) == 4 and set(by_kind) == KINDS
    for ticket in made:
        assert all([ticket.symptom, ticket.test, ticket.look(), ticket.cause, ticket.repair])
        assert ticket.cause not in ticket.symptom


def test_the_nan_is_a_case_of_the_detective_and_goes_with_its_cause(drawn):
    seed, by_kind, _ = drawn
    ticket, case = by_kind["NaN"], nan_case(seed)
    assert case.finding == NAN and case.verdict is None
    assert 13 * seed <= case.seed < 13 * (seed + 1)
    assert ticket.symptom == case.symptom
    (cause,) = (cause for cause in CAUSES.values() if cause.name.en == ticket.cause)
    assert NAN in cause.allows["symptom"] and ticket.repair == cause.advice.en
    assert ticket.measure(False) > 0
    assert ticket.measure(True) == 0
    with pytest.raises(ValueError, match="open"):
        case.losses(repaired=True)


def test_the_repair_brings_the_accuracy_of_fp32_back(drawn):
    _, by_kind, _ = drawn
    ticket = by_kind["worse accuracy"]
    reached, twin = (float(x) / 100 for x in re.findall(r"(\d+)%", ticket.symptom))
    broken, repaired = ticket.measure(False), ticket.measure(True)
    assert broken == pytest.approx(reached, abs=0.006)
    assert broken < twin - 0.15
    assert repaired == pytest.approx(twin, abs=0.03)


def test_the_look_at_worse_accuracy_shows_its_cause(drawn):
    _, by_kind, _ = drawn
    ticket = by_kind["worse accuracy"]
    if ticket.cause == CAUSES["bf16-stall"].name.en:
        assert "4 parameters are 16-bit" in ticket.look()
    else:
        assert ticket.cause == CAUSES["underflow"].name.en
        assert int(re.search(r"flushes (\d+)%", ticket.look())[1]) >= 10


def test_graphs_that_are_kept_grow_with_the_batches(drawn):
    _, by_kind, _ = drawn
    ticket = by_kind["out of memory"]
    kept = [
        float(size) * {"KiB": 2**10, "MiB": 2**20}[unit]
        for size, unit in re.findall(r"([\d.]+) (KiB|MiB)", ticket.look())
    ]
    assert len(kept) == 4
    assert [x / kept[0] for x in kept] == pytest.approx([1, 2, 3, 4], rel=1e-3)
    assert ticket.measure(False) == pytest.approx(8 * kept[0], rel=1e-3)
    assert ticket.measure(True) == 0


def test_a_step_that_waits_is_slower_by_its_launches(drawn):
    _, by_kind, _ = drawn
    ticket = by_kind["slow"]
    launched, kernels = map(int, re.match(r"(\d+) of (\d+)", ticket.look()).groups())
    assert launched == kernels - 1
    assert ticket.measure(False) == pytest.approx(kernels * 0.025)
    # Only the first launch is not hidden behind a kernel.
    assert ticket.measure(True) == pytest.approx(kernels * 0.015 + 0.010)


def test_a_seed_repeats_its_tickets_and_seeds_differ():
    torch.manual_seed(99)
    said = [[(t.kind, t.symptom, t.look()) for t in made] for made in (tickets(1), drawn_once(1))]
    assert said[0] == said[1]
    symptoms = {frozenset(t.symptom for t in drawn_once(seed)) for seed in SEEDS}
    assert len(symptoms) == len(SEEDS)
    assert len({tuple(ticket.kind for ticket in drawn_once(seed)) for seed in SEEDS}) > 1
    assert {t.cause for seed in SEEDS for t in drawn_once(seed)} >= {
        CAUSES["bf16-stall"].name.en, CAUSES["underflow"].name.en,
    }  # fmt: skip
