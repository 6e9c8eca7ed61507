"""Where a learner stands: tables and pictures follow the log, and say so in words."""

import ast
import itertools
import re
from datetime import UTC, date, datetime, timedelta

import pytest

from labkit.interview import log as interview
from labkit.interview import preparing
from labkit.interview.drills import Review
from labkit.interview.questions import load_bank


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


def keep(question, *, correct=True, sure=2, mode="drill", days_ago=0):
    at = datetime.now(UTC) - timedelta(days=days_ago)
    score = float(correct)
    interview.keep(
        Review(at=at, question=question, seed=0, correct=correct, score=score, sure=sure, mode=mode)
    )


def cells(printed):
    """The cells of a printed plan: the lines below those with the minutes."""
    lines = printed.splitlines()
    return [
        below.strip() for line, below in itertools.pairwise(lines) if re.match(r" *\d+ min  ", line)
    ]


def test_the_plan_names_cells_that_stand_whole_in_a_line(capsys):
    preparing.friday_plan()
    found = cells(capsys.readouterr().out)
    assert found[0] == "diagnostic()" and found[-1] == "mock_interview()"
    calls = [ast.parse(cell, mode="eval").body for cell in found]
    topics = [word.value for call in calls for word in call.keywords if word.arg == "topics"]
    drilled = {name for of_one in topics for name in ast.literal_eval(of_one)}
    assert drilled == {q.topic for q in load_bank().questions.values() if "core" in q.tags}
    keep("largest-finite", mode="diagnostic")
    preparing.friday_plan()
    assert "diagnostic()" not in cells(capsys.readouterr().out)


def test_on_the_day_itself_the_weeks_are_that_day():
    interview.set_interview_date(date.today())
    assert interview.interview_date() is not None, "also after nine o'clock"
    keep("largest-finite", correct=False, days_ago=2)
    today = datetime.now().astimezone()
    assert f"{today.day} {today:%b}: 1" in preparing.weeks_plan().alt


def test_the_weeks_follow_the_date():
    assert "in four weeks (no date is set)" in preparing.weeks_plan().caption
    interview.set_interview_date((datetime.now(UTC) + timedelta(days=10)).date().isoformat())
    keep("largest-finite", correct=False, days_ago=2)
    picture = preparing.weeks_plan()
    unseen = sum("core" in question.tags for question in load_bank().questions.values()) - 1
    assert f"{unseen} core questions are unseen" in picture.caption
    pace = "until the interview", f": {-(-unseen // 10)}."  # ten days, rounded up
    assert [part for part in pace if part not in picture.caption] == []
    today = datetime.now().astimezone()
    assert f"{today.day} {today:%b}: 1" in picture.alt
    with pytest.raises(ValueError, match="2027"):
        interview.set_interview_date("15.01.2027")


def test_the_topics_are_named_for_a_drill():
    names = list(preparing.topics()["name"])
    assert "fp8" in names and len(names) == len(load_bank().topics)


def test_readiness_and_confidence_are_shown_and_said():
    keep("largest-finite", sure=3)
    keep("running-sum-of-ones", correct=False, sure=3)
    assert "Number formats, 1 of 1 right: screen " in preparing.ready().alt
    assert "A screen (level 1 or 2): " in preparing.ready().caption
    assert "certain: 50 % of 2" in preparing.confidence().alt
    assert "guessing: no answers" in preparing.confidence().alt


def test_of_somebody_unknown_nothing_is_drawn(capsys):
    assert preparing.ready() is None and preparing.confidence() is None
    assert len(capsys.readouterr().out.splitlines()) == 2
