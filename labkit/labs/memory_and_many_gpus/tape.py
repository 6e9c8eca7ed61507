"""``tape``: the bytes of one training step of GPT-2, operator by operator, by what they hold.

The step is run on fake CPU tensors under CUDA's autocast lists: torch computes shapes and dtypes,
and ``StepBytes`` counts. Nothing is trained, and a laptop needs no memory for it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint

from labkit.base.paths import DATA
from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.block_adamw import BLOCK
from labkit.labs.memory_and_many_gpus.plan import make_moments, summed_loss
from labkit.labs.memory_and_many_gpus.step_bytes import StepBytes, StepPoint, highest
from labkit.training.models import SmallGPT

GIB = 2**30
BLOCKS, WIDTH, HEADS, CONTEXT, VOCABULARY = 12, 768, 12, 1024, 50304
FILE = DATA / "emulated" / "gpt2_tape.json"

PHASES = ("forward", "backward", "step")

_MOST_POINTS = 240
"""A tape keeps about so many points."""


# Bytes of one moment of so many values.
_MOMENTS = {
    "fp32": lambda values: 4 * values,
    "bf16": lambda values: 2 * values,
    "8-bit": lambda values: values + 4 * -(-values // BLOCK),
}


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How a step of GPT-2 is run.

    Args:
        batch: texts of 1,024 tokens.
        autocast: BF16 autocast, else all in float32.
        loss_chunks: the loss is computed for so many parts of the rows, one after the other, each
            checkpointed.
        checkpointed: the blocks, of 0 to 11, that backward runs again.
        foreach: AdamW updates all parameters together, a GPU's default; else one by one.
        micro_batches: equal parts of the batch, whose gradients are accumulated.
        moments: AdamW's two. Those in BF16 or in blocks of 8 bits are updated in one kernel, as
            torchao's compiled optimizers do it, whatever ``foreach`` says.

    Raises:
        ValueError: a number below 1, a block that is not there, parts that the batch does not have,
            or other moments.
    """

    batch: int = 8
    autocast: bool = False
    loss_chunks: int = 1
    checkpointed: frozenset[int] = frozenset()
    foreach: bool = True
    micro_batches: int = 1
    moments: Literal["fp32", "bf16", "8-bit"] = "fp32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpointed", frozenset(self.checkpointed))
        for name in ("batch", "loss_chunks", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: pass a whole number from 1 on")
        if self.batch % self.micro_batches:
            raise ValueError(
                f"a batch of {self.batch} has no {self.micro_batches} equal micro-batches"
            )
        if not self.checkpointed <= set(range(BLOCKS)):
            raise ValueError(
                f"checkpointed={sorted(self.checkpointed)}: GPT-2 has blocks 0 to {BLOCKS - 1}"
            )
        if self.moments not in _MOMENTS:
            raise ValueError(f"moments={self.moments!r}: pass one of {', '.join(_MOMENTS)}")

    def describe(self) -> str:
        """Such as "8 texts, BF16 autocast, loss in 16 chunks"."""
        return ", ".join(
            [
                f"{self.batch} texts" if self.batch > 1 else "1 text",
                "BF16 autocast" if self.autocast else "FP32",
                *[f"loss in {self.loss_chunks} chunks"] * (self.loss_chunks > 1),
                *[f"{len(self.checkpointed)} of {BLOCKS} blocks checkpointed"]
                * bool(self.checkpointed),
                *[f"{self.micro_batches} micro-batches"] * (self.micro_batches > 1),
                *["foreach=False"] * (not self.foreach),
                *[f"{self.moments} moments"] * (self.moments != "fp32"),
            ]
        )


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
            f"GPT-2, {self.settings.describe()}: peak {self.peak / GIB:.2f} GiB, in {phase}, "
            f"during {operator}.\nPeaks in GiB: {peaks}.{again}"
        )

    def __repr__(self) -> str:
        return self.describe()


@cache
def tape(settings: StepSettings = StepSettings()) -> Tape:
    """The bytes of one training step of GPT-2, in settings that the course recorded or counted now.

    GPT-2 has 12 blocks of width 768, a vocabulary of 50,304 and a head of its own: 163 million
    parameters. The step is not the first: AdamW has its moments. Counting takes some seconds.
    """
    return recorded().get(settings) or count_tape(settings)


def count_tape(settings: StepSettings) -> Tape:
    """As ``tape``, without the recording."""
    points, flop = _count_step(settings)
    again = flop / (settings.batch * _flop_of_a_text()) - 1
    return Tape(settings=settings, points=_thinned(points), extra_flop=round(again, 4))


@cache
def _flop_of_a_text() -> int:
    return _count_step(StepSettings(batch=1))[1]


# ------------------------------------------------------------------ the step


def _loss(model: SmallGPT, tokens: Tensor, settings: StepSettings) -> Tensor:
    x = model.token(tokens) + model.position(torch.arange(CONTEXT))
    for place, block in enumerate(model.blocks):
        again = place in settings.checkpointed
        x = checkpoint(block, x, use_reentrant=False) if again else block(x)
    return summed_loss(model.head, model.norm(x), tokens, settings.loss_chunks) / tokens.numel()


def _count_step(settings: StepSettings) -> tuple[list[StepPoint], int]:
    """The points of a step, one for each operator, and its FLOP."""
    with emulate_gpu(), FakeTensorMode():
        model = SmallGPT(VOCABULARY, CONTEXT, width=WIDTH, blocks=BLOCKS, heads=HEADS)
        tokens = torch.zeros(settings.batch, CONTEXT, dtype=torch.int64)
        optimizer = AdamW(model.parameters(), foreach=settings.foreach)
        live = StepBytes(model, _make_moments(model, optimizer, settings), tokens)
        # From the second micro-batch on gradients are there, and one is like the other.
        parts = tokens.chunk(settings.micro_batches)[:2]
        with live:
            for part in parts:
                first = len(live.points())
                live.begin("forward")
                with torch.autocast("cpu", torch.bfloat16, enabled=settings.autocast):
                    loss = _loss(model, part, settings) / settings.micro_batches
                live.begin("backward")
                loss.backward()
                del loss
            last = len(live.points())
            live.begin("step")
            if settings.moments == "fp32":
                optimizer.step()
            else:
                live.note("one fused kernel")
            live.begin("zero_grad")
            optimizer.zero_grad()
            live.note("set to None")
        points = live.points()
        again = points[first:last] * (settings.micro_batches - len(parts))
        flop = live.flop * settings.micro_batches // len(parts)
    return points[:last] + again + points[last:], flop


def _make_moments(model: SmallGPT, optimizer: AdamW, settings: StepSettings) -> list[Tensor]:
    """What the optimizer holds between steps."""
    if settings.moments == "fp32":
        make_moments(optimizer)
        return [x for state in optimizer.state.values() for x in state.values()]
    size = _MOMENTS[settings.moments]
    return [
        torch.empty(size(parameter.numel()), dtype=torch.uint8)
        for parameter in model.parameters()
        for _ in ("first", "second")
    ]


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
def recorded() -> dict[StepSettings, Tape]:
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
