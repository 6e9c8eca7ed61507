"""Where the course's data and notebooks lie: in a checkout at its top, in a wheel inside labkit."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_SHIPPED = _PACKAGE / "_shipped"

IN_CHECKOUT = not _SHIPPED.is_dir()
"""True where labkit runs from a clone of the repository, False from an installed wheel."""

_ROOT = _PACKAGE.parent if IN_CHECKOUT else _SHIPPED
DATA = _ROOT / "data"
NOTEBOOKS = _ROOT / "notebooks"

LEARNERS = ("formats", "devices", "emulation", "training", "measuring", "plots.py")
"""The part of labkit that learners import and read; the sandbox holds it whole."""
