"""What lab 09 recorded is what the code gives, and shows what the lab says of it."""

from statistics import mean

import pytest

from labkit.labs.quantization.recorded import fine_tuning, quantization_record
from labkit.labs.quantization.weights import group_quantize, matrices, with_weights
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

RECORD = quantization_record()
LIMIT = 75_000
NOISE = 0.003
"""Bits a character: other processors round other sums, which moves codes that lie at a tie."""


def weights(**settings):
    (row,) = (r for r in RECORD["weights"] if all(r[k] == v for k, v in settings.items()))
    return row


def test_a_row_of_the_grid_is_computed_again():
    gpt, row = trained_gpt(), weights(bits=4, group=32, clip=True, method="nearest")
    rounded = {
        name: group_quantize(layer.weight, bits=4, group=32, clip=True)
        for name, layer in matrices(gpt).items()
    }
    # 112,964 parameters in all, of which the matrices hold 111,104.
    assert sum(each.nbytes for each in rounded.values()) + 4 * 1_860 == row["bytes"]
    bits = bits_per_character(with_weights(gpt, rounded), shakespeare_split()[1])
    assert bits - RECORD["bits_per_character"] == pytest.approx(row["gap"], abs=NOISE)


def test_the_gpt_fits_into_75_000_bytes_at_the_stated_loss():
    allowed = [row for row in RECORD["packings"] if row["bytes"] <= LIMIT]
    best = min(allowed, key=lambda row: row["gap"])
    assert best["method"] == "gptq" and best["clip"]
    assert best["gap"] < 0.05


def test_fewer_bits_cost_more_and_gptq_and_a_search_less():
    for group in ("row", 32):
        for clip in (False, True):
            by_bits = [
                weights(bits=b, group=group, method="nearest", clip=clip)["gap"] for b in (8, 4, 3)
            ]
            assert by_bits == sorted(by_bits)
            for bits in (4, 3):
                settings = {"bits": bits, "group": group}
                nearest = weights(**settings, method="nearest", clip=clip)["gap"]
                assert weights(**settings, method="gptq", clip=clip)["gap"] < nearest
    for bits in (4, 3):
        plain, cut = (
            weights(bits=bits, group="row", method="nearest", clip=c)["gap"] for c in (False, True)
        )
        assert cut < plain


def test_smoothing_helps_only_where_outliers_are():
    gaps = {
        (row["planted"], row["smoothed"]): row["gaps"]["minmax"]["8"]
        for row in RECORD["activations"]
    }
    assert all(abs(row["float32"]) < 1e-3 for row in RECORD["activations"])
    assert abs(gaps[1, True] - gaps[1, False]) < 0.001
    assert gaps[30, False] > 100 * gaps[30, True]
    assert gaps[30, True] == pytest.approx(gaps[1, True], abs=0.001)


def test_keys_are_better_a_token_until_one_channel_is_planted():
    plain, planted = RECORD["cache"]
    assert plain["gaps"]["k token"]["3"] < plain["gaps"]["k channel"]["3"]
    assert planted["gaps"]["k token"]["3"] > 10 * planted["gaps"]["k channel"]["3"]
    assert abs(planted["float32"]) < 1e-3


def test_digits_without_the_estimator_get_better_though_no_weight_moves():
    rows = RECORD["digits"]
    assert len(rows) >= 5
    for row in rows:
        assert abs(row["integers"] - row["float32"]) < 0.01
        assert row["moved_2_no_ste"] == 0 < row["moved_2_ste"]
        assert row["after_2"] < row["trained_2_no_ste"] < row["trained_2_ste"]


def test_adapters_learn_on_four_bits_what_they_learn_on_float32():
    runs = fine_tuning("capitals")
    assert all(len(run.bits) >= 5 for run in runs.values())
    assert all(len(seed) == len(run.steps) for run in runs.values() for seed in run.bits)
    last = {arm: mean(seed[-1] for seed in run.bits) for arm, run in runs.items()}
    first = {arm: mean(seed[0] for seed in run.bits) for arm, run in runs.items()}
    assert all(first[arm] - last[arm] > 3 for arm in runs)
    assert abs(last["adapters on 4 bits"] - last["adapters on FP32"]) < 0.2
    assert last["all weights, FP32"] < last["adapters on FP32"]


def test_adapters_win_back_a_part_of_what_rounding_cost():
    runs = fine_tuning("same text")
    for arm in ("adapters on 4 bits", "adapters on 3 bits"):
        assert all(seed[-1] < seed[0] for seed in runs[arm].bits)
