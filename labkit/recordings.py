"""Runs recorded on real GPUs: the same StepRecords as ``train`` returns, and where they come from.

This module believes that a figure is measured here, emulated, or recorded on a device that has a
name. ``labkit record`` makes the last kind; without a CUDA device it makes nothing. A recording is
one JSON file in data/recordings.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from labkit.data import batches, character_batches, characters, digits, shakespeare
from labkit.models import SmallCNN, SmallGPT
from labkit.paths import DATA
from labkit.training import StepRecord, train

FOLDER = DATA / "recordings"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp16_unscaled")
"""The precisions that ``labkit record`` records each run in."""


@dataclass(frozen=True)
class Recording:
    """A training run, and the provenance of its numbers.

    Args:
        run: a name of RUNS; that function says the network, the data and the optimizer.
        precision: as ``labkit.training.train`` takes it.
        device: what the device calls itself, such as "NVIDIA H200".
        torch, cuda: the versions; cuda is None on a CPU.
        recorded: when, in UTC, ISO 8601.
        steps: a StepRecord of each step.
    """

    run: str
    precision: str
    device: str
    torch: str
    cuda: str | None
    recorded: str
    steps: tuple[StepRecord, ...]

    @property
    def source(self) -> str:
        """Where the numbers come from, for a caption."""
        return f"recorded on {self.device}, torch {self.torch}, {self.recorded[:10]}"


def _digits_cnn() -> tuple:
    split, model = digits(), SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, batches(split.train_images, split.train_labels, 64), optimizer, 9


def _character_gpt() -> tuple:
    text = shakespeare()
    model = SmallGPT(characters(text).size, context=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, character_batches(text, 64, 16, steps=200), optimizer, 1


RUNS: dict[str, Callable[[], tuple]] = {"digits-cnn": _digits_cnn, "character-gpt": _character_gpt}
"""Name -> a function that gives model, batches, optimizer and epochs: about 200 steps, seed 0."""


def record(run: str, precision: str, device: str = "cuda", *, progress: bool = True) -> Recording:
    """Train one of RUNS on the device and return the recording.

    Raises:
        ValueError: an unknown run; what ``train`` refuses, such as a device that is not there.
    """
    if run not in RUNS:
        raise ValueError(f"run={run!r}: pass one of {', '.join(map(repr, RUNS))}")
    torch.manual_seed(0)
    model, loader, optimizer, epochs = RUNS[run]()
    steps = train(
        model,
        loader,
        optimizer=optimizer,
        precision=precision,
        epochs=epochs,
        device=device,
        progress=progress,
    )
    on_gpu = torch.device(device).type == "cuda"
    return Recording(
        run=run,
        precision=precision,
        device=torch.cuda.get_device_name(device) if on_gpu else "a CPU, emulated",
        torch=torch.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
        steps=tuple(steps),
    )


def save(recording: Recording, folder: Path = FOLDER) -> Path:
    """Write the recording as JSON; an older one of the same run, precision and device is replaced.

    JSON has no inf and no NaN: they are written as the strings "inf" and "nan".
    """
    name = "_".join((recording.run, recording.precision, recording.device.replace(" ", "-")))
    path = folder / f"{name}.json"
    rows = [
        [_written(value) for value in asdict(step).values()] for step in recording.steps
    ]  # a row a step: names at each would be most of the file
    header = asdict(recording) | {"columns": list(StepRecord.__dataclass_fields__), "steps": rows}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(header, allow_nan=False) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ValueError: the file is not a recording, or has other columns than a StepRecord has fields.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        columns, rows = content.pop("columns"), content.pop("steps")
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no recording of labkit: {error!r}") from None
    if columns != list(StepRecord.__dataclass_fields__):
        raise ValueError(f"{path} has the columns {columns}: record it anew with `labkit record`")
    steps = tuple(StepRecord(*map(_read, row)) for row in rows)
    return Recording(**content, steps=steps)


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """All recordings that came with the course, by file name."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def _written(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: object) -> object:
    return float(value) if isinstance(value, str) else value
