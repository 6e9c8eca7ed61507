"""What every question has, and the card that a seed draws from it.

``Question`` is the base of all kinds (``question_kinds``): a kind says in its class how an
answer is read and judged, what the right one is, and what a card shows. ``draw`` turns a question
and a seed into a ``Card``: its numbers drawn, its options shuffled, its text filled in.
"""

import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from labkit.formats.expressions import ExpressionError, Number, value_of
from labkit.interview.question_parts import (
    Asked,
    BankError,
    Before,
    Changed,
    Frozen,
    Item,
    NumberPart,
    Option,
    Range,
    Said,
    Slug,
    Text,
    Texts,
    Unclear,
    WrongNumber,
)
from labkit.interview.typed_numbers import in_full, rounds_to, same, within, written_value

_DRAWS = 2000

Wrong = Said | Option | Before
"""A known wrong answer: it has a feedback, and a misconception where it shows one."""


@dataclass(frozen=True)
class Result:
    """What an answer is worth: ``score`` from 0 to 1, 1 where it is ``correct``.

    ``said`` names the mistake where it is a known one; ``misconceptions`` are the ids of the wrong
    ideas that the answer shows.
    """

    correct: bool
    score: float
    said: Text | None = None
    misconceptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Face:
    """What a card shows below its prompt, in one language; empty is what its kind does not have.

    ``choices`` stand in the order of the card's keys, named by letters where they are ``lettered``
    and by numbers from 1 elsewhere. ``parts`` are (label, unit) of each number that is asked for.
    """

    claim: str = ""
    code: str = ""
    stub: str = ""
    lefts: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    lettered: bool = False
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Note:
    """What stands beside an option, item, left side or point of a card that was answered.

    ``said`` holds in words all that it says; ``right`` adds a mark to it, and None adds none.
    """

    said: str = ""
    right: bool | None = None


def as_a_whole(correct: bool, wrong: Wrong | None) -> Result:
    """A result that is right or wrong as a whole, with the known wrong answer that it is."""
    if correct or wrong is None:
        return Result(correct, float(correct))
    ideas = (wrong.misconception,) if wrong.misconception else ()
    return Result(False, 0.0, wrong.feedback, ideas)


_ALL = ("all", "全部", "全选", "都对")
_BETWEEN = r"\b(?:and|und|options?|numbers?|points?|no\.|nr\.)|[和与及、第个项条选点]"


def places_in(text: str, last: int) -> list[int]:
    """The numbers in a line, each from 1 to ``last``: ``1 3``, ``1, 3``, ``13``, ``1-3``, ``all``.

    Raises Unclear for anything else, so that no word is read past: "not 2" is no 2.
    """
    said = unicodedata.normalize("NFKC", text).casefold().strip()
    if said in _ALL:
        return list(range(1, last + 1))
    said = re.sub(_BETWEEN, " ", said)
    said = re.sub(r"(\d{1,3})\s*(?:-|–|\bto\b|到|至)\s*(\d{1,3})", _spread, said)
    runs = [] if re.search(r"[^\d\s,;.:+&/()#]", said) else re.findall(r"\d+", said)
    numbers = [number for run in runs for number in _places(run, last)]
    if not numbers or not all(1 <= number <= last for number in numbers):
        raise Unclear(f"Give numbers from 1 to {last}.", f"请给出 1 到 {last} 的编号。")
    return numbers


def _spread(found: re.Match) -> str:
    """2-4 as 2 3 4."""
    return " ".join(map(str, range(int(found[1]), int(found[2]) + 1)))


def _places(run: str, last: int) -> list[int]:
    """A run of digits as one number, or digit by digit where it is no place and its digits are."""
    if len(run) > 1 and (len(run) > 3 or int(run) > last):
        return [int(digit) for digit in run[: last + 1]]
    return [int(run)]


def together(said: Iterable[Text]) -> Text | None:
    """Several things to say as one, each once; None for none."""
    texts = list(dict.fromkeys(said))
    if not texts:
        return None
    return Text(en=" ".join(t.en for t in texts), zh="".join(t.zh for t in texts))


class Question(Frozen):
    """What all questions have; each kind adds its answer.

    A kind says its ``form`` (how a page asks for the answer), ``how`` (the same in words), and in
    ``judge`` in which form it takes an answer.
    """

    id: Slug
    topic: str
    lab: str | None
    tags: tuple[Slug, ...] = ()
    level: Literal[1, 2, 3]
    seconds: int = Field(ge=5, le=3600)
    prompt: Text
    hints: Texts = Texts()
    explanation: Text
    section: str | None = None
    follow_ups: tuple[Slug, ...] = ()
    changed: tuple[Changed, ...] = ()
    sources: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    verified: Literal["computed", "read", "reasoned"]
    cell: str | None = None
    parameters: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)] | Range] = Field(
        default_factory=dict
    )
    derived: dict[str, str] = Field(default_factory=dict)
    where: str | None = None

    form: ClassVar[str]
    how: ClassVar[Text]
    spoken: ClassVar[bool] = False
    """Said aloud, then compared with a model answer by the speaker."""
    program: ClassVar[bool] = False
    """The answer is a program of many lines."""
    long: ClassVar[bool] = False
    """Takes more than a line or a moment, so no warm-up asks it."""
    prints: ClassVar[bool] = False
    """The right answer is what a program says or is, and is shown as code."""

    @property
    def taught_in(self) -> str | None:
        """The lab whose section teaches the answer; None where no written section does."""
        return self.section and self.section.partition("#")[0]

    @property
    def objective(self) -> bool:
        """Whether an answer is judged without the learner's own opinion, and in a line or two."""
        return not (self.spoken or self.program)

    @property
    def known_wrongs(self) -> tuple[Wrong, ...]:
        """The wrong answers that the question knows, each with what is said of it."""
        raise NotImplementedError

    @property
    def wrong_ideas(self) -> tuple[str, ...]:
        """The ids of the misconceptions that the wrong answers show, each once."""
        ideas = (wrong.misconception for wrong in self.known_wrongs)
        return tuple(dict.fromkeys(idea for idea in ideas if idea))

    @property
    def entries(self) -> tuple[Option | Item, ...]:
        """What a card shuffles and shows to choose from; an answer then names their keys."""
        return ()

    def may_show(self, keys: tuple[str, ...]) -> bool:
        """Whether a card may show its choices in this order, or would give the answer away."""
        return True

    @property
    def numbers(self) -> tuple[NumberPart, ...]:
        """The numbers that are asked for."""
        return ()

    @property
    def wrong_numbers(self) -> tuple[WrongNumber, ...]:
        """The numbers that people say instead."""
        return ()

    def face(self, card: "Card", language: str) -> Face:
        """What the card shows below its prompt."""
        return Face()

    def notes(self, card: "Card", answer, language: str) -> tuple[Note, ...]:
        """What stands beside what the card lists once it was answered, in the card's order.

        The card lists its left sides if it has some, else its choices, and for free speech the
        points of the rubric. An answer of None is "I do not know".
        """
        return ()

    def judge(self, card: "Card", answer) -> Result:
        """What an answer in the kind's form is worth; raises Unclear where it has no such form."""
        raise NotImplementedError

    def read(self, card: "Card", text: str):
        """The answer that a typed line means, in the form that ``judge`` takes; raises Unclear."""
        return text

    def right_answer(self, card: "Card"):
        """The right answer in the form that ``judge`` takes."""
        raise NotImplementedError

    def wrong_answers(self, card: "Card") -> Iterator[tuple[object, Wrong]]:
        """Every known wrong answer in the form that ``judge`` takes, with what is said of it."""
        return iter(())

    def given(self, card: "Card", answer) -> Text:
        """An answer in words; here what was typed."""
        typed = answer if isinstance(answer, str) else "; ".join(map(str, answer))
        return Text(en=typed or "–", zh=typed or "–")

    def right(self, card: "Card") -> Text:
        """The right answer in words."""
        return self.given(card, self.right_answer(card))


class WithWrongs(Question):
    """What the kinds share that list known wrong answers under ``wrong``."""

    wrong: tuple[Said, ...]

    @property
    def known_wrongs(self) -> tuple[Said, ...]:
        return self.wrong


class Spot(Question):
    """What the two kinds share that show something and ask what is wrong with it.

    ``holds`` says that nothing is; ``cell`` finds that by running something.
    """

    holds: bool
    cell: str


@dataclass(frozen=True)
class Card:
    """A question with its numbers drawn and its options shuffled.

    ``values`` are its parameters and what is derived from them. ``keys`` is the order in which
    options, items or right sides are shown. ``expected`` holds the right numbers, one a part (for
    bits the code), and ``wrong`` the known wrong ones, in the question's order.
    """

    question: Question
    seed: int
    values: Mapping[str, Any]
    keys: tuple[str, ...]
    expected: tuple[Number, ...]
    wrong: tuple[Number, ...]

    def fill(self, text: str) -> str:
        """The text with the drawn numbers where it names them."""
        return _fill(text, self.values)

    def fill_both(self, text: Text) -> Text:
        """The same in both languages."""
        return Text(en=self.fill(text.en), zh=self.fill(text.zh))


def draw(question: Question, seed: int) -> Card:
    """The card of a question and a seed: the same one every time.

    Numbers are drawn again until ``where`` holds and every known wrong number is a result of its
    own. Raises BankError where an expression cannot be computed or no draw does.
    """
    source = random.Random(f"{question.id}:{seed}")
    name = f"{question.topic}.toml: {question.id}"
    for _ in range(_DRAWS if question.parameters else 1):
        values = _values(question, source, name)
        if question.where and not _computed(question.where, values, f"{name}: where"):
            continue
        expected, wrong = _numbers(question, values, name)
        if _all_differ(question, expected, wrong):
            return Card(question, seed, values, _shuffled(question, source), expected, wrong)
    raise BankError(f"{name}: parameters: no draw tells every wrong number from the right one")


def _values(question: Question, source: random.Random, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for parameter, choices in question.parameters.items():
        if isinstance(choices, Range):
            values[parameter] = source.randrange(choices.start, choices.to + 1, choices.step)
        else:
            values[parameter] = source.choice(choices)
    for derived, expression in question.derived.items():
        values[derived] = _computed(expression, values, f"{name}: derived.{derived}")
    return values


def _computed(expression: str, values: Mapping[str, Any], name: str):
    try:
        return value_of(expression, values)
    except ExpressionError as error:
        raise BankError(f"{name}: {error}") from None


def _number(expression: str, values: Mapping[str, Any], name: str) -> Number:
    found = _computed(expression, values, name)
    if isinstance(found, bool) or not isinstance(found, int | Fraction | float):
        raise BankError(f"{name}: {expression!r} is {found!r}, which is no number")
    return found


def _numbers(question: Question, values, name: str) -> tuple[tuple, tuple]:
    several = len(question.numbers) > 1
    expected = [
        _number(part.answer, values, f"{name}: {f'parts[{i}].' if several else ''}answer")
        for i, part in enumerate(question.numbers, start=1)
    ]
    wrong = [
        _number(wrong.answer, values, f"{name}: wrong[{i}].answer")
        for i, wrong in enumerate(question.wrong_numbers, start=1)
    ]
    return tuple(expected), tuple(wrong)


def _all_differ(question: Question, expected: tuple, wrong: tuple) -> bool:
    said = [(w.part, value) for w, value in zip(question.wrong_numbers, wrong, strict=True)]
    for place, (part, value) in enumerate(said):
        right, tolerance = expected[part - 1], question.numbers[part - 1].tolerance
        if within(value, right, tolerance) or rounds_to(value, in_full(value), right, tolerance):
            return False
        if any(other == part and same(value, earlier) for other, earlier in said[:place]):
            return False
    return True


def _shuffled(question: Question, source: random.Random) -> tuple[str, ...]:
    keys = [entry.key for entry in question.entries]
    source.shuffle(keys)
    while not question.may_show(tuple(keys)):
        source.shuffle(keys)
    return tuple(keys)


_PLACE = re.compile(r"([\^_]?)\{(\w+)(?:\.(\w+))?\}")


def _fill(text: str, values: Mapping[str, Any]) -> str:
    def put(found: re.Match) -> str:
        before, name, field = found.groups()
        if name not in values or (field is not None) != isinstance(values[name], Mapping):
            return found[0]
        if field is not None and field not in values[name]:
            return found[0]
        said = written_value(values[name][field] if field else values[name])
        return f"{before}{{{said}}}" if before else said  # an exponent keeps its braces

    return _PLACE.sub(put, text) if values else text
