"""The grades as tables: a row an exercise, a row a student for the LMS, and JSON with causes.

Students wrote some of what stands here. What a spreadsheet would take for a formula gets an
apostrophe before it. This holds within a cell too: where a comma is the decimal mark, a semicolon
parts the cells.
"""

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from labkit.base.home import replace_file
from labkit.grading.intake.remarks import Remark
from labkit.grading.report.scores import Sheet, maxima, pseudonym

_COLUMNS = ["student", "name", "lms_id", "lab", "exercise", "status", "points", "possible"]
_COLUMNS += ["checked", "message", "misconceptions", "cause", "rerun", "hidden", "late"]
_COLUMNS += [
    "score",
    "override",
    "comment",
    "repairs",
    "file",
    "digest",
    "pseudonym",
    "seconds",
    "of_submission",
]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_WITHIN = re.compile(r"""[;\t][\s"]*(?=[=+\-@＝＋－＠])""")


def grades_csv(sheets: Iterable[Sheet], secret: bytes) -> str:
    """A row for each student and exercise; ``secret`` gives the class summary's pseudonyms.

    ``seconds`` is what grading the exercise took, ``of_submission`` what all of them took together.
    """
    rows = []
    for sheet in sheets:
        of = sheet.submission
        for row in sheet.rows:
            facts = asdict(row) | {
                "student": of.student,
                "name": of.name,
                "lms_id": of.lms_id,
                "lab": of.lab,
                "late": of.late,
                "repairs": " ".join(of.repairs),
                "file": of.file,
                "digest": of.work.digest[:12] if of.work else "",
                "misconceptions": " ".join(row.misconceptions),
                "pseudonym": pseudonym(of.student, secret),
                "seconds": row.seconds or None,
                "of_submission": sheet.seconds or None,
            }
            rows.append([facts[column] for column in _COLUMNS])
    return csv_text(_COLUMNS, rows)


def totals_csv(sheets: Iterable[Sheet]) -> str:
    """A row for each student, and for each lab its points and the points possible.

    A lab that is not wholly graded leaves its cell and the total empty: no 0 that nobody gave. A
    lab that was not handed in leaves its cell empty and adds nothing.
    """
    sheets = list(sheets)
    possible = maxima(sheets)
    students: dict[str, dict[str, Sheet]] = {}
    for sheet in sheets:
        students.setdefault(sheet.submission.student, {})[sheet.submission.lab] = sheet
    heads = ["student", "name", "lms_id"]
    for lab in (*possible, "total"):
        heads += [lab, f"{lab} possible"]
    rows = []
    for student, by_lab in sorted(students.items()):
        of = next(iter(by_lab.values())).submission
        points = {lab: sheet.points for lab, sheet in by_lab.items()}
        cells: list[object] = [student, of.name, of.lms_id]
        for lab, most in possible.items():
            cells += [points.get(lab), most]
        earned = [one for one in points.values() if one is not None]
        total = sum(earned) if len(earned) == len(points) else None
        rows.append([*cells, total, sum(possible.values())])
    return csv_text(heads, rows)


def grades_json(sheets: Iterable[Sheet], *, versions: dict[str, str]) -> str:
    """Everything, for programs; ``versions`` are those of the labs. No times: a rerun is equal."""
    facts = [
        {
            "student": sheet.submission.student,
            "name": sheet.submission.name,
            "lms_id": sheet.submission.lms_id,
            "lab": sheet.submission.lab,
            "file": sheet.submission.file,
            "digest": sheet.submission.work.digest if sheet.submission.work else None,
            "late": sheet.submission.late,
            "cause": sheet.submission.cause,
            "repairs": list(sheet.submission.repairs),
            "points": sheet.points,
            "possible": sheet.possible,
            "comment": sheet.comment,
            "exercises": [_without_seconds(asdict(row)) for row in sheet.rows],
        }
        for sheet in sheets
    ]
    content = {"schema": 1, "labs": versions, "submissions": facts}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def remarks_csv(remarks: Iterable[Remark]) -> str:
    """A row for each remark on the run."""
    return csv_text(["kind", "who", "remark"], [[one.kind, one.who, one.said] for one in remarks])


def write_text(file: Path, text: str) -> None:
    """Put the text in place in one step, with ``?`` for what a name holds that UTF-8 cannot."""
    replace_file(file, text.encode(errors="replace"))


def safe(value: object) -> str:
    """A cell that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    text = _WITHIN.sub(r"\g<0>'", str(value))
    if text.lstrip(" ").startswith(_FORMULA):
        text = f"'{text}"
    return re.sub(r"[\r\n]", " ", text)  # a spreadsheet may take the rest for a new row


def csv_text(columns: Iterable[str], rows: Iterable[list[object]]) -> str:
    """The text of a table, each cell as ``safe`` writes it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([safe(column) for column in columns])
    writer.writerows([[safe(value) for value in row] for row in rows])
    return out.getvalue()


def _without_seconds(row: dict) -> dict:
    return {name: fact for name, fact in row.items() if name != "seconds"}
