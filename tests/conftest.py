"""A course of one tiny lab, written where a test may spoil it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_lab import TINY


@pytest.fixture
def course(tmp_path: Path) -> Callable[..., Path]:
    """Write sources (``name=text``; by default the tiny lab) and return the notebooks folder."""

    def write(**sources: str) -> Path:
        notebooks = tmp_path / "notebooks"
        for name, text in (sources or {"02_tiny": TINY}).items():
            path = notebooks / "source" / f"{name.removeprefix('lab_')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return notebooks

    return write
