"""One line for a learner: as HTML in a notebook, as text everywhere else."""

import html

from IPython.display import display

_PASSED = "var(--jp-success-color1, #2e7d32)"
_NEUTRAL = "var(--jp-ui-font-color2, #757575)"

# JupyterLab draws every error output in pink, as text of one mime type with stderr. So the error
# below a neutral line bears a mark, and a style sheet hides what bears it: no other error, and
# nothing that the learner's code wrote.
UNSEEN = "\x1b[30m \x1b[39m"
"""A traceback of nothing but a space in black. Where it is empty, JupyterLab writes the message."""

_NOT_ATTEMPTED = "labkit-not-attempted"
_NO_ERROR_BELOW = f"""\
<style class="{_NOT_ATTEMPTED}">.jp-OutputArea-child:has(.{_NOT_ATTEMPTED}) + \
.jp-OutputArea-child:has(> [data-mime-type$=stderr] > pre > .ansi-black-fg:only-child) \
{{ display: none }}</style>"""


def passed(title: str, message: str) -> None:
    """A line that says what has passed."""
    line(f"✓ {title}: passed. {message}", color=_PASSED)


def not_attempted(title: str, message: str) -> None:
    """A neutral line; JupyterLab then hides the error below it whose traceback is ``UNSEEN``."""
    line(f"○ {title}: not attempted. {message}", color=_NEUTRAL, style=_NO_ERROR_BELOW)


def claim(sentence: str, truth: object) -> None:
    """State a claim that the code has just decided: a tick and the sentence, or an error.

    Args:
        sentence: what holds, as a reader reads it.
        truth: anything with a truth value; a tensor of more than one element is refused by torch.

    Raises:
        AssertionError: with the sentence, when ``truth`` is false.

    >>> claim("65519 rounds to 65504 in FP16", True)
    ✓ 65519 rounds to 65504 in FP16
    """
    if not truth:
        raise AssertionError(f"does not hold: {sentence}")
    print(f"✓ {sentence}")


def line(text: str, *, color: str, style: str = "") -> None:
    """Show one line with a coloured edge; the text twin is the line itself.

    Args:
        text: the line.
        color: of its edge, in CSS.
        style: a style sheet that stands before it, as an element.
    """
    markup = (
        f'{style}<div style="border-left: 4px solid {color}; padding: 2px 8px">'
        f"{html.escape(text)}</div>"
    )
    display({"text/plain": text, "text/html": markup}, raw=True)


def aside(title: str, text: str) -> None:
    """What the learner's own code said, below a heading; nothing when it said nothing."""
    if text.strip():
        print(f"{title}\n{text.rstrip()}")
