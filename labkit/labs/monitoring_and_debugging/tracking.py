"""Metrics of a run as TensorBoard's event files, written and read back; tensorboard is optional."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.base.home import import_optional

EVERY = {"scalars": 0}
"""TensorBoard's reader keeps a random 10,000 values of a metric unless it is told 0: all."""


def write_events(
    folder: str | PathLike[str], metrics: Mapping[str, Iterable[tuple[int, float]]]
) -> None:
    """Write metrics, name -> (step, value) pairs, as ``Monitor.history`` gives them, to one file.

    NaN and inf are kept; values are rounded to float32. ``tensorboard --logdir folder`` shows them.

    Raises:
        ImportError: tensorboard is not installed; the text says how to install it.
    """
    torchs = import_optional("torch.utils.tensorboard", library="tensorboard")
    with torchs.SummaryWriter(str(folder)) as writer:
        for name, values in metrics.items():
            for step, value in values:
                writer.add_scalar(name, value, step)


def read_events(folder: str | PathLike[str]) -> dict[str, tuple[tuple[int, float], ...]]:
    """The metrics of a folder's event files: name -> (step, value) of every step.

    Raises:
        ImportError: tensorboard is not installed; the text says how to install it.
        FileNotFoundError: the folder holds no event file.
    """
    reader = import_optional("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder), size_guidance=EVERY)
    names = events.Reload().Tags()["scalars"] if Path(folder).is_dir() else []
    if not names:
        raise FileNotFoundError(f"{folder} holds no scalars of TensorBoard: write_events first")
    return {name: tuple((e.step, e.value) for e in events.Scalars(name)) for name in names}


def round_trip(
    metrics: Mapping[str, Iterable[tuple[int, float]]],
) -> dict[str, tuple[tuple[int, float], ...]]:
    """What ``read_events`` gives of metrics that were written to a folder of their own.

    Raises:
        ImportError: tensorboard is not installed; the text says how to install it.
    """
    with TemporaryDirectory() as folder:
        write_events(folder, metrics)
        return read_events(folder)
