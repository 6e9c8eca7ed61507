"""ClipDial in a real JupyterLab: both goals by keyboard and by mouse, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IMPORT = "from labkit.labs.quantization.widget_clip_dial import ClipDial\n"


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(IMPORT + "dial = ClipDial()\ndial")


def says(widget, text):
    widget.get_by_text(text).first.wait_for()


def test_the_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()
    low, high = (widget.get_by_role("slider", name=f"{end} end") for end in ("Low", "High"))

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    low.focus()
    press("End", *["ArrowLeft"] * 8)
    high.focus()
    press("PageDown", "PageDown", "ArrowLeft")
    says(widget, "Reached: At 8 bits")
    assert low.get_attribute("aria-valuetext") == "-0.164"
    press("b", "b")
    says(widget, "4 bits, affine: codes 0 to 15")
    press(*["PageDown"] * 4, *["ArrowRight"] * 15)
    low.focus()
    press(*["ArrowLeft"] * 7)
    says(widget, "Reached: At 4 bits")
    press("s")
    says(widget, "4 bits, symmetric: codes -7 to 7")
    press("s")
    says(widget, "4 bits, affine")
    assert workbench.lab.cell_count() == cells
    names = []
    for _ in range(2):
        press("Tab")
        names.append(workbench.focused())
    assert names == ["low end one step down", "low end one step up"]


def test_the_goals_are_reached_by_mouse_alone(workbench):
    widget = workbench.show(IMPORT + "ClipDial()")
    drawing, mouse = widget.locator(".cd-drawing"), workbench.page.mouse

    def drag(begin, end):
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        y = box["y"] + 60 / 250 * box["height"]
        x, stop = (
            box["x"] + (24 + (place / 320 + 1) / 2 * 592) / 640 * box["width"]
            for place in (begin, end)
        )
        mouse.move(x, y)
        mouse.down()
        mouse.move((x + stop) / 2, y, steps=3)
        mouse.move(stop, y, steps=3)
        mouse.up()

    def nudge(end, place):
        """Press an end's buttons until it stands there."""
        slider = widget.get_by_role("slider", name=f"{end.capitalize()} end")
        while (gap := place - int(slider.input_value())) != 0:
            assert abs(gap) <= 2, "a drag ends near the place"
            way = "up" if gap > 0 else "down"
            widget.get_by_role("button", name=f"{end} end one step {way}").click()

    drag(-320, -8)
    nudge("low", -8)
    drag(320, 255)
    nudge("high", 255)
    says(widget, "Reached: At 8 bits")
    widget.get_by_role("combobox", name="Bits").select_option("4")
    drag(255, 142)
    nudge("high", 142)
    drag(-8, -15)
    nudge("low", -15)
    says(widget, "Reached: At 4 bits")
    widget.get_by_role("button", name="symmetric").click()
    says(widget, "4 bits, symmetric: codes -7 to 7")
    assert widget.get_by_role("slider", name="Low end").input_value() == "-142"


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("dial.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    verdict = widget.locator(".cd-verdict").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.endsWith(text)", arg=[spoken.element_handle(), verdict]
    )
