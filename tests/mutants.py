"""Small faults put into labkit, one at a time, and whether a test notices. Run by hand.

    python -m tests.mutants --seed 0 --count 64              the mutants, nothing is run
    python -m tests.mutants --tree CHECKOUT                  with the tests of that checkout
    python -m tests.mutants --tree CHECKOUT --log FILE --minutes 5    in pieces: run it again
    python -m tests.mutants --tree CHECKOUT --revision COMMIT

A mutant is one change of one line: a comparison turned, + for -, a constant moved by one, a
condition negated or never true, a result that is None, an argument or a call left out. Docstrings,
messages and annotations are left alone. The seed spreads the mutants evenly over the lines of each
package. They are drawn from the labkit of ``--revision`` (without it, the tree's own files) and
applied to that of ``--tree``, where their line is looked for: the same mutants meet the tests of
two checkouts. Where the line is gone, so is the mutant.

A module of the tree is changed in place and put back: take a clean checkout that nobody works in,
with an environment of its own in ``.venv``. pytest runs the module's own docstring and the tests
that CONTRIBUTING.md names for it, those that mention the module first, until one fails. That test
must pass without the mutant; otherwise it says nothing and is left out. A mutant whose tests have
not ended after ``--limit`` seconds counts as "undecided".
"""

import argparse
import ast
import importlib.util
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENGINE = "labs/engine"
PACKAGES = tuple(f"formats devices emulation training measuring {ENGINE} grading interview".split())
KEPT_OUT = ("interview/bank_checks/",)
"""Checks of single questions: as the bank, data."""

OF_ENGINE = (
    "labs/engine",
    "labs/test_labs.py",
    "labs/test_corpus.py",
    "labs/test_forged_reports.py",
)
"""What CONTRIBUTING.md names for the engine; for others the folder of the same name."""

KILLED, SURVIVED, UNDECIDED, GONE = "killed", "survived", "undecided", "gone"


# Which mutants


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change: the lines ``old`` of a file become ``new``.

    ``nth`` says which of the equal lines of the file is meant, ``function`` in which function or
    class it stands, "" at the top of the module.
    """

    package: str
    path: str
    line: int
    function: str
    kind: str
    old: str
    new: str
    nth: int

    def applied(self, text: str, path: str | None = None) -> str | None:
        """The text with the change, in this file or another; None where the lines are not there."""
        starts = [m.start() for m in re.finditer(rf"(?m)^{re.escape(self.old)}$", text)]
        named = self.function.rpartition(".")[2]
        if path not in (None, self.path) and not re.search(
            rf"(?m)^ *(def|class) {re.escape(named)}\b", text
        ):
            return None
        if not starts:
            return None
        start = starts[min(self.nth, len(starts) - 1)]
        return text[:start] + self.new + text[start + len(self.old) :]

    def __str__(self) -> str:
        old, new = (" ".join(side.split()) for side in (self.old, self.new))
        return f"{self.path}:{self.line}  {self.kind}\n      - {old}\n      + {new}"


_PAIRS = (("<", "<="), (">", ">="), ("==", "!="), ("in", "not in"), ("is", "is not"))
TURNED = dict(_PAIRS) | {other: one for one, other in _PAIRS}
SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*"}
_OPERATOR = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.And: "and", ast.Or: "or",
}  # fmt: skip


class _Changes(ast.NodeVisitor):
    """Every change of one module, as (line, kind, function, start, end, text), offsets in bytes."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        lengths = map(len, self.source.splitlines(keepends=True))
        self.begins = [0, *itertools.accumulate(lengths)]
        self.found: list[tuple[int, str, str, int, int, str]] = []
        self.inside: list[str] = []
        self.visit(ast.parse(source))

    def _start(self, node: ast.AST) -> int:
        return self.begins[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.AST) -> int:
        return self.begins[node.end_lineno - 1] + node.end_col_offset

    def _add(self, line: int, kind: str, start: int, end: int, text: str) -> None:
        self.found.append((line, kind, ".".join(self.inside), start, end, text))

    def _replace(self, node: ast.AST, kind: str, text: str) -> None:
        self._add(node.lineno, kind, self._start(node), self._end(node), text)

    def _text(self, node: ast.AST) -> str:
        return self.source[self._start(node) : self._end(node)].decode()

    def _operator(self, left: ast.AST, right: ast.AST, kind: str, op: ast.AST, into: dict) -> None:
        sign = _OPERATOR.get(type(op))
        if sign in into:
            start, end = self._end(left), self._start(right)
            words = (
                sign.encode().replace(b" ", rb"\s+")
                if sign[0].isalpha()
                else re.escape(sign.encode())
            )
            if found := re.search(words, self.source[start:end]):
                place = start + found.start(), start + found.end()
                self._add(left.end_lineno, kind, *place, into[sign])

    def _named(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self.inside.append(node.name)
        if isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.inside.pop()

    visit_ClassDef = visit_FunctionDef = _named

    def _skip(self, node: ast.AST) -> None:
        """Messages, imports."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = _skip

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        test = self._text(node.test)
        if test != "TYPE_CHECKING":
            self._replace(node.test, "condition negated", f"not ({test})")
            self._replace(node.test, "condition never true", f"False and ({test})")
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right, op in zip(sides, sides[1:], node.ops, strict=False):
            self._operator(left, right, "comparison turned", op, TURNED)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        sides = (node.left, node.right)
        if not any(
            isinstance(side, texts)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in sides
        ):
            self._operator(*sides, "operator swapped", node.op, SWAPPED)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._operator(*node.values[:2], "and for or", node.op, {"and": "or", "or": "and"})
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        into = {"+": "-", "-": "+", "*": "/", "/": "*"}
        self._operator(node.target, node.value, "operator swapped", node.op, into)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, "not left out", f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, "constant turned", str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, "constant moved", repr(node.value + 1))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self._text(node.value) != "None":
            self._replace(node.value, "result is None", "None")
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "call left out", "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else self._text(node.func)
        if name.endswith(("Error", "Mistake", "Warning")) or name == "warn":  # their text
            return
        passed = sorted([*node.args, *node.keywords], key=self._start)
        if len(passed) > 1 and name not in ("isinstance", "issubclass", "zip"):
            self._add(
                passed[-1].lineno,
                "argument left out",
                self._end(passed[-2]),
                self._end(passed[-1]),
                "",
            )
        self.generic_visit(node)


def changes(package: str, path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of one module, in the order of its lines."""
    found = _Changes(source)
    whole = found.source
    for line, kind, function, start, end, text in sorted(found.found):
        begin = whole.rfind(b"\n", 0, start) + 1
        stop = whole.find(b"\n", end)
        stop = len(whole) if stop < 0 else stop
        old = whole[begin:stop].decode()
        new = (whole[begin:start] + text.encode() + whole[end:stop]).decode()
        nth = len(re.findall(rf"(?m)^{re.escape(old)}$", whole[:begin].decode()))
        said = {"package": package, "path": path, "line": line, "function": function}
        yield Mutant(**said, kind=kind, old=old, new=new, nth=nth)


def draw(sources: dict[str, str], seed: int, count: int) -> list[Mutant]:
    """``count`` mutants: as many of each package, spread evenly over its lines, one of a line."""
    drawn = []
    for i, package in enumerate(PACKAGES):
        share = count // len(PACKAGES) + (i < count % len(PACKAGES))
        chance = random.Random(f"{seed} {package}")
        lines: dict[tuple[str, int], list[Mutant]] = {}
        for path, source in sorted(sources.items()):
            if path.startswith(f"labkit/{package}/") and not any(k in path for k in KEPT_OUT):
                for mutant in changes(package, path, source):
                    lines.setdefault((path, mutant.line), []).append(mutant)
        places = sorted(lines)
        for k in range(share):
            place = places[int((k + chance.random()) * len(places) / share)]
            kinds = sorted({mutant.kind for mutant in lines[place]})
            order = chance.sample(kinds, len(kinds))
            tried = sorted(lines[place], key=lambda m: order.index(m.kind))
            drawn.append(next(m for m in tried if _parses(m.applied(sources[m.path]))))
    return drawn


def _parses(text: str) -> bool:
    """False where a bracket stands between a piece and its neighbour, so that half of it went."""
    with suppress(SyntaxError):
        ast.parse(text)
        return True
    return False


def sources_of(tree: Path, revision: str | None) -> dict[str, str]:
    """Path and text of labkit's modules: the tree's files, or those of a commit it knows."""
    if revision is None:
        return {
            path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
            for path in (tree / "labkit").rglob("*.py")
        }
    git = ["git", "-C", str(tree)]
    listed = subprocess.check_output([*git, "ls-tree", "-rz", "--name-only", revision, "labkit/"])
    paths = [path for path in listed.decode().split("\0") if path.endswith(".py")]
    return {
        path: subprocess.check_output([*git, "show", f"{revision}:{path}"]).decode()
        for path in paths
        if path.startswith(tuple(f"labkit/{package}/" for package in PACKAGES))
    }


# Where they meet the tests


def tests_of(tree: Path, package: str, path: str, words: frozenset[str]) -> list[str]:
    """The test files for a module: those first that mention it and these words of the change."""
    folders = OF_ENGINE if package == ENGINE else (package,)
    files = []
    for place, folder in enumerate(folders):
        root = tree / "tests" / folder
        for file in [root] if root.is_file() else sorted(root.rglob("test_*.py")):
            files.append((place, file))
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, stem = dotted.rpartition(".")
    mention = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{stem}\b")

    def rank(entry: tuple[int, Path]) -> tuple:
        place, file = entry
        text = file.read_text(encoding="utf-8")
        known = len(words & set(re.findall(r"\w+", text))) / len(words)
        score = known + (file.stem == f"test_{stem}") + bool(mention.search(text))
        return (place, -score, len(text))

    return [file.relative_to(tree).as_posix() for _, file in sorted(files, key=rank)]


def pytest_run(tree: Path, args: list[str], limit: float) -> tuple[str, str]:
    """ "passed", "failed" or "limit", and the first test that failed."""
    python = tree / ".venv" / "bin" / "python"
    fixed = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # A mutant may be as long and as old as the module: no bytecode is written.
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [python, "-m", "pytest", *fixed, "--hypothesis-seed=0", *args],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=max(1, limit),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "limit", ""
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout)
    passed = done.returncode in (0, 5)  # 5: no test, as with a docstring
    return ("passed" if passed else "failed"), failed[1] if failed else ""


class Runner:
    """Applies mutants to the tree; knows which tests pass without one, and which do not."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.fine: set[str] = set()
        self.broken: set[str] = set()

    def judged(self, mutant: Mutant, limit: float) -> dict:
        """What the tests say of a mutant."""
        placed = self._placed(mutant)
        if placed is None:
            return {"verdict": GONE}
        path, old, new = placed
        file = self.tree / path
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
        began = time.monotonic()
        words = frozenset(re.findall(r"\w{4,}", f"{mutant.function} {mutant.old} {path}"))
        files = tests_of(self.tree, mutant.package, path, words)
        likely, rest = files[:2], files[2:]  # collecting a whole folder takes longer than a kill
        runs = [args for args in (likely, rest) if args]
        if ">>> " in old:
            runs.insert(0, ["--doctest-modules", path])
        while True:
            status, test = "passed", ""
            file.write_text(new, encoding="utf-8")
            try:
                for args in runs:
                    leave = [f"--deselect={test}" for test in self.broken]
                    left = limit - (time.monotonic() - began)
                    status, test = pytest_run(self.tree, [*args, *leave], left)
                    if status != "passed":
                        break
            finally:
                file.write_text(old, encoding="utf-8")
            if status == "failed" and not self._passes_without(test):
                self.broken.add(test)
                continue
            verdict = {"passed": SURVIVED, "failed": KILLED, "limit": UNDECIDED}[status]
            seconds = round(time.monotonic() - began, 1)
            return {"verdict": verdict, "by": test, "seconds": seconds}

    def _placed(self, mutant: Mutant) -> tuple[str, str, str] | None:
        paths = sorted(self.tree.glob("labkit/**/*.py"), key=lambda p: p != self.tree / mutant.path)
        for file in paths:
            path = file.relative_to(self.tree).as_posix()
            text = file.read_text(encoding="utf-8")
            new = mutant.applied(text, path)
            if new is not None:
                return path, text, new
        return None

    def _passes_without(self, test: str) -> bool:
        if not test or test in self.broken:
            raise RuntimeError(f"{test or 'pytest'} fails without a mutant, and cannot be left out")
        if test not in self.fine and pytest_run(self.tree, [test], 600)[0] == "passed":
            self.fine.add(test)
        return test in self.fine


# The table


def table(results: list[dict]) -> str:
    """How many of each package were killed."""
    verdicts = (KILLED, SURVIVED, UNDECIDED, GONE)
    counted = Counter((each["package"], each["verdict"]) for each in results)
    rows = [f"{'package':14}" + "".join(f"{verdict:>11}" for verdict in verdicts)]
    for package in PACKAGES:
        rows.append(f"{package:14}" + "".join(f"{counted[package, v]:>11}" for v in verdicts))
    totals = Counter(each["verdict"] for each in results)
    rows.append(f"{'all':14}" + "".join(f"{totals[v]:>11}" for v in verdicts))
    return "\n".join(rows)


def main() -> int:
    """Draw the mutants, run those that the log does not hold yet, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--tree", type=Path, help="the checkout that is changed and tested")
    parser.add_argument("--revision", help="the commit whose labkit the mutants are drawn from")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants, from 1")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a mutant")
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after these")
    parser.add_argument("--log", type=Path, help="JSON lines; mutants in it are not run again")
    asked = parser.parse_args()
    tree = (asked.tree or here).resolve()
    mutants = draw(sources_of(tree, asked.revision), asked.seed, asked.count)
    if asked.tree is None:
        for number, mutant in enumerate(mutants, 1):
            print(f"[{number}] {mutant}")
        return 0
    git = ["git", "-C", str(tree), "status", "--porcelain"]
    if changed := subprocess.check_output(git, text=True):
        raise SystemExit(
            f"{tree} is not clean, and a mutant could not be told from this:\n{changed}"
        )
    log = asked.log or Path(tempfile.mkstemp(prefix="mutants-", suffix=".jsonl")[1])
    log.touch()
    results = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    done = {each["number"] for each in results}
    todo = [
        (number, mutant)
        for number, mutant in enumerate(mutants, 1)
        if number not in done and (not asked.only or number in asked.only)
    ]
    began = time.monotonic()
    runner = Runner(tree)
    for number, mutant in todo:
        if time.monotonic() - began > 60 * asked.minutes:
            print(f"{asked.minutes} minutes are over; the same command goes on")
            break
        said = {"number": number, "package": mutant.package} | runner.judged(mutant, asked.limit)
        results.append(said)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(said | {"mutant": str(mutant)}) + "\n")
        by = f"\n      by {said['by']}" if said.get("by") else ""
        print(f"[{number}] {said['verdict']} {said.get('seconds', '')} s  {mutant}{by}", flush=True)
    for test in sorted(runner.broken):
        print(f"left out, fails without a mutant: {test}")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
