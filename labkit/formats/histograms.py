"""What a format does to a tensor, as a record: what is lost, what overflows, what lies where.

A report is made of counts, and counts of parts add up. So a tensor is read in parts, on the device
where it lies, and one of a hundred million values needs no copy of itself.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.formats import FloatFormat, quantize
from labkit.formats.inputs import FLOATS, plain_tensor

CHUNK = 1 << 20
"""Values read at once: some ten temporaries of them stay below a hundred megabytes."""


@dataclass(frozen=True)
class RangeReport:
    """A tensor seen through one format, as counts of values.

    ``values`` is their sum. Of these ``zeros`` are 0 in the input, ``lost`` are flushed to 0 by the
    format, ``subnormal`` and ``normal`` stay in range, ``overflowed`` are finite and leave it,
    ``nonfinite`` are inf or NaN in the input, ``nans`` of them NaN. ``error`` is the median
    relative error of the subnormal and normal ones (0.0 if there are none). ``exponents`` holds
    pairs (e, count): how many finite non-zero inputs have 2**e <= abs(x) < 2**(e+1), e rising.
    """

    format: str
    values: int
    zeros: int
    lost: int
    subnormal: int
    normal: int
    overflowed: int
    nonfinite: int
    nans: int
    error: float
    exponents: tuple[tuple[int, int], ...]

    def share(self, count: int) -> float:
        """``count`` as a share, 0 to 1, of the finite values that are not zero."""
        return count / max(self.values - self.zeros - self.nonfinite, 1)

    @property
    def share_lost(self) -> float:
        """Values flushed to zero among the finite non-zero ones, 0 to 1."""
        return self.share(self.lost)

    @property
    def share_subnormal(self) -> float:
        """Values that become subnormal among the finite non-zero ones, 0 to 1."""
        return self.share(self.subnormal)

    @property
    def share_overflowed(self) -> float:
        """Values that overflow among the finite non-zero ones, 0 to 1."""
        return self.share(self.overflowed)

    def __str__(self) -> str:
        rows = {
            "zero before": (self.zeros, None),
            "flushed to zero": (self.lost, self.share_lost),
            "subnormal": (self.subnormal, self.share_subnormal),
            "normal": (self.normal, self.share(self.normal)),
            "overflowed": (self.overflowed, self.share_overflowed),
            "inf before": (self.nonfinite - self.nans, None),
            "NaN before": (self.nans, None),
        }
        lines = [f"{self.values:,} values in {self.format}"]
        for name, (count, share) in rows.items():
            lines.append(f"  {name:16}{count:>14,}" + ("" if share is None else f"{share:>10.2%}"))
        lines.append(f"  {'median error':16}{self.error:>14.2%}")
        if self.exponents:
            low, high = self.exponents[0][0], self.exponents[-1][0]
            lines.append(f"  binades          2**{low} to 2**{high + 1}")
        return "\n".join(lines)


def range_report(x: Tensor, fmt: FloatFormat) -> RangeReport:
    """Count what ``fmt`` does to the values of ``x``, rounding to nearest even without saturation.

    Args:
        x: float16, bfloat16, float32 or float64 of any shape, on any device. It is read in chunks,
            so memory beside it stays bounded.
        fmt: the format to look through.

    Raises:
        TypeError: ``x`` is no dense tensor of these dtypes.
        ValueError: ``x`` has no values.

    >>> report = range_report(torch.tensor([0.0, 1.0, 1e-9, 1e6]), FloatFormat(
    ...     "fp16", exponent_bits=5, mantissa_bits=10))
    >>> report.zeros, report.normal, report.lost, report.overflowed
    (1, 1, 1, 1)
    """
    x = plain_tensor(x, "x", FLOATS, "take x.float(), or the parts of a complex x").detach()
    totals: Counter[str] = Counter()
    exponents: Counter[int] = Counter()
    for before, after in _parts(x, fmt):
        finite = before.isfinite()
        present = finite & (before != 0)
        lost, overflowed = present & (after == 0), _overflowed(before, after, fmt) & present
        kept = present & ~lost & ~overflowed
        low = kept & (after.abs() < fmt.smallest_normal)
        totals["zeros"] += int((before == 0).sum())
        totals["lost"] += int(lost.sum())
        totals["subnormal"] += int(low.sum())
        totals["normal"] += int((kept & ~low).sum())
        totals["overflowed"] += int(overflowed.sum())
        totals["nonfinite"] += int((~finite).sum())
        totals["nans"] += int(before.isnan().sum())
        powers, counts = (torch.frexp(before[present]).exponent - 1).unique(return_counts=True)
        exponents.update(dict(zip(powers.tolist(), counts.tolist(), strict=True)))
    in_range = totals["subnormal"] + totals["normal"]
    return RangeReport(
        format=fmt.name,
        values=x.numel(),
        zeros=totals["zeros"],
        lost=totals["lost"],
        subnormal=totals["subnormal"],
        normal=totals["normal"],
        overflowed=totals["overflowed"],
        nonfinite=totals["nonfinite"],
        nans=totals["nans"],
        error=_median_error(x, fmt, in_range) if in_range else 0.0,
        exponents=tuple(sorted(exponents.items())),
    )


def _parts(x: Tensor, fmt: FloatFormat) -> Iterator[tuple[Tensor, Tensor]]:
    """The values of x in chunks, before and after the format, in x's order."""
    rounded_in = torch.promote_types(x.dtype, torch.float32)  # quantize takes no narrower one
    for chunk in _chunks(x):
        before = chunk.to(rounded_in).flatten()
        yield before, quantize(before, fmt)


def _chunks(x: Tensor) -> Iterator[Tensor]:
    """Views of at most CHUNK values each; a strided x is cut along its dimensions, not copied."""
    if x.numel() <= CHUNK:
        yield x
    elif x.is_contiguous():
        yield from x.view(-1).split(CHUNK)
    else:
        longest = max(range(x.ndim), key=x.size)
        half = x.size(longest) // 2
        yield from _chunks(x.narrow(longest, 0, half))
        yield from _chunks(x.narrow(longest, half, x.size(longest) - half))


def _overflowed(before: Tensor, after: Tensor, fmt: FloatFormat) -> Tensor:
    """Where a finite value left the range; a format without inf and NaN clips to its largest."""
    # Half a gap above the largest value: there such a format starts to clip.
    cut = fmt.max + 2.0 ** (fmt.max_exponent - fmt.mantissa_bits - 1)
    return ~after.isfinite() | ((after.abs() == fmt.max) & (before.abs() >= cut))


_DIGIT = 16  # bits: four digits make a float64


def _median_error(x: Tensor, fmt: FloatFormat, kept: int) -> float:
    """Median relative error of the ``kept`` values in range; the lower of two middle ones.

    The bits of positive floats are ordered as they are. So the median is found digit by digit, as
    in a radix sort: each pass over x counts one digit of those errors that share the digits so far.
    """
    rank, prefix = (kept - 1) // 2, 0
    for shift in (3 * _DIGIT, 2 * _DIGIT, _DIGIT, 0):
        counts = torch.zeros(1 << _DIGIT, dtype=torch.int64, device=x.device)
        for before, after in _parts(x, fmt):
            inside = before.isfinite() & (before != 0) & (after != 0)
            inside &= ~_overflowed(before, after, fmt)
            exact = before[inside].double()
            bits = ((after[inside].double() - exact) / exact).abs().view(torch.int64)
            shared = bits[(bits >> shift >> _DIGIT) == prefix]
            counts += torch.bincount((shared >> shift) & ((1 << _DIGIT) - 1), minlength=1 << _DIGIT)
        below = counts.cumsum(0)
        digit = int(torch.searchsorted(below, rank, right=True))
        rank -= int(below[digit - 1]) if digit else 0
        prefix = prefix << _DIGIT | digit
    return torch.tensor(prefix).view(torch.float64).item()
