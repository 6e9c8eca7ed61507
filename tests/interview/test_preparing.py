"""Where a learner stands: tables and pictures follow the log, and say so in words."""

from datetime import UTC, datetime, timedelta

import pytest

from labkit.interview import log as interview
from labkit.interview import preparing
from labkit.interview.drills import Review
from labkit.interview.questions import load


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


def test_the_friday_plan_names_cells_that_run():
    plan = preparing.friday_plan()
    assert plan["run"].iloc[0] == "diagnostic()" and plan["run"].iloc[-1] == "mock_interview()"
    for cell in plan["run"]:
        compile(cell, "a cell", "eval")
    keep("largest-finite", mode="diagnostic")
    assert "diagnostic()" not in list(preparing.friday_plan()["run"])


def test_the_weeks_follow_the_date():
    assert "in four weeks (no date is set)" in preparing.weeks_plan().caption
    interview.set_interview_date((datetime.now(UTC) + timedelta(days=10)).date().isoformat())
    keep("largest-finite", correct=False, days_ago=2)
    picture = preparing.weeks_plan()
    unseen = sum("core" in question.tags for question in load().questions.values()) - 1
    assert f"{unseen} core questions are unseen" in picture.caption
    pace = "until the interview", f": {-(-unseen // 10)}."  # ten days, rounded up
    assert [part for part in pace if part not in picture.caption] == []
    today = datetime.now(UTC)
    assert f"{today.day} {today:%b}: 1" in picture.alt
    with pytest.raises(ValueError, match="2027"):
        interview.set_interview_date("15.01.2027")


def test_the_topics_are_named_for_a_drill():
    names = list(preparing.topics()["name"])
    assert "fp8" in names and len(names) == len(load().topics)


def test_readiness_and_confidence_are_shown_and_said():
    keep("largest-finite", sure=3)
    keep("running-sum-of-ones", correct=False, sure=3)
    seen = f"Number formats, 1 of {len(load().topics['formats'].questions)} seen: screen "
    assert seen in preparing.ready().alt
    assert "A screen: " in preparing.ready().caption
    assert "certain: 50 % of 2" in preparing.confidence().alt
    assert "guessing: no answers" in preparing.confidence().alt
