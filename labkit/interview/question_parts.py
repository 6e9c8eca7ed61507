"""What questions are made of: texts in two languages, options, numbers, and known wrong answers.

Frozen records, read from the bank's TOML files by ``questions``; a field that a record does
not know is an error. Here are also the two errors: ``BankError`` for a bank that cannot be used,
``Unclear`` for an answer that cannot be understood.
"""

from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from labkit.formats.written_numbers import UNITS
from labkit.labs.texts import BilingualError, Frozen, Text

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]


def _as_fraction(said: object) -> Fraction:
    """For pydantic, which takes a ValueError for a mistake in the data and no other error."""
    try:
        return Fraction(said)
    except (TypeError, ZeroDivisionError):
        raise ValueError(f"{said!r} is no number") from None


class BankError(ValueError):
    """A bank that cannot be used: file, question and field, a line each."""


class Unclear(BilingualError, ValueError):
    """An answer that cannot be understood; ``said`` is what would be, in both languages."""


class Texts(Frozen):
    """Several texts in English and in Chinese, as many of each."""

    en: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _pair(self):
        if len(self.en) != len(self.zh):
            raise ValueError(f"{len(self.en)} in English, {len(self.zh)} in Chinese")
        return self

    def __getitem__(self, language: str) -> tuple[str, ...]:
        return getattr(self, language)


class Said(Frozen):
    """What is said of one wrong idea, and its id in data/misconceptions.toml."""

    feedback: Text
    misconception: Slug


class Option(Text):
    """One option of a choice; a wrong one says which idea it is."""

    key: Slug
    right: bool = False
    feedback: Text | None = None
    misconception: Slug | None = None
    missed: Text | None = None

    @model_validator(mode="after")
    def _says_what_is_wrong(self):
        if not self.right and (self.feedback is None or self.misconception is None):
            raise ValueError(f"the wrong option {self.key!r} needs feedback and a misconception")
        return self


class Tolerance(Frozen):
    """How far a number may be off, and why: ``relative``, or ``ulps`` of ``format``."""

    relative: Annotated[Fraction, BeforeValidator(_as_fraction)] | None = None
    ulps: int | None = None
    format: str | None = None
    because: Text

    @model_validator(mode="after")
    def _one_of_two(self):
        if (self.relative is None) == (self.ulps is None):
            raise ValueError("give either relative, or ulps and format")
        if self.ulps is not None and self.format is None:
            raise ValueError("ulps of which format?")
        return self


class NumberPart(Frozen):
    """One number that is asked for.

    ``exponent`` says that the number is an exponent of 2, for which ``2^18`` names 18 as well.
    """

    label: Text | None = None
    answer: str
    unit: str | None = None
    tolerance: Tolerance | None = None
    exponent: bool = False

    @model_validator(mode="after")
    def _unit_is_known(self):
        if self.unit is not None and self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is none of {', '.join(UNITS)}")
        return self


class WrongNumber(Said):
    """A number that people say: an expression; ``part`` counts from 1."""

    answer: str
    part: int = 1


class Before(Frozen):
    """Two keys of an order, the first of which comes before the other, and why.

    ``misconception`` is the idea of those who turn them round, None where no single idea explains
    it.
    """

    pair: tuple[Slug, Slug]
    feedback: Text
    misconception: Slug | None = None


class WrongPair(Said):
    """A pair that people make: the left side, from 1, and the key of the right."""

    pair: int
    right: Slug


class WrongText(Said):
    """An output that people expect."""

    answer: str


class WrongLine(Said):
    """A line that people accuse; 0 where they find nothing."""

    line: int


class WrongCode(Said):
    """A whole wrong answer."""

    code: str


class WrongSpeech(Said):
    """A thing people say, for one's own comparison."""

    en: str
    zh: str


class Item(Text):
    """One item to put in order, or one right side of a match."""

    key: Slug
    en: str
    zh: str


class Changed(Text):
    """Another question that is the same problem under a changed constraint.

    The text is what the interviewer says before it, such as "Now without BF16:".
    """

    id: Slug


class Pair(Frozen):
    """A left side and the key of the right side that belongs to it."""

    left: Text
    right: Slug


class Asked(Frozen):
    """A public source in which a question is asked or debated, and its year.

    ``year`` is the source's own; of an undated page, the year in which it was read.
    """

    source: str = Field(min_length=1)
    year: int = Field(ge=2010, le=2100)


class RubricPoint(Text):
    """One point of a rubric."""

    weight: int = Field(ge=1, le=10)


class Range(Frozen):
    """Integers from ``from`` to ``to``, both included."""

    start: int = Field(alias="from")
    to: int
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _holds_a_number(self):
        if self.to < self.start:
            raise ValueError(f"there is no number from {self.start} to {self.to}")
        return self
