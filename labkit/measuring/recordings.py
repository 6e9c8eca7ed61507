"""What was measured on a machine, kept with its provenance.

``labkit record`` measures matmuls by dtype, training steps by precision, and, on a GPU, whole runs
by real and by emulated AMP. A recording is one JSON file, those of the course are in
data/recordings.
"""

import json
import math
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from labkit.base.paths import DATA
from labkit.measuring import Benchmark, ModeResult, benchmark
from labkit.measuring.throughput import Measurement, Timing, measure
from labkit.training import StepRecord, train
from labkit.training.data import batches, character_batches, characters, digits, shakespeare
from labkit.training.models import SmallCNN, SmallGPT
from labkit.training.precision import device_named

FOLDER = DATA / "recordings"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp16_unscaled")
"""The precisions that each run is recorded in on a GPU."""
EMULATED = ("fp32", "bf16", "fp16")
"""Those of them that are recorded under emulation besides, to be compared."""


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
    steps: tuple[StepRecord, ...]


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


def record(
    device: str = "cpu", *, command: str = "labkit record", quick: bool = False, say=print
) -> Recording:
    """Measure the device and return the recording.

    Args:
        device: "cpu", or an accelerator that torch sees.
        command: what is noted as having made it.
        quick: for a trial: small sizes, few rounds, and no whole runs.
        say: called with a line at each part.

    Raises:
        ValueError: a device that is not there or has no autocast.
    """
    kind = torch.device(device).type
    modes = ("fp32", "tf32", "bf16", "fp16") if kind == "cuda" else ("fp32", "bf16", "fp16")
    device_named(device)
    say(f"products, a copy and casts on {device}")
    sizes = (64, 128) if quick else (256, 512, 1024, 2048) + ((4096, 8192) if kind != "cpu" else ())
    measurement = measure(device, sizes=sizes, seconds=2 if quick else 60)
    benchmarks = {}
    for name in RUNS:
        say(f"training steps of {name}")
        benchmarks[name] = _benchmark(name, modes, device, quick=quick)
    runs = []
    if kind == "cuda" and not quick:
        for name in RUNS:
            for precision in PRECISIONS:
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


def save(recording: Recording, path: Path) -> None:
    """Write the recording as JSON.

    JSON has no inf and no NaN: they are written as the strings "inf" and "nan". The steps of a run
    are one list a step: names at each would be most of the file.
    """
    content = asdict(recording)
    for run in content["runs"]:
        run["steps"] = [list(step.values()) for step in run["steps"]]
    content["columns"] = list(StepRecord.__dataclass_fields__)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_written(content), allow_nan=False) + "\n", encoding="utf-8")


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ValueError: the file is not a recording, or is one of another version of labkit.
    """
    try:
        content = _read(json.loads(path.read_text(encoding="utf-8")))
        columns = content.pop("columns")
        if columns != tuple(StepRecord.__dataclass_fields__):
            raise ValueError(f"{path} has other columns: record it anew with `labkit record`")
        content["measurement"] = _measurement(content["measurement"])
        content["benchmarks"] = {
            name: Benchmark(**parts | {"results": _all(ModeResult, parts["results"])})
            for name, parts in content["benchmarks"].items()
        }
        content["runs"] = tuple(
            RecordedRun(**run | {"steps": tuple(StepRecord(*step) for step in run["steps"])})
            for run in content["runs"]
        )
        return Recording(**content)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no recording of this labkit: {error!r}") from None


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

    rounds = 2 if quick else 9
    return benchmark(
        modes, make=make, batches=every, steps=1 if quick else 5, rounds=rounds, device=device
    )


def _driver(kind: str) -> str | None:
    if kind != "cuda":
        return None
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.strip().splitlines()[0] if said.strip() else None


# JSON


def _measurement(parts: dict) -> Measurement:
    return Measurement(**parts | {"timings": _all(Timing, parts["timings"])})


def _all(record: type, rows: tuple[dict, ...]) -> tuple:
    return tuple(record(**row) for row in rows)


def _written(value: object) -> object:
    if isinstance(value, dict):
        return {name: _written(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_written(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: object) -> object:
    """What ``_written`` wrote: lists are tuples, "inf" and "nan" numbers."""
    if isinstance(value, dict):
        return {name: _read(part) for name, part in value.items()}
    if isinstance(value, list):
        return tuple(_read(part) for part in value)
    return float(value) if value in ("inf", "-inf", "nan") else value
