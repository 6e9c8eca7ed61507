"""``import_transformers``: a module of transformers, an optional extra, quiet and without network.

transformers imports torchao where it finds it, shows progress bars, and asks the Hugging Face Hub
for files that it does not find. The course's cells build models from a local configuration.
"""

from types import ModuleType

from labkit.base.optional import import_quietly
from labkit.base.torchao import WITHOUT_LIBRARIES

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def import_transformers(module: str = "transformers") -> ModuleType:
    """transformers, or one of its modules, such as ``"transformers.models.gpt2"``.

    The first import of a session takes some seconds and settles three things until its end: no
    request leaves the machine, no progress bar is drawn, and transformers logs errors only. Name
    the module of the model's class, since ``transformers`` itself imports a class when it is first
    asked for. Raises ImportError with a sentence that says what to do: where transformers is not
    installed, and where it fails to import beside the installed torch.
    """
    logs = _import("transformers.utils.logging")
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    return _import(module)


def _import(module: str) -> ModuleType:
    settings = _OFFLINE | WITHOUT_LIBRARIES
    return import_quietly("transformers", module, version="5.23.0", settings=settings)
