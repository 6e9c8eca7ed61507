"""What lab 10 recorded on nine seeds: pruning, zeros, low rank, and the files of the weigh-in."""

import json
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from labkit.base.home import DATA
from labkit.measuring import Verdict, verdict
from labkit.training.data import digits


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One network of the weigh-in.

    Args:
        name: such as "small, 70 % pruned, INT8".
        bytes: of the file, the mean over the seeds.
        accuracies: of each seed, on its own 359 test images.
    """

    name: str
    bytes: float
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return fmean(self.accuracies)


@cache
def compression_record() -> dict[str, Any]:
    """data/emulated/compression.json; a list under each part, one entry a seed."""
    path = DATA / "emulated" / "compression.json"
    return json.loads(path.read_text(encoding="utf-8"))


def weighed_entries() -> dict[str, Entry]:
    """The weigh-in by name, largest file first."""
    seeds = compression_record()["entries"]
    found = [
        Entry(
            name=name,
            bytes=fmean(seed[name]["bytes"] for seed in seeds),
            accuracies=tuple(seed[name]["accuracy"] for seed in seeds),
        )
        for name in seeds[0]
    ]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: -entry.bytes)}


def compare(name: str, other: str, *, margin: float) -> Verdict:
    """Whether the first entry's accuracy matches the other's: pairs of the same seed and split."""
    found, step = weighed_entries(), 1 / len(digits().test_labels)
    pairs = zip(found[name].accuracies, found[other].accuracies, strict=True)
    return verdict([a - b for a, b in pairs], margin, step=step)


def pruned(how: str) -> dict[float, tuple[tuple[float, float], ...]]:
    """By share: (accuracy after pruning, accuracy after 3 more epochs) of each seed.

    Args:
        how: "together", magnitudes of all layers compared, or "each layer", the same share of each.
    """
    seeds = compression_record()["pruning"]
    return {
        share: tuple(tuple(seed[how][str(share)]) for seed in seeds)
        for share in compression_record()["shares"]
    }
