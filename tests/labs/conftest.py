"""A save that is killed needs a process of its own: here it is a fork of one that is warm."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import warm_python


@pytest.fixture(autouse=True)
def second_process(monkeypatch):
    """Where the processes of ``killed_save`` come from; ``second_process(warm=False)``: anew."""

    def come(*, warm: bool) -> None:
        killed_save = sys.modules.get("labkit.labs.production.killed_save")
        run = warm_python.run if warm else subprocess.run
        standin = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
        if killed_save:  # no test of its folder imports torch for it alone
            monkeypatch.setattr(killed_save, "subprocess", standin)

    come(warm=True)
    return come
