"""``import_quietly``: a module of an optional extra, imported without a word on stderr.

The extras' imports warn of libraries that do not fit the installed torch, and of their own use of
torch. No cell here needs these libraries, and what a notebook writes to stderr fails its test.
"""

import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType


def import_quietly(
    package: str, module: str, *, version: str, settings: Mapping[str, str]
) -> ModuleType:
    """The module of this package, imported with these environment variables set meanwhile.

    Raises ImportError with a sentence that says what to do: where the package is not installed,
    and where it fails to import beside the installed torch.
    """
    install = f"install it with `pip install {package}=={version}`, then restart the kernel"
    with _silence(settings):
        try:
            importlib.import_module(package)
            return importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                raise ImportError(f"{package} is not installed: {install}") from None
            raise ImportError(f"{module} cannot be imported ({error}): {install}") from error


@contextmanager
def _silence(settings: Mapping[str, str]) -> Iterator[None]:
    """No warnings, of Python's kind or logged; the environment afterwards as before."""
    before = {name: os.environ.get(name) for name in settings}
    disabled = logging.root.manager.disable
    os.environ.update(settings)
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
