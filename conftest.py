"""Tests and the kernels they start write no progress; a learner's own copies are no tests.

nbval runs the learner notebooks, and lets a check cell end in any exception. Here it must end as an
unsolved one does.
"""

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell

from tests.unsolved import problems_unsolved

# Set while pytest starts and not in a fixture: kernels inherit the environment of this process.
os.environ["LABKIT_PROGRESS"] = "off"
# The labs' tensors are small: on a machine of few cores, threads that wait for one another take
# longer than the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = ["notebooks/my_labs*", "my_labs*"]

LEARNER_NOTEBOOKS = Path(__file__).parent / "notebooks"
seconds: defaultdict[str, float] = defaultdict(float)


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
