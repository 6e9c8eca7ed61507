"""Who may import whom, and that importing labkit does nothing else but install one finder."""

import json
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

LABKIT = Path(__file__).resolve().parent.parent / "labkit"
FILES = sorted(
    path for path in LABKIT.rglob("*.py") if not {"_shipped", "_template"} & {*path.parts}
)
SHARED = ("detective", "engine")
LIGHT = [
    "tests/base",
    "tests/course",
    "tests/formats/test_expressions.py",
    "tests/grading/test_forms.py",
    "tests/interview/test_problems.py",
]
"""Tests that start without torch, and with them the conftests and helpers of their folders."""


def test_imports_go_down_only():
    """The layers of pyproject.toml, lazy imports included."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=LABKIT.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_labs_do_not_import_one_another():
    topics = {path.parent.name for path in LABKIT.glob("labs/*/__init__.py")} - {*SHARED}
    assert "number_formats" in topics
    layers = [grimp.Layer(*topics, independent=True), *SHARED]
    graph = grimp.build_graph("labkit", cache_dir=None)
    found = graph.find_illegal_dependencies_for_layers(layers=layers, containers={"labkit.labs"})
    assert not found, [(chain.importer, chain.imported) for chain in found]


def python(code: str, cwd: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module",
    ["labkit"]
    + [
        f"labkit.{m}"
        for m in ("__main__", "base.home", "base.progress", "course.my_labs", "course.build")
    ],
)
def test_import_is_light(module, tmp_path):
    code = (
        f"import {module}, sys;"
        "print(sorted({'torch', 'matplotlib', 'numpy', 'pandas', 'nbgrader', 'jupytext',"
        "'nbclient', 'nbformat', 'IPython', 'ipywidgets'} & set(sys.modules)))"
    )
    assert python(code, tmp_path) == "[]\n"


COLLECTS = """
import sys
import pytest
args = ["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]]
code = pytest.main(args)
print("\\n", int(code), *sorted({"torch", "numba", "jax", "keras"} & set(sys.modules)))
"""


def test_tests_that_need_no_torch_are_collected_without_it():
    assert python(COLLECTS, LABKIT.parent, *LIGHT).splitlines()[-1].split() == ["0"]
    heavy = python(COLLECTS, LABKIT.parent, "tests/formats/test_matmul.py")
    assert heavy.splitlines()[-1].split() == ["0", "torch"], "the guard can fail"


EFFECTS = """
import json, os, sys
import anywidget, IPython, ipywidgets, matplotlib.figure, nbgrader.preprocessors, numpy, torch
def state():
    return [dict(os.environ), torch.initial_seed(), torch.get_default_dtype(),
            torch.get_num_threads(), os.getcwd(), list(sys.path)]
before, finders = state(), [*sys.meta_path]
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
added = [type(one).__module__ for one in sys.meta_path if one not in finders]
print(json.dumps({"seen": seen, "same": before == state(), "added": added}))
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
    assert "labkit.formats" in modules and "labkit.labs.engine.codec" in modules
    found = json.loads(python(EFFECTS, tmp_path, *modules))
    # The one exception: it tells old copies of the labs what to do.
    assert found == {"seen": [], "same": True, "added": ["labkit.old_copies"]}
    assert [path.name for path in tmp_path.iterdir()] == ["noisy.py"]
    noisy = json.loads(python(EFFECTS, tmp_path, "noisy"))
    assert noisy["seen"] == ["opens left.txt to write"], "the guard can fail"
