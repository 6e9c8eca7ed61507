"""What a student's page tells of a hidden check, and answers that would have it tell more."""

import csv
import html
import re
from pathlib import Path

import pytest
from handing_in import LAB, hand_in, small
from quick_grader import QuickGrader, answer, grade_command

from labkit.__main__ import main
from labkit.grading.command import ALL_GRADED
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import metering

SECRETS = ("54321", "43210", "kumquat")
"""What the hidden check asks, and a word of its message; no answer below holds them."""

EXTRA = f'''
from labkit.labs.engine import Mistake, attempt, check

LAB = "{LAB}"
POINTS = {{"ulp": 3}}
CASES = [54321.0, 43210.0]


def run_ulp(ulp):
    return [attempt(ulp, x) for x in CASES]


@check(run_ulp)
def check_ulp(gaps):
    """Every kumquat."""
    for x, gap in zip(CASES, gaps):
        if gap != 32.0:
            raise Mistake(f"kumquat: `ulp({{x}})` is {{gap!r}}, and 32 is wanted.")
'''

LOOK = """\
import os, re, sys, time, warnings

places = ["/tmp/left", "left", os.path.expanduser("~/left"), "/dev/shm/left"]


def seen():
    said, frame = [], sys._getframe(1)
    while frame:
        said += [repr(frame.f_globals)[:10**6], repr(frame.f_locals)[:10**6]]
        frame = frame.f_back
    return " ".join(sorted(set(re.findall(r"[45][43][32][21][10](?=[.]0)", " ".join(said)))))


def left():
    found = [os.environ.get("LEFT", "")]
    for place in places:
        if os.path.exists(place):
            found.append(open(place).read())
    return " ".join(found)
"""

ATTACKS = {
    "raises": "raise ValueError(seen())",
    "returns": "return seen()",
    "prints": "print(seen()); os.write(1, seen().encode()); warnings.warn(seen()); return 1.0",
    "leaves": """\
    os.environ["LEFT"] = seen()
    for place in places:
        try:
            open(place, "w").write(seen())
        except OSError:
            pass
    raise ValueError("left: " + left())""",
    "sleeps": "time.sleep(60 if seen() else 0); return 1.0",
}
"""The body of ``ulp``, where ``seen()`` is what a frame above it holds of the hidden inputs."""


def attack(name: str) -> dict:
    return small(f"{LOOK}\n\ndef ulp(x):\n    {ATTACKS[name].strip()}\n")


def page(root: Path, student: str) -> str:
    return html.unescape((root / "grades.feedback" / f"{student}.html").read_text())


def section(root: Path, student: str, row: str) -> str:
    """The part of a page that is about one row, its tags left out."""
    found = re.search(rf'<article id="{LAB}-{row}">(.*?)</article>', page(root, student), re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", found[1]).split())


def told(root: Path, student: str) -> set[str]:
    """The secrets that stand on a student's page."""
    return {secret for secret in SECRETS if secret in page(root, student)}


def table(root: Path, student: str, exercise: str) -> dict:
    with open(root / "grades.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    (line,) = [one for one in lines if (one["student"], one["exercise"]) == (student, exercise)]
    return line


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A class of attacks, graded; gives its folder and a function that grades it once more."""
    if why := sandbox.why_not():
        pytest.skip(why)
    root = tmp_path_factory.mktemp("attacked")
    hand_in(root / "class", **{name: attack(name) for name in ATTACKS})
    (root / "mine.py").write_text(EXTRA)

    def grade(*more: object) -> int:
        words = [root / "class", "-o", root / "grades.csv", "--jobs", "1"]
        words += ["--extra", root / "mine.py"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metering, "IDLE_SECONDS", 1.0)
            return grade_command([*words, *more])

    grade()
    return root, grade


def test_a_page_tells_of_a_hidden_check_whether_it_passed(attacked):
    root, _ = attacked
    for student in ATTACKS:
        assert told(root, student) == set(), student
        assert section(root, student, "hidden-ulp").startswith(
            "ulp, your instructor's check: failed, 0 of 3 What this check of your instructor"
        ), student


def test_further_cases_are_told_of_the_labs_own_check_alone(attacked):
    root, _ = attacked
    told_of_it = section(root, "prints", "ulp")
    assert "your answer fails in" in told_of_it and "It is also wrong here: ulp(" in told_of_it
    hidden = section(root, "prints", "hidden-ulp")
    assert "cases" not in hidden and "wrong" not in hidden


def test_the_attacks_see_the_inputs_and_the_instructor_reads_it(attacked):
    root, grade = attacked
    assert "kumquat: `ulp(54321.0)` is 1.0" in table(root, "prints", "hidden-ulp")["message"]
    assert "kumquat" in table(root, "returns", "hidden-ulp")["message"]
    assert "43210 54321" in table(root, "leaves", "hidden-ulp")["message"], "from case to case"
    assert table(root, "sleeps", "hidden-ulp")["rerun"] == "yes"
    grade("--hidden-feedback", "message")
    assert {"54321", "43210"} <= told(root, "raises")
    assert told(root, "returns") == set(SECRETS)


def test_nothing_flows_back_into_the_next_runs(attacked):
    root, grade = attacked
    grade()  # what slept has its second run, in which the lab's own check comes again
    assert "two runs" in table(root, "sleeps", "hidden-ulp")["message"]
    grade("--only", "ulp")
    for student in ATTACKS:
        assert told(root, student) == set(), student
        assert "43210" not in table(root, student, "ulp")["message"]


def test_passed_and_not_attempted_read_so(tmp_path):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small("pass"), eve=small(answer("breaks")))
    (tmp_path / "mine.py").write_text(EXTRA)
    words = [tmp_path, "-o", tmp_path / "grades.csv", "--extra", tmp_path / "mine.py"]
    assert grade_command(words, QuickGrader) != ALL_GRADED
    heads = {student: section(tmp_path, student, "hidden-ulp") for student in ("ada", "bob", "eve")}
    assert heads["ada"].startswith("ulp, your instructor's check: passed, 3 of 3")
    assert heads["bob"].startswith("ulp, your instructor's check: not attempted, 0 of 3")
    assert heads["eve"].startswith("ulp, your instructor's check: not graded, not graded")


def test_a_page_without_hidden_checks_has_the_points_of_the_others(tmp_path):
    hand_in(tmp_path, ada=small(answer("passes")), bob=small(answer("fails")))
    (tmp_path / "mine.py").write_text(EXTRA)
    words = [tmp_path, "-o", tmp_path / "grades.csv", "--extra", tmp_path / "mine.py"]
    assert grade_command([*words, "--hidden-feedback", "none"], QuickGrader) == ALL_GRADED
    for student, earned in (("ada", 2), ("bob", 0)):
        text = page(tmp_path, student)
        assert "hidden-ulp" not in text and "your instructor's check" not in text
        assert f"You earned {earned} of 6 points" in text
        assert "own checks count too and are not on this page" in text
    assert table(tmp_path, "ada", "hidden-ulp")["points"] == "3"


def test_what_to_tell_of_hidden_checks_needs_hidden_checks(tmp_path, capsys):
    hand_in(tmp_path, ada=small(answer("passes")))
    words = ["grade", str(tmp_path), "-o", str(tmp_path / "grades.csv")]
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--hidden-feedback", "none"])
    assert stopped.value.code == 2 and "--extra" in capsys.readouterr().err
