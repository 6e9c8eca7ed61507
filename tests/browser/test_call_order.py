"""CallOrder in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PUBLISHED = (
    "['enter autocast', 'forward', 'exit autocast', 'scale', 'backward', 'clip', 'step', 'update']"
)


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.automatic_mixed_precision.widget_call_order import CallOrder\n"
        f"calls = CallOrder({PUBLISHED})\ncalls"
    )


@pytest.fixture(autouse=True)
def as_published(widget):
    widget.get_by_role("button", name="begin again").click()
    widget.get_by_role("button", name="6 of 8: clip").wait_for()


def test_by_mouse_the_published_loop_is_repaired(widget, workbench):
    assert "2 rows complain" in widget.inner_text()
    assert "1/65536" in widget.locator(".co-row", has_text="clip").inner_text()
    widget.get_by_role("button", name="put in unscale_").click()
    widget.get_by_role("button", name="9 of 9: unscale_").wait_for()
    rows = widget.locator(".co-row")
    rows.nth(8).drag_to(rows.nth(5))
    widget.get_by_role("button", name="6 of 9: unscale_").wait_for()
    widget.get_by_role("button", name="put in zero_grad").click()
    widget.get_by_role("button", name="10 of 10: zero_grad").wait_for()
    widget.get_by_role("button", name="move up zero_grad").click()
    widget.get_by_role("button", name="9 of 10: zero_grad").wait_for()
    widget.get_by_role("button", name="move down zero_grad").click()
    widget.get_by_role("button", name="10 of 10: zero_grad").wait_for()
    widget.get_by_text("This loop is right.").first.wait_for()
    assert workbench.say("*calls.order[5:7], calls.order[-1]") == "unscale_ clip zero_grad"


def test_by_keyboard_alone(widget, workbench):
    workbench.page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    widget.get_by_role("button", name="1 of 8: enter autocast").focus()
    for _ in range(5):
        workbench.page.keyboard.press("ArrowDown")
    assert workbench.focused().startswith("6 of 8: clip")
    workbench.page.keyboard.press("Delete")
    widget.get_by_text("1 row complains").first.wait_for()
    assert workbench.focused().startswith("5 of 7: backward")
    workbench.page.keyboard.press("Shift+ArrowUp")
    widget.get_by_role("button", name="4 of 7: backward").wait_for()
    assert workbench.focused().startswith("4 of 7: backward"), "the focus goes with the call"
    assert "of a loss that is not scaled" in widget.inner_text()
    assert workbench.lab.cell_count() == cells, "no key reached JupyterLab"
