"""What a notebook finds instead of the engine and the checks: modules with any name, for any call.

A notebook's setup cell imports its checks, and added cells may call them. No check, no judge and
no known answer is there; ``yours`` gives labkit's own, as in a notebook where nothing has passed.
"""

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import types

STOOD_FOR = re.compile(
    r"labkit\.(course|interview|labs\.(engine|\w+\.(checks|predictions|slips|solutions|widget_\w+)))"
    r"(\.|$)"
)
"""The modules that are not in the sandbox and that a notebook may import all the same."""

BESIDE = ("codec", "own_work", "running")
"""The modules of ``labkit.labs.engine`` that are in the sandbox: they run beside an answer."""

_lent: dict[str, object] = {}


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


def _predict(prediction=None):
    # No answer reads what a prediction computes: its body does not run.
    return lambda body: Anything("predict")


class StandIn(types.ModuleType):
    """A module with every name in it."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []  # a package: its submodules may be imported
        self.yours, self.whose = _yours, _whose
        self.predict = _predict
        for error in ("AnswerError", "CheckFailed", "Mistake"):
            setattr(self, error, type(error, (Exception,), {}))

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if STOOD_FOR.match(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def install_stand_ins() -> None:
    """Let the modules of ``STOOD_FOR`` be stand-ins from now on."""
    for name in [name for name in sys.modules if STOOD_FOR.match(name)]:
        parent, _, child = name.rpartition(".")
        vars(sys.modules.get(parent, types.ModuleType(parent))).pop(child, None)
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())


def furnish(data: dict[str, dict]) -> None:
    """Give stand-ins of check modules the constants that a lab's notebook reads from them."""
    for module, constants in data.items():
        vars(importlib.import_module(module)).update(constants)


def lend(objects: dict[str, object]) -> None:
    """Put labkit's own answers behind their names, such as ``fate`` of lab 04's checks.

    One exercise may build on another: ``step = yours(scaled_step, part.scaled_step)``.
    """
    _lent.update(objects)
