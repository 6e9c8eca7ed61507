"""What was measured on a machine, kept with its provenance.

A figure is measured here, emulated, or recorded on a device that has a name. ``labkit record``
makes the last kind: products by dtype, training steps by precision, and, on a GPU, whole runs by
real and by emulated AMP. A recording is one JSON file, those of the course are in data/recordings.
"""

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import nn
from torch.optim import Optimizer
from torch.utils import collect_env

from labkit.base.home import DATA, replace_file
from labkit.measuring.speed import Make, benchmark
from labkit.measuring.throughput import measure
from labkit.measuring.timing import Measurement
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
        measurements: "matmuls", with a copy and casts, and "steps of" each of RUNS.
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
    measurements: dict[str, Measurement]
    runs: tuple[RecordedRun, ...]

    @property
    def trouble(self) -> tuple[str, ...]:
        """A sentence for each measurement with a bad A/A control, empty if all are good."""
        found = self.measurements.items()
        return tuple(f"{what}: {measured.trouble}" for what, measured in found if measured.trouble)

    @property
    def source(self) -> str:
        """Where the numbers come from, for a caption, and whether a control among them is bad."""
        flag = ", with a bad A/A control" if self.trouble else ""
        return f"recorded on {self.device}, torch {self.torch}, {self.recorded[:10]}{flag}"


_Ready = tuple[Make, Iterable[Batch], int]


def _digits_cnn() -> _Ready:
    def make() -> tuple[nn.Module, Optimizer]:
        model = SmallCNN()
        return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    data = digits()
    return make, batches(data.train_images, data.train_labels, 64), 9


def _character_gpt() -> _Ready:
    text = shakespeare()

    def make() -> tuple[nn.Module, Optimizer]:
        model = SmallGPT(characters(text).size, context=64)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    return make, character_batches(text, 64, 16, steps=200), 1


RUNS: dict[str, Callable[[], _Ready]] = {"digits-cnn": _digits_cnn, "character-gpt": _character_gpt}
"""Name -> what gives the maker of model and optimizer, batches, and epochs: about 200 steps."""


def record_device(
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
    kind = device_named(device).type
    cuda = kind == "cuda"
    say(f"matmuls, a copy and casts on {device}")
    sizes = (64, 128) if quick else (256, 512, 1024, 2048) + ((4096, 8192) if kind != "cpu" else ())
    matmuls = measure(device, sizes=sizes, seconds=2 if quick else 180)
    measurements, runs = {"matmuls": matmuls}, []
    modes = ("fp32", "tf32", "bf16", "fp16") if cuda else ("fp32", "bf16", "fp16")
    steps, rounds = (1, FEWEST_ROUNDS) if quick else (5, 25)
    for name, ready in RUNS.items():
        say(f"training steps of {name}")
        make, loader, _ = ready()
        some = list(islice(loader, 20))
        measurements[f"steps of {name}"] = benchmark(
            modes, make=make, batches=some, steps=steps, rounds=rounds, device=device
        )
        if cuda and not quick:
            for precision in RECORDED:
                say(f"{name} in {precision}")
                runs.append(record_run(name, precision, device))
            runs += [record_run(name, precision, "cpu") for precision in EMULATED]
    return Recording(
        device=matmuls.device,
        driver=collect_env.get_nvidia_driver_version(collect_env.run) if cuda else None,
        cuda=torch.version.cuda if cuda else None,
        torch=torch.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        measurements=measurements,
        runs=tuple(runs),
    )


def record_run(run: str, precision: str, device: str, *, progress: bool = True) -> RecordedRun:
    """Train one of RUNS, with seed 0, on the device, emulated on a CPU."""
    torch.manual_seed(0)
    make, loader, epochs = RUNS[run]()
    model, optimizer = make()
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
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, _RECORDING.dump_json(recording).decode() + "\n")


def load(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ValueError: the file is not a recording, or is one of another version of labkit.
    """
    try:
        return _RECORDING.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        why = repr(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ValueError(
            f"{path} is no recording of this labkit, make one with `labkit record`: {why}"
        ) from None


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """All recordings that came with the course, by file name."""
    return [load(path) for path in sorted(folder.glob("*.json"))]
