"""What a packed network is worth: KL to the original, and the share of the points that it earns.

The KL is KL(original || artifact) in bits a character: the mean over all positions of a text. Two
networks with one loss can differ in every answer, so a loss is no measure of fidelity.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.func import functional_call

from labkit.training import trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.models import SmallGPT

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What the KL under one budget earns: ``share`` at ``full`` or below, 0 from ``none`` on.

    Between them the points follow the logarithm of the KL: each halving earns the same.
    """

    share: float
    none: float
    full: float

    def earned(self, kl: float) -> float:
        """The part of all points, 0 to ``share``."""
        if not kl < self.none:
            return 0.0
        steps = math.log(self.none / max(kl, self.full)) / math.log(self.none / self.full)
        return self.share * steps


BUDGETS: dict[int, Scale] = {
    120_000: Scale(share=0.2, none=0.008, full=0.001),
    68_000: Scale(share=0.4, none=0.16, full=0.02),
    47_000: Scale(share=0.4, none=1.0, full=0.125),
}
"""How each budget in bytes is scored. data/emulated/ship_it.json holds what was measured."""


@torch.no_grad()
def divergence(original: Weights, artifact: Weights, tokens: Tensor) -> float:
    """KL(original || artifact) in bits a character, computed in float64.

    Args:
        original, artifact: weights of two SmallGPTs by name.
        tokens: int64, pieces x characters, at most 64 of them.
    """
    total = 0.0
    for part in tokens.split(64):
        exact, other = (
            functional_call(_network(), dict(weights), (part,)).double().log_softmax(-1)
            for weights in (original, artifact)
        )
        total += (exact.exp() * (exact - other)).sum().item()
    return total / tokens.numel() / math.log(2)


def pieces(text: str, count: int, *, seed: int = 0, length: int = 64) -> Tensor:
    """Pieces of a text from random places: tokens, int64, count x length."""
    vocabulary = characters(shakespeare())
    batch = character_batches(text, length, count, steps=1, seed=seed, vocabulary=vocabulary)
    return next(iter(batch))[0]


@torch.no_grad()
def sampled(
    weights: Weights, count: int, *, generator: torch.Generator, length: int = 64
) -> Tensor:
    """Text that a network writes itself: tokens, int64, count x length.

    The first character of each piece is one of the training text; each further one is drawn from
    the network's own probabilities.
    """
    text = shakespeare_split()[0]
    vocabulary = characters(shakespeare())
    places = torch.randint(len(text), (count,), generator=generator)
    tokens = vocabulary.encode("".join(text[place] for place in places.tolist()))[:, None]
    while tokens.shape[1] < length:
        logits = functional_call(_network(), dict(weights), (tokens,))[:, -1]
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, drawn], dim=1)
    return tokens


def shapes() -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of the network."""
    return {name: tuple(weight.shape) for name, weight in _network().state_dict().items()}


@cache
def _network() -> SmallGPT:
    """A SmallGPT whose own weights do not count: each call brings others."""
    return trained_gpt()
