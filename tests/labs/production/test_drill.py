"""S18: a run that applies its plan, survives a kill to the bit, and answers planted faults."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from labkit.devices import Description, device_of
from labkit.labs.choosing_precision.selector import select
from labkit.labs.memory_and_many_gpus.plan import plan_memory
from labkit.labs.production.drill import fault_drill
from labkit.labs.production.run_plan import Plan
from labkit.labs.production.solutions import Checkpoints, respond
from labkit.measuring import Monitor
from labkit.training.data import batches, digits

DIGITS = digits()
HELD_OUT = DIGITS.test_images, DIGITS.test_labels
LOADER = batches(DIGITS.train_images, DIGITS.train_labels, 32, seed=1)
STREAM = [*LOADER, *LOADER]
"""Two epochs of 45 batches; the last of each has 30 samples."""
FP16 = Plan(precision="fp16", micro_batch=32, accumulate=1)
FIVE_FAULTS = {7: "NaN batch", 14: "out of memory", 20: "damaged file", 50: "loader"}
FIVE_FAULTS |= dict.fromkeys((23, 24, 25), "large batch")


def network(dropout=0.1):
    torch.manual_seed(0)
    layers = (nn.Flatten(), nn.Linear(64, 32), nn.SiLU(), nn.Dropout(dropout), nn.Linear(32, 10))
    return nn.Sequential(*layers)


def drilled(folder, *, steps=45, plan=FP16, dropout=0.1, stream=STREAM, monitor=None, **settings):
    """A run on digits: what it answered, what its monitor saw, and its weights in a row."""
    Path(folder).mkdir(exist_ok=True)
    model, monitor = network(dropout), monitor or Monitor()
    more = {"respond": respond, "checkpoints": Checkpoints, "clip": 1.0} | settings
    answered = fault_drill(
        model, stream[:steps], HELD_OUT, optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
        plan=plan, folder=folder, monitor=monitor, **more,
    )  # fmt: skip
    return answered, monitor, torch.cat([p.detach().flatten() for p in model.parameters()])


def story(answered):
    """What follows each event, and where."""
    return [(row["step"], row["event"], row["answer"], row["next step"]) for row in answered]


def taken(monitor):
    """The batches of the steps, in the order in which they were done."""
    return [step for step, _ in monitor.history("loss")]


# The plan is applied


def test_selector_memory_plan_monitor_and_policy_train_digits_together(tmp_path):
    """The strategy of lab 12, the micro-batches of lab 07, the monitor of the core."""
    strategy = select(device_of(Description(name="A100", kind="cuda", capability="8.0")), network())
    loader = batches(DIGITS.train_images, DIGITS.train_labels, 256, seed=1)
    batch = torch.zeros(256, 64), DIGITS.train_labels[:256]
    parts = plan_memory(160 * 1024, network(), batch).settings.micro_batches
    plan = Plan(precision=strategy.name, micro_batch=256 // parts, accumulate=parts)
    stream = [batch for _ in range(20) for batch in loader]
    answered, monitor, _ = drilled(tmp_path, plan=plan, stream=stream, steps=None)
    assert plan.precision == "bf16" and answered == [] and monitor.faults == ()
    assert taken(monitor) == list(range(len(stream)))
    (_, first), *_, (last, accuracy) = monitor.history("accuracy")
    assert last == len(stream) - 1 and accuracy > 0.9 > first


@pytest.mark.parametrize(
    ("precision", "dtype", "scale"),
    [("fp16", "float16", 65536), ("bf16", "bfloat16", 1), ("fp32", "float32", 1)],
)
def test_layers_compute_in_the_precision_and_only_fp16_has_a_scaler(
    precision, dtype, scale, tmp_path
):
    seen = set()

    def note(layer, inputs, output):
        if isinstance(layer, nn.Linear) and layer.training:
            seen.add(output.dtype)

    with nn.modules.module.register_module_forward_hook(note):
        _, monitor, weights = drilled(tmp_path, plan=replace(FP16, precision=precision), steps=5)
    assert seen == {getattr(torch, dtype)} and weights.dtype == torch.float32
    assert {value for _, value in monitor.history("loss_scale")} == {scale}


def test_gradients_are_clipped(tmp_path):
    model = network(0)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    fault_drill(
        model, STREAM[:1], HELD_OUT, optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        plan=FP16, respond=respond, checkpoints=Checkpoints, folder=tmp_path, monitor=Monitor(),
        clip=0.01,
    )  # fmt: skip
    moved = torch.cat([p.detach().flatten() for p in model.parameters()]) - before
    assert moved.norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("micro_batch", "accumulate"), [(8, 4), (5, 7), (1, 32)])
def test_k_micro_batches_are_one_batch_and_so_is_the_smaller_last_one(
    micro_batch, accumulate, tmp_path
):
    stream = [*STREAM[:3], (STREAM[3][0][:13], STREAM[3][1][:13])]
    whole = Plan(precision="fp32", micro_batch=32, accumulate=1)
    split = replace(whole, micro_batch=micro_batch, accumulate=accumulate)
    *_, parts = drilled(tmp_path / "parts", plan=split, stream=stream, dropout=0.0)
    *_, one = drilled(tmp_path / "one", plan=whole, stream=stream, dropout=0.0)
    assert (parts - one).abs().max() < 1e-6


# Kill and resume


class Killed(Exception):
    pass


class Killing(Monitor):
    """Kills the run when it has seen so many steps."""

    def __init__(self, steps, kill):
        super().__init__()
        self.left, self.kill = steps, kill

    def see(self, record):
        self.left -= 1
        if not self.left:
            self.kill()
        return super().see(record)


def kill():
    raise Killed


@pytest.mark.parametrize("faults", [{}, FIVE_FAULTS], ids=["healthy", "five faults"])
@pytest.mark.parametrize("steps", [1, 10, 28, 33, 47])
def test_a_run_that_was_stopped_anywhere_ends_at_the_same_bits(steps, faults, tmp_path):
    _, _, bits = drilled(tmp_path / "whole", steps=60, faults=faults)
    with pytest.raises(Killed):
        drilled(tmp_path / "killed", steps=60, faults=faults, monitor=Killing(steps, kill))
    torch.manual_seed(99)  # another process has another random state
    _, monitor, found = drilled(tmp_path / "killed", steps=60, faults=faults)
    assert torch.equal(found, bits)
    if not faults:
        assert taken(monitor) == list(range((steps - 1) // 10 * 10, 60))


def test_a_process_that_is_killed_goes_on_at_the_same_bits(tmp_path):
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_drill import Killing, drilled\n"
        "end = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
        "drilled(sys.argv[2], monitor=Killing(34, end))\n"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", script, here, str(tmp_path / "killed")])
    assert done.returncode == -signal.SIGKILL
    _, monitor, found = drilled(tmp_path / "killed")
    assert taken(monitor)[0] == 30
    *_, whole = drilled(tmp_path / "whole")
    assert torch.equal(found, whole)


def test_a_run_that_is_done_has_nothing_left_to_do(tmp_path):
    *_, weights = drilled(tmp_path)
    answered, monitor, same = drilled(tmp_path)
    assert not answered and not taken(monitor) and torch.equal(weights, same)


# Faults


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_a_nan_batch_is_one_skipped_step_and_leaves_no_trace(precision, tmp_path):
    plan = replace(FP16, precision=precision)
    answered, monitor, weights = drilled(tmp_path / "nan", plan=plan, faults={12: "NaN batch"})
    assert story(answered) == [(12, "non-finite", "skip", 13)]
    assert [step for step, skipped in monitor.history("skipped") if skipped] == [12]
    assert [(fault.kind, fault.step) for fault in monitor.faults] == [("nonfinite", 12)]
    assert weights.isfinite().all() and monitor.history("accuracy")[-1][1] > 0.5
    # The same run up to there.
    _, clean, _ = drilled(tmp_path / "clean", plan=plan, steps=12)
    assert monitor.history("loss")[:12] == clean.history("loss")


def test_a_streak_rolls_back_to_the_last_good_checkpoint_one_format_up(tmp_path):
    faults = dict.fromkeys((18, 19, 20), "large batch")  # none is saved inside the streak
    answered, monitor, weights = drilled(tmp_path, faults=faults)
    assert story(answered) == [
        (18, "non-finite", "skip", 19),
        (19, "non-finite", "skip", 20),
        (20, "non-finite", "roll back", 10),
    ]
    assert answered[-1]["precision"] == "bf16"
    # The same batches are finite in BF16.
    assert [step for step, skipped in monitor.history("skipped") if skipped] == [18, 19, 20]
    assert taken(monitor) == [*range(21), *range(10, 45)] and weights.isfinite().all()


def test_a_streak_that_no_format_heals_saves_and_stops(tmp_path):
    answered, _, weights = drilled(tmp_path, faults=dict.fromkeys((24, 25, 26), "NaN batch"))
    assert [row["precision"] for row in answered if row["answer"] == "roll back"] == [
        "bf16",
        "fp32",
    ]
    assert story(answered)[-1] == (26, "non-finite", "save and stop", 26)
    assert weights.isfinite().all()


def test_a_loader_that_raises_stops_the_run_with_a_checkpoint_of_this_very_step(tmp_path):
    answered, _, _ = drilled(tmp_path / "broken", faults={33: "loader"})
    assert story(answered) == [(33, "loader", "save and stop", 33)]
    assert "OSError" in answered[0]["error"]
    _, monitor, found = drilled(tmp_path / "broken")
    *_, whole = drilled(tmp_path / "whole")
    assert taken(monitor)[0] == 33 and torch.equal(found, whole)


def test_a_full_card_halves_the_micro_batch_and_keeps_the_step(tmp_path):
    def full(module, inputs):
        if len(inputs[0]) > 8 and module.training:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    plan = replace(FP16, precision="fp32")
    with nn.modules.module.register_module_forward_pre_hook(full):
        answered, monitor, weights = drilled(tmp_path / "full", plan=plan, dropout=0.0)
    assert [(row["micro_batch"], row["accumulate"]) for row in answered] == [(16, 2), (8, 4)]
    assert {row["answer"] for row in answered} == {"retry"} and taken(monitor) == list(range(45))
    *_, same = drilled(tmp_path / "clean", plan=plan, dropout=0.0)
    # Sums in another order, over 45 steps of AdamW that move a weight by 3e-3 each.
    assert (weights - same).abs().max() < 1e-3


class InTwoFiles(Checkpoints):
    """The digest and the step in a file beside the data, with other names."""

    def save(self, step):
        super().save(step)
        (self.folder / f"{step}.note").write_text("done")


@pytest.mark.parametrize("checkpoints", [Checkpoints, InTwoFiles])
def test_a_damaged_checkpoint_is_passed_over_whatever_its_files_are_called(checkpoints, tmp_path):
    faults = {20: "damaged file"} | dict.fromkeys((24, 25, 26), "large batch")
    answered, _, _ = drilled(tmp_path, faults=faults, checkpoints=checkpoints)
    assert story(answered)[-1] == (26, "non-finite", "roll back", 10)


def test_without_a_whole_checkpoint_the_run_saves_what_it_has_and_stops(tmp_path):
    faults = dict.fromkeys((0, 10, 20), "damaged file") | dict.fromkeys((24, 25, 26), "large batch")
    answered, _, weights = drilled(tmp_path, faults=faults)
    assert story(answered)[-1] == (26, "non-finite", "save and stop", 26)
    _, monitor, _ = drilled(tmp_path)
    assert taken(monitor)[0] == 26 and weights.isfinite().all()


def test_the_drill_of_five_faults_ends_in_a_clean_stop_and_goes_on_from_there(tmp_path):
    answered, monitor, _ = drilled(tmp_path, steps=90, faults=FIVE_FAULTS)
    assert story(answered) == [
        (7, "non-finite", "skip", 8),
        (14, "out of memory", "retry", 14),
        (23, "non-finite", "skip", 24),
        (24, "non-finite", "skip", 25),
        (25, "non-finite", "roll back", 14),
        (50, "loader", "save and stop", 50),
    ]
    plans = [(row["precision"], row["micro_batch"], row["accumulate"]) for row in answered]
    assert [plans[1], plans[4], plans[5]] == [("fp16", 16, 2), ("bf16", 16, 2), ("bf16", 16, 2)]
    assert sum(skipped for _, skipped in monitor.history("skipped")) == 4
    answered, monitor, _ = drilled(tmp_path, steps=90)
    assert taken(monitor) == list(range(50, 90)) and not answered
    assert monitor.history("accuracy")[-1][1] > 0.8


# What is refused


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"clip": -1.0}, "max_grad_norm"),
        ({"faults": {3: "meteor"}}, "meteor"),
        ({"plan": replace(FP16, micro_batch=16)}, "too many"),
    ],
)
def test_settings_that_no_run_can_follow_are_refused_before_a_step(settings, named, tmp_path):
    monitor = Monitor()
    with pytest.raises(ValueError, match=named):
        drilled(tmp_path, monitor=monitor, **settings)
    assert not taken(monitor)


@pytest.mark.parametrize("validation", [None, (torch.zeros(0, 64), torch.zeros(0))])
def test_so_is_a_run_without_validation(validation, tmp_path):
    model = network()
    sgd = torch.optim.SGD(model.parameters())
    with pytest.raises(ValueError, match="validation is missing"):
        fault_drill(
            model, STREAM, validation, optimizer=sgd, plan=FP16, respond=respond,
            checkpoints=Checkpoints, folder=tmp_path, monitor=Monitor(),
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong", [{"precision": "fp8"}, {"micro_batch": 0}, {"accumulate": 0}, {"streak": -1}]
)
def test_and_a_plan_that_is_none(wrong):
    with pytest.raises(ValueError):
        Plan(**{"precision": "fp16", "micro_batch": 1, "accumulate": 1} | wrong)
    with pytest.raises(TypeError, match="grad_clip"):
        Plan(precision="fp16", micro_batch=1, accumulate=1, grad_clip=1.0)


@pytest.mark.parametrize("answer", ["retry", "roll back"])
def test_an_answer_that_changes_nothing_is_refused_instead_of_failing_forever(answer, tmp_path):
    def stubborn(event, plan):
        return ("go on" if event == "ok" else answer), plan

    with pytest.raises(ValueError, match=f"{answer!r}.*the plan that failed"):
        drilled(tmp_path, respond=stubborn, faults={3: "NaN batch"})


def test_so_is_an_answer_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="'panic' to 'ok': go on, skip"):
        drilled(tmp_path, respond=lambda event, plan: ("panic", plan))


def test_batches_without_a_place_in_a_row_are_refused(tmp_path):
    model, batches = network(), iter([])
    with pytest.raises(ValueError, match=r"pass list\(batches\)"):
        fault_drill(
            model, batches, HELD_OUT, optimizer=torch.optim.SGD(model.parameters()), plan=FP16,
            respond=respond, checkpoints=Checkpoints, folder=tmp_path, monitor=Monitor(),
        )  # fmt: skip
