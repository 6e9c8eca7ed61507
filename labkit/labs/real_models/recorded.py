"""What lab 13 recorded: runs that crash, accuracies by precision, the GAN, and loaded checkpoints.

data/emulated/real_models.json says with what, when and by which script.
"""

import json
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from labkit.base.home import DATA
from labkit.labs.real_models.attention import CrashRun
from labkit.labs.real_models.library import LoadedRun
from labkit.measuring import Verdict, verdict

MARGIN = 0.02
"""The share of test samples that would not matter, named before the runs."""


@dataclass(frozen=True, kw_only=True)
class Accuracies:
    """One model, trained in several precisions from the same weights on the same batches.

    Args:
        by_precision: accuracies on the test data, one a seed.
        control: FP32's accuracy from weights that were rounded once to BF16, minus FP32's.
        samples: in the test data.
    """

    by_precision: dict[str, tuple[float, ...]]
    control: tuple[float, ...]
    samples: int

    def verdict(self, precision: str) -> Verdict:
        """Lab 06's, of the paired differences from FP32 against MARGIN."""
        pairs = zip(self.by_precision[precision], self.by_precision["fp32"], strict=True)
        differences = [one - fp32 for one, fp32 in pairs]
        return verdict(differences, MARGIN, control=self.control, step=1 / self.samples)


def crash_runs(seed: int = 0) -> dict[str, CrashRun]:
    """The runs of ``crash_run`` from one of ten seeds, by arm.

    Arms: "fp16", "fp16 QK-norm", "fp32", "fp32 QK-norm" at a learning rate of 0.1, and "fp16 at
    0.03" without QK-norm.
    """
    return {
        arm: CrashRun(**runs[seed] | {"losses": tuple(runs[seed]["losses"])})
        for arm, runs in _record()["crash"].items()
    }


def accuracies(data: str) -> Accuracies:
    """Of the ResNet on "digits", or of the text classifier on "speeches"."""
    record = _record()["accuracies"][data]
    return Accuracies(
        by_precision={name: tuple(found) for name, found in record["by_precision"].items()},
        control=tuple(record["control"]),
        samples=record["samples"],
    )


def precision_table() -> pd.DataFrame:
    """Means over ten seeds by precision, and lab 06's verdict on each beside FP32.

    Rows: the accuracies of the ResNet and of the text classifier; of the GAN how many of the eight
    blobs the generator's float32 average finds, which has no verdict.
    """
    names = {"digits": "ResNet: digits read", "speeches": "classifier: speeches told"}
    rows = {}
    for data, name in names.items():
        found = accuracies(data)
        rows[name] = {
            precision: f"{fmean(each):.3f}"
            + (f", {found.verdict(precision).answer}" if precision != "fp32" else "")
            for precision, each in found.by_precision.items()
        }
    rows["GAN: blobs found, of 8"] = {
        precision: f"{fmean(run['blobs']['float32'] for run in runs):.1f}"
        for precision, runs in ring_runs().items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def ring_runs() -> dict[str, list[dict[str, Any]]]:
    """GANs on the ring after 600 steps by the precision of their training, one a seed.

    "accuracy": D's, the highest mean of 20 steps in a row and the mean of the last 100; "blobs": of
    the eight, found by the samples of "raw" and of the averages in "float32" and "bfloat16";
    "mean", "std": of the float32 average's samples, by coordinate.
    """
    return _record()["ring"]


def loaded_runs() -> dict[str, tuple[LoadedRun, ...]]:
    """Four steps on a loaded checkpoint by the dtype that was asked for: "default", "float32"."""
    record = _record()["loaded"]
    return {asked: tuple(LoadedRun(**run) for run in runs) for asked, runs in record.items()}


def _record() -> dict[str, Any]:
    path = DATA / "emulated" / "real_models.json"
    return json.loads(path.read_text(encoding="utf-8"))
