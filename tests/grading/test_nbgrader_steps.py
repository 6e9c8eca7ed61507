"""The single steps: what each does to a cell. nbgrader runs them in test_nbgrader_runs.py."""

import copy

import pytest
from nbformat import v4

from labkit.base import home
from labkit.course.lab_source import read_lab
from labkit.grading.judge.seeds import derive_seed, make_secret, read_secret
from labkit.grading.nbgrader.exported_course import NO_SEED, source_notebook
from labkit.grading.nbgrader.steps import (
    ClearLabSolutions,
    FillSeeds,
    GuardChecks,
    HiddenLast,
    SetAsideStderr,
    WithholdHidden,
)

SOURCES = sorted((home.NOTEBOOKS / "source").glob("*.py"))


def graded(source: str, grade_id: str, **more):
    metadata = {"grade_id": grade_id, "grade": True, "solution": False, "locked": True}
    return v4.new_code_cell(source, metadata={"nbgrader": metadata}, **more)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_cleared_every_lab_is_its_learners_notebook(path):
    lab = read_lab(path)
    source = source_notebook(lab, {})
    assert source != lab.learner, "there is something to clear"
    cleared, _ = ClearLabSolutions().preprocess(copy.deepcopy(source), {})
    assert cleared == lab.learner


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_check_of_every_lab_is_guarded(path):
    checks = 0
    for cell in read_lab(path).learner.cells:
        before = cell.source
        guarded, _ = GuardChecks().preprocess_cell(cell, {}, 0)
        if cell.metadata.get("nbgrader", {}).get("grade"):
            checks += 1
            assert "\nmust_have_passed(" in guarded.source and ", None)" not in guarded.source
        else:
            assert guarded.source == before
    assert checks > 0


def seed_of(tmp_path, student: str, *, by_student: bool) -> str:
    cell = graded(f"run_hidden({NO_SEED}\n    text='seed=None',\n)", "hidden-ulp")
    facts = {"nbgrader": {"student": student, "notebook": "02_number_formats"}}
    fill = FillSeeds(secret_file=str(tmp_path / "secret"), by_student=by_student)
    filled, _ = fill.preprocess_cell(cell, facts, 0)
    assert "text='seed=None'" in filled.source
    return filled.source.partition("seed=")[2].partition(",")[0]


def test_seeds_are_of_the_student_or_of_the_class(tmp_path):
    make_secret(tmp_path / "secret")
    secret = read_secret(tmp_path / "secret")
    ada, bob = (seed_of(tmp_path, student, by_student=True) for student in ("ada", "bob"))
    assert ada == str(derive_seed(secret, "02_number_formats", "ulp", "ada")) != bob
    of_class = {seed_of(tmp_path, student, by_student=False) for student in ("ada", "bob")}
    assert len(of_class) == 1 and not of_class & {ada, bob}


def test_without_its_secret_nothing_is_graded(tmp_path):
    with pytest.raises(FileNotFoundError, match="without it hidden checks have no seeds"):
        seed_of(tmp_path, "ada", by_student=True)


def test_stderr_becomes_stdout_in_grade_cells_only():
    warned = [v4.new_output("stream", name="stderr", text="oh")]
    error = [v4.new_output("error", ename="E", evalue="why", traceback=["a secret line"])]
    cell, _ = SetAsideStderr().preprocess_cell(
        graded("check_ulp(ulp)", "check-ulp", outputs=copy.deepcopy(warned + error)), {}, 0
    )
    assert cell.outputs[0].name == "stdout" and cell.outputs[1].traceback == ["E: why"]
    other = v4.new_code_cell("1 / 0", outputs=copy.deepcopy(warned + error))
    kept, _ = SetAsideStderr().preprocess_cell(other, {}, 0)
    assert kept.outputs == warned + error


TOLD = [
    v4.new_output("stream", name="stdout", text="54321"),
    v4.new_output("display_data", data={"text/html": "54321"}),
    v4.new_output("error", ename="54321", evalue="54321", traceback=["54321"]),
]


@pytest.mark.parametrize(("count", "result"), [(0, "passed"), (2, "passed"), (3, "failed")])
def test_feedback_tells_of_a_hidden_check_its_result_alone(count, result):
    cell = graded("...", "hidden-ulp", outputs=copy.deepcopy(TOLD[:count]))
    shown, _ = WithholdHidden().preprocess_cell(cell, {}, 0)
    assert "54321" not in str(shown) and len(shown.outputs) == 1
    assert f"ulp, hidden check: {result}." in str(shown.outputs)


def test_feedback_keeps_what_other_cells_said_and_all_where_it_is_asked_for():
    for step, grade_id in (
        (WithholdHidden(), "check-ulp"),
        (WithholdHidden(hidden_feedback="message"), "hidden-ulp"),
    ):
        cell = graded("...", grade_id, outputs=copy.deepcopy(TOLD))
        shown, _ = step.preprocess_cell(cell, {}, 0)
        assert shown.outputs == TOLD


def test_hidden_checks_run_after_all_other_cells():
    names = ["check-a", "hidden-a", "check-b", "hidden-b", "hidden-c"]
    notebook = v4.new_notebook(cells=[graded("...", name) for name in names])
    notebook.cells.append(v4.new_code_cell("print(kept)"))
    ordered, _ = HiddenLast().preprocess(notebook, {})
    found = [cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in ordered.cells]
    assert found == ["check-a", "check-b", "", "hidden-a", "hidden-b", "hidden-c"]
