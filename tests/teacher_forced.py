"""Two machines cannot be asked for equal losses; step by step they can be asked for equal steps.

A teacher trains by real AMP, or by the emulation itself, and writes down each step: parameters,
buffers, batch, loss scale, gradients, found_inf. A pupil is then put into the teacher's state at
every step and computes that one step. Errors cannot grow from step to step, so what remains is the
rounding of a single step, and how much of it the order of additions explains is measured by pupils
that add in other orders.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.emulation import emulate_gpu
from labkit.formats import accumulators

STEPS = 200
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """One training step: the state before it, on the CPU, and what came out."""

    state: Tensors
    batch: tuple[Tensor, Tensor]
    scale: float
    loss: float
    gradients: Tensors  # of the scaled loss
    found_inf: bool


def network() -> nn.Module:
    """Convolution, batch norm, linear layers: 8x8 images to 10 classes."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.LayerNorm(32),
        nn.GELU(),
        nn.Linear(32, 10),
    )


def batches(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Noisy images of ten fixed patterns, 32 a batch."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(10, 1, 8, 8, generator=generator)
    for _ in range(steps):
        labels = torch.randint(10, (32,), generator=generator)
        noise = torch.randn(32, 1, 8, 8, generator=generator)
        yield patterns[labels] + noise, labels


class InAnotherOrder:
    """An accumulator of full float32 that takes the products of each sum in another order."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        order = torch.randperm(a.shape[-1], generator=self.generator)
        return a[..., order] @ (b[order] if b.dim() == 1 else b[..., order, :])


@contextmanager
def emulation(order: int | None, accumulate: torch.dtype = torch.float32) -> Iterator[None]:
    """emulate_gpu(), with the products of every sum shuffled unless ``order`` is None."""
    with emulate_gpu(accumulate=accumulate):
        if order is None:
            yield
            return
        shuffled = InAnotherOrder(order)
        accumulators.in_force.append(shuffled)
        try:
            yield
        finally:
            accumulators.in_force.remove(shuffled)


def _on_cpu(tensors: Iterator[tuple[str, Tensor]]) -> Tensors:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors}


def _gradients(model: nn.Module, batch: tuple[Tensor, Tensor], scale: float) -> tuple[Tensor, bool]:
    """Scaled backward into the model's ``.grad``; the loss, and whether one is inf or NaN."""
    x, labels = batch
    with torch.autocast(x.device.type, dtype=torch.float16):
        loss = F.cross_entropy(model(x), labels)
    (loss * scale).backward()
    found_inf = any(not p.grad.isfinite().all() for p in model.parameters())
    return loss.detach(), found_inf


def teach(
    device: str,
    *,
    steps: int = STEPS,
    order: int | None = None,
    accumulate: torch.dtype = torch.float32,
) -> list[Step]:
    """A free run of fp16 AMP on a device, written down step by step.

    The loss scale starts too high and doubles every 20 good steps, so that steps are skipped.
    """
    model, written, scale, good = network().to(device), [], 2.0**22, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with emulation(order, accumulate) if device == "cpu" else nullcontext():
        for batch in batches(steps):
            state = _on_cpu(iter(model.state_dict().items()))
            loss, found_inf = _gradients(model, tuple(t.to(device) for t in batch), scale)
            grads = _on_cpu((name, p.grad) for name, p in model.named_parameters())
            written.append(Step(state, batch, scale, loss.item(), grads, found_inf))
            if found_inf:
                scale, good = scale / 2, 0
            else:
                for p in model.parameters():
                    p.grad /= scale
                optimizer.step()
                scale, good = (scale * 2, 0) if good == 19 else (scale, good + 1)
            optimizer.zero_grad()
    return written


def follow(lesson: list[Step], *, order: int | None = None) -> list[tuple[Tensors, bool]]:
    """What the emulation computes from the state of each step: gradients and found_inf."""
    model, answers = network(), []
    with emulation(order):
        for step in lesson:
            model.load_state_dict(step.state)
            _, found_inf = _gradients(model, step.batch, step.scale)
            answers.append((_on_cpu((n, p.grad) for n, p in model.named_parameters()), found_inf))
            model.zero_grad()
    return answers


def distance(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b| in the 2-norm; 0 where both are 0."""
    return ((a - b).double().norm() / b.double().norm().clamp_min(1e-300)).item()


def amax(tensors: Tensors) -> float:
    return max(t[t.isfinite()].abs().max().item() for t in tensors.values() if t.isfinite().any())
