"""The bank of interview questions: TOML files, one a topic, read into frozen records.

``load`` reads and validates; what is wrong in a file is said with its name, the question's id and
the field. ``draw`` turns a question and a seed into a ``Card``: its numbers drawn, its options
shuffled, its text filled in. ``labkit.interview.answers`` judges what is answered to a card. Nothing here
needs torch, so the first card is there at once.

How a question is written, field by field, stands in data/questions/README.md.
"""

import functools
import random
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from labkit.base.misconceptions import misconceptions
from labkit.base.paths import DATA
from labkit.formats import exact
from labkit.formats.expressions import UNITS, ExpressionError, Number, evaluate, format_named

FOLDER = DATA / "questions"
LANGUAGES = ("en", "zh")
_DRAWS = 2000

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]


def _as_fraction(said: object) -> Fraction:
    """For pydantic, which takes a ValueError for a mistake in the data and no other error."""
    try:
        return Fraction(said)
    except (TypeError, ZeroDivisionError):
        raise ValueError(f"{said!r} is no number") from None


class BankError(ValueError):
    """A bank that cannot be used: file, question and field, a line each."""


class Record(BaseModel):
    """A frozen record; a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Text(Record):
    """One text in English and in Chinese."""

    en: str = Field(min_length=1)
    zh: str = Field(min_length=1)

    def __getitem__(self, language: str) -> str:
        return getattr(self, language)


class Texts(Record):
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


class Said(Record):
    """What is said of one wrong idea, and its id in data/misconceptions.toml."""

    feedback: Text
    misconception: Slug


class Option(Record):
    """One option of a choice; a wrong one says which idea it is."""

    key: Slug
    en: str
    zh: str
    right: bool = False
    feedback: Text | None = None
    misconception: Slug | None = None
    missed: Text | None = None

    @model_validator(mode="after")
    def _says_what_is_wrong(self):
        if not self.right and (self.feedback is None or self.misconception is None):
            raise ValueError(f"the wrong option {self.key!r} needs feedback and a misconception")
        return self


class Tolerance(Record):
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


class Part(Record):
    """One number that is asked for."""

    label: Text | None = None
    answer: str
    unit: str | None = None
    tolerance: Tolerance | None = None

    @model_validator(mode="after")
    def _unit_is_known(self):
        if self.unit is not None and self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is none of {', '.join(UNITS)}")
        return self


class WrongNumber(Said):
    """A number that people say: an expression; ``part`` counts from 1."""

    answer: str
    part: int = 1


class WrongOrder(Said):
    """An order that people give: all keys."""

    order: tuple[Slug, ...]


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


class Item(Record):
    """One item to put in order, or one right side of a match."""

    key: Slug
    en: str
    zh: str


class Pair(Record):
    """A left side and the key of the right side that belongs to it."""

    left: Text
    right: Slug


class Point(Record):
    """One point of a rubric."""

    en: str
    zh: str
    weight: int = Field(ge=1, le=10)


class Range(Record):
    """Integers from ``from`` to ``to``, both included."""

    start: int = Field(alias="from")
    to: int
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _holds_a_number(self):
        if self.to < self.start:
            raise ValueError(f"there is no number from {self.start} to {self.to}")
        return self


class Asked(Record):
    """What all questions have; each kind below adds its answer."""

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
    sources: tuple[str, ...] = ()
    verified: Literal["computed", "read", "reasoned"]
    cell: str | None = None
    parameters: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)] | Range] = {}
    derived: dict[str, str] = {}
    where: str | None = None


def _keys_are_unique(records) -> None:
    keys = [record.key for record in records]
    if len(set(keys)) < len(keys):
        raise ValueError(f"keys that stand twice among {keys}")


def _with_one_right(question):
    _keys_are_unique(question.options)
    if sum(option.right for option in question.options) != 1:
        raise ValueError("exactly one option must be right")
    return question


class Choice(Asked):
    """One option is right."""

    kind: Literal["choice"]
    options: tuple[Option, ...] = Field(min_length=3, max_length=6)

    @model_validator(mode="after")
    def _one_is_right(self):
        return _with_one_right(self)


class Select(Asked):
    """All options that are right."""

    kind: Literal["select"]
    options: tuple[Option, ...] = Field(min_length=3, max_length=10)

    @model_validator(mode="after")
    def _some_are_right(self):
        _keys_are_unique(self.options)
        if not 0 < sum(option.right for option in self.options) < len(self.options):
            raise ValueError("some options must be right and some wrong")
        return self


class Numeric(Asked):
    """One number or several."""

    kind: Literal["numeric"]
    parts: tuple[Part, ...] = Field(min_length=1)
    wrong: tuple[WrongNumber, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _wrongs_have_parts(self):
        strays = [wrong.part for wrong in self.wrong if not 1 <= wrong.part <= len(self.parts)]
        if strays:
            raise ValueError(f"wrong numbers of a part {strays[0]} that there is not")
        if len(self.parts) > 1 and any(part.label is None for part in self.parts):
            raise ValueError("each of several parts needs a label")
        return self


class Bits(Asked):
    """A code of ``width`` bits."""

    kind: Literal["bits"]
    width: int = Field(ge=2, le=64)
    answer: str
    wrong: tuple[WrongNumber, ...] = Field(min_length=1)


class Order(Asked):
    """Items to put in order; ``items`` stand in the right one."""

    kind: Literal["order"]
    items: tuple[Item, ...] = Field(min_length=3, max_length=9)
    also: tuple[tuple[Slug, ...], ...] = ()
    wrong: tuple[WrongOrder, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _orders_are_whole(self):
        _keys_are_unique(self.items)
        keys = sorted(item.key for item in self.items)
        for order in (*self.also, *(wrong.order for wrong in self.wrong)):
            if sorted(order) != keys:
                raise ValueError(f"the order {list(order)} must hold each of {keys} once")
        return self


class Match(Asked):
    """A right side for each left side."""

    kind: Literal["match"]
    pairs: tuple[Pair, ...] = Field(min_length=2, max_length=10)
    rights: tuple[Item, ...] = Field(min_length=2, max_length=10)
    wrong: tuple[WrongPair, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _rights_are_known(self):
        _keys_are_unique(self.rights)
        keys = {item.key for item in self.rights}
        for name in (*(pair.right for pair in self.pairs), *(w.right for w in self.wrong)):
            if name not in keys:
                raise ValueError(f"the right side {name!r} is none of {sorted(keys)}")
        if any(not 1 <= wrong.pair <= len(self.pairs) for wrong in self.wrong):
            raise ValueError("a wrong pair of a left side that there is not")
        return self


class Predict(Asked):
    """The text that the code prints."""

    kind: Literal["predict"]
    code: str
    answer: str
    wrong: tuple[WrongText, ...] = Field(min_length=1)


class SpotClaim(Asked):
    """Whether somebody's claim holds, and why."""

    kind: Literal["spot"]
    claim: Text
    holds: bool
    cell: str
    options: tuple[Option, ...] = Field(min_length=3, max_length=6)

    @model_validator(mode="after")
    def _one_is_right(self):
        return _with_one_right(self)


class SpotLine(Asked):
    """The line of a program that is wrong; 0 where none is."""

    kind: Literal["spot"]
    code: str
    line: int = Field(ge=0)
    holds: bool
    cell: str
    wrong: tuple[WrongLine, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _lines_exist(self):
        last = len(self.code.strip("\n").splitlines())
        for line in (self.line, *(wrong.line for wrong in self.wrong)):
            if not 0 <= line <= last:
                raise ValueError(f"line {line}: the code has lines 1 to {last}")
        if self.holds != (self.line == 0):
            raise ValueError("holds must be true exactly where line is 0")
        return self


class Code(Asked):
    """A function to write; ``check`` is module.check_name of labkit.labs.engine."""

    kind: Literal["code"]
    stub: str
    solution: str
    check: str = Field(pattern=r"^labkit(\.\w+)+$")
    wrong: tuple[WrongCode, ...] = Field(min_length=1)


class Free(Asked):
    """Free speech: a model answer, and points that one ticks for oneself."""

    kind: Literal["free"]
    model: Text
    rubric: tuple[Point, ...] = Field(min_length=2, max_length=8)
    wrong: tuple[WrongSpeech, ...] = ()


_KINDS: dict[str, type[Asked]] = {
    "choice": Choice, "select": Select, "numeric": Numeric, "bits": Bits, "order": Order,
    "match": Match, "predict": Predict, "code": Code, "free": Free,
}  # fmt: skip
KINDS = (*_KINDS, "spot")

Question = (
    Choice | Select | Numeric | Bits | Order | Match | Predict | SpotClaim | SpotLine | Code | Free
)


@dataclass(frozen=True)
class Topic:
    """One file of the bank; ``lab`` teaches it, None where it is not written yet."""

    topic: str
    title: Text
    lab: str | None
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Bank:
    """All topics and questions, as ``load`` read them."""

    topics: Mapping[str, Topic]
    questions: Mapping[str, Question]


def load(folder: Path = FOLDER) -> Bank:
    """Read and validate every file of a bank; the course's own is read once.

    Raises BankError that names file, question and field for each mistake, FileNotFoundError for a
    folder that does not exist.
    """
    return _course() if folder == FOLDER else _load(folder)


@functools.cache
def _course() -> Bank:
    return _load(FOLDER)


def _load(folder: Path) -> Bank:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no question files (*.toml)")
    mistakes: list[str] = []
    topics = {}
    for file in files:
        topic = _read(file, mistakes)
        if topic:
            topics[topic.topic] = topic
    questions: dict[str, Question] = {}
    for topic in topics.values():
        for question in topic.questions:
            if question.id in questions:
                twice = f"{topic.topic}.toml: {question.id}: id: stands twice in the bank"
                mistakes.append(twice)
            questions[question.id] = question
    if not mistakes:
        mistakes = list(_loose_ends(questions))
    if mistakes:
        raise BankError("\n".join(mistakes))
    return Bank(topics, questions)


def _read(file: Path, mistakes: list[str]) -> Topic | None:
    """One file; what is wrong in it is added to ``mistakes``."""
    try:
        head = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Fraction)
    except (ValueError, OSError) as error:  # not UTF-8, no TOML, or inf, which is no fraction
        mistakes.append(f"{file.name}: cannot be read: {error}")
        return None
    entries = head.pop("question", [])
    if not (isinstance(entries, list) and entries and all(isinstance(e, dict) for e in entries)):
        mistakes.append(f"{file.name}: question: the file holds no [[question]]")
        return None
    if head.get("topic") != file.stem:
        said = f"must be {file.stem!r}, as the file's name, got {head.get('topic')!r}"
        mistakes.append(f"{file.name}: topic: {said}")
        return None
    try:
        title = Text(**head.get("title", {}))
    except (ValidationError, TypeError):
        mistakes.append(f"{file.name}: title: needs title.en and title.zh")
        return None
    strays = set(head) - {"topic", "title", "lab"}
    if strays:
        mistakes.append(f"{file.name}: {min(strays)}: is no field of a file")
    questions = []
    for place, entry in enumerate(entries, start=1):
        name = f"{file.name}: {entry.get('id', f'question {place}')}"
        try:
            questions.append(_question(entry, topic=file.stem, lab=head.get("lab")))
        except ValidationError as error:
            mistakes += [f"{name}: {_field(e['loc'])}: {_plain(e)}" for e in error.errors()]
        except BankError as error:
            mistakes.append(f"{name}: {error}")
    return Topic(file.stem, title, head.get("lab"), tuple(questions))


def _field(loc: tuple) -> str:
    path = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in loc)
    return path.removeprefix(".") or "question"


def _plain(error: dict) -> str:
    said = error["msg"].removeprefix("Value error, ")
    given = error.get("input")
    plain = error["type"] != "missing" and isinstance(given, str | int | bool)
    return f"{said}, got {given!r}" if plain else said


def _question(entry: dict, *, topic: str, lab: str | None) -> Question:
    kind = entry.get("kind")
    if kind not in KINDS:
        raise BankError(f"kind: must be one of {', '.join(KINDS)}, got {kind!r}")
    spot = SpotClaim if "claim" in entry else SpotLine
    if kind == "numeric" and "parts" not in entry:
        single = {name: entry[name] for name in ("answer", "unit", "tolerance") if name in entry}
        entry = {name: said for name, said in entry.items() if name not in single}
        entry["parts"] = [single]
    return _KINDS.get(kind, spot)(**{"lab": lab, **entry, "topic": topic})


def wrong_ideas(question: Question) -> tuple[str, ...]:
    """The ids of the misconceptions that the question's wrong answers show, each once."""
    said = [option.misconception for option in getattr(question, "options", ()) if not option.right]
    said += [wrong.misconception for wrong in getattr(question, "wrong", ())]
    return tuple(dict.fromkeys(said))


def _loose_ends(questions: Mapping[str, Question]):
    """What points nowhere: follow-ups, misconceptions, formats of a tolerance."""
    known = misconceptions()
    for question in questions.values():
        name = f"{question.topic}.toml: {question.id}"
        for follow_up in question.follow_ups:
            if follow_up not in questions:
                yield f"{name}: follow_ups: there is no question {follow_up!r}"
        for idea in wrong_ideas(question):
            if idea not in known:
                yield f"{name}: misconception: {idea!r} is not in data/misconceptions.toml"
        for part in getattr(question, "parts", ()):
            if part.tolerance and part.tolerance.format:
                try:
                    format_named(part.tolerance.format)
                except ExpressionError as error:
                    yield f"{name}: tolerance.format: {error}"


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
        return evaluate(expression, values)
    except ExpressionError as error:
        raise BankError(f"{name}: {error}") from None


def _number(expression: str, values: Mapping[str, Any], name: str) -> Number:
    found = _computed(expression, values, name)
    if isinstance(found, bool) or not isinstance(found, int | Fraction | float):
        raise BankError(f"{name}: {expression!r} is {found!r}, which is no number")
    return found


def _numbers(question: Question, values, name: str) -> tuple[tuple, tuple]:
    if isinstance(question, Numeric):
        parts = enumerate(question.parts, start=1)
        expected = [_number(p.answer, values, f"{name}: parts[{i}].answer") for i, p in parts]
    elif isinstance(question, Bits):
        expected = [_number(question.answer, values, f"{name}: answer")]
    else:
        return (), ()
    wrongs = enumerate(question.wrong, start=1)
    wrong = [_number(w.answer, values, f"{name}: wrong[{i}].answer") for i, w in wrongs]
    return tuple(expected), tuple(wrong)


def same(a: Number, b: Number) -> bool:
    """Equal, or both NaN."""
    return a == b or (a != a and b != b)


def within(answer: Number, expected: Number, tolerance: Tolerance | None) -> bool:
    """Whether a number is the expected one, as far as the tolerance tells."""
    if tolerance is None or not (exact.finite(answer) and exact.finite(expected)):
        return same(answer, expected)
    distance = abs(Fraction(answer) - Fraction(expected))
    if tolerance.relative is not None:
        return distance <= tolerance.relative * abs(Fraction(expected))
    return distance <= tolerance.ulps * exact.ulp(expected, format_named(tolerance.format))


def _all_differ(question: Question, expected: tuple, wrong: tuple) -> bool:
    parts = getattr(question, "parts", (None,))
    wrongs = question.wrong if wrong else ()
    said = [(getattr(w, "part", 1), value) for w, value in zip(wrongs, wrong, strict=True)]
    for place, (part, value) in enumerate(said):
        tolerance = parts[part - 1].tolerance if parts[0] else None
        if within(value, expected[part - 1], tolerance):
            return False
        if any(other == part and same(value, earlier) for other, earlier in said[:place]):
            return False
    return True


def _shuffled(question: Question, source: random.Random) -> tuple[str, ...]:
    shown = getattr(question, "options", None) or getattr(question, "items", None)
    shown = shown or getattr(question, "rights", ())
    keys = [entry.key for entry in shown]
    right = list(keys)
    source.shuffle(keys)
    while isinstance(question, Order) and keys == right:
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
        said = written(values[name][field] if field else values[name])
        return f"{before}{{{said}}}" if before else said  # an exponent keeps its braces

    return _PLACE.sub(put, text) if values else text


def written(x: object) -> str:
    """A drawn value as a text shows it: short decimals as such, other numbers as m * 2**e.

    >>> written(Fraction(1, 1024)), written(Fraction(3, 2**24)), written(Fraction(1, 3))
    ('2**-10', '3 * 2**-24', '0.333333')
    """
    if isinstance(x, float):
        return f"{x:g}"
    if isinstance(x, bool) or not isinstance(x, Fraction):
        return ", ".join(written(entry) for entry in x) if isinstance(x, list) else str(x)
    decimal = f"{float(x):.6g}"
    short = abs(x) >= Fraction(1, 100) or "e" in decimal or len(decimal) < 9
    if short and Fraction(decimal) == x:
        return decimal
    bottom = x.denominator
    if bottom & (bottom - 1) == 0 and abs(x.numerator) < 4096:
        power = f"2**-{bottom.bit_length() - 1}"
        return power if x.numerator == 1 else f"{x.numerator} * {power}"
    return decimal
