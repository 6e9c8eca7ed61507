"""Check of lab 04: unscale the gradients of an optimizer, then step or skip."""

import math
import random

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "04_loss_scaling"

RAISED = "{name}: your step raised {error}."
NO_FLAG = "{name}: you return {came}; True (skipped) or False is wanted."
OTHER_FLAG = "{name}: the gradients {are}, and you return {got}. {where}"
SPOILED = "It is {bad}, in `param_groups[{group}]`."
OTHER_STEP = (
    "{name}, finite gradients: {key} becomes {got}; with GradScaler it becomes {want}. {why}"
)
TIMES_AS_LONG = (  # at the scale of `_two_steps`
    "The step is {times:.4g} times as long as it should be; the scale is 2**20, or 1.049e+06."
)
NO_PARAMETERS = (
    "{name}: after your steps the optimizer no longer holds all of its parameters and moments."
)
NOT_SKIPPED = (
    "{name}, a gradient is inf or NaN: {key} went from {before} to {after}; no bit may change."
)
LARGE = "two gradients of 2**127, whose sum and norm are inf in float32"
SIXTEEN_BIT = "With an FP16 gradient of 0.001 and scale 65536 {said}; a ValueError is wanted."
RAISES = "your step raises {error}"
WEIGHT_BECAME = "a weight of 1 becomes {got}"

_OPTIMIZERS = {  # how it is made, what spoils the second step, in which of two groups
    "SGD": (lambda groups: torch.optim.SGD(groups, lr=0.5), math.inf, 1),
    "SGD with momentum": (
        lambda groups: torch.optim.SGD(groups, lr=0.5, momentum=0.9), -math.inf, 0,
    ),
    "Adam": (lambda groups: torch.optim.Adam(groups, lr=0.1), math.nan, 1),
    "fused AdamW": (lambda groups: torch.optim.AdamW(groups, lr=0.1, fused=True), math.inf, 1),
}  # fmt: skip
_WIDE = "BF16 and float64 gradients"


def run_scaled_step(scaled_step, seed):
    """`scaled_step` with four optimizers, wide, large and FP16 gradients: flags and states."""
    seen = {name: attempt(_two_steps, scaled_step, name, seed) for name in _OPTIMIZERS}
    seen[_WIDE] = attempt(_wide, scaled_step)
    seen["large gradients"] = attempt(_large, scaled_step)
    seen["FP16 gradients"] = attempt(_sixteen_bit, scaled_step)
    return seen


def _two_steps(step, name, seed):
    """A good step, then one that holds an inf or a NaN: both flags, the states after each."""
    draw = random.Random(seed)
    make, bad, spoiled = _OPTIMIZERS[name]
    values = [1.0, -2.0, 0.5], [[3.0], [4.0]], [5.0]
    first, second, idle = (torch.nn.Parameter(torch.tensor(value)) for value in values)
    optimizer = make([{"params": [idle, first]}, {"params": [second]}])
    flags, states = [], []
    for extra in (1.0, bad):
        gradients = [[1e-3, -2e-8, 3.0], [[-0.5], [draw.gauss(0, 1)]]]
        for p, gradient in zip((first, second), gradients, strict=True):
            p.grad = torch.tensor(gradient) * 2.0**20
        (first, second)[spoiled].grad[-1] *= extra
        flags.append(step(optimizer, 2.0**20))
        states.append(_state(optimizer))
    return flags, *states


def _state(optimizer):
    """Parameters and moments, by a name each."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    values = {f"parameter {i}": p.detach().clone() for i, p in enumerate(held)}
    for i, p in enumerate(held):
        for key, moment in optimizer.state[p].items():
            if isinstance(moment, torch.Tensor):
                values[f"{key} of parameter {i}"] = moment.clone()
    return values


def _wide(step):
    parameters = [torch.nn.Parameter(torch.ones(1).to(t)) for t in (torch.bfloat16, torch.float64)]
    for p in parameters:
        p.grad = torch.full_like(p, 512.0)
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    return [step(optimizer, 1024.0)], _state(optimizer)


def _large(step):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full_like(weight, 2.0**127)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    return [step(optimizer, 1.0)], _state(optimizer)


def _sixteen_bit(step):
    weight = torch.nn.Parameter(torch.ones(1).half())
    weight.grad = torch.tensor([1e-3]).half()
    step(torch.optim.SGD([weight], lr=1.0), 65536.0)
    return weight.detach().clone()


@check(
    run_scaled_step,
    own_work=(
        "torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cpu.amp.GradScaler",
    ),
)
def check_scaled_step(seen, seed):
    """Unscaled in all groups; a skipped step leaves every bit, moments included."""
    for name in _OPTIMIZERS:
        flags, good, after = _fetched(seen[name], name)
        _judge_flags(flags, [False, True], name)
        _judge_step(good, _two_steps(_torch_step, name, seed)[1], name, seed)
        _judge_skip(good, after, name)
    for key, name, run in (_WIDE, _WIDE, _wide), ("large gradients", LARGE, _large):
        flags, good = _fetched(seen[key], name)
        _judge_flags(flags, [False], name)
        _judge_step(good, run(_torch_step)[1], name, seed)
    half = seen["FP16 gradients"]
    if type(half) is not Raised or half.type_name != "ValueError":
        raised = type(half) is Raised
        raise Mistake(
            SIXTEEN_BIT,
            said=fill(RAISES, error=half.type_name)
            if raised
            else fill(WEIGHT_BECAME, got=_short(half)),
            misconception=None if raised else "sixteen-bit-gradients-can-be-unscaled",
            search=False,
        )


def _torch_step(optimizer, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(torch.zeros(()))  # GradScaler makes its scale at the first loss
    scaler.step(optimizer)


def _fetched(got, name):
    if type(got) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(got))
    return got


def _judge_flags(flags, wanted, name):
    for got, want in zip(flags, wanted, strict=True):
        if not isinstance(got, (bool, torch.Tensor)):
            raise Mistake(NO_FLAG, name=name, came=came(got))
        if bool(got) != want:
            are = "hold an inf or a NaN" if want else "are all finite"
            where = _spoiled(name) if want else ""
            raise Mistake(OTHER_FLAG, name=name, are=are, got=bool(got), where=where)


def _spoiled(name):
    """Where the second step of an optimizer holds what."""
    _, bad, group = _OPTIMIZERS[name]
    return fill(SPOILED, group=group, bad="a NaN" if math.isnan(bad) else "an inf")


def _judge_step(good, right, name, seed):
    for key, value in right.items():
        if key.startswith("parameter") and not torch.equal(good[key], value):
            raise Mistake(
                OTHER_STEP,
                name=name,
                key=key,
                got=_short(good[key]),
                want=_short(value),
                why=_how_long(name, seed, key, good[key], value) if name in _OPTIMIZERS else "",
            )


def _how_long(name, seed, key, got, right):
    """How the step compares with the right one, where one number says it."""
    start = _two_steps(lambda optimizer, scale: False, name, seed)[1]
    went, wanted = ((end - start[key]).double().flatten() for end in (got, right))
    times = (went @ wanted / (wanted @ wanted)).item()
    if not abs(times) > 1 or (went - times * wanted).norm() > 1e-3 * went.norm():
        return ""
    return fill(TIMES_AS_LONG, times=times)


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
    "With zero gradients Adam and momentum still move the weights. Which call must not happen?",
    swap=(
        "if not found_inf:\n        optimizer.step()",
        "if found_inf:\n        optimizer.zero_grad(set_to_none=False)\n    optimizer.step()",
    ),
)
check_scaled_step.slip(
    "first-group-is-all",
    "The second parameter group was neither divided nor checked. Which groups does your loop run "
    "over?",
    swap=("optimizer.param_groups", "optimizer.param_groups[:1]"),
)
check_scaled_step.slip(
    "only-inf-spoils-a-step",
    "inf - inf is NaN, so an overflow often arrives as NaN. Which test finds both?",
    swap=("not p.grad.isfinite().all()", "p.grad.isinf().any()"),
)
check_scaled_step.slip(
    "an-overflow-spoils-one-tensor",
    "You stepped the parameters whose gradients were finite. When may the optimizer step at all?",
    swap=(
        """\
            found_inf |= not p.grad.isfinite().all().item()
    if not found_inf:
        optimizer.step()
""",
        """\
            if not p.grad.isfinite().all():
                found_inf, p.grad = True, None
    optimizer.step()
""",
    ),
)
check_scaled_step.slip(
    "unscaling-is-optional",
    "The step is longer by the factor of the scale. Which line divides the gradients?",
    cut="p.grad = p.grad / scale",
)
check_scaled_step.slip(
    "unscaling-may-be-sixteen-bit",
    "The scaled gradient was rounded to FP16 before the division. In which dtype do you divide?",
    swap=("p.grad / scale", "(p.grad.half() / scale).float()"),
)
check_scaled_step.slip(
    "sixteen-bit-gradients-can-be-unscaled",
    "Divided in FP16, 0.001 / 65536 is 0: the gradient underflows again. For which gradients must "
    "your step raise?",
    cut="""\
if p.grad.dtype == torch.float16:
                raise ValueError("FP16 gradients would underflow when they are unscaled")""",
)
