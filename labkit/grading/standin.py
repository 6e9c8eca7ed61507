"""What a notebook finds instead of checks and solutions in the grader: any name, any call.

A notebook's setup cell imports its checks and labkit's own answers, and added cells may call them.
No check, no judge and no known answer is there; ``yours`` gives labkit's own, as in a notebook
where nothing has passed.
"""

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import types

_lent: dict[str, object] = {}
_STOOD_IN = re.compile(r"labkit\.(checks\..+|labs\.\w+\.(checks|predictions|solutions)(\..+)?)")


class Anything:
    """Takes every call and has every attribute; calls what ``lend`` has put behind its name."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        lent = _lent.get(self._name)
        return None if lent is None else lent(*args, **kwargs)


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
        return Anything(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if _STOOD_IN.fullmatch(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def install() -> None:
    """Let ``labkit.checks`` and everything below it be stand-ins from now on.

    So too ``checks``, ``predictions`` and ``solutions`` of each lab's folder.
    """
    for name in list(sys.modules):
        if name == "labkit.checks" or _STOOD_IN.fullmatch(name):
            del sys.modules[name]
    package = StandIn("labkit.checks")
    package.__spec__ = importlib.machinery.ModuleSpec("labkit.checks", None, is_package=True)
    sys.modules["labkit.checks"] = package
    sys.modules["labkit"].checks = package
    sys.meta_path.insert(0, _Finder())


def furnish(data: dict[str, dict]) -> None:
    """Give stand-ins of check modules the constants that a lab's notebook reads from them."""
    for module, constants in data.items():
        vars(importlib.import_module(module)).update(constants)


def lend(objects: dict[str, object]) -> None:
    """Put labkit's own answers behind their names: labkit.labs.loss_scaling.solutions.fate.

    One exercise may build on another: ``step = yours(scaled_step, ours.scaled_step)``.
    """
    _lent.update(objects)
