"""labkit's own checkpoints and policy: what the exercises ask for, and what they have besides."""

import functools

import pytest
import torch
from torch import nn

from labkit.labs.production import respond as policy
from labkit.labs.production import small_run
from labkit.labs.production.checkpoints import CheckpointError, Checkpoints
from labkit.labs.production.checks import check_checkpoints, check_respond


def test_they_do_what_the_exercise_asks_for():
    kept = functools.partial(Checkpoints, keep=9)  # the exercise removes none
    assert check_checkpoints.result(kept).message.startswith("Checkpoints that")


def test_the_policy_is_the_exercises():
    check_respond.judge(check_respond.run(policy.respond, 0), 0)


def test_the_newest_files_stay_and_damaged_ones_are_listed(tmp_path):
    box = small_run.Box(0.0)
    checkpoints = Checkpoints(tmp_path / "new folder", {"box": box}, keep=2)
    for step in (9, 10, 11):
        box.value = torch.tensor([float(step)])
        newest = checkpoints.save(step)
    assert [path.stem for path in sorted(newest.parent.iterdir())] == [
        "0" * 10 + "10",
        "0" * 10 + "11",
    ]
    damaged = bytearray(newest.read_bytes())
    damaged[-1] ^= 1
    newest.write_bytes(damaged)
    assert checkpoints.resume() == 10 == box.value.item()
    assert checkpoints.skipped == (newest,)
    checkpoints.save(11)
    assert checkpoints.resume() == 11
    assert checkpoints.skipped == ()


def test_a_run_with_other_parts_is_told_which(tmp_path):
    Checkpoints(tmp_path, {"model": nn.Linear(2, 2)}).save(1)
    other = {"model": nn.Linear(2, 2), "scaler": small_run.Box(0.0)}
    before = other["model"].weight.clone()
    with pytest.raises(CheckpointError, match="'scaler'"):
        Checkpoints(tmp_path, other).resume()
    assert torch.equal(other["model"].weight, before)


@pytest.mark.parametrize("keep", [1, 0])
def test_one_file_would_not_be_enough(tmp_path, keep):
    with pytest.raises(ValueError, match="keep="):
        Checkpoints(tmp_path, {}, keep=keep)


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "fp8", "micro_batch": 1, "accumulate": 1},
        {"precision": "fp16", "micro_batch": 0, "accumulate": 1},
        {"precision": "fp16", "micro_batch": 1, "accumulate": 0},
        {"precision": "fp16", "micro_batch": 1, "accumulate": 1, "streak": -1},
    ],
)
def test_a_plan_that_no_run_can_follow_is_refused(fields):
    with pytest.raises(ValueError):
        policy.Plan(**fields)


def test_a_resumed_run_is_the_same_run(tmp_path):
    """Dropout, AdamW, a schedule and a scaler: losses and weights, bit for bit."""

    def train(parts, steps):
        losses, model = [], parts["model"].train()
        for _ in range(steps):
            rows = torch.randn(8, 6, generator=parts["data"].generator)
            parts["optimizer"].zero_grad()
            loss = model(rows).square().mean()
            parts["scaler"].scale(loss).backward()
            parts["scaler"].step(parts["optimizer"])
            parts["scaler"].update()
            parts["schedule"].step()
            losses.append(loss.item())
        return losses

    with torch.random.fork_rng(devices=[]):
        whole = small_run.fresh(0)
        train(whole, 9)
        Checkpoints(tmp_path, whole).save(9)
        wanted = train(whole, 9)
        resumed = small_run.fresh(1)
        assert Checkpoints(tmp_path, resumed).resume() == 9
        assert train(resumed, 9) == wanted
        for one, other in zip(
            whole["model"].parameters(), resumed["model"].parameters(), strict=True
        ):
            assert torch.equal(one, other)
