"""The language in which questions state numbers."""

import math
import sys
import time
from fractions import Fraction

import pytest

from labkit.formats.expressions import NAMES, ExpressionError, format_named, value_of
from labkit.formats.float_formats import FORMATS

INF = math.inf

NAMED = {"n": 3, "fmt": "FP16", "gpu": {"name": "H100", "memory": 80}, "flags": [0, 1, 0]}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("7 / 2", Fraction(7, 2)),
        ("6 / 2", 3),
        ("7 // 2 + 7 % 4", 6),
        ("-2**2", -4),
        ("2**0.5 * 0", 0),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("1e3", 1000),
        ("n * gpu.memory", 240),
        ("gpu.name + '!'", "H100!"),
        ("flags[1] + flags[-1]", 1),
        ("sum(flags) + len(flags)", 4),
        ("sum(range(1, 101))", 5050),
        ("[0] * 3 + [1]", [0, 0, 0, 1]),
        ("n > 2 and not n > 5", True),
        ("1 < n < 3 or fmt in ['FP16']", True),
        ("n not in [1, 2]", True),
        ("'a' if n == 4 else 'b'", "b"),
        ("min(4, 2, 3) + max([4, 2, 3])", 6),
        ("abs(-n) + floor(7/2) + ceil(7/2)", 10),
        ("round(5/2) + round(7/2)", 6),  # ties to even
        ("round(1/3, 2)", Fraction(33, 100)),
        ("log2(1/1024)", -10),
        ("log10(1000)", 3),
        ("sqrt(9/4)", Fraction(3, 2)),
        ("exp(0) + log(1)", 1),
        ("largest(fmt)", 65504),
        ("largest('e4m3') * 2**-3", 56),
        ("eps('BF16')", Fraction(1, 128)),
        ("smallest_normal(fmt)", Fraction(1, 2**14)),
        ("smallest_subnormal(fmt)", Fraction(1, 2**24)),
        ("[bits('TF32'), storage_bits('TF32')]", [19, 32]),
        ("[exponent_bits(fmt), mantissa_bits(fmt), bias(fmt)]", [5, 10, 15]),
        ("[min_exponent(fmt), max_exponent(fmt)]", [-14, 15]),
        ("ulp(2049, fmt)", 2),
        ("nearest(2049, fmt) + toward_zero(2051, fmt)", 4098),
        ("code(0.1, fmt)", 0x2E66),
        ("value(31743, fmt)", 65504),
        ("nearest(65520, fmt)", INF),
        ("count_up(1, 5000, 'BF16')", 256),
        ("loss_scale([1, 0, 0, 0], 1024, 3)", 1024),
        ("inf", INF),
    ],
)
def test_expressions_have_exact_values(expression, value):
    assert value_of(expression, NAMED) == value


def test_nan_and_the_formats_by_name():
    assert math.isnan(value_of("nan")) and math.isnan(value_of("nearest(1000, 'E4M3')"))
    assert [name.lower() for name in NAMES] == list(FORMATS)
    assert format_named("Fp16") is FORMATS["fp16"]
    for wrong in ("fp17", "", 5, None):
        with pytest.raises(ExpressionError, match=r"is no format; there are FP64, .*E2M1"):
            format_named(wrong)


@pytest.mark.parametrize(
    "expression",
    [
        "x", "n.real", "gpu.__class__", "gpu.keys", "gpu.items()", "fmt.upper()", "().__class__",
        "'{0.__class__}'.format(1)", "__import__('os')", "__builtins__", "open('x')", "eval('1')",
        "lambda: 1", "(lambda: 1)()", "[x for x in [1]]", "sum(x for x in [1])", "{1: 2}", "{1}",
        "f'{n}'", "round(1, digits=2)", "min(*[1, 2])", "min(**gpu)", "gpu.name()", "abs.real",
        "[abs][0](1)", "1j", "b'a'", "None", "...", "(y := 1)", "n = 4", "import os", "1; 2", "",
        "await n", "yield", "1 @ 2", "1 << 3", "1 & 1", "~1", "n is 3", "n[0:1]", "flags[:]",
    ],
)  # fmt: skip
def test_the_language_has_nothing_but_arithmetic(expression):
    with pytest.raises(ExpressionError):
        value_of(expression, NAMED)


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0", "n % 0", "log2(0)", "log(-1)", "sqrt(-1)", "exp(10000)", "(-2) ** 0.5", "0 ** -1",
        "'a' + 1", "'a' * 3", "'5' ** 2", "[1] + 2", "[1][5]", "flags['a']", "floor(inf)",
        "round(nan)", "min()", "abs(1, 2)", "largest(5)", "ulp(1)", "value(-1, fmt)",
        "code(nan, 'E2M1')", "2 +", "(", "'", "1 2", "gpu < 2",
    ],
)  # fmt: skip
def test_what_cannot_be_computed_says_so(expression):
    with pytest.raises(ExpressionError):
        value_of(expression, NAMED)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9", "2**4097", "(9**4096)**4096", "(1/9)**4096 ** 2", "1e5000", "1e-999999999",
        "[0] * 10**9", "range(10**9)", "range(10**30)", "[1] * 6000 + [1] * 6000",
        "round(1/3, 10**9)", "round(1/3, -(10**9))", "sum([[1]], [])",
        "count_up(1, 10001, 'FP16')", "*".join(["9**4096"] * 9),
        "-" * 1900 + "1", "1" + "+1" * 250, "(" * 300 + "1" + ")" * 300, "1" * 2001,
    ],
    ids=lambda expression: expression[:24],
)  # fmt: skip
def test_bounds_hold(expression):
    started = time.process_time()
    with pytest.raises(ExpressionError) as refused:
        value_of(expression)
    assert time.process_time() - started < 2
    assert len(str(refused.value)) < 2500


def test_the_depth_does_not_hang_on_python_s_limit():
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(10_000)  # as libraries do
        with pytest.raises(ExpressionError, match="too deeply"):
            value_of("-" * 201 + "1")
        assert value_of("-" * 199 + "1") == -1
    finally:
        sys.setrecursionlimit(before)
    assert value_of("-" * 199 + "1") == -1
