"""The commands: what they print, what they return, and what they do not load."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from small_manifest import lab

from labkit.__main__ import main
from labkit.base import progress
from labkit.base.home import Manifest, read_manifest
from labkit.course import doctor

MANIFEST = Manifest(
    (
        lab("00_start_here", "Start here", first=1),
        lab("02_number_formats", "Build a number system", ulp=2, snap=3),
    )
)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = NOON.astimezone().date().isoformat()  # as the learner's calendar has it


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setattr("labkit.base.home.read_manifest", lambda: MANIFEST)
    return tmp_path / "home"


def passed_ulp():
    lab = "02_number_formats"
    progress.record("check", lab=lab, item="ulp", status="failed", now=NOON)
    progress.record("check", lab=lab, item="ulp", status="passed", now=NOON)


def loaded_by(code):
    """The modules that a fresh Python has after running the code."""
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.splitlines()[-1].split())


COMMANDS = [
    "doctor",
    "start",
    "progress",
    "drill",
    "mock",
    "interview",
    "reviews",
    "anki",
    "grade",
    "nbgrader",
    "build",
    "record",
]
UNDER = {
    "interview": ["plan", "ready", "date", "diagnostic", "drill", "mock"],
    "reviews": ["export", "import"],
}


@pytest.mark.parametrize(
    ("words", "names"), [([], COMMANDS), *(([g], n) for g, n in UNDER.items())]
)
def test_without_a_command_every_command_has_a_line(capsys, words, names):
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split() for line in lines[lines.index("  COMMAND [...]") + 1 :]]
    assert [words[0] for words in listed] == names
    assert all(len(words) > 3 for words in listed)


def test_help_is_the_same_list(capsys):
    main([])
    listed = capsys.readouterr().out
    assert help_of(capsys) == listed


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], *([c] for c in COMMANDS), *([g, c] for g, names in UNDER.items() for c in names)]
)
def test_help_fits_a_screen(capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys, *words).splitlines()
    # An instructor's screen is larger than a learner's terminal in JupyterLab.
    tall = 32 if words == ["grade"] else 24
    assert len(lines) <= tall and max(map(len, lines)) <= 80
    assert lines[0].startswith(" ".join(["usage: labkit", *words]))


@pytest.mark.parametrize(
    ("words", "names"), [(["doctr"], COMMANDS), (["interview", "raedy"], UNDER["interview"])]
)
def test_an_unknown_command_names_those_there_are(capsys, words, names):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"'{words[-1]}'" in said and all(name in said for name in names)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("build --check --execute", "--check"),
        ("build --check --nbgrader course", "--check"),
        ("build 02 --variants", "labkit nbgrader"),
        ("build --extra checks.py", "labkit nbgrader"),
        ("grade --self-test submissions -o grades.csv", "SUBMISSIONS, -o"),
        ("grade --self-test --only ulp", "--only"),
        ("grade in -o out.csv --scheduler tcp://a:1 --jobs 2", "--jobs"),
        ("grade in -o out.csv --jobs 0", "at least 1"),
        ("interview date tomorrow", "2026-12-01"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(capsys, words, named):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and named in err.splitlines()[-1]


@pytest.mark.parametrize("command", ["doctor", "progress"])
def test_a_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: labkit {command} ")
    assert "--json" in said


def test_importing_labkit_loads_what_speaks_to_old_copies_and_the_standard_library():
    loaded = loaded_by("import labkit") - loaded_by("")
    own = {name for name in loaded if name.startswith("labkit")}
    assert own == {"labkit", "labkit.old_copies"}
    assert {name.partition(".")[0] for name in loaded - own} <= sys.stdlib_module_names


def test_the_list_of_commands_and_progress_load_no_numerics_and_no_widgets():
    heavy = {"torch", "numpy", "matplotlib", "pandas", "IPython", "ipywidgets", "anywidget"}
    help_too = "try: main({})\nexcept SystemExit: pass"
    for code in (help_too.format(["grade", "--help"]), "main([])", "main(['progress'])"):
        loaded = loaded_by(f"from labkit.__main__ import main\n{code}")
        assert "labkit.__main__" in loaded and "labkit.grading.command" not in loaded
        assert loaded & heavy == set()


@pytest.fixture
def closed_pipe():
    """The end of a pipe that one writes to; its reader has closed the other."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("progress", ""),
        ("progress", "1"),
        ("drill --count 1", ""),
        ("interview ready", "1"),
        ("progress --help", ""),
    ],
)
def test_a_reader_that_closes_its_pipe_ends_a_command_without_a_word(
    closed_pipe, words, unbuffered
):
    """As in ``labkit doctor | head -2``: a print meets it, or what is written at the end."""
    done = subprocess.run(
        [sys.executable, "-m", "labkit", *words.split()],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.DEVNULL,
        stdout=closed_pipe,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


def test_a_closed_pipe_for_errors_is_the_same(closed_pipe):
    command = [sys.executable, "-m", "labkit", "drill", "--topic", "sums"]
    assert subprocess.run(command, stderr=closed_pipe).returncode == 128 + signal.SIGPIPE


# progress


def test_progress_is_a_table_of_all_labs(capsys, home):
    passed_ulp()
    assert main(["progress"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "lab                passed  points  last seen",
        "00_start_here      0 of 1  0 of 1  never",
        f"02_number_formats  1 of 2  2 of 5  {DAY}",
        "",
        str(home / "progress.db"),
    ]


@pytest.mark.parametrize("name", ["02_number_formats", "02"])
def test_progress_of_one_lab_lists_its_exercises(capsys, name):
    passed_ulp()
    assert main(["progress", "--lab", name]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "exercise  status       points  tries  last seen",
        f"ulp       passed       2       2      {DAY}",
        "snap      not started  3       0      never",
    ]


def test_progress_for_programs(capsys):
    passed_ulp()
    assert main(["progress", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "lab": "02_number_formats",
        "title": "Build a number system",
        "exercises": 2,
        "passed": 1,
        "optional": 0,
        "optional_passed": 0,
        "points": 5,
        "points_earned": 2,
        "last_seen": NOON.isoformat(),
    }
    assert main(["progress", "--json", "--lab", "00"]) == 0
    assert [row["exercise"] for row in json.loads(capsys.readouterr().out)] == ["first"]


def test_progress_says_when_the_log_is_off(capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    assert main(["progress"]) == 0
    assert capsys.readouterr().out.endswith("\nLABKIT_PROGRESS=off: there is no log.\n")


def test_progress_of_an_unknown_lab_names_those_there_are(capsys):
    assert main(["progress", "--lab", "7"]) == 1
    assert capsys.readouterr().err == (
        "There is no lab '7'; there are 00_start_here, 02_number_formats.\n"
    )


def test_progress_that_cannot_be_read_is_a_sentence(capsys, home):
    home.mkdir()
    progress.path().write_text("no database" * 100)
    assert main(["progress"]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_progress_without_a_manifest_is_a_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("labkit.base.home.read_manifest", lambda: read_manifest(tmp_path))
    assert main(["progress"]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'manifest.json'} is missing")


# doctor


@pytest.mark.parametrize(("status", "exit_status"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_doctor_returns_whether_the_course_will_run(capsys, monkeypatch, status, exit_status):
    finding = doctor.Finding(name="torch", found="2.13.0", status=status)
    report = doctor.Report(findings=(finding,), devices=())
    monkeypatch.setattr(doctor, "examine", lambda: report)
    assert main(["doctor"]) == exit_status
    assert capsys.readouterr().out == f"{report}\n"
    assert main(["doctor", "--json"]) == exit_status
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] is (exit_status == 0)
    assert said["findings"][0]["status"] == status


# start and build


def test_start_and_build_hand_on_what_was_said(monkeypatch, capsys):
    from labkit.course import build, my_labs

    monkeypatch.setattr(my_labs, "start", lambda folder: my_labs.Started(Path(folder), ()))
    monkeypatch.setattr(build, "build", lambda labs, **how: [f"{labs} {how}"])
    assert main(["start", "here"]) == 0
    assert "here" in capsys.readouterr().out
    assert main(["build", "--check", "02_number_formats"]) == 1, "something is stale"
    said = capsys.readouterr().err
    assert "['02_number_formats'] {'check': True, 'execute': False}" in said


def test_build_without_the_authors_packages_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jupytext" else "there"
    )
    assert main(["build"]) == 1
    said = capsys.readouterr().err
    assert "jupytext is not installed" in said and "pip install -e '.[dev]'" in said
