"""The learner's log: nothing acknowledged is lost, and no failure of it reaches the caller."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from small_manifest import lab

from labkit.base import progress
from labkit.base.home import SectionEntry

START = lab("00_start_here", "Start here", first=1)
FORMATS = lab("02_number_formats", "Build a number system", sixteen=1, ulp=2, snap=3)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A log of its own for each test, and a process that has not spoken yet."""
    home = tmp_path / "home"
    monkeypatch.setenv("LABKIT_HOME", str(home))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "_sentence_was_said", False)
    monkeypatch.setattr(progress, "_last_write_failed", False)
    return home


def passed(item="ulp", *, lab="02_number_formats", status="passed", **more):
    return progress.record("check", lab=lab, item=item, status=status, **more)


def raw(statement):
    with contextlib.closing(sqlite3.connect(progress.path())) as log, log:
        return log.execute(statement).fetchall()


# What is kept


def test_an_event_comes_back_as_it_was_recorded():
    assert (
        progress.record(
            "prediction",
            lab="02_number_formats",
            item="ones-fp16",
            status="wrong",
            now=NOON,
            guess=float("inf"),
            sure=3,
            correct=False,
            note="大数吃小数 \ud800",
            ids=["max-not-gap", None],
        )
        is None
    )
    (event,) = progress.events()
    assert event == progress.Event(
        at=NOON,
        kind="prediction",
        lab="02_number_formats",
        item="ones-fp16",
        status="wrong",
        detail={
            "guess": float("inf"),
            "sure": 3,
            "correct": False,
            "note": "大数吃小数 \ud800",
            "ids": ["max-not-gap", None],
        },
    )


def test_events_are_in_the_order_of_recording_and_chosen_by_lab_and_kind():
    passed("ulp", now=NOON)
    passed("first", lab="00_start_here", now=NOON - timedelta(days=1))
    progress.record("hint", lab="02_number_formats", item="ulp", status="shown")
    assert [event.item for event in progress.events()] == ["ulp", "first", "ulp"]
    assert [event.lab for event in progress.events(lab="00_start_here")] == ["00_start_here"]
    assert [event.status for event in progress.events(kind="hint")] == ["shown"]
    assert progress.events(lab="00_start_here", kind="hint") == []


def test_times_are_kept_in_utc_whatever_the_zone_of_the_clock():
    passed(now=datetime(2026, 3, 1, 20, 0, tzinfo=timezone(timedelta(hours=8))))
    (event,) = progress.events()
    assert event.at == NOON
    assert event.at.tzinfo is UTC


def test_without_a_clock_the_present_is_taken():
    before = datetime.now(UTC)
    passed()
    assert before <= progress.events()[0].at <= datetime.now(UTC)


def test_a_clock_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        passed(now=datetime(2026, 3, 1))


def test_a_detail_that_json_cannot_hold_is_refused_also_when_the_log_is_off(monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    with pytest.raises(TypeError, match="not JSON serializable"):
        passed(guess={1, 2})


def test_events_are_only_ever_added():
    passed()
    for statement in ("DELETE FROM events", "UPDATE events SET status = 'failed'"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            raw(statement)
    assert progress.events()[0].status == "passed"


def test_the_file_has_a_rollback_journal_a_version_and_no_companions(home):
    passed()
    assert raw("PRAGMA journal_mode") == [("delete",)]
    assert raw("PRAGMA user_version") == [(1,)]
    assert [file.name for file in home.iterdir()] == ["progress.db"]


def test_every_write_is_synchronous(monkeypatch):
    said = []
    connect = sqlite3.connect

    def listening(*args, **kwargs):
        log = connect(*args, **kwargs)
        log.set_trace_callback(said.append)
        return log

    monkeypatch.setattr(sqlite3, "connect", listening)
    passed()
    full = said.index("PRAGMA synchronous = FULL")
    assert full < next(i for i, text in enumerate(said) if text.startswith("INSERT"))


# Where it lies


def test_labkit_home_moves_the_log(home, monkeypatch):
    assert progress.path() == home / "progress.db"
    monkeypatch.setenv("LABKIT_HOME", "~/elsewhere")
    assert progress.path() == Path.home() / "elsewhere" / "progress.db"


def test_by_default_the_log_lies_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("LABKIT_HOME")
    monkeypatch.setattr(
        progress.platformdirs, "user_data_dir", lambda name, appauthor: tmp_path / name
    )
    assert progress.path() == tmp_path / "labkit" / "progress.db"


def test_importing_and_reading_write_nothing(home):
    code = "from labkit.base import progress; print(progress.events())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
    assert not home.exists()


def test_off_neither_writes_nor_reads(home, monkeypatch):
    passed()
    before = progress.path().read_bytes()
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    assert passed("snap") is None
    assert progress.events() == []
    assert progress.path().read_bytes() == before


# How far the learner is


# One letter a section; a capital one holds the item that is asked there, x and y are optional.
SECTIONS = [
    SectionEntry(section=letter, items=(item,) if item else (), optional=letter in "efXgY")
    for letter, item in {
        "a": "", "B": "step", "c": "", "D": "ulp", "e": "", "f": "", "X": "tf32", "h": "",
        "I": "snap", "j": "", "g": "", "Y": "more", "k": "",
    }.items()
]  # fmt: skip


@pytest.mark.parametrize(
    ("answered", "sections"),
    [
        ([], ""),
        ([("prediction", "step", "wrong")], "aB"),
        ([("check", "ulp", "failed")], "aBcD"),
        ([("check", "ulp", "passed"), ("prediction", "step", "right")], "aBcD"),
        ([("check", "ulp", "passed"), ("check", "snap", "not attempted")], "aBcD"),
        ([("check", "tf32", "failed")], "aBcDfX"),
        ([("check", "snap", "error")], "aBcDhIjk"),
        ([("check", "snap", "error"), ("check", "tf32", "error")], "aBcDfXhIjk"),
        ([("check", "more", "passed")], "aBcDhIjgYk"),
        ([("review", "ulp", "right")], ""),
    ],
)
def test_sections_are_passed_up_to_the_last_that_was_answered(answered, sections):
    of_lab = lab("02_number_formats", "Formats", ulp=2, snap=3, tf32=0, more=0)
    of_lab = replace(of_lab, predictions=("step",), sections=tuple(SECTIONS))
    passed("fp16-bytes", lab="00_start_here")
    for kind, item, status in answered:
        progress.record(kind, lab="02_number_formats", item=item, status=status)
    found = progress.sections_passed([START, of_lab], log=progress.events())
    assert found == {f"02_number_formats#{section}" for section in sections}


def test_of_a_log_without_an_answer_all_that_is_not_optional_counts():
    of_lab = replace(FORMATS, sections=tuple(SECTIONS))
    passed("ulp", status="not attempted")
    progress.record("review", lab="interview", item="ulp", status="right")
    found = progress.sections_passed([of_lab], log=progress.events())
    assert found == {f"02_number_formats#{section}" for section in "aBcDhIjk"}


# Versions


def test_a_newer_log_is_refused_and_not_touched():
    passed(now=NOON)
    raw("PRAGMA user_version = 7")
    raw("PRAGMA journal_mode = TRUNCATE")
    before = progress.path().read_bytes()
    said = passed("snap")
    assert said.startswith("Your progress is not recorded.")
    assert "newer labkit (version 7 of the log; this labkit knows 1)" in said
    assert "git pull" in said
    with pytest.raises(progress.ProgressError, match="newer labkit"):
        progress.events()
    assert progress.path().read_bytes() == before


def test_a_log_without_a_single_byte_is_an_empty_log(home):
    home.mkdir()
    progress.path().touch()
    assert progress.events() == []
    assert passed() is None
    assert len(progress.events()) == 1


# A log that cannot be written


def test_the_sentence_is_said_once_in_a_process_and_recording_goes_on(home):
    home.parent.joinpath("home").write_text("a file where the folder should be")
    assert passed().startswith("Your progress is not recorded. ")
    assert passed() is None
    home.unlink()
    assert passed("snap") is None
    assert [event.item for event in progress.events()] == ["snap"]


def test_a_damaged_log_is_left_alone_and_the_way_out_is_told(home):
    home.mkdir()
    damaged = b"not a database, but still the learner's " * 100
    progress.path().write_bytes(damaged)
    said = passed()
    assert "is damaged (file is not a database). Nothing in it was changed." in said
    assert f"Move it, with {progress.path().name}-journal" in said
    with pytest.raises(progress.ProgressError, match="is damaged"):
        progress.events()
    assert progress.path().read_bytes() == damaged
    assert [file.name for file in home.iterdir()] == ["progress.db"]


def test_a_damaged_page_is_told_as_damage():
    for _ in range(200):
        passed(note="x" * 200)
    content = bytearray(progress.path().read_bytes())
    content[4096 : 2 * 4096] = b"\xff" * 4096  # the second page is the root of the events
    progress.path().write_bytes(content)
    assert "is damaged" in passed()
    assert progress.path().read_bytes() == content


def test_a_folder_in_the_place_of_the_log_is_named(home):
    progress.path().mkdir(parents=True)
    assert f"{progress.path()} is a folder. Rename it" in passed()
    with pytest.raises(progress.ProgressError, match="is a folder"):
        progress.events()


def test_a_log_locked_by_another_writer_is_waited_for_and_then_let_go(monkeypatch):
    monkeypatch.setattr(progress, "_BUSY_SECONDS", 0.05)
    passed("first")
    with contextlib.closing(sqlite3.connect(progress.path(), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "Another program keeps" in passed("second")
        with pytest.raises(progress.ProgressError, match="Another program keeps"):
            progress.events()
    assert passed("third") is None
    assert [event.item for event in progress.events()] == ["first", "third"]


def test_after_one_failure_the_next_call_does_not_wait_long(monkeypatch):
    waits = []
    connect = sqlite3.connect

    def refusing(*args, timeout, **kwargs):
        waits.append(timeout)
        if len(waits) < 3:
            raise sqlite3.OperationalError("no")
        return connect(*args, timeout=timeout, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    for _ in range(4):
        passed()
    long, short = progress._BUSY_SECONDS, progress._BUSY_SECONDS_AFTER_A_FAILURE
    assert waits == [long, short, short, long]


FULL_DISK = """
import resource, sys
from labkit.base import progress
progress.record("check", lab="L", item="before", status="passed")
# No file of this process may grow beyond what the log has now: the next page cannot be written.
size = progress.path().stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
print(progress.record("check", lab="L", item="big", status="passed", note="x" * 100_000))
print(progress.record("check", lab="L", item="big", status="passed", note="x" * 100_000))
print([event.item for event in progress.events()])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_costs_the_event_and_nothing_else(home):
    out = subprocess.run(
        [sys.executable, "-c", FULL_DISK], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert out[0].startswith("Your progress is not recorded. ")
    assert out[1:] == ["None", "['before']"]
    assert [event.item for event in progress.events()] == ["before"]
    assert raw("PRAGMA integrity_check") == [("ok",)]


READ_ONLY = """
import os
from labkit.base import progress
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
print(progress.record("check", lab="L", item="after", status="passed"))
print(progress.why_not_writable())
print([event.item for event in progress.events()])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders are protected in another way there")
@pytest.mark.parametrize("there_is_a_log", [True, False])
def test_a_read_only_folder_is_told_and_its_log_still_read(monkeypatch, there_is_a_log):
    # Not tmp_path: nobody but root may enter the folders above it.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("LABKIT_HOME", folder)
        if there_is_a_log:
            passed("before")
            progress.path().chmod(0o444)
        Path(folder).chmod(0o555)
        out = subprocess.run(
            [sys.executable, "-c", READ_ONLY], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        Path(folder).chmod(0o755)
    assert out[0].startswith(f"Your progress is not recorded. {folder}")
    assert f"Make {folder} a folder that you may write to" in out[1]
    assert out[2] == ("['before']" if there_is_a_log else "[]")


def test_why_not_writable_leaves_no_event():
    assert progress.why_not_writable() is None
    assert progress.events() == []
    passed()
    assert progress.why_not_writable() is None
    assert raw("SELECT id FROM events") == [(1,)]


# Many writers, and a kill at any instant

WRITER = """
import sys
from labkit.base import progress
progress._BUSY_SECONDS = 120  # on a busy machine too, only a lost event shall fail the test
who = sys.argv[1]
for number in range(int(sys.argv[2])):
    said = progress.record("check", lab=who, item=str(number), status="passed")
    print(number if said is None else said, flush=True)
"""


def writer(who, events):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, who, str(events)], stdout=subprocess.PIPE, text=True
    )


def test_eight_writers_at_once_and_kills_in_the_middle_lose_nothing_acknowledged():
    enough = 10_000  # more than a killed writer lives to write
    writers = {f"w{n}": writer(f"w{n}", 25 if n < 4 else enough) for n in range(8)}
    acknowledged = {who: [] for who in writers}
    for kills, who in enumerate(list(writers)[4:]):
        # Each is killed while it writes on, after some events more than the one before.
        for _ in range(3 + 4 * kills):
            acknowledged[who].append(writers[who].stdout.readline().strip())
        os.kill(writers[who].pid, signal.SIGKILL)
    for who, process in writers.items():
        acknowledged[who] += process.stdout.read().split("\n")[:-1]
        process.wait(timeout=60)
    assert [process.returncode for process in writers.values()] == [0] * 4 + [-signal.SIGKILL] * 4
    assert raw("PRAGMA integrity_check") == [("ok",)]
    for who, lines in acknowledged.items():
        kept = [event.item for event in progress.events(lab=who)]
        assert lines == [str(number) for number in range(len(lines))], "an event was not taken"
        # A kill between the commit and the acknowledgement leaves one event more.
        assert kept[: len(lines)] == lines
        assert len(kept) - len(lines) in ((0, 1))
    assert [len(acknowledged[f"w{n}"]) for n in range(4)] == [25] * 4


def test_a_half_written_event_of_a_killed_writer_is_undone_by_the_next_reader(home):
    passed("before", note="x" * 5000)
    kill_in_the_middle = """
import os, signal, sqlite3
from labkit.base import progress
log = sqlite3.connect(progress.path(), isolation_level=None)
log.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the commit
log.execute("BEGIN IMMEDIATE")
for number in range(50):
    log.execute(progress._INSERT, ("", "check", "L", str(number), "passed", "x" * 5000))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", kill_in_the_middle], check=False)
    assert home.joinpath("progress.db-journal").stat().st_size > 0, "the kill left nothing to undo"
    assert [event.item for event in progress.events()] == ["before"]
    assert raw("PRAGMA integrity_check") == [("ok",)]


def test_the_first_event_of_eight_new_kernels_creates_one_log():
    writers = [writer(f"w{n}", 1) for n in range(8)]
    assert [process.communicate(timeout=60)[0] for process in writers] == ["0\n"] * 8
    assert sorted(event.lab for event in progress.events()) == [f"w{n}" for n in range(8)]


def test_details_stay_readable_json_for_other_tools():
    passed(guess=1, misconceptions=["max-not-gap"])
    ((detail,),) = raw("SELECT detail FROM events")
    assert json.loads(detail) == {"guess": 1, "misconceptions": ["max-not-gap"]}
