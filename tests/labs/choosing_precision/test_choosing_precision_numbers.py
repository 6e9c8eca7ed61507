"""Numbers in the text of lab 12 that no cell prints, on several pieces of text and seeds."""

from math import exp

import pytest
import torch

from labkit.formats import BF16, FP16
from labkit.labs.choosing_precision.allocation import memory, total
from labkit.labs.choosing_precision.recorded import choosing_record, gains
from labkit.labs.choosing_precision.sensitivity import (
    analyse,
    joint_kl,
    kl_by_bits,
    round_weight,
    sizes,
    text_pieces,
)
from labkit.labs.choosing_precision.solutions import allocate
from labkit.labs.fp8_and_fp4.recorded import training_runs
from labkit.measuring import verdict
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

SEEDS = range(3)


@pytest.fixture(scope="module")
def gpt():
    return trained_gpt()


@pytest.fixture(scope="module")
def pieces():
    return [text_pieces(32, seed=seed, part="train") for seed in SEEDS]


@pytest.fixture(scope="module")
def costs(gpt, pieces):
    return [kl_by_bits(gpt, tokens) for tokens in pieces]


@pytest.mark.seeds(SEEDS)
def test_bf16_costs_64_times_as_much_as_fp16_and_a_ten_thousandth_of_a_nat(gpt, pieces, seed):
    rows = analyse(gpt, [pieces[seed]], formats=(FP16, BF16)).rows
    fp16, bf16 = (sum(row.kl for row in rows if row.format == fmt) for fmt in ("fp16", "bf16"))
    assert len(rows) == 2 * 9
    assert 58 < bf16 / fp16 < 70
    assert 0.00005 < bf16 < 0.00015


def test_each_matrix_loses_10_to_14_percent_at_four_bits(gpt):
    errors = []
    for name in sizes(gpt):
        weight = gpt.get_submodule(name).weight.detach()
        errors.append(((round_weight(weight, 4) - weight).norm() / weight.norm()).item())
    assert len(errors) == 11
    assert 0.095 < min(errors) < max(errors) < 0.145


@pytest.mark.seeds(SEEDS)
def test_the_token_embedding_costs_14_times_as_much_as_the_last_attentions_output(costs, seed):
    at_four = {name: kl[4] for name, kl in costs[seed].items()}
    assert max(at_four, key=at_four.get) == "token"
    assert min(at_four, key=at_four.get) == "blocks.1.attention_out"
    assert 12 < at_four["token"] / at_four["blocks.1.attention_out"] < 17


@pytest.mark.seeds(SEEDS)
def test_the_allocation_takes_less_than_five_bits_and_more_kl_than_the_sum(
    gpt, pieces, costs, seed
):
    cost, size = costs[seed], sizes(gpt)
    bits = allocate(cost, size, 0.05)
    assert 4.4 < memory(bits, size) / sum(size.values()) < 4.7
    assert joint_kl(gpt, pieces[seed], bits) > 1.02 * total(bits, cost)
    of_all = {b: sum(kl[b] for kl in cost.values()) for b in (4, 5)}
    assert of_all[5] < 0.05 < of_all[4]


def test_rollouts_of_five_seeds():
    runs = choosing_record()["rollouts"]
    means = {engine: [run["mean_abs"] for run in rows] for engine, rows in runs.items()}
    assert all(len(rows) == 5 for rows in runs.values())
    for fp16, bf16 in zip(means["fp16"], means["bf16"], strict=True):
        assert 7 < bf16 / fp16 < 9
    for run in runs["e4m3"]:
        assert 0.27 < run["outside"] < 0.31
        assert 0.08 < run["mean_abs"] < 0.095
        assert 0.65 < run["sequence_std"] < 0.8
        assert 0.13 < run["bias"] < 0.16
        assert 0.009 < run["bias_capped_at_2"] < 0.02
    assert exp(0.7) == pytest.approx(2.0, abs=0.05)
    assert min(run["k1"] for run in runs["bf16"]) < 0 < min(run["k3"] for run in runs["bf16"])


def test_the_pairs_of_the_margin():
    better = [-gap for gap in training_runs()["e4m3_tensorwise"].gaps]
    five, ten = verdict(better[:5], 0.02), verdict(better, 0.02)
    assert verdict(better[:2], 0.02).answer == ten.answer == "equivalent"
    assert five.answer == "inconclusive"
    assert (five.high - five.low) / 2 == pytest.approx(0.019, abs=5e-4)
    assert (ten.high - ten.low) / 2 == pytest.approx(0.011, abs=5e-4)


def test_training_in_bf16_is_equivalent_over_five_seeds():
    found = verdict(gains("bf16"), 0.02, control=gains("control"))
    assert len(found.pairs) == 5
    assert found.answer == "equivalent"


@pytest.mark.parametrize(
    ("margin", "share", "fine"), [(0.1, 0.9, True), (0.05, 0.9, False), (0.05, 0.6, True)]
)
def test_the_record_is_validated_or_stops_as_the_text_says(gpt, costs, margin, share, fine):
    small = trained_gpt()
    with torch.no_grad():
        for name, bits in allocate(costs[0], sizes(gpt), share * 0.05).items():
            weight = small.get_submodule(name).weight
            weight.copy_(round_weight(weight, bits))
    answers = []
    for text in shakespeare_split():
        parts = [text[i : i + 4_600] for i in range(0, 36_800, 4_600)]
        differences = [bits_per_character(gpt, p) - bits_per_character(small, p) for p in parts]
        answers.append(verdict(differences, margin).answer)
    assert [answer == "equivalent" for answer in answers] == [fine, fine]
