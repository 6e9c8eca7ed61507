"""RunRace: three runs from the same first weights, side by side: FP32, all in 16 bits, and mixed.

A race is three recorded runs and a step. The dials choose among the runs of
data/emulated/three_crimes.json; ``numbers`` holds what the page draws, each number as final
text. Which step is shown the page decides alone and tells in ``step``.
"""

import json
import math
from functools import lru_cache
from pathlib import Path

import traitlets

from labkit.base.home import DATA
from labkit.labs.engine.described import AskingWidget

DIALS = {
    "task": {"digits": "digits", "autoencoder": "autoencoder, loss × 0.001"},
    "lr": {"high": "high", "middle": "middle", "low": "low"},
    "eps": {"1e-08": "1e-8", "0.0001": "1e-4"},
    "pure": {"pure_fp16": "FP16", "pure_bf16": "BF16"},
    "mixed": {
        "fp16_unscaled": "FP16, no loss scale",
        "fp16 256": "FP16, loss scale 256",
        "fp16": "FP16, dynamic loss scale",
        "bf16": "BF16",
    },
}
"""Each dial and its positions, by the name and the words on the page."""

_TITLES = {
    "task": "Task",
    "lr": "Learning rate",
    "eps": "Adam's eps",
    "pure": "All in 16 bits",
    "mixed": "Mixed",
}
# The chart ends this far above the highest first loss; a line that leaves it runs along its edge.
_HEADROOM = 1.15


@lru_cache(maxsize=1)
def _recording() -> tuple[str, dict]:
    """Where the runs come from, and each run by (task, lr, eps, precision with its scale)."""
    text = (DATA / "emulated" / "three_crimes.json").read_text(encoding="utf-8")
    recording = json.loads(text)
    runs = {}
    for run in recording["runs"]:
        scale = f" {run['loss_scale']:g}" if run["loss_scale"] else ""
        runs[run["task"], run["lr"], run["eps"], run["precision"] + scale] = run
    return recording["provenance"], runs


def _rate(task: str, position: str) -> float:
    rates = sorted({lr for name, lr, _, _ in _recording()[1] if name == task}, reverse=True)
    return dict(zip(DIALS["lr"], rates, strict=True))[position]


class RunRace(AskingWidget):
    """Loss curves of three runs that share data, first weights, learning rate and eps.

    The dials are traits: ``task``, ``lr`` ("high", "middle", "low"), ``eps``, ``pure`` (the format
    of the middle lane) and ``mixed`` (what the last lane is); their positions stand in ``DIALS``.
    ``step`` is the step shown, and goes back to 0 with another task. Its words name the dials and
    how to turn them. TraitError for a position that a dial has not, or a step outside the race.

    >>> race = RunRace(pure="pure_fp16")
    >>> race.step = 1
    >>> race.losses()["all in FP16"]
    nan
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    task = traitlets.Enum(list(DIALS["task"]), default_value="digits")
    lr = traitlets.Enum(list(DIALS["lr"]), default_value="high")
    eps = traitlets.Enum(list(DIALS["eps"]), default_value="1e-08")
    pure = traitlets.Enum(list(DIALS["pure"]), default_value="pure_fp16")
    mixed = traitlets.Enum(list(DIALS["mixed"]), default_value="fp16")
    step = traitlets.Int(0).tag(sync=True)

    def __init__(self, **dials: str) -> None:
        super().__init__(**dials)
        self._show()

    def losses(self) -> dict[str, float]:
        """The loss of each lane at ``step``; NaN where it is inf or NaN."""
        runs = self._lanes()
        values = {name: run["losses"][self.step] for name, run in runs.items()}
        return {name: math.nan if x is None else x for name, x in values.items()}

    def _lanes(self) -> dict[str, dict]:
        runs, lr = _recording()[1], _rate(self.task, self.lr)
        lanes = {
            "FP32": "fp32",
            f"all in {DIALS['pure'][self.pure]}": self.pure,
            f"mixed, {DIALS['mixed'][self.mixed]}": self.mixed,
        }
        return {
            name: runs[self.task, lr, float(self.eps), precision]
            for name, precision in lanes.items()
        }

    @traitlets.validate("step")
    def _inside(self, proposal: dict) -> int:
        last = len(next(iter(self._lanes().values()))["losses"]) - 1
        if not 0 <= proposal["value"] <= last:
            raise traitlets.TraitError(
                f"step is {proposal['value']}; this race has the steps 0 to {last}"
            )
        return proposal["value"]

    @traitlets.observe("task", "lr", "eps", "pure", "mixed")
    def _turned(self, change: dict) -> None:
        if change["name"] == "task":
            self.step = 0
        if self.numbers:
            self._show()

    def _do(self, asked: dict) -> None:
        """Turn the dial that the page names: {seq, dial, position}."""
        if asked.get("dial") in DIALS:
            setattr(self, asked["dial"], asked["position"])

    def _numbers(self) -> dict:
        lanes = self._lanes()
        reference = next(iter(lanes.values()))
        top = _HEADROOM * max(run["losses"][0] for run in lanes.values())
        return {
            "dials": [self._dial(name) for name in DIALS],
            "last": len(reference["losses"]) - 1,
            "ticks": [{"at": 100 * share, "text": f"{top * share:.2g}"} for share in (0, 0.5, 1)],
            "lanes": [_lane(name, run, reference, top) for name, run in lanes.items()],
            "provenance": f"Recorded: {_recording()[0]}.",
            "setting": self._setting(),
        }

    def _dial(self, name: str) -> dict:
        positions = dict(DIALS[name])
        if name == "lr":
            positions = {position: f"{_rate(self.task, position):g}" for position in positions}
        return {
            "name": name,
            "title": _TITLES[name],
            "positions": [list(pair) for pair in positions.items()],
            "position": getattr(self, name),
        }

    def _setting(self) -> str:
        rate = _rate(self.task, self.lr)
        eps = DIALS["eps"][self.eps]
        return f"{DIALS['task'][self.task]}, Adam at {rate:g}, eps {eps}"

    def describe(self) -> str:
        """Say in words all that the picture shows at this step."""
        picture, lanes = self.numbers, []
        for lane in picture["lanes"]:
            at_end = f", {lane['verdict']}" if self.step == picture["last"] else ""
            lanes.append(f"{lane['name']} {lane['losses'][self.step]}{at_end}")
        return (
            f"Race on {picture['setting']}. Loss at step {self.step} of {picture['last']}: "
            f"{'; '.join(lanes)}. {picture['provenance']} {self._handles()}"
        )

    def _handles(self) -> str:
        """How the dials are turned without the page."""
        dials = "; ".join(
            f"{name} = {' or '.join(json.dumps(position) for position in positions)}"
            for name, positions in DIALS.items()
        )
        return (
            f'From Python: race = RunRace(eps="0.0001") or race.eps = "0.0001" turns a dial, '
            f"race.step = {self.numbers['last']} goes to the end, print(race) shows the rest. "
            f"Dials: {dials}."
        )


def _lane(name: str, run: dict, reference: dict, top: float) -> dict:
    """One line of the chart: heights in percent, losses as text, and how it ends."""
    losses = run["losses"]
    finite = next((i for i, loss in enumerate(losses) if loss is None), len(losses))
    return {
        "name": name,
        "heights": [round(100 * min(loss / top, 1), 2) for loss in losses[:finite]],
        "losses": [_text(loss) for loss in losses],
        "verdict": _verdict(run, reference, finite),
    }


def _text(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.3g}"


def _verdict(run: dict, reference: dict, finite: int) -> str:
    """How a run ended, measured by how far the FP32 run came down."""
    if finite < len(run["losses"]):
        return f"not finite from step {finite}"
    if run["zero_gradients"] == 1:
        return "stands still: every gradient is 0"
    moved = f"{run['moved']:.0%} of the weights move in a step"
    share = _fall(run) / _fall(reference)
    if run is reference:
        return f"the reference; {moved}"
    if share < 0.75:
        return f"stalls: {max(share, 0):.0%} of FP32's way; {moved}"
    if share > 1.25:
        return f"another run: {share:.0%} of FP32's way; {moved}"
    return f"keeps up: {share:.0%} of FP32's way; {moved}"


def _fall(run: dict) -> float:
    last = run["losses"][-20:]
    return run["losses"][0] - sum(last) / len(last)
