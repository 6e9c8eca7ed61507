"""What several checks of lab 03 need: a tensor that came back, a row as text, inputs by a seed."""

import reprlib

import numpy as np
import torch

from labkit.labs.engine import AnswerError, Mistake
from labkit.labs.engine.codec import Raised


def tensor_of(got, *, call, shape, dtype=None):
    """What came back, as a float64 tensor of this shape."""
    if type(got) is Raised:
        place = f" in your line `{got.line}`" if got.line else ""
        raise AnswerError(f"`{call}` raised {got.type_name}: {got.message}{place}.")
    if isinstance(got, np.ndarray):
        got = torch.from_numpy(got)
    if not isinstance(got, torch.Tensor):
        raise Mistake(f"`{call}` is {reprlib.repr(got)}; a tensor is wanted.")
    if tuple(got.shape) != tuple(shape):
        raise Mistake(f"`{call}` has shape {tuple(got.shape)}; {tuple(shape)} is wanted.")
    if dtype is not None and got.dtype != dtype:
        raise Mistake(f"`{call}` has dtype {got.dtype}; {dtype} is wanted.")
    return got.double()


def row_text(row):
    """The values of a vector in brackets: whole numbers as they are, others with four digits."""
    texts = (f"{value:.8g}" if value.is_integer() else f"{value:.4g}" for value in row.tolist())
    return f"[{', '.join(texts)}]"


def uniform(seed, *shape):
    """Numbers from 0 to 1 as a float32 tensor of this shape, the same for the same seed."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
