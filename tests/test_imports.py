"""Who may import whom, and that importing labkit does nothing else."""

import ast
import graphlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

LABKIT = Path(__file__).resolve().parent.parent / "labkit"


@dataclass(frozen=True)
class May:
    """What one module of labkit may import: others of labkit, and other people's packages."""

    labkit: str = ""
    others: str = ""


# The table of DESIGN.md. Modules that do not exist yet hold their places.
NUMERICS = (
    "rounding formats blocks histograms accumulators matmul autocast_lists flash_attention "
    "tensor_core emulation call_order dtype_map models scaling loss_scaler hardware data precision "
    "training"
)
TABLE = {
    "paths": May(),
    "float_formats": May(),
    "exact": May("float_formats"),
    "expressions": May("exact float_formats"),
    "rounding": May(others="torch"),
    "formats": May("float_formats rounding", "torch"),
    "blocks": May("formats rounding", "torch"),
    "histograms": May("formats", "torch"),
    "accumulators": May("formats", "torch"),
    "matmul": May("accumulators formats", "torch"),
    "autocast_lists": May("", "torch"),
    "flash_attention": May("", "torch"),
    "tensor_core": May("accumulators flash_attention", "torch"),
    "emulation": May("accumulators autocast_lists formats tensor_core", "torch"),
    "call_order": May("", "torch"),
    "dtype_map": May("emulation", "torch"),
    "models": May("formats", "torch"),
    "scaling": May(),
    "loss_scaler": May("scaling", "torch"),
    "progress": May("paths", "platformdirs"),
    "misconceptions": May("paths"),
    "questions": May("paths exact expressions misconceptions", "pydantic"),
    # An answer of kind code imports its check when it is judged.
    "answers": May("expressions questions checks"),
    "drills": May("questions misconceptions", "fsrs"),
    "mock": May("questions answers drills"),
    "interview": May("questions answers drills mock progress"),
    "sittings": May("questions answers drills mock interview progress"),
    "plans": May("questions drills"),
    "preparing": May("questions drills interview plans plots wording", "pandas"),
    "wording": May(),
    "terminal": May("questions answers drills mock interview sittings plans wording"),
    "anki": May("questions answers terminal", "genanki markdown_it mdit_py_plugins"),
    "hardware": May("paths", "torch tqdm"),
    "downloads": May("", "tqdm"),
    "data": May("paths downloads", "torch numpy"),
    "precision": May("accumulators emulation hardware", "torch"),
    "training": May("precision loss_scaler hardware", "torch tqdm pynvml"),
    "recordings": May("data hardware models precision training", "torch"),
    "suspects": May("data loss_scaler models scaling training", "torch"),
    "broken_runs": May("data emulation formats loss_scaler models scaling", "torch"),
    "causes": May("broken_runs"),
    "instruments": May("broken_runs causes formats histograms", "torch"),
    "nan_detective": May("broken_runs causes instruments"),
    "plots": May("formats histograms", "matplotlib numpy"),
    "widgets": May(
        "call_order dtype_map formats hardware histograms progress misconceptions "
        "questions answers drills interview mock sittings terminal wording causes instruments "
        "nan_detective",
        "anywidget traitlets ipywidgets IPython torch markdown_it mdit_py_plugins latex2mathml "
        "pygments",
    ),
    "lab_source": May("", "IPython jupytext nbformat nbgrader"),
    "my_labs": May("paths lab_source"),
    "bundle": May(),
    "build": May("paths lab_source bundle", "nbformat nbclient"),
    "doctor": May("paths progress hardware", "torch"),
    "checks": May(
        f"{NUMERICS} suspects paths progress misconceptions questions plots widgets my_labs",
        "torch numpy IPython",
    ),
    "grading": May(
        "paths progress misconceptions lab_source build checks",
        "nbformat nbclient nbgrader traitlets sqlalchemy pygments tqdm distributed cloudpickle "
        "IPython",
    ),
    "__init__": May(),
    "__main__": May(
        "build my_labs doctor progress widgets questions drills interview sittings terminal anki "
        "grading hardware recordings",
        "torch",
    ),
}
LAZY = {("answers", "checks")}  # inside functions only


def module_of(path: Path) -> str:
    """The row of the table: a package's files share one."""
    return path.relative_to(LABKIT).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> list[tuple[str, int, bool]]:
    """Imported modules by full name, their lines, and whether they stand inside a function.

    What stands under ``if TYPE_CHECKING:`` is never imported.
    """
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(n) for function in functions for n in ast.walk(function)}
    hints = [n for n in ast.walk(tree) if isinstance(n, ast.If) and _is_type_checking(n.test)]
    unread = {id(n) for hint in hints for statement in hint.body for n in ast.walk(statement)}
    found = []
    for node in (n for n in ast.walk(tree) if id(n) not in unread):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = ["." * node.level + (node.module or "")]
        elif isinstance(node, ast.ImportFrom) and node.module == "labkit":
            names = [f"labkit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        found += [(name, node.lineno, id(node) in lazy) for name in names]
    return found


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def violations(module: str, source: str) -> list[str]:
    """What the source imports against the table, a sentence each."""
    may, said = TABLE[module], []
    for name, line, lazy in imports(ast.parse(source)):
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if not package:
            said.append(f"line {line}: write the full path instead of {name!r}")
        elif package == "labkit" and target != module:
            if target not in may.labkit.split() and target != "paths":
                said.append(f"line {line}: labkit.{module} may not import labkit.{target}")
            elif (module, target) in LAZY and not lazy:
                said.append(
                    f"line {line}: import labkit.{target} inside the function that needs it"
                )
        elif package not in {"labkit", *sys.stdlib_module_names, *may.others.split()}:
            said.append(f"line {line}: labkit.{module} may not import {package}")
    return said


FILES = sorted(path for path in LABKIT.rglob("*.py") if "_shipped" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LABKIT)))
def test_module_imports_what_the_table_allows(path):
    module = module_of(path)
    assert module in TABLE, f"labkit.{module} is new: give it a row in TABLE, as in DESIGN.md"
    assert violations(module, path.read_text(encoding="utf-8")) == []


def test_there_are_no_cycles():
    graph: dict[str, set[str]] = {}
    for path in FILES:
        module = module_of(path)
        for name, _, _ in imports(ast.parse(path.read_text(encoding="utf-8"))):
            target = name.removeprefix("labkit.").partition(".")[0]
            if name.startswith("labkit.") and target != module and (module, target) not in LAZY:
                graph.setdefault(module, set()).add(target)
    assert graph, "labkit's modules import each other"
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_nothing_imports_checks_but_grading_and_lazy_answers():
    rows = {module for module, may in TABLE.items() if "checks" in may.labkit.split()}
    assert rows == {"grading", "answers"}


def test_grading_and_build_import_no_numerics():
    for module in ("grading", "build"):
        assert not set(NUMERICS.split()) & set(TABLE[module].labkit.split())
        assert "torch" not in TABLE[module].others


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("formats", "import numpy as np", "labkit.formats may not import numpy"),
        ("formats", "from labkit import plots", "labkit.formats may not import labkit.plots"),
        (
            "progress",
            "def f():\n    import torch.nn",
            "line 2: labkit.progress may not import torch",
        ),
        ("plots", "from labkit.checks.codec import encode", "may not import labkit.checks"),
        ("build", "from .formats import E4M3", "write the full path instead of '.formats'"),
        ("answers", "from labkit import checks", "inside the function that needs it"),
    ],
)
def test_the_guard_can_fail(module, source, expected):
    (said,) = violations(module, source)
    assert expected in said


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("formats", "import math\nfrom torch import Tensor\nfrom labkit.paths import DATA"),
        (
            "rounding",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from labkit.formats import F",
        ),
        ("answers", "def show():\n    from labkit.checks import check"),
        ("checks", "from labkit.checks.codec import encode\nfrom labkit import formats, progress"),
    ],
)
def test_the_guard_allows_the_table(module, source):
    assert violations(module, source) == []


def python(code: str, cwd: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module",
    ["labkit"] + [f"labkit.{m}" for m in ("__main__", "paths", "progress", "my_labs", "build")],
)
def test_import_is_light(module, tmp_path):
    code = (
        f"import {module}, sys;"
        "print(sorted({'torch', 'matplotlib', 'numpy', 'pandas', 'nbgrader', 'jupytext',"
        "'nbclient', 'nbformat', 'IPython', 'ipywidgets'} & set(sys.modules)))"
    )
    assert python(code, tmp_path) == "[]\n"


EFFECTS = """
import json, os, sys
import anywidget, IPython, ipywidgets, matplotlib.figure, nbgrader.preprocessors, numpy, torch
def state():
    return [dict(os.environ), torch.initial_seed(), torch.get_default_dtype(),
            torch.get_num_threads(), os.getcwd(), list(sys.path)]
before = state()
seen = []
def watch(event, args):
    if event == "open" and (set(str(args[1] or "")) & set("wax+")
                            or (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        seen.append(f"opens {args[0]} to write")
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.putenv", "sqlite3.connect",
                   "socket.connect", "subprocess.Popen"):
        seen.append(f"{event} {args}")
sys.addaudithook(watch)
for module in sys.argv[1:]:
    __import__(module)
print(json.dumps({"seen": seen, "same": before == state()}))
"""


def test_importing_has_no_side_effects(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    (tmp_path / "noisy.py").write_text("open('left.txt', 'w').close()\n")
    modules = [
        ".".join(("labkit", *path.relative_to(LABKIT).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for path in FILES
    ]
    assert "labkit.formats" in modules and "labkit.checks.codec" in modules
    found = json.loads(python(EFFECTS, tmp_path, *modules))
    assert found == {"seen": [], "same": True}
    assert [path.name for path in tmp_path.iterdir()] == ["noisy.py"]
    noisy = json.loads(python(EFFECTS, tmp_path, "noisy"))
    assert noisy["seen"] == ["opens left.txt to write"], "the guard can fail"
