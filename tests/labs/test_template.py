"""The empty lab of labkit/labs/_template: copied as lab 99 it builds, and its checks hold."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.base.home import DATA
from labkit.course.build import LABS, TABLE_BEGINS, TABLE_ENDS
from labkit.grading.judge.shipping import check_modules

LABKIT = LABS.parent
CHECKED = """
from labkit.labs.new_topic import checks, solutions
from labkit.labs.engine.misconceptions import misconceptions
for name, one in vars(checks).items():
    if name.startswith("check_"):
        print(name, one.result(solutions.gap).status)
        for wrong in one.known_wrong:
            assert wrong.misconception in misconceptions()
            result = one.result(wrong.answer)
            assert result.misconceptions == (wrong.misconception,), result
            assert result.message.endswith(wrong.question), result
            print(result.status)
"""


def python(course: Path, *words: str) -> subprocess.CompletedProcess:
    settings = {"PYTHONPATH": str(course), "LABKIT_HOME": str(course / "home")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=course,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course of one lab, 99, which is the template."""
    course = tmp_path_factory.mktemp("course")
    shutil.copytree(LABKIT, course / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    folder = course / "labkit" / "labs" / "new_topic"
    shutil.copytree(course / "labkit" / "labs" / "_template", folder)
    for topic in (course / "labkit" / "labs").glob("*/solutions.py"):
        topic.unlink()  # a course of one lab has no other solutions
    (course / "data").mkdir()
    for each in DATA.iterdir():
        (course / "data" / each.name).symlink_to(each)
    (course / "data" / "terms.csv").unlink()  # its terms name labs that this course has not
    columns, _, _ = (DATA / "terms.csv").read_text(encoding="utf-8").partition("\n")
    (course / "data" / "terms.csv").write_text(f"{columns}\n")
    (course / "notebooks" / "source").mkdir(parents=True)
    (folder / "source.py").rename(course / "notebooks" / "source" / "99_new_topic.py")
    (course / "README.md").write_text(f"{TABLE_BEGINS}\n{TABLE_ENDS}\n")
    return course


def test_the_template_builds_and_its_checks_hold(course):
    built = python(course, "-m", "labkit", "build", "99")
    assert built.returncode == 0, built.stderr
    solved = nbformat.read(course / "notebooks/solutions/99_new_topic.ipynb", as_version=4)
    (check,) = [c for c in solved.cells if c.get("metadata", {}).get("nbgrader", {}).get("grade")]
    assert "passed" in str(check.outputs)
    assert "do one thing" in (course / "README.md").read_text(), "README's table has its row"
    assert python(course, "-m", "labkit", "build", "--check").returncode == 0
    checked = python(course, "-c", CHECKED)
    assert checked.stdout == "check_gap passed\n" + 4 * "failed\n", checked.stderr


def test_the_template_is_no_lab():
    assert not [module for module in check_modules() if "_template" in module.__name__]
