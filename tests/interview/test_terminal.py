"""Drills and mocks in a terminal: typed lines in, plain text out."""

import io
import sys
from datetime import UTC, datetime, timedelta

import pytest

from labkit.__main__ import main, parse
from labkit.interview import drills, sittings, terminal
from labkit.interview import log as interview
from labkit.interview.questions import load
from labkit.interview.sittings import DONE, DrillSitting
from tests.interview.small_bank import small_bank


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


def test_a_sitting_says_first_how_long_it_takes(bank):
    asked = [bank.questions[id] for id in ("easy", "pick")]
    assert hold(DrillSitting(bank, asked), "?", "?").count("2 questions, about 50 seconds.") == 1
    assert "共 1 题，约 20 秒。" in hold(DrillSitting(bank, asked[:1]), "?", language="zh")
    long = [bank.questions["speak"]] * 3
    assert "3 questions, about 5 minutes." in hold(DrillSitting(bank, long), "?")


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
    for typed, asked in (("?\nq\n", "--- 1 "), ("q\n", "--- 2 ")):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert main(["mock", "--minutes", "5", "--seed", "7"]) == 0
        assert asked in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["mock", "--minutes", "5", "--seed", "8"]) == 0
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
    sitting = sittings.new_mock(bank, minutes=5, seed=1)
    said = hold(sitting, *["?"] * 50)
    assert sitting.state == DONE
    report, many = said.index("Noted;"), len(sitting.mock.turns)
    assert said.count("Noted;") == many
    assert said.index(f"--- {many} ") < report
    assert "Labs to revisit: 02_number_formats" in said
    assert "You (0 / 45 seconds): I do not know" in said and said.count("> Two is odd.") == 2


def test_a_mock_broken_off_has_no_report(bank):
    sitting = sittings.new_mock(bank, minutes=5, seed=1)
    assert "Noted;" not in hold(sitting, "?", "q")
    assert len(sittings.resumed(bank).mock.turns) == 1


def test_a_code_answer_has_many_lines(bank, monkeypatch):
    from labkit.interview.questions import load

    question = next(q for q in load().questions.values() if q.kind == "code")
    sitting = DrillSitting(load(), [question])
    said = hold(sitting, *question.solution.strip("\n").splitlines(), ".", "2")
    assert "Right." in said


def test_code_from_an_editor_is_kept_where_it_cannot_be_read(monkeypatch, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "seen = pathlib.Path(sys.argv[0] + '.seen')\n"
        "seen.write_text((seen.read_text() if seen.exists() else '') + file.read_text())\n"
        "file.write_text('def (:\\n')\n"
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    monkeypatch.delenv("VISUAL", raising=False)
    question = next(q for q in load().questions.values() if q.kind == "code")
    sitting = DrillSitting(load(), [question])
    said = hold(sitting, "e", "e", "?")
    assert said.count("Python cannot read that, from line 1 on") == 2
    stub, again = question.stub.strip("\n"), "def (:"
    assert (tmp_path / "editor.py.seen").read_text().strip() == f"{stub}\n{again}".strip()


def test_the_commands(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n" * 9))
    assert main(["drill", "--count", "2", "--topic", "fp8"]) == 0
    assert "--- 1/2" in capsys.readouterr().out
    assert main(["drill", "--topic", "sums"]) == 1
    assert "there is no topic 'sums'" in capsys.readouterr().err
    assert main(["mock", "--minutes", "5", "--seed", "7"]) == 0
    assert "Seed 7" in capsys.readouterr().out
    assert main(["mock"]) == 0
    assert "Resumed at question 1" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["interview ready", "drill --ready"])
def test_readiness_in_chinese_which_is_kept(capsys, command):
    assert main([*command.split(), "--language", "zh"]) == 0
    assert "数值格式" in capsys.readouterr().out
    assert interview.language() == "zh"


@pytest.mark.parametrize("command", ["interview plan", "drill --friday"])
def test_the_plan_gives_commands_that_there_are(capsys, command):
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line.split("labkit ")[1] for line in lines if "python -m labkit" in line]
    assert len(commands) > 6 and "interview diagnostic" in commands
    assert all(parse(words.split()).run for words in commands)


def test_a_plan_of_which_nothing_is_left_says_so(capsys, monkeypatch):
    monkeypatch.setattr("labkit.interview.plans.friday", lambda *_: [])
    assert main(["interview", "plan"]) == 0
    assert "nothing is left" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["interview diagnostic", "drill --diagnostic"])
def test_the_diagnostic(capsys, monkeypatch, command):
    monkeypatch.setattr("sys.stdin", io.StringIO("?\nq\n"))
    assert main(command.split()) == 0
    assert f"--- 1/{sittings.diagnostic(load()).length} " in capsys.readouterr().out
    assert [review.mode for review in interview.reviews()] == ["diagnostic"]


@pytest.mark.parametrize("way", ["reviews {}", "drill --{}"])
def test_reviews_are_carried(capsys, monkeypatch, tmp_path, way):
    monkeypatch.setattr("sys.stdin", io.StringIO("?\nq\n"))
    assert main(["interview", "drill", "--count", "1", "--core"]) == 0
    file = str(tmp_path / "r.json")
    assert main([*way.format("export").split(), file]) == 0
    assert main([*way.format("import").split(), file]) == 0
    said = capsys.readouterr().out
    assert f"{file}: 1 reviews" in said and f"{file}: 0 added, 1 known before" in said


def test_the_date_of_the_interview(capsys, monkeypatch):
    day = (datetime.now(UTC) + timedelta(days=9)).date()
    assert main(["interview", "date"]) == 0
    assert main(["interview", "date", str(day)]) == 0
    assert main(["interview", "date"]) == 0
    none, *two = capsys.readouterr().out.splitlines()
    assert "No interview" in none and all(str(day) in line for line in two)
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["drill", "--interview", str(day + timedelta(days=1)), "--count", "1"]) == 0
    assert interview.interview_date().date() == day + timedelta(days=1)
    assert "--- 1/1 " in capsys.readouterr().out, "the drill goes on"


def test_an_anki_deck_keeps_its_ids(tmp_path, capsys):
    import sqlite3
    import zipfile

    def notes(command, name, language):
        assert main([*command, str(tmp_path / name), "--language", language]) == 0
        with zipfile.ZipFile(tmp_path / name) as deck:
            deck.extract("collection.anki2", tmp_path / language)
        with sqlite3.connect(tmp_path / language / "collection.anki2") as base:
            return dict(base.execute("select guid, flds from notes"))

    english, chinese = (
        notes(["anki"], "en.apkg", "en"),
        notes(["drill", "--anki"], "zh.apkg", "zh"),
    )
    assert set(english) == set(chinese) and len(english) >= 220
    assert not any("<script" in text for text in english.values())


def test_trouble_with_the_clock_has_a_line_of_its_own(capsys, monkeypatch):
    ahead = datetime.now(UTC) + timedelta(days=3)
    interview.keep(drills.Review(at=ahead, question="any", seed=0, correct=True, score=1.0))
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["drill", "--count", "1"]) == 0
    said = capsys.readouterr().out
    trouble = drills.clock_trouble(interview.reviews(), datetime.now(UTC))
    assert trouble and f"{trouble}\n" in said


def broken_off(minutes, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("?\nq\n"))
    assert main(["mock", "--new", "--minutes", str(minutes)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("typed", "goes_on"),
    [
        ([], True),
        (["--minutes", "30"], True),
        (["--minutes", "7"], False),
    ],
)
def test_a_mock_goes_on_only_as_it_was_asked_for(monkeypatch, capsys, typed, goes_on):
    broken_off(30, monkeypatch, capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["mock", *typed]) == 0
    said = capsys.readouterr().out
    assert ("Resumed at question 2" in said) is goes_on
    assert ("--- 1 " in said) is not goes_on


def test_of_two_mocks_broken_off_the_one_of_those_minutes_goes_on(monkeypatch, capsys):
    for minutes in (15, 5):
        broken_off(minutes, monkeypatch, capsys)
    for minutes in (15, 5):
        monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
        assert main(["mock", "--minutes", str(minutes)]) == 0
        assert f"--- 2 · {minutes} min" in capsys.readouterr().out


def test_minutes_that_make_no_sense_are_a_sentence(capsys):
    assert main(["mock", "--minutes", "500"]) == 1
    assert "minutes must be 5 to 120, got 500" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (["--ready", "--diagnostic"], ["--ready", "--diagnostic"]),
        (["--ready", "--count", "3"], ["--ready", "--count"]),
        (["--friday", "--topic", "fp8"], ["--friday", "--topic"]),
        (["--diagnostic", "--core"], ["--diagnostic", "--core"]),
        (["--export", "a.json", "--import", "b.json"], ["--export", "--import"]),
        (["--anki", "a.apkg", "--friday"], ["--anki", "--friday"]),
    ],
)
def test_flags_that_ask_for_different_things_are_refused(typed, named, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["drill", *typed])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and all(flag in err.splitlines()[-1] for flag in named)
