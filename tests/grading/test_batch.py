"""From files to submissions: what is read of one, which counts, and what is told of the others."""

from datetime import UTC, datetime

from handing_in import LAB, as_bytes, small
from quick_grader import answer

from labkit.grading.course_labs import read_course
from labkit.grading.intake.deliveries import Handed
from labkit.grading.intake.remarks import Remark
from labkit.grading.intake.roster import Student
from labkit.grading.judge.batch import counting_submissions, read_submission

COURSE = read_course()
ROSTER = {"al01": Student(id="al01", name="Ada Lovelace", lms_id="7")}


def handed(file: str, notebook: dict | bytes, day: int = 1, **facts) -> Handed:
    content = notebook if isinstance(notebook, bytes) else as_bytes(notebook)
    at = datetime(2026, 12, day, tzinfo=UTC)
    facts = {"student": "Ada Lovelace", "lms_id": "7", "assignment": LAB, **facts}
    return Handed(file=file, content=content, at=at, **facts)


def chosen(*files: Handed, roster=ROSTER):
    return counting_submissions([read_submission(one, COURSE, None) for one in files], roster)


def told(one) -> dict[str, list[str]]:
    by_kind: dict[str, list[str]] = {}
    for remark in one.remarks:
        assert remark.who == one.student
        by_kind.setdefault(remark.kind, []).append(remark.said)
    return by_kind


def test_helpers_are_part_of_the_work():
    helpers = (("helpers.py", b"x = 1"),)
    (one,) = chosen(handed("a.ipynb", small(answer("passes")), helpers=helpers))
    assert one.work.helpers == helpers


def test_what_the_intake_remarked_is_told_of_the_student_whatever_counts():
    def remark(number: int) -> tuple[Remark, ...]:
        return (Remark(kind="dropped", who="Ada Lovelace", said=f"{number}"),)

    (one,) = chosen(
        handed("a.ipynb", small(answer("passes")), 1, remarks=remark(1)),
        handed("b.ipynb", small(answer("passes")), 2, remarks=remark(2)),
        handed("c.ipynb", b'{"cells": []}', 3, remarks=remark(3), assignment=""),
    )
    assert (one.student, one.file) == ("al01", "b.ipynb")
    said = told(one)
    assert said["dropped"][:3] == ["2", "1", "3"]
    (merged,) = said["merged"]
    assert merged.startswith("`b.ipynb` counts") and "`a.ipynb`" in merged


def test_a_remark_on_a_path_stays_one_on_that_path():
    remark = Remark(kind="dropped", who="x/~lock.ipynb", said="Left out.")
    (one,) = chosen(handed("a.ipynb", small(answer("passes")), remarks=(remark,)))
    assert one.remarks == (remark,)


def test_a_stray_file_is_told_to_both():
    (one,) = chosen(
        handed("a.ipynb", small(answer("passes"))),
        handed("notes.ipynb", b'{"cells": []}', assignment=""),
    )
    (said,) = told(one)["dropped"]
    assert said.startswith("`notes.ipynb` was left out: ") and said in one.repairs


def test_repairs_are_remarks_of_the_submission_that_counts():
    mended = as_bytes(small(answer("passes"))).replace(b"import math", b"import math # \xe9\xff")
    (one,) = chosen(
        handed("a.ipynb", mended, 2), handed("b.ipynb", as_bytes(small(answer("fails")))[:-9], 1)
    )
    assert one.repairs[0] in told(one)["repaired"]
    assert "cp1252" in one.repairs[0] and len(one.repairs) == 2


def test_of_many_sentences_some_are_said_and_the_others_counted():
    name = "x" * 5000
    files = [handed(f"{name}{n}.ipynb", small(answer("passes")), n % 28 + 1) for n in range(101)]
    (one,) = chosen(*files)
    assert len(one.repairs) == 31 and max(map(len, one.repairs)) <= 300
    assert "70 more" in one.repairs[-1]
