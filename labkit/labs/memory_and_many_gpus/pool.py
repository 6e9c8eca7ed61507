"""``Pool``: tensors under a limit of bytes; the one that was not used for longest makes room."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import prod

import torch
from torch import Tensor


class Evicted(RuntimeError):
    """A handle was used whose bytes made room for others."""


class PooledTensor:
    """The handle of a tensor, which holds it as long as the pool does."""

    def __init__(self, key: Hashable, tensor: Tensor) -> None:
        self.key, self.nbytes = key, tensor.nbytes
        self._tensor: Tensor | None = tensor

    @property
    def tensor(self) -> Tensor:
        """The tensor, the same at each call.

        Raises:
            Evicted: the pool let go of it.
        """
        if self._tensor is None:
            raise Evicted(f"{self.key!r} is no longer in the pool: put it again")
        return self._tensor

    def evict(self) -> None:
        """Free the bytes: whoever kept the tensor, or a view, would keep them above the limit."""
        self.tensor.untyped_storage().resize_(0)
        self._tensor = None


class Pool:
    """Holds tensors of at most ``limit`` bytes; the least recently used makes room for a new one.

    A tensor that goes is freed at once, whoever still refers to it, so that the bytes alive never
    exceed the limit. This is a cache for what can be made again, such as the gathered layers of
    ZeRO-3. For memory itself torch's caching allocator does the work.

    >>> pool = Pool(100)
    >>> first = pool.put("first", (20,), torch.float32)
    >>> second = pool.put("second", (10,), torch.float16)
    >>> _ = pool.get("first")  # now "second" was not used for longest
    >>> third = pool.put("third", (2,), torch.float32)
    >>> "second" in pool, pool.used
    (False, 88)
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit={limit}: pass a number of bytes from 1 on")
        self.limit = limit
        self._handles: OrderedDict[Hashable, PooledTensor] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles

    @property
    def used(self) -> int:
        """The bytes of all tensors that the pool holds."""
        return sum(handle.nbytes for handle in self._handles.values())

    def put(self, key: Hashable, shape: Sequence[int], dtype: torch.dtype) -> PooledTensor:
        """Make room for a new tensor of this shape, all zeros, and hold it under the key.

        Raises:
            ValueError: the key is in the pool already, or a size is below 1; nothing has gone.
            MemoryError: it is larger than the limit; nothing has gone.
        """
        if not all(size >= 1 for size in shape):
            raise ValueError(f"shape {tuple(shape)}: pass sizes from 1 on")
        asked = prod(shape) * dtype.itemsize
        if key in self._handles:
            raise ValueError(f"{key!r} is in the pool: get it")
        if asked > self.limit:
            raise MemoryError(f"asked {asked:,} B, limit {self.limit:,} B")
        while self.used + asked > self.limit:
            _, oldest = self._handles.popitem(last=False)
            oldest.evict()
        self._handles[key] = PooledTensor(key, torch.zeros(tuple(shape), dtype=dtype))
        return self._handles[key]

    def get(self, key: Hashable) -> PooledTensor:
        """The handle under a key, which is now the most recently used.

        Raises:
            KeyError: the pool does not hold it, or no longer.
        """
        self._handles.move_to_end(key)
        return self._handles[key]
