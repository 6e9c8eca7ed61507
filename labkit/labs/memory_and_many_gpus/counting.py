"""Counting a module's bytes and FLOP on fake tensors, which have shapes and no values."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from labkit.measuring.card import Card

GIB = 2**30

# A CPU's attention counts as a GPU's.
_OPS = torch.ops.aten
_FLOP = flop_registry | {
    _OPS._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        _OPS._scaled_dot_product_flash_attention
    ],
    _OPS._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        _OPS._scaled_dot_product_flash_attention_backward
    ],
}


class FlopCard(Card):
    """A card that also adds up the FLOP of matmuls, convolutions and attention, in ``flop``.

    ``FlopCounterMode`` beside a card will not do: its hooks and the graphs that checkpointing makes
    hold each other, so that bytes stay alive until Python's collector comes by.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if formula := _FLOP.get(func.overloadpacket):
            self.flop += formula(*args, **(kwargs or {}), out_val=out)
        return out


@dataclass(frozen=True)
class Shape:
    """All of a tensor but its values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    def empty(self) -> Tensor:
        """A new tensor of this shape."""
        x = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)
        return x.requires_grad_(self.requires_grad)


def shapes_of(things: Any) -> Any:
    """Nested things with a ``Shape`` for each tensor."""
    return tree_map_only(
        Tensor,
        lambda x: Shape(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad),
        things,
    )


def emptied(things: Any) -> Any:
    """Nested things with a new tensor for each ``Shape``."""
    return tree_map_only(Shape, lambda shape: shape.empty(), things)


def make_moments(optimizer: Optimizer) -> None:
    """Have an optimizer make its state, by a step with gradients of 0 that it then drops.

    Parameters that need no gradient get no state.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def summed_loss(head: nn.Module, hidden: Tensor, targets: Tensor, chunks: int) -> Tensor:
    """The sum of the cross-entropies of ``head(hidden)``, over so many parts of the rows in turn.

    Args:
        hidden: ... x D.
        targets: int64, as ``hidden`` without its last dimension; -100 marks what does not count.
        chunks: 1 computes all logits at once. More are checkpointed: each part's logits are
            forgotten, and computed again in backward.
    """

    def part(hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(head(hidden), targets, reduction="sum")

    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    if chunks == 1:
        return part(hidden, targets)
    total = torch.zeros((), device=hidden.device)
    for rows in zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True):
        total = total + checkpoint(part, *rows, use_reentrant=False)
    return total
