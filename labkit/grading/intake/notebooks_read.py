"""Read one notebook that somebody handed in: cells, or the reason why there are none.

Nothing here is believed. A notebook may be cut off, in another encoding or language, of an old
format, or made to harm; what can be repaired is, and the repair is said in a sentence. No code of
it is run.
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from labkit.course.cell_ids import cell_id

LARGEST = 32 * 2**20
"""Bytes of a notebook. JSON can grow thirtyfold in memory; labs without outputs take 60 kB."""

MOST_CELLS = 2_000
MOST_CODE = 2 * 2**20  # characters of code in all cells; a solved lab has some 20,000

_ENCODINGS = ("gb18030", "cp1252")  # tried in turn where a file is not UTF-8
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """A file that is no notebook of ours: ``cause`` in a word or two, the message in a sentence."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause

    def __reduce__(self):  # it crosses from the process that reads
        return type(self), (self.cause, str(self))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: its source, its kind ("code", "markdown", "raw"), and what labkit wrote on it.

    ``given``: its id is the one that a lab's cell with this text has, in any version of the lab.
    """

    source: str
    kind: str
    is_check: bool = False
    is_predict: bool = False
    given: bool = False


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """A notebook that could be read; ``lab`` and ``version`` are what it claims of itself.

    ``python`` is the version of Python that ran it last, such as "3.13", or "" where it says none.
    """

    digest: str
    lab: str
    version: str
    language: str
    python: str
    cells: tuple[Cell, ...]
    repairs: tuple[str, ...] = ()


def read_notebook(content: bytes) -> Notebook:
    """The notebook that these bytes hold; raises Unreadable, never anything else.

    ``repairs`` names what was mended: an encoding, an old format, cells without a source, ids that
    stand twice.
    """
    if len(content) > LARGEST:
        raise Unreadable(
            "too large",
            f"The file has {len(content) / 2**20:.0f} MB; the limit is {LARGEST >> 20} MB. Clear"
            " the outputs of all cells, save, and hand it in again.",
        )
    repairs: list[str] = []
    data = _json(_text(content, repairs))
    raw = _raw_cells(data, repairs)
    metadata = _dict(data.get("metadata"))
    ours = _dict(metadata.get("labkit"))
    return Notebook(
        digest=hashlib.sha256(content).hexdigest(),
        lab=_string(ours.get("lab")),
        version=_string(ours.get("version")),
        language=_language(metadata),
        python=_python(metadata),
        cells=_cells(raw, repairs),
        repairs=tuple(repairs),
    )


def _text(content: bytes, repairs: list[str]) -> str:
    if not content.strip(b"\0 \t\r\n"):
        raise Unreadable("empty", "The file is empty. Save the notebook and hand it in again.")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ("utf-16", *_ENCODINGS)
    else:
        encodings = ("utf-8-sig", *_ENCODINGS)
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding != "utf-8-sig":
            repairs.append(f"The file is not in UTF-8; it was read as {encoding}.")
        return text
    raise Unreadable("encoding", "The file is not text in UTF-8. Save the notebook in Jupyter.")


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except RecursionError:
        raise Unreadable("corrupt", "The file is nested too deep to be a notebook.") from None
    except ValueError as error:
        if text.lstrip().startswith("<<<<<<<"):
            why = (
                "The file holds Git's conflict marks. Keep one of the two versions in it, and save."
            )
        elif text.lstrip()[:1] == "<":
            why = "The file is a web page, not a notebook. Download the .ipynb file itself."
        else:
            why = f"The file is not a whole notebook: {error}. Save it in Jupyter once more."
        raise Unreadable("corrupt", why) from None
    if not isinstance(data, dict):
        raise Unreadable("corrupt", "The file is JSON, but not a notebook.")
    return data


def _raw_cells(data: dict[str, Any], repairs: list[str]) -> list[Any]:
    cells = data.get("cells")
    sheets = data.get("worksheets")
    if not isinstance(cells, list) and isinstance(sheets, list):
        # Format 3 keeps cells in worksheets, and calls the source of a code cell its input.
        cells = [
            cell
            for sheet in sheets
            if isinstance(sheet, dict) and isinstance(sheet.get("cells"), list)
            for cell in sheet["cells"]
        ]
        repairs.append("The notebook is of format 3; it was read as format 4.")
    if not isinstance(cells, list):
        raise Unreadable("corrupt", "The file is JSON, but holds no cells.")
    if len(cells) > MOST_CELLS:
        raise Unreadable(
            "too large", f"The notebook has {len(cells)} cells; the limit is {MOST_CELLS}."
        )
    return cells


def _cells(raw: list[Any], repairs: list[str]) -> tuple[Cell, ...]:
    cells, broken = [], 0
    for entry in raw:
        source = _source(entry)
        if source is None:
            broken += 1
            continue
        metadata = _dict(entry.get("metadata"))
        graded, ours = _dict(metadata.get("nbgrader")), _dict(metadata.get("labkit"))
        kind = _string(entry.get("cell_type"))
        cells.append(
            Cell(
                source=source,
                kind=kind,
                is_check=graded.get("grade") is True,
                is_predict=bool(ours.get("predict")),
                given=_is_given(_string(entry.get("id")), kind, source),
            )
        )
    if broken:
        repairs.append(f"{broken} damaged cell(s) without a source were left out.")
    if sum(len(cell.source) for cell in cells if cell.kind == "code") > MOST_CODE:
        raise Unreadable("too large", f"The code is longer than {MOST_CODE:,} characters.")
    ids = Counter(_string(entry.get("id")) for entry in raw if isinstance(entry, dict))
    if twice := sum(1 for id_, count in ids.items() if id_ and count > 1):
        repairs.append(f"{twice} cell id(s) stand on several cells; all of those cells count.")
    return tuple(cells)


def _source(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    source = entry.get("source", entry.get("input"))
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    # Half a surrogate pair cannot be written anywhere.
    return _SURROGATE.sub("?", source) if isinstance(source, str) else None


def _is_given(id_: str, kind: str, source: str) -> bool:
    occurrence = id_.rpartition("-")[2]
    if not re.fullmatch(r"lab-[0-9a-f]{12}-\d{1,4}", id_, re.ASCII):
        return False
    return id_ == cell_id(kind, source, int(occurrence))


def _language(metadata: dict[str, Any]) -> str:
    """The language that the notebook says it is in, in lower case; "" where it says none."""
    kernel, info = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    return (_string(info.get("name")) or _string(kernel.get("language"))).lower()


def _python(metadata: dict[str, Any]) -> str:
    version = _string(_dict(metadata.get("language_info")).get("version"))
    found = re.match(r"3\.\d{1,3}(?!\d)", version, re.ASCII)
    return found[0] if found else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str:
    return _SURROGATE.sub("?", value)[:200] if isinstance(value, str) else ""
