"""Which code is the learner's, and where it uses what an exercise asks the learner to write.

A check may forbid functions that do its exercise's work: ``@check(run, own_work=("math.fsum",))``.
While such a check runs the answer, a profile function sees each call. A use counts only in a frame
of the learner's, so what labkit or torch calls inside does not count. It is *by name* where the
learner's code holds the function's own name, and found out by the call alone where it does not, as
with ``getattr(math, "fs" + "um")``. Calls of numpy's ufuncs and of C's types are not seen: there
the names that the learner's code reads tell.

An answer that wants to hide a call from this can: it only tells what ordinary code does.
"""

import contextlib
import dis
import functools
import inspect
import linecache
import os
import sys
import sysconfig
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

LINE_LIMIT = 200
"""Characters kept of the line that is quoted."""

_NOT_THE_LEARNERS = (
    "<frozen",
    f"{Path(__file__).resolve().parents[2]}{os.sep}",
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")),
)

_LOADS_NAME = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")
_LOADS_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """One forbidden function that an answer uses.

    ``name`` is its dotted name; ``line`` the learner's line, "" where the answer itself is made of
    the function; ``by_name`` whether the learner's code holds its name.
    """

    name: str
    line: str
    by_name: bool


def is_learners(frame: types.FrameType) -> bool:
    """Whether a frame runs the learner's code: neither labkit's nor a library's nor Python's.

    labkit's own answers, in a lab's ``solutions.py``, are answers like any other.
    """
    return _is_learners(frame.f_code.co_filename)


def _is_learners(name: str) -> bool:
    return not name.startswith(_NOT_THE_LEARNERS) or Path(name).name == "solutions.py"


@contextlib.contextmanager
def noticing(
    own_work: tuple[str, ...], run: Callable[..., object], answer: object
) -> Iterator[list[dict[str, Any]]]:
    """Notice in the block what the learner's code uses of ``own_work``; nothing for ``()``.

    Args:
        own_work: dotted names. No package is imported for them: what is not there is not used yet.
        run: the first half of the check; what it uses itself does not count.
        answer: what is run; it counts too where it is such a function, or a class or a partial of
            one.

    Yields:
        A list that holds the fields of each ``Shortcut`` once the block has ended.
    """
    found: list[dict[str, Any]] = []
    if not own_work:
        yield found
        return
    watch = _Watch(own_work, run)
    watch.look_at(answer)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(before)
        found += [
            {"name": name, "line": line, "by_name": by_name}
            for (name, by_name), line in watch.found.items()
        ]


def reported(value: Any, own_work: tuple[str, ...]) -> list[Shortcut]:
    """The shortcuts of a report that may hold anything; by their names in ``own_work``'s order."""
    found = []
    for one in value if type(value) is list else []:
        fields = one if type(one) is dict else {}
        name, line, by_name = (fields.get(key) for key in ("name", "line", "by_name"))
        if type(name) is str and name in own_work and type(line) is str and type(by_name) is bool:
            found.append(Shortcut(name=name, line=line, by_name=by_name))
    return sorted(found, key=lambda one: own_work.index(one.name))


@dataclass(frozen=True)
class _Function:
    """A function of Python: its dotted name, and the code of the wrappers around it."""

    name: str
    wrappers: tuple[types.CodeType, ...]


@dataclass(frozen=True)
class _Method:
    """A method of a class that is written in C: its dotted name, and the class."""

    name: str
    owner: type


_Read = tuple[tuple[str, ...], int]
"""What code reads, such as ("math", "fsum"), and its line."""


@dataclass(frozen=True, kw_only=True)
class _Reads:
    """What one code object reads. ``code`` is kept, so that nothing else gets its id.

    ``holds`` says whether one of the forbidden words stands in it; ``by_name`` are the reads that
    end in one, ``otherwise`` the others that were not looked up yet.
    """

    code: types.CodeType
    holds: bool
    by_name: list[_Read]
    otherwise: list[_Read]


class _Watch:
    """A profile function; ``found`` maps (dotted name, by name) to the first line that uses it."""

    def __init__(self, own_work: tuple[str, ...], run: Callable[..., object]) -> None:
        self.found: dict[tuple[str, bool], str] = {}
        while isinstance(run, functools.partial):
            run = run.func
        self.file_of_run = getattr(getattr(run, "__code__", None), "co_filename", "")
        self.things: dict[int, tuple[str, Any]] = {}  # by id: not everything can be hashed
        self.functions: dict[int, _Function] = {}
        self.methods: dict[str, list[_Method]] = defaultdict(list)
        self.read: dict[int, _Reads] = {}
        self.words = {name.rpartition(".")[2] for name in own_work}
        self.open = list(own_work)  # names whose modules are not loaded
        self._load()

    def __call__(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            called = self.functions.get(id(frame.f_code))
            if called:
                self._called(called.name, _caller(frame, called.wrappers))
        elif event == "c_call":
            if name := self._builtin(arg):
                self._called(name, frame)
        elif event == "return":  # its local names are bound now
            self._returned(frame)

    def look_at(self, answer: Any) -> None:
        """An answer that is such a function itself, a subclass or a partial of it."""
        for one in answer if type(answer) is tuple else (answer,):
            while isinstance(one, functools.partial):
                one = one.func
            for base in one.__mro__ if isinstance(one, type) else (one,):
                if id(base) in self.things:
                    self.found[self.things[id(base)][0], True] = ""

    def _load(self) -> None:
        """Look up the names whose modules have been imported by now."""
        found = {name: _loaded(name) for name in self.open}
        self.open = [name for name, thing in found.items() if thing is None]
        for name, thing in found.items():
            if thing is not None:
                self._add(name, thing)

    def _add(self, name: str, thing: Any) -> None:
        self.things.setdefault(id(thing), (name, thing))
        if isinstance(thing, types.MethodDescriptorType):
            self.methods[thing.__name__].append(_Method(name, thing.__objclass__))
        if isinstance(thing, type):
            # A class that inherits its __init__ would share the code with its relatives.
            thing = vars(thing).get("__init__")
        wrappers = []
        while hasattr(thing, "__wrapped__"):
            wrappers += [thing.__code__] if isinstance(thing, types.FunctionType) else []
            thing = thing.__wrapped__
        if isinstance(thing, types.FunctionType):
            self.functions.setdefault(id(thing.__code__), _Function(name, tuple(wrappers)))

    def _builtin(self, called: Any) -> str:
        """The dotted name of a function of C, "" where it is not forbidden."""
        if id(called) in self.things:
            return self.things[id(called)][0]
        methods = self.methods.get(called.__name__, ())
        return next((m.name for m in methods if isinstance(called.__self__, m.owner)), "")

    def _called(self, name: str, caller: types.FrameType | None) -> None:
        if caller is None or not self._counts(caller.f_code):
            return
        by_name = name.rpartition(".")[2] in _words(caller.f_code)
        self._note(name, by_name, caller, caller.f_lineno)

    def _returned(self, frame: types.FrameType) -> None:
        """What C calls unseen, as numpy's ufuncs or ``map(math.fsum, rows)``, is read off."""
        code = frame.f_code
        if id(code) not in self.read:
            self.read[id(code)] = self._reads(code)
        reads = self.read[id(code)]
        if self.open and reads.holds:
            self._load()
        for path, line in reads.by_name:
            known = self.things.get(id(_looked_up(path, frame)))
            if known and known[0].rpartition(".")[2] == path[-1]:
                self._note(known[0], True, frame, line)
        # A learner's function may return thousands of times: each other name is looked up once,
        # as soon as it stands for something.
        for path, line in tuple(reads.otherwise):
            if path[0] in code.co_varnames and path[0] not in frame.f_locals:
                continue
            reads.otherwise.remove((path, line))
            if known := self.things.get(id(_looked_up(path, frame))):
                self._note(known[0], False, frame, line)

    def _reads(self, code: types.CodeType) -> _Reads:
        counts = self._counts(code)
        reads = _all_reads(code) if counts else []
        return _Reads(
            code=code,
            holds=counts and not self.words.isdisjoint(_words(code)),
            by_name=[one for one in reads if one[0][-1] in self.words],
            otherwise=[one for one in dict.fromkeys(reads) if one[0][-1] not in self.words],
        )

    def _counts(self, code: types.CodeType) -> bool:
        return _is_learners(code.co_filename) and code.co_filename != self.file_of_run

    def _note(self, name: str, by_name: bool, frame: types.FrameType, line: int) -> None:
        text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
        by_name = by_name and bool(text)  # what eval makes has no text
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        self.found.setdefault((name, by_name), shorten(text, LINE_LIMIT, placeholder=" ..."))


def _caller(frame: types.FrameType, wrappers: tuple[types.CodeType, ...]) -> types.FrameType | None:
    """Who called a function, past the wrappers around it."""
    back = frame.f_back
    while back and (back.f_code in wrappers or back.f_code.co_filename == contextlib.__file__):
        back = back.f_back
    return back


def _words(code: types.CodeType) -> tuple[str, ...]:
    return code.co_names + code.co_freevars + code.co_varnames


def _all_reads(code: types.CodeType) -> list[_Read]:
    """What a code object reads by names alone: ("math",) and ("math", "fsum") of ``math.fsum``."""
    found: list[_Read] = []
    path: tuple[str, ...] = ()
    for one in dis.get_instructions(code):
        name = one.argval[-1] if type(one.argval) is tuple and one.argval else one.argval
        if one.opname.startswith(_LOADS_NAME) and type(name) is str:
            path = (name,)
        elif one.opname in _LOADS_ATTRIBUTE and path:
            path = (*path, name)
        else:
            path = ()
        if path and one.positions:
            found.append((path, one.positions.lineno or code.co_firstlineno))
    return found


def _looked_up(path: tuple[str, ...], frame: types.FrameType) -> Any:
    """What a path of names stands for in a frame; only modules and classes are looked into."""
    first, *rest = path
    return functools.reduce(_part, rest, frame.f_locals.get(first, frame.f_globals.get(first)))


def _loaded(name: str) -> Any:
    """What a dotted name such as ``torch.amp.GradScaler`` stands for; None until it is imported."""
    root, *rest = name.split(".")
    return functools.reduce(_part, rest, sys.modules.get(root))


def _part(whole: Any, name: str) -> Any:
    """A part of a module or a class; None where it has none or is neither."""
    if not isinstance(whole, types.ModuleType):
        return inspect.getattr_static(whole, name, None) if isinstance(whole, type) else None
    if name in vars(whole):
        return vars(whole)[name]
    if below := sys.modules.get(f"{whole.__name__}.{name}"):
        return below
    with contextlib.suppress(AttributeError, ImportError):
        # Packages of labkit offer names that their modules define.
        return vars(whole)["__getattr__"](name) if "__getattr__" in vars(whole) else None
    return None
