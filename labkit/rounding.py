"""Rounding to a grid: the whole multiples of a step that grows with the number.

This module believes that a floating point format is a ruler. Between two powers of two its marks
are equally far apart, by a step; the step doubles with each power of two and stops shrinking near
zero. To round is then three operations: divide by the step, round to a whole number, multiply
back. Steps are powers of two, so the division and the product are exact and only the middle one
rounds.

``labkit.formats`` says which grid a format is and what happens beyond its ends.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDINGS = ("nearest_even", "nearest_away", "toward_zero", "up", "down", "stochastic")

RANDOM_BITS = 23
"""Random bits behind each value that ``"stochastic"`` rounds: float32 holds k + 1/2 exactly."""

# Where a dtype keeps its exponent, and the integers of the same width.
_EXPONENT = {
    torch.float32: (torch.int32, 0xFF << 23),
    torch.float64: (torch.int64, 0x7FF << 52),
}


@dataclass(frozen=True)
class Grid:
    """The values that a format and a dtype share, as the arithmetic needs them.

    ``dtype`` is the one to compute in. ``lowest`` and ``highest`` are the powers of two between
    which the step follows the number; ``top`` is the largest value.
    """

    dtype: torch.dtype
    mantissa_bits: int
    lowest: float
    highest: float
    top: float


def power_at(x: Tensor, grid: Grid, *, out: Tensor) -> Tensor:
    """2**e for x = +-1.m * 2**e, kept between the grid's lowest and highest power.

    The bits of x with sign and mantissa masked away are that power. log2 would be slower, and
    wrong just below a power of two. inf and NaN give the highest, float32's subnormals the lowest.
    """
    integer, mask = _EXPONENT[grid.dtype]
    torch.bitwise_and(x.view(integer), mask, out=out.view(integer))
    return out.clamp_(min=grid.lowest, max=grid.highest)


def step_at(x: Tensor, grid: Grid, *, out: Tensor) -> Tensor:
    """The distance between the two values of the grid around x."""
    return power_at(x, grid, out=out).mul_(2.0**-grid.mantissa_bits)


def round_to_multiples(
    x: Tensor,
    step: Tensor,
    rounding: str,
    generator: torch.Generator | None = None,
    *,
    out: Tensor,
) -> Tensor:
    """Whole multiples of step near x, in one of ROUNDINGS; -0.0 and small negatives give -0.0."""
    torch.div(x, step, out=out)
    match rounding:
        case "nearest_even":
            out.round_()
        case "nearest_away":
            _round_away_from(0.5, out)
        case "toward_zero":
            out.trunc_()
        case "up":
            out.ceil_()
        case "down":
            out.floor_()
        case "stochastic":
            _round_away_from(_random_fractions(out, generator), out)
    return out.mul_(step)


def _round_away_from(threshold: float | Tensor, x: Tensor) -> None:
    """In place: away from zero where the fraction reaches the threshold, else toward zero."""
    whole = x.trunc()
    away = (x - whole).abs_() >= threshold
    torch.add(whole, away.to(x.dtype).copysign_(x), out=x)


def _random_fractions(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draws of (k + 1/2) / 2**RANDOM_BITS: above 0, so that a whole number never moves.

    Each value takes one draw of a CPU generator, in order, so two chunks draw what one would.
    """
    k = torch.empty(like.shape, dtype=torch.int32, device=like.device)
    k.random_(0, 1 << RANDOM_BITS, generator=generator)
    return k.to(like.dtype).add_(0.5).mul_(2.0**-RANDOM_BITS)
