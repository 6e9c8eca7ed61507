"""What a learner notebook's cells are called: by their text, so that a changed cell is known."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """The SHA-256 of ``text`` in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def cell_id(cell_type: str, text: str, occurrence: int) -> str:
    """The id of the ``occurrence``-th cell (from 1) of this type and text in a learner notebook."""
    return f"lab-{digest(cell_type + chr(10) + text)[:12]}-{occurrence}"
