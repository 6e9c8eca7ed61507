"""Drills and mocks in a terminal: typed lines in, plain text out."""

import io

import pytest

from labkit import drills, interview, sittings, terminal
from labkit.__main__ import main
from labkit.sittings import DONE, DrillSitting
from tests.questions.small_bank import small_bank


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def hold(sitting, *lines, language="en"):
    """What is said while the lines are typed; the input then ends."""
    typed, said = iter(lines), []

    def ask(prompt):
        said.append(prompt)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    terminal.hold(sitting, language=language, ask=ask, say=said.append)
    return "\n".join(said)


def number_of(sitting, key):
    return str(sitting.card.keys.index(key) + 1)


def test_a_card_with_a_hint_a_slip_and_a_wrong_answer(bank):
    sitting = DrillSitting(bank, [bank.questions["pick"]])
    said = hold(sitting, "h", "h", "9", number_of(sitting, "that"), "3")
    assert "Hint 1: Not the first that comes to mind." in said
    assert "There is no hint left here." in said
    assert "Give numbers from 1 to 3." in said
    assert "Not so. That has an implied one." in said
    assert "Answer: This." in said
    assert said.endswith("0 of 1 right")
    (kept,) = interview.reviews()
    assert (kept.correct, kept.sure, kept.hints) == (False, 3, 1)


def test_free_speech_is_ticked_beside_the_model(bank):
    said = hold(DrillSitting(bank, [bank.questions["speak"]]), "it is this", "1 2")
    assert said.index("Because of this and that.") < said.index("1. this")
    assert interview.reviews()[0].score == 1.0


def test_i_do_not_know_needs_no_confidence(bank):
    said = hold(DrillSitting(bank, [bank.questions["easy"]]), "?")
    assert "How sure" not in said and "Not so." not in said
    assert interview.reviews()[0].sure == drills.NOT_SAID
    assert "Answer: 2" in said


def test_a_stray_enter_is_no_answer(bank):
    said = hold(DrillSitting(bank, [bank.questions["easy"]]), "", " ", "2", "")
    assert said.count("a number>") == 3 and "1 of 1 right" in said


def test_a_question_of_speech_that_is_not_known_shows_what_we_would_say(bank):
    said = hold(DrillSitting(bank, [bank.questions["speak"]]), "?")
    assert "What we would say: Because of this and that." in said


def test_a_mock_with_a_seed_goes_on_where_it_was(monkeypatch, capsys):
    for typed, asked in (("?\nq\n", "--- 1/5"), ("q\n", "--- 2/5")):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main(["mock", "--length", "5", "--seed", "7"]) == 0
        assert asked in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["mock", "--length", "5", "--seed", "8"]) == 0
    assert "Seed 8" in capsys.readouterr().out, "another seed is another interview"


def test_q_stops_and_keeps_what_was_answered(bank):
    sitting = DrillSitting(bank, [bank.questions["easy"], bank.questions["pick"]])
    said = hold(sitting, "2", "2", "q")
    assert "Right." in said and said.endswith("1 of 1 right")
    assert [r.question for r in interview.reviews()] == ["easy"]


def test_in_chinese(bank):
    sitting = DrillSitting(bank, [bank.questions["pick"]])
    said = hold(sitting, number_of(sitting, "that"), "", language="zh")
    assert "哪一个?" in said and "不对。 那个隐含了 1。" in said


def test_a_mock_says_nothing_of_right_and_wrong_before_its_end(bank):
    sitting = sittings.new_mock(bank, length=5, seed=1)
    said = hold(sitting, *["?"] * 5)
    assert sitting.state == DONE
    report = said.index("Noted;")
    assert said.count("Noted;") == 5
    assert said.index("--- 5/5") < report
    assert "Labs to revisit: 02_number_formats" in said
    assert "You (0 / 45 seconds): I do not know" in said and said.count("> Two is odd.") == 2


def test_a_mock_broken_off_has_no_report(bank):
    sitting = sittings.new_mock(bank, length=5, seed=1)
    assert "Noted;" not in hold(sitting, "?", "q")
    assert len(sittings.resumed(bank).mock.turns) == 1


def test_a_code_answer_has_many_lines(bank, monkeypatch):
    from labkit.questions import load

    question = next(q for q in load().questions.values() if q.kind == "code")
    sitting = DrillSitting(load(), [question])
    said = hold(sitting, *question.solution.strip("\n").splitlines(), ".", "2")
    assert "Right." in said


def test_the_commands(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n" * 9))
    assert main(["drill", "--count", "2", "--topic", "fp8"]) == 0
    assert "--- 1/2" in capsys.readouterr().out
    assert main(["drill", "--topic", "sums"]) == 1
    assert "there is no topic 'sums'" in capsys.readouterr().err
    assert main(["drill", "--ready", "--language", "zh"]) == 0
    assert "数值格式" in capsys.readouterr().out
    assert main(["drill", "--export", str(tmp_path / "r.json")]) == 0
    assert main(["drill", "--import", str(tmp_path / "r.json")]) == 0
    assert "0 added, 0 known" in capsys.readouterr().out
    assert main(["mock", "--length", "5", "--seed", "7"]) == 0
    assert "Seed 7" in capsys.readouterr().out
    assert main(["mock"]) == 0
    assert "Resumed at question 1" in capsys.readouterr().out


def test_an_anki_deck_keeps_its_ids(tmp_path, capsys):
    import sqlite3
    import zipfile

    def notes(name, language):
        assert main(["drill", "--anki", str(tmp_path / name), "--language", language]) == 0
        with zipfile.ZipFile(tmp_path / name) as deck:
            deck.extract("collection.anki2", tmp_path / language)
        with sqlite3.connect(tmp_path / language / "collection.anki2") as base:
            return dict(base.execute("select guid, flds from notes"))

    english, chinese = notes("en.apkg", "en"), notes("zh.apkg", "zh")
    assert set(english) == set(chinese) and len(english) >= 220
    assert not any("<script" in text for text in english.values())
