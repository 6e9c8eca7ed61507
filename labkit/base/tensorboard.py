"""``import_tensorboard``: a module that needs tensorboard, an optional extra, imported quietly."""

from types import ModuleType

from labkit.base.optional import import_quietly


def import_tensorboard(module: str = "tensorboard") -> ModuleType:
    """tensorboard, or a module that needs it, such as ``"torch.utils.tensorboard"``.

    Raises ImportError with a sentence that says what to do: where tensorboard is not installed, and
    where it fails to import.
    """
    return import_quietly("tensorboard", module, version="2.21.0", settings={})
