"""What lab 13 recorded is what the code gives, and shows what the lab says of it."""

import math
from statistics import mean

import pytest
import torch

from labkit.labs.real_models.attention import crash_run, small_gpt
from labkit.labs.real_models.library import loaded_run
from labkit.labs.real_models.recorded import (
    accuracies,
    crash_runs,
    loaded_runs,
    precision_table,
    ring_runs,
)


def test_a_crash_begins_as_it_is_recorded():
    found = crash_run(small_gpt(qk_norm=False, seed=3), precision="fp16", seed=3, steps=20)
    kept = crash_runs(3)["fp16"]
    assert found.losses == pytest.approx(kept.losses[:20], abs=0.02)  # other processors round


@pytest.mark.parametrize("seed", range(10))
def test_fp16_without_qk_norm_dies_on_each_seed_and_lives_with_it(seed):
    runs = crash_runs(seed)
    assert runs["fp16"].died == len(runs["fp16"].losses) < 150
    for arm in ("fp16 QK-norm", "fp32", "fp32 QK-norm", "fp16 at 0.03"):
        assert runs[arm].died is None and len(runs[arm].losses) == 150


def test_the_scores_grow_in_float32_too_and_its_loss_is_worse_than_with_the_norm():
    every = [crash_runs(seed) for seed in range(10)]
    assert min(runs["fp32"].largest_score for runs in every) > 3000
    assert round(every[0]["fp32"].largest_score, -3) == 36_000, "the run that the text quotes"
    for arm in ("fp16 QK-norm", "fp32 QK-norm"):
        assert max(runs[arm].largest_score for runs in every) <= math.sqrt(32) * 1.001
    gaps = [runs["fp32"].final_loss - runs["fp32 QK-norm"].final_loss for runs in every]
    assert mean(gaps) > 0.1


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("data", ["digits", "speeches"])
def test_16_bits_are_never_worse_by_the_margin(data, precision):
    found = accuracies(data)
    assert {len(each) for each in found.by_precision.values()} == {10}
    assert found.verdict(precision).answer != "worse"


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_resnet_reads_digits_as_well_in_16_bits(precision):
    assert mean(accuracies("digits").by_precision["fp32"]) > 0.97
    assert accuracies("digits").verdict(precision).answer == "equivalent"


def test_the_ring_is_learnt_on_each_seed_in_each_precision():
    for runs in ring_runs().values():
        assert len(runs) == 10
        for run in runs:
            assert run["blobs"]["float32"] == 8
            assert max(map(abs, run["mean"])) < 0.25
            assert all(abs(std - math.sqrt(2.01)) < 0.15 for std in run["std"])
            highest, last = run["accuracy"]
            assert 0.5 < last < highest


def test_the_bf16_average_stands_behind_the_float32_one():
    for runs in ring_runs().values():
        assert mean(run["blobs"]["bfloat16"] for run in runs) < 7


def test_a_checkpoint_in_bf16_trains_as_it_is_recorded():
    kept = loaded_runs()
    assert [run.parameters for run in kept["default"]] == ["bfloat16"] * 5
    assert max(run.moved for run in kept["default"]) < 0.5
    assert min(run.moved for run in kept["float32"]) > 0.99
    found = loaded_run(torch.float32, seed=1)
    assert found.moved == pytest.approx(kept["float32"][1].moved, abs=1e-3)


def test_the_table_has_the_means_and_the_verdicts():
    table = precision_table()
    assert list(table.columns) == ["fp32", "fp16", "bf16"] and len(table) == 3
    found = accuracies("digits")
    for precision in ("fp16", "bf16"):
        said = f"{mean(found.by_precision[precision]):.3f}, {found.verdict(precision).answer}"
        assert table.loc["ResNet: digits read", precision] == said
