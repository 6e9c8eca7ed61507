"""``Pool``: tensors under a limit of bytes; the one that was not used for longest makes room."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import prod

import torch
from torch import Tensor


class Evicted(RuntimeError):
    """A handle was used whose bytes made room for others, or were freed."""


class Handle:
    """A tensor of a pool, as long as the pool holds it."""

    def __init__(self, key: Hashable, tensor: Tensor) -> None:
        self.key, self.nbytes, self.pinned = key, tensor.nbytes, False
        self._tensor: Tensor | None = tensor

    @property
    def tensor(self) -> Tensor:
        """The tensor, the same at each call.

        Raises:
            Evicted: the pool let go of it.
        """
        if self._tensor is None:
            raise Evicted(
                f"{self.key!r} is no longer in the pool: put it again, or pin it while you use it"
            )
        return self._tensor

    def _let_go(self) -> None:
        # Whoever kept the tensor, or a view of it, would keep its bytes alive above the limit.
        self.tensor.untyped_storage().resize_(0)
        self._tensor = None


class Pool:
    """Holds tensors of at most ``limit`` bytes; of those not pinned the least recently used goes.

    A tensor that goes is freed at once, whoever still refers to it, so that the bytes alive never
    exceed the limit. This is a cache for what can be made again, such as the gathered layers of
    ZeRO-3. For memory itself torch's caching allocator does the work.

    Args:
        limit: bytes.
        device: of the tensors.

    Attributes:
        used: bytes of all tensors that the pool holds.

    Raises:
        ValueError: a limit below 1.

    >>> pool = Pool(100)
    >>> first = pool.put("first", (20,), torch.float32)
    >>> second = pool.put("second", (10,), torch.float16)
    >>> _ = pool.get("first")  # now "second" was not used for longest
    >>> third = pool.put("third", (2,), torch.float32)
    >>> "second" in pool, pool.used
    (False, 88)
    """

    def __init__(self, limit: int, *, device: str | torch.device = "cpu") -> None:
        if limit < 1:
            raise ValueError(f"limit={limit}: pass a number of bytes from 1 on")
        self.limit, self.device = limit, torch.device(device)
        self.used = 0
        self._handles: OrderedDict[Hashable, Handle] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles

    def put(self, key: Hashable, shape: Sequence[int], dtype: torch.dtype) -> Handle:
        """Make room for a new tensor of this shape, all zeros, and hold it under the key.

        Raises:
            ValueError: a size below 1, or the key is in the pool already.
            MemoryError: it does not fit, even if all that is not pinned goes; nothing has gone.
        """
        if not all(size >= 1 for size in shape):
            raise ValueError(f"shape {tuple(shape)}: pass sizes from 1 on")
        asked = prod(shape) * dtype.itemsize
        if key in self._handles:
            raise ValueError(f"{key!r} is in the pool: get it, or free it first")
        pinned = sum(handle.nbytes for handle in self._handles.values() if handle.pinned)
        if asked > self.limit - pinned:
            raise MemoryError(f"asked {asked:,} B, limit {self.limit:,} B, pinned {pinned:,} B")
        while self.used + asked > self.limit:
            self.free(next(key for key, handle in self._handles.items() if not handle.pinned))
        handle = Handle(key, torch.zeros(tuple(shape), dtype=dtype, device=self.device))
        self._handles[key] = handle
        self.used += asked
        return handle

    def get(self, key: Hashable) -> Handle:
        """The handle under a key, which is now the most recently used.

        Raises:
            KeyError: the pool does not hold it, or no longer.
        """
        self._handles.move_to_end(key)
        return self._handles[key]

    def pin(self, key: Hashable, pinned: bool = True) -> None:
        """Keep what stands under the key from going, or with ``pinned=False`` let it go again.

        Raises:
            KeyError: the pool does not hold it.
        """
        self._handles[key].pinned = pinned

    def free(self, key: Hashable) -> None:
        """Free what stands under the key now, pinned or not.

        Raises:
            KeyError: the pool does not hold it.
        """
        handle = self._handles.pop(key)
        self.used -= handle.nbytes
        handle._let_go()
