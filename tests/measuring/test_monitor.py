"""S14, S20 and S36: typed faults, none on healthy runs, each once where it begins, bounded."""

import gc
import math
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.monitoring_and_debugging.alarm_rules import limits, normal
from labkit.labs.monitoring_and_debugging.recorded import healthy_runs, healthy_steps, planted
from labkit.measuring import Monitor
from labkit.measuring.monitor import DIVERGENCE, METRICS, Baseline, OpDtypes
from labkit.training import StepRecord, cross_entropy, in_eval_mode, train
from labkit.training.data import batches, digits
from labkit.training.models import mlp
from labkit.training.scaling import LossScale

SKIPS = 16
AT = 100
STEPS = 135
RECORDED = [
    pytest.param(run, id=f"{network}-{i}")
    for network, runs in healthy_steps().items()
    for i, run in enumerate(runs)
]


def step(number, loss=1.0, grad_norm=1.0, loss_scale=1.0, skipped=False):
    return StepRecord(number, loss, grad_norm, loss_scale, skipped)


def found(records, **settings):
    """Kind and step of each fault; a loss may stand still."""
    monitor = Monitor(**{"stall": None} | settings)
    return [(fault.kind, fault.step) for record in records for fault in monitor.see(record)]


def of_losses(losses, **settings):
    return found([step(i, loss=loss) for i, loss in enumerate(losses)], **settings)


def of_norms(norms, **settings):
    return found([step(i, grad_norm=norm) for i, norm in enumerate(norms)], **settings)


def skipped(number, **changes):
    return step(number, grad_norm=math.inf, skipped=True, **{"loss_scale": 2.0**20} | changes)


def trained(
    precision, seed, spoil=lambda s: s, *, lr=3e-3, scale=None, validate=True, loss_fn=cross_entropy
):
    """The faults of a run on the digits: 135 batches of 32 images, validated every 15 steps."""
    data = digits()
    torch.manual_seed(seed)
    model = mlp(64, 32, 10)
    loader = batches(data.train_images, data.train_labels, 32, seed=seed)
    monitor = Monitor()

    def watch(record):
        monitor.see(record)
        if validate and record.step % 15 == 14:
            with in_eval_mode(model), torch.no_grad():
                loss = cross_entropy(model(data.test_images), data.test_labels).item()
            monitor.see_validation(record.step, loss)

    train(
        model,
        spoil([batch for _ in range(3) for batch in loader][:STEPS]),
        optimizer=torch.optim.Adam(model.parameters(), lr=lr),
        loss_fn=loss_fn,
        precision=precision,
        scaler=scale and LossScale(scale),
        on_step=watch,
        progress=False,
    )
    return [(fault.kind, fault.step) for fault in monitor.faults]


# Healthy runs


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_healthy_run_is_silent(precision, seed):
    assert trained(precision, seed) == []


@pytest.mark.parametrize("run", RECORDED)
def test_a_recorded_healthy_run_of_500_steps_is_silent(run):
    assert found(run, stall=100) == []


def test_a_loss_that_decays_or_falls_at_once_is_no_fault():
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(500)
    assert of_losses(np.geomspace(2.3, 0.1, 500) * noise) == []
    assert of_losses([5.0] * 100 + [0.1] * 100) == []


# Faults of a stated size, injected into runs


def with_inputs(change, count=1):
    def spoil(stream):
        return [
            (change(x), y) if AT <= i < AT + count else (x, y) for i, (x, y) in enumerate(stream)
        ]

    return spoil


@pytest.mark.seeds(range(3))
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(
    "spoil, expected",
    [
        (with_inputs(lambda x: x * math.nan), ("nonfinite", AT)),
        (with_inputs(lambda x: x * math.nan, count=10), ("nonfinite", AT)),
        # 255 times too large, raw pixels: the loss is 4.8 nats or more, the limit below 3.
        (with_inputs(lambda x: x * 255), ("loss spike", AT)),
    ],
    ids=["NaN batch", "10 NaN batches", "raw pixels"],
)
def test_a_spoilt_batch_is_a_fault_at_its_step(precision, seed, spoil, expected):
    first, *rest = trained(precision, seed, spoil, validate=False)
    assert first == expected
    # In BF16 the step is taken, and its gradients are too large as well.
    spikes = first[0] == "loss spike" and precision == "bf16"
    assert rest == ([("norm spike", AT)] if spikes else [])


@pytest.mark.seeds(range(3))
def test_a_scale_that_no_step_can_take_is_a_streak(seed):
    """2**40 overflows every gradient; 16 halvings leave it at 2**24, still too large."""
    assert trained("fp16", seed, scale=2.0**40, validate=False)[0] == ("skip streak", SKIPS)


@pytest.mark.seeds(range(3))
def test_gradients_beyond_fp16_collapse_the_scale(seed):
    """A loss that is a million times too large: gradients of 0.2 to 0.4 become 2e5 to 4e5.

    FP16 ends at 65504. From 4 the scale halves until it is 0.5 at step 3, and on to 0.25 or less.
    """
    faults = trained(
        "fp16", seed, scale=4.0, loss_fn=lambda *pair: 1e6 * cross_entropy(*pair), validate=False
    )
    assert faults == [("scale collapse", 3)]


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


@pytest.mark.parametrize("network, run", [(n, i) for n in healthy_runs() for i in range(10)])
def test_two_spikes_a_plateau_and_a_bad_value_are_one_fault_each(network, run):
    losses, starts = planted(healthy_runs()[network][run], seed=run)
    faults = of_losses(losses)
    assert tuple(at for _, at in faults) == starts
    assert sorted(kind for kind, _ in faults) == ["loss spike"] * 3 + ["nonfinite"]


def test_an_exploding_norm_is_one_fault():
    for run in healthy_steps()["CNN"]:
        records = [step(300, run[300].loss, 1e6) if s.step == 300 else s for s in run]
        assert found(records) == [("norm spike", 300)]


@pytest.mark.parametrize("asked, wrong", [("bfloat16", "float32"), ("float16", "bfloat16")])
def test_a_matmul_in_another_dtype_is_a_fallback(asked, wrong):
    monitor = Monitor()
    assert monitor.see_dtypes(3, asked=asked, seen={asked: 6, wrong: 0}) == ()
    (fault,) = monitor.see_dtypes(4, asked=asked, seen={asked: 5, wrong: 1})
    assert (fault.kind, fault.step) == ("dtype fallback", 4)
    assert f"1 of 6 in {wrong}" in fault.evidence


def test_what_ran_is_counted_by_the_dtype_of_its_output():
    model = mlp(64, 32, 10)
    with emulate_gpu(), torch.autocast("cpu", torch.float16), OpDtypes() as seen:
        nn.functional.cross_entropy(model(torch.rand(4, 64)), torch.zeros(4).long()).backward()
    assert seen.dtypes("addmm") == {"float16": 2}
    assert seen.dtypes("nll_loss_forward") == {"float32": 1}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


# What is missing


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_that_is_not_there_is_a_fault_and_no_exception(metric):
    whole = vars(step(5))
    left_out = {name: value for name, value in whole.items() if name != metric}
    for record in (left_out, whole | {metric: None}):
        (fault,) = Monitor().see(record)
        assert (fault.kind, fault.step) == ("missing", 5) and metric in fault.evidence
    assert Monitor().see(whole) == ()


def test_all_that_is_missing_is_named_and_a_record_without_a_step_follows_the_one_before():
    assert found([step(7), {}]) == [("missing", 8)] * len(METRICS)
    monitor = Monitor()
    (of_validation,) = monitor.see_validation(4, None)
    (of_dtypes,) = monitor.see_dtypes(4, asked="bfloat16", seen={})
    assert of_validation.kind == of_dtypes.kind == "missing"
    assert monitor.report().startswith("No data")


def test_absent_and_zero_gradients_are_two_kinds():
    assert of_norms([1.0, None, None, 1.0]) == [("missing", 1)]
    assert of_norms([0.0, 1.0, 0.0, 0.0]) == [("zero gradient", 0), ("zero gradient", 2)]


# Rules by hand


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite(bad):
    scaled = {"loss_scale": 1024.0}
    wrong = [
        step(0, loss=bad),
        step(0, loss_scale=bad),
        step(0, grad_norm=bad),
        step(0, grad_norm=bad, skipped=True),
        step(0, grad_norm=bad, **scaled),
    ]
    for record in wrong:
        assert found([record]) == [("nonfinite", 0)]
    assert found([step(0, grad_norm=bad, skipped=True, **scaled)]) == []
    falling = [step(i, grad_norm=bad, loss_scale=2.0 ** (1 - i), skipped=True) for i in range(2)]
    assert found(falling) == []  # a scaler that passes 1
    then_bf16 = [step(0, **scaled), step(1), step(2, grad_norm=bad, skipped=True)]
    assert found(then_bf16) == [("nonfinite", 2)]
    (fault,) = Monitor().see_validation(3, bad)
    assert (fault.kind, fault.step) == ("nonfinite", 3) and str(bad) in fault.evidence


def test_a_fault_is_reported_once_until_it_has_ended():
    assert of_losses([math.nan] * 5 + [1.0, math.nan]) == [("nonfinite", 0), ("nonfinite", 6)]


@pytest.mark.parametrize("loss, faults", [(1.99, []), (2.01, [("loss spike", 50)])])
def test_a_spike_lies_a_nat_above_the_median(loss, faults):
    assert of_losses([1.0] * 50 + [loss]) == faults


def test_a_noisy_loss_has_a_higher_limit():
    """1 and 3 by turns: median 2, MAD 1, so the limit is 2 + 6 * 1.4826 = 10.9."""
    assert of_losses([1.0, 3.0] * 25 + [10.8]) == []
    assert of_losses([1.0, 3.0] * 25 + [10.9]) == [("loss spike", 50)]


def test_one_spike_does_not_hide_the_next_and_a_new_level_becomes_the_baseline():
    assert of_losses([1.0] * 60 + [900.0, 1.0, 50.0]) == [("loss spike", 60), ("loss spike", 62)]
    plateau = [1.0] * 60 + [5.0] * 100 + [500.0]
    assert of_losses(plateau) == [("loss spike", 60), ("loss spike", 160)]


@pytest.mark.parametrize("network", ["MLP", "CNN", "GPT"])
def test_its_limits_are_those_of_the_widgets_median_rule(network):
    losses, _ = planted(healthy_runs()[network][0], seed=0)
    past = normal(losses, "median", window=50)
    theirs = limits(past, rule="median", window=50, k=6.0, margin=1.0)
    baseline, mine = Baseline(window=50, k=6.0, margin=1.0), []
    for loss in losses:
        limit = baseline.limit()
        mine.append(math.inf if limit is None else limit)
        if math.isfinite(loss):
            baseline.past.append(loss)
    assert theirs == pytest.approx(mine, rel=1e-9)


def test_a_norm_of_a_steady_run_may_grow_less_than_tenfold():
    assert of_norms([1.0] * 60 + [9.9]) == []
    assert of_norms([1.0] * 60 + [10.1]) == [("norm spike", 60)]
    bad_between = [1.0] * 60 + [math.nan] * 40 + [1.0] * 11 + [1e3]
    assert of_norms(bad_between) == [("nonfinite", 60), ("norm spike", 111)]


def test_skips_are_a_streak_from_the_seventeenth_on_and_one_fault():
    calibration = [skipped(i) for i in range(SKIPS)]
    assert found([*calibration, step(SKIPS)]) == []
    assert found([skipped(i) for i in range(40)]) == [("skip streak", SKIPS)]
    assert found([skipped(i) if i % 3 else step(i) for i in range(120)]) == []
    assert found([skipped(i) for i in range(5)], skips=3) == [("skip streak", 3)]


def test_a_scale_below_1_collapses():
    assert found([step(i, loss_scale=2.0 ** (2 - i)) for i in range(6)]) == [("scale collapse", 3)]


@pytest.mark.parametrize("last, faults", [(0.99, [("stall", 99)]), (0.97, [])])
def test_a_run_has_learnt_when_the_median_has_fallen_by_2_percent(last, faults):
    losses = [1.0] * 50 + [last] * 250
    assert of_losses(losses, stall=100) == faults
    assert of_losses(losses) == []


def test_what_has_learnt_may_stand_still():
    assert of_losses([2.0] * 50 + [1.0] * 100 + [1.99] * 850, stall=100) == []


def test_steps_that_were_not_taken_are_no_stall():
    records = [step(i) if i % 2 else skipped(i) for i in range(190)]
    assert found(records, stall=100) == []


def validated(losses, training):
    """Twenty steps at a training loss, then a validation, again and again."""
    monitor = Monitor(stall=None, window=20)
    for number, (loss, beside) in enumerate(zip(losses, training, strict=True), 1):
        for at in range(20 * (number - 1), 20 * number):
            monitor.see(step(at, loss=beside))
        monitor.see_validation(20 * number - 1, loss)
    return [(fault.kind, fault.step) for fault in monitor.faults]


FALLING = [1.0, 0.8, 0.6, 0.5, 0.4, 0.3]


def test_divergence_takes_three_validations_above_the_best_while_training_falls():
    far, near = 1 + 2 * DIVERGENCE, 1 + DIVERGENCE / 2
    assert validated([1.0, far, far, far, far, far], FALLING) == [("divergence", 79)]
    assert validated([1.0, near, near, near, near, near], FALLING) == []
    assert validated([1.0, far, far, 1.0, far, far], FALLING) == []
    assert validated([1.0, 0.5, 0.7, 0.7, 0.7, 0.7], FALLING) == [("divergence", 99)]
    assert validated([1.0, far, far, far, far, far], FALLING[::-1]) == []


# What a real run hands over


def test_a_run_is_watched_as_it_was_recorded_with_the_norm_that_clipping_returns():
    data = digits()
    torch.manual_seed(0)
    model, monitor = mlp(64, 32, 10), Monitor()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    stream = [(data.train_images[n : n + 64], data.train_labels[n : n + 64]) for n in (0, 64, 128)]
    run = train(model, stream, optimizer=sgd, precision="fp16", on_step=monitor.see, progress=False)
    for metric in METRICS:
        given = tuple((record.step, float(getattr(record, metric))) for record in run)
        assert monitor.history(metric) == given
    # train leaves the last step's gradients, unscaled.
    norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert monitor.history("grad_norm")[-1] == (2, norm.item())


def test_tensors_are_taken_without_their_graph():
    monitor = Monitor()
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    with warnings.catch_warnings(action="error"):  # torch warns where a graph would be dropped
        monitor.see(vars(step(0)) | {"loss": loss, "skipped": torch.tensor(False)})
    graph = weakref.ref(loss)
    del loss
    gc.collect()
    assert graph() is None
    assert monitor.history("loss") == ((0, 6.0),)
    with pytest.raises(ValueError, match="2 values"):
        monitor.see(vars(step(1)) | {"loss": torch.ones(2)})


def test_what_is_kept_is_bounded():
    monitor = Monitor(window=4, stall=None, keep=10)
    for number in range(1000):
        monitor.see(step(number, loss=math.nan if number % 2 else 1.0))
    assert monitor.history("loss")[-1][0] == 999
    assert [len(monitor.history(m)) for m in ("loss", "grad_norm")] == [10, 10]
    assert len(monitor.faults) == 10 and monitor.faults[-1].step == 999
    assert monitor.report().startswith("1000 steps")


def test_a_baseline_is_silent_until_it_is_full():
    baseline, silent = Baseline(window=3, k=6.0, margin=1.0), []
    for value in (5.0, 1.0, 2.0):
        silent.append(baseline.limit())
        baseline.past.append(value)
    assert silent == [None] * 3
    assert baseline.limit() == pytest.approx(2 + 6 * 1.4826)


def test_a_report_says_what_was_seen():
    monitor = Monitor()
    for record in (skipped(0, loss=2.0, loss_scale=8.0), step(1, loss=math.nan, loss_scale=4.0)):
        monitor.see(record)
    monitor.see(step(2, loss=1.5, loss_scale=4.0))
    monitor.see_validation(2, 1.75, accuracy=0.5)
    for part in (
        "3 steps", "step 2", "last 1.5", "1.5 to 2", "4 to 8", "skipped steps: 1", "faults: 1",
        "step 1, nonfinite: loss is nan", "validation_loss: last 1.75", "accuracy: last 0.5",
    ):  # fmt: skip
        assert part in monitor.report()


@pytest.mark.parametrize(
    "settings",
    [{"window": 1}, {"keep": 0}, {"skips": 0}, {"margin": math.nan}, {"k": -1.0}, {"stall": 99}],
)
def test_settings_that_make_no_rule_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Monitor(**settings)


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="lss"):
        Monitor().history("lss")
