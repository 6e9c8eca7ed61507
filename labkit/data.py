"""What the labs look at: small real data that ships with the course, see data/README.md."""

import numpy as np
import torch

from labkit.paths import DATA


def digits_mlp() -> dict[str, torch.Tensor]:
    """One layer of a network that has learnt the digits, recorded late in a float32 run.

    Returns:
        "weights", "activations" and "gradients" (of the mean loss, by those activations):
        float32 tensors of 8,191 values each.
    """
    with np.load(DATA / "tensors" / "digits_mlp.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}
