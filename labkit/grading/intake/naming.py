"""Which names a cell binds and which it needs, for code that nobody has run and may be hostile.

``labkit.course.lab_source`` asks IPython, whose transformation of magics takes seconds on some
inputs; here a magic or shell line counts as nothing. What cannot be parsed is searched for
definitions, and every word of it counts as read. So is what is too long: Python's ``symtable``
takes time by the square of a cell's length. Everything else here takes time by its length.
"""

import ast
import functools
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from labkit.grading.sandbox import cells

LONGEST = 20_000
"""Characters of a cell that is parsed; of a longer one only definitions are searched for."""

MOST_PARSED = 200_000
"""Characters of one notebook that are parsed: ten times what a solved lab has."""

# Each begins at the start of a line and stays in it: no text costs more time than by its length.
_MAGIC = re.compile(r"^([ \t]*)([%!].*)$", re.MULTILINE)
_DEFINED = re.compile(
    r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)
_WORD = re.compile(r"[^\W\d]\w*")
_SAID = 80  # characters of a magic that are kept to be said


@dataclass(frozen=True, kw_only=True)
class CheckCall:
    """A statement that calls what may be checks: their names, and its place as ``ast`` counts it.

    Lines count from 1, columns in bytes of UTF-8.
    """

    called: frozenset[str]
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a cell binds at its top, and what it reads that it has not bound before.

    ``magic`` is the ``%%`` line above it, ``line`` its first magic or shell line of another kind.
    ``calls`` are the statements that call a ``check_...`` and do nothing else; ``only_calls`` says
    that there is nothing beside them.
    """

    bound: frozenset[str]
    needed: frozenset[str]
    magic: str = ""
    line: str = ""
    is_python: bool = True
    calls: tuple[CheckCall, ...] = ()
    only_calls: bool = False


def names_of(source: str) -> Names:
    """The names of one cell; never raises."""
    return _parsed(source) if len(source) <= LONGEST else _searched(source)


def names_of_all(sources: Iterable[str]) -> Iterator[Names]:
    """The names of each cell of a notebook, of which ``MOST_PARSED`` characters are parsed."""
    left = MOST_PARSED
    for source in sources:
        if len(source) <= min(left, LONGEST):
            left -= len(source)
            yield _parsed(source)
        else:
            yield _searched(source)


def without_calls(source: str, calls: Iterable[CheckCall]) -> str:
    """A cell with ``pass`` in the place of these statements."""
    lines = _lines(source)
    for call in sorted(calls, key=lambda call: (call.line, call.column), reverse=True):
        before = lines[call.line - 1].encode()[: call.column].decode()
        after = lines[call.end_line - 1].encode()[call.end_column :].decode()
        lines[call.line - 1 : call.end_line] = [f"{before}pass{after}"]
    return "\n".join(lines)


@functools.lru_cache(maxsize=1024)  # most cells of a class are the lab's own
def _parsed(source: str) -> Names:
    magics, plain = _below_magics(source)
    if magics and magics[-1].split()[0] in cells.WRITE_BELOW:
        return _searched(source)
    # As it is first: in Python a line may begin with the % of a longer expression.
    for code in (plain, _MAGIC.sub(r"\1pass", plain)):
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(code)
                bound, needed = _bound_and_needed(tree, symtable.symtable(code, "cell", "exec"))
        except Exception:  # the code's mistakes, and the parser's own limits of every kind
            continue
        calls = [call for statement in tree.body if (call := _check_call(statement))]
        return Names(
            bound=bound,
            needed=needed,
            magic=_last(magics),
            line="" if code is plain else _magic_line(plain),
            calls=tuple(calls),
            only_calls=len(calls) == sum(not _does_nothing(one) for one in tree.body),
        )
    return _searched(source)


def _searched(source: str) -> Names:
    magics, plain = _below_magics(source)
    if magics and magics[-1].split()[0] in cells.WRITE_BELOW:  # a file, and no code of the notebook
        return Names(bound=frozenset(), needed=frozenset(), magic=_last(magics))
    code = _MAGIC.sub(r"\1pass", plain)
    return Names(
        bound=frozenset(name for pair in _DEFINED.findall(code) for name in pair if name),
        needed=frozenset(_WORD.findall(code)),
        magic=_last(magics),
        line=_magic_line(plain),
        is_python=False,
    )


def _below_magics(source: str) -> tuple[list[str], str]:
    """The ``%%`` lines on top of a cell, and the cell with empty lines in their place."""
    source = "\n".join(_lines(source))
    magics, below = cells.magics_of(source)
    return magics, "\n" * source.count("\n", 0, len(source) - len(below)) + below


def _lines(source: str) -> list[str]:
    """The lines as Python counts them."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _last(magics: list[str]) -> str:
    return magics[-1][:_SAID] if magics else ""


def _magic_line(plain: str) -> str:
    found = _MAGIC.search(plain)
    return found[2].strip()[:_SAID] if found else ""


def _check_call(statement: ast.stmt) -> CheckCall | None:
    """A statement such as ``check_ulp(f)``, ``print(court.check_ulp(f))``; None for another."""
    if not isinstance(statement, ast.Expr | ast.Assert):
        return None
    called = {_called(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    checks = frozenset(name for name in called if name.startswith("check_"))
    if not checks:
        return None
    return CheckCall(
        called=checks,
        line=statement.lineno,
        column=statement.col_offset,
        end_line=statement.end_lineno,
        end_column=statement.end_col_offset,
    )


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def _bound_and_needed(
    tree: ast.Module, top: symtable.SymbolTable
) -> tuple[frozenset[str], frozenset[str]]:
    scopes = [top]
    for scope in scopes:
        scopes.extend(scope.get_children())
    bound, read = set(), set()
    for scope in scopes:
        for symbol in scope.get_symbols():
            is_global = scope is top or symbol.is_global()
            if is_global and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(symbol.get_name())
            if is_global and symbol.is_referenced():
                read.add(symbol.get_name())
    needed: set[str] = set()
    so_far: set[str] = set()
    # By statements: `x = x + 1` needs an x, `x = 1; x + 1` needs none.
    for statement in tree.body:
        nodes = list(ast.walk(statement))
        loaded = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        body = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        # A body runs later, when the whole cell has run.
        needed |= (loaded & read) - (bound if body else so_far)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            needed |= {statement.target.id} - so_far
        so_far |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        so_far |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        if isinstance(statement, ast.Import | ast.ImportFrom):
            so_far |= {(a.asname or a.name).partition(".")[0] for a in statement.names}
    return frozenset(bound), frozenset(needed)
