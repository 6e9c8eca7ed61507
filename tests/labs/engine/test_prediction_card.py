"""A prediction: how guesses are read and judged, and a card that tells nothing before a guess."""

import json
import math
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from labkit.base import progress
from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess, claim, predict
from labkit.labs.engine.predictions import UnclearGuess, split_reasons
from labkit.labs.engine.widget_prediction import PredictionCard

LAB = "99_test"
STEP = NumberGuess(
    id="step",
    lab=LAB,
    question="What is `2048 + 1`?",
    by_number={
        2049: ("No odd integer is there.", "integers-always-exact"),
        (2050, 2060): "The tie goes to even.",
        "inf": "The largest value is far away.",
    },
    otherwise="It is 2048 or 2050.",
)
SHARE = NumberGuess(id="share", lab=LAB, question="How many percent?", unit="%", slack=1)
TIME = NumberGuess(id="time", lab=LAB, question="How long?", unit="ms", slack=0.02)
PICK = ChoiceGuess(
    id="pick",
    lab=LAB,
    question="Which loses most?",
    by_choice={"weights": ("They are large.", "ulp-is-constant"), "gradients": ""},
)
TICK = TickGuess(
    id="tick",
    lab=LAB,
    question="Tick what holds.",
    by_item={
        "The first of these sentences.": ("It is not so.", "ulp-is-constant"),
        "The second of them.": "It holds.",
        "And the third.": "Not this.",
    },
    by_pattern={(True, True, True): "Not all of them.", (True, False, False): "Nearly opposite."},
)
SHORT = TickGuess(id="short", lab=LAB, question="Which?", by_item={"`y`": "a", "`x + x`": "b"})


@pytest.fixture(autouse=True)
def log(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    return lambda: [(e.item, e.status) for e in progress.events(kind="prediction")]


def send(card, **asked):
    card.request = {"seq": card.numbers["seq"] + 1, **asked}
    return card.numbers


# Reading and judging


@pytest.mark.parametrize(
    ("prediction", "guess", "read"),
    [
        (STEP, 2049, 2049.0),
        (STEP, " 2^11 ", 2048.0),
        (STEP, "1/3", 1 / 3),
        (STEP, Fraction(1, 3), 1 / 3),
        (STEP, np.float16(0.5), 0.5),
        (STEP, torch.tensor(3), 3.0),
        (STEP, "INF", math.inf),
        (STEP, -(10**400), -math.inf),
        (SHARE, "48 %", 48.0),
        (SHARE, "48", 48.0),
        (SHARE, "0.5 %", 0.5),
        (TIME, "2 ms", 2.0),
        (TIME, "0.002 s", 2.0),
        (PICK, " Gradients", "gradients"),
        (TICK, [2], (False, True, False)),
        (TICK, (1, "3"), (True, False, True)),
        (TICK, [], (False, False, False)),
        (TICK, "none", (False, False, False)),
        (TICK, "1, 3", (True, False, True)),
        (TICK, [True, False, True], (True, False, True)),
        (TICK, "True, False, True", (True, False, True)),
        (TICK, [np.True_, np.False_, torch.tensor(True)], (True, False, True)),
        (SHORT, ["y"], (True, False)),
        (SHORT, "x + x, y", (True, True)),
    ],
)
def test_a_guess_is_read_as_people_write_it(prediction, guess, read):
    assert prediction.read(guess) == read
    assert prediction.read(prediction.words(read)) == read, "the log holds it so"


@pytest.mark.parametrize(
    ("prediction", "guess", "said"),
    [
        (STEP, "half", "'half' is no number here"),
        (STEP, [1], "a number, such as"),
        (STEP, True, "a number, such as"),
        (STEP, None, "a number, such as"),
        (TIME, "2 GB", "in ms, not in GB"),
        (SHARE, "0.48", "may be a share"),
        (STEP, torch.ones(2), "a number, such as"),
        (STEP, np.ones(2), "a number, such as"),
        (PICK, "biases", 'one of "weights", "gradients"'),
        (PICK, 1, 'one of "weights", "gradients"'),
        (TICK, [4], "numbers that you tick"),
        (TICK, [0], "numbers that you tick"),
        (TICK, [True], "numbers that you tick"),
        (TICK, 2, "numbers that you tick"),
        (TICK, "all", "numbers that you tick"),
    ],
)
def test_a_guess_of_another_form_is_told_what_is_asked_for(prediction, guess, said):
    with pytest.raises(UnclearGuess, match=said.replace("(", r"\(")):
        prediction.read(guess)


@pytest.mark.parametrize(
    ("prediction", "guess", "truth", "right"),
    [
        (STEP, 2048.0, 2048.0, True),
        (STEP, 2048.5, 2048.0, False),
        (STEP, math.nan, math.nan, True),
        (STEP, math.inf, math.inf, True),
        (STEP, -math.inf, math.inf, False),
        (STEP, math.inf, 2048.0, False),
        (STEP, math.nan, 2048.0, False),
        (SHARE, 47.0, 48.0, True),
        (SHARE, 46.9, 48.0, False),
        (TIME, 0.0, 0.01, True),
        (TIME, 2.0, 0.01, False),
    ],
)
def test_a_number_is_right_within_its_slack(prediction, guess, truth, right):
    assert prediction.is_right(guess, truth) == right


@pytest.mark.parametrize(
    ("prediction", "guess", "truth", "said", "ideas"),
    [
        (STEP, 2049.0, 2048.0, ["No odd integer is there."], ["integers-always-exact"]),
        (STEP, 2055.0, 2048.0, ["The tie goes to even."], []),
        (STEP, math.inf, 2048.0, ["The largest value is far away."], []),
        (STEP, math.nan, 2048.0, ["It is 2048 or 2050."], []),
        (SHARE, 3.0, 48.0, [], []),
        (PICK, "weights", "gradients", ["They are large."], ["ulp-is-constant"]),
        (
            TICK,
            (True, True, False),
            (False, True, False),
            ["1: It is not so."],
            ["ulp-is-constant"],
        ),
        (TICK, (False, False, True), (False, True, False), ["2: It holds.", "3: Not this."], []),
        (
            TICK,
            (True, True, True),
            (False, True, True),
            ["Not all of them.", "1: It is not so."],
            ["ulp-is-constant"],
        ),
        (SHORT, (True, False), (False, True), ["y: a", "x + x: b"], []),
    ],
)
def test_a_wrong_guess_has_its_reasons(prediction, guess, truth, said, ideas):
    assert split_reasons(prediction.reasons(guess, truth)) == (said, ideas)


# The card


def asking(prediction=STEP, truth=2048.0):
    return PredictionCard(prediction, truth, name="step")


@pytest.mark.parametrize(
    ("prediction", "truth", "told"),
    [
        (STEP, 31337.0, ["31337", "odd integer", "tie goes"]),
        (PICK, "gradients", ["They are large"]),
        (TICK, (False, True, False), ["It is not so", "It holds", "Not this", "Not all"]),
    ],
)
def test_before_a_guess_nothing_that_leaves_the_kernel_tells_the_truth(prediction, truth, told):
    card = PredictionCard(prediction, truth)
    state = {
        name: value for name, value in card.get_state().items() if name not in ("_esm", "_css")
    }
    bundle, _ = card._repr_mimebundle_()
    for text in (json.dumps(state, default=str), json.dumps(bundle), card.describe(), repr(card)):
        assert not [words for words in told if words in text]
    other = PredictionCard(prediction, prediction.read(_another(prediction)))
    assert other.numbers == card.numbers and other.describe() == card.describe()


def _another(prediction):
    return {STEP.id: 1, PICK.id: "weights", TICK.id: [1, 3]}[prediction.id]


def test_a_guess_by_the_page_is_judged_and_logged(log):
    card = asking()
    view = send(card, do="guess", value="2049", sure=3)
    assert view["state"] == "answered" and view["correct"] is False
    assert view["said"] == "You said 2049 (certain). The answer is 2048."
    assert view["reasons"] == ["No odd integer is there."]
    assert log() == [("step", "wrong")]
    assert progress.events()[0].detail == {
        "guess": "2049",
        "truth": "2048",
        "sure": 3,
        "correct": False,
        "misconceptions": ["integers-always-exact"],
    }


def test_a_right_guess_names_no_idea(log):
    card = PredictionCard(SHARE, 48.0)
    view = send(card, do="guess", value="47", sure=1)
    assert view["correct"] is True and view["reasons"] == []
    assert view["said"] == "You said 47 % (guessing), and that is right. Exactly: 48 %."
    assert progress.events()[0].detail["misconceptions"] == []


def test_what_is_unclear_is_said_and_may_be_answered_again(log):
    card = asking()
    view = send(card, do="guess", value="two", sure=2)
    assert view["state"] == "asking" and "no number here" in view["unclear"]
    assert "2048." not in json.dumps(view)
    assert send(card, do="guess", value="2048", sure=2)["correct"] is True
    assert card.numbers["unclear"] == ""
    assert log() == [("step", "right")]


def test_a_key_pressed_twice_does_not_guess_twice(log):
    card = asking()
    send(card, do="guess", value="2049", sure=3)
    before = dict(card.numbers)
    view = send(card, do="guess", value="2048", sure=3)
    assert view == before | {"seq": view["seq"]}
    assert log() == [("step", "wrong")]


def test_show_me_logs_nothing(log, capsys):
    card = asking()
    view = send(card, do="show")
    assert view["state"] == "answered" and view["correct"] is None
    assert view["said"] == "The answer is 2048."
    card.guess(2048)
    assert "You said 2048" in capsys.readouterr().out
    assert log() == [], "who has seen the truth does not guess"


def test_a_guess_by_code(log, capsys):
    card = asking()
    assert card.guess(2048, sure=2) is None
    shown = capsys.readouterr().out
    assert shown == "You said 2048 (fairly sure), and that is right.\n"
    assert card.numbers["state"] == "answered" and shown.strip() in card.describe()
    assert log() == [("step", "right")]
    card.guess(2049, sure=3)
    assert "No odd integer" in capsys.readouterr().out
    assert log() == [("step", "right")], "only the first guess is logged"


@pytest.mark.parametrize(("guess", "sure"), [("half", 2), (5, "very"), (5, 0)])
def test_a_guess_by_code_that_is_unclear(log, capsys, guess, sure):
    card = asking()
    card.guess(guess, sure=sure)
    assert ("no number" in (said := capsys.readouterr().out)) or "1 (guessing)" in said
    assert card.numbers["state"] == "asking" and log() == []


def test_the_second_run_shows_the_first_guess_and_logs_nothing(log):
    send(asking(), do="guess", value="2049", sure=3)
    again = asking()
    assert again.numbers["state"] == "answered"
    assert again.numbers["said"] == "Earlier you said 2049 (certain). The answer is 2048."
    assert again.numbers["reasons"] == ["No odd integer is there."]
    assert log() == [("step", "wrong")]
    assert PredictionCard(PICK, "gradients").numbers["state"] == "asking", "another question"


def record(**detail):
    progress.record("prediction", lab=LAB, item="step", status=detail.pop("status"), **detail)


def test_a_guess_that_labkit_start_carried_is_judged_when_the_cell_runs(log):
    record(status="carried", guess="2050", sure=1)
    card = asking()
    assert card.numbers["said"] == "Earlier you said 2050 (guessing). The answer is 2048."
    assert log() == [("step", "carried"), ("step", "wrong")]
    assert asking().numbers["said"] == card.numbers["said"]
    assert len(log()) == 2


def test_a_guess_at_an_older_form_of_the_question_is_shown_as_it_was(log):
    record(status="wrong", guess="as many", truth="fewer", sure=2, correct=False)
    card = asking()
    assert card.numbers["said"] == "Earlier you said as many. The answer is 2048."
    assert card.numbers["correct"] is None and len(log()) == 1


def test_without_a_log_the_card_works_and_writes_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    card = asking()
    card.guess(2049)
    assert "The answer is 2048." in capsys.readouterr().out
    assert asking().numbers["state"] == "asking"
    assert not list(tmp_path.iterdir()), "graders and CI never log a guess"


def test_a_log_that_cannot_be_used_is_said(tmp_path, monkeypatch):
    (tmp_path / "progress.db").mkdir()
    card = asking()
    assert card.numbers["state"] == "asking" and "is a folder" in card.numbers["trouble"]
    assert send(card, do="guess", value="2048", sure=2)["correct"] is True


# The decorator


def test_the_body_runs_once_and_silently(capsys):
    ran = []

    @predict(STEP)
    def step():
        ran.append(1)
        print("I tell it")
        print("and so is this", file=sys.stderr)
        claim("2048 + 1 is 2048", True)
        warnings.warn("it does not move", stacklevel=1)
        return torch.tensor(2048, dtype=torch.float16) + 1

    assert ran == [1]
    shown = capsys.readouterr()
    assert shown.err == "" and "2048 + 1" in shown.out
    assert "I tell" not in shown.out and "✓" not in shown.out
    assert isinstance(step, PredictionCard)
    assert "step.guess(..., sure=2)" in shown.out, "the text twin says how to answer"
    step.guess("skip")
    assert capsys.readouterr().out == "The answer is 2048.\n"
    assert ran == [1]


def test_a_truth_of_another_form_is_the_authors_mistake():
    with pytest.raises(UnclearGuess):
        predict(PICK)(lambda: "biases")
