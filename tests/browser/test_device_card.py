"""DeviceCard in a real JupyterLab: mouse, keyboard, names."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def widget(workbench):
    return workbench.show(
        "from labkit.devices import Description, device_of\n"
        "from labkit.labs.hardware_and_benchmarks.widget_device_card import DeviceCard\n"
        "t4 = Description(name='Tesla T4', kind='cuda', capability='7.5')\n"
        "m1 = Description(name='Apple M1', kind='mps')\n"
        "card = DeviceCard([device_of(t4), device_of(m1)])\ncard"
    )


def fact(widget, dtype, name):
    row = widget.get_by_role("row", name=dtype)
    return row.get_by_role("button", name=name)


def test_the_row_of_the_recipe_is_marked_and_its_evidence_open(widget):
    marked = widget.locator(".dv-mark")
    assert marked.get_by_role("rowheader").all_inner_texts() == ["fp16"]
    opened = widget.locator("button[aria-pressed=true]")
    assert opened.count() == 1
    assert opened.get_attribute("aria-label") == "accelerated: yes"
    assert widget.locator(".dv-why").inner_text().startswith("fp16, accelerated: yes.")
    # What every device can is plain: frames are left to what tells devices apart.
    frames = widget.locator("tbody button").evaluate_all(
        "all => all.filter(b => getComputedStyle(b).borderTopColor != 'rgba(0, 0, 0, 0)')"
        ".map(b => b.getAttribute('aria-label'))"
    )
    assert frames.count("accelerated: yes") + frames.count("accelerated: no") == 8
    assert "storable: yes" not in frames and "computable: yes" not in frames


def test_by_mouse_an_answer_tells_its_evidence(widget):
    bf16 = fact(widget, "bf16", "accelerated")
    assert bf16.inner_text() == "no"
    bf16.click()
    assert bf16.get_attribute("aria-pressed") == "true"
    said = widget.locator(".dv-why").inner_text()
    assert said.startswith("bf16, accelerated: no. compute capability 7.5")
    assert said.endswith("(capability table).")


def test_by_keyboard_another_device(widget, workbench):
    cells = workbench.lab.cell_count()
    widget.get_by_role("combobox", name="Device").focus()
    workbench.page.keyboard.press("ArrowDown")
    widget.get_by_text("Recipe: FP32").wait_for()
    workbench.until("card.chosen", "1")
    widget.get_by_role("combobox", name="Device").focus()
    workbench.page.keyboard.press("Tab")
    workbench.page.keyboard.press("Enter")
    assert "fp64, storable: no" in widget.locator(".dv-why").inner_text()
    assert workbench.lab.cell_count() == cells
    workbench.say("setattr(card, 'chosen', 0)")
    widget.get_by_text("Recipe: FP16 with a loss scale").wait_for()
