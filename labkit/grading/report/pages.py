"""What the pages for students and instructors share: one look, no scripts, everything escaped.

A page is one file that can be mailed: its style stands in it, allowed by its hash, and its
Content-Security-Policy allows nothing else, so that a student's text cannot become a program.
"""

import base64
import functools
import hashlib
from collections.abc import Iterable
from html import escape

LIGHT, DARK = "xcode", "github-dark"
"""Pygments' styles for code: of those tried the ones whose words all have a contrast of 4.5."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #54545a; --paper: #fff; --tint: #f3f4f6;
  --line: #c9ccd1; --link: #0b57d0; --good: #14692f; --bad: #b3261e; --open: #54545a;
  --bar: #3b6fb5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --soft: #b3b3ba; --paper: #16181c;
  --tint: #22252b; --line: #454a53; --link: #9ec3ff; --good: #7ad697; --bad: #ff9d94;
  --open: #b3b3ba; --bar: #7faae6; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.3rem; padding-top: 0.8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 0.2rem; overflow-wrap: anywhere; }
p { margin: 0.4rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.soft { color: var(--soft); }
.score { font-size: 1.1rem; font-weight: 600; }
.passed { color: var(--good); font-weight: 600; }
.failed, .error, .missing { color: var(--bad); font-weight: 600; }
.not { color: var(--open); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0.6rem 0; }
.caption { font-weight: 600; margin: 1.2rem 0 0; }
.wide { min-width: 14rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.9rem 0.35rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
ul { padding-left: 1.2rem; margin: 0.4rem 0; }
li { overflow-wrap: anywhere; }
pre { background: var(--tint); padding: 0.8rem 1rem; overflow-x: auto; border-radius: 6px;
  font-size: 0.875rem; line-height: 1.45; margin: 0.6rem 0; tab-size: 4;
  font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: 0.92em; }
pre code { font-size: inherit; }
pre:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
blockquote { margin: 0.5rem 0; padding: 0.1rem 0 0.1rem 0.9rem;
  border-left: 3px solid var(--line); }
svg { display: block; width: 42rem; height: auto; margin: 0.6rem 0; }
svg text { fill: var(--ink); font-size: 13px; font-family: inherit; }
svg .bar { fill: var(--bar); }
svg .axis { stroke: var(--line); stroke-width: 1; }
@media print { main { max-width: none; } pre { white-space: pre-wrap; } }
"""


def page(title: str, body: str) -> str:
    """A whole page; ``title`` is text, ``body`` is HTML whose text is escaped already."""
    style = _style()
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def text(words: object) -> str:
    """Anything as the text of a page, its letters only."""
    return escape(str(words).encode("utf-8", "replace").decode("utf-8").replace("\0", "?"))


def code(source: str) -> str:
    """Python source as HTML with its parts marked."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    # A program cannot show as it is read where it turns the direction of writing.
    visible = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in source)
    marked = highlight(visible, PythonLexer(ensurenl=False), HtmlFormatter(nowrap=True))
    return f'<pre dir="ltr" tabindex="0" class="code"><code>{marked}</code></pre>'


def table(
    caption: str,
    heads: list[str],
    rows: list[list[str]],
    *,
    numbers: Iterable[int] = (),
    wide: int | None = None,
) -> str:
    """A table of cells that are HTML, under its caption.

    ``numbers`` are the places of columns set to the right, ``wide`` that of long sentences.
    """
    kinds = {place: ' class="number"' for place in numbers}
    if wide is not None:
        kinds[wide] = ' class="wide"'
    head = "".join(f'<th scope="col"{kinds.get(p, "")}>{text(h)}</th>' for p, h in enumerate(heads))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{kinds.get(p, '')}>{cell}</td>" for p, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    # The caption stands outside of what scrolls sideways on a phone.
    return (
        f'<p class="caption">{text(caption)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table aria-label="{text(caption)}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def points(value: float | None, possible: float) -> str:
    """Points in words: `1.5 of 2`, or that there are none yet, or none to earn."""
    if value is None:
        return "not graded"
    return f"{value:g} of {possible:g}" if value or possible else "no points"


@functools.cache
def _style() -> str:
    from pygments.formatters import HtmlFormatter

    light, dark = (_rules(HtmlFormatter(style=style)) for style in (LIGHT, DARK))
    return (
        f"{_STYLE}@media not all and (prefers-color-scheme: dark) {{ {light} }}\n"
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
