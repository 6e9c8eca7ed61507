"""The self-test finds a grader that does not grade as it should, and the doctor one that cannot."""

import json

import pytest
from quick_grader import QuickGrader, grade_command

from labkit.__main__ import main
from labkit.grading.course_labs import read_course
from labkit.grading.judge import selftest
from labkit.grading.records import Outcome
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import sandbox_state


def test_the_runner_grades_lab_00_as_it_should(capsys):
    words = ["--self-test", "--lab", "00", "--jobs", "1"]
    assert grade_command(words + ["--no-sandbox"] * bool(sandbox.why_not())) == 0
    said = capsys.readouterr().out
    assert "The grader is in order." in said
    assert said.count(" as expected, 0 not") == 3


class Generous(QuickGrader):
    """Passes whatever it gets, but for one exercise."""

    def grade(self, work):
        return [
            Outcome(exercise=one.exercise, status="passed", message="Right.", score=1.0)
            for one in work.exercises
            if one.exercise != "snap"
        ]


def test_a_grader_that_passes_everything_is_found_out(capsys):
    assert grade_command(["--self-test", "--lab", "02"], Generous) == 1
    said = capsys.readouterr().out
    assert "02_number_formats, solution 02_number_formats.ipynb: snap is not graded" in said
    assert "unsolved notebook 02_number_formats.ipynb: ulp is passed" in said
    assert "known wrong answer ulp 1, ulp-is-relative: ulp is passed" in said
    assert "The grader does not grade as it should here." in said


@pytest.mark.slow
def test_every_known_wrong_answer_of_every_lab_is_a_case():
    from labkit.grading.judge.shipping import check_modules, checks_in

    course = read_course()
    cases = [case for lab in course.values() for case in selftest._cases(lab)]
    wrong = [case for case in cases if case.kind == selftest.WRONG]
    shipped = [
        known
        for module in check_modules()
        for check in checks_in(module)
        if check.lab in course
        for known in check.known_wrong
    ]
    assert len(wrong) == len(shipped)
    assert len({case.work.digest for case in cases}) == len(cases)


@pytest.mark.parametrize("why", [None, "bubblewrap is not installed"])
def test_the_doctor_says_whether_one_can_grade_here(monkeypatch, capsys, why):
    monkeypatch.setattr(sandbox, "why_not", lambda: why)
    assert main(["doctor", "--grader"]) == (1 if why else 0)
    said = capsys.readouterr().out
    if why:
        assert "The sandbox does not start here: bubblewrap is not installed." in said
        assert sandbox.NOT_PROTECTED_UNSANDBOXED in said
    else:
        assert "The sandbox starts here." in said
        assert sandbox.PROMISES in said and sandbox.NOT_PROTECTED in said
    assert main(["doctor", "--grader", "--json"]) == (1 if why else 0)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ready"], facts["why_not"]) == (why is None, why)


def test_what_options_need_is_named(monkeypatch):
    monkeypatch.setattr(sandbox, "why_not", lambda: None)
    monkeypatch.setattr(sandbox_state.importlib.util, "find_spec", lambda name: None)
    assert "--scheduler needs distributed: pip install" in str(sandbox_state.sandbox_state())
