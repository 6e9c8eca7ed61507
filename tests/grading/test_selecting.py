"""Exercises are found by name: whatever happened to cells and files, the answer counts."""

from pathlib import Path

import pytest
from handing_in import LAB, RIGHT_ULP, as_bytes, code, small, solved, unsolved, with_answer

from labkit.base.manifest import ManifestError
from labkit.base.paths import NOTEBOOKS
from labkit.grading.course import read_course
from labkit.grading.intake.naming import names_of
from labkit.grading.intake.reading import Unreadable, read_notebook
from labkit.grading.intake.selecting import select, which_lab

COURSE = read_course()


def selected(notebook: dict):
    read = read_notebook(as_bytes(notebook))
    lab, said = which_lab(read, COURSE)
    chosen = select(read, lab)
    return chosen, (*said, *chosen.repairs)


def cell_of(notebook: dict, text: str) -> dict:
    (cell,) = [c for c in notebook["cells"] if text in "".join(c["source"])]
    return cell


@pytest.mark.parametrize("lab", COURSE)
def test_of_a_solved_lab_only_setup_and_answers_are_run(lab):
    read = read_notebook((NOTEBOOKS / "solutions" / f"{lab}.ipynb").read_bytes())
    found, said = which_lab(read, COURSE)
    chosen = select(read, found)
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
        ("guess, sure = misspelt, 2", False),  # of a copy from before cards
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


def test_magics_are_named():
    _, said = selected(small("%load_ext autoreload\n!rm -rf /\nx = 1"))
    assert said == ("`%load_ext autoreload` is a magic or shell line: the grader does not run it.",)


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
    from labkit.course.lab_source import cell_id

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


HOSTILE = {
    "unary": "-" * 200_000 + "1",
    "sums": "1+" * 100_000 + "1",
    "parentheses": "(" * 90_000,
    "magics": "%a\n" * 2_000,
    "nul": "a\0b",
    "attributes": "a" + ".b" * 30_000,
    "f-strings": 'f"{' * 300,
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_cell_made_to_break_the_parser_is_kept_for_the_sandbox(source):
    names = names_of(f"{RIGHT_ULP}\n{source}")
    assert "ulp" in names.bound
    chosen, _ = selected(small(f"{RIGHT_ULP}\n{source}"))
    assert chosen.code["ulp"].endswith(source)


@pytest.mark.parametrize(
    ("source", "bound", "needed"),
    [
        ("x = 1\ny = x + z", {"x", "y"}, {"z"}),
        ("x = x + 1", {"x"}, {"x"}),
        ("x += 1", {"x"}, {"x"}),
        ("def f(a):\n    return a + b", {"f"}, {"b"}),
        ("def f():\n    global g\n    g = h", {"f", "g"}, {"h"}),
        ("import a.b as c, d.e\nd.e(c)", {"c", "d"}, set()),
        ("[i for i in xs]", set(), {"xs"}),
        ("%matplotlib inline\nx = 1", {"x"}, set()),
        ("class A(B):\n    c = D", {"A"}, {"B", "D"}),
        ("if t:\n    %time f()\n", set(), {"t"}),
        ("with a as b: b", {"b"}, {"a", "b"}),
        ("y = f(x)\nf?", {"y"}, {"y", "f", "x"}),
    ],
)
def test_names_of_a_cell(source, bound, needed):
    names = names_of(source)
    assert (names.bound, names.needed) == (bound, needed)


def test_the_course_is_read_from_its_folder(tmp_path: Path):
    assert list(COURSE) == sorted(COURSE)
    with pytest.raises(ManifestError, match="is missing"):
        read_course(tmp_path)
