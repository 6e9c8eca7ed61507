"""Programs that answer code questions: right ones in other styles, and natural wrong ones."""

import pytest

from labkit.interview import questions
from labkit.interview.answers import judge
from labkit.interview.cards import draw
from tests.interview.code_answers import RIGHT, WRONG

BANK = questions.load()


def judged(question, program):
    return judge(draw(BANK.questions[question], 0), program)


@pytest.mark.parametrize(
    ("question", "place"),
    [(name, i) for name, programs in RIGHT.items() for i in range(len(programs))],
)
def test_right_programs_pass_in_every_style(question, place):
    found = judged(question, RIGHT[question][place])
    assert found.correct, found.said.en


@pytest.mark.parametrize(
    ("question", "place"),
    [(name, i) for name, programs in WRONG.items() for i in range(len(programs))],
)
def test_wrong_programs_are_told_what_is_true_of_them(question, place):
    program, words = WRONG[question][place]
    found = judged(question, program)
    assert not found.correct and words in found.said.en
