"""Checks of lab 03: log-sum-exp."""

import math
import random

import torch

from labkit.formats import FP16, spacing
from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.messages import fill

LAB = "03_overflow_underflow_rounding"

_OTHER_LSE = "`{call}` is {got}; {want} is expected."
_LSE_KINDS = {
    "overflowed": "An exponential or their sum overflowed: which c makes every x - c at most 0?",
    "underflowed": "All exponentials underflowed to 0. Which c makes the largest one exp(0) = 1?",
    "no place": "A -inf in x adds nothing to the sum, as exp(-inf) is 0.",
    "not added": (
        "Your result lacks the maximum {top}: c is subtracted from each x and added at the end."
    ),
    "twice": "Your result lacks twice the maximum {top}: is c added at the end, or subtracted?",
    "maximum": "Your result is the maximum alone: the other terms of the sum count as well.",
    "no logarithm": (
        "Your result is {top} plus the sum of the exponentials: take the logarithm of that sum."
    ),
    "plain sum": (
        "Your result is the sum of the shifted exponentials: take its logarithm, and add {top}."
    ),
    "mean": "Your result lacks log({n}): do you take the mean of the exponentials, or their sum?",
    "nan": "A NaN in x must make the result NaN: which step of yours drops it?",
    "infinite": (
        "The largest x is {top}, and the result must be {top} too: which step of yours loses it?"
    ),
}


# Log-sum-exp

_LSE_INPUTS = [
    [12.0, 11.0, 1.0], [0.0, 0.0], [100.0, 99.0], [1000.0, 0.0], [-300.0, -301.0], [5.0],
    [-math.inf, 3.0], [0.5, -2.0, 3.25, 1.0, 0.0, -7.5],
    [-math.inf, 1.0, 2.0], [-math.inf, -math.inf], [math.inf, 0.0],
    [math.nan, 0.0], [0.0, math.nan], [-math.inf, math.nan],
]  # fmt: skip


def _lse_inputs(seed):
    """The rows above, and four that are drawn."""
    draw = random.Random(seed)
    return _LSE_INPUTS + [
        [draw.randint(-60, 60) / 4 for _ in range(draw.randint(2, 8))] for _ in range(4)
    ]


def run_logsumexp(logsumexp, seed):
    """`logsumexp` on FP16 tensors, one call for each row."""
    rows = _lse_inputs(seed)
    return [attempt(logsumexp, torch.tensor(row, dtype=torch.float16)) for row in rows]


@check(
    run_logsumexp,
    own_work=(
        "torch.logsumexp",
        "torch.Tensor.logsumexp",
        "torch.special.logsumexp",
        "torch.logcumsumexp",
        "torch.Tensor.logcumsumexp",
    ),
)
def check_logsumexp(values, seed):
    """log-sum-exp in FP16 that neither overflows nor turns -inf into NaN."""
    for row, got in zip(_lse_inputs(seed), values, strict=True):
        call = f"logsumexp({row})"
        value = number(got, call=call)
        want = torch.tensor(row, dtype=torch.float64).logsumexp(0).item()
        if _lse_is_right(value, want, len(row)):
            continue
        why = _LSE_KINDS.get(_lse_kind(row, value, want), "")
        said = fill(_OTHER_LSE, call=call, got=value, want=want)
        raise Mistake(
            f"{said} {why.format(top=max(row), n=len(row))}".rstrip(),
            misconception=_lse_idea(row, value, values),
        )


def _lse_is_right(value, want, n):
    if not math.isfinite(want):
        return math.isnan(value) if math.isnan(want) else value == want
    # Half a gap for the result. Below it n exponentials, n sums and the logarithm, each within
    # u = 2**-11 of at most 2 n: no more than 2 n u each, as the sum is at least 1.
    return abs(value - want) <= spacing(want, FP16) / 2 + (4 * n + 4) * 2.0**-11


def _lse_kind(row, value, want):
    """What is true of a wrong value, as a key of _LSE_KINDS; None if nothing simple is."""
    top = max(row)
    if math.isnan(want):
        return "nan"
    if not math.isfinite(want):
        return None if math.isnan(value) else "infinite"
    if not all(map(math.isfinite, row)):
        return "no place" if math.isinf(value) else "maximum" if value == top else None
    if math.isinf(value):
        return "overflowed" if value > 0 else "underflowed"
    # Wrong by much more than rounding: 0.02 is 40 u.
    shapes = {
        "not added": want - top, "twice": want - 2 * top, "maximum": top,
        "mean": want - math.log(len(row)), "no logarithm": top + math.exp(want - top),
        "plain sum": math.exp(want - top),
    }  # fmt: skip
    near = [kind for kind, other in shapes.items() if abs(value - other) <= 0.02]
    return near[0] if len(near) == 1 else None


def _lse_idea(row, value, values):
    """What only one idea explains: results below the maximum, and both ends of float32."""
    try:
        got = {r[0]: number(x, call="") for r, x in zip(_LSE_INPUTS[:5], values, strict=False)}
    except (AnswerError, Mistake):
        return None
    if math.inf == got[100] and got[-300] == -math.inf and abs(got[12] - 12.31) < 0.1:
        return "wider-dtype-replaces-the-shift"
    low = all(5 < got[x] < x - 0.02 for x in (12, 100, 1000))
    return "clamping-prevents-overflow" if low and abs(got[0] - math.log(2)) < 0.02 else None


check_logsumexp.slip(
    "exp-never-overflows",
    "exp overflows FP16 above 11.09. Which shift of x keeps every exponential at most 1?",
    swap=("top + (x - top).exp()", "x.exp()"),
)
check_logsumexp.slip(
    "clamping-prevents-overflow",
    "A clamp keeps the result finite by changing values. "
    "Which shift of x could you undo afterwards?",
    swap=("top + (x - top).exp()", "x.clamp(max=10).exp()"),
)
check_logsumexp.slip(
    "shift-changes-nothing-to-undo",
    "Subtracting the maximum from each x divides the sum by exp(maximum). Where does your formula "
    "undo that?",
    cut="top + ",
)
check_logsumexp.slip(
    "shift-is-always-defined",
    "The shift subtracts an infinite maximum from itself, which is NaN. For which maxima must you "
    "return before the shift?",
    cut="if not top.isfinite():\n        return top",
)
check_logsumexp.slip(
    "wider-dtype-replaces-the-shift",
    "A wider dtype only moves the limit: exp overflows float32 above 88.7. "
    "Which numbers does exp get if you first subtract 100 from [100, 99]?",
    swap=("top + (x - top).exp()", "x.float().exp()"),
)
