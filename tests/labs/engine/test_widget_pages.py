"""What holds for every widget: its module, its bundle, its wire to the page."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import labkit
from labkit.labs.engine.described import AskingWidget, DescribedWidget
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow
from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import ReachTheSum

for _module in pkgutil.walk_packages(labkit.__path__, "labkit."):
    if ".widget_" in _module.name:
        importlib.import_module(_module.name)
WIDGETS = sorted(
    {*DescribedWidget.__subclasses__(), *AskingWidget.__subclasses__()} - {AskingWidget},
    key=lambda widget: widget.__name__,
)
every_widget = pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: widget.__name__)


def beside(widget: type, ending: str) -> str:
    """The text of the file that stands beside the widget's own and differs in its ending."""
    path = Path(importlib.import_module(widget.__module__).__file__).with_suffix(ending)
    return path.read_text(encoding="utf-8")


@every_widget
def test_every_control_keeps_its_keys_from_jupyterlab(widget):
    module = beside(widget, ".js")
    assert "control(" in module or "button(" in module
    assert not re.findall(r"(?:node|createElement)\(\"(?:button|select|input|textarea)\"", module)


@every_widget
def test_a_module_is_made_of_the_shared_elements(widget):
    module = beside(widget, ".js")
    assert re.search(r'^import \{ .+ \} from "labkit/elements";$', module, re.MULTILINE)
    assert re.search(r'class: "lk [a-z]+"', module), "the root has the class lk and one of its own"
    assert 'get("request")' not in module, "the wire counts requests: wire(model).ask(...)"
    style = re.sub(r"/\*.*?\*/", "", beside(widget, ".css"))
    assert "#" not in style, "a colour of its own does not follow the theme: use the --lk- ones"


def test_no_two_widgets_share_a_class_of_their_own():
    """They stand on one page, so a class of both would take the style of both."""
    names = [re.search(r'class: "lk ([a-z]+)"', beside(widget, ".js"))[1] for widget in WIDGETS]
    assert len(set(names)) == len(names), sorted(names)
    for widget, name in zip(WIDGETS, names, strict=True):
        style = re.sub(r"/\*.*?\*/", "", beside(widget, ".css"), flags=re.DOTALL)
        classes = set(re.findall(r"\.([a-z]+)[\w-]*(?=[^{}]*\{)", style))
        assert classes <= {name, "lk"}, f"{widget.__name__} styles a class of another name"


@every_widget
def test_what_a_widget_sends_to_its_page_is_its_bundle(widget):
    assert str(widget._esm) == beside(widget, ".bundle.js")
    assert str(widget._css) == beside(widget, ".bundle.css")
    for of_all in ("function node(", "function control("):
        assert str(widget._esm).count(of_all) == 1
    assert ".lk-controls" in str(widget._css)


@every_widget
def test_a_bundle_loads_nothing(widget):
    bundled = str(widget._esm) + str(widget._css)
    assert not re.search(
        r"\bimport\b|\brequire\(|\bfetch\(|url\(|XMLHttpRequest|WebSocket", bundled
    )


def test_a_request_has_one_answer_and_the_answer_its_number():
    window = GradientWindow(torch.tensor([1e-3, 0.5]))
    window.k = 40  # overflows: a dynamic scale backs off at once, step by step
    answers = []
    window.observe(lambda change: answers.append(change["new"]), "numbers")
    window.request = {"seq": 7, "dynamic": True}
    assert [answer["seq"] for answer in answers] == [7]
    assert answers[0]["dynamic"] and answers[0]["k"] == window.k < 40
    window.k = 0
    assert [answer["seq"] for answer in answers] == [7, 7], "Python's own change asks for nothing"


def test_a_request_that_raises_leaves_the_widget_at_work():
    total = ReachTheSum()
    with pytest.raises(KeyError):
        total.request = {"seq": 1}
    total.add(3)
    assert total.numbers["total"] == "3"
