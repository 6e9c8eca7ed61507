"""``LiveBytes``: the bytes of all tensors that are alive, counted while ordinary torch code runs.

Real tensors count, and fake ones (``torch._subclasses.fake_tensor.FakeTensorMode``) alike: with
fake tensors a laptop counts a step of a model that it could not hold.

torch's own ``MemTracker`` (torch.distributed._tools) finds the same peaks, and judges this counter
in its tests. It cannot take its place: it refuses a module that is called twice, as in chunks and
retries, and its hooks keep the tensors of a failed forward alive until Python's collector runs.
"""

import copy
import weakref
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from labkit.measuring.html_tables import readable_bytes
from labkit.training.precision import check_values

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


class LiveBytes(TorchDispatchMode):
    """Inside ``with LiveBytes().hold(model) as live:`` every storage that torch uses is counted.

    A storage is the memory of a tensor and of all its views. It counts, whole, from the operator
    that makes it or first reads it until Python and autograd let go of it. What is there before the
    block begins is named to ``hold``. Operators of the thread that entered the block are seen, and
    those of its backward on a CPU. Memory that a kernel takes and gives back inside one operator is
    not seen, and neither are a GPU's context, its libraries' workspaces, and its allocator's
    rounding to 512 B.

    Fake tensors are counted if the block is entered inside ``FakeTensorMode()``.

    Args:
        limit: bytes of the card, or None for a card without end.

    Attributes:
        now: bytes alive.
        peak: the most bytes that were alive at once, since the beginning or ``restart``.
        at_peak: the operator that reached the peak, such as "aten.mm"; "hold" if it was reached by
            what was there.
        flop: of matmuls, convolutions and attention so far.
        history: the bytes alive after each operator, since the beginning or ``restart``.
        marks: name -> (number of operators in the history, bytes alive then), by ``mark``.

    Raises:
        torch.OutOfMemoryError: an operator, or ``hold``, would exceed the limit. What the operator
            made is not counted.

    >>> layer = nn.Linear(4, 4, bias=False)
    >>> with LiveBytes().hold(layer) as live:
    ...     half = layer.weight.half()
    >>> live.now, live.at_peak, live.history
    (96, 'aten._to_copy', [96])
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.now = self.peak = self.flop = 0
        self.at_peak = "hold"
        self.history: list[int] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}

    def hold(self, *things: Any) -> Self:
        """Count what is there already: tensors, modules, optimizers, and collections of them.

        Of a module these are parameters, buffers and their gradients; of an optimizer its state.
        A module whose parameters are uninitialised, or on "meta", raises ValueError.
        """
        if refusal := self._count(_tensors(things), "hold"):
            raise torch.OutOfMemoryError(refusal)
        return self

    def mark(self, name: str) -> None:
        """Note the bytes alive now under a name."""
        self.marks[name] = len(self.history), self.now

    def restart(self) -> None:
        """Begin history, marks and peak again; what is alive stays counted."""
        self.history.clear()
        self.marks.clear()
        self.peak, self.at_peak = self.now, "hold"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if refusal := self._count(tree_leaves((args, kwargs, out)), str(func.overloadpacket)):
            # Without a name: the error and this frame would hold each other, and all frames above.
            raise torch.OutOfMemoryError(refusal)
        if formula := _FLOP.get(func.overloadpacket):
            self.flop += formula(*args, **(kwargs or {}), out_val=out)
        self.history.append(self.now)
        return out

    def _count(self, leaves: list[Any], operator: str) -> str:
        """Count the storages that are new or have another size; or none, and say why not."""
        used = [part.untyped_storage() for x in leaves for part in plain_parts(x)]
        storages = {id(storage): storage for storage in used}
        sizes = {
            key: storage.nbytes()
            for key, storage in storages.items()
            if storage.nbytes() != self._sizes.get(key)
        }
        asked = sum(size - self._sizes.get(key, 0) for key, size in sizes.items())
        if self.limit is not None and self.now + asked > self.limit:
            return (
                f"Card out of memory. Tried to allocate {readable_bytes(asked)}. It has a total "
                f"capacity of {readable_bytes(self.limit)}, of which "
                f"{readable_bytes(self.limit - self.now)} is free; {readable_bytes(self.now)} is "
                "in use."
            )
        for key, size in sizes.items():
            if key not in self._sizes:
                weakref.finalize(storages[key], self._forget, key).atexit = False
            self._sizes[key] = size
        self.now += asked
        if self.now > self.peak:
            self.peak, self.at_peak = self.now, operator
        return ""

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def plain_parts(x: Any) -> list[Tensor]:
    """The tensors that hold memory: x, or those inside it, sparse, sharded or of torchao."""
    if not isinstance(x, Tensor) or x.is_mkldnn:  # which shows no storage
        return []
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    if not is_traceable_wrapper_subclass(x):
        return [x]
    names, _ = x.__tensor_flatten__()
    return [part for name in names for part in plain_parts(getattr(x, name))]


def _tensors(things: Any) -> list[Tensor]:
    """The tensors of what ``hold`` takes, and the gradients that they have."""
    found: list[Tensor] = []
    for thing in tree_leaves(things):
        if isinstance(thing, nn.Module):
            check_values(thing)
            found += [*thing.parameters(), *thing.buffers()]
        elif isinstance(thing, Optimizer):
            found += [x for x in tree_leaves(list(thing.state.values())) if isinstance(x, Tensor)]
        elif isinstance(thing, Tensor):
            found.append(thing)
    return found + [x.grad for x in found if x.is_leaf and x.grad is not None]


def fake_copy(module: nn.Module) -> tuple[nn.Module, FakeTensorMode]:
    """A copy of a real module whose parameters and buffers are fake, and their mode."""
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        return copy.deepcopy(module), mode
