"""Numbers as people write them: compared with the right one, read from a line, put into words."""

import contextlib
import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from fractions import Fraction

from labkit.formats import exact
from labkit.formats.expressions import ExpressionError, Number, format_named
from labkit.formats.written_numbers import plain_number, read_number, same_unit
from labkit.interview.question_parts import Text, Tolerance, Unclear

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
    """The number that a text means, in the unit; raises Unclear where it means none, or two."""
    shown = text if len(text) <= 40 else text[:40] + "..."
    try:
        found = read_number(text)
        if unit == "%" and found.unit is None and 0 < abs(found.value) < 1:
            raise Unclear(
                f"Percent are asked for, and {shown!r} may be a share: add the sign, as in 50 %.",
                f"题目问的是百分数，而 {shown!r} 也可能是比例：请加上百分号，例如 50 %。",
            )
        return same_unit(found, unit)
    except ExpressionError as error:
        wanted = f"，单位 {unit}" if unit else ""
        raise Unclear(
            f"{str(error)[0].upper()}{str(error)[1:]}.",
            f"读不懂 {shown!r}。请写成 65504、6.1e-5、2**-14、1/16384 或 0x1p-14 这样的数"
            f"{wanted}。",
        ) from None


def exponent_of_two(text: str) -> int | None:
    """The exponent of a power of 2 that was typed as one, None for any other text.

    >>> exponent_of_two("2⁻¹⁴"), exponent_of_two("k = 2^{18}"), exponent_of_two("18")
    (-14, 18, None)
    """
    found = re.fullmatch(r"2(?:\*\*|\^)\(?([-+]?\d+)\)?", plain_number(text).replace(" ", ""))
    return int(found[1]) if found else None


def rounds_to(number: Number, text: str, value: Number, tolerance: Tolerance | None) -> bool:
    """Whether a number is that value rounded as far as it was written.

    ``number`` is what ``text`` was read as. 2**-24 has ten digits and more: who writes 5.96e-8 has
    it. A value of a few digits is asked for as it is, unless there is a relative tolerance.
    """
    if isinstance(value, float) or isinstance(number, float):
        return False
    if (tolerance is None or tolerance.relative is None) and _rounded(value, _SHORT) == value:
        return False
    if tolerance and tolerance.ulps is not None:
        return False
    digits = _significant_digits(text)
    return digits >= _DIGITS and number in _written_to(value, digits)


_FACTORS = (2, 4, 8, 10, 100, 1000, 10**6, 10**9)
_NEAR = Fraction(1, 200)
"""How near a ratio is to a factor: numbers of three digits, and far less than 1024 is to 1000."""


def compared(number: Number, value: Number) -> Text | None:
    """How a wrong number stands to the right one; None beside 0, and where neither is finite."""
    if exact.finite(number) != exact.finite(value):
        is_finite = exact.finite(value)
        return Text(
            en=f"The right answer is {'finite' if is_finite else 'not finite'}.",
            zh=f"正确答案{'是' if is_finite else '不是'}有限数。",
        )
    if not exact.finite(value) or not (number and value):
        return None
    ratio = Fraction(number) / Fraction(value)
    if isinstance(value, int) and abs(number - value) == 1:
        more = number > value
        return Text(
            en=f"That is one {'more' if more else 'less'} than the right number.",
            zh=f"比正确答案{'多' if more else '少'} 1。",
        )
    if ratio < 0:
        if ratio == -1:
            return Text(en="Only the sign is wrong.", zh="只有符号错了。")
        return Text(en="The sign is wrong already.", zh="符号就错了。")
    if _is_near(Fraction(number) * Fraction(value), 1):
        return Text(en="That is 1 over the right number.", zh="这是正确答案的倒数。")
    for factor in _FACTORS:
        if _is_near(ratio, factor):
            return Text(
                en=f"That is {factor} times the right number.", zh=f"这是正确答案的 {factor} 倍。"
            )
        if _is_near(ratio * factor, 1):
            return Text(
                en=f"That is 1/{factor} of the right number.", zh=f"这是正确答案的 1/{factor}。"
            )
    high = ratio > 1
    off = f"{float(100 * abs(ratio - 1)):.2g} % " if Fraction(1, 2) < ratio < 2 else ""
    return Text(
        en=f"That is {off}too {'high' if high else 'low'}.",
        zh=f"偏{'大' if high else '小'}{f' {off.strip()}' if off else ''}。",
    )


def _is_near(ratio: Fraction, factor: int | Fraction) -> bool:
    return abs(ratio / factor - 1) < _NEAR


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
    found = re.match(r"[-+]?[\d._]+(?:[eE][-+]?\d+)?", plain_number(text))
    try:
        return len(Decimal(found[0]).as_tuple().digits) if found else 0
    except InvalidOperation:
        return 0


_DTYPES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32",
    "float": "float32", "fp64": "float64", "double": "float64", "t": "true", "f": "false",
}  # fmt: skip


def tokens(text: str) -> list[str]:
    """The words and numbers of an output; dtypes by one name, in any case, without ``torch.``."""
    found = re.findall(r"[^\s,;()\[\]'\"`]+", text.casefold().translate(_MARKS))
    names = (token.removeprefix("torch.") for token in found)
    return [_DTYPES.get(name, name) for name in names]


_MARKS = str.maketrans("−，；（）", "-,;()")


def same_output(one: str, other: str) -> bool:
    """Whether two outputs agree token by token: numbers as numbers, words in any case."""
    return _all_agree(tokens(one), tokens(other))


def means_output(typed: str, printed: str) -> bool:
    """Whether what was typed is an output; numbers may be rounded, their thousands parted."""
    groups = re.sub(r"(?<![\w.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])", _ungrouped, typed)
    wanted = tokens(printed)
    return any(_all_agree(tokens(each), wanted, rounded=True) for each in (typed, groups))


def wrong_tokens(typed: str, printed: str) -> list[int] | None:
    """The places, from 1, at which an output is another; None where it has another length."""
    given, wanted = tokens(typed), tokens(printed)
    if len(given) != len(wanted):
        return None
    pairs = enumerate(zip(given, wanted, strict=True), 1)
    return [place for place, (a, b) in pairs if not _agree(a, b, rounded=True)]


def _ungrouped(found: re.Match) -> str:
    return found[0].replace(",", "")


def _all_agree(given: list[str], wanted: list[str], *, rounded: bool = False) -> bool:
    return len(given) == len(wanted) and all(
        _agree(a, b, rounded=rounded) for a, b in zip(given, wanted, strict=True)
    )


def _agree(given: str, wanted: str, *, rounded: bool) -> bool:
    if given == wanted:
        return True
    try:
        a, b = read_number(given), read_number(wanted)
    except ExpressionError:
        return False
    if a.unit or b.unit:
        return False
    # Three digits: 0.30 may be meant for a sum that is not quite 0.3.
    close = rounded and _significant_digits(given) > _DIGITS
    return same(a.value, b.value) or (close and rounds_to(a.value, given, b.value, None))


def written_value(x: object) -> str:
    """A drawn value as a text shows it: short decimals as such, other numbers as m * 2**e.

    >>> [written_value(x) for x in (Fraction(1, 1024), Fraction(3, 2**24), Fraction(1, 3))]
    ['2**-10', '3 * 2**-24', '0.333333']
    """
    if isinstance(x, float):
        return f"{x:g}"
    if isinstance(x, bool) or not isinstance(x, Fraction):
        return ", ".join(written_value(entry) for entry in x) if isinstance(x, list) else str(x)
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
    shown = written_value(value)
    return f"{shown} = {float(value):.6g}" if "**" in shown else shown


def in_full(value: Number) -> str:
    """A number as a text that ``read_typed`` reads as exactly this number.

    >>> in_full(Fraction(1, 3)), in_full(float("inf"))
    ('1/3', 'inf')
    """
    return str(value)
