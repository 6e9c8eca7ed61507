"""The bank of interview questions: TOML files, one a topic, read into frozen records.

``load_bank`` reads and validates; what is wrong in a file is said with its name, the question's id
and the field. ``cards`` draws a question's card, ``question_kinds`` names the kinds, and
``answers`` judges what is answered. Nothing here needs torch, so the first card is there at
once.

How a question is written, field by field, stands in data/questions/README.md.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from pydantic import ValidationError

from labkit.base.home import DATA
from labkit.formats.expressions import ExpressionError, format_named
from labkit.interview.cards import Question
from labkit.interview.problems import FEWEST, MOST, Problem, ProblemPart
from labkit.interview.question_kinds import KINDS
from labkit.interview.question_parts import BankError, Text
from labkit.labs.engine.misconceptions import misconceptions

FOLDER = DATA / "questions"
PROBLEMS = DATA / "problems"


@dataclass(frozen=True)
class Topic:
    """One file of the bank; ``lab`` teaches it, None where it is not written yet."""

    topic: str
    title: Text
    lab: str | None
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Bank:
    """All topics and questions, as ``load_bank`` read them, and the long problems of the mock.

    The parts of a problem are no questions of the bank: no drill asks them.
    """

    topics: Mapping[str, Topic]
    questions: Mapping[str, Question]
    problems: Mapping[str, Problem] = field(default_factory=dict)

    @functools.cached_property
    def parts(self) -> Mapping[str, tuple[Problem, int]]:
        """The problem and the place in it, from 0, of each part by its question's id."""
        return {
            part.question.id: (problem, place)
            for problem in self.problems.values()
            for place, part in enumerate(problem.parts)
        }

    def asked(self, id: str) -> Question | None:
        """The question or the part of a problem with that id; None where there is none."""
        if id in self.parts:
            problem, place = self.parts[id]
            return problem.parts[place].question
        return self.questions.get(id)


def load_bank(folder: Path = FOLDER, problems: Path | None = None) -> Bank:
    """Read and validate every file of a bank; the course's own is read once, with its problems.

    Raises BankError that names file, question and field for each mistake, FileNotFoundError for a
    folder that does not exist.
    """
    return _course() if folder == FOLDER else _load(folder, problems)


@functools.cache
def _course() -> Bank:
    return _load(FOLDER, PROBLEMS)


def _load(folder: Path, problems: Path | None) -> Bank:
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
    stories = sorted(problems.glob("*.toml")) if problems else []
    read = [_read_problem(file, topics, mistakes) for file in stories]
    bank = Bank(topics, questions, {problem.id: problem for problem in read if problem})
    if not mistakes:
        mistakes = [*_twice(bank), *_loose_ends(bank)]
    if mistakes:
        raise BankError("\n".join(mistakes))
    return bank


def _head(file: Path, mistakes: list[str]) -> tuple[dict, list[dict]] | None:
    """The fields of a file and its questions; what is wrong in it is added to ``mistakes``."""
    try:
        head = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Fraction)
    except (ValueError, OSError) as error:  # not UTF-8, no TOML, or inf, which is no fraction
        mistakes.append(f"{file.name}: cannot be read: {error}")
        return None
    entries = head.pop("question", [])
    if not (isinstance(entries, list) and entries and all(isinstance(e, dict) for e in entries)):
        mistakes.append(f"{file.name}: question: the file holds no [[question]]")
        return None
    return head, entries


def _read_problem(file: Path, topics: Mapping[str, Topic], mistakes: list[str]) -> Problem | None:
    """One long problem; what is wrong in it is added to ``mistakes``."""
    read = _head(file, mistakes)
    if read is None:
        return None
    head, entries = read
    before = len(mistakes)
    if head.get("id") != file.stem:
        said = f"must be {file.stem!r}, as the file's name, got {head.get('id')!r}"
        mistakes.append(f"{file.name}: id: {said}")
    if head.get("topic") not in topics:
        mistakes.append(f"{file.name}: topic: there is no topic {head.get('topic')!r}")
    if not FEWEST <= len(entries) <= MOST:
        said = f"a problem has {FEWEST} to {MOST} parts, got {len(entries)}"
        mistakes.append(f"{file.name}: question: {said}")
    for stray in sorted(set(head) - {"id", "topic", "lab", "title", "story"}):
        mistakes.append(f"{file.name}: {stray}: is no field of a file")
    texts = {name: _text(head.get(name), f"{file.name}: {name}", mistakes) for name in _SAID}
    parts = []
    for place, entry in enumerate(entries, start=1):
        name = f"{file.name}: {entry.get('id', f'question {place}')}"
        settled = _text(entry.pop("settled", None), f"{name}: settled", mistakes)
        question = _checked(
            entry, name, mistakes, topic=str(head.get("topic")), lab=head.get("lab")
        )
        if question and settled:
            parts.append(ProblemPart(question, settled))
    if len(mistakes) > before:
        return None
    return Problem(file.stem, head["topic"], texts["title"], texts["story"], tuple(parts))


_SAID = ("title", "story")


def _text(given: object, name: str, mistakes: list[str]) -> Text | None:
    try:
        return Text(**given)
    except (ValidationError, TypeError):
        mistakes.append(f"{name}: needs .en and .zh")
        return None


def _read(file: Path, mistakes: list[str]) -> Topic | None:
    """One file; what is wrong in it is added to ``mistakes``."""
    read = _head(file, mistakes)
    if read is None:
        return None
    head, entries = read
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
        question = _checked(entry, name, mistakes, topic=file.stem, lab=head.get("lab"))
        if question:
            questions.append(question)
    return Topic(file.stem, title, head.get("lab"), tuple(questions))


def _checked(
    entry: dict, name: str, mistakes: list[str], *, topic: str, lab: str | None
) -> Question | None:
    try:
        return _question(entry, topic=topic, lab=lab)
    except ValidationError as error:
        mistakes += [f"{name}: {_field(e['loc'])}: {_plain(e)}" for e in error.errors()]
    except BankError as error:
        mistakes.append(f"{name}: {error}")
    return None


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


def _twice(bank: Bank):
    """Parts of a problem that have the id of another part or of a question."""
    ids = [part.question.id for problem in bank.problems.values() for part in problem.parts]
    for problem in bank.problems.values():
        for part in problem.parts:
            id = part.question.id
            if id in bank.questions or ids.count(id) > 1:
                yield f"{problem.id}.toml: {id}: id: stands twice in the bank"


def _loose_ends(bank: Bank):
    """What points nowhere: follow-ups, changes, misconceptions, formats of a tolerance."""
    known, questions = misconceptions(), bank.questions
    files = {id: problem.id for id, (problem, _) in bank.parts.items()}
    for question in [*questions.values(), *map(bank.asked, bank.parts)]:
        name = f"{files.get(question.id, question.topic)}.toml: {question.id}"
        if "core" in question.tags and not question.asked:
            yield f"{name}: asked: a core question names a source in which it is asked"
        for follow_up in question.follow_ups:
            if follow_up not in questions:
                yield f"{name}: follow_ups: there is no question {follow_up!r}"
        for change in question.changed:
            if change.id not in questions or change.id == question.id:
                yield f"{name}: changed: there is no other question {change.id!r}"
        for idea in question.wrong_ideas:
            if idea not in known:
                yield f"{name}: misconception: {idea!r} is not in data/misconceptions.toml"
        for part in question.numbers:
            if part.tolerance and part.tolerance.format:
                try:
                    format_named(part.tolerance.format)
                except ExpressionError as error:
                    yield f"{name}: tolerance.format: {error}"
