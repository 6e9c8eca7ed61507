"""What lab 07 recorded in two processes: FSDP2 under four mixed precision policies."""

import json
from typing import Any

import pandas as pd

from labkit.base.home import DATA

_COLUMNS = {
    "layer_input": "a layer reads",
    "layer_output": "a layer writes",
    "shard": "shards of the weights",
    "moments": "Adam's moments",
    "gradient": "grad.dtype",
}


def policies_table() -> pd.DataFrame:
    """A row for each MixedPrecisionPolicy: dtypes, and how many gradient values BF16 holds."""
    rows = {}
    for one in fsdp2_record()["policies"]:
        low, high = min(one["gradients_in_bf16"]), max(one["gradients_in_bf16"])
        share = f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
        dtypes = {column: one[key] for key, column in _COLUMNS.items()}
        rows[one["policy"]] = dtypes | {"gradients that are BF16 numbers": share}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("MixedPrecisionPolicy")


def fsdp2_record() -> dict[str, Any]:
    """data/emulated/fsdp2.json: its part "policies" holds a row for each policy."""
    path = DATA / "emulated" / "fsdp2.json"
    return json.loads(path.read_text(encoding="utf-8"))
