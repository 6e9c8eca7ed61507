"""Old copies of the labs: what they import is there, or they are told to run `labkit start`.

``tests/old_copies`` holds the learner notebooks of the first courses, as learners got them.
"""

import ast
import importlib
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

import labkit
from labkit.old_copies import GONE, TAKEN

COPIES = sorted(Path(__file__).parents[1].glob("old_copies/*.ipynb"))
TOLD = GONE.partition("{}")[2]


def code_of(copy: Path) -> list[ast.stmt]:
    """The statements of a notebook."""
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [statement for source in sources for statement in ast.parse(source).body]


def imports_of(statements: list[ast.stmt]) -> list[ast.ImportFrom]:
    """What is imported from labkit, a name a statement."""
    found = [node for one in statements for node in ast.walk(one)]
    assert not [
        name.name
        for node in found
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name.startswith("labkit")
    ]
    return [
        ast.ImportFrom(node.module, [name], 0, lineno=1, col_offset=0)
        for node in found
        if isinstance(node, ast.ImportFrom) and node.module.startswith("labkit")
        for name in node.names
    ]


def what_is_said(statement: ast.stmt, names: dict) -> str:
    """The words in which a statement is refused; "" where it works."""
    module = ast.fix_missing_locations(ast.Module([statement], []))
    try:
        exec(compile(module, "<cell>", "exec"), names)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.stem)
def test_what_an_old_copy_takes_from_labkit_is_there_or_says_what_to_run(copy):
    statements, names = code_of(copy), {}
    asked = [
        ast.Expr(node)
        for one in statements
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    said = {}
    for statement in imports_of(statements):
        (name,) = statement.names
        assert name.name in TAKEN[statement.module], "old_copies.txt lacks it"
        said[ast.unparse(statement)] = what_is_said(statement, names)
    for statement in asked:
        module = names.get(statement.value.value.id)
        if isinstance(module, ModuleType) and module.__name__.startswith("labkit."):
            assert statement.value.attr in TAKEN[module.__name__], "old_copies.txt lacks it"
            said[ast.unparse(statement)] = what_is_said(statement, names)
    assert len(said) > 5
    assert not {code: words for code, words in said.items() if words and TOLD not in words}


def test_there_is_an_old_copy_of_each_lab():
    assert len(COPIES) == 18


# The mechanism, on a package that has lost a module, and a module that has lost a name


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    """The package ``labkit.toy``; an old copy takes more from it than there is."""
    files = {
        "__init__.py": "",
        "runs.py": "kept = 1\n",
        "whole.py": "kept = 1\n",
        "checks/__init__.py": "kept = 1\n",
        "checks/extra.py": "kept = 1\n",
    }
    for name, text in files.items():
        file = tmp_path / "toy" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "toy" / "left" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(labkit, "__path__", [*labkit.__path__, str(tmp_path)])
    for module, names in {
        "labkit": {*TAKEN["labkit"], "toy"},
        "labkit.toy": {"runs", "whole", "checks", "deleted", "left"},
        "labkit.toy.runs": {"kept", "lost"},
        "labkit.toy.whole": {"kept"},
        "labkit.toy.checks": {"kept", "extra", "lost"},
    }.items():
        monkeypatch.setitem(TAKEN, module, names)
    yield
    for name in [name for name in sys.modules if name.startswith("labkit.toy")]:
        del sys.modules[name]
    vars(labkit).pop("toy", None)


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        ("import labkit.toy.deleted", "labkit.toy.deleted"),
        ("from labkit.toy import deleted", "labkit.toy.deleted"),
        ("from labkit.toy.deleted import anything", "labkit.toy.deleted"),
        ("from labkit.toy import runs, left", "labkit.toy.left"),
        ("from labkit.toy.runs import kept, lost", "labkit.toy.runs.lost"),
        ("from labkit.toy import runs; runs.lost", "labkit.toy.runs.lost"),
        ("from labkit.toy.checks import lost", "labkit.toy.checks.lost"),
        ("from labkit.toy import checks; checks.lost", "labkit.toy.checks.lost"),
        ("from labkit.checks import claim", "labkit.checks"),
        ("from labkit.labs.engine import reveal", "labkit.labs.engine.reveal"),
    ],
)
def test_a_name_that_is_gone_says_what_to_run(code, gone):
    with pytest.raises((ImportError, AttributeError)) as raised:
        exec(code, {})
    assert str(raised.value) == GONE.format(gone)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from labkit.toy.runs import losst", "cannot import name 'losst' from 'labkit.toy.runs'"),
        ("from labkit.toy import losst", "cannot import name 'losst' from 'labkit.toy'"),
        ("import labkit.toy.losst", "No module named 'labkit.toy.losst'"),
        ("import labkit.toy.runs.losst", "No module named 'labkit.toy.runs.losst'"),
        ("import labkit.toy.whole.kept", "No module named 'labkit.toy.whole.kept'"),
        ("import labkit.toy.runs as r; r.losst", "module 'labkit.toy.runs' has no attribute 'los"),
        ("import labkit.toy as t; t.extra", "module 'labkit.toy' has no attribute 'extra'"),
        ("import labkit.toy.checks as c; c.extra", "module 'labkit.toy.checks' has no attribute"),
        ("from labkit.formats import E4M4", "cannot import name 'E4M4' from 'labkit.formats'"),
    ],
)
def test_any_other_missing_name_is_refused_in_python_s_words(code, said):
    with pytest.raises((ImportError, AttributeError)) as raised:
        exec(code, {})
    assert str(raised.value).startswith(said)


def test_what_is_there_works_and_a_whole_module_is_as_python_loads_it():
    names = {}
    exec("from labkit.toy.runs import kept\nfrom labkit.toy.checks.extra import kept", names)
    exec("from labkit.toy import checks, whole\nkept = checks.kept + checks.extra.kept", names)
    assert names["kept"] == 2
    assert {"__path__", "__getattr__"}.isdisjoint(vars(names["whole"]))


def test_asking_whether_a_name_is_there_raises_nothing():
    runs = importlib.import_module("labkit.toy.runs")
    assert not hasattr(runs, "lost") and getattr(runs, "lost", 5) == 5
    thing = type("Thing", (), {"__module__": None})()
    assert pickle.whichmodule(thing, "lost") == "__main__", "it asks every module for the name"
    assert importlib.reload(runs) is runs and not hasattr(runs, "lost")
