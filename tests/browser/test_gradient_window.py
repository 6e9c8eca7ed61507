"""GradientWindow in a real JupyterLab: mouse, keyboard, names, the chase."""

import re

import pytest

from tests.browser.conftest import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.loss_scaling.recorded import autoencoder_gradients\n"
        "from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow\n"
        "window = GradientWindow(autoencoder_gradients())\nwindow"
    )


def scale_is(widget, text):
    """Wait until the scale is shown; the axis has words of the same kind."""
    widget.locator(".gw-scale", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


@pytest.fixture(autouse=True)
def at_the_start(widget):
    dynamic = widget.get_by_role("button", name="dynamic")
    if dynamic.get_attribute("aria-pressed") == "true":
        dynamic.click()
    widget.get_by_role("button", name="restart").click()
    widget.locator(".gw-story", has_text="Frame 1 of 60, scale set by you").wait_for()
    widget.get_by_role("slider", name="Loss scale").fill("0")
    scale_is(widget, "2**0 = 1")


def test_each_share_stands_beside_its_name_in_one_row(widget):
    """JupyterLab lays out every list of terms in an output, and this one is no exception."""
    widget.locator(".gw-shares dd").first.wait_for()
    # One call measures all: between two calls the page may move.
    names, shares = widget.locator(".gw-shares").evaluate(
        "list => ['dt', 'dd'].map(tag => [...list.querySelectorAll(tag)]"
        ".map(each => each.getBoundingClientRect().toJSON()))"
    )
    assert len(names) == len(shares) > 1
    assert len({round(place["y"] + place["height"] / 2) for place in names + shares}) == 1
    for name, share in zip(names, shares, strict=True):
        assert 0 < share["x"] - name["x"] - name["width"] < 20


def test_a_drag_of_the_histogram_moves_the_scale(widget, workbench):
    drawing = widget.locator(".gw-drawing")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    unit = box["width"] / 101
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    mouse = workbench.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 8 * unit, y, steps=4)
    mouse.move(x + 20 * unit, y, steps=4)
    mouse.up()
    scale_is(widget, "2**20")
    widget.get_by_text("In the goal.", exact=True).first.wait_for()
    assert widget.get_by_role("slider", name="Loss scale").input_value() == "20"
    assert workbench.say("window.k") == "20"


def test_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()
    slider = widget.get_by_role("slider", name="Loss scale")
    slider.focus()
    keyboard = workbench.page.keyboard
    for _ in range(3):
        keyboard.press("ArrowRight")
    scale_is(widget, "2**3 = 8")
    assert slider.get_attribute("aria-valuetext") == "2**3 = 8"
    keyboard.press("End")
    scale_is(widget, "2**40")
    names = []
    for _ in range(4):
        keyboard.press("Tab")
        names.append(workbench.page.evaluate("() => document.activeElement.textContent"))
    assert names == ["play", "next frame", "dynamic", "restart"]
    keyboard.press("Shift+Tab")
    keyboard.press("Space")  # dynamic: from 2**16, wherever the slider was
    scale_is(widget, "2**16 = 65536")
    assert slider.is_disabled()
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")
    widget.get_by_text("Frame 2 of 60, scale dynamic from 2**16: held in 2,000").first.wait_for()
    assert workbench.lab.cell_count() == cells


def test_the_goal_is_reached_by_pressing_dynamic_and_play(widget, workbench):
    held = int(workbench.say("window.steps_held()"))
    widget.get_by_role("button", name="dynamic").click()
    widget.get_by_role("button", name="play").click()
    # 60 frames of a quarter of a second, each with an answer of Python.
    end = widget.get_by_text(f"held in {held:,} of 120,000 steps").first
    end.wait_for(timeout=PATIENCE * 1000)
    widget.get_by_text("Goal reached").first.wait_for()
    widget.get_by_role("button", name="play").wait_for()  # it has stopped by itself


def test_no_click_is_lost_while_python_works(widget, workbench):
    names = ("next frame", "next frame", "dynamic", "next frame", "dynamic", *["next frame"] * 4)
    buttons = [widget.get_by_role("button", name=name).element_handle() for name in names]
    workbench.page.evaluate("(buttons) => buttons.forEach((button) => button.click())", buttons)
    widget.get_by_text("Frame 5 of 60, scale set by you").first.wait_for()


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("window.describe()")
    assert widget.get_by_role("img").get_attribute("aria-label") == sentence
    status = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent === text", arg=[status.element_handle(), sentence]
    )
