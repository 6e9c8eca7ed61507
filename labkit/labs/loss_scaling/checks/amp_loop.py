"""Check of lab 04: the loop of FP16 mixed precision training."""

import numpy as np
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.engine import attempt, check
from labkit.labs.engine.loop_ends import (
    Loop,
    brief,
    filled,
    first_other,
    flat,
    labels,
    same_end,
    seeded,
)
from labkit.labs.engine.messages import fill
from labkit.labs.loss_scaling import solutions

LAB = "04_loss_scaling"

NO_LIST = "You return {got}; a list of {count} losses is wanted, one for each batch."
OTHER_OUTPUTS = (
    "The outputs of your network are {met}; under FP16 autocast they are float16. Does the forward "
    "pass run inside the block, and with which dtype?"
)
OTHER_LOSS = "Loss {place} is {got}; {want} is wanted. {why}"
THE_SCALE = "That is {scale:g} times as much, which is the scale."
SIXTEEN_BITS = "Your losses were computed in FP16. Where does the autocast block end?"
NOT_FINITE = "The weights end as inf or NaN: a step was taken although its gradients overflowed."
UNMOVED = (
    "The weights did not move, and the gradient at the network's output was {largest}. The scaler "
    "starts at 2**42, so that the first steps overflow and later ones fit."
)
OTHER_SCALE = "The losses are right, and the scale ends at {got:g}; {want:g} is wanted."
ELSEWHERE = "The weights went {times:.3g} times as far as they should. {losses}"
LOSSES_RIGHT = "The losses are right."

_START = 2.0**42
_CLASSES = 2 * torch.eye(4, 6)


def _small_loss(outputs, targets):
    """A loss so small that each unscaled gradient at the output is 0 in FP16."""
    return 2.0**-23 * nn.functional.cross_entropy(outputs, targets)


def run_amp_loop(train_fp16):
    """Eight batches from a generator. The first scales overflow; old gradients lie in .grad."""
    network = filled(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=2.0**20)
    scaler = torch.amp.GradScaler("cpu", init_scale=_START, growth_interval=4)
    for p in network.parameters():
        p.grad = torch.full_like(p, 2.0**30)
    met, largest, start = [], [0.0], flat(network)

    def watch(module, inputs, output):
        met.append(str(output.dtype).removeprefix("torch."))
        output.register_hook(lambda g: largest.append(g.abs().nan_to_num(torch.inf).max().item()))

    network.register_forward_hook(watch)
    batches = ((_CLASSES[y] + seeded(10 + i, 16, 6), y) for i in range(8) for y in [labels(i, 16)])
    with emulate_gpu():
        losses = attempt(train_fp16, network, _small_loss, optimizer, scaler, batches)
    many = isinstance(losses, (np.ndarray, torch.Tensor)) and losses.ndim
    return {
        "losses": losses.tolist() if many else losses,
        "moved": flat(network) - start,
        "scale": scaler.get_scale(),
        "count": scaler.state_dict()["_growth_tracker"],
        "met": sorted(set(met)),
        "largest": max(largest),
    }


def _evidence(got, want):
    losses, moved = got["losses"], got["moved"]
    if not isinstance(losses, (list, tuple)) or len(losses) != len(want["losses"]):
        shown = f"{len(losses)} losses" if isinstance(losses, (list, tuple)) else brief(losses)
        return fill(NO_LIST, got=shown, count=len(want["losses"]))
    if got["met"] != want["met"]:
        return fill(OTHER_OUTPUTS, met=" and ".join(got["met"]) or "missing")
    other = first_other(losses, want["losses"])
    if other and (other[0] == 0 or same_end(moved, want["moved"])):
        place, a, b = other
        return fill(OTHER_LOSS, place=place, got=brief(a), want=brief(b), why=_why(a, b))
    if not moved.isfinite().all():
        return NOT_FINITE
    if not moved.any():
        return fill(UNMOVED, largest=brief(got["largest"]))
    if same_end(moved, want["moved"]):
        return fill(OTHER_SCALE, got=got["scale"], want=want["scale"])
    times = (moved.norm() / want["moved"].norm()).item()
    return fill(ELSEWHERE, times=times, losses="" if other else LOSSES_RIGHT)


def _why(a, b):
    times = _times(a, b)
    if same_end(times, _START):
        return fill(THE_SCALE, scale=_START)
    return SIXTEEN_BITS if times and 0.5 < times < 2 else ""


def _times(a, b):
    try:
        return float(a) / b
    except (TypeError, ValueError):
        return None


def _scaled_losses(got, want):
    """The idea of losses that are larger by the scale, where all else is right."""
    rest = all(same_end(got[key], want[key]) for key in want if key != "losses")
    losses = got["losses"]
    if not rest or not isinstance(losses, (list, tuple)) or not losses:
        return None
    return (
        "scaled-loss-is-the-loss"
        if same_end(_times(losses[0], want["losses"][0]), _START)
        else None
    )


LOOP = Loop(
    run_amp_loop,
    solutions.train_fp16,
    _evidence,
    lambda shown: [shown["moved"], shown["met"]],
    _scaled_losses,
)


@check(run_amp_loop)
def check_amp_loop(got):
    """FP16 autocast, a scaled backward pass, step and update, and the losses as they are."""
    LOOP.judge(got, check_amp_loop.known_wrong)


check_amp_loop.slip(
    "gradients-reset-themselves",
    "backward() adds to what .grad holds, and an inf stays there. Which call empties it?",
    cut="optimizer.zero_grad()",
)
check_amp_loop.slip(
    "scaled-loss-is-the-loss",
    "You returned the scaled loss. Which of the two do you want to plot?",
    swap=("losses.append(loss.item())", "losses.append(scaler.scale(loss).item())"),
)
check_amp_loop.slip(
    "the-scale-adjusts-itself",
    "The first scale overflows in every step. Which call lowers it?",
    cut="scaler.update()",
)
check_amp_loop.slip(
    "any-step-unscales",
    "The optimizer stepped with scaled gradients. Whose `step` divides them and looks for inf?",
    swap=("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()"),
)
