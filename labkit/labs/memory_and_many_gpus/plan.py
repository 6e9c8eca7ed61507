"""``plan_memory``: which measures make a training step fit a budget of bytes, the cheapest first.

Each step of a plan is counted, not estimated: it runs once on fake tensors. No measure changes the
dtype of a parameter.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.block_adamw import BlockAdamW
from labkit.labs.memory_and_many_gpus.step_bytes import StepBytes, StepPoint, highest
from labkit.measuring.live_bytes import fake_copy
from labkit.measuring.showing import readable_bytes

_CHUNKS = 16


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How a training step is run.

    Args:
        autocast: in BF16.
        loss_chunks: parts of the rows for which head and loss run in turn.
        checkpointed: the blocks of the model's largest ``nn.Sequential``, or groups of its layers.
        micro_batches: parts of the batch, whose gradients are accumulated.
        foreach: AdamW updates all parameters together.
        eight_bit: AdamW's moments are stored in 8 bits.
    """

    autocast: bool = False
    loss_chunks: int = 1
    checkpointed: bool = False
    micro_batches: int = 1
    foreach: bool = True
    eight_bit: bool = False


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
        ways: all measures together.
    """

    budget: int
    steps: tuple[Measure, ...]
    ways: Ways

    def apply(self, model: nn.Module, **settings: Any) -> "PlannedStep":
        """A training step for the model, with all measures.

        Args:
            settings: of AdamW, such as ``lr``.
        """
        return PlannedStep(model, self.ways, **settings)

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
    ways, counted = Ways(), _count(model, batch, Ways())
    flop = counted.flop
    steps = [Measure(name="as it is", peak=counted.peak, extra_flop=0.0)]
    for name, changed in _measures(model, rows=len(batch[0])):
        if counted.peak.total <= budget:
            break
        tried = replace(ways, **changed)
        found = _count(model, batch, tried)
        lowered = any(
            before.total > budget and after.total < before.total
            for before, after in ((counted.loss, found.loss), (counted.update, found.update))
        )
        if not lowered or found.peak.total > counted.peak.total:
            continue
        if ways.micro_batches > 1 and "micro_batches" in changed:
            steps.pop()  # more of them replace fewer
        ways, counted = tried, found
        extra = round(counted.flop / flop - 1, 4)
        steps.append(Measure(name=name, peak=counted.peak, extra_flop=extra))
    if (least := counted.peak.total) > budget:
        raise ValueError(
            f"cannot fit: with all measures the peak is {readable_bytes(least)}, and the "
            f"budget is {readable_bytes(budget)}. Take a smaller batch, or several cards"
        )
    return MemoryPlan(budget=budget, steps=tuple(steps), ways=ways)


def _measures(model: nn.Module, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may be tried, in order, each with its name."""
    yield "BF16 autocast", {"autocast": True}
    if isinstance(getattr(model, "head", None), nn.Linear):
        yield f"loss in {_CHUNKS} chunks", {"loss_chunks": _CHUNKS}
    if _stack(model) is not None:
        yield "checkpointed blocks", {"checkpointed": True}
    parts = 2
    while parts <= rows:
        yield f"{parts} micro-batches", {"micro_batches": parts}
        parts *= 2
    yield "AdamW without foreach", {"foreach": False}
    yield "moments in 8 bits", {"eight_bit": True}


@dataclass(frozen=True)
class _Counted:
    """Where most bytes are alive in forward and backward, and in the update; the FLOP."""

    loss: StepPoint
    update: StepPoint
    flop: float

    @property
    def peak(self) -> StepPoint:
        return highest((self.loss, self.update))


def _count(model: nn.Module, batch: tuple[Tensor, Tensor], ways: Ways) -> _Counted:
    """Run a step that is not the first on fake tensors, under CUDA's autocast lists."""
    model, mode = fake_copy(model)
    with emulate_gpu(), mode:
        inputs, targets = (torch.empty_like(mode.from_tensor(whole)) for whole in batch)
        # From the second micro-batch on gradients are there, and one is like the other.
        parts = min(2, ways.micro_batches)
        rows = parts * -(-len(inputs) // ways.micro_batches)
        step = PlannedStep(model, replace(ways, micro_batches=parts))
        make_moments(step.optimizer)
        with StepBytes(model, step.optimizer, (inputs, targets)) as live:
            step.accumulate(inputs[:rows], targets[:rows], begin=live.begin)
            live.begin("step")
            step.optimizer.step()
        points = live.points()
    return _Counted(
        loss=highest(points, "forward", "backward"),
        update=highest(points, "step"),
        flop=live.flop * ways.micro_batches / parts,
    )


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


# ------------------------------------------------------------------ the step


class PlannedStep:
    """A training step: ``step(inputs, targets)`` updates the model and returns the mean loss.

    Gradients of the whole batch stay in the parameters until the next call. Between calls the model
    is as it was, its head and its state_dict too.

    Args:
        settings: of AdamW, such as ``lr``.
    """

    def __init__(self, model: nn.Module, ways: Ways, **settings: Any) -> None:
        self.model, self.ways = model, ways
        parameters = list(model.parameters())
        self.optimizer: Optimizer = (
            BlockAdamW(parameters, **settings)
            if ways.eight_bit
            else AdamW(parameters, foreach=ways.foreach, **settings)
        )
        self._stack = _stack(model) if ways.checkpointed else None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.accumulate(inputs, targets)
        self.optimizer.step()
        return loss

    def accumulate(
        self, inputs: Tensor, targets: Tensor, *, begin: Callable[[str], None] = lambda phase: None
    ) -> Tensor:
        """Forward and backward of all micro-batches; the mean loss, without a graph.

        ``begin`` is told when a "forward" and when a "backward" begins.
        """
        begin("forward")
        counted = (targets != -100).sum()
        total = torch.zeros((), device=targets.device)
        parts = (whole.chunk(self.ways.micro_batches) for whole in (inputs, targets))
        for x, y in zip(*parts, strict=True):
            begin("forward")
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.ways.autocast):
                loss = self._summed_loss(x, y) / counted
            begin("backward")
            loss.backward()
            total += loss.detach()
            del loss
        return total

    def _summed_loss(self, x: Tensor, y: Tensor) -> Tensor:
        if self.ways.loss_chunks == 1:
            return summed_loss(nn.Identity(), self._run(x), y, 1)
        head = self.model.head
        self.model.head = nn.Identity()
        try:
            hidden = self._run(x)
        finally:
            self.model.head = head
        return summed_loss(head, hidden, y, self.ways.loss_chunks)

    def _run(self, x: Tensor) -> Tensor:
        if self._stack is None:
            return self.model(x)
        self._stack.forward = self._checkpointed
        try:
            return self.model(x)
        finally:
            del self._stack.forward

    def _checkpointed(self, x: Tensor) -> Tensor:
        assert self._stack is not None
        for group in _groups(self._stack):
            x = checkpoint(group, x, use_reentrant=False)
        return x


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


def _stack(model: nn.Module) -> nn.Sequential | None:
    """The ``nn.Sequential`` with the most parameters."""
    found = [part for part in model.modules() if isinstance(part, nn.Sequential) and len(part) > 1]
    return max(found, key=lambda part: sum(p.numel() for p in part.parameters()), default=None)


def _groups(stack: nn.Sequential) -> list[nn.Sequential]:
    """Each block by itself; single layers in as many groups as a group has layers."""
    layers = list(stack)
    blocks = any(list(layer.children()) for layer in layers)
    size = 1 if blocks else math.ceil(math.sqrt(len(layers)))
    return [stack[first : first + size] for first in range(0, len(layers), size)]
