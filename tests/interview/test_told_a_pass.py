"""Who is told that he would pass: learners with a memory, with understanding, with neither."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from labkit.interview import drills, mock, plans
from labkit.interview.drills import Review
from labkit.interview.mock import Mock
from labkit.interview.mock_report import report_markdown
from labkit.interview.questions import load_bank
from labkit.interview.readiness import ENOUGH, readiness, summed_up
from tests.interview.prove import right_answer

BANK = load_bank()
NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
PASSES = ("you would pass.", "可以通过。")


class Learner:
    """Right with chance ``knows`` on a new question; a card that was shown is remembered with
    chance 0.85. All speech is ticked."""

    def __init__(self, knows, seed):
        self.knows, self.chance = knows, random.Random(seed)
        self.reviews, self.now = [], NOW

    def right(self, question):
        shown = any(review.question == question.id for review in self.reviews)
        remembers = shown and self.chance.random() < 0.85
        return question.spoken or remembers or self.chance.random() < self.knows

    def answer(self, questions, mode="drill"):
        self.now += timedelta(minutes=20)
        for question in questions:
            right = self.right(question)
            self.reviews.append(
                Review(
                    at=self.now, question=question.id, seed=0, correct=right, score=float(right),
                    mode=mode,
                )
            )  # fmt: skip

    def drill(self, many):
        while len(self.reviews) < many:
            self.answer(drills.session(BANK, self.reviews, self.now, count=10))
            self.now += timedelta(hours=8)

    def follow_the_plan(self):
        while left := plans.plan(BANK, self.reviews, self.now).steps:
            step = left[0]
            if step.action == "diagnostic":
                self.answer(drills.diagnostic_questions(BANK, self.reviews), "diagnostic")
            elif step.action == "mock":
                self.mock(seed=len(self.reviews))
            else:
                how = {"count": step.count, "topics": step.topics, "core": True}
                self.answer(drills.session(BANK, self.reviews, self.now, **how))

    def mock(self, seed):
        """The report of a mock; programs are not known."""
        held, past = Mock(seed=seed), list(self.reviews)
        while asked := mock.next_turn(held, BANK):
            question = asked.card.question
            said = None
            if question.spoken:
                said = "in a line"
            elif self.right(question) and not question.program:
                said = right_answer(asked.card)
            held = mock.with_answer(held, asked, said)
        for place, turn in enumerate(held.turns):
            question = BANK.asked(turn.question)
            if question.spoken:
                held = mock.with_ticks(held, place, range(1, len(question.rubric) + 1))
        self.now += timedelta(minutes=20)
        self.reviews += mock.reviews_of_mock(held, BANK, self.now)
        return mock.report(held, BANK, past)

    def told(self):
        return summed_up(readiness(BANK, self.reviews), BANK)


def is_a_pass(said):
    found = [word in text for word, text in zip(PASSES, (said.en, said.zh), strict=True)]
    assert found[0] == found[1], "both languages say the same"
    return found[0]


@pytest.mark.parametrize("seed", range(2))
def test_who_remembers_cards_and_understands_nothing_is_never_told_that_he_would_pass(seed):
    learner = Learner(0.33, seed)
    for many in (10, 30, 60, 200):
        learner.drill(many)
        assert not is_a_pass(learner.told())
    found = readiness(BANK, learner.reviews)
    assert found.still_right / found.practised > 0.8, "he does remember"
    assert found.screen.verdict == "fail" and found.right / found.answered < 0.5
    told = report_markdown(learner.mock(seed), BANK, "en")
    assert not any(word in told for word in PASSES)


@pytest.mark.parametrize("seed", range(2))
def test_nor_after_the_whole_plan_whose_core_he_then_remembers(seed):
    learner = Learner(0.33, seed)
    learner.follow_the_plan()
    core = {q.id for q in BANK.questions.values() if "core" in q.tags}
    newest = {review.question: review.correct for review in learner.reviews}
    assert all(newest[id] for id in core)
    assert not is_a_pass(learner.told())
    said = plans.plan(BANK, learner.reviews, learner.now).text("en", lambda step: step.command)
    assert "pass" not in said


@pytest.mark.parametrize("seed", range(2))
def test_who_understands_is_told_so_by_ready_and_by_a_mock(seed):
    learner = Learner(0.95, seed)
    learner.drill(60)
    assert readiness(BANK, learner.reviews).screen.verdict == "pass"
    assert is_a_pass(learner.told())
    learner.follow_the_plan()
    learner.answer([question for question in BANK.questions.values() if question.level == 3])
    found = readiness(BANK, learner.reviews)
    assert found.screen.verdict == found.deep_dive.verdict == "pass"
    assert PASSES[0] in report_markdown(learner.mock(seed), BANK, "en")


def test_a_mock_alone_gives_a_verdict_on_no_round_with_fewer_than_eight_new_answers():
    for seed in range(4):
        learner = Learner(1.0, seed)
        told = learner.mock(seed)
        for estimate, levels in ((told.ready.screen, (1, 2)), (told.ready.deep_dive, (3,))):
            asked = [BANK.questions.get(review.question) for review in learner.reviews]
            judged = [q for q in asked if q and not q.spoken and q.level in levels]
            assert estimate.answers == len(judged)
            assert (estimate.verdict is None) == (len(judged) < ENOUGH)


def test_seven_speeches_that_were_ticked_give_no_verdict_and_no_share():
    learner = Learner(1.0, 0)
    learner.answer([q for q in BANK.questions.values() if q.spoken][:7])
    found = readiness(BANK, learner.reviews)
    assert (found.answered, found.ticked) == (0, 7)
    assert found.screen.verdict is None and found.deep_dive.verdict is None
    said = learner.told()
    assert "7" in said.en and "7" in said.zh and "%" not in said.en + said.zh
