"""GradientWindow: gradients over FP16's window, and a loss scale that moves them.

A frame is a histogram by powers of two; the scale is 2**k, so k shifts it sideways and changes
nothing else. Python says which part is lost, subnormal or overflowed; the page draws it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import traitlets
from torch import Tensor

from labkit.formats import FP16
from labkit.formats.histograms import range_report
from labkit.labs.engine.described import AskingWidget

SCALES = range(-10, 41)
"""The scale is 2**k for k in this range."""

START = 16
"""A dynamic scale starts at 2**16, as ``torch.amp.GradScaler`` does."""

FRAME_STEPS = 2000
"""So many training steps with its gradients a frame of a chase stands for."""

GOAL_LOST = 0.001
"""The share of gradients that may be lost: less than this."""

GOAL_HELD = 0.9
"""The share of a chase's steps that are to be held."""

# 2**-25 is the tie between 0 and the smallest subnormal: what is above it survives.
_FIRST_KEPT = FP16.min_exponent - FP16.mantissa_bits - 1
_OVERFLOW = 65520.0  # half a gap above 65504
_AXIS = range(-60, 41)  # the powers of two that are drawn; what lies outside is drawn at the edge


@dataclass(frozen=True)
class GradientFrame:
    """The gradients of one step: pairs (e, how many have 2**e <= abs(g) < 2**(e+1)), and max|g|."""

    exponents: tuple[tuple[int, int], ...]
    largest: float

    @classmethod
    def of(cls, gradients: Tensor) -> "GradientFrame":
        """Count the finite gradients that are not 0; ValueError where there are none."""
        report = range_report(gradients, FP16)
        if not report.exponents:
            raise ValueError("gradients are all 0, inf or NaN: a scale moves none of them")
        finite = gradients.detach()[gradients.isfinite()]
        return cls(report.exponents, finite.abs().max().item())

    def shares(self, k: int) -> tuple[float, float, float]:
        """The parts, 0 to 1, that are lost, subnormal and overflowed in FP16 with the scale 2**k.

        By whole powers of two: a gradient of exactly 2**-25 counts as kept, and of those between
        32768 and 65536 none as overflowed. ``overflows`` knows about the largest one.
        """
        total = sum(count for _, count in self.exponents)
        lost = sum(c for e, c in self.exponents if e + k < _FIRST_KEPT)
        low = sum(c for e, c in self.exponents if _FIRST_KEPT <= e + k < FP16.min_exponent)
        high = sum(c for e, c in self.exponents if e + k > FP16.max_exponent)
        return lost / total, low / total, high / total

    def overflows(self, k: int) -> bool:
        """Is the largest gradient inf?"""
        return self.largest * 2.0**k >= _OVERFLOW

    def holds(self, k: int) -> bool:
        """Less than 0.1 % lost and nothing overflowed."""
        return self.shares(k)[0] < GOAL_LOST and not self.overflows(k)

    def backoffs(self, k: int) -> int:
        """How often 2**k must be halved until nothing overflows, each time for a skipped step."""
        return next(n for n in range(k - SCALES[0] + 1) if not self.overflows(k - n))

    def judged(self, k: int, backoffs: int) -> tuple[int, int]:
        """How many of the frame's steps are (held, skipped) with the scale 2**k.

        The same for a fixed scale and for a dynamic one: a step counts if the optimizer takes it
        and less than 0.1 % is lost. ``backoffs`` of the steps were skipped before 2**k was reached.
        """
        if self.overflows(k):
            return 0, FRAME_STEPS
        return (FRAME_STEPS - backoffs if self.holds(k) else 0), backoffs


class GradientWindow(AskingWidget):
    """A histogram of gradients over FP16's window; the loss scale moves it, by mouse or keyboard.

    ``k`` can be read, set and observed: the scale is 2**k. With several frames it is a chase:
    ``next_frame()`` judges one and goes on; ``frame``, ``held`` and ``skipped`` (in steps) say how
    it stands. Setting ``dynamic`` begins the chase again: True from 2**16, False with the scale
    where it is.

    Args:
        gradients: a tensor, or frames in order as ``recorded.autoencoder_gradients`` gives
            them: pairs of {e: how many gradients have 2**e <= abs(g) < 2**(e+1)} and max|g|.

    Raises:
        ValueError: no frame, or gradients that are all 0, inf or NaN. TraitError: ``k`` outside
            -10 to 40.

    >>> window = GradientWindow(torch.tensor([1e-9, 1e-3, 0.5]))
    >>> window.k = 12
    >>> window.describe().split(": ")[1]
    'of 3 gradients 0 % are lost, 33.3 % subnormal, 0 % overflowed. In the goal.'
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    k = traitlets.Int(0, min=SCALES[0], max=SCALES[-1])
    frame = traitlets.Int(0, read_only=True)
    held = traitlets.Int(0, read_only=True)
    skipped = traitlets.Int(0, read_only=True)
    dynamic = traitlets.Bool(False)

    def __init__(self, gradients: Tensor | Sequence[tuple[Mapping[int, int], float]]) -> None:
        if isinstance(gradients, Tensor):
            self._frames = [GradientFrame.of(gradients)]
        else:
            self._frames = [
                GradientFrame(tuple(sorted(counts.items())), largest)
                for counts, largest in gradients
            ]
        if not self._frames:
            raise ValueError("there is no frame: pass a tensor, or at least one recorded frame")
        self._over = False
        self._backoffs = 0  # of the frame that is shown
        super().__init__()
        self._show()

    def steps_held(self, *, scale: float | None = None) -> int:
        """How many steps a fixed scale holds; None: a dynamic one, from 2**16 on."""
        if scale is not None:
            k = torch.frexp(torch.tensor(scale, dtype=torch.float64)).exponent.item() - 1
            return sum(frame.judged(k, 0)[0] for frame in self._frames)
        k, held = START, 0
        for frame in self._frames:
            backoffs = frame.backoffs(k)
            k -= backoffs
            held += frame.judged(k, backoffs)[0]
            k = min(k + 1, SCALES[-1])
        return held

    def next_frame(self) -> None:
        """Judge this frame and go to the next; a dynamic scale backs off and grows by itself."""
        if self._over:
            return
        held, skipped = self._frames[self.frame].judged(self.k, self._backoffs)
        self.set_trait("held", self.held + held)
        self.set_trait("skipped", self.skipped + skipped)
        if self.frame + 1 == len(self._frames):
            self._over = True
        else:
            self.set_trait("frame", self.frame + 1)
            if self.dynamic:
                self.k = min(self.k + 1, SCALES[-1])
            self._back_off()
        self._show()

    def restart(self) -> None:
        """Back to the first frame; a fixed scale stays where it is, a dynamic one is 2**16."""
        self._over = False
        for name in ("frame", "held", "skipped"):
            self.set_trait(name, 0)
        if self.dynamic:
            self.k = START
        self._back_off()
        self._show()

    def _back_off(self) -> None:
        self._backoffs = self._frames[self.frame].backoffs(self.k) if self.dynamic else 0
        self.k -= self._backoffs

    @traitlets.observe("k")
    def _moved(self, change: dict) -> None:
        self._show()

    @traitlets.observe("dynamic")
    def _begins(self, change: dict) -> None:
        self.restart()

    def _do(self, asked: dict) -> None:
        """Do what the page asks for: {seq, k}, {seq, dynamic}, {seq, next} or {seq, restart}."""
        if "k" in asked:
            if not self.dynamic:
                self.k = asked["k"]
        elif "dynamic" in asked:
            self.dynamic = asked["dynamic"]
        elif "next" in asked:
            self.next_frame()
        else:
            self.restart()

    def _numbers(self) -> dict:
        frame, chase = self._frames[self.frame], len(self._frames) > 1
        story = self._story() if chase else ""
        return _picture(frame, self.k) | {
            "chase": chase,
            "dynamic": self.dynamic,
            "over": self._over,
            "story": story,
            "sentence": " ".join(filter(None, [_sentence(frame, self.k), story])),
        }

    def _story(self) -> str:
        frames = len(self._frames)
        judged = FRAME_STEPS * (frames if self._over else self.frame)
        mode = f"dynamic from 2**{START}" if self.dynamic else "set by you"
        if not self._over:
            end = ""
        elif self.held >= GOAL_HELD * judged:
            end = f" Goal reached: {GOAL_HELD:.0%} of the steps."
        else:
            end = f" The goal is {GOAL_HELD:.0%} of the steps."
        return (
            f"Frame {self.frame + 1} of {frames}, scale {mode}: held in {self.held:,} of "
            f"{judged:,} steps, {self.skipped:,} skipped.{end}"
        )


def _picture(frame: GradientFrame, k: int) -> dict:
    """All that the page draws: bars by place on the axis, in percent, and texts."""
    lost, low, high = frame.shares(k)
    heights: dict[int, int] = {}
    for e, count in frame.exponents:
        place = min(max(e + k, _AXIS[0]), _AXIS[-1])
        heights[place] = heights.get(place, 0) + count
    tallest = max(heights.values())
    return {
        "k": k,
        "scales": [SCALES[0], SCALES[-1]],
        "axis": [_AXIS[0], _AXIS[-1]],
        "zones": [
            {"name": "lost", "from": _AXIS[0], "to": _FIRST_KEPT},
            {"name": "subnormal", "from": _FIRST_KEPT, "to": FP16.min_exponent},
            {"name": "normal", "from": FP16.min_exponent, "to": FP16.max_exponent + 1},
            {"name": "overflowed", "from": FP16.max_exponent + 1, "to": _AXIS[-1] + 1},
        ],
        "bars": [[place, 100 * count / tallest] for place, count in sorted(heights.items())],
        "scale": _power(k),
        "shares": [
            ["lost", _percent(lost)],
            ["subnormal", _percent(low)],
            ["overflowed", _overflowed(frame, k, high)],
        ],
        "holds": frame.holds(k),
        "verdict": "In the goal." if frame.holds(k) else "Not in the goal.",
    }


def _sentence(frame: GradientFrame, k: int) -> str:
    lost, low, high = frame.shares(k)
    total = sum(count for _, count in frame.exponents)
    return (
        f"Loss scale {_power(k)}: of {total} gradients {_percent(lost)} are lost, "
        f"{_percent(low)} subnormal, {_overflowed(frame, k, high)} overflowed. "
        + ("In the goal." if frame.holds(k) else "Not in the goal.")
    )


def _overflowed(frame: GradientFrame, k: int, share: float) -> str:
    return "at least one" if frame.overflows(k) and not share else _percent(share)


def _percent(share: float) -> str:
    if 0 < share < 0.0001:
        return "under 0.01 %"
    return f"{100 * share:.3g} %" if share < 0.9995 or share == 1 else "over 99.9 %"


def _power(k: int) -> str:
    return f"2**{k} = {2.0**k:g}" if -4 <= k <= 19 else f"2**{k}"
