"""Number formats in exact fractions: a scalar reference beside ``labkit.formats``, without torch.

A value is an ``int``, a ``Fraction``, or one of the floats inf, -inf and nan. Fractions have no -0,
so neither has this module. It serves questions, whose numbers must be right for every draw, and it
is the second opinion that the tests set beside the rounding of tensors.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

from labkit.formats.float_formats import FP32, FloatFormat

Number = int | Fraction | float


def finite(x: Number) -> bool:
    """Whether x is neither inf nor NaN; no int or fraction is too large to ask."""
    return not isinstance(x, float) or math.isfinite(x)


def _abs(x: Number) -> Number:
    """abs(x), of which mypy would say no more than that it is an object."""
    return cast("Number", abs(x))


def floor_log2(x: Number) -> int:
    """The largest e with 2**e <= x, for a finite x above 0; ValueError else.

    >>> floor_log2(Fraction(1, 3)), floor_log2(8)
    (-2, 3)
    """
    if not (finite(x) and x > 0):
        raise ValueError(f"log2 needs a finite number above 0, got {x}")
    numerator, denominator = Fraction(x).as_integer_ratio()
    guess = numerator.bit_length() - denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def ulp(x: Number, fmt: FloatFormat) -> Number:
    """The gap above abs(x), cut down to a value of the format; zero and subnormals share one.

    Inf and NaN give themselves, as in ``math.ulp``.
    """
    if not finite(x):
        return _abs(x)
    exponent = floor_log2(_abs(x)) if x else fmt.min_exponent
    exponent = min(max(exponent, fmt.min_exponent), fmt.max_exponent)
    return Fraction(2) ** (exponent - fmt.mantissa_bits)


def nearest(x: Number, fmt: FloatFormat) -> Number:
    """The nearest value of the format, ties to even; the rest as in ``labkit.formats.quantize``.

    >>> from labkit.formats.float_formats import E4M3, FP16
    >>> nearest(65519, FP16), nearest(65520, FP16), nearest(1000, E4M3)
    (Fraction(65504, 1), inf, nan)
    """
    if not finite(x):
        return _beyond(x, fmt)
    step = ulp(x, fmt)
    rounded = round(Fraction(x) / step) * step
    if abs(rounded) > fmt.max:
        rounded = math.inf if x > 0 else -math.inf
    return _beyond(x if x < 0 and not fmt.signed else rounded, fmt)


def toward_zero(x: Number, fmt: FloatFormat) -> Number:
    """The value of the format next to x on the side of zero; never beyond the largest."""
    if not finite(x) or (x < 0 and not fmt.signed):
        return _beyond(x, fmt)
    step = ulp(x, fmt)
    cut = math.trunc(Fraction(x) / step) * step
    return _beyond(max(-Fraction(fmt.max), min(Fraction(fmt.max), cut)), fmt)


def _beyond(x: Number, fmt: FloatFormat) -> Number:
    """What a format makes of a number that it lacks: an inf, a negative one, zero."""
    if x < 0 and not fmt.signed:
        x = math.nan if fmt.has_nan else Fraction(0)
    if finite(x):
        return x if fmt.has_zero else max(x, Fraction(fmt.smallest_normal))
    if fmt.has_inf or math.isnan(x):
        return x
    return math.nan if fmt.has_nan else Fraction(fmt.max) * (-1 if x < 0 else 1)


def code(x: Number, fmt: FloatFormat) -> int:
    """The code of a number's nearest value: sign, exponent and mantissa as one integer.

    Raises ValueError where the format has no code for it.

    >>> from labkit.formats.float_formats import FP16
    >>> hex(code(Fraction(1, 10), FP16))
    '0x2e66'
    """
    y = nearest(x, fmt)
    top = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
    if (x < 0 and not fmt.signed) or (math.isnan(y) and not fmt.has_nan):
        raise ValueError(f"{fmt.name} has no code for {x}")
    if math.isnan(y):
        quiet = {"ieee": top | 1 << fmt.mantissa_bits >> 1, "fnuz": 1 << (fmt.bits - 1)}
        return quiet.get(fmt.specials, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1)
    if math.isinf(y):
        magnitude = top
    else:
        multiple = int(_abs(y) / ulp(y, fmt))
        exponent = floor_log2(_abs(y)) if y else fmt.min_exponent
        steps = max(exponent - fmt.min_exponent, 0)
        magnitude = (steps << fmt.mantissa_bits) + multiple - (not fmt.has_zero)
    return magnitude | (1 << (fmt.bits - 1) if y < 0 else 0)


def value(code: int, fmt: FloatFormat) -> Number:
    """The value of a code of the format; ValueError outside 0 .. 2**bits - 1.

    >>> from labkit.formats.float_formats import E4M3
    >>> value(0b0_1111_110, E4M3)
    Fraction(448, 1)
    """
    if not 0 <= code < 1 << fmt.bits:
        raise ValueError(f"a code of {fmt.name} lies in 0 .. {2**fmt.bits - 1}, got {code}")
    sign_bit = 1 << (fmt.bits - 1)
    negative = fmt.signed and bool(code & sign_bit)
    magnitude = code & ~sign_bit if fmt.signed else code
    field, mantissa = magnitude >> fmt.mantissa_bits, magnitude & ((1 << fmt.mantissa_bits) - 1)
    if fmt.specials == "ieee" and field == (1 << fmt.exponent_bits) - 1:
        return math.nan if mantissa else math.copysign(math.inf, -negative or 1)
    if fmt.specials == "fn" and magnitude == (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1:
        return math.nan
    if fmt.specials == "fnuz" and code == sign_bit:
        return math.nan
    first_normal = int(fmt.has_zero)
    leading_one = (1 << fmt.mantissa_bits) if field >= first_normal else 0
    exponent = max(field, first_normal) - fmt.bias - fmt.mantissa_bits
    return (leading_one + mantissa) * Fraction(2) ** exponent * (-1 if negative else 1)


def count_up(step: Number, times: int, fmt: FloatFormat) -> Number:
    """The sum after adding ``step`` ``times`` times to 0, each sum rounded to the format.

    >>> from labkit.formats.float_formats import BF16
    >>> count_up(1, 5000, BF16)
    Fraction(256, 1)
    """
    addend = nearest(step, fmt)
    total: Number = Fraction(0)
    for _ in range(times):
        following = nearest(total + addend, fmt)
        if following == total or not finite(following):
            return following
        total = following
    return total


def loss_scale(
    flags: Sequence[int],
    scale: Number,
    interval: int,
    growth: Number = 2,
    backoff: Number = Fraction(1, 2),
) -> Number:
    """The scale after steps whose overflow flags are given: GradScaler's rule in exact numbers.

    A scale does not grow beyond the range of float32.

    >>> loss_scale([1, 1, 0, 0, 0, 0, 1, 0, 0, 0], 65536, 3)
    Fraction(32768, 1)
    """
    scale, good = Fraction(scale), 0
    for overflowed in flags:
        good = 0 if overflowed else good + 1
        if overflowed:
            scale *= backoff
        elif good == interval:
            scale, good = scale * growth if scale * growth <= FP32.max else scale, 0
    return scale
