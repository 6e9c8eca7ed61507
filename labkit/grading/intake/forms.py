"""The form of an answer: its code without what a copier changes, to be compared and shown.

Comments, docstrings and layout are gone, and so are statements of the same cells that no answer
needs, such as a line that prints. The digests leave out such lines in functions too. A second one
has the names that the answer makes up replaced by their order. Nothing is run, and nothing here
raises because of the code.
"""

import ast
import contextlib
import functools
import hashlib
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

LONGEST = 10_000
"""Characters of an answer that gets a form; labkit's own answers have at most some 3,000."""

_MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
_BLOCKS = ast.stmt | ast.excepthandler | ast.match_case


@dataclass(frozen=True, kw_only=True)
class Form:
    """One answer: as Python writes it, a digest of it, and one that its own names do not change.

    ``written`` counts the nodes of its syntax tree that the learner notebook does not give.
    """

    text: str
    exact: str
    renamed: str
    written: int


def form_of(source: str, names: Collection[str], given: frozenset[str]) -> Form | None:
    """The form of what defines ``names`` in a text, and of what this uses of the same text.

    ``given`` are the texts of a learner notebook's code cells. None for a text that is too long,
    is no Python, defines none of the names, or adds nothing to what is given.
    """
    if len(source) > LONGEST:
        return None
    try:
        statements = _needed(_bare(source), names)
        known = _given_pieces(given)
        written = sum(size for piece, size in _pieces(statements) if piece not in known)
        if not written:
            return None
        tree = ast.Module(body=statements, type_ignores=[])
        text, words = ast.unparse(tree), []
        tree = _WithoutIdleLines(tree).visit(tree)
        exact = ast.unparse(tree)
        _spell(_Renamer(tree.body, names).visit(tree), words)
        return Form(text=text, exact=_digest([exact]), renamed=_digest(words), written=written)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bare(source: str) -> ast.Module:
    """A text's syntax tree without docstrings, imports and statements that do nothing."""
    with warnings.catch_warnings(action="ignore"):
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a magic or shell line
            tree = ast.parse(_MAGIC.sub(r"\1pass", source))
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                body[:] = [one for one in body if not _is_idle(one)] or [ast.Pass()]
    return tree


def _is_idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom)


def _needed(tree: ast.Module, names: Iterable[str]) -> list[ast.stmt]:
    """The statements that make these names, and those that make what they read."""
    makers: dict[str, list[int]] = defaultdict(list)
    for place, statement in enumerate(tree.body):
        for name in _made([statement]):
            makers[name].append(place)
    wanted, kept = list(names), set()
    for name in wanted:  # grows by what the statements need that it brings in
        for place in makers.pop(name, ()):
            if place not in kept:
                kept.add(place)
                nodes = ast.walk(tree.body[place])
                wanted += [node.id for node in nodes if isinstance(node, ast.Name)]
    return [tree.body[place] for place in sorted(kept)]


def _made(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that code makes in its own scope; those within functions and classes are others."""
    made, left = set(), list(nodes)
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                made.add(node.name)
                continue
            case ast.Lambda():
                continue
            case ast.Name(ctx=ast.Store()):
                made.add(node.id)
            case (
                ast.ExceptHandler(name=str()) | ast.MatchAs(name=str()) | ast.MatchStar(name=str())
            ):
                made.add(node.name)
        left += ast.iter_child_nodes(node)
    return made


def _pieces(statements: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Each statement without those within it, and the number of its nodes."""
    left = list(statements)
    while left:
        words, inner = [], []
        size = _spell(left.pop(), words, inner)
        left += inner
        yield " ".join(words), size


def _spell(node: ast.AST, words: list[str], inner: list[ast.AST] | None = None) -> int:
    """Append a node and what it holds as words.

    Statements that it holds go to ``inner`` if that is given. Returns the number of nodes spelt.
    """
    words.append(type(node).__name__)
    size = 1
    for field in node._fields:
        value = getattr(node, field, None)
        for one in value if isinstance(value, list) else (value,):
            if not isinstance(one, ast.AST):
                words.append(repr(one))
            elif inner is not None and isinstance(one, _BLOCKS):
                inner.append(one)
            elif not isinstance(one, ast.expr_context):
                size += _spell(one, words, inner)
        words.append(";")
    return size


@functools.lru_cache(maxsize=64)
def _given_pieces(given: frozenset[str]) -> frozenset[str]:
    pieces = set()
    for source in given:
        with contextlib.suppress(SyntaxError):  # a magic
            pieces |= {piece for piece, _ in _pieces(_bare(source).body)}
    return frozenset(pieces)


class _WithoutIdleLines(ast.NodeTransformer):
    """Takes what changes no result out of functions: prints, asserts, constants that none reads."""

    def __init__(self, tree: ast.AST):
        self.inside, self.read = False, set()
        for node in ast.walk(tree):
            match node:
                case ast.Name(ctx=ast.Load() | ast.Del()):
                    self.read.add(node.id)
                case ast.Global() | ast.Nonlocal():
                    self.read.update(node.names)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        before = self.inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.inside = not isinstance(node, ast.ClassDef)
        super().generic_visit(node)
        self.inside = before
        if isinstance(getattr(node, "body", None), list):
            node.body = node.body or [ast.Pass()]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Call(func=ast.Name(id="print")) if self.inside:
                return None
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        return None if self.inside else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                return None if self.inside and name not in self.read else node
        return self.generic_visit(node)


class _Renamer(ast.NodeTransformer):
    """Puts numbers in the place of the names that code makes for itself.

    They count in the order in which a function, or the text outside of functions, has the names.
    """

    def __init__(self, statements: Iterable[ast.stmt], kept: Iterable[str]):
        self.scopes = [dict.fromkeys(_made(statements) - set(kept), "")]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._new(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._new(node.arg)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(name := getattr(node, "name", None), str):
            node.name = self._new(name)
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._new(name) for name in node.names]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return super().generic_visit(node)
        around = [*getattr(node, "decorator_list", ()), *_outside(node)]
        for part in around:
            self.visit(part)
        body = node.body if isinstance(node.body, list) else [node.body]
        arguments = _arguments(node.args)
        own = _made(body) | {one.arg for one in arguments}
        self.scopes.append(dict.fromkeys(own, ""))
        for part in (*arguments, *body):
            self.visit(part)
        self.scopes.pop()
        return node

    def _new(self, name: str) -> str:
        for depth in reversed(range(len(self.scopes))):
            scope = self.scopes[depth]
            if name in scope:
                scope[name] = scope[name] or f"_{depth}_{sum(map(bool, scope.values()))}"
                return scope[name]
        return name


def _arguments(of: ast.arguments) -> list[ast.arg]:
    listed = [*of.posonlyargs, *of.args, of.vararg, *of.kwonlyargs, of.kwarg]
    return [one for one in listed if one]


def _outside(node: ast.AST) -> list[ast.AST]:
    """What of a function's head is computed outside of it: defaults and annotations."""
    of = node.args
    heads = [*of.defaults, *of.kw_defaults, *(one.annotation for one in _arguments(of))]
    return [one for one in (*heads, getattr(node, "returns", None)) if one]


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()
