"""What the pages for students and instructors share: one look, no scripts, everything escaped.

``page.html`` is their frame, ``page.css`` their style and ``table.html`` their tables.
"""

import base64
import functools
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from labkit.labs.engine.templates import render

LIGHT, DARK = "xcode", "github-dark"
"""Pygments' styles for code: of those tried the ones whose words all have a contrast of 4.5."""

_STYLE = Path(__file__).with_name("page.css")


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """A table of texts under its caption.

    ``numbers`` are the places of columns set to the right, ``wide`` that of long sentences.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    numbers: Collection[int] = ()
    wide: int | None = None


def page(template: str, **facts: object) -> str:
    """A whole page: a template of this folder that extends ``page.html``, filled with ``facts``."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render(f"grading/report/{template}", style=Markup(style), digest=digest, **facts)


@functools.lru_cache(maxsize=1_000)
def code_html(source: str) -> Markup:
    """Python source as HTML with its parts marked; Pygments escapes what it takes."""
    from pygments import highlight

    # A program cannot show as it is read where it turns the direction of writing.
    visible = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in source)
    marked = highlight(visible, *_python())
    return Markup('<pre dir="ltr" tabindex="0" class="code"><code>{}</code></pre>').format(
        Markup(marked)
    )


def points(value: float | None, possible: float) -> str:
    """Points in words: `1.5 of 2`, or that there are none yet, or none to earn."""
    if value is None:
        return "not graded"
    return f"{value:g} of {possible:g}" if value or possible else "no points"


@functools.cache
def _python() -> tuple:
    """Pygments' lexer and formatter; making them takes as long as an answer of ten lines."""
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return PythonLexer(ensurenl=False), HtmlFormatter(nowrap=True)


@functools.cache
def _style() -> str:
    from pygments.formatters import HtmlFormatter

    light, dark = (_rules(HtmlFormatter(style=style)) for style in (LIGHT, DARK))
    return (
        f"\n{_STYLE.read_text(encoding='utf-8')}"
        f"@media not all and (prefers-color-scheme: dark) {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {dark} }}\n"
    )


def _rules(formatter) -> str:
    # The page has its own ground; of a style only the colours of the words are taken.
    rules = formatter.get_style_defs(".code").splitlines()
    return "\n".join(
        rule
        for rule in rules
        if rule.startswith(".code .") and "background" not in rule and "linenos" not in rule
    )
