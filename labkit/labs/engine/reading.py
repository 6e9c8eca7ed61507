"""Inside the judge: what came back, as the type that was asked for, or a sentence that says so.

A judge reads every value through one of these before it compares. They take what is right in
another type: a tensor of one element for a number, an array for a list, a word in capitals.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labkit.labs.engine import messages
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill


class Mistake(Exception):
    """What is wrong with an answer, as the sentence that its author reads.

    Args:
        template: the sentence; with values it is a template of ``messages.fill``.
        misconception: the id of the wrong idea, where the judge's evidence isolates one.
        search: whether a known wrong answer that behaves alike may be named. False where the
            evidence already says that no idea explains the answer.
        score: what the answer is worth nevertheless, from 0 to 1.
        values: what is written into the template.
    """

    def __init__(
        self,
        template: str,
        *,
        misconception: str | None = None,
        search: bool = True,
        score: float = 0.0,
        **values: object,
    ) -> None:
        super().__init__(fill(template, **values) if values else template)
        if not 0 <= score <= 1:
            raise ValueError(f"A score lies from 0 to 1; this one is {score}.")
        self.misconception, self.search, self.score = misconception, search, score


class AnswerError(Exception):
    """The answer raised an exception where a value was wanted."""

    def __init__(self, template: str, **values: object) -> None:
        super().__init__(fill(template, **values) if values else template)


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What a judge returns of an answer to an open-ended exercise: it passes, and earns a part.

    Args:
        score: what the answer is worth, from 0 to 1.
        said: the sentences that its author reads.
        measured: what the judge has measured, by name; the class's leaderboard shows it, and of
            equal scores the one with the smaller numbers stands first.
    """

    score: float
    said: str
    measured: Mapping[str, float]

    def __post_init__(self) -> None:
        if not 0 <= self.score <= 1:
            raise ValueError(f"A score lies from 0 to 1; this one is {self.score}.")


def failure(raised: Raised) -> str:
    """An exception as a judge quotes it: its type, its message, the learner's own line.

    >>> failure(Raised("ValueError", "too small.", "raise ValueError('too small.')"))
    "ValueError: too small in your line `raise ValueError('too small.')`"
    """
    said = f"{raised.type_name}: {raised.message}" if raised.message else raised.type_name
    return said.rstrip(".") + in_line(raised)


def in_line(raised: Raised) -> str:
    """Where an answer raised, to follow a sentence; "" if no line of the learner's is known."""
    return " " + fill(messages.IN_LINE, line=raised.line) if raised.line else ""


def number(got: Any, *, call: str) -> float:
    """What an answer returned, as a Python float.

    A tensor or an array of one element is a number; True is none.

    Args:
        got: what came back from the answer.
        call: the call as the learner would type it, such as ``ulp(3.0)``.

    Raises:
        AnswerError: the answer raised.
        Mistake: it returned something that is not one number.
    """
    _refuse(got, call)
    value = got.item() if _is_array(got) and _size(got) == 1 and _is_real(got) else got
    if type(value) is bool:
        raise Mistake(messages.A_TRUTH_FOR_A_NUMBER, call=call, came=came(got))
    if type(value) not in (int, float):
        raise Mistake(messages.NOT_A_NUMBER, call=call, came=came(got))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def truth(got: Any, *, call: str) -> bool:
    """What an answer returned, as True or False; raises as ``number`` does."""
    _refuse(got, call)
    value = got.item() if _is_array(got) and _size(got) == 1 else got
    if type(value) is not bool:
        raise Mistake(messages.NOT_A_TRUTH, call=call, came=came(got))
    return value


def several(got: Any, count: int, *, call: str) -> tuple[Any, ...]:
    """The values of a tuple, a list, or a row of a tensor or array; raises as ``number`` does."""
    _refuse(got, call)
    if isinstance(got, torch.Tensor) and got.dim() == 1:
        got = got.unbind()
    elif isinstance(got, np.ndarray) and got.ndim == 1:
        got = got.tolist()
    if not isinstance(got, (tuple, list)) or len(got) != count:
        raise Mistake(messages.NOT_SO_MANY, call=call, came=came(got), count=count)
    return tuple(got)


def entries(got: Any, keys: Sequence[str], *, call: str) -> dict[str, Any]:
    """A dict with exactly these keys, in any order; raises as ``number`` does."""
    _refuse(got, call)
    wanted = ", ".join(keys)
    if not isinstance(got, dict):
        raise Mistake(messages.NOT_A_DICT, call=call, came=came(got), keys=wanted)
    if set(got) != set(keys):
        said = ", ".join(map(str, got)) or "none"
        raise Mistake(messages.OTHER_KEYS, call=call, got=said, keys=wanted)
    return got


def word(got: Any, words: Iterable[str], *, call: str) -> str:
    """One of the words, however it is capitalised or padded; raises as ``number`` does."""
    _refuse(got, call)
    known = {one.casefold(): one for one in words}
    if not isinstance(got, str) or got.strip().casefold() not in known:
        listed = ", ".join(known.values())
        raise Mistake(messages.NOT_A_WORD, call=call, came=came(got), words=listed)
    return known[got.strip().casefold()]


def tensor(
    got: Any, *, call: str, shape: Sequence[int] | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor, of this shape and dtype where they are given; raises as ``number`` does.

    An array is a tensor, and so are tensors of one shape and dtype in a list.
    """
    _refuse(got, call)
    if isinstance(got, np.ndarray):
        got = torch.from_numpy(got)
    if isinstance(got, (list, tuple)) and _are_alike(got):
        got = torch.stack(list(got))
    if not isinstance(got, torch.Tensor):
        raise Mistake(messages.NOT_A_TENSOR, call=call, came=came(got))
    if shape is not None and tuple(got.shape) != tuple(shape):
        raise Mistake(messages.OTHER_SHAPE, call=call, got=tuple(got.shape), want=tuple(shape))
    if dtype is not None and got.dtype != dtype:
        raise Mistake(messages.OTHER_DTYPE, call=call, got=str(got.dtype), want=str(dtype))
    return got


def _refuse(got: Any, call: str) -> None:
    """An exception is the answer's error; None is a forgotten ``return``."""
    if type(got) is Raised:
        raise AnswerError(messages.RAISED, call=call, error=failure(got))
    if got is None:
        raise Mistake(messages.RETURNS_NONE, call=call)


def _is_array(got: Any) -> bool:
    return isinstance(got, (torch.Tensor, np.ndarray, np.generic))


def _size(got: Any) -> int:
    return got.numel() if isinstance(got, torch.Tensor) else got.size


def _is_real(got: Any) -> bool:
    """Whether ``item`` gives a Python number: not for complex, and not for torch's packed FP4."""
    if isinstance(got, torch.Tensor):
        return not got.is_complex() and got.dtype is not torch.float4_e2m1fn_x2
    return got.dtype.kind in "biuf"


def _are_alike(items: Sequence[Any]) -> bool:
    first = items[0] if items else None
    return isinstance(first, torch.Tensor) and all(
        isinstance(x, torch.Tensor) and (x.shape, x.dtype) == (first.shape, first.dtype)
        for x in items
    )
