"""One warm grader for all tests of a process, and patience made short."""

import pytest

from labkit.grading.judge.runner import Grader
from labkit.grading.records import Settings
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import metering


@pytest.fixture(scope="session")
def warm():
    """A grader of one worker in the sandbox; its processes take seconds to start."""
    if why := sandbox.why_not():
        pytest.skip(why)
    with Grader(Settings(secret=b"of the class")) as made:
        yield made


@pytest.fixture(scope="module")
def grader(warm):
    """The warm grader, which ends soon what sleeps; skips where bubblewrap cannot be used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metering, "IDLE_SECONDS", 1.0)
        patch.setattr(metering, "CELL_SECONDS", 1.0)
        yield warm
