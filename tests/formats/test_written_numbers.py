"""Numbers as people write them: each style is read exactly or refused with a sentence."""

import math
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.formats.expressions import ExpressionError
from labkit.formats.written_numbers import UNITS, Written, read_number, same_unit
from labkit.labs.number_formats.look import typed

UNDERFLOW = Fraction(1, 16384)
INF = math.inf


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("65504", 65504),
        ("  65504 ", 65504),
        ("65504.0", 65504),
        ("65504.", 65504),
        (".5", Fraction(1, 2)),
        ("007", 7),
        ("6.1e-5", Fraction(61, 10**6)),
        ("6.1E-05", Fraction(61, 10**6)),
        ("6.1e−5", Fraction(61, 10**6)),
        ("6.1 x 10^-5", Fraction(61, 10**6)),
        ("6.1 × 10^-5", Fraction(61, 10**6)),
        ("6.1·10⁻⁵", Fraction(61, 10**6)),
        ("6.10x10^-5", Fraction(61, 10**6)),
        ("10x5", 50),
        ("2**-14", UNDERFLOW),
        ("2 ** -14", UNDERFLOW),
        ("2^-14", UNDERFLOW),
        ("2^(-14)", UNDERFLOW),
        ("2^−14", UNDERFLOW),
        ("2⁻¹⁴", UNDERFLOW),
        ("2¹⁰", 1024),
        ("1/16384", UNDERFLOW),
        ("(2 - 2**-10) * 2**15", 65504),
        ("0x1p-14", UNDERFLOW),
        ("0x1.8p3", 12),
        ("0X.8P+1", 1),
        ("-0x1p-1074", Fraction(-1, 2**1074)),
        ("0x1p2000", 2**2000),
        ("0x1p-2000", Fraction(1, 2**2000)),
        ("0x7bff", 0x7BFF),
        ("0X7BFF", 0x7BFF),
        ("0x1b", 27),
        ("65,504", 65504),
        ("1,000,000", 10**6),
        ("-1,234.5", Fraction(-2469, 2)),
        ("1_000", 1000),
        ("-5", -5),
        ("−5", -5),
        ("–5", -5),
        ("+5", 5),
        ("－５", -5),
        ("65，504", 65504),
        ("３．５", Fraction(7, 2)),
        ("1。5", Fraction(3, 2)),
        ("（1／2）", Fraction(1, 2)),
        ("2＾－14", UNDERFLOW),
        ("0.1", Fraction(1, 10)),
        ("1e-400", Fraction(1, 10**400)),
        ("1e400", 10**400),
        ("0.30000000000000004441", Fraction(30000000000000004441, 10**20)),
        ("inf", INF),
        ("Infinity", INF),
        ("+INF", INF),
        ("-inf", -INF),
        ("∞", INF),
        ("−∞", -INF),
        ("9" * 400, 10**400 - 1),
        # Each of these was once a number to one reader and none to another.
        ("3*2**-14", 3 * UNDERFLOW),
        ("10**3", 1000),
        (" 1 / 3", Fraction(1, 3)),
        ("0b101", 5),
        ("2**-1300", Fraction(1, 2**1300)),
        ("١", 1),
        ("٣٫٥", Fraction(7, 2)),
        ("१٬२३४", 1234),
        ("0x1.8", Fraction(3, 2)),
        ("0x1.", 1),
        ("65519.99", Fraction(6551999, 100)),
        ("1e-8", Fraction(1, 10**8)),
        ("0x1p-24", Fraction(1, 2**24)),
        ("0xff", 255),
        ("2**5", 32),
        ("1/3", Fraction(1, 3)),
        ("-.5", Fraction(-1, 2)),
        ("−2.", -2),
        ("--1", 1),
        ("2^0.5", Fraction(math.sqrt(2))),
        # Each of these was once refused.
        ("6,1e-5", Fraction(61, 10**6)),
        ("5,96·10⁻⁸", Fraction(596, 10**10)),
        ("0,00006", Fraction(6, 10**5)),
        ("0,005", Fraction(1, 200)),
        ("-0,5", Fraction(-1, 2)),
        ("1,2", Fraction(6, 5)),
        ("12,34", Fraction(617, 50)),
        ("1,00", 1),
        ("1.234,5", Fraction(2469, 2)),
        ("12.345,678", Fraction(12345678, 1000)),
        ("12,345,678.9", Fraction(123456789, 10)),
        ("1.000.000", 10**6),
        ("65 504", 65504),
        ("65\u00a0504", 65504),
        ("65\u202f504", 65504),
        ("1 000 000", 10**6),
        ("65'504", 65504),
        ("65’504", 65504),
        ("½", Fraction(1, 2)),
        ("1½", Fraction(3, 2)),
        ("-¾", Fraction(-3, 4)),
        ("—5", -5),
        ("﹣5", -5),
        ("minus 5", -5),
        ("≈ 6.1e-5", Fraction(61, 10**6)),
        ("~5", 5),
        ("= 5", 5),
        ("k = -7", -7),
        ("about 5", 5),
        ("ca. 5", 5),
        ("大约 5", 5),
        ("2^{-14}", UNDERFLOW),
        ("$2^{-14}$", UNDERFLOW),
        (r"\frac{1}{16384}", UNDERFLOW),
        (r"6.1 \times 10^{-5}", Fraction(61, 10**6)),
        ("2•3", 6),
        ("2⋅3", 6),
        ("6÷3", 2),
        ("6⁄3", 2),
        ("sqrt(2)", Fraction(math.sqrt(2))),
        ("√2", Fraction(math.sqrt(2))),
        ("√(1/4)", Fraction(1, 2)),
        ("log2(8)", 3),
        ("ln(65504)", Fraction(math.log(65504))),
        ("math.log(65504)", Fraction(math.log(65504))),
        ("infinite", INF),
        ("minus infinity", -INF),
        ("无穷大", INF),
        ("负无穷", -INF),
        ("正无穷", INF),
        ("torch.inf", INF),
        ("float('-inf')", -INF),
        ("zero", 0),
    ],
)
def test_every_way_to_write_a_number_is_that_number(text, value):
    """To a question and to the FormatExplorer alike."""
    assert read_number(text) == Written(value, None)
    assert typed(text) == value
    assert type(typed(text)) is (float if value in (INF, -INF) else Fraction)


@pytest.mark.parametrize(
    "text", ["-0", "-0.0", "−0", "-0x0p0", "-0/5", "0*-1", "-(1-1)", "+-0", "-0/-5*-1"]
)
def test_a_zero_keeps_its_minus(text):
    for value in (read_number(text).value, typed(text)):
        assert value == 0 and math.copysign(1, value) == -1
    assert same_unit(read_number(text), "GB") == 0


@pytest.mark.parametrize("text", ["0", "+0", "--0", "-1+1", "0-0", "-0*-2", "2**-3-1/8", "-2*0*-1"])
def test_a_zero_without_a_minus_has_none(text):
    for value in (read_number(text).value, typed(text)):
        assert value == 0 and math.copysign(1, value) == 1


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", " NAN ", "np.nan", "not a number"])
def test_nan_is_a_number_that_one_may_answer(text):
    found = read_number(text)
    assert math.isnan(found.value) and found.unit is None
    assert math.isnan(typed(text))


@settings(deadline=None)
@given(x=st.floats(allow_nan=False))
def test_every_float_is_read_back_exactly_from_its_digits(x):
    assert read_number(repr(x)).value == (Fraction(repr(x)) if math.isfinite(x) else x)
    assert read_number(x.hex()).value == x


@settings(deadline=None)
@given(n=st.integers(-(10**40), 10**40))
def test_thousands_separators_change_nothing(n):
    assert read_number(f"{n:,}").value == read_number(f"{n:_}").value == n
    assert read_number(hex(n)).value == n


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1.6 GB", Fraction(8, 5), "GB"),
        ("1.6GB", Fraction(8, 5), "GB"),
        ("1.6　ＧＢ", Fraction(8, 5), "GB"),
        ("80 gb", 80, "GB"),
        ("2^10 KiB", 1024, "KiB"),
        ("16 位", 16, "bits"),
        ("16b", 16, "bits"),
        ("3 ms", 3, "ms"),
        ("3 μs", 3, "us"),
        ("3 µs", 3, "us"),
        ("12 %", 12, "%"),
        ("12%", 12, "%"),
        ("１２％", 12, "%"),
        ("12 percent", 12, "%"),
        ("2x", 2, "x"),
        ("2×", 2, "x"),
        ("1.5 倍", Fraction(3, 2), "x"),
        ("989 TFLOPS", 989, "TFLOP/s"),
        ("989 TFLOP", 989, "TFLOP"),
        ("3.35 TB/s", Fraction(67, 20), "TB/s"),
        ("295 FLOP/byte", 295, "FLOP/B"),
        ("1e-8x", Fraction(1, 10**8), "x"),
        ("0x10 MiB", 16, "MiB"),
        # Each of these was once refused.
        ("0,5 GB", Fraction(1, 2), "GB"),
        ("1½ GB", Fraction(3, 2), "GB"),
        ("8 gigabytes", 8, "GB"),
        ("8 GBytes", 8, "GB"),
        ("8 gib", 8, "GiB"),
        ("16 Bytes", 16, "B"),
        ("16 Bits", 16, "bits"),
        ("16-bit", 16, "bits"),
        ("50 per cent", 50, "%"),
        ("50 pct", 50, "%"),
        ("3 msec", 3, "ms"),
        ("3 milliseconds", 3, "ms"),
        ("3000 microseconds", 3000, "us"),
        ("3.35 tb/s", Fraction(67, 20), "TB/s"),
        ("3.35 TBps", Fraction(67, 20), "TB/s"),
        ("989 tflops", 989, "TFLOP/s"),
        ("989 Tflop/s", 989, "TFLOP/s"),
        ("2 FLOPS", 2, "FLOP/s"),
        ("2 FLOPs", 2, "FLOP"),
        ("x2", 2, "x"),
        ("× 2.5", Fraction(5, 2), "x"),
        ("2-fold", 2, "x"),
        ("5 tok/s", 5, "tokens/s"),
        ("3 decibels", 3, "dB"),
        ("300 watts", 300, "W"),
    ],
)
def test_a_unit_is_told_apart_from_the_number(text, value, unit):
    assert read_number(text) == Written(value, unit)


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_reads_back_and_is_itself(unit):
    found = read_number(f"3/4 {unit}")
    assert found == Written(Fraction(3, 4), unit)
    assert same_unit(found, unit) == Fraction(3, 4)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.6 GB", "GB", Fraction(8, 5)),
        ("1.6 GB", "MB", 1600),
        ("1600 MB", "GB", Fraction(8, 5)),
        ("1 GiB", "MB", Fraction(2**30, 10**6)),
        ("1 GiB", "MiB", 1024),
        ("32 bits", "B", 4),
        ("4 B", "bits", 32),
        ("250 us", "ms", Fraction(1, 4)),
        ("0.989 PFLOP/s", "TFLOP/s", 989),
        ("3350 GB/s", "TB/s", Fraction(67, 20)),
        ("12 %", None, Fraction(3, 25)),
        ("2x", None, 2),
        ("12", "%", 12),
        ("1.6", "GB", Fraction(8, 5)),
        ("7", None, 7),
        ("inf", "GB", INF),
    ],
)
def test_units_are_converted(text, unit, value):
    assert same_unit(read_number(text), unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("3 s", "GB", "asked for in GB, not in s"),
        ("12 %", "GB", "asked for in GB, not in %"),
        ("5 GB", None, "a plain number is asked for, not GB"),
        ("3 GB/s", "GB", "asked for in GB, not in GB/s"),
        ("3 TFLOP", "TFLOP/s", "asked for in TFLOP/s, not in TFLOP"),
    ],
)
def test_units_of_something_else_are_refused(text, unit, words):
    with pytest.raises(ExpressionError, match=words):
        same_unit(read_number(text), unit)


NO_NUMBERS = [
    "", "   ", "abc", "?", "-", "()", "x", "e", "GB", "12 apples", "$5", "1 2",
    "1;2", "1\n2", "1:2", "5 .", "1.5e", "1e5e5", "0xp0",
    "0x.p0", "0x1gh", "1/0", "0**-1", "1j", "(-2)**0.5", "'7'", "b'7'", "[7]", "(7,)", "{7}",
    "True", "True + 1", "not 7", "1 == 1", "1 < 2", "7 if 1 else 8", "7 and 8", "(x := 7)", 
    "lambda: 7", "print(7)", "sum([7])", "largest('FP16')", "__import__('os').getcwd()", "(7).real",
    "inf.real", "abs", "import os", "exec('1')", "f'{7}'", "[x for x in [7]]", "*7", "None", "...",
    "<b>7</b>", "7\0", "\ud800", "7\u202e", "\\", '"', "9" * 401, "1" * 100_000, "(" * 100_000,
    "-" * 399 + "1+", "(" * 399,
    "9**9**9", "2**4097", "2^-4097", "(9**4096)**4096", "9**4096*9**4096*9**4096", "1e5000",
    "1e999999999", "1e-999999999", "0x1p9999", "0x1p99999999", "(2**0.5)**4000", "inf GB",
    "1,2,3", "1,2.5", "65 504 2", "0 504", "×10^-8", "log(8,2)", "pow(2,-14)",
    "exp(exp(9))",
    "2(3)", "5 or 6", "1 00", "0.333...", "1 1/2", "64k", "1:4", "3.4 E38", "五",
    "1" + "+1" * 99 + "+", "9**(9**(9**9))", "2**2**2**2**2**2", "10^10^10",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: ascii(text[:24]))
def test_what_is_no_number_is_refused_within_a_second(text):
    started = time.process_time()
    with pytest.raises(ExpressionError) as refused:
        read_number(text)
    assert time.process_time() - started < 1
    assert len(str(refused.value)) < 250
    reasons = ("no number here", "too long for a number", "out of reach")
    assert any(reason in str(refused.value) for reason in reasons)
    with pytest.raises(ValueError, match=r"write |too long|out of reach|bare numbers"):
        typed(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5,960e-8", "two meanings; write a decimal point"),
        ("5,960·10⁻⁸", "two meanings"),
        ("5-6", "a range"),
        ("5–6 GB", "a range"),
        ("5.96 x 10-8", "a difference; write a power"),
        ("10-8", "a difference"),
        ("8 Gb", "a small b is a bit"),
        ("8 Gbps", "a small b is a bit"),
        ("8 gbps", "a small b is a bit"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_its_reason(text, words):
    with pytest.raises(ExpressionError, match=words):
        read_number(text)


@pytest.mark.parametrize(("text", "value"), [("15-1", 14), ("2**-3-1/8", 0), ("11 - 10", 1)])
def test_a_difference_of_numbers_is_no_range(text, value):
    assert read_number(text).value == value


@pytest.mark.parametrize("text", ["1e999999999", "2^-99999", "0x1p99999", "10^10^10", "1e5000"])
def test_a_number_out_of_reach_is_not_called_no_number(text):
    with pytest.raises(ExpressionError, match=r"out of reach.*within ±4096, or write inf"):
        read_number(text)


@settings(deadline=None, max_examples=300)
@given(text=st.text(max_size=60) | st.text("0123456789.,-+*/^()xXeEpGB% _infa", max_size=40))
def test_any_text_is_a_number_or_refused(text):
    try:
        found = read_number(text)
    except ExpressionError:
        return
    assert isinstance(found.value, int | Fraction | float) and not isinstance(found.value, bool)
    assert found.unit is None or found.unit in UNITS
