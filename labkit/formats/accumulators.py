"""Sums with an accumulator of few bits: a model, addend by addend.

An accumulator is a number format and an interval, ``promote_every``. The running sum is rounded to
the format after every addition; every ``promote_every`` addends it is added to a float32 sum and
starts again from zero. The product of two 16-bit values is exact before it is added.

It is a model and no machine. A Tensor Core adds several products at a time, 4 on V100 and T4 and 8
on A100, and truncates where it aligns them (Fasi et al., PeerJ CS 7:e330); here each is added
alone. DeepSeek-V3 (arXiv:2412.19437, section 3.3.2) promotes every 128.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.formats import FP32, FloatFormat, quantize
from labkit.formats.inputs import plain_tensor


def add_up(
    terms: Tensor,
    fmt: FloatFormat,
    *,
    rounding: str = "nearest_even",
    promote_every: int | None = None,
) -> Tensor:
    """Row sums by a chain of adds, each rounded to ``fmt``.

    Args:
        terms: float64 of shape (n, k), such as exact products of 16-bit numbers.
        rounding: one of ``labkit.formats.ROUNDINGS``. Tensor Cores truncate: "toward_zero".
        promote_every: after so many adds the chain goes into an FP32 total. None: never.

    Returns float64 of shape (n,). Raises TypeError for terms of another dtype or that are not
    dense, ValueError for another shape and for ``promote_every`` below 1.

    >>> from labkit.formats import FP16
    >>> ones = torch.ones(1, 5000, dtype=torch.float64)
    >>> add_up(ones, FP16).item(), add_up(ones, FP16, promote_every=128).item()
    (2048.0, 5000.0)
    """
    terms = plain_tensor(terms, "terms", (torch.float64,), "widen them with terms.double()")
    if terms.ndim != 2:
        raise ValueError(f"terms have the shape {tuple(terms.shape)}: pass rows, (n, k)")
    start = terms.new_zeros(len(terms))
    return Accumulator(fmt, promote_every, rounding).chain(terms.unbind(1), start)


@dataclass(frozen=True)
class Accumulator:
    """The format of running sums, after how many addends they move to float32, and the rounding."""

    fmt: FloatFormat
    promote_every: int | None = None
    rounding: str = "nearest_even"

    def __post_init__(self) -> None:
        if self.promote_every is not None and (
            type(self.promote_every) is not int or self.promote_every < 1
        ):
            raise ValueError(
                f"promote_every={self.promote_every!r}: pass a whole number of addends, or None"
            )

    def chain(self, addends: Iterable[Tensor], start: Tensor) -> Tensor:
        """``start``, of float64 zeros, and the addends one after the other."""
        total = running = start
        for count, addend in enumerate(addends, 1):
            running = quantize(running + addend, self.fmt, rounding=self.rounding)
            if self.promote_every and count % self.promote_every == 0:
                total, running = quantize(total + running, FP32), start
        return quantize(total + running, FP32) if self.promote_every else running

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b for float32 tensors ``(..., m, k)`` and ``(..., k, n)``, or for vectors."""
        if b.dim() == 1:
            return self.matmul(a if a.dim() > 1 else a[None], b[:, None]).reshape(a.shape[:-1])
        wide_a, wide_b = a.double(), b.double()
        products = (wide_a[..., k : k + 1] * wide_b[..., k : k + 1, :] for k in range(a.shape[-1]))
        start = wide_a.new_zeros(*a.shape[:-1], b.shape[-1])
        return self.chain(products, start).to(a.dtype)


# Entered and not yet left, the innermost last; None stands for float32.
in_force: list[Accumulator | None] = []


def current() -> Accumulator | None:
    """The accumulator entered last, or None for full float32 sums."""
    return in_force[-1] if in_force else None


def leave(accumulator: Accumulator | None) -> None:
    """Take out the latest entry that equals this one; others may have been entered since."""
    latest_first = in_force[::-1]
    del in_force[len(in_force) - 1 - latest_first.index(accumulator)]
