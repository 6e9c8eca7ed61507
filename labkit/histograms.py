"""What a format does to a tensor, as a record: what is lost, what overflows, what lies where."""

from dataclasses import dataclass

import torch

from labkit.formats import FloatFormat, quantize


@dataclass(frozen=True)
class RangeReport:
    """A tensor seen through one format.

    Counts are of values: ``values`` all, ``zeros`` exact zeros of the input, ``lost`` non-zero
    values that become 0, ``subnormal`` those that become subnormal, ``overflowed`` finite values
    that leave the range, ``nonfinite`` inf and NaN of the input. ``error`` is the median relative
    error of the values that neither are lost nor overflow (0.0 if there are none). ``exponents``
    holds pairs (e, count): how many finite non-zero inputs have 2**e <= abs(x) < 2**(e+1), with
    e rising.
    """

    format: str
    values: int
    zeros: int
    lost: int
    subnormal: int
    overflowed: int
    nonfinite: int
    error: float
    exponents: tuple[tuple[int, int], ...]

    @property
    def share_lost(self) -> float:
        """Lost values among the finite non-zero ones, 0 to 1."""
        return self.lost / max(self.values - self.zeros - self.nonfinite, 1)

    @property
    def share_overflowed(self) -> float:
        """Overflowed values among the finite non-zero ones, 0 to 1."""
        return self.overflowed / max(self.values - self.zeros - self.nonfinite, 1)


def range_report(x: torch.Tensor, fmt: FloatFormat) -> RangeReport:
    """Count what ``fmt`` does to the values of ``x``, rounding to nearest even without saturation.

    Args:
        x: float32 or float64 of any shape.
        fmt: the format to look through.

    Raises:
        TypeError: ``x`` has another dtype.

    >>> report = range_report(torch.tensor([0.0, 1.0, 1e-9, 1e6]), FloatFormat(
    ...     "fp16", exponent_bits=5, mantissa_bits=10))
    >>> report.zeros, report.lost, report.overflowed
    (1, 1, 1)
    """
    x = x.detach().flatten()
    after = quantize(x, fmt)
    finite = x.isfinite()
    present = finite & (x != 0)
    lost = present & (after == 0)
    overflowed = present & (~after.isfinite() | ((after.abs() == fmt.max) & (x.abs() >= _cut(fmt))))
    kept = present & ~lost & ~overflowed
    error = ((after[kept].double() - x[kept].double()) / x[kept].double()).abs()
    exponent = torch.frexp(x[present])[1] - 1
    values, counts = exponent.unique(return_counts=True)
    return RangeReport(
        format=fmt.name,
        values=x.numel(),
        zeros=int((x == 0).sum()),
        lost=int(lost.sum()),
        subnormal=int((kept & (after.abs() < fmt.smallest_normal)).sum()),
        overflowed=int(overflowed.sum()),
        nonfinite=int((~finite).sum()),
        error=float(error.median()) if error.numel() else 0.0,
        exponents=tuple(zip(values.tolist(), counts.tolist(), strict=True)),
    )


def _cut(fmt: FloatFormat) -> float:
    """Half a gap above the largest value: where a format without inf and NaN starts to clip."""
    return fmt.max + 2.0 ** (fmt.max_exponent - fmt.mantissa_bits - 1)
