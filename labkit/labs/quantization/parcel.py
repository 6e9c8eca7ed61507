"""The GPT as lab 09 packs it: four bits in the blocks, eight bits elsewhere, FP16 for the rest."""

from collections.abc import Mapping

import torch
from torch import Tensor

from labkit.labs.quantization.weights import (
    Group,
    group_quantize,
    matrices,
    scales_for,
    with_weights,
)
from labkit.training.models import SmallGPT


@torch.no_grad()
def parcel(gpt: SmallGPT, blocks: Mapping[str, Tensor], *, group: Group) -> tuple[SmallGPT, int]:
    """The GPT that the packed bytes stand for, computing in float32, and their number.

    Embeddings and head become INT8 with one scale a row; scales, biases and norms are FP16.

    Args:
        blocks: the matrices of the blocks, by layer, float32 values on 4-bit grids.
        group: who shares a scale of these grids.
    """
    others = {name: layer for name, layer in matrices(gpt).items() if name not in blocks}
    weights = {name: group_quantize(layer.weight, bits=8) for name, layer in others.items()}
    packed = with_weights(gpt, weights)
    size = sum(weight.nbytes for weight in weights.values())
    for name, matrix in blocks.items():
        layer = packed.get_submodule(name)
        size += matrix.numel() // 2 + 2 * scales_for(layer.weight, bits=4, group=group).numel()
        layer.weight.copy_(matrix)
    for parameter in packed.parameters():
        if parameter.ndim == 1:
            parameter.copy_(parameter.half())
            size += 2 * parameter.numel()
    return packed, size
