"""What a tree of processes uses, seen from outside in /proc.

The kernel's limits count for each process. Here the whole tree below one process is summed: the
judge looks several times a second and kills the tree when it is over a limit.
"""

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

from labkit.grading.sandbox import groups

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

FILE_BYTES = 2**11
"""What the kernel holds of an empty file in memory: its inode, its name and their places."""

_WMEM = Path("/proc/sys/net/core/wmem_default")
SOCKET_BYTES = 2 * (int(_WMEM.read_text()) if _WMEM.exists() else 2**18)
"""What one socket holds of data that nobody has read, as the kernel counts it."""

# In /proc/PID/status: each page counts for every process that maps it.
_RESIDENT = ("RssAnon", "RssShmem", "VmSwap", "VmPTE")
# In /proc/PID/smaps_rollup: of a page that n processes map, each is counted an n-th.
_SHARES = ("Pss_Anon", "Pss_Shmem", "SwapPss")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a tree has used: CPU seconds so far; bytes of memory and processes now."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


class Tree:
    """The process ``root`` and everything below it.

    ``memory`` says what they take; by default it is counted. CPU time of children that were waited
    for is their parent's (cutime). The time of others is kept from when they were last seen, so
    that it never runs backwards.
    """

    def __init__(self, root: int, memory: "groups.Group | Counted | None" = None):
        self.root = root
        self.memory = memory or Counted()
        self._seen: dict[int, float] = {}
        self._most = 0.0

    def usage(self, enough: float = math.inf) -> Usage:
        """What the tree uses now; of a root that has ended, the CPU time last seen.

        ``memory_bytes`` is a quick count, never too low, and exact where that is above ``enough``.
        """
        found = members(self.root)
        with_children, alive = 0.0, []
        for pid in found:
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                own, waited = cpu_seconds(pid)
                self._seen[pid] = own
                with_children += own + waited
                alive.append(pid)
        self._most = max(self._most, with_children, sum(self._seen.values()))
        memory = self.memory.memory_bytes(enough, alive)
        return Usage(cpu_seconds=self._most, memory_bytes=memory, processes=len(alive))


class Counted:
    """What processes take, counted in /proc, where they have no cgroup of their own.

    Their own pages and page tables; and where ``server`` is the sandbox that they run in, files in
    its memory file systems and sockets in its network. The server's own memory is spared once: it
    shares its pages with what it forks. The kernel's other records, some MB a process, are not
    counted.
    """

    def __init__(self, server: int | None = None, *, folders: tuple[str, ...] = ()):
        self.spared = 0 if server is None else _sum_of(_status(server), _RESIDENT)
        self.folders = [f"/proc/{server}/root{folder}" for folder in folders]
        self.network = f"/proc/{server}/net/unix" if folders else os.devnull
        self.outside = self._files_and_sockets()

    def memory_bytes(self, enough: float, pids: list[int]) -> int:
        """Bytes that these processes take; see ``Tree.usage``."""
        more = max(0, self._files_and_sockets() - self.outside)
        # Pages that processes share are counted for each.
        quick = sum(_sum_of(_status(pid), _RESIDENT) for pid in pids) + more
        if quick <= enough:
            return quick
        # A process that ends between two looks leaves its shares to the others: look once more.
        exact = min(sum(map(_exactly, pids)) for _ in range(2))
        return max(0, exact - self.spared) + more

    def has_killed(self) -> bool:
        """As of a group; here the kernel kills by no limit of ours."""
        return False

    def _files_and_sockets(self) -> int:
        taken = 0
        for folder in self.folders:
            with contextlib.suppress(OSError):  # the server has just ended
                disk = os.statvfs(folder)
                taken += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
                taken += (disk.f_files - disk.f_ffree) * FILE_BYTES
        with contextlib.suppress(OSError), open(self.network, "rb") as sockets:
            taken += sum(1 for _ in sockets) * SOCKET_BYTES
        return taken


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


def out_of_memory_kills() -> int:
    """How many processes of this machine the kernel has killed because memory was used up."""
    with contextlib.suppress(OSError), open("/proc/vmstat", encoding="ascii") as facts:
        return next((int(line.split()[1]) for line in facts if line.startswith("oom_kill ")), 0)
    return 0


def data_bytes(pid: int) -> int:
    """What the kernel counts for RLIMIT_DATA of a process."""
    return _status(pid).get("VmData", 0)


def pid_behind(pidfd: int) -> int:
    """The process id, as seen here, behind a handle that came out of a namespace."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))


def _exactly(pid: int) -> int:
    status, shares = _status(pid), _sizes(f"/proc/{pid}/smaps_rollup")
    if not shares:  # it has just ended, or may not be read
        return _sum_of(status, _RESIDENT)
    return _sum_of(shares, _SHARES) + status.get("VmPTE", 0)


def _sum_of(facts: dict[str, int], names: tuple[str, ...]) -> int:
    return sum(facts.get(name, 0) for name in names)


def _status(pid: int) -> dict[str, int]:
    return _sizes(f"/proc/{pid}/status")


def _sizes(path: str) -> dict[str, int]:
    """The sizes in a file of /proc by name, in bytes; none of a process that has ended."""
    found = {}
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            if rest.endswith(b" kB\n"):
                found[name.decode()] = int(rest.split()[0]) * 1024
    return found
