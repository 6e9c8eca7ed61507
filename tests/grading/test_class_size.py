"""The work around the grader grows as the class does: calls are counted, not seconds."""

import cProfile
import pstats

from labkit.grading import command
from labkit.grading.records import Outcome
from tests.grading.handing_in import as_bytes, small
from tests.grading.quick_grader import QuickGrader, answer, grade_command, unlike_any_other


class Distinct(QuickGrader):
    """Each student fails one exercise, with a message that reads like no other."""

    def grade(self, work):
        first, *others = (one.exercise for one in work.exercises)
        failed = Outcome(exercise=first, status="failed", message=unlike_any_other(work.digest))
        return [
            failed,
            *(Outcome(exercise=o, status="passed", message="Right.", score=1.0) for o in others),
        ]


def calls_of_a_rerun(folder, students: int) -> int:
    """Function calls that the command makes where everything is graded already."""
    handed_in = folder / str(students)
    handed_in.mkdir()
    for number in range(students):
        notebook = small(f"{answer('fails')}\n# {number}")
        (handed_in / f"s{number:03}_02_number_formats.ipynb").write_bytes(as_bytes(notebook))
    words = [handed_in, "-o", folder / f"{students}.csv", "--lab", "02"]
    assert grade_command(words, Distinct) == command.ALL_GRADED
    profile = cProfile.Profile()
    with profile:
        assert grade_command(words, Distinct) == command.ALL_GRADED
    return pstats.Stats(profile).total_calls


def test_a_student_more_is_as_much_work_in_a_large_class_as_in_a_small_one(tmp_path):
    calls_of_a_rerun(tmp_path, 1)  # imports
    small_class, twice, four_times = (calls_of_a_rerun(tmp_path, n) for n in (25, 50, 100))
    # A step that compares all with all would take twice as many.
    assert (four_times - twice) / 50 < 1.1 * (twice - small_class) / 25
