"""The true cause behind an error: the cell that failed, the module that is missing, the Python."""

import sys

import pytest

from labkit.grading.judge.error_causes import makers, with_causes
from labkit.grading.judge.snapshot import CellError
from labkit.grading.records import Work

NO_SNS = "No module named 'seaborn'"
UNDEFINED = "`ulp(3.0)` raised NameError: name 'sns' is not defined."


def work(*cells: str, python: str = "") -> Work:
    return Work(lab="02_number_formats", digest="0", cells=cells, exercises=(), python=python)


def error(number: int, message: str = NO_SNS, **changes) -> CellError:
    facts = {"type_name": "ModuleNotFoundError", "line": "import seaborn as sns", "stub": False}
    return CellError(number=number, message=message, **{**facts, **changes})


@pytest.mark.parametrize(
    "cell",
    [
        "import seaborn as sns",
        "import math, seaborn as sns, json",
        "if True:\n    import seaborn as sns",
        "from seaborn import sns",
        "from seaborn import (\n    heatmap,\n    sns,\n)",
        "from seaborn import *",
        "import seaborn\nsns = seaborn",
        "def sns(): return seaborn.x\nimport seaborn",
        "class sns: pass",
        "async def sns(): pass",
    ],
)
def test_a_name_that_is_missing_has_the_error_of_the_cell_that_makes_it(cell):
    said = with_causes(UNDEFINED, work("import torch", cell, "sns.set()"), [error(1)])
    assert said.startswith(
        f"{UNDEFINED} `sns` is missing because its cell raised ModuleNotFoundError: {NO_SNS} in"
        " your line `import seaborn as sns`."
    )


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        ("sns.set()", {}),  # it reads the name
        ("sns_other = 1", {}),
        ("import seaborn as other", {}),
        ("print('sns =')", {}),
        ("def sns(): ...", {"stub": True}),  # the marker of an exercise not begun
        ("import seaborn as sns", {"number": 7}),  # a number that the student's process made up
    ],
)
def test_another_cell_s_error_is_not_the_cause(cell, changes):
    errors = [error(**{"number": 0, **changes})]
    assert with_causes(UNDEFINED, work(cell), errors) == UNDEFINED


def test_of_two_cells_that_make_a_name_the_last_one_counts():
    errors = [error(0), error(1, "division by zero", type_name="ZeroDivisionError", line="")]
    said = with_causes(UNDEFINED, work("import seaborn as sns", "sns = 1 / 0"), errors)
    assert said == (
        f"{UNDEFINED} `sns` is missing because its cell raised ZeroDivisionError: division by zero."
    )


def test_a_module_that_is_missing_is_named_with_what_to_do():
    said = with_causes("`f` raised ModuleNotFoundError: No module named 'helpers'.", work(), [])
    assert "`helpers` was not handed in" in said
    assert "upload helpers.py beside the notebook" in said


@pytest.mark.parametrize("module", ["math", "torch.no_such_part", "json.x.y", "__main__"])
def test_a_module_that_is_here_was_not_to_be_handed_in(module):
    message = f"`f` raised ModuleNotFoundError: No module named '{module}'."
    assert with_causes(message, work(), []) == message


HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    "message",
    [
        "The cell that makes `f` raised SyntaxError: f-string: expecting '}' (<cell 1>, line 1).",
        "`f(1)` raised ImportError: cannot import name 'batched' from 'itertools'.",
    ],
)
def test_what_only_a_newer_python_knows_names_both(message):
    said = with_causes(message, work(python="3.99"), [])
    assert said.startswith(message)
    assert "Python 3.99" in said and f"runs {HERE}" in said
    for python in ("", "3.6", HERE):
        assert with_causes(message, work(python=python), []) == message
    assert with_causes("IndentationError: x", work(python="3.99"), []) == "IndentationError: x"


def test_a_message_on_a_wrong_value_stays_as_it_is():
    message = "`ulp(3.0)` is 1; 2 is wanted."
    assert with_causes(message, work("x", python="3.99"), [error(0)]) == message


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("from g import f", True),
        ("from g import (\n    a,\n    f,\n)", True),
        ("import g as f", True),
        ("import g.f", True),
        ("def f(x): pass", True),
        ("  async  def f(): pass", True),
        ("class f:", True),
        ("f = 1", True),
        ("f: int = 1", True),
        ("f, g = 1, 2", True),
        ("f", True),
        ("def ff(x)", False),
        ("g = f", False),
        ("f(x)", False),
        ("import ff, g", False),
        ("from g import *", False),
    ],
)
def test_a_cell_that_makes_a_name_is_known_by_its_text(source, made):
    other = "def f(): pass"
    assert makers(["e", "f"], [other, source, f"x = (\n{source}"]) == [0, 1, 2][: 1 + 2 * made]


def test_where_no_cell_makes_a_name_it_may_come_with_everything():
    star = "from g import *"
    assert makers(["f"], ["x = 1", star]) == [1]
    assert makers(["f"], ["f = 1", star]) == [0]


def test_long_cells_are_searched_in_time_by_their_length():
    """By its square this would take hours."""
    cells = ["(" * 10**6, "import (" * 10**5, "\n" * 10**6, "from " * 10**5, "( \n" * 10**5]
    said = with_causes(UNDEFINED, work(*cells), [error(number) for number in range(len(cells))])
    assert said == UNDEFINED
