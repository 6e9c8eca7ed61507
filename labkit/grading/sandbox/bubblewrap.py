"""The sandbox around the warm server: bubblewrap, or none at all.

What is bound is what Python and labkit need: shared libraries, the standard library, the
environment's packages, the part of labkit that answers may import, by name, and the labs' data
without the questions. Every path is the same inside and outside, so that a message names the file
that a reader can open.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from labkit.base import home
from labkit.grading.sandbox import standin

DISK_BYTES = 64 * 2**20
"""The size of /tmp and of /dev/shm inside, and of any one file."""

SCRATCH = ("/tmp", "/dev/shm")
"""The folders inside that can be written to, each a memory file system; work is in the first."""

PROMISES = """\
A student's code runs as an unprivileged user in a bubblewrap sandbox of its own. It has no network.
It sees Python, its packages, the part of labkit that answers may import and the labs' data, all
read-only, and nothing else of your machine: no home folder, no other submission, no gradebook, no
solution, no judge, no --extra file. It sees no other process but those it starts. Computing time,
memory, processes, disk and output are limited for all that it starts together; what exceeds a limit
costs that exercise only. A notebook takes at most 10 minutes, cells that are run again included. A
process that crashes, or is killed from outside, is tried again before it counts. The verdict falls
outside: the judge sees only data, and runs nothing of the student's."""

NOT_PROTECTED = """\
Not promised: a fault of the Linux kernel or of bubblewrap is a way out. The first half of a check,
your own --extra checks included, runs beside the student's code. An answer written to deceive can
read its seed and inputs from Python's frames, and can fake what it measures beside the answer:
calls (of a forbidden function too), memory, dtypes, a kill. In a trial this succeeded in exercises
of labs 04, 07, 08, 13, 14, 15 and 17; docs/instructors.md lists them. The right answers stay
outside. A student can compute a right answer by any means that is in the sandbox, labkit and torch
included. Where one exercise builds on another, labkit's own answer to the earlier one is lent to
the later one, after the earlier one was judged. Limits are read 20 times a second, so that a
submission can pass one for a moment, and the kernel's own records of a process, some 30 MB, are not
part of its memory. System calls are filtered on x86-64 and ARM64 only. The environment of Python is
readable, so keep no secret in its folders."""

NOT_PROTECTED_UNSANDBOXED = """\
With --no-sandbox a student's code runs as you, in a process of its own for each exercise. It can
read and write all your files, the other submissions and the gradebook too, use the network, and
stop other programs of yours, the grader included. Verdicts still fall in another process. The
limits hold for code that does not evade them; outside Linux only the limit on wall time does. Use
it for code that you trust, or in a container or a virtual machine."""

CAN_FORK = sys.platform.startswith("linux")
"""Elsewhere a process that has imported torch cannot be forked safely."""

_NOT_INSTALLED = "is not among the packages of"

_INSIDE = ("__init__.py", "frames.py", "standin.py", "cells.py", "confine.py", "server.py")
_ALWAYS = (
    "__init__.py",
    "old_copies.py",
    "old_copies.txt",
    "base/__init__.py",
    "base/home.py",
    "base/progress.py",
)
_DATA_KEPT_OUT = {"questions", "misconceptions.toml", "records"}


def why_not() -> str | None:
    """Why the sandbox cannot be used here, with the system's own words; None where it can."""
    if not CAN_FORK:
        return (
            "bubblewrap runs on Linux only. Grade in WSL, a container or a virtual machine, or "
            "give --no-sandbox"
        )
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: `apt-get install bubblewrap`, or your system's package"
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return "this kernel does not list children in /proc, which the limits need"
    try:
        done = subprocess.run(
            command("probe"), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "bubblewrap starts and does not end"
    if done.returncode == 0 and done.stdout == "ok\n":
        return None
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    if missing := re.search(r"No module named '(\w+)", said[-1]):
        cure = "-e .` in the course's folder" if missing[1] == "labkit" else f"{missing[1]}`"
        return (
            f"{missing[1]} {_NOT_INSTALLED} {sys.executable}, which are all that the sandbox has:"
            " PYTHONPATH, the working folder and your user's own packages do not count in it."
            f" Install it in a virtual environment: `pip install {cure}"
        )
    return f"bubblewrap is installed and does not start: {said[-1]}"


def is_about_sandbox(why: str) -> bool:
    """Whether what ``why_not`` said concerns the sandbox, so that one can grade without it."""
    return _NOT_INSTALLED not in why


def start_server(how: str, said: BinaryIO) -> tuple[subprocess.Popen, socket.socket]:
    """Start a server: its process, and our end of its control socket.

    Args:
        how: "sandbox"; "bare", without one; or "alone", without one and without forks.
        said: the file that takes what it writes to stderr before it is ready.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        args = (str(theirs.fileno()), how)
        words = command(*args, *SCRATCH) if how == "sandbox" else [sys.executable, *_SERVER, *args]
        process = subprocess.Popen(
            words,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **_environment(), "HOME": os.environ.get("HOME", "/")},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    return process, ours


# -s -P: no packages of the user's home, no folder of the script in front of the path.
_SERVER = ("-s", "-P", "-B", "-m", "labkit.grading.sandbox.server")


def command(*args: str) -> list[str]:
    """The command line that runs the server with ``args`` in bubblewrap."""
    words = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "grader"]
    words += [
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    words += ["--cap-drop", "ALL"]
    if os.getuid() == 0:
        # Root sets up the mounts, then the server becomes nobody, and loses these two with it.
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user"]
    for name, value in _environment().items():
        words += ["--setenv", name, value]
    size = str(DISK_BYTES)
    # Not --dev: its zero gives memory that no process is charged for, its terminals likewise.
    words += ["--size", size, "--perms", "0755", "--tmpfs", "/dev"]
    for device in ("/dev/null", "/dev/random", "/dev/urandom"):
        words += ["--dev-bind", device, device]
    for folder in SCRATCH:
        words += ["--size", size, "--perms", "1777", "--tmpfs", folder]
    # What is bound comes after the empty folders that would hide it.
    bound = [*_libraries(), *_python(), *_labkit()]
    within = _within_scratch(bound)
    for folder in within:
        words += ["--perms", "0755", "--tmpfs", folder]
    words += [*_parents(bound), *bound]
    for folder in (*within, "/dev", "/"):
        words += ["--remount-ro", folder]
    words += ["--chdir", "/tmp"]
    return [*words, "--", sys.executable, *_SERVER, *args]


def _environment() -> dict[str, str]:
    one_thread = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **dict.fromkeys(one_thread, "1"),
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "LABKIT_PROGRESS": "off",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "PYTHONHASHSEED": "0",
    }


def _parents(bound: list[str]) -> list[str]:
    """The folders above what is bound: bubblewrap makes them for root alone."""
    words = []
    for folder in sorted(_above(bound) - {Path("/")}):
        words += ["--perms", "0755", "--dir", str(folder)]
    return words


def _within_scratch(bound: list[str]) -> list[str]:
    """The folders directly below SCRATCH that hold something bound: a clone in /tmp, or a Python.

    Each becomes a file system of its own, which is then made read-only. Otherwise a student's code
    could move the course's folder away and put another labkit in its place: without root the
    folders that bubblewrap makes belong to the user as whom that code runs.
    """
    scratch = {Path(folder) for folder in SCRATCH}
    return sorted(str(folder) for folder in _above(bound) if folder.parent in scratch)


def _above(bound: list[str]) -> set[Path]:
    targets = [Path(word) for word in bound if word.startswith("/")]
    return {folder for target in targets for folder in target.parents}


def _libraries() -> list[str]:
    words = []
    for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib"):
        if os.path.isdir(folder):
            words += ["--ro-bind", folder, folder]
    for folder in ("/lib", "/lib64"):
        if os.path.islink(folder):
            words += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            words += ["--ro-bind", folder, folder]
    for file in ("/etc/ld.so.cache", "/etc/localtime"):
        words += ["--ro-bind-try", file, file]
    for file in ("/proc/cpuinfo", "/proc/meminfo"):  # not /proc: it would show the server
        words += ["--ro-bind-try", file, file]
    return words


def _python() -> list[str]:
    """The interpreter, its standard library and the environment's packages."""
    words = []
    names = ("lib", sys.platlibdir)
    folders = [f"{prefix}/{name}" for prefix in (sys.base_prefix, sys.prefix) for name in names]
    for folder in dict.fromkeys(filter(os.path.isdir, folders)):
        if not folder.startswith("/usr/lib"):
            words += ["--ro-bind", folder, folder]
    real = os.path.realpath(sys.executable)
    words += ["--ro-bind", real, real]
    if real != sys.executable:
        words += ["--symlink", real, sys.executable]
    words += ["--ro-bind-try", f"{sys.prefix}/pyvenv.cfg", f"{sys.prefix}/pyvenv.cfg"]
    return words


def _labkit() -> list[str]:
    """labkit's own part of the sandbox, by name: what learners import, and the inner half."""
    package = Path(home.__file__).resolve().parents[1]
    bound = [package / name for name in (*_ALWAYS, *home.LEARNERS)]
    bound += [package / "labs" / "engine" / f"{name}.py" for name in standin.BESIDE]
    bound += [package / "labs" / "__init__.py", package / "labs" / "texts.py", *_of_labs(package)]
    bound += [package / "grading" / "__init__.py"]
    bound += [package / "grading" / "sandbox" / name for name in _INSIDE]
    bound += [path for path in sorted(home.DATA.iterdir()) if path.name not in _DATA_KEPT_OUT]
    words = []
    for path in bound:
        words += ["--ro-bind", str(path), str(path)]
    return ["--tmpfs", str(package), *_parents(words), *words, "--remount-ro", str(package)]


def _of_labs(package: Path) -> Iterator[Path]:
    """The modules of each lab's folder that answers may import: none that has a stand-in."""
    for path in sorted(package.glob("labs/[!_]*/*.py")):
        if not standin.STOOD_FOR.match(f"labkit.labs.{path.parent.name}.{path.stem}"):
            yield path
