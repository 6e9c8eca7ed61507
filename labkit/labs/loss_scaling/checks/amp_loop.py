"""Check of lab 04: the loop of FP16 mixed precision training."""

import math

import numpy as np
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
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
from labkit.labs.engine.reading import failure
from labkit.labs.loss_scaling import solutions

LAB = "04_loss_scaling"

CAST = (
    "After your loop the model's weights are {got}; they must stay float32, because autocast casts "
    "copies of them. Which line changed them?"
)
RAISED = "Your loop raised {error}; a list of {count} losses is wanted."
NO_LIST = "You return {got}; a list of {count} losses is wanted, one for each batch."
OTHER_OUTPUTS = (
    "The outputs of your network are {met}; under FP16 autocast they are float16. Does the forward "
    "pass run inside the autocast block, and which dtype does `autocast` get?"
)
OTHER_LOSS = "Loss {place} is {got}; {want} is wanted. {why}"
THE_SCALE = "That is {scale:g} times as much, which is the scale."
DIVIDED = (
    "Do you divide it by the scale? `scaler.scale` returns a new tensor and does not change `loss`."
)
TWICE = (
    "That is twice as much. The first step overflows, so `update()` halves the scale. Do you "
    "divide the loss by the scale after `update()`?"
)
SIXTEEN_BITS = (
    "Inside the autocast block the loss is computed in float32, and outside of it in FP16, the "
    "dtype of the outputs. Where does your block end?"
)
NOT_FINITE = (
    "The weights end as inf or NaN. `scaler.step` skips a step whose gradients overflowed. Does "
    "every step of yours go through it?"
)
UNMOVED = (
    "The weights did not move, and the largest gradient at the network's output was {largest}. The "
    "scaler starts at 2**42. With this scale the gradients overflow, so `update()` must halve it a "
    "few times. {why}"
)
NO_STEP = (
    "`optimizer.step` never ran. `scaler.step` runs it if no gradient holds inf or NaN. Do you "
    "call `scaler.step`, and are the gradients ever finite?"
)
LOST = "The gradients of the unscaled loss are 0 in FP16. On which loss do you call backward()?"
EMPTIED = (
    "The gradients that reached `optimizer.step` were all 0: what empties them after backward()?"
)
HANDED = (
    "The first gradients that reached `optimizer.step` went up to {got}; {want} is wanted. The "
    "scaler divides them once. Which line of yours changes them as well?"
)
OTHER_SCALE = (
    "The losses are right, and the scale ends at {got:g}; {want:g} is wanted. Is `update()` called "
    "once for each batch?"
)
ELSEWHERE = (
    "The weights do not end where they should: they moved by {times:.3g} times the right distance. "
    "{losses} {why}"
)
GIVEN_SCALER = (
    "The scaler that you were given still has its first scale, 2**42. Which scaler do you use?"
)
STILL_OPEN = (
    "The autocast block is still open while backward() runs. Until the block ends, autocast reuses "
    "its FP16 copies of the weights. Which lines of an iteration belong inside the block?"
)
OLD_GRADIENTS = (
    "A second epoch began with old gradients in .grad, and the weights went {times:.3g} times as "
    "far as they should. Which call empties .grad before the first backward()?"
)
LOSSES_RIGHT = "The losses are right."

_START = 2.0**42
_CLASSES = 2 * torch.eye(4, 6)


def _small_loss(outputs, targets):
    """A loss so small that each unscaled gradient at the output is 0 in FP16."""
    return 2.0**-23 * nn.functional.cross_entropy(outputs, targets)


def run_amp_loop(train_fp16, seed):
    """Eight batches, whose first scales overflow, then one of a second epoch.

    Each epoch comes from a generator and finds old gradients in .grad. The first weights and the
    batches come of the seed.
    """
    network = filled(nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 4)), 1 + 100 * seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=2.0**20)
    scaler = torch.amp.GradScaler("cpu", init_scale=_START, growth_interval=4)
    met, largest, start = [], [0.0], flat(network)
    handed, is_open = [], []

    def watch(module, inputs, output):
        met.append(str(output.dtype).removeprefix("torch."))
        if output.requires_grad:
            output.register_hook(look)

    def look(gradient):
        largest.append(_largest([gradient]))
        is_open.append(torch.is_autocast_enabled("cpu"))

    def epoch(places, scaler):
        for p in network.parameters():
            p.grad = torch.full_like(p, 2.0**15)
        drawn = ((100 * seed + i, labels(100 * seed + i, 16)) for i in places)
        batches = ((_CLASSES[y] + seeded(10 + i, 16, 6), y) for i, y in drawn)
        return attempt(train_fp16, network, _small_loss, optimizer, scaler, batches)

    network.register_forward_hook(watch)
    optimizer.register_step_pre_hook(
        lambda *_: handed.append(_largest([p.grad for p in network.parameters()]))
    )
    with emulate_gpu():
        losses = epoch(range(8), scaler)
        end = flat(network)
        scale, count = scaler.get_scale(), scaler.state_dict()["_growth_tracker"]
        first = list(handed)
        # The last update may have doubled the scale: here no gradient may overflow.
        epoch([8], torch.amp.GradScaler("cpu", init_scale=scale / 8, growth_interval=4))
    many = isinstance(losses, (np.ndarray, torch.Tensor)) and losses.ndim
    return {
        "losses": losses.tolist() if many else losses,
        "moved": end - start,
        "then moved": flat(network) - end,
        "scale": scale,
        "count": count,
        "met": sorted(set(met)),
        "largest": max(largest),
        "handed": first,
        "open": any(is_open),
        "weights": sorted({str(p.dtype).removeprefix("torch.") for p in network.parameters()}),
    }


def _largest(gradients):
    """The largest magnitude, inf where one is NaN; 0 where there is no gradient."""
    found = [g.abs().nan_to_num(torch.inf).max().item() for g in gradients if g is not None]
    return max(found, default=0.0)


def _evidence(got, want, seed):
    losses, moved = got["losses"], got["moved"]
    if type(losses) is Raised:
        return fill(RAISED, error=failure(losses), count=len(want["losses"]))
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
        return fill(UNMOVED, largest=brief(got["largest"]), why=_why_unmoved(got, seed))
    if same_end(moved, want["moved"]):
        if not same_end(got["then moved"], want["then moved"]):
            return fill(OLD_GRADIENTS, times=_far(got, want, "then moved"))
        return fill(OTHER_SCALE, got=got["scale"], want=want["scale"])
    times = _far(got, want, "moved")
    losses = "" if other else LOSSES_RIGHT
    return fill(ELSEWHERE, times=times, losses=losses, why=_why_elsewhere(got, seed))


def _far(got, want, key):
    return (got[key].norm() / want[key].norm()).item()


def _why_unmoved(got, seed):
    """What the optimizer was given, where it moved nothing."""
    if not got["handed"]:
        return NO_STEP
    if not got["largest"]:
        return LOST
    if not any(got["handed"]):
        return EMPTIED
    return _why_handed(got, seed)


def _why_elsewhere(got, seed):
    """One thing that is certainly other than in the solution."""
    if got["scale"] == _START:
        return GIVEN_SCALER
    return STILL_OPEN if got["open"] else _why_handed(got, seed)


def _why_handed(got, seed):
    right = run_amp_loop(solutions.train_fp16, seed)["handed"]
    if not got["handed"] or same_end(got["handed"][0], right[0]):
        return ""
    return fill(HANDED, got=brief(got["handed"][0]), want=brief(right[0]))


def _why(a, b):
    times = _times(a, b)
    if same_end(times, _START):
        return fill(THE_SCALE, scale=_START)
    if same_end(times, 1 / _START) or same_end(times, 2 / _START):
        return DIVIDED
    if same_end(times, 2.0):
        return TWICE
    return SIXTEEN_BITS if times and 0.5 < times < 2 else ""


def _times(a, b):
    try:
        return float(a) / b
    except (TypeError, ValueError):
        return None


def _reported(got, want):
    """The idea that something besides the weights shows, None where it could be another."""
    if type(got["losses"]) is Raised:
        # update() asserts that scaler.step looked for inf; here the optimizer stepped without it.
        refused = got["losses"].type_name == "AssertionError" and got["handed"]
        return "any-step-unscales" if refused else None
    # The scale fell to where the gradients fit, and each step was skipped nevertheless.
    if not got["handed"] and got["scale"] < want["scale"] and math.isfinite(got["largest"]):
        return "gradients-reset-themselves"
    rest = all(same_end(got[key], want[key]) for key in want if key != "losses")
    losses = got["losses"]
    if not rest or not isinstance(losses, (list, tuple)) or not losses:
        return None
    return (
        "scaled-loss-is-the-loss"
        if same_end(_times(losses[0], want["losses"][0]), _START)
        else None
    )


def _end(train_fp16, seed):
    """What an answer is judged by; the rest of `run_amp_loop` only explains."""
    end = run_amp_loop(train_fp16, seed)
    return {key: end[key] for key in end if key not in ("handed", "open")}


LOOP = Loop(
    _end,
    solutions.train_fp16,
    _evidence,
    lambda shown: [shown["moved"], shown["met"]],
    _reported,
)


@check(run_amp_loop, seeds=2, own_work=("labkit.training.train",))
def check_amp_loop(got, seed):
    """FP16 autocast, a scaled backward pass, step and update, and the losses as they are."""
    if got["weights"] != ["float32"]:
        raise Mistake(CAST, got=" and ".join(got["weights"]), search=False)
    LOOP.judge(got, check_amp_loop.known_wrong, seed=seed)


check_amp_loop.slip(
    "gradients-reset-themselves",
    "backward() adds to what .grad holds, and an inf stays there. Which call empties it?",
    cut="optimizer.zero_grad()",
)
check_amp_loop.slip(
    "scaled-loss-is-the-loss",
    "You returned the scaled loss. Which loss do you want to plot?",
    swap=("losses.append(loss.item())", "losses.append(scaler.scale(loss).item())"),
)
check_amp_loop.slip(
    "the-scale-adjusts-itself",
    "With the first scale the gradients overflow in every step. Which call lowers the scale?",
    cut="scaler.update()",
)
check_amp_loop.slip(
    "any-step-unscales",
    "`optimizer.step()` neither divides the gradients nor looks for inf. Whose `step` does both?",
    swap=("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()"),
)
