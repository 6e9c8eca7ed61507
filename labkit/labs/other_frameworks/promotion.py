"""The dtype of one expression in several libraries: each computes it with its own arrays."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from labkit.labs.other_frameworks.frameworks import jnp, keras, recorded

_NAMES = ("float16", "float32", "bfloat16")


def promotions() -> dict[str, dict[str, str]]:
    """For each library the dtype of each expression, "error", or "-" where it has no BF16.

    h, x and b are vectors in FP16, FP32 and BF16; 0-d is the library's own array made of 2.0.
    TensorFlow and MLX are recorded. Raises ImportError without keras and jax.
    """
    numpys = np.ones(3, np.float16), np.ones(3, np.float32), None
    of_keras = [keras.ops.ones(3, dtype=name) for name in _NAMES]
    two = keras.ops.convert_to_tensor(2.0)
    return {
        "PyTorch": _dtypes(
            *(torch.ones(3, dtype=getattr(torch, name)) for name in _NAMES), torch.tensor(2.0)
        ),
        "NumPy": _dtypes(*numpys, np.array(2.0)) | {"h * b": "-"},
        "JAX": _dtypes(*(jnp.ones(3, name) for name in _NAMES), jnp.array(2.0)),
        "Keras on torch": _dtypes(*of_keras, two, keras.ops.multiply, keras.ops.matmul),
        "TensorFlow": recorded("tensorflow")["promotions"],
        "MLX": recorded("mlx")["promotions"],
    }


def _dtypes(
    h: Any,
    x: Any,
    b: Any,
    zero_d: Any,
    multiply: Callable[..., Any] = operator.mul,
    matmul: Callable[..., Any] = operator.matmul,
) -> dict[str, str]:
    return {
        "h * 2.0": _dtype(multiply, h, 2.0),
        "h * np.float32(2)": _dtype(multiply, h, np.float32(2)),
        "h * 0-d": _dtype(multiply, h, zero_d),
        "h * x": _dtype(multiply, h, x),
        "h * b": _dtype(multiply, h, b),
        "h @ x": _dtype(matmul, h, x),
    }


def _dtype(compute: Callable[..., Any], left: Any, right: Any) -> str:
    try:
        return str(compute(left, right).dtype).rpartition(".")[2]
    except Exception:
        return "error"
