"""The sentences of the engine as templates, and how values are written into a template.

A template is text with names in braces, and ``fill`` writes the values in. A lab keeps its own
templates together in its checks in the same way: ``Mistake(TOO_LONG, call=call, got=got)``.
"""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from labkit.labs.engine.codec import Foreign

# What came back

NOT_ATTEMPTED = (
    "The answer is not complete yet: fill in the exercise's cell, run it, and then run the check."
)
RETURNS_NONE = "`{call}` returns None: is there a `return` at the end of each path?"
RAISED = "`{call}` raised {error}."
IN_LINE = "in your line `{line}`"
NOT_A_NUMBER = "`{call}` is {came}; one number is asked for."
A_TRUTH_FOR_A_NUMBER = (
    "`{call}` is {came}; one number is asked for. True and False do not count as numbers."
)
NOT_A_TRUTH = "`{call}` is {came}; True or False is asked for."
NOT_SO_MANY = "`{call}` is {came}; {count} values are asked for."
NOT_A_DICT = "`{call}` is {came}; a dict with the keys {keys} is asked for."
OTHER_KEYS = "`{call}` has the keys {got}; {keys} are asked for."
NOT_A_TENSOR = "`{call}` is {came}; a tensor is asked for."
OTHER_SHAPE = "`{call}` has shape {got}; {want} is asked for."
OTHER_DTYPE = "`{call}` has dtype {got}; {want} is asked for."
NOT_A_WORD = "`{call}` is {came}; one of {words} is asked for."
UNREADABLE = "The answer's data cannot be read: {why}"
NOT_JUDGED = "Your answer returned something that cannot be judged: {why}"
NO_SENSE = (
    "The check cannot read what came back: {came} ({error}). Compare what your answer returns with "
    "what the exercise asks for."
)
STOPPED = (
    "Your answer was still running after {seconds} seconds, so the check stopped it{place}. Does "
    "one of your loops never end?"
)
USES = "Your line `{line}` uses `{name}`; this exercise asks you to write what it does."
MADE_OF = "Your answer is made of `{name}`; this exercise asks you to write what it does."

# Values

OTHER_VALUE = "`{call}` is {got:exact}; {want:exact} is wanted. {why}"
OTHER_SIGN_OF_ZERO = "`{call}` is {got}; {want} is wanted. The sign bit of a zero counts."
NEAR_VALUE = "`{call}` is {got}; {want} is wanted. {why}"

# Values of a format: `same_bits` says the value, then one of those below.

SOME_VALUE = "`{call}` is {got:exact}. {why}"
NAN_STAYS = "An input of NaN stays NaN. Which line of yours makes another value of it?"
NAN_IS_WRONG = "NaN is not the answer: {at:exact} rounds to {want:exact}."
SIGN_LOST = (
    "The zero has the wrong sign: {at:exact} rounds to {want:exact}. What does your formula do "
    "with the sign?"
)
OVERFLOW = (
    "An input of magnitude {cut:exact} or more, half a gap above the largest {name} value, rounds "
    "to inf with the sign of the input: {at:exact} rounds to {want:exact}."
)
NO_OVERFLOW = (
    "{at:exact} rounds to {want:exact}: only a magnitude at least half a gap above "
    "{largest:exact}, the largest {name} value, rounds to inf. Where does your formula begin to "
    "return inf?"
)
KEEPS_SIGN = "Rounding keeps the sign: {at:exact} rounds to {want:exact}."
FLUSHED = (
    "{at:exact} rounds to {want:exact}, which {name} holds as a subnormal. Which line of yours "
    "makes it 0?"
)
NO_VALUE = (
    "{name} does not hold that value. In {name}, {at:exact} rounds down to {below:exact} and up to "
    "{above:exact}."
)
TIE = (
    "{at:exact} lies midway between {below:exact} and {above:exact}. You rounded {went}; a tie "
    "goes to the even mantissa, {want:exact}."
)
FARTHER = "You rounded {went}, but {at:exact} lies nearer to {want:exact}."
OFF_BY_ULPS = "The nearest {name} value is {want:exact}: you are off by {ulps} ulp."

# Around a check

AGAIN = "The same result {times} times: open the next hint below, or the solved lab in solutions/."
PRINTED = "Your code printed:"
WARNED = "Warnings while your code ran:"
OLD_COPY = "This copy is not the newest:"
PROGRESS = "Progress:"
PASSES = "Your answer does what is asked."


def fill(template: str, /, **values: object) -> str:
    """The template with its values written in, spaces at its end dropped.

    ``{x}`` writes a number with four digits, or with as many as it takes until all different
    numbers of the sentence look different; ``{x:exact}`` as ``show`` does; text as it is, and
    anything else as ``repr`` shows it, shortened. Other formats (``{x:.3f}``) are Python's own.

    >>> fill("`{call}` is {got}; {want} is wanted.", call="f()", got=1.53846, want=1.538)
    '`f()` is 1.5385; 1.538 is wanted.'
    """
    texts = _texts(values)
    return template.format(**{k: _Field(v, texts[k]) for k, v in values.items()}).rstrip()


def show(value: float) -> str:
    """A number as a learner reads it: exact, short where it can be, a power of two where it helps.

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


def apart(*numbers: float, digits: int = 4) -> tuple[str, ...]:
    """Texts of numbers, with so many digits that different numbers look different.

    >>> apart(1.53846, 1.538), apart(139e-6, 139e-6)
    (('1.5385', '1.538'), ('0.000139', '0.000139'))
    """
    different = len({_digits(x, 17) for x in numbers})
    texts: tuple[str, ...] = ()
    for count in range(digits, 18):
        texts = tuple(_digits(x, count) for x in numbers)
        if len(set(texts)) == different:
            break
    return texts


def came(got: object) -> str:
    """What came back, as a noun: ``'2', a str``; ``a tensor of shape (3,), float16``."""
    shape, dtype = getattr(got, "shape", None), getattr(got, "dtype", None)
    if shape is not None and dtype is not None:
        kind = "an array" if type(got).__module__ == "numpy" else "a tensor"
        return f"{kind} of shape {tuple(shape)}, {str(dtype).removeprefix('torch.')}"
    name = type(got).__name__
    if got is None or isinstance(got, Foreign):
        return str(got)
    if isinstance(got, (list, tuple, dict)):
        return f"{reprlib.repr(got)}, a {name} of {len(got)}"
    return f"{reprlib.repr(got)}, a{'n' if name == 'int' else ''} {name}"


def _digits(x: float, count: int) -> str:
    if isinstance(x, int):
        return str(x)
    return str(x) if x == 0 or not math.isfinite(x) else f"{x:.{count}g}"


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    numbers = {name: x for name, value in values.items() if (x := _number(value)) is not None}
    texts = dict(zip(numbers, apart(*numbers.values()), strict=True))
    for name, value in values.items():
        if name not in texts:
            texts[name] = value if isinstance(value, str) else reprlib.repr(value)
    dtypes = {name: getattr(values[name], "dtype", None) for name in numbers}
    for name, dtype in dtypes.items():
        # Equal numbers of two dtypes: their digits cannot differ.
        if dtype and any(numbers[name] == numbers[k] and dtypes[k] != dtype for k in numbers):
            texts[name] += f" ({str(dtype).removeprefix('torch.')})"
    return texts


def _number(value: Any) -> float | None:
    """A number in Python's own type, also that of a tensor of one element; None for all else."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    return value if type(value) in (int, float) else None


class _Field:
    """A value and its text, for ``str.format``."""

    def __init__(self, value: object, text: str) -> None:
        self.value, self.text = value, text

    def __format__(self, spec: str) -> str:
        if not spec:
            return self.text
        number = _number(self.value)
        value = self.value if number is None else number
        if spec == "exact":
            return show(value) if isinstance(value, (int, float)) else self.text
        return format(value, spec)
