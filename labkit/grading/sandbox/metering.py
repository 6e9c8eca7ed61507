"""Limits on a tree of processes while something is awaited from it.

CPU time decides, so that a verdict does not depend on how busy the machine is. Wall time is a
backstop for what sleeps: for each wait, and for a submission as a whole, its cells run again
included. An outcome of wall time is for another run to confirm.
"""

import math
import time
from collections.abc import Iterable
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

LONGEST_SECONDS = 600.0
"""Wall time of one submission at most, unless the settings say otherwise."""

TICK_SECONDS = 0.05
"""Between two looks."""


def budget(seconds: Iterable[float]) -> float:
    """Wall seconds of a submission whose exercises may take so much CPU time each.

    Three times what its cells, run once, and its exercises may take: a machine may be busy.
    """
    return min(LONGEST_SECONDS, 3 * (CELLS_SECONDS + sum(seconds)))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """CPU seconds; bytes of memory of all processes together; when the submission's time is up."""

    seconds: float
    memory_bytes: int
    end: float = math.inf


class Stopped(Exception):
    """A limit was reached or the process has gone; the snapshot is of no more use.

    ``cause`` is "time", of CPU time; "wall", of a wait; "budget", of the submission's wall time;
    "memory", "processes", "output" or "protocol"; "crashed"; or "killed", where the process ended
    by a signal that somebody else may have sent.
    """

    def __init__(self, cause: str):
        super().__init__(cause)
        self.cause = cause


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
            raise Stopped("wall")
        if now > self.limits.end:
            raise Stopped("budget")
        if self.tree is None:
            return
        usage = self.tree.usage(self.limits.memory_bytes)
        if usage.cpu_seconds > self.cpu:
            self.cpu, self.busy = usage.cpu_seconds, now
        if self.cpu - self.before > self.limits.seconds:
            raise Stopped("time")
        if usage.memory_bytes > self.limits.memory_bytes or self.tree.memory.has_killed():
            raise Stopped("memory")
        if usage.processes > PROCESSES:
            raise Stopped("processes")
        if now - self.busy > IDLE_SECONDS:
            raise Stopped("wall")
