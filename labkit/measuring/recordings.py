"""What was measured on a machine, kept with its provenance.

A figure is measured here, emulated, or recorded on a device that has a name. ``labkit record``
makes the last kind: products by dtype, training steps by precision, and, on
a GPU, whole runs by real and by emulated AMP. A recording is one JSON file, those of the course are
in data/recordings.
"""

import json
import platform
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import GenericAlias
from typing import Annotated, get_type_hints

import torch
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs
from torch import nn
from torch.optim import Optimizer

from labkit.base.home import DATA, replace_file
from labkit.measuring.report import Benchmark
from labkit.measuring.speed import benchmark
from labkit.measuring.throughput import Measurement, measure
from labkit.measuring.verdicts import FEWEST_ROUNDS
from labkit.training.batches import Batch
from labkit.training.data import batches, character_batches, characters, digits, shakespeare
from labkit.training.loop import StepRecord, train
from labkit.training.models import SmallCNN, SmallGPT
from labkit.training.precision import PRECISIONS, device_named

FOLDER = DATA / "recordings"
RECORDED = tuple(name for name in PRECISIONS if not name.startswith("pure_"))
"""The precisions that each run is recorded in on a GPU."""
EMULATED = ("fp32", "bf16", "fp16")
"""Those of them that are recorded under emulation besides, to be compared."""

_COLUMNS = tuple(StepRecord.__dataclass_fields__)
# One list a step: names at each would be most of a file.
_Step = Annotated[
    StepRecord,
    BeforeValidator(lambda row: ArgsKwargs(tuple(row)) if isinstance(row, list) else row),
    PlainSerializer(
        lambda step: tuple(vars(step).values()),
        return_type=GenericAlias(tuple, tuple(get_type_hints(StepRecord).values())),
    ),
]


@dataclass(frozen=True)
class RecordedRun:
    """One training run.

    Args:
        run: a name of RUNS; that function says the network, the data and the optimizer.
        precision: as ``labkit.training.train`` takes it.
        emulated: on the CPU under ``emulate_gpu()``, not on the device of the recording.
        steps: a StepRecord of each step.
    """

    run: str
    precision: str
    emulated: bool
    steps: tuple[_Step, ...]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Everything that ``labkit record`` measured on one device, and the provenance of it.

    Args:
        device: what it calls itself, such as "NVIDIA H200".
        driver, cuda: versions; None on a CPU.
        torch, python, system: versions.
        recorded: when, in UTC, ISO 8601.
        command: what made it.
        measurement: products, a copy and casts by dtype.
        benchmarks: by a name of RUNS, training steps by precision.
        runs: whole runs, on a GPU only.
    """

    # JSON has no inf and no NaN: they are strings.
    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    device: str
    driver: str | None
    cuda: str | None
    torch: str
    python: str
    system: str
    recorded: str
    command: str
    measurement: Measurement
    benchmarks: dict[str, Benchmark]
    runs: tuple[RecordedRun, ...]

    @property
    def trouble(self) -> tuple[str, ...]:
        """What is wrong with the times: a sentence for each bad A/A control, empty if all are good.

        A control is good if its interval lies within 5 % of 1 (``verdicts.CONTROL_MARGIN``).
        """
        found = {"matmuls": self.measurement.trouble}
        found |= {f"steps of {name}": done.trouble for name, done in self.benchmarks.items()}
        return tuple(f"{what}: {said}" for what, said in found.items() if said)

    @property
    def source(self) -> str:
        """Where the numbers come from, for a caption, and whether a control among them is bad."""
        flag = ", with a bad A/A control" if self.trouble else ""
        return f"recorded on {self.device}, torch {self.torch}, {self.recorded[:10]}{flag}"


_Ready = tuple[nn.Module, Iterable[Batch], Optimizer, int]


def _digits_cnn() -> _Ready:
    split, model = digits(), SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, batches(split.train_images, split.train_labels, 64), optimizer, 9


def _character_gpt() -> _Ready:
    text = shakespeare()
    model = SmallGPT(characters(text).size, context=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, character_batches(text, 64, 16, steps=200), optimizer, 1


RUNS: dict[str, Callable[[], _Ready]] = {"digits-cnn": _digits_cnn, "character-gpt": _character_gpt}
"""Name -> a function that gives model, batches, optimizer and epochs: about 200 steps, seed 0."""


def record(
    device: str = "cpu",
    *,
    command: str = "labkit record",
    quick: bool = False,
    say: Callable[[str], object] = print,
) -> Recording:
    """Measure the device and return the recording; its ``trouble`` says which controls are bad.

    Args:
        device: "cpu", or an accelerator that torch sees.
        command: what is noted as having made it.
        quick: for a trial: small sizes, the fewest rounds that give a verdict, and no whole runs.
        say: called with a line at each part.

    Raises:
        ValueError: a device that is not there or has no autocast.
    """
    kind = torch.device(device).type
    modes = ("fp32", "tf32", "bf16", "fp16") if kind == "cuda" else ("fp32", "bf16", "fp16")
    device_named(device)
    say(f"matmuls, a copy and casts on {device}")
    sizes = (64, 128) if quick else (256, 512, 1024, 2048) + ((4096, 8192) if kind != "cpu" else ())
    measurement = measure(device, sizes=sizes, seconds=2 if quick else 180)
    benchmarks = {}
    for name in RUNS:
        say(f"training steps of {name}")
        benchmarks[name] = _benchmark(name, modes, device, quick=quick)
    runs = []
    if kind == "cuda" and not quick:
        for name in RUNS:
            for precision in RECORDED:
                say(f"{name} in {precision}")
                runs.append(record_run(name, precision, device))
            runs += [record_run(name, precision, "cpu") for precision in EMULATED]
    return Recording(
        device=measurement.device,
        driver=_driver(kind),
        cuda=torch.version.cuda if kind == "cuda" else None,
        torch=torch.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        measurement=measurement,
        benchmarks=benchmarks,
        runs=tuple(runs),
    )


def record_run(run: str, precision: str, device: str, *, progress: bool = True) -> RecordedRun:
    """Train one of RUNS on the device, emulated on a CPU.

    Raises:
        ValueError: an unknown run; what ``train`` refuses, such as a device that is not there.
    """
    torch.manual_seed(0)
    model, loader, optimizer, epochs = _named(run)()
    steps = train(
        model,
        loader,
        optimizer=optimizer,
        precision=precision,
        epochs=epochs,
        device=device,
        progress=progress,
    )
    return RecordedRun(run, precision, torch.device(device).type == "cpu", tuple(steps))


_RECORDING = TypeAdapter(Recording)


def save(recording: Recording, path: Path) -> None:
    """Write the recording as JSON; inf and NaN are the strings "Infinity" and "NaN"."""
    content = json.loads(_RECORDING.dump_json(recording)) | {"columns": _COLUMNS}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(content, allow_nan=False) + "\n")


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ValueError: the file is not a recording, or is one of another version of labkit.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        columns = content.pop("columns")
        if tuple(columns) != _COLUMNS:
            raise ValueError(f"its columns of a step are {columns}, not {list(_COLUMNS)}")
        return _RECORDING.validate_python(content)
    except ValidationError as error:
        first, *_ = error.errors()
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        why = repr(error)
    raise ValueError(f"{path} is no recording of this labkit, make one with `labkit record`: {why}")


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """All recordings that came with the course, by file name."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


# What is recorded


def _named(run: str) -> Callable[[], tuple]:
    if run not in RUNS:
        raise ValueError(f"run={run!r}: pass one of {', '.join(map(repr, RUNS))}")
    return RUNS[run]


def _benchmark(name: str, modes: tuple[str, ...], device: str, *, quick: bool) -> Benchmark:
    _, loader, _, _ = _named(name)()
    every = [batch for batch, _ in zip(loader, range(20), strict=False)]

    def make() -> tuple:
        model, _, optimizer, _ = _named(name)()
        return model, optimizer

    steps, rounds = (1, FEWEST_ROUNDS) if quick else (5, 25)
    return benchmark(modes, make=make, batches=every, steps=steps, rounds=rounds, device=device)


def _driver(kind: str) -> str | None:
    if kind != "cuda":
        return None
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.strip().splitlines()[0] if said.strip() else None
