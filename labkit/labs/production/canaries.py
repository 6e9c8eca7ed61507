"""Canaries: exports of the course's GPT that a rollout meets, and which characters each got right.

Some exports are sound and some hold a defect. data/emulated/rollout.json holds what each of them
predicted on the last 10 % of the text.
"""

import base64
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from labkit.base.home import DATA
from labkit.formats import choose, fake_quantize
from labkit.labs.production.flips import flip
from labkit.labs.production.releases import Window
from labkit.labs.production.serving import exports
from labkit.training.models import SmallGPT

REFERENCE = "FP32"
GUARDRAIL = "finite logits"
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


def _int4_by_tensor(model: SmallGPT) -> nn.Module:
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            weight = layer.weight.data
            grid = choose(*weight.aminmax(), bits=4, symmetric=True)
            grid = replace(grid, scale=grid.scale.half().float())
            layer.weight.data = fake_quantize(weight, grid)
    return model


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
    flip(model.blocks[0].feed_forward[0].weight.data, 7, 30)
    return model


CANARIES = {
    "BF16": Canary(
        what="all weights and activations in BF16",
        sound=True,
        export=lambda model: exports(model)["BF16"],
    ),
    "INT8 by row": Canary(
        what="weights in 8 bits, one FP16 scale a row",
        sound=True,
        export=lambda model: exports(model)["INT8 by row"],
    ),
    "INT4 by 32": Canary(
        what="weights in 4 bits, one FP16 scale for 32 of them",
        sound=False,
        export=lambda model: exports(model)["INT4 by 32"],
    ),
    "INT4 by tensor": Canary(
        what="weights in 4 bits, one FP16 scale a matrix",
        sound=False,
        export=_int4_by_tensor,
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


def _unpacked(text: str, count: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8), count=count)
    return bits.astype(bool)


def canaries_record() -> dict[str, Any]:
    """The file: "right" and "not_finite" by export, and how they were made."""
    path = DATA / "emulated" / "rollout.json"
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def recorded_hits() -> dict[str, Hits]:
    """What the reference, "FP32", and each of ``CANARIES`` did on the text, as recorded."""
    kept = canaries_record()
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


def order(seed: int) -> np.ndarray:
    """The recorded characters in a random order, as they come as requests.

    A gate presumes that its requests are independent; neighbours in a text are not.
    """
    return np.random.default_rng(seed).permutation(len(recorded_hits()[REFERENCE].right))


def traffic(name: str, *, seed: int = 0, requests: int = 50) -> Iterator[Window]:
    """Compared requests of one of ``CANARIES``, so many a window, with the guardrail's verdict."""
    reference, candidate = recorded_hits()[REFERENCE], recorded_hits()[name]
    places = order(seed)
    for part in np.array_split(places, len(places) // requests):
        pairs = zip(reference.right[part].tolist(), candidate.right[part].tolist(), strict=True)
        finite = bool(candidate.finite[part].all())
        yield Window(pairs=tuple(pairs), guardrails={GUARDRAIL: finite})
