"""The recording of lab 15: how it was made, and what the lab says of it."""

import math
from statistics import stdev

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.labs.production.experiments import pairs_needed
from labkit.labs.production.flips import loss_changes
from labkit.labs.production.recorded import (
    designs_table,
    nan_batch_table,
    pairing,
    production_record,
    resumes_table,
    training_scores,
)
from labkit.measuring import verdict
from labkit.training import evaluate, train, trained_gpt
from labkit.training.data import batches, characters, digits, shakespeare, shakespeare_split
from labkit.training.models import mlp


def test_it_says_how_it_was_made_and_has_five_seeds_or_more():
    file = production_record()
    for key in ("what", "device", "torch", "date", "by"):
        assert file[key]
    runs = [*file["resumes"].values(), *file["nan_batch"].values(), *file["flips"].values()]
    assert {len(each) for each in runs} == {5}
    assert {len(each) for each in file["pairing"].values()} == {250}
    assert {len(each) for each in file["scores"].values()} == {12}


# Designs and pairs


def test_only_final_losses_of_several_runs_are_silent_on_a_a_and_see_a_broken_arm():
    phases, turns, steps, own, pairs = production_record()["designs"].values()
    assert phases["alike"] == phases["experiments"]
    assert turns["alike"] == turns["broken"] == 0
    assert 0.1 < steps["alike"] / steps["experiments"] < 0.25  # 5 % is what the test promises
    for design in (own, pairs):
        assert design["alike"] <= 0.1 * design["experiments"]
        assert design["broken"] == design["experiments"]
    table = designs_table()
    assert table.iloc[0].tolist() == ["250 of 250"] * 2
    assert table.iloc[1, 1] == "0 of 250"


def spread(shared):
    return stdev(b - a for a, b in zip(*pairing()[shared], strict=True))


def correlation(shared):
    return np.corrcoef(*pairing()[shared])[0, 1]


def test_the_order_of_the_data_pairs_two_runs_and_the_weights_alone_do_not():
    assert correlation("weights and order") > 0.95
    assert abs(correlation("weights")) < 0.2 and abs(correlation("nothing")) < 0.2
    assert correlation("weights and order") > correlation("order") > 0.3
    assert spread("weights and order") < 0.2 * spread("nothing")
    assert 0.8 < spread("weights") / spread("nothing") < 1.2
    assert pairs_needed(spread("weights and order"), 0.01) <= 6
    assert pairs_needed(spread("weights"), 0.01) > 150


def test_what_is_recorded_of_bf16_is_that_a_pair_shows_no_harm():
    losses = pairing()["weights and order"]
    gains = [fp32 - bf16 for fp32, bf16 in zip(*losses, strict=True)]
    assert verdict(gains, 0.002).answer == "equivalent"


# Scores


def differences(arm):
    scores = training_scores()
    return [scores[arm][seed] - score for seed, score in scores["fp32"].items()]


def test_bf16_may_ship_pure_bf16_may_not_and_survivors_hide_the_dead():
    assert verdict(differences("bf16"), 0.01, step=1 / 359).low > -0.01
    assert verdict(differences("pure bf16"), 0.01).high < -0.01
    fp16 = training_scores()["fp16, scale 200,000"]
    dead = [seed for seed, score in fp16.items() if math.isnan(score)]
    survivors = [gap for gap in differences("fp16, scale 200,000") if not math.isnan(gap)]
    assert len(dead) == len(survivors) == 6
    assert verdict(survivors, 0.01, step=1 / 359).answer == "equivalent"
    assert all(list(of) == list(range(12)) for of in training_scores().values())


# Resumes


def of(missing, key):
    return [run[key] for run in production_record()["resumes"][missing]]


def test_a_resume_that_misses_nothing_goes_on_to_the_bit():
    assert of("nothing", "first_other_loss") == [None] * 5
    assert of("nothing", "off") == of("nothing", "test_loss") == [0.0] * 5


def test_the_test_loss_does_not_tell_a_right_resume():
    for missing in ("optimizer", "schedule"):
        assert max(of(missing, "test_loss")) < -0.05  # lower is better
        assert min(of(missing, "off")) > 0.15
    assert min(of("scaler", "test_loss")) > 0.03 and min(of("scaler", "skips")) >= 3
    for missing in ("RNG", "data order"):
        assert all(abs(loss) < 0.02 for loss in of(missing, "test_loss"))
        assert min(of(missing, "off")) > 0.03
    assert of("growth counter", "off").count(0.0) == 2


def test_each_part_but_the_growth_counter_shows_in_the_losses_at_once():
    for missing in ("optimizer", "schedule", "scaler", "RNG", "data order"):
        assert max(of(missing, "first_other_loss")) <= 2


# Faults


def test_a_nan_batch_costs_fp16_one_step_and_bf16_the_run():
    found = production_record()["nan_batch"]
    assert all(not run["dead"] and run["skips"] == 1 for run in found["fp16"])
    assert all(run["dead"] for run in found["bf16"])


def test_a_nan_batch_is_recorded_as_it_is_measured():
    data, row = digits(), production_record()["nan_batch"]["fp16"][1]
    torch.manual_seed(1)
    model = mlp(64, 32, 10)
    loader = batches(data.train_images, data.train_labels, 32, seed=1)
    stream = [batch for _ in range(3) for batch in loader][:120]
    stream[60] = (stream[60][0] * math.nan, stream[60][1])
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    run = train(model, stream, optimizer=sgd, precision="fp16", progress=False)
    assert sum(step.skipped for step in run) == row["skips"]
    accuracy = evaluate(model, data.test_images, data.test_labels)
    assert accuracy == pytest.approx(row["accuracy"], abs=0.01)


def test_readers_that_check_no_sum_give_other_values_for_a_flipped_bit():
    found = {reader: of["flipped"] for reader, of in production_record()["files"].items()}
    for reader in ("torch.load", "torch.load, mmap", "safetensors"):
        assert found[reader]["other values"] > 0.9 * 300
    assert found["torch.distributed.checkpoint"]["other values"] > 50
    assert found["zipfile.testzip, torch.load"]["other values"] == 0
    assert all(of["cut"] == {"raised": 100, "other values": 0, "same values": 0}
               for of in production_record()["files"].values())  # fmt: skip


def shares(stored):
    """Of each seed, the share of flips that move the loss by more than 0.01, or to NaN."""
    found = []
    for one in production_record()["flips"][stored]:
        moved = [c is None or c > 0.01 for of in one.values() for c in of]
        found.append(sum(moved) / len(moved))
    return found


def test_three_or_four_flips_of_a_hundred_show_in_fp32_and_twice_as_many_in_bf16():
    assert all(0.02 < share < 0.05 for share in shares("FP32"))
    assert all(0.05 < share < 0.10 for share in shares("BF16"))
    for seed in production_record()["flips"]["FP32"]:
        seen = {int(bit) for bit, of in seed.items() if any(c is None or c > 0.01 for c in of)}
        assert 30 in seen and len(seen) <= 4  # the highest bit of the exponent


def test_flips_are_recorded_as_they_are_measured():
    tokens = characters(shakespeare()).encode(shakespeare_split()[1]).unfold(0, 65, 64)[:24]
    now = loss_changes(trained_gpt(), tokens, seed=3, dtype=torch.bfloat16)
    for bit, of in production_record()["flips"]["BF16"][3].items():
        for was, change in zip(of, now[int(bit)], strict=True):
            if was is None:
                assert math.isinf(change)
            else:
                assert change == pytest.approx(was, rel=0.1, abs=1e-5)


@pytest.mark.parametrize("table, rows", [
    (designs_table, 5), (resumes_table, 7), (nan_batch_table, 2),
])  # fmt: skip
def test_tables_have_a_row_for_each(table, rows):
    found = table()
    assert isinstance(found, pd.DataFrame) and len(found) == rows and not found.isna().any().any()
