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
_IN_PARENTHESES = re.compile(r"\([^()]*\)")


def with_causes(message: str, work: Work, errors: Sequence[CellError]) -> str:
    """A message and, where one is known, a sentence on what lies behind it.

    Args:
        message: what a check or a cell said.
        errors: what the cells of ``work`` raised, in order.
    """
    sentences = [message]
    if (found := _UNDEFINED.search(message)) and (error := _maker(found[1], work, errors)):
        sentences.append(f"`{found[1]}` is missing because its cell raised {described(error)}.")
    if found := _NO_MODULE.search(" ".join(sentences)):
        sentences += _no_module(found[1])
    if _TOO_NEW.search(" ".join(sentences)):
        sentences += _too_new(work.python)
    return " ".join(sentences)


def described(error: CellError) -> str:
    """An error of a cell in a line."""
    place = f" in your line `{error.line}`" if error.line else ""
    return f"{error.type_name}: {error.message}{place}"


def makes(source: str, names: Iterable[str]) -> bool:
    """Whether a cell, parsable or not, looks like the one that defines or assigns a name."""
    words = "|".join(re.escape(name) for name in names)
    start = rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(?:{words})\b"
    return re.search(rf"{start}|^[ \t]*(?:{words})[ \t]*(?:[:=,]|$)", source, re.M) is not None


def _maker(name: str, work: Work, errors: Sequence[CellError]) -> CellError | None:
    """The error of the last cell that should have made a name."""
    for error in reversed(errors):
        if not error.stub and error.number in range(len(work.cells)):
            source = work.cells[error.number]
            if makes(source, [name]) or _imports(source, name):
                return error
    return None


def _imports(source: str, name: str) -> bool:
    """Whether a line of a cell imports a name, or everything."""
    flat = _IN_PARENTHESES.sub(lambda found: found[0].replace("\n", " "), source)
    line = rf"^[ \t]*(?:from[ \t]|import[ \t])[^\n]*(?:\b{re.escape(name)}\b|\bimport[ \t]*\*)"
    return re.search(line, flat, re.M) is not None


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
