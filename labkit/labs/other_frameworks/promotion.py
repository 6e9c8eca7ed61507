"""The dtype of one expression in several libraries: each computes it with its own arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labkit.labs.other_frameworks.frameworks import jnp, keras, recorded

ROWS = (
    "h * 2.0",
    "h * np.float32(2)",
    "h * 0-d",
    "h * x",
    "h * b",
    "h @ x",
)
"""h, x and b are vectors in FP16, FP32 and BF16; 0-d is the library's own array made of 2.0."""


def promotions() -> dict[str, dict[str, str]]:
    """For each library the dtype of each of ROWS, or the name of the exception.

    NumPy has no BF16. TensorFlow and MLX are recorded. Raises ImportError without keras and jax.
    """
    return {
        "torch": dtypes_of(
            [torch.ones(3, dtype=d) for d in (torch.float16, torch.float32, torch.bfloat16)],
            torch.tensor(2.0),
        ),
        "NumPy": dtypes_of([np.ones(3, np.float16), np.ones(3, np.float32), None], np.array(2.0)),
        "JAX": dtypes_of(
            [jnp.ones(3, d) for d in ("float16", "float32", "bfloat16")], jnp.array(2.0)
        ),
        "Keras on torch": dtypes_of(
            [keras.ops.ones(3, dtype=d) for d in ("float16", "float32", "bfloat16")],
            keras.ops.convert_to_tensor(2.0),
            keras.ops,
        ),
        "TensorFlow": recorded("tensorflow")["promotions"],
        "MLX": recorded("mlx")["promotions"],
    }


def dtypes_of(vectors: list[Any], zero_d: Any, ops: Any = None) -> dict[str, str]:
    """The dtype of each of ROWS, by operators or by ``ops.multiply`` and ``ops.matmul``."""
    h, x, b = vectors
    multiply = ops.multiply if ops else lambda left, right: left * right
    matmul = ops.matmul if ops else lambda left, right: left @ right
    results: dict[str, Callable[[], Any]] = {
        "h * 2.0": lambda: multiply(h, 2.0),
        "h * np.float32(2)": lambda: multiply(h, np.float32(2)),
        "h * 0-d": lambda: multiply(h, zero_d),
        "h * x": lambda: multiply(h, x),
        "h * b": lambda: multiply(h, b),
        "h @ x": lambda: matmul(h, x),
    }
    return {row: "-" if b is None and row == "h * b" else _dtype(results[row]) for row in ROWS}


def _dtype(compute: Callable[[], Any]) -> str:
    try:
        return str(compute().dtype).rpartition(".")[2]
    except Exception as error:
        return type(error).__name__
