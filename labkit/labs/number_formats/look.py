"""A ``Look``: an exact number, and the code that a format gives it.

The values of a format lie on a line, and a code is a place on it. ``labkit.formats`` does all
rounding; fractions only measure what it did.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from labkit.formats import FP64, FloatFormat, decode, encode, quantize, spacing
from labkit.formats.expressions import ExpressionError
from labkit.formats.written_numbers import read_number
from labkit.labs.number_formats.exact_numbers import Exact, rounded_to_odd

# ---------------------------------------------------------------- one number in one format


def nearest_float64(x: Exact) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def rounded_exact(x: Exact, fmt: FloatFormat, rounding: str = "nearest_even") -> float:
    """The value that a format makes of exact x; FP64 to nearest even only."""
    if fmt == FP64:
        return nearest_float64(x)
    return quantize(rounded_to_odd(x), fmt, rounding=rounding)


@dataclass(frozen=True)
class Look:
    """What is looked at: exact x as it was typed, and the code that a format gives it."""

    fmt: FloatFormat
    text: str
    x: Exact
    code: int

    @property
    def value(self) -> float:
        """The value of the code."""
        return decode(self.code, self.fmt)


def typed(text: str) -> Exact:
    """Read a typed number exactly, as the questions do; ValueError with a sentence otherwise.

    >>> typed("0.1"), typed("3 * 2^-3"), typed("-0")
    (Fraction(1, 10), Fraction(3, 8), -0.0)
    """
    try:
        written = read_number(text)
    except ExpressionError as problem:
        raise ValueError(f"{problem}.") from None
    if written.unit is not None:
        raise ValueError(f"{text.strip()!r} is in {written.unit}; a format holds bare numbers.")
    value = written.value
    return value if isinstance(value, float) else Fraction(value)


def look_at(text: str, fmt: FloatFormat) -> Look:
    """Round a typed number to nearest even; ValueError without a number or a code for it."""
    x = typed(text)
    if isinstance(x, float) and math.isnan(x) and not fmt.has_nan:
        raise ValueError(f"{fmt.name} has no NaN: every one of its codes is a number.")
    return Look(fmt, text.strip(), x, encode(rounded_to_odd(x), fmt))


def look_at_code(code: int, fmt: FloatFormat) -> Look:
    """Look at the value of a code itself; ValueError where the format has no such code."""
    if not 0 <= code < 1 << fmt.bits:
        raise ValueError(f"code must be from 0 to {(1 << fmt.bits) - 1} for {fmt.name}, got {code}")
    value = decode(code, fmt)
    text = str(value).removesuffix(".0")
    if math.isfinite(value) and Fraction(text) != value:
        mantissa, _, exponent = value.hex().partition("p")
        text = f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
    return Look(fmt, text, typed(text), code)


# ---------------------------------------------------------------- the line


def last_code(fmt: FloatFormat) -> int:
    """The code of the largest value that has a place on the line: inf, or else max."""
    return encode(fmt.max, fmt) + fmt.has_inf


def sign_weight(fmt: FloatFormat) -> int:
    return 1 << (fmt.bits - 1) if fmt.signed else 0


def next_code(code: int, fmt: FloatFormat, direction: int) -> int | None:
    """The code of the next value up (+1) or down (-1), or None at the end and for NaN.

    Zero counts once: going up through it meets -0.0 where the format has one, as IEEE 754's nextUp.

    >>> from labkit.formats import FP16
    >>> next_code(0x3C00, FP16, 1) == 0x3C01, next_code(0x8001, FP16, 1) == 0x8000
    (True, True)
    """
    if math.isnan(decode(code, fmt)):
        return None
    sign = sign_weight(fmt)
    place = -(code - sign) if fmt.signed and code >= sign else code
    to = place + direction
    if not (-last_code(fmt) if fmt.signed else 0) <= to <= last_code(fmt):
        return None
    negative = to < 0 or (to == 0 and place < 0 and fmt.has_negative_zero)
    return abs(to) + (sign if negative else 0)


def height(value: float, fmt: FloatFormat) -> Fraction:
    """Where a value lies on the line; inf lies one gap past max, so that their tie is right."""
    if math.isinf(value):
        edge = Fraction(fmt.max) + Fraction(spacing(fmt.max, fmt))
        return edge if value > 0 else -edge
    return Fraction(value)
