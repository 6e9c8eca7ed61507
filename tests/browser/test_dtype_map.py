"""DtypeMap in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "import torch\n"
        "from labkit.labs.automatic_mixed_precision.dtype_map import record_block\n"
        "from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap\n"
        "block = DtypeMap({'FP16': record_block(), 'FP32': record_block(torch.float32)})\nblock"
    )


@pytest.fixture(autouse=True)
def at_the_start(widget):
    for name, moments in (("FP32", 26), ("FP16", 36)):  # another record begins at its first moment
        widget.get_by_label("Autocast").select_option(name)
        widget.locator(".dm-said", has_text=f"1 of {moments}:").wait_for()


def test_by_mouse_next_and_the_drawing_walk(widget, workbench):
    widget.get_by_role("button", name="next").click()
    widget.get_by_text("2 of 36: Cast: autocast casts the fp32 input").first.wait_for()
    assert widget.locator(".dm-here").count() == 1
    widget.locator("rect.dm-box").last.click()  # the last row's gradient or weight gradient
    widget.get_by_text("of 36: Backward").first.wait_for()
    widget.get_by_role("button", name="back").click()
    assert workbench.say("block.dtype") == "FP16"


def test_by_keyboard_alone(widget, workbench):
    workbench.page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    widget.get_by_label("Moment of the step").focus()
    workbench.page.keyboard.press("ArrowRight")
    workbench.page.keyboard.press("ArrowRight")
    widget.get_by_text("3 of 36:").first.wait_for()
    workbench.page.keyboard.press("Tab")
    workbench.page.keyboard.press("Tab")
    assert "lk-main" in workbench.focused()  # the button "next"
    workbench.page.keyboard.press("Enter")
    widget.get_by_text("4 of 36:").first.wait_for()
    assert workbench.say("block.at") == "3"
    assert workbench.lab.cell_count() == cells, "no key reached JupyterLab"
