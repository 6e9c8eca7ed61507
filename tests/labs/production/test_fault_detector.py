"""S20: typed faults, silent on healthy runs, each injected fault of a stated size named."""

import math

import pytest
import torch

from labkit.labs.monitoring_and_debugging.recorded import healthy_steps
from labkit.labs.production.faults import (
    DIVERGENCE,
    METRICS,
    SKIPS,
    Detector,
    Products,
    Validation,
)
from labkit.training import StepRecord, cross_entropy, in_eval_mode, train
from labkit.training.data import batches, digits
from labkit.training.models import mlp
from labkit.training.scaling import LossScale

AT = 60
STEPS = 135
HEALTHY = [(precision, seed) for precision in ("fp16", "bf16") for seed in range(10)]


def found(detector, records):
    return [(fault.kind, fault.step) for record in records for fault in detector.see(record)]


def step(number, loss=1.0, grad_norm=1.0, loss_scale=1.0, skipped=False):
    return StepRecord(number, loss, grad_norm, loss_scale, skipped)


def trained(
    precision, seed, spoil=lambda s: s, *, lr=3e-3, scale=None, validate=True, loss_fn=cross_entropy
):
    """The faults of a run on the digits: 135 batches of 32 images, validated every 15 steps."""
    data = digits()
    torch.manual_seed(seed)
    model = mlp(64, 32, 10)
    loader = batches(data.train_images, data.train_labels, 32, seed=seed)
    stream = spoil([batch for _ in range(3) for batch in loader][:STEPS])
    detector, faults = Detector(), []

    def watch(record):
        faults.extend(detector.see(record))
        if validate and record.step % 15 == 14:
            with in_eval_mode(model), torch.no_grad():
                loss = cross_entropy(model(data.test_images), data.test_labels).item()
            faults.extend(detector.see(Validation(step=record.step, loss=loss)))

    train(
        model,
        stream,
        optimizer=torch.optim.Adam(model.parameters(), lr=lr),
        loss_fn=loss_fn,
        precision=precision,
        scaler=scale and LossScale(scale),
        on_step=watch,
        progress=False,
    )
    return [(fault.kind, fault.step) for fault in faults]


# Healthy runs


@pytest.mark.parametrize("precision, seed", HEALTHY)
def test_a_healthy_run_is_silent(precision, seed):
    assert trained(precision, seed) == []


@pytest.mark.parametrize("network", ["MLP", "CNN", "GPT"])
def test_recorded_healthy_runs_of_500_steps_are_silent(network):
    for run in healthy_steps()[network]:
        assert found(Detector(), run) == []


# Injected faults, each of a stated size


def with_inputs(change, at=AT, count=1):
    def spoil(stream):
        return [
            (change(x), y) if at <= i < at + count else (x, y) for i, (x, y) in enumerate(stream)
        ]

    return spoil


@pytest.mark.seeds(range(3))
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(
    "spoil, expected",
    [
        (with_inputs(lambda x: x * math.nan), [("non-finite", AT)]),
        (with_inputs(lambda x: x * math.nan, count=10), [("non-finite", AT)]),
        # 255 times too large, raw pixels: the loss is tens of nats.
        (with_inputs(lambda x: x * 255), [("loss spike", AT)]),
    ],
    ids=["NaN batch", "10 NaN batches", "raw pixels"],
)
def test_a_spoilt_batch_is_one_fault_at_its_step(precision, seed, spoil, expected):
    faults = trained(precision, seed, spoil, validate=False)
    assert faults[: len(expected)] == expected
    assert {kind for kind, _ in faults} == {kind for kind, _ in expected}


@pytest.mark.seeds(range(3))
def test_a_scale_that_no_step_can_take_is_a_streak(seed):
    """2**40 overflows every gradient; 8 halvings leave it at 2**32, far too large."""
    faults = trained("fp16", seed, scale=2.0**40, validate=False)
    assert faults[0] == ("skip streak", SKIPS - 1)


@pytest.mark.seeds(range(3))
def test_gradients_beyond_fp16_collapse_the_scale(seed):
    """A loss that is a million times too large: gradients of 0.2 to 0.4 become 2e5 to 4e5.

    FP16 ends at 65504. From 4 the scale halves until it is 0.5 at step 3, and on to 0.25 or less.
    """
    faults = trained(
        "fp16", seed, scale=4.0, loss_fn=lambda *pair: 1e6 * cross_entropy(*pair), validate=False
    )
    assert faults[0] == ("scale collapse", 3)
    assert {kind for kind, _ in faults} == {"scale collapse"}


@pytest.mark.seeds(range(3))
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_run_that_takes_no_step_stalls(precision, seed):
    assert trained(precision, seed, lr=0.0) == [("stall", 99)]


@pytest.mark.seeds(range(5))
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_loader_that_repeats_mislabelled_batches_diverges(precision, seed):
    """64 images with their neighbours' labels, again and again: training falls, validation rises.

    It rises by more than a nat, where 0.1 is the limit.
    """

    def slipped(stream):
        return [(x, y.roll(1)) for x, y in stream[:2]] * (STEPS // 2)

    faults = trained(precision, seed, slipped, lr=1e-2)
    assert [kind for kind, _ in faults] == ["divergence"]


@pytest.mark.parametrize("asked, wrong", [("bfloat16", "float32"), ("float16", "bfloat16")])
def test_a_matmul_in_another_dtype_is_a_fallback(asked, wrong):
    detector = Detector()
    assert found(detector, [Products(step=3, asked=asked, seen={asked: 6, wrong: 0})]) == []
    (fault,) = detector.see(Products(step=4, asked=asked, seen={asked: 5, wrong: 1}))
    assert (fault.kind, fault.step) == ("dtype fallback", 4)
    assert f"1 of 6 in {wrong}" in fault.evidence


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_that_is_not_there_is_a_fault_and_no_exception(metric):
    whole = vars(step(5))
    left_out = {name: value for name, value in whole.items() if name != metric}
    for record in (left_out, whole | {metric: None}):
        (fault,) = Detector().see(record)
        assert (fault.kind, fault.step) == ("missing", 5) and metric in fault.evidence
    assert Detector().see(whole) == ()


def test_a_record_without_a_step_follows_the_one_before():
    records = [step(7), {"grad_norm": 1.0, "loss_scale": 1.0, "skipped": False}]
    assert found(Detector(), records) == [("missing", 8)]


def test_an_empty_record_names_all_that_is_missing():
    faults = Detector().see({})
    assert [fault.kind for fault in faults] == ["missing"] * len(METRICS)
    assert found(Detector(), [Validation(step=4, loss=None)]) == [("missing", 4)]
    assert found(Detector(), [Products(step=4, asked="bfloat16", seen={})]) == [("missing", 4)]


# Rules by hand


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite(bad):
    scaled = {"loss_scale": 1024.0}
    assert found(Detector(), [step(0, loss=bad)]) == [("non-finite", 0)]
    assert found(Detector(), [step(0, grad_norm=bad)]) == [("non-finite", 0)]
    assert found(Detector(), [step(0, grad_norm=bad, skipped=True)]) == [("non-finite", 0)]
    assert found(Detector(), [step(0, grad_norm=bad, **scaled)]) == [("non-finite", 0)]
    assert found(Detector(), [step(0, grad_norm=bad, skipped=True, **scaled)]) == []
    assert found(Detector(), [Validation(step=0, loss=bad)]) == [("non-finite", 0)]
    falling = [step(i, grad_norm=bad, loss_scale=2.0 ** (1 - i), skipped=True) for i in range(2)]
    assert found(Detector(), falling) == []  # a scaler that passes 1
    then_bf16 = [step(0, **scaled), step(1), step(2, grad_norm=bad, skipped=True)]
    assert found(Detector(), then_bf16) == [("non-finite", 2)]


@pytest.mark.parametrize("loss, faults", [(1.99, []), (2.01, [("loss spike", 20)])])
def test_a_spike_lies_a_nat_above_the_median(loss, faults):
    steady = [step(i) for i in range(20)]
    assert found(Detector(stall=None), [*steady, step(20, loss=loss)]) == faults


def test_a_noisy_loss_has_a_higher_limit():
    """1 and 3 by turns: median 2, MAD 1, so the limit is 2 + 8 * 1.4826 = 13.9."""
    noisy = [step(i, loss=1.0 + 2 * (i % 2)) for i in range(20)]
    assert found(Detector(stall=None), [*noisy, step(20, loss=13.8)]) == []
    assert found(Detector(stall=None), [*noisy, step(20, loss=13.9)]) == [("loss spike", 20)]


def test_one_spike_does_not_hide_the_next():
    losses = [1.0] * 20 + [900.0, 1.0, 50.0]
    records = [step(i, loss=loss) for i, loss in enumerate(losses)]
    assert found(Detector(), records) == [("loss spike", 20), ("loss spike", 22)]


def test_skips_are_a_streak_from_the_eighth_on_and_one_fault():
    def skipped(count):
        return [step(i, grad_norm=math.inf, loss_scale=2.0**20, skipped=True) for i in range(count)]

    assert found(Detector(), skipped(SKIPS - 1)) == []
    assert found(Detector(), skipped(SKIPS + 10)) == [("skip streak", SKIPS - 1)]
    assert found(Detector(skips=3), skipped(5)) == [("skip streak", 2)]


def test_a_scale_below_1_collapses():
    records = [step(i, loss_scale=2.0 ** (2 - i)) for i in range(6)]
    assert found(Detector(), records) == [("scale collapse", 3)]


@pytest.mark.parametrize("last, faults", [(0.99, [("stall", 99)]), (0.97, [])])
def test_a_run_has_learnt_when_the_median_has_fallen_by_2_percent(last, faults):
    records = [step(i, loss=1.0 if i < 50 else last) for i in range(300)]
    assert found(Detector(), records) == faults
    assert found(Detector(stall=None), records) == []


def test_what_has_learnt_may_stand_still():
    losses = [2.0] * 50 + [1.0] * 100 + [1.99] * 850
    assert found(Detector(), [step(i, loss=loss) for i, loss in enumerate(losses)]) == []


def test_steps_that_were_not_taken_are_no_stall():
    records = [
        step(i, grad_norm=math.inf, loss_scale=2.0**20, skipped=i % 2 == 0) for i in range(190)
    ]
    assert [kind for kind, _ in found(Detector(), records)].count("stall") == 0


def validated(losses, training):
    """Twenty steps at a training loss, then a validation, again and again."""
    detector, faults, number = Detector(stall=None), [], 0
    for loss, beside in zip(losses, training, strict=True):
        for _ in range(20):
            faults += found(detector, [step(number, loss=beside)])
            number += 1
        faults += found(detector, [Validation(step=number - 1, loss=loss)])
    return faults


FALLING = [1.0, 0.8, 0.6, 0.5, 0.4, 0.3]


def test_divergence_takes_three_validations_above_the_best_while_training_falls():
    far, near = 1 + 2 * DIVERGENCE, 1 + DIVERGENCE / 2
    assert validated([1.0, far, far, far, far, far], FALLING) == [("divergence", 79)]
    assert validated([1.0, near, near, near, near, near], FALLING) == []
    assert validated([1.0, far, far, 1.0, far, far], FALLING) == []
    assert validated([1.0, 0.5, 0.7, 0.7, 0.7, 0.7], FALLING) == [("divergence", 99)]
    assert validated([1.0, far, far, far, far, far], FALLING[::-1]) == []


def test_a_fault_is_reported_once_until_it_has_ended():
    detector = Detector()
    bad = [step(i, loss=math.nan) for i in range(5)]
    assert found(detector, bad) == [("non-finite", 0)]
    assert found(detector, [step(5)]) == []
    assert found(detector, [step(6, loss=math.nan)]) == [("non-finite", 6)]


def test_steps_that_a_nan_loss_skips_are_one_fault():
    records = [step(i, loss=math.nan, loss_scale=2.0**-i, skipped=True) for i in range(20)]
    assert found(Detector(), records) == [("non-finite", 0)]


def test_the_evidence_says_what_was_seen_and_what_was_allowed():
    detector = Detector()
    faults = [detector.see(step(i, loss=2.0)) for i in range(20)]
    assert not any(faults)
    (fault,) = detector.see(step(20, loss=123.4))
    assert fault.kind == "loss spike"
    assert "123.4" in fault.evidence and "3" in fault.evidence


@pytest.mark.parametrize(
    "settings", [{"window": 1}, {"skips": 0}, {"margin": 0.0}, {"margin": math.nan}, {"stall": 40}]
)
def test_settings_that_make_no_rule_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Detector(**settings)
