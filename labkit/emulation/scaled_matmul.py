"""``as_on_cuda()``: ``F.scaled_mm`` on a CPU refuses the operands that CUDA's kernel refuses.

On a CPU ``torch.nn.functional.scaled_mm`` takes float8 matrices of any layout and any size. Code
that was written there then fails on its first GPU. The block closes that gap: it raises, it does
not change a value.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_SCALED_MM = (torch.ops.aten._scaled_mm, torch.ops.aten._scaled_mm_v2)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class as_on_cuda(TorchDispatchMode):
    """Inside the block, ``F.scaled_mm`` of float8 CPU tensors keeps CUDA's rules for operands.

    The first operand must be row-major (stride K, 1 or wider) and the second column-major (stride
    1, K or wider), K and N must be multiples of 16, and two E5M2 matrices are refused. An operand
    with a dimension of 0 has no layout to keep. Calls in a backward pass are seen too, and
    ``torch._scaled_mm`` likewise. What torch itself refuses on a CPU (other dtypes, shapes that do
    not fit, scalings that have no CPU kernel) it refuses as before, in its own words. Tensors on
    other devices are left alone.

    The words about layout and size are those of torch 2.13's own shape functions for CUDA, which
    FakeTensor and ``torch.compile`` ask; the tests compare them. In eager mode a GPU words them
    otherwise: "Only multiplication of row-major and column-major matrices is supported by
    cuBLASLt", "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape:
    (32x40)." and "mat2 shape (48x60) must be divisible by 16". These, and the refusal of E5M2 with
    E5M2, are read in torch's source (aten/src/ATen/native/cuda/ScaledBlas.cpp); none was run on a
    GPU here. Newer GPUs may take layouts that are refused here.

    Raises (by the call of ``scaled_mm``):
        RuntimeError: a layout, or a size that is no multiple of 16.
        ValueError: both matrices are E5M2.

    >>> from torch.nn.functional import ScalingType, scaled_mm
    >>> a, b, one = torch.ones(16, 32), torch.ones(32, 48), torch.ones(())
    >>> a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    >>> with as_on_cuda():
    ...     scaled_mm(a, b, one, ScalingType.TensorWise, one, ScalingType.TensorWise)
    Traceback (most recent call last):
    RuntimeError: mat2 must be col_major, got stride (48, 1)
    """

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.overloadpacket in _SCALED_MM:
            _check_operands(*args[:2])
        return func(*args, **(kwargs or {}))


def _check_operands(a: Tensor, b: Tensor) -> None:
    """Raise what CUDA raises for the operands; those that torch refuses on a CPU too pass here."""
    if any(x.device.type != "cpu" or x.dim() != 2 or x.dtype not in _FLOAT8 for x in (a, b)):
        return
    _require(_row_major(a), lambda: f"self must be row_major, got stride {a.stride()}")
    _require(_row_major(b.t()), lambda: f"mat2 must be col_major, got stride {b.stride()}")
    _require(
        a.size(1) % 16 == 0,
        lambda: f"Expected self.size(1) to be divisible by 16, but got self.size(1)={a.size(1)}",
    )
    _require(
        b.size(0) % 16 == 0 and b.size(1) % 16 == 0,
        lambda: f"Expected both dimensions of mat2 to be divisible by 16 but got {b.shape}",
    )
    if a.dtype == b.dtype == torch.float8_e5m2:
        raise ValueError("Multiplication of two Float8_e5m2 matrices is not supported")


def _row_major(x: Tensor) -> bool:
    rows, columns = x.stride()
    return 0 in x.shape or rows > columns == 1


def _require(holds: bool, message: Callable[[], str]) -> None:
    if not holds:
        raise RuntimeError(message())
