"""What the labs' exercises forbid: it exists, and the text says it.

No right answer uses it: tests/labs/test_labs.py, tests/labs/test_corpus.py and
tests/grading/test_replayed_answers.py see to that where they judge them.
"""

import json
import pkgutil
import re

from test_labs import CHECKS

from labkit.base.home import NOTEBOOKS


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


def test_each_forbidden_function_is_one_and_the_exercise_s_text_names_it():
    forbidding = [check for check in CHECKS if check.own_work]
    assert len(forbidding) > 40
    untold = []
    for check in forbidding:
        spans = " ".join(re.findall(r"`[^`]+`", statement(check.lab, check.exercise)))
        for name in check.own_work:
            assert callable(pkgutil.resolve_name(name)), name
            if not re.search(rf"(?<!\w){name.rpartition('.')[2]}(?!\w)", spans):
                untold.append((check.lab, check.exercise, name))
    assert untold == []


def test_a_statement_begins_at_its_own_heading():
    text = statement("03_overflow_underflow_rounding", "kahan")
    assert text.startswith("Exercise: Kahan\n") and "258" in text and "swamping" not in text
