"""ReachTheSum: add 1 and again 1 in a 16-bit format, and watch the sum stick.

Python computes and the page draws. Each add is ``quantize(sum + 1)``; ``numbers`` holds
what that gives as final text, and the lengths of the two bars.
"""

import math
from pathlib import Path

import traitlets

from labkit.formats import BF16, FP16, FloatFormat, quantize, spacing
from labkit.labs.engine.described import AskingWidget

STEPS = (1, 10, 100, 1000)
"""How many adds one press makes."""

_FORMATS = {fmt.name: fmt for fmt in (FP16, BF16)}
# The bars end where the gap is this many times the addend; past it the sum has long been stuck.
_WIDEST = 4


class ReachTheSum(AskingWidget):
    """A running sum of ones, with a bar for the gap above it and a bar for the addend.

    ``fmt`` is labkit's FP16 or BF16. Three traits can be read and observed: ``total`` (the sum, a
    value of the format), ``presses`` (how many adds were made), ``format_name``. Setting
    ``format_name`` begins again at 0; ``add(times)`` adds as a press does. Raises ValueError for
    another format or a number of adds below 1, TraitError for another ``format_name``.

    >>> sum_of_ones = ReachTheSum()
    >>> sum_of_ones.add(3000)
    >>> sum_of_ones.total, sum_of_ones.presses
    (2048.0, 3000)
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    total = traitlets.Float(read_only=True)
    presses = traitlets.Int(read_only=True)
    format_name = traitlets.Enum(list(_FORMATS))
    formats = traitlets.List().tag(sync=True)
    steps = traitlets.List().tag(sync=True)

    def __init__(self, fmt: FloatFormat = FP16) -> None:
        if fmt not in _FORMATS.values():
            raise ValueError(f"fmt must be labkit.formats.FP16 or BF16, got {fmt!r}")
        super().__init__(formats=list(_FORMATS), steps=list(STEPS), format_name=fmt.name)
        self._add_up(0.0, 0)

    def add(self, times: int) -> None:
        """Add 1 to the sum, ``times`` times, each add rounded to the format."""
        if times < 1:
            raise ValueError(f"times must be at least 1, got {times}")
        self._add_up(*self._after(times))

    def _after(self, times: int) -> tuple[float, int]:
        total = self.total
        for _ in range(times):
            after = quantize(total + 1.0, _FORMATS[self.format_name])
            if after == total:  # stuck: all that follow fall back as well
                break
            total = after
        return total, self.presses + times

    def _add_up(self, total: float, presses: int) -> None:
        self.set_trait("total", total)
        self.set_trait("presses", presses)
        self._show()

    @traitlets.observe("format_name")
    def _begin_again(self, change: dict) -> None:
        self._add_up(0.0, 0)

    def _do(self, asked: dict) -> None:
        """Do what the page asks for: {seq, add} or {seq, format_name} (which also resets)."""
        if "add" in asked:
            self._add_up(*self._after(asked["add"]))
        else:
            self.format_name = asked["format_name"]
            self._add_up(0.0, 0)

    def _numbers(self) -> dict:
        return _picture(self.total, self.presses, _FORMATS[self.format_name])


def _picture(total: float, presses: int, fmt: FloatFormat) -> dict:
    """All that the page draws: texts, and the bars' lengths in percent of the widest gap."""
    gap = spacing(total, fmt)
    stuck = quantize(total + 1.0, fmt) == total
    exact = total == presses
    verdict = (
        f"Stuck: {total:g} + 1 is midway to {total + gap:g}. {total:g} wins: its mantissa is even."
        if stuck
        else "Each 1 has arrived."
    )
    name = fmt.name.upper()
    return {
        "format_name": fmt.name,
        "total": f"{total:g}",
        "presses": str(presses),
        "missing": str(int(presses - total)),
        "gap": _power(gap),
        "gap_percent": _percent(gap),
        "addend": "1",
        "addend_percent": _percent(1.0),
        "stuck": stuck,
        "verdict": verdict,
        "spoken": f"{total:g}" + (", stuck" if stuck else ""),
        "sentence": (
            f"{name}: {presses} ones added, the sum is {total:g}"
            + (". " if exact else f", {presses - total:g} are missing. ")
            + f"The gap above it is {_power(gap)}, the addend is 1. {verdict}"
        ),
    }


def _percent(length: float) -> float:
    return min(100.0, 100.0 * length / _WIDEST)


def _power(gap: float) -> str:
    exponent = math.frexp(gap)[1] - 1
    return f"{gap:g}" if exponent >= -3 else f"2**{exponent}"
