"""Scores written into nbgrader's own gradebook, by its own interface.

The names are those of the nbgrader course that ``labkit nbgrader`` writes: an assignment
and its notebook are called as the lab, a grade cell ``check-<exercise>`` or ``hidden-<exercise>``.
What the gradebook has of them stays; what is missing is added.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from labkit.grading.course_labs import CourseLab
from labkit.grading.records import CHECK
from labkit.grading.report.scores import Row, Sheet, is_hidden


class GradebookError(Exception):
    """A gradebook that cannot be written, with what to do."""


def require() -> None:
    """Raise GradebookError where nbgrader cannot be used: before grading, not after it."""
    if importlib.util.find_spec("nbgrader") is None:
        raise GradebookError(
            "--gradebook needs nbgrader: pip install 'mixed-precision-labs[instructor]'"
        )
    if shutil.which("alembic", path=_path()) is None:
        raise GradebookError(
            "--gradebook needs the command `alembic`, which comes with nbgrader, and neither"
            f" {Path(sys.executable).parent} nor PATH has it: pip install alembic"
        )


def write_scores(file: Path, sheets: Iterable[Sheet], course: Mapping[str, CourseLab]) -> int:
    """Write the scores of these sheets; returns the number of submissions written.

    Points of a check become the automatic score; points set by hand the manual one. What was not
    graded is marked as needing a grade by hand. A student without a submission gets none.

    Raises GradebookError where the file is no gradebook or none can be made.
    """
    from sqlalchemy.exc import SQLAlchemyError

    written = 0
    try:
        # nbgrader builds its records in an order that SQLAlchemy warns of.
        with warnings.catch_warnings(action="ignore"), _opened(file) as book:
            for sheet in sheets:
                if sheet.submission.lab in course and sheet.submission.cause != "missing":
                    _write_sheet(book, sheet)
                    written += 1
    except (SQLAlchemyError, OSError, subprocess.SubprocessError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise GradebookError(f"{file} cannot be used as a gradebook of nbgrader: {why}.") from None
    return written


def _opened(file: Path):
    """The gradebook; where a new one cannot be finished, nothing of it is left."""
    from nbgrader.api import Gradebook

    is_new = not file.exists()
    try:
        with _alembic_found():
            return Gradebook(f"sqlite:///{file.absolute()}")
    except BaseException:
        if is_new:
            file.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _alembic_found() -> Iterator[None]:
    """Let nbgrader find the command `alembic` where the environment is not activated."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = _path()
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def _path() -> str:
    own = str(Path(sys.executable).parent)
    return os.pathsep.join([own, os.environ.get("PATH", os.defpath)])


def _write_sheet(book, sheet: Sheet) -> None:
    of = sheet.submission
    first, _, last = of.name.rpartition(" ")
    names = {"first_name": first, "last_name": last} if of.name else {}
    book.update_or_create_student(of.student, **names)
    book.update_or_create_assignment(of.lab)
    book.update_or_create_notebook(of.lab, of.lab)
    for row in sheet.rows:
        book.update_or_create_grade_cell(
            _cell(row), of.lab, of.lab, max_score=row.possible, cell_type="code"
        )
    # nbgrader keeps times without a zone, in UTC.
    time = {"timestamp": of.at.replace(tzinfo=None)} if of.at else {}
    submission = book.update_or_create_submission(of.lab, of.student, **time)
    _add_grades(book, submission, of.lab)
    for row in sheet.rows:
        if row.manual and row.points is None:
            continue  # somebody may have graded it in nbgrader's formgrader
        grade = book.find_grade(_cell(row), of.lab, of.lab, of.student)
        grade.auto_score = row.checked
        grade.manual_score = row.points if row.override or row.manual else None
        grade.needs_manual_grade = row.points is None
    book.db.commit()


def _add_grades(book, submission, lab: str) -> None:
    """Give a submission that was there before the grades of cells that were not."""
    from nbgrader.api import Grade, SubmittedNotebook

    book.db.expire_all()  # the lists of cells were read before some were added
    master = book.find_notebook(lab, lab)
    notebook = next((one for one in submission.notebooks if one.name == lab), None)
    if notebook is None:
        notebook = SubmittedNotebook(notebook=master, assignment=submission)
        book.db.add(notebook)
    there = {grade.cell_id for grade in notebook.grades}
    for cell in master.grade_cells:
        if cell.id not in there:
            book.db.add(Grade(cell_id=cell.id, notebook=notebook))
    book.db.commit()


def _cell(row: Row) -> str:
    own = is_hidden(row) or row.manual
    return row.exercise if own else f"{CHECK}{row.exercise}"
