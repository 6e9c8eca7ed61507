"""Checks of lab 03: where a function overflows, and log-sum-exp."""

import math

import torch

from labkit.formats import FP16, quantize, spacing
from labkit.labs.engine import Mistake, attempt, calls, check, number
from labkit.labs.engine.messages import show

LAB = "03_overflow_underflow_rounding"


# Cliffs

_CURVES = {
    "torch.exp": torch.exp,
    "lambda x: x * x": lambda x: x * x,
    "lambda x: x": lambda x: x,
    "lambda x: 65504 * x": lambda x: 65504 * x,
    "lambda x: x * x * x": lambda x: x * x * x,
    "lambda x: x + 65504": lambda x: x + 65504,
}
_VALUES = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)  # 0 to 65504, in order
_SAFE = {text: _VALUES[curve(_VALUES).isfinite()].max().item() for text, curve in _CURVES.items()}


@check(calls(_CURVES.values()), bits=True)
def check_cliff(values):
    """The last FP16 value before the overflow, for any rising function."""
    for (text, want), got in zip(_SAFE.items(), values, strict=True):
        call = f"cliff({text})"
        value = number(got, call=call)
        if value == want:
            continue
        if not math.isfinite(value):
            raise Mistake(f"`{call}` is {value}; the largest safe x is a finite number.")
        if value.is_integer() and 0 <= value < 0x7C00 and _VALUES[int(value)] == want != value:
            raise Mistake(
                f"`{call}` is {value:g}: the code of {show(want)}. Which x has that code?"
            )
        if quantize(value, FP16) != value:
            raise Mistake(
                f"`{call}` is {value!r}, which is no FP16 value.",
                misconception="cliff-is-a-real-number"
                if abs(value - want) <= spacing(want, FP16)
                else "overflow-depends-on-the-number-alone"
                if text == "torch.exp" and value > 80
                else None,
            )
        image = torch.tensor(value, dtype=torch.float16)
        reached = _CURVES[text](image).item()
        if math.isinf(reached):
            after = want + spacing(want, FP16)
            raise Mistake(
                f"`{call}` is {show(value)}, where the result is already inf.",
                misconception="first-unsafe-is-last-safe" if value == after else None,
            )
        raise Mistake(
            f"`{call}` is {show(value)}. {show(value + spacing(value, FP16))} is safe as well.",
            misconception="only-whole-numbers-count"
            if value == math.floor(want) != want
            else "only-powers-of-two-count"
            if value and math.frexp(value)[0] == 0.5 and value > want / 2
            else None,
        )


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
    "Between two neighbours FP16 holds nothing. Over which list of values must you bisect?",
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
    "When the two ends are neighbours, one is safe and one is not. Which of them do you return?",
    swap=("value(safe)", "value(unsafe)"),
)
check_cliff.slip(
    "only-whole-numbers-count",
    "You step by 1. How many FP16 values lie between 11 and 12?",
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
    [0.0, 0.0], [12.0, 11.0, 1.0], [100.0, 99.0], [1000.0, 0.0], [-300.0, -301.0], [5.0],
    [-math.inf, 3.0], [0.5, -2.0, 3.25, 1.0, 0.0, -7.5],
    [-math.inf, 1.0, 2.0], [-math.inf, -math.inf], [math.inf, 0.0], [math.nan, 0.0],
]  # fmt: skip


def run_logsumexp(logsumexp):
    """`logsumexp` on FP16 tensors, one call for each row."""
    return [attempt(logsumexp, torch.tensor(row, dtype=torch.float16)) for row in _LSE_INPUTS]


@check(run_logsumexp)
def check_logsumexp(values):
    """log-sum-exp in FP16 that neither overflows nor turns -inf into NaN."""
    for row, got in zip(_LSE_INPUTS, values, strict=True):
        call = f"logsumexp({row})"
        value = number(got, call=call)
        want = torch.tensor(row, dtype=torch.float64).logsumexp(0).item()
        if _lse_is_right(value, want, len(row)):
            continue
        shown = f"`{call}` is {value:.7g}; {want:.7g} is wanted."
        raise Mistake(shown, misconception=_lse_idea(row, value, want))


def _lse_is_right(value, want, n):
    if not math.isfinite(want):
        return math.isnan(value) if math.isnan(want) else value == want
    # Half a gap for the result. Below it n exponentials, n sums and the logarithm, each within
    # u = 2**-11 of at most 2 n: no more than 2 n u each, as the sum is at least 1.
    return abs(value - want) <= spacing(want, FP16) / 2 + (4 * n + 4) * 2.0**-11


def _lse_idea(row, value, want):
    finite = math.isfinite(want)
    if finite and row[0] == 12 and math.isinf(value):
        return "exp-never-overflows"
    if finite and abs(row[0]) >= 100 and math.isinf(value):
        return "wider-dtype-replaces-the-shift"
    if finite and row[0] in (12, 1000) and abs(value - (want - max(row))) < 0.1:
        return "shift-changes-nothing-to-undo"
    if finite and row[0] in (12, 100, 1000) and value < want:
        return "clamping-prevents-overflow"
    if math.isnan(value) and not math.isnan(want):
        return "shift-is-always-defined"
    return None


check_logsumexp.slip(
    "exp-never-overflows",
    "Where is the cliff of exp in FP16, and what is exp(12) there?",
    swap=("top + (x - top).exp()", "x.exp()"),
)
check_logsumexp.slip(
    "clamping-prevents-overflow",
    "A clamp keeps the result finite by changing x. Which shift of x could you undo afterwards?",
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
    "A wider dtype only moves the cliff (float32: to 88.7), and so does a shift by the mean. "
    "Which x - c can never reach any?",
    swap=("top + (x - top).exp()", "x.float().exp()"),
)
