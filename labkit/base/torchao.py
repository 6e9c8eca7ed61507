"""``import_torchao``: a module of torchao, an optional extra, imported without a word on stderr.

torchao's import warns of libraries that do not fit the installed torch, and of its own use of
torch. No cell here needs these libraries, and what a notebook writes to stderr fails its test.
"""

import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_INSTALL = "install it with `pip install torchao==0.18.0`, then restart the kernel"


def import_torchao(module: str = "torchao") -> ModuleType:
    """torchao, or one of its modules, such as ``"torchao.prototype.mx_formats.mx_tensor"``.

    Import every module that warns through this function, for a module's warnings come when it is
    first imported. Raises ImportError with a sentence that says what to do: where torchao is not
    installed, and where it fails to import beside the installed torch.
    """
    with _silence():
        try:
            importlib.import_module("torchao")
            return importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torchao":
                raise ImportError(f"torchao is not installed: {_INSTALL}") from None
            raise ImportError(f"{module} cannot be imported ({error}): {_INSTALL}") from error


@contextmanager
def _silence() -> Iterator[None]:
    """No warnings, of Python's kind or logged, and none of torchao's compiled libraries."""
    name = "TORCHAO_FORCE_SKIP_LOADING_SO_FILES"
    before, disabled = os.environ.get(name), logging.root.manager.disable
    os.environ[name] = "1"
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
