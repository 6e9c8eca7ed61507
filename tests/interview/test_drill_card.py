"""DrillCard without a browser: what it shows, what a request does, and that nothing is executed."""

import math
from collections import Counter
from pathlib import Path

import pytest

from labkit.base import progress
from labkit.base.home import ManifestError, read_manifest
from labkit.interview import drills, sittings
from labkit.interview import log as interview
from labkit.interview.question_parts import Unclear
from labkit.interview.questions import load_bank
from labkit.interview.sittings import DrillSitting
from labkit.interview.widget_drill_card import DrillCard, diagnostic, say_it, warm_up
from labkit.labs.engine import rendered
from tests.interview.prove import right_answer
from tests.interview.small_bank import small_bank


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def drill_card(bank, *ids):
    return DrillCard(DrillSitting(bank, [bank.questions[id] for id in ids]), language="en")


def send(shown, do, value=None, **changed):
    seq = shown.numbers["seq"] + 1
    asked = {"seq": seq, "do": do, "card": shown.numbers["card"], "value": value, "sure": 2}
    shown.request = asked | changed
    return shown.numbers


def test_a_card_is_answered_and_the_next_one_comes(bank):
    card = drill_card(bank, "pick", "easy")
    assert card.numbers["form"] == "choice" and card.numbers["where"] == "1/2 · Small"
    view = send(card, "answer", "that")
    assert (view["state"], view["correct"]) == ("answered", False)
    assert view["said"] == "That has an implied one."
    assert "<msup>" in view["explanation"], "a formula is MathML"
    view = send(card, "next")
    assert (view["state"], view["card"]) == ("asking", "1:easy")
    assert send(card, "answer", ["2"])["correct"]
    assert "1 of 2 right" in send(card, "next")["report"]


def beside(view):
    return [(note["said"], note["right"]) for note in view["notes"]]


def test_options_stay_after_an_answer_with_what_was_chosen(bank):
    card = drill_card(bank, "pick", "pick")
    asked = card.numbers["choices"]
    view = send(card, "answer", "that")
    assert view["choices"] == asked
    said = dict(zip([choice["key"] for choice in asked], beside(view), strict=True))
    assert said == {
        "this": ("right", True),
        "that": ("your choice, not right", False),
        "other": ("", None),
    }
    assert "You: That <b>bold</b>." in card.describe()
    send(card, "next")
    assert sorted(beside(send(card, "answer", None))) == [("", None), ("", None), ("right", True)]


def first_of(kind):
    return next(question for question in load_bank().questions.values() if question.kind == kind)


def real_card(kind):
    return DrillCard(DrillSitting(load_bank(), [first_of(kind)]), language="en")


def test_of_several_options_each_is_told(bank):
    card = real_card("select")
    right = right_answer(card.sitting.card)
    wrong = next(key for key in card.sitting.card.keys if key not in right)
    view = send(card, "answer", [right[0], wrong])
    said = dict(zip(card.sitting.card.keys, beside(view), strict=True))
    assert said.pop(right[0]) == ("your choice, right", True)
    assert said.pop(wrong) == ("your choice, not right", False)
    assert {key for key, note in said.items() if note == ("right", True)} == {*right[1:]}


def test_an_item_of_an_order_says_both_places():
    card = real_card("order")
    keys, right = card.sitting.card.keys, right_answer(card.sitting.card)
    view = send(card, "answer", right[::-1])
    places = [(len(right) - right.index(key), right.index(key) + 1) for key in keys]
    assert beside(view) == [(f"You: {put}, Answer: {place}", None) for put, place in places]
    card = real_card("order")
    keys = card.sitting.card.keys
    view = send(card, "answer", right)
    assert beside(view) == [(f"You: {right.index(key) + 1}", None) for key in keys]


def test_a_line_of_a_match_says_both_letters():
    card = real_card("match")
    keys, right = card.sitting.card.keys, right_answer(card.sitting.card)
    letters = dict(zip(keys, "abcdefghij", strict=False))
    wrong = next(key for key in keys if key != right[0])
    first, *others = beside(send(card, "answer", [wrong, *right[1:]]))
    assert first == (f"You: {letters[wrong]}, Answer: {letters[right[0]]}", False)
    assert others == [(f"You: {letters[key]}", True) for key in right[1:]]


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_said_beside_a_list_has_a_place_for_each_of_it(answered):
    for question in load_bank().questions.values():
        card = DrillSitting(load_bank(), [question]).card
        face = question.face(card, "en")
        listed = face.lefts or face.choices or getattr(question, "rubric", ())
        answer = right_answer(card) if answered else None
        if not card.keys and not (question.spoken and answered):
            listed = ()
        assert len(question.notes(card, answer, "zh")) == len(listed), question.id


def test_what_was_typed_or_ticked_stays(bank):
    card = drill_card(bank, "easy", "speak", "easy")
    view = send(card, "answer", ["<b>2"])
    assert view["state"] == "asking", "unclear"
    assert send(card, "answer", ["11"])["given"] == "11"
    send(card, "next")
    assert "rubric" not in card.numbers, "the points are the answer"
    send(card, "answer", "in a line")
    view = send(card, "tick", [2])
    assert view["rubric"] == ["this", "that"] and view["given"] == ""
    assert beside(view) == [("not ticked", None), ("ticked", True)]
    assert "that (ticked)" in card.describe()
    send(card, "next")
    assert send(card, "answer", None)["given"] == ""


def test_what_is_unclear_is_said_and_may_be_answered_again(bank):
    card = drill_card(bank, "easy")
    view = send(card, "answer", ["two"])
    assert view["state"] == "asking" and "'two' is no number here" in view["unclear"]
    assert send(card, "answer", ["2"])["unclear"] == ""
    with pytest.raises(Unclear):
        drill_card(bank, "easy").answer("two")


def test_a_request_for_a_card_that_has_gone_does_nothing(bank):
    card = drill_card(bank, "pick", "easy")
    gone = card.numbers["card"]
    send(card, "answer", "this")
    send(card, "next")
    view = send(card, "answer", "this", card=gone)
    assert (view["state"], view["card"]) == ("asking", "1:easy")


def test_hints_and_free_speech(bank):
    card = drill_card(bank, "pick", "speak")
    assert card.numbers["more_hints"]
    view = send(card, "hint")
    assert view["hints"] == ["Not the first that comes to mind."] and not view["more_hints"]
    send(card, "answer", None)
    assert card.numbers["right"] == "This."
    send(card, "next")
    view = send(card, "answer", "<b>because</b>")
    assert view["state"] == "ticking" and view["speech"] == "<b>because</b>", "text, never HTML"
    assert view["rubric"] == ["this", "that"]
    assert send(card, "tick", [1, 2])["correct"]


def test_the_banks_own_markup_is_shown_as_text(bank):
    choices = drill_card(bank, "pick").numbers["choices"]
    assert "That &lt;b&gt;bold&lt;/b&gt;." in [choice["html"] for choice in choices]


def test_the_language_changes_the_card_that_stands(bank):
    card = drill_card(bank, "pick")
    card.language = "zh"
    assert "哪一个?" in card.numbers["prompt"]
    assert card.numbers["words"]["submit"] == "提交"
    assert "哪一个?" in card.describe()


def test_a_mock_gives_no_verdict_and_no_hints_before_its_end(bank):
    card = DrillCard(sittings.new_mock(bank, minutes=10, seed=1), language="en")
    while card.sitting.state == "asking":
        assert not card.numbers["more_hints"] and "correct" not in card.numbers
        assert "introduction" in card.numbers
        free = card.sitting.card.question.spoken
        send(card, "answer", "in a line" if free else right_answer(card.sitting.card))
    view = send(card, "tick", [1, 2])
    assert view["state"] == "done"
    assert "<strong>100 %</strong>" in view["report"] and "<table>" in view["report"]


def test_its_words_say_what_it_shows(bank):
    card = drill_card(bank, "pick")
    shown = card.describe()
    assert repr(card) == shown
    assert "Which?" in shown and "1. " in shown and "That <b>bold</b>." in shown
    card.answer(str(card.sitting.card.keys.index("this") + 1))
    assert "Right." in card.describe()


def test_a_formula_that_cannot_be_read_stays_as_written():
    assert rendered.text("$\\frac{1$").strip() == "<p><code>\\frac{1</code></p>" or (
        "<math" in rendered.text("$\\frac{1$")
    )


def test_a_second_miss_links_to_its_section_at_once(bank):
    card = drill_card(bank, "pick", "double")
    assert send(card, "answer", "that")["again"] == ""
    send(card, "next")
    view = send(card, "answer", None)
    assert 'href="02_number_formats.ipynb#Four-bits:-E2M1"' in view["again"]
    assert "lab 02, Four bits: E2M1" in view["again"]
    assert 'href="02_number_formats.ipynb#Four-bits:-E2M1"' in send(card, "next")["report"]


def test_a_diagnostic_ends_with_the_lab_to_start_with(bank):
    asked = [bank.questions[id] for id in ("easy", "pick")]
    card = DrillCard(DrillSitting(bank, asked, mode="diagnostic"), language="en")
    card.answer("2")
    card.next()
    card.answer("?")
    card.next()
    assert "lab 02](<02_number_formats.ipynb>): 1/2" in card.describe()
    assert card.describe().endswith("Start with: [lab 02](<02_number_formats.ipynb>)")
    all_right = DrillCard(DrillSitting(bank, asked[:1], mode="diagnostic"), language="zh")
    all_right.answer("2")
    all_right.next()
    assert "实验 16" in all_right.describe()


def test_a_log_that_cannot_be_read_never_stops_a_lab(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    (tmp_path / "progress.db").write_text("no database")
    for card in (warm_up("02_number_formats"), say_it("02_number_formats"), diagnostic()):
        assert card.sitting.state == "asking"
        assert "progress.db" in card.numbers["trouble"]


def test_a_lab_opens_with_short_questions_of_earlier_labs_and_says_what_they_take():
    card = warm_up("01_three_crimes", language="en")
    assert {question.taught_in for question in card.sitting.questions} == {"00_start_here"}
    seconds = sum(question.seconds for question in card.sitting.questions)
    said = f"{card.sitting.length} questions, about {seconds} seconds."
    assert card.numbers["introduction"] == said and said in card.describe()
    card.language = "zh"
    assert f"{seconds} 秒" in card.numbers["introduction"]
    card.answer("?")
    card.next()
    assert "introduction" not in card.numbers, "once"
    assert 3 <= say_it("06_hardware_and_benchmarks").sitting.length <= 6
    first = diagnostic(language="en")
    minutes = math.ceil(sum(question.seconds for question in first.sitting.questions) / 60)
    assert f"about {minutes} minutes" in first.numbers["introduction"]
    asked = Counter(load_bank().questions[q.id].lab[:2] for q in first.sitting.questions)
    assert set(asked) >= {"01", "02", "03", "04", "05", "06", "08"}
    assert all(asked[lab] == (2 if lab < "07" else 1) for lab in asked)


@pytest.fixture
def sitting_a_of_lab_02():
    """The log of somebody who did sitting A of lab 02, and nothing else."""
    lab = "02_number_formats"
    progress.record("prediction", lab=lab, item="step-at-2048", status="wrong")
    progress.record("check", lab=lab, item="ulp", status="failed")
    progress.record("check", lab=lab, item="snap", status="not attempted")
    return lab


def test_a_warm_up_keeps_to_what_the_learner_has_been_through(sitting_a_of_lab_02):
    asked = warm_up("06_hardware_and_benchmarks").sitting.questions
    places = {question.section for question in asked}
    headings = [entry.section for entry in read_manifest().find(sitting_a_of_lab_02).sections]
    reached = headings[: headings.index("Exercise:-the-gap-above-x") + 1]
    assert asked and places <= {f"{sitting_a_of_lab_02}#{heading}" for heading in reached}
    assert warm_up(sitting_a_of_lab_02).sitting.questions == []


def test_a_missing_manifest_never_stops_a_lab(monkeypatch):
    def gone():
        raise ManifestError(Path("manifest.json"), "is missing")

    monkeypatch.setattr(sittings, "read_manifest", gone)
    card = warm_up("02_number_formats")
    assert card.sitting.state == "done" and "manifest.json" in card.numbers["trouble"]


def test_the_report_is_a_timed_transcript_and_what_was_typed_is_only_shown(bank):
    card = DrillCard(sittings.new_mock(bank, minutes=10, seed=3), language="en")
    typed = "<img src=x onerror=alert(1)> ![a](http://x.y/z) `code` **bold**"
    while card.numbers["state"] == "asking":
        free = card.sitting.card.question.spoken
        send(card, "answer", typed if free else None, sure=3)
    while card.numbers["state"] == "ticking":
        send(card, "tick", [1])
    html = card.numbers["report"]
    assert "You (0 / " in html and "I do not know" in html and "Not so." not in html
    before = len(interview.reviews())
    card.next()
    many = len(card.sitting.mock.turns)
    assert len(interview.reviews()) == before == many, "a report read twice is kept once"
    assert {review.sure for review in interview.reviews()} == {drills.NOT_SAID}
    assert "<img" not in html and "<strong>bold" not in html and "onerror=alert(1)&gt;" in html
    assert "<li>✓ this</li>" in html.replace("\n", "") and "– that" in html
    assert "What we would say: Because of this and that." in html
