"""S14 and S36: one typed alert for each fault, none on healthy runs, bounded, in float32."""

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
from labkit.labs.monitoring_and_debugging.monitor import (
    SKIPS,
    Baseline,
    Monitor,
    OpDtypes,
    gradient_norm,
)
from labkit.labs.monitoring_and_debugging.recorded import healthy_runs, healthy_steps, planted
from labkit.training import train
from labkit.training.data import batches, digits
from labkit.training.models import mlp

HEALTHY = [pytest.param(*key, id="-".join(map(str, key))) for key in [
    (network, i) for network, runs in healthy_steps().items() for i in range(len(runs))
]]  # fmt: skip


def watched(**metrics):
    """A monitor that saw these sequences, one value a step."""
    monitor = Monitor()
    for step, values in enumerate(zip(*metrics.values(), strict=True)):
        monitor.watch(step, **dict(zip(metrics, values, strict=True)))
    return monitor


def raised(monitor):
    return [(alert.kind, alert.step) for alert in monitor.alerts]


def decay(steps=500):
    """From 2.3 to 0.1 with noise of 2 %."""
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(steps)
    return list(np.geomspace(2.3, 0.1, steps) * noise)


def changed(values, at):
    return [at.get(step, value) for step, value in enumerate(values)]


# Faults and healthy runs


@pytest.mark.parametrize("network, run", HEALTHY)
def test_a_healthy_run_of_500_steps_raises_nothing(network, run):
    monitor = Monitor()
    for record in healthy_steps()[network][run]:
        monitor.see(record)
    assert raised(monitor) == []
    assert len(monitor.history("loss")) == 500


def test_a_loss_that_decays_raises_nothing():
    assert raised(watched(loss=decay())) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("metric", ["loss", "loss_scale", "accuracy"])
def test_a_value_that_is_not_finite_raises_one_alert_from_the_first_step_on(metric, bad):
    for step in (0, 7, 300):
        monitor = watched(**{metric: changed([1.0] * 400, {step: bad})})
        assert raised(monitor) == [("nonfinite", step)]
        assert str(bad) in monitor.alerts[0].text and metric in monitor.alerts[0].text


def test_a_run_that_stays_nan_raises_one_alert():
    nan_from_200 = changed(decay(), dict.fromkeys(range(200, 500), math.nan))
    norms = changed([1.0] * 500, dict.fromkeys(range(200, 500), math.nan))
    assert raised(watched(loss=nan_from_200, grad_norm=norms)) == [("nonfinite", 200)]


@pytest.mark.parametrize("network, run", HEALTHY)
def test_two_spikes_a_plateau_and_a_bad_value_raise_one_alert_each(network, run):
    losses, starts = planted(healthy_runs()[network][run], seed=run)
    alerts = watched(loss=losses).alerts
    assert tuple(alert.step for alert in alerts) == starts
    assert sorted(alert.kind for alert in alerts) == ["nonfinite", "spike", "spike", "spike"]


def test_a_large_spike_does_not_hide_the_next_one():
    losses = [1.0] * 500
    losses[200], losses[205] = 1000.0, 100.0
    assert raised(watched(loss=losses)) == [("spike", 200), ("spike", 205)]


def test_a_new_level_becomes_the_baseline_of_the_next_spike():
    losses = [1.0] * 60 + [5.0] * 100 + [500.0] + [5.0] * 10
    assert raised(watched(loss=losses)) == [("spike", 60), ("spike", 160)]


def test_the_limit_comes_from_the_values_before():
    losses = [1.0, 1.1] * 25
    (alert,) = watched(loss=[*losses, 1000.0]).alerts
    median, mad = np.median(losses), np.median(np.abs(losses - np.median(losses)))
    assert alert.limit == pytest.approx(median + max(6 * 1.4826 * mad, 1.0), rel=1e-9)
    assert alert.value == 1000.0


@pytest.mark.parametrize("loss, kinds", [(1.99, []), (2.01, ["spike"])])
def test_below_the_margin_nothing_is_a_spike(loss, kinds):
    assert [a.kind for a in watched(loss=[1.0] * 50 + [loss]).alerts] == kinds


def test_a_loss_that_falls_raises_nothing():
    assert raised(watched(loss=[5.0] * 100 + [0.1] * 100)) == []


def test_an_exploding_norm_raises_one_alert():
    for run in healthy_steps()["CNN"]:
        norms = [step.grad_norm for step in run]
        norms[300] = 1e6
        alerts = watched(grad_norm=norms, skipped=[step.skipped for step in run]).alerts
        assert [(a.kind, a.step) for a in alerts] == [("norm spike", 300)]
        assert 10 * np.median(norms[250:300]) < alerts[0].limit < 1e6


def test_a_norm_of_a_steady_run_may_grow_less_than_tenfold():
    steady = [1.0] * 60
    assert raised(watched(grad_norm=[*steady, 9.9])) == []
    assert raised(watched(grad_norm=[*steady, 10.1])) == [("norm spike", 60)]


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_is_no_spike_and_no_part_of_the_baseline(bad):
    norms = [1.0] * 60 + [bad] * 40 + [1.0] * 11 + [1e3]
    assert raised(watched(grad_norm=norms)) == [("nonfinite", 60), ("norm spike", 111)]


def test_absent_and_zero_gradients_are_two_kinds():
    assert raised(watched(grad_norm=[1.0, None, None, 1.0])) == [("no gradient", 1)]
    assert raised(watched(grad_norm=[1.0, 0.0, 0.0, 1.0])) == [("zero gradient", 1)]
    assert raised(watched(grad_norm=[0.0, 1.0, 0.0])) == [
        ("zero gradient", 0),
        ("zero gradient", 2),
    ]


def test_only_a_norm_whose_step_was_taken_must_be_finite():
    norms = [1.0, math.inf, 1.0, math.inf]
    assert raised(watched(grad_norm=norms, skipped=[False, True, False, False])) == [
        ("nonfinite", 3)
    ]


def test_a_streak_of_skips_raises_one_alert_and_calibration_none():
    calibration = [True] * SKIPS + [False] * 10
    assert raised(watched(skipped=calibration)) == []
    assert raised(watched(skipped=[True, True, False] * 40)) == []
    assert raised(watched(skipped=[False, *[True] * 40])) == [("skip streak", SKIPS + 1)]


def test_a_scale_below_one_raises_one_alert():
    scales = [2.0**power for power in range(16, -5, -1)]
    assert raised(watched(loss_scale=scales)) == [("scale collapse", 17)]


# What a real run hands over


def small_run(**arguments):
    data = digits()
    torch.manual_seed(0)
    model = mlp(64, 32, 10)
    loader = batches(data.train_images[:640], data.train_labels[:640], 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, train(model, loader, optimizer=optimizer, progress=False, **arguments)


def test_a_run_is_watched_as_it_was_recorded():
    monitor = Monitor()
    _, run = small_run(precision="fp16", on_step=monitor.see)
    for metric in ("loss", "grad_norm", "loss_scale", "skipped"):
        given = [(record.step, float(getattr(record, metric))) for record in run]
        assert monitor.history(metric) == tuple(given)
    assert monitor.history("accuracy") == ()


def test_the_norm_is_the_one_that_clipping_returns_after_unscale():
    model, _ = small_run()
    data = digits()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data.train_images), data.train_labels)
    true = nn.utils.get_total_norm(torch.autograd.grad(loss, model.parameters(), retain_graph=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    mine = gradient_norm(model.parameters())
    assert mine == nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert mine.item() == pytest.approx(true.item(), rel=1e-6)


def test_fp16_gradients_are_squared_in_float32():
    weight = nn.Parameter(torch.zeros(2000, dtype=torch.float16))
    weight.grad = torch.full_like(weight, 30_000)
    assert gradient_norm([weight]).item() == pytest.approx(30_000 * 2000**0.5, rel=1e-5)
    assert gradient_norm([nn.Parameter(torch.ones(3))]) is None


def test_what_ran_is_counted_by_the_dtype_of_its_output():
    model = mlp(64, 32, 10)
    with emulate_gpu(), torch.autocast("cpu", torch.float16), OpDtypes() as seen:
        nn.functional.cross_entropy(model(torch.rand(4, 64)), torch.zeros(4).long()).backward()
    assert seen.dtypes("addmm") == {"float16": 2}
    assert seen.dtypes("nll_loss_forward") == {"float32": 1}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


# Bounds


def test_tensors_are_taken_without_their_graph():
    monitor = Monitor()
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    with warnings.catch_warnings(action="error"):  # torch warns where a graph would be dropped
        monitor.watch(0, loss=loss, skipped=torch.tensor(False))
    graph = weakref.ref(loss)
    del loss
    gc.collect()
    assert graph() is None
    assert monitor.history("loss") == ((0, 6.0),)


def test_what_is_kept_is_bounded():
    monitor = Monitor(window=4, keep=10)
    for step in range(1000):
        monitor.watch(step, loss=math.nan if step % 2 else 1.0, grad_norm=1.0)
    assert monitor.history("loss")[-1][0] == 999
    assert [len(monitor.history(m)) for m in ("loss", "grad_norm")] == [10, 10]
    assert len(monitor.alerts) == 10 and monitor.alerts[-1].step == 999
    assert monitor.report().startswith("1000 steps")


def test_a_baseline_is_silent_until_it_is_full():
    baseline = Baseline(window=3, k=6.0, margin=1.0)
    limits = []
    for value in (5.0, 1.0, 2.0, 9.0):
        limits.append(baseline.limit())
        baseline.past.append(value)
    assert limits[:3] == [None] * 3
    assert limits[3] == pytest.approx(2 + 6 * 1.4826)


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


# Reports and refusals


def test_a_report_says_what_was_seen():
    assert "no data" in Monitor().report().lower()
    report = watched(
        loss=[2.0, math.nan, 1.5], loss_scale=[8.0, 4.0, 4.0], skipped=[True, False, False]
    ).report()
    for part in ("3 steps", "step 2", "last 1.5", "1.5 to 2", "4 to 8", "skipped steps: 1", "nan"):
        assert part in report


@pytest.mark.parametrize(
    "refused, sentence",
    [
        (lambda m: m.watch(6, los=1.0), "los.*loss, grad_norm"),
        (lambda m: m.watch(5, loss=1.0), "step 5 after step 5"),
        (lambda m: m.watch(4, loss=1.0), "step 4 after step 5"),
        (lambda m: m.watch(6, loss=torch.ones(2)), "2 values"),
        (lambda m: m.history("lss"), "lss"),
        (lambda m: Monitor(window=1), "window=1"),
        (lambda m: Monitor(keep=0), "keep=0"),
        (lambda m: Monitor(margin=math.nan), "margin=nan"),
    ],
)
def test_what_cannot_be_watched_is_refused(refused, sentence):
    monitor = watched(loss=[1.0] * 6)
    with pytest.raises(ValueError, match=sentence):
        refused(monitor)
    assert len(monitor.history("loss")) == 6
