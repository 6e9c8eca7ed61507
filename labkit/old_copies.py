"""What an old copy of a lab is told where labkit has moved on.

``old_copies.txt`` names, a line a module, all that learner notebooks of earlier courses take from
labkit. Where one of these names is gone, its import raises ImportError, and `module.name` raises
AttributeError, with the sentence ``GONE``. Every other missing name is refused in Python's words.

``install`` changes ``sys.meta_path``, since Python asks nobody else about a module that is gone.
"""

import os
import sys
from collections.abc import Sequence
from importlib import machinery
from types import ModuleType

GONE = (
    "`{}` is gone: this copy of the lab is older than the course. Run `python -m labkit start`: it "
    "brings your copies up to date and keeps your answers."
)


def _taken() -> dict[str, set[str]]:
    """By module, what old copies take from it; by package, the modules in it too."""
    taken: dict[str, set[str]] = {}
    with open(os.path.join(os.path.dirname(__file__), "old_copies.txt"), encoding="utf-8") as file:
        for line in file:
            module, _, names = line.partition(":")
            taken.setdefault(module, set()).update(names.split())
            while module != "labkit":
                module, _, last = module.rpartition(".")
                taken.setdefault(module, set()).add(last)
    return taken


TAKEN = _taken()


def _spec(name: str, path: Sequence[str] | None) -> machinery.ModuleSpec | None:
    """Python's own spec of a module; None for the empty folder that a deleted one leaves behind."""
    spec = machinery.PathFinder.find_spec(name, path)
    return spec if spec and spec.origin else None


class _Loader(machinery.SourceFileLoader):
    """Loads a module that old copies take names from."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        there = vars(module)
        below = there.get("__path__", [])
        gone = {
            name
            for name in TAKEN[self.name] - there.keys()
            if not _spec(f"{self.name}.{name}", below)
        }
        if not gone:
            return

        def find(name: str) -> object:
            if name in gone:
                raise AttributeError(GONE.format(f"{self.name}.{name}"))
            raise AttributeError(f"module {self.name!r} has no attribute {name!r}")

        # With a path, what `from module import name` does not find is looked for as a module.
        there.setdefault("__path__", [])
        there.setdefault("__getattr__", find)  # a package that imports lazily has one


class _Finder:
    """The finder of what old copies import; it leaves all other names to those behind it."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        """The spec of a module; None too for a name that its package defines.

        Raises ImportError where an old copy imports the name and it is gone.
        """
        package, _, last = name.rpartition(".")
        if last not in TAKEN.get(package, ()):
            return None
        spec = _spec(name, path)
        if spec and spec.origin and name in TAKEN:
            spec.loader = _Loader(name, spec.origin)
        if not spec and not hasattr(sys.modules.get(package), last):
            raise ImportError(GONE.format(name), name=name)
        return spec


def install() -> None:
    """Let old copies be told from now on; `import labkit` calls this."""
    sys.meta_path.insert(0, _Finder())
