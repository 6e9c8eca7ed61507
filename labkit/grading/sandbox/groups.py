"""A memory cgroup for one submission, where the grader has been given a cgroup to divide.

The kernel then counts whatever the submission's processes take, what no process shows included, and
stops them at a limit. Elsewhere ``watching`` counts by itself. A group that was not given to us is
left alone: whoever made it, systemd or a batch system, works with what is in it.

    systemd-run --user --scope -p Delegate=yes python -m labkit grade ...
"""

import contextlib
import functools
import itertools
import os
import time
from pathlib import Path

CLOSE_SECONDS = 5.0
"""How long a group's processes may take to end."""

_GRADER = "labkit-grader"
_CONTROL = "cgroup.subtree_control"
_numbers = itertools.count()


@functools.cache
def home() -> Path | None:
    """The folder of our own cgroup, below which submissions get theirs; None where they cannot.

    Tried once. cgroup(7), version 2: a group whose groups count memory holds no process, so this
    one moves into a group of its own.
    """
    with contextlib.suppress(OSError, ValueError):
        own = _own(Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"))
        if own and _is_given(own):
            _divide(own)
            ControlGroup(own, limit_bytes=2**26).close()
            return own
    return None


class ControlGroup:
    """The cgroup of one submission below ``home``, with a limit at which the kernel kills in it.

    Raises OSError where it cannot be made.
    """

    def __init__(self, home: Path, *, limit_bytes: int):
        self.folder = home / f"labkit-{os.getpid()}-{next(_numbers)}"
        self.folder.mkdir()
        try:
            self._write("memory.max", limit_bytes)
            self._write("memory.oom.group", 1)
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                self._write("memory.swap.max", 0)
        except OSError:
            self.folder.rmdir()
            raise

    def enter(self, pid: int) -> None:
        """Put a process in; what it forks from now on is in too."""
        self._write("cgroup.procs", pid)

    def memory_bytes(self, enough: float, pids: list[int]) -> int:
        """What the kernel counts, files of the host that were read apart.

        These are looked up only where all together are more than ``enough``.
        """
        with contextlib.suppress(OSError):  # it is closed
            used = int(self._read("memory.current"))
            if used > enough:
                facts = dict(line.split() for line in self._read("memory.stat").splitlines())
                used -= int(facts["active_file"]) + int(facts["inactive_file"])
            return used
        return 0

    def has_killed(self) -> bool:
        """Whether the kernel has killed in it, because its memory was used up."""
        with contextlib.suppress(OSError):
            events = dict(line.split() for line in self._read("memory.events").splitlines())
            return events["oom_kill"] != "0"
        return False

    def close(self) -> None:
        """Remove it once its processes have ended."""
        end = time.monotonic() + CLOSE_SECONDS
        while time.monotonic() < end:
            try:
                return self.folder.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.01)
        return None

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="ascii")

    def _write(self, name: str, number: int) -> None:
        (self.folder / name).write_text(str(number), encoding="ascii")


def _own(groups: Path, mounts: Path) -> Path | None:
    """The folder of our own group of version 2, from two files of /proc."""
    own = [line[len("0::") :] for line in groups.read_text().splitlines() if line[:3] == "0::"]
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, mounted = before.split()[3:5]
        if own and after.startswith("cgroup2 ") and Path(own[0]).is_relative_to(root):
            return Path(mounted, Path(own[0]).relative_to(root))
    return None


def _is_given(own: Path) -> bool:
    """Whether it is a user's own, or marked as systemd marks what it delegates."""
    if own.stat().st_uid == os.geteuid() != 0:
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(own, name) == b"1":
                return True
    return False


def _divide(own: Path) -> None:
    """Let groups below count memory; raises OSError where somebody else's process is in it."""
    if "memory" in (own / _CONTROL).read_text().split():
        return
    grader = own / _GRADER
    grader.mkdir(exist_ok=True)
    try:
        (grader / "cgroup.procs").write_text(str(os.getpid()))
        (own / _CONTROL).write_text("+memory")
    except OSError:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        grader.rmdir()
        raise
