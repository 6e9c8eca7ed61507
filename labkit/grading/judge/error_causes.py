"""What lies behind an error that a student reads: a cell that failed, a module that is not here.

``name 'np' is not defined`` is the end of a story. The cell that makes ``np`` may have raised
something else, which the student has never seen, because on their machine it did not.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence

from labkit.grading.judge.snapshot import CellError
from labkit.grading.records import Work

_UNDEFINED = re.compile(r"name '(\w{1,100})' is not defined")
_NO_MODULE = re.compile(r"No module named '(\w{1,100})'")
_TOO_NEW = re.compile(r"\bSyntaxError: |\bImportError: cannot import name ")
_EVERYTHING = re.compile(r"^[ \t]*from[ \t][^\n]*\bimport[ \t]*\*", re.MULTILINE)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")


def with_causes(message: str, work: Work, errors: Sequence[CellError]) -> str:
    """A message and, where one is known, a sentence on what lies behind it.

    Args:
        message: what a check or a cell said.
        errors: what the cells of ``work`` raised, in order.
    """
    sentences = [message]
    if (found := _UNDEFINED.search(message)) and (error := _maker(found[1], work, errors)):
        sentences.append(f"`{found[1]}` is missing because its cell raised {in_a_line(error)}.")
    if found := _NO_MODULE.search(" ".join(sentences)):
        sentences += _no_module(found[1])
    if _TOO_NEW.search(" ".join(sentences)):
        sentences += _too_new(work.python)
    return " ".join(sentences)


def in_a_line(error: CellError) -> str:
    """An error of a cell in a line."""
    place = f" in your line `{error.line}`" if error.line else ""
    return f"{error.type_name}: {error.message}{place}"


def makers(names: Iterable[str], cells: Sequence[str]) -> list[int]:
    """The cells, parsable or not, that look as if they made one of the names.

    They define, assign or import it; where none does, they import everything of some module.
    """
    words = "|".join(re.escape(name) for name in names)
    made = re.compile(
        rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(?:{words})\b"
        rf"|^[ \t]*(?:{words})[ \t]*(?:[:=,]|$)"
        rf"|^[ \t]*(?:from|import)[ \t][^\n]*\b(?:{words})\b",
        re.MULTILINE,
    )
    flat = [_IN_PARENTHESES.sub(_in_one_line, source) for source in cells]
    found = [number for number, source in enumerate(flat) if made.search(source)]
    return found or [number for number, source in enumerate(flat) if _EVERYTHING.search(source)]


def _in_one_line(found: re.Match) -> str:
    return found[0].replace("\n", " ")


def _maker(name: str, work: Work, errors: Sequence[CellError]) -> CellError | None:
    """The error of the last cell that should have made a name."""
    making = makers([name], work.cells)
    failed = [error for error in errors if error.number in making and not error.stub]
    return failed[-1] if failed else None


def _no_module(name: str) -> list[str]:
    if name in sys.modules or importlib.util.find_spec(name):
        return []
    return [
        f"`{name}` was not handed in and is none of the grader's packages: if it is a file of"
        f" yours, upload {name}.py beside the notebook; if it is a package, write the answer"
        " without it."
    ]


def _too_new(python: str) -> list[str]:
    """Where the notebook was run by a newer Python than this one, a sentence that names both."""
    here = sys.version_info[:2]
    if not python or tuple(int(part) for part in python.split(".")) <= here:
        return []
    return [
        f"The notebook was run with Python {python}, and the grader runs {here[0]}.{here[1]}: if"
        " the line is right there, write it so that the older one reads it too."
    ]
