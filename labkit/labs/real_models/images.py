"""Image classifiers by name, trained with either order of the bytes.

torchvision from PyPI does not load beside a CPU-only torch, so the networks are the course's own.
"""

from collections.abc import Iterable, Iterator, Sized
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer

from labkit.training import train
from labkit.training.batches import Batch
from labkit.training.models import SmallCNN, SmallResNet

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
