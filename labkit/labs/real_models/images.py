"""Image classifiers by name, trained with either order of the bytes; what batch norm's dtypes are.

torchvision from PyPI does not load beside a CPU-only torch, so the networks are the course's own.
"""

from collections.abc import Iterable, Iterator, Sized
from typing import cast

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from labkit.formats.dtypes import name_of
from labkit.training import in_eval_mode, train
from labkit.training.batches import Batch
from labkit.training.models import SmallCNN, SmallResNet
from labkit.training.precision import active, device_named, precision_named

IMAGE_MODELS = {"cnn": SmallCNN, "resnet": SmallResNet}


def image_model(name: str, *, channels: int = 1, classes: int = 10) -> nn.Module:
    """A network of IMAGE_MODELS for images N x channels x 8 x 8; "resnet" takes others as well.

    Raises:
        ValueError: there is no model of this name.
    """
    if name not in IMAGE_MODELS:
        raise ValueError(f"no model {name!r}: pass one of {', '.join(map(repr, IMAGE_MODELS))}")
    return IMAGE_MODELS[name](channels=channels, classes=classes)


def train_images(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    optimizer: Optimizer,
    precision: str = "bf16",
    epochs: int = 1,
    channels_last: bool = False,
    device: str | torch.device = "cpu",
) -> float:
    """Train a classifier in place and return the mean loss of its last epoch.

    Args:
        batches: (images, labels); images N x channels x H x W.
        optimizer: over the model's parameters. They stay the same objects with ``channels_last``.
        channels_last: store images and the weights of convolutions with the channels innermost, as
            Tensor Cores want them. Shapes and results stay the same.

    Raises:
        ValueError: as ``labkit.training.train``.
    """
    order = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=order)
    run = train(
        model, _Ordered(batches, order), optimizer=optimizer, precision=precision, epochs=epochs,
        device=device, progress=False,
    )  # fmt: skip
    last = run[len(run) * (epochs - 1) // epochs :]
    return sum(record.loss for record in last) / len(last)


class _Ordered:
    """The batches with their images in a memory format."""

    def __init__(self, batches: Iterable[Batch], order: torch.memory_format) -> None:
        self.batches, self.order = batches, order

    def __len__(self) -> int:
        return len(cast("Sized", self.batches))

    def __iter__(self) -> Iterator[Batch]:
        for images, labels in self.batches:
            yield images.contiguous(memory_format=self.order), labels


def batch_norm_dtypes(
    model: nn.Module, images: Tensor, *, precision: str = "fp16", device: str = "cpu"
) -> pd.DataFrame:
    """A row for each batch norm: the dtypes of its input, output, weight and statistics.

    One forward pass in eval mode under the precision, as in ``labkit.training.train``; nothing
    about the model changes but its device.
    """
    plan, place = precision_named(precision), device_named(device)
    rows: dict[str, dict[str, str]] = {}

    def note(name: str, layer: nn.BatchNorm2d, x: Tensor, y: Tensor) -> None:
        tensors = {
            "input": x, "output": y, "weight": layer.weight,
            "running_mean": layer.running_mean, "running_var": layer.running_var,
        }  # fmt: skip
        rows[name] = {what: name_of(tensor.dtype) for what, tensor in tensors.items()}

    hooks = [
        layer.register_forward_hook(lambda layer, x, y, name=name: note(name, layer, x[0], y))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
    ]
    try:
        with in_eval_mode(model), active(plan, place) as autocast, torch.no_grad(), autocast():
            model.to(place)(images.to(place))
    finally:
        for hook in hooks:
            hook.remove()
    return pd.DataFrame.from_dict(rows, orient="index")
