"""One line for a learner: as HTML in a notebook, as text everywhere else."""

import html

from IPython.display import display

_PASSED = "var(--jp-success-color1, #2e7d32)"


def passed(title: str, message: str) -> None:
    """A line that says what has passed."""
    line(f"✓ {title}: passed. {message}", color=_PASSED)


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


def line(text: str, *, color: str) -> None:
    """Show one line with a coloured edge; the text twin is the line itself."""
    markup = (
        f'<div style="border-left: 4px solid {color}; padding: 2px 8px">{html.escape(text)}</div>'
    )
    display({"text/plain": text, "text/html": markup}, raw=True)


def aside(title: str, text: str) -> None:
    """What the learner's own code said, below a heading; nothing when it said nothing."""
    if text.strip():
        print(f"{title}\n{text.rstrip()}")
