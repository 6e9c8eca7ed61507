"""``exports``: the course's GPT as it would be served; ``parity_table``: how far they are from it.

Runtimes that take longer, or that few people have installed, are recorded.
"""

import copy
import json
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import nn

from labkit.base.home import DATA
from labkit.formats import choose, fake_quantize


def exports(model: nn.Module) -> dict[str, nn.Module]:
    """Copies of a float32 model as they would be served, by name.

    "BF16" and "FP16" hold and compute all in 16 bits. "INT8 by row" and "INT4 by 32" round each
    matrix, embeddings and head too, with FP16 scales, and compute in float32.
    """
    served = {
        "BF16": copy.deepcopy(model).bfloat16(),
        "FP16": copy.deepcopy(model).half(),
        "INT8 by row": _rounded(model, bits=8, group=None),
        "INT4 by 32": _rounded(model, bits=4, group=32),
    }
    return {name: export.eval() for name, export in served.items()}


@torch.no_grad()
def _rounded(model: nn.Module, *, bits: int, group: int | None) -> nn.Module:
    rounded = copy.deepcopy(model)
    for layer in rounded.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            rows = layer.weight.view(-1, group or layer.weight.shape[1])
            grid = choose(*rows.aminmax(dim=1), bits=bits, symmetric=True, axis=0)
            grid = replace(grid, scale=grid.scale.half().float())
            layer.weight.copy_(fake_quantize(rows, grid).view_as(layer.weight))
    return rounded


def serving_record() -> dict[str, Any]:
    """data/emulated/serving.json: "exports" holds five measurements of each, "refused" reasons."""
    return json.loads((DATA / "emulated" / "serving.json").read_text(encoding="utf-8"))


def parity_table() -> pd.DataFrame:
    """A row for each recorded export: the lowest and the highest of five parts of the text."""
    rows = {}
    for name, parts in serving_record()["exports"].items():
        spans = {
            key: (min(part[key] for part in parts), max(part[key] for part in parts))
            for key in parts[0]
        }
        rows[name] = {
            "bits a character": _span(spans["bits"], "{:+.4f}"),
            "KL, bits": _span(spans["kl"], "{:.1e}").replace("e-", "e\u2011"),  # no line ends there
            "argmax differs": _span(spans["flips"], "{:.2%}"),
            "largest error of a logit": _span(spans["max_error"], "{:.2g}"),
            "ties": _span(spans["ties"], "{:.2%}"),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("served as")


def _span(ends: tuple[float, float], digits: str) -> str:
    low, high = (digits.format(end) for end in ends)
    return low if low == high else f"{low} to {high}"
