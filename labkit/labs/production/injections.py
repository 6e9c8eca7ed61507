"""``Injection``: a fault that a drill puts into a run at a known step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from labkit.labs.production.data_order import Batch, DataOrder, LoaderFailed

Kind = Literal[
    "NaN batch", "large batch", "out of memory", "loader", "damaged file", "damaged memory"
]

LARGE = 2.0**20
"""A large batch is so many times too large: beyond FP16's 65504, and far below BF16's 3.4e38."""


@dataclass(frozen=True, kw_only=True)
class Injection:
    """One fault of a drill.

    Args:
        kind: "NaN batch"; "large batch", whose inputs are inf in FP16 and finite in BF16; "out of
            memory", unless a micro-batch has at most ``fits`` samples; "loader", which raises;
            "damaged file", one bit of a checkpoint; "damaged memory", one bit of a weight.
        step: the batch, counted over all epochs from 0; of damage, how many were done before it.
        steps: batches in a row.
        fits: samples.

    Raises:
        ValueError: another kind, a step below 0, or no steps.
    """

    kind: Kind
    step: int
    steps: int = 1
    fits: int = 16

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind={self.kind!r}: one of {', '.join(get_args(Kind))}")
        if self.step < 0 or self.steps < 1:
            raise ValueError(f"step={self.step}, steps={self.steps}: from 0 on, and 1 or more")


FIVE_FAULTS = (
    Injection(kind="NaN batch", step=7),
    Injection(kind="out of memory", step=14, fits=16),
    Injection(kind="damaged file", step=20),
    Injection(kind="large batch", step=23, steps=3),
    Injection(kind="loader", step=50),
)
"""The drill of lab 15: for steps of 32 samples, checkpoints each 10 steps, and FP16."""


class Injections:
    """The faults of one run; a batch that is read again has its fault again, as in life."""

    def __init__(self, faults: Sequence[Injection], folder: Path) -> None:
        self._faults, self._folder = tuple(faults), folder
        self._done: set[Injection] = set()

    def batches(self, order: DataOrder) -> Iterator[Batch]:
        """What is left of the epoch, with faults of the data and of the loader."""
        for step, (inputs, targets) in enumerate(order, order.done):
            if self._at(step, "loader"):
                raise LoaderFailed(f"OSError: injected at step {step}")
            if self._at(step, "NaN batch"):
                inputs = inputs * torch.nan
            if self._at(step, "large batch"):
                inputs = inputs * LARGE
            yield inputs, targets

    def allocate(self, step: int, samples: int) -> None:
        """Raise ``torch.OutOfMemoryError`` where a micro-batch of so many samples does not fit."""
        for fault in self._at(step, "out of memory"):
            if samples > fault.fits:
                raise torch.OutOfMemoryError(f"injected: {samples} samples, {fault.fits} fit")

    @contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Flip a bit in the largest file that the block writes; once for each injection."""
        before = self._files()
        yield
        for _ in self._once(step, "damaged file"):
            written = [path for path, stamp in self._files().items() if before.get(path) != stamp]
            flip_bit(max(written, key=lambda path: path.stat().st_size))

    def damage(self, step: int, model: nn.Module) -> None:
        """Flip the highest bit of the exponent of a weight; once for each injection."""
        for _ in self._once(step, "damaged memory"):
            weight = next(model.parameters()).detach().view(torch.int32)
            weight.view(-1)[0] ^= 1 << 30

    def _once(self, step: int, kind: Kind) -> list[Injection]:
        found = [fault for fault in self._at(step, kind) if fault not in self._done]
        self._done.update(found)
        return found

    def _files(self) -> dict[Path, tuple[int, int]]:
        """The files of the folder, with what changes when one is written or replaced."""
        paths = [path for path in self._folder.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}

    def _at(self, step: int, kind: Kind) -> list[Injection]:
        return [f for f in self._faults if f.kind == kind and f.step <= step < f.step + f.steps]


def flip_bit(path: Path) -> None:
    """Flip the highest bit of the byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x80
    path.write_bytes(data)
