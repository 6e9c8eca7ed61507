"""Plans: what is left to do by Friday, and what the weeks until an interview hold."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from labkit.interview import drills, plans
from labkit.interview.drills import Review
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank, load_bank
from tests.interview.small_bank import small_bank

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def review(question, at=NOW, correct=True, mode="drill"):
    return Review(
        at=at, question=question, seed=0, correct=correct, score=float(correct), mode=mode
    )


def test_the_last_days_are_a_diagnostic_the_whole_core_and_two_mocks():
    bank = load_bank()
    steps = plans.plan(bank, [], NOW).steps
    drills_ = [step for step in steps if step.action == "drill"]
    assert [step.action for step in steps] == [
        "diagnostic", *["drill"] * len(drills_), "mock", "mock",
    ]  # fmt: skip
    core = [q for q in bank.questions.values() if "core" in q.tags]
    topics = [topic for step in drills_ for topic in step.topics]
    assert len(topics) == len(set(topics)) and set(topics) == {q.topic for q in core}
    assert {"fp8", "quantization", "distributed", "memory", "debugging"} <= set(topics)
    for step in drills_:
        asked = drills.session(bank, [], NOW, count=step.count, topics=step.topics, core=True)
        assert sorted(q.id for q in asked) == sorted(q.id for q in core if q.topic in step.topics)
        assert step.minutes == -(-sum(q.seconds for q in asked) // 60)
        assert step.minutes <= 15 or len(step.topics) == 1


def with_lab_07(bank):
    """The bank with a topic whose questions are those of lab 06, asked of a lab 07."""
    topic = bank.topics["hardware"]
    moved = [
        q.model_copy(update={"id": f"{q.id}-7", "lab": "07_memory"})
        for q in bank.questions.values()
        if q.lab == "06_hardware_and_benchmarks"
    ]
    more = replace(topic, topic="memory-7", questions=tuple(moved))
    return Bank({**bank.topics, "memory-7": more}, {**bank.questions, **{q.id: q for q in moved}})


def test_the_diagnostic_says_how_much_it_asks_also_with_a_lab_more():
    written = {question.lab for question in load_bank().questions.values() if question.lab}
    for bank, labs in ((load_bank(), len(written) - 1), (with_lab_07(load_bank()), len(written))):
        step = plans.plan(bank, [], NOW).steps[0]
        asked = drills.diagnostic_questions(bank, [])
        assert len({question.lab for question in asked}) == labs, "all but lab 00"
        assert f"{labs + 6} questions" in step.what.en and f"{labs} labs" in step.what.en
        assert step.minutes == -(-sum(question.seconds for question in asked) // 60)


def test_what_was_missed_comes_before_what_was_never_asked():
    bank = load_bank()
    missed = list(bank.topics["quantization"].questions)[:2]
    known = [review(q.id, mode="diagnostic") for q in bank.topics["formats"].questions]
    taken = [review(q.id, correct=False, mode="diagnostic") for q in missed] + known
    steps = plans.plan(bank, taken, NOW).steps
    assert steps[0].topics[0] == "quantization"
    assert "formats" not in {topic for step in steps for topic in step.topics}
    core = next(q for q in bank.topics["fp8"].questions if "core" in q.tags)

    def asked(reviews):
        return sum(step.count for step in plans.plan(bank, reviews, NOW).steps)

    assert asked([review(core.id)]) == asked([]) - 1
    assert asked([review(core.id, correct=False)]) == asked([])
    assert asked([review(core.id, at=NOW - 8 * DAY)]) == asked([]), "that is long ago"


def test_the_plan_ends():
    bank, reviews, now, minutes = load_bank(), [], NOW, 0
    while steps := plans.plan(bank, reviews, now).steps:
        step, left = steps[0], len(steps)
        if step.action == "drill":
            asked = drills.session(
                bank, reviews, now, count=step.count, topics=step.topics, core=True
            )
        else:
            asked = bank.topics["basics"].questions
        now += timedelta(minutes=step.minutes)
        minutes += step.minutes
        reviews += [review(q.id, now, mode=step.action) for q in asked]
        assert len(plans.plan(bank, reviews, now).steps) == left - 1
    core = {q.id for q in bank.questions.values() if "core" in q.tags}
    assert core <= {review.question for review in reviews}, "the whole core is asked"
    assert minutes == sum(step.minutes for step in plans.plan(bank, [], NOW).steps)
    assert plans.plan(bank, reviews, NOW + 9 * DAY).steps, "a week later it begins again"


def test_a_step_says_what_to_run_in_a_notebook_and_in_a_terminal():
    said = Text(en="FP8", zh="FP8")
    drill = plans.Step(said, 10, "drill", ("fp8",), 3)
    assert drill.cell == "drill(topics=('fp8',), core=True, count=3)"
    assert drill.command == "python -m labkit drill --core --topic fp8 --count 3"
    assert plans.Step(said, 20, "mock").command == "python -m labkit mock"
    assert plans.Step(said, 9, "daily", count=7).cell == "drill(count=7)"


def test_where_nothing_is_known_the_topics_of_the_first_labs_come_first():
    bank = load_bank()
    steps = [step for step in plans.plan(bank, [], NOW).steps if step.action == "drill"]
    labs = [bank.topics[topic].lab for step in steps for topic in step.topics]
    assert labs == sorted(labs) and steps[0].topics[0] == "concepts"


def test_on_the_day_itself_half_an_hour_is_left():
    bank = load_bank()
    steps = plans.plan(bank, [], NOW, NOW).steps
    assert {step.action for step in steps} == {"drill"}
    assert 15 <= sum(step.minutes for step in steps) <= 30
    missed = [review(q.id, correct=False) for q in bank.topics["fp8"].questions[:3]]
    assert plans.plan(bank, missed, NOW, NOW).steps[0].topics[0] == "fp8"


@pytest.mark.parametrize("days", [1, 2, 6])
def test_within_six_days_the_steps_are_spread_over_the_days(days):
    bank = load_bank()
    plain = plans.plan(bank, [], NOW).steps
    spread = plans.plan(bank, [], NOW, NOW + days * DAY).steps
    assert [replace(step, when=None) for step in spread] == list(plain)
    names = list(dict.fromkeys(step.when.en for step in spread))
    assert len(names) == days and names[:2] == ["today", "tomorrow"][:days]
    assert str((NOW + days * DAY).date()) not in names
    most = max(step.minutes for step in plain)
    for name in names:
        minutes = sum(step.minutes for step in spread if step.when.en == name)
        assert minutes <= sum(step.minutes for step in plain) / days + most


def test_weeks_before_it_is_a_drill_each_day_and_a_mock_each_week():
    bank, day = load_bank(), NOW + 22 * DAY
    first = plans.plan(bank, [], NOW, day).steps
    assert [step.action for step in first] == ["diagnostic", "daily", "mock", "plan"]
    begun = [
        review("largest-finite", NOW - DAY, mode="diagnostic"),
        review("ridge-point", NOW - DAY, mode="mock"),
    ]
    later = plans.plan(bank, begun, NOW, day).steps
    assert [step.action for step in later] == ["daily", "plan"]
    assert later[-1].minutes == sum(step.minutes for step in plans.plan(bank, [], NOW).steps)
    turn = NOW + 16 * DAY
    assert str(turn.date()) in later[-1].when.en
    assert "plan" not in {step.action for step in plans.plan(bank, begun, turn, day).steps}


def test_the_daily_drill_sees_the_core_once_before_the_interview(bank):
    missed = [review(id, NOW - 3 * DAY, correct=False) for id in list(bank.questions)[:25]]
    step = next(s for s in plans.plan(bank, missed, NOW, NOW + 9 * DAY).steps if s.count)
    held = plans.weeks(bank, missed, NOW, NOW + 9 * DAY)
    assert step.count >= held.due[0][1] + held.new_a_day >= 25


def test_a_plan_for_a_day_that_is_past_is_refused(bank):
    with pytest.raises(ValueError, match="before today, 2026-11-22; got 2026-11-21"):
        plans.plan(bank, [], NOW, NOW - DAY)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_plan_in_words_holds_each_step_and_what_to_run(language):
    for interview in (None, NOW, NOW + 2 * DAY, NOW + 22 * DAY):
        plan = plans.plan(load_bank(), [], NOW, interview)
        lines = plan.text(language, lambda step: step.command).splitlines()
        for step in plan.steps:
            place = next(i for i, line in enumerate(lines) if step.what[language] in line)
            assert lines[place + 1].strip() == step.command


def test_the_weeks_count_what_falls_due_and_share_out_the_new(bank):
    known = [review("easy", NOW - 3 * DAY), review("pick", NOW - 9 * DAY, correct=False)]
    held = plans.weeks(bank, known, NOW, NOW + 4 * DAY)
    assert [day for day, _ in held.due] == [(NOW + k * DAY).date() for k in range(4)]
    assert sum(count for _, count in held.due) <= 2
    assert held.due[0][1] >= 1, "the missed card is overdue: it counts today"
    core = sum("core" in q.tags for q in drills.unseen(bank, known))
    assert held.unseen == core
    assert held.new_a_day == -(-core // 4)
    assert plans.weeks(bank, known, NOW, NOW).due[0][0] == NOW.date(), "the day itself"
    with pytest.raises(ValueError, match="before today"):
        plans.weeks(bank, known, NOW, NOW - DAY)


def test_a_drill_of_the_core_asks_core_questions_only(bank):
    chosen = drills.session(bank, [], NOW, count=100, core=True)
    assert chosen and all("core" in question.tags for question in chosen)
    core = {q.id for q in load_bank().questions.values() if "core" in q.tags}
    assert core == {q.id for q in drills.session(load_bank(), [], NOW, count=len(core), core=True)}
