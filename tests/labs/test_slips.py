"""A slip is the solution with one change, made when it is asked for."""

import sys
import traceback
from types import ModuleType

import pytest

from labkit.base.home import NOTEBOOKS
from labkit.course.build import LABS
from labkit.course.lab_source import read_lab
from labkit.course.solution_text import solutions_text, topic
from labkit.labs.engine import Check, Slip, SlipError
from labkit.labs.engine.slips import text_of

SOURCES = sorted((NOTEBOOKS / "source").glob("*.py"))

TEXT = '''\
EXERCISES = {"mean": ("mean",), "pair": ("low", "high")}

# Exercise: mean
def mean(values):
    """The mean."""
    total = 0
    for value in values:
        total += value
    if not values:
        raise ValueError("no values")
    return total / len(values)
# End

half = mean

# Exercise: pair
low, high = 1, 2
def use(values):
    return half(values)
# End
'''


@pytest.fixture
def solutions(tmp_path, monkeypatch):
    """Solutions of a lab 99_made_up."""
    path = tmp_path / "solutions.py"
    path.write_text(TEXT)
    module = ModuleType("labkit.labs.made_up.solutions")
    module.__file__ = str(path)
    exec(compile(TEXT, str(path), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "labkit.labs.made_up", ModuleType("labkit.labs.made_up"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def slip(exercise="mean", **change) -> Slip:
    return Slip("99_made_up", exercise, "ulp-is-relative", "Why?", **change)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_solutions_are_what_their_source_gives(path):
    stored = LABS / topic(path.stem) / "solutions.py"
    assert stored.read_text(encoding="utf-8") == solutions_text(read_lab(path))


def test_a_cut_line_is_gone_and_its_block_stays_a_block(solutions):
    assert slip(cut="total += value").answer([4, 4]) == 0
    assert slip(cut=" / len(values)").answer([4, 4]) == 8
    lines = 'if not values:\n        raise ValueError("no values")'
    with pytest.raises(ZeroDivisionError):
        slip(cut=lines).answer([])
    assert solutions.mean([4, 4]) == 4, "the solution itself is untouched"


def test_a_swap_replaces(solutions):
    assert slip(swap=("total = 0", "total = 2")).answer([4, 4]) == 5


def test_an_exercise_of_two_names_gives_two_values(solutions):
    assert slip("pair", swap=("1, 2", "2, 1")).answer == (2, 1)


def test_a_text_that_does_not_stand_once_is_shown_with_its_number(solutions):
    for change, times in (({"cut": "values"}, 5), ({"swap": ("median", "")}, 0)):
        with pytest.raises(SlipError, match=rf"stands {times} times") as caught:
            _ = slip(**change).answer
        assert "return total / len(values)" in str(caught.value)
        assert "ulp-is-relative" in str(caught.value)


def test_a_slip_that_is_no_python_is_shown(solutions):
    with pytest.raises(SlipError, match="return total /") as caught:
        _ = slip(cut="len(values)").answer
    assert "invalid syntax" in str(caught.value)


@pytest.mark.parametrize("change", [{}, {"cut": "a", "swap": ("a", "b")}])
def test_a_slip_has_one_change(change):
    with pytest.raises(SlipError, match="one only"):
        slip(**change)


def test_no_answer_is_made_before_it_is_asked_for(monkeypatch):
    def check_nothing(data):
        """Nothing."""

    check_nothing.__globals__["LAB"] = "98_has_no_solutions"
    try:
        one = Check(lambda answer: answer, check_nothing)
    finally:
        del check_nothing.__globals__["LAB"]
    one.slip("ulp-is-relative", "Why?", cut="x")
    (wrong,) = one.known_wrong
    assert (wrong.misconception, wrong.question) == ("ulp-is-relative", "Why?")
    with pytest.raises(SlipError, match="labkit build 98_has_no_solutions"):
        _ = wrong.answer


def test_a_traceback_shows_the_slip_s_own_line(solutions):
    with pytest.raises(TypeError) as caught:
        slip(swap=("total = 0", "total = []")).answer([1])
    assert "total += value" in "".join(traceback.format_exception(caught.value))


def test_what_the_text_of_an_exercise_is(solutions):
    assert text_of(solutions, "pair").startswith("low, high = 1, 2\n")
    with pytest.raises(SlipError, match="it has mean, pair"):
        text_of(solutions, "median")
