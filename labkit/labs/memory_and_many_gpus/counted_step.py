"""``count_step``: one training step with AdamW on fake tensors, its bytes operator by operator."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint

from labkit.labs.memory_and_many_gpus.step_bytes import StepBytes, StepPoint

_BLOCK = 256
"""Values that share a float32 scale: that of torchao's AdamW8bit."""

# Bytes of one moment of so many values.
_MOMENTS = {
    "fp32": lambda values: 4 * values,
    "bf16": lambda values: 2 * values,
    "8-bit": lambda values: values + 4 * -(-values // _BLOCK),
}


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How a training step is run.

    Args:
        batch: rows; of GPT-2's step texts of 1,024 tokens.
        autocast: BF16 autocast, else all in float32.
        loss_chunks: the loss is computed for so many parts of the rows, one after the other, each
            checkpointed.
        checkpointed: the blocks, counted from 0, that backward runs again.
        foreach: AdamW updates all parameters together, a GPU's default; else one by one.
        micro_batches: parts of the batch, whose gradients are accumulated.
        moments: AdamW's two. Those in BF16 or in blocks of 8 bits are updated in one kernel, as
            torchao's compiled optimizers do it, whatever ``foreach`` says.

    Raises:
        ValueError: a number below 1, or other moments.
    """

    batch: int = 8
    autocast: bool = False
    loss_chunks: int = 1
    checkpointed: frozenset[int] = frozenset()
    foreach: bool = True
    micro_batches: int = 1
    moments: Literal["fp32", "bf16", "8-bit"] = "fp32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpointed", frozenset(self.checkpointed))
        for name in ("batch", "loss_chunks", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: pass a whole number from 1 on")
        if self.moments not in _MOMENTS:
            raise ValueError(f"moments={self.moments!r}: pass one of {', '.join(_MOMENTS)}")


def count_step(
    model: nn.Module, inputs: Tensor, targets: Tensor, settings: StepSettings
) -> tuple[list[StepPoint], int]:
    """The points of a step that is not the first, one for each operator, and its FLOP.

    Args:
        model: of fake tensors, as the batch. Gradients are added to those in it and dropped.
        inputs, targets: the whole batch, whatever ``settings.batch`` says.
    """
    optimizer = AdamW(model.parameters(), foreach=settings.foreach)
    live = StepBytes(model, _moments(optimizer, settings), (inputs, targets))
    # From the second micro-batch on gradients are there, and one is like the other.
    count = settings.micro_batches
    parts = list(zip(inputs.chunk(count), targets.chunk(count), strict=True))[:2]
    with live:
        for x, y in parts:
            first = len(live.points())
            live.begin("forward")
            with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.autocast):
                loss = summed_loss(model, x, y, settings) / y.numel() / count
            live.begin("backward")
            loss.backward()
            del loss
        last = len(live.points())
        live.begin("step")
        if settings.moments == "fp32":
            optimizer.step()
        else:
            live.note("one fused kernel")
        live.begin("zero_grad")
        optimizer.zero_grad()
        live.note("set to None")
    points = live.points()
    again = points[first:last] * (count - len(parts))
    return points[:last] + again + points[last:], live.flop * count // len(parts)


def _moments(optimizer: AdamW, settings: StepSettings) -> Any:
    """What the optimizer holds between steps; its own are made by a step with gradients of 0."""
    (group,) = optimizer.param_groups
    trained = [parameter for parameter in group["params"] if parameter.requires_grad]
    if settings.moments != "fp32":
        size = _MOMENTS[settings.moments]
        return [torch.empty(2 * size(p.numel()), dtype=torch.uint8) for p in trained]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


# ------------------------------------------------------------------ the loss


def summed_loss(
    model: nn.Module, inputs: Tensor, targets: Tensor, settings: StepSettings
) -> Tensor:
    """The sum of the cross-entropies, with blocks checkpointed and the loss in chunks.

    In chunks the linear layer ``model.head`` runs with the loss: of each chunk the logits are
    forgotten, and computed again in backward.

    Args:
        inputs: the model gives logits for them, ... x classes.
        targets: int64, as the logits without their last dimension; -100 marks what does not count.
    """
    chunks = settings.loss_chunks
    split = _without_head(model) if chunks > 1 else nullcontext(nn.Identity())
    with _checkpointing(model, settings.checkpointed), split as head:
        hidden, targets = model(inputs).flatten(0, -2), targets.flatten()

    def part(hidden: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(head(hidden), targets, reduction="sum")

    if chunks == 1:
        return part(hidden, targets)
    total = torch.zeros((), device=hidden.device)
    for rows in zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True):
        total = total + checkpoint(part, *rows, use_reentrant=False)
    return total


@contextmanager
def _without_head(model: nn.Module) -> Iterator[nn.Module]:
    """Inside the block the model ends before its head, which is given."""
    head = model.head
    model.head = nn.Identity()
    try:
        yield head
    finally:
        model.head = head


@contextmanager
def _checkpointing(model: nn.Module, chosen: frozenset[int]) -> Iterator[None]:
    """Inside the block these of the model's blocks keep only their inputs for backward."""
    stack = stack_of(model)
    if stack is None or not chosen:
        yield
        return
    groups = groups_of(stack)

    def forward(x: Tensor) -> Tensor:
        for place, group in enumerate(groups):
            x = checkpoint(group, x, use_reentrant=False) if place in chosen else group(x)
        return x

    stack.forward = forward
    try:
        yield
    finally:
        del stack.forward


def stack_of(model: nn.Module) -> nn.Sequential | None:
    """The ``nn.Sequential`` with the most parameters."""
    found = [part for part in model.modules() if isinstance(part, nn.Sequential) and len(part) > 1]
    return max(found, key=lambda part: sum(p.numel() for p in part.parameters()), default=None)


def groups_of(stack: nn.Sequential) -> list[nn.Sequential]:
    """Each block by itself; single layers in as many groups as a group has layers."""
    blocks = any(list(layer.children()) for layer in stack)
    size = 1 if blocks else math.ceil(math.sqrt(len(stack)))
    return [stack[first : first + size] for first in range(0, len(stack), size)]
