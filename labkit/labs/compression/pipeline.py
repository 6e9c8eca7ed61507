"""The pipeline of lab 10: a digit reader through some stages, weighed after each of them.

What is weighed is a safetensors file. Each weight stands in it densely or as a bitmask, whichever
is smaller; biases have the width of the values, FP16 beside INT8.
"""

import copy
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from labkit.labs.compression.low_rank import factorise
from labkit.labs.compression.pruning import hold_masks, linears, narrow
from labkit.labs.compression.storage import (
    VALUE_BYTES,
    Values,
    file_bytes,
    pack_weight,
    unpack_weight,
)
from labkit.training import train
from labkit.training.data import ImageSplit, batches, digits
from labkit.training.models import mlp

HIDDEN, EPOCHS, TUNING = 256, 15, 6
"""The reader's two hidden layers, its epochs of training, and those after a stage."""

LR = 1e-3

STAGES = ("prune", "prune each layer", "rank", "narrow", "tune", "store")
Stage = tuple[str, float | str]
"""A name of STAGES, and the share that is pruned, the rank, the units, epochs, or the values."""


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """A network after one stage.

    Args:
        stage: what was done last, such as "prune 0.9".
        bytes: of the file, by role: "values", "masks", "scales", "biases", "header".
        nonzeros: of all weights, as they are stored.
        accuracy: of the network that the file stands for, on the test images.
        seconds: of a forward pass over the test images, the median of ten, on this machine. The
            weights are dense there: a zero takes the time of any other number.
    """

    stage: str
    bytes: Mapping[str, int]
    nonzeros: int
    accuracy: float
    seconds: float

    @property
    def total(self) -> int:
        """Bytes of the file."""
        return sum(self.bytes.values())

    def describe(self) -> str:
        """One line: stage, bytes by role, weights, accuracy, time of a forward pass."""
        parts = ", ".join(f"{role} {count:,}" for role, count in self.bytes.items() if count)
        return (
            f"{self.stage}: {self.total:,} bytes ({parts}), {self.nonzeros:,} weights are not 0, "
            f"accuracy {self.accuracy:.1%}, {1e3 * self.seconds:.2f} ms"
        )


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageSplit) -> float:
    """The share of test images that the model reads rightly."""
    return (model(data.test_images).argmax(1) == data.test_labels).double().mean().item()


def tune(
    model: nn.Module, data: ImageSplit, optimizer: Optimizer, *, epochs: int, seed: int = 0
) -> None:
    """Train in float32 for some epochs of batches of 64, in place."""
    loader = batches(data.train_images, data.train_labels, 64, seed=seed)
    train(model, loader, optimizer=optimizer, epochs=epochs, progress=False)


def adamw(model: nn.Module) -> torch.optim.AdamW:
    """The optimizer of this lab's runs."""
    return torch.optim.AdamW(model.parameters(), lr=LR)


@cache
def _trained(hidden: int, epochs: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = mlp(64, hidden, hidden, 10)
    tune(model, digits(seed), adamw(model), epochs=epochs, seed=seed)
    return model


def reader(seed: int, *, hidden: int = HIDDEN, epochs: int = EPOCHS) -> nn.Sequential:
    """A reader of digits, trained on the split of this seed; a copy of one's own."""
    return copy.deepcopy(_trained(hidden, epochs, seed))


def stored_tensors(model: nn.Module, values: Values) -> dict[str, Tensor]:
    """The tensors of the model's file, by layer and role: "1.values", "1.bias"."""
    tensors = {}
    for number, layer in enumerate(linears(model)):
        parts = min(
            (pack_weight(layer.weight.detach(), values=values, bitmask=on) for on in (False, True)),
            key=lambda parts: sum(part.nbytes for part in parts.values()),
        )
        tensors |= {f"{number}.{role}": part for role, part in parts.items()}
        if layer.bias is not None:
            wide = values == "fp32"
            tensors[f"{number}.bias"] = layer.bias.detach().to(
                torch.float32 if wide else torch.float16
            )
    return tensors


@torch.no_grad()
def restored(model: nn.Sequential, tensors: Mapping[str, Tensor]) -> nn.Sequential:
    """The network that a file stands for, in float32: a copy of ``model`` with its values."""
    network = copy.deepcopy(model)
    for number, layer in enumerate(linears(network)):
        parts = {role: tensors.get(f"{number}.{role}") for role in _ROLES}
        bias = parts.pop("bias")
        layer.weight.copy_(unpack_weight({role: x for role, x in parts.items() if x is not None}))
        if layer.bias is not None:
            layer.bias.copy_(bias)
    return network


_ROLES = {
    "values": "values",
    "mask": "masks",
    "shape": "masks",
    "scale": "scales",
    "bias": "biases",
}


def _weighed(stage: str, model: nn.Module, data: ImageSplit, values: Values) -> Weighed:
    tensors = stored_tensors(model, values)
    sizes = dict.fromkeys(("values", "masks", "scales", "biases"), 0)
    for name, tensor in tensors.items():
        sizes[_ROLES[name.partition(".")[2]]] += tensor.nbytes
    network = restored(model, tensors)
    return Weighed(
        stage=stage,
        bytes=sizes | {"header": file_bytes(tensors) - sum(sizes.values())},
        nonzeros=sum(int((layer.weight != 0).sum()) for layer in linears(network)),
        accuracy=accuracy(network, data),
        seconds=_seconds(network, data.test_images),
    )


@torch.no_grad()
def _seconds(model: nn.Module, images: Tensor) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        model(images)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def pipeline(
    stages: Sequence[Stage], seed: int = 0, *, start: nn.Sequential | None = None
) -> tuple[Weighed, ...]:
    """The reader of a seed through stages, in their order, weighed at first and after each.

    "prune" holds its zeros while "tune" trains, until a stage replaces the weights. "prune each
    layer" takes the share of every layer. "rank" (of each square weight) and "narrow" make new
    weights. "store" rounds the weights to what the file of these values holds; from there on the
    file has such values, and training goes on in float32.

    Args:
        start: the network to begin with; a trained one of 256 hidden units by default.

    Raises:
        ValueError: a stage is not one of these, or its setting does not fit.
    """
    for name, setting in stages:
        if name not in STAGES or (name == "store" and setting not in VALUE_BYTES):
            raise ValueError(
                f"stage {(name, setting)!r}: name one of {', '.join(STAGES)}; "
                f"values to store are {', '.join(VALUE_BYTES)}"
            )
    data, values = digits(seed), "fp32"
    model = reader(seed) if start is None else copy.deepcopy(start)
    optimizer = adamw(model)
    rows = [_weighed("trained", model, data, values)]
    for name, setting in stages:
        if name in ("prune", "prune each layer"):
            hold_masks(model, optimizer, float(setting), each_layer=name != "prune")
        elif name == "tune":
            tune(model, data, optimizer, epochs=int(setting), seed=seed + 1000)
        else:
            if name == "rank":
                model = low_rank(model, int(setting))
            elif name == "narrow":
                model = narrow(model, int(setting))
            else:
                values = setting
                model = restored(model, stored_tensors(model, values))
            optimizer = adamw(model)
        rows.append(_weighed(f"{name} {setting}", model, data, values))
    return tuple(rows)


def low_rank(model: nn.Sequential, rank: int) -> nn.Sequential:
    """A copy whose square weights are two factors of this rank."""
    return nn.Sequential(
        *[
            factorise(layer, rank)
            if isinstance(layer, nn.Linear) and layer.in_features == layer.out_features
            else copy.deepcopy(layer)
            for layer in model
        ]
    )


def weigh(entry: Mapping[str, Any], seed: int = 0) -> Weighed:
    """Train, prune, fine-tune and store one entry of the weigh-in.

    Args:
        entry: "hidden", units of each hidden layer, 1 to 512; "rank", of the middle weight, or
            None; "prune", a share from 0 to below 1; "values", "fp32", "fp16" or "int8".

    Raises:
        ValueError: a key is missing or unknown, or a setting is outside its range.
    """
    keys = {"hidden", "rank", "prune", "values"}
    if set(entry) != keys:
        raise ValueError(f"an entry has the keys {sorted(keys)}, not {sorted(entry)}")
    hidden, rank, share, values = (entry[key] for key in ("hidden", "rank", "prune", "values"))
    if not 1 <= hidden <= 512:
        raise ValueError(f"hidden {hidden}: name 1 to 512 units")
    if not 0 <= share < 1:
        raise ValueError(f"prune {share}: name a share from 0 to below 1")
    stages: list[Stage] = []
    if rank is not None:
        stages += [("rank", rank), ("tune", TUNING)]
    if share:
        stages += [("prune", share), ("tune", TUNING)]
    start = reader(seed, hidden=hidden, epochs=EPOCHS + TUNING)
    return pipeline([*stages, ("store", values)], seed, start=start)[-1]
