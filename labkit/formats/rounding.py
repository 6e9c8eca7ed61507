"""Rounding to a grid: the whole multiples of a step that grows with the number.

The values of a floating point format are the marks of a ruler. Between two powers of two they are
one step apart; the step doubles with each power of two and stops shrinking near zero. To round is
then three operations: divide by the step, round to a whole number, multiply back. Steps are powers
of two, so the division and the product are exact and only the middle one rounds. A step may be
subnormal, which a processor can be told to take for 0; so it is never made, and its two factors, a
power of two near x and 2**-mantissa_bits, are applied one after the other.

What no rounding can settle comes last: values beyond the ends of the ruler, and signs and zeros
that a format lacks. ``labkit.formats.quantize`` says what becomes of them.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.formats import rounding_kernel
from labkit.formats.dtypes import format_of
from labkit.formats.rounding_kernel import Ends

if TYPE_CHECKING:
    from labkit.formats import FloatFormat

ROUNDINGS = ("nearest_even", "nearest_away", "toward_zero", "up", "down", "stochastic")

RANDOM_BITS = 23
"""Random bits behind each value that ``"stochastic"`` rounds: float32 holds k + 1/2 exactly."""

CHUNK = 1 << 16
"""Values rounded at once on a CPU, so that the temporaries stay in the cache of one core."""

# Integers of the same width, and where the dtype keeps its exponent.
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


@lru_cache
def shared_grid(fmt: "FloatFormat", dtype: torch.dtype) -> Grid:
    """The values that a format shares with torch.float32 or torch.float64."""
    native = torch.finfo(dtype)
    eps = max(fmt.eps, native.eps)
    lowest = max(fmt.smallest_subnormal, native.smallest_normal * native.eps) / eps
    largest = min(fmt.max, native.max)
    highest = math.ldexp(0.5, math.frexp(largest)[1])
    top = math.floor(largest / (highest * eps)) * (highest * eps)
    # Subnormals of the dtype show no exponent, and may be taken for 0. Unless they all lie below
    # the grid's lowest power, the arithmetic takes the wider dtype, where they are normal.
    work = dtype if lowest >= native.smallest_normal else torch.float64
    return Grid(work, -int(math.log2(eps)), lowest, highest, top)


def power_at(x: Tensor, grid: Grid, *, out: Tensor) -> Tensor:
    """2**e for x = +-1.m * 2**e, kept between the grid's lowest and highest power.

    The bits of x with sign and mantissa masked away are that power. log2 would be slower, and
    wrong just below a power of two. inf and NaN give the highest, float32's subnormals the lowest.
    """
    integer, mask = _EXPONENT[grid.dtype]
    torch.bitwise_and(x.view(integer), mask, out=out.view(integer))
    return out.clamp_(min=grid.lowest, max=grid.highest)


def round_to_multiples(
    x: Tensor,
    power: Tensor,
    grid: Grid,
    rounding: str,
    generator: torch.Generator | None = None,
    *,
    out: Tensor,
) -> Tensor:
    """Whole multiples of the step near x, in one of ROUNDINGS; small negatives give -0.0.

    ``power`` is ``power_at(x, grid)``.
    """
    if grid.lowest <= 1:
        torch.div(x, power, out=out).mul_(2.0**grid.mantissa_bits)
    else:  # x / power might be too small
        torch.div(x, power * 2.0**-grid.mantissa_bits, out=out)
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
    return out.mul_(2.0**-grid.mantissa_bits).mul_(power)


def _can_absorb(grid: Grid) -> bool:
    """Whether round_by_absorption holds for every value of the grid."""
    spare = format_of(grid.dtype).mantissa_bits - grid.mantissa_bits
    return spare >= 2 and grid.highest * 2.0**spare < torch.finfo(grid.dtype).max / 4


def round_by_absorption(x: Tensor, power: Tensor, grid: Grid, *, out: Tensor) -> Tensor:
    """Multiples of the step nearest to x, ties to even, zeros without their sign.

    ``power`` is ``power_at(x, grid)``. In a dtype of p mantissa bits, 1.5 * 2**(p - m) * power
    stands in the middle of a binade whose values are one step apart, and x, below 2 * power, does
    not leave it where p - m is at least 2. So the processor rounds the sum to whole steps; to take
    the large number away again is exact.
    """
    absorber = 1.5 * 2.0 ** (format_of(grid.dtype).mantissa_bits - grid.mantissa_bits)
    return torch.add(x, power, alpha=absorber, out=out).sub_(power, alpha=absorber)


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


def _ends(fmt: "FloatFormat", top: float, rounding: str, clamps: bool) -> Ends:
    """What lies past top becomes top where it clamps or rounds back inside; else it is beyond."""
    beyond = top if clamps else math.inf if fmt.has_inf else math.nan
    return Ends(
        above=top if rounding in ("toward_zero", "down") else beyond,
        below=-top if rounding in ("toward_zero", "up") else -beyond,
        infinite=beyond,
    )


def _settle_overflow(y: Tensor, x: Tensor, top: float, ends: Ends) -> None:
    """Replace what lies past top."""
    y.masked_fill_(y > top, ends.above)
    y.masked_fill_(y < -top, ends.below)
    y.masked_fill_(x == math.inf, ends.infinite)
    y.masked_fill_(x == -math.inf, -ends.infinite)


def _settle_sign_and_zero(y: Tensor, x: Tensor, fmt: "FloatFormat") -> None:
    """Replace negative values, zero and -0.0 where the format has none of them."""
    if not fmt.signed:
        y.masked_fill_(x < 0, math.nan if fmt.has_nan else 0.0)
    if not fmt.has_zero:
        y.clamp_(min=fmt.smallest_normal)
    if not fmt.has_negative_zero:
        y.add_(0.0)  # -0.0 + 0.0 is +0.0; every other value stays


def _near_top(power: Tensor, grid: Grid) -> bool:
    """Whether some value may be NaN or past the top; a look at the powers answers for most."""
    if power.device.type != "cpu":
        return True  # to wait for an accelerator's answer costs more than it saves
    return bool(power.amax() >= grid.highest)


def _past_top(y: Tensor, grid: Grid) -> bool:
    """Whether some rounded value is NaN or past the top."""
    if y.device.type != "cpu":
        return True
    return not (y.amin() >= -grid.top and y.amax() <= grid.top)


def round_tensor(
    x: Tensor, fmt: "FloatFormat", rounding: str, saturate: bool, generator: torch.Generator | None
) -> Tensor:
    """quantize for a detached tensor with at least one value; on a CPU in chunks."""
    grid = shared_grid(fmt, x.dtype)
    ends = _ends(fmt, grid.top, rounding, saturate or not (fmt.has_inf or fmt.has_nan))
    source = x.to(grid.dtype).contiguous()
    loop = rounding_kernel.loop_for(source, grid, rounding)
    result = rounding_kernel.empty_like(source) if loop else torch.empty_like(source)
    # The loop itself needs no temporaries, and so no chunks; random draws do.
    chunks = source.device.type == "cpu" and (loop is None or rounding == "stochastic")
    size = min(source.numel(), CHUNK) if chunks else source.numel()
    scratch = source.new_empty(0 if loop else size)
    for part, y in zip(source.view(-1).split(size), result.view(-1).split(size), strict=True):
        if loop:
            draws = _random_fractions(part, generator) if rounding == "stochastic" else None
            rounding_kernel.round_flat(loop, part, y, draws, grid, ends)
        else:
            _round_part(part, grid, rounding, ends, generator, out=y, scratch=scratch)
        _settle_sign_and_zero(y, part, fmt)
    return result


def _round_part(
    x: Tensor,
    grid: Grid,
    rounding: str,
    ends: Ends,
    generator: torch.Generator | None,
    *,
    out: Tensor,
    scratch: Tensor,
) -> None:
    """Round x to the grid by torch's operations, values past its ends included."""
    clamps = math.isfinite(ends.infinite)
    inside = torch.clamp(x, -grid.top, grid.top, out=out) if clamps else x
    power = power_at(inside, grid, out=scratch[: x.numel()])
    near_top = not clamps and _near_top(power, grid)
    if rounding == "nearest_even" and _can_absorb(grid):
        round_by_absorption(inside, power, grid, out=out).copysign_(x)
    else:
        round_to_multiples(inside, power, grid, rounding, generator, out=out)
    if near_top and _past_top(out, grid):
        _settle_overflow(out, x, grid.top, ends)
