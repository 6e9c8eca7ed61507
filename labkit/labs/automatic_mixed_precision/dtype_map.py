"""The dtypes of one training step of a transformer block, as the kernels saw them.

``record_block`` runs a real step under autocast and notes, for each operation of the block, the
dtype that the kernel read and gave, forward and backward. It looks below autocast, in PyTorch's
dispatcher, so that the casts are in the record; nothing here knows an autocast list.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import dtype_of
from labkit.training.models import Block

# Of a Block, in the order of its forward pass: a name, its weight, and the kernel that computes it.
_OPERATIONS = (
    ("layer norm", "attention_norm.weight", "native_layer_norm"),
    ("linear: q, k, v", "qkv.weight", "addmm"),
    ("attention", "", "attention"),
    ("linear: out", "attention_out.weight", "addmm"),
    ("add", "", "add"),
    ("layer norm 2", "feed_forward_norm.weight", "native_layer_norm"),
    ("linear: up", "feed_forward.0.weight", "addmm"),
    ("gelu", "", "gelu"),
    ("linear: down", "feed_forward.2.weight", "addmm"),
    ("add 2", "", "add"),
)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of the block; each dtype is "fp32", "fp16" or "bf16", or "" for no such value.

    Args:
        name: such as "linear: up".
        reads, gives: the dtype of the kernel's input and of its output, forward.
        weight: the dtype in which the optimizer keeps the operation's weight.
        copy: the dtype in which the kernel reads that weight.
        gradient: the dtype of the gradient that the backward kernel reads.
        passes: the dtype of the gradient that it gives for the operation's input.
        weight_gradient: the dtype in which it gives the gradient of the weight.
        grad: the dtype of the weight's ``.grad``.
    """

    name: str
    reads: str
    gives: str
    weight: str = ""
    copy: str = ""
    gradient: str
    passes: str
    weight_gradient: str = ""
    grad: str = ""


def record_block(dtype: torch.dtype = torch.float16, device: str = "cpu") -> tuple[Operation, ...]:
    """Run a step of a small block and note the dtypes of each operation, in forward order.

    Args:
        dtype: what autocast computes in; float32 for no autocast.
        device: "cpu", inside ``emulate_gpu()``, or "cuda".

    >>> [op.gives for op in record_block() if op.name in ("layer norm", "attention", "add")]
    ['fp32', 'fp16', 'fp32']
    """
    torch.manual_seed(0)
    block = Block(width=8, heads=2).to(device)
    inputs = torch.randn(2, 3, 8, device=device, requires_grad=True)  # 6 rows: no width is 6
    narrow = torch.autocast(device, dtype=dtype) if dtype is not torch.float32 else nullcontext()
    with emulate_gpu():
        with _Kernels() as forward, narrow:
            output = block(inputs)
        loss = 1024.0 * output.float().square().mean()
        with _Kernels() as backward:
            loss.backward()
    forward_calls, backward_calls = iter(forward.calls), reversed(_steps_back(backward.calls))
    parameters = dict(block.named_parameters())
    found = []
    for name, weight, kernel in _OPERATIONS:
        parameter = parameters.get(weight)
        call = next(call for call in forward_calls if kernel in call.name)
        # An add has no kernel of its own backward: the gradient is handed to both sides.
        back = None if kernel == "add" else next(backward_calls)
        found.append(_operation(name, parameter, call, back))
    return tuple(_with_adds(found))


@dataclass(frozen=True)
class _Call:
    name: str
    reads: tuple[Tensor, ...]
    gives: tuple[Tensor, ...]


class _Kernels(TorchDispatchMode):
    """Notes each kernel that runs inside the block, with what it reads and gives."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        gives = result if isinstance(result, (tuple, list)) else (result,)
        tensors = [tuple(x for x in each if isinstance(x, Tensor)) for each in (args, gives)]
        self.calls.append(_Call(func.__name__.split(".")[0], *tensors))
        return result


@dataclass(frozen=True)
class _Back:
    """What backward computes for one operation."""

    gradient: Tensor
    passes: Tensor
    weight_gradient: Tensor | None


def _steps_back(calls: list[_Call]) -> list[_Back]:
    """One for each operation with a kernel of its own, in the order of the backward pass."""
    steps, products = [], []
    for call in calls:
        if call.name == "mm":
            products.append(call)
            if len(products) == 2:  # of a linear layer: the input's gradient, and the weight's
                of_input, of_weight = sorted(products, key=_is_of_weight)
                steps.append(_Back(of_input.reads[0], of_input.gives[0], of_weight.gives[0]))
                products = []
        elif call.name.endswith("_backward"):
            weight = call.gives[1] if "layer_norm" in call.name else None
            steps.append(_Back(call.reads[0], call.gives[0], weight))
    return steps


def _is_of_weight(product: _Call) -> bool:
    """The sum over the rows of the batch, of which there are 6, is the weight's gradient."""
    return product.reads[0].shape[1] == 6


def _operation(
    name: str, parameter: torch.nn.Parameter | None, call: _Call, back: _Back | None
) -> dict[str, str]:
    reads = call.reads[1:] if call.name == "addmm" else call.reads  # which reads the bias first
    said = {"name": name, "reads": _short(reads[0]), "gives": _short(call.gives[0])}
    if parameter is not None:
        said |= {"weight": _short(parameter), "copy": _short(reads[1])}
    if back is not None:
        said |= {"gradient": _short(back.gradient), "passes": _short(back.passes)}
        if parameter is not None and back.weight_gradient is not None:
            said |= {"weight_gradient": _short(back.weight_gradient)}
            said |= {"grad": _short(parameter.grad)}
    return said


def _with_adds(found: list[dict[str, str]]) -> Iterator[Operation]:
    """An addition hands its gradient on; autograd keeps it in the dtype of the output."""
    for said in found:
        stream = {"gradient": said["gives"], "passes": said["gives"]}
        yield Operation(**(stream | said))


def _short(tensor: Tensor | None) -> str:
    return "" if tensor is None else dtype_of(tensor.dtype).short
