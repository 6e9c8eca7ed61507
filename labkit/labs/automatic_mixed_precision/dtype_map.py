"""The dtype of every value of one training step, edge by edge.

An edge is a value of the step: what makes it, what takes it, and its dtype. ``record_step`` runs a
real step under autocast and writes the list down; nothing here knows an autocast list.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import dtype_of

PHASES = ("forward", "backward", "update")


@dataclass(frozen=True)
class Edge:
    """One value of a training step.

    Args:
        phase: one of PHASES.
        name: what it is, such as "hidden.weight" or "after relu".
        said: its way in words, such as "from linear to relu".
        dtype: "fp32", "fp16" or "bf16".
    """

    phase: str
    name: str
    said: str
    dtype: str


def record_step(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype = torch.float16,
    scale: float = 1024.0,
) -> tuple[Edge, ...]:
    """Run one step under autocast and write down the dtype of each value.

    Args:
        model: a network; each named parameter becomes an edge.
        inputs, targets: one batch, on the model's device. A CPU is inside ``emulate_gpu()``.
        loss_fn: (output, targets) -> loss, run inside autocast.
        optimizer: over the model's parameters; it makes one step on unscaled gradients.
        dtype: what autocast computes in.
        scale: what the loss is multiplied by before backward.

    Returns:
        The edges in the order in which their values are made: forward, then backward, then update.
    """
    device = inputs.device.type
    with emulate_gpu():
        with torch.autocast(device, dtype=dtype), _Outputs() as outputs:
            loss = loss_fn(model(inputs), targets)
        back: list[Edge] = []
        for (name, output), taker in zip(outputs.made, _takers(outputs.made), strict=True):
            said = f"from {taker} back to {name}"
            _watch(output, back, f"gradient of {name}", said)
        (scale * loss).backward()
    edges = [_edge("forward", "inputs", "into the first layer", inputs)]
    edges += [
        _edge("forward", name, "as the optimizer keeps it", parameter)
        for name, parameter in model.named_parameters()
    ]
    for (name, output), taker in zip(outputs.made, _takers(outputs.made), strict=True):
        edges.append(_edge("forward", f"after {name}", f"from {name} to {taker}", output))
    edges += back
    for name, parameter in model.named_parameters():
        said = "as backward leaves it in .grad"
        edges.append(_edge("backward", f"gradient of {name}", said, parameter.grad))
        parameter.grad /= scale
    optimizer.step()
    name, parameter = next(iter(model.named_parameters()))
    for key, value in optimizer.state[parameter].items():
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            said = f"the optimizer's memory of {name}"
            edges.append(_edge("update", key, said, value))
    said = "what the step has left"
    edges.append(_edge("update", f"new {name}", said, parameter))
    return tuple(edges)


def _edge(phase: str, name: str, said: str, value: Tensor) -> Edge:
    return Edge(phase, name, said, dtype_of(value.dtype).short)


def _takers(made: list[tuple[str, Tensor]]) -> list[str]:
    """Who takes each output: the next function, or backward."""
    return [name for name, _ in made[1:]] + ["backward"]


def _watch(output: Tensor, edges: list[Edge], name: str, said: str) -> None:
    output.register_hook(lambda gradient: edges.append(_edge("backward", name, said, gradient)))


class _Outputs(TorchFunctionMode):
    """Notes the tensors that functions of a network make, in order: a chain of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, Tensor]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.requires_grad and result.grad_fn is not None:
            seen = sum(name.split(" ")[0] == func.__name__ for name, _ in self.made)
            name = func.__name__ if not seen else f"{func.__name__} {seen + 1}"
            self.made.append((name, result))
        return result


def example(device: str = "cpu") -> tuple[Edge, ...]:
    """The step that lab 05 paints: two layers with a layer norm, softmax cross entropy, Adam.

    >>> [edge.dtype for edge in example() if edge.name in ("after linear", "after layer_norm")]
    ['fp16', 'fp32']
    """
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("first", nn.Linear(8, 16, bias=False))
    model.add_module("relu", nn.ReLU())
    model.add_module("norm", nn.LayerNorm(16, elementwise_affine=False))
    model.add_module("second", nn.Linear(16, 4, bias=False))
    model.to(device)
    inputs, targets = torch.randn(16, 8, device=device), torch.arange(16, device=device) % 4

    def loss(output: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.nll_loss(output.log_softmax(dim=1), labels)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return record_step(model, inputs, targets, loss_fn=loss, optimizer=optimizer)
