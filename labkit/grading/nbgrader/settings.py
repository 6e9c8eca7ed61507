"""What the configuration files of an nbgrader course say.

``nbgrader_config.py`` is the instructor's and loads ``labkit_config.py``, which is labkit's. The
latter names every setting that the labs need, so that an instructor can read what differs from
nbgrader's defaults and overrule it below the line that loads it.
"""

from collections.abc import Mapping

from labkit.grading.report.scores import RESULT

GRACE = 3
"""A cell may take so many times its check's limit: limits are of an idle machine."""

_OWN = '''\
"""The settings of this course. Yours to edit: labkit writes this file once."""

c = get_config()
load_subconfig("labkit_config.py")

c.CourseDirectory.course_id = {course_id!r}
'''

_LABKIT = '''\
"""What the labs need of nbgrader. `labkit nbgrader` writes this file anew each time."""

from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader import preprocessors as steps

from labkit.grading.nbgrader import steps as ours

c = get_config()

c.IncludeHeaderFooter.header = "source/header.ipynb"

# nbgrader's own lists, with our step beside the step that it completes.
c.GenerateAssignment.preprocessors = [
    steps.IncludeHeaderFooter,
    steps.InstantiateTests,
    steps.LockCells,
    ours.ClearLabSolutions,
    steps.ClearOutput,
    steps.CheckCellMetadata,
    steps.ComputeChecksums,
    steps.SaveCells,
    steps.ClearHiddenTests,
    steps.ClearMarkScheme,
    steps.ComputeChecksums,
    steps.CheckCellMetadata,
]
c.Autograde.sanitize_preprocessors = [
    steps.ClearOutput,
    ours.DropCopies,
    steps.OverwriteKernelspec,
    ours.RestoreChecks,
    steps.CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    ours.GuardChecks,
    ours.FillSeeds,
    ours.HiddenLast,
    ours.ExecuteLab,
    ours.SetAsideStderr,
    steps.IgnorePattern,
    steps.LimitOutput,
    steps.SaveAutoGrades,
    steps.AssignLatePenalties,
    steps.CheckCellMetadata,
]
# Feedback never shows the code of a hidden check.
c.GenerateFeedback.preprocessors = [
    steps.GetGrades,
    ours.WithholdHidden,
    steps.ClearHiddenTests,
    CSSHTMLHeaderPreprocessor,
]

# What feedback tells of a hidden check: "result", whether it passed, or "message".
c.WithholdHidden.hidden_feedback = {hidden_feedback!r}

# Whether each student meets inputs of their own in the hidden checks that take a seed.
c.FillSeeds.by_student = {by_student}
c.FillSeeds.secret_file = str(Path(__file__).with_name({secret!r}))

# Seconds that a cell may take. An exercise and its check: {grace} times the check's limit. Any
# other cell, such as a demonstration that trains: what the labs' own build allows.
SECONDS = {{
{seconds}
}}
c.Execute.timeout = {other}
c.Execute.timeout_func = lambda cell: SECONDS.get(
    cell.metadata.get("nbgrader", {{}}).get("grade_id"), {other}
)
c.Execute.error_on_timeout = {{
    "ename": "CellTimeoutError",
    "evalue": "This cell took longer than it may, so it was stopped.",
    "traceback": [],
}}
c.Execute.iopub_timeout = 30  # the usual 4 s are too short for a figure on a busy machine
c.Execute.kernel_name = "python3"
'''


def own_config(course_id: str) -> str:
    """The text of ``nbgrader_config.py``."""
    return _OWN.format(course_id=course_id)


def labkit_config(
    limits: Mapping[str, float],
    *,
    other: float,
    by_student: bool,
    secret: str,
    hidden_feedback: str = RESULT,
) -> str:
    """The text of ``labkit_config.py``.

    Args:
        limits: seconds of a check's limit by grade_id.
        other: seconds for a cell without one.
        by_student: whether seeds differ from student to student.
        secret: the name of the file that holds the secret.
        hidden_feedback: what feedback tells of a hidden check, RESULT or MESSAGE.
    """
    seconds = "\n".join(f"    {name!r}: {GRACE * limit}," for name, limit in sorted(limits.items()))
    return _LABKIT.format(
        seconds=seconds,
        other=other,
        grace=GRACE,
        by_student=by_student,
        secret=secret,
        hidden_feedback=hidden_feedback,
    )
