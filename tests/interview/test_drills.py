"""What is due, and how ready somebody is, follow from reviews, a bank and a moment."""

import math
import re
from datetime import UTC, datetime, timedelta

import fsrs
import pytest

from labkit.base.home import DATA, read_manifest
from labkit.interview import drills, plans, readiness
from labkit.interview.drills import Review, WrongIdeaSeen
from labkit.interview.questions import load_bank
from labkit.labs.engine.misconceptions import misconceptions
from tests.interview.small_bank import SMALL, small_bank

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return small_bank(tmp_path_factory.mktemp("bank"))


def review(question="pick", at=NOW, correct=True, **rest):
    return Review(at=at, question=question, seed=0, correct=correct, score=float(correct), **rest)


@pytest.mark.parametrize(
    ("said", "rated"),
    [
        ({"correct": False, "sure": 3}, fsrs.Rating.Again),
        ({"seconds": 30.0}, fsrs.Rating.Good),
        ({"seconds": 30.0, "hints": 1}, fsrs.Rating.Hard),
        ({"seconds": 30.0, "sure": 1}, fsrs.Rating.Hard),
        ({"seconds": 61.0, "sure": 3}, fsrs.Rating.Hard),
        ({"seconds": 15.0, "sure": 3}, fsrs.Rating.Easy),
        ({"seconds": 15.0, "sure": 2}, fsrs.Rating.Good),
    ],
)
def test_a_rating_follows_from_what_was_seen(said, rated):
    assert drills.rating(review(**said), expected_seconds=30) == rated


def test_the_dates_are_those_of_fsrs(bank):
    reviews = [review(at=NOW, seconds=30.0), review(at=NOW + DAY, seconds=30.0)]
    card, scheduler = fsrs.Card(card_id=1, due=NOW), fsrs.Scheduler(enable_fuzzing=False)
    for each in reviews:
        card, _ = scheduler.review_card(card, fsrs.Rating.Good, each.at)
    just_before, then = card.due - timedelta(seconds=1), card.due
    assert drills.due(bank, reviews, just_before) == []
    (entry,) = drills.due(bank, reviews, then)
    assert entry.question.id == "pick"
    assert entry.since == card.due
    assert entry.recall == pytest.approx(scheduler.get_card_retrievability(card, then))


def test_a_missed_card_comes_back_within_minutes(bank):
    reviews = [review(correct=False)]
    assert drills.due(bank, reviews, NOW) == []
    assert [d.question.id for d in drills.due(bank, reviews, NOW + timedelta(minutes=10))] == [
        "pick"
    ]


def test_a_mistake_in_a_lab_makes_its_cards_due_the_day_after(bank):
    mistakes = [WrongIdeaSeen("exponent-has-no-bias", NOW)]
    assert drills.due(bank, [], NOW + DAY - timedelta(seconds=1), mistakes=mistakes) == []
    (entry,) = drills.due(bank, [], NOW + DAY, mistakes=mistakes)
    assert (entry.question.id, entry.why) == ("false-claim", "exponent-has-no-bias")
    answered = [review("false-claim", NOW + DAY, seconds=45.0)]
    assert drills.due(bank, answered, NOW + DAY, mistakes=mistakes) == []


def test_no_interval_reaches_beyond_the_interview(bank):
    reviews = [review(at=NOW - 30 * DAY, seconds=10.0, sure=3)]
    reviews += [
        review(at=NOW - 20 * DAY, seconds=10.0, sure=3),
        review(at=NOW, seconds=10.0, sure=3),
    ]
    assert drills.due(bank, reviews, NOW + 3 * DAY) == []
    soon = drills.due(bank, reviews, NOW + 3 * DAY, interview=NOW + 4 * DAY)
    assert [d.question.id for d in soon] == ["pick"]


def test_what_is_forgotten_first_by_the_interview_comes_first(bank):
    weak = [review("easy", NOW - 2 * DAY, correct=False)]
    firm = [review("pick", NOW - (9 - i) * DAY, seconds=30.0) for i in range(3)]
    late = NOW + 300 * DAY
    order = [d.question.id for d in drills.due(bank, firm + weak, late, interview=late + DAY)]
    assert order == ["easy", "pick"]


def test_a_sitting_takes_what_is_due_then_what_is_asked_most(bank):
    reviews = [review("easy-3", NOW - DAY, correct=False)]
    chosen = drills.session(bank, reviews, NOW, count=3)
    assert [q.id for q in chosen[:2]] == ["easy-3", "pick"], "due first, then tagged core"
    assert len(chosen) == 3
    assert {q.topic for q in drills.session(bank, [], NOW, count=9, topics=["other"])} == {"other"}
    with pytest.raises(ValueError, match="no topic 'sums'; there are"):
        drills.session(bank, [], NOW, topics=["sums"])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        drills.session(bank, [], NOW, count=0)


def test_reviews_of_a_clock_that_went_backwards_lose_nothing(bank):
    reviews = [review(at=NOW + 400 * DAY, seconds=30.0), review(at=NOW, seconds=30.0)]
    said = drills.clock_trouble(reviews, NOW)
    assert "Nothing is lost" in said.en and "没有丢失" in said.zh
    assert all("2026-11-22 09:00" in text for text in (said.en, said.zh))
    assert drills.clock_trouble([review()], NOW) is None
    assert drills.due(bank, reviews, NOW) == []


def test_of_the_core_what_was_missed_or_never_asked_comes_first(bank):
    core = [q.id for q in bank.questions.values() if "core" in q.tags]
    assert len(core) >= 1
    everything = drills.session(bank, [], NOW, count=99, core=True)
    assert sorted(q.id for q in everything) == sorted(core)
    known = [review(core[0], NOW - 30 * DAY, seconds=30.0)]
    assert drills.session(bank, known, NOW, count=99, core=True)[-1].id == core[0]
    missed = [review(core[-1], NOW - DAY, correct=False)]
    assert drills.session(bank, missed, NOW, count=1, core=True)[0].id == core[-1]


def test_calibration_is_the_share_of_right_answers_at_each_confidence():
    reviews = [review(sure=3), review(sure=3, correct=False), review(sure=1)]
    guessing, fairly, certain = drills.calibration(reviews)
    assert (guessing.answers, guessing.right) == (1, 1.0)
    assert fairly.answers == 0 and math.isnan(fairly.right)
    assert (certain.answers, certain.right) == (2, 0.5)


def test_two_missed_cards_lead_back_to_their_section(bank):
    section = "02_number_formats#Four-bits:-E2M1"
    one = [review("pick", correct=False)]
    assert drills.to_revisit(bank, one) == []
    two = [*one, review("double", correct=False)]
    assert drills.to_revisit(bank, two) == [section]
    mended = [*two, review("double", NOW + DAY)]
    assert drills.to_revisit(bank, mended) == []


def test_the_wrong_ideas_of_an_answer_count_for_the_sections_that_cure_them(bank):
    ideas = ("implied-one-in-subnormals",)
    missed = [review(id, correct=False, misconceptions=ideas) for id in ("easy", "easy-1")]
    assert drills.to_revisit(bank, missed) == ["02_number_formats#Four-bits:-E2M1"]


def in_labs(tmp_path):
    """The small bank three times over: a topic each for labs 00, 02 and 04, which teach it."""
    text = re.sub(r"section = .*\n", "", SMALL)
    for lab, topic in (("00_start_here", "one"), ("02_number_formats", "two"), ("04_x", "four")):
        said = text.replace('topic = "small"', f'topic = "{topic}"').replace(
            'lab = "02_number_formats"', f'lab = "{lab}"'
        )
        said = re.sub(r'(id = "|follow_ups = \[")', rf"\g<1>{topic}-", said)
        said = said.replace("verified = ", f'section = "{lab}#Sums"\nverified = ')
        (tmp_path / f"{topic}.toml").write_text(said, encoding="utf-8")
    return load_bank(tmp_path)


def passed_in(bank):
    """All sections of a bank, those of later labs too."""
    return {question.section for question in bank.questions.values()}


def ids(questions):
    return [question.id for question in questions]


def test_a_warm_up_is_of_earlier_labs_and_short_and_what_is_due_comes_first(tmp_path):
    bank = in_labs(tmp_path)
    everything = passed_in(bank)
    assert ids(
        drills.warm_up_questions(bank, [], NOW, lab="02_number_formats", passed=everything)
    ) == [
        "one-pick",
        "one-easy",
        "one-double",
    ], "core first, then by level, what fits into 90 seconds; no free speech"
    fresh = drills.warm_up_questions(bank, [], NOW, lab="04_x", passed=everything)
    assert ids(fresh)[0] == "two-pick", "the newest lab first"
    missed = [review("one-double", NOW - 5 * DAY, correct=False)]
    later = review("four-easy", NOW - 5 * DAY, correct=False)
    again = drills.warm_up_questions(bank, [*missed, later], NOW, lab="04_x", passed=everything)
    assert ids(again)[0] == "one-double"
    mistake = WrongIdeaSeen("exponent-has-no-bias", NOW - 2 * DAY)
    warm = drills.warm_up_questions(
        bank, [], NOW, lab="04_x", passed=everything, mistakes=[mistake]
    )
    assert set(ids(warm)[:2]) == {"one-false-claim", "two-false-claim"}
    assert drills.warm_up_questions(bank, [], NOW, lab="00_start_here", passed=everything) == []


def test_a_due_question_comes_before_one_that_would_fill_the_time_better(tmp_path):
    bank = in_labs(tmp_path)
    reviews = [review(f"one-{id}", NOW - 5 * DAY, correct=False) for id in ("false-claim", "pick")]
    chosen = drills.warm_up_questions(
        bank, reviews, NOW, lab="02_number_formats", passed=passed_in(bank)
    )
    assert set(ids(chosen[:2])) == {"one-false-claim", "one-pick"}, "75 seconds"
    assert ids(chosen[2:]) == [], "none of 15 seconds"


def test_a_warm_up_asks_only_of_sections_that_were_passed(tmp_path):
    bank = in_labs(tmp_path)
    missed = [review("two-pick", NOW - 5 * DAY, correct=False)]
    passed = {"00_start_here#Sums", "02_number_formats#Other", "04_x#Sums"}
    asked = ids(drills.warm_up_questions(bank, missed, NOW, lab="04_x", passed=passed))
    assert asked == ["one-pick", "one-easy", "one-double"]
    assert drills.warm_up_questions(bank, missed, NOW, lab="04_x", passed=set()) == []


COURSE = load_bank(DATA / "questions")
LABS = read_manifest().labs
ASKED = list(COURSE.questions)
SLOW = [id for id in ASKED if COURSE.questions[id].seconds > 45]
HISTORIES = {
    "nothing": [],
    "all missed": [review(id, NOW - 9 * DAY, correct=False) for id in ASKED],
    "all known, long ago": [review(id, NOW - 99 * DAY) for id in ASKED],
    "all known, today": [review(id, NOW - DAY / 24) for id in ASKED],
    "each other one missed": [review(id, NOW - 9 * DAY, correct=False) for id in ASKED[::2]],
    "slow ones missed": [review(id, NOW - 9 * DAY, correct=False) for id in SLOW],
}
MISTAKES = {
    "no mistakes": [],
    "every mistake": [WrongIdeaSeen(idea, NOW - 2 * DAY) for idea in misconceptions()],
}


def sections_of(*labs, share=1.0):
    """The first sections of labs, those which are not optional."""
    return {
        f"{lab.lab}#{section.section}"
        for lab in labs
        for section in lab.sections[: round(share * len(lab.sections))]
        if not section.optional
    }


PASSED = {
    "nothing": set(),
    "all": sections_of(*LABS),
    "lab 02": sections_of(*[lab for lab in LABS if lab.number == 2]),
    "first halves": sections_of(*LABS, share=0.5),
}


@pytest.mark.parametrize("passed", PASSED)
@pytest.mark.parametrize("mistakes", MISTAKES)
@pytest.mark.parametrize("history", HISTORIES)
def test_no_warm_up_asks_what_was_not_passed_or_takes_more_than_90_seconds(
    history, mistakes, passed
):
    reviews, seen, known = HISTORIES[history], MISTAKES[mistakes], PASSED[passed]
    for lab in (*(lab.lab for lab in LABS), "07_memory"):
        asked = drills.warm_up_questions(COURSE, reviews, NOW, lab=lab, passed=known, mistakes=seen)
        assert len(set(ids(asked))) == len(asked) <= 3
        assert sum(question.seconds for question in asked) <= 90
        for question in asked:
            assert question.section.partition("#")[0] < lab
            assert question.section in known


@pytest.mark.parametrize("lab", [lab.lab for lab in LABS[1:]])
def test_there_is_something_to_ask_before_every_lab(lab):
    assert drills.warm_up_questions(COURSE, [], NOW, lab=lab, passed=PASSED["all"])


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.lab)
def test_say_it_asks_what_sections_of_the_lab_teach(lab):
    asked = drills.questions_to_say(COURSE, lab=lab.lab)
    assert {question.section for question in asked} <= sections_of(lab)
    assert not any(question.program for question in asked)
    if 1 <= lab.number <= 6:
        assert len(asked) == 5 and asked[0].spoken


def test_say_it_begins_with_free_speech_of_that_lab(tmp_path):
    bank = in_labs(tmp_path)
    asked = ids(drills.questions_to_say(bank, lab="02_number_formats", count=3))
    assert asked == ["two-speak", "two-pick", "two-easy"]


def test_a_diagnostic_asks_each_lab_and_names_the_first_with_a_gap(tmp_path):
    bank = in_labs(tmp_path)
    asked = ids(drills.diagnostic_questions(bank, []))
    assert asked == ["two-pick", "two-easy", "four-pick", "four-easy"], "none of lab 00"
    again = ids(drills.diagnostic_questions(bank, [review(id) for id in asked]))
    assert set(again).isdisjoint(asked), "what was asked least comes first"
    one_gap = [review("two-pick"), review("four-pick", correct=False), review("two-easy")]
    assert drills.where_to_start(bank, one_gap) == "04_x"
    rows = drills.by_lab(bank, one_gap)
    assert [(row.lab, row.right, row.asked) for row in rows] == [
        ("02_number_formats", 2, 2),
        ("04_x", 0, 1),
    ]
    assert drills.where_to_start(bank, [review("two-pick")]) is None


def test_reviews_of_a_question_that_left_the_bank_change_nothing(bank):
    known = [review("pick"), review("double", correct=False)]
    gone = review("left-the-bank", correct=False, misconceptions=("left-with-it",))
    logged, later = [gone, *known], NOW + 30 * DAY
    missed = [WrongIdeaSeen("left-with-it", NOW)]
    for found in (
        lambda reviews: drills.due(bank, reviews, later, mistakes=missed),
        lambda reviews: drills.unseen(bank, reviews),
        lambda reviews: drills.diagnostic_questions(bank, reviews),
        lambda reviews: drills.by_lab(bank, reviews),
        lambda reviews: drills.where_to_start(bank, reviews),
        lambda reviews: readiness.readiness(bank, reviews),
        lambda reviews: plans.plan(bank, reviews, later),
    ):
        assert found(logged) == found(known)
