"""How runs of torchrun ended that were killed, or went on with other processes, as recorded."""

import json
from typing import Any

import pandas as pd

from labkit.base.home import DATA


def restart_record() -> dict[str, Any]:
    """data/emulated/restart.json: "runs" holds a row for each seed."""
    return json.loads((DATA / "emulated" / "restart.json").read_text(encoding="utf-8"))


def restart_table() -> pd.DataFrame:
    """A row for each way a run was interrupted: in how many of the seeds its bits are the same."""
    rows = {}
    for name, runs in restart_record()["runs"].items():
        same = sum(run["same_bits"] for run in runs)
        rows[name] = {
            "went on from step": runs[0]["started_at"],
            "same bits": f"{same} of {len(runs)} seeds",
            "largest difference of a weight": f"{max(run['largest'] for run in runs):.1g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("the run")
