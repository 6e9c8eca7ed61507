"""Pages from templates: Jinja2, which escapes everything that a template is given.

A template is a file beside the module that fills it, and its name is its path in labkit, such as
``grading/report/feedback.html``. A name that a template asks for and is not given is an error.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_LABKIT = Path(__file__).resolve().parents[2]


def render(template: str, **facts: object) -> str:
    """The text of a template filled with ``facts``; raises jinja2.UndefinedError where one lacks.

    A fact that is HTML already is a ``markupsafe.Markup``; all others are escaped.
    """
    return _environment().get_template(template).render(facts)


@functools.cache
def _environment() -> Environment:
    # When the first page is asked for: commands that only print do not wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_LABKIT),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_writable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _writable(value: object) -> object:
    """Text with ``?`` for what no page can hold: halves of surrogate pairs, and NUL."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    return value
