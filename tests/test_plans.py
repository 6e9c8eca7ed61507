"""Plans: what is left to do by Friday, and what the weeks until an interview hold."""

from datetime import UTC, datetime, timedelta

import pytest

from labkit import drills, plans
from labkit.drills import Review
from labkit.questions import load
from tests.questions.small_bank import small_bank

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def review(question, at=NOW, correct=True, mode="drill"):
    return Review(
        at=at, question=question, seed=0, correct=correct, score=float(correct), mode=mode
    )


def test_friday_is_a_diagnostic_five_topics_and_two_mocks():
    steps = plans.friday(load(), [], NOW)
    assert [step.action for step in steps] == ["diagnostic"] + ["drill"] * 5 + ["mock"] * 2
    assert sum(step.minutes for step in steps) == 100
    assert len({step.topic for step in steps if step.topic}) == 5
    known = [review(q.id) for q in load().topics[steps[1].topic].questions]
    assert steps[1].topic not in {step.topic for step in plans.friday(load(), known, NOW)}


def test_a_diagnostic_counts_for_a_week(bank):
    taken = [review("pick", NOW - DAY, mode="diagnostic")]
    steps = plans.friday(bank, taken, NOW)
    assert [step.action for step in steps] == ["drill", "mock", "mock"]
    assert steps[0].topic == "small", "the only topic with a core question"
    old = [review("pick", NOW - 8 * DAY, mode="diagnostic")]
    assert plans.friday(bank, old, NOW)[0].action == "diagnostic"


def test_a_step_says_what_to_run_in_a_notebook_and_in_a_terminal():
    drill = plans.Step("FP8", 10, "drill", "fp8")
    assert drill.cell == 'drill(topics=("fp8",), count=8)'
    assert drill.command == "labkit drill --topic fp8 --count 8"
    assert plans.Step("a mock", 20, "mock").command == "labkit mock"


def test_the_weeks_count_what_falls_due_and_share_out_the_new(bank):
    known = [review("easy", NOW - 3 * DAY), review("pick", NOW - 9 * DAY, correct=False)]
    held = plans.weeks(bank, known, NOW, NOW + 4 * DAY)
    assert [day for day, _ in held.due] == [(NOW + k * DAY).date() for k in range(4)]
    assert sum(count for _, count in held.due) <= 2
    assert held.due[0][1] >= 1, "the missed card is overdue: it counts today"
    core = sum("core" in q.tags for q in drills.unseen(bank, known))
    assert held.unseen == core
    assert held.new_a_day == -(-core // 4)
    with pytest.raises(ValueError, match="after today"):
        plans.weeks(bank, known, NOW, NOW)


def test_a_drill_of_the_core_asks_core_questions_only(bank):
    chosen = drills.session(bank, [], NOW, count=100, core=True)
    assert chosen and all("core" in question.tags for question in chosen)
    assert len(drills.session(load(), [], NOW, count=100, core=True)) == 40
