"""What lab 12 recorded: training by precision, rollouts by format, bits under a budget; five seeds.

data/emulated/choosing_precision.json says with what and when; record_choosing_precision.py beside
it made it.
"""

import json
from typing import Any

import pandas as pd

from labkit.base.paths import DATA
from labkit.labs.choosing_precision.rollouts import PAIRS
from labkit.measuring import Verdict, verdict

MARGIN = 0.02
"""Bits a character that would not matter."""


def record() -> dict[str, Any]:
    """The file: "training", "rollouts", "bits", and how they were made."""
    path = DATA / "emulated" / "choosing_precision.json"
    return json.loads(path.read_text(encoding="utf-8"))


def training_bits() -> dict[str, tuple[float, ...]]:
    """Bits a character after 300 steps by precision, one a seed; "control" is FP32 once more.

    The control starts from weights that were rounded once to BF16.
    """
    training = record()["training"]
    return {name: tuple(bits) for name, bits in training["bits"].items()} | {
        "control": tuple(training["control"])
    }


def gains(precision: str) -> list[float]:
    """By seed, how many bits a character the precision gains on FP32: above 0 is better."""
    bits = training_bits()
    return [fp32 - other for fp32, other in zip(bits["fp32"], bits[precision], strict=True)]


def training_verdict(precision: str, *, margin: float = MARGIN) -> Verdict:
    """Lab 06's verdict on a precision beside FP32, with the control."""
    return verdict(gains(precision), margin, control=gains("control"))


def mismatch_table() -> pd.DataFrame:
    """A row for each engine: trainer, and lowest and highest value of five seeds."""
    rows = {}
    for engine, runs in record()["rollouts"].items():
        ends = {name: (min(r[name] for r in runs), max(r[name] for r in runs)) for name in runs[0]}
        rows[engine] = {"trainer": PAIRS[engine]} | {
            name: f"{low:.2g} to {high:.2g}" for name, (low, high) in ends.items()
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def allocation_table(budget: float = 0.02) -> pd.DataFrame:
    """Bits a weight and measured KL under a budget of 0.02 or 0.1 nats: means of five seeds."""
    rows = {}
    for network, runs in record()["bits"].items():
        found = pd.DataFrame([run[f"{budget:g}"] for run in runs])
        rows[network] = {
            (search, field): found[search].map(lambda of, field=field: of[field]).mean()
            for search in found
            for field in ("bits_per_weight", "measured")
        }
    return pd.DataFrame.from_dict(rows, orient="index")
