"""Roofline in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.devices.roofline import roofs\n"
        "from labkit.labs.hardware_and_benchmarks.widget_roofline import Roofline\n"
        'roofline = Roofline(roofs("fp16", devices=["T4", "A100 SXM4 40GB"]))\nroofline'
    )


def test_by_keyboard_the_bound_changes(widget, workbench):
    cells = workbench.lab.cell_count()
    slider = widget.get_by_role("slider", name="Size of the square matrices")
    slider.focus()
    workbench.page.keyboard.press("Home")
    widget.get_by_text("32 x 32 in fp16").wait_for()
    assert widget.locator("tbody td:nth-child(2)").all_inner_texts() == ["memory", "memory"]
    for _ in range(7):  # faster than answers come
        workbench.page.keyboard.press("ArrowRight")
    widget.get_by_text("4096 x 4096 in fp16").wait_for()
    assert slider.get_attribute("aria-valuetext") == "4096 x 4096"
    assert widget.locator("tbody td:nth-child(2)").all_inner_texts() == ["compute", "compute"]
    assert workbench.say("roofline.size") == "4096"
    assert workbench.lab.cell_count() == cells


def test_python_moves_the_slider_and_the_words_follow(widget, workbench):
    workbench.say("setattr(roofline, 'size', 64)")
    widget.get_by_text("64 x 64 in fp16").wait_for()
    assert widget.get_by_role("slider").input_value() == "1"
    said = workbench.say("roofline.describe()")
    assert widget.get_by_role("img").get_attribute("aria-label") == said


def test_the_axes_read_as_numbers(widget):
    ticks = widget.locator("svg.rl-drawing text").all_text_contents()
    for text in ("0.25", "8192", "100 TFLOP/s", "arithmetic intensity, FLOP a byte"):
        assert text in ticks
    assert "Secondary:" in widget.locator(".rl-note").inner_text()


def test_by_mouse_the_dots_move(widget):
    slider = widget.get_by_role("slider")
    box = slider.bounding_box()
    before = widget.locator(".rl-dot-0").get_attribute("cx")
    slider.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    widget.get_by_text("16384 x 16384 in fp16").wait_for()
    assert float(widget.locator(".rl-dot-0").get_attribute("cx")) > float(before)
