"""Run a notebook's cells as Run All does: in order, in one namespace, an exception costs its cell.

What IPython adds to Python is refused or left out: magics and shell escapes do nothing, a cell
under ``%%time`` or ``%%capture`` runs, a cell under another ``%%`` is left out. A top-level
``await`` works.
"""

import ast
import asyncio
import inspect
import linecache
import sys
import types

from labkit.grading.sandbox.standin import Anything

_RUN_THE_CELL = ("%%time", "%%timeit", "%%capture", "%%prun")


class Refused(Exception):
    """A cell that the grader does not run."""


def namespace() -> dict:
    """A fresh ``__main__``, with the names that a kernel gives."""
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    main.display = lambda *args, **kwargs: None
    main.get_ipython = lambda: Anything("IPython")
    return vars(main)


def run_cell(number: int, source: str, names: dict) -> BaseException | None:
    """Run one cell in ``names``; returns what it raised, SystemExit and KeyboardInterrupt too."""
    file = f"<cell {number}>"
    try:
        source = _python(source)
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, file, "exec", flags=flags, dont_inherit=True)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except BaseException as error:  # whatever it is, the next cell runs
        return error
    return None


def _python(source: str) -> str:
    """The cell as Python: its magics call the ``get_ipython`` of ``namespace``, which does nothing.

    Raises Refused for a cell under a ``%%`` magic that is not Python.
    """
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        if not first.startswith(_RUN_THE_CELL):
            raise Refused(f"the grader does not run a cell under `{first[:40]}`")
        source = rest
    try:
        ast.parse(source)
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)
    except ValueError as error:  # a null byte
        raise Refused(str(error)) from None
    return source
