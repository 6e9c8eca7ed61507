"""``plain_tensor``: where a tensor comes into ``labkit.formats``, and what is refused there.

Formats round the values that a tensor keeps one beside another. Sparse, nested and sharded tensors,
and those that keep codes, answer to the same names and keep something else.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def plain_tensor(
    x: Any, name: str, dtypes: tuple[torch.dtype, ...], fix: str, *, values: bool = True
) -> Tensor:
    """x itself, if it is a dense tensor of torch's own and of one of the dtypes.

    Args:
        name: what the caller calls it.
        fix: what to do about another dtype, such as "widen it with x.float()".
        values: whether the caller looks at them, so that a tensor on "meta" does not serve.

    Raises:
        TypeError: it is no tensor, of another dtype, or not dense; the sentence says what to pass.
        ValueError: it has no values.
    """
    if is_lazy(x):
        raise ValueError(f"{name} has no values yet: call its module once, which gives it a shape")
    if isinstance(x, Tensor) and (instead := _instead(x)):
        raise TypeError(f"{name} must be a dense torch.Tensor, got {instead}")
    if not isinstance(x, Tensor) or x.dtype not in dtypes:
        wanted = " or ".join(map(str, dtypes))
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} must be a tensor of {wanted}, got {got}; {fix}")
    if values and x.is_meta:
        raise ValueError(f'{name} is on "meta" and has no values: pass a tensor that has them')
    return x.resolve_neg()


def _instead(x: Tensor) -> str:
    """What this tensor is, if it is not dense, and what makes a dense one of it."""
    if x.is_nested:
        return "a nested one: pass each of its .unbind()"
    if x.layout is not torch.strided:
        return f"one of layout {x.layout}: pass its .to_dense()"
    if x.is_quantized:
        return f"one of {x.dtype}: pass its .dequantize()"
    if type(x).__torch_dispatch__ is Tensor.__torch_dispatch__:
        return ""
    if hasattr(x, "full_tensor"):
        return f"a {type(x).__name__}: pass its .full_tensor()"
    return f"{type(x).__name__}: pass its values, such as .dequantize() of a quantized weight"
