"""DrillCard in a real JupyterLab: a mock interview by keyboard, names, phone width."""

from contextlib import contextmanager

import pytest

from labkit.interview import sittings
from labkit.interview.question_kinds import KINDS
from labkit.interview.questions import load_bank
from labkit.interview.sittings import DrillSitting
from labkit.interview.widget_drill_card import DrillCard
from tests.browser.test_bare_page import bare_page
from tests.interview.prove import right_answer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DRILL = """from labkit.interview.questions import load_bank
from labkit.interview.sittings import DrillSitting
from labkit.interview.widget_drill_card import DrillCard
bank = load_bank()
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


# What a person or Python may notice: requests, what is shown, what is filled in, the focus.
NOTICED = """() => {
  const root = document.querySelector(".lk").cloneNode(true);
  root.querySelector(".lk-spoken").remove(); // it speaks later
  const fields = [...document.querySelectorAll("input, select, textarea")];
  const filled = fields.map((field) => [field.value, field.checked, field.matches(":focus")]);
  return JSON.stringify([model.sent.length, root.outerHTML, filled]);
}"""


def one(kind, *, hints=True):
    """A sitting of a card of that kind, which has hints or has none."""
    bank = load_bank()
    asked = [q for q in bank.questions.values() if q.kind == kind and bool(q.hints.en) == hints]
    return DrillSitting(bank, asked[:1])


@contextmanager
def page_of(chromium, sitting):
    """A page with its card, as it stands when the one before has been answered."""
    with bare_page(chromium, DrillCard(sitting, language="en")) as bare:
        focus(bare)
        yield bare


def focus(bare):
    fields = bare.root.locator("input:not([type=checkbox]), select, textarea")
    (fields.first if fields.count() else bare.root).focus()


def named(bare):
    return bare.root.locator(".lk-keys kbd").all_inner_texts()


def press_what_is_named(bare):
    """Press every key that the help names; returns those that did nothing."""
    idle = []
    for key in named(bare):
        before = bare.page.evaluate(NOTICED)
        bare.page.keyboard.press(key)
        if bare.page.evaluate(NOTICED) == before:
            idle.append(key)
    return idle


def answer(bare):
    """Answer the card by Python, as "I do not know", or speak; returns the state."""
    spoken = bare.widget.sitting.card.question.spoken
    bare.widget.answer("in a line" if spoken else "?")
    bare.answer(bare.widget.numbers)
    return bare.root.get_attribute("data-state")


FIELDS = ("numeric", "bits", "predict", "line", "code", "free", "match")


@pytest.mark.parametrize("kind", KINDS)
def test_the_help_names_the_keys_that_do_something(kind, chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    with page_of(chromium, one(kind)) as bare:
        keys = named(bare)
        assert ("h" in keys) is (kind not in FIELDS)
        assert ("Shift+Enter" if kind == "code" else "Enter") in keys
        assert press_what_is_named(bare) == []
    with page_of(chromium, one(kind)) as bare:
        assert answer(bare) == ("ticking" if kind == "free" else "answered")
        keys = named(bare)
        assert keys == (["1", keys[1], "Enter"] if kind == "free" else ["Enter"])
        assert press_what_is_named(bare) == []


def test_h_is_offered_while_there_is_a_hint(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    with page_of(chromium, one("order", hints=False)) as bare:
        assert "h" not in named(bare)
    with page_of(chromium, one("order")) as bare:
        bare.page.keyboard.press("b")
        hint = bare.root.get_by_role("button", name="Hint")
        assert hint.count() == 1
        bare.page.keyboard.press("h")
        bare.answer(bare.said[-1])
        assert bare.root.locator(".lk-list li").count() == 1
        assert "h" not in named(bare) and hint.count() == 0, "there was one"
        assert bare.root.locator("[aria-pressed=true]").count() == 1, "what was chosen stays"
    mocks = (sittings.new_mock(load_bank(), minutes=5, seed=seed) for seed in range(99))
    mock = next(mock for mock in mocks if mock.card.question.hints.en and mock.card.keys)
    with page_of(chromium, mock) as bare:
        assert "h" not in named(bare) and "Enter" in named(bare)


def test_an_answer_that_is_not_complete_is_said(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    for kind in ("choice", "order", "match", "numeric"):
        with page_of(chromium, one(kind)) as bare:
            bare.page.keyboard.press("Enter")
            unclear = bare.root.locator(".dc-unclear")
            assert "not complete" in unclear.inner_text()
            assert bare.requests() == []
            bare.page.keyboard.press("3" if kind in ("choice", "numeric") else "b")
            assert unclear.inner_text() == ""


def test_h_is_a_letter_in_a_field_and_on_its_card(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    with page_of(chromium, one("numeric")) as bare:
        bare.page.keyboard.press("h")
        bare.root.focus()
        bare.page.keyboard.press("h")
        assert bare.root.locator("input").first.input_value() == "hh"
        bare.root.get_by_role("button", name="Hint").focus()
        assert bare.requests() == []
        bare.page.keyboard.press("Space")
        assert [request["do"] for request in bare.requests()] == ["hint"]


def test_options_and_what_was_chosen_stay_after_an_answer(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    with page_of(chromium, one("choice")) as bare:
        card = bare.widget.sitting.card
        wrong = next(i for i, key in enumerate(card.keys) if key != right_answer(card))
        shown = bare.root.locator(".lk-text").all_inner_texts()
        for key in str(wrong + 1), "Enter":
            bare.page.keyboard.press(key)
        bare.answer(bare.said[-1])
        options = bare.root.locator(".dc-noted li")
        assert bare.root.locator(".lk-text").all_inner_texts() == shown
        assert "your choice, not right" in options.nth(wrong).inner_text()
        right = card.keys.index(right_answer(card))
        assert options.nth(right).inner_text().endswith("right")
        said = "() => document.querySelector('.lk-spoken').textContent"
        bare.page.wait_for_function(f"{said}.includes('your choice, not right')")
