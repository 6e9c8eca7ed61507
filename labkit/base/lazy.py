"""Names that a package offers and imports only when somebody asks for one.

``labkit.formats`` offers formats, which need nothing, beside functions of tensors, which need
torch: who asks for a format only does not wait for torch.
"""

from collections.abc import Callable
from importlib import import_module


def lazily(package: str, modules: dict[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package: ``modules`` maps a submodule to the names it gives.

    >>> find = lazily("json", {"decoder": "JSONDecoder JSONDecodeError"})
    >>> find("JSONDecoder").__name__
    'JSONDecoder'
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return find
