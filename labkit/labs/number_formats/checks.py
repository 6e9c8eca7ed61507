"""Checks of lab 02: codes, gaps, rounding, what a cast keeps, a format of eight bits."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from labkit.formats import BF16, FP16, FloatFormat, quantize, spacing
from labkit.formats.histograms import range_report
from labkit.labs.engine import (
    AnswerError,
    Mistake,
    attempt,
    calls,
    check,
    entries,
    number,
    same_bits,
    same_value,
    several,
)
from labkit.training.data import digits_mlp

LAB = "02_number_formats"


# Sentences

# Of all codes together, after the sentence on the first wrong one.
SIGNS_DROPPED = "Every code with its sign bit set comes out positive, and all others are right."
NEGATIVES_WRONG = "Only codes with their sign bit set are wrong."
SUBNORMALS_WRONG = "Only codes with an exponent field of 0 are wrong."
NORMALS_WRONG = "Only codes with an exponent field above 0 are wrong."
MANTISSAS_WRONG = "Only codes with a mantissa field above 0 are wrong."
TOP_WRONG = "Only codes with the highest exponent field are wrong."
SIGNS_FLIPPED = "Every sign is the wrong way round."
ALL_TIMES = "Every value is {times:g} times the right one."
THESE_TIMES = "Each wrong value is {times:g} times the right one."
ZEROS = "Each wrong value is 0."
FIELDS = "The fields of the code: sign {sign}, exponent {exponent}, mantissa {mantissa}."
LAYOUT = "The layout is that of {name}."
LAYOUTS = "Yours is right for every code of {right}, and wrong for {wrong}."

WRONG_GAP = "`{call}` is {got:exact}; {want:exact} is wanted. {why}"
SCALED_GAP = (
    "`{call}` is {got:exact}, {times:.4g} times the right gap; {want:exact} is wanted. {why}"
)
NEGATIVE_GAP = "A gap is a distance, and never negative."
GAP_OF = (
    "That is the gap of {name}, which has {bits} mantissa bits. FP16 has 10, so its values lie "
    "farther apart."
)
COARSER_GAP_OF = (
    "That is the gap of {name}, which has {bits} mantissa bits. FP16 has 10, so its values lie "
    "closer together."
)
EVERY_GAP_TIMES = "Every one of your gaps is {times:g} times the right one."
GAPS_OF_NEGATIVES = "Yours is right for every x >= 0: the sign of x must not matter."
GAPS_OF_POWERS = "Yours is wrong at powers of two only: the gap *above* x is asked for."
GAPS_OF_SUBNORMALS = "Yours is right from 2**-14 on and wrong below it."
NEXT_VALUE = "Yours is the next value itself: how far is it from |x|?"
GAP_OF_ZERO = "Yours is right for every x but 0."
TRUNCATED_LOG2 = (
    "Yours is right from 1 on, and from 2**-14 to 1 it is right at powers of two only. log2(0.1) "
    "is -3.3: `int` makes it -3, and `math.floor` makes it -4."
)
ROUNDED_LOG2 = (
    "Yours is right from a power of two to about 1.4 times that power, and wrong from there to the "
    "next. log2(3) is 1.58: `round` makes it 2, and `math.floor` makes it 1."
)

NO_ROUNDING = (
    "{raised} inf and NaN pass through: which line of yours answers them before anything is "
    "divided or rounded?"
)

LOST = "`{call}`: lost is {got}; {lost} of {count} non-zero values become 0, that is {want}. {why}"
IN_PERCENT = "Yours is in percent: a share from 0 to 1 is asked for."
A_COUNT = "Yours is the count: a share of the non-zero values is asked for."
THE_SURVIVORS = "Yours is the share that survives."
OF_ALL = "Yours is their share of all {count} values: divide by the number of non-zero ones."
SWAPPED = "Your second value is that share: return lost first, then the error."
ERROR = "`{call}`: the survivors' median relative error is {want}, yours {got}. {why}"
NO_ERROR = (
    "A median of 0 has two usual reasons. Either errors of both signs cancel: take the magnitude. "
    "Or x was cast as well before the subtraction: subtract the float32 x."
)
SIGNED = "Yours is the median of signed errors, in which both signs cancel: take the magnitude."
THE_MEAN = "Yours is the mean: the median is asked for."
THE_LARGEST = "Yours is the largest error: the median is asked for."
OF_THE_CAST = "You divide by the value after the cast: relative to x is asked for."

WHOLE = "eight_bits is {design}; whole numbers are wanted."
BITS = "1 sign + {e} exponent + {m} mantissa bits are {width} bits; 8 are wanted."
FEW_EXPONENTS = "{e} exponent and {m} mantissa bits: IEEE 754 needs 2 exponent bits or more."
NO_MANTISSA = (
    "{e} exponent bits leave no mantissa bit. In IEEE 754 inf and NaN share the highest exponent "
    "field, and the mantissa tells them apart: it needs 1 bit or more."
)
FAR_AWAY = (
    "With {e} exponent bits and bias {bias} the normal values lie between 2**{bottom} and "
    "2**{top}, and the gradients between 2**{low} and 2**{high}. Which bias puts one over the "
    "other?"
)
FOUND = (
    "{overflowed} gradients overflow, {lost:.2%} are lost, the median error of the others is "
    "{error:.1%}. {why}"
)
BOTH_ENDS = (
    "Values are lost at both ends, so no bias can help: the range is too narrow. Which width must "
    "grow?"
)
TOO_LOW = "The range ends below the largest gradient. To which side does a larger bias move it?"
TOO_NARROW = (
    "The range ends below the largest gradient. With {e} exponent bits it is so narrow that a bias "
    "at which none overflows loses more than 1 %. Which width must grow?"
)
TOO_HIGH = "Is the range of the format too narrow, or does it lie too high?"


# Four bits: E2M1

# OCP Microscaling Formats (MX) v1.0, section 5.3.3: FP4 E2M1.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


_E2M1_CODES = [*range(1, 8), *range(9, 16), 0, 8]  # signs of zeros are judged last


@check(calls(_E2M1_CODES), bits=True)
def check_e2m1_value(values):
    """All sixteen codes of E2M1 mean what the OCP specification says."""
    _judge_codes(
        values,
        [
            _Code(
                call=f"e2m1_value(0b{code:04b})",
                want=math.copysign(_E2M1[code & 7], -1 if code & 8 else 1),
                field=code >> 1 & 3,
                mantissa=code & 1,
                highest=3,
                why=FIELDS.format(sign=code >> 3, exponent=code >> 1 & 3, mantissa=code & 1),
            )
            for code in _E2M1_CODES
        ],
    )


@dataclass(frozen=True, kw_only=True)
class _Code:
    """One code to decode, what it means, and its fields beside the highest exponent field."""

    call: str
    want: float
    field: int
    mantissa: int
    highest: int
    why: str
    layout: str = ""

    def is_met(self, got: float) -> bool:
        signs = math.copysign(1, got) == math.copysign(1, self.want)
        return got == self.want and signs


def _judge_codes(values, codes):
    """Each code means what it should; else the first that does not, and what all have in common."""
    values = [number(value, call=code.call) for value, code in zip(values, codes, strict=True)]
    pairs = list(zip(values, codes, strict=True))
    common = " ".join(_in_common(pairs))
    for got, code in pairs:
        same_value(got, code.want, call=code.call, why=f"{code.why} {common}")


def _in_common(pairs):
    """Sentences that are true of all wrong values and of no right one."""
    wrong = [(got, code) for got, code in pairs if not code.is_met(got)]
    right = [code for got, code in pairs if code.is_met(got)]
    if len(wrong) < 2:
        return
    if all(code.is_met(-got) for got, code in wrong):
        if not right:
            yield SIGNS_FLIPPED
        elif {code.call for _, code in wrong} == {c.call for _, c in pairs if _is_negative(c)}:
            yield SIGNS_DROPPED
    else:
        kinds = (
            (MANTISSAS_WRONG, lambda c: c.mantissa),
            (NORMALS_WRONG, lambda c: c.field),
            (SUBNORMALS_WRONG, lambda c: c.field == 0),
            (TOP_WRONG, lambda c: c.field == c.highest),
            (NEGATIVES_WRONG, _is_negative),
        )
        of_kind = [said for said, fits in kinds if all(fits(code) for _, code in wrong)]
        yield from of_kind[-1:]
        times = {got / code.want if code.want else math.nan for got, code in wrong}
        if len(times) == 1 and math.isfinite(factor := times.pop()):
            said = THESE_TIMES if any(code.want for code in right) else ALL_TIMES
            yield said.format(times=factor) if factor else ZEROS
    bad = {code.layout: None for _, code in wrong}
    good = [name for name in {code.layout: None for code in right} if name not in bad]
    if good:
        yield LAYOUTS.format(right=", ".join(good), wrong=", ".join(bad))


def _is_negative(code):
    return math.copysign(1, code.want) < 0


check_e2m1_value.slip(
    "implied-one-in-subnormals",
    "With an exponent field of 0 the mantissa reads 0.m. What do you put before the point?",
    cut="if exponent == 0:\n        return sign * fraction",
)
check_e2m1_value.slip(
    "subnormal-exponent-minus-bias",
    "Subnormals share the exponent of the smallest normal value, 1 - bias. Which do yours have?",
    swap=("return sign * fraction", "return sign * fraction / 2"),
)
check_e2m1_value.slip(
    "top-exponent-is-always-inf",
    "E2M1 has no inf: 3 is an exponent like any other. Which branch of yours treats it apart?",
    swap=(
        "    if exponent == 0:",
        "    if exponent == 3:\n"
        "        return sign * (math.nan if fraction else math.inf)\n"
        "    if exponent == 0:",
    ),
)
check_e2m1_value.slip(
    "sign-is-twos-complement",
    "The top bit only flips the sign. Are codes 8 to 15 counted down from 16 in yours?",
    swap=(
        "    exponent, fraction",
        "    code = 16 - code if code >> 3 else code\n    exponent, fraction",
    ),
)
check_e2m1_value.slip(
    "sign-bit-left-in-exponent",
    "The code is negative. After your shift, what stands to the left of the exponent field?",
    swap=("fraction = code >> 1 & 0b11", "fraction = code >> 1"),
)
check_e2m1_value.slip(
    "mantissa-is-decimal",
    "1.m is written in binary: what is the first digit after the point worth?",
    swap=("(code & 1) / 2", "(code & 1) / 10"),
)
check_e2m1_value.slip(
    "mantissa-bit-is-one",
    "The mantissa bit stands behind the point of 1.m: what is it worth there?",
    swap=("(code & 1) / 2", "code & 1"),
)
check_e2m1_value.slip(
    "exponent-has-no-bias",
    "The field is stored with the bias added. Where does your exponent take it off?",
    swap=("(exponent - 1)", "exponent"),
)


# Any format

_LAYOUTS = {
    "E2M1": (2, 1, 1),
    "FP16": (5, 10, 15),
    "BF16": (8, 7, 127),
    "E4M3 fn": (4, 3, 7),
    "E4M3 fnuz": (4, 3, 8),
    "FP32": (8, 23, 127),
}
_DECODE_INPUTS = [
    *((code, *_LAYOUTS["E2M1"]) for code in (0, 1, 2, 7, 9, 15)),
    *(
        (code, *_LAYOUTS["FP16"])
        for code in (0x3C00, 0x3C01, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xC000)
    ),
    *((code, *_LAYOUTS["BF16"]) for code in (0x3F80, 0x3DCD, 0x0001, 0x7F7F, 0xBF81)),
    *((code, *_LAYOUTS["E4M3 fn"]) for code in (0x01, 0x38, 0x7E, 0xFE)),
    *((code, *_LAYOUTS["E4M3 fnuz"]) for code in (0x01, 0x40, 0x7F, 0xC1)),
    *((code, *_LAYOUTS["FP32"]) for code in (0x3DCCCCCD, 0x00000001, 0xFF7FFFFF)),
]
_SIGNED_ZEROS = [(8, *_LAYOUTS["E2M1"]), (0x8000, *_LAYOUTS["BF16"])]  # judged last
_DECODED_BY_TORCH = {
    _LAYOUTS["FP16"]: (torch.int16, torch.float16),
    _LAYOUTS["BF16"]: (torch.int16, torch.bfloat16),
    _LAYOUTS["E4M3 fn"]: (torch.int8, torch.float8_e4m3fn),
    _LAYOUTS["E4M3 fnuz"]: (torch.int8, torch.float8_e4m3fnuz),
    _LAYOUTS["FP32"]: (torch.int32, torch.float32),
}


def _decoded(code: int, *layout: int) -> float:
    """What torch, or for E2M1 the specification, says that a code means."""
    if layout == _LAYOUTS["E2M1"]:
        return math.copysign(_E2M1[code & 7], -1 if code & 8 else 1)
    integer, floating = _DECODED_BY_TORCH[layout]
    bits = torch.iinfo(integer).bits
    signed = code - 2**bits if code >> (bits - 1) else code
    return torch.tensor([signed], dtype=integer).view(floating).double().item()


def _decode_inputs(seed):
    """The codes above, and four more of each layout: finite, and no zero."""
    draw = random.Random(seed)
    drawn = []
    for e, m, bias in _LAYOUTS.values():
        for _ in range(4):
            sign, field = draw.randrange(2), draw.randrange(2**e - 1)
            drawn.append((sign << e + m | field << m | draw.randrange(1, 2**m), e, m, bias))
    return [*_DECODE_INPUTS, *drawn, *_SIGNED_ZEROS]


@check(calls(_decode_inputs), bits=True)
def check_decode(values, seed):
    """One rule decodes E2M1, FP16, BF16, FP32 and both E4M3, as torch does."""
    _judge_codes(values, [_code(*entry) for entry in _decode_inputs(seed)])


def _code(code, exponent_bits, mantissa_bits, bias):
    layout = (exponent_bits, mantissa_bits, bias)
    name = next(name for name, each in _LAYOUTS.items() if each == layout)
    width, highest = 1 + exponent_bits + mantissa_bits, 2**exponent_bits - 1
    field, mantissa = code >> mantissa_bits & highest, code & 2**mantissa_bits - 1
    return _Code(
        call=f"decode(0b{code:0{width}b}, {exponent_bits}, {mantissa_bits}, {bias})",
        want=_decoded(code, *layout),
        field=field,
        mantissa=mantissa,
        highest=highest,
        why=f"{LAYOUT} {FIELDS}".format(
            name=name,
            sign=code >> (exponent_bits + mantissa_bits),
            exponent=field,
            mantissa=mantissa,
        ),
        layout=name,
    )


check_decode.slip(
    "subnormal-exponent-minus-bias",
    "An exponent field of 0 uses the exponent of field 1. Which does your branch for 0 use?",
    swap=("(1 - bias)", "-bias"),
)
check_decode.slip(
    "implied-one-in-subnormals",
    "Field 0 has no implied 1. Where does your formula tell field 0 from the others?",
    cut="if exponent == 0:\n        return sign * fraction * 2.0 ** (1 - bias)",
)
check_decode.slip(
    "bias-is-always-ieee",
    "This format has a bias of its own. Does your formula use the argument `bias`?",
    swap=("    sign = ", "    bias = 2 ** (exponent_bits - 1) - 1\n    sign = "),
)
check_decode.slip(
    "sign-bit-left-in-exponent",
    "The code is negative. After your shift, what stands to the left of the exponent field?",
    cut=" & (2**exponent_bits - 1)",
)
check_decode.slip(
    "mantissa-is-divided-by-largest",
    "m bits divide 1.0 to 2.0 into 2**m steps. Into how many steps does your division divide it?",
    swap=("/ 2**mantissa_bits", "/ (2**mantissa_bits - 1)"),
)


# The gap

_GAP_INPUTS = [1.0, 3.0, 2.0, 1.9990234375, 1024.0, 2048.0, 40000.0, 0.1, 0.5, -3.0, -1024.0]
_GAP_INPUTS = [float(np.float16(x)) for x in _GAP_INPUTS]
_GAP_INPUTS += [2.0**-13, 2.0**-14, 2.0**-14 - 2.0**-24, 2.0**-15, 2.0**-24, 0.0, -0.0]


def _gap_inputs(seed):
    """The values above, and twenty more of any octave and sign."""
    draw = random.Random(seed)
    codes = [draw.randrange(0x7BFF) | draw.choice((0, 0x8000)) for _ in range(20)]
    return _GAP_INPUTS + np.array(codes, dtype=np.uint16).view(np.float16).tolist()


def _gap_above(x: float) -> float:
    return float(np.spacing(np.float16(abs(x))))


@check(calls(_gap_inputs), bits=True)
def check_ulp(gaps, seed):
    """The gap above x in FP16, zero and subnormals included, as numpy's spacing has it."""
    inputs = _gap_inputs(seed)
    calls_of = [f"ulp({_typed(x)})" for x in inputs]
    gaps = [number(gap, call=call) for gap, call in zip(gaps, calls_of, strict=True)]
    for x, gap, call in zip(inputs, gaps, calls_of, strict=True):
        want = _gap_above(x)
        if gap != want:
            why = NEGATIVE_GAP if gap < 0 else _why_gaps(gaps, inputs)
            raise Mistake(
                SCALED_GAP if gap > 0 and math.isfinite(gap) else WRONG_GAP,
                call=call,
                got=gap,
                times=gap / want,
                want=want,
                why=why,
                misconception=None if why in _BY_LOG2 else _gap_idea(gaps, inputs),
            )


# The gaps of other formats, and the sentence on them.
_OTHER_GAPS = {
    GAP_OF.format(name="float64", bits=52): lambda x: math.ulp(x),
    GAP_OF.format(name="float32", bits=23): lambda x: float(np.spacing(np.float32(abs(x)))),
    COARSER_GAP_OF.format(name="BF16", bits=7): lambda x: spacing(x, BF16),
}


# How `math.log2` is made a whole number in place of `math.floor`, and the sentence on it.
_BY_LOG2 = {TRUNCATED_LOG2: int, ROUNDED_LOG2: round}


def _why_gaps(gaps: list[float], inputs: list[float]) -> str:
    """What is true of all gaps together; "" if nothing simple is."""
    wanted = [_gap_above(x) for x in inputs]
    for said, gap_of in _OTHER_GAPS.items():
        if all(gap == gap_of(x) for gap, x in zip(gaps, inputs, strict=True) if x):
            return said
    times = {gap / want for gap, want in zip(gaps, wanted, strict=True)}
    if len(times) == 1:
        return EVERY_GAP_TIMES.format(times=times.pop())
    if all(gap == abs(x) + want for x, gap, want in zip(inputs, gaps, wanted, strict=True)):
        return NEXT_VALUE
    wrong = [x for x, gap, want in zip(inputs, gaps, wanted, strict=True) if gap != want]
    kinds = (
        (GAP_OF_ZERO, lambda x: x == 0),
        (GAPS_OF_NEGATIVES, lambda x: math.copysign(1, x) < 0),
        (GAPS_OF_SUBNORMALS, lambda x: abs(x) < 2.0**-14),
        (GAPS_OF_POWERS, lambda x: abs(math.frexp(x)[0]) == 0.5),
    )
    for said, whole in _BY_LOG2.items():
        if gaps == [_gap_by_log2(x, whole) for x in inputs]:
            return said
    return next((said for said, fits in kinds if all(map(fits, wrong))), "")


def _gap_by_log2(x: float, whole: Callable[[float], int]) -> float:
    """The gap if the exponent is made whole by `int` or `round` and not by `math.floor`."""
    return 2.0 ** (whole(math.log2(abs(x))) - 10) if abs(x) >= 2.0**-14 else 2.0**-24


def _typed(x: float) -> str:
    """An FP16 value as a learner would type it: a subnormal in units of the smallest."""
    return f"{x * 2**24:.0f} * 2**-24" if 0 < abs(x) < 2.0**-13 else str(x)


def _gap_idea(gaps: list[float], inputs: list[float]) -> str | None:
    """The idea that explains the gaps; what is special at zero is asked once the rest is right."""
    wanted = [_gap_above(x) for x in inputs]
    rules = {
        wrong.misconception: [wrong.answer(x) for x in inputs] for wrong in check_ulp.known_wrong
    }
    elsewhere = [place for place, x in enumerate(inputs) if x]
    if any(gaps[place] != wanted[place] for place in elsewhere):
        return _idea(gaps, wanted, rules, places=elsewhere)
    return _idea(gaps, wanted, rules, places=range(len(gaps)))


def _idea(got, truth, rules, *, places) -> str | None:
    """The one rule that gives every wrong value at these places, and is wrong mostly there."""
    wrong = {place for place in places if got[place] != truth[place]}
    fitting = []
    for idea, values in rules.items():
        differs = {place for place in places if values[place] != truth[place]}
        explains = all(got[place] == values[place] for place in wrong)
        if explains and 2 * len(differs & wrong) >= len(differs) > 0:
            fitting.append(idea)
    return fitting[0] if len(fitting) == 1 else None


check_ulp.slip(
    "ulp-is-relative",
    "That is eps * x. 2.0 and 3.0 share an exponent, so one gap, 2**-9. "
    "Which quantity in your formula changes between them?",
    swap=("2.0 ** (max(exponent, -14) - 10)", "2.0**-10 * abs(x)"),
)
check_ulp.slip(
    "ulp-is-constant",
    "eps is the gap above 1. What is the gap above 2, twice as far out?",
    swap=("2.0 ** (max(exponent, -14) - 10)", "2.0**-10"),
)
check_ulp.slip(
    "gap-at-zero-is-smallest-normal",
    "Between 0 and 2**-14 FP16 has 1023 subnormals. How far is the first one from 0?",
    swap=("    return 2.0", "    if x == 0:\n        return 2.0**-14\n    return 2.0"),
)
check_ulp.slip(
    "zero-has-exponent-zero",
    "`math.frexp(0.0)` returns exponent 0, but the gap at 0 is that of the subnormals. "
    "Which exponent do they have?",
    cut=" if x else -14",
)
check_ulp.slip(
    "gap-shrinks-below-normal",
    "Subnormals all share the exponent -14. What keeps your exponent from falling below it?",
    swap=("max(exponent, -14)", "exponent"),
)
check_ulp.slip(
    "frexp-starts-at-one",
    "`math.frexp(1.0)` gives (0.5, 1). What is e for 1.0 when the mantissa starts at 1?",
    swap=("[1] - 1", "[1]"),
)
check_ulp.slip(
    "gap-below-is-gap-above",
    "At a power of two the gap below is half the gap above. Which of the two does yours measure?",
    swap=("math.frexp(x)[1]", "math.frexp(math.nextafter(abs(x), 0.0))[1]"),
)


# Rounding

_SNAP_INPUTS = [
    1.0, 0.1, 1 + 2.0**-10 - 2.0**-13, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -(1 + 2.0**-11), 2049.0,
    2051.0, 2049.5, -2050.9, 5001.3, 20007.0, 40001.0, 65504.0, 65519.0, 65519.99, 65520.0,
    -65520.0, 1e9, math.inf, -math.inf, math.nan, 2.0**-24, 1.5 * 2.0**-24, 2.0**-25,
    0.51 * 2.0**-24, 2.0**-15 + 2.0**-26, 3e-6, 0.0, -0.0, -1e-9, 1 + 2.0**-11 + 2.0**-40,
    2.0**-14 - 2.0**-26,
]  # fmt: skip


def _snap_inputs(seed):
    """The values above, and forty more."""
    return _SNAP_INPUTS + np.random.default_rng(seed).normal(scale=30, size=40).tolist()


@check(calls(_snap_inputs), bits=True)
def check_snap(values, seed):
    """Every input rounds to the FP16 value that IEEE 754 names: ties, subnormals, inf and -0.0."""
    inputs = _snap_inputs(seed)
    for x, got in zip(inputs, values, strict=True):
        try:
            same_bits(got, _nearest(x), at=x, fmt=FP16, call=f"snap({x!r})")
        except Mistake as mistake:
            # The ideas are about numbers: none of them explains what became of NaN.
            idea = None if math.isnan(x) else _snap_idea(values, inputs)
            raise Mistake(str(mistake), misconception=idea) from None
        except AnswerError as error:
            if math.isfinite(x):
                raise
            raise AnswerError(NO_ROUNDING, raised=str(error)) from None


def _nearest(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(x).astype(np.float16))  # numpy rounds float64 to FP16 once


def _snap_idea(values, inputs) -> str | None:
    """The one wrong idea that explains the mismatches; a zero's sign may be lost along with it."""
    try:
        got = [number(value, call="snap") for value in values]
    except (AnswerError, Mistake):
        return None
    places = [place for place, x in enumerate(inputs) if not math.isnan(x)]
    truth = [_nearest(x) for x in inputs]
    if all(got[place] == truth[place] for place in places):
        return "zero-has-no-sign"
    rules = {
        idea: [rule(x, value) for x, value in zip(inputs, truth, strict=True)]
        for idea, rule in _SNAP_IDEAS.items()
    }
    return _idea(got, truth, rules, places=places)


_SNAP_IDEAS = {
    "casts-truncate": lambda x, y: quantize(x, FP16, rounding="toward_zero"),
    "ties-go-up": lambda x, y: quantize(x, FP16, rounding="nearest_away"),
    "overflow-starts-at-max": lambda x, y: math.copysign(math.inf, x) if abs(x) > 65504 else y,
    "overflow-saturates": lambda x, y: math.copysign(65504.0, x) if abs(x) > 65504 else y,
    "subnormals-become-zero": lambda x, y: 0.0 if abs(y) < 2.0**-14 else y,
    "ulp-is-constant": lambda x, y: (
        math.copysign(round(abs(x) * 1024) / 1024, x) if math.isfinite(y) else y
    ),
    "rounding-twice-is-rounding-once": lambda x, y: torch.tensor(x).half().item(),
}


check_snap.slip(
    "overflow-starts-at-max",
    "Your cut is the largest value itself. The gap is 32 there: what is still nearer to 65504?",
    swap=("value <= 65504", "abs(x) <= 65504"),
)
check_snap.slip(
    "overflow-saturates",
    "FP16 has an inf, and IEEE 754 rounds to it. What does your last line return there?",
    swap=("math.inf", "65504.0"),
)
check_snap.slip(
    "ties-go-up",
    "Ties go to the even multiple of the gap. What does adding a half do to every tie?",
    swap=("round(abs(x) / gap)", "math.floor(abs(x) / gap + 0.5)"),
)
check_snap.slip(
    "casts-truncate",
    "`int` and `//` never ask which neighbour is nearer. Which function does?",
    swap=("round(abs(x) / gap)", "int(abs(x) / gap)"),
)
check_snap.slip(
    "subnormals-become-zero",
    "FP16 goes on below 2**-14 with a fixed gap of 2**-24. Does yours stop there?",
    swap=("    return math", "    value = value if value >= 2.0**-14 else 0.0\n    return math"),
)
check_snap.slip(
    "rounding-twice-is-rounding-once",
    "In float32 it becomes a tie, and torch's cast from float64 goes that way. Who rounds once?",
    swap=("    if not", "    x = torch.tensor(x, dtype=torch.float32).item()\n    if not"),
)
check_snap.slip(
    "ulp-is-constant",
    "Your values are multiples of 2**-10. That is the gap above 1: what is it at 0.1, and at 2049?",
    swap=("spacing(x, FP16)", "2.0**-10"),
)
check_snap.slip(
    "zero-has-no-sign",
    "`round` returns an int, and an int 0 has no sign. Which function copies a sign?",
    swap=("math.inf, x)", "math.inf, x) + 0.0"),
)


# Lost values and rounding error


def _edges() -> torch.Tensor:
    """Values at the edges of both 16-bit formats, zeros among them."""
    powers = 2.0 ** torch.arange(-30, -8).float()
    edges = [0.0, -0.0, 2.0**-25, 1.01 * 2.0**-25, -(2.0**-24), 1.0, 3.0, 1000.1, 0.1, 7e-5]
    below_bf16 = [1e-41, -2e-41, 3e-41]
    return torch.cat([powers * 1.3, -powers, torch.tensor(edges + below_bf16), torch.zeros(25)])


_WINDOW_DTYPES = (torch.float16, torch.bfloat16)


def _windows(seed):
    """Edge values, recorded gradients, and 500 values that are drawn over 40 octaves."""
    generator = torch.Generator().manual_seed(seed)
    octaves = torch.randint(-36, 4, (500,), generator=generator)
    drawn = torch.ldexp(torch.randn(500, generator=generator), octaves)
    return {"edges": _edges(), "gradients": digits_mlp()["gradients"], "drawn": drawn}


def run_window(window, seed):
    """`window` on three tensors, in both 16-bit formats."""
    return {
        name: [attempt(window, tensor.clone(), dtype) for dtype in _WINDOW_DTYPES]
        for name, tensor in _windows(seed).items()
    }


@check(run_window)
def check_window(answers, seed):
    """The share lost and the error of the survivors, in FP16 and in BF16."""
    for name, values in _windows(seed).items():
        for dtype, got in zip(_WINDOW_DTYPES, answers[name], strict=True):
            _judge_window(
                got, values, dtype, call=f"window({name}, {str(dtype).removeprefix('torch.')})"
            )


def _judge_window(got, values, dtype, *, call):
    lost, error = several(got, 2, call=call)
    lost, error = number(lost, call=call + "[0]"), number(error, call=call + "[1]")
    share, ideas = _shares(values, dtype)
    # A share of at most 8,191 values, rounded once to float32: 2**-23 is ample.
    if not abs(lost - share) <= 2.0**-23:
        count = int((values != 0).sum())
        raise Mistake(
            LOST,
            call=call,
            got=lost,
            lost=round(share * count),
            count=count,
            want=share,
            why=_why_lost(lost, error, share, count=count, total=values.numel()),
            misconception=_only(idea for idea, one in ideas.items() if abs(lost - one) < 1e-6),
        )
    low, high, ideas, others = _errors(values, dtype)
    if not _within(error, low, high):
        raise Mistake(
            ERROR,
            call=call,
            got=error,
            want=low,
            why=_only(said for said, bounds in others.items() if _is_near(error, *bounds))
            or ("" if error else NO_ERROR),
            misconception=_only(i for i, bounds in ideas.items() if _is_near(error, *bounds)),
            search=error != 0,
        )


def _why_lost(lost, error, share, *, count, total):
    """Another number that is as natural to return, if it came."""
    others = {
        IN_PERCENT: (lost, 100 * share),
        A_COUNT: (lost, count * share),
        THE_SURVIVORS: (lost, 1 - share),
        OF_ALL.format(count=total): (lost, share * count / total),
        SWAPPED: (error, share),
    }
    return (
        _only(said for said, (got, want) in others.items() if math.isclose(got, want, rel_tol=1e-5))
        or ""
    )


def _only(ideas) -> str | None:
    """The idea that fits, if it is the only one."""
    ideas = list(ideas)
    return ideas[0] if len(ideas) == 1 else None


def _within(error: float, low: float, high: float) -> bool:
    """Between the middle values, with the slack of a quotient, or of a ratio - 1, in float32."""
    return low * (1 - 1e-6) - 2.0**-23 <= error <= high * (1 + 1e-6) + 2.0**-23


def _is_near(error: float, low: float, high: float) -> bool:
    """Between the middle values of another rule; of no use where these are 0."""
    low, high = sorted((low, high))
    return high != 0 and low - 1e-4 * abs(low) <= error <= high + 1e-4 * abs(high)


def _shares(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, dict[str, float]]:
    """The share lost in the cast, and what it would be under wrong ideas."""
    info, other = torch.finfo(dtype), torch.bfloat16 if dtype == torch.float16 else torch.float16
    present = x != 0

    def share(gone):
        return gone[present].double().mean().item()

    return share(x.to(dtype) == 0), {
        "lost-means-below-normal": share(x.abs() < info.smallest_normal),
        "lost-means-below-smallest": share(x.abs().double() < info.smallest_normal * info.eps),
        "zeros-count-as-lost": (x.to(dtype) == 0).double().mean().item(),
        "fp16-and-bf16-lose-alike": share(x.to(other) == 0),
    }


def _errors(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, float, dict, dict]:
    """The two middle relative errors of the survivors, and where wrong ideas would put them."""
    before = x[x != 0].double()
    after = before.float().to(dtype).double()
    kept, gap = after != 0, (after - before).abs()
    relative = (gap / before.abs())[kept]
    ideas = {
        "range-and-rounding-are-one-error": _middle(gap / before.abs()),
        "error-is-absolute": _middle(gap[kept]),
    }
    others = {
        SIGNED: _middle(((after - before) / before)[kept]),
        THE_MEAN: (relative.mean().item(),) * 2,
        THE_LARGEST: (relative.max().item(),) * 2,
        OF_THE_CAST: _middle((gap / after.abs())[kept]),
    }
    return *_middle(relative), ideas, others


def _middle(values: torch.Tensor) -> tuple[float, float]:
    ordered = values.sort().values
    return ordered[(len(ordered) - 1) // 2].item(), ordered[len(ordered) // 2].item()


check_window.slip(
    "lost-means-below-normal",
    "You count from 2**-14 down, where subnormals begin. Which of them does the cast make 0?",
    swap=("(~kept)", "(x.abs() < torch.finfo(dtype).smallest_normal)"),
)
check_window.slip(
    "lost-means-below-smallest",
    "You count below the smallest positive value. To which side does 0.51 times that value round?",
    swap=(
        "(~kept)",
        "(x.abs().double() < torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps)",
    ),
)
check_window.slip(
    "zeros-count-as-lost",
    "Some inputs are 0 before the cast. They are not lost, and the share is one of the others. "
    "Where does your formula leave them out?",
    cut="x = x[x != 0]",
)
check_window.slip(
    "range-and-rounding-are-one-error",
    "A lost value has relative error 1: it belongs to the range. Over which values is your median?",
    swap=("(after - x)[kept] / x[kept]", "(after - x) / x"),
)
check_window.slip(
    "error-is-absolute",
    "Divide by what? A float format promises a relative error, not a distance.",
    cut=" / x[kept]",
)
check_window.slip(
    "fp16-and-bf16-lose-alike",
    "Both formats gave you the same numbers. Is `dtype` used?",
    swap=("x.to(dtype)", "x.to(torch.float16)"),
)


# Eight bits

BUDGET_LOST = 0.01
BUDGET_ERROR = 0.06


def run_eight_bits(design):
    """A design is data already."""
    return design


@check(run_eight_bits)
def check_eight_bits(design):
    """Your eight bits keep the gradients inside the budget."""
    design = entries(design, ("exponent_bits", "mantissa_bits", "bias"), call="eight_bits")
    widths = [number(value, call=f'eight_bits["{key}"]') for key, value in design.items()]
    if not all(width.is_integer() for width in widths):
        raise Mistake(WHOLE, design=repr(design))
    e, m, bias = (int(design[key]) for key in ("exponent_bits", "mantissa_bits", "bias"))
    if 1 + e + m != 8:
        idea = "sign-bit-is-free" if e + m == 8 else None
        raise Mistake(BITS, e=e, m=m, width=1 + e + m, misconception=idea)
    if e < 2 or m < 1:
        raise Mistake(FEW_EXPONENTS if e < 2 else NO_MANTISSA, e=e, m=m)
    gradients = digits_mlp()["gradients"]
    try:
        fmt = FloatFormat("yours", exponent_bits=e, mantissa_bits=m, bias=bias)
    except ValueError:  # the bias is out of bounds, and all else was looked at
        exponents = torch.frexp(gradients[gradients != 0]).exponent
        low, high = int(exponents.min()) - 1, int(exponents.max())
        ends = {"bottom": 1 - bias, "top": 2**e - 1 - bias, "low": low, "high": high}
        raise Mistake(FAR_AWAY, e=e, bias=bias, **ends) from None
    report = range_report(gradients, fmt)
    lost, imprecise = report.share_lost > BUDGET_LOST, report.error > BUDGET_ERROR
    why, idea = "", None
    if report.overflowed and lost:
        why = BOTH_ENDS
    elif (lost or report.overflowed) and bias == 2 ** (e - 1) - 1 and e >= 5:
        idea = "default-bias-fits-all"
    elif report.overflowed:
        why = TOO_LOW if e >= 5 else TOO_NARROW.format(e=e)
    elif lost and e < 4:
        idea = "precision-is-all-that-counts"
    elif lost:
        why = TOO_HIGH
    elif imprecise:
        idea = "range-is-all-that-counts"
    else:
        return
    raise Mistake(
        FOUND,
        overflowed=report.overflowed,
        lost=report.share_lost,
        error=report.error,
        why=why,
        misconception=idea,
        search=False,
    )


check_eight_bits.wrong(
    "precision-is-all-that-counts",
    "Count the powers of two from the smallest to the largest gradient. "
    "How many exponent bits do they need?",
)({"exponent_bits": 2, "mantissa_bits": 5, "bias": 10})
check_eight_bits.wrong(
    "range-is-all-that-counts", "Nothing is lost now. Which bits could buy the error back?"
)({"exponent_bits": 6, "mantissa_bits": 1, "bias": 60})
check_eight_bits.slip(
    "default-bias-fits-all",
    "The range is wide enough. Where does its upper end lie, and where the largest gradient?",
    swap=("bias=38", "bias=15"),
)
check_eight_bits.slip(
    "sign-bit-is-free",
    "Gradients have signs. Who stores them?",
    swap=("mantissa_bits=2", "mantissa_bits=3"),
)
