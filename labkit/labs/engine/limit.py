"""A limit on how long an answer runs: after it, ``TookTooLong`` is raised in the answer's own code.

The main thread is interrupted: by a timer's signal where the platform has one, else by a second
thread that interrupts it as Ctrl-C would. The exception is raised where a line of the learner's
runs, so that labkit, torch and their context managers are never left half-way; one that the answer
swallows is raised again. A single call into C that never returns cannot be stopped.
"""

import _thread
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from labkit.labs.engine.own_work import is_learners
from labkit.labs.engine.running import TookTooLong

LEAST_SECONDS = 120.0
"""No check is stopped before this."""

TIMES = 20
"""A check is stopped after so many times the seconds that its author gives it."""

_AGAIN_SECONDS = 0.1  # between two tries
_PATIENCE_SECONDS = 10.0  # for which a learner's line is waited for


class _Alarm:
    """What happens when the time is over, in the main thread, at whatever frame it has reached."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.is_set = True

    def ring(self, frame: types.FrameType | None) -> None:
        late = time.monotonic() - self.end
        if not self.is_set or late < 0 or frame is None:
            return
        if is_learners(frame) or late > _PATIENCE_SECONDS:
            self.end += late  # what unwinds now has time of its own
            raise TookTooLong(f"{self.seconds:g}")


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise ``TookTooLong`` in the block when it runs longer than this.

    Outside of the main thread there is no limit: nothing can interrupt another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    alarm = _Alarm(seconds)
    stop = (_by_timer if hasattr(signal, "setitimer") else _by_thread)(alarm)
    try:
        yield
    finally:
        alarm.is_set = False
        stop()


def _by_timer(alarm: _Alarm) -> Callable[[], None]:
    """Set a timer's signal; returns what takes it away, and sets one that was there again."""
    before = signal.signal(signal.SIGALRM, lambda _, frame: alarm.ring(frame))
    left, interval = signal.setitimer(signal.ITIMER_REAL, alarm.seconds, _AGAIN_SECONDS)
    begun = time.monotonic()

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if left:
            still = max(left - (time.monotonic() - begun), _AGAIN_SECONDS)
            signal.setitimer(signal.ITIMER_REAL, still, interval)

    return stop


def _by_thread(alarm: _Alarm) -> Callable[[], None]:
    """Start a thread that interrupts the main one; returns what ends it."""
    over, waiting = threading.Event(), threading.Event()
    before: Any = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: types.FrameType | None) -> None:
        if waiting.is_set():
            waiting.clear()
            alarm.ring(frame)
        elif callable(before):  # somebody pressed Ctrl-C
            before(number, frame)

    def watch() -> None:
        wait = alarm.seconds
        while not over.wait(wait):
            waiting.set()
            _thread.interrupt_main()
            wait = _AGAIN_SECONDS

    signal.signal(signal.SIGINT, interrupted)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)

    return stop
