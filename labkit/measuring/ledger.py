"""The ledger: one table of what the labs made of the course's GPT, in bytes, quality and time.

A row is the GPT of ``trained_gpt()`` in one form. Its bytes are counted, its bits a character are
computed on text that it was not trained on, and its time is that of an 8 B model in this form, by
the bandwidth of one card. None of the three depends on the machine. ``stored`` brings the GPT into
a format, by one convention for all labs.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from torch import Tensor, nn

from labkit.base import progress
from labkit.base.home import BLUE, DATA, GREY, ORANGE, Picture, new_axes
from labkit.base.progress import ProgressError
from labkit.devices.roofline import roofs
from labkit.measuring.html_tables import table
from labkit.training import bits_per_character
from labkit.training.data import shakespeare_split

FILE = DATA / "emulated" / "ledger.json"
CARD = "H100 SXM5 80GB"
PARAMETERS = 112_964
"""Of ``trained_gpt()``."""

_KIND = "ledger"  # of an event in the progress log
_MARKS = {"yours": (BLUE, BLUE), "labkit's": (ORANGE, ORANGE), "recorded": (GREY, "white")}
"""The edge and the inside of a row's dot, by its origin."""

_BESIDE = 6
_PLACES = [(x, up) for up in (_BESIDE, -_BESIDE, 17, -17, 28, -28, 39, -39, 50) for x in (8, -8)]
"""Where a name may stand, in points from its dot: the nearest first, and rather to the right."""

Cast = Callable[[str, Tensor], tuple[Tensor, float]]
"""Name and float32 matrix of a layer -> the values that its codes stand for, and their bytes."""


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """The GPT in one form.

    Args:
        lab: where it was made, such as "09_quantization".
        name: of the form, unique in its lab.
        bytes: of all parameters, scales counted.
        bits: a character of the held-out text; lower is better.
        origin: "yours", computed with your answers; "labkit's", computed here with labkit's; or
            "recorded", which came with the course.
    """

    lab: str
    name: str
    bytes: int
    bits: float
    origin: str

    @property
    def ms_8b(self) -> float:
        """Milliseconds that CARD needs to read 8e9 parameters of as many bytes each: a least time.

        One user's token needs every weight once. Cache, activations and launches come on top.
        """
        return 1e3 * 8e9 * self.bytes / PARAMETERS / _bandwidth()


@cache
def _bandwidth() -> float:
    (roof,) = roofs("bf16", devices=[CARD])
    return roof.bandwidth


@torch.no_grad()
def stored(model: nn.Module, cast: Cast) -> tuple[nn.Module, int]:
    """A copy of the model in a format, computing in its own dtype, and the bytes of its parameters.

    All matrices go through ``cast``, embeddings and head too; biases and norms are rounded to FP16.

    >>> from labkit.training import trained_gpt
    >>> _, size = stored(trained_gpt(), lambda name, w: (w.bfloat16().float(), 2 * w.numel()))
    >>> size
    225928
    """
    model, size = copy.deepcopy(model), 0
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            values, taken = parameter.half(), 2.0 * parameter.numel()
        else:
            values, taken = cast(name.removesuffix(".weight"), parameter.detach())
        parameter.copy_(values)
        size += math.ceil(taken)
    return model, size


class Ledger:
    """The rows of all labs: yours, and for what you have not done, those that were recorded.

    A row of yours is an event in the progress log, so a ledger made in another notebook shows it
    too. It shows itself as a table; ``plot`` draws it.
    """

    def __init__(self) -> None:
        self._added: list[LedgerRow] = []

    def add(
        self,
        lab: str,
        name: str,
        model: Callable[[Tensor], Tensor],
        bytes: int,
        *,
        whose: str = "your",
    ) -> LedgerRow:
        """Measure the model on the held-out text and add it as a row.

        Args:
            lab, name: of the row; a row of the same lab and name is replaced.
            model: as in ``bits_per_character``.
            bytes: that its parameters take in storage.
            whose: "your" or "labkit's", as ``whose(answer)`` gives it; a row with labkit's answer
                is not kept for other notebooks and never stands in the place of yours.

        Raises:
            ValueError: bytes that are no whole number above 0; logits that are not finite.
        """
        if bytes != int(bytes) or bytes < 1:
            raise ValueError(f"bytes={bytes!r}: a model takes a whole number of bytes, 1 or more")
        bits = bits_per_character(model, shakespeare_split()[1])
        if not math.isfinite(bits):
            raise ValueError(
                f"{name} has {bits} bits a character: some of its logits are not finite, so it is "
                "no row of the ledger. Look for an overflow in its weights."
            )
        origin = "yours" if whose == "your" else whose
        row = LedgerRow(lab=lab, name=name, bytes=bytes, bits=bits, origin=origin)
        if origin == "yours" and row not in self.rows:
            why_not = progress.record(
                _KIND, lab=lab, item=name, status="measured", bytes=row.bytes, bits=row.bits
            )
            if why_not is not None:
                print(why_not)
        self._added.append(row)
        return row

    @property
    def rows(self) -> tuple[LedgerRow, ...]:
        """One row for each lab and name, by lab; within a lab in the order of the recorded ones."""
        helped = [row for row in self._added if row.origin != "yours"]
        yours = [row for row in self._added if row.origin == "yours"]
        last = {(row.lab, row.name): row for row in [*_recorded(), *helped, *_logged(), *yours]}
        return tuple(sorted(last.values(), key=lambda row: row.lab))

    def plot(self) -> Picture:
        """Bits a character over bytes, the least time of 8 B on top, and the front as a line."""
        figure, axes = new_axes(height=4.4)
        rows, best = self.rows, front(self.rows)
        axes.step(
            [row.bytes / 1e3 for row in best], [row.bits for row in best], where="post", color=GREY
        )
        for origin, (edge, inside) in _MARKS.items():
            if of := [row for row in rows if row.origin == origin]:
                kilobytes, bits = zip(*((row.bytes / 1e3, row.bits) for row in of), strict=True)
                axes.plot(kilobytes, bits, "o", ms=7, mew=1.5, mec=edge, mfc=inside, label=origin)
        axes.set_xscale("log")
        axes.set_xlabel("kB of all parameters")
        axes.set_ylabel("bits a character, held-out text")
        axes.margins(x=0.14, y=0.12)
        ms = 8e9 * 1e6 / PARAMETERS / _bandwidth()  # for each kB of this GPT
        to_and_from: Any = (lambda kilobytes: kilobytes * ms, lambda took: took / ms)
        top = axes.secondary_xaxis("top", functions=to_and_from)
        top.set_xlabel(f"ms a token of an 8 B model at least, {CARD}")
        for axis, ticks in ((axes.xaxis, (50, 100, 200, 400)), (top.xaxis, (1, 2, 4, 8))):
            axis.set_ticks(ticks, [str(tick) for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.legend(frameon=False, loc="upper right")
        figure.draw_without_rendering()  # the layout decides where the dots are
        _write_names(axes, rows)
        return Picture(
            figure,
            "Bytes counted, bits a character computed, times from the card's bandwidth. The line "
            "joins the rows that no other row beats in bytes without losing in bits.",
            f"{self.describe()}\nOn the line: {', '.join(row.name for row in best)}.",
        )

    def describe(self) -> str:
        """The table as text, a line a row."""
        return "\n".join(", ".join(f"{k} {v}" for k, v in _cells(row).items()) for row in self.rows)

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return table([_cells(row) for row in self.rows], above=(), below=_NOTE)


_NOTE = (
    f"ms a token: the least time of a model of 8 B parameters in this form, for one user on one "
    f"{CARD}, which reads every weight once for each token. Recorded rows came with the course."
)


def front(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """The rows that no other row beats, by rising bytes and falling bits.

    Bits are compared to three decimals, as they are shown.
    """
    best: list[LedgerRow] = []
    for row in sorted(rows, key=lambda row: (row.bytes, row.bits)):
        if not best or round(row.bits, 3) < round(best[-1].bits, 3):
            best.append(row)
    return best


def _cells(row: LedgerRow) -> dict[str, str]:
    return {
        "lab": row.lab[:2],
        "form": row.name,
        "bytes": f"{row.bytes:,}",
        "bits a character": f"{row.bits:.3f}",
        "ms a token, 8 B": f"{row.ms_8b:.2f}",
        "from": row.origin,
    }


def _write_names(axes: Axes, rows: Sequence[LedgerRow]) -> None:
    """Each name beside its dot, at the first place around it where nothing else stands."""
    dots = [axes.transData.transform((row.bytes / 1e3, row.bits)) for row in rows]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    if legend := axes.get_legend():
        taken.append(legend.get_window_extent())
    style: Any = {"textcoords": "offset points", "fontsize": 8, "va": "center"}
    for row in sorted(rows, key=lambda row: -row.bits):
        dot = row.bytes / 1e3, row.bits
        name = axes.annotate(row.name, dot, _PLACES[0], in_layout=False, **style)
        for place in _PLACES:
            name.set_position(place)
            name.set_horizontalalignment("left" if place[0] > 0 else "right")
            box = name.get_window_extent()
            if axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and not box.count_overlaps(taken):
                break
        taken.append(box)
        if abs(place[1]) > _BESIDE:
            line = {"arrowstyle": "-", "color": GREY, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
            axes.annotate("", dot, place, textcoords="offset points", arrowprops=line)


def _recorded() -> list[LedgerRow]:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    return [LedgerRow(**row, origin="recorded") for row in rows]


def _logged() -> list[LedgerRow]:
    """Rows of the progress log; none where it cannot be read, which the progress panel says."""
    try:
        log = progress.events(kind=_KIND)
    except ProgressError:
        return []
    return [LedgerRow(lab=e.lab, name=e.item, **e.detail, origin="yours") for e in log]
