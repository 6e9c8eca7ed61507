"""Checks of lab 01: the first tensor that is not finite, and updates that change nothing."""

import math
import random
import reprlib

import torch

from labkit.formats import quantize
from labkit.formats.dtypes import dtype_of, name_of
from labkit.labs.engine import Mistake, attempt, check, near_value, number
from labkit.labs.three_crimes.checks.shared import BF16, FP16, FP32, refuse_raised

LAB = "01_three_crimes"

OTHER_NAME = "{scene}: your answer is {got}; {want} is wanted. {why}"
HOLDS = "{name} holds {kinds}."
FINITE = "Each number in {name} is finite."
ALL_FINITE = "Each number of this series is finite."
NO_NAME = "Return one name, or None."

WEIGHTS_CHANGED = "{scene}: your function changed the weights it was given. Work on a new tensor."
OTHER_SHARE = (
    "{scene}: your share is {got}; {want} is wanted, which is {lost} of {tried} updates other than "
    "0. {example}"
)
EXAMPLE = "For example, {weight:g} + {update:.3g} stored in {dtype} is {stored:.9g}."


# The first that is not finite

_INF, _NAN = math.inf, math.nan


def _pairs(dtype=FP32, **values):
    """Pairs of a name and a tensor of this dtype."""
    return [(name, torch.tensor(value, dtype=dtype)) for name, value in values.items()]


_STATES = {
    "all finite": _pairs(weight=[1.0, 70000.0], loss=2.3),
    "a NaN in the middle": _pairs(input=[[0, 0], [0, 0]], hidden=[[1, _NAN], [0, 1]], loss=_NAN),
    "inf, then the NaN it causes": _pairs(scores=[1.0, _INF], weights=[0.0, _NAN]),
    "-inf": _pairs(mask=[-_INF, 0.0], loss=1.0),
    "60000 twice in FP16, then a NaN": _pairs(FP16, large=[6e4, 6e4], small=[_NAN, 1.0]),
    "a finite loss over NaN weights": (
        _pairs(torch.int64, labels=[1, 2]) + _pairs(weight=[_NAN], loss=2.3)
    ),
    "3e38 twice, in FP32 and BF16, then a NaN": (
        _pairs(large=[3e38, 3e38]) + _pairs(BF16, wide=[3e38, 3e38]) + _pairs(small=[_NAN, 1.0])
    ),
    "an empty tensor, then a loss of inf": _pairs(empty=[], loss=_INF),
    "1e300 in float64, then a NaN": _pairs(torch.float64, large=[1e300], small=[1.0, _NAN]),
    "nothing at all": [],
}


def _states(seed):
    """The series above, and one with an inf or a NaN in a place that is drawn."""
    draw = random.Random(seed)
    rows = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(5)]
    rows[draw.randrange(5)][draw.randrange(4)] = draw.choice((math.inf, -math.inf, math.nan))
    drawn = [(f"tensor {draw.randrange(10**6)}", torch.tensor(row)) for row in rows]
    return _STATES | {"five tensors of four numbers": drawn}


def run_first_nonfinite(first_nonfinite, seed):
    """`first_nonfinite` on one series of pairs after another, each as an iterator."""
    return [attempt(first_nonfinite, iter(pairs)) for pairs in _states(seed).values()]


@check(run_first_nonfinite)
def check_first_nonfinite(names, seed):
    """The first tensor with an inf or a NaN, by name; None where there is none."""
    for (scene, pairs), got in zip(_states(seed).items(), names, strict=True):
        refuse_raised(got, scene)
        bad = {name: kinds for name, x in pairs if (kinds := _nonfinite(x))}
        want = next(iter(bad), None)
        if got != want or type(got) is not type(want):
            why = _why_not(got, want, bad, dict(pairs))
            raise Mistake(OTHER_NAME, scene=scene, got=reprlib.repr(got), want=repr(want), why=why)


def _nonfinite(x):
    """Which of inf, -inf and NaN a tensor holds, in words; "" for none."""
    found = {"inf": x == math.inf, "-inf": x == -math.inf, "NaN": x != x}
    return " and ".join(kind for kind, where in found.items() if where.any())


def _why_not(got, want, bad, tensors):
    """What is true of the tensor that was named, or of the one that was passed over."""
    if got is not None and type(got) is not str:
        return NO_NAME
    if got in tensors and got not in bad:
        return FINITE.format(name=repr(got))
    if want is None:
        return ALL_FINITE
    return HOLDS.format(name=repr(want), kinds=bad[want])


check_first_nonfinite.slip(
    "the-loss-tells-everything",
    "You looked at the last tensor only. Which earlier tensor already held inf or NaN?",
    swap=("in named_tensors:", "in list(named_tensors)[-1:]:"),
)
check_first_nonfinite.slip(
    "nan-is-the-only-nonfinite",
    "`isnan` is False for inf, and a later inf - inf is NaN. Which function is False for inf and "
    "for NaN?",
    swap=("not x.isfinite().all()", "x.isnan().any()"),
)
for _sum in ("x.sum()", "x.float().sum()"):
    check_first_nonfinite.slip(
        "finite-terms-finite-sum",
        "A sum can overflow to inf although each element is finite: 60000 + 60000 in FP16, "
        "3e38 + 3e38 in FP32. Which function tests each element instead of the sum?",
        swap=("x.isfinite().all()", f"{_sum}.isfinite()"),
    )
check_first_nonfinite.slip(
    "one-finite-element-is-enough",
    "`isfinite(x).any()` is True if one element is finite. Which method is True only if all are?",
    swap=(".all()", ".any()"),
)
check_first_nonfinite.slip(
    "one-look-is-a-search",
    "You return None after the first tensor. When do you know that all tensors are finite?",
    swap=("    return None", "        return None"),
)
check_first_nonfinite.slip(
    "the-last-nan-is-the-first",
    "Your answer is the last tensor that is not finite. NaN spreads to later tensors, so the "
    "failure began earlier. At which tensor must your loop stop?",
    swap=("in named_tensors:", "in reversed(list(named_tensors)):"),
)
check_first_nonfinite.slip(
    "comparisons-find-nan",
    "A comparison such as `x.abs() > limit` is False for NaN, so it does not find one. Which "
    "function tells finite values from inf and NaN?",
    swap=("not x.isfinite().all()", "(x.abs() > 3.4e38).any()"),
)


# Updates that change nothing

# What it is -> dtype of the weights, weights, updates.
_UPDATES = {
    "BF16 weights of 1": (BF16, [1.0] * 4, [2**-9, 2**-8, 1.5 * 2**-8, 2**-7]),
    "BF16 weights of 1 that shrink": (BF16, [1.0] * 3, [-(2**-10), -1.5 * 2**-9, -(2**-8)]),
    "BF16 weights of 1.75 and 0.0029": (
        BF16, [1.75, 1.75, 1.5 * 2**-9], [5e-5, 1.5 * 2**-8, 5e-5],
    ),
    "BF16 weights of 1, one update just above half a gap": (
        BF16, [1.0, 1.0], [2**-8 + 2**-20, 2**-8],
    ),
    "BF16 weights, two updates of 0": (BF16, [1.0, -1.0, 0.5, 0.5], [0, 0, 2**-20, 0.25]),
    "FP32 weights": (FP32, [1.0, 1.0, 2.0, 1.0], [2**-20, 2**-30, 0.125, 2**-9]),
    "FP16 weights in two rows": (
        FP16, [[1.0, 1.0], [-2.0, 2.0]], [[2**-11, 1.5 * 2**-11], [2**-11, 2**-9]],
    ),
    "only updates of 0": (BF16, [1.0, 2.0], [0.0, 0.0]),
    "no weights at all": (BF16, [], []),
}  # fmt: skip
# In that order: how many updates are lost, of how many other than 0. Stays with the judge.
_LOST = ((2, 4), (1, 3), (1, 3), (1, 2), (1, 2), (1, 4), (2, 4), (0, 0), (0, 0))


def _updates(seed):
    """The tensors above, and one of each 16-bit dtype that is drawn.

    An update is a number of sixteenths of the gap at its weight, so float32 holds the sum.
    """
    draw = random.Random(seed)
    drawn = {}
    for dtype in (BF16, FP16):
        eps, weights, updates = torch.finfo(dtype).eps, [], []
        for _ in range(draw.randrange(40, 80)):
            fraction, power = draw.randrange(1, round(1 / eps)), draw.randint(-6, 2)
            weights.append(draw.choice((-1, 1)) * math.ldexp(1 + fraction * eps, power))
            updates.append(math.ldexp(draw.randint(-16, 16) * eps, power - 4))
        scene = f"{name_of(dtype)}, {len(weights)} weights that are drawn"
        drawn[scene] = dtype, weights, updates
    return _UPDATES | drawn


def _lost_and_tried(dtype, weights, updates):
    """How many updates are lost, and how many are other than 0, by exact sums rounded once."""
    fmt = dtype_of(dtype).format
    pairs = [(w, u) for w, u in zip(weights, updates, strict=True) if u]
    return sum(quantize(w + u, fmt) == w for w, u in pairs), len(pairs)


def run_lost_updates(lost_updates, seed):
    """`lost_updates` on each pair: its share, and whether the weights it was given changed."""
    seen = []
    for dtype, weights, updates in _updates(seed).values():
        weight = torch.tensor(weights, dtype=dtype)
        share = attempt(lost_updates, weight, torch.tensor(updates, dtype=FP32))
        seen.append([share, not torch.equal(weight, torch.tensor(weights, dtype=dtype))])
    return seen


@check(run_lost_updates)
def check_lost_updates(seen, seed):
    """Of the updates other than 0, the share that leaves its weight bit for bit as it was."""
    cases = _updates(seed)
    drawn = [_lost_and_tried(*case) for scene, case in cases.items() if scene not in _UPDATES]
    judged = zip(cases.items(), [*_LOST, *drawn], seen, strict=True)
    for (scene, case), (lost, tried), (share, changed) in judged:
        refuse_raised(share, scene)
        if changed:
            raise Mistake(WEIGHTS_CHANGED, scene=scene)
        got, want = number(share, call=f"lost_updates on {scene}"), lost / max(tried, 1)
        try:
            near_value(got, want, call=scene)
        except Mistake:
            said = {"lost": lost, "tried": tried, "example": _example(*case, lost=got < want)}
            raise Mistake(OTHER_SHARE, scene=scene, got=got, want=want, **said) from None


def _example(dtype, weights, updates, *, lost):
    """A sentence on the first update other than 0 that is lost, or that is not."""
    weight, update = torch.tensor(weights).flatten(), torch.tensor(updates).flatten()
    stored = (weight + update).to(dtype)
    for w, u, new in zip(weight.tolist(), update.tolist(), stored.tolist(), strict=True):
        if u and (new == w) == lost:
            return EXAMPLE.format(weight=w, update=u, dtype=name_of(dtype), stored=new)
    return ""


_COUNTED = "(stored == weight)[tried]"
check_lost_updates.slip(
    "zeros-count-as-lost",
    "An update of 0 is not lost: a vanished gradient is another failure. Which updates count?",
    swap=("tried = update != 0", "tried = update == update"),
)
check_lost_updates.slip(
    "a-stall-is-underflow",
    "The update itself is not 0 in 16 bits. What happens when it is added to its weight?",
    swap=(_COUNTED, "(update.to(weight.dtype) == 0)[tried]"),
)
check_lost_updates.slip(
    "ulp-is-relative",
    "Your limit grows with the weight, but the gap is the same from one power of two to the next. "
    "Can you compare the rounded sum with the weight instead?",
    swap=(_COUNTED, "(update.abs() <= torch.finfo(weight.dtype).eps * weight.abs() / 2)[tried]"),
)
check_lost_updates.slip(
    "rounding-twice-is-rounding-once",
    "You round the update before the sum, and then the sum. Which dtype must the update keep, so "
    "that only the sum is rounded?",
    swap=("(weight + update).to(weight.dtype)", "(weight + update.to(weight.dtype))"),
)
check_lost_updates.slip(
    "a-whole-gap-is-needed-to-round",
    "You count an update of less than a whole gap as lost. But a sum is rounded to the nearest "
    "value, so more than half a gap is enough. Is the rounded sum equal to the weight?",
    swap=(
        _COUNTED,
        "(update.abs() < torch.finfo(weight.dtype).eps * 2.0 ** (weight.float().abs()"
        ".log2().floor()))[tried]",
    ),
)
