"""The bank of interview questions: TOML files, one a topic, read into frozen records.

``load`` reads and validates; what is wrong in a file is said with its name, the question's id and
the field. ``cards`` draws a question's card, ``question_kinds`` names the kinds, and
``answers`` judges what is answered. Nothing here needs torch, so the first card is there at
once.

How a question is written, field by field, stands in data/questions/README.md.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pydantic import ValidationError

from labkit.base.misconceptions import misconceptions
from labkit.base.paths import DATA
from labkit.formats.expressions import ExpressionError, format_named
from labkit.interview.cards import Question
from labkit.interview.question_kinds import KINDS
from labkit.interview.question_parts import BankError, Text

FOLDER = DATA / "questions"
LANGUAGES = ("en", "zh")


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
    return KINDS[kind](**{"lab": lab, **entry, "topic": topic})


def _loose_ends(questions: Mapping[str, Question]):
    """What points nowhere: follow-ups, misconceptions, formats of a tolerance."""
    known = misconceptions()
    for question in questions.values():
        name = f"{question.topic}.toml: {question.id}"
        if "core" in question.tags and not question.asked:
            yield f"{name}: asked: a core question names a source in which it is asked"
        for follow_up in question.follow_ups:
            if follow_up not in questions:
                yield f"{name}: follow_ups: there is no question {follow_up!r}"
        for idea in question.wrong_ideas:
            if idea not in known:
                yield f"{name}: misconception: {idea!r} is not in data/misconceptions.toml"
        for part in question.numbers:
            if part.tolerance and part.tolerance.format:
                try:
                    format_named(part.tolerance.format)
                except ExpressionError as error:
                    yield f"{name}: tolerance.format: {error}"
