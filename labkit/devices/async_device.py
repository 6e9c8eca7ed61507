"""A device that computes while the program goes on, simulated, with a clock of its own.

It shows without a GPU why a timer must synchronise. Nothing here waits: time is a number that
launching and synchronising move forward, so the same program reads the same times on every machine.
"""


class AsyncDevice:
    """A simulated accelerator: ``launch`` returns at once, ``synchronize`` waits.

    Args:
        launch_seconds: what a launch costs the program.
        warm_up_seconds: what the first launch of each kernel costs the device besides, as loading
            and choosing a kernel does.

    Raises:
        ValueError: a time that is negative or not finite.

    >>> device = AsyncDevice(launch_seconds=1e-5)
    >>> start = device.clock()
    >>> device.launch("matmul", seconds=0.002)
    >>> round(device.clock() - start, 6)
    1e-05
    >>> device.synchronize()
    >>> round(device.clock() - start, 6)
    0.00201
    """

    def __init__(self, *, launch_seconds: float = 1e-5, warm_up_seconds: float = 0.0) -> None:
        self._launch = _checked("launch_seconds", launch_seconds)
        self._warm_up = _checked("warm_up_seconds", warm_up_seconds)
        self._now = 0.0
        self._busy_until = 0.0
        self._warm: set[str] = set()

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
        self._now += self._launch
        self._busy_until = max(self._busy_until, self._now) + seconds

    def synchronize(self) -> None:
        """Wait until everything that was launched is done."""
        self._now = max(self._now, self._busy_until)


def _checked(name: str, seconds: float) -> float:
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name}={seconds!r}: pass a number of seconds from 0 on")
    return float(seconds)
