"""Typed answers of many styles to questions of every kind and topic are judged as a reader would.

The tables are in ``typed_answers``; programs are in ``test_code_answers``.
"""

import pytest

from labkit.interview import questions
from labkit.interview.answers import judge, read_answer
from labkit.interview.cards import draw
from labkit.interview.choice_kinds import LETTERS
from tests.interview.typed_answers import CHOSEN, TYPED

BANK = questions.load_bank()
ALL = CHOSEN | TYPED


def names(card):
    """What stands for each key on the card: a number, or a letter."""
    lettered = card.question.face(card, "en").lettered
    return {key: LETTERS[i] if lettered else str(i + 1) for i, key in enumerate(card.keys)}


def judged(question, line):
    card = draw(BANK.questions[question], 0)
    if question in CHOSEN:
        for key, name in names(card).items():
            line = line.replace(f"{{{key}}}", name)
    return judge(card, read_answer(card, line))


@pytest.mark.parametrize(
    ("question", "line"), [(name, line) for name, lines in ALL.items() for line in lines.right]
)
def test_right_answers_are_right_in_every_style(question, line):
    assert judged(question, line).correct


@pytest.mark.parametrize(
    ("question", "line"), [(name, line) for name, lines in ALL.items() for line in lines.wrong]
)
def test_wrong_answers_are_wrong_and_are_told_something(question, line):
    found = judged(question, line)
    assert not found.correct and found.said.en and found.said.zh


def test_kinds_and_topics_are_spread():
    asked = [BANK.questions[name] for name in ALL]
    kinds = {question.kind for question in BANK.questions.values()}
    assert {question.kind for question in asked} == kinds - {"code", "free"}
    assert len({question.topic for question in asked}) >= 14
