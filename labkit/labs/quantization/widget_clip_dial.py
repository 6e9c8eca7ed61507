"""ClipDial: where to cut a range, with the rounding error and the clipping error of every choice.

The values are a recorded activation of the trained GPT. Two ends choose a grid of 2**bits codes
(``labkit.formats.choose``). Python computes the grid, both errors and the best range.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import traitlets
from torch import Tensor

from labkit.formats import QuantParams, choose, dequantize_affine, quantize_affine
from labkit.labs.engine.described import AskingWidget
from labkit.training.data import gpt_layers

BITS = (8, 6, 4, 3)
GOALS = (8, 4)
"""Numbers of bits at which the best range is to be found."""

CLOSE = 0.01
"""A total is good that lies at most this share above the best one."""

LAST = 320
"""An end lies at a whole number of steps from 0, at most so many."""

STEPS = 256
"""Steps from 0 to the largest magnitude: one is about a code of 8 bits."""

_BINS = 160
_WORST = 5.0  # the error bar ends at so many times the best total


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """A range, its grid and its squared errors, summed over all values."""

    low: float
    high: float
    bits: int
    symmetric: bool
    grid: QuantParams
    rounding: float
    clipping: float

    @property
    def total(self) -> float:
        return self.rounding + self.clipping


class ClipDial(AskingWidget):
    """A histogram with two ends to move; what lies between them is rounded, the rest clipped.

    ``low`` and ``high`` (in units of the values), ``bits`` (8, 6, 4 or 3) and ``symmetric`` can be
    read, set and observed. An end moves in steps of the largest magnitude / 256. With ``symmetric``
    the ends are opposite: setting one moves the other. ``reached`` says at which bits, of 8 and 4,
    a total was found that is at most 1 % above the best: bits -> (low, high).

    Args:
        values: at least two different finite numbers, any shape; None:
            ``gpt_layers()["activation"]``, which is what GELU puts out.

    Raises:
        ValueError: values that are all equal, or inf or NaN among them. TraitError: other bits.

    >>> dial = ClipDial()
    >>> dial.low, dial.high = -0.17, 5.24
    >>> print(dial.describe().splitlines()[0])
    8 bits, affine: codes 0 to 255, the code of 0.0 is 8, a step is 0.0212.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    low = traitlets.Float()
    high = traitlets.Float()
    bits = traitlets.Enum(BITS, 8)
    symmetric = traitlets.Bool(False)
    reached = traitlets.Dict(read_only=True)

    def __init__(self, values: Tensor | None = None) -> None:
        x = gpt_layers()["activation"] if values is None else values.detach().float().flatten()
        if not x.isfinite().all():
            raise ValueError("values hold inf or NaN: leave them out, no range covers them")
        if x.numel() == 0 or (x == x[0]).all():
            raise ValueError("values are all equal: a histogram needs two different ones")
        self._x = x
        self._source = (
            "An activation of the trained GPT after GELU, recorded."
            if values is None
            else "The values given."
        )
        self._step = x.abs().max().item() / STEPS
        self._best_totals: dict[int, float] = {}
        self._lowest: dict[int, _Cut] = {}  # of those that were looked at
        super().__init__()
        self._show()

    @traitlets.default("low")
    def _lowest_end(self) -> float:
        return -LAST * self._step

    @traitlets.default("high")
    def _highest_end(self) -> float:
        return LAST * self._step

    @traitlets.validate("low", "high")
    def _on_a_step(self, proposal: dict) -> float:
        place = round(proposal["value"] / self._step)
        if proposal["trait"].name == "low":
            return min(max(place, -LAST), -1 if self.symmetric else 0) * self._step
        return min(max(place, 1), LAST) * self._step

    @traitlets.observe("low", "high", "bits", "symmetric")
    def _moved(self, change: dict) -> None:
        if not self.symmetric or self.low == -self.high:
            self._show()
        elif change["name"] == "low":  # the other end follows, and its change is shown
            self.high = -self.low
        else:
            self.low = -self.high

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, low} or {seq, high}, in steps, {seq, bits}, ..."""
        for name in ("low", "high"):
            if name in asked:
                setattr(self, name, asked[name] * self._step)
        if "bits" in asked:
            self.bits = asked["bits"]
        if "symmetric" in asked:
            self.symmetric = asked["symmetric"]

    # ------------------------------------------------------------ what is computed

    def _cut(self) -> _Cut:
        grid = choose(self.low, self.high, bits=self.bits, symmetric=self.symmetric)
        squared = (self._x.double() - dequantize_affine(quantize_affine(self._x, grid), grid)) ** 2
        first, last = _ends(grid)
        half = grid.scale.item() / 2
        clipped = (self._x < first - half) | (self._x > last + half)
        return _Cut(
            low=self.low,
            high=self.high,
            bits=self.bits,
            symmetric=self.symmetric,
            grid=grid,
            rounding=squared[~clipped].sum().item(),
            clipping=squared[clipped].sum().item(),
        )

    def _best_total(self, bits: int) -> float:
        """The least total of any two ends: every eighth step, then all steps near the best."""
        if bits not in self._best_totals:
            coarse = [(i, j) for i in range(-LAST, 1, 8) for j in range(8, LAST + 1, 8)]
            near = {
                (min(i + di, 0), min(j + dj, LAST))
                for _, (i, j) in sorted(zip(self._totals(coarse, bits), coarse, strict=True))[:3]
                for di in range(-8, 9)
                for dj in range(-7, 9)
            }
            opposite = [(-j, j) for j in range(1, LAST + 1)]
            self._best_totals[bits] = min(
                *self._totals(sorted(near), bits),
                *self._totals(opposite, bits, symmetric=True),
            )
        return self._best_totals[bits]

    def _totals(
        self, ends: list[tuple[int, int]], bits: int, *, symmetric: bool = False
    ) -> list[float]:
        """The total squared error of each pair of ends, given in steps.

        Values sorted once fall to codes by their midpoints, and sums of x and x**2 up to each
        midpoint give the errors: thousands of grids in the time of a few casts.
        """
        low, high = torch.tensor(ends, dtype=torch.float64).mul(self._step).unbind(dim=1)
        grid = choose(low, high, bits=bits, symmetric=symmetric, axis=0)
        codes = torch.arange(grid.low, grid.high + 1).expand(len(ends), -1)
        values = dequantize_affine(codes, grid).double()
        x = self._x.double().sort().values
        inner = torch.searchsorted(x, (values[:, :-1] + values[:, 1:]) / 2)
        places = F.pad(F.pad(inner, (1, 0)), (0, 1), value=len(x))
        sums, squares = (F.pad(power.cumsum(0), (1, 0))[places].diff() for power in (x, x * x))
        return (squares - 2 * values * sums + values**2 * places.diff()).sum(dim=1).tolist()

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        cut, best = self._cut(), self._best_total(self.bits)
        if cut.bits in GOALS and cut.bits not in self.reached and _close(cut.total, best):
            self.set_trait("reached", self.reached | {cut.bits: (cut.low, cut.high)})
        if cut.bits not in self._lowest or cut.total < self._lowest[cut.bits].total:
            self._lowest[cut.bits] = cut

        rows = [
            _row("now", cut),
            *(
                _row(f"lowest so far at {bits} bits", self._lowest[bits])
                for bits in BITS
                if bits in self._lowest
            ),
        ]
        first, last = _ends(cut.grid)
        zero = cut.grid.zero_point.item()
        kind = "symmetric" if cut.symmetric else "affine"
        setting = (
            f"{cut.bits} bits, {kind}: codes {cut.grid.low} to {cut.grid.high}, the code of 0.0 is "
            f"{zero}, a step is {cut.grid.scale.item():.3g}."
        )
        verdict = (
            f"Total squared error {cut.total:.4g} = rounding {cut.rounding:.3g} + clipping "
            f"{cut.clipping:.3g}: {_above(cut.total, best)}."
        )
        targets = [self._target(bits) for bits in GOALS]
        codes = torch.arange(cut.grid.low, cut.grid.high + 1)
        return {
            "low": round(self.low / self._step),
            "high": round(self.high / self._step),
            "last": LAST,
            "low_text": f"{self.low:.3g}",
            "high_text": f"{self.high:.3g}",
            "bits": self.bits,
            "symmetric": self.symmetric,
            "bars": self._bars(first, last),
            "ends": [self._at(self.low), self._at(self.high)],
            "grid": [self._at(value) for value in dequantize_affine(codes, cut.grid).tolist()],
            "zero": f"0.0 is code {zero}",
            "axis": [
                [self._at(k * self._step * 64), f"{k * self._step * 64:.3g}"] for k in range(-5, 6)
            ],
            "parts": [
                min(cut.rounding / best / _WORST, 1.0),
                min(cut.clipping / best / _WORST, 1.0),
            ],
            "best": 1 / _WORST,
            "beyond": cut.total > _WORST * best,
            "source": self._source,
            "setting": setting,
            "verdict": verdict,
            "rows": rows,
            "targets": targets,
            "spoken": f"{self.low:.3g} to {self.high:.3g}. {verdict}",
            "sentence": "\n".join(
                [
                    setting,
                    f"Range {self.low:.3g} to {self.high:.3g}. {verdict}",
                    *(
                        f"{row['what']}: range {row['range']}, step {row['step']}, rounding "
                        f"{row['rounding']}, clipping {row['clipping']}, total {row['total']}."
                        for row in rows[1:]
                    ),
                    *(
                        f"Goal{', reached' * target['done']}: {target['text']}"
                        for target in targets
                    ),
                ]
            ),
        }

    def _at(self, value: float) -> float:
        """Where a value lies on the axis, from 0 to 1."""
        place = value / self._step / LAST
        return min(max((place + 1) / 2, 0.0), 1.0)

    def _bars(self, first: float, last: float) -> list[list]:
        """Bins as [left, width, height, clipped]; a height is the logarithm of a count."""
        reach = LAST * self._step
        counts = torch.histc(self._x, _BINS, -reach, reach).tolist()
        top = math.log1p(max(counts))
        width = 2 * reach / _BINS
        bars = []
        for i, count in enumerate(counts):
            middle = -reach + (i + 0.5) * width
            if count:
                outside = not first - width / 2 <= middle <= last + width / 2
                bars.append([i / _BINS, 1 / _BINS, math.log1p(count) / top, outside])
        return bars

    def _target(self, bits: int) -> dict:
        text = f"At {bits} bits, a total at most {100 * CLOSE:g} % above the best"
        done = bits in self.reached
        if done:
            low, high = self.reached[bits]
            text += f": {low:.3g} to {high:.3g}"
        return {"done": done, "text": f"{text}."}


def _ends(grid: QuantParams) -> tuple[float, float]:
    """The values of the first and of the last code."""
    first, last = dequantize_affine(torch.tensor([grid.low, grid.high]), grid).tolist()
    return first, last


def _close(total: float, best: float) -> bool:
    return total <= (1 + CLOSE) * best


def _above(total: float, best: float) -> str:
    more = total / best - 1
    if more < 0.00005:
        return "the best at these bits"
    return f"{100 * more:.2g} % above the best" if more < 1 else f"{1 + more:.3g} times the best"


def _row(what: str, cut: _Cut) -> dict:
    return {
        "what": what,
        "range": f"{cut.low:.3g} to {cut.high:.3g}" + (", symmetric" if cut.symmetric else ""),
        "step": f"{cut.grid.scale.item():.3g}",
        "rounding": f"{cut.rounding:.3g}",
        "clipping": f"{cut.clipping:.3g}",
        "total": f"{cut.total:.4g}",
    }
