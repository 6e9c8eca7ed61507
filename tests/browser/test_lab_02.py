"""Lab 02 as a learner meets it: Run All, a wrong answer, a right one, the widget, a restart."""

import json
import sqlite3

import pytest

from labkit.base.home import NOTEBOOKS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LAB = "02_number_formats.ipynb"
MANIFEST = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
EXERCISES = [
    exercise
    for entry in MANIFEST["labs"]
    if f"{entry['lab']}.ipynb" == LAB
    for exercise in entry["exercises"]
]
REQUIRED = [exercise for exercise in EXERCISES if exercise["points"]]

WRONG = """def ulp(x: float) -> float:
    return 2.0 ** -10 * abs(x)"""
RIGHT = """def ulp(x: float) -> float:
    exponent = max(math.frexp(x)[1] - 1, -14) if x else -14
    return 2.0 ** (exponent - 10)"""


def errors(lab):
    """Name and text of every error output of the notebook."""
    return lab.page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.widgets
            .filter((cell) => cell.model.type === "code")
            .flatMap((cell) => cell.model.outputs.toJSON())
            .filter((output) => output.output_type === "error")
            .map((output) => [output.ename, output.evalue])"""
    )


def visible_errors(lab):
    """The text of what JupyterLab draws as an error or as stderr, where a reader sees it."""
    drawn = lab.page.locator('.jp-OutputArea-output[data-mime-type$="stderr"]')
    return [one.inner_text() for one in drawn.all() if one.is_visible()]


def last_code_cell(lab):
    """Index of the last code cell: the progress panel."""
    return lab.page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.widgets
            .findLastIndex((cell) => cell.model.type === "code")"""
    )


def test_a_learner_runs_all_fails_passes_uses_the_widget_and_comes_back(lab):
    lab.open(LAB)
    lab.run_all()

    # Unsolved, the only errors are the checks' own lines.
    assert len(errors(lab)) == len(EXERCISES)
    for name, words in errors(lab):
        assert name == "CheckFailed"
        assert "not attempted" in words
    # Each shows as a neutral line: no error text stands anywhere on the page.
    assert visible_errors(lab) == []
    for exercise in EXERCISES:
        line = f"○ {exercise['exercise']}: not attempted."
        assert lab.output_text(f"check-{exercise['exercise']}").strip().startswith(line)

    lab.set_cell_source("ulp", WRONG)
    lab.run_cell("ulp")
    lab.run_cell("check-ulp")
    assert "Which quantity in your formula changes between them?" in lab.output_text("check-ulp")
    assert "Traceback" not in lab.output_text("check-ulp")
    assert len(visible_errors(lab)) == 1

    lab.set_cell_source("ulp", RIGHT)
    lab.run_cell("ulp")
    lab.run_cell("check-ulp")
    assert lab.output_text("check-ulp").startswith("✓ ulp: passed.")

    # The widget, by keyboard: E2M1's 1.0 with its mantissa bit set is 1.5, and no cell is inserted.
    cells = lab.cell_count()
    explorer = lab.page.locator(".fe").first
    explorer.get_by_role("button", name="mantissa bit 0").focus()
    lab.page.keyboard.press("Space")
    explorer.locator(".fe-facts").get_by_text("1.5", exact=True).wait_for()
    lab.page.keyboard.press("b")
    assert lab.cell_count() == cells

    lab.save()
    lab.restart_kernel()
    lab.command("notebook:clear-all-cell-outputs")
    lab.run_cell(last_code_cell(lab))
    assert f"1 of {len(REQUIRED)}" in lab.output_text(last_code_cell(lab))

    log = sqlite3.connect(lab.labkit_home / "progress.db")
    statuses = log.execute("select status from events where item = 'ulp' order by rowid").fetchall()
    assert statuses == [("failed",), ("passed",)]
