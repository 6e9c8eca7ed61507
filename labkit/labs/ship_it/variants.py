"""The network to be shipped: the course's GPT, moved a little and written down in another way.

``noisy`` changes each matrix, so that the network is another function, and weights that were
prepared for the public checkpoint do not fit. ``relabelled`` changes no output: it permutes the
channels of the residual stream, the heads, the channels inside of them and the hidden units, and
flips signs in pairs. A choice that was tuned to one row or to one tensor's place is lost.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from labkit.training import trained_gpt

NOISE = 0.08
"""Standard deviation of the noise, as a share of the root mean square of a row."""

Weights = Mapping[str, Tensor]


def network(seed: int) -> dict[str, Tensor]:
    """The float32 weights of the network of a seed, by the names of ``trained_gpt()``."""
    generator = torch.Generator().manual_seed(seed)
    return relabelled(noisy(trained_gpt().state_dict(), generator), generator)


def noisy(weights: Weights, generator: torch.Generator) -> dict[str, Tensor]:
    """Each matrix with Gaussian noise of ``NOISE`` times the root mean square of each row."""
    result = {}
    for name, weight in weights.items():
        result[name] = weight.clone()
        if weight.ndim == 2:
            noise = torch.randn(weight.shape, generator=generator)
            result[name] += NOISE * weight.square().mean(dim=1, keepdim=True).sqrt() * noise
    return result


def relabelled(weights: Weights, generator: torch.Generator, heads: int = 4) -> dict[str, Tensor]:
    """Other weights of a SmallGPT whose outputs are the same, but for the order of its sums.

    Queries and keys of a head share a permutation and signs: only their dot products count. Values
    share theirs with the columns of ``attention_out`` that read them. Hidden units are permuted
    with their columns; GELU is not odd, so they keep their signs. The residual stream may be
    permuted as a whole, and every norm with it; layer norm subtracts the mean, so a channel cannot
    change its sign alone.
    """
    w = {name: weight.clone() for name, weight in weights.items()}
    width = w["norm.weight"].numel()
    stream = torch.randperm(width, generator=generator)
    for name in w:
        if name.endswith("norm.weight") or name.endswith("norm.bias"):
            w[name] = w[name][stream]
        elif name in ("token.weight", "position.weight", "head.weight"):
            w[name] = w[name][:, stream]
    for block in sorted({name.rpartition(".qkv")[0] for name in w if name.endswith("qkv.weight")}):
        _relabel_attention(w, block, stream, heads, generator)
        _relabel_hidden(w, block, stream, generator)
    return {name: weight.contiguous() for name, weight in w.items()}


def _relabel_attention(
    w: dict[str, Tensor], block: str, stream: Tensor, heads: int, generator: torch.Generator
) -> None:
    qkv, out = f"{block}.qkv", f"{block}.attention_out"
    width = len(stream)
    order = torch.randperm(heads, generator=generator)
    keys, values = (_inside(order, width // heads, generator) for _ in range(2))
    key_signs, value_signs = (
        torch.randint(0, 2, (width,), generator=generator) * 2.0 - 1 for _ in range(2)
    )
    parts = torch.cat([keys, width + keys, 2 * width + values])
    signs = torch.cat([key_signs, key_signs, value_signs])
    w[f"{qkv}.weight"] = w[f"{qkv}.weight"][parts][:, stream] * signs[:, None]
    w[f"{qkv}.bias"] = w[f"{qkv}.bias"][parts] * signs
    w[f"{out}.weight"] = (w[f"{out}.weight"][:, values] * value_signs)[stream]
    w[f"{out}.bias"] = w[f"{out}.bias"][stream]


def _inside(order: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Heads in this order, and the channels of each in an order of its own."""
    return torch.cat(
        [head * size + torch.randperm(size, generator=generator) for head in order.tolist()]
    )


def _relabel_hidden(
    w: dict[str, Tensor], block: str, stream: Tensor, generator: torch.Generator
) -> None:
    up, down = f"{block}.feed_forward.0", f"{block}.feed_forward.2"
    units = torch.randperm(w[f"{up}.bias"].numel(), generator=generator)
    w[f"{up}.weight"] = w[f"{up}.weight"][units][:, stream]
    w[f"{up}.bias"] = w[f"{up}.bias"][units]
    w[f"{down}.weight"] = w[f"{down}.weight"][:, units][stream]
    w[f"{down}.bias"] = w[f"{down}.bias"][stream]
