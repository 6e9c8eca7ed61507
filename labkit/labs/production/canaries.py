"""Canaries: exports of the course's GPT that a rollout meets, and which characters each got right.

Some exports are sound and some hold a defect. data/emulated/rollout.json holds what each of them
predicted on the last 10 % of the text; record_rollout.py beside it made it.
"""

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.base.paths import DATA
from labkit.formats import choose, fake_quantize
from labkit.training import in_eval_mode
from labkit.training.data import characters, shakespeare, shakespeare_split
from labkit.training.models import SmallGPT

REFERENCE = "FP32"
CONTEXT = 64
VALUES = 24_576
"""In float32 it changes the function by roundings; in FP16 a few of the values overflow."""


@dataclass(frozen=True, kw_only=True)
class Canary:
    """An export of the GPT: what was done to its weights, and whether that is a defect."""

    what: str
    sound: bool
    export: Callable[[SmallGPT], nn.Module]


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """What one export did on each character of the text.

    Args:
        right: its largest logit is the next character's, and all its logits are finite; bool.
        finite: all its logits are finite; bool.
    """

    right: np.ndarray
    finite: np.ndarray


def _rounded(bits: int, share: str | int) -> Callable[[SmallGPT], nn.Module]:
    """Each matrix in so many bits, with one FP16 scale a tensor, a row or so many columns."""

    def export(model: SmallGPT) -> nn.Module:
        model = copy.deepcopy(model)
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Embedding):
                layer.weight.data = _on_grid(layer.weight.data, bits, share)
        return model

    return export


def _on_grid(weight: Tensor, bits: int, share: str | int) -> Tensor:
    rows, columns = weight.shape
    sizes = {"tensor": (1, 1, -1), "row": (rows, 1, -1)}.get(str(share), (rows, -1, share))
    groups, span = weight.reshape(sizes), torch.finfo(torch.float16)
    grid = choose(*groups.aminmax(dim=2), bits=bits, symmetric=True, axis=(0, 1))
    scale = grid.scale.clamp(min=span.smallest_normal, max=span.max).half().float()
    return fake_quantize(groups, replace(grid, scale=scale)).view(rows, columns)


def _large_values(model: SmallGPT) -> nn.Module:
    """FP16, after attention's values were multiplied and its output divided by ``VALUES``."""
    model = copy.deepcopy(model)
    block = model.blocks[1]
    values = slice(2 * block.qkv.in_features, None)  # queries, keys, values
    block.qkv.weight.data[values] *= VALUES
    block.qkv.bias.data[values] *= VALUES
    block.attention_out.weight.data /= VALUES
    return model.half()


def _halved_norm(model: SmallGPT) -> nn.Module:
    model = copy.deepcopy(model)
    model.norm.weight.data *= 0.5
    return model


def _flipped_bit(model: SmallGPT) -> nn.Module:
    model = copy.deepcopy(model)
    model.blocks[0].feed_forward[0].weight.data.view(-1).view(torch.int32)[7] ^= 1 << 30
    return model


CANARIES = {
    "BF16": Canary(
        what="all weights and activations in BF16",
        sound=True,
        export=lambda model: copy.deepcopy(model).bfloat16(),
    ),
    "INT8 by row": Canary(
        what="weights in 8 bits, one FP16 scale a row", sound=True, export=_rounded(8, "row")
    ),
    "INT4 by 32": Canary(
        what="weights in 4 bits, one FP16 scale for 32 of them",
        sound=False,
        export=_rounded(4, 32),
    ),
    "INT4 by tensor": Canary(
        what="weights in 4 bits, one FP16 scale a matrix",
        sound=False,
        export=_rounded(4, "tensor"),
    ),
    "half a norm": Canary(
        what="the gain of the last norm was loaded as half of what it is",
        sound=False,
        export=_halved_norm,
    ),
    "FP16, large values": Canary(
        what=f"FP16, after attention's values were multiplied by {VALUES:,} and its output "
        "matrix was divided by it",
        sound=False,
        export=_large_values,
    ),
    "one flipped bit": Canary(
        what="FP32, with the top exponent bit of one weight flipped in memory",
        sound=False,
        export=_flipped_bit,
    ),
}


def hits(model: nn.Module) -> Hits:
    """Which next characters of the last 10 % of the text the model gets right, in whole pieces.

    The text is cut into pieces of 64 characters, of which the model sees each alone: 37,120
    predictions.
    """
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    pieces = (len(tokens) - 1) // CONTEXT
    inputs = tokens[: pieces * CONTEXT].view(pieces, CONTEXT)
    targets = tokens[1 : pieces * CONTEXT + 1].view(pieces, CONTEXT)
    right, finite = [], []
    with in_eval_mode(model), torch.no_grad():
        for x, y in zip(inputs.split(128), targets.split(128), strict=True):
            logits = model(x)
            whole = logits.isfinite().all(-1)
            right.append((logits.argmax(-1) == y) & whole)
            finite.append(whole)
    return Hits(
        right=torch.cat(right).flatten().numpy(), finite=torch.cat(finite).flatten().numpy()
    )


def packed(flags: np.ndarray) -> str:
    """Booleans as text, eight a byte, in base64."""
    return base64.b64encode(np.packbits(flags)).decode("ascii")


def _unpacked(text: str, count: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8), count=count)
    return bits.astype(bool)


def record() -> dict[str, Any]:
    """The file: "right" and "not_finite" by export, and how they were made."""
    path = DATA / "emulated" / "rollout.json"
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def recorded_hits() -> dict[str, Hits]:
    """What the reference, "FP32", and each of ``CANARIES`` did on the text, as recorded."""
    kept = record()
    count = kept["characters"]
    return {
        name: Hits(
            right=_unpacked(kept["right"][name], count),
            finite=~_unpacked(kept["not_finite"][name], count)
            if name in kept["not_finite"]
            else np.ones(count, dtype=bool),
        )
        for name in kept["right"]
    }
