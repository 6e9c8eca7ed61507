"""DtypeMap in a real JupyterLab: mouse, keyboard, names, both themes."""

import pytest

from tests.browser.contrast import contrasts

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.automatic_mixed_precision.dtype_map import example\n"
        "from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap\n"
        "painting = DtypeMap(example())\npainting"
    )


@pytest.fixture(autouse=True)
def unpainted(widget):
    widget.get_by_role("button", name="clear all paint").click()
    widget.get_by_text("0 of 20 painted.").first.wait_for()


def edge(widget, name):
    return widget.locator(f'.dm-edge[aria-label^="{name},"]')


def test_by_mouse_wrong_edges_light_up(widget, workbench):
    edge(widget, "after linear").click()  # fp16, right
    edge(widget, "first.weight").click()  # fp16, wrong
    widget.get_by_text("2 of 20 painted.").first.wait_for()
    assert "fp32" not in "".join(widget.locator(".dm-edge").all_inner_texts())
    widget.get_by_role("button", name="run the step").click()
    widget.get_by_text("1 of 2 painted edges are right").first.wait_for()
    assert edge(widget, "first.weight").inner_text() == "✗ fp16, is fp32"
    assert edge(widget, "after linear").inner_text() == "✓ fp16"
    assert edge(widget, "after linear 2").inner_text() == "fp16", "unpainted: the truth alone"
    assert workbench.say("painting.painted.count('fp16'), painting.ran") == "2 True"


def test_by_keyboard_alone(widget, workbench):
    workbench.page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    edge(widget, "inputs").focus()
    workbench.page.keyboard.press("3")
    widget.get_by_role("button", name="inputs, into the first layer: fp32").wait_for()
    workbench.page.keyboard.press("Tab")
    assert workbench.focused().startswith("first.weight, as the optimizer keeps it")
    workbench.page.keyboard.press("Space")
    workbench.page.keyboard.press("Space")  # none, fp16, fp32: faster than answers come
    widget.get_by_role("button", name="first.weight, as the optimizer keeps it: fp32").wait_for()
    workbench.page.keyboard.press("Delete")
    widget.get_by_text("1 of 20 painted.").first.wait_for()
    widget.get_by_role("button", name="run the step").focus()
    workbench.page.keyboard.press("Enter")
    widget.get_by_text("1 of 1 painted edges are right").first.wait_for()
    assert workbench.lab.cell_count() == cells, "no key reached JupyterLab"


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_stands_out_in_both_themes(widget, workbench, theme):
    edge(widget, "inputs").click()
    edge(widget, "after linear").click()
    widget.get_by_role("button", name="run the step").click()
    widget.get_by_text("1 of 2 painted edges are right").first.wait_for()
    workbench.lab.theme(theme)
    workbench.page.wait_for_timeout(500)
    found = contrasts(workbench.page, ".dm")
    workbench.lab.theme("JupyterLab Light")
    assert len(found) > 40
    assert [each for each in found if each[0] < 4.5] == []
