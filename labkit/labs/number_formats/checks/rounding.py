"""Checks of lab 02: a number rounded to FP16."""

import math

import numpy as np
import torch

from labkit.formats import FP16, quantize
from labkit.labs.engine import AnswerError, Mistake, calls, check, number, same_bits
from labkit.labs.number_formats.checks.shared import one_idea

LAB = "02_number_formats"

NO_ROUNDING = (
    "{raised} inf and NaN are returned unchanged: which line of yours returns them before anything "
    "is divided or rounded?"
)


# Rounding

_SNAP_INPUTS = [
    1.0, 0.1, 1 + 2.0**-10 - 2.0**-13, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -(1 + 2.0**-11), 2049.0,
    2051.0, 2049.5, -2050.9, 5001.3, 20007.0, 40001.0, 65504.0, 65519.0, 65519.99, 65520.0,
    -65520.0, 1e9, math.inf, -math.inf, math.nan, 2.0**-24, 1.5 * 2.0**-24, 2.0**-25,
    0.51 * 2.0**-24, 2.0**-15 + 2.0**-26, 3e-6, 0.0, -0.0, -1e-9, 1 + 2.0**-11 + 2.0**-40,
    2.0**-14 - 2.0**-26,
]  # fmt: skip


def _snap_inputs(seed):
    """The values above, and forty more."""
    return _SNAP_INPUTS + np.random.default_rng(seed).normal(scale=30, size=40).tolist()


@check(
    calls(_snap_inputs),
    bits=True,
    own_work=(
        "labkit.formats.quantize",
        "labkit.formats.encode",
        "labkit.formats.exact.nearest",
        "labkit.formats.rounding.round_tensor",
        "labkit.labs.number_formats.look.rounded_exact",
        "numpy.float16",
        "struct.pack",
    ),
)
def check_snap(values, seed):
    """Every input rounds to the FP16 value that IEEE 754 names: ties, subnormals, inf and -0.0."""
    inputs = _snap_inputs(seed)
    for x, got in zip(inputs, values, strict=True):
        try:
            same_bits(got, _nearest(x), at=x, fmt=FP16, call=f"snap({x!r})")
        except Mistake as mistake:
            # The ideas are about numbers: none of them explains what became of NaN.
            idea = None if math.isnan(x) else _snap_idea(values, inputs)
            raise Mistake(str(mistake), misconception=idea) from None
        except AnswerError as error:
            if math.isfinite(x):
                raise
            raise AnswerError(NO_ROUNDING, raised=str(error)) from None


def _nearest(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(x).astype(np.float16))  # numpy rounds float64 to FP16 once


def _snap_idea(values, inputs) -> str | None:
    """The one wrong idea that explains the mismatches; a zero's sign may be lost along with it."""
    try:
        got = [number(value, call="snap") for value in values]
    except (AnswerError, Mistake):
        return None
    places = [place for place, x in enumerate(inputs) if not math.isnan(x)]
    truth = [_nearest(x) for x in inputs]
    if all(got[place] == truth[place] for place in places):
        return "zero-has-no-sign"
    rules = {
        idea: [rule(x, value) for x, value in zip(inputs, truth, strict=True)]
        for idea, rule in _SNAP_IDEAS.items()
    }
    return one_idea(got, truth, rules, places=places)


_SNAP_IDEAS = {
    "casts-truncate": lambda x, y: quantize(x, FP16, rounding="toward_zero"),
    "ties-go-up": lambda x, y: quantize(x, FP16, rounding="nearest_away"),
    "overflow-starts-at-max": lambda x, y: math.copysign(math.inf, x) if abs(x) > 65504 else y,
    "overflow-saturates": lambda x, y: math.copysign(65504.0, x) if abs(x) > 65504 else y,
    "subnormals-become-zero": lambda x, y: 0.0 if abs(y) < 2.0**-14 else y,
    "ulp-is-constant": lambda x, y: (
        math.copysign(round(abs(x) * 1024) / 1024, x) if math.isfinite(y) else y
    ),
    "rounding-twice-is-rounding-once": lambda x, y: torch.tensor(x).half().item(),
}


check_snap.slip(
    "overflow-starts-at-max",
    "Yours gives inf for |x| just above 65504. The gap there is 32: up to which |x| is 65504 still "
    "the nearest value?",
    swap=("value <= 65504", "abs(x) <= 65504"),
)
check_snap.slip(
    "overflow-saturates",
    "FP16 has an inf, and IEEE 754 rounds to it, but yours stops at 65504. Which line of yours "
    "must return inf?",
    swap=("math.inf", "65504.0"),
)
check_snap.slip(
    "ties-go-up",
    "Ties go to the even multiple of the gap, and yours go away from zero, as `int(x + 0.5)` sends "
    "them. Which function of Python rounds ties to even?",
    swap=("round(abs(x) / gap)", "math.floor(abs(x) / gap + 0.5)"),
)
check_snap.slip(
    "casts-truncate",
    "Yours cuts off toward zero, as `int` does. Which function rounds to the nearest whole number?",
    swap=("round(abs(x) / gap)", "int(abs(x) / gap)"),
)
check_snap.slip(
    "subnormals-become-zero",
    "FP16 also has the multiples of 2**-24 below 2**-14, and yours makes them 0.",
    swap=("    return math", "    value = value if value >= 2.0**-14 else 0.0\n    return math"),
)
check_snap.slip(
    "rounding-twice-is-rounding-once",
    "In float32 this x becomes a tie, so yours rounds twice. torch's cast of a float64 tensor goes "
    "through float32 too: round the Python float itself, once.",
    swap=("    if not", "    x = torch.tensor(x, dtype=torch.float32).item()\n    if not"),
)
check_snap.slip(
    "ulp-is-constant",
    "Your results are multiples of 2**-10, the gap above 1. What is the gap at 0.1, and at 2049?",
    swap=("spacing(x, FP16)", "2.0**-10"),
)
check_snap.slip(
    "zero-has-no-sign",
    "`round` returns an int, and an int 0 has no sign. Which function copies a sign?",
    swap=("math.inf, x)", "math.inf, x) + 0.0"),
)
