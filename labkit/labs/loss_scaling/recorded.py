"""What lab 04 recorded: five runs, gradients at 60 moments, and weights kept in five ways."""

import json
from dataclasses import dataclass

from labkit.base.home import DATA
from labkit.training import StepRecord


def five_traces() -> dict[str, list[StepRecord]]:
    """The runs of lab 04's section on traces, by their letter; see data/emulated."""
    rows = _read("five_traces.json")["traces"]
    return {
        name: [
            StepRecord(i, float(loss), float(norm), float(scale), skipped)
            for i, (loss, norm, scale, skipped) in enumerate(run)
        ]
        for name, run in rows.items()
    }


def autoencoder_gradients() -> list[tuple[dict[int, int], float]]:
    """The gradients of a float32 run at 60 moments, as counts; see data/emulated.

    Returns:
        for each moment {e: how many have 2**e <= abs(g) < 2**(e+1)}, and the largest abs(g).
    """
    frames = _read("autoencoder_gradients.json")["frames"]
    return [(dict(f["exponents"]), f["largest"]) for f in frames]


@dataclass(frozen=True, kw_only=True)
class WeightRuns:
    """Training with weights kept in one way, five seeds.

    Args:
        steps: at which the losses were taken.
        losses: for each seed, the mean cross-entropy on 1,438 digits.
        accuracy: for each seed, the share of these digits that are right at the end, 0 to 1.
    """

    steps: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    accuracy: tuple[float, ...]


def weight_runs() -> dict[str, WeightRuns]:
    """Float32 weights, BF16 weights, and BF16 with masters, stochastic rounding or Kahan."""
    record = _read("master_weights.json")
    return {
        name: WeightRuns(
            steps=tuple(range(0, record["every"] * len(seeds[0]), record["every"])),
            losses=tuple(map(tuple, seeds)),
            accuracy=tuple(record["accuracy"][name]),
        )
        for name, seeds in record["losses"].items()
    }


def _read(name: str) -> dict:
    return json.loads((DATA / "emulated" / name).read_text(encoding="utf-8"))
