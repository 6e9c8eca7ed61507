"""Numbers as people write them: compared with the right one, read from a line, put into words."""

import contextlib
import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from fractions import Fraction

from labkit.formats import exact
from labkit.formats.expressions import ExpressionError, Number, format_named
from labkit.formats.written_numbers import plain, read_number, same_unit
from labkit.interview.question_parts import Tolerance, Unclear

_SHORT = 6
"""Digits up to which a value is asked for as it is."""

_DIGITS = 2
"""Digits that must be written, at least, of a value with more."""


def same(a: Number, b: Number) -> bool:
    """Equal, or both NaN."""
    return a == b or (a != a and b != b)


def within(answer: Number, expected: Number, tolerance: Tolerance | None) -> bool:
    """Whether a number is the expected one, as far as the tolerance tells."""
    if tolerance is None or not (exact.finite(answer) and exact.finite(expected)):
        return same(answer, expected)
    distance = abs(Fraction(answer) - Fraction(expected))
    if tolerance.relative is not None:
        return distance <= tolerance.relative * abs(Fraction(expected))
    return distance <= tolerance.ulps * exact.ulp(expected, format_named(tolerance.format))


def read_typed(text: str, unit: str | None) -> Number:
    """The number that a text means, in the unit; raises Unclear where it means none."""
    try:
        return same_unit(read_number(text), unit)
    except ExpressionError as error:
        shown = text if len(text) <= 40 else text[:40] + "..."
        wanted = f",单位 {unit}" if unit else ""
        raise Unclear(
            f"{str(error)[0].upper()}{str(error)[1:]}.",
            f"读不懂 {shown!r}。请写成 65504、6.1e-5、2**-14、1/16384 或 0x1p-14 这样的数"
            f"{wanted}。",
        ) from None


def means(number: Number, text: str, value: Number, tolerance: Tolerance | None) -> bool:
    """Whether what was written is that value: within the tolerance, or rounded as far as written.

    ``number`` is what ``text`` was read as. 2**-24 has ten digits and more: who writes 5.96e-8 has
    it. A value of a few digits is asked for as it is.
    """
    if within(number, value, tolerance):
        return True
    if tolerance is not None or isinstance(value, float) or isinstance(number, float):
        return False
    if _rounded(value, _SHORT) == value:
        return False
    digits = _significant_digits(text)
    return digits >= _DIGITS and number in _written_to(value, digits)


def _written_to(value: int | Fraction, digits: int) -> set[Fraction]:
    """The value to that many digits, a tie either way, and as Python prints it: 2/3 ends in a 6."""
    said = {_rounded(value, digits, rounding) for rounding in (ROUND_HALF_UP, ROUND_HALF_DOWN)}
    with contextlib.suppress(OverflowError):
        said.add(Fraction(repr(float(value))))
    return said


def _rounded(value: int | Fraction, digits: int, rounding: str = ROUND_HALF_UP) -> Fraction:
    """The value to that many significant digits."""
    top, bottom = value.as_integer_ratio()
    with localcontext(prec=digits, rounding=rounding):
        return Fraction(Decimal(top) / Decimal(bottom))


def _significant_digits(text: str) -> int:
    """Significant digits of a plain decimal; 0 for other forms."""
    found = re.match(r"[-+]?[\d._]+(?:[eE][-+]?\d+)?", plain(text))
    try:
        return len(Decimal(found[0]).as_tuple().digits) if found else 0
    except InvalidOperation:
        return 0


def same_output(one: str, other: str) -> bool:
    """Whether two outputs agree token by token: numbers as numbers, words in any case."""
    tokens = [_tokens(text) for text in (one, other)]
    return len(tokens[0]) == len(tokens[1]) and all(map(_agree, *tokens))


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\s,()\[\]]+", text.casefold().replace("−", "-"))


def _agree(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return same(Fraction(a), Fraction(b))
    except (ValueError, ZeroDivisionError):
        pass
    try:
        return same(float(a), float(b))
    except ValueError:
        return False


def written(x: object) -> str:
    """A drawn value as a text shows it: short decimals as such, other numbers as m * 2**e.

    >>> written(Fraction(1, 1024)), written(Fraction(3, 2**24)), written(Fraction(1, 3))
    ('2**-10', '3 * 2**-24', '0.333333')
    """
    if isinstance(x, float):
        return f"{x:g}"
    if isinstance(x, bool) or not isinstance(x, Fraction):
        return ", ".join(written(entry) for entry in x) if isinstance(x, list) else str(x)
    decimal = f"{float(x):.6g}"
    short = abs(x) >= Fraction(1, 100) or "e" in decimal or len(decimal) < 9
    if short and Fraction(decimal) == x:
        return decimal
    bottom = x.denominator
    if bottom & (bottom - 1) == 0 and abs(x.numerator) < 4096:
        power = f"2**-{bottom.bit_length() - 1}"
        return power if x.numerator == 1 else f"{x.numerator} * {power}"
    return decimal


def in_words(value: Number) -> str:
    """A right number in words; a power of two says its decimal too."""
    if isinstance(value, int) and abs(value) >= 10**12:
        return f"{float(value):.6g}"
    shown = written(value)
    return f"{shown} = {float(value):.6g}" if "**" in shown else shown


def in_full(value: Number) -> str:
    """A number as a text that ``read_typed`` reads as exactly this number.

    >>> in_full(Fraction(1, 3)), in_full(float("inf"))
    ('1/3', 'inf')
    """
    return str(value)
