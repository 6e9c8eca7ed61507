"""Checks of lab 02: what the codes of E2M1 mean, and those of any format."""

import math
import random
from dataclasses import dataclass

import torch

from labkit.labs.engine import calls, check, number, same_value

LAB = "02_number_formats"

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


# Four bits: E2M1

# OCP Microscaling Formats (MX) v1.0, section 5.3.3: FP4 E2M1.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


_E2M1_CODES = [*range(1, 8), *range(9, 16), 0, 8]  # signs of zeros are judged last


@check(
    calls(_E2M1_CODES),
    bits=True,
    own_work=("labkit.formats.decode", "labkit.labs.number_formats.look.look_at_code"),
)
def check_e2m1_value(values):
    """All sixteen codes of E2M1 mean what the OCP specification says."""
    layout = _LAYOUTS["E2M1"]
    codes = [_code(code, *layout, call=f"e2m1_value(0b{code:04b})") for code in _E2M1_CODES]
    _judge_codes(values, codes)


@dataclass(frozen=True, kw_only=True)
class _Code:
    """One code to decode, what it means, and its fields beside the highest exponent field."""

    call: str
    want: float
    field: int
    mantissa: int
    highest: int
    why: str
    layout: str

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
    "Subnormals share the exponent of the smallest normal value, 1 - bias. Which exponent do "
    "yours have?",
    swap=("return sign * fraction", "return sign * fraction / 2"),
)
check_e2m1_value.slip(
    "top-exponent-is-always-inf",
    "E2M1 has no inf or NaN: exponent field 3 is like any other. Which branch of yours makes an "
    "exception for it?",
    swap=(
        "    if exponent == 0:",
        "    if exponent == 3:\n"
        "        return sign * (math.nan if fraction else math.inf)\n"
        "    if exponent == 0:",
    ),
)
check_e2m1_value.slip(
    "sign-is-twos-complement",
    "The top bit only flips the sign: code 9 is minus code 1. Does yours read codes 8 to 15 as "
    "two's complement?",
    swap=(
        "    exponent, fraction",
        "    code = 16 - code if code >> 3 else code\n    exponent, fraction",
    ),
)
check_e2m1_value.slip(
    "sign-bit-left-in-exponent",
    "The sign bit of this code is set. After your shift, which bit is still to the left of the "
    "exponent field?",
    swap=("fraction = code >> 1 & 0b11", "fraction = code >> 1"),
)
check_e2m1_value.slip(
    "mantissa-is-decimal",
    "1.m is written in binary: what is the first digit after the point worth?",
    swap=("(code & 1) / 2", "(code & 1) / 10"),
)
check_e2m1_value.slip(
    "mantissa-bit-is-one",
    "The mantissa bit m is the first binary digit after the point of 1.m: what is it worth?",
    swap=("(code & 1) / 2", "code & 1"),
)
check_e2m1_value.slip(
    "exponent-has-no-bias",
    "The field is stored with the bias added. Where does your formula subtract the bias?",
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


@check(
    calls(_decode_inputs),
    bits=True,
    own_work=("labkit.formats.decode", "labkit.labs.number_formats.look.look_at_code"),
)
def check_decode(values, seed):
    """One rule decodes E2M1, FP16, BF16, FP32 and both E4M3, as torch does."""
    _judge_codes(values, [_code(*entry) for entry in _decode_inputs(seed)])


def _code(code, exponent_bits, mantissa_bits, bias, *, call=""):
    """The code of a layout; ``call`` where the exercise is no call of `decode`."""
    layout = (exponent_bits, mantissa_bits, bias)
    name = next(name for name, each in _LAYOUTS.items() if each == layout)
    width, highest = 1 + exponent_bits + mantissa_bits, 2**exponent_bits - 1
    field, mantissa = code >> mantissa_bits & highest, code & 2**mantissa_bits - 1
    why = FIELDS.format(sign=code >> width - 1, exponent=field, mantissa=mantissa)
    return _Code(
        call=call or f"decode(0b{code:0{width}b}, {exponent_bits}, {mantissa_bits}, {bias})",
        want=_decoded(code, *layout),
        field=field,
        mantissa=mantissa,
        highest=highest,
        why=why if call else f"{LAYOUT.format(name=name)} {why}",
        layout=name,
    )


check_decode.slip(
    "subnormal-exponent-minus-bias",
    "Exponent field 0 has the same exponent as field 1. Which exponent does your branch for field "
    "0 use?",
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
    "The sign bit of this code is set. After your shift, which bit is still to the left of the "
    "exponent field?",
    cut=" & (2**exponent_bits - 1)",
)
check_decode.slip(
    "mantissa-is-divided-by-largest",
    "m mantissa bits divide the interval from 1.0 to 2.0 into 2**m steps. Into how many steps does "
    "yours divide it?",
    swap=("/ 2**mantissa_bits", "/ (2**mantissa_bits - 1)"),
)
