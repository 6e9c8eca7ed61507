"""Remarks: what an instructor should look at, each with its kind, its student and a sentence."""

from dataclasses import dataclass

KINDS = {
    "contradicting": "Contradicting identities",
    "merged": "Several files of one student and lab",
    "dropped": "Files that were not graded",
    "unknown": "Not in the roster",
    "repaired": "Repaired while reading",
    "slow": "Slowest",
}
"""The kinds of remark in the order in which they are listed, with the heading of each."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """``kind`` is a key of ``KINDS``; ``who`` a student or a path; ``said`` one sentence."""

    kind: str
    who: str
    said: str
