"""A widget's page: the elements and colours that all share, then the widget's own file.

A widget's JavaScript is one module, so what the widgets share is put before it as text.
"""

from pathlib import Path

LABKIT = Path(__file__).resolve().parents[2]


def _read(name: str) -> str:
    (path,) = LABKIT.rglob(name)
    return path.read_text(encoding="utf-8")


ELEMENTS = _read("elements.js")
LOOK = _read("elements.css")


def script(name: str) -> str:
    """The JavaScript module of the widget ``name``: the shared elements, then name.js."""
    return ELEMENTS + _read(f"widget_{name}.js")


def style(name: str) -> str:
    """The style sheet of the widget ``name``: the shared classes lk, then name.css."""
    return LOOK + _read(f"widget_{name}.css")
