"""Exact numbers on their way to a format and to the page: rounded once, all digits or a few.

A typed number is exact: "0.1" is the fraction 1/10 until a format rounds it, and a value of a
format has a last decimal digit.
"""

import math
import struct
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

Exact = Fraction | float
"""A number without rounding; a float stands for inf, nan and -0.0, which no fraction can say."""


def is_finite(x: Exact) -> bool:
    """Whether x is a number; a fraction may be one that no float can hold."""
    return isinstance(x, Fraction) or math.isfinite(x)


def rounded_to_odd(x: Exact) -> float:
    """The float64 that rounds as x itself does, into any format of 50 mantissa bits or fewer.

    An inexact x becomes the one of its two float64 neighbours with an odd last bit, which is never
    a tie, so rounding it again does no harm (Boldo and Melquiond, "Emulation of FMA", 2008).
    """
    if isinstance(x, float):
        return x
    try:
        nearest = float(x)
    except OverflowError:
        return sys.float_info.max if x > 0 else -sys.float_info.max
    if Fraction(nearest) == x or struct.pack(">d", nearest)[-1] % 2:
        return nearest
    return math.nextafter(nearest, math.inf if x > nearest else -math.inf)


def _written(number: Decimal, places: int) -> str:
    """All digits of a finite decimal, plain where that takes few places, else scientific."""
    sign, digits, _ = number.as_tuple()
    first = number.adjusted()
    if number == 0 or -6 <= first < places:
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = "".join(map(str, digits)).rstrip("0")
    point = f".{digits[1:]}" if digits[1:] else ""
    return f"{'-' if sign else ''}{digits[0]}{point}e{first:+03d}"


def decimal_in_full(value: float) -> str:
    """Every decimal digit of a float.

    >>> decimal_in_full(0.1), decimal_in_full(2.0**-24), decimal_in_full(-0.0)
    ('0.1000000000000000055511151231257827021181583404541015625', '5.9604644775390625e-08', '-0')
    """
    return _written(Decimal(value), 40) if math.isfinite(value) else str(value)


def short(x: Exact, digits: int = 9) -> str:
    """So many digits at most, with a sign of approximation where some were cut.

    >>> short(Fraction(1, 3)), short(65504.0), short(2.0**-24, 4)
    ('≈ 0.333333333', '65504', '≈ 5.96e-08')
    """
    if not is_finite(x) or (isinstance(x, float) and x == 0):
        return decimal_in_full(x)
    x = Fraction(x)
    with localcontext() as context:
        context.prec = digits
        cut = Decimal(x.numerator) / Decimal(x.denominator)
    return ("" if Fraction(cut) == x else "≈ ") + _written(cut, max(digits, 6))
