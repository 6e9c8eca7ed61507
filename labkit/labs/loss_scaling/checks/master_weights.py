"""Checks of lab 04, sitting A: two ways to lose a gradient, master weights, a fixed loss scale."""

import math
import random
from fractions import Fraction

import numpy as np
import torch

from labkit.formats import BF16, spacing
from labkit.labs.engine import AnswerError, Mistake, attempt, calls, check, number, word
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill, show
from labkit.labs.engine.reading import failure

LAB = "04_loss_scaling"

OTHER_FATE = (
    "`{call}` is {got}. FP16 stores the gradient as {stored:exact}; weight - lr * {stored:exact} "
    "is {exact:exact}, and FP16 stores {after:exact}."
)

RAISED = "{name}: {error}."
OTHER_SHAPES = "{name}: after step() the parameters have another shape."
OTHER_DTYPE = "{name}: after step() the model's weight is {got}; it must stay torch.bfloat16."
OTHER_WEIGHT = (
    "{name}: after {steps} steps weight {i} is {got:.6g}; exact arithmetic gives {want:.6g}, "
    "within half a BF16 gap. {why}"
)
IDLE_MOVED = "{name}: a parameter without a gradient went to {idle}."
ONE_STEP = "It is where the last step alone would leave it: no earlier step was kept."
OTHER_WAY = "It went the other way: which sign has the update?"
SO_FAR = "It went {times:.3g} times as far as it should, with lr {lr:exact}."
UNMOVED = "It did not move: do your steps come to it?"

NO_POWER = "{name}: {got} is no power of two, so it would round the gradients."
OTHER_SCALE = (
    "{name}: you pick {got:exact}. Headroom times S times the largest |g| is {reach:.6g}{verdict}."
)
ABOVE = ", above FP16's largest value, 65504"
BELOW = "; twice that is still at most 65504"


# Two losses

FATES = ("underflowed", "swamped", "fine")
_STEPS = [
    (0.5, 0.25, 0.5), (1.0, 1e-8, 1.0), (1.0, 2.0**-20, 1.0), (2.0**-10, 2.0**-20, 1.0),
    (0.5, 0.1, 1e-3), (1.0, 1e-8, 1e6), (1.0, 1e-2, 1e-6), (1.5, 1.5 / 2500, 1.0),
    (1.0, 2.0**-11, 1.0), (1.0, -(2.0**-11), 1.0), (1 + 2.0**-10, -(2.0**-11), 1.0),
    (100.0, 0.02, 1.0), (-100.0, 0.04, 1.0), (2.0**-7, 3e-8, 1.0), (2.0**-10, 2.0**-25, 1.0),
    (2.0**-14, 2.0**-24, 1.0), (-3.0, -1e-3, 0.5), (60000.0, 100.0, 0.25),
    # Here it shows whether the gradient is rounded, and whether lr * gradient is not.
    (0.05712890625, 1.528176250451124e-05, 1.0),
    (3.737211227416992e-05, 3.0983819818650453e-07, 0.1),
]  # fmt: skip


def _steps(seed):
    """The steps above, and twenty more with a gradient and an update of any size."""
    draw = random.Random(seed)
    drawn = []
    for _ in range(20):
        gradient = draw.choice((-1, 1)) * 10.0 ** draw.uniform(-9, 0)
        drawn.append((float(np.float16(draw.gauss(0, 1))), gradient, 10.0 ** draw.randint(-3, 0)))
    return _STEPS + drawn


@check(calls(_steps))
def check_fate(answers, seed):
    """What becomes of a gradient in FP16: underflowed, swamped, or fine."""
    for (weight, gradient, lr), got in zip(_steps(seed), answers, strict=True):
        call = f"fate({show(weight)}, {show(gradient)}, {show(lr)})"
        got = word(got, FATES, call=call)
        stored = float(np.float16(gradient))
        after = float(np.float16(weight - lr * stored))
        want = FATES[0] if stored == 0 else FATES[1] if after == weight else FATES[2]
        if got != want:
            exact = weight - lr * stored
            raise Mistake(
                OTHER_FATE, call=call, got=repr(got), stored=stored, exact=exact, after=after
            )


@check_fate.wrong(
    "one-threshold-for-both-losses",
    "One number decides both in your answer. The gradient meets the window's edge; "
    "what does the update meet?",
)
def _(weight, gradient, lr):
    return FATES[0] if abs(lr * gradient) <= 2.0**-25 else FATES[2]


check_fate.slip(
    "subnormals-become-zero",
    "2**-14 is the smallest normal value. Which numbers below it does FP16 still hold?",
    swap=("stored == 0", "abs(gradient) < 2.0**-14"),
)
check_fate.slip(
    "swamped-from-2048-times",
    "A ratio of 2048 is right for powers of two. What is the gap of FP16 at this weight?",
    swap=(
        "quantize(weight - lr * stored, FP16) == weight",
        "abs(weight) >= 2048 * abs(lr * stored)",
    ),
)
check_fate.slip(
    "gap-below-is-gap-above",
    "Below a power of two the gap is half as wide, and a tie goes to the even side. "
    "Which rounding could you let FP16 do itself?",
    # FP16's gap at a weight of 2**e and more is 2**(e - 10); no gap is below 2**-24.
    swap=(
        "quantize(weight - lr * stored, FP16) == weight",
        "abs(lr * stored) <= 2.0 ** max(math.frexp(weight)[1] - 11, -24) / 2",
    ),
)
check_fate.slip(
    "updates-are-gradients",
    "The weight meets the update. What stands between a gradient and its update?",
    cut="lr * ",
)
check_fate.slip(
    "underflow-strikes-the-update",
    "Here lr * gradient is tiny, but the gradient was stored in FP16 before lr came. "
    "Which of the two must be 0?",
    swap=("stored == 0", "quantize(lr * gradient, FP16) == 0"),
)


# Master weights

_RUNS = {
    "a weight of 1, gradient 1, lr 2**-10": (
        [1.0], lambda i: [1.0], 2.0**-10, 300, lambda idle, weight: [weight]
    ),
    "the same from a generator, as model.parameters() is one": (
        [1.0], lambda i: [1.0], 2.0**-10, 300, lambda idle, weight: (p for p in [weight])
    ),
    "weights 1 and -2, gradient 1 and -1, lr 0.003, before them a parameter without a gradient": (
        [1.0, -2.0], lambda i: [1.0, -1.0], 3e-3, 300, lambda idle, weight: [idle, weight]
    ),
    "40 weights, random gradients, lr 0.01, after them a parameter without a gradient": (
        torch.linspace(-1.0, 1.0, 40).tolist(),
        lambda i: torch.randn(40, generator=torch.Generator().manual_seed(i)).tolist(), 1e-2, 100,
        lambda idle, weight: [weight, idle],
    ),
}  # fmt: skip


def _runs(seed):
    """The runs above, and one with weights and gradients that are drawn."""
    weights = _normal(seed, 40).tolist()
    return _RUNS | {
        "40 random weights, random gradients, lr 0.01": (
            weights, lambda i: _normal(seed + i + 1, 40).tolist(), 1e-2, 100,
            lambda idle, weight: [weight, idle],
        ),
    }  # fmt: skip


def _normal(seed, n):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def run_masters(Masters, seed):
    """`Masters` takes the scripted steps on BF16 parameters; their values and dtypes."""
    return {name: attempt(_with_masters, Masters, *run) for name, run in _runs(seed).items()}


def _with_masters(Masters, weights, gradient, lr, steps, handed):
    weight = torch.nn.Parameter(torch.tensor(weights).bfloat16())
    idle = torch.nn.Parameter(torch.ones(2).bfloat16())  # a parameter without a gradient
    optimizer = Masters(handed(idle, weight), lr)
    for i in range(steps):
        weight.grad = torch.tensor(gradient(i)).bfloat16()
        optimizer.step()
        if weight.dtype != torch.bfloat16:
            break
    return weight.detach().clone(), idle.detach().clone()


@check(run_masters)
def check_masters(answers, seed):
    """SGD on BF16 weights that loses no update: float32 masters, rounded to BF16 at each step."""
    for name, (weights, gradient, lr, steps, _) in _runs(seed).items():
        got = answers[name]
        if type(got) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(got))
        weight, idle = got
        if (len(weight), len(idle)) != (len(weights), 2):
            raise Mistake(OTHER_SHAPES, name=name)
        if weight.dtype != torch.bfloat16:
            raise Mistake(
                OTHER_DTYPE,
                name=name,
                got=str(weight.dtype),
                misconception=(
                    "the-model-becomes-the-master" if weight.dtype == torch.float32 else None
                ),
                search=False,
            )
        start = want = torch.tensor(weights).bfloat16().double()
        moves = [torch.tensor(gradient(i)).bfloat16().double() * lr for i in range(steps)]
        last_alone = (want - moves[-1]).bfloat16()
        want = want - torch.stack(moves).sum(dim=0)
        # Half a BF16 gap, and per step two float32 roundings of at most 2**-24 of 4.
        slack = spacing(want, BF16) / 2 + steps * 2 * 2.0**-22
        off = ~((weight.double() - want).abs() <= slack)
        if off.any():
            i = int(off.nonzero()[0])
            far = _how_far(weight.double() - start, want - start, lr)
            raise Mistake(
                OTHER_WEIGHT,
                name=name,
                steps=steps,
                i=i,
                got=weight[i],
                want=want[i],
                why=ONE_STEP if torch.equal(weight, last_alone) else far,
            )
        if (idle != 1).any():
            raise Mistake(IDLE_MOVED, name=name, idle=str(idle.tolist()))


def _how_far(went, wanted, lr):
    """How the way of all weights compares with the right one, where one number says it."""
    if not went.any():
        return UNMOVED
    times = (went @ wanted / (wanted @ wanted)).item()
    # BF16 stores each weight within 2**-9 of itself.
    off = (went - times * wanted).norm()
    if not off <= 0.05 * abs(times) * wanted.norm() or 0.9 < times < 1.1:
        return ""
    return OTHER_WAY if times < 0 else fill(SO_FAR, times=times, lr=lr)


check_masters.slip(
    "masters-are-a-cast",
    "Each step starts again from BF16's bits, so what BF16 rounds away is lost. "
    "Which tensor keeps all bits of float32 from one step to the next?",
    swap=("master -=", "master = p.float() -"),
)
check_masters.slip(
    "updates-may-be-sixteen-bit",
    "The masters are float32, but lr * gradient was rounded to BF16 first. "
    "Where must `.float()` stand?",
    swap=("p.grad.float()", "p.grad"),
)
check_masters.slip(
    "masters-train-the-model",
    "Your masters may have moved; the model computes with its own BF16 weights. "
    "Who carries the new values there?",
    cut="p.copy_(master)",
)
check_masters.slip(
    "the-model-becomes-the-master",
    "Now the model has float32 weights, and computes in float32. "
    "Which method writes values into a tensor without changing its dtype?",
    swap=("p.copy_(master)", "p.data = master"),
)
check_masters.slip(
    "masters-are-gradients",
    "You saved up gradients. What does a weight need besides the sum of its updates?",
    swap=("p.detach().float()", "torch.zeros_like(p, dtype=torch.float32)"),
)


# A fixed scale


def _gradients(seed, n=2000, spread=4.0, middle=-18.0):
    return torch.exp2(spread * _normal(seed, n) + middle)


_PICKS = {
    "max|g| 0.01, headroom 1": (torch.tensor([0.01, -1e-9, 0.0]), 1),
    "max|g| 0.01, headroom 16": (torch.tensor([-0.01, 1e-9, 3e-5]), 16),
    "2000 gradients, headroom 1": (_gradients(0), 1),
    "2000 gradients, headroom 16": (_gradients(1), 16),
    "2000 tiny gradients, headroom 4": (_gradients(2, middle=-40.0), 4),
    "max|g| 65504 * 2**-20, headroom 1": (torch.tensor([65504 * 2.0**-20, -1e-3]), 1),
    "max|g| 2**-7, headroom 1": (torch.tensor([2.0**-7, 1e-6]), 1),
    "max|g| just below 2**-7, headroom 2": (torch.tensor([2.0**-7 - 2.0**-31, 1e-6]), 2),
    "max|g| 3, headroom 2**16": (torch.tensor([3.0, -1.0]), 2.0**16),
}


def _picks(seed):
    """The gradients above, and 100 that are drawn, half of them negative, with some headroom."""
    draw = random.Random(seed)
    drawn = _gradients(seed, n=100, middle=draw.uniform(-40, -5)) * torch.tensor([1, -1] * 50)
    headroom = draw.randint(1, 64)
    return _PICKS | {f"100 gradients, headroom {headroom}": (drawn, headroom)}


@check(calls(lambda seed: _picks(seed).values()))
def check_pick_scale(answers, seed):
    """The largest power of two that leaves the gradients room to grow."""
    for (name, (gradients, headroom)), got in zip(_picks(seed).items(), answers, strict=True):
        value = number(got, call=f"pick_scale ({name})")
        largest = Fraction(gradients.abs().max().item()) * Fraction(headroom)
        power = 60
        while largest * Fraction(2) ** power > 65504:
            power -= 1
        if value == 2.0**power:
            continue
        if not math.isfinite(value) or value <= 0 or math.frexp(value)[0] != 0.5:
            raise Mistake(NO_POWER, name=name, got=repr(value))
        reach = float(largest) * value
        verdict = ABOVE if reach > 65504 else BELOW
        raise Mistake(OTHER_SCALE, name=name, got=value, reach=reach, verdict=verdict)


@check_pick_scale.wrong(
    "most-survivors-wins",
    "That S keeps the most gradients from 0, and makes others inf. "
    "What does one inf do to the whole step?",
)
def _(gradients, headroom):
    powers = [2.0**k for k in range(-20, 61)]
    return max(powers, key=lambda s: (int(((gradients * s).half() != 0).sum()), s))


check_pick_scale.slip(
    "headroom-is-waste",
    "These gradients fit, exactly. Where does the next step's larger gradient go?",
    cut="headroom * ",
)
check_pick_scale.slip(
    "the-average-gradient-decides",
    "Most gradients are below the mean and some far above it. Which single one overflows first?",
    swap=("max()", "mean()"),
)
check_pick_scale.slip(
    "the-nearest-power-is-safe",
    "You rounded the exponent to the nearest whole number. Which direction is the safe one?",
    swap=("math.frexp(limit)[1] - 1", "round(math.log2(limit))"),
)


@check_pick_scale.wrong(
    "lift-the-smallest-gradient",
    "You asked what the smallest gradient needs. Which gradient limits S?",
)
def _(gradients, headroom):
    small = gradients[gradients != 0].abs().min().item()
    return 2.0 ** math.ceil(math.log2(2.0**-24 / small))
