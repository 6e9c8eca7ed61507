"""Calibration: from the activations that a layer sees to the grid that it will use.

An ``Observer`` watches, chooses where to cut the range, and is frozen. What it returns is a grid,
``labkit.formats.QuantParams``.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from labkit.formats import QuantParams, choose, fake_quantize

Kind = Literal["minmax", "percentile", "mse", "entropy"]
SHARE = 0.999
"""Of the magnitudes, what "percentile" keeps."""
_CUTS = 256
"""How many places to cut the search tries, each as far from the next: 0.4 % of the range."""
_BINS = 2048
"""Of the histogram whose entropy is compared, as in TensorRT's calibration (Migacz 2017)."""


class Observer(nn.Module):
    """Watches values and gives the grid of ``bits`` that they need.

    All kinds choose one limit t and use the range of the values cut at -t and t:

    - "minmax": no cut;
    - "percentile": t is the 99.9th percentile of the magnitudes;
    - "mse": the t of the least squared error on the values seen, rounding and clipping together;
    - "entropy": the t whose rounded histogram is closest to the clipped one, by the
      Kullback-Leibler divergence. It cuts too much where most values crowd into few bins, as
      behind a GELU.

    "minmax" keeps two numbers; the others keep every value until they are frozen, so calibrate them
    with a few batches. The range and whether it is frozen are in ``state_dict()``.

    Args:
        kind: one of the four.
        bits, symmetric: of the grid, as in ``labkit.formats.choose``.

    Raises:
        ValueError: an unknown kind, or bits outside 2 to 16.
    """

    low: Tensor
    high: Tensor
    frozen: Tensor

    def __init__(self, kind: Kind = "minmax", *, bits: int = 8, symmetric: bool = False) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ValueError(f"kind={kind!r}: pass one of {', '.join(get_args(Kind))}")
        choose(0.0, 1.0, bits=bits, symmetric=symmetric)  # refuses other bits
        self.kind, self.bits, self.symmetric = kind, bits, symmetric
        self.register_buffer("low", torch.tensor(torch.inf))
        self.register_buffer("high", torch.tensor(-torch.inf))
        self.register_buffer("frozen", torch.tensor(False))
        self._seen: list[Tensor] = []

    def observe(self, x: Tensor) -> None:
        """Widen the range to hold x; nothing once the observer is frozen.

        Raises:
            ValueError: x holds NaN or inf.
        """
        if self.frozen or x.numel() == 0:
            return
        x = x.detach().float()
        if not x.isfinite().all():
            raise ValueError("x holds NaN or inf: no range of finite values can be calibrated")
        self.low = torch.minimum(self.low, x.amin())
        self.high = torch.maximum(self.high, x.amax())
        if self.kind != "minmax":
            self._seen.append(x.flatten())

    def freeze(self) -> QuantParams:
        """Settle the grid and forget the values: what is observed later changes nothing.

        Raises:
            RuntimeError: nothing was observed yet.
        """
        self.low, self.high = map(torch.as_tensor, self._range())
        self._seen.clear()
        self.frozen = torch.tensor(True, device=self.low.device)
        return self.grid

    @property
    def grid(self) -> QuantParams:
        """The grid for what was observed so far, or for what was frozen.

        Raises:
            RuntimeError: nothing was observed yet.
        """
        return choose(*self._range(), bits=self.bits, symmetric=self.symmetric)

    def _range(self) -> tuple[Tensor, Tensor]:
        if self.low > self.high:
            raise RuntimeError(
                "this observer has seen no values: run calibration batches through the model first"
            )
        if not self._seen:
            return self.low, self.high
        x = torch.cat(self._seen)
        return _cut(x, self._limit(x))

    def _limit(self, x: Tensor) -> Tensor:
        magnitudes = x.abs()
        if self.kind == "percentile":
            place = max(1, round(SHARE * len(x)))
            return magnitudes.kthvalue(place).values
        largest = magnitudes.max()
        if largest == 0:
            return largest
        if self.kind == "mse":
            cuts = largest * torch.arange(1, _CUTS + 1, device=x.device) / _CUTS
            return min(cuts, key=lambda cut: self._squared_error(x, cut))
        return _least_divergence(magnitudes, 2 ** (self.bits - 1))

    def _squared_error(self, x: Tensor, limit: Tensor) -> float:
        grid = choose(*_cut(x, limit), bits=self.bits, symmetric=self.symmetric)
        return (fake_quantize(x, grid) - x).double().square().sum().item()


def _cut(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    low, high = x.aminmax()
    return torch.maximum(low, -limit), torch.minimum(high, limit)


def _least_divergence(magnitudes: Tensor, levels: int) -> Tensor:
    """Where to cut so that ``levels`` levels tell least wrong about the histogram left.

    The histogram that is cut takes what lies beyond into its last bin; the rounded one spreads the
    count of each level evenly over those of its bins that are not empty.
    """
    largest = magnitudes.max().item()
    counts = torch.histc(magnitudes.cpu(), bins=_BINS, min=0, max=largest).double()
    best, limit = torch.inf, largest
    for bins in range(min(levels, _BINS), _BINS + 1, max(1, _BINS // _CUTS)):
        kept = counts[:bins]
        clipped = kept.clone()
        clipped[-1] += counts[bins:].sum()
        level = torch.arange(bins) * levels // bins
        there = (kept > 0).double()
        total = torch.zeros(levels, dtype=torch.float64).index_add_(0, level, kept)
        filled = torch.zeros(levels, dtype=torch.float64).index_add_(0, level, there)
        rounded = (total / filled.clamp(min=1))[level] * there
        # An outlier that lands in an empty last bin has no rounded partner: smooth by one count.
        p = (clipped + 1) / (clipped + 1).sum()
        q = (rounded + 1) / (rounded + 1).sum()
        divergence = (p * (p / q).log()).sum().item()
        if divergence < best:
            best, limit = divergence, largest * bins / _BINS
    return torch.tensor(limit)
