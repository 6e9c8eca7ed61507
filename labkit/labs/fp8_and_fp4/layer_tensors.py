"""Two real tensors for lab 08, and how far a cast moves a tensor."""

import math

from torch import Tensor

from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split


def layer_tensors(pieces: int = 32) -> tuple[Tensor, Tensor]:
    """What enters one layer of the trained GPT, and the gradient that comes back to its output.

    The layer is the first of the second block's feed-forward part. The batch is the start of the
    test text, in pieces of 64 characters; the gradient is that of the mean loss.

    Returns float32 tensors of shape (64 * pieces, 64) and (64 * pieces, 256).
    """
    model = trained_gpt()
    layer, kept = model.blocks[1].feed_forward[0], {}
    layer.register_forward_pre_hook(lambda _, inputs: kept.update(into=inputs[0]))
    layer.register_full_backward_hook(lambda _, __, out: kept.update(back=out[0]))
    tokens = characters(shakespeare()).encode(shakespeare_split()[1][: 64 * pieces + 1])
    loss = cross_entropy(model(tokens[:-1].view(pieces, 64)), tokens[1:].view(pieces, 64))
    loss.backward()
    return kept["into"].detach().flatten(0, -2), kept["back"].flatten(0, -2)


def sqnr(x: Tensor, stored: Tensor) -> float:
    """Signal-to-quantisation-noise ratio in dB: 10 log10(sum x**2 / sum (stored - x)**2)."""
    x, error = x.double(), stored.double() - x.double()
    return 10 * math.log10((x**2).sum() / (error**2).sum())
