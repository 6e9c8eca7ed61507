"""What lab 15 recorded: A/B designs, pairs of runs, their scores, resumes and a NaN batch.

data/emulated/production.json says with what, when and by which script.
"""

import json
import math
from typing import Any

import pandas as pd

from labkit.base.home import DATA


def production_record() -> dict[str, Any]:
    """The file: a part for each function below, "files" and "flips", and how they were made."""
    path = DATA / "emulated" / "production.json"
    return json.loads(path.read_text(encoding="utf-8"))


def designs_table() -> pd.DataFrame:
    """A row for each A/B design: in how many experiments a t-test at 5 % called its arms different.

    Once both arms are FP32, once the second is broken and keeps a tenth of each gradient.
    """
    rows = {
        design: {
            "FP32 against FP32": f"{found['alike']} of {found['experiments']}",
            "FP32 against a broken arm": f"{found['broken']} of {found['experiments']}",
        }
        for design, found in production_record()["designs"].items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("what the t-test compares")


def pairing() -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """By what two runs share, the final test losses of FP32 and of BF16, one a pair.

    The keys are "weights and order", "order", "weights" and "nothing".
    """
    part = production_record()["pairing"]
    fp32 = tuple(part["fp32"])
    return {shared: (fp32, tuple(bf16)) for shared, bf16 in part.items() if shared != "fp32"}


def training_scores() -> dict[str, dict[int, float]]:
    """By arm, the test accuracy of each of 12 seeds; NaN for a run that died.

    The arms are "fp32", "bf16", "fp16, scale 200,000" and "pure bf16".
    """
    return {
        arm: {int(seed): math.nan if s is None else s for seed, s in of.items()}
        for arm, of in production_record()["scores"].items()
    }


def resumes_table() -> pd.DataFrame:
    """A row for each part that a checkpoint left out: what 30 steps after the resume show.

    Ranges of five seeds. The distance of the weights from those of the run that never stopped is a
    share of the way that run has gone.
    """
    rows = {}
    for missing, runs in production_record()["resumes"].items():
        off, loss = ([run[key] for run in runs] for key in ("off", "test_loss"))
        scale = [run["scale"] for run in runs]
        rows[missing] = {
            "weights off": _span(off, ".1%"),
            "test loss minus the whole run's": _span(loss, "+.3f"),
            "more skipped steps": _span([run["skips"] for run in runs], "d"),
            "last loss scale, times the whole run's": _span(scale, "g"),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("missing")


def nan_batch_table() -> pd.DataFrame:
    """A row for each precision: what one NaN batch of 120 does to five runs.

    "fp16" has a scaler, "bf16" nothing that looks at the gradients.
    """
    rows = {}
    for precision, runs in production_record()["nan_batch"].items():
        rows[precision] = {
            "runs that end in NaN": f"{sum(run['dead'] for run in runs)} of {len(runs)}",
            "steps skipped": _span([run["skips"] for run in runs], "d"),
            "test accuracy": _span([run["accuracy"] for run in runs], ".3f"),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _span(values: list, spec: str) -> str:
    """Lowest to highest of the seeds, or the one value that all have."""
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"
