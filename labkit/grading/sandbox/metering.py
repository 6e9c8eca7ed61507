"""Limits on a tree of processes while something is awaited from it.

CPU time decides, so that a verdict does not depend on how busy the machine is. Wall time is a
backstop for what sleeps, and marks its outcome for another run.
"""

import time
from dataclasses import dataclass

from labkit.grading.sandbox import watching

PROCESSES = 32
"""Processes of one submission at one time, the snapshot included."""

CELL_SECONDS = 30.0
"""CPU time of one cell outside of a check."""

CELLS_SECONDS = 120.0
"""CPU time of all cells together."""

WALL_FACTOR, WALL_EXTRA = 5, 30
"""Wall time allowed for a CPU limit: so many times the limit, and so many seconds."""

IDLE_SECONDS = 10.0
"""Wall time without any CPU time: what sleeps or waits for ever shall not take all the above."""

TICK_SECONDS = 0.05
"""Between two looks."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """CPU seconds, and bytes of memory of all processes together."""

    seconds: float
    memory_bytes: int


class Stopped(Exception):
    """A limit was reached or the process has gone; the snapshot is of no more use."""

    def __init__(self, cause: str, *, rerun: bool = False):
        super().__init__(cause)
        self.cause, self.rerun = cause, rerun


class Meter:
    """Limits on a tree of processes from now on. ``tree`` is None where /proc does not exist."""

    def __init__(self, tree: watching.Tree | None, limits: Limits):
        self.tree, self.limits = tree, limits
        self.start = self.busy = self.looked = time.monotonic()
        self.before = self.cpu = tree.usage().cpu_seconds if tree else 0.0

    def spent(self) -> float:
        """CPU seconds so far."""
        if self.tree:
            self.cpu = self.tree.usage().cpu_seconds
        return self.cpu - self.before

    def look(self) -> None:
        """Raise Stopped if a limit has been passed; looks at most once a tick."""
        now = time.monotonic()
        if now - self.looked < TICK_SECONDS:
            return
        self.looked = now
        if now - self.start > WALL_FACTOR * self.limits.seconds + WALL_EXTRA:
            raise Stopped("time", rerun=True)
        if self.tree is None:
            return
        usage = self.tree.usage()
        if usage.cpu_seconds > self.cpu:
            self.cpu, self.busy = usage.cpu_seconds, now
        if self.cpu - self.before > self.limits.seconds:
            raise Stopped("time")
        if usage.memory_bytes > self.limits.memory_bytes:
            raise Stopped("memory")
        if usage.processes > PROCESSES:
            raise Stopped("processes")
        if now - self.busy > IDLE_SECONDS:
            raise Stopped("time", rerun=True)
