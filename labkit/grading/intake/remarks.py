"""Remarks: what an instructor should look at, each with its kind, its student and a sentence."""

import unicodedata
from dataclasses import dataclass

KINDS = {
    "contradicting": "Contradicting identities",
    "merged": "Several files of one student and lab",
    "dropped": "Files that were not graded",
    "unknown": "Not in the roster",
    "missing": "Nothing was handed in",
    "ungraded": "Exercises that are not graded",
    "repaired": "Repaired while reading",
    "lms": "Marks that the LMS's files do not bring back",
    "shortcut": "Forbidden shortcuts",
    "copied": "Copies of the published solution",
    "identical": "Identical answers",
    "slow": "Slowest",
}
"""The kinds of remark in the order in which they are listed, with the heading of each."""

LONGEST = 1_000
"""Characters of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """``kind`` is a key of ``KINDS``; ``who`` a student or a path; ``said`` one sentence."""

    kind: str
    who: str
    said: str


def one_line(text: str, longest: int = LONGEST) -> str:
    """A text as one line of at most ``longest`` characters that can be written anywhere."""
    text = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    text = "".join(c if unicodedata.category(c) not in ("Cc", "Cf") else "?" for c in text)
    return text if len(text) <= longest else text[: longest - 4] + " ..."


def quoted(name: str) -> str:
    """A name between backticks, of which it holds none: a page can tell where it ends."""
    return f"`{name.replace('`', chr(39))}`"
