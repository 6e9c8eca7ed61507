"""What a step needs, and where 16 bits lose their speed: odd dimensions, casts back and forth.

All of it is counted, so no GPU is needed: whether a dimension is a multiple of 8, the FLOP of a
matmul, the bytes that a cast reads and writes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from labkit.formats.dtypes import name_of
from labkit.measuring.live_bytes import plain_parts
from labkit.training.arguments import check_trainable, prepare
from labkit.training.batches import Batch, Loss, loss_of, on_device
from labkit.training.precision import active, check_values, device_named, precision_named


@dataclass(frozen=True)
class Misaligned:
    """A dimension of a layer that is no multiple.

    Args:
        layer: its name in the model, "" for the model itself.
        dimension: the attribute, such as "out_features".
        size: what it is.
        next_multiple: the smallest multiple that is not less.
    """

    layer: str
    dimension: str
    size: int
    next_multiple: int


_DIMENSIONS = (
    (nn.Linear, ("in_features", "out_features")),
    (_ConvNd, ("in_channels", "out_channels")),
    (nn.Embedding, ("num_embeddings", "embedding_dim")),
)


def misaligned(model: nn.Module, multiple: int = 8) -> list[Misaligned]:
    """The dimensions of linear, convolution and embedding layers that are no multiple.

    For 16-bit values Tensor Cores want rows of whole 16 bytes, which are 8 values. Since cuBLAS 11
    and cuDNN 7.6.3 others run there too, but slower; on an A100 64 is better still. An embedding
    is a look-up: its vocabulary counts where its weight is the output layer too. A grouped
    convolution is judged by the channels of all its groups. The batch is a dimension as well, which
    a model does not know.

    Raises:
        ValueError: ``multiple`` is below 1; a TorchScript model, whose layers are none of torch.nn
            any more.

    Source: NVIDIA, Deep Learning Performance, "Matrix Multiplication Background User's Guide",
    section "Tensor Core Requirements".

    >>> misaligned(nn.Linear(64, 10))
    [Misaligned(layer='', dimension='out_features', size=10, next_multiple=16)]
    """
    if multiple < 1:
        raise ValueError(f"multiple={multiple!r}: pass a whole number from 1 on; 16 bits want 8")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValueError("a TorchScript model: ask about the model that it was made from")
    return [
        Misaligned(name, dimension, size, -(-size // multiple) * multiple)
        for name, layer in model.named_modules()
        for kind, dimensions in _DIMENSIONS
        if isinstance(layer, kind)
        for dimension in dimensions
        if (size := getattr(layer, dimension)) % multiple
    ]


@dataclass(frozen=True)
class Casts:
    """What ``count_casts`` returns.

    Args:
        conversions: how many casts, by (from, to), each the name of a dtype such as "float32".
        bytes: read and written by all of them.
    """

    conversions: dict[tuple[str, str], int]
    bytes: int

    @property
    def count(self) -> int:
        """All casts together."""
        return sum(self.conversions.values())

    def describe(self) -> str:
        """All of it as lines of text, the most frequent cast first."""
        often = sorted(self.conversions.items(), key=lambda item: -item[1])
        lines = [f"{self.count} casts, {self.bytes:,} bytes read and written"]
        return "\n".join(lines + [f"{before} -> {after}: {n}" for (before, after), n in often])


def count_casts(step: Callable[[], object]) -> Casts:
    """Call ``step`` once and count its casts: copies of a tensor into another dtype.

    Counted are ``aten._to_copy`` and ``aten.copy_`` between dtypes, forward and backward, whether
    written out (``x.half()``) or made by autocast. A cast also moves memory: each value is read in
    one dtype and written in the other. Not counted is what an operator converts inside itself, as
    ``half + float`` does. So the casts inside the kernels of ``emulate_gpu()``, which no GPU would
    make, are left out, and those of its autocast, which CUDA's makes too, are in. Not seen are
    ``torch._foreach_copy_`` and code that ``torch.compile`` has fused.

    >>> x = torch.ones(100)
    >>> count_casts(lambda: x.half().float() + 1).describe().splitlines()[0]
    '2 casts, 1,200 bytes read and written'
    """
    with _CastCounter() as counter:
        step()
    return Casts(dict(counter.conversions), counter.bytes)


class _CastCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.conversions: Counter[tuple[str, str]] = Counter()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Under inference_mode ``x.half()`` arrives whole; outside it has been taken apart.
        if torch.is_inference_mode_enabled():
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if func is torch.ops.aten.copy_.default:
            self._note(source=args[1], target=args[0])
        result = func(*args, **kwargs)
        if func is torch.ops.aten._to_copy.default:
            self._note(source=args[0], target=result)
        return result

    def _note(self, *, source: Tensor, target: Tensor) -> None:
        if source.dtype is target.dtype:
            return
        self.conversions[name_of(source.dtype), name_of(target.dtype)] += 1
        # A source that is broadcast is read once.
        self.bytes += source.numel() * source.itemsize + target.numel() * target.itemsize


def work_and_memory(
    model: nn.Module,
    batch: Batch,
    *,
    loss_fn: Loss | None = None,
    precision: str = "fp32",
    device: str | torch.device = "cpu",
) -> tuple[int, int]:
    """The FLOP of a step, forward and backward, and the bytes that autograd keeps in between.

    The model moves to the device and into train mode, and for "pure_*" it becomes 16-bit, as in
    ``train``; gradients are added to those in it. ``loss_fn`` is that of ``train``. FLOP are those
    of matrix products, convolutions and attention. Each storage that is saved for backward counts
    once and whole; parameters and buffers, which are there anyway, do not count, but their 16-bit
    copies do.

    Raises:
        ValueError: a precision or a device that is not there, a model that ``train`` does not take
            or whose parameters are uninitialised.
    """
    plan, device = precision_named(precision), device_named(device)
    check_trainable(model, plan)
    check_values(model)
    prepare(model, plan, device)
    # A batch that is a view of the whole data set would count as all of it.
    inputs, targets = (values.clone() for values in on_device(batch, plan, device))
    owned = (part for t in (*model.parameters(), *model.buffers()) for part in plain_parts(t))
    held = {part.untyped_storage().data_ptr() for part in owned}
    with active(plan, device) as autocast, FlopCounterMode(display=False) as counter:
        with _saved(held) as kept, autocast():
            loss = loss_of(model, inputs, targets, loss_fn)
        if not loss.requires_grad:
            raise ValueError("the loss depends on no parameter that is trained, so no step is made")
        loss.backward()
    return counter.get_total_flops(), sum(kept.values())


@contextmanager
def _saved(held: set[int]) -> Iterator[dict[int, int]]:
    """The bytes of each storage saved for backward inside the block, by its address."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        for storage in (part.untyped_storage() for part in plain_parts(tensor)):
            if storage.data_ptr() not in held:
                kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    # What is saved stays alive until backward, so that no address comes twice.
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept
