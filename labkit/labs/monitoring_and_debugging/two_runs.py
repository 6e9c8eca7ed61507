"""Losses of the course's GPT in runs that differ in one thing: rows, precision, or its GELU."""

import torch
import torch.nn.functional as F
from torch import nn

from labkit.training import trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split


def losses_of(
    *, steps: int = 40, seed: int = 0, reverse: bool = False, bf16: bool = False, gelu: str = "none"
) -> list[float]:
    """The losses in nats of steps of AdamW with the trained GPT, 8 pieces of 64 characters each.

    Args:
        seed: of the batches.
        reverse: whether the rows of each batch come in reverse order.
        bf16: whether the forward pass runs under BF16 autocast.
        gelu: "none" for the exact GELU, "tanh" for its approximation.
    """
    text, vocabulary = shakespeare_split()[0], characters(shakespeare())
    model = trained_gpt()
    for module in model.modules():
        if isinstance(module, nn.GELU):
            module.approximate = gelu
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in character_batches(text, 64, 8, steps=steps, seed=seed, vocabulary=vocabulary):
        x, y = (part.flip(0) if reverse else part for part in batch)
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses
