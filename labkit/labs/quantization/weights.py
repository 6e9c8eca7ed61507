"""Weights in few bits: one scale for whom, round to nearest, and what outliers do.

A ``QuantizedWeight`` is codes and FP16 scales, which are counted among its bytes. ``matrices`` says
what of a model is rounded: all of its matrices, embeddings and head too.
"""

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from labkit.training.models import Block

Group = int | Literal["row", "tensor"]
"""Who shares a scale: so many columns of a row, the row, or the whole matrix."""

_SHRINKS = 80
"""Scales that the clip search tries, from the whole range down to a fifth of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedWeight:
    """A matrix as codes and scales: code * scale is the weight, and the zero point is 0.

    Args:
        codes: int8, out x in, from -(2**(bits-1) - 1) to its opposite.
        scales: float16, out x (groups of a row); 1 x 1 where the matrix shares one.
        bits: of a code, when it is packed.
    """

    codes: Tensor
    scales: Tensor
    bits: int

    def dequantize(self) -> Tensor:
        """The weights, float32, out x in."""
        return self.codes * _spread(self.scales, self.codes.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed codes and of the scales."""
        return math.ceil(self.codes.numel() * self.bits / 8) + 2 * self.scales.numel()


def scales_for(w: Tensor, *, bits: int, group: Group = "row", clip: bool = False) -> Tensor:
    """FP16 scales for a matrix, out x (groups of a row), or 1 x 1 for ``group="tensor"``.

    Each makes the largest magnitude of its group the last code. ``clip`` searches the group's scale
    of least squared error instead: it cuts the largest weights and gives the others a finer step.

    Raises:
        ValueError: bits outside 2 to 8, or a group that does not divide the columns.
    """
    if bits not in range(2, 9):
        raise ValueError(f"bits={bits!r}: codes of a weight have 2 to 8")
    if isinstance(group, int) and (group < 1 or w.shape[1] % group):
        raise ValueError(f"group={group} does not divide {w.shape[1]} columns")
    match group:
        case "tensor":
            parts = w.detach().reshape(1, 1, -1)
        case "row":
            parts = w.detach().unsqueeze(1)
        case _:
            parts = w.detach().unflatten(1, (-1, group))
    last = 2 ** (bits - 1) - 1
    whole = _in_fp16(parts.abs().amax(dim=2) / last)
    if not clip:
        return whole
    best, least = whole, torch.full_like(whole, torch.inf, dtype=torch.float32)
    for part in range(_SHRINKS):
        scales = _in_fp16(whole.float() * (1 - part / 100))
        step = scales.float().unsqueeze(2)
        error = ((parts / step).round().clamp(-last, last) * step - parts).square().sum(dim=2)
        best, least = torch.where(error < least, scales, best), torch.minimum(error, least)
    return best


def group_quantize(
    w: Tensor, *, bits: int, group: Group = "row", clip: bool = False
) -> QuantizedWeight:
    """Each weight rounded to nearest on its own, with the scales of ``scales_for``.

    >>> q = group_quantize(torch.tensor([[0.1, -0.7], [3.0, 7.0]]), bits=4)
    >>> q.codes.tolist(), q.nbytes
    ([[1, -7], [3, 7]], 6)
    """
    scales = scales_for(w, bits=bits, group=group, clip=clip)
    last = 2 ** (bits - 1) - 1
    codes = (w.detach() / _spread(scales, w.shape)).round().clamp(-last, last)
    return QuantizedWeight(codes=codes.to(torch.int8), scales=scales, bits=bits)


# A whole model


def matrices(model: nn.Module) -> dict[str, nn.Linear | nn.Embedding]:
    """The layers whose matrix is rounded, by name: linear layers, head and embeddings."""
    kinds = (nn.Linear, nn.Embedding)
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}


def with_weights(model: nn.Module, weights: Mapping[str, QuantizedWeight]) -> nn.Module:
    """A copy of the model that computes in float32 with these weights in place of its own."""
    rounded = copy.deepcopy(model)
    for name, weight in weights.items():
        rounded.get_submodule(name).weight.data = weight.dequantize()
    return rounded


@torch.no_grad()
def layer_inputs(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """What each linear layer reads while the model sees the batches: float32, N x in, by name."""
    seen: dict[str, list[Tensor]] = {}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, inputs, name=name: seen.setdefault(name, []).append(inputs[0].flatten(0, -2))
        )
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(parts) for name, parts in seen.items()}


# Outliers


@torch.no_grad()
def plant_outliers(
    norm: nn.LayerNorm, linear: nn.Linear, channels: list[int], factor: float
) -> None:
    """Make channels of a norm's output ``factor`` times larger, in place.

    The next weight's columns are divided by it, so the layer computes what it did. Large language
    models grow such channels in training (LLM.int8, arXiv:2208.07339); here they are planted.
    """
    norm.weight[channels] *= factor
    norm.bias[channels] *= factor
    linear.weight[:, channels] /= factor


@torch.no_grad()
def plant_key_outliers(block: Block, channel: int, factor: float) -> None:
    """Make one channel of each head's keys ``factor`` times larger, in place.

    The queries' channel is divided by it, so the attention scores stay what they were.
    """
    width = block.qkv.in_features
    for head in range(block.heads):
        row = head * (width // block.heads) + channel
        for parameter in (block.qkv.weight, block.qkv.bias):
            parameter[row] /= factor
            parameter[width + row] *= factor


def _in_fp16(scales: Tensor) -> Tensor:
    """Scales as they are stored: not 0, which would divide by zero, and not inf."""
    span = torch.finfo(torch.float16)
    return scales.clamp(min=span.smallest_normal, max=span.max).half()


def _spread(scales: Tensor, shape: torch.Size) -> Tensor:
    """One step for each weight, float32, out x in."""
    steps = scales.float().repeat_interleave(shape[1] // scales.shape[1], dim=1)
    return steps.expand(shape)
