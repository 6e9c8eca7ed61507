"""The way back into an LMS: whose line of its table a mark belongs to, and zips of feedback pages.

What each LMS takes is in ``moodle`` and ``canvas``. Both fill a table that the LMS itself exported,
where the instructor gives it: it has what labkit does not know (ids of assignments, when a grade
was last changed) and is the one form that each version of the LMS reads. Without it they make a
table from the numbers in the names of what was handed in.

**The rule of persons is that of the roster, with the LMS's table in the roster's place: the number
decides, then the id, then the name, if one line alone has it. Whoever contradicts gets no line.**
No mark is lost without a word, and none goes to two lines.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.base.home import replace_file, replacing
from labkit.grading.intake.remarks import Remark, one_line
from labkit.grading.intake.roster import Student, identify
from labkit.grading.report.feedback import file_name
from labkit.grading.report.lms_table import LmsTable
from labkit.grading.report.scores import Sheet
from labkit.grading.report.tables import safe

_NO_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip knows: two runs write equal bytes


@dataclass(frozen=True, kw_only=True)
class Line:
    """A student's line of the LMS's table; ``ids`` are their login, e-mail and the like."""

    row: int
    number: str
    name: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What an LMS takes: the texts of tables, and for each zip whose page each entry is.

    Both by the names of the files. ``remarks`` are marks that do not find their way by themselves,
    ``said`` are sentences that only inform.
    """

    tables: Mapping[str, str]
    zips: Mapping[str, Mapping[str, str]]
    remarks: tuple[Remark, ...] = ()
    said: tuple[str, ...] = ()


def of_lab(sheets: Iterable[Sheet]) -> dict[str, list[Sheet]]:
    """The sheets of each lab of the course, in order."""
    by_lab: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        if sheet.submission.lab:
            by_lab.setdefault(sheet.submission.lab, []).append(sheet)
    return dict(sorted(by_lab.items()))


def known_lines(sheets: Sequence[Sheet]) -> list[Line]:
    """A line for each student whose number is known, for a table that labkit makes itself."""
    students = {one.submission.student: one.submission for one in sheets if one.submission.lms_id}
    return [
        Line(row=row, number=of.lms_id, name=of.name or student, ids=(student,))
        for row, (student, of) in enumerate(sorted(students.items()), start=1)
    ]


def match(sheets: Sequence[Sheet], lines: Sequence[Line]) -> tuple[dict[str, Line], dict[str, str]]:
    """The line of each student of one lab, and why the others have none, both by student."""
    students = {sheet.submission.student for sheet in sheets}
    claims = Counter(one for line in lines for one in set(line.ids) & students)
    by_key = {
        next((one for one in line.ids if claims[one] == 1), f"\n{line.row}"): line for line in lines
    }
    roster = {
        key: Student(id=key, name=line.name, lms_id=line.number) for key, line in by_key.items()
    }
    delivered = {one.submission.student: _delivered(one, roster) for one in sheets}
    people = identify(delivered.values(), roster)
    found, without = {}, {}
    for one in sheets:
        student = one.submission.student
        person = people[delivered[student]]
        doubts = {remark.kind for remark in one.submission.remarks if remark.who == student}
        if "contradicting" in doubts or person.kind == "contradicting":
            without[student] = "the name and the number are of different people, or of several"
        elif person.listed:
            found[student] = by_key[person.listed.id]
        elif one.submission.lms_id:
            without[student] = f"no line has the number {one.submission.lms_id}"
        else:
            without[student] = "no number is known, and no single line has this id or name"
    taken = Counter(line.row for line in found.values())
    for student in [student for student, line in found.items() if taken[line.row] > 1]:
        found.pop(student)
        without[student] = "another student came for the same line"
    return found, without


def _delivered(sheet: Sheet, roster: Mapping[str, Student]) -> tuple[str, str]:
    of = sheet.submission
    return (of.student if of.student in roster else of.name or of.student), of.lms_id


def points_of(sheet: Sheet) -> str:
    """The points as a table says them, with a dot; "" while the lab is not wholly graded."""
    return safe(sheet.points)


def number_in(cell: str) -> float | None:
    """The number in a cell, whichever decimal mark the LMS wrote; None where there is none."""
    try:
        return float(cell.replace(",", "."))
    except ValueError:
        return None


def marks_without_line(
    sheets: Iterable[Sheet], without: Mapping[str, str], table: str
) -> list[Remark]:
    """A remark for each mark that no line of the table gets."""
    remarks = []
    for sheet in sheets:
        of = sheet.submission
        if of.student in without:
            earned = "not graded" if sheet.points is None else f"{points_of(sheet)} points"
            said = f"{of.lab}, {earned}: in no line of {table}, because {without[of.student]}."
            remarks.append(Remark(kind="lms", who=of.student, said=one_line(said)))
    return remarks


def maximum_differs(lab: str, ours: float, theirs: float, table: str) -> Remark:
    """The remark on a maximum of the LMS that is not the lab's."""
    return Remark(
        kind="lms",
        who=table,
        said=f"{lab} has {ours:g} points, and its maximum in the LMS is {theirs:g}. No mark was"
        f" scaled. Set the assignment to {ours:g} points, or scale the marks in the LMS.",
    )


def lines_left(table: LmsTable, count: int) -> list[str]:
    """What is said of lines that nobody graded belongs to."""
    if not count:
        return []
    lines = "1 line" if count == 1 else f"{count} lines"
    return [f"{table.name}: {lines} without a student of this run; left as in the LMS."]


def in_file_name(name: str, longest: int = 60) -> str:
    """A name as part of a file's name: letters, digits and single spaces; `student` for none."""
    kept = re.sub(r"[\W_]+", " ", name).strip()[:longest].strip()
    return kept or "student"


def write_lms(folder: Path, upload: Upload, pages: Path) -> None:
    """Write the tables and zips; ``pages`` is the folder of the feedback pages.

    The zips' bytes depend on the pages and names alone, and one page is in memory at a time. A zip
    without a page is not written, and one of an earlier run goes. Raises OSError.
    """
    for name, text in upload.tables.items():
        replace_file(folder / name, text.encode(errors="replace"))
    for name, entries in upload.zips.items():
        if not entries:
            (folder / name).unlink(missing_ok=True)
            continue
        with replacing(folder / name) as file, zipfile.ZipFile(file, "w") as archive:
            for entry, student in sorted(entries.items()):
                facts = zipfile.ZipInfo(entry, date_time=_NO_TIME)
                facts.compress_type = zipfile.ZIP_DEFLATED
                facts.create_system = 3  # or it would tell on which system labkit ran
                facts.external_attr = 0o644 << 16
                archive.writestr(facts, (pages / file_name(student)).read_bytes())
