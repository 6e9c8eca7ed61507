"""MemoryTape: the bytes of one training step over its operators, stacked by what they are for.

``tape`` counts the step of a GPT-2 on fake tensors. Python computes every number; the page draws.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import traitlets

from labkit.labs.engine.described import AskingWidget
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.step_bytes import StepPoint
from labkit.labs.memory_and_many_gpus.tape import BLOCKS, GIB, PHASES, Tape, step_in_words, tape

LIMITS = (16 * GIB, 8 * GIB, 6 * GIB, 4 * GIB)
"""Bytes of the cards."""

BATCHES = (1, 2, 4, 8, 16)
CHUNKS = (1, 4, 16)
MICRO_BATCHES = (1, 2, 4, 8)
MOMENTS = {"fp32": "FP32", "bf16": "BF16", "8-bit": "8-bit"}

ROLES = {
    "weights": "weights",
    "moments": "moments",
    "copies": "16-bit copies of weights",
    "gradients": "gradients",
    "kept": "kept for backward",
    "temporary": "temporary",
}
"""The roles of a ``StepPoint``, from the bottom of the picture up, as the page calls them."""

_COLUMNS = 220
_WIDTHS = {"forward": 3.0, "backward": 4.0, "step": 2.0, "zero_grad": 0.5}
"""How wide the phases are drawn, one beside the other: operators take very different times."""


@dataclass(frozen=True, kw_only=True)
class _Phase:
    """One phase of the drawn step, between two places from 0 to 1."""

    name: str
    left: float
    right: float


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Neighbouring operators of a phase, drawn as the one of them that holds the most bytes."""

    left: float
    right: float
    point: StepPoint


class MemoryTape(AskingWidget):
    """A training step of a GPT-2 from left to right: bytes by role, the card's limit, three hills.

    ``settings`` and ``limit`` (bytes: 16, 8, 6 or 4 GiB) can be read, set and observed. A limit is
    reached when a step with at least the first batch fits into it; ``reached`` holds, for each
    limit in GiB, the settings that fit with the least extra FLOP so far.

    Args:
        settings: what the widget begins with; None: ``StepSettings()``.
        limit: of the card, bytes.
        goal: a share of extra FLOP. One more goal is then a step that fits into 4 GiB with at most
            this share, FP32 moments and the batch in one piece. None: no such goal.
        tape: settings -> what a step with them holds.

    Raises:
        TraitError: a limit that there is not. ValueError: settings that ``tape`` refuses.

    >>> shown = MemoryTape(limit=8 * GIB)
    >>> print(shown.describe().splitlines()[0])
    Does not fit into 8 GiB: the peak is 10.98 GiB at aten._log_softmax_backward_data (backward). \
That is 2.98 GiB too much. Memory runs out near aten.nll_loss_forward (forward).
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    settings = traitlets.Instance(StepSettings)
    limit = traitlets.Enum(LIMITS, LIMITS[0])
    reached = traitlets.Dict(read_only=True)

    def __init__(
        self,
        settings: StepSettings | None = None,
        limit: int = LIMITS[0],
        goal: float | None = None,
        tape: Callable[[StepSettings], Tape] = tape,
    ) -> None:
        self._tape = cache(tape)  # the page asks for the same step again and again
        self._first, self._goal = settings or StepSettings(), goal
        self._goal_met = False
        self._before: StepSettings | None = None
        self._place: int | None = None  # the column that is read; None: the peak's
        super().__init__(settings=self._first, limit=limit)

    @traitlets.observe("settings", "limit")
    def _changed(self, change: dict) -> None:
        if change["name"] == "settings" and isinstance(change["old"], StepSettings):
            self._before = change["old"]
        self._place = None
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, settings: {name: value}}, {seq, limit} (GiB), {seq, place}.

        A place of None is the peak.
        """
        if "settings" in asked:
            wanted = {**vars(self.settings), **asked["settings"]}
            wanted["micro_batches"] = min(wanted["micro_batches"], wanted["batch"])
            self.settings = StepSettings(**wanted)
        if "limit" in asked:
            self.limit = asked["limit"] * GIB
        if "place" in asked:
            self._place = asked["place"]

    # ------------------------------------------------------------ what is computed

    def _judge(self, shown: Tape) -> None:
        settings = shown.settings
        if settings.batch < self._first.batch:
            return
        for limit in LIMITS:
            best = self.reached.get(limit // GIB)
            if shown.fits(limit) and (
                best is None or shown.extra_flop < self._tape(best).extra_flop
            ):
                self.set_trait("reached", {**self.reached, limit // GIB: settings})
        self._goal_met |= (
            self._goal is not None
            and shown.fits(LIMITS[-1])
            and shown.extra_flop <= self._goal
            and settings.micro_batches == 1
            and settings.moments == "fp32"
        )

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        shown = self._tape(self.settings)
        self._judge(shown)
        phases, columns = _drawn(shown.points)
        peak = max(range(len(columns)), key=lambda i: columns[i].point.total)
        place = peak if self._place is None else min(max(self._place, 0), len(columns) - 1)
        top = 1.06 * max(shown.peak, self.limit)
        verdict, setting = self._verdict(shown), _told(self.settings)
        reading = _reading(columns[place].point, at_peak=place == peak)
        roles = [
            {"role": role, "name": name, "bytes": _gib(getattr(columns[place].point, role))}
            for role, name in ROLES.items()
        ]
        rows, targets = self._rows(shown), self._targets()
        told = [
            verdict,
            setting,
            f"{reading}: {', '.join(' '.join((row['name'], row['bytes'])) for row in roles)}.",
            *(
                f"{row['what']}: {', '.join(f'{name} {row[name]}' for name in PHASES)}; peak "
                f"{row['peak']} at {row['at']}; extra FLOP {row['flop']}."
                for row in rows
            ),
            *(f"Goal{', reached' * target['done']}: {target['text']}" for target in targets),
        ]
        return {
            "menus": {
                "batch": BATCHES,
                "loss_chunks": CHUNKS,
                "micro_batches": MICRO_BATCHES,
                "moments": list(MOMENTS.items()),
                "limit": [limit // GIB for limit in LIMITS],
                "blocks": BLOCKS,
            },
            "settings": {**vars(self.settings), "checkpointed": sorted(self.settings.checkpointed)},
            "limit": self.limit // GIB,
            "fits": shown.fits(self.limit),
            "drawing": {
                "phases": _names(phases),
                "edges": [[column.left, column.right] for column in columns],
                "stack": _stack(columns, top),
                "limit": [self.limit / top, f"limit {self.limit // GIB} GiB"],
                "ticks": _ticks(top),
                "hills": _peaks(shown, columns, top),
            },
            "place": place,
            "reading": reading,
            "roles": roles,
            "setting": setting,
            "verdict": verdict,
            "rows": rows,
            "targets": targets,
            "spoken": f"{verdict} {setting}" if self._place is None else reading,
            "sentence": "\n".join(told),
        }

    def _verdict(self, shown: Tape) -> str:
        card = f"{self.limit // GIB} GiB"
        peak = f"the peak is {_gib(shown.peak)} at {_where(shown.peak_at)}."
        if shown.fits(self.limit):
            return f"Fits into {card}: {peak} {_gib(self.limit - shown.peak)} are left."
        first = next(point for point in shown.points if point.total > self.limit)
        return (
            f"Does not fit into {card}: {peak} That is {_gib(shown.peak - self.limit)} too much. "
            f"Memory runs out near {_where(first.at)}."
        )

    def _rows(self, shown: Tape) -> list[dict]:
        rows = [_row("now", shown)]
        if self._before is not None:
            rows.append(_row("before", self._tape(self._before)))
        if self._first not in (self.settings, self._before):
            rows.append(_row("at first", self._tape(self._first)))
        return rows

    def _targets(self) -> list[dict]:
        targets = []
        for limit in LIMITS:
            size = limit // GIB
            text = f"A step with a batch of {self._first.batch} fits into {size} GiB"
            if size in self.reached:
                best = self._tape(self.reached[size])
                text += f": peak {_gib(best.peak)}, extra FLOP {_percent(best.extra_flop)}"
            targets.append({"done": size in self.reached, "text": f"{text}."})
        if self._goal is not None:
            text = (
                f"The same in {LIMITS[-1] // GIB} GiB with at most {_percent(self._goal)} extra "
                "FLOP, FP32 moments and the batch in one piece."
            )
            targets.append({"done": self._goal_met, "text": text})
        return targets


def _drawn(points: tuple[StepPoint, ...]) -> tuple[list[_Phase], list[_Column]]:
    """The phases in the order of time, and the columns that show the points."""
    runs = [
        (name, list(group)) for name, group in itertools.groupby(points, lambda point: point.phase)
    ]
    whole = sum(_WIDTHS[name] for name, _ in runs)
    phases, columns, left = [], [], 0.0
    for name, group in runs:
        phase = _Phase(name=name, left=left, right=left + _WIDTHS[name] / whole)
        phases.append(phase)
        columns.extend(_columns(phase, group))
        left = phase.right
    return phases, columns


def _columns(phase: _Phase, points: list[StepPoint]) -> Iterator[_Column]:
    width = phase.right - phase.left
    count = min(len(points), max(round(width * _COLUMNS), 1))
    for i in range(count):
        part = points[i * len(points) // count : (i + 1) * len(points) // count]
        yield _Column(
            left=phase.left + width * i / count,
            right=phase.left + width * (i + 1) / count,
            point=max(part, key=lambda point: point.total),
        )


def _stack(columns: list[_Column], top: float) -> Mapping[str, list[float]]:
    """The upper edge of each role in each column, as a share of the axis."""
    edges = [
        list(itertools.accumulate(getattr(column.point, role) for role in ROLES))
        for column in columns
    ]
    return {
        role: [round(height / top, 4) for height in row]
        for role, row in zip(ROLES, zip(*edges, strict=True), strict=True)
    }


def _peaks(shown: Tape, columns: list[_Column], top: float) -> list[dict]:
    """Where the top of each hill lies, and which one is the peak of the step."""
    marks = []
    for name, hill in shown.hills.items():
        column = max(
            (column for column in columns if column.point.phase == name),
            key=lambda column: column.point.total,
        )
        marks.append(
            {
                "at": [(column.left + column.right) / 2, hill.total / top],
                "largest": hill.total == shown.peak,
                "text": f"{name} {_gib(hill.total)}",
            }
        )
    return marks


def _ticks(top: float) -> list[list]:
    step = next(size for size in (0.5, 1, 2, 4, 8, 16, 32) if top / GIB / size <= 8)
    return [[i * step * GIB / top, f"{i * step:g}"] for i in range(int(top / GIB / step) + 1)]


def _names(phases: list[_Phase]) -> list[list]:
    """What stands below each phase; there is little room where micro-batches repeat them."""
    repeated = sum(phase.name == "forward" for phase in phases) > 1
    short = {"forward": "f", "backward": "b"} if repeated else {}
    return [
        [phase.left, phase.right, short.get(phase.name, phase.name)]
        for phase in phases
        if phase.name != "zero_grad"
    ]


def _reading(point: StepPoint, *, at_peak: bool) -> str:
    return f"{'The peak, ' * at_peak}{_gib(point.total)} at {_where(point.at)}"


def _row(what: str, shown: Tape) -> dict:
    return {
        "what": what,
        **{name: _gib(hill.total) for name, hill in shown.hills.items()},
        "largest": next(name for name, hill in shown.hills.items() if hill.total == shown.peak),
        "peak": _gib(shown.peak),
        "at": _operator(shown.peak_at),
        "flop": _percent(shown.extra_flop),
    }


def _told(settings: StepSettings) -> str:
    blocks = sorted(settings.checkpointed)
    which = f" Checkpointed: {', '.join(map(str, blocks))}." if blocks else ""
    return f"{step_in_words(settings)}.{which}"


def _operator(at: str) -> str:
    return at.rpartition("/")[2]


def _where(at: str) -> str:
    phase, _, operator = at.rpartition("/")
    return f"{operator} ({phase})" if phase else operator


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
