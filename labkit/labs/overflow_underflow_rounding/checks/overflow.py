"""Checks of lab 03: where a function overflows, and log-sum-exp."""

import math
import random

import torch

from labkit.formats import FP16, quantize, spacing
from labkit.labs.engine import AnswerError, Mistake, attempt, calls, check, number
from labkit.labs.engine.messages import fill

LAB = "03_overflow_underflow_rounding"

_OUT_OF_RANGE = "`{call}` is {got}; an FP16 value from 0 to 65504 is wanted."
_A_CODE = "`{call}` is {got}: the code of {want:exact}. Which x has that code?"
_BETWEEN = (
    "`{call}` is {got}, which is no FP16 value: its neighbours are {low:exact} and {high:exact}."
)
_UNSAFE = "`{call}` is {got:exact}, where f is already inf in FP16."
_TOO_LOW = (
    "`{call}` is {got:exact}. At the next FP16 value, {after:exact}, f is {image}: finite as well."
)

_OTHER_LSE = "`{call}` is {got}; {want} is wanted."
_LSE_KINDS = {
    "overflowed": "An exponential or their sum overflowed: which x - c is never above 0?",
    "underflowed": "All exponentials underflowed to 0. Which c makes the largest one exp(0) = 1?",
    "no place": "A -inf in x adds nothing to the sum, as exp(-inf) is 0.",
    "not added": "That lacks the maximum {top}: c comes off each x and is added at the end.",
    "twice": "That lacks twice the maximum {top}: is c added at the end, or subtracted?",
    "maximum": "That is the maximum alone: the other terms of the sum count as well.",
    "no logarithm": "That is {top} and the sum itself: where is the sum's logarithm?",
    "plain sum": "That is the sum of the shifted exponentials: take its logarithm, and add {top}.",
    "mean": "That lacks log({n}): do you take the mean of the exponentials, or their sum?",
    "nan": "A NaN in x must come through: where do you lose it?",
    "infinite": "The largest x is {top} and is the result: where do you lose it?",
}


# Cliffs

_CURVES = {
    "torch.exp": torch.exp,
    "lambda x: x * x": lambda x: x * x,
    "lambda x: x": lambda x: x,
    "lambda x: 65504 * x": lambda x: 65504 * x,
    "lambda x: x * x * x": lambda x: x * x * x,
    "lambda x: x + 65504": lambda x: x + 65504,
}


def _curves(seed):
    """The curves above, and a slope that is drawn."""
    slope = random.Random(seed).randrange(41, 400, 2)
    return _CURVES | {f"lambda x: {slope} * x": lambda x: slope * x}


_VALUES = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)  # 0 to 65504, in order


def _last_safe(curve):
    return _VALUES[curve(_VALUES).isfinite()].max().item()


@check(calls(lambda seed: _curves(seed).values()), bits=True)
def check_cliff(values, seed):
    """The last FP16 value before the overflow, for any rising function."""
    curves = _curves(seed)
    safe = {text: _last_safe(curve) for text, curve in curves.items()}
    for (text, want), got in zip(safe.items(), values, strict=True):
        call = f"cliff({text})"
        value = number(got, call=call)
        if value != want:
            raise _cliff_mistake(call, curves[text], value, safe, values)


def _cliff_mistake(call, curve, value, safe, values):
    if not 0 <= value <= FP16.max:
        return Mistake(_OUT_OF_RANGE, call=call, got=value)
    if value.is_integer() and value < 0x7C00 and _VALUES[int(value)] == _last_safe(curve):
        return Mistake(_A_CODE, call=call, got=value, want=_last_safe(curve))
    if quantize(value, FP16) != value:
        low, high = (quantize(value, FP16, rounding=way) for way in ("down", "up"))
        idea = _idea_of_a_real_number(safe, values)
        return Mistake(_BETWEEN, misconception=idea, call=call, got=value, low=low, high=high)
    image = curve(torch.tensor(value, dtype=torch.float16)).item()
    if math.isinf(image):
        return Mistake(_UNSAFE, call=call, got=value)
    after = value + spacing(value, FP16)
    above = curve(torch.tensor(after, dtype=torch.float16)).item()
    idea = _idea_of_a_coarse_list(safe, values)
    return Mistake(_TOO_LOW, misconception=idea, call=call, got=value, after=after, image=above)


def _idea_of_a_real_number(safe, values):
    """Where the cliff of float32 came out, or every value is within a gap of the right one."""
    numbers = _numbers(safe, values)
    if numbers and abs(numbers["torch.exp"] - 88.7228) < 0.01:
        return "overflow-depends-on-the-number-alone"
    near = numbers and all(abs(x - safe[k]) <= spacing(safe[k], FP16) for k, x in numbers.items())
    return "cliff-is-a-real-number" if near else None


def _idea_of_a_coarse_list(safe, values):
    """Where every value is the last whole number, or power of two, that is safe."""
    numbers = _numbers(safe, values)
    if not numbers:
        return None
    small = [(x, safe[text]) for text, x in numbers.items() if safe[text] < 2048]
    if all(x == math.floor(want) for x, want in small):
        return "only-whole-numbers-count"
    powers = all(x == 2.0 ** math.floor(math.log2(safe[text])) for text, x in numbers.items())
    return "only-powers-of-two-count" if powers else None


def _numbers(safe, values):
    """Text of a curve -> what came back for it; {} if something else than numbers did."""
    try:
        return {text: number(got, call="") for text, got in zip(safe, values, strict=True)}
    except (AnswerError, Mistake):
        return {}


def _bisected(f, dtype):
    """Bisection over real numbers, given to ``f`` in this dtype."""
    low, high = 0.0, 65536.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        safe = f(torch.tensor(middle, dtype=dtype)).isfinite()
        low, high = (middle, high) if safe else (low, middle)
    return low


@check_cliff.wrong(
    "cliff-is-a-real-number",
    "Between two neighbours FP16 holds nothing. In which list of values must x be found?",
)
def _(f):
    return _bisected(f, torch.float16)


@check_cliff.wrong(
    "overflow-depends-on-the-number-alone",
    "Up there float32 overflows. In which dtype is the x that you give to f?",
)
def _(f):
    return torch.tensor(_bisected(f, torch.float32)).item()


check_cliff.slip(
    "first-unsafe-is-last-safe",
    "That is the first value after the cliff. Which of its neighbours is the last safe one?",
    swap=("value(safe)", "value(unsafe)"),
)
check_cliff.slip(
    "only-whole-numbers-count",
    "These are all whole numbers. How many FP16 values lie between 11 and 12?",
    swap=(
        "return torch.tensor(code, dtype=torch.int16).view(torch.float16)",
        "return torch.tensor(code, dtype=torch.float16)",
    ),
)


@check_cliff.wrong(
    "only-powers-of-two-count",
    "Doubling finds the octave. How do you go on inside it?",
)
def _(f):
    powers = _VALUES[::1024]
    return powers[f(powers).isfinite()].max().item()


# Log-sum-exp

_LSE_INPUTS = [
    [12.0, 11.0, 1.0], [0.0, 0.0], [100.0, 99.0], [1000.0, 0.0], [-300.0, -301.0], [5.0],
    [-math.inf, 3.0], [0.5, -2.0, 3.25, 1.0, 0.0, -7.5],
    [-math.inf, 1.0, 2.0], [-math.inf, -math.inf], [math.inf, 0.0],
    [math.nan, 0.0], [0.0, math.nan],
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


@check(run_logsumexp)
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
    "Where is the cliff of exp in FP16, and what is exp(12) there?",
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
    "You divided the sum by exp(max). Where does your formula put that factor back?",
    cut="top + ",
)
check_logsumexp.slip(
    "shift-is-always-defined",
    "The shift computes inf - inf there, which is NaN. For which maximum is nothing to shift?",
    cut="if not top.isfinite():\n        return top",
)
check_logsumexp.slip(
    "wider-dtype-replaces-the-shift",
    "A wider dtype only moves the cliff: that of float32 is at 88.7. "
    "Which x - c can never reach any?",
    swap=("top + (x - top).exp()", "x.float().exp()"),
)
