"""What Moodle takes back: an assignment's grading worksheet with the marks, and a feedback zip.

Read in the sources of Moodle (moodle/moodle, 2.3 to 4.x; no live site was tried):

- ``mod/assign/gradingtable.php``: a downloaded worksheet begins with the columns Identifier and
  Full name (under blind marking with Identifier alone), then the site's identity fields and Status.
  Grade stands left of Maximum grade, or of Scale; Last modified (grade) and the comments follow.
  The heads are in the language of whoever downloads it. An identifier is the translated word
  "Participant " and a number that the assignment alone gives to this user.
- ``mod/assign/feedback/offline/importgradeslib.php``: the importer wants the heads Identifier,
  Grade and Last modified (grade) in the language of whoever uploads, finds the user by the number
  at the identifier's end, and reads neither the name nor the maximum.
- ``mod/assign/feedback/offline/locallib.php``: it skips, without a word, an empty grade, a grade
  above the maximum, a locked one, and one that was changed in Moodle after Last modified (grade),
  unless "Allow updating records ..." is ticked. So an empty cell changes nothing.
- ``lib/moodlelib.php``, ``unformat_float``: a dot is a decimal mark in each language.
- ``lib/csvlib.class.php``: a byte-order mark is dropped, cells may stand in quotes, and all lines
  must have as many cells as the heads. Encoding and separator are chosen when uploading.
- ``mod/assign/feedback/file/importziplib.php``: of an entry's path the first part with four words
  between underscores counts, ``NAME_NUMBER_assignfeedback_file_``: the name is not looked at, the
  number must be a participant's, and what follows is the feedback file's name. Files whose name
  begins with ``.`` or ``~`` are ignored; a file with the same name replaces the earlier one.

So the instructor's own worksheet is filled: its heads, its dates and the students without a
submission are right by themselves, in each language. Columns are found by their English heads or
else by what the source says of their places. Without a worksheet labkit writes one in English from
the numbers in the folders' names, without dates: it can set grades that nobody has set, and
replaces others only with the box ticked. A name that looks like a formula gets an apostrophe there,
which Moodle does not mind; a given worksheet keeps its cells, so what Moodle exported comes back.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.grading.intake.remarks import Remark
from labkit.grading.report import lms
from labkit.grading.report.lms import Line, Upload
from labkit.grading.report.lms_table import LmsError, LmsTable, parse_table, read_table
from labkit.grading.report.scores import Sheet
from labkit.grading.report.tables import csv_text

_IDENTIFIER, _NAME, _GRADE, _MAXIMUM = "Identifier", "Full name", "Grade", "Maximum grade"
_MODIFIED = "Last modified (grade)"
_PARTICIPANT = re.compile(r"(\D*?)([0-9]{1,18})\Z")


class _Worksheet:
    """A worksheet with its columns found; raises LmsError."""

    def __init__(self, table: LmsTable):
        self.table = table
        self.rows = [row for row in range(1, len(table.rows)) if any(table.rows[row])]
        self.grade, self.maximum = self._grade_and_maximum()
        identifiers = [self._cell(row, 0) for row in self.rows]
        found = [_PARTICIPANT.fullmatch(one) for one in identifiers]
        if not self.rows or not all(found) or len({one[1] for one in found if one}) > 1:
            raise self._no_worksheet("does not begin with a column of participants")
        self.lines = [
            Line(
                row=row,
                number=one[2],
                name=self._cell(row, 1) if self.grade > 1 else "",
                ids=tuple(filter(None, (self._cell(row, c) for c in range(2, self.grade)))),
            )
            for row, one in zip(self.rows, found, strict=True)
            if one
        ]

    def _cell(self, row: int, column: int) -> str:
        return self.table.cell(row, column)

    def _grade_and_maximum(self) -> tuple[int, int]:
        heads = [head.lower() for head in self.table.heads]
        so_called = [column for column, head in enumerate(heads) if head == _MAXIMUM.lower()]
        for maximum in so_called or range(2, len(heads)):
            same = {self._cell(row, maximum) for row in self.rows}
            before = [self._cell(row, maximum - 1) for row in self.rows]
            if (
                len(same) == 1
                and (lms.number_in(min(same)) or 0) > 0
                and all(not one or lms.number_in(one) is not None for one in before)
            ):
                return maximum - 1, maximum
        raise self._no_worksheet("has no column of grades with their maximum beside it")

    def _no_worksheet(self, what: str) -> LmsError:
        return LmsError(
            f"{self.table.name} {what}, so it is no grading worksheet of an assignment with points."
            " In Moodle set the grade type to Point, and the language to English if this message"
            " comes again; download the grading worksheet again, and give it as it is, not saved"
            " by a spreadsheet."
        )


def read_worksheets(files: Sequence[Path], labs: Sequence[str]) -> dict[str, LmsTable]:
    """The worksheet of each lab, of those that are given; raises LmsError.

    Nothing in a worksheet says which assignment it is of: where there are several labs, the name
    of the file must hold the lab's.
    """
    tables: dict[str, LmsTable] = {}
    for file in files:
        named = [lab for lab in labs if lab in file.name]
        if len(labs) == len(files) == 1:
            named = list(labs)
        if len(named) != 1 or named[0] in tables:
            raise LmsError(
                f"It is not clear which lab {file.name} is of. Grade one lab with --lab, or give"
                " one worksheet a lab and put the lab's name into the file's, as in"
                f" {labs[0] if labs else 'LAB'}.csv."
            )
        tables[named[0]] = read_table(file)
        _Worksheet(tables[named[0]])
    return tables


def moodle_upload(given: Mapping[str, LmsTable], sheets: Sequence[Sheet]) -> Upload:
    """The worksheet and the zip of each lab, named after it."""
    tables: dict[str, str] = {}
    zips: dict[str, dict[str, str]] = {}
    remarks: list[Remark] = []
    said: list[str] = []
    for lab, of_lab in lms.of_lab(sheets).items():
        table = given.get(lab) or _made(lab, of_lab)
        if len(table.rows) == 1:
            remarks += [Remark(kind="lms", who=lab, said=_NOBODY)]
            continue
        worksheet = _Worksheet(table)
        found, without = lms.match(of_lab, worksheet.lines)
        remarks += lms.marks_without_line(of_lab, without, table.name)
        with_line = [sheet for sheet in of_lab if sheet.submission.student in found]
        remarks += _on_maximum(lab, with_line, worksheet)
        for sheet in with_line:
            if sheet.points is not None:
                row = found[sheet.submission.student].row
                table.fill(row, worksheet.grade, lms.points_of(sheet))
        said += lms.lines_left(table, len(worksheet.lines) - len(found))
        tables[f"{lab}.csv"] = table.text()
        zips[f"{lab}.feedback.zip"] = {
            _entry(sheet, found[sheet.submission.student]): sheet.submission.student
            for sheet in with_line
            if sheet.submission.cause != "missing"
        }
    return Upload(tables=tables, zips=zips, remarks=tuple(remarks), said=tuple(said))


_NOBODY = (
    "No worksheet was written: no participant's number is known. Give Moodle's own worksheet with"
    " --lms-table."
)


def _made(lab: str, sheets: Sequence[Sheet]) -> LmsTable:
    possible = f"{max(sheet.possible for sheet in sheets):g}"
    heads = [_IDENTIFIER, _NAME, _GRADE, _MAXIMUM, _MODIFIED]
    rows: list[list[object]] = [
        [f"Participant {line.number}", line.name, "", possible, ""]
        for line in lms.known_lines(sheets)
    ]
    return parse_table(f"{lab}.csv", csv_text(heads, rows))


def _on_maximum(lab: str, sheets: Sequence[Sheet], worksheet: _Worksheet) -> list[Remark]:
    """What does not fit under Moodle's maximum."""
    table = worksheet.table
    theirs = lms.number_in(table.cell(worksheet.rows[0], worksheet.maximum)) or 0.0
    ours = max((sheet.possible for sheet in sheets), default=theirs)
    remarks = [] if theirs == ours else [lms.maximum_differs(lab, ours, theirs, table.name)]
    for sheet in sheets:
        if sheet.points is not None and sheet.points > theirs:
            said = (
                f"{lab}: Moodle skips {lms.points_of(sheet)} points without a word, because its"
                f" maximum is {theirs:g}. Raise the maximum before you upload."
            )
            remarks.append(Remark(kind="lms", who=sheet.submission.student, said=said))
    return remarks


def _entry(sheet: Sheet, line: Line) -> str:
    of = sheet.submission
    name = lms.in_file_name(of.name or of.student)
    return f"{name}_{line.number}_assignfeedback_file_/{of.lab}.html"
