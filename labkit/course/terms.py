"""The course's terms in English and Chinese: a block in each sitting, and a glossary of all.

``data/terms.csv`` beside ``notebooks/`` holds them, a row a term:

- ``id``: a slug, unique;
- ``en``, ``zh``: the term in English, as the labs write it, and in Chinese, as engineers say it;
- ``meaning_en``, ``meaning_zh``: what it means, a line in each language;
- ``lab``, ``sitting``: where a learner meets it first, such as ``02_number_formats`` and ``A``. The
  sitting is empty for a lab without sittings, and both are for a term of the question bank alone.

``read_lab`` puts the block of a sitting under its title. Its words count in no lab's minutes, as
those of hints do not: it is closed, and opened by those who need it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from labkit.course.minutes import by_heading, sitting_of

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CHINESE = re.compile(r"[\u4e00-\u9fff]")

_BLOCK = """\
<details><summary>Terms of this sitting · 本节术语</summary>

| term | 术语 | meaning · 含义 |
|---|---|---|
{rows}

</details>"""

_GLOSSARY = """\
# Glossary · 术语表

`python -m labkit build` writes this page from `data/terms.csv`. Each sitting of a lab opens with
its own part of the table. The last column names the lab and the sitting in which a term comes
first, or the question bank for a term that no lab teaches yet.

| term | 术语 | meaning · 含义 | first in |
|---|---|---|---|
{rows}
"""


class TermError(ValueError):
    """What an author must mend in data/terms.csv, a line for each mistake."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A row of the table; its fields are the columns."""

    id: str
    en: str
    zh: str
    meaning_en: str
    meaning_zh: str
    lab: str
    sitting: str


def terms_beside(notebooks: Path) -> list[Term]:
    """The terms in ``data`` beside the folder ``notebooks``; none where there is no such file.

    Raises TermError with every mistake that the file shows by itself.
    """
    path = notebooks.parent / "data" / "terms.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        columns = [field.name for field in fields(Term)]
        if reader.fieldnames != columns:
            raise TermError(f"{path.name}: the columns must be {','.join(columns)}")
        rows = [(reader.line_num, row) for row in reader]
    seen = Counter(row["id"] for _, row in rows)
    errors = [
        f"{path.name}, line {line}: {mistake}"
        for line, row in rows
        for mistake in _mistakes(row, twice=seen[row["id"]] > 1)
    ]
    if errors:
        raise TermError("\n".join(errors))
    return [Term(**row) for _, row in rows]


def _mistakes(row: Mapping[Any, Any], *, twice: bool) -> Iterable[str]:
    if None in row or None in row.values():
        yield "not as many fields as columns; a text with a comma stands between quotes"
        return
    if not _SLUG.fullmatch(row["id"]):
        yield f"id {row['id']!r}: use a-z and 0-9 joined by `-`, such as `loss-scaling`"
    if twice:
        yield f"id {row['id']!r} stands in another row too"
    for column in ("en", "zh", "meaning_en", "meaning_zh"):
        text = row[column]
        if not text or text != " ".join(text.split()):
            yield f"{column} must be one line without spaces around it, not {text!r}"
        if column.endswith("zh") != bool(CHINESE.search(text)):
            yield f"{column} is {text!r}: en holds no Chinese, and zh does"
        if "|" in text:
            yield f"{column} holds a `|`, which would end the table's cell"
    if row["sitting"] and not row["lab"]:
        yield f"sitting {row['sitting']!r} of no lab"


def add_blocks(cells: list[Any], terms: Iterable[Term]) -> list[str]:
    """Write a lab's terms into its Markdown cells, and return a sentence for each mistake.

    The block of a sitting stands under its heading; that of a lab without sittings ends the first
    cell. ``cells`` are changed in place.
    """
    terms = list(terms)
    places = _headings(cells)
    errors = []
    for term in terms:
        if term.sitting and term.sitting not in places:
            errors.append(f"terms.csv, {term.id}: the lab has no sitting {term.sitting}")
        if not term.sitting and places:
            errors.append(f"terms.csv, {term.id}: say which sitting, one of {', '.join(places)}")
    if errors:
        return errors
    for sitting in {term.sitting for term in terms}:
        block = _block(term for term in terms if term.sitting == sitting)
        cell, heading = places.get(sitting, (cells[0], cells[0].source))
        cell.source = cell.source.replace(heading, f"{heading}\n\n{block}", 1)
    return []


def _headings(cells: list[Any]) -> dict[str, tuple[Any, str]]:
    """By the letter of each sitting, the cell that opens it and the line of its heading."""
    places: dict[str, tuple[Any, str]] = {}
    for cell in cells:
        for heading, text in by_heading(cell.source) if cell.cell_type == "markdown" else ():
            if letter := sitting_of(heading):
                places.setdefault(letter, (cell, text.splitlines()[0]))
    return places


def _block(terms: Iterable[Term]) -> str:
    return _BLOCK.format(rows="\n".join(f"| {_row(term)} |" for term in terms))


def glossary(terms: Iterable[Term]) -> str:
    """The page of all terms, in the order of the alphabet."""
    rows = (
        f"| {_row(term)} | {_first_in(term)} |"
        for term in sorted(terms, key=lambda term: (term.en.casefold(), term.id))
    )
    return _GLOSSARY.format(rows="\n".join(rows))


def _row(term: Term) -> str:
    return f"{term.en} | {term.zh} | {term.meaning_en}<br>{term.meaning_zh}"


def _first_in(term: Term) -> str:
    if not term.lab:
        return "question bank"
    return f"[lab {term.lab[:2]}](../notebooks/{term.lab}.ipynb) {term.sitting}".rstrip()
