"""BlockBench in a real JupyterLab: both goals by keyboard and by mouse, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IMPORT = "from labkit.labs.fp8_and_fp4.widget_block_bench import BlockBench\n"


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(IMPORT + "bench = BlockBench()\nbench")


def says(widget, text):
    widget.get_by_text(text).first.wait_for()


def test_the_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()
    keyboard = workbench.page.keyboard
    slider = widget.get_by_role("slider", name="Value")
    slider.focus()
    for _ in range(20):
        keyboard.press("ArrowRight")
    says(widget, "Value 21: -1.814 x 2**-14")
    for _ in range(32):
        keyboard.press("ArrowUp")
    says(widget, "Recorded as -1.814 x 2**-14")
    says(widget, "458,752 times is the limit (448 / 0.000976562)")
    for key in "ff":  # E4M3, E5M2, E2M1
        keyboard.press(key)
    says(widget, "24 times is the limit (6 / 0.25)")
    says(widget, "Reached: Double one value")
    keyboard.press("g")
    says(widget, "MXFP4 clips value 21; NVFP4 not yet seen.")
    keyboard.press("g")
    says(widget, "Reached: Find a value")
    keyboard.press("h")
    says(widget, "rotated 16 at a time")
    keyboard.press("r")
    says(widget, "Rounding stochastic")
    keyboard.press("n")
    says(widget, "Rounding nearest, rotated")
    assert slider.get_attribute("aria-valuetext") == widget.locator(".bb-reading").inner_text()
    assert workbench.lab.cell_count() == cells
    keyboard.press("h")
    says(widget, "Rounding nearest.")
    names = []
    for _ in range(3):
        keyboard.press("Tab")
        names.append(workbench.focused())
    assert names == ["halve the value", "double the value", "put back all values"]


def test_the_goals_are_reached_by_mouse_alone(workbench):
    widget = workbench.show(IMPORT + "BlockBench()")
    mouse = workbench.page.mouse

    def drag(place, pixels):
        drawing = widget.locator(".bb-drawing")
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        x = box["x"] + (50 + (place - 0.5) * 590 / 64) / 640 * box["width"]
        y = box["y"] + box["height"] / 2
        mouse.move(x, y)
        mouse.down()
        mouse.move(x, y - pixels / 2, steps=3)
        mouse.move(x, y - pixels, steps=3)
        mouse.up()

    drag(21, 5 * 12)
    says(widget, "Value 21: -1.814 x 2**-9, ")
    widget.get_by_label("Format").select_option("E2M1")
    says(widget, "E2M1: 68.2 times as large made it 0")
    widget.get_by_label("One scale for").select_option("32")
    says(widget, "MXFP4 clips value 21")
    widget.get_by_label("One scale for").select_option("16")
    says(widget, "Reached: Find a value")
    widget.get_by_label("One scale for").select_option("row")
    widget.get_by_label("Format").select_option("E4M3")
    for _ in range(3):
        drag(21, 5 * 12)
    says(widget, "Reached: Double one value")
    widget.get_by_role("button", name="put back all values").click()
    says(widget, "Value 21: -1.814 x 2**-14, ")


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("bench.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    reading = widget.locator(".bb-reading").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.startsWith(text)", arg=[spoken.element_handle(), reading]
    )
