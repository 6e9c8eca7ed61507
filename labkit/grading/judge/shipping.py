"""The first half of a check as bytes for the sandbox: the function and what it refers to, no more.

``cloudpickle`` takes a function of a lab's checks or of labkit.labs.engine by value, with those
globals only that it reads. The modules of ``BESIDE`` stay references: they are in the sandbox. What
would carry a right answer along is refused here, so that a mistake in a check never becomes a leak.
"""

import copyreg
import importlib
import importlib.util
import io
import pickle
import pkgutil
import re
import sys
from pathlib import Path
from types import FunctionType, ModuleType

import cloudpickle
import torch

import labkit.labs.engine
from labkit.base import home
from labkit.base.home import read_manifest
from labkit.grading.sandbox import standin
from labkit.labs.engine import Check, KnownWrong, Slip
from labkit.labs.engine.slips import solutions_of

BESIDE = tuple(f"labkit.labs.engine.{name}" for name in standin.BESIDE)
_SOLUTIONS = re.compile(r"labkit\.labs\.\w+\.solutions(\.slips)?")
EXTRA = "labkit_extra_checks"
_CHECKS = re.compile(r"labkit\.labs\.(engine\.|\w+\.checks(\.|$))")


def _by_name(module: ModuleType) -> tuple:
    return importlib.import_module, (module.__name__,)


# A function that reads torch.backends refers to it, and cloudpickle knows modules of the plain
# class only.
copyreg.pickle(type(torch.backends), _by_name)


class ShippingError(Exception):
    """A check's first half refers to something that must stay with the judge."""


def check_modules() -> list[ModuleType]:
    """The modules of the engine and of every lab's checks, imported."""
    found = pkgutil.walk_packages(labkit.labs.__path__, "labkit.labs.")
    return [importlib.import_module(module.name) for module in found if _CHECKS.match(module.name)]


def checks_in(module: ModuleType) -> list[Check]:
    """The checks that a module defines, in the order of its text."""
    found = [value for value in vars(module).values() if type(value) is Check]
    return [check for check in found if check.judge.__module__ == module.__name__]


def load_extra(path: str) -> ModuleType:
    """The instructor's own checks: a Python file, written as a lab's ``checks`` is."""
    spec = importlib.util.spec_from_file_location(EXTRA, Path(path).resolve())
    module = importlib.util.module_from_spec(spec)
    sys.modules[EXTRA] = module
    spec.loader.exec_module(module)
    return module


def ship(check: Check, modules: list[ModuleType]) -> bytes:
    """The first half of a check, pickled; ``modules`` are those whose content goes by value.

    Raises ShippingError when the function refers to a check, a judge, a known wrong answer or a
    solution.
    """
    what = f"the first half of check {check.exercise} of {check.lab}"
    return _by_value(check.run, modules, what)


def ours(exercise: str, names: list[str], lab: str, modules: list[ModuleType]) -> bytes:
    """labkit's own answer to an exercise, if the lab's notebook offers one for later exercises.

    ``step = yours(scaled_step, ours.scaled_step)`` lets an exercise that uses ``step`` depend on
    ``scaled_step`` of the lab's solutions. It is lent to the exercises that come after, not to its
    own.
    """
    solutions = solutions_of(lab)
    text = (home.NOTEBOOKS / f"{lab}.ipynb").read_text(encoding="utf-8")
    found = {
        f"{solutions.__name__}.{name}": vars(solutions)[name]
        for name in names
        if re.search(rf"yours\(\w+, ours\.{name}\)", text)
    }
    what = f"labkit's own answer to {exercise} of {lab}"
    return _by_value(found, [*modules, solutions], what, lends=True)


def _by_value(thing, modules: list[ModuleType], what: str, *, lends: bool = False) -> bytes:
    by_value = [module for module in modules if module.__name__ not in BESIDE]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        kept = [c for module in modules for c in checks_in(module)]
        out = io.BytesIO()
        _Pickler(out, what, kept, lends).dump(thing)
        return out.getvalue()
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def public_data(lab: str, modules: list[ModuleType]) -> bytes:
    """What the lab's own notebook reads from its checks' modules: constants, pickled by module.

    An answer may use them (lab 05 reads its lists of operations so). The notebook shows them to
    everyone, so nothing here is secret.
    """
    read = {name for name in _names_read(lab) if name.isupper()}
    found = {}
    for module in (m for m in modules if getattr(m, "LAB", None) == lab):
        constants = {name: vars(module)[name] for name in read & vars(module).keys()}
        found[module.__name__] = {
            name: value for name, value in constants.items() if _is_plain(value)
        }
    return pickle.dumps(found)


def exercises(lab: str) -> dict[str, list[str]]:
    """The exercises of a lab and the names that each asks for, in the order of the notebook."""
    listed = [entry for entry in read_manifest(home.NOTEBOOKS).labs if entry.lab == lab]
    return {e.exercise: list(e.names) for entry in listed for e in entry.exercises}


def _names_read(lab: str) -> set[str]:
    """The words of the lab's learner notebook that follow a dot or a space: names it may read."""
    text = (home.NOTEBOOKS / f"{lab}.ipynb").read_text(encoding="utf-8")
    return set(re.findall(r"[.\s]([A-Za-z]\w*)", text))


def _is_plain(value) -> bool:
    if type(value) in (tuple, list, set, frozenset):
        return all(_is_plain(item) for item in value)
    return type(value) in (str, int, float, bool)


def _is_solution(obj) -> bool:
    name = obj.__name__ if isinstance(obj, ModuleType) else getattr(obj, "__module__", None)
    return isinstance(name, str) and _SOLUTIONS.fullmatch(name) is not None


class _Pickler(cloudpickle.Pickler):
    """Refuses what stays with the judge; a solution goes along only where it is lent."""

    def __init__(self, file, what: str, kept: list[Check], lends: bool):
        super().__init__(file)
        self.what = what
        self.lends = lends
        loaded = [m for name, m in sys.modules.items() if _SOLUTIONS.fullmatch(name)]
        # Python's own names are no answers, and __builtins__ is one dict that all modules share.
        values = [v for m in loaded for name, v in vars(m).items() if not name.startswith("__")]
        self.solved = {id(v): v for v in values if isinstance(v, (dict, list, tuple, set))}
        self.judges = {c.judge.__code__ for c in kept}
        self.wrong = {id(w.answer) for c in kept for w in c.known_wrong if callable(w.answer)}

    def reducer_override(self, obj):
        if isinstance(obj, FunctionType):
            # A dict or a list is pickled before it could be asked about here.
            read = [obj.__globals__.get(name) for name in obj.__code__.co_names]
            kept = obj.__code__ in self.judges or id(obj) in self.wrong
            kept = kept or (not self.lends and any(id(value) in self.solved for value in read))
        else:
            kept = isinstance(obj, (Check, KnownWrong, Slip)) or id(obj) in self.wrong
        if kept or (not self.lends and _is_solution(obj)):
            name = getattr(obj, "__name__", type(obj).__name__)
            raise ShippingError(
                f"{self.what} refers to {name}, which stays with the judge; write what it needs "
                "into a function apart"
            )
        return super().reducer_override(obj)
