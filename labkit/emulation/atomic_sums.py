"""Sums as atomic additions make them in 16 bits: each addition is rounded.

``scatter_add`` and its relatives let CUDA's threads add to one address, whoever comes first. In 16
bits the address holds 16 bits, so a sum of ones stops at 2048 in float16 and at 256 in bfloat16
(ATen/native/cuda/ScatterGatherKernel.cu: ``fastAtomicAdd`` and ``gpuAtomicMul`` on ``scalar_t``).
Here the values come in the order of the indices; on a GPU the order changes from run to run.

torch's ``index_add_`` and ``index_reduce_`` of one dimension are serial on a CPU and round so.
"""

import math

import torch
from torch import Tensor

KINDS = {"add": "sum", "sum": "sum", "mean": "mean", "multiply": "prod", "prod": "prod"}
"""The reductions that round, by the names that ``scatter`` and ``scatter_reduce`` have for them."""


def _places(shape: torch.Size, dim: int, index: Tensor) -> Tensor:
    """Where in a flattened tensor of this shape each entry of the index points."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    places = torch.zeros_like(index)
    for d, stride in enumerate(strides):
        along = [-1 if d == other else 1 for other in range(len(shape))]
        steps = index if d == dim else torch.arange(index.shape[d]).view(along)
        places = places + stride * steps
    return places.flatten()


def reduced(
    x: Tensor, dim: int, index: Tensor, source: Tensor | float, kind: str, include_self: bool
) -> Tensor:
    """``x.scatter_reduce(dim, index, source, kind)``, rounded to the dtype of x at every step.

    Args:
        source: a tensor of x's dtype, or one number for every entry of the index.
        kind: a value of ``KINDS``. A mean divides the rounded sum by a count that is rounded too.
    """
    shape, index = torch.atleast_1d(x).shape, torch.atleast_1d(index)
    if isinstance(source, Tensor):
        values = torch.atleast_1d(source)[tuple(map(slice, index.shape))].flatten()
    else:
        values = x.new_full(index.shape, source).flatten()
    places = _places(shape, dim % len(shape), index)
    total = x.flatten().clone()
    counts = torch.ones_like(total)
    if not include_self:
        total[places], counts[places] = float(kind == "prod"), 0.0
    if kind == "prod":
        return total.index_reduce_(0, places, values, "prod").view(x.shape)
    total.index_add_(0, places, values)
    if kind == "mean":
        counts.index_add_(0, places, torch.ones_like(values))
        total.div_(counts)
    return total.view(x.shape)
