"""Whether the sandbox can be had, and what it says when it cannot."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy
import pytest

from labkit.base import home
from labkit.grading.judge.runner import Grader, GraderError
from labkit.grading.records import Settings
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import sandbox_state, standin


def test_it_says_that_bubblewrap_is_missing(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert "apt-get install bubblewrap" in sandbox.why_not()
    with (
        pytest.raises(GraderError, match=r"not installed.*--no-sandbox"),
        Grader(Settings()),
    ):
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


@pytest.mark.parametrize(
    ("name", "cure"), [("labkit", "`pip install -e .`"), ("torch", "`pip install torch`")]
)
def test_a_package_that_only_pythonpath_finds_is_named_with_its_cure(monkeypatch, name, cure):
    said = f"/usr/bin/python: Error while finding module (No module named '{name}')\n"
    done = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sandbox.subprocess, "run", lambda *args, **kwargs: done)
    why = sandbox.why_not()
    assert why.startswith(f"{name} is not among the packages of {sys.executable}")
    assert "PYTHONPATH" in why and cure in why
    with pytest.raises(GraderError) as error, Grader(Settings()):
        pass
    assert "--no-sandbox" not in str(error.value)
    assert "--no-sandbox" not in str(sandbox_state.sandbox_state())


@pytest.mark.skipif(sandbox.why_not() is not None, reason="needs bubblewrap")
def test_labkit_that_only_pythonpath_finds_is_said_so(tmp_path):
    """As with an environment in which the course was never installed."""
    venv.create(tmp_path / "env", symlinks=True)
    packages = next((tmp_path / "env").glob("lib/python*/site-packages"))
    here = Path(numpy.__file__).parents[1]
    for entry in here.iterdir():
        if "mixed_precision" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    code = "from labkit.grading.sandbox import bubblewrap; print(bubblewrap.why_not())"
    done = subprocess.run(
        [tmp_path / "env/bin/python", "-c", code],
        env={**os.environ, "PYTHONPATH": str(home.NOTEBOOKS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith("labkit is not among the packages of"), done


def test_no_checks_questions_or_solutions_are_bound():
    words = sandbox.command("probe")
    bound = [to for op, _, to in zip(words, words[1:], words[2:], strict=False) if "bind" in op]
    inside = [path.partition("/labkit/")[2] for path in bound]
    assert {path for path in inside if path.startswith("labs/engine")} == {
        "labs/engine/codec.py",
        "labs/engine/own_work.py",
        "labs/engine/running.py",
    }
    folders = {path.partition("/")[0] for path in inside if "/" in path}
    assert folders <= {"base", "labs", "grading", "data", "tensors", "emulated", "recordings"}
    stems = {path.rpartition("/")[2].partition(".")[0] for path in inside}
    assert not stems & {"checks", "slips", "predictions", "solutions", "misconceptions", "judge"}
    assert not any(stem.startswith(("widget_", "question")) for stem in stems)
    assert not any(
        path.endswith(("/labkit", "/notebooks", "/data", "/home", "/root")) for path in bound
    )


WRITES = """
import os, sys
course, there = sys.argv[1:]
planted = os.path.join(course, "labkit.py")
for what, do in {
    "there": lambda: os.stat(there),
    "planted": lambda: open(planted, "w"),
    "moved": lambda: os.rename(course, course + "-away"),
}.items():
    try:
        do()
        print(what)
    except OSError:
        pass
"""


@pytest.mark.skipif(sandbox.why_not() is not None, reason="needs bubblewrap")
def test_a_course_in_tmp_can_be_neither_written_nor_moved(monkeypatch):
    """Its folder stands in a folder that can be written to, and the next submission reads it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as course:
        labkit = Path(course) / "labkit"
        shutil.copytree(Path(home.__file__).parents[1], labkit, ignore=lambda *_: ["_shipped"])
        monkeypatch.setattr(home, "__file__", str(labkit / "base" / "home.py"))
        words = sandbox.command("probe")
        words = words[: words.index("--") + 1]
        words += [sys.executable, "-c", WRITES, course, str(labkit / "formats" / "exact.py")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["there"], "")


WALK = """
import json, os, sys
regions = json.load(sys.stdin)
both = [[(line, json.dumps(line)[1:-1]) for line in lines] for lines in regions]
for folder, folders, files in os.walk("/"):
    if folder == "/usr":
        folders.remove("lib")  # the system's own
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        folders[:] = [name for name in folders if "labkit" in name or "mixed_precision" in name]
    for name in files:
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            continue  # a link to what is not bound
        if name.endswith((".py", ".ipynb", ".json", ".txt", ".md", ".toml")):
            text = open(path, encoding="utf-8", errors="replace").read()
            for lines in both:
                if all(line in text or quoted in text for line, quoted in lines):
                    print(path, lines[0][0])
        elif "labkit" in path and {"solutions", "checks", "slips"} & set(name.split(".")):
            print(path)
"""


def solved_regions() -> list[list[str]]:
    """The lines of each solution that a learner has to write, without those of a few letters."""
    regions = []
    for path in sorted((home.NOTEBOOKS / "source").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for region in re.findall(r"BEGIN SOLUTION\n(.*?)### END SOLUTION", text, re.DOTALL):
            lines = [line.strip() for line in region.splitlines()]
            regions.append([line for line in lines if len(line) >= 12])
    return [lines for lines in regions if lines]


def found_inside() -> list[str]:
    words = sandbox.command("probe")
    words = [*words[: words.index("--") + 1], sys.executable, "-c", WALK]
    done = subprocess.run(
        words, input=json.dumps(solved_regions()), capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(sandbox.why_not() is not None, reason="needs bubblewrap")
def test_no_text_of_a_solution_is_inside(monkeypatch):
    assert len(solved_regions()) >= 40
    assert found_inside() == []
    monkeypatch.setattr(standin, "STOOD_FOR", re.compile("nothing"))
    leaks = found_inside()
    assert any("number_formats/solutions.py" in leak for leak in leaks), "the guard can fail"
