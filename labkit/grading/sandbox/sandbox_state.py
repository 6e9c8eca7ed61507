"""``labkit doctor --grader``: does `labkit grade` work here, and what does it promise?"""

import importlib.util
import os
from dataclasses import dataclass

from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import groups

_NEEDED = {"nbgrader": ("--gradebook", "instructor"), "distributed": ("--scheduler", "cluster")}
_IN_A_CGROUP = """\
Memory here: each submission has a cgroup of its own, and the kernel counts all that it takes."""
_COUNTED = """\
Memory here: the grader counts it 20 times a second: all pages of a submission's processes, its
files in memory and its sockets. Calls that hold memory in other ways fail. For an account by the
kernel, start the command in a cgroup of its own, where systemd gives you one:
systemd-run --user --scope -p Delegate=yes python -m labkit grade ..."""


@dataclass(frozen=True, kw_only=True)
class SandboxState:
    """Whether the sandbox starts here; ``why_not`` is None where it does.

    ``cgroup`` says whether submissions get a memory cgroup each; without one they are counted.
    """

    why_not: str | None
    cores: int
    missing: tuple[str, ...]
    cgroup: bool = False

    @property
    def ready(self) -> bool:
        return self.why_not is None

    def __str__(self) -> str:
        cores = f"{self.cores} core{'' if self.cores == 1 else 's'}"
        if self.ready:
            first = f"The sandbox starts here. `labkit grade` uses {cores} unless --jobs says less."
        else:
            first = f"The sandbox does not start here: {self.why_not}."
        parts = [
            f"{option} needs {name}: pip install 'mixed-precision-labs[{extra}]'"
            for name, (option, extra) in ((name, _NEEDED[name]) for name in self.missing)
        ]
        memory = _IN_A_CGROUP if self.cgroup else _COUNTED
        promised = [sandbox.PROMISES, memory, sandbox.NOT_PROTECTED]
        if not self.ready:
            about_sandbox = sandbox.is_about_sandbox(self.why_not)
            promised = [sandbox.NOT_PROTECTED_UNSANDBOXED] if about_sandbox else []
        last = "`labkit grade --self-test` grades solutions and wrong answers, to be sure."
        return "\n\n".join([first, *parts, *promised, last])


def sandbox_state() -> SandboxState:
    """Try to start the sandbox, and look for the packages that some options need."""
    return SandboxState(
        why_not=sandbox.why_not(),
        cores=os.cpu_count() or 1,
        missing=tuple(name for name in _NEEDED if importlib.util.find_spec(name) is None),
        cgroup=groups.home() is not None,
    )
