"""Roofline: what bounds a square matmul on each device, as its size grows.

Every number is Python's; the page draws lines, moves the slider and reports it.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import traitlets

from labkit.devices.roofline import Roof, matmul_work
from labkit.labs.engine.described import AskingWidget

SIZES = tuple(2**power for power in range(5, 15))
_INTENSITIES = (-2, 13)  # powers of two of FLOP a byte
_HEADROOM = 0.25  # powers of ten between the highest roof and the frame
_STYLES = ("solid", "dashed", "dotted", "dash-dot")


class Roofline(AskingWidget):
    """The roofs of up to four devices and a square matmul that moves along them.

    ``size`` can be read, set and observed.

    Args:
        roofs: what ``labkit.devices.roofline.roofs`` gives, or a ``Roof`` of what was measured
            here; all of one dtype.
        launch_seconds: what the host needs to launch a matmul; a shorter one is bound by overhead
            and lies below its roof.

    Raises:
        ValueError: no roof, more than four, several dtypes, or a launch below 0. TraitError: a size
            that is not one of SIZES.

    >>> from labkit.devices.roofline import Roof
    >>> Roofline([Roof("A100", "fp16", 312e12, 1555e9, verified=True)]).describe()
    'A 512 x 512 matmul in fp16, 170.7 FLOP a byte: on A100 memory-bound, at least 1.01 us.'
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    size = traitlets.Enum(SIZES, 512)

    def __init__(self, roofs: Sequence[Roof], *, launch_seconds: float = 0.0) -> None:
        if not 1 <= len(roofs) <= len(_STYLES):
            raise ValueError(f"{len(roofs)} roofs: pass one to {len(_STYLES)}")
        if len({roof.dtype for roof in roofs}) > 1:
            raise ValueError(f"dtypes {sorted({roof.dtype for roof in roofs})}: pass one dtype")
        if not launch_seconds >= 0:
            raise ValueError(f"launch_seconds={launch_seconds!r}: pass a number from 0 on")
        self._roofs, self._launch = tuple(roofs), launch_seconds
        super().__init__(numbers=self._numbers() | {"seq": 0})

    @traitlets.observe("size")
    def _moved(self, change: dict) -> None:
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks for: {seq, index}, an index of SIZES."""
        self.size = SIZES[min(max(int(asked["index"]), 0), len(SIZES) - 1)]

    def _numbers(self) -> dict:
        size, dtype = self.size, self._roofs[0].dtype
        flop, moved = matmul_work(size, size, size, dtype)
        intensity = flop / moved
        top = max(roof.flops for roof in self._roofs)
        bottom = min(roof.attainable(2.0 ** _INTENSITIES[0]) for roof in self._roofs)
        if self._launch:
            bottom = min(bottom, 2 * SIZES[0] ** 3 / self._launch)
        lowest, highest = math.floor(math.log10(bottom)), math.log10(top) + _HEADROOM
        powers = range(lowest, math.floor(highest) + 1)
        unit = "operations" if dtype == "int8" else "FLOP"

        def x(value: float) -> float:
            low, high = _INTENSITIES
            return (min(max(math.log2(value), low), high) - low) / (high - low)

        def y(value: float) -> float:
            return (math.log10(value) - lowest) / (highest - lowest)

        lines, rows = [], []
        for roof, style in zip(self._roofs, _STYLES, strict=False):
            ends = [2.0 ** _INTENSITIES[0], roof.ridge, 2.0 ** _INTENSITIES[1]]
            bound = roof.bound(flop=flop, bytes_moved=moved)
            seconds = roof.seconds(flop=flop, bytes_moved=moved)
            if seconds < self._launch:
                bound, seconds = "overhead", self._launch
            lines.append(
                {
                    "name": roof.device,
                    "style": style,
                    "points": [[x(end), y(roof.attainable(end))] for end in ends],
                    "at": [x(intensity), y(flop / seconds)],
                }
            )
            rows.append(
                {
                    "device": roof.device,
                    "style": style,
                    "bound": bound,
                    "time": _time(seconds),
                    "rate": _rate(flop / seconds, dtype),
                    "peak": _rate(roof.flops, dtype),
                    "source": "" if roof.verified else "secondary",
                }
            )
        told = "; ".join(
            f"on {row['device']} {row['bound']}-bound, at least {row['time']}"
            + (f" (peak from a {row['source']} source)" if row["source"] else "")
            for row in rows
        )
        return {
            "index": SIZES.index(size),
            "last": len(SIZES) - 1,
            "size": f"{size} x {size}",
            "dtype": dtype,
            "intensity": f"{intensity:.4g} {unit} a byte",
            "axis": f"arithmetic intensity, {unit} a byte",
            "lines": lines,
            "rows": rows,
            "note": _SECOND_HAND if any(row["source"] for row in rows) else "",
            "columns": [
                [x(2.0**power), f"{2.0**power:g}"] for power in range(_INTENSITIES[0], 14, 3)
            ],
            "levels": [[y(10.0**power), _rate(10.0**power, dtype)] for power in powers],
            "sentence": f"A {size} x {size} matmul in {dtype}, "
            f"{intensity:.4g} {unit} a byte: {told}.",
        }


_SECOND_HAND = "Secondary: peak and bandwidth as others quote the vendor; data/gpus.csv names them."


def _time(seconds: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _rate(flops: float, dtype: str) -> str:
    what = "OP/s" if dtype == "int8" else "FLOP/s"
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9)):
        if flops >= factor:
            return f"{flops / factor:.3g} {unit}{what}"
    return f"{flops / 1e6:.3g} M{what}"
