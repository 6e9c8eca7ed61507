"""SensitivityMap in a real JupyterLab: both goals by keyboard, one by mouse."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MADE = """from functools import partial
from labkit.labs.choosing_precision.sensitivity import joint_kl, kl_by_bits, sizes, text_pieces
from labkit.labs.choosing_precision.widget_sensitivity_map import SensitivityMap
from labkit.training import trained_gpt
gpt, tokens = trained_gpt(), text_pieces(32, part="train")
chart = SensitivityMap(kl_by_bits(gpt, tokens), sizes(gpt), partial(joint_kl, gpt, tokens), 0.05)
chart"""


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(MADE)


def says(widget, text):
    """Wait until it stands there to be read: what is spoken may still be an earlier state."""
    widget.get_by_text(text).and_(widget.page.locator(":not(.lk-spoken)")).first.wait_for()


def test_the_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    slider = widget.get_by_role("slider", name="Bits")
    slider.focus()
    press("ArrowRight")
    says(widget, "1 token: 3.9 % of the weights, 6 bits")
    assert slider.get_attribute("aria-valuetext") == "6 bits"
    press(*"nnnnnn")
    says(widget, "7 blocks.1.qkv: 11 % of the weights, 5 bits")
    press("ArrowLeft", "n", "ArrowLeft", "n", "ArrowLeft", "n", "ArrowLeft")
    says(widget, "Reached: A measured KL within the budget")
    says(widget, "Reached: The same")
    press("p")
    says(widget, "9 blocks.1.feed_forward.0: 15 % of the weights, 4 bits")
    assert workbench.lab.cell_count() == cells
    press("Tab", "Space")
    assert workbench.focused() == "all at 2 bits"
    says(widget, "above the budget")


def test_a_goal_is_reached_by_mouse_alone(workbench):
    widget = workbench.show(MADE.replace("chart", "other"))
    widget.get_by_role("button", name="all at 8 bits").click()
    says(widget, "60 % more memory than 5 bits for all")
    widget.get_by_role("button", name="all at 5 bits").click()
    says(widget, "as much memory as 5 bits for all")
    drawing, mouse = widget.locator(".sm-drawing"), workbench.page.mouse
    drawing.scroll_into_view_if_needed()
    box, column = drawing.bounding_box(), widget.locator(".sm-bits").nth(6).bounding_box()
    x = column["x"] + column["width"] / 2
    mouse.move(x, column["y"] + 3)
    mouse.down()
    mouse.move(x, column["y"] + 5, steps=2)
    mouse.move(x, box["y"] + (246 - 4 / 8 * 88) / 380 * box["height"], steps=3)
    mouse.up()
    says(widget, "7 blocks.1.qkv: 11 % of the weights, 4 bits")
    says(widget, "Reached: A measured KL within the budget")
    drawing.click(position={"x": box["width"] - 20, "y": 60})
    says(widget, "11 head: 3.9 % of the weights, 5 bits")
    widget.get_by_role("combobox", name="Matrix").select_option("position")
    says(widget, "2 position: 3.7 % of the weights, 5 bits")


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("chart.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    verdict = widget.locator(".sm-verdict").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.endsWith(text)", arg=[spoken.element_handle(), verdict]
    )
