"""Checks of lab 02: the gap above a number in FP16."""

import math
import random
from collections.abc import Callable

import numpy as np

from labkit.formats import BF16, spacing
from labkit.labs.engine import Mistake, calls, check, number
from labkit.labs.number_formats.checks.shared import one_idea

LAB = "02_number_formats"

WRONG_GAP = "`{call}` is {got:exact}; {want:exact} is wanted. {why}"
SCALED_GAP = (
    "`{call}` is {got:exact}, {times:.4g} times the right gap; {want:exact} is wanted. {why}"
)
NEGATIVE_GAP = "A gap is a distance, and never negative."
GAP_OF = (
    "That is the gap of {name}, which has {bits} mantissa bits. FP16 has 10, so its values lie "
    "{lie}."
)
EVERY_GAP_TIMES = "Every one of your gaps is {times:g} times the right one."
GAPS_OF_NEGATIVES = "Yours is right for every x >= 0: the sign of x must not matter."
GAPS_OF_POWERS = "Yours is wrong at powers of two only: the gap *above* x is asked for."
GAPS_OF_SUBNORMALS = "Yours is right where |x| is at least 2**-14: look at smaller |x|."
NEXT_VALUE = "Yours is the next value itself: how far is it from |x|?"
GAP_OF_ZERO = "Yours is right for every x but 0."
TRUNCATED_LOG2 = (
    "Yours is right from 1 on, and from 2**-14 to 1 it is right at powers of two only. log2(0.1) "
    "is -3.3: `int` makes it -3, and `math.floor` makes it -4."
)
ROUNDED_LOG2 = (
    "Yours is right from a power of two to about 1.4 times that power, and wrong from there to the "
    "next. log2(3) is 1.58: `round` makes it 2, and `math.floor` makes it 1."
)


# The gap

_GAP_INPUTS = [1.0, 3.0, 2.0, 1.9990234375, 1024.0, 2048.0, 40000.0, 0.1, 0.5, -3.0, -1024.0]
_GAP_INPUTS = [float(np.float16(x)) for x in _GAP_INPUTS]
_GAP_INPUTS += [2.0**-13, 2.0**-14, 2.0**-14 - 2.0**-24, 2.0**-15, 2.0**-24, 0.0, -0.0]


def _gap_inputs(seed):
    """The values above, and twenty more of any octave and sign."""
    draw = random.Random(seed)
    codes = [draw.randrange(0x7BFF) | draw.choice((0, 0x8000)) for _ in range(20)]
    return _GAP_INPUTS + np.array(codes, dtype=np.uint16).view(np.float16).tolist()


def _gap_above(x: float) -> float:
    return float(np.spacing(np.float16(abs(x))))


@check(
    calls(_gap_inputs),
    bits=True,
    own_work=(
        "labkit.formats.spacing",
        "labkit.formats.exact.ulp",
        "numpy.spacing",
        "numpy.nextafter",
        "torch.nextafter",
        "torch.Tensor.nextafter",
    ),
)
def check_ulp(gaps, seed):
    """The gap above x in FP16, zero and subnormals included, as numpy's spacing has it."""
    inputs = _gap_inputs(seed)
    calls_of = [f"ulp({_typed(x)})" for x in inputs]
    gaps = [number(gap, call=call) for gap, call in zip(gaps, calls_of, strict=True)]
    for x, gap, call in zip(inputs, gaps, calls_of, strict=True):
        want = _gap_above(x)
        if gap != want:
            why = NEGATIVE_GAP if gap < 0 else _why_gaps(gaps, inputs)
            raise Mistake(
                SCALED_GAP if gap > 0 and math.isfinite(gap) else WRONG_GAP,
                call=call,
                got=gap,
                times=gap / want,
                want=want,
                why=why,
                misconception=None if why in _BY_LOG2 else _gap_idea(gaps, inputs),
            )


# The gaps of other formats, and the sentence on them.
_OTHER_GAPS = {
    GAP_OF.format(name="float64", bits=52, lie="farther apart"): lambda x: math.ulp(x),
    GAP_OF.format(name="float32", bits=23, lie="farther apart"): lambda x: float(
        np.spacing(np.float32(abs(x)))
    ),
    GAP_OF.format(name="BF16", bits=7, lie="closer together"): lambda x: spacing(x, BF16),
}


# How `math.log2` is made a whole number in place of `math.floor`, and the sentence on it.
_BY_LOG2 = {TRUNCATED_LOG2: int, ROUNDED_LOG2: round}


def _why_gaps(gaps: list[float], inputs: list[float]) -> str:
    """What is true of all gaps together; "" if nothing simple is."""
    wanted = [_gap_above(x) for x in inputs]
    for said, gap_of in _OTHER_GAPS.items():
        if all(gap == gap_of(x) for gap, x in zip(gaps, inputs, strict=True) if x):
            return said
    times = {gap / want for gap, want in zip(gaps, wanted, strict=True)}
    if len(times) == 1:
        return EVERY_GAP_TIMES.format(times=times.pop())
    if all(gap == abs(x) + want for x, gap, want in zip(inputs, gaps, wanted, strict=True)):
        return NEXT_VALUE
    wrong = [x for x, gap, want in zip(inputs, gaps, wanted, strict=True) if gap != want]
    kinds = (
        (GAP_OF_ZERO, lambda x: x == 0),
        (GAPS_OF_NEGATIVES, lambda x: math.copysign(1, x) < 0),
        (GAPS_OF_SUBNORMALS, lambda x: abs(x) < 2.0**-14),
        (GAPS_OF_POWERS, lambda x: abs(math.frexp(x)[0]) == 0.5),
    )
    for said, whole in _BY_LOG2.items():
        if gaps == [_gap_by_log2(x, whole) for x in inputs]:
            return said
    return next((said for said, fits in kinds if all(map(fits, wrong))), "")


def _gap_by_log2(x: float, whole: Callable[[float], int]) -> float:
    """The gap if the exponent is made whole by `int` or `round` and not by `math.floor`."""
    return 2.0 ** (whole(math.log2(abs(x))) - 10) if abs(x) >= 2.0**-14 else 2.0**-24


def _typed(x: float) -> str:
    """An FP16 value as a learner would type it: a subnormal in units of the smallest."""
    return f"{x * 2**24:.0f} * 2**-24" if 0 < abs(x) < 2.0**-13 else str(x)


def _gap_idea(gaps: list[float], inputs: list[float]) -> str | None:
    """The idea that explains the gaps; what is special at zero is asked once the rest is right."""
    wanted = [_gap_above(x) for x in inputs]
    rules = {
        wrong.misconception: [wrong.answer(x) for x in inputs] for wrong in check_ulp.known_wrong
    }
    elsewhere = [place for place, x in enumerate(inputs) if x]
    if any(gaps[place] != wanted[place] for place in elsewhere):
        return one_idea(gaps, wanted, rules, places=elsewhere)
    return one_idea(gaps, wanted, rules, places=range(len(gaps)))


check_ulp.slip(
    "ulp-is-relative",
    "That is eps * x. 2.0 and 3.0 share an exponent, so one gap, 2**-9. "
    "Which quantity in your formula changes between them?",
    swap=("2.0 ** (max(exponent, -14) - 10)", "2.0**-10 * abs(x)"),
)
check_ulp.slip(
    "ulp-is-constant",
    "That is eps, the gap above 1. What is the gap above 2?",
    swap=("2.0 ** (max(exponent, -14) - 10)", "2.0**-10"),
)
check_ulp.slip(
    "gap-at-zero-is-smallest-normal",
    "Between 0 and 2**-14 FP16 has 1023 subnormals. How far is the first one from 0?",
    swap=("    return 2.0", "    if x == 0:\n        return 2.0**-14\n    return 2.0"),
)
check_ulp.slip(
    "zero-has-exponent-zero",
    "`math.frexp(0.0)` returns exponent 0, but the gap at 0 is that of the subnormals. "
    "Which exponent do they have?",
    cut=" if x else -14",
)
check_ulp.slip(
    "gap-shrinks-below-normal",
    "Subnormals all share the exponent -14. What keeps your exponent from falling below it?",
    swap=("max(exponent, -14)", "exponent"),
)
check_ulp.slip(
    "frexp-starts-at-one",
    "`math.frexp(1.0)` gives (0.5, 1), as its mantissas start at 0.5. What is the exponent of 1.0 "
    "if the mantissa starts at 1?",
    swap=("[1] - 1", "[1]"),
)
check_ulp.slip(
    "gap-below-is-gap-above",
    "At a power of two the gap below is half the gap above. Which of the two does yours measure?",
    swap=("math.frexp(x)[1]", "math.frexp(math.nextafter(abs(x), 0.0))[1]"),
)
