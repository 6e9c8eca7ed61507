"""Drills and mocks in a terminal: typed lines in, plain text out."""

import io
import re
import sys
from datetime import UTC, date, datetime, timedelta

import pytest

from labkit.__main__ import main, parse
from labkit.interview import drills, plans, sittings, terminal
from labkit.interview import log as interview
from labkit.interview.answers import SPEECH_LIMIT
from labkit.interview.plain_text import text_width
from labkit.interview.question_kinds import KINDS
from labkit.interview.questions import load_bank
from labkit.interview.sittings import DONE, DrillSitting
from labkit.interview.wording import ahead
from tests.interview.small_bank import small_bank

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def bank(tmp_path):
    return small_bank(tmp_path)


def hold(sitting, *lines, language="en", editor=None):
    """What is said while the lines are typed; the input then ends."""
    typed, said = iter(lines), []

    def ask(prompt):
        said.append(prompt)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    terminal.hold(sitting, language=language, ask=ask, say=said.append, editor=editor)
    return "\n".join(said)


def number_of(sitting, key):
    return str(sitting.card.keys.index(key) + 1)


def keys_of_prompts(said):
    """The keys that each prompt for an answer names."""
    return [re.findall(r"(\S): ", keys) for keys in re.findall(r"\(([^()]*)\)> ", said)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_names_the_keys_that_do_something(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "96")
    question = next(q for q in load_bank().questions.values() if q.kind == kind and q.hints.en)
    hints = len(question.hints.en)
    said = hold(DrillSitting(load_bank(), [question]), *["h"] * hints, "?")
    assert keys_of_prompts(said) == [["h", "?"]] * hints + [["?"]]
    assert f"Hint {hints}: " in said and "no hint left" not in said
    assert "Noted;" in said and said.endswith("0 of 1 right")


def test_a_mock_names_no_hints(bank):
    said = hold(sittings.new_mock(bank, minutes=5, seed=1), *["?"] * 50)
    named = keys_of_prompts(said)
    assert len(named) > 5 and all(keys == ["?"] for keys in named)


def test_a_verdict_says_what_was_answered(bank):
    sitting = DrillSitting(bank, [bank.questions["pick"], bank.questions["easy"]])
    said = hold(sitting, number_of(sitting, "that"), "", "11", "")
    assert "You: That <b>bold</b>.\nNot so." in said and "You: 11\nNot so." in said
    assert "You: " not in hold(DrillSitting(bank, [bank.questions["easy"]]), "?")


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
    assert len(keys_of_prompts(said)) == 3 and "1 of 1 right" in said


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
    assert "哪一个?" in said and "不对。那个隐含了 1。\n答案：这个。" in said


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
    from labkit.interview.questions import load_bank

    question = next(q for q in load_bank().questions.values() if q.kind == "code")
    sitting = DrillSitting(load_bank(), [question])
    said = hold(sitting, *question.solution.strip("\n").splitlines(), ".", "2")
    assert "Right." in said


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
    assert "数值格式" not in capsys.readouterr().out, "nothing is known of any topic"
    assert interview.language() == "zh"
    interview.keep(drills.Review(at=NOW, question="ridge-point", seed=0, correct=True, score=1.0))
    assert main(command.split()) == 0
    assert "数值格式" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["interview plan", "drill --friday"])
def test_the_plan_gives_commands_that_there_are(capsys, command):
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line.split("labkit ")[1] for line in lines if "python -m labkit" in line]
    assert len(commands) > 6 and "interview diagnostic" in commands
    assert all(parse(words.split()).run for words in commands)


def test_a_plan_of_which_nothing_is_left_says_so(capsys, monkeypatch):
    done = plans.StudyPlan(date.today(), None, ())
    monkeypatch.setattr("labkit.interview.plans.plan", lambda *_: done)
    assert main(["interview", "plan"]) == 0
    assert "Nothing is left" in capsys.readouterr().out


def test_the_plan_follows_the_date(capsys):
    plan = {}
    for days in (0, 2, 22):
        assert main(["interview", "date", str(date.today() + timedelta(days=days))]) == 0
        assert main(["interview", "plan"]) == 0
        plan[days] = capsys.readouterr().out
    assert "is today" in plan[0] and "mock" not in plan[0]
    assert plan[2].index("\ntoday\n") < plan[2].index("\ntomorrow\n") < plan[2].index("mock")
    assert "each day" in plan[22] and "--core" not in plan[22]


@pytest.mark.parametrize("said", ["fri", "Friday", "FRI"])
def test_a_weekday_is_the_next_one(said):
    assert main(["interview", "date", said]) == 0
    day = interview.interview_date().date()
    assert day.weekday() == 4 and 0 <= (day - date.today()).days < 7


@pytest.mark.parametrize("said", ["fr", "fry", "soon"])
def test_what_is_neither_a_date_nor_a_weekday_is_refused(said, capsys):
    with pytest.raises(SystemExit):
        main(["interview", "date", said])
    assert f"'{said}' is no date" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["interview diagnostic", "drill --diagnostic"])
def test_the_diagnostic(capsys, monkeypatch, command):
    monkeypatch.setattr("sys.stdin", io.StringIO("?\nq\n"))
    assert main(command.split()) == 0
    assert f"--- 1/{sittings.diagnostic_sitting(load_bank()).length} " in capsys.readouterr().out
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
    day = date.today() + timedelta(days=9)
    assert main(["interview", "date"]) == 0
    assert main(["interview", "date", str(day)]) == 0
    assert main(["interview", "date"]) == 0
    none, *two = capsys.readouterr().out.splitlines()
    assert "No interview" in none and all(str(day) in line for line in two)
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["drill", "--interview", str(day + timedelta(days=1)), "--count", "1"]) == 0
    assert interview.interview_date().date() == day + timedelta(days=1)
    assert "--- 1/1 " in capsys.readouterr().out, "the drill goes on"


def test_trouble_with_the_clock_has_a_line_of_its_own(capsys, monkeypatch):
    ahead = datetime.now(UTC) + timedelta(days=3)
    interview.keep(drills.Review(at=ahead, question="any", seed=0, correct=True, score=1.0))
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["drill", "--count", "1"]) == 0
    said = capsys.readouterr().out
    trouble = drills.clock_trouble(interview.reviews(), datetime.now(UTC))
    assert trouble and f"{trouble.en}\n" in said


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
    assert ("Another one is unfinished" in said) is not goes_on


def test_the_unfinished_mock_goes_on_as_it_is_said(monkeypatch, capsys):
    broken_off(30, monkeypatch, capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["mock", "--minutes", "5", "--language", "zh"]) == 0
    seed = capsys.readouterr().out.split("--seed ")[1].split("`")[0]
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert main(["mock", "--seed", seed]) == 0
    said = capsys.readouterr().out
    assert "从第 2 题继续" in said and "--- 2 · 30 分钟" in said


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


def code_question():
    return next(q for q in load_bank().questions.values() if q.kind == "code")


def wrong_program(question):
    return question.wrong[0].code.strip("\n").splitlines()


def test_a_wrong_program_is_told_why_and_may_be_mended_once():
    question = code_question()
    right = question.solution.strip("\n").splitlines()
    said = hold(
        DrillSitting(load_bank(), [question]), *wrong_program(question), ".", "3", *right, "."
    )
    assert said.count("Second try") == 1 and said.index("Not so.") < said.index("Right.")
    (kept,) = interview.reviews()
    assert (kept.correct, kept.hints) == (True, 1), "what was wrong is as good as a hint"
    assert kept.sure == drills.NOT_SAID, "the confidence was that of the wrong program"


@pytest.mark.parametrize("twice", [True, False])
def test_a_second_wrong_program_counts_and_so_does_the_first_left_alone(twice):
    question = code_question()
    program = [*wrong_program(question), "."]
    lines = [*program, "3", *(program if twice else ["?"])]
    said = hold(DrillSitting(load_bank(), [question]), *lines)
    assert said.count("How sure?") == 1 and said.endswith("0 of 1 right")
    (kept,) = interview.reviews()
    assert (kept.correct, kept.sure, kept.hints) == (False, 3, int(twice))
    assert kept.misconceptions == (question.wrong[0].misconception,)


def test_a_program_is_written_in_the_editor_and_a_second_time_on_what_was_written(tmp_path):
    question = code_question()
    (tmp_path / "0").write_text("\n".join(wrong_program(question)))
    (tmp_path / "1").write_text(question.solution)
    seen = tmp_path / "seen"
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, shutil, sys\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "place = len(list(folder.glob('seen*')))\n"
        "shutil.copy(sys.argv[1], folder / f'seen{place}')\n"
        "shutil.copy(folder / str(place), sys.argv[1])\n"
    )
    said = hold(
        DrillSitting(load_bank(), [question]), "", "2", "", editor=[sys.executable, str(editor)]
    )
    assert said.endswith("1 of 1 right")
    first, second = (seen.with_name(f"seen{i}").read_text() for i in (0, 1))
    assert question.stub.strip() in first
    assert wrong_program(question)[0] in second and second.startswith("#: ")


def test_an_editor_that_fails_leaves_the_lines():
    question = code_question()
    right = question.solution.strip("\n").splitlines()
    sitting = DrillSitting(load_bank(), [question])
    said = hold(sitting, "", *right, ".", "2", editor=["/no/such/editor"])
    assert "/no/such/editor did not work" in said and said.endswith("1 of 1 right")


def test_a_program_that_is_stopped_does_not_count(monkeypatch):
    question = code_question()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("labkit.interview.terminal.judge", interrupted)
    said = hold(DrillSitting(load_bank(), [question]), "while True: pass", ".", "q")
    assert "Stopped." in said and not interview.reviews()


def test_confidence_says_what_its_numbers_mean_and_takes_no_other(bank):
    said = hold(DrillSitting(bank, [bank.questions["easy"]]), "2", "9", "sure", "1")
    assert "1 guessing, 2 fairly sure, 3 certain [2]>" in said
    assert said.count("Give 1, 2 or 3.") == 2
    assert interview.reviews()[0].sure == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_lines_fit_the_terminal_and_formulas_are_readable(bank, monkeypatch, language):
    monkeypatch.setenv("COLUMNS", "44")
    asked = [bank.questions[id] for id in ("pick", "speak")]
    said = hold(DrillSitting(bank, asked), "1", "", "so " * 40, "0", language=language)
    assert "2^10" in said and "$" not in said
    assert not [line for line in said.splitlines() if text_width(line) > 44]


def test_a_very_long_speech_is_cut_and_it_is_said(bank):
    sitting = DrillSitting(bank, [bank.questions["speak"]])
    said = hold(sitting, "x" * 30_000, "1 2")
    assert "30000 characters" in said and len(sitting.speech) == SPEECH_LIMIT


def test_a_file_of_reviews_is_spoken_of_in_chinese_too(capsys, tmp_path):
    interview.set_language("zh")
    file = str(tmp_path / "r.json")
    assert main(["reviews", "export", file]) == main(["reviews", "import", file]) == 0
    said = capsys.readouterr().out
    assert f"{file}：0 条答题记录" in said and f"{file}：新增 0 条" in said


def test_all_of_the_core_is_asked_where_no_count_is_given(capsys, monkeypatch):
    core = sum("core" in question.tags for question in load_bank().questions.values())
    for typed, count in ([], core), (["--count", "7"], 7):
        monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
        assert main(["drill", "--core", *typed]) == 0
        said = capsys.readouterr().out
        assert f"--- 1/{count} " in said and f"{count} questions, about " in said
    assert sittings.todays(load_bank(), core=True).length == core
    assert sittings.todays(load_bank()).length == 10


@pytest.mark.parametrize("command", ["interview date", "drill --interview"])
def test_a_date_that_is_past_is_refused(capsys, command):
    try:
        status = main([*command.split(), "2020-01-01"])
    except SystemExit as ended:
        status = ended.code
    assert status in (1, 2) and "2020-01-01 is past" in capsys.readouterr().err
    assert interview.interview_date() is None


def test_a_date_is_confirmed_with_the_days_left(capsys):
    day = date.today() + timedelta(days=9)
    for language, left in ("en", "9 days are left"), ("zh", "还有 9 天"):
        assert main(["interview", "date", str(day), "--language", language]) == 0
        assert left in capsys.readouterr().out
    assert ahead(day, day).en.startswith("The interview is today")
    assert "1 day is left" in ahead(day, day - timedelta(days=1)).en
