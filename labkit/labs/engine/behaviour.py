"""When two answers behave alike: the same data up to a few roundings, the same failure.

By this an answer is recognised as a known wrong one. How it is written is never looked at.
"""

import math
import re
import struct
from typing import Any

import numpy as np
import torch

from labkit.labs.engine import codec
from labkit.labs.engine.codec import Raised

ULPS = 4
"""Roundings by which two values may differ that one idea gives, written in two ways."""

# What differs from one run of the same mistake to another: values, and what things are called.
_INCIDENTAL = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\S+\(\)|[-+]?\d[\d.,e+-]*|\[[^\]]*\]")


def alike(got: Any, other: Any, *, bits: bool = False) -> bool:
    """Whether two reports of a run are alike.

    Numbers and tensors may differ by ``ULPS`` roundings of their dtype, Python's numbers by those
    of float32 where one is a float32 value. Tensors of 16 bits and fewer agree bit for bit: there a
    few roundings are a mistake of their own. With ``bits`` all do, the sign of a zero included,
    whatever the type of a number. Lists and tuples are one thing; exceptions are alike as
    ``same_failure`` says.
    """
    if isinstance(got, Raised) or isinstance(other, Raised):
        return same_failure(got, other)
    a, b = _number(got), _number(other)
    if a is not None and b is not None:
        return _same_bits(a, b) if bits else near(a, b) or near(b, a)
    if isinstance(got, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(got, other, strict=False)
        return len(got) == len(other) and all(alike(x, y, bits=bits) for x, y in pairs)
    if isinstance(got, dict) and isinstance(other, dict):
        same_keys = got.keys() == other.keys()
        return same_keys and all(alike(got[key], other[key], bits=bits) for key in other)
    if isinstance(got, (torch.Tensor, np.ndarray)) and type(got) is type(other):
        return _alike_tensors(got, other, bits)
    return type(got) is type(other) and codec.encode_value(got) == codec.encode_value(other)


def same_failure(got: Any, other: Any) -> bool:
    """Whether two exceptions are of one type and say the same, values and names apart.

    What an answer's own ``raise`` says is its author's choice: there the types decide.
    """
    if not (isinstance(got, Raised) and isinstance(other, Raised)):
        return False
    chosen = all(one.line.startswith("raise ") for one in (got, other))
    return got.type_name == other.type_name and (chosen or _gist(got) == _gist(other))


def near(got: float, want: float) -> bool:
    """Whether two numbers differ by ``ULPS`` roundings at most.

    The roundings are float64's, or float32's where ``got`` is a float32 value: an answer may
    compute in float32.

    >>> near(0.1 + 0.2, 0.3), near(0.3333333432674408, 1 / 3), near(1 / 3, 0.3333333432674408)
    (True, True, False)
    """
    try:
        got, want = float(got), float(want)
    except OverflowError:
        return got == want
    if math.isnan(got) or math.isnan(want):
        return math.isnan(got) and math.isnan(want)
    if math.isinf(got) or math.isinf(want):
        return got == want
    unit = 2.0**-23 if _is_single(got) else 2.0**-52
    return abs(got - want) <= ULPS * unit * max(abs(got), abs(want))


def _is_single(x: float) -> bool:
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0] == x
    except OverflowError:
        return False


def _number(value: Any) -> float | None:
    """A real number in Python's own type; None for a truth value and all else."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        try:
            value = value.item()
        except Exception:  # no number of Python's stands for it: complex, FP4 in pairs
            return None
    return value if type(value) in (int, float) else None


def _same_bits(a: float, b: float) -> bool:
    if a != a or b != b:
        return a != a and b != b
    return a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b))


def _alike_tensors(got: Any, other: Any, bits: bool) -> bool:
    if got.shape != other.shape or got.dtype != other.dtype:
        return False
    if isinstance(got, np.ndarray):
        if got.dtype.kind != "f":
            return bool((got == other).all())
        got, other = torch.from_numpy(got), torch.from_numpy(other)
    if bits or got.dtype not in (torch.float32, torch.float64):
        return codec.encode_value(got) == codec.encode_value(other)
    room = ULPS * torch.finfo(got.dtype).eps
    return torch.allclose(got.double(), other.double(), rtol=room, atol=0.0, equal_nan=True)


def _gist(raised: Raised) -> str:
    """What an exception says, without what depends on the run: its first words."""
    return " ".join(_INCIDENTAL.sub(" ", raised.message).split()[:12])
