"""Numbers as people write them, and the small exact language in which questions state numbers.

``evaluate`` takes one expression: arithmetic on exact fractions, comparisons, lists, names and a
fixed set of functions. It walks Python's syntax tree and knows nothing else, so an expression can
neither reach an object's attributes nor run code. ``read_number`` turns what somebody typed, such
as ``2^-14``, ``6.1e-5`` or ``1.6 GB``, into a number.
"""

import ast
import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from labkit.formats import exact, float_formats
from labkit.formats.float_formats import FloatFormat

Number = exact.Number

LONGEST = 400
"""Characters of a number that somebody types."""

_LONGEST_EXPRESSION = 2000
_LARGEST_POWER = 4096
_MOST_BITS = 20_000
_MOST_STEPS = 10_000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class ExpressionError(ValueError):
    """An expression or a number that cannot be read; the message says why."""


class OutOfReach(ExpressionError):
    """It could be computed, but has more digits than there is time for."""


def format_named(name: str) -> FloatFormat:
    """The format of that name in any case: "FP16", "e4m3"; ExpressionError for others."""
    try:
        return float_formats.FORMATS[name.lower()]
    except (KeyError, AttributeError):
        raise ExpressionError(f"{name!r} is no format; there are {', '.join(NAMES)}") from None


NAMES = tuple(name.upper() for name in float_formats.FORMATS)
"""The formats' names as questions write them."""


def _of_format(attribute: str) -> Callable[[str], int | Fraction]:
    def read(name: str) -> int | Fraction:
        found = getattr(format_named(name), attribute)
        return Fraction(found) if isinstance(found, float) else found

    return read


def _with_format(function: Callable[..., Number]) -> Callable[..., Number]:
    """The function with its last argument, a format, given by name."""
    return lambda *given: function(*given[:-1], format_named(given[-1]))


def _real(function: Callable[[float], float]) -> Callable[[Number], Number]:
    """A function of floats; its result is the exact fraction of the float."""
    return lambda x: _exact(function(float(x)))


def _count_up(step: Number, times: int, name: str) -> Number:
    if times > _MOST_STEPS:
        raise ExpressionError(f"count_up: at most {_MOST_STEPS} steps, got {times}")
    return exact.count_up(step, times, format_named(name))


def _range(*given: int) -> list[int]:
    numbers = range(*given)
    _few(len(numbers))
    return list(numbers)


def _few(entries: int) -> None:
    if entries > _MOST_STEPS:
        raise ExpressionError(f"a list holds at most {_MOST_STEPS} entries, got {entries}")


def _round(x: Number, digits: int | None = None) -> int | Fraction:
    if digits is not None and abs(digits) > _LARGEST_POWER:
        raise ExpressionError(f"round: {digits} digits are too many")
    return round(Fraction(x), digits)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": lambda *given: min(given[0] if len(given) == 1 else given),
    "max": lambda *given: max(given[0] if len(given) == 1 else given),
    "sum": lambda numbers: sum(numbers),
    "len": len,
    "range": _range,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": _round,
    "log2": lambda x: (
        exact.floor_log2(x)
        if Fraction(2) ** exact.floor_log2(x) == x
        else _exact(math.log2(Fraction(x)))
    ),
    "log10": _real(math.log10),
    "log": _real(math.log),
    "exp": _real(math.exp),
    "sqrt": _real(math.sqrt),
    "largest": _of_format("max"),
    "eps": _of_format("eps"),
    "smallest_normal": _of_format("smallest_normal"),
    "smallest_subnormal": _of_format("smallest_subnormal"),
    "bits": _of_format("bits"),
    "storage_bits": _of_format("storage_bits"),
    "exponent_bits": _of_format("exponent_bits"),
    "mantissa_bits": _of_format("mantissa_bits"),
    "bias": _of_format("bias"),
    "min_exponent": _of_format("min_exponent"),
    "max_exponent": _of_format("max_exponent"),
    "ulp": _with_format(exact.ulp),
    "nearest": _with_format(exact.nearest),
    "toward_zero": _with_format(exact.toward_zero),
    "code": _with_format(exact.code),
    "value": _with_format(exact.value),
    "count_up": _count_up,
    "loss_scale": exact.loss_scale,
}


def evaluate(expression: str, names: Mapping[str, object] | None = None) -> Any:
    """The value of an expression: int, Fraction, bool, str, list, or a float inf or nan.

    ``names`` are the variables; a mapping's entries are read as ``table.field``. Raises
    ExpressionError for everything else than arithmetic, comparisons, ``a if c else b``, ``and or
    not``, lists, ``x[i]`` and calls of ``FUNCTIONS``, and where a number cannot be computed.

    >>> evaluate("largest(fmt) * 2**-3", {"fmt": "E4M3"})
    56
    """
    with _errors_of(expression):
        return _value(_parsed(expression), names or {})


@contextlib.contextmanager
def _errors_of(expression: str) -> Iterator[None]:
    """Whatever goes wrong inside is an ExpressionError."""
    try:
        yield
    except ExpressionError:
        raise
    except (SyntaxError, ArithmeticError, TypeError, ValueError, LookupError) as e:
        raise ExpressionError(f"{expression!r}: {e}") from e
    except (RecursionError, MemoryError) as e:
        raise ExpressionError("the expression is nested too deeply") from e


def _parsed(expression: str) -> ast.expr:
    """The syntax tree; its decimals are fractions, by the digits as written: 0.1 is a tenth."""
    if len(expression) > _LONGEST_EXPRESSION:
        raise ExpressionError(f"an expression has at most {_LONGEST_EXPRESSION} characters")
    expression = expression.strip()
    tree = ast.parse(expression, mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            written = Decimal(cast("str", ast.get_source_segment(expression, node)))
            if abs(written.adjusted()) > _LARGEST_POWER:
                raise OutOfReach("the number is too large or too small")
            # To ast no constant is a fraction; here decimals are.
            node.value = _simple(Fraction(written))  # type: ignore[assignment]
    return tree


def _value(node: ast.expr, names: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | Fraction() | str()):
            return node.value
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionError(f"{name!r} is not known here")
            return names[name]
        case ast.Attribute(value=table, attr=field):
            entries = _value(table, names)
            if not isinstance(entries, Mapping) or field not in entries:
                raise ExpressionError(f"there is no field {field!r}")
            return entries[field]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.BinOp(op=ast.Pow()):
            return _power(_value(node.left, names), _value(node.right, names))
        case ast.BinOp(op=op) if type(op) in _BINARY:
            return _arithmetic(op, _value(node.left, names), _value(node.right, names))
        case ast.BoolOp():
            values = [_value(part, names) for part in node.values]
            return all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.Compare():
            values = [_value(part, names) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(_COMPARE[type(op)](a, b) for op, a, b in pairs)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, names) for part in parts]
        case ast.Subscript(value=sequence, slice=index):
            return _value(sequence, names)[_value(index, names)]
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in FUNCTIONS:
            return _bounded(FUNCTIONS[name](*(_value(part, names) for part in given)))
    raise ExpressionError(f"{ast.unparse(node)!r} is more than this language has")


def _arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    if isinstance(op, ast.Add) and isinstance(a, str | list) and type(a) is type(b):
        _few(len(a) + len(b))
        return operator.add(a, b)
    if isinstance(op, ast.Mult) and isinstance(a, list) and isinstance(b, int):
        _few(len(a) * b)
        return a * b
    _require_numbers(a, b)
    if isinstance(op, ast.Div) and isinstance(a, int) and isinstance(b, int):
        return _simple(Fraction(a, b))
    return _bounded(_BINARY[type(op)](a, b))


def _require_numbers(a: object, b: object) -> None:
    if not (isinstance(a, int | Fraction | float) and isinstance(b, int | Fraction | float)):
        raise ExpressionError(f"numbers are wanted, got {a!r} and {b!r}")


def _power(base: Number, exponent: Number) -> Number:
    _require_numbers(base, exponent)
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        exponent = int(exponent)
    if not isinstance(exponent, int):
        return _exact(float(base) ** float(exponent))
    if abs(exponent) > _LARGEST_POWER:
        raise OutOfReach(f"the power {exponent} is too large")
    if isinstance(base, float):
        return base**exponent
    # Before it is computed: a power of a power has more digits than there is time for.
    if abs(exponent) * (_bits(base) - 1) > _MOST_BITS:
        raise OutOfReach("the number grows too large")
    return _bounded(Fraction(base) ** exponent)


def _bits(x: int | Fraction) -> int:
    return max(part.bit_length() for part in x.as_integer_ratio())


def _bounded(x: Any) -> Any:
    if isinstance(x, float):
        return _exact(x)
    if isinstance(x, Fraction):
        x = _simple(x)
    if isinstance(x, int | Fraction) and _bits(x) > _MOST_BITS:
        raise OutOfReach("the number grows too large")
    return x


def _simple(x: Fraction) -> int | Fraction:
    return int(x) if x.denominator == 1 else x


def _exact(x: float) -> int | Fraction | float:
    return _simple(Fraction(x)) if math.isfinite(x) else x


@dataclass(frozen=True)
class Written:
    """A number that somebody wrote: ``value`` in ``unit``; no unit was written where it is None."""

    value: Number
    unit: str | None = None


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
_SPELLINGS = {
    "byte": "B", "bytes": "B", "字节": "B",
    "bit": "bits", "b": "bits", "位": "bits", "比特": "bits",
    "kb": "kB", "KB": "kB", "mb": "MB", "gb": "GB", "tb": "TB", "G": "GB", "M": "MB",
    "sec": "s", "second": "s", "seconds": "s", "秒": "s", "μs": "us", "µs": "us", "毫秒": "ms",
    "×": "x", "X": "x", "times": "x", "倍": "x", "db": "dB", "percent": "%",
    "TFLOPS": "TFLOP/s", "TFLOPs": "TFLOP/s", "FLOPs": "FLOP",
    "FLOPs/B": "FLOP/B", "FLOP/byte": "FLOP/B", "FLOPs/byte": "FLOP/B", "token": "tokens",
    "step": "steps",
}  # fmt: skip
_HEXADECIMAL = (
    r"(?<![\w.])0[xX](?:(?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?\d+"
    r"|[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?)(?![\w.])"
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
# Full-width forms, as a Chinese keyboard writes them, stand 0xFEE0 above the ASCII that they mean.
_PLAIN: dict[int, int | str] = {full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)}
_SIGNS = {"−": "-", "–": "-", "‑": "-", "。": ".", "٫": ".", "٬": ",", "∞": "inf"}
_PLAIN |= {ord(sign): meant for sign, meant in _SIGNS.items()}
# What an answer may be made of; questions' own expressions have more.
_ARITHMETIC = (ast.Constant, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.Name, ast.Load)


def plain(text: str) -> str:
    """A typed text in ASCII, as far as it is one number: minus signs, powers, any script's digits.

    >>> plain("−６５,504"), plain("١٫٥"), plain("2⁻¹⁴")
    ('-65504', '1.5', '2**-14')
    """
    powers = r"[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"
    text = re.sub(powers, lambda found: "**" + found[0].translate(_SUPERSCRIPTS), text)
    text = re.sub(r"\d", lambda digit: str(int(digit[0])), text.translate(_PLAIN).strip())
    # A thousand is 1,000; 0,005 and 1,00 are not numbers here.
    groups = r"(?<![\w.,])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,])"
    return re.sub(groups, lambda found: found[0].replace(",", ""), text)


def read_number(text: str) -> Written:
    """Read one number as people write them, with its unit if there is one.

    ``65504``, ``65,504``, ``6.1e-5``, ``6.1 x 10^-5``, ``2**-14``, ``2^-14``, ``2⁻¹⁴``,
    ``1/16384``, ``0x1p-14``, ``0x7bff``, ``inf``, ``nan``, ``1.6 GB``, ``12 %``. The value is
    exact, but for a root such as ``2**0.5``, which is float64's. A zero with a minus is the float
    -0.0. Raises ExpressionError where it is no number, with what would be one.

    >>> read_number("2^-14").value == read_number("0x1p-14").value == Fraction(1, 16384)
    True
    >>> read_number("1.6 GB")
    Written(value=Fraction(8, 5), unit='GB')
    """
    shown = text if len(text) <= 40 else text[:40] + "..."
    if len(text) > LONGEST:
        raise ExpressionError(f"{shown!r} is too long for a number")
    number, unit = _split_unit(plain(text))
    number = re.sub(_HEXADECIMAL, _decimal, number)
    number = re.sub(r"(?<=[\d)])\s*[xX×·]\s*(?=[\d(])", "*", number).replace("^", "**")
    number = re.sub(r"\b(infinity|inf)\b", "inf", number, flags=re.IGNORECASE)
    number = re.sub(r"\bnan\b", "nan", number, flags=re.IGNORECASE)
    number = re.sub(r"(?<![\w.])0+(?=\d)", "", number)  # 007 is seven
    try:
        found = _arithmetic_of(number)
    except OutOfReach:
        raise ExpressionError(
            f"{shown!r} is out of reach: keep powers and exponents within ±{_LARGEST_POWER}, or "
            "write inf"
        ) from None
    except ExpressionError:
        found = None
    if isinstance(found, bool) or not isinstance(found, int | Fraction | float):
        raise ExpressionError(
            f"{shown!r} is no number here; write it like 65504, 6.1e-5, 2**-14, 1/16384, 0x1p-14, "
            "inf or nan"
        )
    return Written(found, unit)


def _arithmetic_of(number: str) -> Number:
    with _errors_of(number):
        tree = _parsed(number)
        for node in ast.walk(tree):
            if not isinstance(node, _ARITHMETIC) or isinstance(getattr(node, "value", 0), bool):
                raise ExpressionError("only arithmetic makes a number")
        found = _value(tree, {})
        return -0.0 if found == 0 and _is_negative(tree) else found


def _is_negative(node: ast.expr) -> bool:
    """The sign of a product, even of one that is zero: fractions have no -0, formats have."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return not _is_negative(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _is_negative(operand)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return _is_negative(left) != _is_negative(right)
    return _value(node, {}) < 0


def _split_unit(text: str) -> tuple[str, str | None]:
    if re.fullmatch(r"[-+]?" + _HEXADECIMAL, text):
        return text, None
    # The longest unit first, so that "ms" is not read as "s".
    for spelling in sorted({**_SPELLINGS, **UNITS}, key=len, reverse=True):
        if text.endswith(spelling):
            number = text[: -len(spelling)].rstrip()
            if number and not re.search(r"[A-Za-z_]$", number):
                return number, _SPELLINGS.get(spelling, spelling)
    return text, None


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
    return converted if isinstance(converted, float) else _simple(Fraction(converted))
