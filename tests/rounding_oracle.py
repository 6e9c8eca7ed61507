"""Two oracles for rounding that share no arithmetic with labkit: a search in the list of all
values of a small format, and exact fractions for one number at a time."""

import math
from fractions import Fraction
from functools import cache

import numpy as np

from labkit.formats import FloatFormat

DETERMINISTIC = ("nearest_even", "nearest_away", "toward_zero", "up", "down")


@cache
def positive_values(fmt: FloatFormat) -> np.ndarray:
    """Every finite value that is not negative, in order of code, from the widths alone."""
    m, reserved = fmt.mantissa_bits, {"ieee": 2**fmt.mantissa_bits, "fn": 1}
    count = 2 ** (fmt.exponent_bits + m) - reserved.get(fmt.specials, 0)
    values = []
    for code in range(count):
        field, mantissa = code >> m, code % 2**m
        if field == 0 and fmt.has_zero:
            values.append(math.ldexp(mantissa, 1 - fmt.bias - m))
        else:
            values.append(math.ldexp(2**m + mantissa, field - fmt.bias - m))
    return np.array(values)


def hard_points(fmt: FloatFormat, dtype: type) -> np.ndarray:
    """Values, midpoints, the overflow tie, both neighbours of each, in both signs; and specials."""
    values = positive_values(fmt)
    past = values[-1] + 2.0 ** (fmt.max_exponent - fmt.mantissa_bits)
    values = np.append(values, [past, 2 * past, 4 * past])
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, values[:1] / 2])
    with np.errstate(over="ignore"):
        points = points.astype(dtype)
        points = np.concatenate([points, np.nextafter(points, dtype(np.inf))])
    points = np.concatenate([points, np.nextafter(points, dtype(0)), np.array([0], dtype)])
    extremes = np.array([np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, np.inf], dtype)
    points = np.concatenate([points, extremes])
    return np.concatenate([points, -points, np.array([np.nan], dtype)])


def by_search(x: np.ndarray, fmt: FloatFormat, rounding: str, *, saturate: bool) -> np.ndarray:
    """Round by looking up the two neighbours of |x| among all values of the format."""
    wide = x.astype(np.float64)
    values = positive_values(fmt)
    top = values[-1]
    past = top + 2.0 ** (fmt.max_exponent - fmt.mantissa_bits)
    ladder = np.append(values, past)
    negative = np.signbit(wide)
    size = np.abs(wide)
    low = np.clip(np.searchsorted(ladder, size, side="right") - 1, 0, len(ladder) - 2)
    below, above = ladder[low], ladder[low + 1]
    tie = (below + above) / 2  # exact: at most 12 significant bits
    exact = size == below
    if rounding == "nearest_even":
        # Without mantissa bits no significand is even and the larger one wins (IEEE 754-2019,
        # 4.3.1); only zero is even.
        odd = low % 2 == 1 if fmt.mantissa_bits else ladder[low] > 0
        away = (size > tie) | ((size == tie) & odd)
    elif rounding == "nearest_away":
        away = size >= tie
    else:
        away = {"toward_zero": False, "up": ~negative, "down": negative}[rounding] & ~exact
    away &= size > below  # a scale format sends all below its smallest value to it
    result = np.where(away, above, below)

    points_inside = {"toward_zero": True, "up": negative, "down": ~negative}.get(rounding, False)
    beyond = np.inf if fmt.has_inf else np.nan if fmt.has_nan else top
    result = np.where(result > top, np.where(points_inside, top, beyond), result)
    result = np.where(np.isinf(size), beyond, result)
    if saturate:
        result = np.where((size >= top) & ~np.isnan(size), top, result)
    result = np.where(np.isnan(size), np.nan, np.copysign(result, wide))
    if not fmt.signed:
        result = np.where((wide < 0), np.nan if fmt.has_nan else 0.0, np.abs(result))
    if not fmt.has_negative_zero:
        result = np.where(result == 0, 0.0, result)
    return result


def by_fractions(x: float, fmt: FloatFormat, rounding: str) -> float:
    """Round one finite number in exact arithmetic; for signed formats and x of float64."""
    size = abs(Fraction(x))
    exponent = fmt.min_exponent
    while size >= Fraction(2) ** (exponent + 1) and exponent < fmt.max_exponent:
        exponent += 1
    step = Fraction(2) ** (exponent - fmt.mantissa_bits)
    whole, rest = divmod(size, step)
    negative = math.copysign(1.0, x) < 0
    away = {
        "nearest_even": 2 * rest > step or (2 * rest == step and whole % 2 == 1),
        "nearest_away": 2 * rest >= step,
        "toward_zero": False,
        "up": rest > 0 and not negative,
        "down": rest > 0 and negative,
    }[rounding]
    rounded = (whole + away) * step
    if rounded > Fraction(fmt.max):
        if (rounding == "toward_zero") or (rounding == ("up" if negative else "down")):
            rounded = Fraction(fmt.max)
        else:
            beyond = math.inf if fmt.has_inf else math.nan if fmt.has_nan else fmt.max
            return math.copysign(beyond, x)
    result = math.copysign(float(rounded), x)
    return result if result or fmt.has_negative_zero else 0.0
