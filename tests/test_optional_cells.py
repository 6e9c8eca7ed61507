"""A cell that uses an optional library goes on without it, and so do the cells below."""

import sys
from pathlib import Path

import jupytext
import pytest
import torch

from labkit.base.home import NOTEBOOKS, import_optional
from labkit.course.lab_source import names_assigned, names_loaded

LIBRARIES = ("torchao", "transformers", "tensorboard")


def code_of(source: Path) -> list[str]:
    cells = jupytext.read(source, fmt="py:percent").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


OPTIONAL = [
    pytest.param(source, place, id=f"{source.stem}-{place}")
    for source in sorted((NOTEBOOKS / "source").glob("*.py"))
    for place, code in enumerate(code_of(source))
    if "except ImportError" in code
]


def without_libraries(code, monkeypatch):
    """What the cell defines where no optional library is installed."""
    for name in [name for name in sys.modules if name.split(".")[0] in LIBRARIES]:
        monkeypatch.delitem(sys.modules, name)
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)
    defined = {"torch": torch, "import_optional": import_optional}  # by the cells above
    exec(compile(code, "cell", "exec"), defined)
    return defined.keys()


def missed(later, names):
    """Names that cells below load before one of them assigns them."""
    found = set()
    for code in later:
        assigned = names_assigned(code)
        found |= (set(names_loaded(code)) - assigned) & names
        names = names - assigned
    return found


@pytest.mark.parametrize("source, place", OPTIONAL)
def test_a_cell_says_how_to_install_its_library_and_no_later_cell_needs_it(
    source, place, monkeypatch, capsys
):
    code, *later = code_of(source)[place:]
    defined = without_libraries(code, monkeypatch)
    said = capsys.readouterr()
    assert "pip install" in said.out and not said.err
    assert missed(later, names_assigned(code) - defined) == set()


def test_a_later_cell_that_needs_the_library_is_seen():
    assert missed(["print(1)", "print(model)"], {"model"}) == {"model"}
    assert missed(["model = 1", "print(model)"], {"model"}) == set()


def test_there_are_such_cells():
    assert len(OPTIONAL) >= 3
