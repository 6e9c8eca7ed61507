"""Exercises are found by name: whatever happened to cells and files, the answer counts."""

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from handing_in import LAB, RIGHT_ULP, as_bytes, cell_of, code, small, solved, unsolved, with_answer

from labkit.base.home import NOTEBOOKS, ManifestError
from labkit.course.cell_ids import cell_id
from labkit.grading.course_labs import read_course
from labkit.grading.intake import naming, selecting
from labkit.grading.intake.naming import names_of
from labkit.grading.intake.notebooks_read import Unreadable, read_notebook
from labkit.grading.intake.selecting import select_cells, which_lab

COURSE = read_course()


def selected(notebook: dict):
    read = read_notebook(as_bytes(notebook))
    lab, said = which_lab(read, COURSE)
    chosen = select_cells(read, lab)
    return chosen, (*said, *chosen.repairs)


@pytest.mark.parametrize("lab", COURSE)
def test_of_a_solved_lab_only_setup_and_answers_are_run(lab):
    read = read_notebook((NOTEBOOKS / "solutions" / f"{lab}.ipynb").read_bytes())
    found, said = which_lab(read, COURSE)
    chosen = select_cells(read, found)
    assert (found.lab, said, chosen.repairs) == (lab, (), ())
    assert all(chosen.code.values())
    answers = {source for source in chosen.work.cells if names_of(source).bound & found.names}
    assert len(answers) == len(found.exercises)
    others = [source for source in chosen.work.cells if source not in answers]
    assert others[0].strip() == found.setup
    # What else is run gives a name to an answer; no check and no guess is among it.
    assert not [source for source in others if source.startswith(("check_", "@predict"))]
    assert len(others) <= 6


ASKED = "@predict(guesses.step_at_2048)\ndef step():\n    return 2048\n"


@pytest.mark.parametrize(
    ("source", "run"),
    [
        (ASKED, False),
        (f"{ASKED}\nstep.guess(2049, sure=3)", False),
        (f"{ASKED}\nstep.guess(misspelt)", False),
        ("step.guess(misspelt)", False),
        (f"{ASKED}\nx = 1", True),
        ("def step(:", True),
    ],
)
def test_a_guess_is_not_run_and_whatever_else_stands_in_its_cell_is(source, run):
    notebook = unsolved()
    notebook["cells"].append(code(source) | {"metadata": {"labkit": {"predict": "mine"}}})
    chosen, _ = selected(notebook)
    assert (source in chosen.work.cells) == run


def test_the_work_is_keyed_by_the_bytes_of_the_file():
    one, _ = selected(solved())
    same, _ = selected(solved())
    other, _ = selected(with_answer(solved(), "ulp", RIGHT_ULP))
    assert one.work == same.work
    assert one.work.digest != other.work.digest


def test_an_unsolved_lab_is_run_too():
    chosen, said = selected(unsolved())
    assert said == ()
    assert "NotImplementedError" in chosen.code["ulp"]


MOVED = {
    "moved to the end": lambda n, c: n["cells"].append(n["cells"].pop(n["cells"].index(c))),
    "no id": lambda n, c: c.pop("id"),
    "another id": lambda n, c: c.update(id="mine"),
    "no metadata": lambda n, c: c.pop("metadata"),
    "retagged as a check": lambda n, c: c["metadata"].update(
        nbgrader={"grade": True, "solution": False, "grade_id": "check-ulp"}
    ),
    "retagged as a guess": lambda n, c: c["metadata"].update(labkit={"predict": "ones"}),
    "id of a demonstration": lambda n, c: c.update(id="lab-543d08c7a9c8-1"),
    "in one cell with its check": lambda n, c: c.update(source=f"{RIGHT_ULP}\ncheck_ulp(ulp)"),
    "behind a magic": lambda n, c: c.update(source=f"%%time\n{RIGHT_ULP}"),
}


@pytest.mark.parametrize("change", MOVED.values(), ids=MOVED)
def test_an_answer_counts_wherever_it_stands(change):
    notebook = with_answer(solved(), "ulp", RIGHT_ULP)
    change(notebook, cell_of(notebook, "def ulp("))
    chosen, _ = selected(notebook)
    assert RIGHT_ULP in chosen.code["ulp"]
    assert any(RIGHT_ULP in source for source in chosen.work.cells)


def test_an_answer_in_two_cells_counts_whole():
    helper = "def _exponent(x):\n    return max(math.frexp(x)[1] - 1 if x else -14, -14)\n"
    notebook = with_answer(solved(), "ulp", "def ulp(x):\n    return 2.0 ** (_exponent(x) - 10)")
    place = notebook["cells"].index(cell_of(notebook, "def ulp("))
    notebook["cells"].insert(place, code(helper))
    chosen, said = selected(notebook)
    assert helper in chosen.work.cells and said == ()


def test_an_answer_in_a_copied_cell_counts_and_the_open_one_is_left_out():
    for place in (0, 30):
        notebook = unsolved()
        notebook["cells"].insert(place, code(RIGHT_ULP))
        chosen, said = selected(notebook)
        assert chosen.code["ulp"] == RIGHT_ULP
        assert said == ("`ulp` was answered in another cell; the open one was left out.",)


def test_of_two_answers_the_last_counts_and_it_is_said():
    notebook = solved()
    notebook["cells"].append(code(RIGHT_ULP))
    chosen, said = selected(notebook)
    assert chosen.code["ulp"] == RIGHT_ULP
    assert said == ("`ulp` is defined in 2 cells; the last one counts, as in a kernel.",)


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_an_answer_in_a_cell_of_text_counts_and_it_is_said(kind):
    notebook = with_answer(unsolved(), "ulp", RIGHT_ULP)
    cell_of(notebook, "def ulp(")["cell_type"] = kind
    chosen, said = selected(notebook)
    assert chosen.code["ulp"] == RIGHT_ULP
    assert said == ("`ulp` stood in a cell of text; it was read as code.",)


def test_prose_is_not_read_as_code():
    notebook = small("x = 1")
    notebook["cells"].append({**code("The answer of ulp is\n    def"), "cell_type": "markdown"})
    chosen, _ = selected(notebook)
    assert chosen.code["ulp"] == ""


def test_a_deleted_answer_leaves_the_others():
    notebook = solved()
    notebook["cells"].remove(cell_of(notebook, "def ulp("))
    chosen, _ = selected(notebook)
    assert chosen.code["ulp"] == "" and chosen.code["snap"]
    assert [e.exercise for e in chosen.work.exercises][2] == "ulp"


def test_a_demonstration_is_run_only_where_an_answer_takes_a_name_from_it():
    without, _ = selected(solved())
    notebook = solved()
    notebook["cells"].append(code("my_ulp_of_tensors = tensors['gradients'].abs()"))
    chosen, _ = selected(notebook)
    added = [source for source in chosen.work.cells if source not in without.work.cells]
    assert added[-1].startswith("my_ulp_of_tensors")
    assert any("tensors = digits_mlp()" in source for source in added)


def test_a_cell_that_only_ipython_can_read_gets_what_it_takes_from_a_demonstration():
    notebook = solved()
    notebook["cells"].append(code("my_own = tensors['gradients'].abs()\ntorch.abs?"))
    chosen, _ = selected(notebook)
    assert any("tensors = digits_mlp()" in source for source in chosen.work.cells)


def test_a_changed_demonstration_is_run_as_the_learners_own():
    notebook = unsolved()
    cell = cell_of(notebook, "sample = torch.randn")
    cell["source"] = "".join(cell["source"]).replace("3000", "30")
    chosen, _ = selected(notebook)
    assert any("torch.randn(30," in source for source in chosen.work.cells)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "%load_ext x\n!rm -rf /\ny = 1",
            "`%load_ext x` is a magic or shell line: such lines were",
        ),
        ("!pip install x", "`!pip install x` is a magic or shell line"),
        ("%%time\ny = 1", "`%%time` was left out; the cell below it was run."),
        (
            "%%capture out\n%%time\ny = 1",
            "`%%time` was left out; the cell below it was run.",
        ),
        ("%%bash\nls", "The cell under `%%bash` was not run: the grader runs Python only."),
        ("# mine\n%%time\ny = 1", "`%%time` is a magic or shell line: such lines were left out"),
    ],
)
def test_of_magics_it_is_said_what_became_of_them(source, said):
    notebook = solved()
    notebook["cells"].append(code(source))
    _, (sentence,) = selected(notebook)
    assert said in sentence


@pytest.mark.parametrize(
    "source",
    [
        "%%writefile mine.py\ny = 1",
        's = """\n% of the values\n! exclaimed\n"""',
        "y = (7\n     % 4)",
        "y = 7 \\\n  % 4",
    ],
)
def test_what_is_no_magic_or_works_is_not_named(source):
    notebook = solved()
    notebook["cells"].append(code(source))
    chosen, said = selected(notebook)
    assert said == () and source in chosen.work.cells


def given(source: str) -> dict:
    """A cell as an older version of the lab gave it."""
    return {**code(source), "id": cell_id("code", source, 1)}


CHECK = "check_ulp(ulp)"
ADDED = {
    "import numpy as np\ncheck_ulp(ulp)": ("import numpy as np", "import numpy as np\npass"),
    "check_ulp(ulp)\nimport math as m": ("import math as m", "pass\nimport math as m"),
    "import math; check_ulp(ulp)": ("import math; pass", "import math; pass"),
    "# mine\n\ndef half(x):\n    return x / 2\n\ncheck_ulp(\n    ulp\n)": (
        "def half(x):",
        "# mine\n\ndef half(x):\n    return x / 2\n\npass",
    ),
    "é = 'é'; print(check_ulp(ulp)); y = 1\r\nassert check_ulp(ulp)": (
        "é = 'é'; y = 1",
        "é = 'é'; pass; y = 1\npass",
    ),
    "%%time\nimport math\ncheck_ulp(ulp)": ("%%time", "%%time\nimport math\npass"),
    "if True:\n    check_ulp(ulp)": ("if True:", "if True:\n    check_ulp(ulp)"),
    "check_ulp?\nimport math": ("", "check_ulp?\nimport math"),
    "check_ulp(ulp); y = 1": ("y = 1", "pass; y = 1"),
    "check_ulp(\n    ulp\n); check_ulp(\n    ulp\n)\ny = 1\ncheck_ulp(ulp)": (
        "y = 1",
        "pass; pass\ny = 1\npass",
    ),
}


@pytest.mark.parametrize("source", ADDED)
def test_what_was_added_to_the_cell_of_a_check_is_run_and_said(source):
    line, run = ADDED[source]
    notebook = solved()
    cell_of(notebook, CHECK)["source"] = source
    chosen, said = selected(notebook)
    assert run in chosen.work.cells
    sentences = [one for one in said if "was added to the cell of a check" in one]
    assert len(sentences) == bool(line)
    assert all(f"`{line}" in one for one in sentences)


def test_a_copied_cell_of_a_check_is_code_as_any():
    notebook = solved()
    copied = {**cell_of(notebook, CHECK), "id": "copied", "source": "import statistics as st"}
    notebook["cells"].insert(0, copied)
    chosen, said = selected(notebook)
    assert "import statistics as st" in chosen.work.cells
    assert "`import statistics as st` was added to the cell of a check" in said[0]


@pytest.mark.parametrize("source", ["check_device()", "def check_device(): ...\ncheck_device()"])
@pytest.mark.parametrize("marks", [{}, {"nbgrader": {"grade": True}}])
def test_a_function_of_one_s_own_is_no_check(source, marks):
    notebook = solved()
    notebook["cells"].append(code(source, **marks))
    assert source in selected(notebook)[0].work.cells


def test_the_checks_of_the_course_are_called_as_the_grader_thinks():
    for lab in COURSE.values():
        cells = read_notebook((NOTEBOOKS / f"{lab.lab}.ipynb").read_bytes()).cells
        checks = [names_of(cell.source) for cell in cells if cell.is_check]
        assert all(names.only_calls for names in checks)
        called = {name for names in checks for call in names.calls for name in call.called}
        assert called == lab.check_names


@pytest.mark.parametrize(
    "source",
    [
        "",
        "# nothing",
        "check_ulp(ulp)",
        "check_ulp(ulp)  # passed at last",
        '"""My check."""\ncheck_ulp( ulp )\npass',
        "%%time\ncheck_ulp(ulp)",
        "!pip install numpy\nprint(check_ulp(ulp))",
        "court.check_ulp(ulp)\ncheck_decode(decode)",
        "check_ulp(ulp)\n### BEGIN HIDDEN TESTS\nfrom x import secret\nsecret(ulp)"
        "\n### END HIDDEN TESTS",
        "# Your instructor's own check\n### BEGIN HIDDEN TESTS\nrun_hidden(1)",
    ],
)
def test_of_a_cell_that_only_checks_nothing_is_run(source):
    notebook = solved()
    without = selected(solved())[0].work.cells
    cell_of(notebook, CHECK)["source"] = source
    chosen, said = selected(notebook)
    assert (chosen.work.cells, said) == (without, ())


@pytest.mark.parametrize(
    "source", ["check_ulp( ulp )", "print(check_ulp(ulp), check_decode(decode))"]
)
def test_a_cell_of_one_s_own_that_only_checks_is_not_run(source):
    notebook = solved()
    notebook["cells"].append(code(source))
    assert selected(notebook)[0].work == replace(
        selected(solved())[0].work, digest=hashlib.sha256(as_bytes(notebook)).hexdigest()
    )


def test_what_an_older_version_s_check_held_besides_is_not_the_student_s():
    notebook = solved()
    cell = given(f"import a_module_of_old\n{CHECK}")
    notebook["cells"].append({**cell, "metadata": {"nbgrader": {"grade": True}}})
    chosen, said = selected(notebook)
    assert said == () and not any("of_old" in source for source in chosen.work.cells)


def test_what_nbgrader_hides_is_not_run_with_what_a_student_added():
    notebook = solved()
    hidden = "\n### BEGIN HIDDEN TESTS\nsecret(ulp)\n### END HIDDEN TESTS\nimport math as m"
    cell_of(notebook, CHECK)["source"] = f"import cmath\n{CHECK}{hidden}"
    chosen, _ = selected(notebook)
    assert "import cmath\npass\nimport math as m" in chosen.work.cells


def test_without_its_setup_cell_a_lab_gets_its_own_and_it_is_said():
    notebook, setup = solved(), COURSE[LAB].setup
    notebook["cells"].remove(cell_of(notebook, setup))
    chosen, said = selected(notebook)
    assert chosen.work.cells[0] == setup and chosen.work.cells.count(setup) == 1
    alone, _ = selected({**notebook, "cells": [code(RIGHT_ULP)]})
    assert alone.work.cells == (setup, RIGHT_ULP)
    assert said == (
        "A setup cell of the lab was missing or changed; the grader ran its own first.",
    )


def test_a_setup_cell_with_more_in_it_is_run_after_the_lab_s_own_and_nothing_is_said():
    notebook, setup = solved(), COURSE[LAB].setup
    cell_of(notebook, setup)["source"] = f"import seaborn\n{setup}"
    chosen, said = selected(notebook)
    assert chosen.work.cells[:2] == (setup, f"import seaborn\n{setup}")
    assert said == ()


def test_the_imports_of_the_second_sitting_are_the_lab_s_too():
    (imports,) = [text for text in COURSE[LAB].imports if "FloatFormat" in text]
    notebook = with_answer(unsolved(), "snap", "def snap(x):\n    return quantize(x, FP32)")
    in_place, said = selected(notebook)
    assert imports in in_place.work.cells and said == ()
    notebook["cells"].remove(cell_of(notebook, imports))
    chosen, said = selected(notebook)
    assert chosen.work.cells[:2] == (imports, COURSE[LAB].setup)
    notebook["cells"].remove(cell_of(notebook, COURSE[LAB].setup))
    assert selected(notebook)[0].work.cells[:2] == (COURSE[LAB].setup, imports)
    assert len(said) == 1


def test_the_version_of_python_is_kept_with_the_work():
    notebook = solved()
    assert selected(notebook)[0].work.python == ""
    notebook["metadata"]["language_info"]["version"] = "3.13.1"
    assert selected(notebook)[0].work.python == "3.13"


MANY = {
    "cells of one's own": lambda n: [code(f"v{i} = {i}") for i in range(n)],
    "answers": lambda n: [code(f"def ulp(x):\n    return {i}") for i in range(n)],
    "open answers": lambda n: [given(f"def ulp(x):\n    raise {i}") for i in range(n)],
    "checks with more": lambda n: [
        code(f"v{i} = {i}\ncheck_ulp(ulp)", nbgrader={"grade": True}) for i in range(n)
    ],
    "a chain of demonstrations": lambda n: [
        *(given(f"v{i} = v{i + 1}") for i in reversed(range(n))),
        code("mine = v0"),
    ],
    "text": lambda n: [{**code(f"ulp {i} (")} | {"cell_type": "markdown"} for i in range(n)],
}


def work_of_selecting(cells: list[dict]) -> int:
    """Instructions of Python that the selection takes, without those of the parser."""
    notebook = {**solved(), "cells": cells}
    read = read_notebook(as_bytes(notebook))
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename not in (selecting.__file__, naming.__file__):
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    naming._parsed.cache_clear()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        select_cells(read, COURSE[LAB])
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("cells", MANY.values(), ids=MANY)
def test_twice_the_cells_take_twice_the_work(cells):
    once, twice = work_of_selecting(cells(60)), work_of_selecting(cells(120))
    assert once > 60
    assert twice < 2.2 * once


def test_a_cell_that_is_not_python_is_run_as_it_is():
    chosen, _ = selected(with_answer(solved(), "ulp", "def ulp(x):\n    return 2.0 **"))
    assert chosen.code["ulp"] == "def ulp(x):\n    return 2.0 **"


def test_the_lab_is_known_by_its_exercises_where_the_metadata_is_gone_or_wrong():
    for metadata in ({}, {"labkit": {"lab": "99_mine"}}, {"labkit": {"lab": "04_loss_scaling"}}):
        notebook = {**solved(), "metadata": metadata}
        read = read_notebook(as_bytes(notebook))
        lab, (said,) = which_lab(read, COURSE)
        assert lab.lab == LAB
        assert said.endswith(f"its exercises are those of {LAB}.")


def test_another_version_of_the_lab_is_graded_by_name_and_said():
    notebook = solved()
    notebook["metadata"]["labkit"]["version"] = "0123456789ab"
    chosen, (said,) = selected(notebook)
    assert all(chosen.code.values())
    assert said == (
        f"The notebook was made from version 0123456789ab of {LAB}; it was graded by the names of"
        f" its exercises against version {COURSE[LAB].version}."
    )


def test_unchanged_cells_of_an_older_version_are_known_by_their_ids():
    # An older lab's demonstration: its text is not in today's lab, its id is the hash of its text.
    notebook, text = solved(), "train_for_an_hour()"
    notebook["cells"].append({**code(text), "id": cell_id("code", text, 1)})
    chosen, _ = selected(notebook)
    assert text not in chosen.work.cells
    notebook["cells"][-1]["id"] = "mine"
    assert text in selected(notebook)[0].work.cells


def test_a_lab_in_another_language_has_a_cause():
    notebook = small("x <- 3")
    notebook["metadata"]["language_info"] = {"name": "R"}
    with pytest.raises(Unreadable, match="in 'r'; the labs are in Python") as caught:
        selected(notebook)
    assert caught.value.cause == "language"


def test_python_under_a_kernel_of_another_language_is_read_as_python():
    notebook = small(RIGHT_ULP)
    notebook["metadata"]["language_info"] = {"name": "julia"}
    chosen, said = selected(notebook)
    assert chosen.code["ulp"] == RIGHT_ULP
    assert said == ("The notebook says it is in 'julia'; it was read as Python.",)


def test_a_notebook_of_no_lab_has_a_cause_and_a_hint_names_one():
    read = read_notebook(as_bytes({"cells": [code("x = 1")]}))
    with pytest.raises(Unreadable) as caught:
        which_lab(read, COURSE)
    assert caught.value.cause == "unknown lab"
    lab, said = which_lab(read, COURSE, hint=LAB)
    assert lab.lab == LAB and "handed in for" in said[0]


def test_the_course_is_read_from_its_folder(tmp_path: Path):
    assert list(COURSE) == sorted(COURSE)
    with pytest.raises(ManifestError, match="is missing"):
        read_course(tmp_path)
