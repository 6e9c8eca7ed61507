"""nbgrader's own commands on a course of ours: what each kind of submission earns."""

import copy
import csv
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from labkit.course.lab_source import read_lab
from labkit.grading.judge.seeds import derive_seed, read_secret
from labkit.grading.nbgrader.exported_course import write_course
from labkit.labs.number_formats.checks import check_e2m1_value, check_eight_bits, check_ulp
from labkit.labs.number_formats.checks.gaps import _gap_inputs
from tests.grading.cut_lab import CUT, EXTRA

LAB = "02_number_formats"
ANSWERS = {"e2m1-value": check_e2m1_value, "ulp": check_ulp, "eight-bits": check_eight_bits}

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Graded:
    """A course after nbgrader's four commands, and its grades: student -> score, maximum."""

    course: Path
    grades: dict[str, tuple[float, float]]
    home: Path

    def cell(self, student: str, grade_id: str):
        path = self.course / "autograded" / student / LAB / f"{LAB}.ipynb"
        return by_id(nbformat.read(path, as_version=4))[grade_id]


def by_id(notebook) -> dict:
    cells = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    return {cell.metadata.nbgrader["grade_id"]: cell for cell in cells}


def released(course: Path):
    return nbformat.read(course / "release" / LAB / f"{LAB}.ipynb", as_version=4)


def nbgrader(course: Path, home: Path, *args: str) -> str:
    """Run one command of nbgrader in the course; returns what it logged."""
    # nbgrader starts alembic by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LABKIT_HOME": str(home)}
    environment.pop("LABKIT_PROGRESS", None)
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *args],
        cwd=course,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def grade(course: Path, home: Path, submissions: dict) -> Graded:
    """Hand in ``submissions``, student -> notebook, and let nbgrader grade them."""
    for student, notebook in submissions.items():
        path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    nbgrader(course, home, "autograde", LAB)
    nbgrader(course, home, "generate_feedback", LAB)
    nbgrader(course, home, "export")
    return Graded(course, exported(course), home)


def exported(course: Path) -> dict[str, tuple[float, float]]:
    with open(course / "grades.csv", newline="") as file:
        return {
            row["student_id"]: (float(row["score"]), float(row["max_score"]))
            for row in csv.DictReader(file)
        }


def with_answers(notebook, answers: dict[str, str]):
    """A copy of the notebook with cells replaced by grade_id."""
    notebook = copy.deepcopy(notebook)
    for grade_id, source in answers.items():
        by_id(notebook)[grade_id].source = source
    return notebook


def known_wrong(exercise: str) -> str:
    """An answer cell that takes the first known wrong answer."""
    name = exercise.replace("-", "_")
    return (
        f"from labkit.labs.number_formats.checks import check_{name} as known\n"
        f"{name} = known.known_wrong[0].answer"
    )


# A cut of lab 02, with a hidden check

GAP = "2.0 ** ((int(abs(x) * 2**24) | 1024).bit_length() - 35)"
"""The gap at x, whose multiples of the smallest subnormal have so many bits."""


def solutions() -> dict[str, str]:
    return {
        "e2m1-value": "def e2m1_value(code):\n"
        "    values = 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0\n"
        "    return values[code & 7] * (-1.0 if code >> 3 else 1.0)",
        "ulp": f"def ulp(x):\n    return {GAP}",
        "eight-bits": "eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=38)",
    }


def submissions(handed_out) -> dict:
    right = solutions()
    made = {
        "untouched": {},
        "solved": right,
        "warns": right
        | {
            # The check sets aside the first two; a handler of logging keeps its own way to stderr.
            "ulp": "import logging, sys, warnings\n"
            "logging.basicConfig()\n"
            "def ulp(x):\n"
            "    warnings.warn('old')\n"
            "    print('oh', file=sys.stderr)\n"
            "    logging.warning('logged')\n"
            f"    return {GAP}"
        },
        # Passes by display alone: the check's name is taken, the answer is wrong.
        "shows": right | {"ulp": "def ulp(x):\n    return 1.0\ncheck_ulp = print"},
        "loops": right | {"ulp": "def ulp(x):\n    while True:\n        pass"},
        "knows-the-inputs": right
        | {
            "ulp": "def ulp(x):\n"
            f"    seen = {_gap_inputs(seed=0)}\n"  # what the lab's own check asks here
            f"    return {GAP} if x in seen else 1.0"
        },
        # Keeps what it is asked, and shows it in a cell below the hidden check; one answer is no
        # Python.
        "keeps": right
        | {
            "e2m1-value": "def e2m1_value(code) return 1.0",
            "ulp": f"kept = []\ndef ulp(x):\n    kept.append(x)\n    return {GAP}",
            "eight-bits": f"print(kept)\n{right['eight-bits']}",
        },
    }
    made["wrong"] = {exercise: known_wrong(exercise) for exercise in ANSWERS}
    handed_in = {student: with_answers(handed_out, answers) for student, answers in made.items()}
    # An answer cell stands twice, an exercise and the checks of another are gone.
    edited = copy.deepcopy(handed_in["solved"])
    edited.cells.insert(4, copy.deepcopy(by_id(handed_out)["ulp"]))
    edited.cells[4]["id"] = "a-copy"
    gone = {"check-ulp", "hidden-ulp", "eight-bits", "check-eight-bits"}
    edited.cells = [
        c for c in edited.cells if c.metadata.get("nbgrader", {}).get("grade_id") not in gone
    ]
    return handed_in | {"edited": edited}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Graded:
    folder = tmp_path_factory.mktemp("graded")
    (folder / "notebooks" / "source").mkdir(parents=True)
    (folder / "notebooks" / "source" / f"{LAB}.py").write_text(CUT, encoding="utf-8")
    (folder / "extra.py").write_text(EXTRA, encoding="utf-8")
    (folder / "home").mkdir()
    write_course(
        folder / "course",
        extra=[folder / "extra.py"],
        variants=True,
        notebooks=folder / "notebooks",
    )
    course, home = folder / "course", folder / "home"
    nbgrader(course, home, "generate_assignment", LAB)
    return grade(course, home, submissions(released(course)))


SCORES = {
    "untouched": 0,
    "solved": 6,
    "warns": 6,
    "shows": 1,
    "loops": 1,
    "knows-the-inputs": 3,
    "keeps": 5,
    "wrong": 0,
    "edited": 6,
}


@pytest.mark.parametrize("student", SCORES)
def test_scores(graded, student):
    assert graded.grades[student] == (SCORES[student], 6)


def test_a_known_wrong_answer_is_judged(graded):
    for exercise in ANSWERS:
        outputs = graded.cell("wrong", f"check-{exercise}").outputs
        (error,) = [output for output in outputs if output.output_type == "error"]
        assert error.ename == "CheckFailed" and f"{exercise}: failed." in error.evalue


def test_an_optional_exercise_is_checked_and_carries_no_marks(graded):
    cell = graded.cell("solved", "check-eight-bits")
    assert cell.metadata.nbgrader["points"] == 0
    (shown,) = [o.data["text/plain"] for o in cell.outputs if o.output_type == "display_data"]
    assert shown.startswith("✓ eight-bits: passed.")
    shown, error = graded.cell("untouched", "check-eight-bits").outputs
    assert shown.data["text/plain"].startswith("○ eight-bits: not attempted.")
    assert "eight-bits: not attempted" in error.evalue


def test_a_check_that_only_shows_says_why_it_earns_nothing(graded):
    outputs = graded.cell("shows", "check-ulp").outputs
    assert [o.output_type for o in outputs] == ["stream", "error"]
    assert "ulp: its check has not passed this answer" in outputs[1].evalue


def test_what_an_answer_warned_is_kept(graded):
    cell = graded.cell("warns", "check-ulp")
    streams = [output for output in cell.outputs if output.output_type == "stream"]
    assert {output.name for output in streams} == {"stdout"}
    text = "".join(output.text for output in streams)
    assert all(said in text for said in ("\nold (", "\noh\n", "WARNING:root:logged\n"))


def test_a_loop_ends_at_the_checks_limit(graded):
    (error,) = [o for o in graded.cell("loops", "check-ulp").outputs if "Timeout" in o.ename]
    assert error.evalue == "This cell took longer than it may, so it was stopped."


def test_a_release_shows_nothing_of_solutions_or_hidden_checks(graded, tmp_path):
    text = (graded.course / "release" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
    for secret in ("run_hidden", "random", "SOLUTION", "HIDDEN", "math.frexp", "bias=38"):
        assert secret not in text
    path = tmp_path / f"{LAB}.py"
    path.write_text(CUT, encoding="utf-8")
    learner = [(c.id, c.cell_type, c.source) for c in read_lab(path).learner.cells]
    cells = released(graded.course).cells
    assert cells[0].source.startswith("Before you hand in") and "NAME" in cells[1].source
    own = "# Your instructor's own check of ulp runs here when your work is graded."
    assert [(c.id, c.cell_type, c.source) for c in cells[2:] if c.source != own] == learner
    hidden = by_id(released(graded.course))["hidden-ulp"]
    assert hidden.source == own
    assert hidden.metadata.editable is hidden.metadata.deletable is False


def test_feedback_shows_a_hidden_checks_result_and_neither_its_words_nor_its_code(graded):
    asked = {}
    for student, said in {"solved": "passed", "knows-the-inputs": "failed"}.items():
        page = (graded.course / "feedback" / student / LAB / f"{LAB}.html").read_text("utf-8")
        assert f"hidden check: {said}" in page
        for secret in ("run_hidden", "must_have_passed", "Random", "uniform", "seed="):
            assert secret not in page
        asked[student] = inputs_of(graded, student)
        assert not [x for x in asked[student] if str(x) in page]
    (error,) = graded.cell("knows-the-inputs", "hidden-ulp").outputs
    assert "hidden check: failed. `ulp(" in error.evalue, "the instructor reads it"


def inputs_of(graded, student: str) -> list[float]:
    """What the hidden check asked a student beyond the first two inputs, which are the class's."""
    seed = derive_seed(read_secret(graded.course / "labkit_secret"), LAB, "ulp", student)
    names = {}
    exec(EXTRA, names)
    return names["inputs"](seed)[2:]


def test_what_an_answer_keeps_of_a_hidden_check_no_later_cell_shows(graded):
    page = (graded.course / "feedback" / "keeps" / LAB / f"{LAB}.html").read_text("utf-8")
    assert "1.9990234375" in page, "what the lab's own check asked is shown"
    assert not [x for x in inputs_of(graded, "keeps") if str(x) in page]


def test_each_student_has_a_seed_of_their_own(graded):
    secret = read_secret(graded.course / "labkit_secret")
    for student in ("solved", "warns"):
        seed = derive_seed(secret, LAB, "ulp", student)
        assert f"    seed={seed},\n" in graded.cell(student, "hidden-ulp").source
    for path in (graded.course / "autograded").rglob("*.ipynb"):
        assert secret not in path.read_text(encoding="utf-8")


def test_grading_leaves_no_progress(graded):
    assert list(graded.home.iterdir()) == []


def test_a_course_brought_up_to_date_keeps_the_grades(graded, tmp_path):
    notebooks = tmp_path / "notebooks" / "source"
    notebooks.mkdir(parents=True)
    changed = CUT.replace("gap above 3", "gap above three")
    (notebooks / f"{LAB}.py").write_text(changed, encoding="utf-8")
    (tmp_path / "extra.py").write_text(EXTRA, encoding="utf-8")
    said = write_course(
        graded.course,
        extra=[tmp_path / "extra.py"],
        variants=True,
        notebooks=notebooks.parent,
    )
    assert said == [
        f"wrote {graded.course / 'source' / LAB / f'{LAB}.ipynb'}",
        f"release it, in {graded.course}: nbgrader generate_assignment {LAB} --force",
    ]
    nbgrader(graded.course, graded.home, "generate_assignment", LAB, "--force")
    nbgrader(graded.course, graded.home, "autograde", LAB, "--student", "solved", "--force")
    nbgrader(graded.course, graded.home, "export")
    assert exported(graded.course) == graded.grades
    text = (graded.course / "release" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
    assert "gap above three" in text
