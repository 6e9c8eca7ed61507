"""Inside the judge: compare values, and say what kind of mistake the difference is.

Each function returns None when the value is right and raises ``Mistake`` with a sentence when not.
Values are Python numbers, tensors of one element or arrays of one element.
"""

import math

from labkit.formats import FloatFormat, encode, quantize, spacing
from labkit.labs.engine import messages
from labkit.labs.engine.behaviour import near
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import Mistake, number


def same_value(got: object, want: float, *, call: str, why: str = "") -> None:
    """The answer equals the wanted number exactly, the sign of zero included.

    Raises:
        AnswerError, Mistake: as for ``number``; the sentence closes with ``why``.
    """
    value = number(got, call=call)
    if _same(value, want):
        return
    other = messages.OTHER_SIGN_OF_ZERO if value == want else messages.OTHER_VALUE
    raise Mistake(other, call=call, got=value, want=want, why=why)


def near_value(got: object, want: float, *, call: str, why: str = "") -> None:
    """The answer equals the wanted number up to a few roundings, of float32 too.

    For numbers of which not the bits are the subject; ``behaviour.near`` says what is near.

    Raises:
        AnswerError, Mistake: as for ``number``; the sentence closes with ``why``.
    """
    value = number(got, call=call)
    if not near(value, want):
        raise Mistake(messages.NEAR_VALUE, call=call, got=value, want=want, why=why)


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
        why = _difference(value, want, at, fmt)
        raise Mistake(messages.SOME_VALUE, call=call, got=value, why=why)


def _same(value: float, want: float) -> bool:
    if math.isnan(want):
        return math.isnan(value)
    return value == want and math.copysign(1, value) == math.copysign(1, want)


def _difference(value: float, want: float, at: float, fmt: FloatFormat) -> str:
    """What kind of mistake the value is, as a sentence."""
    template, more = _kind(value, want, at, fmt)
    return fill(template, at=at, want=want, name=fmt.name.upper(), **more)


def _kind(value: float, want: float, at: float, fmt: FloatFormat) -> tuple[str, dict[str, object]]:
    """The template of a mistake, and the values that it alone needs."""
    below, above = _neighbours(at, fmt)
    beside: dict[str, object] = {"below": below, "above": above}
    if math.isnan(want):
        return messages.NAN_STAYS, {}
    if math.isnan(value):
        return messages.NAN_IS_WRONG, {}
    if value == want:
        return messages.SIGN_LOST, {}
    if math.isinf(want):
        return messages.OVERFLOW, {"cut": fmt.max + spacing(fmt.max, fmt) / 2}
    if math.isinf(value):
        return messages.NO_OVERFLOW, {"largest": fmt.max}
    if value == -want:
        return messages.KEEPS_SIGN, {}
    if abs(want) < fmt.smallest_normal and value == 0:
        return messages.FLUSHED, {}
    if not _same(quantize(value, fmt), value):
        return messages.NO_VALUE, beside
    if value in (below, above):
        went = "up" if value > want else "down"
        # Both neighbours are within a factor of two of `at` or at its exponent: the sums are exact.
        is_tie = at - below == above - at
        return messages.TIE if is_tie else messages.FARTHER, {**beside, "went": went}
    ulps = encode(abs(value), fmt) - encode(abs(want), fmt)
    return messages.OFF_BY_ULPS, {"ulps": abs(ulps)}


def _neighbours(at: float, fmt: FloatFormat) -> tuple[float, float]:
    if not math.isfinite(at):
        return at, at
    return quantize(at, fmt, rounding="down"), quantize(at, fmt, rounding="up")
