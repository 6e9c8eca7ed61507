"""A save that is killed needs a process of its own: here it is a fork of one that is warm."""

import subprocess
from types import SimpleNamespace

import pytest

from labkit.labs.production import killed_save
from tests import warm_python


@pytest.fixture(autouse=True)
def second_process(monkeypatch):
    """Where the processes of ``killed_save`` come from; ``second_process(warm=False)``: anew."""

    def come(*, warm: bool) -> None:
        run = warm_python.run if warm else subprocess.run
        standin = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
        monkeypatch.setattr(killed_save, "subprocess", standin)

    come(warm=True)
    return come
