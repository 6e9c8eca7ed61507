"""The nbgrader course as files: what is written, what a rerun changes, and what is refused."""

import importlib.util
import json
import shutil
import stat
from pathlib import Path

import nbformat
import pytest
from tiny_lab import TINY

from labkit.__main__ import main
from labkit.base import home
from labkit.course.build import CELL_SECONDS, BuildError
from labkit.course.lab_source import read_lab
from labkit.grading.nbgrader import exported_course as nbgrader_course
from labkit.grading.nbgrader.exported_course import CourseError, judged_name, write_course
from labkit.grading.nbgrader.steps import ExecuteLab
from labkit.labs.number_formats.checks import check_ulp
from tests.grading.cut_lab import CUT, EXTRA

FIRST, CUT_LAB = "00_start_here", "02_number_formats"


@pytest.fixture
def notebooks(course) -> Path:
    """Lab 00 as it is and a cut of lab 02."""
    first = (home.NOTEBOOKS / "source" / f"{FIRST}.py").read_text(encoding="utf-8")
    return course(lab_00_start_here=first, lab_02_number_formats=CUT)


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    path = tmp_path / "extra.py"
    path.write_text(EXTRA, encoding="utf-8")
    return path


def source(course: Path, lab: str):
    return nbformat.read(course / "source" / lab / f"{lab}.ipynb", as_version=4)


def config(course: Path) -> dict:
    """What nbgrader would read, as plain data."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(course)).load_config()


def test_source_is_the_learners_notebook_with_solutions(notebooks, tmp_path):
    write_course(tmp_path / "course", notebooks=notebooks)
    lab = read_lab(notebooks / "source" / f"{CUT_LAB}.py")
    written = source(tmp_path / "course", CUT_LAB)
    assert [c.id for c in written.cells] == [c.id for c in lab.learner.cells]
    for cell, learner, solved in zip(
        written.cells, lab.learner.cells, lab.solution.cells, strict=True
    ):
        is_answer = cell.metadata.get("nbgrader", {}).get("solution")
        assert cell.source == (solved if is_answer else learner).source
        assert cell.metadata == learner.metadata
    assert written.metadata == lab.learner.metadata


def test_settings(notebooks, tmp_path):
    write_course(tmp_path / "course", notebooks=notebooks)
    read = config(tmp_path / "course")
    assert read.CourseDirectory.course_id == "course"
    assert read.Execute.kernel_name == "python3"
    assert read.Execute.timeout == CELL_SECONDS
    assert ExecuteLab(config=read).timeout == CELL_SECONDS, "nbgrader's own limit is 30 s"

    def seconds(grade_id):
        return read.Execute.timeout_func(
            nbformat.v4.new_code_cell(metadata={"nbgrader": {"grade_id": grade_id}})
        )

    assert [seconds(name) for name in ("ulp", "check-ulp", "hidden-ulp")] == [12, 12, 12]
    assert seconds("check-fp16-bytes") == 30
    assert read.Execute.timeout_func(nbformat.v4.new_code_cell()) == CELL_SECONDS


def test_settings_know_every_lab_of_the_course_also_those_left_out(notebooks, tmp_path):
    write_course(tmp_path / "course", ["00"], notebooks=notebooks)
    text = (tmp_path / "course" / "labkit_config.py").read_text()
    assert "'check-ulp': 12" in text
    assert [path.name for path in (tmp_path / "course" / "source").iterdir() if path.is_dir()] == [
        FIRST
    ]


def test_a_hidden_check_is_one_locked_cell_below_the_check(notebooks, tmp_path, extra):
    write_course(tmp_path / "course", extra=[extra], notebooks=notebooks)
    cells = source(tmp_path / "course", CUT_LAB).cells
    ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in cells]
    place = ids.index("hidden-ulp")
    assert ids[place - 1] == "check-ulp"
    assert cells[place].metadata.nbgrader == {
        "schema_version": 3,
        "grade_id": "hidden-ulp",
        "grade": True,
        "solution": False,
        "locked": True,
        "task": False,
        "points": 3,
    }
    shown, _, hidden = cells[place].source.partition("### BEGIN HIDDEN TESTS\n")
    assert shown == "# Your instructor's own check of ulp runs here when your work is graded.\n"
    assert hidden.endswith("### END HIDDEN TESTS")
    namespace = {"run_hidden": lambda *_, text, seed: namespace.update(text=text), "ulp": None}
    exec(hidden.partition("\n\n")[2], namespace)
    assert namespace["text"] == EXTRA, "the file travels as it is"


def test_the_secret_is_made_once_and_only_where_a_seed_is_taken(notebooks, tmp_path, extra):
    course = tmp_path / "course"
    write_course(course, notebooks=notebooks)
    assert not (course / "labkit_secret").exists()
    said = write_course(course, extra=[extra], notebooks=notebooks)
    assert f"wrote {course / 'labkit_secret'}" in said
    secret = (course / "labkit_secret").read_text()
    assert len(bytes.fromhex(secret)) == 32
    assert stat.S_IMODE((course / "labkit_secret").stat().st_mode) == 0o600
    write_course(course, extra=[extra], variants=True, notebooks=notebooks)
    assert (course / "labkit_secret").read_text() == secret


@pytest.mark.parametrize("variants", [False, True])
def test_variants_are_a_setting(notebooks, tmp_path, variants):
    write_course(tmp_path / "course", variants=variants, notebooks=notebooks)
    read = config(tmp_path / "course").FillSeeds
    assert read.by_student is variants
    assert read.secret_file == str(tmp_path / "course" / "labkit_secret")


def test_a_rerun_says_what_changed_and_touches_nothing_else(notebooks, tmp_path):
    course = tmp_path / "course"
    said = write_course(course, notebooks=notebooks)
    assert f"release it, in {course}: nbgrader generate_assignment {CUT_LAB}" in said
    assert write_course(course, notebooks=notebooks) == []

    theirs = {
        "gradebook.db": "grades",
        f"submitted/ada/{CUT_LAB}/{CUT_LAB}.ipynb": "an answer",
        f"autograded/ada/{CUT_LAB}/{CUT_LAB}.ipynb": "a graded answer",
        f"release/{CUT_LAB}/{CUT_LAB}.ipynb": "what was handed out",
        "nbgrader_config.py": (course / "nbgrader_config.py").read_text() + "\n# mine\n",
    }
    for name, text in theirs.items():
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text(text)
    path = notebooks / "source" / f"{CUT_LAB}.py"
    path.write_text(path.read_text().replace("points=2", "points=4"))

    name = course / "source" / CUT_LAB / f"{CUT_LAB}.ipynb"
    assert write_course(course, notebooks=notebooks) == [
        f"wrote {name}",
        f"release it, in {course}: nbgrader generate_assignment {CUT_LAB} --force",
    ]
    assert {name: (course / name).read_text() for name in theirs} == theirs


def test_a_rerun_without_the_hidden_checks_says_so(notebooks, tmp_path, extra):
    course = tmp_path / "course"
    write_course(course, extra=[extra], notebooks=notebooks)
    lost = f"{CUT_LAB} has lost its hidden check of ulp: give --extra again to keep it"
    assert lost not in write_course(course, ["00"], notebooks=notebooks)
    assert lost in write_course(course, notebooks=notebooks)
    assert write_course(course, notebooks=notebooks) == []


def test_an_edited_file_is_never_overwritten(notebooks, tmp_path):
    course = tmp_path / "course"
    write_course(course, notebooks=notebooks)
    header = course / "source" / "header.ipynb"
    header.write_text(header.read_text().replace("NAME", "MATRICULATION"))
    path = notebooks / "source" / f"{CUT_LAB}.py"
    path.write_text(path.read_text().replace("points=2", "points=4"))
    before = (course / "source" / CUT_LAB / f"{CUT_LAB}.ipynb").read_text()
    with pytest.raises(CourseError, match=r"header\.ipynb was edited after labkit wrote it: move"):
        write_course(course, notebooks=notebooks)
    assert (course / "source" / CUT_LAB / f"{CUT_LAB}.ipynb").read_text() == before
    assert "MATRICULATION" in header.read_text()


def test_a_run_that_was_broken_off_goes_on(notebooks, tmp_path, monkeypatch):
    course, real, written = tmp_path / "course", nbgrader_course._write, []

    def breaks(path, text):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        return real(path, text)

    monkeypatch.setattr(nbgrader_course, "_write", breaks)
    with pytest.raises(KeyboardInterrupt):
        write_course(course, notebooks=notebooks)
    monkeypatch.undo()
    said = write_course(course, notebooks=notebooks)
    assert f"wrote {course / 'source' / 'header.ipynb'}" in said
    assert f"wrote {written[1]}" not in said, "what was complete is not written again"
    assert write_course(course, notebooks=notebooks) == []


def test_a_folder_that_is_not_ours_is_refused(notebooks, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    with pytest.raises(CourseError, match="is not empty and labkit did not write it: name a new"):
        write_course(tmp_path / "theirs", notebooks=notebooks)
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["thesis.tex"]
    with pytest.raises(CourseError, match="is a file: name a folder"):
        write_course(tmp_path / "theirs" / "thesis.tex", notebooks=notebooks)


def test_a_damaged_record_is_refused(notebooks, tmp_path):
    write_course(tmp_path / "course", notebooks=notebooks)
    (tmp_path / "course" / "labkit_course.json").write_text("{")
    with pytest.raises(CourseError, match=r"labkit_course\.json is damaged"):
        write_course(tmp_path / "course", notebooks=notebooks)


def test_an_unknown_lab_is_named_and_nothing_written(notebooks, tmp_path):
    with pytest.raises(BuildError, match=f"There is no lab '07'; there are {FIRST}, {CUT_LAB}"):
        write_course(tmp_path / "course", ["07"], notebooks=notebooks)
    assert not (tmp_path / "course").exists()


def test_a_check_cell_that_does_not_call_its_check_is_refused(course, tmp_path):
    with pytest.raises(CourseError) as error:
        write_course(tmp_path / "course", notebooks=course(**{"02_tiny": TINY}))
    assert str(error.value) == (
        '02_tiny: the cell check="ulp" must end in check_ulp(answer), since nbgrader gives full '
        "marks to a cell that only shows something"
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("check_first_gap(answer)", "answer"),
        ("import x\nclinic.check_first_gap(answer)", "answer"),
        ("check_first_gap.result(answer)", None),
        ("check_other(answer)", None),
        ("print(answer)", None),
        ("check_first_gap(answer(1))", None),
        ("shown = check_first_gap(answer)", None),
        ("# check_first_gap(answer)", None),
    ],
)
def test_the_name_that_a_check_cell_judges(source, name):
    assert judged_name("first-gap", source) == name


EXTRA_MISTAKES = {
    "import os, nowhere_to_be_found": "cannot be imported: ModuleNotFoundError: No module named",
    "def check_ulp(:": "cannot be imported: SyntaxError:",
    "LAB = '02_number_formats'": "holds no check: write `@check(run)`",
    EXTRA.replace("02_number", "07_number"): "checks the lab '07_number_formats', this course has",
    EXTRA.replace("LAB =", "LABS ="): 'does not name its lab: write LAB = "02_number_formats"',
    EXTRA.replace("check_ulp", "check_gap").replace(
        '"ulp"', '"gap"'
    ): "checks 'gap', 02_number_formats has e2m1-value, ei",
    EXTRA + "# END HIDDEN TESTS": "says 'END HIDDEN TESTS', a mark of nbgrader's",
    EXTRA.replace('"ulp": 3', '"ulp": -3'): "gives 'ulp' -3 points: give a number from 0 on",
    EXTRA.replace('"ulp": 3', '"gap": 3'): "gives points to 'gap', which it does not check",
}


@pytest.mark.parametrize("text", EXTRA_MISTAKES, ids=EXTRA_MISTAKES.values())
def test_mistakes_in_an_extra_file_are_named(notebooks, tmp_path, extra, text):
    extra.write_text(text, encoding="utf-8")
    with pytest.raises(CourseError) as error:
        write_course(tmp_path / "course", extra=[extra], notebooks=notebooks)
    assert str(error.value).startswith(f"{extra} ") and EXTRA_MISTAKES[text] in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "course").exists()


def test_extra_files_that_are_missing_or_double(notebooks, tmp_path, extra):
    with pytest.raises(CourseError, match=r"none\.py cannot be read: .*No such file"):
        write_course(tmp_path / "course", extra=[tmp_path / "none.py"], notebooks=notebooks)
    twin = Path(shutil.copy(extra, tmp_path / "twin.py"))
    with pytest.raises(CourseError, match=r"twin\.py checks 'ulp' of 02_number_formats a second"):
        write_course(tmp_path / "course", extra=[extra, twin], notebooks=notebooks)


def test_the_command(notebooks, tmp_path, monkeypatch, capsys):
    real = nbgrader_course.write_course
    monkeypatch.setattr(
        nbgrader_course,
        "write_course",
        lambda *args, **kwargs: real(*args, **kwargs, notebooks=notebooks),
    )
    course = tmp_path / "course"
    assert main(["nbgrader", str(course), "--labs", "02"]) == 0
    assert f"wrote {course / 'labkit_config.py'}\n" in capsys.readouterr().out
    for again in (["nbgrader", course], ["build", "--nbgrader", course]):
        assert main([*map(str, again), "--labs", "02"]) == 0
        assert capsys.readouterr().out == "The course is current.\n"
    assert main(["nbgrader", str(course), "--labs", "09"]) == 1
    assert capsys.readouterr().err == (
        f"There is no lab '09'; there are 00_start_here, {CUT_LAB}.\n"
    )


def test_without_nbgrader_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["build", f"--nbgrader={tmp_path / 'course'}"]) == 1
    said = capsys.readouterr().err
    assert "nbgrader is not installed" in said and "pip install -e '.[instructor]'" in said


def test_the_record_holds_no_secret(notebooks, tmp_path, extra):
    course = tmp_path / "course"
    write_course(course, extra=[extra], notebooks=notebooks)
    record = json.loads((course / "labkit_course.json").read_text())
    assert record["hidden"] == {FIRST: [], CUT_LAB: ["ulp"]}
    assert "labkit_secret" not in record["files"]
    assert check_ulp.exercise in record["hidden"][CUT_LAB]
