"""Of which lab, and of which version of it, a learner's notebook is a copy."""

import json
import os
import re
from pathlib import Path
from typing import Any

from labkit.base.home import NOTEBOOKS, read_manifest


def copied(notebook: Any) -> tuple[str, str] | None:
    """Of which lab and version a notebook's content is a copy; None for any other notebook."""
    try:
        facts = notebook["metadata"]["labkit"]
        lab, version = facts["lab"], facts["version"]
        sound = all(
            isinstance(cell["metadata"], dict) and "source" in cell for cell in notebook["cells"]
        )
    except (KeyError, TypeError, IndexError):
        return None
    # The version becomes part of a file name.
    if not sound or not re.fullmatch(r"[0-9a-f]{12}", str(version)):
        return None
    return str(lab), version


def stale_copy(path: str | os.PathLike[str], *, notebooks: Path = NOTEBOOKS) -> str | None:
    """A sentence where the notebook's version is not the course's, else None.

    A file that is no notebook of this course has no version, so the answer is None too.
    """
    try:
        mine = copied(json.loads(Path(path).read_bytes()))
    except (OSError, ValueError):
        return None
    labs = {lab.lab: lab.version for lab in read_manifest(notebooks).labs} if mine else {}
    if not mine or labs.get(mine[0], mine[1]) == mine[1]:
        return None
    return (
        f"This copy of {mine[0]} is version {mine[1]}, the course now has {labs[mine[0]]}. "
        "`python -m labkit start` brings it up to date and keeps your answers."
    )
