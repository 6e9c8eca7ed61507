"""The long problems: every part proved, each file read as the bank is, mistakes named."""

import pytest

from labkit.interview import questions
from labkit.interview.question_parts import BankError
from labkit.interview.questions import load_bank
from tests.interview.prove import failures
from tests.interview.small_bank import SMALL
from tests.interview.test_bank import CHINESE, texts

BANK = load_bank()
STORY = """id = "long"
topic = "small"
title.en = "Long"
title.zh = "长"
story.en = "Once."
story.zh = "从前。"
"""


def part(number, more=""):
    return f"""
[[question]]
id = "part-{number}"
level = 1
kind = "numeric"
seconds = 30
prompt.en = "{number} and 1?"
prompt.zh = "{number} 加 1?"
explanation.en = "One more."
explanation.zh = "多一。"
settled.en = "It is {number + 1}."
settled.zh = "是 {number + 1}。"
verified = "reasoned"
answer = "{number + 1}"
{more}
[[question.wrong]]
answer = "{number}"
misconception = "implied-one-in-subnormals"
feedback.en = "One less."
feedback.zh = "少一。"
"""


SIX = "".join(part(number) for number in range(1, 7))


def read(tmp_path, text):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "small.toml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "long.toml").write_text(text, encoding="utf-8")
    return load_bank(tmp_path / "bank", tmp_path / "problems")


@pytest.mark.parametrize("id", BANK.parts)
def test_a_part_is_proved(id):
    assert list(failures(BANK.asked(id))) == []


@pytest.mark.parametrize("problem", BANK.problems.values(), ids=list(BANK.problems))
def test_every_text_of_a_problem_is_there_in_both_languages(problem):
    said = [("story", problem.story), ("title", problem.title)]
    said += [(part.question.id, part.settled) for part in problem.parts]
    for name, text in said:
        assert CHINESE.search(text.zh) and not CHINESE.search(text.en), name
    for part in problem.parts:
        for field, en, zh in texts(part.question):
            assert en.strip() and zh.strip() and not CHINESE.search(en), (part.question.id, field)


def test_a_problem_takes_no_more_than_the_time_that_a_mock_of_30_minutes_keeps_for_it():
    for problem in BANK.problems.values():
        assert 400 <= problem.seconds <= 0.4 * 30 * 60, problem.id
        assert len({part.question.kind for part in problem.parts}) >= 3, problem.id


def test_a_problem_and_what_stands_before_each_part(tmp_path):
    bank = read(tmp_path, STORY + SIX)
    problem = bank.problems["long"]
    assert bank.parts["part-3"] == (problem, 2)
    assert bank.asked("part-3").topic == "small" and "part-3" not in bank.questions
    assert problem.seconds == 180
    assert problem.before(0).en == "**Long**, part 1 of 6\n\nOnce."
    assert problem.before(2).en.endswith("Settled so far:\n\n1. It is 2.\n2. It is 3.")
    assert problem.before(2).zh.endswith("目前已确定：\n\n1. 是 2。\n2. 是 3。")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STORY.replace('"long"', '"other"') + SIX, "long.toml: id: must be 'long'"),
        (STORY.replace('"small"', '"large"') + SIX, "long.toml: topic: there is no topic 'large'"),
        (STORY + SIX.replace("part-6", "part-5"), "long.toml: part-5: id: stands twice"),
        (STORY + SIX.replace("part-6", "pick"), "long.toml: pick: id: stands twice"),
        (STORY + part(1), "long.toml: question: a problem has 6 to 8 parts, got 1"),
        (STORY + SIX.replace('settled.zh = "是 7。"', ""), "part-6: settled: needs .en and .zh"),
        (STORY.replace("story.zh", "story.de") + SIX, "long.toml: story: needs .en and .zh"),
        (STORY + 'lab_too = "x"\n' + SIX, "long.toml: lab_too: is no field"),
        (STORY + SIX.replace("implied-one-in", "no-such", 1), "long.toml: part-1: misconception"),
        (STORY + part(0, 'kind_of = "x"') + SIX, "long.toml: part-0: kind_of"),
        ("id = [", "long.toml: cannot be read"),
        (STORY, "long.toml: question: the file holds no"),
    ],
)
def test_a_mistake_in_a_problem_is_named_with_its_place(tmp_path, text, said):
    with pytest.raises(BankError) as error:
        read(tmp_path, text)
    assert said in str(error.value)


def test_the_course_has_its_long_problems():
    assert {*BANK.problems} == {path.stem for path in questions.PROBLEMS.glob("*.toml")}
    assert len(BANK.problems) >= 5
