"""``tape``: the bytes of one training step of GPT-2, operator by operator, by what they hold.

The step is run on fake CPU tensors under CUDA's autocast lists: torch computes shapes and dtypes.
Nothing is trained, and a laptop needs no memory for it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.base.home import DATA
from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings, count_step
from labkit.labs.memory_and_many_gpus.step_bytes import StepPoint, highest
from labkit.training.models import SmallGPT

GIB = 2**30
BLOCKS, WIDTH, HEADS, CONTEXT, VOCABULARY = 12, 768, 12, 1024, 50304
FILE = DATA / "emulated" / "gpt2_tape.json"

PHASES = ("forward", "backward", "step")

_PLAIN = StepSettings()
_MOST_POINTS = 240
"""A tape keeps about so many points."""


def step_in_words(settings: StepSettings) -> str:
    """Such as "8 texts, BF16 autocast, loss in 16 chunks"."""
    blocks = len(settings.checkpointed)
    words = {
        f"{settings.batch} texts" if settings.batch > 1 else "1 text": True,
        "BF16 autocast" if settings.autocast else "FP32": True,
        f"loss in {settings.loss_chunks} chunks": settings.loss_chunks > 1,
        f"{blocks} of {BLOCKS} blocks checkpointed": blocks,
        f"{settings.micro_batches} micro-batches": settings.micro_batches > 1,
        "foreach=False": not settings.foreach,
        f"{settings.moments} moments": settings.moments != "fp32",
    }
    return ", ".join(said for said, holds in words.items() if holds)


@dataclass(frozen=True, kw_only=True)
class Tape:
    """What ``tape`` returns.

    Args:
        settings: of the step.
        points: in order of time, the largest of each stretch of operators and each phase's last.
        extra_flop: what is computed again, as a share of the FLOP of the step without it.
    """

    settings: StepSettings
    points: tuple[StepPoint, ...]
    extra_flop: float

    @property
    def hills(self) -> dict[str, StepPoint]:
        """Of "forward", "backward" and "step" the point with the most bytes."""
        return {phase: highest(self.points, phase) for phase in PHASES}

    @property
    def peak(self) -> int:
        """The most bytes that are alive at once."""
        return highest(self.points).total

    @property
    def peak_at(self) -> str:
        """Phase and operator of the peak, such as "backward/aten._log_softmax_backward_data"."""
        return highest(self.points).at

    def fits(self, limit: int) -> bool:
        """Whether a card of so many bytes holds the step."""
        return self.peak <= limit

    def describe(self) -> str:
        """Settings, the three peaks, and what is computed again, as lines of text."""
        phase, _, operator = self.peak_at.partition("/")
        peaks = ", ".join(f"{name} {hill.total / GIB:.2f}" for name, hill in self.hills.items())
        again = f" {100 * self.extra_flop:.0f} % more FLOP." if self.extra_flop else ""
        return (
            f"GPT-2, {step_in_words(self.settings)}: peak {self.peak / GIB:.2f} GiB, in {phase}, "
            f"during {operator}.\nPeaks in GiB: {peaks}.{again}"
        )

    def __repr__(self) -> str:
        return self.describe()


@cache
def tape(settings: StepSettings = _PLAIN) -> Tape:
    """The bytes of one training step of GPT-2, in settings that the course recorded or counted now.

    GPT-2 has 12 blocks of width 768, a vocabulary of 50,304 and a head of its own: 163 million
    parameters. The step is not the first: AdamW has its moments. Counting takes some seconds.

    Raises:
        ValueError: a block that is not there, or a batch that has no so many equal parts.
    """
    if settings.batch % settings.micro_batches:
        raise ValueError(
            f"a batch of {settings.batch} has no {settings.micro_batches} equal micro-batches"
        )
    if not settings.checkpointed <= set(range(BLOCKS)):
        raise ValueError(
            f"checkpointed={sorted(settings.checkpointed)}: GPT-2 has blocks 0 to {BLOCKS - 1}"
        )
    return recorded_tapes().get(settings) or count_tape(settings)


def count_tape(settings: StepSettings) -> Tape:
    """As ``tape``, without the recording."""
    points, flop = _count(settings)
    again = flop / (settings.batch * _flop_of_a_text()) - 1
    return Tape(settings=settings, points=_thinned(points), extra_flop=round(again, 4))


@cache
def _flop_of_a_text() -> int:
    return _count(StepSettings(batch=1))[1]


def _count(settings: StepSettings) -> tuple[list[StepPoint], int]:
    with emulate_gpu(), FakeTensorMode():
        model = SmallGPT(VOCABULARY, CONTEXT, width=WIDTH, blocks=BLOCKS, heads=HEADS)
        tokens = torch.zeros(settings.batch, CONTEXT, dtype=torch.int64)
        return count_step(model, tokens, tokens, settings)


def _thinned(points: Sequence[StepPoint]) -> tuple[StepPoint, ...]:
    """The largest point of each stretch, and the last of each phase; no stretch has two phases."""
    stretch = -(-len(points) // _MOST_POINTS)
    kept: list[StepPoint] = []
    for _, phase in groupby(points, key=lambda point: point.phase):
        run = list(phase)
        for first in range(0, len(run), stretch):
            kept.append(max(run[first : first + stretch], key=lambda point: point.total))
        if kept[-1] is not run[-1]:
            kept.append(run[-1])
    return tuple(kept)


# ------------------------------------------------------------------ the recording


@cache
def recorded_tapes() -> dict[StepSettings, Tape]:
    """The tapes of data/emulated/gpt2_tape.json, by their settings."""
    record = json.loads(FILE.read_text(encoding="utf-8"))
    return {found.settings: found for found in map(_from_json, record["tapes"])}


def _from_json(record: dict[str, Any]) -> Tape:
    points = tuple(
        StepPoint(
            at=record["names"][name],
            weights=record["weights"],
            gradients=gradients,
            moments=record["moments"],
            copies=copies,
            kept=kept,
            temporary=temporary,
        )
        for name, gradients, copies, kept, temporary in record["points"]
    )
    return Tape(
        settings=replace(StepSettings(), **record["settings"]),
        points=points,
        extra_flop=record["extra_flop"],
    )
