"""The instructor's own page: who stands behind each pseudonym, with points and feedback pages."""

from collections.abc import Sequence
from urllib.parse import quote

from labkit.grading.report.feedback import file_name
from labkit.grading.report.pages import page
from labkit.grading.report.scores import Sheet, maxima, pseudonym


def names_page(sheets: Sequence[Sheet], secret: bytes, feedback: str) -> str:
    """The page of all students by pseudonym; ``feedback`` is the folder of their own pages."""
    possible = maxima(sheets)
    by_student: dict[str, dict[str, Sheet]] = {}
    for sheet in sheets:
        by_student.setdefault(sheet.submission.student, {})[sheet.submission.lab] = sheet
    rows = [
        {
            "pseudonym": pseudonym(student, secret),
            "of": next(iter(of_labs.values())).submission,
            "points": [_points(of_labs.get(lab)) for lab in possible],
            "page": f"./{quote(feedback)}/{file_name(student)}",
        }
        for student, of_labs in by_student.items()
    ]
    return page(
        "names.html",
        heads=[f"{lab} ({most:g})" for lab, most in possible.items()],
        rows=sorted(rows, key=lambda row: (row["pseudonym"], row["of"].student)),
    )


def _points(sheet: Sheet | None) -> str:
    if sheet is None:
        return ""
    if sheet.submission.cause == "missing":
        return "missing"
    return "not graded" if sheet.points is None else f"{sheet.points:g}"
