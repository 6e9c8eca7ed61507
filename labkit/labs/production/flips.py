"""What one flipped bit of a weight does to a model's loss, bit by bit."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from labkit.training import cross_entropy

_INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def loss_changes(
    model: nn.Module,
    tokens: Tensor,
    *,
    per_bit: int = 8,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> dict[int, tuple[float, ...]]:
    """For each bit of a weight, how far the loss moves when it alone flips, in nats.

    Each flip hits a weight drawn anew from all matrices, so a matrix is hit in proportion to its
    size. The model computes in float32 and is left as it was.

    Args:
        model: tokens, N x T -> logits, with float32 parameters.
        tokens: int64, N x (T + 1); the model predicts each from those before it.
        per_bit: flips of each bit.
        dtype: how the weights are stored: float32, or a 16-bit dtype that they are rounded to.

    Returns:
        {bit: changes}, from bit 0, the last of the mantissa, to the sign; inf where the loss
        becomes NaN or inf.

    Raises:
        ValueError: another dtype.
    """
    if dtype not in _INTEGERS:
        raise ValueError(f"dtype={dtype}: pass one of {', '.join(map(str, _INTEGERS))}")
    weights = [p for p in model.parameters() if p.dim() > 1]
    sizes = torch.tensor([p.numel() for p in weights])
    generator = torch.Generator().manual_seed(seed)

    def loss() -> float:
        return cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).item()

    changes: dict[int, tuple[float, ...]] = {}
    with torch.no_grad(), _stored_in(weights, dtype):
        before = loss()
        for bit in range(torch.finfo(dtype).bits):
            found = []
            for _ in range(per_bit):
                place = int(torch.randint(int(sizes.sum()), (1,), generator=generator))
                with _flipped(*_weight_at(weights, place), bit, dtype):
                    moved = abs(loss() - before)
                found.append(moved if math.isfinite(moved) else math.inf)
            changes[bit] = tuple(found)
    return changes


def flip(values: Tensor, place: int, bit: int) -> None:
    """Flip one bit of one value in place.

    Args:
        values: contiguous, float32, bfloat16 or float16.
        place: of the value in the flattened tensor.
        bit: 0 is the last of the mantissa.

    >>> x = torch.tensor([1.0, 1.0])
    >>> flip(x, 1, 30)
    >>> x
    tensor([1., inf])
    """
    integers = values.view(-1).view(_INTEGERS[values.dtype])
    bits = torch.finfo(values.dtype).bits
    # The sign bit of an integer stands for -2**(bits - 1).
    integers[place] ^= 1 << bit if bit < bits - 1 else -(1 << bit)


def _weight_at(weights: list[Tensor], place: int) -> tuple[Tensor, int]:
    for weight in weights:
        if place < weight.numel():
            return weight, place
        place -= weight.numel()
    raise IndexError(place)


@contextmanager
def _stored_in(weights: list[Tensor], dtype: torch.dtype) -> Iterator[None]:
    """Inside, weights are those that the dtype holds."""
    kept = [weight.clone() for weight in weights]
    try:
        for weight in weights:
            weight.copy_(weight.to(dtype))
        yield
    finally:
        for weight, own in zip(weights, kept, strict=True):
            weight.copy_(own)


@contextmanager
def _flipped(weight: Tensor, place: int, bit: int, dtype: torch.dtype) -> Iterator[None]:
    value = weight.view(-1)[place].clone()
    stored = value.to(dtype, copy=True).reshape(1)
    flip(stored, 0, bit)
    weight.view(-1)[place] = stored[0]
    try:
        yield
    finally:
        weight.view(-1)[place] = value
