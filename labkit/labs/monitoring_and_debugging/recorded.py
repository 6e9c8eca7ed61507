"""What lab 11 recorded: 50 healthy runs, and faults planted into copies of their losses."""

import json
from functools import cache

import numpy as np

from labkit.base.home import DATA
from labkit.training import StepRecord

NETWORKS = ("MLP", "CNN", "GPT")
LEVEL = 50
"""Losses whose median is called the level of a run."""

_ECHO, _SECOND = 5, 0.3
_PLATEAU, _HEIGHT = 20, 4.0
_SLOTS = ((80, 200), (240, 340), (380, 470))
"""Where the three faults begin: late enough for a window of 50, and far from one another."""


@cache
def healthy_steps() -> dict[str, tuple[tuple[StepRecord, ...], ...]]:
    """By network, the steps of each recorded run; norms of skipped steps are inf.

    data/records/record_healthy_runs.py says how they were trained.
    """
    path = DATA / "emulated" / "healthy_runs.json"
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return {network: tuple(map(_steps, runs[network])) for network in NETWORKS}


def _steps(run: dict) -> tuple[StepRecord, ...]:
    new_scales, scale, steps = dict(run["scale"]), 1.0, []
    for step, (loss, norm) in enumerate(zip(run["loss"], run["grad_norm"], strict=True)):
        scale = new_scales.get(step, scale)
        skipped = norm is None
        steps.append(StepRecord(step, loss, float("inf") if skipped else norm, scale, skipped))
    return tuple(steps)


def healthy_runs() -> dict[str, np.ndarray]:
    """By network, the losses of all recorded runs: float64, runs x 500, all finite."""
    return {
        network: np.array([[step.loss for step in run] for run in runs])
        for network, runs in healthy_steps().items()
    }


def planted(
    losses: np.ndarray, seed: int, *, factor: float = 1000.0
) -> tuple[np.ndarray, tuple[int, ...]]:
    """A copy of one run with three faults, in an order that the seed draws, and where each begins.

    A spike: one loss of ``factor`` times the level, the median of the 50 losses before; five steps
    later a smaller one of 0.3 times that, with a beginning of its own. A plateau: 20 losses higher
    by 4. One loss that is NaN or inf.

    Args:
        losses: of one run, 500 values.

    Raises:
        ValueError: the run is not 500 steps long.
    """
    if np.shape(losses) != (500,):
        raise ValueError(f"losses of shape {np.shape(losses)}: pass one run of 500 steps")
    source = np.random.default_rng(seed)
    faulty = np.array(losses, dtype=np.float64)
    starts = [int(source.integers(*slot)) for slot in _SLOTS]
    faults = source.permutation(["spike", "plateau", "nonfinite"])
    for start, fault in zip(tuple(starts), faults, strict=True):
        if fault == "spike":
            height = factor * np.median(faulty[start - LEVEL : start])
            faulty[start], faulty[start + _ECHO] = height, _SECOND * height
            starts.append(start + _ECHO)
        elif fault == "plateau":
            faulty[start : start + _PLATEAU] += _HEIGHT
        else:
            faulty[start] = source.choice([np.nan, np.inf])
    return faulty, tuple(sorted(starts))
