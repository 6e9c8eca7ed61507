"""What Canvas takes back: its gradebook as CSV with the marks, and zips of feedback pages.

Read in the sources of Canvas (instructure/canvas-lms; no live site was tried):

- ``lib/gradebook_exporter.rb``: the heads are English in each language: Student (or LastName and
  FirstName), ID, perhaps SIS User ID, SIS Login ID and others, Section, perhaps columns of the
  course's own, then ``TITLE (ID)`` for each assignment, then totals. A row "Points Possible"
  follows, perhaps after one that says "Manual Posting". Separator, decimal mark and byte-order mark
  are the user's settings. A name that begins with an equals sign is written as ``="..."``.
- ``lib/gradebook_importer.rb``: it reads commas or semicolons and either decimal mark. A student is
  found by ID, else by the SIS ids, else by the name; an assignment by the id in its head, else by
  its title, and is new otherwise. Assignments that are not in the file stay as they are. An empty
  cell takes away a grade that is there, "EX" excuses, and a grade may be above the points possible.
- ``app/models/abstract_assignment.rb``, ``infer_comment_context_from_filename``: of an uploaded
  zip each file's name is cut at its underscores, and the first two words of digits alone are the
  user's id and that of a file which the student's present submission holds; others are ignored.
  ``generate_comments_from_files`` attaches it to a comment, under the display name of the
  student's own file. Any kind of file is taken, but the page is called like the notebook.
- ``lib/content_zipper.rb``: the names in a download have both ids; labkit has them from there.

So the instructor's own export is filled, and a cell without a mark stays as it was. Without one
labkit writes the columns Student, ID and Section and one named after each lab, which Canvas asks
about when uploading. Names are read by nothing where the ID is right, so an apostrophe before what
looks like a formula does no harm.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.grading.intake.remarks import Remark
from labkit.grading.report import lms
from labkit.grading.report.feedback import file_name
from labkit.grading.report.lms import Line, Upload
from labkit.grading.report.lms_table import LmsError, LmsTable, parse_table, read_table
from labkit.grading.report.scores import Sheet
from labkit.grading.report.tables import csv_text

_ASSIGNMENT = re.compile(r"(.*?)\s*\([0-9]+\)\Z", re.DOTALL)
_KEPT = ("EX", "N/A")  # excused; not assigned to this student


@dataclass(frozen=True, kw_only=True)
class Gradebook:
    """An exported gradebook: the column of each lab, and the lines of its students."""

    table: LmsTable
    columns: Mapping[str, int]
    possible: int | None
    lines: tuple[Line, ...]


def read_gradebook(files: Sequence[Path], labs: Mapping[str, str]) -> Gradebook | None:
    """The gradebook, if one is given; ``labs`` are titles by name. Raises LmsError."""
    if len(files) > 1:
        raise LmsError("Canvas has one gradebook for all labs; give --lms-table once.")
    return _gradebook(read_table(files[0]), labs) if files else None


def _gradebook(table: LmsTable, labs: Mapping[str, str]) -> Gradebook:
    heads = table.heads
    if "ID" not in heads or "Section" not in heads:
        raise LmsError(
            f"{table.name} has no columns ID and Section, so it is no gradebook of Canvas. Choose"
            " Export in the gradebook, and give the file as it is, not saved by a spreadsheet."
        )
    id_, section = heads.index("ID"), heads.index("Section")
    rows = range(1, len(table.rows))
    lines = [
        Line(
            row=row,
            number=table.cell(row, id_),
            name=_name([table.cell(row, column) for column in range(id_)]),
            ids=tuple(filter(None, (table.cell(row, c) for c in range(id_ + 1, section)))),
        )
        for row in rows
        if table.cell(row, id_)
    ]
    possible = (row for row in rows if "Points Possible" in table.cell(row, 0))
    return Gradebook(
        table=table,
        columns={lab: _column(table, lab, title) for lab, title in labs.items()},
        possible=next(possible, None),
        lines=tuple(lines),
    )


def _name(cells: list[str]) -> str:
    """A student's name in the order in which it is spoken: `Ada Lovelace` for `Lovelace, Ada`."""
    if len(cells) == 1:
        cells = cells[0].split(", ", 1)
    return " ".join(reversed(cells))


def _column(table: LmsTable, lab: str, title: str) -> int:
    """The one column of assignments whose name holds the lab's name or title."""
    wanted = (_words(lab), _words(title))
    found = [
        column
        for column, head in enumerate(table.heads)
        if (named := _ASSIGNMENT.fullmatch(head))
        and any(f" {words} " in f" {_words(named[1])} " for words in wanted)
    ]
    if len(found) != 1:
        raise LmsError(
            f"{table.name} has {len(found)} columns of assignments whose name holds `{lab}` or"
            f" `{title}`, and one is needed. Rename the assignment in Canvas, and export again."
        )
    return found[0]


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def canvas_upload(given: Gradebook | None, sheets: Sequence[Sheet]) -> Upload:
    """The gradebook of all labs, and a zip for each lab, named after it."""
    gradebook = given or _made(sheets)
    table = gradebook.table
    zips: dict[str, dict[str, str]] = {}
    remarks: list[Remark] = []
    said: list[str] = []
    with_marks: set[int] = set()
    for lab, of_lab in lms.of_lab(sheets).items():
        found, without = lms.match(of_lab, gradebook.lines)
        remarks += lms.marks_without_line(of_lab, without, table.name)
        remarks += _on_column(lab, of_lab, gradebook)
        with_marks |= {line.row for line in found.values()}
        for sheet in of_lab:
            line = found.get(sheet.submission.student)
            if line:
                said += _fill(sheet, line, gradebook)
        zips[f"{lab}.feedback.zip"] = {
            _entry(sheet): sheet.submission.student
            for sheet in of_lab
            if sheet.submission.student in found and sheet.submission.attempt
        }
    said += lms.lines_left(table, len({one.row for one in gradebook.lines} - with_marks))
    tables = {"gradebook.csv": table.text()}
    return Upload(tables=tables, zips=zips, remarks=tuple(remarks), said=tuple(said))


def _made(sheets: Sequence[Sheet]) -> Gradebook:
    by_lab = lms.of_lab(sheets)
    # An anonymous submission has a word in the number's place, which no gradebook knows.
    known = [one for one in lms.known_lines(sheets) if one.number.isdecimal()]
    lines = [replace(line, row=row) for row, line in enumerate(known, start=2)]
    possible = [f"{max(one.possible for one in of_lab):g}" for of_lab in by_lab.values()]
    blank = [""] * len(by_lab)
    rows: list[list[object]] = [["    Points Possible", "", "", *possible]]
    rows += [[line.name, line.number, "", *blank] for line in lines]
    heads = ["Student", "ID", "Section", *by_lab]
    return Gradebook(
        table=parse_table("gradebook.csv", csv_text(heads, rows)),
        columns={lab: column for column, lab in enumerate(by_lab, start=3)},
        possible=1,
        lines=tuple(lines),
    )


def _on_column(lab: str, sheets: Sequence[Sheet], gradebook: Gradebook) -> list[Remark]:
    """What is wrong with the column of a lab as a whole."""
    table = gradebook.table
    if gradebook.possible is None:
        return []
    cell = table.cell(gradebook.possible, gradebook.columns[lab])
    ours, theirs = max(sheet.possible for sheet in sheets), lms.number_in(cell)
    if theirs is None or theirs == ours:
        return []
    return [lms.maximum_differs(lab, ours, theirs, table.name)]


def _fill(sheet: Sheet, line: Line, gradebook: Gradebook) -> list[str]:
    """Put a mark into its cell, and say what is worth a word."""
    of, column, table = sheet.submission, gradebook.columns[sheet.submission.lab], gradebook.table
    if sheet.points is None:
        return []
    there = table.cell(line.row, column)
    if there.upper() in _KEPT:
        return [f"{of.student}, {of.lab}: `{there}` stays in {table.name}; the mark is not in it."]
    table.fill(line.row, column, lms.points_of(sheet))
    if sheet.points > sheet.possible:
        return [f"{of.student}, {of.lab}: {sheet.points:g} of {sheet.possible:g} points stay."]
    return []


def _entry(sheet: Sheet) -> str:
    of = sheet.submission
    # No word of it may be digits alone, and the first may not be `anon`.
    name = file_name(of.student).removesuffix(".html").replace("_", "-")
    return f"student-{name}_{of.lms_id}_{of.attempt}_{of.lab}.html"
