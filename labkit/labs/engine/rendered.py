"""The questions' Markdown as HTML: formulas as MathML, code coloured, raw HTML shown as text.

JupyterLab's own renderer is out of a widget's reach. Everything here comes from the bank; what a
learner typed is never rendered, only shown as text.
"""

import functools
import html

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from labkit.labs.engine import markdown


@functools.cache
def _markdown() -> MarkdownIt:
    return markdown.parser(_formula, _coloured)


def _formula(content: str, options: dict) -> str:
    try:
        return convert(content, display="block" if options["display_mode"] else "inline")
    except Exception:  # latex2mathml raises many kinds; a formula it cannot read stays as written
        return f"<code>{html.escape(content)}</code>"


def _coloured(code: str, language: str, attributes: str) -> str:
    return highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))


def text(written: str) -> str:
    """Markdown as HTML; formulas stand in dollars.

    >>> text("a <b>tag</b> and `code`")
    '<p>a &lt;b&gt;tag&lt;/b&gt; and <code>code</code></p>\\n'
    """
    return _markdown().render(written)


def line_html(written: str) -> str:
    """One line of Markdown as HTML without a paragraph around it."""
    return _markdown().renderInline(written)


def code_lines(python: str) -> str:
    """Python as coloured HTML in lines, each in a list item."""
    rows = _coloured(python.strip("\n"), "python", "").rstrip("\n").split("\n")
    return (
        '<ol class="lk-code">' + "".join(f"<li><code>{row}</code></li>" for row in rows) + "</ol>"
    )
