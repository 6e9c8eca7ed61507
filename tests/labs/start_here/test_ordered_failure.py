"""Lab 00 orders one failure: its sentence is told, and no log holds an idea against the learner."""

import re

import pytest

from labkit.base import progress
from labkit.base.home import NOTEBOOKS
from labkit.interview import log as interview
from labkit.labs.engine.checks import CheckFailed
from labkit.labs.engine.misconceptions import misconceptions_met
from labkit.labs.start_here.checks import check_fp16_bytes


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))


def ordered():
    """The answer that the lab's text orders."""
    text = (NOTEBOOKS / "source" / "00_start_here.py").read_text(encoding="utf-8")
    (line,) = re.findall(r"`return (.+)`", text)
    return lambda count: eval(line, {"count": count})


def test_the_ordered_failure_is_explained_and_shows_no_idea():
    with pytest.raises(CheckFailed, match=r"Four bytes are a float32\. How many bits"):
        check_fp16_bytes(ordered())
    (event,) = progress.events()
    assert (event.item, event.status) == ("fp16-bytes", "failed")
    assert misconceptions_met(progress.events()) == {}
    assert interview.mistakes() == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda count: 4.0 * count,
        lambda count: "4" * count if count < 10 else "many",
        lambda count: None,
        lambda count: 4 * count if count < 10 else 2 * count,
    ],
)
def test_nothing_else_that_fails_breaks_the_check(answer):
    result = check_fp16_bytes.result(answer)
    assert result.status == "failed" and "cannot make sense" not in result.message


def test_another_failure_still_shows_its_idea():
    with pytest.raises(CheckFailed, match="One byte is an FP8 value"):
        check_fp16_bytes(lambda count: count)
    (mistake,) = interview.mistakes()
    assert mistake.misconception == "fp16-takes-one-byte"
