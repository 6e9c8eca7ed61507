"""BlockBench: 64 values of a gradient, their images in FP8 or FP4, and what shares a scale.

The values are one row of a matrix. All of it is quantised by ``labkit.formats``, since one scale
for the tensor depends on every row; the row's values, images and scales are drawn. Python computes
every number and every height; the page draws them.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import traitlets
from torch import Tensor

from labkit.formats import (
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    FloatFormat,
    ScaledTensor,
    encode,
    mx,
    nvfp4,
    quantize,
    scaled,
)
from labkit.labs.engine.described import AskingWidget
from labkit.training.data import gpt_layers

FORMATS = {"E4M3": E4M3, "E5M2": E5M2, "E2M1": E2M1}
GRANULARITIES = ("tensor", "row", "32", "16")
ROUNDINGS = ("nearest", "stochastic")

WIDTH = 64
"""Values in a row."""

DOUBLINGS = range(-16, 33)
"""How often a value may be doubled; negative: halved."""

FLUSHING = {
    name: FORMATS[name].max / (FORMATS[name].smallest_subnormal / 2) for name in ("E4M3", "E2M1")
}
"""From so many times on a block's largest value makes another one 0: 458752 and 24.

The largest is stored as the format's largest value, and half of the smallest one rounds to 0. This
is exact where scales are float32; rounded scales move it by at most a factor of two.
"""

_SETTINGS = ("place", "format_name", "granularity", "rounding", "rotated")
_ROTATED = 16  # values that a rotation mixes
_STATES = {"kept": "", "flushed": " (becomes 0)", "clipped": " (clipped)", "zero": ""}
_EXPONENTS = range(-100, 90)  # of values that stay finite and above 0 when they are doubled


@dataclass(frozen=True, kw_only=True)
class _Block:
    """What shares a scale, as far as the row shows it."""

    begin: int
    end: int
    scale: float  # all scales multiplied
    code: str  # what is stored
    amax: float  # of all values that share the scale

    def __contains__(self, place: int) -> bool:
        return self.begin <= place < self.end


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """The row and what became of it."""

    original: Tensor  # before a rotation
    row: Tensor
    matrix: Tensor  # whose row it is
    stored: ScaledTensor
    image: Tensor
    blocks: list[_Block]
    states: list[str]  # of _STATES

    def block(self, place: int) -> _Block:
        return next(block for block in self.blocks if place in block)


class BlockBench(AskingWidget):
    """Values of a gradient as bars, behind each its image, in blocks that share a scale.

    ``place`` (0 to 63), ``format_name`` ("E4M3", "E5M2", "E2M1"), ``granularity`` ("tensor", "row",
    "32", "16"), ``rounding`` ("nearest", "stochastic") and ``rotated`` can be read, set and
    observed. Blocks of 32 have MX's scales (E8M0, floor rule), those of 16 NVFP4's in E2M1 and
    float32 ones in FP8, which no standard has. ``double(times)`` changes the chosen value,
    ``draw()`` rounds stochastically once more, ``reset()`` puts the values back. ``flushing``
    (format -> ratio) and ``clipping`` (bool) say which goals are reached:

    1. One value was doubled until a neighbour with the same scale became 0, in E4M3 and in E2M1;
       without rotation, rounding to nearest.
    2. The chosen value was seen clipped in MXFP4 and, unchanged, not clipped in NVFP4.

    Args:
        values: a matrix of rows of 64 float32 values; None: ``gpt_layers()["gradient"]``.
        row: which of its rows is drawn.

    Raises:
        ValueError: a matrix of another shape or with inf or NaN, a row of zeros or that it has not.
        TraitError: a setting that is not one of those above.

    >>> bench = BlockBench()
    >>> bench.format_name, bench.granularity = "E2M1", "32"
    >>> print(bench.describe().splitlines()[0])
    MXFP4: E2M1, an E8M0 scale for 32 values. Rounding nearest. 4.25 bits a value.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    place = traitlets.Int(0, min=0, max=WIDTH - 1)
    format_name = traitlets.Enum(list(FORMATS), "E4M3")
    granularity = traitlets.Enum(GRANULARITIES, "row")
    rounding = traitlets.Enum(ROUNDINGS, "nearest")
    rotated = traitlets.Bool(False)
    flushing = traitlets.Dict(read_only=True)
    clipping = traitlets.Bool(False, read_only=True)

    def __init__(self, values: Tensor | None = None, *, row: int = 0) -> None:
        matrix = gpt_layers()["gradient"] if values is None else values.detach().float().clone()
        if matrix.ndim != 2 or matrix.shape[1] != WIDTH:
            raise ValueError(f"values of shape {tuple(matrix.shape)}: pass rows of {WIDTH} values")
        if not matrix.isfinite().all():
            raise ValueError("values hold inf or NaN, which no bar can show")
        exponents = torch.frexp(matrix[matrix != 0]).exponent
        if any(exponent not in _EXPONENTS for exponent in exponents.unique().tolist()):
            raise ValueError("values are too large or too small: stay within 2**-100 and 2**88")
        if not 0 <= row < len(matrix) or not matrix[row].any():
            raise ValueError(f"row={row}: pass one of {len(matrix)} rows, and not one of zeros")
        self._matrix, self._row = matrix, row
        self._source = "a recorded gradient of the trained GPT" if values is None else "a matrix"
        self._doublings = [0] * WIDTH
        self._draw = 0
        self._seen_clipped: tuple[int, float] | None = None
        super().__init__()
        self._show()

    def double(self, times: int = 1) -> None:
        """Double the chosen value so often; halve it where ``times`` is negative."""
        after = self._doublings[self.place] + times
        self._doublings[self.place] = min(max(after, DOUBLINGS[0]), DOUBLINGS[-1])
        self._draw = 0
        self._show()

    def draw(self) -> None:
        """Round stochastically once more, with other random bits."""
        self.rounding = "stochastic"
        self._draw += 1
        self._show()

    def reset(self) -> None:
        """Put every value back to what was recorded; settings and goals stay."""
        self._doublings = [0] * WIDTH
        self._draw = 0
        self._show()

    @traitlets.observe(*_SETTINGS)
    def _set(self, change: dict) -> None:
        if change["name"] != "place":
            self._draw = 0
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, move}, {seq, times}, {seq, draw}, {seq, reset} or settings.

        Settings come by the names of their traits.
        """
        if "move" in asked:
            self.place = min(max(self.place + asked["move"], 0), WIDTH - 1)
        elif "times" in asked:
            self.double(asked["times"])
        elif "draw" in asked:
            self.draw()
        elif "reset" in asked:
            self.reset()
        for name in asked.keys() & set(_SETTINGS):
            setattr(self, name, asked[name])

    # ------------------------------------------------------------ what is computed

    def _values(self) -> Tensor:
        """The matrix with the row as the learner changed it."""
        matrix = self._matrix.clone()
        matrix[self._row] *= torch.tensor([2.0**k for k in self._doublings])
        return matrix

    def _quantised(self, matrix: Tensor, *, draw: int = 0) -> ScaledTensor:
        fmt, size = FORMATS[self.format_name], self.granularity
        rounding, generator = "nearest_even", None
        if self.rounding == "stochastic":
            rounding, generator = "stochastic", torch.Generator().manual_seed(draw)
        how = {"overflow": "saturate", "rounding": rounding, "generator": generator}
        if size == "32":
            return mx(matrix, fmt, **how)
        if size == "16" and fmt is E2M1:
            return nvfp4(matrix, **how)
        if size == "16":
            return scaled(matrix, fmt, granularity="block", block=16, **how)
        return scaled(matrix, fmt, granularity=f"{size}wise", **how)

    def _blocks(self, matrix: Tensor, stored: ScaledTensor) -> list[_Block]:
        if self.granularity == "tensor":
            scale = stored.scales.item()
            amax = matrix.abs().max().item()
            return [_Block(begin=0, end=WIDTH, scale=scale, code=f"{scale:.3g}", amax=amax)]
        scales = stored.scales[self._row]
        size = WIDTH // len(scales)
        factor = 1.0 if stored.tensor_scale is None else stored.tensor_scale.item()
        return [
            _Block(
                begin=i * size,
                end=(i + 1) * size,
                scale=scale.float().item() * factor,
                code=_code(scale),
                amax=matrix[self._row, i * size : (i + 1) * size].abs().max().item(),
            )
            for i, scale in enumerate(scales)
        ]

    def _shown(self) -> _Shown:
        matrix = self._values()
        original = matrix[self._row]
        if self.rotated:
            matrix = _rotate(matrix)
        row = matrix[self._row]
        stored = self._quantised(matrix, draw=self._draw)
        image = stored.dequantize()[self._row]
        blocks = self._blocks(matrix, stored)
        # A format without a largest value says what would have rounded beyond it.
        fmt = stored.fmt
        endless = FloatFormat("endless", exponent_bits=8, mantissa_bits=fmt.mantissa_bits)
        scales = torch.cat([torch.full((b.end - b.begin,), b.scale) for b in blocks])
        clipped = quantize((row / scales).abs(), endless) > fmt.max
        states = [
            "zero" if x == 0 else "clipped" if beyond else "flushed" if y == 0 else "kept"
            for x, y, beyond in zip(row.tolist(), image.tolist(), clipped.tolist(), strict=True)
        ]
        return _Shown(
            original=original,
            row=row,
            matrix=matrix,
            stored=stored,
            image=image,
            blocks=blocks,
            states=states,
        )

    def _numbers(self) -> dict:
        shown = self._shown()
        self._judge(shown)
        setting, shares, reading = self._setting(shown), self._shares(shown), self._reading(shown)
        table, targets = _table(shown), self._targets()
        told = [
            setting,
            _said(shares),
            *(
                f"Values {row['values']}: scale {row['scale']}, largest {row['largest']}, "
                f"{row['flushed']} flushed, {row['clipped']} clipped."
                for row in table
            ),
            reading,
            *(
                f"Goal {i}{', reached' * target['done']}: {target['text']}"
                for i, target in enumerate(targets, start=1)
            ),
        ]
        return _picture(shown, rotated=self.rotated) | {
            **{name: getattr(self, name) for name in _SETTINGS},
            "source": f"Row {self._row + 1} of {len(self._matrix)} of {self._source}.",
            "setting": setting,
            "shares": shares,
            "reading": reading,
            "rows": table,
            "targets": targets,
            "spoken": f"{reading} {_said(shares)}",
            "sentence": "\n".join(told),
        }

    # ------------------------------------------------------------ the goals

    def _judge(self, shown: _Shown) -> None:
        if self.rotated:
            return
        changed = [i for i, k in enumerate(self._doublings) if k]
        if self.format_name in FLUSHING and self.rounding == "nearest" and len(changed) == 1:
            self._judge_flushing(shown, changed[0])
        chosen = (self.place, shown.row[self.place].item())
        clipped = shown.states[self.place] == "clipped"
        match self.format_name, self.granularity:
            case "E2M1", "32" if clipped:
                self._seen_clipped = chosen
            case "E2M1", "16" if not clipped and chosen == self._seen_clipped:
                self.set_trait("clipping", True)

    def _judge_flushing(self, shown: _Shown, outlier: int) -> None:
        before = self._quantised(self._matrix).dequantize()[self._row]
        for other in (outlier - 1, outlier + 1):
            if other not in shown.block(outlier):
                continue
            if shown.states[other] == "flushed" and before[other] != 0:
                ratio = abs(shown.row[outlier].item() / shown.row[other].item())
                best = min(ratio, self.flushing.get(self.format_name, math.inf))
                self.set_trait("flushing", self.flushing | {self.format_name: best})

    def _targets(self) -> list[dict]:
        found = [
            f"{name}: {_times(self.flushing[name])} as large made it 0, and "
            f"{_times(limit)} is the limit ({_limit(FORMATS[name])})"
            if name in self.flushing
            else f"{name}: not yet"
            for name, limit in FLUSHING.items()
        ]
        flushing = "Double one value until a neighbour with the same scale becomes 0. "
        clipping = (
            "Find a value that MXFP4 (E2M1, 32 values) clips, and see that NVFP4 (E2M1, 16 values) "
            "does not. "
        )
        if self._seen_clipped:
            seen = "seen" if self.clipping else "not yet seen"
            clipping += f"MXFP4 clips value {self._seen_clipped[0] + 1}; NVFP4 {seen}."
        return [
            {
                "done": len(self.flushing) == len(FLUSHING),
                "text": flushing + "; ".join(found) + ".",
            },
            {"done": self.clipping, "text": clipping.strip()},
        ]

    # ------------------------------------------------------------ words

    def _setting(self, shown: _Shown) -> str:
        name, size = self.format_name, self.granularity
        if size == "32":
            told = f"MXFP{shown.stored.fmt.bits}: {name}, an E8M0 scale for 32 values."
        elif shown.stored.tensor_scale is not None:
            second = f"a float32 scale ({shown.stored.tensor_scale:.3g}) for the tensor"
            told = f"NVFP4: {name}, an E4M3 scale for 16 values, {second}."
        else:
            rows = f"all {len(self._matrix)} rows"
            owner = {"tensor": rows, "row": "the row", "16": "16 values"}[size]
            told = f"{name}, a float32 scale for {owner}."
        rotation = f", rotated {_ROTATED} at a time" if self.rotated else ""
        bits = f"{shown.stored.bits_per_value:.4g} bits a value."
        return f"{told} Rounding {self.rounding}{rotation}. {bits}"

    def _shares(self, shown: _Shown) -> list[list[str]]:
        shares = [["SQNR", _decibels(shown.row, shown.image)]]
        for state in ("flushed", "clipped"):
            count = shown.states.count(state)
            shares.append([state, f"{100 * count / WIDTH:.3g} % ({count})"])
        if self.rounding == "stochastic":
            images = [
                self._quantised(shown.matrix, draw=draw).dequantize()[self._row]
                for draw in range(self._draw + 1)
            ]
            mean = torch.stack(images).double().mean(dim=0)
            shares.append([f"mean of draws: {len(images)}", _decibels(shown.row, mean)])
        return shares

    def _reading(self, shown: _Shown) -> str:
        at, block = self.place, shown.block(self.place)
        x, y = shown.row[at].item(), shown.image[at].item()
        rotated = ", rotated" if self.rotated else ""
        words = (
            f"Value {at + 1}: {_scientific(x)}{rotated}, divided by its scale "
            f"{x / block.scale:.4g}, stored {y / block.scale:.4g}, read back {_scientific(y)}"
            f"{_STATES[shown.states[at]]}."
        )
        if x and abs(x) < block.amax:
            words += f" The largest with its scale is {_times(block.amax / abs(x))} as large."
        elif x:
            words += " It is the largest with its scale."
        k = self._doublings[at]
        if k:
            words += f" Recorded as {_scientific(shown.original[at].item() * 2.0**-k)}."
        return words


def _picture(shown: _Shown, *, rotated: bool) -> dict:
    """Bars, bands and ticks, by their heights from 0 to 1 on a log axis."""
    fmt = shown.stored.fmt
    # What a scale reaches: from half of the smallest value, which rounds to 0. A block of zeros has
    # a scale that says nothing.
    bands = [
        (b.scale * fmt.smallest_subnormal / 2, b.scale * fmt.max) if b.amax else (0.0, 0.0)
        for b in shown.blocks
    ]
    drawn = torch.cat([shown.row, shown.original]).abs()
    high = math.ceil(math.log2(max(drawn.max().item(), *(top for _, top in bands)))) + 1
    low = math.floor(math.log2(drawn[drawn != 0].min())) - 1
    low = min(max(low, high - 40), high - 8)

    def height(value: float) -> float:
        power = math.log2(abs(value)) if value else low
        return min(max((power - low) / (high - low), 0.0), 1.0)

    values = zip(
        shown.row.tolist(),
        shown.image.tolist(),
        shown.original.tolist(),
        shown.states,
        strict=True,
    )
    return {
        "bars": [
            {
                "height": height(x),
                "image": height(y) if y else None,
                "before": height(before) if rotated else None,
                "state": state,
            }
            for x, y, before, state in values
        ],
        "blocks": [
            {
                "begin": b.begin,
                "end": b.end,
                "low": height(bottom),
                "high": height(top),
                "code": f"scale {b.code}",
            }
            for b, (bottom, top) in zip(shown.blocks, bands, strict=True)
        ],
        "ticks": [
            [height(2.0**e), f"2**{e}"] for e in range(low, high + 1, math.ceil((high - low) / 8))
        ],
    }


def _table(shown: _Shown) -> list[dict[str, str]]:
    """What is said of each block."""
    return [
        {
            "values": f"{b.begin + 1} to {b.end}",
            "scale": b.code,
            "largest": f"{b.amax:.3g}",
            "flushed": str(shown.states[b.begin : b.end].count("flushed")),
            "clipped": str(shown.states[b.begin : b.end].count("clipped")),
        }
        for b in shown.blocks
    ]


def _rotate(matrix: Tensor) -> Tensor:
    """Each 16 values of a row times the Hadamard matrix / 4, which is its own inverse."""
    hadamard = torch.ones(1, 1)
    while len(hadamard) < _ROTATED:
        hadamard = torch.cat(
            [torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)]
        )
    parts = matrix.unflatten(1, (-1, _ROTATED))
    return (parts @ (hadamard / math.sqrt(_ROTATED))).flatten(1)


def _code(scale: Tensor) -> str:
    """A scale as it is stored: bits and value for 8-bit scales."""
    value = scale.float().item()
    if scale.dtype == torch.float8_e8m0fnu:
        return f"0x{encode(value, E8M0):02x} = 2**{round(math.log2(value))}"
    if scale.dtype == torch.float8_e4m3fn:
        return f"0x{encode(value, E4M3):02x} = {value:g}"
    return f"{value:.3g}"


def _decibels(x: Tensor, image: Tensor) -> str:
    noise = (x.double() - image.double()).square().sum().item()
    if noise == 0:
        return "exact"
    return f"{10 * math.log10(x.double().square().sum().item() / noise):.1f} dB"


def _said(shares: list[list[str]]) -> str:
    return ", ".join(f"{name} {share}" for name, share in shares) + "."


def _scientific(x: float) -> str:
    """A value with its power of two, which the shared scale of MX sees: -1.83 x 2**-13."""
    if x == 0:
        return "0"
    fraction, exponent = math.frexp(x)
    return f"{2 * fraction:.3f} x 2**{exponent - 1}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 100 else f"{ratio:.3g} times"


def _limit(fmt: FloatFormat) -> str:
    return f"{fmt.max:g} / {fmt.smallest_subnormal / 2:g}"
