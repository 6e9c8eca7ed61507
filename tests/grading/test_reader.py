"""The process that reads notebooks: what ends it costs one file, and the next one is read."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import odd_courses
import pytest
from handing_in import LAB, RIGHT_ULP, as_bytes, small, solved

from labkit.grading.course_labs import read_course
from labkit.grading.intake import reader, selecting
from labkit.grading.intake.deliveries import IntakeError
from labkit.grading.intake.notebooks_read import Unreadable

COURSE = read_course()
FILE = as_bytes(small(RIGHT_ULP))


@pytest.fixture(autouse=True)
def _with_odd_courses(monkeypatch):
    """A process that can import them, and the next one is read whatever happens."""
    reader._reader.close()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    yield
    assert reader.understand_apart(FILE, COURSE).code["ulp"] == RIGHT_ULP
    reader._reader.close()


@pytest.mark.parametrize("content", [FILE, as_bytes(solved())])
def test_it_reads_as_this_process_would(content):
    assert reader.understand_apart(content, COURSE) == selecting.understand(content, COURSE)


def test_a_notebook_of_another_lab_is_none():
    assert reader.understand_apart(FILE, COURSE, only="03_overflow_underflow_rounding") is None
    assert reader.understand_apart(FILE, COURSE, only=LAB).work.lab == LAB


def test_what_is_no_notebook_has_the_cause_that_it_has_here():
    with pytest.raises(Unreadable, match="The file is empty") as caught:
        reader.understand_apart(b"", COURSE)
    assert caught.value.cause == "empty"


def test_one_process_reads_many_files_and_takes_a_new_course():
    reader.understand_apart(FILE, COURSE)
    process = reader._reader.process
    one_lab = {LAB: COURSE[LAB]}
    other = as_bytes({**small("x = 1"), "metadata": {}})
    assert reader.understand_apart(other, COURSE, hint="00_start_here").work.lab == "00_start_here"
    with pytest.raises(Unreadable, match="no exercise of any lab"):
        reader.understand_apart(other, one_lab, hint="00_start_here")
    assert reader._reader.process is process


def test_a_file_that_hangs_it_is_refused(monkeypatch):
    reader.understand_apart(FILE, COURSE)
    monkeypatch.setattr(reader, "READ_SECONDS", 0.5)
    with pytest.raises(Unreadable, match=r"broken off after 0\.5 seconds") as caught:
        reader.understand_apart(FILE, odd_courses.Hanging())
    assert caught.value.cause == "too slow"
    monkeypatch.undo()


def test_a_file_that_ends_it_is_refused():
    with pytest.raises(Unreadable, match="ended the program that reads it") as caught:
        reader.understand_apart(FILE, odd_courses.Ending())
    assert caught.value.cause == "crashed"


def test_an_end_from_outside_costs_nothing():
    reader.understand_apart(FILE, COURSE)
    os.kill(reader._reader.process.pid, signal.SIGKILL)
    assert reader.understand_apart(FILE, COURSE).code["ulp"] == RIGHT_ULP


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is bounded on Linux")
def test_a_file_that_swells_is_refused():
    with pytest.raises(Unreadable, match="more memory than the grader allows") as caught:
        reader.understand_apart(FILE, odd_courses.Swelling())
    assert caught.value.cause == "too large"


def test_a_fault_of_our_own_is_said_and_printing_disturbs_nothing():
    with pytest.raises(Unreadable, match="ValueError: odd") as caught:
        reader.understand_apart(FILE, odd_courses.Raising())
    assert caught.value.cause == "grader"


def test_a_reply_that_nobody_took_is_not_the_next_file_s(monkeypatch):
    other = as_bytes(small("def ulp(x):\n    return 1"))
    reader.understand_apart(FILE, COURSE)

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(reader._reader, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.understand_apart(FILE, COURSE)
    monkeypatch.undo()
    assert reader.understand_apart(other, COURSE).code["ulp"] == "def ulp(x):\n    return 1"


def test_where_it_does_not_start_grading_does_not(monkeypatch):
    monkeypatch.setattr(reader.sys, "executable", "/bin/false")
    with pytest.raises(IntakeError, match="does not start"):
        reader.understand_apart(FILE, COURSE)
    monkeypatch.undo()


def test_it_ends_with_the_grader():
    code = (
        "from labkit.grading.course_labs import read_course\n"
        "from labkit.grading.intake import reader\n"
        "try: reader.understand_apart(b'', read_course())\n"
        "except Exception: print(reader._reader.process.pid)\n"
        "import os; os._exit(0)"  # without a word of farewell, as when it is killed
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{done.stdout.strip()}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{done.stdout.strip()}")
