"""``import_torchao``: a module of torchao, an optional extra, imported without a word on stderr."""

from types import ModuleType

from labkit.base.optional import import_quietly

WITHOUT_LIBRARIES = {"TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1"}
"""Keeps torchao from loading its compiled libraries, which fit few installed torches."""


def import_torchao(module: str = "torchao") -> ModuleType:
    """torchao, or one of its modules, such as ``"torchao.prototype.mx_formats.mx_tensor"``.

    Import every module that warns through this function, for a module's warnings come when it is
    first imported. Raises ImportError with a sentence that says what to do: where torchao is not
    installed, and where it fails to import beside the installed torch.
    """
    return import_quietly("torchao", module, version="0.18.0", settings=WITHOUT_LIBRARIES)
