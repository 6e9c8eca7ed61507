"""What the labs' exercises forbid: it exists, the text says it, and no right answer uses it."""

import json
import pkgutil
import re

import pytest
from test_labs import CHECKS

from labkit.base.paths import NOTEBOOKS
from labkit.labs.engine import codec
from labkit.labs.engine.slips import solutions_of
from tests.corpus import every_snippet

FORBIDDING = [
    pytest.param(check, id=f"{check.lab[:2]} {check.exercise}")
    for check in CHECKS
    if check.own_work
]


def statement(lab: str, exercise: str) -> str:
    """The Markdown of the learner's notebook from an exercise's heading down to its cell."""
    cells = json.loads((NOTEBOOKS / f"{lab}.ipynb").read_text(encoding="utf-8"))["cells"]
    above = []
    for cell in cells:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == exercise:
            break
        if cell["cell_type"] == "markdown":
            above.append("".join(cell["source"]))
    return re.split(r"^#+ ", "\n".join(above), flags=re.MULTILINE)[-1]


@pytest.mark.parametrize("check", FORBIDDING)
def test_each_forbidden_function_is_one_and_the_exercise_s_text_names_it(check):
    spans = " ".join(re.findall(r"`[^`]+`", statement(check.lab, check.exercise)))
    for name in check.own_work:
        assert callable(pkgutil.resolve_name(name)), name
        assert re.search(rf"(?<!\w){name.rpartition('.')[2]}(?!\w)", spans), name


@pytest.mark.parametrize("check", FORBIDDING)
def test_right_and_known_wrong_answers_use_none_of_it(check):
    right = vars(solutions_of(check.lab))
    names = solutions_of(check.lab).EXERCISES[check.exercise]
    answers = {"the solution": tuple(right[name] for name in names)}
    answers |= {wrong.misconception: (wrong.answer,) for wrong in check.known_wrong}
    answers |= {
        snippet.place: (snippet.answer(),)
        for snippet in every_snippet()
        if (snippet.lab, snippet.exercise, snippet.kind) == (check.lab, check.exercise, "right")
    }
    seen = {
        place: codec.decode(check.collect(answer[0] if len(answer) == 1 else answer))["shortcuts"]
        for place, answer in answers.items()
    }
    assert {place: used for place, used in seen.items() if used} == {}


def test_a_statement_begins_at_its_own_heading():
    text = statement("03_overflow_underflow_rounding", "kahan")
    assert text.startswith("Exercise: Kahan\n") and "258" in text and "swamping" not in text
