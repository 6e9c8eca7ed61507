"""Activations in eight bits: W8A8 on a GPT, and the norms whose outputs may have outliers."""

from collections.abc import Iterator

from torch import nn

from labkit.formats import choose, fake_quantize
from labkit.labs.quantization.weights import group_quantize, matrices, with_weights
from labkit.training.models import SmallGPT


def with_w8a8(model: nn.Module) -> nn.Module:
    """A copy that computes in float32 on INT8 weights and on INT8 inputs of its linear layers.

    Weights of all matrices have one scale a row, inputs one scale for each tensor that comes.
    """
    rounded = with_weights(
        model, {name: group_quantize(m.weight, bits=8) for name, m in matrices(model).items()}
    )
    for layer in rounded.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(
                lambda _, inputs: (
                    fake_quantize(inputs[0], choose(*inputs[0].aminmax(), bits=8, symmetric=True)),
                )
            )
    return rounded


def norm_pairs(model: SmallGPT) -> Iterator[tuple[str, nn.LayerNorm, nn.Linear]]:
    """Each norm in the blocks and the linear layer that reads it, with the layer's name."""
    for i, block in enumerate(model.blocks):
        yield f"blocks.{i}.qkv", block.attention_norm, block.qkv
        yield f"blocks.{i}.feed_forward.0", block.feed_forward_norm, block.feed_forward[0]
