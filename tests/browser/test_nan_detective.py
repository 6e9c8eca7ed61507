"""NanDetective in a real JupyterLab: a case by mouse, one by keyboard, phone width."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Case 3 is a NaN in the data, case 4 a square root at 0: both are checked below.
SHOW = (
    "from labkit.labs.detective.widget_nan_detective import NanDetective\n"
    "case = NanDetective(3)\ncase"
)


@pytest.fixture
def widget(workbench):
    return workbench.show(SHOW)


def stands(widget, state):
    """Wait for a state of this very widget: the cases of other tests are on the page too."""
    widget.and_(widget.page.locator(state)).wait_for()


def wait_for(widget, left):
    stands(widget, f"[data-left='{left}']")


def test_by_mouse_a_case_is_asked_and_closed(widget, workbench):
    assert "40 of 40 GPU-minutes left." in widget.inner_text()
    widget.get_by_role("button", name="FP32 twin").click()
    wait_for(widget, 20)
    reading = widget.get_by_role("region", name="FP32 twin")
    assert "not finite here either" in reading.inner_text()
    assert reading.get_by_role("img").locator("path.nd-curve").count() == 4, "two, and the legend"
    widget.get_by_role("button", name="Batch").click()
    wait_for(widget, 18)
    assert widget.get_by_role("region", name="Batch").locator("path.nd-mark").count() == 1
    widget.get_by_role("radio", name="There is a NaN in the data").click()
    widget.get_by_role("button", name="Accuse").click()
    widget.locator(".lk-verdict").wait_for()
    assert "Proved" in widget.locator(".lk-verdict").inner_text()
    assert "you asked" in widget.locator(".nd-closing").inner_text()
    assert workbench.say("case.case.verdict.right, case.case.minutes_left") == "True 18"
    widget.get_by_role("button", name="Another case").click()
    stands(widget, "[data-case='4']")
    assert "40 of 40 GPU-minutes left." in widget.inner_text()


def test_by_keyboard_alone(widget, workbench):
    page = workbench.page
    page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    widget.focus()
    for left, key in ((39, "1"), (38, "2"), (36, "3"), (16, "8")):
        page.keyboard.press(key)
        wait_for(widget, left)
    page.keyboard.press("6")
    wait_for(widget, 4)
    page.keyboard.press("7")
    widget.locator(".lk-trouble").wait_for()
    assert "costs 15 GPU-minutes, and 4 are left" in widget.inner_text()
    assert widget.locator(".nd-asked .nd-reading").count() == 5
    page.keyboard.press("c")
    assert workbench.focused().startswith("A mask of -1e9")
    page.keyboard.press("Enter")
    widget.locator(".lk-verdict").wait_for()
    assert "Not so. Your own reading clears" in widget.locator(".lk-verdict").inner_text()
    assert "A suspicion may stand" in widget.inner_text()
    said = widget.get_by_role("status")
    page.wait_for_function("(e) => e.textContent.includes('Not so.')", arg=said.element_handle())
    page.keyboard.press("Enter")
    stands(widget, "[data-case='4'][data-closed='false']")
    assert workbench.lab.cell_count() == cells, "no key reached JupyterLab"


def test_a_reading_that_stands_gets_the_focus_and_costs_nothing(widget, workbench):
    widget.get_by_role("button", name="Gradients").click()
    wait_for(widget, 38)
    widget.get_by_role("button", name="Gradients").click()
    assert workbench.focused() == "Gradients"
    assert widget.get_attribute("data-left") == "38"


@pytest.fixture(scope="module")
def full(workbench):
    """A case with four readings of four kinds, still open."""
    widget = workbench.show(SHOW)
    for left, key in ((38, "3"), (23, "7"), (21, "5"), (9, "6")):
        widget.press(key)
        wait_for(widget, left)
    return widget


def test_at_the_width_of_a_phone_nothing_sticks_out(full, workbench):
    page = workbench.page
    full.evaluate("(e) => { e.style.width = '340px'; }")
    wider = full.evaluate(
        "(e) => [...e.querySelectorAll('*')].filter((n) => !n.classList.contains('lk-spoken')"
        " && n.getBoundingClientRect().right > e.getBoundingClientRect().right + 1)"
        ".map((n) => n.className.baseVal ?? n.className)"
    )
    full.evaluate("(e) => { e.style.width = ''; }")
    assert wider == []
    assert page.locator(".nd").count() > 0
