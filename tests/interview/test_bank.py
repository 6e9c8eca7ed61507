"""The course's bank: every question proved, in both languages, and tied to labs that are built."""

import functools
import math
import re
import warnings

import pytest

from labkit.base.home import NOTEBOOKS
from labkit.interview import answers
from labkit.interview.cards import Spot, draw
from labkit.interview.choice_kinds import OneOption, Options
from labkit.interview.question_kinds import KINDS
from labkit.interview.question_parts import Frozen, Text, Texts, WrongSpeech
from labkit.interview.questions import load_bank
from labkit.interview.typed_kinds import Numeric
from labkit.labs.engine.misconceptions import misconceptions
from labkit.labs.texts import LANGUAGES
from tests.interview.prove import SEEDS, failures, right_answer

BANK = load_bank()
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
    "no-sync-around-backward-only",
    "running-mean-in-bf16",
    "running-sum-of-ones",
    "running-sum-of-steps",
    "scale-after-two-overflows",
    "second-moment-that-never-decays",
    "stochastic-rounding-odds",
    "the-whole-amp-loop",
}


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(question, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, question in BANK.questions.items()
    ],
)
def test_a_question_is_proved(question, seeds):
    draws = SEEDS * seeds // 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cells show what torch warns of
        assert list(failures(question, draws)) == []


def test_there_are_enough_questions_of_the_kinds_that_were_promised():
    spots = [question for question in QUESTIONS if isinstance(question, Spot)]
    numbers = [question for question in QUESTIONS if isinstance(question, Numeric)]
    assert len(QUESTIONS) >= 220
    assert {question.kind for question in QUESTIONS} == {*KINDS}
    assert len(spots) >= 60 and sum(question.holds for question in spots) >= 10
    assert sum(bool(question.parameters) for question in numbers) * 2 >= len(numbers)


def test_some_claims_hold_and_some_do_not():
    """Whoever always calls a claim wrong is not right each time."""
    assert {question.holds for question in QUESTIONS if question.kind in ("claim", "line")} == {
        True,
        False,
    }


CORE = [question for question in QUESTIONS if "core" in question.tags]


def test_the_core_is_what_interviews_ask_and_can_be_asked_in_75_minutes():
    assert 50 <= len(CORE) <= 65
    assert sum(question.seconds for question in CORE) <= 75 * 60
    weighty = {"fp8", "distributed", "quantization", "memory", "rollouts", "debugging"}
    assert {question.topic for question in CORE} > weighty
    assert 2 * sum(question.topic in weighty for question in CORE) >= len(CORE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_longest_option_is_right_as_often_as_chance_would_have_it(language):
    asked = [question for question in QUESTIONS if isinstance(question, OneOption)]
    chances = [1 / len(question.options) for question in asked]
    longest = 0
    for question in asked:
        right = next(len(option[language]) for option in question.options if option.right)
        longest += all(len(o[language]) < right for o in question.options if not o.right)
    deviation = math.sqrt(sum(chance * (1 - chance) for chance in chances))
    assert abs(longest - sum(chances)) <= 2 * deviation


def test_every_slow_question_is_in_the_bank():
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
            if isinstance(entry, Frozen) and not isinstance(entry, Texts):
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


def test_every_section_of_a_question_teaches():
    """*Say it* asks; it teaches nothing."""
    asking = [q.id for q in QUESTIONS if q.section and q.section.endswith("#Say-it")]
    assert asking == []


def test_every_lab_is_one_that_is_built():
    labs = {question.lab for question in QUESTIONS} - {None}
    assert {lab for lab in labs if not (NOTEBOOKS / f"{lab}.ipynb").exists()} == set()


def test_every_misconception_of_a_topic_is_asked_for():
    asked = {idea for question in QUESTIONS for idea in question.wrong_ideas}
    of_topics = {idea.id for idea in misconceptions().values() if idea.cure.startswith("topic:")}
    assert of_topics - asked == set()


def test_follow_ups_lead_to_another_question():
    assert [q.id for q in QUESTIONS if q.id in q.follow_ups] == []


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
