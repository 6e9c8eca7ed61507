"""Whether the sandbox can be had, and what it says when it cannot."""

import subprocess

import pytest

from labkit.grading.judge.runner import Grader, GraderError
from labkit.grading.records import Settings
from labkit.grading.sandbox import bubblewrap as sandbox


def test_it_says_that_bubblewrap_is_missing(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert "apt-get install bubblewrap" in sandbox.why_not()
    with pytest.raises(GraderError, match=r"not installed.*--no-sandbox"), Grader(Settings()):
        pass


def test_it_says_that_the_system_is_another(monkeypatch):
    monkeypatch.setattr(sandbox, "CAN_FORK", False)
    assert "Linux only" in sandbox.why_not()


def test_it_repeats_why_bubblewrap_does_not_start(monkeypatch):
    words = "bwrap: setting up uid map: Permission denied"
    done = subprocess.CompletedProcess([], 1, stdout="", stderr=f"{words}\n")
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sandbox.subprocess, "run", lambda *args, **kwargs: done)
    assert sandbox.why_not() == f"bubblewrap is installed and does not start: {words}"


def test_no_checks_questions_or_solutions_are_bound():
    words = sandbox.command("probe")
    bound = [to for op, _, to in zip(words, words[1:], words[2:], strict=False) if "bind" in op]
    inside = [path.partition("/labkit/")[2] for path in bound]
    assert {path for path in inside if path.startswith("checks")} == {
        "checks/codec.py",
        "checks/running.py",
    }
    assert not any("solutions" in path or "questions" in path or "judge" in path for path in bound)
    assert not any(
        path.endswith(("/labkit", "/notebooks", "/data", "/home", "/root")) for path in bound
    )
