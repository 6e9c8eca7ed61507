"""The one parser of the questions' Markdown: tables, formulas in dollars, raw HTML as text."""

from collections.abc import Callable

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin


def parser(
    formula: Callable[[str, dict], str],
    highlight: Callable[[str, str, str], str] | None = None,
) -> MarkdownIt:
    """A parser whose ``render`` gives HTML.

    ``formula`` writes a formula, whose ``display_mode`` is among the options that it gets;
    ``highlight`` colours code, of (code, language, attributes).
    """
    # Without "html" what looks like a tag stays text.
    found = MarkdownIt("commonmark", {"html": False, "highlight": highlight}).enable("table")
    return found.use(dollarmath_plugin, renderer=formula, double_inline=True)
