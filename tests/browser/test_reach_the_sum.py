"""ReachTheSum in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import ReachTheSum\n"
        "ones = ReachTheSum()\nones"
    )


@pytest.fixture(autouse=True)
def at_zero(widget):
    widget.get_by_label("Format").select_option("fp16")
    widget.get_by_role("button", name="reset").click()
    widget.get_by_text("of 0 ones").wait_for()


def test_by_mouse_the_sum_sticks_at_2048(widget, workbench):
    for _ in range(3):
        widget.get_by_role("button", name="add 1, 1000 times").click()
    widget.get_by_text("of 3000 ones, 952 missing").wait_for()
    assert widget.locator(".rs-total").inner_text() == "2048"
    assert "Stuck: 2048 + 1 is midway to 2050" in widget.inner_text()
    assert workbench.say("ones.total, ones.presses") == "2048.0 3000"
    bars = [widget.locator(f".rs-fill.rs-{bar}").bounding_box() for bar in ("gap", "addend")]
    gap, addend = (bar["width"] for bar in bars)
    assert gap == pytest.approx(2 * addend, abs=2)  # borders are drawn in whole pixels


def test_by_keyboard_alone(widget, workbench):
    workbench.page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    widget.get_by_label("Format").focus()
    workbench.page.keyboard.press("b")  # bf16 by its first letter; in command mode, a new cell
    assert widget.get_by_label("Format").input_value() == "bf16"
    names = []
    for _ in range(5):
        workbench.page.keyboard.press("Tab")
        names.append(workbench.focused())
    assert names == [
        "add 1", "add 1, 10 times", "add 1, 100 times", "add 1, 1000 times",
        "reset: begin again at 0",
    ]  # fmt: skip
    workbench.page.keyboard.press("Shift+Tab")
    workbench.page.keyboard.press("Space")
    widget.get_by_text("of 1000 ones, 744 missing").wait_for()
    workbench.page.keyboard.press("Shift+Tab")
    workbench.page.keyboard.press("Enter")
    widget.get_by_text("of 1100 ones, 844 missing").wait_for()
    assert workbench.lab.cell_count() == cells
    assert widget.locator(".rs-total").inner_text() == "256"


def test_what_is_drawn_is_also_said(widget, workbench):
    widget.get_by_role("button", name="add 1, 1000 times").click()
    widget.get_by_text("of 1000 ones").wait_for()
    sentence = workbench.say("ones.describe()")
    assert widget.get_by_role("img").get_attribute("aria-label") == sentence
    spoken = widget.locator(".lk-spoken")
    workbench.page.wait_for_function("(e) => e.textContent === '1000'", arg=spoken.element_handle())
