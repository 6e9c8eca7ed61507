"""``emulate_gpu()``: ordinary ``torch.amp`` code on a CPU behaves as on a Tensor Core GPU.

It puts two tables into torch's dispatcher while at least one block is open, and takes them out
again: ``autocast_lists`` says in which dtype each operator runs, ``tensor_core`` what
it rounds.
"""

import threading
import warnings
from contextlib import ContextDecorator

import torch

from labkit.devices.fp32_products import fp32_products_pinned
from labkit.emulation import autocast_lists, tensor_core
from labkit.formats import FP32, FloatFormat, accumulators
from labkit.formats.accumulators import Accumulator
from labkit.formats.dtypes import format_of

_NARROW = (torch.float16, torch.bfloat16)
_lock = threading.RLock()
_installed: "_Installation | None" = None


def _accumulator(
    accumulate: torch.dtype | FloatFormat, promote_every: int | None
) -> Accumulator | None:
    """The accumulator that the arguments describe, None for float32."""
    fmt = FP32 if accumulate is torch.float32 else accumulate
    if isinstance(fmt, torch.dtype) and fmt in _NARROW:
        fmt = format_of(fmt)
    if not (isinstance(fmt, FloatFormat) and fmt.signed):
        raise ValueError(
            f"accumulate={accumulate!r}: pass torch.float32, torch.float16, torch.bfloat16 or a "
            "signed labkit.formats.FloatFormat"
        )
    if promote_every is not None and fmt == FP32:
        raise ValueError(
            f"promote_every={promote_every!r} moves a narrow sum to float32, but accumulate is "
            "float32 already: pass a narrower accumulate, or leave promote_every out"
        )
    return None if fmt == FP32 else Accumulator(fmt, promote_every)


class _Installation:
    """CUDA's lists and roundings in the dispatcher, and float32 pinned to IEEE float32."""

    def __init__(self) -> None:
        self.library = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                # To override kernels is what this class is for; torch would say so once.
                warnings.filterwarnings("ignore", message=".*[Oo]verrid", category=UserWarning)
                tensor_core.register(self.library)
                autocast_lists.register(self.library)
        except BaseException:
            self.library._destroy()
            raise
        self.pinned = fp32_products_pinned("ieee", device="cpu")
        self.pinned.__enter__()
        # This fast path asks only CUDA's autocast whether to stand aside.
        self.fastpath = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)

    def remove(self) -> None:
        self.library._destroy()
        self.pinned.__exit__(None, None, None)
        torch.backends.mha.set_fastpath_enabled(self.fastpath)


class emulate_gpu(ContextDecorator):
    """Inside the block, CPU tensors follow CUDA's autocast lists and a Tensor Core's roundings.

    Ordinary code then behaves as on a GPU, forward and backward: ``torch.autocast("cpu",
    dtype=torch.float16)`` or bfloat16, ``torch.amp.GradScaler("cpu")``, ``model.half()``. Values
    that leave the range become inf, those below it 0. Tensors on a CUDA device are left alone.

    Also a decorator. Blocks may nest, and one object may be entered again; they hold for the whole
    process, worker threads and backward included, until the last one ends. float32 products are
    pinned to IEEE float32 meanwhile. A block cannot span the cells of a notebook.

    Args:
        accumulate: what the running sums of the matmul family are rounded to: float32, float16,
            bfloat16 or a signed ``labkit.formats.FloatFormat``. Anything but float32 is a model of
            a narrow accumulator (see ``labkit.formats.accumulators``), slow, and not of a certain
            GPU; convolutions keep float32. Of nested blocks the innermost counts.
        promote_every: after so many products a narrow sum is added to one in float32 and begins
            again at zero. None: never.

    Raises:
        ValueError: another ``accumulate``; ``promote_every`` below 1, or beside float32.

    Inside, RNN layers under autocast raise NotImplementedError, which names their cells as the way
    out, and ``binary_cross_entropy`` raises CUDA's own message.

    Sources: the table in ``tensor_core``, the lists in ``autocast_lists``.

    >>> x = torch.full((1, 4096), 1.0)
    >>> with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    ...     product = x @ x.T
    ...     product.dtype, product.item(), (16 * product).item(), product.exp().dtype
    (torch.float16, 4096.0, inf, torch.float32)
    >>> with emulate_gpu(accumulate=torch.float16):
    ...     (x.half() @ x.half().T).item()
    2048.0
    """

    def __init__(
        self,
        *,
        accumulate: torch.dtype | FloatFormat = torch.float32,
        promote_every: int | None = None,
    ) -> None:
        self.accumulator = _accumulator(accumulate, promote_every)

    def __enter__(self) -> "emulate_gpu":
        global _installed
        with _lock:
            if _installed is None:
                _installed = _Installation()
            accumulators.in_force.append(self.accumulator)
        return self

    def __exit__(self, *exception: object) -> None:
        global _installed
        with _lock:
            accumulators.leave(self.accumulator)
            if _installed is not None and not accumulators.in_force:
                _installed.remove()
                _installed = None
