"""RunRace in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.labs.three_crimes.widget_run_race import RunRace\nrace = RunRace()\nrace"
    )


def dial(widget, name: str):
    return widget.get_by_role("combobox", name=name, exact=True)


@pytest.fixture(autouse=True)
def at_the_start(widget, workbench):
    dials = "race.task, race.lr, race.eps, race.pure, race.mixed"
    for name, position in (
        ("Task", "digits"), ("Learning rate", "high"), ("Adam's eps", "1e-08"),
        ("All in 16 bits", "pure_fp16"), ("Mixed", "fp16"),
    ):  # fmt: skip
        dial(widget, name).select_option(position)
    workbench.until(dials, "digits high 1e-08 pure_fp16 fp16")
    widget.get_by_role("button", name="back to the start").click()
    widget.get_by_label("Loss at step 0 of 299").wait_for()


def lane(widget, index: int):
    return widget.locator(f"tr[data-lane='{index}']")


def test_dials_that_turn_faster_than_python_answers_all_count(widget, workbench):
    turn = """(box, position) => {
        box.value = position;
        box.dispatchEvent(new Event("change"));
    }"""
    turned = {"Adam's eps": "0.0001", "Mixed": "bf16", "All in 16 bits": "pure_bf16"}
    boxes = [[dial(widget, name).element_handle(), to] for name, to in turned.items()]
    workbench.page.evaluate(f"(boxes) => boxes.forEach((each) => ({turn})(...each))", boxes)
    workbench.until("race.eps, race.mixed, race.pure", "0.0001 bf16 pure_bf16")
    assert dial(widget, "Mixed").input_value() == "bf16"


def test_by_mouse_a_race_is_run_and_a_dial_changes_its_end(widget, workbench):
    widget.get_by_role("button", name="Play").click()
    widget.get_by_label("Loss at step 299 of 299").wait_for()
    assert "not finite from step 1" in lane(widget, 1).inner_text()
    assert "keeps up: 100% of FP32's way" in lane(widget, 2).inner_text()
    assert widget.locator(".rr-cross").count() == 1
    dial(widget, "Adam's eps").select_option("0.0001")
    lane(widget, 1).get_by_text("of FP32's way").first.wait_for()
    assert widget.locator(".rr-cross").count() == 0
    dial(widget, "Task").select_option("autoencoder")
    widget.get_by_label("Loss at step 0 of 59").wait_for()
    assert workbench.say("race.task, race.eps, race.step") == "autoencoder 0.0001 0"


def test_by_keyboard_alone(widget, workbench):
    workbench.page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    dial(widget, "All in 16 bits").focus()
    workbench.page.keyboard.press("b")  # BF16 by its first letter; in command mode, a new cell
    lane(widget, 1).get_by_text("all in BF16").first.wait_for()
    names = []
    for _ in range(7):
        workbench.page.keyboard.press("Tab")
        names.append(workbench.focused())
    assert names[1:] == [
        "back to the start", "Play", "one step on", "ten steps on", "to the end", "step",
    ]  # fmt: skip
    for _ in range(3):
        workbench.page.keyboard.press("ArrowRight")
    widget.get_by_label("Loss at step 3 of 299").wait_for()
    workbench.page.keyboard.press("Shift+Tab")
    workbench.page.keyboard.press("Enter")
    widget.get_by_label("Loss at step 299 of 299").wait_for()
    # The page tells Python where a race stopped.
    workbench.until("race.step, race.pure", "299 pure_bf16")
    assert workbench.lab.cell_count() == cells
