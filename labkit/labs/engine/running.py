"""Beside the answer: run a learner's code and bring back plain data, whatever it does.

This half holds no right answers. It returns bytes of ``labkit.labs.engine.codec``, so the same data
comes back whether the answer ran in the learner's kernel or in a sandbox behind a pipe.
"""

import contextlib
import dis
import io
import itertools
import linecache
import re
import sys
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from textwrap import shorten
from typing import Any

from labkit.labs.engine import codec
from labkit.labs.engine.codec import CodecError, Foreign, Raised
from labkit.labs.engine.own_work import is_learners, noticing

STUB = "your code here"
"""The message of the NotImplementedError that stands where a solution was taken out."""

TEXT_LIMIT = 2_000
"""Characters kept of what an answer prints or warns."""

ERROR_LIMIT = 300
"""Characters kept of an exception's message: torch closes some with pages on its dispatcher."""

_SEARCHED = 10_000  # characters of a message that are looked at

ITEMS_LIMIT = 10_000
"""Items drawn from a generator that an answer returns, and warnings heard while it runs."""

_WARNINGS_KEPT = 20


class NotAttempted(Exception):
    """The answer is still the stub."""


class TookTooLong(BaseException):
    """Raised in an answer that has run too long; no ``except Exception`` of the answer's stops it.

    Its message is the limit in seconds.
    """


def attempt(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an answer once: what it returns, or a ``Raised`` record of its exception.

    A generator is drained to ``ITEMS_LIMIT`` items and comes back as a list. ``KeyboardInterrupt``
    and ``TookTooLong`` pass through, and so does the stub's own marker, as ``NotAttempted``.
    """
    try:
        value = answer(*args, **kwargs)
        if isinstance(value, (types.GeneratorType, map, filter, zip)):
            value = list(itertools.islice(value, ITEMS_LIMIT))
        return value
    except (Exception, SystemExit) as error:
        if _is_stub(error):
            raise NotAttempted from None
        return raised(error)


def calls(inputs: Iterable[Any] | Callable[[int], Iterable[Any]]) -> Callable[..., list[Any]]:
    """The usual first half of a check: call the answer on each input, in order.

    Args:
        inputs: one entry a call; a tuple is spread over the arguments. A function makes them of a
            seed.

    Returns:
        ``run(answer) -> list`` of what ``attempt`` gave for each input, or ``run(answer, seed)``
        where the inputs need a seed.
    """
    if callable(inputs):
        seeded = inputs

        def run_with_seed(answer: Callable[..., Any], seed: int) -> list[Any]:
            return [_call(answer, entry) for entry in seeded(seed)]

        return run_with_seed
    fixed = list(inputs)

    def run(answer: Callable[..., Any]) -> list[Any]:
        return [_call(answer, entry) for entry in fixed]

    return run


def _call(answer: Callable[..., Any], entry: Any) -> Any:
    return attempt(answer, *entry) if isinstance(entry, tuple) else attempt(answer, entry)


def collect(run: Callable[[Any], object], answer: object, own_work: tuple[str, ...] = ()) -> bytes:
    """Run the first half of a check on an answer; everything that happened, as bytes.

    The bytes hold a dict: ``outcome`` is "value", "raised" or "not attempted"; ``value`` what
    ``run`` returned, made plain, or the ``Raised`` record; ``printed`` what the answer printed and
    ``warned`` the text of each warning while it ran; ``shortcuts``, where there is ``own_work``,
    what the answer used of it. Only ``KeyboardInterrupt`` leaves this function.
    """
    printed = io.StringIO()
    shortcuts: list[dict[str, Any]] = []
    with (
        listening() as heard,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            if _holds_placeholder(answer):
                raise NotAttempted
            with noticing(own_work, run, answer) as shortcuts:
                outcome, value = "value", plain(run(answer))
            codec.encode_value(value)
        except NotAttempted:
            outcome, value = "not attempted", None
        except CodecError as error:
            outcome, value = "raised", Raised(type_name="CodecError", message=str(error), line="")
        except (Exception, SystemExit, TookTooLong) as error:
            stub = _is_stub(error)
            outcome, value = ("not attempted", None) if stub else ("raised", raised(error))
    report = {
        "outcome": outcome,
        "value": value,
        "printed": _utf8(_shorten(printed.getvalue())),
        "warned": _told(heard),
    }
    return codec.encode_value(report | {"shortcuts": shortcuts} if own_work else report)


# Right answers of other types


def plain(value: Any) -> Any:
    """The same data in Python's own types, so that the type of a right answer is no obstacle.

    numpy's scalars, 0-d arrays, ``Fraction`` and ``Decimal`` become numbers; an ``OrderedDict``, a
    ``defaultdict`` or a named tuple becomes the dict or tuple that it is; a range becomes a list.
    Tensors, arrays and dtypes stay as they are. What no judge can be shown becomes ``Foreign``.
    A judge sees data in this form only. A run calls it on what it hands back to an answer.
    """
    return _Plain().value(value)


class _Plain:
    """One value on its way: containers that were seen, so that each is read once."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[Any, Any]] = {}  # keeps both alive, so that ids stay theirs
        self.depth = 0

    def value(self, x: Any) -> Any:
        kind = type(x)
        for one in (bool, int, float, str, bytes, type(None), Raised, Foreign):
            if kind is one:
                return x
        if issubclass(kind, (dict, list, tuple, range)):
            return self.container(x, kind)
        if issubclass(kind, int):
            return int.__index__(x)
        if issubclass(kind, float):
            return float.__float__(x)
        if issubclass(kind, str):
            return str.__str__(x)
        if issubclass(kind, (Fraction, Decimal)):
            return _as_float(x)
        return _array(x, kind)

    def container(self, x: Any, kind: type) -> Any:
        if id(x) in self.seen:
            return self.seen[id(x)][1]
        if self.depth > codec.LIMITS.depth or len(x) > codec.LIMITS.elements:
            return x  # the codec says what is too deep or too long
        self.seen[id(x)] = x, x  # of a list in itself the codec speaks, too
        self.depth += 1
        made: Any
        if issubclass(kind, dict):
            made = {self.value(k): self.value(v) for k, v in dict.items(x)}
        else:
            read: Any = next(one for one in (tuple, list, range) if issubclass(kind, one))
            items = [self.value(item) for item in read.__iter__(x)]
            made = tuple(items) if read is tuple else items
        self.depth -= 1
        self.seen[id(x)] = x, made
        return made


def _array(x: Any, kind: type) -> Any:
    """numpy's and torch's values, and whatever is left."""
    np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if np is not None and issubclass(kind, (np.generic, np.ndarray)):
        if x.shape == ():
            item = x.item()
            if type(item) in (bool, int, float, str, bytes):
                return item
            return _as_float(item) if issubclass(kind, np.floating) else _foreign(x)
        return x if x.dtype.name in codec.NUMPY_DTYPES else _foreign(x)
    if torch is not None and issubclass(kind, torch.Tensor):
        own = kind is torch.Tensor or kind is torch.nn.Parameter
        return x if own else x.as_subclass(torch.Tensor)
    if torch is not None and kind is torch.dtype:
        return x
    return x if kind in codec.RECORDS else _foreign(x)


def _as_float(x: Any) -> Any:
    try:
        return float(x)
    except (OverflowError, ValueError):
        return _foreign(x)


def _foreign(x: Any) -> Foreign:
    if isinstance(x, type):
        return Foreign(f"the type {x.__name__[:60]}")
    name = type(x).__name__[:60]
    if isinstance(x, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return Foreign(f"the function {x.__name__[:60]}")
    return Foreign(f"a{'n' if name[:1].lower() in 'aeio' else ''} {name}")


# Warnings


@dataclass(frozen=True)
class Heard:
    """A warning: its text, and whether it was the learner's own code that called ``warn``."""

    text: str
    theirs: bool


_listening: list[list[Heard]] = []
_warning: list[bool] = []  # of each open call of warn(): whether the learner's code made it
_WARN = warnings.warn
_READS_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF"}


@contextlib.contextmanager
def listening() -> Iterator[list[Heard]]:
    """Hear every warning inside the block; an outer ``listening`` hears it as well.

    A run uses it to tell a warning of the answer's own from what torch says about the answer.
    """
    heard: list[Heard] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _hear
        before = warnings.warn
        warnings.warn = _warn
        _listening.append(heard)
        try:
            yield heard
        finally:
            _listening.pop()
            warnings.warn = before


def _warn(
    message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any
) -> None:
    """``warnings.warn``, with a note of whose line called it: torch's C++ never comes here."""
    _warning.append(is_learners(sys._getframe(1)))
    try:
        _WARN(message, category, stacklevel + 1, source, **more)
    finally:
        _warning.pop()


def _hear(message: Any, category: Any, filename: str, lineno: int, *_: Any, **__: Any) -> None:
    theirs = _warning[-1] if _warning else _names_warn(sys._getframe(1))
    for heard in _listening:
        if len(heard) < ITEMS_LIMIT:
            heard.append(Heard(_utf8(str(message)), theirs))


def _names_warn(frame: types.FrameType | None) -> bool:
    """Whether a warning came from a learner's function that knows ``warn`` by a name of its own."""
    while frame and frame.f_code.co_filename == warnings.__file__:
        frame = frame.f_back
    if frame is None or not is_learners(frame):
        return False
    known = {**frame.f_globals, **frame.f_locals}
    names = (one.argval for one in dis.get_instructions(frame.f_code) if one.opname in _READS_NAME)
    return any(known.get(name) is _WARN for name in names)


def _told(heard: list[Heard]) -> list[str]:
    """The text of each warning, and how often it came."""
    counts = Counter(one.text for one in heard).items()
    texts = [f"{text} ({count} times)" if count > 1 else text for text, count in counts]
    return [_shorten(text) for text in texts[:_WARNINGS_KEPT]]


# Exceptions and lines


def raised(error: BaseException) -> Raised:
    """An exception as data: its type's name, its message, and the learner's own line.

    The message is "" where it cannot be written: ``KeyError(10**5000)`` has too many digits.
    """
    try:
        said = str(error)[:_SEARCHED]
    except Exception:
        said = ""
    # An address in memory is another one in each run, and a grade's message shall be the same.
    message = re.sub(r"\b0x[0-9a-f]{8,16}\b", "0x...", _utf8(said))
    message = shorten(message, ERROR_LIMIT, placeholder=" ...")
    return Raised(type_name=type(error).__name__, message=message, line=_learners_line(error))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_stub(error: BaseException) -> bool:
    # torch raises NotImplementedError for operations that a dtype lacks: only the marker counts.
    return type(error) is NotImplementedError and error.args == (STUB,)


def _learners_line(error: BaseException) -> str:
    """The deepest line of the traceback that is neither labkit's nor a library's; "" if none is."""
    if isinstance(error, SyntaxError) and error.text:
        return error.text.strip()
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_learners(frame):
            name = frame.f_code.co_filename
            return linecache.getline(name, number, frame.f_globals).strip()
    return ""


def _holds_placeholder(answer: Any) -> bool:
    if answer is ...:
        return True
    if isinstance(answer, dict):
        return any(_holds_placeholder(value) for value in answer.values())
    if isinstance(answer, (list, tuple)):
        return any(_holds_placeholder(value) for value in answer)
    return False


def _shorten(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return text[:TEXT_LIMIT] + f" ... ({len(text) - TEXT_LIMIT} more characters)"
