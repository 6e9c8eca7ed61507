"""DrillCard in a real JupyterLab: a mock interview by keyboard, names, themes, phone width."""

import pytest

from tests.browser.contrast import contrasts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DRILL = """from labkit.interview.questions import load
from labkit.interview.sittings import DrillSitting
from labkit.interview.widget_drill_card import DrillCard
bank = load()
drilled = DrillCard(DrillSitting(bank, [bank.questions[id] for id in {ids}]), language="en")
drilled"""
IDS = ["mixed-precision-what", "ridge-point", "amp-step-in-order", "cuda-autocast-lists"]


def on(widget, state, card=""):
    """Wait until a card stands in that state."""
    which = f"[data-card^='{card}']" if card else ""
    widget.page.locator(f".dc[data-state={state}]{which}").last.wait_for()


def type_answer(widget, page):
    """Answer the card that stands, whatever its kind, by keyboard alone; seldom rightly."""
    form = widget.get_attribute("data-form")
    keys = page.keyboard
    if form in ("choice", "select"):
        keys.press("1")
    elif form == "order":
        for letter in "abcdefghi"[: widget.locator(".lk-choice").count()]:
            keys.press(letter)
    elif form in ("match", "numeric"):
        for _ in range(widget.locator("select, input").count()):
            keys.type("a" if form == "match" else "1")
            keys.press("Tab")
    else:
        keys.type({"bits": "0x1", "line": "1", "free": "in a line"}.get(form, "1"))
    if form in ("match", "numeric"):
        keys.press("Shift+Tab")
    keys.press("Enter")


def test_a_mock_of_ten_minutes_by_keyboard(workbench):
    page = workbench.page
    widget = workbench.show(
        "from labkit.interview.widget_drill_card import mock_interview\n"
        "asked = mock_interview(minutes=10, seed=5, language='en')\nasked"
    )
    page.locator(".jp-NotebookPanel").first.press("Escape")  # JupyterLab's command mode
    cells = workbench.lab.cell_count()
    widget.focus()
    seen = []
    while widget.get_attribute("data-state") == "asking":
        card = widget.get_attribute("data-card")
        assert card not in seen, f"{card} was answered and still stands: {widget.inner_text()}"
        seen.append(card)
        type_answer(widget, page)
        page.wait_for_function(
            "([card, before]) => card.dataset.card !== before || card.dataset.state !== 'asking'"
            " || card.querySelector('.dc-unclear').textContent",
            arg=[widget.element_handle(), card],
        )
    assert len(seen) >= 7
    assert "Not so." not in widget.inner_text(), "no verdict before the end"
    assert widget.get_attribute("data-state") == "ticking"
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    widget.locator(".dc-report table").first.wait_for()
    assert widget.locator(".dc-report").inner_text().count("Answer:") >= 6
    assert workbench.lab.cell_count() == cells, "no key reached JupyterLab"


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(DRILL.format(ids=IDS))


def test_a_card_says_what_it_is_and_gives_hints_and_a_verdict(widget, workbench):
    choices = widget.get_by_role("group", name="the number").get_by_role("button")
    assert choices.count() >= 3
    widget.focus()
    workbench.page.keyboard.press("2")
    assert choices.nth(1).get_attribute("aria-pressed") == "true"
    workbench.page.keyboard.press("Enter")
    on(widget, "answered")
    verdict = widget.locator(".lk-verdict").inner_text().strip()
    assert verdict in ("✓ Right.", "✗ Not so.", "Right.", "Not so.")
    spoken = widget.locator(".lk-spoken")
    workbench.page.wait_for_function(
        "([e, verdict]) => e.textContent.includes(verdict)", arg=[spoken.element_handle(), verdict]
    )
    workbench.page.keyboard.press("Enter")
    on(widget, "asking", "1:")


def test_what_is_unclear_is_said_and_what_was_typed_stays(widget, workbench):
    on(widget, "asking", "1:ridge-point")
    field = widget.locator("input[type=text]")
    field.fill("about two")
    field.press("Enter")
    widget.get_by_text("is no number here").first.wait_for()
    assert field.input_value() == "about two"
    field.fill("2^3")
    field.press("Enter")
    on(widget, "answered", "1:")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_stands_out_in_both_themes(widget, workbench, theme):
    workbench.lab.theme(theme)
    found = contrasts(workbench.page, ".dc")
    workbench.lab.theme("JupyterLab Light")
    assert len(found) > 10
    assert [each for each in found if each[0] < 4.5] == []


def test_in_chinese_and_at_the_width_of_a_phone(widget, workbench):
    widget.get_by_role("button", name="中文").click()
    widget.get_by_text("下一题").first.wait_for()
    width = (
        "() => { const e = [...document.querySelectorAll('.dc')].at(-1); e.style.width = '340px';"
        " return e.scrollWidth - e.clientWidth; }"
    )
    assert workbench.page.evaluate(width) <= 1, "nothing sticks out sideways"
    workbench.page.evaluate(
        "() => { [...document.querySelectorAll('.dc')].at(-1).style.width = ''; }"
    )
