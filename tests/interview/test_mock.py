"""The path of a mock interview follows from its seed and the answers."""

import math
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from labkit.__main__ import parse
from labkit.interview import drills, mock
from labkit.interview.cards import draw
from labkit.interview.drills import Review
from labkit.interview.mock import Mock, Turn, next_turn, report, with_answer, with_ticks
from labkit.interview.mock_report import report_markdown
from labkit.interview.question_parts import BankError, Unclear
from labkit.interview.questions import load_bank
from labkit.labs.texts import LANGUAGES
from tests.interview.prove import right_answer
from tests.interview.small_bank import SMALL, small_bank

COURSE = load_bank()
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return small_bank(tmp_path_factory.mktemp("bank"))


def hold(settings, bank, said="right", seconds=1.0, most=1000):
    """Answer turn after turn; ``said`` is "right", or None for "I do not know"."""
    done = settings
    while len(done.turns) < most and (asked := next_turn(done, bank)):
        question = asked.card.question
        answer = said
        if question.spoken:
            answer = "summed up"
        elif said == "right":
            answer = None if question.program else right_answer(asked.card)
        done = with_answer(done, asked, answer, seconds=seconds)
    return done


def asked_in(settings, bank, **how):
    """Each turn of an interview as it was asked."""
    done = hold(settings, bank, **how)
    return [
        next_turn(replace(done, turns=done.turns[:place]), bank) for place in range(len(done.turns))
    ]


# The clock


@pytest.mark.parametrize("said", ["right", None])
@pytest.mark.parametrize("minutes", [5, 10, 20, 45, 120])
def test_by_the_banks_times_the_turns_take_the_minutes_that_were_asked_for(minutes, said):
    for seed in range(6):
        done = hold(Mock(seed=seed, minutes=minutes), COURSE, said)
        taken = sum(COURSE.asked(turn.question).seconds for turn in done.turns)
        assert 0.9 <= taken / (60 * minutes) <= 1.1, seed


def test_the_time_ends_it(bank):
    done = hold(Mock(seed=1, minutes=5), bank, seconds=101.0)
    assert len(done.turns) == 3
    assert done.late and next_turn(done, bank) is None


def test_it_ends_where_the_bank_has_nothing_left(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    few = load_bank(tmp_path)
    done = hold(Mock(seed=1, minutes=60), few)
    assert {turn.question for turn in done.turns} == {*few.questions}


# The path


@pytest.mark.parametrize("minutes", [5, 20, 45])
def test_nothing_is_asked_twice_and_the_fixed_turns_are_there(minutes):
    for seed in range(5):
        done = hold(Mock(seed=seed, minutes=minutes), COURSE)
        moves = Counter(turn.move for turn in done.turns)
        assert done.turns[0].move == mock.OPENING and moves[mock.OPENING] == 1
        assert moves[mock.CLAIM] == (2 if minutes == 45 else 1)
        assert moves[mock.SPEECH] == moves[mock.INTERRUPTION] == (minutes >= 10)
        assert moves[mock.CODE] == (minutes >= 15)
        assert bool(moves[mock.PROBLEM]) == (minutes >= 30)
        names = [turn.question for turn in done.turns]
        assert len(names) == len(set(names))


def test_the_same_seed_and_answers_ask_the_same_and_another_seed_does_not():
    one, two, other = (hold(Mock(seed=s), COURSE) for s in (4, 4, 5))
    assert one == two
    assert [t.question for t in one.turns] != [t.question for t in other.turns]


def test_the_seed_chooses_the_questions():
    """Not only the places of the fixed turns: the first question depends on nothing else."""
    openings = {next_turn(Mock(seed=seed), COURSE).card.question.id for seed in range(20)}
    assert len(openings) > 4


def test_the_seed_says_when_the_fixed_turns_come():
    plans = {tuple(mock._plan(Mock(seed=seed, minutes=45))) for seed in range(5)}
    assert len(plans) == 5
    assert len({tuple(move for _, move in plan) for plan in plans}) > 1, "in another order too"


def moves_after(bank, *said):
    """What follows these answers, for many seeds: (move, question), fixed turns left out.

    An answer is a question's id, and "wrong" behind it where it was wrong.
    """
    turns = []
    for name, _, wrong in (each.partition(" ") for each in said):
        right = right_answer(draw(bank.questions[name], 0))
        turns.append(Turn(question=name, seed=0, move=mock.DEEPER, answer=None if wrong else right))
    after = [next_turn(Mock(seed=seed, turns=tuple(turns)), bank) for seed in range(60)]
    branched = (mock.DEEPER, mock.EASIER, mock.ELSEWHERE)
    return [(asked.move, asked.card.question) for asked in after if asked.move in branched]


def test_a_right_answer_goes_deeper_and_a_wrong_one_steps_back(bank):
    deeper, easier = moves_after(bank, "pick"), moves_after(bank, "pick wrong")
    assert {(move, q.id) for move, q in deeper} == {(mock.DEEPER, "double")}, "its follow-up"
    assert {(move, q.id) for move, q in easier} == {(mock.EASIER, "easy")}


def test_deeper_is_harder_and_easier_is_not():
    found = Counter()
    branched = (mock.OPENING, mock.DEEPER, mock.EASIER, mock.ELSEWHERE)
    for said in ("right", None):
        for seed in range(10):
            done = hold(Mock(seed=seed), COURSE, said)
            for before, turn in zip(done.turns, done.turns[1:], strict=False):
                first, then = COURSE.asked(before.question), COURSE.asked(turn.question)
                if before.move not in branched:
                    continue
                if turn.move == mock.EASIER:
                    assert said is None and then.topic == first.topic and then.level < first.level
                if turn.move == mock.DEEPER:
                    assert said == "right"
                    assert then.id in first.follow_ups or then.level > first.level
                found[turn.move] += 1
    assert found[mock.EASIER] > 3 and found[mock.DEEPER] > 3


def test_after_three_on_one_matter_the_interviewer_moves_on(bank):
    two, three = ("easy", "pick"), ("easy", "false-claim", "pick")
    assert {(move, q.id) for move, q in moves_after(bank, *two)} == {(mock.DEEPER, "double")}
    assert {(move, q.topic) for move, q in moves_after(bank, *three)} == {(mock.ELSEWHERE, "other")}


def test_another_matter_begins_easier_after_a_wrong_answer_than_after_a_right_one(bank):
    right = moves_after(bank, "easy", "false-claim", "pick")
    wrong = moves_after(bank, "easy", "false-claim", "pick wrong")
    assert {(move, q.level) for move, q in right} == {(mock.ELSEWHERE, 2)}
    assert {(move, q.level) for move, q in wrong} == {(mock.ELSEWHERE, 1)}


def test_what_is_asked_most_comes_three_times_as_often(bank):
    asked = [next_turn(Mock(seed=seed), bank) for seed in range(900)]
    assert {a.card.question.id for a in asked} == {"pick"}, "it opens with the core"
    plain, core = (SimpleNamespace(tags=tags, changed=()) for tags in ((), ("core",)))
    source = mock.random.Random(0)
    drawn = [mock._one_of([plain, core], source) is core for _ in range(2000)]
    deviation = math.sqrt(3 / 16 / len(drawn))
    assert abs(sum(drawn) / len(drawn) - 3 / 4) < 4 * deviation


# What a colleague claims


def test_a_colleagues_claim_is_a_claim_and_true_as_often_as_false():
    held = []
    for seed in range(400):
        opening = Turn(question="ridge-point", seed=0, move=mock.OPENING)
        asked = mock._fixed(
            Mock(seed=seed, turns=(opening,)), COURSE, mock.CLAIM, mock.random.Random(seed)
        )
        assert asked.card.question.kind == "claim"
        held.append(asked.card.question.holds)
    # Fair draws: four standard deviations of 400.
    assert abs(sum(held) / len(held) - 1 / 2) < 4 * math.sqrt(1 / 4 / len(held))


def test_claims_come_from_a_colleague_only():
    """Among all claims of the bank more are false: asked anywhere, they would give that away."""
    for seed in range(10):
        for asked in asked_in(Mock(seed=seed, minutes=45), COURSE):
            own = asked.move in (mock.CLAIM, mock.PROBLEM)
            assert own or asked.card.question.kind != "claim"
            if asked.move == mock.CLAIM:
                assert asked.card.question.kind == "claim"


# A changed constraint


def changed_turns(bank, seeds):
    for seed in seeds:
        done = hold(Mock(seed=seed), bank)
        for place, turn in enumerate(done.turns):
            if turn.move == mock.CONSTRAINT:
                yield next_turn(replace(done, turns=done.turns[:place]), bank), done.turns[:place]


def test_a_changed_constraint_is_another_question_of_the_bank_with_its_sentence():
    turns = list(changed_turns(COURSE, range(12)))
    assert len(turns) >= 8
    for asked, before in turns:
        sources = [
            change
            for turn in before
            for change in COURSE.asked(turn.question).changed
            if change.id == asked.card.question.id
        ]
        assert sources, "the question before leads to it"
        assert asked.card.question.id not in {turn.question for turn in before}
        assert any(asked.introduction.en.endswith(change.en) for change in sources)
        assert any(asked.introduction.zh.endswith(change.zh) for change in sources)


def test_without_a_link_no_constraint_changes(bank):
    """A redraw of numbers changes no constraint: "double" has numbers to draw, and no link."""
    assert not any(question.changed for question in bank.questions.values())
    for seed in range(10):
        done = hold(Mock(seed=seed, minutes=10), bank)
        assert "double" in {turn.question for turn in done.turns}
        assert mock.CONSTRAINT not in {turn.move for turn in done.turns}


LINK = '[[question.changed]]\nid = "{id}"\nen = "Now with less:"\nzh = "现在更少："\n'


def linked(folder, id):
    """The small bank, in which "pick" leads to another question under a changed constraint."""
    cut = SMALL.index('\n[[question]]\nid = "double"')
    text = SMALL[:cut] + LINK.format(id=id) + SMALL[cut:]
    (folder / "small.toml").write_text(text, encoding="utf-8")
    return load_bank(folder)


def test_a_question_further_back_is_named(tmp_path):
    changing = linked(tmp_path, "double")
    answers = [Turn(question=name, seed=0, move=mock.DEEPER) for name in ("pick", "easy")]
    at_once = mock._continued(Mock(seed=0, turns=tuple(answers[:1])), changing, 100)
    later = mock._continued(Mock(seed=0, turns=tuple(answers)), changing, 100)
    assert at_once.introduction.en == "Now with less:"
    assert later.introduction.en == "Back to question 1. Now with less:"
    assert later.introduction.zh == "回到第 1 题。现在更少："
    assert mock._continued(Mock(seed=0, turns=tuple(answers)), changing, 39) is None, "40 seconds"


def test_the_newest_question_that_can_change_is_taken():
    first, newer = [q for q in COURSE.questions.values() if q.changed][:2]
    turns = [Turn(question=q.id, seed=0, move=mock.DEEPER) for q in (first, newer)]
    asked = mock._continued(Mock(seed=0, turns=tuple(turns)), COURSE, 1000)
    assert asked.card.question.id in {change.id for change in newer.changed}
    assert asked.card.question.id not in {change.id for change in first.changed}


@pytest.mark.parametrize("id", ["no-such-question", "pick"])
def test_a_change_to_a_question_that_is_not_there_is_refused(tmp_path, id):
    with pytest.raises(BankError, match=rf"small.toml: pick: changed: there is no other .*{id}"):
        linked(tmp_path, id)


def test_the_bank_has_changes_enough_and_each_fits_into_the_time_kept_free():
    links = [(q, change) for q in COURSE.questions.values() for change in q.changed]
    assert len(links) >= 25
    room = mock._kept_free(Mock(seed=0), mock.CONSTRAINT)
    for question, change in links:
        target = COURSE.questions[change.id]
        assert target.seconds <= room and target.kind != "claim", (question.id, change.id)


# Code


def test_code_is_asked_with_its_time_and_judged_at_the_end():
    (asked,) = [a for a in asked_in(Mock(seed=2), COURSE) if a.move == mock.CODE]
    question = asked.card.question
    minutes = str(-(-question.seconds // 60))
    assert question.kind == "code"
    assert minutes in asked.introduction.en and minutes in asked.introduction.zh
    before = Mock(seed=2)
    right, wrong = (
        with_answer(before, asked, answer) for answer in (question.solution, question.wrong[0].code)
    )
    assert report(right, COURSE).score == 1 and report(wrong, COURSE).score == 0
    with pytest.raises(Unclear):
        with_answer(before, asked, "def f(:")


# A long problem


def test_a_problem_is_asked_from_its_first_part_to_its_last():
    seen = set()
    for seed in range(12):
        turns = asked_in(Mock(seed=seed, minutes=45), COURSE, said=None)
        parts = [(place, a) for place, a in enumerate(turns) if a.move == mock.PROBLEM]
        first, last = parts[0][0], parts[-1][0]
        problem, _ = COURSE.parts[parts[0][1].card.question.id]
        assert [a.card.question for _, a in parts] == [part.question for part in problem.parts]
        assert last - first + 1 == len(parts), "nothing is asked in between"
        for place, (_, asked) in enumerate(parts):
            for language in LANGUAGES:
                said = asked.before[language]
                assert problem.story[language] in said
                settled = [part.settled[language] in said for part in problem.parts]
                assert settled == [before < place for before in range(len(settled))]
        seen.add(problem.id)
    assert len(seen) > 1, "the seed chooses"


def test_a_part_is_asked_by_no_drill_and_counts_in_the_report():
    assert not {*COURSE.parts} & {*COURSE.questions}
    done = hold(Mock(seed=1, minutes=45), COURSE, None)
    told = report(done, COURSE)
    parts = [item for item in told.items if item.turn.move == mock.PROBLEM]
    assert 6 <= len(parts) <= 8
    kept = {review.question for review in mock.reviews_of_mock(done, COURSE, AT)}
    spoken = {item.card.question.id for item in told.items if item.card.question.spoken}
    assert kept | spoken == {turn.question for turn in done.turns}


# Answers and settings


def test_an_unclear_answer_counts_for_nothing(bank):
    settings = Mock(seed=1)
    asked = next_turn(settings, bank)
    with pytest.raises(Unclear):
        with_answer(settings, asked, "no such thing")
    assert next_turn(settings, bank) == asked


@pytest.mark.parametrize("minutes", [0, 4.9, 121, math.nan])
def test_settings_that_make_no_sense(minutes):
    with pytest.raises(ValueError, match="minutes must be 5 to 120"):
        Mock(seed=0, minutes=minutes)


# The report


def test_the_report_counts_topics_time_confidence_and_labs(bank):
    done = hold(Mock(seed=3, minutes=10), bank, None, seconds=7.0)
    told = report(done, bank)
    assert told.score == 0 and told.seconds == 7.0 * len(done.turns)
    assert sum(row.turns for row in told.topics) == len(done.turns)
    assert told.expected_seconds == sum(bank.questions[t.question].seconds for t in done.turns)
    assert told.labs == ("02_number_formats",)
    assert all(row.answers == 0 for row in told.confidence), "I do not know is no claim"
    (speech,) = [i for i, item in enumerate(told.items) if item.card.question.spoken]
    assert told.items[speech].judgement is None, "not ticked yet"
    judged = report(with_ticks(done, speech, [1]), bank).items[speech].judgement
    assert judged.score == pytest.approx(3 / 4)


def test_unticked_speech_does_not_move_the_schedule(bank):
    done = hold(Mock(seed=3, minutes=10), bank)
    speech = next(i for i, t in enumerate(done.turns) if t.move == mock.SPEECH)
    many = len(done.turns)
    assert len(mock.reviews_of_mock(done, bank, AT)) == many - 1
    assert len(mock.reviews_of_mock(with_ticks(done, speech, [1, 2]), bank, AT)) == many


def answered(bank, right):
    """A mock whose answers to these levels are right, four questions of each level."""
    turns = []
    for level in (1, 2, 3):
        of_level = [q for q in bank.questions.values() if q.level == level and q.objective]
        for question in of_level[:4]:
            answer = right_answer(draw(question, 0)) if level in right else None
            turns.append(Turn(question=question.id, seed=0, move=mock.ELSEWHERE, answer=answer))
    return Mock(seed=0, turns=tuple(turns))


@pytest.mark.parametrize("right", [(1, 2, 3), (1, 2), (1,), (3,)])
def test_a_round_gets_a_verdict_from_eight_answers_of_its_levels_on(right):
    told = report(answered(COURSE, right), COURSE)
    screen, deep = told.levels
    assert (screen.turns, deep.turns) == (8, 4)
    assert screen.score == len({1, 2} & {*right}) / 2 and deep.score == (3 in right)
    assert (told.ready.screen.answers, told.ready.deep_dive.answers) == (8, 4)
    assert (told.ready.screen.verdict == "pass") == (right == (1, 2, 3)), "a gap below tells too"
    shown = report_markdown(told, COURSE, "en")
    assert told.ready.screen.percent in shown and "A deep dive (level 3): no verdict" in shown


def test_what_was_answered_before_the_mock_counts_and_a_card_seen_then_is_not_new():
    held = answered(COURSE, (1, 2, 3))
    before = [review(turn.question, 0.0, 0, mode="drill") for turn in held.turns]
    told = report(held, COURSE, before)
    assert (told.ready.answered, told.ready.right) == (12, 0)
    assert (told.ready.practised, told.ready.still_right) == (12, 12)
    assert told.score == 1 and "you would pass." not in report_markdown(told, COURSE, "en")


def test_the_path_names_each_move_with_its_topic_and_level():
    done = hold(Mock(seed=5), COURSE)
    for language in LANGUAGES:
        text = report_markdown(report(done, COURSE), COURSE, language)
        for place, turn in enumerate(done.turns, 1):
            question = COURSE.asked(turn.question)
            title = COURSE.topics[question.topic].title[language]
            line = next(
                line
                for line in text.splitlines()
                if line.startswith(f"{place}. {mock.MOVES[turn.move][language]}")
            )
            assert title in line and f" {question.level}" in line


def review(question, score, days, mode="mock"):
    at = AT + timedelta(days=days)
    return Review(at=at, question=question, seed=0, correct=score == 1, score=score, mode=mode)


def test_the_trend_is_the_share_of_points_of_each_mock_by_round(bank):
    told = [
        review("easy", 1.0, 5),
        review("double", 0.0, 5),
        review("pick", 0.5, 5),
        review("easy", 0.0, 1),
        review("gone", 1.0, 1),
        review("easy", 1.0, 3, mode="drill"),
    ]
    first, second = mock.trend(told, bank)
    assert (first.at, first.answers, first.score) == (AT + timedelta(days=1), 2, 0.5)
    assert (first.screen, first.deep_dive) == (0.0, None)
    assert (second.score, second.screen, second.deep_dive) == (0.5, 0.75, 0.0)
    shown = report_markdown(report(Mock(seed=0), bank), bank, "en", trend=[first, second])
    assert "| 2026-11-02 12:00 | 2 | 50 % | 0 % | – |" in shown
    assert "| 2026-11-06 12:00 | 3 | 50 % | 75 % | 0 % |" in shown
    alone = report_markdown(report(Mock(seed=0), bank), bank, "en", trend=[second])
    assert "2026-11-06" not in alone, "one mock has no trend"


@pytest.mark.parametrize("said", ["right", None])
def test_a_report_in_chinese_has_full_width_marks(said):
    done = hold(Mock(seed=7, minutes=10), COURSE, said)
    shown = report_markdown(report(done, COURSE), COURSE, "zh")
    own = shown[: shown.index("\n**1.** ")]  # what stands below are the questions' texts
    own += "".join(re.findall(r"(?m)^(?:你|答案|参考回答).{12}", shown))
    assert "你（" in own and "答案：" in own
    assert re.findall(r"[\u4e00-\u9fff） *%][,:;(]|[,:;(] ?[\u4e00-\u9fff]", own) == []


@pytest.mark.parametrize("said", ["right", None])
def test_what_to_do_next_is_three_commands_that_there_are(said):
    done = hold(Mock(seed=7, minutes=10), COURSE, said)
    told = report(done, COURSE)
    steps = mock.what_next(told, COURSE)
    assert len(steps) == 3
    for step in steps:
        assert step.what.en and step.what.zh
        assert parse(step.command.removeprefix("python -m labkit ").split()).run
        assert step.command in report_markdown(told, COURSE, "zh")
    worst = max(told.topics, key=lambda row: (1 - row.score) * row.turns)
    assert f"--topic {worst.topic}" in steps[1].command
    minutes = 45 if told.ready.screen.verdict == "pass" else 10
    assert steps[2].command.endswith(f"mock --minutes {minutes}")
    assert ("--count" in steps[0].command) == (said is None)


def test_what_was_missed_counts_what_a_drill_can_ask():
    done = hold(Mock(seed=1, minutes=45), COURSE, None)
    told = report(done, COURSE)
    asked = [turn.question for turn in done.turns if turn.question in COURSE.questions]
    spoken = sum(COURSE.questions[id].spoken for id in asked)  # not ticked, so not missed
    assert len(asked) < len(done.turns), "the rest are parts of a problem"
    step = mock.what_next(told, COURSE)[0]
    assert step.command.endswith(f"drill --count {len(asked) - spoken}")
    for text in (step.what.en, step.what.zh):
        assert f"{len(asked)} " in text and f"{len(asked) - spoken} " in text
    later = AT + timedelta(minutes=10)
    due = drills.due(COURSE, mock.reviews_of_mock(done, COURSE, AT), later)
    assert len(due) == len(asked) - spoken, "after ten minutes all of them are due"
