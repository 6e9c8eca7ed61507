"""What a notebook finds instead of labkit.checks in the grader: it accepts every name and call.

A notebook's setup cell imports its checks, and added cells may call them. No check, no judge and
no known answer is there; ``yours`` gives labkit's own, as in a notebook where nothing has passed.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Anything:
    """Takes every call and has every attribute."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        return None


def _yours(answer, ours):
    return ours


def _whose(thing) -> str:
    return "labkit's"


def _reveal(guess=..., sure=None, prediction=None):
    # As in a notebook: the body runs once there is a guess.
    return lambda body: None if guess is ... else body()


class StandIn(types.ModuleType):
    """A module with every name in it."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []  # a package: its submodules may be imported
        self.yours, self.whose, self.reveal = _yours, _whose, _reveal
        for error in ("AnswerError", "CheckFailed", "Mistake"):
            setattr(self, error, type(error, (Exception,), {}))

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("labkit.checks."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def install() -> None:
    """Let ``labkit.checks`` and everything below it be stand-ins from now on."""
    import labkit

    for name in [name for name in sys.modules if name.startswith("labkit.checks")]:
        del sys.modules[name]
    package = StandIn("labkit.checks")
    package.__spec__ = importlib.machinery.ModuleSpec("labkit.checks", None, is_package=True)
    sys.modules["labkit.checks"] = labkit.checks = package
    sys.meta_path.insert(0, _Finder())
