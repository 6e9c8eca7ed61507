"""``parity``: how far the answers of a served model are from those of the model it was made of.

``exports`` makes such models of the course's GPT. Runtimes that take longer, or that few people
have installed, are recorded.
"""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.base.paths import DATA
from labkit.formats import choose, fake_quantize

Model = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """A served model beside its reference, on the same text.

    Args:
        bits: how many bits a character it is worse; below 0 is better.
        kl: the mean of KL(reference || served), bits a character; 0 only for the same answers.
        flips: the share of positions whose most probable character is another.
        max_error: the largest difference of a logit.
        ties: the share of positions at which two of its logits share the first place.
    """

    bits: float
    kl: float
    flips: float
    max_error: float
    ties: float


@torch.no_grad()
def parity(reference: Model, served: Model, tokens: Tensor) -> Parity:
    """Compare two language models, computed from their logits in float64.

    Args:
        reference, served: tokens, int64, N x T -> logits, N x T x symbols, of any floating dtype.
        tokens: int64, N x (T + 1): each is the target of those before it.

    Raises:
        ValueError: the logits of the two have other shapes, or one of them is not finite.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    true, given = (model(inputs).double().flatten(0, -2) for model in (reference, served))
    if true.shape != given.shape:
        raise ValueError(f"logits of {tuple(true.shape)} and of {tuple(given.shape)}: two models?")
    for name, logits in (("reference", true), ("served", given)):
        if not logits.isfinite().all():
            raise ValueError(f"the {name} model gives logits that are inf or NaN")
    p, q = true.log_softmax(dim=-1), given.log_softmax(dim=-1)
    first, second = given.topk(2).values.unbind(dim=-1)
    return Parity(
        bits=(F.nll_loss(q, targets) - F.nll_loss(p, targets)).item() / math.log(2),
        kl=F.kl_div(q, p, log_target=True, reduction="batchmean").item() / math.log(2),
        flips=(true.argmax(dim=-1) != given.argmax(dim=-1)).double().mean().item(),
        max_error=(true - given).abs().max().item(),
        ties=(first == second).double().mean().item(),
    )


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
