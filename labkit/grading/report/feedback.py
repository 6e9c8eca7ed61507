"""The page that a student gets back: what they earned, each check's sentence, their own code."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from labkit.base.misconceptions import misconceptions
from labkit.grading.course import CourseLab
from labkit.grading.report.pages import code, page, points
from labkit.grading.report.scores import HIDDEN, Sheet


def file_name(student: str) -> str:
    """The name of a student's page: readable, and no two students share one."""
    kept = re.sub(r"[^a-z0-9_-]+", "_", student.lower(), flags=re.ASCII)[:60].strip("_-")
    # What ends like a hash might be another student's page.
    if kept == student and not re.search(r"-[0-9a-f]{8}\Z", kept):
        return f"{kept}.html"
    return f"{kept or 'student'}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def feedback(sheets: Sequence[Sheet], course: Mapping[str, CourseLab]) -> str:
    """The page of one student, whose sheets these are."""
    of = sheets[0].submission
    return page(
        "feedback.html",
        student=of.name or of.student,
        labs=[(sheet, _title(sheet, course)) for sheet in sheets],
        ideas=misconceptions(),
        hidden=HIDDEN,
        points=points,
        code=code,
    )


def _title(sheet: Sheet, course: Mapping[str, CourseLab]) -> str:
    lab = course.get(sheet.submission.lab)
    return f"{int(lab.lab[:2])}. {lab.title}" if lab else "A file of no known lab"
