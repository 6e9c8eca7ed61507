"""Inside the judge: compare by bits, and say what kind of mistake the difference is.

Each function returns None when the value is right and raises ``Mistake`` with a sentence when not.
Values are Python numbers, tensors of one element or arrays of one element.
"""

import math
import reprlib
from typing import Any

import torch

from labkit.formats import FloatFormat, encode, quantize, spacing
from labkit.labs.engine.codec import Raised


class Mistake(Exception):
    """What is wrong with an answer, as the sentence that its author reads.

    ``misconception`` is the id of the wrong idea where the judge's evidence isolates one.
    """

    def __init__(self, message: str, *, misconception: str | None = None):
        super().__init__(message)
        self.misconception = misconception


class AnswerError(Exception):
    """The answer raised an exception where a value was wanted."""


def number(got: Any, *, call: str) -> float:
    """What an answer returned, as a Python float.

    Args:
        got: what came back from the answer.
        call: the call as the learner would type it, such as ``ulp(3.0)``.

    Raises:
        AnswerError: the answer raised.
        Mistake: it returned something that is not one number.
    """
    if type(got) is Raised:
        place = f" in your line `{got.line}`" if got.line else ""
        raise AnswerError(f"`{call}` raised {got.type_name}: {got.message}{place}.")
    if got is None:
        raise Mistake(f"`{call}` returned None. Does every path of your function end in `return`?")
    if isinstance(got, torch.Tensor) or type(got).__module__ == "numpy":
        if got.size == 1 if type(got).__module__ == "numpy" else got.numel() == 1:
            return float(got.item())
        raise Mistake(f"`{call}` has shape {tuple(got.shape)}; one number is wanted.")
    if type(got) not in (int, float):
        raise Mistake(
            f"`{call}` is {reprlib.repr(got)}, a {type(got).__name__}; one number is wanted."
        )
    return float(got)


def same_value(got: object, want: float, *, call: str, why: str = "") -> None:
    """The answer equals the wanted number exactly, the sign of zero included.

    Raises:
        AnswerError, Mistake: as for ``number``; the sentence closes with ``why``.
    """
    value = number(got, call=call)
    if _same(value, want):
        return
    if value == want:
        raise Mistake(f"`{call}` is {value}; {want} is wanted. The sign bit of a zero counts.")
    raise Mistake(f"`{call}` is {show(value)}; {show(want)} is wanted. {why}".rstrip())


def same_bits(got: object, want: float, *, at: float, fmt: FloatFormat, call: str) -> None:
    """The answer is the value of ``fmt`` to which ``at`` rounds, bit for bit.

    Args:
        got: what the answer returned for the input ``at``.
        want: the right value, from an oracle of the judge's own.
        at: the input, exact as a Python float.
        fmt: the format that the answer rounds to.
        call: the call as the learner would type it.

    Raises:
        AnswerError, Mistake: the sentence names the kind of the difference: sign of zero, overflow,
            a subnormal flushed, a tie, a direction, a number the format does not hold, or ulps.
    """
    value = number(got, call=call)
    if not _same(value, want):
        raise Mistake(f"`{call}` is {show(value)}. {_difference(value, want, at, fmt)}")


def show(value: float) -> str:
    """A number as a learner reads it: short where that is exact, a power of two where it helps.

    >>> show(0.001953125), show(2048.0), show(2.0**-25)
    ('0.001953125', '2048', '2**-25')
    """
    if not math.isfinite(value) or value == 0:
        return str(value)
    mantissa, exponent = math.frexp(abs(value))
    if mantissa == 0.5 and not 2**-10 < abs(value) < 2**17:
        return f"{'-' if value < 0 else ''}2**{exponent - 1}"
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)


def _same(value: float, want: float) -> bool:
    if math.isnan(want):
        return math.isnan(value)
    return value == want and math.copysign(1, value) == math.copysign(1, want)


def _difference(value: float, want: float, at: float, fmt: FloatFormat) -> str:
    name = fmt.name.upper()
    below, above = _neighbours(at, fmt)
    if math.isnan(want):
        return "NaN stays NaN: does your formula let it through?"
    if math.isnan(value):
        return f"NaN is not the answer: {show(at)} rounds to {show(want)}."
    if value == want:
        return f"The sign is lost: {at} rounds to {want}. Where does your formula drop it?"
    if math.isinf(want):
        cut = fmt.max + spacing(fmt.max, fmt) / 2
        return (
            f"From {show(cut)} on, half a gap above the largest {name} value, the result is inf: "
            f"{want}."
        )
    if math.isinf(value):
        return (
            f"The largest {name} value is {show(fmt.max)}, and {show(at)} is nearer to "
            f"{show(want)} than to the next multiple of the gap there. Where does the cut lie?"
        )
    if value == -want:
        return f"{show(at)} keeps its sign: {show(want)}."
    if abs(want) < fmt.smallest_normal and value == 0:
        return (
            f"{show(at)} rounds to {show(want)}, which {name} holds as a subnormal. Who flushed it?"
        )
    if not _same(quantize(value, fmt), value):
        return (
            f"That is no {name} value. The neighbours of {show(at)} are "
            f"{show(below)} and {show(above)}."
        )
    if value in (below, above):
        return _wrong_neighbour(value, want, at, below, above)
    ulps = encode(abs(value), fmt) - encode(abs(want), fmt)
    return f"The nearest {name} value is {show(want)}: you are off by {abs(ulps)} ulp."


def _wrong_neighbour(value: float, want: float, at: float, below: float, above: float) -> str:
    went = "up" if value > want else "down"
    # Both neighbours are within a factor of two of `at` or at its own exponent: the sums are exact.
    if at - below == above - at:
        return (
            f"{show(at)} lies midway between {show(below)} and {show(above)}. You went {went}; "
            f"the even mantissa wins: {show(want)}."
        )
    return f"You went {went}, but {show(at)} lies nearer to {show(want)}."


def _neighbours(at: float, fmt: FloatFormat) -> tuple[float, float]:
    if not math.isfinite(at):
        return at, at
    return quantize(at, fmt, rounding="down"), quantize(at, fmt, rounding="up")
