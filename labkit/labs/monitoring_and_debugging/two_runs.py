"""Losses of the course's GPT in runs that differ in one thing: rows, precision, or its GELU."""

import torch
from torch import nn

from labkit.training import cross_entropy, train, trained_gpt
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
    loader = character_batches(text, 64, 8, steps=steps, seed=seed, vocabulary=vocabulary)
    run = train(
        model,
        [[part.flip(0) if reverse else part for part in batch] for batch in loader],
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        # The loss in float32: of 16-bit logits a GPU's cross_entropy rounds the log-probabilities.
        loss_fn=lambda logits, y: cross_entropy(logits.float(), y),
        precision="bf16" if bf16 else "fp32",
        progress=False,
    )
    return [record.loss for record in run]
