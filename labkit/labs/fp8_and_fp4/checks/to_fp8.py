"""Check of lab 08: FP8 codes, and the descale that multiplies them back."""

import math

import torch

from labkit.labs.engine import Mistake, calls, check, number, several, tensor
from labkit.labs.engine.messages import fill
from labkit.labs.fp8_and_fp4.checks.shared import (
    E4M3,
    E5M2,
    close,
    first,
    nearest_of,
    off,
    values_of,
)

LAB = "08_fp8_and_fp4"

NO_SCALAR = "`{call}[1]` has shape {shape}; a tensor with one value is asked for."
NO_FLOAT32 = (
    "`{call}[1]` is {got} in {dtype}; `scaled_mm` takes float32, in which {amax} / {top:exact} is "
    "{want}."
)
OTHER_DESCALE = "`{call}[1]` is {got}; {amax} / {top:exact} = {want} is wanted. {why}"
OF_ZEROS = (
    "`{call}`: every x is 0, and the descale is {got}. Any finite positive number is right here. "
    "What does your code divide by 0?"
)
ZERO_CODES = "`{call}`: every x is 0, and a code is {got}. What is 0 divided by your descale?"
OTHER_CODE = (
    "`{call}`: the descale is right. x{at} is {x}; divided by the descale it is {quotient}, and "
    "the nearest value of {name} is {want}. Your code is {got}. {why}"
)
RECIPROCAL = "Yours is {top:exact} / {amax}, the number that multiplies in."
SIGNED = "{most} is the largest value of x, and {amax} the largest magnitude."
OTHER_TOP = "You divided by {divisor:exact}; the largest value of {name} is {top:exact}."
FLOORED = (
    "The largest code is {code}, not {top:exact}: what keeps your descale from being that small?"
)
AS_IT_IS = "A descale of 1 casts x as it is: the largest code is {code}, not {top:exact}."
TIMES = "Yours is {times:.6g} times as large."
TOO_LOW = TIMES + " The largest code is {code}, not {top:exact}: what makes your scale too small?"
UNSCALED = "Your codes are those of x itself."
MULTIPLIED = "Your codes are those of x times the descale."
TO_ONE = "Your codes are those of x / {amax}: the largest magnitude became 1, not {top:exact}."
NARROW = (
    "x and the descale are finite, and so is x / descale in float32. In which dtype do you divide?"
)

_NAMES = {E4M3: "E4M3", E5M2: "E5M2"}


def _cases(seed):
    """Each call as text, the tensor and the dtype."""
    drawn = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)) * 1e-6
    named = {
        "torch.tensor([0.5, 2.0, -6.0, 1.0])": torch.tensor([0.5, 2.0, -6.0, 1.0]),
        "torch.tensor([-3.0, -0.25, -1.0])": torch.tensor([-3.0, -0.25, -1.0]),
        "torch.tensor([3.1, 1.0, -0.3]).bfloat16()": torch.tensor([3.1, 1.0, -0.3]).bfloat16(),
        "torch.tensor([1e30, -3e29])": torch.tensor([1e30, -3e29]),
        f"a 4 x 8 tensor near 1e-6 (seed {seed})": drawn,
        "torch.tensor([1e-30, -2e-31])": torch.tensor([1e-30, -2e-31]),
        "torch.zeros(2, 3)": torch.zeros(2, 3),
    }
    cases = [
        (f"to_fp8({text}, {dtype})", x, dtype)
        for text, x in named.items()
        for dtype in (E4M3, E5M2)
    ]
    text = "torch.tensor([1e-35, -2e-36])"
    return [*cases, (f"to_fp8({text}, {E4M3})", torch.tensor([1e-35, -2e-36]), E4M3)]


@check(
    calls(lambda seed: [(x, dtype) for _, x, dtype in _cases(seed)]),
    own_work=("labkit.formats.scaled",),
)
def check_to_fp8(answers, seed):
    """The largest magnitude lands on the format's largest value; codes * descale gives x back."""
    for got, (call, x, dtype) in zip(answers, _cases(seed), strict=True):
        codes, descale = several(got, 2, call=call)
        codes = tensor(codes, call=f"{call}[0]", shape=x.shape, dtype=dtype).double()
        descale = tensor(descale, call=f"{call}[1]")
        if descale.numel() != 1:
            raise Mistake(NO_SCALAR, call=call, shape=tuple(descale.shape))
        x = x.double()
        if x.any():
            _judge(call, x, dtype, codes, descale)
            continue
        if not 0 < (value := number(descale, call=f"{call}[1]")) < math.inf:
            raise Mistake(OF_ZEROS, call=call, got=value)
        if codes.count_nonzero():
            raise Mistake(ZERO_CODES, call=call, got=codes[first(codes != 0)])


def _judge(call, x, dtype, codes, descale):
    values, name = values_of(dtype), _NAMES[dtype]
    top, amax = values[-1].item(), x.abs().max().item()
    got, want = number(descale, call=f"{call}[1]"), amax / top
    said = {"call": call, "got": got, "amax": amax, "top": top, "want": want}
    if descale.dtype != torch.float32 and abs(got / want - 1) < 2**-7:
        idea = "scales-take-the-dtype-of-the-data" if descale.dtype == torch.bfloat16 else None
        raise Mistake(NO_FLOAT32, dtype=str(descale.dtype), misconception=idea, **said)
    if not close(got, want):
        why, idea = _why_descale(x, name, codes, got, top)
        raise Mistake(OTHER_DESCALE, why=why, misconception=idea, search=idea is None, **said)
    wrong = off(codes, x / want, values)
    if wrong.any():
        at = first(wrong)
        raise Mistake(
            OTHER_CODE,
            call=call,
            at=list(at),
            x=x[at],
            quotient=x[at] / want,
            name=name,
            want=nearest_of(x / want, values)[at],
            got=codes[at],
            why=_why_codes(x, codes, want, values),
        )


def _why_descale(x, name, codes, got, top):
    """What a wrong descale is instead, and the idea that alone explains it."""
    amax = x.abs().max().item()
    if close(got, top / amax):
        return fill(RECIPROCAL, top=top, amax=amax), "scale-is-its-inverse"
    if close(got, x.max().item() / top) or close(got, x.max().item() / 448):
        return fill(SIGNED, most=x.max(), amax=amax), "amax-is-the-maximum"
    for divisor in (448.0, 57344.0, 1.0, 240.0, 480.0, 512.0, 65536.0):
        if close(got, amax / divisor):
            idea = "one-max-for-both-fp8" if (name, divisor) == ("E5M2", 448) else None
            idea = "scale-to-one" if divisor == 1 else idea
            return fill(OTHER_TOP, divisor=divisor, name=name, top=top), idea
    largest, times = codes.abs().max().item(), got / (amax / top)
    if got == 1 and largest < top:
        return fill(AS_IT_IS, code=largest, top=top), None
    if got > amax / top and largest < top / 2:
        return fill(FLOORED, code=largest, top=top), None
    if got > amax / top and largest < top:
        return fill(TOO_LOW, times=times, code=largest, top=top), None
    return fill(TIMES, times=times), None


def _why_codes(x, codes, descale, values):
    """Of what else all codes would be right."""
    amax, top = x.abs().max().item(), values[-1].item()
    if codes.isnan().any():
        return NARROW
    others = {UNSCALED: x, MULTIPLIED: x * descale, TO_ONE: x / amax}
    for said, y in others.items():
        if not off(codes, y, values).any():
            return fill(said, amax=amax, top=top)
    return ""


check_to_fp8.slip(
    "scale-is-its-inverse",
    "Which of the two gives x back if you multiply a code by it?",
    swap=("(dtype), descale", "(dtype), 1 / descale"),
)
check_to_fp8.slip(
    "amax-is-the-maximum",
    "Of which tensor do you take the maximum?",
    cut=".abs()",
)
check_to_fp8.slip(
    "one-max-for-both-fp8",
    "Which call gives the largest value of a dtype?",
    swap=("torch.finfo(dtype).max", "448"),
)
check_to_fp8.slip(
    "epsilon-is-harmless",
    "A lower limit on amax protects from 0 and flushes every tensor below it. Which value of amax "
    "alone needs the protection?",
    swap=(
        "torch.where(amax > 0, amax / torch.finfo(dtype).max, 1.0)",
        "amax.clamp(min=1e-12) / torch.finfo(dtype).max",
    ),
)
check_to_fp8.slip(
    "scales-take-the-dtype-of-the-data",
    "The maximum of a BF16 tensor is exact, and amax / 448 is not. In which dtype do you divide?",
    swap=("amax().float()", "amax()"),
)
check_to_fp8.slip(
    "amax-is-never-zero",
    "0 / 0 is NaN. Which descale does a tensor of zeros need?",
    swap=(
        "torch.where(amax > 0, amax / torch.finfo(dtype).max, 1.0)",
        "amax / torch.finfo(dtype).max",
    ),
)
check_to_fp8.slip(
    "scale-to-one",
    "With amax at 1, how many powers of two stay unused between 1 and the format's largest value?",
    swap=("amax / torch.finfo(dtype).max", "amax"),
)
