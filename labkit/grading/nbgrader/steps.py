"""Steps beside nbgrader's own, a preprocessor each; a course's labkit_config.py lists them.

Each completes a single step of nbgrader, which does the rest.
"""

import os
from pathlib import Path

from nbformat import v4
from nbgrader.preprocessors import (
    ClearSolutions,
    DeduplicateIds,
    Execute,
    NbGraderPreprocessor,
    OverwriteCells,
)
from nbgrader.utils import is_grade, is_solution
from traitlets import Bool, Dict, Enum, Unicode

from labkit.course.lab_source import COMMENT, STUB, without_bare_stub
from labkit.grading.judge.seeds import derive_seed, read_secret
from labkit.grading.nbgrader.exported_course import NO_SEED, hidden_region, judged_name
from labkit.grading.records import CHECK, HIDDEN
from labkit.grading.report.scores import MESSAGE, RESULT


class ClearLabSolutions(ClearSolutions):
    """Releases what a learner gets: the same stub, and none where `name = ...` is one already."""

    code_stub = Dict({"python": f"{COMMENT}\n{STUB}"}).tag(config=True)

    def preprocess_cell(self, cell, resources, cell_index):
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if is_solution(cell):
            cell.source = without_bare_stub(cell.source)
        return cell, resources


class DropCopies(DeduplicateIds):
    """Of a cell that was copied, the last one counts, and the others are cells like any.

    nbgrader leaves them metadata without a version, and stops there with all later submissions.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader") == {}:
            del cell.metadata["nbgrader"]
        return cell, resources


class RestoreChecks(OverwriteCells):
    """Adds the checks that a submission lacks at its end, where every answer is defined.

    nbgrader looks for a place beside the exercise, and fails where that is missing too.
    """

    add_missing_cells = Bool(True, help=OverwriteCells.add_missing_cells.help).tag(config=True)

    def add_missing_grade_cells(self, nb, resources):
        lab = self.gradebook.find_notebook(self.notebook_id, self.assignment_id)
        points = {cell.name: cell.max_score for cell in lab.grade_cells}
        there = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells}
        for cell in lab.source_cells:
            if cell.name in points and cell.name not in there:
                nb.cells.append(self.missing_cell_transform(cell, points[cell.name]))
        return nb, resources

    def add_missing_task_cells(self, nb, resources):
        return nb, resources  # a lab has none


class GuardChecks(NbGraderPreprocessor):
    """Lets a check's cell earn its points only where the check has passed.

    nbgrader gives full marks to a cell that raises nothing, whatever it has shown.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if is_grade(cell) and grade_id.startswith(CHECK):
            exercise = grade_id.removeprefix(CHECK)
            cell.source += hidden_region(
                "from labkit.grading.judge.hidden_checks import must_have_passed\n\n"
                f'must_have_passed("{exercise}", {judged_name(exercise, cell.source)})'
            )
        return cell, resources


class FillSeeds(NbGraderPreprocessor):
    """Gives each hidden check its seed, before the notebook runs.

    The secret stays in this process: the kernel that runs a student's code sees a seed only, and
    that in a cell below the code.
    """

    secret_file = Unicode("", help="The file that holds the course's secret").tag(config=True)
    by_student = Bool(False, help="Whether each student has a seed of their own").tag(config=True)

    def preprocess_cell(self, cell, resources, cell_index):
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if is_grade(cell) and grade_id.startswith(HIDDEN) and NO_SEED in cell.source:
            facts = resources["nbgrader"]
            seed = derive_seed(
                read_secret(Path(self.secret_file)),
                facts["notebook"],
                grade_id.removeprefix(HIDDEN),
                facts["student"] if self.by_student else "",
            )
            cell.source = cell.source.replace(NO_SEED, NO_SEED.replace("None", str(seed)))
        return cell, resources


class HiddenLast(NbGraderPreprocessor):
    """Runs the hidden checks after all other cells.

    An answer can keep what it has seen in a hidden check, and the message of a cell that runs later
    would show it to the student.
    """

    def preprocess(self, nb, resources):
        nb.cells.sort(key=_is_hidden)  # stable
        return nb, resources


class ExecuteLab(Execute):
    """Runs a submission without writing into the instructor's own progress log."""

    def setup_kernel(self, **kwargs):
        return super().setup_kernel(env={**os.environ, "LABKIT_PROGRESS": "off"}, **kwargs)


class WithholdHidden(NbGraderPreprocessor):
    """Leaves of a hidden check's output on a feedback page whether the check passed.

    All else may quote what it tried: its message, and whatever the answer printed while it ran.
    """

    hidden_feedback = Enum(
        (RESULT, MESSAGE), RESULT, help="What students are told: the result, or the message too"
    ).tag(config=True)

    def preprocess_cell(self, cell, resources, cell_index):
        if self.hidden_feedback == RESULT and _is_hidden(cell):
            exercise = cell.metadata["nbgrader"]["grade_id"].removeprefix(HIDDEN)
            failed = any(output.output_type == "error" for output in cell.outputs)
            said = f"{exercise}, hidden check: {'failed' if failed else 'passed'}."
            if failed:
                error = v4.new_output("error", ename="CheckFailed", evalue=said, traceback=[said])
                cell.outputs = [error]
            else:
                cell.outputs = [v4.new_output("stream", name="stdout", text=f"{said}\n")]
        return cell, resources


class SetAsideStderr(NbGraderPreprocessor):
    """Keeps what a grade cell wrote to stderr as plain output: a warning is no failure.

    nbgrader gives 0 for a word on stderr. A check of labkit raises where an answer is wrong. The
    traceback of an error is cut to its last line, since the lines around it may be hidden.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        for output in cell.get("outputs", []) if is_grade(cell) else []:
            if output.output_type == "stream":
                output.name = "stdout"
            elif output.output_type == "error":
                output.traceback = [f"{output.ename}: {output.evalue}".removesuffix(": ")]
        return cell, resources


def _is_hidden(cell) -> bool:
    """Whether a cell is that of a hidden check."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
    return is_grade(cell) and grade_id.startswith(HIDDEN)
