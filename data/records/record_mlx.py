"""Record what lab 14 says about MLX, on a CPU.

    python -m venv mlx && mlx/bin/pip install "mlx[cpu]==0.32.4" numpy
    mlx/bin/python data/records/record_mlx.py

It needs MLX, made for Apple's computers, and no labkit: an environment of its own. Promotions: the
dtype of each expression, or an error.
"""

import platform
from importlib.metadata import version

import mlx.core as mx
import numpy as np
from common import about, file_of, write


def dtype(compute):
    try:
        return str(compute().dtype).rpartition(".")[2]
    except Exception:
        return "error"


def promotions():
    h, x, b = (mx.ones(3, d) for d in (mx.float16, mx.float32, mx.bfloat16))
    return {
        "h * 2.0": dtype(lambda: h * 2.0),
        "h * np.float32(2)": dtype(lambda: h * np.float32(2)),
        "h * 0-d": dtype(lambda: h * mx.array(2.0)),
        "h * x": dtype(lambda: h * x),
        "h * b": dtype(lambda: h * b),
        "h @ x": dtype(lambda: h @ x),
    }


if __name__ == "__main__":
    device = f"{mx.default_device()}, {platform.machine()}"
    record = about(__file__, __doc__, device, mlx=version("mlx"))
    write(file_of(__doc__, "emulated/mlx.json"), record | {"promotions": promotions()})
