"""Record what lab 14 says about MLX, on a CPU.

    python -m venv mlx && mlx/bin/pip install "mlx[cpu]==0.32.4" numpy
    mlx/bin/python data/emulated/record_mlx.py

It needs MLX, made for Apple's computers, and no labkit: an environment of its own. Promotions: the
dtype of each expression, or an error.
"""

import json
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np

FILE = Path(__file__).with_name("mlx.json")


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
    record = {
        "what": " ".join(__doc__.split("\n\n")[2].split()),
        "promotions": promotions(),
        "device": f"{mx.default_device()}, {platform.machine()}",
        "mlx": version("mlx"),
        "date": date.today().isoformat(),
        "by": "data/emulated/record_mlx.py",
    }
    FILE.write_text(json.dumps(record, separators=(",", ":")) + "\n", "utf-8")
