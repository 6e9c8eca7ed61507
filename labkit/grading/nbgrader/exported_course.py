"""An nbgrader course from the labs' sources: ``labkit nbgrader DIR``.

The result is an ordinary course on which nbgrader's own commands work:

- ``source/LAB/LAB.ipynb``: the learner's notebook with the solutions in place. An instructor's own
  checks (``--extra``) become locked grade cells whose whole code is hidden.
- ``source/header.ipynb``: what a student reads above the lab.
- ``labkit_config.py``: the settings that the labs need, written anew each time.
  ``nbgrader_config.py`` loads it, is written once, and is the instructor's to edit.
- ``labkit_secret``: made once, where a hidden check takes a seed.
- ``labkit_course.json``: what labkit wrote here. Nothing else in the folder is touched.
"""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.base.home import NOTEBOOKS, replace_file
from labkit.course.build import CELL_SECONDS, chosen_labs, notebook_text
from labkit.course.cell_ids import cell_id, digest
from labkit.course.lab_source import Lab, read_lab
from labkit.grading.judge.seeds import make_secret
from labkit.grading.nbgrader.settings import labkit_config, own_config
from labkit.grading.records import CHECK, HIDDEN
from labkit.grading.report.scores import RESULT

if TYPE_CHECKING:
    from labkit.grading.judge.hidden_checks import HiddenCheck

RECORD = "labkit_course.json"
SECRET = "labkit_secret"
NO_SEED = "\n    seed=None,"
"""What stands in the code of a hidden check until the student is known."""

# nbgrader ends or begins a region at such a line, wherever it stands.
_MARKS = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)|AUTOTEST")

_HEADER = """\
Before you hand in: choose **Kernel, Restart Kernel and Run All Cells** and read what the checks
say. Hand in also where one says "failed" or "not attempted": the others count. Keep the name of
this file, and leave the cells of the checks as they are."""


class CourseError(Exception):
    """A course that cannot be written, in one sentence."""


def write_course(
    course: Path,
    labs: Iterable[str] | None = None,
    *,
    extra: Iterable[Path] = (),
    variants: bool = False,
    hidden_feedback: str = RESULT,
    notebooks: Path = NOTEBOOKS,
) -> list[str]:
    """Write the course, or bring it up to date, and return a sentence for each change.

    Args:
        course: the folder; missing, empty, or written by this function before.
        labs: names or numbers such as ``"02"``; all by default. Others in the course stay.
        extra: files of hidden checks, see ``labkit.grading.judge.hidden_checks``.
        variants: whether seeds differ from student to student.
        hidden_feedback: what feedback tells of a hidden check, ``scores.RESULT`` or ``MESSAGE``.
        notebooks: the folder that holds ``source/``.

    Raises CourseError, BuildError (an unknown lab) or LabError (a mistake in a source); then
    nothing has been written.
    """
    record = _record(course)
    read = {path.stem: read_lab(path) for path in sorted((notebooks / "source").glob("*.py"))}
    chosen = chosen_labs(labs, read)
    hidden = _read_extra(extra, chosen)
    texts = {
        f"source/{lab.lab}/{lab.lab}.ipynb": _notebook(lab, hidden.get(lab.lab, {}))
        for lab in chosen
    }
    texts["source/header.ipynb"] = _header()
    texts["labkit_config.py"] = labkit_config(
        _limits(read.values()),
        other=CELL_SECONDS,
        by_student=variants,
        secret=SECRET,
        hidden_feedback=hidden_feedback,
    )
    for name, text in texts.items():
        _refuse_edited(course / name, {record["files"].get(name), digest(text)})

    if not (course / RECORD).exists():  # first, so that a run that was broken off can go on
        _write(course / RECORD, json.dumps({"schema": 1, **record}))
    written = [name for name, text in texts.items() if _write(course / name, text)]
    own = course / "nbgrader_config.py"
    if not own.exists() and _write(own, own_config(course.resolve().name)):
        written.append(own.name)
    if not (course / SECRET).exists() and _any_takes_seed(hidden):
        make_secret(course / SECRET)
        written.append(SECRET)
    now = {
        "schema": 1,
        "files": record["files"] | {name: digest(text) for name, text in texts.items()},
        "hidden": record["hidden"] | {lab.lab: sorted(hidden.get(lab.lab, {})) for lab in chosen},
    }
    _write(course / RECORD, json.dumps(now, indent=1) + "\n")
    return [
        *(f"wrote {course / name}" for name in written),
        *_dropped(record["hidden"], now["hidden"]),
        *(_to_release(course, lab.lab) for lab in chosen if _source_of(lab) in written),
    ]


def judged_name(exercise: str, source: str) -> str | None:
    """The name that an exercise's check cell judges; None where it does not end in such a call."""
    match ast.parse(source).body:
        case [*_, ast.Expr(ast.Call(func, [ast.Name(id=name)]))]:
            called = func.attr if isinstance(func, ast.Attribute) else ast.unparse(func)
            return name if called == _call(exercise) else None
    return None


def hidden_region(code: str) -> str:
    """Lines for the end of a cell that neither a release nor a feedback page shows."""
    return f"\n### BEGIN HIDDEN TESTS\n{code}\n### END HIDDEN TESTS"


def source_notebook(lab: Lab, hidden: dict[str, tuple[HiddenCheck, str]]) -> Any:
    """The lab as nbgrader's ``source/`` has it: with solutions and hidden checks.

    ``hidden`` maps an exercise to its hidden check and the text of the file it comes from.
    """
    notebook = copy.deepcopy(lab.learner)
    cells = []
    for cell, solved in zip(notebook.cells, lab.solution.cells, strict=True):
        cells.append(cell)
        graded = cell.metadata.get("nbgrader", {})
        if graded.get("solution"):
            cell.source = solved.source
        if graded.get("grade"):
            exercise = graded["grade_id"].removeprefix(CHECK)
            answer = judged_name(exercise, cell.source)
            if answer is None:
                raise CourseError(
                    f'{lab.lab}: the cell check="{exercise}" must end in {_call(exercise)}(answer),'
                    " since nbgrader gives full marks to a cell that only shows something"
                )
            if exercise in hidden:
                cells.append(_hidden_cell(exercise, answer, *hidden[exercise]))
    notebook.cells = cells
    return notebook


# What is in the folder


def _record(course: Path) -> dict[str, Any]:
    """What labkit wrote here before; raises CourseError for a folder that is not ours."""
    if course.exists() and not course.is_dir():
        raise CourseError(f"{course} is a file: name a folder that does not exist yet")
    if not course.exists() or not any(course.iterdir()):
        return {"files": {}, "hidden": {}}
    try:
        record = json.loads((course / RECORD).read_text(encoding="utf-8"))
        return {"files": dict(record["files"]), "hidden": dict(record["hidden"])}
    except FileNotFoundError:
        raise CourseError(
            f"{course} is not empty and labkit did not write it: name a new folder"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise CourseError(
            f"{course / RECORD} is damaged: put back a copy of it, or name a new folder"
        ) from None


def _refuse_edited(path: Path, ours: set[str | None]) -> None:
    """Raise CourseError where the file's digest is not among ``ours``."""
    if path.exists() and digest(path.read_text(encoding="utf-8", errors="replace")) not in ours:
        raise CourseError(
            f"{path} was edited after labkit wrote it: move your version away and run this again"
        )


def _write(path: Path, text: str) -> bool:
    """Write the file unless it holds ``text`` already; whether it was written."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
    return True


def _source_of(lab: Lab) -> str:
    return f"source/{lab.lab}/{lab.lab}.ipynb"


def _dropped(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    return [
        f"{lab} has lost its hidden check of {exercise}: give --extra again to keep it"
        for lab, exercises in before.items()
        for exercise in exercises
        if exercise not in now[lab]
    ]


def _to_release(course: Path, lab: str) -> str:
    again = " --force" if (course / "release" / lab).exists() else ""
    return f"release it, in {course}: nbgrader generate_assignment {lab}{again}"


# Hidden checks


def _read_extra(
    files: Iterable[Path], chosen: list[Lab]
) -> dict[str, dict[str, tuple[HiddenCheck, str]]]:
    """Lab -> exercise -> its hidden check and the text of its file; raises CourseError."""
    hidden: dict[str, dict[str, tuple[HiddenCheck, str]]] = {}
    labs = {lab.lab: {e.exercise for e in lab.exercises} for lab in chosen}
    for path in files:
        from labkit.grading.judge.hidden_checks import HiddenCheckError, load_hidden

        try:
            text = path.read_text(encoding="utf-8")
            checks = load_hidden(text, str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise CourseError(f"{path} cannot be read: {error}") from None
        except HiddenCheckError as error:
            raise CourseError(str(error)) from None
        if found := _MARKS.search(text):
            raise CourseError(f"{path} says {found[0]!r}, a mark of nbgrader's: write it otherwise")
        for exercise, check in checks.items():
            lab = check.check.lab
            if lab not in labs:
                raise CourseError(
                    f"{path} checks the lab {lab!r}, this course has {', '.join(labs)}"
                )
            if exercise not in labs[lab]:
                raise CourseError(
                    f"{path} checks {exercise!r}, {lab} has {', '.join(sorted(labs[lab]))}"
                )
            if exercise in hidden.setdefault(lab, {}):
                raise CourseError(f"{path} checks {exercise!r} of {lab} a second time: once is all")
            hidden[lab][exercise] = check, text
    return hidden


def _any_takes_seed(hidden: dict[str, dict[str, tuple[HiddenCheck, str]]]) -> bool:
    return any(check.takes_seed for checks in hidden.values() for check, _ in checks.values())


# Notebooks


def _hidden_cell(exercise: str, answer: str, check: HiddenCheck, text: str) -> Any:
    from nbformat import v4

    visible = f"# Your instructor's own check of {answer} runs here when your work is graded."
    seed = NO_SEED if check.takes_seed else ""
    lines = "\n".join(f"        {line!r}" for line in text.splitlines(keepends=True))
    cell = v4.new_code_cell(
        visible
        + hidden_region(
            "from labkit.grading.judge.hidden_checks import run_hidden\n\n"
            f'run_hidden(\n    "{exercise}",\n    {answer},{seed}\n    text=(\n{lines}\n    ),\n)'
        )
    )
    cell["id"] = cell_id("code", visible, 1)
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": f"{HIDDEN}{exercise}",
        "grade": True,
        "solution": False,
        "locked": True,
        "task": False,
        "points": check.points,
    }
    return cell


def _call(exercise: str) -> str:
    return f"check_{exercise.replace('-', '_')}"


def _header() -> str:
    from nbformat import v4

    names = 'NAME = ""\nWORKED_WITH = ""'
    cells = [v4.new_markdown_cell(_HEADER), v4.new_code_cell(names)]
    for cell in cells:
        cell["id"] = cell_id(cell.cell_type, cell.source, 1)
    return notebook_text(v4.new_notebook(cells=cells, nbformat_minor=5))


def _notebook(lab: Lab, hidden: dict[str, tuple[HiddenCheck, str]]) -> str:
    return notebook_text(source_notebook(lab, hidden))


def _limits(labs: Iterable[Lab]) -> dict[str, float]:
    """Seconds by grade_id; the longest, where labs share an id: nbgrader asks by cell alone."""
    limits: dict[str, float] = {}
    for lab in labs:
        for exercise in lab.exercises:
            for begin in ("", CHECK, HIDDEN):
                name = f"{begin}{exercise.exercise}"
                limits[name] = max(limits.get(name, 0), exercise.seconds)
    return limits
