"""What lab 12 recorded: training by precision, rollouts by format, bits under a budget; five seeds.

data/emulated/choosing_precision.json says with what, when and by which script.
"""

import json
from typing import Any

import pandas as pd

from labkit.base.home import DATA
from labkit.labs.choosing_precision.rollouts import PAIRS


def choosing_record() -> dict[str, Any]:
    """The file: "training", "rollouts", "bits", and how they were made."""
    path = DATA / "emulated" / "choosing_precision.json"
    return json.loads(path.read_text(encoding="utf-8"))


def training_bits() -> dict[str, tuple[float, ...]]:
    """Bits a character after 300 steps by precision, one a seed.

    "control" is FP32 from weights that were rounded once to BF16.
    """
    training = choosing_record()["training"]
    return {k: tuple(v) for k, v in (training["bits"] | {"control": training["control"]}).items()}


def gains(precision: str) -> tuple[float, ...]:
    """By seed, how many bits a character the precision gains on FP32: above 0 is better."""
    bits = training_bits()
    return tuple(fp32 - other for fp32, other in zip(bits["fp32"], bits[precision], strict=True))


def mismatch_table() -> pd.DataFrame:
    """A row for each engine: its trainer, and the lowest and highest value of five seeds."""
    rows = {}
    for engine, runs in choosing_record()["rollouts"].items():
        found = pd.DataFrame(runs)[list(_COLUMNS)]
        ends = zip(_COLUMNS.values(), found.min(), found.max(), strict=True)
        shown = {column: f"{low:.2g} to {high:.2g}" for column, low, high in ends}
        rows[engine] = {"trainer": PAIRS[engine]} | shown
    return pd.DataFrame.from_dict(rows, orient="index")


_COLUMNS = {
    "mean_abs": "mean |log ratio|",
    "outside": "share outside 0.9 to 1.1",
    "k1": "mean of -log r",
    "k3": "mean of r - 1 - log r",
    "sequence_std": "std of a text's log ratio",
}
