"""AlarmBench in a real JupyterLab: goals by keyboard and mouse, a dragged spike."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IMPORT = "from labkit.labs.monitoring_and_debugging.widget_alarm_bench import AlarmBench\n"


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(IMPORT + "bench = AlarmBench()\nbench")


def says(widget, text):
    """Wait until it stands there to be read: what is spoken may still be an earlier state."""
    widget.get_by_text(text).and_(widget.page.locator(":not(.lk-spoken)")).first.wait_for()


def test_the_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    spike = widget.get_by_role("slider", name="Spike at step 300")
    spike.focus()
    says(widget, "the rule is silent at step 300")
    press("r", "r", "r", "w", "w")
    row = widget.locator("tr[aria-current=true]")
    row.get_by_role("rowheader", name="median, MAD of those before").wait_for()
    says(widget, "the rule rings at step 300")
    margin = widget.get_by_role("slider", name="Margin")
    margin.focus()
    press(*["ArrowRight"] * 4)
    says(widget, "Reached: No false alarm")
    assert margin.get_attribute("aria-valuetext") == "1 nat"
    press("ArrowLeft")
    widget.get_by_role("slider", name="k, widths").focus()
    press(*["ArrowRight"] * 14)
    says(widget, "Reached: The same")
    spike.focus()
    press("Home", "n")
    says(widget, "First CNN run: the rule is silent at step 300")
    assert workbench.lab.cell_count() == cells
    press("Shift+Tab")
    assert margin.evaluate("(slider) => slider === document.activeElement")


def test_a_goal_and_the_spike_by_mouse_alone(workbench):
    widget = workbench.show(IMPORT + "AlarmBench()")
    widget.get_by_role("combobox", name="Rule").select_option("median")
    widget.get_by_role("combobox", name="Window").select_option("50")
    slider = widget.get_by_role("slider", name="Margin")
    box = slider.bounding_box()
    slider.click(position={"x": box["width"] * 0.8, "y": box["height"] / 2})
    says(widget, "Reached: No false alarm")

    drawing, mouse = widget.locator(".ab-drawing"), workbench.page.mouse
    drawing.scroll_into_view_if_needed()
    box, ball = drawing.bounding_box(), widget.locator(".ab-spike").bounding_box()
    x, y = ball["x"] + ball["width"] / 2, ball["y"] + ball["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x, box["y"] + box["height"] * 0.4, steps=3)
    mouse.move(x, box["y"] + box["height"] - 2, steps=3)
    mouse.up()
    says(widget, "the rule is silent at step 300")
    assert widget.get_by_role("slider", name="Spike at step 300").input_value() == "0"
    widget.get_by_role("combobox", name="Drawn run").select_option("GPT")
    says(widget, "First GPT run")


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("bench.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    verdict = widget.locator(".ab-verdict").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.endsWith(text)", arg=[spoken.element_handle(), verdict]
    )
