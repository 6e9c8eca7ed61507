"""Which names a cell binds and which it needs, for code that nobody has run and may be hostile.

``labkit.course.lab_source`` asks IPython, whose transformation of magics takes seconds on some
inputs; here a magic or shell line counts as nothing. What cannot be parsed is searched for
definitions, and every word of it counts as read.
"""

import ast
import functools
import re
import symtable
import warnings
from dataclasses import dataclass

LONGEST = 100_000
"""Characters of a cell that is parsed; a longer one is searched for definitions only."""

_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_CELL_MAGIC = re.compile(r"\A\s*%%.*\n?")
_DEFINED = re.compile(
    r"^(?:async\s+def|def|class)\s+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a cell binds at its top, what it reads that it has not bound before, and its magics."""

    bound: frozenset[str]
    needed: frozenset[str]
    magic: str = ""
    is_python: bool = True
    tree: ast.Module | None = None


@functools.lru_cache(maxsize=4096)
def names_of(source: str) -> Names:
    """The names of one cell; never raises."""
    plain = _CELL_MAGIC.sub("", source, count=1)
    magic = _CELL_MAGIC.match(source) or _MAGIC.search(plain)
    said = magic[0].strip()[:80] if magic else ""
    plain = _MAGIC.sub(r"\1pass", plain)
    if len(source) <= LONGEST:
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(plain)
                bound, needed = _bound_and_needed(tree, symtable.symtable(plain, "cell", "exec"))
            return Names(bound=bound, needed=needed, magic=said, tree=tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    found = frozenset(name for pair in _DEFINED.findall(plain) for name in pair if name)
    words = frozenset(re.findall(r"[^\W\d]\w*", plain))
    return Names(bound=found, needed=words, magic=said, is_python=False)


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
