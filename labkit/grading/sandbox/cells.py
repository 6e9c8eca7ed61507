"""Run a notebook's cells as Run All does: in order, in one namespace, an exception costs its cell.

Where a cell raises ImportError the grader may lack a package that the student's machine has, so the
statements after it are tried one by one, and what needs no such package takes effect.

What IPython adds to Python is refused or left out: magics and shell escapes do nothing, a cell
under ``%%time`` or ``%%capture`` runs, one under ``%%writefile`` becomes a file in the working
folder, a cell under another ``%%`` is refused. A top-level ``await`` works.
"""

import ast
import importlib
import inspect
import linecache
import os
import re
import shlex
import sys
import types

from labkit.grading.sandbox.standin import Anything

RUN_BELOW = ("%%time", "%%timeit", "%%capture", "%%prun")
"""The magics of a whole cell that leave it Python: the grader runs what stands below them."""

WRITE_BELOW = ("%%writefile", "%%file")
"""The magics of a whole cell that make a file of it."""

_CELL_MAGIC = re.compile(r"\s*(%%.*)\n?")


class RefusedCell(Exception):
    """A cell that the grader does not run."""


def namespace() -> dict:
    """A fresh ``__main__``, with the names that a kernel gives."""
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    main.display = lambda *args, **kwargs: None
    main.get_ipython = lambda: Anything("IPython")
    return vars(main)


def magics_of(source: str) -> tuple[list[str], str]:
    """The ``%%`` lines on top of a cell, and what stands below them.

    Only the last of these lines can be one that does not let the cell run as Python.
    """
    lines, at = [], 0
    while found := _CELL_MAGIC.match(source, at):
        lines.append(found[1].strip())
        at = found.end()
        if lines[-1].split()[0] not in RUN_BELOW:
            break
    return lines, source[at:]


def run_cell(number: int, source: str, names: dict) -> BaseException | None:
    """Run one cell in ``names``; returns what it raised, SystemExit and KeyboardInterrupt too."""
    file = f"<cell {number}>"
    try:
        source = _python(source)
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        _run(source, file, names)
    except ImportError as error:
        _run_the_rest(error, source, file, names)
        return error
    except BaseException as error:  # whatever it is, the next cell runs
        return error
    return None


def _run(source: str | ast.Module, file: str, names: dict) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    result = eval(compile(source, file, "exec", flags=flags, dont_inherit=True), names)
    if inspect.iscoroutine(result):
        import asyncio  # a rerun that grades nothing imports this module too, and no event loop

        asyncio.run(result)


def _run_the_rest(error: ImportError, source: str, file: str, names: dict) -> None:
    """Try each statement after the one that raised; what one of them raises costs that one."""
    try:
        body = [one for statement in ast.parse(source).body for one in _single(statement)]
        futures = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
        line = _line_in(file, error)
        _, *rest = [statement for statement in body if statement.end_lineno >= line]
    except BaseException:  # an error made to raise when it is looked at
        return
    for statement in rest:
        try:
            _run(ast.Module([*futures, statement], []), file, names)
        except BaseException:  # the cell's error is the first one
            continue


def _single(statement: ast.stmt) -> list[ast.stmt]:
    """A statement, or the imports that `import a, b` stands for."""
    if not isinstance(statement, ast.Import):
        return [statement]
    return [ast.copy_location(ast.Import([alias]), statement) for alias in statement.names]


def _line_in(file: str, error: BaseException) -> int:
    """The line of a cell at which an exception left it."""
    trace = error.__traceback__
    while trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace.tb_lineno


def _python(source: str) -> str:
    """The cell as Python: its magics call the ``get_ipython`` of ``namespace``, which does nothing.

    Raises RefusedCell for a cell under a ``%%`` magic that is not Python.
    """
    magics, source = magics_of(source)
    if magics and (name := magics[-1].split()[0]) not in RUN_BELOW:
        if name not in WRITE_BELOW:
            raise RefusedCell(f"the grader does not run a cell under `{magics[-1][:40]}`")
        _write(magics[-1], source)
        return ""
    try:
        ast.parse(source)
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)
    except ValueError as error:  # a null byte
        raise RefusedCell(str(error)) from None
    return source


def _write(magic: str, text: str) -> None:
    """Write a cell into the file that its magic names, as Jupyter does; ``-a`` appends."""
    _, *words = shlex.split(magic)
    names = [word for word in words if word not in ("-a", "--append")]
    if len(names) != 1:
        raise RefusedCell(f"`{magic[:40]}` does not name one file")
    with open(os.path.expanduser(names[0]), "a" if names != words else "w", encoding="utf-8") as to:
        to.write(text if text.endswith("\n") else f"{text}\n")
    importlib.invalidate_caches()  # an import may have looked into this folder before
