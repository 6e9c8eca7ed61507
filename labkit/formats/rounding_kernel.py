"""Rounding to a grid in one pass over memory: a loop that numba compiles where it is installed.

torch rounds in a dozen operations, each of which reads and writes every value. This loop does the
arithmetic of ``labkit.formats.rounding`` on each value while it is in a register, and takes little
longer than a copy. numba is the extra ``fast``. Without it, and for small tensors, torch's
operations give the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

if TYPE_CHECKING:
    from labkit.formats.rounding import Grid

LARGE = 1 << 20
"""Values from which on numba is loaded. That takes about half a second, and a tensor of this size
gains about 3 ms by it: what rounds a few of them should not wait for it."""

_INTEGER: dict[Any, Any] = {np.float32: np.int32, np.float64: np.int64}


@dataclass(frozen=True, kw_only=True)
class Ends:
    """What becomes of rounded values above top and below -top, and of inf; of -inf its negative."""

    above: float
    below: float
    infinite: float


def loop_for(source: Tensor, grid: "Grid", rounding: str) -> Callable[..., None] | None:
    """The compiled loop for a contiguous tensor of the grid's dtype; None where torch rounds it."""
    tiny = torch.finfo(grid.dtype).smallest_normal
    # Between these two, every factor of the loop is a normal number.
    if source.numel() < LARGE or not tiny <= grid.lowest <= 1 or not _is_plain(source):
        return None
    return _compiled(rounding, np.float32 if grid.dtype is torch.float32 else np.float64)


def _is_plain(x: Tensor) -> bool:
    """Whether x is memory of this machine, and nobody watches or records what is done to it."""
    watched = torch.compiler.is_compiling() or _get_current_dispatch_mode()
    if type(x) is not Tensor or x.device.type != "cpu" or watched:
        return False
    try:
        return x.data_ptr() != 0
    except RuntimeError:  # a stand-in of torch.func has no memory
        return False


@lru_cache
def _compiled(rounding: str, real: Any) -> Callable[..., None] | None:
    try:
        from numba import njit
    except ImportError:  # not installed, or made for another numpy
        return None
    loop = _loop(rounding, real, _INTEGER[real])
    try:
        compiled = njit(loop, nogil=True, cache=True)
    except RuntimeError:  # there is no folder that it could keep compiled code in
        compiled = njit(loop, nogil=True)
    return None if compiled is loop else compiled  # with NUMBA_DISABLE_JIT it is the loop itself


def _loop(rounding: str, real: Any, integer: Any) -> Callable[..., None]:
    """The loop in Python; to numba, the rounding and the dtypes are constants of it."""

    def loop(bits: Any, y: Any, draws: Any, fields: Any, numbers: Any) -> None:
        infinity, lowest = fields
        scale, unscale, top, above, below, infinite = numbers
        for i in range(bits.size):
            x = integer(bits[i]).view(real)
            # As in power_at. All the exponent's bits less those of a power are those of 2 / power.
            power = max(bits[i] & infinity, lowest)
            steps = x * integer(infinity - power).view(real) * scale
            if rounding == "nearest_even":
                whole = np.rint(steps)
            elif rounding == "up":
                whole = np.ceil(steps)
            elif rounding == "down":
                whole = np.floor(steps)
            else:
                whole = np.trunc(steps)
                rest = abs(steps - whole)
                if (rounding == "nearest_away" and rest >= 0.5) or (
                    rounding == "stochastic" and rest >= draws[i]
                ):
                    whole += np.copysign(real(1), steps)
            value = whole * unscale * integer(power).view(real)
            value = above if value > top else value
            value = below if value < -top else value
            y[i] = np.copysign(infinite, x) if abs(x) == np.inf else value

    return loop


def empty_like(x: Tensor) -> Tensor:
    """Contiguous memory for what x is rounded to.

    It is numpy's, which asks Linux for pages of 2 MB: thousands of 4 KB take longer than rounding.
    """
    return torch.from_numpy(np.empty_like(x.numpy(), order="C"))


def round_flat(
    loop: Callable[..., None], x: Tensor, y: Tensor, draws: Tensor | None, grid: "Grid", ends: Ends
) -> None:
    """Round x into y; both are flat. ``draws`` are the thresholds of stochastic rounding."""
    values = y.numpy()
    real, integer = values.dtype.type, _INTEGER[values.dtype.type]
    fields = np.array([np.inf, grid.lowest], real).view(integer)
    factors = (2.0 ** (grid.mantissa_bits - 1), 2.0**-grid.mantissa_bits)
    numbers = (*factors, grid.top, ends.above, ends.below, ends.infinite)
    thresholds = None if draws is None else draws.numpy()
    loop(x.numpy().view(integer), values, thresholds, tuple(fields), tuple(map(real, numbers)))
