"""The scripts of ``data/records``, for the few tests that compute a recorded number again."""

import importlib
import sys
from types import ModuleType

from labkit.base.home import DATA


def record_script(name: str) -> ModuleType:
    """The module ``data/records/NAME.py``; importing it defines what it does and writes nothing."""
    folder = str(DATA / "records")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
