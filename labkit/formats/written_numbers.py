"""Numbers as people write them: ``2^-14``, ``6.1e-5``, ``6,1e-5``, ``65 504``, ``1½``, ``1.6 GB``.

``read_number`` turns what somebody typed into an exact number and its unit, ``same_unit`` converts
it to the unit that is asked for, and ``plain_number`` is the typed text in Python's own spelling.
What can be read in two ways is refused with a sentence.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from labkit.formats.expressions import (
    LARGEST_POWER,
    ExpressionError,
    Number,
    OutOfReach,
    arithmetic,
)

LONGEST = 400
"""Characters of a number that somebody types."""


@dataclass(frozen=True)
class Written:
    """A number that somebody wrote: ``value`` in ``unit``; no unit was written where it is None."""

    value: Number
    unit: str | None = None


# Units

# Unit -> (what it measures, how many of the first of its kind).
UNITS: dict[str, tuple[str, Fraction]] = {
    "B": ("bytes", Fraction(1)),
    "bits": ("bytes", Fraction(1, 8)),
    **{f"{p}B": ("bytes", Fraction(1000) ** i) for i, p in enumerate("kMGT", 1)},
    **{f"{p}iB": ("bytes", Fraction(1024) ** i) for i, p in enumerate("KMGT", 1)},
    "s": ("seconds", Fraction(1)),
    "ms": ("seconds", Fraction(1, 1000)),
    "us": ("seconds", Fraction(1, 10**6)),
    "ns": ("seconds", Fraction(1, 10**9)),
    "%": ("share", Fraction(1, 100)),
    "x": ("times", Fraction(1)),
    "dB": ("decibels", Fraction(1)),
    **{f"{p}FLOP": ("operations", Fraction(1000) ** i) for i, p in enumerate(["", *"kMGTP"])},
    **{f"{p}FLOP/s": ("op rate", Fraction(1000) ** i) for i, p in enumerate(["", *"kMGTP"])},
    **{f"{p}B/s": ("byte rate", Fraction(1000) ** i) for i, p in enumerate(["", *"kMGT"])},
    "FLOP/B": ("intensity", Fraction(1)),
    "tokens": ("tokens", Fraction(1)),
    "tokens/s": ("token rate", Fraction(1)),
    "steps": ("steps", Fraction(1)),
    "W": ("watts", Fraction(1)),
    "J": ("joules", Fraction(1)),
}
_PREFIXES = {"kilo": "k", "mega": "M", "giga": "G", "tera": "T"}
_BINARY_PREFIXES = {"kibi": "Ki", "mebi": "Mi", "gibi": "Gi", "tebi": "Ti"}
_SPELLINGS = {
    "byte": "B", "bytes": "B", "字节": "B", "b": "bits", "KB": "kB", "G": "GB", "M": "MB",
    "bit": "bits", "-bit": "bits", "-bits": "bits", "位": "bits", "比特": "bits",
    **{f"{word}byte{s}": f"{p}B" for word, p in (_PREFIXES | _BINARY_PREFIXES).items()
       for s in ("", "s")},
    **{f"{p}Byte{s}": f"{p}B" for p in "kMGT" for s in ("", "s")},
    **{f"{p}Bps": f"{p}B/s" for p in "kMGT"},
    "sec": "s", "second": "s", "seconds": "s", "秒": "s", "毫秒": "ms", "微秒": "us", "纳秒": "ns",
    **{f"{word}{end}": unit for word, unit in (("milli", "ms"), ("micro", "us"), ("nano", "ns"))
       for end in ("second", "seconds")},
    "msec": "ms", "μs": "us", "µs": "us", "usec": "us", "nsec": "ns",
    "×": "x", "X": "x", "times": "x", "-fold": "x", "fold": "x", "倍": "x",
    "percent": "%", "per cent": "%", "pct": "%", "decibel": "dB", "decibels": "dB", "分贝": "dB",
    "FLOPs": "FLOP", "FLOPS": "FLOP/s", "FLOPs/B": "FLOP/B", "FLOP/byte": "FLOP/B",
    "FLOPs/byte": "FLOP/B", "GFLOPS": "GFLOP/s", "TFLOPS": "TFLOP/s", "TFLOPs": "TFLOP/s",
    "PFLOPS": "PFLOP/s", "token": "tokens", "tok/s": "tokens/s", "token/s": "tokens/s",
    "tokens/sec": "tokens/s", "tokens per second": "tokens/s", "step": "steps", "步": "steps",
    "watt": "W", "watts": "W", "joule": "J", "joules": "J",
}  # fmt: skip
_EXACT = _SPELLINGS | {unit: unit for unit in UNITS}


def _in_any_case() -> dict[str, str]:
    """Spellings that mean one unit in any case: no single letters, nor FLOPs and FLOPS."""
    meanings: dict[str, set[str]] = {}
    for spelling, unit in _EXACT.items():
        if len(spelling) > 1:
            meanings.setdefault(spelling.casefold(), set()).add(unit)
    return {spelling: units.pop() for spelling, units in meanings.items() if len(units) == 1}


_FOLDED = _in_any_case()
_BITS_OF_MANY = r"(?<![A-Za-z])(?:[kKMGT]i?b(?:ps|/s)?|[kmgt]bps)$"

# Spelling

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
# Full-width forms, as a Chinese keyboard writes them, stand 0xFEE0 above the ASCII that they mean.
_SIGNS = {chr(full): chr(full - 0xFEE0) for full in range(0xFF01, 0xFF5F)}
_SIGNS |= dict.fromkeys("−–—‑‒﹣", "-") | dict.fromkeys("÷∕⁄", "/") | dict.fromkeys("•⋅∙", "·")
_SIGNS |= dict.fromkeys("\u00a0\u2009\u202f\u3000", " ")
_SIGNS |= {"∗": "*", "✕": "×", "。": ".", "٫": ".", "٬": ",", "’": "'", "∞": "inf", "∼": "~"}
_OPENING = (
    r"^(?:[A-Za-z]\s*(?=[=≈~]))?[=≈~≃≅]?\s*"
    r"(?:(?:about|around|roughly|approximately|approx\.?|circa|ca\.?)\s+|大?约\s*)?"
)
_SPELLED = (
    (r"^\$(.*)\$$", r"\1"),
    (r"\^\{([^{}]*)\}", r"^(\1)"),
    (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"),
    (r"\\times|\\cdot", "*"),
    (r"\\infty|\b(?:infinity|infinite|inf)\b|无穷大?", "inf"),
    (r"\b(?:nan|not a number)\b", "nan"),
    (r"\b(?:minus|negative)\s+|负", "-"),
    (r"正", "+"),
    (r"\bzero\b|零", "0"),
    (r"\bln\b", "log"),
    (r"\b(?:math|np|numpy|torch)\.", ""),
    (r"\bfloat\(\s*(['\"])([-+]?\w+)\1\s*\)", r"\2"),
    (r"√\s*(\d+(?:\.\d+)?)", r"sqrt(\1)"),
    (r"√\s*(?=\()", "sqrt"),
)
_HEXADECIMAL = (
    r"(?<![\w.])0[xX](?:(?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?\d+"
    r"|[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?)(?![\w.])"
)
# A comma before three digits parts thousands, but nobody parts the thousands of 5,960e-8.
_SCIENTIFIC = r"\s*(?:[eE]|[*x×·]\s*10\b)"


def plain_number(text: str) -> str:
    """A typed text in Python's spelling, as far as it is one number.

    Minus signs, powers, fractions, any script's digits, separators and decimal commas become ASCII;
    what people put before a number ("about", "k =") is gone.

    >>> [plain_number(said) for said in ("−６５,504", "١٫٥", "2⁻¹⁴", "6,1e-5", "≈ 65 504")]
    ['-65504', '1.5', '2**-14', '6.1e-5', '65504']
    """
    powers = r"[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"
    text = re.sub(powers, lambda found: "**" + found[0].translate(_SUPERSCRIPTS), text)
    text = re.sub("(\\d*)([¼-¾⅐-⅞])", _fraction, text)
    text = "".join(_SIGNS.get(sign, sign) for sign in text).strip()
    text = re.sub(r"\d", lambda digit: str(int(digit[0])), text)
    text = re.sub(_OPENING, "", text, flags=re.IGNORECASE)
    for spelled, meant in _SPELLED:
        text = re.sub(spelled, meant, text, flags=re.IGNORECASE)
    return text if re.search(r"[A-Za-z]\(", text) else _without_separators(text)


def _fraction(found: re.Match) -> str:
    """½ and 1½ in parentheses, as a sum."""
    part = unicodedata.normalize("NFKC", found[2]).replace("\N{FRACTION SLASH}", "/")
    return f"({found[1]}+{part})" if found[1] else f"({part})"


def _without_separators(text: str) -> str:
    """1,000 and 65 504 without separators; 0,5 and 1.234,5 with a decimal point."""
    groups = (
        rf"(?<![\w.,])[1-9]\d{{0,2}}(?:,\d{{3}})+(?![\d,]|{_SCIENTIFIC})",
        r"(?<![\w.,'])[1-9]\d{0,2}(?:['\ ]\d{3})+(?![ ']?\d)",
        r"(?<![\w.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.])",
        r"(?<![\w.,])[1-9]\d{0,2}(?:\.\d{3})+(?=,\d+(?![\d,.]))",
    )
    for group in groups:
        text = re.sub(group, lambda found: re.sub(r"[,.' ]", "", found[0]), text)
    thousand = r"[1-9]\d{0,2},\d{3}(?!\d)"
    return re.sub(rf"(?<![\w.,])(?!{thousand})(\d+),(\d+)(?![\d,.])", r"\1.\2", text)


# Reading


def read_number(text: str) -> Written:
    """Read one number as people write them, with its unit if there is one.

    ``65504``, ``65,504``, ``65 504``, ``6.1e-5``, ``6,1e-5``, ``6.1 x 10^-5``, ``2**-14``,
    ``2^-14``, ``2⁻¹⁴``, ``1/16384``, ``½``, ``sqrt(2)``, ``0x1p-14``, ``0x7bff``, ``inf``, ``nan``,
    ``1.6 GB``, ``12 %``. The value is exact, but for roots and logarithms, which are float64's. A
    zero with a minus is the float -0.0. Raises ExpressionError where it is no number, with what
    would be one.

    >>> read_number("2^-14").value == read_number("0x1p-14").value == Fraction(1, 16384)
    True
    >>> read_number("1.6 GB")
    Written(value=Fraction(8, 5), unit='GB')
    """
    shown = repr(text if len(text) <= 40 else text[:40] + "...")
    if len(text) > LONGEST:
        raise ExpressionError(f"{shown} is too long for a number")
    number, unit = _split_unit(plain_number(text), shown)
    _refuse_two_meanings(number, shown)
    number = re.sub(_HEXADECIMAL, _decimal, number)
    number = re.sub(r"(?<=[\d)])\s*[xX×·]\s*(?=[\d(])", "*", number).replace("^", "**")
    number = re.sub(r"(?<![\w.])0+(?=\d)", "", number)  # 007 is seven
    try:
        return Written(arithmetic(number), unit)
    except OutOfReach:
        raise ExpressionError(
            f"{shown} is out of reach: keep powers and exponents within ±{LARGEST_POWER}, or "
            "write inf"
        ) from None
    except ExpressionError:
        raise ExpressionError(
            f"{shown} is no number here; write it like 65504, 6.1e-5, 2**-14, 1/16384, 0x1p-14, "
            "inf or nan"
        ) from None


def _split_unit(text: str, shown: str) -> tuple[str, str | None]:
    if re.fullmatch(r"[-+]?" + _HEXADECIMAL, text):
        return text, None
    if re.fullmatch(r"[xX×]\s*\d+(?:\.\d+)?", text):  # x2, as people write a speed-up
        return text[1:].lstrip(), "x"
    if re.search(_BITS_OF_MANY, text):
        raise ExpressionError(f"{shown} counts bits: a small b is a bit, a capital B a byte")
    for known, end in ((_EXACT, text), (_FOLDED, text.casefold())):
        # The longest unit first, so that "ms" is not read as "s".
        for spelling in sorted(known, key=len, reverse=True):
            number = text[: -len(spelling)].rstrip()
            if end.endswith(spelling) and number and not re.search(r"[A-Za-z_/]$", number):
                return number, known[spelling]
    return text, None


def _refuse_two_meanings(number: str, shown: str) -> None:
    """Raise where a number could be read in two ways."""
    if re.search(rf"\d,\d{{3}}{_SCIENTIFIC}", number):
        raise ExpressionError(f"{shown} has a comma with two meanings; write a decimal point")
    if re.search(r"(?:^|[*x×·])\s*10\s*-\s*\d+$", number):
        raise ExpressionError(f"{shown} is a difference; write a power as 10**-8 or 1e-8")
    ends = re.fullmatch(r"(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)", number)
    if ends and Fraction(ends[1]) < Fraction(ends[2]):
        raise ExpressionError(f"{shown} is a range; one number is asked for")


def _decimal(found: re.Match) -> str:
    """A hexadecimal integer or float in decimals, exactly."""
    digits, _, power = found[0].lower().removeprefix("0x").partition("p")
    whole, _, places = digits.partition(".")
    return f"({int(whole + places, 16)} * 2**({int(power or 0) - 4 * len(places)}))"


def same_unit(written: Written, unit: str | None) -> Number:
    """The number in the unit that is asked for; without a written unit it is taken to be in it.

    Raises ExpressionError where the written unit measures something else.
    """
    if written.unit is None or written.unit == unit:
        return written.value
    kind, factor = UNITS[written.unit]
    if unit is None:
        if kind in ("share", "times"):
            return written.value * factor
        raise ExpressionError(f"a plain number is asked for, not {written.unit}")
    if UNITS[unit][0] != kind:
        raise ExpressionError(f"the answer is asked for in {unit}, not in {written.unit}")
    converted = written.value * factor / UNITS[unit][1]
    if isinstance(converted, float):
        return converted
    exact = Fraction(converted)
    return int(exact) if exact.denominator == 1 else exact
