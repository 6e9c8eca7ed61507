"""What a tree of processes uses, seen from outside in /proc.

The kernel's limits count for each process. Here the whole tree below one process is summed: the
judge looks several times a second and kills the tree when it is over a limit.
"""

import contextlib
import os
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a tree has used: CPU seconds so far; bytes of memory and processes now."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


class Tree:
    """The process ``root`` and everything below it.

    ``spared_bytes`` of each process are not counted: what it shares with the server it was forked
    from. CPU time of children that were waited for is their parent's (cutime). The time of others
    is kept from when they were last seen, so that it never runs backwards.
    """

    def __init__(self, root: int, *, spared_bytes: int = 0):
        self.root = root
        self.spared_bytes = spared_bytes
        self._seen: dict[int, float] = {}
        self._most = 0.0

    def usage(self) -> Usage:
        """What the tree uses now; of a root that has ended, the CPU time last seen."""
        memory = count = 0
        with_children = 0.0
        for pid in members(self.root):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                own, waited = cpu_seconds(pid)
                self._seen[pid] = own
                with_children += own + waited
                memory += max(0, private_bytes(pid) - self.spared_bytes)
                count += 1
        self._most = max(self._most, with_children, sum(self._seen.values()))
        return Usage(cpu_seconds=self._most, memory_bytes=memory, processes=count)


def members(root: int) -> list[int]:
    """The process ids of a tree, root first."""
    found = [root]
    for pid in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as children:
                    found += [int(child) for child in children.read().split()]
    return found


def cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU time of a process, and of its children that have ended and were waited for."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        # man 5 proc: fields 14 to 17; the name in field 2 may hold spaces and parentheses.
        fields = stat.read().rpartition(b")")[2].split()
    own, kernel, waited, waited_kernel = (int(ticks) for ticks in fields[11:15])
    return (own + kernel) / TICKS, (waited + waited_kernel) / TICKS


def private_bytes(pid: int) -> int:
    """Memory of a process that no file backs, shared memory included."""
    return _status(pid, "RssAnon") + _status(pid, "RssShmem")


def data_bytes(pid: int) -> int:
    """What the kernel counts for RLIMIT_DATA of a process."""
    return _status(pid, "VmData")


def pid_behind(pidfd: int) -> int:
    """The process id, as seen here, behind a handle that came out of a namespace."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))


def _status(pid: int, field: str) -> int:
    with open(f"/proc/{pid}/status", "rb") as status:
        for line in status:
            if line.startswith(field.encode() + b":"):
                return int(line.split()[1]) * 1024
    return 0
