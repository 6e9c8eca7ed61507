"""FormatExplorer in a real JupyterLab: mouse, keyboard, names, frames, themes, zoom."""

import re

import nbformat
import pytest

from labkit.formats import BF16, FP16, decode, encode
from labkit.labs.number_formats.exact_numbers import decimal_in_full
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer
from tests.browser.contrast import contrasts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    "import time\n"
    "from pathlib import Path\n"
    "from labkit.formats import FP16, FORMATS\n"
    "from labkit.labs.number_formats.widget_format_explorer import FormatExplorer",
    "explorer = FormatExplorer(FP16, '1')\nexplorer",
    "print(explorer.describe())",
    "print('held')\nwhile not Path('released').exists():\n    time.sleep(0.05)",
    "explorer.text = '0.1'",
]

# Asks the page for its own state in the first frame after the next key or click. It is taken once
# the page has handled the event, so that it holds only what was drawn without the kernel: where
# frames are late, an answer may come before the frame.
NEXT_FRAME = """(type) => new Promise((resolve) => {
    const root = document.querySelector(".fe"), facts = root.querySelector(".fe-facts");
    const state = () => ({
        bits: [...root.querySelectorAll(".fe-bit")].map((bit) => bit.textContent).join(""),
        pressed: [...root.querySelectorAll(".fe-bit")]
            .map((bit) => bit.getAttribute("aria-pressed") === "true" ? "1" : "0").join(""),
        k: root.querySelector(".fe-marker")?.dataset.k,
        left: root.querySelector(".fe-marker")?.style.left,
        waiting: facts.getAttribute("aria-busy"),
    });
    root.addEventListener(type, () => {
        let seen = null;
        new MutationObserver(() => { seen ??= state(); }).observe(facts, { attributes: true });
        requestAnimationFrame(() => resolve(seen));
    }, { once: true, capture: true });
})"""


class Explorer:
    """The widget of the page, as a learner meets it."""

    def __init__(self, lab) -> None:
        self.lab = lab
        self.page = lab.page
        self.root = lab.page.locator(".fe")

    def settle(self) -> None:
        """Wait until the numbers are here."""
        self.page.locator(".fe:not(.fe-waiting)").wait_for()

    def bit(self, name: str):
        return self.root.get_by_role("button", name=name, exact=True)

    def button(self, name: str):
        return self.root.get_by_role("button", name=re.compile("^" + re.escape(name)))

    @property
    def format_box(self):
        return self.root.get_by_label("Format")

    @property
    def text_box(self):
        return self.root.get_by_label("Value x")

    def code(self) -> int:
        """What the bits on the screen say."""
        return int("".join(self.root.locator(".fe-bit").all_inner_texts()), 2)

    def focused(self) -> str:
        return self.page.evaluate(
            "() => document.activeElement.ariaLabel ?? document.activeElement.className"
        )

    def shows(self, code: int, fmt=FP16) -> None:
        """Bits and numbers say this code, and labkit agrees about its value."""
        self.settle()
        self.page.wait_for_function(
            "(hex) => document.querySelector('.fe-facts code')?.textContent === hex",
            arg=f"0x{code:0{-(-fmt.bits // 4)}X}",
        )
        assert self.code() == code
        pressed = self.root.locator(".fe-bit").evaluate_all(
            "(bits) => bits.map((bit) => bit.ariaPressed === 'true' ? 1 : 0).join('')"
        )
        assert int(pressed, 2) == code
        assert self.root.locator(".fe-exact output").inner_text() == decimal_in_full(
            decode(code, fmt)
        )

    def after_next(self, event: str, act) -> dict:
        """Do something real, and return what the page showed one frame after the event."""
        self.page.evaluate(f"window.seen = ({NEXT_FRAME})('{event}'); 0")
        act()
        return self.page.evaluate("window.seen")


@pytest.fixture(scope="module")
def notebook(module_lab):
    """One notebook, opened once: a kernel takes longer to start than all that is tested in it."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(CELLS)]
    written = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(written, module_lab.root / "explorer.ipynb")
    module_lab.open("explorer.ipynb")
    module_lab.run_cell(0)
    return module_lab


@pytest.fixture
def closed(notebook):
    """A fresh widget on 1.0 in fp16, as it comes, in a light window of the usual size."""
    notebook.page.set_viewport_size({"width": 1280, "height": 900})
    notebook.page.emulate_media(reduced_motion="no-preference")
    notebook.theme("JupyterLab Light")
    notebook.run_cell(1)
    notebook.page.locator(".fe").wait_for()
    fresh = Explorer(notebook)
    fresh.shows(0x3C00)
    return fresh


@pytest.fixture
def explorer(closed):
    """The same with both of its tables open."""
    for summary in closed.root.locator("summary").all():
        summary.click()
    return closed


def test_the_legend_stands_side_by_side(closed):
    """JupyterLab lays out every list of terms in an output, and this one is no exception."""
    # One call measures all: between two calls the page may move.
    places = closed.root.locator(".fe-legend > div").evaluate_all(
        "all => all.map(each => each.getBoundingClientRect().toJSON())"
    )
    assert len(places) == 5
    assert len({place["y"] for place in places}) == 1, places
    assert [place["x"] for place in places] == sorted({place["x"] for place in places})


def test_tables_are_closed_at_first_and_stay_open(closed):
    assert not closed.root.locator("table").first.is_visible()
    rounding = closed.root.get_by_text("Every rounding of x")
    rounding.focus()
    closed.page.keyboard.press("Enter")
    table = closed.root.get_by_role("table")
    assert table.count() == 1 and table.is_visible()
    closed.button("1 ulp up").click()
    closed.shows(0x3C01)
    assert table.is_visible()


def test_by_mouse(explorer):
    explorer.bit("mantissa bit 0, weight 1/1024").click()
    explorer.shows(0x3C01)
    explorer.bit("exponent bit 4, weight 16").click()
    explorer.shows(0x7C01)
    assert "no place on the line" in explorer.root.locator(".fe-line").inner_text()
    explorer.bit("exponent bit 4, weight 16").click()
    explorer.bit("sign bit, 1 means negative").click()
    explorer.shows(0xBC01)
    explorer.button("negate").click()
    explorer.shows(0x3C01)
    explorer.button("1 ulp down").click()
    explorer.shows(0x3C00)
    explorer.button("1 ulp down").click()
    explorer.shows(0x3BFF)
    explorer.button("1 ulp up").click()
    explorer.shows(0x3C00)
    explorer.button("× 2").click()
    explorer.shows(0x4000)
    explorer.button("÷ 2").click()
    explorer.button("÷ 2").click()
    explorer.shows(encode(0.5, FP16))
    explorer.format_box.select_option("bf16")
    explorer.shows(encode(0.5, BF16), BF16)
    assert explorer.root.locator("tr[aria-current] th").inner_text() == "bf16"


def test_by_keyboard_alone(explorer):
    page = explorer.page
    explorer.format_box.focus()
    page.keyboard.press("Tab")
    assert "fe-text" in explorer.focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("65519.99")
    page.keyboard.press("Enter")
    explorer.shows(0x7BFF)
    assert "x = 65519.99" in explorer.root.locator(".fe-line").inner_text()

    for name, code in [("1 ulp down", 0x7BFE), ("1 ulp up", 0x7BFF)]:
        page.keyboard.press("Tab")
        assert explorer.focused().startswith(name)
        page.keyboard.press("Enter")
        explorer.shows(code)
    for name, code in [("÷ 2", 0x77FF), ("× 2", 0x7BFF), ("negate", 0xFBFF)]:
        page.keyboard.press("Tab")
        assert explorer.focused().startswith(name)
        page.keyboard.press("Space")
        explorer.shows(code)

    page.keyboard.press("Tab")  # the bits are one stop
    assert explorer.focused() == "sign bit, 1 means negative"
    page.keyboard.press("Space")
    explorer.shows(0x7BFF)
    for key, name in [
        ("ArrowRight", "exponent bit 4, weight 16"),
        ("End", "mantissa bit 0, weight 1/1024"),
        ("ArrowRight", "mantissa bit 0, weight 1/1024"),
        ("ArrowLeft", "mantissa bit 1, weight 1/512"),
        ("Home", "sign bit, 1 means negative"),
        ("ArrowLeft", "sign bit, 1 means negative"),
        ("End", "mantissa bit 0, weight 1/1024"),
    ]:
        page.keyboard.press(key)
        assert explorer.focused() == name
        assert explorer.root.locator(".fe-bit[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    explorer.shows(0x7BFE)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    explorer.shows(0x7C00)
    page.keyboard.press("ArrowUp")  # inf is the end
    explorer.shows(0x7C00)
    page.keyboard.press("ArrowDown")
    explorer.shows(0x7BFF)
    page.keyboard.press("Shift+Tab")
    assert explorer.focused().startswith("negate")

    explorer.format_box.focus()
    page.keyboard.press("ArrowDown")
    explorer.shows(encode(65504.0, BF16), BF16)
    page.keyboard.press("ArrowUp")
    explorer.shows(0x7BFF)


def test_a_bad_entry_is_explained_and_the_value_stays(explorer):
    explorer.text_box.fill("1..5")
    explorer.text_box.press("Enter")
    explorer.settle()
    message = explorer.root.locator(".fe-message")
    assert message.get_attribute("aria-live") == "polite"
    assert "'1..5' is no number here" in message.inner_text()
    assert explorer.text_box.get_attribute("aria-invalid") == "true"
    assert explorer.text_box.input_value() == "1..5"  # to be mended, not typed again
    explorer.shows(0x3C00)
    explorer.text_box.fill("1.5")
    explorer.text_box.press("Enter")
    explorer.shows(0x3E00)
    assert message.inner_text() == ""
    explorer.page.wait_for_function(
        "() => document.querySelector('.lk-spoken').textContent === "
        "'fp16: 1.5, normal, code 0x3E00'"
    )


def test_command_mode_takes_no_key(explorer):
    page, lab = explorer.page, explorer.lab
    cells = lab.cell_count()
    controls = explorer.root.locator("button, input, select, summary, [tabindex]")
    assert controls.evaluate_all(
        "(all) => all.every((e) => e.dataset.lmSuppressShortcuts === 'true')"
    )
    kinds = [
        explorer.text_box,
        explorer.button("1 ulp up"),
        explorer.button("negate"),
        explorer.bit("sign bit, 1 means negative"),
        explorer.bit("exponent bit 2, weight 4"),
        explorer.bit("mantissa bit 3, weight 1/128"),
        explorer.format_box,  # last: letters choose another format
    ]
    for control in kinds:
        control.focus()
        for key in ["b", "a", "d", "d", "x", "m", "ArrowDown", "ArrowUp", "j", "k", "Escape"]:
            page.keyboard.press(key)
        assert lab.cell_count() == cells
        assert page.evaluate("() => document.activeElement.closest('.fe') !== null")
    assert [lab.cell_source(i) for i in range(cells)] == CELLS
    assert page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets.every("
        "(cell) => cell.model.type === 'code')"
    )


def test_every_control_has_a_name_and_a_state(explorer):
    tree = explorer.root.aria_snapshot()
    for line in [
        'group "FormatExplorer"',
        'combobox "Format"',
        'textbox "Value x"',
        'button "1 ulp down: to the next value below"',
        'button "sign bit, 1 means negative"',
        'button "exponent bit 3, weight 8" [pressed]',
        'button "mantissa bit 9, weight 1/2"',
        'group "exponent, 5 bits"',
        'table "x = 1 in every format, to nearest even"',
        'img "Number line of fp16: 1, with 0.99951171875 below (gap 2⁻¹¹)',
    ]:
        assert line in tree, tree
    unnamed = explorer.root.locator("button, input, select").evaluate_all(
        "(all) => all.filter((e) => !(e.ariaLabel || e.labels?.[0]?.textContent.trim()))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    states = explorer.root.locator(".fe-bit").evaluate_all(
        "(bits) => bits.map((bit) => bit.getAttribute('aria-pressed'))"
    )
    assert states == ["true" if bit == "1" else "false" for bit in f"{0x3C00:016b}"]


def test_bits_and_marker_follow_a_key_in_the_next_frame(explorer):
    bit = explorer.bit("mantissa bit 0, weight 1/1024")
    bit.focus()
    left = explorer.root.locator(".fe-marker").evaluate("(marker) => marker.style.left")
    seen = explorer.after_next("keydown", lambda: explorer.page.keyboard.press("ArrowUp"))
    assert seen["bits"] == seen["pressed"] == f"{0x3C01:016b}"
    assert seen["k"] == str(0x3C01)
    assert seen["left"] != left
    assert seen["waiting"] == "true"  # the numbers were not here yet: the page drew this alone
    explorer.shows(0x3C01)
    seen = explorer.after_next("click", lambda: explorer.page.keyboard.press("Space"))
    assert seen["bits"] == seen["pressed"] == f"{0x3C00:016b}"
    assert seen["waiting"] == "true"
    explorer.shows(0x3C00)


def test_a_busy_kernel_greys_the_numbers_and_only_the_newest_answer_counts(explorer):
    page = explorer.page
    explorer.lab.cell(3).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    explorer.lab.cell(3).locator(".jp-OutputArea-output").wait_for()
    explorer.bit("mantissa bit 0, weight 1/1024").focus()
    for _ in range(5):
        page.keyboard.press("ArrowUp")
    assert explorer.code() == 0x3C05
    assert explorer.root.locator(".fe-marker").get_attribute("data-k") == str(0x3C05)
    assert explorer.root.locator(".fe-facts").get_attribute("aria-busy") == "true"
    assert explorer.root.locator(".fe-facts code").inner_text() == "0x3C00"
    explorer.button("× 2").click()  # its answer is Python's: it waits for its turn
    (explorer.lab.root / "released").touch()
    explorer.shows(0x4005)
    explorer.lab.wait_idle()


def test_an_answer_to_an_older_request_is_ignored(explorer):
    explorer.bit("mantissa bit 0, weight 1/1024").click()
    explorer.shows(0x3C01)
    page = explorer.page
    # The page asked once; an answer numbered 0 comes too late.
    page.evaluate(
        """async () => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const late = `{"seq": 0, "code": 0, "hex": "0x0"}`;
            const code = `explorer.numbers = explorer.numbers | ${late}`;
            await kernel.requestExecute({ code }).done;
        }"""
    )
    page.wait_for_timeout(300)  # time for the wrong thing to happen
    assert explorer.code() == 0x3C01
    assert explorer.root.locator(".fe-facts code").inner_text() == "0x3C01"


def test_python_moves_the_page_and_the_page_moves_python(explorer):
    explorer.lab.run_cell(4)
    explorer.shows(encode(0.1, FP16))
    explorer.button("1 ulp up").click()
    explorer.shows(encode(0.1, FP16) + 1)
    explorer.lab.run_cell(2)
    printed = explorer.lab.output_text(2)
    assert printed.startswith("fp16, x = 0.10003662109375: 0.10003662109375 (normal, code 0x2E67)")


def test_the_saved_text_is_the_description(explorer):
    data = explorer.lab.output_data(1)[0]["data"]
    text = data["text/plain"]
    assert ("".join(text) if isinstance(text, list) else text) == FormatExplorer(
        FP16, "1"
    ).describe()


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_stands_out_in_both_themes(explorer, theme):
    explorer.lab.theme(theme)
    explorer.text_box.fill("1e9")  # overflow and underflow have colours of their own
    explorer.text_box.press("Enter")
    explorer.settle()
    explorer.page.wait_for_function(  # until the grey has faded
        "() => document.querySelector('.fe').getAnimations({ subtree: true }).length === 0"
    )
    found = contrasts(explorer.page, ".fe")
    assert len(found) > 100
    assert [each for each in found if each[0] < 4.5] == []


@pytest.mark.parametrize("name", ["fp32", "fp16", "e8m0", "e2m1"])
def test_the_widget_fits_at_200_percent(explorer, name):
    # A window of 1280 pixels at 200 % has 640 of them; JupyterLab keeps half for itself.
    explorer.page.set_viewport_size({"width": 640, "height": 900})
    explorer.format_box.select_option(name)
    explorer.text_box.fill("1e-45" if name == "fp32" else "3.3")
    explorer.text_box.press("Enter")
    explorer.settle()
    too_wide = explorer.root.evaluate(
        """(root) => {
            const edge = root.getBoundingClientRect().right + 1;
            return [...root.querySelectorAll("*")]
                .filter((e) => e.checkVisibility() && !e.closest(".fe-line, .lk-spoken, thead"))
                .filter((e) => e.getBoundingClientRect().right > edge)
                .map((e) => e.outerHTML.slice(0, 200));
        }"""
    )
    assert too_wide == []
    assert explorer.root.evaluate("(root) => root.scrollWidth <= root.clientWidth + 1")
    output = explorer.lab.cell(1).locator(".jp-OutputArea-output").first
    assert output.evaluate("(area) => area.scrollWidth <= area.clientWidth + 1")


def test_reduced_motion_is_respected(explorer):
    duration = "(box) => getComputedStyle(box).transitionDuration"
    assert explorer.root.locator(".fe-facts").evaluate(duration) != "0s"
    explorer.page.emulate_media(reduced_motion="reduce")
    assert explorer.root.locator(".fe-facts").evaluate(duration) == "0s"
