"""``labkit doctor --grader``: does `labkit grade` work here, and what does it promise?"""

import importlib.util
import os
from dataclasses import dataclass

from labkit.grading.sandbox import bubblewrap as sandbox

_PARTS = {"nbgrader": "--gradebook", "distributed": "--scheduler"}
_EXTRAS = {"nbgrader": "instructor", "distributed": "cluster"}


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Whether the sandbox starts here; ``why_not`` is None where it does."""

    why_not: str | None
    cores: int
    missing: tuple[str, ...]

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
            f"{_PARTS[name]} needs {name}: pip install 'mixed-precision-labs[{_EXTRAS[name]}]'"
            for name in self.missing
        ]
        promised = [sandbox.PROMISES, sandbox.NOT_PROTECTED]
        if not self.ready:
            promised = [sandbox.NOT_PROTECTED_UNSANDBOXED]
        last = "`labkit grade --self-test` grades solutions and wrong answers, to be sure."
        return "\n\n".join([first, *parts, *promised, last])


def examine() -> Readiness:
    """Try to start the sandbox, and look for the packages that some options need."""
    return Readiness(
        why_not=sandbox.why_not(),
        cores=os.cpu_count() or 1,
        missing=tuple(name for name in _PARTS if importlib.util.find_spec(name) is None),
    )
