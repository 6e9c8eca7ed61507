"""CrashRig in a real JupyterLab: a goal by keyboard and one by mouse, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IMPORT = "from labkit.labs.real_models.widget_crash_rig import CrashRig\n"


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(IMPORT + "rig = CrashRig()\nrig")


def says(widget, text):
    widget.get_by_text(text).first.wait_for()


def test_the_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()
    slider = widget.get_by_role("slider", name="Largest score before repairs")

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    slider.focus()
    press(*["ArrowRight"] * 10)
    says(widget, "largest score is 4,096")
    assert slider.get_attribute("aria-valuetext") == "4,096"
    press("q")
    widget.get_by_role("button", name="QK-norm", pressed=True).wait_for()
    says(widget, "above the limit")
    press("f")
    says(widget, "Reached: attention in BF16")
    press("p")
    slider = widget.get_by_role("slider", name="Position")
    slider.wait_for()
    press("End", "a")
    says(widget, "131,073")
    press("a", "m")
    says(widget, "Reached: rotary angles in BF16")
    press("p")
    says(widget, "probabilities of 16 classes")
    press("End", "m")
    says(widget, "Reached: logits of the head in BF16")
    press("p", "b")
    says(widget, "means of 16 channels")
    press("End")
    says(widget, "16 of 16 values are inf or NaN")
    press("m")
    says(widget, "Reached: mean over tokens in FP16")
    assert workbench.lab.cell_count() == cells
    press("Tab", "Space")
    pressed = widget.get_by_role("group", name="Repairs").get_by_role("button", pressed=True)
    pressed.nth(1).wait_for()
    assert workbench.focused() == ".float() on the mean", "a switched button keeps the focus"


def test_a_goal_is_reached_by_mouse_alone(workbench):
    widget = workbench.show(IMPORT + "CrashRig()")
    slider = widget.get_by_role("slider")
    box = slider.bounding_box()
    slider.click(position={"x": box["width"] - 4, "y": box["height"] / 2})
    says(widget, "16,384")
    switches = widget.get_by_role("group", name="Repairs").get_by_role("button")
    for name in ("soft cap at 50", "fused", "QK-norm"):
        switches.filter(has_text=name).click()
    says(widget, "Reached: attention in BF16")
    pressed = [each.get_attribute("aria-pressed") for each in switches.all()]
    assert pressed == ["true", "true", "false", "false"], "fused attention has no soft cap"
    widget.get_by_role("combobox", name="Part").select_option("mean")
    says(widget, "Drawn: means of 16 channels")
    widget.get_by_role("combobox", name="Format").select_option("FP16")
    widget.get_by_role("cell", name="FP16").wait_for()


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("rig.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    verdict = widget.locator(".cr-verdict").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.endsWith(text)", arg=[spoken.element_handle(), verdict]
    )
