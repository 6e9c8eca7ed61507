"""Checks of lab 04, sitting B: the transition, unscale and step, the scaler."""

import math
import random
from dataclasses import replace

import numpy as np
import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill, show
from labkit.labs.engine.reading import failure, several
from labkit.labs.engine.running import plain
from labkit.labs.loss_scaling import solutions
from labkit.training.scaling import to_float32

LAB = "04_loss_scaling"

OTHER_PAIR = "`{call}` is {got}; GradScaler goes to {want}. {why}"
OTHER_COUNT = "{name}: {got} pairs came back for {want} flags."
TURNED = "The scale comes first, then the count."
AFTER_OVERFLOW = "After an overflow the scale is multiplied by {factor} and the count is 0."
ONLY_COUNTS = "This is good step {good} in a row of {interval}: only the count changes."
NO_GROWTH = "Growth would make the scale inf, so it stays, and counting begins again at 0."
GROWS = (
    "This is good step {good} in a row of {interval}: the scale is multiplied by {factor} and the "
    "count is 0."
)
FACTOR_ROUNDED = "You rounded {factor} to float32 before the product; round the product only."

RAISED = "{name}: {error}."
OTHER_STEP = "{name}, finite gradients: {key} becomes {got}; with GradScaler {want}. {why}"
STILL_SCALED = (
    "The step was taken with the gradient still scaled. Where a row occurs twice, coalesce() makes "
    "a new tensor: what does p.grad hold?"
)
TIMES_AS_LONG = "The step is {times:.4g} times as long as it should be."
FIRST_STOOD = "Two optimizers, NaN in the second: the first one did not take its step."
WIDE = "BF16 and float64 gradients: {key} becomes {got}; with GradScaler {want}."
LARGE_TWICE = (
    "Scaled gradients of 2e38, twice: each is finite, and the weights go to {got}; with GradScaler "
    "{want}."
)
LARGE = "A scaled gradient of 2e38: the weights go to {got}; with GradScaler {want}."
SIXTEEN_BIT = "An FP16 gradient, 0.001 at scale 65536: {said}; a ValueError is wanted."
WEIGHT_BECAME = "the weight 1 becomes {got}"
NO_FLAG = "{name}: you return {came}; True (skipped) or False is wanted."
OTHER_FLAG = "{name}: the gradients {are}, and you return {got}."
NO_PARAMETERS = "{name}: the optimizer's parameters did not come back."
NOT_SKIPPED = (
    "{name}, a gradient is inf or NaN: {key} went from {before} to {after}; no bit may change."
)

OTHER_SCALER = (
    "{name}: after step {step} {what} is {got:exact}, with GradScaler {want:exact}. {why}"
)
LOADED = "The scaler was saved after step {step}, and another one loaded what was saved."
WENT = "It went {times:g} times as far as it should; the scale was {scale:g}."
ITS_OVERFLOW = "Its own gradient overflowed, so it stays."
ITS_STEP = "Its own gradients were finite, so its optimizer steps."
HALVES = "A gradient overflowed in this step, so the scale halves, once."
GOOD_STEP = "This is good step {good} in a row of {interval}, so the scale {then}."


# The transition

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


@check(run_transition, bits=True)
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
    if flag:
        kept = new_scale == want[0] and new_count in (count, count + 1)
        return "counter-survives-overflow" if kept and count and new_count else None
    if math.isinf(new_scale):
        return "the-scale-may-become-inf"
    if new_count == want[1] and new_scale != want[0] == to_float32(new_scale):
        return "scale-is-a-python-float"
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
    "You grow after a single good step. Which number counts how long the scale has lasted?",
    cut="if count + 1 < interval:\n        return scale, count + 1",
)
check_transition.slip(
    "counter-survives-growth",
    "The scale grew and your count went on. How many steps has the *new* scale lasted?",
    swap=("else scale), 0", "else scale), count + 1"),
)
check_transition.slip(
    "counter-survives-overflow",
    "A good step before the overflow was still counted. How many good steps *in a row* are there?",
    swap=("backoff), 0", "backoff), count"),
)
check_transition.slip(
    "scale-is-a-python-float",
    "Your product has more bits than a float32 holds. Which rounding follows each change?",
    # Both roundings at once: in its own body to_float32 is Python's float.
    swap=("interval=2000", "interval=2000, to_float32=float"),
)
check_transition.slip(
    "the-scale-may-become-inf",
    "An infinite scale makes every gradient inf or NaN. What if the grown scale is not finite?",
    swap=("(grown if math.isfinite(grown) else scale)", "grown"),
)
check_transition.slip(
    "growth-comes-one-step-later",
    "You compare the count before this step is added. Does this good step count?",
    swap=("count + 1 < interval", "count < interval"),
)


# Unscale and step


def _parameters(*values):
    return [torch.nn.Parameter(torch.tensor(value)) for value in values]


def _set(parameters, gradients, scale):
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = None if gradient is None else torch.tensor(gradient) * scale


def _state(optimizer):
    """Parameters and moments, by a name each."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    values = {f"parameter {i}": p.detach().clone() for i, p in enumerate(held)}
    for i, p in enumerate(held):
        for key, moment in optimizer.state[p].items():
            if isinstance(moment, torch.Tensor):
                values[f"{key} of parameter {i}"] = moment.clone()
    return values


def _good_then_bad(step, make, bad, *, in_first=False):
    """One good step, then one whose gradients hold an inf or a NaN in one of the two groups."""
    first, second, idle = parameters = _parameters([1.0, -2.0, 0.5], [[3.0], [4.0]], [5.0])
    optimizer = make([{"params": [first]}, {"params": [second, idle]}])
    _set(parameters, [[1e-3, -2e-8, 3.0], [[-0.5], [0.25]], None], 2.0**20)
    flags = [step(optimizer, 2.0**20)]
    before = _state(optimizer)
    x, y = (bad, 1.0) if in_first else (1.0, bad)
    _set(parameters, [[1.0, x, 1.0], [[y], [0.25]], None], 2.0**20)
    flags.append(step(optimizer, 2.0**20))
    return flags, before, _state(optimizer)


def _sparse(step):
    rows = torch.nn.Embedding(5, 2, sparse=True)
    torch.nn.init.ones_(rows.weight)
    optimizer, flags, states = torch.optim.SGD(rows.parameters(), lr=0.5), [], []
    for factor in (1.0, math.inf):
        optimizer.zero_grad()
        (rows(torch.tensor([1, 3, 3])) * factor * 1024.0).sum().backward()
        flags.append(step(optimizer, 1024.0))
        states.append(_state(optimizer))
    return flags, *states


def _two_optimizers(step):
    (generator,), (critic,) = _parameters([1.0]), _parameters([1.0])
    both = [torch.optim.SGD([p], lr=0.5) for p in (generator, critic)]
    _set([generator, critic], [[1.0], [math.nan]], 8.0)
    before = _state(both[1])
    flags = [step(optimizer, 8.0) for optimizer in both]
    return flags, _state(both[0]), before, _state(both[1])


def _wide(step):
    """A BF16 and a float64 gradient, which GradScaler unscales too."""
    parameters = [torch.nn.Parameter(torch.ones(1).to(t)) for t in (torch.bfloat16, torch.float64)]
    for p in parameters:
        p.grad = torch.full_like(p, 512.0)
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    return [step(optimizer, 1024.0)], _state(optimizer)


def _large(step, second=2e38):
    """Finite gradients whose sum is not, neither before the division nor after it."""
    (weight,) = parameters = _parameters([0.0, 0.0])
    optimizer = torch.optim.SGD(parameters, lr=2.0**-126)
    _set(parameters, [[2e38, second]], 1.0)
    flags = [step(optimizer, 1.0)]
    return flags, weight.detach().clone()


def _sixteen_bit(step):
    (weight,) = _parameters([1.0])
    weight.data = weight.data.half()
    weight.grad = torch.tensor([1e-3]).half()
    step(torch.optim.SGD([weight], lr=1.0), 65536.0)
    return weight.detach().clone()


def _drawn(step, seed):
    """Gradients that are drawn, then the same with an inf or a NaN in a place that is drawn."""
    draw = random.Random(seed)
    parameters = _parameters([1.0, -2.0, 0.5], [[3.0], [4.0], [5.0]])
    optimizer = torch.optim.SGD([{"params": [p]} for p in parameters], lr=0.5)
    gradients = [[draw.gauss(0, 1) for _ in range(3)], [[draw.gauss(0, 1)] for _ in range(3)]]
    scale = 2.0 ** draw.randint(8, 24)
    _set(parameters, gradients, scale)
    flags = [step(optimizer, scale)]
    before = _state(optimizer)
    _set(parameters, gradients, scale)
    bad = parameters[draw.randrange(2)].grad.view(3)
    bad[draw.randrange(3)] = draw.choice((math.inf, -math.inf, math.nan))
    flags.append(step(optimizer, scale))
    return flags, before, _state(optimizer)


_SCENES = {
    "SGD": lambda step: _good_then_bad(
        step, lambda groups: torch.optim.SGD(groups, lr=0.5), math.inf
    ),
    "SGD with momentum": lambda step: _good_then_bad(
        step, lambda groups: torch.optim.SGD(groups, lr=0.5, momentum=0.9), -math.inf, in_first=True
    ),
    "Adam": lambda step: _good_then_bad(
        step, lambda groups: torch.optim.Adam(groups, lr=0.1), math.nan
    ),
    "fused AdamW": lambda step: _good_then_bad(
        step, lambda groups: torch.optim.AdamW(groups, lr=0.1, fused=True), math.inf
    ),
    "SGD with sparse gradients": _sparse,
}


def _scenes(seed):
    return _SCENES | {"SGD with random gradients": lambda step: _drawn(step, seed)}


def run_scaled_step(scaled_step, seed):
    """`scaled_step` with nine optimizers: what it returned, and their states before and after."""
    seen = {name: attempt(scene, scaled_step) for name, scene in _scenes(seed).items()}
    seen["two optimizers"] = attempt(_two_optimizers, scaled_step)
    seen["BF16 and float64 gradients"] = attempt(_wide, scaled_step)
    seen["large gradients"] = attempt(_large, scaled_step)
    seen["a large gradient"] = attempt(_large, scaled_step, 0.0)
    seen["FP16 gradients"] = attempt(_sixteen_bit, scaled_step)
    return seen


@check(run_scaled_step)
def check_scaled_step(seen, seed):
    """Unscaled in float32, all groups; a skipped step leaves every bit, moments included."""
    for name, scene in _scenes(seed).items():
        flags, good, after = _fetched(seen[name], name)
        _, right, _ = scene(_torch_step)
        _judge_flags(flags, [False, True], name)
        for key, value in right.items():
            if key.startswith("parameter") and not torch.equal(good[key], value):
                still = _still_scaled(name, scene, key, good)
                raise Mistake(
                    OTHER_STEP,
                    name=name,
                    key=key,
                    got=_short(good[key]),
                    want=_short(value),
                    why=f"{still} {_how_long(scene, key, good[key], value)}".strip(),
                )
        _judge_skip(good, after, name)
    flags, free, before, after = _fetched(seen["two optimizers"], "two optimizers")
    _judge_flags(flags, [False, True], "two optimizers, NaN in the second")
    if free["parameter 0"].item() != 0.5:
        raise Mistake(FIRST_STOOD)
    _judge_skip(before, after, "two optimizers")
    flags, after = _fetched(seen["BF16 and float64 gradients"], "BF16 and float64 gradients")
    _judge_flags(flags, [False], "BF16 and float64 gradients")
    for key, value in _wide(_torch_step)[1].items():
        if not torch.equal(after[key], value):
            raise Mistake(WIDE, key=key, got=_short(after[key]), want=_short(value))
    flags, moved = _fetched(seen["large gradients"], "scaled gradients of 2e38, twice")
    if not torch.equal(moved, _large(_torch_step)[1]):
        alone = seen["a large gradient"]
        fits_alone = type(alone) is not Raised and torch.equal(
            alone[1], _large(_torch_step, 0.0)[1]
        )
        idea = "finite-terms-finite-sum" if fits_alone and not moved.any() else None
        want = _short(_large(_torch_step)[1])
        raise Mistake(LARGE_TWICE, got=_short(moved), want=want, misconception=idea)
    _judge_flags(flags, [False], "scaled gradients of 2e38, twice")
    flags, moved = _fetched(seen["a large gradient"], "a scaled gradient of 2e38")
    _judge_flags(flags, [False], "a scaled gradient of 2e38")
    if not torch.equal(moved, _large(_torch_step, 0.0)[1]):
        raise Mistake(LARGE, got=_short(moved), want=_short(_large(_torch_step, 0.0)[1]))
    half = seen["FP16 gradients"]
    if type(half) is not Raised or half.type_name != "ValueError":
        raised = type(half) is Raised
        raise Mistake(
            SIXTEEN_BIT,
            said=half.type_name if raised else fill(WEIGHT_BECAME, got=_short(half)),
            misconception=(None if raised else "sixteen-bit-gradients-can-be-unscaled"),
            search=False,
        )


def _how_long(scene, key, got, right):
    """How the step compares with the right one, where one number says it."""
    _, start, _ = scene(lambda optimizer, scale: False)
    went, wanted = ((end - start[key]).double().flatten() for end in (got, right))
    times = (went @ wanted / (wanted @ wanted)).item()
    if not abs(times) > 1 or (went - times * wanted).norm() > 1e-3 * went.norm():
        return ""
    return fill(TIMES_AS_LONG, times=times)


def _still_scaled(name, scene, key, good):
    """What is true of a sparse gradient that was not divided."""
    if name != "SGD with sparse gradients":
        return ""
    _, scaled, _ = scene(lambda optimizer, scale: optimizer.step())
    return STILL_SCALED if torch.equal(good[key], scaled[key]) else ""


def _torch_step(optimizer, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(torch.zeros(()))  # GradScaler makes its scale at the first loss
    scaler.step(optimizer)


def _fetched(got, name):
    if type(got) is Raised:
        # torch's next sentences are on its dispatcher.
        first = replace(got, message=got.message.split(". ")[0])
        raise AnswerError(RAISED, name=name, error=failure(first))
    return got


def _judge_flags(flags, wanted, name):
    for got, want in zip(flags, wanted, strict=True):
        if not isinstance(got, (bool, torch.Tensor)):
            raise Mistake(NO_FLAG, name=name, came=came(got))
        if bool(got) != want:
            are = "hold an inf or a NaN" if want else "are all finite"
            raise Mistake(OTHER_FLAG, name=name, are=are, got=bool(got))


def _judge_skip(before, after, name):
    if "parameter 0" not in before or not before.keys() <= after.keys():
        raise Mistake(NO_PARAMETERS, name=name)
    for key, value in after.items():
        old = before.get(key, torch.zeros_like(value))
        if not torch.equal(old, value):
            raise Mistake(NOT_SKIPPED, name=name, key=key, before=_short(old), after=_short(value))


def _short(tensor):
    return "[" + ", ".join(f"{x:.6g}" for x in tensor.detach().flatten().tolist()[:4]) + "]"


check_scaled_step.slip(
    "zeroed-step-is-a-skip",
    "A step with zero gradients is still a step: momentum and moments go on, and decay. "
    "What must not be called at all?",
    swap=(
        "if not found_inf:\n        optimizer.step()",
        "if found_inf:\n        optimizer.zero_grad(set_to_none=False)\n    optimizer.step()",
    ),
)
check_scaled_step.slip(
    "first-group-is-all",
    "The second group was neither unscaled nor looked at. Over what does your loop run?",
    swap=("optimizer.param_groups", "optimizer.param_groups[:1]"),
)
check_scaled_step.slip(
    "only-inf-spoils-a-step",
    "inf - inf is NaN, so an overflow often arrives as NaN. Which test refuses both?",
    swap=("not numbers.isfinite().all()", "numbers.isinf().any()"),
)
check_scaled_step.slip(
    "an-overflow-spoils-one-tensor",
    "You stepped the other parameters. One step of half of a network: is that what SGD would do?",
    swap=(
        """\
            found_inf |= not numbers.isfinite().all().item()
    if not found_inf:
        optimizer.step()
""",
        """\
            if not numbers.isfinite().all():
                found_inf, p.grad = True, None
    optimizer.step()
""",
    ),
)
check_scaled_step.slip(
    "unscaling-is-optional",
    "The step is as many times too long as the scale is large. Who divides the gradients?",
    cut="p.grad = p.grad / scale",
)
check_scaled_step.slip(
    "unscaling-may-be-sixteen-bit",
    "The scaled gradient met FP16 before the division. In which dtype is it when you divide?",
    # Looked at before: what FP16 makes inf goes into the weights.
    swap=(
        """\
p.grad = p.grad / scale
            numbers = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
""",
        """\
numbers = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
            p.grad = (p.grad.half() / scale).float()
""",
    ),
)
check_scaled_step.slip(
    "finite-terms-finite-sum",
    "2e38 + 2e38 is inf in FP32, though each gradient is finite. What can you ask each element?",
    swap=("isfinite().all()", "sum().isfinite()"),
)
check_scaled_step.slip(
    "sixteen-bit-gradients-can-be-unscaled",
    "Divided in FP16, 0.001 / 65536 is 0: the underflow is back. What should the caller hear?",
    cut="""\
if p.grad.dtype == torch.float16:
                raise ValueError("FP16 gradients would underflow when they are unscaled")""",
)


# The scaler

_SCRIPTS = {  # scale, interval, (first, second optimizer overflows) at each step, resumed before
    "flags 1,1,0,0,0,0,1,0,0": (65536.0, 3, [(f, f) for f in (1, 1, 0, 0, 0, 0, 1, 0, 0)], None),
    "only the second of two optimizers overflows": (
        1024.0, 3, [(0, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)], None
    ),
    "only the first of two optimizers overflows": (
        1024.0, 3, [(0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0)], None
    ),
    "saved and loaded after 2 good steps, interval 3": (512.0, 3, [(0, 0)] * 6, 2),
    "saved and loaded after an overflow": (512.0, 3, [(0, 0), (1, 1), (0, 0), (0, 0)], 2),
}  # fmt: skip


def _scripts(seed):
    """The scripts above, and one of 20 steps that are drawn."""
    draw = random.Random(seed)
    drawn = [(int(draw.random() < 0.15), int(draw.random() < 0.15)) for _ in range(20)]
    return _SCRIPTS | {
        "20 random steps, saved and loaded": (1024.0, 3, drawn, draw.randrange(1, 20))
    }


def run_scaler(Scaler, seed):
    """`Scaler` drives two optimizers along six scripts: its scale and the weights at each step."""
    return {name: attempt(_drive, Scaler, *script) for name, script in _scripts(seed).items()}


def _overflow(scaler):
    (weight,) = _parameters(1.0)
    scaler.scale(weight * math.inf).backward()
    scaler.step(torch.optim.SGD([weight], lr=1.0))
    scaler.update()


def _drive(make, scale, interval, flags, resume):
    weights = _parameters(1.0, 1.0)
    optimizers = [torch.optim.SGD([weight], lr=2.0**-6) for weight in weights]
    scaler, rows = make(scale, interval), []
    for i, overflows in enumerate(flags):
        if i == resume:
            state = scaler.state_dict()
            _overflow(scaler)  # training that goes on must not change what was saved
            scaler = make(scale, interval)
            scaler.load_state_dict(state)
        for weight, optimizer, overflow in zip(weights, optimizers, overflows, strict=True):
            optimizer.zero_grad()
            scaler.scale(weight * (math.inf if overflow else 1.0)).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        one = scaler.scale(torch.ones(()))
        rows.append([one.item(), *(weight.item() for weight in weights)])
    return rows


@check(run_scaler, bits=True)
def check_scaler(answers, seed):
    """In step with torch.amp.GradScaler: two optimizers, one update, saved and resumed."""
    for name, script in _scripts(seed).items():
        rows = _fetched(answers[name], name)
        right = _drive(
            lambda scale, interval: torch.amp.GradScaler(
                "cpu", init_scale=scale, growth_interval=interval
            ),
            *script,
        )
        for i, (got, want) in enumerate(zip(rows, right, strict=True)):
            for what, mine, theirs in zip(
                ("the scale", "the first weight", "the second weight"), got, want, strict=True
            ):
                if mine != theirs:
                    why = (
                        _scaler_rule(what, script, i),
                        _loaded(script, i),
                        _weight_went(what, rows, right, i, script),
                    )
                    raise Mistake(
                        OTHER_SCALER,
                        name=name,
                        step=i + 1,
                        what=what,
                        got=mine,
                        want=theirs,
                        why=" ".join(filter(None, why)),
                    )


def _loaded(script, i):
    resume = script[3]
    if resume is None or i < resume:
        return ""
    return fill(LOADED, step=resume)


def _weight_went(what, rows, right, i, script):
    """How far a weight went in the first step that is wrong."""
    place = ("the scale", "the first weight", "the second weight").index(what)
    before = right[i - 1] if i else [script[0], 1.0, 1.0]
    wanted, went = right[i][place] - before[place], rows[i][place] - before[place]
    if not place or not wanted or not went or not math.isfinite(went):
        return ""
    return fill(WENT, times=went / wanted, scale=before[0])


def _scaler_rule(what, script, i):
    """Why GradScaler does what it does in a step, as a sentence."""
    _, interval, flags, _ = script
    if what != "the scale":
        overflowed = flags[i][what == "the second weight"]
        return ITS_OVERFLOW if overflowed else ITS_STEP
    if any(flags[i]):
        return HALVES
    good = 0
    for overflows in flags[: i + 1]:
        good = 0 if any(overflows) or good == interval else good
        good += not any(overflows)
    then = "doubles" if good == interval else "stays"
    return fill(GOOD_STEP, good=good, interval=interval, then=then)


check_scaler.slip(
    "resuming-needs-the-scale-alone",
    "After loading, the scale was right and grew too late. Which other number makes up the state?",
    swap=(
        'self.current, self.count = state["scale"], state["count"]',
        'self.current = state["scale"]',
    ),
)


@check_scaler.wrong(
    "saved-state-is-a-copy",
    "The old scaler went on after it was saved, and what was saved changed with it. "
    "What does `return self.__dict__` hand out?",
)
class _(solutions.Scaler):
    def state_dict(self):
        return self.__dict__

    def load_state_dict(self, state):
        self.__dict__.update(state)


@check_scaler.wrong(
    "step-updates-the-scale",
    "With two optimizers your scale changes twice in one iteration. Who calls update, and when?",
)
class _(solutions.Scaler):
    def step(self, optimizer):
        super().step(optimizer)
        super().update()

    def update(self):
        pass


check_scaler.slip(
    "the-last-optimizer-decides",
    "The second optimizer was fine, and wiped out what the first had found. "
    "How do two flags become one?",
    swap=("|=", "="),
)
check_scaler.slip(
    "an-overflow-is-never-forgiven",
    "Every step after the first overflow counts as one. Which line forgets it?",
    cut="self.found_inf = False\n",
)
check_scaler.slip(
    "all-optimizers-wait-for-one",
    "The second optimizer had finite gradients and must step. Which flag made it wait?",
    swap=("|=", "= self.found_inf or"),
)
