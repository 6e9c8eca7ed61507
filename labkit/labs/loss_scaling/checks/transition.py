"""Check of lab 04: from a scale and a count of good steps to the next ones."""

import math
import random

import numpy as np
import torch

from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.messages import fill, show
from labkit.labs.engine.reading import several
from labkit.labs.engine.running import plain
from labkit.training.scaling import to_float32

LAB = "04_loss_scaling"

OTHER_PAIR = "`{call}` is {got}; GradScaler goes to {want}. {why}"
OTHER_COUNT = "{name}: {got} pairs came back for {want} flags."
TURNED = "The scale comes first, then the count."
AFTER_OVERFLOW = "After an overflow the scale is multiplied by {factor} and the count is 0."
ONLY_COUNTS = "This is good step {good} of {interval} in a row: only the count changes."
NO_GROWTH = "Growth would make the scale inf, so the scale stays, and the count is 0."
GROWS = (
    "This is good step {good} of {interval} in a row: the scale is multiplied by {factor} and the "
    "count is 0."
)
FACTOR_ROUNDED = "You rounded {factor} to float32 before multiplying; round the result only."


_FLAGS = {
    "flags 1,1,0,0,0,0,1,0,0": (65536.0, [1, 1, 0, 0, 0, 0, 1, 0, 0], (2.0, 0.5, 3)),
    "6 good steps, interval 2": (8.0, [0] * 6, (2.0, 0.5, 2)),
    "good, overflow, good, good, interval 2": (8.0, [0, 1, 0, 0], (2.0, 0.5, 2)),
    "4 good steps from 2**126, interval 1": (2.0**126, [0] * 4, (2.0, 0.5, 1)),
    "40 overflows from 2**-120": (2.0**-120, [1] * 40, (2.0, 0.5, 2000)),
    "2001 good steps, the defaults": (65536.0, [0] * 2001, (2.0, 0.5, 2000)),
}  # fmt: skip


def _flags(seed):
    """The rows of flags above, and one of 300 that are drawn."""
    draw = random.Random(seed)
    drawn = [int(draw.random() < 0.2) for _ in range(300)]
    return _FLAGS | {"300 random flags, factors 1.1 and 0.9": (65536.0, drawn, (1.1, 0.9, 3))}


def run_transition(transition, seed):
    """`transition` along seven rows of flags: the pair after each step."""
    return {name: _walk(transition, *script) for name, script in _flags(seed).items()}


def _walk(transition, scale, flags, settings):
    growth, backoff, interval = settings
    settings = {"growth": growth, "backoff": backoff, "interval": interval}
    count, pairs = 0, []
    for flag in flags:
        got = attempt(transition, scale, count, bool(flag), **settings)
        pairs.append(got)
        # The answer gets back Python's numbers: those of numpy and torch round products in float32.
        got = got.tolist() if isinstance(got, (torch.Tensor, np.ndarray)) else plain(got)
        if type(got) not in (tuple, list) or len(got) != 2:
            break
        scale, count = (x.item() if isinstance(x, torch.Tensor) and not x.dim() else x for x in got)
    return pairs


@check(
    run_transition,
    bits=True,
    own_work=(
        "torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cpu.amp.GradScaler",
        "labkit.training.scaling.LossScale",
    ),
)
def check_transition(answers, seed):
    """The same scale and count as torch.amp.GradScaler, step by step."""
    for name, (scale, flags, settings) in _flags(seed).items():
        wanted = _torch_walk(scale, flags, settings)
        before = (scale, 0)
        for i, (got, want) in enumerate(zip(answers[name], wanted, strict=False)):
            call = (
                f"transition({show(before[0])}, {before[1]}, {bool(flags[i])}) with growth "
                f"{settings[0]}, backoff {settings[1]}, interval {settings[2]}"
            )
            pair = tuple(number(part, call=call) for part in several(got, 2, call=call))
            if pair != want:
                later = answers[name][i + 1 : i + 2] if not any(flags[i : i + 2]) else []
                raise Mistake(
                    OTHER_PAIR,
                    call=call,
                    got=f"({show(pair[0])}, {pair[1]:g})",
                    want=f"({show(want[0])}, {want[1]})",
                    why=_transition_rule(before, flags[i], settings, pair, want),
                    misconception=_transition_idea(before, flags[i], settings, pair, want, later),
                )
            before = want
        if len(answers[name]) != len(wanted):
            raise Mistake(OTHER_COUNT, name=name, got=len(answers[name]), want=len(wanted))


def _transition_rule(before, flag, settings, pair, want):
    """The rule that the wanted pair follows, as a sentence."""
    (scale, count), (growth, backoff, interval) = before, settings
    if pair[::-1] == want:
        return TURNED
    if flag:
        factor, rule = backoff, AFTER_OVERFLOW
    elif count + 1 < interval:
        factor, rule = 1.0, ONLY_COUNTS
    elif math.isinf(to_float32(scale * growth)):
        return NO_GROWTH
    else:
        factor, rule = growth, GROWS
    if pair[0] != want[0] and pair[0] == to_float32(scale * to_float32(factor)):
        rule = FACTOR_ROUNDED
    return fill(rule, factor=str(factor), good=count + 1, interval=interval)


def _transition_idea(before, flag, settings, pair, want, later):
    """The idea that one wrong step from a right state isolates; None where it could be another."""
    growth, _, interval = settings
    (scale, count), (new_scale, new_count) = before, pair
    grew, is_due = new_scale > scale, count + 1 == interval
    if new_count == want[1] and new_scale != want[0] == to_float32(new_scale):
        return "scale-is-a-python-float"
    if flag:
        kept = new_scale == want[0] and new_count in (count, count + 1)
        return "counter-survives-overflow" if kept and count and new_count else None
    if math.isinf(new_scale):
        return "the-scale-may-become-inf"
    if grew and not is_due:
        at_once = count == 0 and new_scale == to_float32(scale * growth)
        return "growth-at-each-step" if at_once else None
    if is_due and new_count == count + 1 and grew:
        return "counter-survives-growth"
    if is_due and new_count == count + 1 and want[0] > scale and later:
        # Late by one step, if the next one grows; else the answer waits for something else.
        late = plain(later[0]) == type(later[0])((want[0], 0))
        return "growth-comes-one-step-later" if late else None
    return None


def _torch_walk(scale, flags, settings):
    scale = torch.tensor([scale], dtype=torch.float32)
    count = torch.tensor([0], dtype=torch.int32)
    pairs = []
    for flag in flags:
        # The kernel that torch.amp.GradScaler.update() calls.
        torch._amp_update_scale_(scale, count, torch.tensor([float(flag)]), *settings)
        pairs.append((scale.item(), count.item()))
    return pairs


check_transition.slip(
    "growth-at-each-step",
    "You grow after a single good step. Which number says how many steps were good in a row?",
    cut="if count + 1 < interval:\n        return scale, count + 1",
)
check_transition.slip(
    "counter-survives-growth",
    "The scale grew and your count went on. How many good steps has the *new* scale had?",
    swap=("else scale), 0", "else scale), count + 1"),
)
check_transition.slip(
    "counter-survives-overflow",
    "Good steps before the overflow are still counted. How many are there *in a row* after it?",
    swap=("backoff), 0", "backoff), count"),
)
check_transition.slip(
    "scale-is-a-python-float",
    "Your scale is not a float32 value. Which function must round the result of each "
    "multiplication?",
    # Both roundings at once: in its own body to_float32 is Python's float.
    swap=("interval=2000", "interval=2000, to_float32=float"),
)
check_transition.slip(
    "the-scale-may-become-inf",
    "An infinite scale makes every gradient inf or NaN. Which scale must stay if the grown one is "
    "not finite?",
    swap=("(grown if math.isfinite(grown) else scale)", "grown"),
)
check_transition.slip(
    "growth-comes-one-step-later",
    "You compare the count without this good step. Does this step count towards `interval`?",
    swap=("count + 1 < interval", "count < interval"),
)
