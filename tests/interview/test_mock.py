"""The path of a mock interview follows from its seed and the answers."""

import math

import pytest

from labkit.interview import mock
from labkit.interview.cards import draw
from labkit.interview.mock import Mock, Turn, next_turn, report, with_answer, with_ticks
from labkit.interview.question_parts import Unclear
from labkit.interview.questions import load
from tests.interview.prove import right_answer
from tests.interview.small_bank import SMALL, small_bank


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return small_bank(tmp_path_factory.mktemp("bank"))


def hold(settings, bank, answers, seconds=10.0):
    """Answer turn after turn: "right", None for "I do not know", or "wrong" where there is one."""
    done = settings
    for said in answers:
        asked = next_turn(done, bank)
        if asked is None:
            break
        question = asked.card.question
        if question.spoken:
            answer = "summed up"
        elif said == "right":
            answer = right_answer(asked.card)
        else:
            answer = None
        done = with_answer(done, asked, answer, seconds=seconds)
    return done


@pytest.mark.parametrize("length", mock.LENGTHS)
@pytest.mark.parametrize("seed", range(8))
def test_it_has_its_length_asks_nothing_twice_and_holds_its_fixed_turns(bank, seed, length):
    done = hold(Mock(seed=seed, length=length, minutes=60), bank, ["right"] * length)
    moves = [turn.move for turn in done.turns]
    assert len(moves) == length
    assert moves[0] == mock.OPENING
    assert moves.count(mock.SPEECH) == 1
    assert mock.PREMISE in moves or "false-claim" in [t.question for t in done.turns]
    assert (mock.INTERRUPTION in moves) == (length > 5)
    twice = [t.question for t in done.turns if t.move != mock.CONSTRAINT]
    assert len(twice) == len(set(twice))


def test_the_same_seed_and_answers_ask_the_same_and_another_seed_does_not(bank):
    answers = ["right", None, "right", None, "right"] * 2
    one, two, other = (hold(Mock(seed=s, minutes=60), bank, answers) for s in (4, 4, 5))
    assert one == two
    assert [t.question for t in one.turns] != [t.question for t in other.turns]


def test_a_right_answer_goes_deeper_and_a_wrong_one_steps_back(bank):
    def opens_with_pick(seed):
        asked = next_turn(Mock(seed=seed), bank)
        return asked.card.question.id == "pick" and 1 not in mock._plan(Mock(seed=seed))

    seed = next(seed for seed in range(500) if opens_with_pick(seed))
    settings = Mock(seed=seed, minutes=60)
    deeper = next_turn(hold(settings, bank, ["right"]), bank)
    assert (deeper.card.question.id, deeper.move) == ("double", mock.DEEPER), "its follow-up"
    easier = next_turn(hold(settings, bank, [None]), bank)
    assert (easier.card.question.id, easier.move) == ("easy", mock.EASIER)


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


def test_after_three_on_one_matter_the_interviewer_moves_on(bank):
    two, three = ("easy", "pick"), ("easy", "false-claim", "pick")
    assert {(move, q.id) for move, q in moves_after(bank, *two)} == {(mock.DEEPER, "double")}
    assert {(move, q.topic) for move, q in moves_after(bank, *three)} == {(mock.ELSEWHERE, "other")}


def test_another_matter_begins_easier_after_a_wrong_answer_than_after_a_right_one(bank):
    right = moves_after(bank, "easy", "false-claim", "pick")
    wrong = moves_after(bank, "easy", "false-claim", "pick wrong")
    assert {(move, q.level) for move, q in right} == {(mock.ELSEWHERE, 2)}
    assert {(move, q.level) for move, q in wrong} == {(mock.ELSEWHERE, 1)}


def test_what_is_asked_most_comes_three_times_as_often(tmp_path):
    claim = SMALL[SMALL.index('\n[[question]]\nid = "false-claim"') :]
    claim = claim[: claim.index('\n[[question]]\nid = "speak"')]
    tags = 'tags = ["core"]\nasked = [{ source = "A list", year = 2025 }]'
    core = claim.replace('"false-claim"', f'"core-claim"\n{tags}')
    (tmp_path / "small.toml").write_text(SMALL + core, encoding="utf-8")
    two_claims = load(tmp_path)
    opening = Turn(question="easy", seed=0, move=mock.OPENING, answer="2")
    after = [
        next_turn(Mock(seed=seed, length=5, turns=(opening,)), two_claims) for seed in range(1200)
    ]
    asked = [a.card.question.id for a in after if a.move == mock.PREMISE]
    # Three of four, within four standard deviations of so many draws.
    share, deviation = asked.count("core-claim") / len(asked), math.sqrt(3 / 16 / len(asked))
    assert len(asked) > 300 and abs(share - 3 / 4) < 4 * deviation
    assert {*asked} == {"core-claim", "false-claim"}


def test_a_changed_constraint_asks_the_same_question_with_other_numbers(bank):
    for seed in range(300):
        done = hold(Mock(seed=seed, minutes=60), bank, ["right"] * 10)
        places = [i for i, turn in enumerate(done.turns) if turn.move == mock.CONSTRAINT]
        if places:
            break
    turn = done.turns[places[0]]
    before = [t for t in done.turns[: places[0]] if t.question == turn.question]
    assert before and before[-1].seed != turn.seed


def test_a_false_premise_is_a_claim_that_does_not_hold(bank):
    done = hold(Mock(seed=1, minutes=60), bank, ["right"] * 10)
    (turn,) = [turn for turn in done.turns if turn.move == mock.PREMISE]
    assert bank.questions[turn.question].holds is False


def test_the_time_ends_it(bank):
    done = hold(Mock(seed=1, minutes=1), bank, ["right"] * 10, seconds=25.0)
    assert len(done.turns) == 3
    assert done.over and next_turn(done, bank) is None


def test_an_unclear_answer_counts_for_nothing(bank):
    settings = Mock(seed=1)
    asked = next_turn(settings, bank)
    with pytest.raises(Unclear):
        with_answer(settings, asked, "no such thing")
    assert next_turn(settings, bank) == asked


@pytest.mark.parametrize(
    ("settings", "said"), [({"length": 7}, "one of"), ({"minutes": 0}, "above 0")]
)
def test_settings_that_make_no_sense(settings, said):
    with pytest.raises(ValueError, match=said):
        Mock(seed=0, **settings)


def test_the_report_counts_topics_time_confidence_and_labs(bank):
    done = hold(Mock(seed=3, length=5, minutes=60), bank, [None] * 5, seconds=7.0)
    told = report(done, bank)
    assert told.score == 0 and told.seconds == 35.0
    assert sum(row.turns for row in told.topics) == 5
    assert told.expected_seconds == sum(bank.questions[t.question].seconds for t in done.turns)
    assert told.labs == ("02_number_formats",)
    assert all(row.answers == 0 for row in told.confidence), "I do not know is no claim"
    (speech,) = [i for i, item in enumerate(told.items) if item.card.question.spoken]
    assert told.items[speech].judgement is None, "not ticked yet"
    judged = report(with_ticks(done, speech, [1]), bank).items[speech].judgement
    assert judged.score == pytest.approx(3 / 4)


def test_unticked_speech_does_not_move_the_schedule(bank):
    done = hold(Mock(seed=3, length=5, minutes=60), bank, ["right"] * 5)
    speech = next(i for i, t in enumerate(done.turns) if t.move == mock.SPEECH)
    assert len(mock.reviews(done, bank, None)) == 4
    assert len(mock.reviews(with_ticks(done, speech, [1, 2]), bank, None)) == 5
