"""Tests and the kernels they start write no progress; a learner's own copies are no tests.

nbval runs the learner notebooks, and lets a check cell end in any exception. Here it must end as an
unsolved one does. Solved notebooks run as on the plainest processor: their outputs were made on
another one, and both must agree.
"""

import argparse
import os
import re
from collections import defaultdict
from pathlib import Path
from unittest import mock

import pytest
from nbval.plugin import IPyNbCell

from tests.unsolved import problems_unsolved

# Set while pytest starts and not in a fixture: kernels inherit the environment of this process.
os.environ["LABKIT_PROGRESS"] = "off"
# The labs' tensors are small: on a machine of few cores, threads that wait for one another take
# longer than the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = [
    "notebooks/my_labs*",
    "my_labs*",
    # --doctest-modules imports every file.
    "labkit/_shipped",
    "labkit/labs/_template",
    "tests/labs/corpus",
]

LEARNER_NOTEBOOKS = Path(__file__).parent / "notebooks"
SOLVED_NOTEBOOKS = LEARNER_NOTEBOOKS / "solutions"
PLAINEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}
"""A processor without wide vectors that adds in one order, on one thread."""

seconds: defaultdict[str, float] = defaultdict(float)


def _count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)


def pytest_addoption(parser):
    parser.addoption(
        "--seeds",
        type=_count,
        default=1,
        metavar="N",
        help="each test that takes seeds runs its first N, 5 at most for a check (default: 1); a"
        " question is drawn 40 N times; above 1 all run of which otherwise one of a kind does, what"
        " is marked `thorough` among them, which is left out else even by its name",
    )


@pytest.fixture(scope="session")
def seeds(pytestconfig):
    """How many of a check's seeds an answer meets: ``check.seeds[:seeds]``."""
    return pytestconfig.getoption("seeds")


def pytest_generate_tests(metafunc):
    for mark in metafunc.definition.iter_markers("seeds"):
        (values,) = mark.args
        metafunc.parametrize("seed", values[: metafunc.config.getoption("seeds")])


def pytest_collection_modifyitems(config, items):
    """The files that take minutes come first: the workers then end at about the same time."""
    if config.getoption("seeds") == 1:
        thorough = {item for item in items if item.get_closest_marker("thorough")}
        config.hook.pytest_deselected(items=list(thorough))
        items[:] = [item for item in items if item not in thorough]
    long = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "browser")))}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if isinstance(item, IPyNbCell) and item.path.parent == SOLVED_NOTEBOOKS:
        with mock.patch.dict(os.environ, PLAINEST):  # the first cell's setup starts the kernel
            return (yield)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    unsolved = isinstance(item, IPyNbCell) and item.path.parent == LEARNER_NOTEBOOKS
    said = problems_unsolved(item.cell, item.test_outputs) if unsolved else []
    if said:
        item.raise_cell_error("\n".join(said))
    return result


def pytest_runtest_logreport(report):
    if re.match(r"notebooks/\d\d_", report.nodeid):
        seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter):
    if seconds:
        terminalreporter.section("learner notebooks, unsolved")
    for path, taken in seconds.items():
        terminalreporter.write_line(f"{taken:6.1f} s  {path}")
