"""The course's bank: every question proved, and everything that it promised to cover served."""

import csv
import functools
import re
import warnings
from pathlib import Path

import pytest

from labkit import answers
from labkit.cards import Spot, draw
from labkit.choice_kinds import Options
from labkit.misconceptions import misconceptions
from labkit.paths import DATA, NOTEBOOKS
from labkit.question_kinds import KINDS
from labkit.question_parts import Record, Text, Texts, WrongSpeech
from labkit.questions import load
from labkit.typed_kinds import Numeric
from tests.questions.prove import SEEDS, failures, right_answer

HERE = Path(__file__).parent
BANK = load()
QUESTIONS = list(BANK.questions.values())
# Five seconds of a quiet core and more, for 200 seeds.
SLOW = {
    "amp-flop-count",
    "bits-of-a-product",
    "clipped-at-the-wrong-time",
    "distinct-finite-values",
    "doubling-too-often",
    "gan-two-flags-one-scale",
    "gradient-sum-over-ranks",
    "running-mean-in-bf16",
    "running-sum-of-ones",
    "running-sum-of-steps",
    "scale-after-two-overflows",
    "second-moment-that-never-decays",
    "stochastic-rounding-odds",
    "the-whole-amp-loop",
}
INTERVIEW = {
    "FMT": 21, "ACC": 13, "AMP": 25, "MEM": 15, "HW": 13, "DST": 14, "STB": 15, "FP8": 14,
    "QNT": 11, "DBG": 12,
}  # fmt: skip
CANONICAL = {f"C{number:02}" for number in range(1, 67)}
FROM_INTERVIEWS = {
    f"{topic}-{number:03}" for topic, count in INTERVIEW.items() for number in range(1, count + 1)
}


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@functools.cache
def origins() -> dict[str, set[str]]:
    """Origin -> the questions that serve it."""
    served: dict[str, set[str]] = {}
    for file in sorted((HERE / "origins").glob("*.csv")):
        for row in rows(file):
            served.setdefault(row["origin"], set()).add(row["question"])
    return served


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(question, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, question in BANK.questions.items()
    ],
)
def test_a_question_is_proved(question):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cells show what torch warns of
        assert list(failures(question, SEEDS)) == []


def test_there_are_enough_questions_of_the_kinds_that_were_promised():
    spots = [question for question in QUESTIONS if isinstance(question, Spot)]
    numbers = [question for question in QUESTIONS if isinstance(question, Numeric)]
    assert len(QUESTIONS) >= 220
    assert {question.kind for question in QUESTIONS} == {*KINDS}
    assert len(spots) >= 60 and sum(question.holds for question in spots) >= 10
    assert sum(bool(question.parameters) for question in numbers) * 2 >= len(numbers)
    assert sum("core" in question.tags for question in QUESTIONS) == 40
    assert {*SLOW} <= {*BANK.questions}


def texts(record):
    """Every text of a question, with the field where it stands."""
    for name in type(record).model_fields:
        value = getattr(record, name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Text):
                yield name, entry.en, entry.zh
            elif isinstance(entry, Texts):
                yield from ((name, en, zh) for en, zh in zip(entry.en, entry.zh, strict=True))
            if isinstance(entry, Record) and not isinstance(entry, Texts):
                if isinstance(entry, WrongSpeech):
                    yield name, entry.en, entry.zh
                yield from texts(entry)


SAYS = ("prompt", "hints", "explanation", "feedback", "missed", "claim", "model", "rubric")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("topic", BANK.topics)
def test_every_text_is_there_in_both_languages(topic):
    assert CHINESE.search(BANK.topics[topic].title.zh)
    strays = []
    for question in BANK.topics[topic].questions:
        for field, en, zh in texts(question):
            english = en.strip() and len(CHINESE.findall(en)) < 5  # a word may be quoted
            # An option or a label may be a name or a number, the same in both.
            chinese = zh.strip() and (CHINESE.search(zh) or field not in SAYS)
            if not (english and chinese):
                strays.append((question.id, field, en[:40], zh[:40]))
    assert strays == []


@functools.cache
def sections(lab: str) -> list[str]:
    source = (NOTEBOOKS / "source" / f"{lab}.py").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^# #+ (.+)$", source)
    # JupyterLab makes a heading's anchor by putting hyphens for its spaces.
    return [heading.replace(" ", "-") for heading in headings]


def test_every_section_and_cure_is_a_heading_of_a_lab_that_is_built():
    places = {question.id: question.section for question in QUESTIONS if question.section}
    ideas = {idea for question in QUESTIONS for idea in question.wrong_ideas}
    cures = {idea: misconceptions()[idea].cure for idea in ideas}
    topics = {f"topic:{topic}" for topic in BANK.topics}
    lost = []
    for name, place in [*places.items(), *cures.items()]:
        if place in topics and name in cures:
            continue
        lab, _, section = place.partition("#")
        built = (NOTEBOOKS / f"{lab}.ipynb").exists()
        if not built or section not in sections(lab):
            lost.append((name, place))
    assert lost == []


def test_every_lab_is_one_that_is_built():
    labs = {question.lab for question in QUESTIONS} - {None}
    assert {lab for lab in labs if not (NOTEBOOKS / f"{lab}.ipynb").exists()} == set()


def test_every_misconception_of_a_topic_is_asked_for():
    asked = {idea for question in QUESTIONS for idea in question.wrong_ideas}
    of_topics = {idea.id for idea in misconceptions().values() if idea.cure.startswith("topic:")}
    assert of_topics - asked == set()


def test_follow_ups_lead_to_another_question():
    assert [q.id for q in QUESTIONS if q.id in q.follow_ups] == []


def test_every_origin_names_a_question_of_the_bank():
    named = {question for questions in origins().values() for question in questions}
    assert named - {*BANK.questions} == set()


def test_all_66_questions_that_were_asked_for_are_served():
    assert CANONICAL - {*origins()} == set()


def test_all_153_questions_from_interviews_are_served():
    assert len(FROM_INTERVIEWS) == sum(INTERVIEW.values()) == 153
    assert FROM_INTERVIEWS - {*origins()} == set()


def test_each_of_the_89_questions_as_they_were_asked_is_served():
    raw = rows(HERE / "origins_raw.csv")
    assert len(raw) == len({row["raw_id"] for row in raw}) == 89
    assert {row["canonical_id"] for row in raw} == CANONICAL
    assert [row["raw_id"] for row in raw if not origins().get(row["canonical_id"])] == []


def test_no_id_of_the_facts_stands_in_the_bank():
    topics = "|".join(INTERVIEW)
    ids = re.compile(rf"\b(?:(?:{topics})-\d{{3}}|E\d{{3}}|[CSN]\d{{2}})\b")
    found = []
    for file in sorted((DATA / "questions").glob("*.toml")):
        lines = file.read_text(encoding="utf-8").splitlines()
        found += [
            f"{file.name}:{at}: {line}" for at, line in enumerate(lines, 1) if ids.search(line)
        ]
    assert found == []


@pytest.mark.parametrize("topic", BANK.topics)
def test_what_was_answered_can_be_said(topic):
    for question in BANK.topics[topic].questions:
        card = draw(question, 0)
        given = "a line" if question.spoken else right_answer(card)
        said = answers.given_answer(card, given)
        assert said.en.strip() not in ("", "–") and said.zh.strip(), question.id
        if isinstance(question, Options):
            assert said == answers.right_answer(card), question.id
        assert answers.given_answer(card, None).en == "I do not know"
