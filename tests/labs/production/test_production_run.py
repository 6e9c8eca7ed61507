"""S18: a run whose recipe is applied, that survives a kill to the bit, and that answers faults."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from labkit.devices import Description, device_of
from labkit.labs.choosing_precision.selector import select
from labkit.labs.memory_and_many_gpus.plan import plan_memory
from labkit.labs.monitoring_and_debugging.monitor import Monitor
from labkit.labs.production.data_order import DataOrder, LoaderFailed
from labkit.labs.production.faults import Detector
from labkit.labs.production.injections import FIVE_FAULTS, Injection
from labkit.labs.production.respond import Plan
from labkit.labs.production.run import Recipe, run
from labkit.labs.production.solutions import Checkpoints, respond
from labkit.training.data import batches, digits

A100 = device_of(Description(name="A100", kind="cuda", capability="8.0"))
DIGITS = digits()
EPOCH = 45
"""Batches of 32 in 1,438 images; the last has 30."""
RECIPE = Recipe(precision="fp16", micro_batch=32, clip=1.0)


def network(dropout=0.1, seed=0):
    torch.manual_seed(seed)
    layers = (nn.Flatten(), nn.Linear(64, 32), nn.SiLU(), nn.Dropout(dropout), nn.Linear(32, 10))
    return nn.Sequential(*layers)


def ran(folder, *, recipe=RECIPE, epochs=1, dropout=0.1, answer=respond, loader=None, **settings):
    """A run on digits: its record and its weights in a row."""
    Path(folder).mkdir(exist_ok=True)
    model = network(dropout)
    record = run(
        model,
        loader or batches(DIGITS.train_images, DIGITS.train_labels, 32, seed=1),
        (DIGITS.test_images, DIGITS.test_labels),
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
        recipe=recipe,
        respond=answer,
        checkpoints=Checkpoints,
        folder=folder,
        epochs=epochs,
        **settings,
    )
    return record, torch.cat([p.detach().flatten() for p in model.parameters()])


def injected(kind, step, **settings):
    return (Injection(kind=kind, step=step, **settings),)


# ------------------------------------------------------------ the recipe is applied


def test_selector_memory_plan_monitor_detector_and_policy_train_digits_together(tmp_path):
    """The strategy of lab 12, the micro-batches of lab 07, the monitor of lab 11."""
    strategy = select(A100, network())
    loader = batches(DIGITS.train_images, DIGITS.train_labels, 256, seed=1)
    batch = torch.zeros(256, 64), DIGITS.train_labels[:256]
    parts = plan_memory(160 * 1024, network(), batch).settings.micro_batches
    assert parts > 1
    recipe = Recipe(precision=strategy.name, micro_batch=256 // parts, accumulate=parts)
    monitor = Monitor()
    watched = {"detector": Detector(), "on_step": monitor.see}
    record, _ = ran(tmp_path, recipe=recipe, epochs=20, loader=loader, **watched)
    assert record.recipes == ((0, recipe),) and recipe.precision == "bf16"
    assert record.dtypes_seen == {"bf16": ("bfloat16",)}
    assert len(monitor.history("loss")) == len(record.steps) == 20 * len(loader)
    assert not monitor.alerts and not record.alerts and not record.stopped
    assert [m.step for m in record.metrics] == [n * len(loader) for n in range(1, 21)]
    assert record.metrics[-1].accuracy > 0.9 > record.metrics[0].accuracy
    assert record.metrics[-1].loss < record.metrics[0].loss


@pytest.mark.parametrize(
    ("precision", "dtype", "scale"),
    [("fp16", "float16", 65536), ("bf16", "bfloat16", 1), ("fp32", "float32", 1)],
)
def test_layers_compute_in_the_precision_and_only_fp16_scales_its_loss(
    precision, dtype, scale, tmp_path
):
    record, weights = ran(tmp_path, recipe=replace(RECIPE, precision=precision))
    assert record.dtypes_seen == {precision: (dtype,)}
    assert {step.loss_scale for step in record.steps} == {scale}
    assert weights.dtype == torch.float32


def test_gradients_are_clipped(tmp_path):
    def moved(clip):
        model = network(0)
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        folder = tmp_path / str(clip)
        folder.mkdir()
        run(
            model,
            [(DIGITS.train_images[:32], DIGITS.train_labels[:32])],
            (DIGITS.test_images, DIGITS.test_labels),
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            recipe=Recipe(precision="fp16", micro_batch=32, clip=clip),
            respond=respond,
            checkpoints=Checkpoints,
            folder=folder,
        )
        return (torch.cat([p.detach().flatten() for p in model.parameters()]) - before).norm()

    free = moved(None)
    assert free > 0.1
    assert moved(0.01).item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("micro_batch", "accumulate"), [(8, 4), (5, 7), (1, 32)])
def test_k_micro_batches_are_one_batch_and_so_is_the_smaller_last_one(
    micro_batch, accumulate, tmp_path
):
    recipe = Recipe(precision="fp32", micro_batch=micro_batch, accumulate=accumulate)
    loader = [
        (DIGITS.train_images[n : n + 32], DIGITS.train_labels[n : n + 32]) for n in (0, 32, 64)
    ]
    loader.append((DIGITS.train_images[96:109], DIGITS.train_labels[96:109]))
    _, parts = ran(tmp_path / "parts", recipe=recipe, loader=loader, dropout=0.0)
    whole = replace(recipe, micro_batch=32, accumulate=1)
    _, one = ran(tmp_path / "one", recipe=whole, loader=loader, dropout=0.0)
    assert (parts - one).abs().max() < 1e-6


# ------------------------------------------------------------ kill and resume


class Killed(Exception):
    pass


def killed_after(steps):
    def count(record):
        if record.step == steps - 1:
            raise Killed

    return count


@pytest.mark.parametrize("steps", [1, 10, 33, EPOCH, EPOCH + 1, 2 * EPOCH - 1])
def test_a_run_that_was_stopped_anywhere_ends_at_the_same_bits(steps, tmp_path):
    whole, bits = ran(tmp_path / "whole", epochs=2)
    with pytest.raises(Killed):
        ran(tmp_path / "stopped", epochs=2, on_step=killed_after(steps))
    torch.manual_seed(99)  # another process has another random state
    rest, found = ran(tmp_path / "stopped", epochs=2)
    assert rest.resumed_from == (steps - 1) // 10 * 10 if steps <= EPOCH else EPOCH
    assert torch.equal(found, bits)
    assert rest.steps == whole.steps[rest.resumed_from :]
    assert rest.metrics[-1] == whole.metrics[-1]


def test_a_process_that_is_killed_goes_on_at_the_same_bits(tmp_path):
    here = str(Path(__file__).parent)
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_production_run import ran\n"
        "def kill(record):\n"
        "    if record.step == 33: os.kill(os.getpid(), signal.SIGKILL)\n"
        "ran(sys.argv[2], epochs=2, on_step=kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, here, str(tmp_path / "killed")])
    assert done.returncode == -signal.SIGKILL
    rest, found = ran(tmp_path / "killed", epochs=2)
    assert rest.resumed_from == 30
    assert torch.equal(found, ran(tmp_path / "whole", epochs=2)[1])


def test_a_run_that_is_done_has_nothing_left_to_do(tmp_path):
    _, weights = ran(tmp_path)
    again, same = ran(tmp_path)
    assert not again.steps and again.resumed_from == EPOCH and torch.equal(weights, same)


def test_the_plan_of_the_checkpoint_goes_on(tmp_path):
    ran(tmp_path, faults=injected("out of memory", 3, fits=8))
    again, _ = ran(tmp_path, epochs=2)
    assert again.recipes[0] == (EPOCH, replace(RECIPE, micro_batch=8, accumulate=4))


def test_an_order_that_cannot_be_brought_back_is_refused():
    data = list(zip(DIGITS.train_images, DIGITS.train_labels, strict=True))
    with pytest.raises(ValueError, match="generator"):
        DataOrder(DataLoader(data, batch_size=32, shuffle=True))
    with pytest.raises(ValueError, match="read once"):
        DataOrder(iter([1, 2]))


# ------------------------------------------------------------ faults


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_a_nan_batch_is_one_skipped_step_and_leaves_no_trace(precision, tmp_path):
    recipe = replace(RECIPE, precision=precision)
    record, weights = ran(
        tmp_path / "nan", recipe=recipe, detector=Detector(), faults=injected("NaN batch", 12)
    )
    assert record.skips == 1 and record.steps[12].skipped and not record.rollbacks
    assert [(alert.kind, alert.step) for alert in record.alerts] == [("non-finite", 12)]
    assert weights.isfinite().all() and record.metrics[-1].accuracy > 0.5
    # The same run up to there, and the step itself has changed no weight.
    clean, _ = ran(tmp_path / "clean", recipe=recipe)
    assert record.steps[:12] == clean.steps[:12]


def test_a_streak_in_fp16_rolls_back_to_the_last_good_checkpoint_one_format_up(tmp_path):
    record, weights = ran(tmp_path, faults=injected("large batch", 24, steps=3))
    assert record.rollbacks == ((27, 20),)
    assert record.recipes == ((0, RECIPE), (20, replace(RECIPE, precision="bf16")))
    assert record.dtypes_seen == {"fp16": ("float16",), "bf16": ("bfloat16",)}
    # The same batches are finite in BF16.
    assert [step.step for step in record.steps if step.skipped] == [24, 25, 26]
    assert record.skips == 3 and len(record.steps) == EPOCH + 7
    assert weights.isfinite().all() and not record.stopped


def test_a_streak_that_no_format_heals_saves_and_stops(tmp_path):
    record, weights = ran(tmp_path / "nan", faults=injected("NaN batch", 24, steps=3))
    assert [recipe.precision for _, recipe in record.recipes] == ["fp16", "bf16", "fp32"]
    assert record.rollbacks == ((27, 20), (27, 20)) and record.skips == 9
    assert record.stopped == "non-finite"
    # Who finds out what the batches were may go on behind them.
    rest, _ = ran(tmp_path / "nan")
    assert rest.resumed_from == 27 and not rest.stopped and not rest.skips
    assert weights.isfinite().all()


def test_a_checkpoint_inside_a_streak_is_not_the_last_good_one(tmp_path):
    record, _ = ran(tmp_path, faults=injected("large batch", 18, steps=3))
    assert record.rollbacks == ((21, 10),)


def test_a_loader_that_raises_stops_the_run_with_a_checkpoint_of_this_very_step(tmp_path):
    record, _ = ran(tmp_path / "broken", faults=injected("loader", 33))
    assert record.stopped == "loader" and len(record.steps) == 33
    assert [(alert.kind, alert.step) for alert in record.alerts] == [("loader", 33)]
    rest, found = ran(tmp_path / "broken")
    assert rest.resumed_from == 33
    assert torch.equal(found, ran(tmp_path / "whole")[1])


def test_an_error_of_the_loader_s_own_is_told():
    class Broken(list):
        def __iter__(self):
            yield 1
            raise OSError("disk gone")

    order = iter(DataOrder(Broken()))
    assert next(order) == 1
    with pytest.raises(LoaderFailed, match="OSError: disk gone"):
        next(order)


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_step(tmp_path):
    recipe = replace(RECIPE, precision="fp32")
    record, weights = ran(
        tmp_path / "full",
        recipe=recipe,
        dropout=0.0,
        faults=injected("out of memory", 5, fits=8),
    )
    halves = [(r.micro_batch, r.accumulate) for _, r in record.recipes]
    assert halves == [(32, 1), (16, 2), (8, 4)] and {s for s, _ in record.recipes[1:]} == {5}
    assert len(record.steps) == EPOCH and not record.skips
    _, same = ran(tmp_path / "clean", recipe=recipe, dropout=0.0)
    # Sums in another order, over 40 steps of AdamW that move a weight by 3e-3 each.
    assert (weights - same).abs().max() < 1e-3


def test_memory_for_not_even_one_sample_saves_and_stops(tmp_path):
    record, _ = ran(tmp_path, faults=injected("out of memory", 5, fits=0))
    assert record.stopped == "out of memory" and len(record.steps) == 5
    assert record.recipes[-1][1].micro_batch == 1


def test_a_full_card_s_own_error_is_the_same_event(tmp_path):
    def full(module, inputs):
        if len(inputs[0]) > 16 and module.training:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with nn.modules.module.register_module_forward_pre_hook(full):
        record, _ = ran(tmp_path)
    assert record.recipes[-1][1].micro_batch == 16 and len(record.steps) == EPOCH


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    faults = injected("damaged file", 20) + injected("large batch", 24, steps=3)
    record, _ = ran(tmp_path, faults=faults)
    assert record.rollbacks == ((27, 10),)
    (alert,) = record.alerts
    assert (alert.kind, alert.step) == ("corruption", 27) and "step 20" in alert.evidence
    assert not record.stopped


def test_without_a_whole_checkpoint_the_run_saves_what_it_has_and_stops(tmp_path):
    faults = tuple(Injection(kind="damaged file", step=step) for step in (0, 10, 20))
    faults += injected("large batch", 24, steps=3)
    record, weights = ran(tmp_path / "damaged", faults=faults)
    assert record.stopped == "corruption" and not record.rollbacks
    again, _ = ran(tmp_path / "damaged")
    assert again.resumed_from == 27 and weights.isfinite().all()


def test_a_bit_that_flips_in_a_weight_is_found_before_it_is_used(tmp_path):
    record, weights = ran(tmp_path / "flipped", faults=injected("damaged memory", 24))
    assert [(alert.kind, alert.step) for alert in record.alerts] == [("corruption", 24)]
    assert record.rollbacks == ((24, 20),)
    assert {recipe.precision for _, recipe in record.recipes} == {"fp16"}
    assert torch.equal(weights, ran(tmp_path / "whole")[1])


def test_the_drill_of_five_faults_ends_in_a_clean_stop_and_goes_on_from_there(tmp_path):
    record, _ = ran(tmp_path, epochs=2, detector=Detector(), faults=FIVE_FAULTS)
    assert record.stopped == "loader" and record.skips == 4
    assert record.rollbacks == ((26, 14),)
    assert [(step, recipe.precision, recipe.micro_batch) for step, recipe in record.recipes] == [
        (0, "fp16", 32),
        (14, "fp16", 16),
        (14, "bf16", 16),
    ]
    told = record.describe()
    assert "rolled back from step 26 to 14" in told and "saved and stopped: loader" in told
    rest, _ = ran(tmp_path, epochs=2)
    assert rest.resumed_from == 50 and not rest.stopped
    assert rest.metrics[-1].accuracy > 0.8 and "ran to its end" in rest.describe()


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"accumulate": 0}, "accumulate"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"precision": "fp8"}, "precision"),
        ({"clip": -1.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"patience": 0}, "patience"),
        ({"grad_clip": 1.0}, "grad_clip"),
    ],
)
def test_a_recipe_is_read_before_anything_is_trained(changed, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        ran(tmp_path, recipe={"precision": "fp16", "micro_batch": 32} | changed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("validation", [None, (torch.zeros(0, 64), torch.zeros(0))])
def test_so_is_what_it_is_validated_on(validation, tmp_path):
    model = network()
    with pytest.raises(ValueError, match="validation is missing"):
        run(
            model,
            [],
            validation,
            optimizer=torch.optim.SGD(model.parameters()),
            recipe=RECIPE,
            respond=respond,
            checkpoints=Checkpoints,
            folder=tmp_path,
        )


@pytest.mark.parametrize("epochs", [0, 1.5, True])
def test_and_the_epochs(epochs, tmp_path):
    with pytest.raises(ValueError, match="epochs"):
        ran(tmp_path, epochs=epochs)


@pytest.mark.parametrize("wrong", [{"kind": "meteor"}, {"step": -1}, {"steps": 0}])
def test_and_the_faults_of_a_drill(wrong):
    with pytest.raises(ValueError):
        Injection(**{"kind": "loader", "step": 0} | wrong)


@pytest.mark.parametrize(
    "wrong", [{"precision": "fp8"}, {"micro_batch": 0}, {"accumulate": 0}, {"streak": -1}]
)
def test_and_a_plan_that_no_run_can_follow(wrong):
    with pytest.raises(ValueError):
        Plan(**{"precision": "fp16", "micro_batch": 1, "accumulate": 1} | wrong)


def test_batches_that_are_no_steps_of_the_recipe_are_refused(tmp_path):
    with pytest.raises(ValueError, match="1 x 16"):
        ran(tmp_path / "large", recipe=replace(RECIPE, micro_batch=16))
    with pytest.raises(ValueError, match="only the last"):
        ran(tmp_path / "small", recipe=replace(RECIPE, accumulate=2))


@pytest.mark.parametrize("answer", ["retry", "roll back"])
def test_an_answer_that_changes_nothing_is_refused_instead_of_failing_forever(answer, tmp_path):
    def stubborn(event, plan, patience):
        return ("go on" if event == "ok" else answer), plan

    with pytest.raises(ValueError, match="the plan that failed"):
        ran(tmp_path, answer=stubborn, faults=injected("NaN batch", 3))


def test_so_is_an_answer_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="'panic'"):
        ran(tmp_path, answer=lambda event, plan, patience: ("panic", plan))
