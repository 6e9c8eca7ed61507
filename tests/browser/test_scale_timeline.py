"""ScaleTimeline in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.loss_scaling.recorded import five_traces\n"
        "from labkit.labs.loss_scaling.widget_scale_timeline import ScaleTimeline\n"
        "timeline = ScaleTimeline(five_traces())\ntimeline"
    )


@pytest.fixture(autouse=True)
def at_the_start(widget):
    widget.get_by_role("combobox", name="Run").select_option("A")
    widget.get_by_role("slider", name="Step").fill("0")
    widget.get_by_text("step 0: scale 2**24, taken").first.wait_for()


def test_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()
    slider = widget.get_by_role("slider", name="Step")
    slider.focus()
    keyboard = workbench.page.keyboard
    for _ in range(10):
        keyboard.press("ArrowRight")
    row = widget.locator(".st-row")
    assert row.inner_text().startswith("step 10: scale 2**34, skipped")
    assert slider.get_attribute("aria-valuetext") == row.inner_text()
    keyboard.press("Tab")
    keyboard.press("Tab")
    keyboard.press("Enter")  # next skip
    assert row.inner_text().startswith("step 11:")
    assert workbench.lab.cell_count() == cells
    workbench.until("timeline.run, timeline.place", "A 11")


def test_a_click_in_the_picture_goes_to_that_step(widget):
    drawing = widget.locator(".st-drawing")
    middle = (64 + (720 - 74) * 30 / 59) / 720 * drawing.bounding_box()["width"]
    drawing.click(position={"x": middle, "y": 60})
    assert widget.locator(".st-row").inner_text().startswith("step 30:")


def test_another_run_is_drawn_and_said(widget, workbench):
    widget.get_by_role("combobox", name="Run").select_option("B")
    sentence = workbench.say("timeline.runs['B']['sentence']")
    assert "No step is skipped" in sentence
    assert widget.get_by_role("img").get_attribute("aria-label") == sentence
    assert widget.locator(".st-skip").count() == 0
    assert widget.get_by_role("button", name="next skip").is_disabled()
