"""Emulated hardware that saturates: inf becomes the largest FP16 value, and NaN becomes 0."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def saturating_gradients(model: nn.Module) -> Iterator[None]:
    """Inside it, gradients of linear layers' outputs and parameters hold no inf and no NaN.

    Only a backward pass inside FP16 autocast has any. The forward pass is not changed.
    """
    limit = torch.finfo(torch.float16).max

    def saturated(gradient: Tensor) -> Tensor:
        return torch.nan_to_num(gradient, nan=0.0, posinf=limit, neginf=-limit)

    def watch(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.register_hook(saturated)

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(watch) for layer in layers]
    hooks += [p.register_hook(saturated) for layer in layers for p in layer.parameters()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
