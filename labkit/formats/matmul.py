"""Matrix products that say in which dtype they read, add and store, and whether they overflowed.

A mixed precision matmul is three choices: the dtype of the inputs, that of the running sum and that
of the result. Widening the result later undoes none of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.formats.accumulators import Accumulator
from labkit.formats.dtypes import format_of
from labkit.formats.inputs import FLOATS, plain_tensor

_NARROW = (torch.float16, torch.bfloat16)
_ACCUMULATORS = (*_NARROW, torch.float32, torch.float64)


@dataclass(frozen=True)
class MatmulResult:
    """A product and what became of its range.

    ``result`` has the output dtype. ``overflowed``: finite rows and columns gave something that is
    not finite. ``has_nan``: some element is NaN, from a NaN of the inputs or from inf - inf.
    """

    result: Tensor
    overflowed: bool
    has_nan: bool


def mixed_matmul(
    a: Tensor,
    b: Tensor,
    *,
    in_dtype: torch.dtype = torch.float16,
    accumulate: torch.dtype = torch.float32,
    out_dtype: torch.dtype = torch.float32,
) -> MatmulResult:
    """Round the inputs to ``in_dtype``, add in ``accumulate``, round once to ``out_dtype``.

    Args:
        a, b: float16, bfloat16, float32 or float64, of shapes (n, k) and (k, m), on one device.
        accumulate: in float32 and float64 torch multiplies and adds, in its own order; in float16
            and bfloat16 the sum is rounded after every product (``labkit.formats.accumulators``).

    Raises:
        TypeError: an input is no dense tensor of these dtypes.
        ValueError: an input is no matrix or has no values, or the inner dimensions differ.

    Source: Micikevicius et al., arXiv:1710.03740, section 3.3 (FP16 inputs, FP32 sums).

    >>> a = torch.full((1, 512), 16.0)
    >>> product = mixed_matmul(a, a.T, out_dtype=torch.float16)
    >>> product.result.item(), product.overflowed
    (inf, True)
    >>> mixed_matmul(a, a.T).result.item()
    131072.0
    """
    for name, dtype in {"in_dtype": in_dtype, "out_dtype": out_dtype}.items():
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"{name} must be a floating point torch.dtype, got {dtype!r}")
    if accumulate not in _ACCUMULATORS:
        raise ValueError(f"accumulate must be one of {_ACCUMULATORS}, got {accumulate!r}")
    a, b = _matrix(a, "a"), _matrix(b, "b")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"the inner dimensions must agree: a is {tuple(a.shape)}, b is {tuple(b.shape)}, "
            f"so {a.shape[1]} meets {b.shape[0]}; did you mean b.T?"
        )
    narrow = format_of(accumulate) if accumulate in _NARROW else None
    wide = torch.float32 if narrow else accumulate
    left, right = a.to(in_dtype).to(wide), b.to(in_dtype).to(wide)
    with torch.autocast(a.device.type, enabled=False):  # which would choose the dtypes itself
        sums = left @ right if narrow is None else Accumulator(narrow).matmul(left, right)
    result = sums.to(out_dtype)
    spoilt = ~a.isfinite().all(dim=1)[:, None] | ~b.isfinite().all(dim=0)
    return MatmulResult(
        result=result,
        overflowed=bool((~result.isfinite() & ~spoilt).any()),
        has_nan=bool(result.isnan().any()),
    )


def _matrix(matrix: Tensor, name: str) -> Tensor:
    matrix = plain_tensor(matrix, name, FLOATS, f"use {name}.float()").detach()
    if matrix.ndim != 2:
        raise ValueError(
            f"{name} must have 2 dimensions, got shape {tuple(matrix.shape)}; "
            f"a vector becomes a row by {name}[None, :] and a column by {name}[:, None]"
        )
    return matrix
