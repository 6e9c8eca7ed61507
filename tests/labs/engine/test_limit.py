"""An answer that never ends is stopped with a sentence, and the kernel is as it was."""

import math
import signal
import sys
import time
import warnings

import pytest
import torch

from labkit.emulation import emulate, emulate_gpu
from labkit.labs.engine import CheckFailed, attempt, calls, check, limit, same_value
from labkit.labs.engine.limit import limited
from labkit.labs.engine.running import TookTooLong

LAB = "99_test"


@check(calls([1.0]))
def check_end(values):
    """It ends."""
    same_value(values[0], 2.0, call="end(1.0)")


@pytest.fixture(params=["timer", "thread"])
def soon(request, monkeypatch):
    """A limit of a moment, by each of the two means."""
    monkeypatch.setattr(limit, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(limit, "_AGAIN_SECONDS", 0.01)
    if request.param == "thread":
        monkeypatch.delattr(signal, "setitimer")


def state():
    return (
        sys.stdout, sys.stderr, warnings.warn, warnings.showwarning, list(warnings.filters),
        signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT),
        torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), emulate._installed,
    )  # fmt: skip


def counts(x):
    while x > 0:
        x += 1


def swallows(x):
    while True:
        try:
            math.sqrt(x)
        except BaseException:
            math.sqrt(x)


def opens_autocast(x):
    while True:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            torch.ones(2, 2) @ torch.ones(2, 2)


def waits(x):
    while True:
        time.sleep(0.05)


@pytest.mark.parametrize("endless", [counts, swallows, opens_autocast, waits])
def test_an_endless_answer_is_stopped_and_leaves_nothing_behind(endless, soon):
    before = state()
    result = check_end.result(endless)
    assert result.status == "error"
    assert "still running after 0.2 seconds" in result.message
    assert result.message.endswith("Does one of your loops never end?")
    assert state() == before
    assert check_end.result(lambda x: 2 * x).status == "passed"


def test_the_line_at_which_it_was_stopped_is_shown(soon):
    assert "in your line `" in check_end.result(counts).message


def test_what_it_printed_is_shown(soon, capsys):
    def prints(x):
        print("begun")
        counts(x)

    with pytest.raises(CheckFailed, match="still running"):
        check_end(prints)
    assert "begun" in capsys.readouterr().out


def test_the_emulator_is_out_of_the_dispatcher_afterwards(soon):
    def run(answer):
        with emulate_gpu():
            return attempt(answer, 1.0)

    @check(run)
    def check_emulated(value):
        """Nothing."""

    assert check_emulated.result(opens_autocast).status == "error"
    assert emulate._installed is None and not torch.is_autocast_enabled("cpu")


def test_a_block_that_ends_in_time_is_left_alone(soon):
    before = state()
    with limited(60):
        assert state() != before
    assert state() == before


def test_a_timer_of_somebody_else_runs_on():
    seconds = 1000.0
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with limited(60):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        assert 60 < signal.getitimer(signal.ITIMER_REAL)[0] <= seconds
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def heard():
    """Ctrl-C as in a terminal: a shell that starts pytest in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_still_interrupts(soon):
    def presses(x):
        signal.raise_signal(signal.SIGINT)
        counts(x)

    with pytest.raises(KeyboardInterrupt):
        check_end.result(presses)


def test_no_except_of_exceptions_stops_it():
    assert not issubclass(TookTooLong, Exception)


def test_the_limit_is_twenty_times_the_check_s_own_seconds(monkeypatch):
    asked = []
    monkeypatch.setattr(limit, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(limit, "limited", lambda seconds: asked.append(seconds) or limited(60))
    from labkit.labs.number_formats.checks import check_ulp

    check_ulp.result(lambda x: 1.0)
    check_end.result(lambda x: 1.0)  # of no lab
    assert asked == [200, 1]
