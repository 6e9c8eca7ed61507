"""What holds for the page of every widget."""

import importlib
import pkgutil
import re

import pytest

import labkit.widgets
from labkit.labs.engine import page
from labkit.labs.engine.described import DescribedWidget

for _module in pkgutil.iter_modules(labkit.widgets.__path__):
    importlib.import_module(f"labkit.widgets.{_module.name}")
WIDGETS = DescribedWidget.__subclasses__()


def _file(widget: type) -> str:
    return widget.__module__.rpartition(".")[2]


@pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: widget.__name__)
def test_every_control_keeps_its_keys_from_jupyterlab(widget):
    own = page.script(_file(widget)).removeprefix(page.ELEMENTS)
    assert "control(" in own or "button(" in own
    assert not re.findall(r"(?:node|createElement)\(\"(?:button|select|input|textarea)\"", own)


@pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: widget.__name__)
def test_a_page_is_drawn_with_the_shared_elements(widget):
    script, style = page.script(_file(widget)), page.style(_file(widget))
    assert script.count("function node(") == script.count("function control(") == 1
    assert re.search(r'class: "lk [a-z]+"', script), "the root has the class lk and one of its own"
    assert "#" not in re.sub(r"/\*.*?\*/", "", style.removeprefix(page.LOOK)), (
        "a colour of its own does not follow the theme: use the --lk- ones"
    )
