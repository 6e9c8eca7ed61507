"""Rollout in a real JupyterLab: both goals by keyboard, rollouts by mouse."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MADE = """from labkit.labs.production.widget_rollout import Rollout
chart = Rollout()
chart"""


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(MADE)


def says(widget, text):
    """Wait until it stands there to be read: what is spoken may still be an earlier state."""
    widget.get_by_text(text).and_(widget.page.locator(":not(.lk-spoken)")).first.wait_for()


def focused(widget):
    return widget.locator(":focus").inner_text()


def test_both_goals_are_reached_by_keyboard_alone(widget, workbench):
    cells = workbench.lab.cell_count()

    def press(*keys):
        for key in keys:
            workbench.page.keyboard.press(key)

    widget.get_by_role("combobox", name="Requests in shadow").focus()
    press("End")
    says(widget, "In shadow: 0 of 8,000 requests.")
    press("Tab", "Tab")
    assert focused(widget) == "100 requests"
    press("n", "n")
    says(widget, "In shadow: 200 of 8,000 requests.")
    press("s")
    says(widget, "At 1 %: 0 of 1,000 requests.")
    press("r")
    says(widget, "Rolled back by hand at 1 %.")
    press("b")
    says(widget, "In shadow: 0 of 8,000 requests.")
    press(*"ecececececece")
    says(widget, "Rolled back by the guardrail in shadow.")
    says(widget, "Reached: Under one plan")
    says(widget, "Reached: The same")
    assert focused(widget) == "100 requests", "a button that does nothing now keeps the focus"
    assert workbench.lab.cell_count() == cells


def test_a_rollout_goes_on_by_mouse_alone(workbench):
    widget = workbench.show(MADE.replace("chart", "other"))
    widget.get_by_role("combobox", name="Candidate").select_option("INT4 by tensor")
    says(widget, "weights in 4 bits, one FP16 scale a matrix.")
    widget.get_by_role("button", name="100 requests").click()
    says(widget, "Rolled back by the gate in shadow.")
    widget.get_by_role("combobox", name="Requests in each live stage").select_option("500")
    widget.get_by_role("combobox", name="Requests in shadow").select_option("0")
    says(widget, "At 1 %: 0 of 500 requests.")
    widget.get_by_role("button", name="to the end of the stage").click()
    says(widget, "At 10 %: 0 of 500 requests.")
    widget.get_by_role("button", name="roll back").click()
    says(widget, "Rolled back by hand at 10 %.")
    widget.get_by_role("button", name="begin again").click()
    widget.get_by_role("button", name="to the end", exact=True).click()
    says(widget, "Rolled back by the gate at 10 %.")


def test_what_is_drawn_is_also_said(widget, workbench):
    sentence = workbench.say("chart.describe()")
    drawn = widget.get_by_role("img").get_attribute("aria-label")
    assert drawn.split() == sentence.split()
    reading = widget.locator(".ro-reading").inner_text()
    spoken = widget.get_by_role("status")
    workbench.page.wait_for_function(
        "([e, text]) => e.textContent.endsWith(text)", arg=[spoken.element_handle(), reading]
    )
