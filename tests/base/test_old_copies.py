"""A copy of a lab from before labkit's folders moved says what to do, and keeps its answers."""

import importlib
import json
import subprocess
import sys

import pytest

from labkit.base.paths import NOTEBOOKS
from labkit.course import my_labs

OLD_SETUP = "from labkit.checks import claim\nfrom labkit.checks.number_formats import check_ulp\n"


@pytest.mark.parametrize(
    "line",
    [
        "from labkit.checks import claim, yours",
        "from labkit.checks.number_formats import check_ulp",
        "from labkit.widgets.drill_card import warm_up",
    ],
)
def test_an_old_import_says_what_to_run(line):
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    assert done.returncode and "`python -m labkit start`" in done.stderr.splitlines()[-1]


def test_an_old_copy_gets_the_new_imports_and_keeps_its_answers(tmp_path):
    name = "02_number_formats.ipynb"
    notebook = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))
    notebook["metadata"]["labkit"]["version"] = "0123456789ab"
    cells = {c["metadata"].get("nbgrader", {}).get("grade_id"): c for c in notebook["cells"]}
    cells["ulp"]["source"] = "def ulp(x):\n    return 42.0\n"
    setup = next(c for c in notebook["cells"] if "labkit.labs.engine" in "".join(c["source"]))
    setup["source"] = OLD_SETUP
    (tmp_path / name).write_text(json.dumps(notebook), encoding="utf-8")

    my_labs.start(tmp_path)

    text = (tmp_path / name).read_text(encoding="utf-8")
    assert "return 42.0" in text and "labkit.checks" not in text
    (kept,) = tmp_path.glob("02_number_formats.before-*.ipynb")
    assert "labkit.checks" in kept.read_text(encoding="utf-8")


def test_the_names_that_moved_are_not_importable_by_accident():
    for module in ("labkit.checks", "labkit.widgets"):
        with pytest.raises(ImportError, match="labkit start"):
            importlib.import_module(module)
