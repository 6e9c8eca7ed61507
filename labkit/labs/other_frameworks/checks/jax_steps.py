"""What the checks of lab 14's two training steps share: the loss, probes, and a run by torch."""

import math
from typing import Any

import numpy as np
import torch

from labkit.labs.other_frameworks.frameworks import jnp, optax


def loss_of(weights: Any, x: Any, y: Any) -> Any:
    """The notebook's: a mean crossentropy in float32 of a network with one hidden layer."""
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    logits = (hidden @ weights["w2"] + weights["b2"]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def to_torch(tree: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A dict of JAX's arrays as float32 tensors."""
    return {name: torch.from_numpy(np.array(value, np.float32)) for name, value in tree.items()}


class TorchRun:
    """The same network in torch: float32 weights, 16-bit matmuls, SGD with momentum."""

    def __init__(self, weights: dict[str, np.ndarray], dtype: torch.dtype, factor: float) -> None:
        self.weights = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
        self.dtype, self.factor = dtype, factor
        self.velocity = {name: torch.zeros_like(value) for name, value in self.weights.items()}

    def loss_and_gradients(
        self, x: np.ndarray, y: np.ndarray, scale: float = 1.0
    ) -> tuple[float, dict[str, torch.Tensor]]:
        """The loss, times the factor, and its unscaled gradients."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.weights.items()}
        narrow = {name: leaf.to(self.dtype) for name, leaf in leaves.items()}
        hidden = torch.tanh(torch.from_numpy(x).to(self.dtype) @ narrow["w1"] + narrow["b1"])
        logits = (hidden @ narrow["w2"] + narrow["b2"]).float()
        labels = torch.from_numpy(y).long()
        loss = self.factor * torch.nn.functional.cross_entropy(logits, labels)
        (loss * scale).backward()
        return loss.item(), {name: leaf.grad / scale for name, leaf in leaves.items()}

    def step(self, gradients: dict[str, torch.Tensor], lr: float, momentum: float) -> None:
        """SGD as optax has it."""
        for name, gradient in gradients.items():
            self.velocity[name] = momentum * self.velocity[name] + gradient
            self.weights[name] = self.weights[name] - lr * self.velocity[name]


def distance(got: torch.Tensor, want: torch.Tensor, start: torch.Tensor) -> float:
    """How far a weight is from where it must be, as a share of the way that it must go."""
    way = (want - start).double().norm().item()
    away = (got - want).double().norm().item()
    return away / way if way else (0.0 if away == 0 else math.inf)
