"""One warm grader for all tests of a module, and patience made short."""

import pytest

from labkit.grading.judge.runner import Grader
from labkit.grading.records import Settings
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import metering


@pytest.fixture(scope="module")
def grader():
    """A grader of one worker in the sandbox; skips where bubblewrap cannot be used."""
    if why := sandbox.why_not():
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch, Grader(Settings(secret=b"of the class")) as made:
        patch.setattr(metering, "IDLE_SECONDS", 1.0)
        patch.setattr(metering, "CELL_SECONDS", 1.0)
        yield made
