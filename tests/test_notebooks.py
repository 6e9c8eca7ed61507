"""What holds for every lab, whatever it teaches; each guard is shown to fail on a bad lab."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbformat import v4
from tiny_lab import TINY

from labkit.base.home import NOTEBOOKS
from labkit.course.build import build
from labkit.course.lab_source import names_assigned, names_loaded, tree
from tests.unsolved import problems_unsolved

ROOT = NOTEBOOKS.parent
SOURCES = sorted((NOTEBOOKS / "source").glob("*.py"))
EXEMPT = ("00_", "16_")  # a start and an exam: neither takes a lab's form
FORMED = [path for path in SOURCES if not path.name.startswith(EXEMPT)]
ALLOWED = {"labkit", "torch", "numpy", "pandas", "matplotlib"} | {
    "collections", "contextlib", "copy", "dataclasses", "decimal", "fractions", "functools",
    "inspect", "itertools", "math", "operator", "random", "statistics", "string", "struct",
    "textwrap", "time", "types", "typing", "warnings",
}  # fmt: skip
FILES = {"hashlib", "io", "os", "pathlib", "tempfile"}
WRITES_FILES = {"15_production"}  # its subject are checkpoints: files in a temporary folder
WRITING = {
    "mkdir", "rename", "save", "savefig", "savetxt", "savez", "system", "to_csv", "to_json",
    "to_parquet", "to_pickle", "tofile", "unlink", "write", "write_bytes", "write_text",
}  # fmt: skip

each_lab = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def cells_of(text: str) -> list[Any]:
    return jupytext.reads(text, fmt="py:percent").cells


@functools.cache
def cells_in(source: Path) -> list[Any]:
    return cells_of(source.read_text(encoding="utf-8"))


@functools.cache
def learner_of(source: Path) -> Any:
    return nbformat.read(NOTEBOOKS / f"{source.stem}.ipynb", as_version=4)


@functools.cache
def solution_of(source: Path) -> Any:
    return nbformat.read(NOTEBOOKS / "solutions" / f"{source.stem}.ipynb", as_version=4)


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_labs():
    assert SOURCES, "notebooks/source holds no lab"


def test_notebooks_are_current():
    assert build(check=True) == []


# --- No cell stands on the learner's answer -------------------------------------------------------


class _WithoutYours(ast.NodeTransformer):
    """Takes the first argument out of every ``yours(...)``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "yours" and node.args:
            node.args[0] = ast.Constant(None)
        return node


def leaks(cells: list[Any]) -> list[str]:
    """Cells that load what an exercise assigns, other than its check and ``yours(...)``."""
    owner: dict[str, str] = {}
    said = []
    for cell in cells:
        if cell.cell_type != "code":
            continue
        slug = cell.metadata.get("exercise") or cell.metadata.get("check")
        loaded = names_loaded(ast.unparse(_WithoutYours().visit(tree(cell.source))))
        assigned = names_assigned(cell.source)
        for name in loaded:
            if name in owner and owner[name] != slug and name not in assigned:
                said.append(
                    f"`{name}` is the learner's (exercise {owner[name]}), but a later cell loads "
                    f"it: write yours({name}, ...)\n{cell.source}"
                )
        if "exercise" in cell.metadata:
            owner.update(dict.fromkeys(assigned, slug))
        else:
            for name in assigned:
                owner.pop(name, None)
    return said


@each_lab
def test_no_cell_stands_on_the_learners_answer(source):
    assert leaks(cells_in(source)) == []


@pytest.mark.parametrize(
    ("cell", "leaky"),
    [
        ("ulp(1.0)", True),
        ("def show():\n    return ulp(1.0)", True),
        ("yours(math.pi, ulp)", True),
        ("[gap for _ in range(3)]", True),
        ("yours(ulp, math.ulp)(1.0)", False),
        ("mine = yours(ulp, math.ulp)\nmine(1.0)", False),
        ("ulp = yours(ulp, math.ulp)\nulp(1.0)", False),
        ("[ulp for ulp in range(3)]", False),
        ("math.ulp(1.0)", False),
    ],
)
def test_a_leak_is_seen(cell, leaky):
    assert bool(leaks(cells_of(TINY.replace("print(math.pi)", cell)))) == leaky


# --- Unsolved, everything runs --------------------------------------------------------------------


def error(name: str, value: str) -> Any:
    return v4.new_output("error", ename=name, evalue=value, traceback=[])


@pytest.mark.parametrize(
    ("outputs", "check", "fine"),
    [
        ([error("CheckFailed", "ulp: not attempted. Write it.")], True, True),
        ([error("NameError", "name 'ulp' is not defined")], True, False),
        ([error("CheckFailed", "ulp: failed. Off by 1 ulp.")], True, False),
        ([], True, False),
        ([], False, True),
        ([error("NotImplementedError", "your code here")], False, False),
        ([v4.new_output("stream", name="stderr", text="a warning")], False, False),
    ],
)
def test_what_an_unsolved_run_must_not_show(outputs, check, fine):
    cell = v4.new_code_cell("cell", metadata={"nbgrader": {"grade": True}} if check else {})
    assert (problems_unsolved(cell, outputs) == []) == fine


@pytest.mark.parametrize(
    ("code", "fine"),
    [("class CheckFailed(Exception): ...\nraise CheckFailed('ulp: not attempted.')", True),
     ("ulp", False)],
)  # fmt: skip
def test_nbval_accepts_no_other_end_of_a_check(tmp_path, code, fine):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    metadata = {"nbgrader": {"grade": True}, "tags": ["raises-exception"]}
    cell = v4.new_code_cell(code, metadata=metadata)
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "02_tiny.ipynb"
    nbformat.write(v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel}), path)
    command = [sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "notebooks"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == fine, done.stdout
    assert fine or "an open check shows \"NameError: name 'ulp' is not defined\"" in done.stdout
    assert "notebooks/02_tiny.ipynb" in done.stdout.partition("learner notebooks, unsolved")[2]


# --- What is stored -------------------------------------------------------------------------------


@each_lab
def test_learner_notebook_stores_no_results(source):
    notebook = learner_of(source)
    assert all(not c.outputs and c.execution_count is None for c in code_of(notebook))
    assert "widgets" not in notebook.metadata
    assert "SOLUTION" not in (NOTEBOOKS / f"{source.stem}.ipynb").read_text(encoding="utf-8")


@each_lab
def test_solution_notebook_stores_clean_results(source):
    notebook = solution_of(source)
    assert "widgets" not in notebook.metadata
    for cell in code_of(notebook):
        assert cell.execution_count or not cell.source.strip(), f"not executed: {cell.source}"
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", cell.source
            assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})
            assert not re.search(r"<[\w.]+ object at 0x", str(output.get("data", ""))), cell.source


# --- What a notebook may use ----------------------------------------------------------------------


def problems_of_code(code: str, *, files: bool = False) -> list[str]:
    """Imports, private names, shell lines, network and writes that a notebook may not have.

    With ``files`` it may write files, and import what it needs for that.
    """
    allowed = ALLOWED | FILES if files else ALLOWED
    said = []
    for node in ast.walk(tree(code)):
        match node:
            case ast.Import(names=names):
                roots = [alias.name.partition(".")[0] for alias in names]
                said += [f"imports {root}" for root in roots if root not in allowed]
            case ast.ImportFrom(module=module, names=names, level=level):
                root = (module or "").partition(".")[0]
                if level or root not in allowed:
                    said.append(f"imports {module}")
                for alias in names:
                    if alias.name == "*" or alias.name.startswith("_"):
                        said.append(f"imports {alias.name} from {module}")
            case ast.Attribute(attr=attr) if re.match(r"_(?!_.*__$)", attr):
                said.append(f"uses the private name {attr}")
            case ast.Attribute(attr="hub" | "load_state_dict_from_url" as attr):
                said.append(f"uses the network: {attr}")
            case ast.Name(id="get_ipython" | "exec" | "eval" | "__import__" | "sys" as name):
                said.append(f"uses {name} (a shell line or a magic becomes get_ipython)")
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in WRITING and not files:
                said.append(f"writes: {attr}(...)")
            case ast.Call(func=ast.Name(id="open")) if not files:
                said.append("opens a file: labkit loads the course's data")
    return said


@each_lab
def test_notebook_uses_public_names_and_only_what_is_allowed(source):
    for cell in code_of(solution_of(source)):
        said = problems_of_code(cell.source, files=source.stem in WRITES_FILES)
        assert said == [], cell.source


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import torch, requests",
        "import sys; sys.path.append('..')",
        "from labkit.formats import *",
        "from labkit.formats.tensors import _round",
        "import labkit.formats as f; f._round",
        "from .formats import E4M3",
        "!pip install torch",
        "%pip install torch",
        "%%bash\nls",
        "import torch; torch.hub.load('a', 'b')",
        "import torch; torch.save(1, 'x')",
        "open('x')",
        "import urllib.request",
        "exec('1')",
    ],
)
def test_forbidden_code_is_seen(code):
    assert problems_of_code(code)


def test_a_lab_about_files_may_write_them_and_nothing_else():
    code = "import os\nfrom pathlib import Path\ntorch.save(1, 'x')\nopen('x').write('')"
    assert len(problems_of_code(code)) == 5
    assert problems_of_code(code, files=True) == []
    assert problems_of_code("import os, requests\nos._exit(0)", files=True) == [
        "imports requests",
        "uses the private name _exit",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import math, torch\nfrom labkit.formats import E4M3, quantize",
        "import matplotlib.pyplot as plt, numpy as np, pandas as pd",
        "class A:\n    def __init__(self):\n        super().__init__()",
    ],
)
def test_allowed_code_is_allowed(code):
    assert problems_of_code(code) == []


def broken_links(markdown: str, notebooks: Path) -> list[str]:
    """Relative links that do not hold both in notebooks/ and in a learner's copy of it."""
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", markdown)
    said = []
    for link in (a or b for a, b in links):
        target = link.partition("#")[0]
        if re.match(r"[a-z]+:", link) or not target or target.startswith("data:"):
            continue
        copied = re.fullmatch(r"[^/]+\.ipynb|images/.+", target)
        if not copied or not (notebooks / target).is_file():
            said.append(link)
    return said


@each_lab
def test_links_hold_in_a_learners_copy(source):
    for cell in learner_of(source).cells:
        if cell.cell_type == "markdown":
            assert broken_links(cell.source, NOTEBOOKS) == [], cell.source


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("03_next.ipynb", "images/a.png", "other.png"):
        (tmp_path / name).touch()
    good = "[n](03_next.ipynb#end) ![a](images/a.png) [w](https://x.org/a) [h](#top)"
    assert broken_links(good, tmp_path) == []
    bad = '[n](04_gone.ipynb) ![o](other.png) <img src="../images/a.png">'
    assert broken_links(bad, tmp_path) == ["04_gone.ipynb", "other.png", "../images/a.png"]


# --- A lab begins with a promise and ends aloud ---------------------------------------------------


def problems_of_form(text: str) -> list[str]:
    """What a lab lacks of its first cell, a promise under the title, and of its last, *Say it*."""
    cells, said = cells_of(text), []
    if not re.match(r"# \d+\. .+\n\n[^*#\n].*\n\n\*.+ · needs: ", cells[0].source):
        said.append("the first cell: title, a promise, then `*hardware · needs: ...*`")
    if not any(re.search(r"^#+ .*\bSay it\b", cell.source, re.MULTILINE) for cell in cells[-10:]):
        said.append("no `Say it` among the last 10 cells")
    return said


def problems_of_minutes(text: str) -> list[str]:
    """Exercises without a note on their minutes, or whose note and points tell two stories."""
    said, note = [], None
    options = [cell.metadata for cell in cells_of(text)]
    points = {each["check"]: each["points"] for each in options if "check" in each}
    for cell in cells_of(text):
        if cell.cell_type == "markdown":
            note = re.search(r"(?m)^\*\d+ minutes?(, optional)?[,.]", cell.source) or note
        elif slug := cell.metadata.get("exercise"):
            if note is None:
                said.append(f"{slug}: no note such as `*8 minutes, about 3 lines.*`")
            elif bool(note[1]) == bool(points[slug]):
                said.append(f"{slug}: {points[slug]} points, and the note says {note[0]}")
            note = None
    return said


@each_lab
def test_every_exercise_tells_its_minutes_and_whether_it_is_optional(source):
    assert problems_of_minutes(source.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("note", "points", "fine"),
    [
        ("*8 minutes, about 3 lines.*", 2, True),
        ("*8 minutes, optional.*", 0, True),
        ("*8 minutes, optional.*", 2, False),
        ("*8 minutes.*", 0, False),
        ("*About 3 lines.*", 2, False),
    ],
)
def test_an_exercise_that_does_not_tell_its_minutes_is_seen(note, points, fine):
    text = f'# %% [markdown]\n# {note} Write it.\n\n# %% exercise="gap"\ngap = ...\n\n'
    text += f'# %% check="gap" points={points}\ncheck_gap(gap)\n'
    assert (problems_of_minutes(text) == []) == fine


@each_lab
def test_a_learner_reads_optional_and_what_it_means(source):
    notebook = learner_of(source)
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    assert not re.search(r"\bstretch\b", text, re.IGNORECASE)
    if re.search(r"\boptional\b", text, re.IGNORECASE):
        assert "*optional* carries no points" in notebook.cells[0].source


@pytest.mark.parametrize("source", FORMED, ids=lambda path: path.stem)
def test_lab_begins_with_a_promise_and_ends_aloud(source):
    assert problems_of_form(source.read_text(encoding="utf-8")) == []


def test_a_lab_of_no_form_is_seen():
    (said,) = problems_of_form(TINY)
    assert "no `Say it`" in said
    promise = "# You write one function and one number.\n"
    assert promise in TINY
    said = problems_of_form(TINY.replace(promise, "") + "\n# %% [markdown]\n# ## Say it\n")
    assert len(said) == 1 and "the first cell: title, a promise" in said[0]
