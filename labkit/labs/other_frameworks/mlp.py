"""A small MLP and its batches, in NumPy for oracles and in JAX: 16 inputs, 32 units, 4 classes."""

from typing import Any

import numpy as np

from labkit.labs.other_frameworks.frameworks import jnp


def mlp(seed: int = 0) -> dict[str, Any]:
    """Weights "w1" and "w2", biases "b1" and "b2", in float32."""
    return {name: jnp.asarray(value) for name, value in mlp_in_numpy(seed).items()}


def batch(seed: int = 1) -> tuple[Any, Any]:
    """Inputs 32 x 16 in float32, and a class for each, int32."""
    x, y = batch_in_numpy(seed)
    return jnp.asarray(x), jnp.asarray(y)


def mlp_in_numpy(seed: int = 0) -> dict[str, np.ndarray]:
    """The same weights."""
    rng = np.random.default_rng(seed)
    w1, w2 = rng.normal(size=(16, 32)) / 4, rng.normal(size=(32, 4)) / 6
    values = {"w1": w1, "b1": np.zeros(32), "w2": w2, "b2": np.zeros(4)}
    return {name: value.astype(np.float32) for name, value in values.items()}


def batch_in_numpy(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The same batch."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(32, 16)), rng.integers(0, 4, 32)
    return x.astype(np.float32), y.astype(np.int32)
