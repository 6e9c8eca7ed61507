"""A prediction in a bare page and in a real JupyterLab: answered by keyboard, and silent before."""

import json

import pytest

from labkit.labs.engine.widget_prediction import PredictionCard
from labkit.labs.number_formats import predictions as guesses
from tests.browser.test_bare_page import bare_page

pytestmark = pytest.mark.browser

PUBLISHED = (False, False, False, True, False, True)


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


def card_in(chromium, prediction, truth):
    return bare_page(chromium, PredictionCard(prediction, truth))


def press(bare, *keys):
    for key in keys:
        bare.page.keyboard.press(key)


def sent(bare):
    return [{k: v for k, v in request.items() if k != "seq"} for request in bare.requests()]


def test_a_number_by_keyboard(chromium):
    with card_in(chromium, guesses.step_at_2048, 2048.0) as bare:
        assert "2048 + 1" in bare.root.inner_text()
        bare.root.focus()
        bare.page.keyboard.type("2049")  # the first digit finds the field
        assert bare.root.get_by_role("textbox", name="Your guess").input_value() == "2049"
        press(bare, "Enter", "3")
        assert sent(bare) == [{"do": "guess", "value": "2049", "sure": 3}]
        press(bare, "3")  # a second press sends nothing while the answer is on its way
        assert len(sent(bare)) == 1
        assert "integer" not in bare.page.content()
        bare.answer(bare.said[0])
        assert "You said 2049 (certain). The answer is 2048." in bare.root.inner_text()
        assert "no odd integer" in bare.root.locator(".lk-list").inner_text()
        assert bare.root.locator(".lk-verdict").get_attribute("data-correct") == "false"
        assert bare.root.get_by_role("button").count() == 0
        assert bare.root.evaluate("(root) => root === document.activeElement")


def test_enter_takes_the_middle(chromium):
    with card_in(chromium, guesses.step_at_2048, 2048.0) as bare:
        bare.root.get_by_role("textbox").fill("2048")
        press(bare, "Enter", "Enter")
        assert sent(bare) == [{"do": "guess", "value": "2048", "sure": 2}]


def test_nothing_and_nonsense_are_not_guesses(chromium):
    with card_in(chromium, guesses.step_at_2048, 2048.0) as bare:
        bare.root.focus()
        press(bare, "Enter")
        assert sent(bare) == [] and "First your guess" in bare.root.inner_text()
        bare.page.keyboard.type("half")
        press(bare, "Enter", "1")
        bare.answer(bare.said[0])
        assert "no number here" in bare.root.get_by_role("alert").inner_text()
        field = bare.root.get_by_role("textbox")
        assert field.input_value() == "half", "what was typed stays"
        field.fill("2048")
        press(bare, "Enter", "1")
        assert sent(bare)[-1] == {"do": "guess", "value": "2048", "sure": 1}


def test_a_choice_by_keyboard(chromium):
    with card_in(chromium, guesses.loses_most, "gradients") as bare:
        bare.root.focus()
        press(bare, "1", "3")  # the last key counts
        pressed = bare.root.locator(".lk-choice[aria-pressed=true]")
        assert "gradients" in pressed.inner_text()
        press(bare, "Enter", "1")
        assert sent(bare) == [{"do": "guess", "value": "gradients", "sure": 1}]


def test_ticks_by_keyboard(chromium):
    with card_in(chromium, guesses.published, PUBLISHED) as bare:
        bare.root.focus()
        press(bare, "6", "1", "4", "1", "Enter", "2")
        assert sent(bare) == [{"do": "guess", "value": [4, 6], "sure": 2}]
        bare.answer(bare.said[0])
        assert "You said 4, 6 (fairly sure), and that is right." in bare.root.inner_text()
        assert bare.root.locator(".pr-explanation").inner_text().strip()
        questions = bare.root.locator("ol li:not(.pr-explanation li)")
        assert questions.count() == 6, "the sentences stay to be read"


def test_by_mouse_and_show_me(chromium):
    with card_in(chromium, guesses.published, PUBLISHED) as bare:
        bare.root.get_by_role("button", name="2 FP16 ends at 65504").click()
        bare.root.get_by_role("button", name="3 certain").click()
        assert sent(bare) == [{"do": "guess", "value": [2], "sure": 3}]
    with card_in(chromium, guesses.published, PUBLISHED) as bare:
        bare.root.get_by_role("button", name="Show me").click()
        assert sent(bare) == [{"do": "show"}]
        bare.answer(bare.said[0])
        assert "The answer is 4, 6." in bare.root.inner_text()


ASKED = """from labkit.labs.engine import TickGuess, predict
question = TickGuess(
    id="browser", lab="99_test", question="Tick `1.5`.", by_item={"one": "No.", "1.5": "Yes, 1.5."}
)

@predict(question)
def halves():
    return [False, True]"""


@pytest.mark.slow
def test_in_jupyterlab_a_guess_by_keyboard_that_a_second_run_shows_again(workbench):
    widget = workbench.show(ASKED)
    cells = workbench.lab.cell_count()
    assert "Yes" not in json.dumps(workbench.lab.output_data(workbench._next - 1))
    widget.focus()
    for key in ("1", "Enter", "3"):
        workbench.page.keyboard.press(key)
    widget.get_by_text("You said one (certain). The answer is 1.5.").wait_for()
    for key in ("b", "d", "d"):  # no key reaches JupyterLab
        workbench.page.keyboard.press(key)
    assert workbench.lab.cell_count() == cells
    again = workbench.show(ASKED)
    again.get_by_text("Earlier you said one (certain). The answer is 1.5.").wait_for()
