"""Sums of products with an accumulator of few bits: a model, product by product.

This module believes that an accumulator is a number format and a habit. Each product of two 16-bit
values is exact, the running sum is rounded to the format after every addition, and every
``promote_every`` products the sum is added to one in float32 and starts again from zero.

It is a model and no machine. A Tensor Core adds 4 to 16 products at a time and truncates where it
aligns them (Fasi et al., PeerJ CS-330); here each product is added alone and rounded to nearest,
ties to even. DeepSeek-V3 (arXiv:2412.19437, section 3.3.2) promotes every 128.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.formats import FloatFormat, quantize


@dataclass(frozen=True)
class Accumulator:
    """The format of running sums, and after how many products they move to float32, if ever."""

    fmt: FloatFormat
    promote_every: int | None = None

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b for float32 tensors ``(..., m, k)`` and ``(..., k, n)``, or for vectors."""
        if b.dim() == 1:
            return self.matmul(a if a.dim() > 1 else a[None], b[:, None]).reshape(a.shape[:-1])
        blocks = self._blocks(a.shape[-1])
        total = a.new_zeros(*a.shape[:-1], b.shape[-1])
        for start, stop in blocks:
            running = torch.zeros_like(total)
            for k in range(start, stop):
                running += a[..., k : k + 1] * b[..., k : k + 1, :]
                running = quantize(running, self.fmt)
            total += running
        return total

    def _blocks(self, length: int) -> list[tuple[int, int]]:
        size = self.promote_every or max(length, 1)
        return [(start, min(start + size, length)) for start in range(0, length, size)]


# Entered and not yet left, the innermost last; None stands for float32.
in_force: list[Accumulator | None] = []


def current() -> Accumulator | None:
    """The accumulator entered last, or None for full float32 sums."""
    return in_force[-1] if in_force else None


def leave(accumulator: Accumulator | None) -> None:
    """Take out the latest entry that equals this one; others may have been entered since."""
    latest_first = in_force[::-1]
    del in_force[len(in_force) - 1 - latest_first.index(accumulator)]
