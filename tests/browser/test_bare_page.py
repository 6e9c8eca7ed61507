"""Every widget in a page without Jupyter: its bundle, its styles and themes, no network."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from labkit.devices import Description, device_of
from labkit.devices.roofline import roofs
from labkit.interview.sittings import DrillSitting
from labkit.interview.widget_drill_card import DrillCard
from labkit.labs.automatic_mixed_precision.call_order import CALLS
from labkit.labs.automatic_mixed_precision.dtype_map import record_block
from labkit.labs.automatic_mixed_precision.predictions import six_ops
from labkit.labs.automatic_mixed_precision.widget_call_order import CallOrder
from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap
from labkit.labs.choosing_precision.allocation import total
from labkit.labs.choosing_precision.widget_sensitivity_map import SensitivityMap
from labkit.labs.detective.widget_nan_detective import NanDetective
from labkit.labs.engine.widget_prediction import PredictionCard
from labkit.labs.fp8_and_fp4.widget_block_bench import BlockBench
from labkit.labs.hardware_and_benchmarks.widget_device_card import DeviceCard
from labkit.labs.hardware_and_benchmarks.widget_roofline import SIZES, Roofline
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow
from labkit.labs.loss_scaling.widget_scale_timeline import ScaleTimeline
from labkit.labs.memory_and_many_gpus.widget_memory_tape import MemoryTape
from labkit.labs.monitoring_and_debugging.widget_alarm_bench import AlarmBench
from labkit.labs.number_formats import predictions as guesses
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer
from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import ReachTheSum
from labkit.labs.production.widget_rollout import Rollout
from labkit.labs.quantization.widget_clip_dial import ClipDial
from labkit.labs.real_models.widget_crash_rig import CrashRig
from labkit.labs.three_crimes.widget_run_race import RunRace
from labkit.training import StepRecord
from tests.browser.conftest import GLANCE
from tests.browser.contrast import contrasts
from tests.interview.small_bank import small_bank
from tests.labs.engine.test_widget_pages import WIDGETS
from tests.labs.memory_and_many_gpus.small_tape import small_tape

pytestmark = pytest.mark.browser

# What anywidget documents of a model. Python hears at once what is sent; its answers wait until a
# test lets them through.
MODEL = """
window.model = {
  state: JSON.parse(document.querySelector("#state").textContent),
  changed: {}, heard: {}, sent: [],
  get(name) { return this.state[name]; },
  set(name, value) {
    this.state[name] = this.changed[name] = value;
    this.tell(name);
  },
  save_changes() {
    this.sent.push(this.changed);
    window.toPython(JSON.stringify(this.changed));
    this.changed = {};
  },
  send() {},
  on(event, act) { (this.heard[event] ??= []).push(act); },
  off(event, act) { this.heard[event] = (this.heard[event] ?? []).filter((each) => each !== act); },
  tell(name) { for (const act of this.heard[`change:${name}`] ?? []) act(); },
  take(numbers) {
    this.state.numbers = numbers;
    this.tell("numbers");
  },
};
"""
RENDER = """async () => {
  const module = await import("./widget.bundle.js");
  window.quit = await module.default.render({ model, el: document.querySelector("#el") });
}"""


class BarePage:
    """A widget in a page; ``said`` holds Python's answers, ``answer`` lets one through."""

    def __init__(self, page, widget) -> None:
        self.page, self.widget = page, widget
        self.root = page.locator(".lk")
        self._said: list[dict] = []

    @property
    def said(self) -> list[dict]:
        self.page.evaluate("0")  # what the page called before is here when this is answered
        return self._said

    def state(self) -> dict:
        shown = self.widget.get_state()
        private = {name for name in shown if name.startswith("_")}
        return {name: shown[name] for name in shown.keys() - private - {"layout"}}

    def hear(self, changed: str) -> None:
        """Python takes what the page sent, at once."""
        for name, value in json.loads(changed).items():
            setattr(self.widget, name, value)
        self._said.append(self.widget.numbers)

    def answer(self, numbers: dict) -> None:
        self.page.evaluate("(numbers) => model.take(numbers)", numbers)

    def requests(self) -> list[dict]:
        return self.page.evaluate("() => model.sent.map((sent) => sent.request)")


@contextmanager
def bare_page(chromium, widget):
    page = chromium.new_page()
    page.set_default_timeout(GLANCE * 1000)
    bare, asked, wrong = BarePage(page, widget), [], []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.expose_function("toPython", bare.hear)
    state = json.dumps(bare.state()).replace("<", "\\u003c")
    files = {
        "/": (
            "text/html",
            '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
            f"<style>{widget._css}</style><div id=el></div>"
            f'<script type="application/json" id=state>{state}</script><script>{MODEL}</script>',
        ),
        "/widget.bundle.js": ("text/javascript; charset=utf-8", str(widget._esm)),
    }

    def serve(route) -> None:
        path = "/" + route.request.url.removeprefix("http://bare.page").lstrip("/")
        asked.append(path)
        if path in files:
            kind, body = files[path]
            route.fulfill(content_type=kind, body=body)
        else:
            route.abort()

    page.route("**/*", serve)
    page.goto("http://bare.page/")
    page.evaluate(RENDER)
    try:
        yield bare
        assert asked == list(files), "a widget loads its bundle and nothing else"
        assert wrong == []
    finally:
        page.close()


T4 = Description(name="Tesla T4", kind="cuda", capability="7.5")
RECORDS = [StepRecord(i, 2.0 - i, 1.0, 2.0**16, False) for i in range(3)]
COSTS = {"embed": {4: 0.01, 8: 1e-4}, "head": {4: 0.03, 8: 2e-4}}
BUILT = {
    AlarmBench: lambda tmp: AlarmBench(),
    BlockBench: lambda tmp: BlockBench(),
    CallOrder: lambda tmp: CallOrder(),
    ClipDial: lambda tmp: ClipDial(),
    CrashRig: lambda tmp: CrashRig(),
    DeviceCard: lambda tmp: DeviceCard([device_of(T4)]),
    DrillCard: lambda tmp: DrillCard(
        DrillSitting(bank := small_bank(tmp), [bank.questions["pick"]]), language="en"
    ),
    DtypeMap: lambda tmp: DtypeMap({"FP16": record_block()}),
    FormatExplorer: lambda tmp: FormatExplorer(value="0.1"),
    GradientWindow: lambda tmp: GradientWindow(torch.tensor([1e-9, 1e-3, 0.5])),
    MemoryTape: lambda tmp: MemoryTape(tape=small_tape, goal=0.26),
    NanDetective: lambda tmp: NanDetective(0),
    PredictionCard: lambda tmp: PredictionCard(guesses.step_at_2048, 2048.0),
    ReachTheSum: lambda tmp: ReachTheSum(),
    Rollout: lambda tmp: Rollout(),
    Roofline: lambda tmp: Roofline(roofs("fp16", devices=["T4"])),
    RunRace: lambda tmp: RunRace(),
    ScaleTimeline: lambda tmp: ScaleTimeline(RECORDS),
    SensitivityMap: lambda tmp: SensitivityMap(
        COSTS, {"embed": 3000, "head": 1000}, lambda bits: total(bits, COSTS), 0.02
    ),
}


# How each element looks now; later, where it looks otherwise than before. The looks stay in the
# page: there are 100,000 of them.
LOOKS = """() => {
  window.looks = () => [...document.querySelectorAll(".lk, .lk *")].map((element) => {
    const style = getComputedStyle(element);
    return [...style].map((name) => `${name}: ${style.getPropertyValue(name)}`);
  });
  window.before = looks();
  return before.length;
}"""
CHANGED = """() => {
  const elements = [...document.querySelectorAll(".lk, .lk *")];
  return looks().flatMap((style, i) => style.filter((rule, k) => rule !== before[i][k])
    .map((rule) => `${elements[i].tagName} .${elements[i].getAttribute("class")} has now ${rule}`));
}"""


def ticked(bare) -> None:
    bare.root.focus()
    bare.page.keyboard.press("2")


def answered(bare) -> None:
    bare.root.focus()
    for key in "1", "Enter", "3":
        bare.page.keyboard.press(key)
    bare.answer(bare.said[0])


def pressed(*keys: str):
    """Press keys, each after the answer to the one before."""

    def press(bare) -> None:
        bare.root.focus()
        for key in keys:
            bare.page.keyboard.press(key)
            bare.answer(bare.said[-1])

    return press


FURTHER = {
    "a guess that ticks": (lambda tmp: PredictionCard(six_ops, (False,) * 6), ticked),
    "a guess that was made": (BUILT[PredictionCard], answered),
    "a card with a choice": (BUILT[DrillCard], ticked),
    "a card that was answered": (BUILT[DrillCard], answered),
    "a fact that is read": (
        BUILT[DeviceCard],
        lambda bare: bare.root.get_by_role("button", name="storable").first.click(),
    ),
    "a case with readings": (lambda tmp: NanDetective(3), pressed("3", "7", "5", "6")),
    "a case that is closed": (lambda tmp: NanDetective(12), pressed("4", "5", "8", "a", "Enter")),
}
STATES = {widget.__name__: (made, lambda bare: None) for widget, made in BUILT.items()} | FURTHER
THEMES = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")

# Text that its element, or the drawing that it stands in, cuts off.
CUT = """() => {
  const cut = [];
  for (const element of document.querySelectorAll(".lk, .lk *")) {
    if (element.closest(".lk-spoken") || !element.textContent.trim()) continue;
    const style = getComputedStyle(element);
    const hides = !["visible", "auto", "scroll"].includes(style.overflowX);
    const root = element.closest(".lk").getBoundingClientRect();
    const box = element.getBoundingClientRect();
    if (hides && element.scrollWidth > element.clientWidth + 1) cut.push(element.textContent);
    if (box.width && (box.right > root.right + 1 || box.left < root.left - 1))
      cut.push(element.textContent);
  }
  for (const text of document.querySelectorAll(".lk svg text")) {
    const box = text.getBoundingClientRect(), drawing = text.closest("svg").getBoundingClientRect();
    if (box.left < drawing.left - 1 || box.right > drawing.right + 1
        || box.top < drawing.top - 1 || box.bottom > drawing.bottom + 1) cut.push(text.textContent);
  }
  return cut;
}"""


@pytest.mark.parametrize("name", STATES)
def test_a_widget_alone_in_a_page(name, chromium, tmp_path, monkeypatch):
    """It is drawn, is not changed by the styles of all others, can be read, and lets go."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    made, do = STATES[name]
    with bare_page(chromium, made(tmp_path)) as bare:
        assert bare.root.count() == 1
        assert bare.root.get_attribute("role") == "group" and bare.root.get_attribute("aria-label")
        assert bare.root.evaluate("(root) => getComputedStyle(root).borderTopStyle") == "solid"
        controls = bare.root.locator("button, select, input")
        assert controls.count() > 0
        kept = "(all) => all.every((each) => each.closest('[data-lm-suppress-shortcuts=true]'))"
        assert controls.evaluate_all(kept), "JupyterLab would take their keys"
        do(bare)
        assert bare.page.evaluate(LOOKS) > 1
        others = [str(widget._css) for widget in WIDGETS if widget is not type(bare.widget)]
        bare.page.add_style_tag(content="\n".join(others))
        assert bare.page.evaluate(CHANGED) == []
        for theme in ("light", "dark"):
            bare.page.add_style_tag(path=THEMES / f"theme-{theme}-extension" / "index.css")
            light = str(theme == "light").lower()
            bare.page.evaluate("(light) => { document.body.dataset.jpThemeLight = light; }", light)
            found = contrasts(bare.page, ".lk")
            assert len(found) > 3
            assert [each for each in found if each[0] < 4.5] == [], theme
        if name not in FURTHER:
            bare.page.set_viewport_size({"width": 600, "height": 900})
            assert bare.page.evaluate(CUT) == []
        listening = "() => Object.values(model.heard).flat().length"
        assert bare.page.evaluate(listening) > 0
        bare.page.evaluate("() => quit()")
        assert bare.page.evaluate(listening) == 0, "a view that is closed still listens"


def test_a_late_answer_is_ignored(chromium):
    with bare_page(chromium, CallOrder(list(CALLS))) as bare:
        calls = bare.root.locator(".co-call")
        for _ in range(2):  # faster than answers come
            calls.first.focus()
            bare.page.keyboard.press("Delete")
        assert [request["seq"] for request in bare.requests()] == [1, 2]
        late, newest = bare.said
        before = calls.all_inner_texts()
        bare.answer(late)
        assert calls.all_inner_texts() == before == list(CALLS)[2:]
        assert bare.root.locator(".co-verdict").inner_text() != newest["verdict"]
        bare.answer(newest)
        assert bare.root.locator(".co-verdict").inner_text() == newest["verdict"]


def test_wishes_that_wait_are_joined(chromium):
    with bare_page(chromium, ReachTheSum()) as bare:
        press = {n: bare.root.get_by_role("button", name=f"add 1, {n} times") for n in (10, 1000)}
        for n in (10, 1000, 1000, 10):
            press[n].click()
        assert [request.get("add") for request in bare.requests()] == [10]
        bare.answer(bare.said[0])
        assert bare.requests()[1:] == [{"seq": 2, "add": 2010}]
        press[10].click()
        bare.root.get_by_label("Format").select_option("bf16")
        bare.answer(bare.said[1])
        assert bare.root.get_by_label("Format").input_value() == "bf16"
        assert bare.requests()[2:] == [{"seq": 3, "format_name": "bf16"}]
        bare.answer(bare.said[2])
        assert bare.root.get_by_text("of 0 ones").is_visible()


def test_of_sizes_that_wait_only_the_newest_is_asked_for(chromium):
    with bare_page(chromium, Roofline(roofs("fp16", devices=["T4"]))) as bare:
        slider = bare.root.get_by_role("slider")
        slider.focus()
        for _ in range(4):
            bare.page.keyboard.press("ArrowRight")
        first = SIZES.index(512)
        assert [request["index"] for request in bare.requests()] == [first + 1]
        bare.answer(bare.said[0])
        assert slider.input_value() == str(first + 4), "the slider stays where it was moved to"
        assert [request["index"] for request in bare.requests()] == [first + 1, first + 4]
        bare.answer(bare.said[1])
        assert "8192 x 8192" in bare.root.inner_text()


def test_wishes_that_cannot_be_joined_are_done_in_order(chromium):
    frames = [({-30: 5, -5: 1}, 0.06)] * 3
    with bare_page(chromium, GradientWindow(frames)) as bare:
        slider = bare.root.get_by_role("slider")
        slider.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
            bare.page.keyboard.press(key)
        bare.root.get_by_role("button", name="next frame").click()
        slider.focus()
        bare.page.keyboard.press("ArrowRight")
        for place in range(4):
            bare.answer(bare.said[place])
        wishes = [{k: v for k, v in request.items() if k != "seq"} for request in bare.requests()]
        assert wishes == [{"k": 1}, {"k": 3}, {"next": True}, {"k": 4}]
        assert (bare.widget.k, bare.widget.frame) == (4, 1)


def test_settings_that_wait_are_set_together(chromium):
    with bare_page(chromium, MemoryTape(tape=small_tape)) as bare:
        slider = bare.root.get_by_role("slider")
        bare.root.get_by_role("button", name="autocast").click()
        slider.focus()
        bare.page.keyboard.press("ArrowRight")  # a place in the step that is not shown any more
        bare.root.get_by_role("button", name="block 2 checkpointed").click()
        bare.root.get_by_label("Chunks of the loss").select_option("16")
        assert bare.requests() == [{"seq": 1, "settings": {"autocast": True}}]
        bare.answer(bare.said[0])
        settings = {"checkpointed": [2], "loss_chunks": 16}
        assert bare.requests()[1:] == [{"seq": 2, "settings": settings}]
        assert bare.root.get_attribute("aria-busy") == "true"
        assert bare.root.get_by_label("Chunks of the loss").input_value() == "16"
        bare.answer(bare.said[1])
        assert bare.root.get_attribute("aria-busy") is None
        assert bare.root.locator(".mt-reading").inner_text().startswith("The peak")
        chosen = bare.root.get_by_role("button", name="block 2 checkpointed")
        assert chosen.get_attribute("aria-pressed") == "true"


def test_what_python_changes_is_drawn(chromium):
    with bare_page(chromium, FormatExplorer(value="1")) as bare:
        bare.widget.text = "2"
        bare.answer(bare.widget.numbers)
        assert bare.root.locator(".fe-exact output").inner_text() == "2"
