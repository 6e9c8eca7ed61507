"""Devices that are spoken to as ``torch.cuda`` is: a simulated one, and the CPU.

``AsyncDevice`` computes while the program goes on, with a clock of its own. It shows without a GPU
why a timer must wait, and what launches cost. Nothing in it waits: time is a number that launching
and synchronising move forward, so the same program reads the same times on every machine.
"""

import time
from dataclasses import dataclass


class DeviceEvent:
    """A mark in the queue of a device, with the methods of ``torch.cuda.Event``.

    ``device.Event(enable_timing=True)`` makes one.

    Raises:
        ValueError: ``elapsed_time`` of an event that was not recorded, or made without
            ``enable_timing=True``.
        RuntimeError: ``elapsed_time`` before the device has reached both events.
    """

    def __init__(self, device: "AsyncDevice | BlockingDevice", *, enable_timing: bool) -> None:
        self._device, self._timed = device, enable_timing
        self._at: float | None = None

    def record(self) -> None:
        """Put the mark at the end of the queue; returns at once."""
        self._at = self._device._end_of_queue()

    def query(self) -> bool:
        """Whether the device has reached the mark, or there is none."""
        return self._at is None or self._at <= self._device.clock()

    def synchronize(self) -> None:
        """Wait until the device reaches the mark."""
        if self._at is not None:
            self._device._wait_until(self._at)

    def elapsed_time(self, end_event: "DeviceEvent") -> float:
        """Milliseconds of the device between this event and ``end_event``."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return 1e3 * (end_event._at - self._at)


@dataclass(frozen=True)
class Span:
    """A kernel in the trace of an AsyncDevice, in seconds of its clock.

    Args:
        kernel: its name.
        called: when the program began to launch it; it went on at ``queued``.
        start, end: when the device began and ended.
    """

    kernel: str
    called: float
    queued: float
    start: float
    end: float


class AsyncDevice:
    """A simulated accelerator: ``launch`` returns at once, ``synchronize`` waits.

    Args:
        launch_seconds: what a launch costs the program.
        warm_up_seconds: what the first launch of each kernel costs the device besides, as loading
            and choosing a kernel does.

    ``trace`` holds a ``Span`` for each launch.

    Raises:
        ValueError: a time that is negative or not finite.

    >>> device = AsyncDevice(launch_seconds=1e-5)
    >>> start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    >>> start.record()
    >>> device.launch("matmul", seconds=0.002)
    >>> end.record()
    >>> end.query()
    False
    >>> end.synchronize()
    >>> round(start.elapsed_time(end), 6)
    2.01
    """

    def __init__(self, *, launch_seconds: float = 1e-5, warm_up_seconds: float = 0.0) -> None:
        self._launch = _checked("launch_seconds", launch_seconds)
        self._warm_up = _checked("warm_up_seconds", warm_up_seconds)
        self._now = 0.0
        self._busy_until = 0.0
        self._warm: set[str] = set()
        self.trace: list[Span] = []

    def Event(self, enable_timing: bool = False) -> DeviceEvent:
        """A mark for the queue of this device: ``torch.cuda.Event``."""
        return DeviceEvent(self, enable_timing=enable_timing)

    def clock(self) -> float:
        """Seconds, from a start of its own: what ``time.perf_counter`` is for a real device."""
        return self._now

    def launch(self, kernel: str, *, seconds: float) -> None:
        """Queue work that takes the device so long; returns before it is done.

        Raises:
            ValueError: a time that is negative or not finite.
        """
        seconds = _checked("seconds", seconds)
        if kernel not in self._warm:
            self._warm.add(kernel)
            seconds += self._warm_up
        called = self._now
        self._now += self._launch
        start = self._end_of_queue()
        self._busy_until = start + seconds
        self.trace.append(Span(kernel, called, self._now, start, self._busy_until))

    def work(self, seconds: float) -> None:
        """Let the program compute for so long, as Python between two launches does.

        Raises:
            ValueError: a time that is negative or not finite.
        """
        self._now += _checked("seconds", seconds)

    def synchronize(self) -> None:
        """Wait until everything that was launched is done."""
        self._wait_until(self._busy_until)

    def _end_of_queue(self) -> float:
        return max(self._now, self._busy_until)

    def _wait_until(self, at: float) -> None:
        self._now = max(self._now, at)


class BlockingDevice:
    """The CPU in the words of ``torch.cuda``: a call returns when its work is done.

    A timer written for ``torch.cuda`` times the CPU with it.
    """

    def Event(self, enable_timing: bool = False) -> DeviceEvent:
        """A mark that holds the time at which it was recorded."""
        return DeviceEvent(self, enable_timing=enable_timing)

    def clock(self) -> float:
        """Seconds of ``time.perf_counter``."""
        return time.perf_counter()

    def synchronize(self) -> None:
        """Nothing: no work is in flight."""

    _end_of_queue = clock

    def _wait_until(self, at: float) -> None:
        pass


def _checked(name: str, seconds: float) -> float:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name}={seconds!r}: pass a number of seconds from 0 on")
    return float(seconds)
