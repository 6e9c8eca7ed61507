"""Quantization-aware training: the course's loop, on layers that round as they will run."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from labkit.labs.quantization.linear import quant_layers
from labkit.training import train
from labkit.training.batches import Batch


def train_quantized(
    model: nn.Module,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    *,
    precision: str = "bf16",
    epochs: int = 1,
    device: str | torch.device = "cpu",
) -> list[float]:
    """Train a model with QuantLinear layers in place and return the loss of each step.

    One batch is one step and one update. ``labkit.training.train`` does the rest: the rounding of
    weights and inputs is computed in float32 inside autocast, since ``fake_quantize`` widens what
    it gets, and only "fp16" scales the loss. The observers of layers that are not frozen go on
    watching; freeze and convert the model afterwards.

    Args:
        batches: (inputs, targets), read once an epoch.
        optimizer: over the model's parameters.
        precision: as in ``train``: "fp32", "bf16" or "fp16".

    Raises:
        ValueError: the model has no QuantLinear, so that nothing would be rounded; else as
            ``train``.
    """
    if not quant_layers(model):
        raise ValueError(
            "no QuantLinear in this model, so nothing would be rounded: put them in place of its "
            "linear layers first, with replace_linears or QuantLinear.from_linear"
        )
    run = train(
        model, batches, optimizer=optimizer, precision=precision, epochs=epochs, device=device,
        progress=False,
    )  # fmt: skip
    return [record.loss for record in run]
