"""What a recipe costs and keeps: bits an operand, and the SQNR of a layer's three results."""

from collections.abc import Mapping
from functools import cache

from torch import Generator, Tensor

from labkit.formats import BF16, E2M1, E4M3, E5M2
from labkit.labs.fp8_and_fp4.layer_tensors import layer_tensors, sqnr
from labkit.training import trained_gpt
from labkit.training.low_bit import Operand

FORMATS = {
    "bf16": Operand(BF16),
    "e4m3": Operand(E4M3, "tensorwise"),
    "e5m2": Operand(E5M2, "tensorwise"),
    "mxfp8": Operand(E4M3, "mx"),
    "e2m1": Operand(E2M1, "tensorwise"),
    "mxfp4": Operand(E2M1, "mx"),
    "nvfp4": Operand(E2M1, "nvfp4"),
    "nvfp4_sr": Operand(E2M1, "nvfp4", "stochastic"),
}
"""What an operand may be stored in; "sr" rounds stochastically."""

MATMULS = {"y": ("x", "w"), "dX": ("dx_grad", "dx_w"), "dW": ("dw_grad", "dw_x")}
"""The three matmuls of a linear layer and their operands."""

OPERANDS = tuple(operand for pair in MATMULS.values() for operand in pair)


def bits(recipe: Mapping[str, str]) -> float:
    """The mean over the six operands of the bits a value takes, block scales counted."""
    return sum(FORMATS[recipe[operand]].bits for operand in OPERANDS) / len(OPERANDS)


def quality(recipe: Mapping[str, str]) -> dict[str, float]:
    """SQNR of y, dX and dW in dB, on one batch of the trained GPT, beside float64 matmuls.

    The layer is that of ``layer_tensors``. Stochastic rounding draws the same numbers in each call.

    Args:
        recipe: for each of ``OPERANDS`` the name of one of ``FORMATS``.
    """
    return {name: matmul_quality(name, recipe) for name in MATMULS}


def matmul_quality(name: str, recipe: Mapping[str, str]) -> float:
    """The SQNR of one of the three in dB."""
    a, b = _operands()[name]
    first, second = (FORMATS[recipe[operand]] for operand in MATMULS[name])
    # Each is stored as `a @ b.T`, so the last axis is the one that is added up.
    draw = Generator().manual_seed(0)
    stored = first.cast(a, 1, draw).double() @ second.cast(b, 1, draw).double().T
    return sqnr(a.double() @ b.double().T, stored)


@cache
def _operands() -> dict[str, tuple[Tensor, Tensor]]:
    """The operands of each matmul as `a @ b.T`."""
    x, grad = layer_tensors(16)
    weight = trained_gpt().blocks[1].feed_forward[0].weight.detach()
    across = [t.T.contiguous() for t in (weight, grad, x)]
    return {"y": (x, weight), "dX": (grad, across[0]), "dW": (across[1], across[2])}
