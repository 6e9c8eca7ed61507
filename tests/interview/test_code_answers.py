"""Programs that answer code questions: right ones in other styles, and natural wrong ones."""

import pytest

from labkit.interview import questions
from labkit.interview.answers import judge
from labkit.interview.cards import draw
from tests.interview import code_answers, lab_code_answers, whiteboard_code_answers

BANK = questions.load_bank()
RIGHT = code_answers.RIGHT | lab_code_answers.RIGHT | whiteboard_code_answers.RIGHT
WRONG = code_answers.WRONG | lab_code_answers.WRONG | whiteboard_code_answers.WRONG


def judged(question, program):
    return judge(draw(BANK.questions[question], 0), program)


def changed(question, swaps):
    """The question's own solution with text replaced."""
    text = BANK.questions[question].solution
    for old, new in zip(swaps[::2], swaps[1::2], strict=True):
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return text


def test_every_code_question_has_right_and_wrong_programs():
    asked = {name for name, question in BANK.questions.items() if question.kind == "code"}
    assert asked == set(RIGHT) == set(WRONG)


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
    if isinstance(program, tuple):
        program = changed(question, program)
    found = judged(question, program)
    assert not found.correct
    assert words in found.said.en
