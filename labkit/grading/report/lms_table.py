"""A table of an LMS in which single cells are filled, and every other byte stays as it was.

What an LMS exports may hold columns that labkit knows nothing of, names that a spreadsheet takes
for formulas, a separator of the site's own. The importer wants all of it back as it came.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_MARKS = (",", ";", "\t")
_QUOTED = r'"[^"]*(?:""[^"]*)*"'


class LmsError(Exception):
    """Why a table of the LMS cannot be used, in a sentence with what to do."""


@dataclass(kw_only=True)
class LmsTable:
    """The cells as they stand in the file, quotes included; ``rows[0]`` are the heads.

    ``ends`` are the ends of the lines, ``mark`` parts the cells, ``name`` is for messages.
    """

    name: str
    mark: str
    rows: list[list[str]]
    ends: list[str]

    @property
    def heads(self) -> list[str]:
        """What the columns are called."""
        return [self.cell(0, column) for column in range(len(self.rows[0]))]

    def cell(self, row: int, column: int) -> str:
        """What a cell says; "" where the row is too short to have it."""
        raw = self.rows[row][column] if column < len(self.rows[row]) else ""
        said = raw.removeprefix(_BOM).strip()
        return said[1:-1].replace('""', '"') if said.startswith('"') else said

    def fill(self, row: int, column: int, number: str) -> None:
        """Put a number into a cell; the row grows where it was too short."""
        cells = self.rows[row]
        cells += [""] * (column + 1 - len(cells))
        cells[column] = number

    def text(self) -> str:
        """The whole table."""
        lines = zip(self.rows, self.ends, strict=True)
        return "".join(f"{self.mark.join(cells)}{end}" for cells, end in lines)


def read_table(file: Path) -> LmsTable:
    """The table in a file; raises LmsError."""
    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise LmsError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise LmsError(f"{file} is not in UTF-8. Give the file as the LMS exported it.") from None
    return parse_table(file.name, text)


def parse_table(name: str, text: str) -> LmsTable:
    """The table that a text holds; raises LmsError."""
    head = re.sub(_QUOTED, "", text.partition("\n")[0])
    mark = max(_MARKS, key=head.count)
    a_cell = re.compile(rf"[ {_BOM}]*{_QUOTED}[ ]*|[^\"{mark}\r\n][^{mark}\r\n]*|")
    rows: list[list[str]] = []
    ends, place, cells = [], 0, []
    while place < len(text):
        if found := a_cell.match(text, place):  # always: a cell may be empty
            cells.append(found[0])
            place = found.end()
        if text.startswith(mark, place):
            place += 1
            if place < len(text):
                continue
            cells.append("")
        end = re.compile(r"\r\n|\r|\n|\Z").match(text, place)
        if not end:
            raise LmsError(
                f"{name}, line {len(rows) + 1}: a quote stands within a cell. Give the file as the"
                " LMS exported it."
            )
        rows.append(cells)
        ends.append(end[0])
        place, cells = end.end(), []
    if not rows:
        raise LmsError(f"{name} is empty. Give the file as the LMS exported it.")
    return LmsTable(name=name, mark=mark, rows=rows, ends=ends)
