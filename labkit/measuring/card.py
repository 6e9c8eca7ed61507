"""``Card``: the bytes of all tensors that are alive, counted while ordinary torch code runs.

A card may have a limit, and then raises ``torch.OutOfMemoryError`` as a full GPU does. It counts
real tensors and fake ones (``torch._subclasses.fake_tensor.FakeTensorMode``) alike: with fake
tensors a laptop counts a step of a model that it could not hold.
"""

import copy
import weakref
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from labkit.measuring.showing import readable_bytes
from labkit.training.precision import check_values


class Card(TorchDispatchMode):
    """Inside ``with Card().hold(model) as card:`` every storage that torch uses is on the card.

    A storage is the memory of a tensor and of all its views. It counts, whole, from the operator
    that makes it or first reads it until Python and autograd let go of it. What stands on the card
    before the block begins is named to ``hold``. Operators of the thread that entered the block are
    seen, and those of its backward on a CPU. Memory that a kernel takes and gives back inside one
    operator is not seen, and neither are a GPU's context, its libraries' workspaces, and its
    allocator's rounding to 512 B.

    Fake tensors are counted if the card is entered inside ``FakeTensorMode()``.

    Args:
        limit: bytes, or None for a card without end.

    Attributes:
        now: bytes alive.
        peak: the most bytes that were alive at once, since the beginning or ``reset_peak``.
        at_peak: the operator that reached the peak, such as "aten.mm"; "hold" if it was reached by
            what stands there.

    Raises:
        torch.OutOfMemoryError: an operator, or ``hold``, would exceed the limit. What the operator
            made is not counted.

    >>> layer = nn.Linear(4, 4, bias=False)
    >>> with Card().hold(layer) as card:
    ...     half = layer.weight.half()
    >>> card.now, card.at_peak
    (96, 'aten._to_copy')
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.now = self.peak = 0
        self.at_peak = "hold"
        self._sizes: dict[int, int] = {}

    def hold(self, *things: Any) -> Self:
        """Count what is on the card already: tensors, modules, optimizers, and collections of them.

        Of a module these are parameters, buffers and their gradients; of an optimizer its state.
        A module whose parameters are uninitialised, or on "meta", raises ValueError.
        """
        if refusal := self._count(_tensors(things), "hold"):
            raise torch.OutOfMemoryError(refusal)
        return self

    def reset_peak(self) -> None:
        """Begin the peak again, at what is alive now."""
        self.peak, self.at_peak = self.now, "hold"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if refusal := self._count(tree_leaves((args, kwargs, out)), str(func.overloadpacket)):
            # Without a name: the error and this frame would hold each other, and all frames above.
            raise torch.OutOfMemoryError(refusal)
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


_Module = TypeVar("_Module", bound=nn.Module)


def fake_copy(module: _Module) -> tuple[_Module, FakeTensorMode]:
    """A copy of a real module whose parameters and buffers are fake, and their mode."""
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        return copy.deepcopy(module), mode
