"""Readiness: an expected share of right answers, with an interval that holds what it promises."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from labkit.interview import drills, plans, readiness
from labkit.interview.drills import Review
from labkit.interview.questions import Bank, load_bank
from labkit.interview.readiness import BAR, DEEP_DIVE, ENOUGH, SCREEN, Estimate

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def bank():
    return load_bank()


def review(question, correct=True, at=NOW, **rest):
    return Review(at=at, question=question, seed=0, correct=correct, score=float(correct), **rest)


def asked(bank, topic, levels=(1, 2, 3)):
    return [q.id for q in bank.topics[topic].questions if q.level in levels]


def of_topic(found, topic):
    return next(row for row in found.topics if row.topic == topic)


def test_nothing_answered_is_neither_0_nor_certain(bank):
    found = readiness.readiness(bank, [])
    assert found.answered == 0 and len(found.topics) == len(bank.topics)
    for row in found.topics:
        for estimate in filter(None, (row.screen, row.deep_dive)):
            assert 0.2 < estimate.share < 0.8 and estimate.high - estimate.low > 0.4
            assert estimate.verdict is None
    said = readiness.summed_up(found, bank)
    assert "nothing is known" in said.en and "无从估计" in said.zh and "%" not in said.en


def test_right_answers_raise_their_topic_most_and_narrow_it(bank):
    before = readiness.readiness(bank, [])
    found = readiness.readiness(bank, [review(id) for id in asked(bank, "fp8")])
    raised = {
        row.topic: row.screen.share - of_topic(before, row.topic).screen.share
        for row in found.topics
        if row.screen
    }
    assert max(raised, key=raised.get) == "fp8"
    assert min(raised.values()) > 0, "who knows FP8 knows other things too"
    narrow, wide = of_topic(found, "fp8").screen, of_topic(found, "memory").screen
    assert narrow.high - narrow.low < wide.high - wide.low
    row = of_topic(found, "fp8")
    judged = sum(not question.spoken for question in bank.topics["fp8"].questions)
    assert row.answered == row.right == judged == found.answered


def test_a_deep_dive_is_harder_than_a_screen(bank):
    found = readiness.readiness(bank, [])
    rows = [row for row in found.topics if row.screen and row.deep_dive]
    assert rows and all(row.deep_dive.share < row.screen.share for row in rows)
    easy = [review(id) for id in asked(bank, "rounding", SCREEN)]
    hard = [review(id, correct=False) for id in asked(bank, "rounding", DEEP_DIVE)]
    row = of_topic(readiness.readiness(bank, easy + hard), "rounding")
    before = next(each for each in rows if each.topic == "rounding")
    fell = before.deep_dive.share - row.deep_dive.share
    assert fell > before.screen.share - row.screen.share
    assert row.deep_dive.verdict == "fail"


def test_the_first_answer_to_a_question_counts_and_what_was_practised_stands_apart(bank):
    fp8 = asked(bank, "fp8", SCREEN)
    firsts = [review(id, correct=place % 2 == 0) for place, id in enumerate(fp8)]
    learned = [review(id, at=NOW + DAY) for id in fp8]
    alone, after = (readiness.readiness(bank, each) for each in (firsts, firsts + learned))
    assert (after.screen, after.topics) == (alone.screen, alone.topics)
    assert (after.practised, after.still_right) == (after.answered, after.answered)
    assert alone.practised == 0
    earlier = learned + firsts  # as an import writes them
    assert readiness.readiness(bank, earlier) == after, "the first is the earliest"
    said = readiness.summed_up(after, bank)
    share = f"{100 * after.right / after.answered:.0f} %"
    assert share in said.en and share in said.zh and "100 %" in said.en
    assert readiness.readiness(bank, [review("no-such-question")]).answered == 0


def test_an_answer_that_needed_a_hint_is_not_right(bank):
    id = asked(bank, "fp8")[0]
    found = readiness.readiness(bank, [review(id, hints=1)])
    assert (found.answered, found.right) == (1, 0)
    assert found.screen == readiness.readiness(bank, [review(id, correct=False)]).screen


def questions_of(step, bank, reviews, now):
    if step.action == "diagnostic":
        return drills.diagnostic_questions(bank, reviews)
    if step.action == "mock":
        return list(bank.questions.values())[:10]
    return drills.session(bank, reviews, now, count=step.count, topics=step.topics, core=True)


def test_after_a_perfect_plan_it_is_high_and_wide_where_little_was_asked(bank):
    reviews, now = [], NOW
    while steps := plans.plan(bank, reviews, now).steps:
        questions = questions_of(steps[0], bank, reviews, now)
        now += timedelta(minutes=steps[0].minutes)
        reviews += [review(q.id, at=now, mode=steps[0].action) for q in questions]
    found = readiness.readiness(bank, reviews)
    assert found.screen.verdict == found.deep_dive.verdict == "pass"
    assert {row.topic for row in found.topics if row.answered} >= {
        "fp8", "quantization", "distributed", "memory", "debugging",
    }  # fmt: skip
    dives = [row.deep_dive for row in found.topics if row.deep_dive]
    assert min(each.share for each in dives) > BAR
    assert max(each.high - each.low for each in dives) > 0.1
    said = readiness.summed_up(found, bank)
    assert "you would pass" in said.en and "可以通过" in said.zh


def test_it_says_on_what_a_deep_dive_fails(bank):
    weak = ("fp8", "distributed")
    reviews = [
        review(q.id, correct=q.topic not in weak or q.level == 1) for q in bank.questions.values()
    ]
    found = readiness.readiness(bank, reviews)
    said = readiness.summed_up(found, bank)
    assert "A screen (level 1 or 2): " in said.en and "you would pass" in said.en
    failing = said.en.partition("A deep dive would fail on: ")[2]
    assert all(bank.topics[topic].title.en in failing for topic in weak)
    assert bank.topics["formats"].title.en not in failing
    assert bank.topics["fp8"].title.zh in said.zh


def test_a_verdict_needs_the_whole_interval_on_one_side():
    assert Estimate(0.8, 0.71, 0.9, ENOUGH).verdict == "pass"
    assert Estimate(0.8, 0.69, 0.9, ENOUGH).verdict == "open"
    assert Estimate(0.5, 0.3, 0.69, ENOUGH).verdict == "fail"
    assert Estimate(0.8, 0.71, 0.9, ENOUGH - 1).verdict is None
    assert Estimate(0.834, 0.71, 0.9, 1).percent == "83 % (71–90)"


def test_a_guess_of_one_option_in_four_proves_little(bank):
    questions = [q for q in bank.questions.values() if q.form == "choice" and q.level == 2]
    typed = [q for q in bank.questions.values() if q.form == "numeric" and q.level == 2]
    assert all(readiness.guess(q) == 1 / len(q.entries) for q in questions)
    assert readiness.guess(typed[0]) == 0


# Learners of known skill: how often their true share lies in the interval of 80 %.

_LEARNERS = 500


def as_assumed(rng, topics):
    """Skills and difficulties as the model assumes them."""
    mean = rng.normal(0, readiness._LEARNERS)
    skills = {topic: rng.normal(mean, readiness._TOPICS) for topic in topics}
    deep = {topic: skill + rng.normal(0, readiness._DEPTHS) for topic, skill in skills.items()}
    return skills, deep, lambda: rng.normal(0, readiness._QUESTIONS)


def otherwise(rng, topics):
    """Skills spread evenly, difficulties too: what the model does not assume."""
    mean = rng.uniform(-2, 2)
    skills = {topic: mean + rng.uniform(-1.4, 1.4) for topic in topics}
    deep = {topic: skill + rng.uniform(-1.4, 1.4) for topic, skill in skills.items()}
    return skills, deep, lambda: rng.uniform(-1.4, 1.4)


def small(bank):
    """Six topics of the bank, so that 500 learners take seconds."""
    kept = dict(list(bank.topics.items())[:6])
    topics = {name: replace(topic, questions=topic.questions[:16]) for name, topic in kept.items()}
    return Bank(topics, {q.id: q for topic in topics.values() for q in topic.questions})


@pytest.mark.parametrize("population", [as_assumed, otherwise])
def test_an_interval_of_80_percent_holds_the_truth_in_80_percent(bank, population):
    bank, rng = small(bank), np.random.default_rng(20261123)
    questions = list(bank.questions.values())
    core = [q for q in questions if "core" in q.tags]
    held = defaultdict(list)
    for _ in range(_LEARNERS):
        *skills, difficulty = population(rng, bank.topics)
        away = {
            q.id: skills[q.level == 3][q.topic] - (q.level - 2) - difficulty() for q in questions
        }
        lucky = {q.id: readiness.guess(q) for q in questions}
        true = {id: lucky[id] + (1 - lucky[id]) / (1 + np.exp(-away[id])) for id in away}
        drawn = rng.choice(len(questions), rng.integers(10, 40), replace=False)
        answers = [
            review(q.id, correct=bool(rng.random() < true[q.id]))
            for q in (questions[number] for number in drawn)
        ]
        found = readiness.readiness(bank, answers)
        rows = [("all", core, found.screen, found.deep_dive)]
        for row in found.topics:
            of_it = bank.topics[row.topic].questions
            rows.append(("topic", of_it, row.screen, row.deep_dive))
        for kind, of_it, *estimates in rows:
            for estimate, levels in zip(estimates, (SCREEN, DEEP_DIVE), strict=True):
                if estimate:
                    share = np.mean([true[q.id] for q in of_it if q.level in levels])
                    held[kind].append(estimate.low <= share <= estimate.high)
    assert 0.76 <= np.mean(held["all"]) <= 0.84
    assert 0.76 <= np.mean(held["topic"]) <= 0.84
