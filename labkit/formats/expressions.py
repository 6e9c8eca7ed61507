"""The small exact language in which questions state numbers.

``value_of`` takes one expression: arithmetic on exact fractions, comparisons, lists, names and a
fixed set of functions. It walks Python's syntax tree and knows nothing else, so an expression can
neither reach an object's attributes nor run code. ``arithmetic`` takes less: what somebody types
as one number, which ``written_numbers`` has made plain.
"""

import ast
import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from labkit.formats import exact, float_formats
from labkit.formats.float_formats import FloatFormat

Number = exact.Number

_LONGEST_EXPRESSION = 2000
_DEEPEST = 200
"""Expressions inside one another. Python's own limit depends on the caller; libraries raise it."""
_TOO_DEEP = "the expression is nested too deeply"
LARGEST_POWER = 4096
"""The largest power, and the largest exponent of ten."""

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
    if digits is not None and abs(digits) > LARGEST_POWER:
        raise ExpressionError(f"round: {digits} digits are too many")
    return round(Fraction(x), digits)


_WIDTHS = ("bits", "storage_bits", "exponent_bits", "mantissa_bits")
_ENDS = ("eps", "smallest_normal", "smallest_subnormal", "bias", "min_exponent", "max_exponent")
_OF_NUMBER_AND_FORMAT = ("ulp", "nearest", "toward_zero", "code", "value")

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
    **{name: _of_format(name) for name in _WIDTHS + _ENDS},
    **{name: _with_format(getattr(exact, name)) for name in _OF_NUMBER_AND_FORMAT},
    "count_up": _count_up,
    "loss_scale": exact.loss_scale,
}


def value_of(expression: str, names: Mapping[str, object] | None = None) -> Any:
    """The value of an expression: int, Fraction, bool, str, list, or a float inf or nan.

    ``names`` are the variables; a mapping's entries are read as ``table.field``. Raises
    ExpressionError for everything else than arithmetic, comparisons, ``a if c else b``, ``and or
    not``, lists, ``x[i]`` and calls of ``FUNCTIONS``, and where a number cannot be computed.

    >>> value_of("largest(fmt) * 2**-3", {"fmt": "E4M3"})
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
        raise ExpressionError(_TOO_DEEP) from e


def _parsed(expression: str) -> ast.expr:
    """The syntax tree; its decimals are fractions, by the digits as written: 0.1 is a tenth."""
    if len(expression) > _LONGEST_EXPRESSION:
        raise ExpressionError(f"an expression has at most {_LONGEST_EXPRESSION} characters")
    expression = expression.strip()
    tree = ast.parse(expression, mode="eval").body
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [inside for node in level for inside in ast.iter_child_nodes(node)]
    if level:
        raise ExpressionError(_TOO_DEEP)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            written = Decimal(cast("str", ast.get_source_segment(expression, node)))
            if abs(written.adjusted()) > LARGEST_POWER:
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
    if abs(exponent) > LARGEST_POWER:
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


# What somebody may type as one number; questions' own expressions have more.
_TYPED = (
    ast.Constant, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.Name, ast.Load, ast.Call,
)  # fmt: skip
_TYPED_FUNCTIONS = ("sqrt", "log", "log2", "log10", "exp")


def arithmetic(expression: str) -> Number:
    """The number that plain arithmetic makes, with roots, logarithms and exponentials.

    A zero with a minus is the float -0.0. Raises ExpressionError for anything else.
    """
    with _errors_of(expression):
        tree = _parsed(expression)
        for node in ast.walk(tree):
            if not isinstance(node, _TYPED) or isinstance(getattr(node, "value", 0), bool):
                raise ExpressionError("only arithmetic makes a number")
            if isinstance(node, ast.Call) and ast.unparse(node.func) not in _TYPED_FUNCTIONS:
                raise ExpressionError(f"{ast.unparse(node.func)!r} is not known here")
        found = _value(tree, {})
        if isinstance(found, bool) or not isinstance(found, int | Fraction | float):
            raise ExpressionError("this is no number")
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
