"""``emulate_gpu()``: ordinary ``torch.amp`` code on a CPU behaves as on a Tensor Core GPU.

It puts two tables into torch's dispatcher while at least one block is open, and takes them out
again: ``autocast_lists`` says in which dtype each operator runs, ``tensor_core`` what
it rounds.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from functools import cache
from typing import Any

import torch

from labkit.devices.fp32_products import fp32_products_pinned
from labkit.emulation import autocast_lists, tensor_core
from labkit.emulation.compiled import uncompiled
from labkit.emulation.device_names import cuda_means_cpu
from labkit.formats import FP32, FloatFormat, accumulators
from labkit.formats.accumulators import Accumulator
from labkit.formats.dtypes import format_of

_NARROW = (torch.float16, torch.bfloat16)
_lock = threading.RLock()
_installed: ExitStack | None = None


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


@cache
def _kernels() -> tuple[tuple[str, Callable[..., Any], str], ...]:
    """What both tables register. Made once: to look up torch's own kernels takes the longest."""
    return *tensor_core.rounding_kernels(), *autocast_lists.autocast_kernels()


@contextmanager
def _installed_kernels() -> Iterator[None]:
    """CUDA's lists and roundings in the dispatcher."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            # To override kernels is what this is for; torch would say so once.
            warnings.filterwarnings("ignore", message=".*[Oo]verrid", category=UserWarning)
            for name, kernel, key in _kernels():
                library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()


@contextmanager
def _slow_path_of_attention() -> Iterator[None]:
    """nn.MultiheadAttention's fast path asks only CUDA's autocast whether to stand aside."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _install() -> ExitStack:
    """All that holds while a block is open; ``close`` undoes it."""
    with ExitStack() as stack:
        for part in (
            uncompiled(),
            _installed_kernels(),
            fp32_products_pinned("ieee", device="cpu"),
            _slow_path_of_attention(),
            cuda_means_cpu(),
        ):
            stack.enter_context(part)
        return stack.pop_all()


class emulate_gpu(ContextDecorator):
    """Inside the block, CPU tensors follow CUDA's autocast lists and a Tensor Core's roundings.

    Ordinary code then behaves as on a GPU, forward and backward: ``torch.autocast("cpu",
    dtype=torch.float16)`` or bfloat16, ``torch.amp.GradScaler("cpu")``, ``model.half()``. Values
    that leave the range become inf, those below it 0. Tensors on a CUDA device are left alone.

    Also a decorator. Blocks may nest, and one object may be entered again; they hold for the whole
    process, worker threads and backward included, until the last one ends. float32 products are
    pinned to IEEE float32 meanwhile. A block cannot span the cells of a notebook.

    Functions of ``torch.compile`` run uncompiled inside the block, whenever they were compiled, and
    nothing is compiled there. So they follow the block's rules inside, and torch's outside. What a
    compiler changes on a GPU, such as intermediates that stay in float32, is not emulated.

    Args:
        accumulate: what the running sums of the matmul family are rounded to: float32, float16,
            bfloat16 or a signed ``labkit.formats.FloatFormat``. Anything but float32 is a model of
            a narrow accumulator (see ``labkit.formats.accumulators``), slow, and not of a certain
            GPU; convolutions and CSR products keep float32. Of nested blocks the innermost counts.
        promote_every: after so many products a narrow sum is added to one in float32 and begins
            again at zero. None: never.

    Raises:
        ValueError: another ``accumulate``; ``promote_every`` below 1, or beside float32.
        RuntimeError: the outermost block begins inside a compiled function.

    Inside, code may raise what it raises on a GPU: ``binary_cross_entropy`` under autocast, a COO
    matrix times a dense one in 16 bits, ``layer_norm`` and ``group_norm`` whose weight has another
    dtype than their input. What is not emulated raises and says what to write: ``torch.fft`` of
    float16 (NotImplementedError), and, on a machine without CUDA, an autocast or a scaler for
    "cuda" that is to be on (RuntimeError). What else says "cuda" works there as on CUDA, for CPU
    tensors: ``torch.autocast("cuda", enabled=False)``, ``custom_fwd``, ``custom_bwd``,
    ``torch.is_autocast_enabled()``.

    Known differences from a GPU, besides the order and the width of its additions:

    - nn.LSTM, nn.GRU and nn.RNN run torch's own layers, which round every gate and state, and add
      up the gradient of a weight in 16 bits. cuDNN's layers do not say what they round. The cells
      also round each gate; CUDA's fused LSTM and GRU cells keep the gates in float32.
    - Attention with a mask rounds here as without one; a GPU takes another fused kernel for it.
    - The gradient of ``F.interpolate`` of a half() model is summed in float32. Of the smooth modes
      a GPU adds it atomically, and rounds each time. Under autocast both are float32.
    - ``torch.linalg`` in 16 bits raises as torch does on a CPU; CUDA raises too, with other words.
      The few other operators that have no 16-bit kernel on a CPU raise as well.
    - A custom operator with ``register_autocast`` for "cuda" alone runs as without autocast.
    - Frameworks that ask for the device first switch FP16 off themselves, before they ask torch
      for anything that could raise: accelerate (``mixed_precision="fp16", cpu=True``) and
      transformers' Trainer (``fp16=True, use_cpu=True``) run in float32 without a scaler, and
      Lightning's "16-mixed" on a CPU in bfloat16, with a warning. Their BF16 is emulated.
    - Each row of the table in ``tensor_core`` names the differences of its operators.

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
                _installed = _install()
            accumulators.in_force.append(self.accumulator)
        return self

    def __exit__(self, *exception: object) -> None:
        global _installed
        with _lock:
            accumulators.leave(self.accumulator)
            if _installed is not None and not accumulators.in_force:
                _installed.close()
                _installed = None
