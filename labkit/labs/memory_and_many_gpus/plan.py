"""``plan_memory``: which measures make a training step fit a budget of bytes, the cheapest first.

Each step of a plan is counted, not estimated: it runs once on fake tensors. No measure changes the
dtype of a parameter.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.counted_step import (
    StepSettings,
    count_step,
    groups_of,
    stack_of,
)
from labkit.labs.memory_and_many_gpus.step_bytes import StepPoint, highest
from labkit.measuring.html_tables import readable_bytes
from labkit.measuring.live_bytes import fake_copy

_CHUNKS = 16


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A step of a plan, with all that come before it.

    Args:
        name: such as "BF16 autocast".
        peak: where most bytes are alive during a training step, and what they hold.
        extra_flop: what is computed again, as a share of the step's FLOP without any measure.
    """

    name: str
    peak: StepPoint
    extra_flop: float


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What ``plan_memory`` returns.

    Args:
        budget: bytes.
        steps: the step as it is in float32, then each measure that was taken.
        settings: all measures together.
    """

    budget: int
    steps: tuple[Measure, ...]
    settings: StepSettings

    def describe(self) -> str:
        """A line for each step of the plan."""
        lines = [
            f"{step.name}: {readable_bytes(step.peak.total)}"
            + (f", {100 * step.extra_flop:.0f} % more FLOP" if step.extra_flop else "")
            for step in self.steps
        ]
        return "\n".join([*lines, f"fits {readable_bytes(self.budget)}"])

    def __repr__(self) -> str:
        return self.describe()


def plan_memory(budget: int, model: nn.Module, batch: tuple[Tensor, Tensor]) -> MemoryPlan:
    """Take measures until a training step with AdamW fits; parameters keep their dtypes.

    In this order: BF16 autocast; the loss in chunks, if the model has a linear layer ``head``;
    checkpointed blocks, if it has an ``nn.Sequential``; micro-batches; AdamW without ``foreach``;
    moments in 8 bits. The step has two peaks, one in forward and backward, one in the update. A
    measure that lowers none of those that exceed the budget, or raises the larger, is left out.

    Args:
        budget: bytes.
        model: its parameters are float32 and no fake tensors; it is not changed. Those that need
            no gradient are not trained. Its forward takes the inputs and gives logits,
            ... x classes; its branches depend on no values.
        batch: inputs and targets, which are int64; -100 marks what does not count.

    Raises:
        ValueError: the budget does not even hold what the update needs, or no measure is enough.
    """
    least = sum((10 if p.requires_grad else 4) * p.numel() for p in model.parameters())
    if budget < least:
        raise ValueError(
            f"cannot fit: {readable_bytes(least)} of weights, gradients and 8-bit moments before "
            f"any activation, and the budget is {readable_bytes(budget)}. Divide them among "
            "several cards, or train fewer parameters (LoRA)"
        )
    taken = StepSettings(batch=len(batch[0]))
    counted = _count(model, batch, taken)
    flop = counted.flop
    steps = [Measure(name="as it is", peak=counted.peak, extra_flop=0.0)]
    for name, changed in _measures(model, rows=taken.batch):
        if counted.peak.total <= budget:
            break
        tried = replace(taken, **changed)
        found = _count(model, batch, tried)
        lowered = any(
            before.total > budget and after.total < before.total
            for before, after in ((counted.loss, found.loss), (counted.update, found.update))
        )
        if not lowered or found.peak.total > counted.peak.total:
            continue
        if taken.micro_batches > 1 and "micro_batches" in changed:
            steps.pop()  # more of them replace fewer
        taken, counted = tried, found
        extra = round(counted.flop / flop - 1, 4)
        steps.append(Measure(name=name, peak=counted.peak, extra_flop=extra))
    if (least := counted.peak.total) > budget:
        raise ValueError(
            f"cannot fit: with all measures the peak is {readable_bytes(least)}, and the "
            f"budget is {readable_bytes(budget)}. Take a smaller batch, or several cards"
        )
    return MemoryPlan(budget=budget, steps=tuple(steps), settings=taken)


def _measures(model: nn.Module, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may be tried, in order, each with its name."""
    yield "BF16 autocast", {"autocast": True}
    if isinstance(getattr(model, "head", None), nn.Linear):
        yield f"loss in {_CHUNKS} chunks", {"loss_chunks": _CHUNKS}
    if stack := stack_of(model):
        yield "checkpointed blocks", {"checkpointed": frozenset(range(len(groups_of(stack))))}
    parts = 2
    while parts <= rows:
        yield f"{parts} micro-batches", {"micro_batches": parts}
        parts *= 2
    yield "AdamW without foreach", {"foreach": False}
    yield "moments in 8 bits", {"moments": "8-bit"}


@dataclass(frozen=True)
class _Counted:
    """Where most bytes are alive in forward and backward, and in the update; the FLOP."""

    loss: StepPoint
    update: StepPoint
    flop: int

    @property
    def peak(self) -> StepPoint:
        return highest((self.loss, self.update))


def _count(model: nn.Module, batch: tuple[Tensor, Tensor], settings: StepSettings) -> _Counted:
    """The step of a real model, on fake tensors, under CUDA's autocast lists."""
    model, mode = fake_copy(model)
    with emulate_gpu(), mode:
        inputs, targets = (torch.empty_like(mode.from_tensor(whole)) for whole in batch)
        points, flop = count_step(model, inputs, targets, settings)
    return _Counted(
        loss=highest(points, "forward", "backward"), update=highest(points, "step"), flop=flop
    )
