"""Reviews, mocks and settings in the learner's log: nothing lost, nothing doubled."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from labkit.base import progress
from labkit.base.progress import ProgressError
from labkit.interview import log as interview
from labkit.interview import sittings
from labkit.interview.drills import Review
from labkit.interview.readiness import readiness
from labkit.interview.sittings import ANSWERED, ASKING, DONE, TICKING, DrillSitting, MockSitting
from tests.interview.prove import right_answer
from tests.interview.small_bank import small_bank

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.delenv("LABKIT_LANGUAGE", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "progress.db"


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def review(at=NOW, question="pick", **rest):
    fields = {"seed": 3, "correct": True, "score": 1.0, "sure": 3, "hints": 1, "seconds": 4.5}
    return Review(at=at, question=question, **{**fields, **rest})


def answer_all(sitting):
    while sitting.state != DONE:
        if sitting.state == ASKING:
            free = sitting.card.question.spoken
            sitting.submit("summed up" if free else right_answer(sitting.card), sure=3)
        elif sitting.state == TICKING:
            sitting.tick([1, 2])
        else:
            sitting.next()


def test_a_review_comes_back_as_it_was():
    kept = review(misconceptions=("exponent-has-no-bias",), mode="mock")
    assert interview.keep(kept) is None
    assert interview.reviews() == [kept]


def test_reviews_go_to_another_machine_once(tmp_path, monkeypatch):
    told = [review(), review(NOW + timedelta(hours=1), "easy", correct=False, score=0.0)]
    for each in told:
        interview.keep(each)
    file = tmp_path / "reviews.json"
    assert interview.export_reviews(file) == 2
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "other"))
    assert interview.import_reviews(file) == (2, 0)
    assert interview.import_reviews(file) == (0, 2)
    assert interview.reviews() == told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["reviews"][1].pop("seed"), "review 2: seed"),
        (lambda c: c["reviews"][1].update(sure=4), "review 2: sure"),
        (lambda c: c["reviews"][1].update(sure=-1), "review 2: sure"),
        (lambda c: c["reviews"][1].update(score=1.1), "review 2: score"),
        (lambda c: c["reviews"][1].update(score=-0.1), "review 2: score"),
        (lambda c: c["reviews"][1].update(correct="yes"), "review 2: correct"),
        (lambda c: c["reviews"][1].update(question=7), "review 2: question"),
        (lambda c: c["reviews"][1].update(mood="good"), "review 2: mood"),
        (lambda c: c["reviews"].append("none"), "review 3"),
        (lambda c: c["reviews"][1].update(at="yesterday"), "review 2: at"),
        (lambda c: c["reviews"][1].update(at="2026-11-22T09:00:00"), "review 2: at: .*timezone"),
        (lambda c: c.update({"labkit reviews": 9}), "is no export of reviews"),
    ],
)
def test_of_a_wrong_export_nothing_is_added(tmp_path, monkeypatch, change, said):
    for hour in range(2):
        interview.keep(review(NOW + timedelta(hours=hour)))
    file = tmp_path / "reviews.json"
    interview.export_reviews(file)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "other"))
    with pytest.raises(ValueError, match=said):
        interview.import_reviews(file)
    assert interview.reviews() == []


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match="is no export"):
        interview.import_reviews(tmp_path / "x.json")


def test_a_foreign_database_is_said_and_left_alone(log, bank):
    log.parent.mkdir()
    log.write_bytes(b"not a database, but somebody's file" * 40)
    before = log.read_bytes()
    with pytest.raises(ProgressError, match="Nothing in it was changed"):
        interview.reviews()
    sitting = DrillSitting(bank, [bank.questions["pick"]])
    sitting.submit("this")
    assert "not recorded" in sitting.trouble
    assert sitting.judgement.correct, "the drill goes on"
    assert log.read_bytes() == before


def test_the_language_and_the_date_are_kept(monkeypatch):
    assert interview.language() == "en"
    interview.set_language("zh")
    assert interview.language() == "zh"
    monkeypatch.setenv("LABKIT_LANGUAGE", "en")
    assert interview.language() == "en"
    with pytest.raises(ValueError, match="one of en, zh, got 'de'"):
        interview.set_language("de")
    assert interview.interview_date() is None
    interview.set_interview_date(date(2999, 1, 2))
    assert interview.interview_date() == datetime(2999, 1, 2, 9, tzinfo=UTC)
    interview.set_interview_date(date(2020, 1, 2))
    assert interview.interview_date() is None, "it is past"


def test_mistakes_of_labs_are_found():
    ideas = ["exponent-has-no-bias"]
    progress.record("check", lab="02", item="ulp", status="failed", now=NOW, misconceptions=ideas)
    progress.record("prediction", lab="02", item="p", status="right", now=NOW, misconceptions=[])
    (found,) = interview.mistakes()
    assert (found.misconception, found.at) == ("exponent-has-no-bias", NOW)


def test_a_drill_keeps_each_answer_and_its_verdict(bank):
    sitting = DrillSitting(bank, [bank.questions[id] for id in ("pick", "double", "speak")])
    sitting.hint()
    assert sitting.shown_hints()[0].en == "Not the first that comes to mind."
    assert sitting.hint() is None
    sitting.submit("that")
    assert sitting.state == ANSWERED
    assert sitting.judgement.said.en == "That has an implied one."
    sitting.next()
    n = sitting.card.values["n"]
    sitting.submit([str(n)])
    assert sitting.judgement.said.en == f"That is {n} itself."
    sitting.next()
    sitting.submit("this, for one")
    assert sitting.state == TICKING
    sitting.tick([1])
    kept = interview.reviews()
    assert [r.question for r in kept] == ["pick", "double", "speak"]
    assert [r.score for r in kept] == [0.0, 0.0, 0.75]
    assert kept[0].hints == 1 and kept[0].misconceptions == ("implied-one-in-subnormals",)
    assert sitting.sections() == ["02_number_formats#Four-bits:-E2M1"]
    sitting.next()
    assert sitting.state == DONE


def test_a_question_seen_before_draws_new_numbers(bank):
    first = DrillSitting(bank, [bank.questions["double"]])
    first.submit(None)
    again = DrillSitting(bank, [bank.questions["double"]], interview.reviews())
    assert again.card.seed == first.card.seed + 1 and again.card.values != first.card.values


def test_a_mock_that_was_broken_off_goes_on_where_it_was(bank):
    sitting = sittings.new_mock(bank, minutes=10, seed=11)
    for _ in range(2):
        sitting.submit(None if sitting.card.question.spoken else right_answer(sitting.card))
    resumed = sittings.resumed(bank)
    assert resumed.mock == sitting.mock
    assert resumed.asked == sitting.asked
    answer_all(resumed)
    assert sittings.resumed(bank) is None, "it is finished"
    kept = interview.reviews()
    assert len(kept) == len(resumed.mock.turns) and {r.mode for r in kept} == {"mock"}
    assert resumed.report().score == 1.0
    assert resumed.report().ready == readiness(bank, kept), "the mock and `ready` say the same"
    (held,) = resumed.trend()
    assert (held.answers, held.score) == (len(kept), 1.0)


def older_mock(bank, name, *turns):
    """A mock as it stood in the log when it had a length."""
    progress.record(
        "mock", lab="interview", item=name, status="started", seed=3, length=5, minutes=10.0
    )
    for place, (question, answer) in enumerate(turns):
        progress.record(
            "mock", lab="interview", item=name, status="turn", place=place, question=question,
            seed=0, move="premise", answer=answer, sure=2, seconds=5.0, ticked=None,
        )  # fmt: skip


def test_a_mock_of_an_older_version_is_closed_and_its_answers_count(bank):
    older_mock(bank, "3-old", ("easy", ["2"]), ("gone", "1"))
    older_mock(bank, "4-old")
    assert sittings.resumed(bank) is None
    new = sittings.new_mock(bank, minutes=5, seed=1)
    assert "2 mocks of an older version" in new.introduction.en and "2 次" in new.introduction.zh
    assert [(r.question, r.correct) for r in interview.reviews()] == [("easy", True)]
    again = sittings.new_mock(bank, minutes=5, seed=2)
    assert again.introduction == again.asked.introduction, "it is said once"


def test_ticking_is_kept_too(bank):
    sitting = sittings.new_mock(bank, minutes=10, seed=2)
    while sitting.state == ASKING:
        free = sitting.card.question.spoken
        sitting.submit("in a line" if free else right_answer(sitting.card))
    assert sitting.state == TICKING
    resumed = sittings.resumed(bank)
    assert (resumed.state, resumed.speech) == (TICKING, "in a line")
    resumed.tick([2])
    assert isinstance(resumed, MockSitting) and resumed.state == DONE


def test_a_mock_of_questions_that_the_bank_lost_is_not_resumed(bank, tmp_path):
    sitting = sittings.new_mock(bank, minutes=5, seed=2)
    sitting.submit(None)
    lost = {id: q for id, q in bank.questions.items() if id != sitting.mock.turns[0].question}
    assert sittings.resumed(type(bank)(bank.topics, lost)) is None


def test_today_is_what_is_due_then_what_is_new(bank):
    chosen = sittings.todays(bank, count=2)
    assert chosen.questions[0].id == "pick"
    assert sittings.todays(bank, count=50).length == len(bank.questions)
