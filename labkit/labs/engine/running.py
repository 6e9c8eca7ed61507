"""Beside the answer: run a learner's code and bring back plain data, whatever it does.

This half holds no right answers. It returns bytes of ``labkit.labs.engine.codec``, so the same data
comes back whether the answer ran in the learner's kernel or in a sandbox behind a pipe.
"""

import contextlib
import io
import itertools
import linecache
import re
import sysconfig
import traceback
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import shorten
from typing import Any

from labkit.labs.engine import codec
from labkit.labs.engine.codec import CodecError, Raised

STUB = "your code here"
"""The message of the NotImplementedError that stands where a solution was taken out."""

TEXT_LIMIT = 2_000
"""Characters kept of what an answer prints or warns."""

ERROR_LIMIT = 300
"""Characters kept of an exception's message: torch closes some with pages on its dispatcher."""

_SEARCHED = 10_000  # characters of a message that are looked at

ITEMS_LIMIT = 10_000
"""Items drawn from a generator that an answer returns."""

_NOT_THE_LEARNERS = (
    "<frozen",
    str(Path(__file__).resolve().parent.parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)


class NotAttempted(Exception):
    """The answer is still the stub."""


def attempt(answer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an answer once: what it returns, or a ``Raised`` record of its exception.

    A generator is drained to ``ITEMS_LIMIT`` items and comes back as a list. ``KeyboardInterrupt``
    passes through, and so does the stub's own marker, as ``NotAttempted``.
    """
    try:
        value = answer(*args, **kwargs)
        if isinstance(value, types.GeneratorType):
            value = list(itertools.islice(value, ITEMS_LIMIT))
        return value
    except (Exception, SystemExit) as error:
        if _is_stub(error):
            raise NotAttempted from None
        return raised(error)


def calls(inputs: Iterable[Any]) -> Callable[[Callable[..., Any]], list[Any]]:
    """The usual first half of a check: call the answer on each input, in order.

    Args:
        inputs: one entry a call; a tuple is spread over the arguments.

    Returns:
        ``run(answer) -> list`` of what ``attempt`` gave for each input.
    """
    inputs = list(inputs)

    def run(answer: Callable[..., Any]) -> list[Any]:
        return [
            attempt(answer, *entry) if isinstance(entry, tuple) else attempt(answer, entry)
            for entry in inputs
        ]

    return run


def collect(run: Callable[[Any], object], answer: object) -> bytes:
    """Run the first half of a check on an answer; everything that happened, as bytes.

    The bytes hold a dict: ``outcome`` is "value", "raised" or "not attempted"; ``value`` what
    ``run`` returned or the ``Raised`` record; ``printed`` and ``warned`` what the answer said.
    Only ``KeyboardInterrupt`` leaves this function.
    """
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        try:
            if _holds_placeholder(answer):
                raise NotAttempted
            outcome, value = "value", run(answer)
            codec.encode(value)
        except NotAttempted:
            outcome, value = "not attempted", None
        except CodecError as error:
            outcome, value = "raised", Raised(type_name="CodecError", message=str(error), line="")
        except (Exception, SystemExit) as error:
            stub = _is_stub(error)
            outcome, value = ("not attempted", None) if stub else ("raised", raised(error))
    return codec.encode(
        {
            "outcome": outcome,
            "value": value,
            "printed": _shorten(printed.getvalue()),
            "warned": [_shorten(str(w.message)) for w in caught[:20]],
        }
    )


def raised(error: BaseException) -> Raised:
    """An exception as data: its type's name, its message, and the learner's own line."""
    # An address in memory is another one in each run, and a grade's message shall be the same.
    message = re.sub(r"\b0x[0-9a-f]{8,16}\b", "0x...", _plain(str(error)[:_SEARCHED]))
    message = shorten(message, ERROR_LIMIT, placeholder=" ...")
    return Raised(type_name=type(error).__name__, message=message, line=_learners_line(error))


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_stub(error: BaseException) -> bool:
    # torch raises NotImplementedError for operations that a dtype lacks: only the marker counts.
    return type(error) is NotImplementedError and error.args == (STUB,)


def _learners_line(error: BaseException) -> str:
    """The deepest line of the traceback that is neither labkit's nor a library's; "" if none is."""
    if isinstance(error, SyntaxError) and error.text:
        return error.text.strip()
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_code.co_filename
        if not name.startswith(_NOT_THE_LEARNERS):
            return linecache.getline(name, number, frame.f_globals).strip()
    return ""


def _holds_placeholder(answer: Any) -> bool:
    if answer is ...:
        return True
    if type(answer) is dict:
        return any(_holds_placeholder(value) for value in answer.values())
    if type(answer) in (list, tuple):
        return any(_holds_placeholder(value) for value in answer)
    return False


def _shorten(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return text[:TEXT_LIMIT] + f" ... ({len(text) - TEXT_LIMIT} more characters)"
