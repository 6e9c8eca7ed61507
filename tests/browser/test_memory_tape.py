"""MemoryTape in a real JupyterLab: 4 GiB by keyboard and by mouse, a place read."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MADE = """from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.widget_memory_tape import GIB, MemoryTape
chart = MemoryTape(StepSettings(autocast=True), limit=8 * GIB)
chart"""


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(MADE)


def says(widget, text):
    widget.get_by_text(text).first.wait_for()


def tells(widget, text):
    widget.get_by_role("img", name=text).wait_for()


def test_a_step_fits_into_4_gib_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    says(widget, "Does not fit into 8 GiB: the peak is 8.46 GiB")
    assert widget.locator(".mt-beyond").count() > 0
    chunks = widget.get_by_role("combobox", name="Chunks of the loss")
    chunks.focus()
    press("End")
    says(widget, "Fits into 8 GiB: the peak is 4.97 GiB")
    assert widget.locator(".mt-beyond").count() == 0
    says(widget, "Reached: A step with a batch of 8 fits into 6 GiB")
    block = widget.get_by_role("button", name="block 0 checkpointed")
    block.focus()
    press("ArrowLeft", "l", "l")
    says(widget, "Does not fit into 4 GiB")
    press("End", "ArrowLeft", "Space")
    assert workbench.focused() == "block 10 checkpointed"
    tells(widget, "Checkpointed: 10.")
    press("Tab", "Tab", "Enter")
    assert workbench.focused() == "all checkpointed"
    says(widget, "Reached: A step with a batch of 8 fits into 4 GiB")
    says(widget, "the peak is 3.04 GiB at aten._foreach")
    assert block.get_attribute("aria-pressed") == "true"
    press("f")
    tells(widget, "foreach=False")
    assert workbench.lab.cell_count() == cells


def test_a_place_is_read_by_mouse_and_by_slider(widget, workbench):
    drawing, slider = widget.locator(".mt-drawing"), widget.get_by_role("slider")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    drawing.click(position={"x": box["width"] * 50 / 640, "y": 80})
    reading = widget.locator(".mt-reading")
    reading.get_by_text("(forward)").wait_for()
    workbench.page.wait_for_function(
        "([s, r]) => s.ariaValueText === r.innerText",
        arg=[slider.element_handle(), reading.element_handle()],
    )
    before = reading.inner_text()
    slider.focus()
    workbench.page.keyboard.press("End")
    reading.get_by_text("(zero_grad)").wait_for()
    last = int(workbench.say("chart.numbers['place']"))
    slider.focus()
    workbench.page.keyboard.press("ArrowLeft")
    workbench.until("chart.numbers['place']", str(last - 1))
    assert before.endswith("(forward)") and not before.startswith("The peak")
    widget.get_by_role("button", name="to the peak").click()
    reading.get_by_text("The peak").wait_for()


def test_the_same_by_mouse_alone(workbench):
    widget = workbench.show(MADE.replace("chart", "other"))
    widget.get_by_role("combobox", name="Chunks of the loss").select_option("16")
    widget.get_by_role("button", name="all checkpointed").click()
    says(widget, "Reached: A step with a batch of 8 fits into 4 GiB")
    widget.get_by_role("combobox", name="Card").select_option("4 GiB")
    widget.locator(".mt-verdict", has_text="Fits into 4 GiB").wait_for()


def test_what_is_drawn_is_also_said(widget, workbench):
    widget.get_by_role("button", name="to the peak").click()
    widget.locator(".mt-reading").get_by_text("The peak").wait_for()
    sentence = workbench.say("chart.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.includes(text)",
        arg=[spoken.element_handle(), widget.locator(".mt-verdict").inner_text()],
    )
