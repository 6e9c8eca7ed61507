"""What a GPT needs beside ``labkit.training.train``: activation checkpointing, and its bytes.

``with checkpointed(model.blocks): train(model, ...)`` trains with accumulation, clipping and a
schedule as GPT-2 was.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import pandas as pd
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint as recomputed

from labkit.emulation import emulate_gpu
from labkit.measuring import work_and_memory
from labkit.training import cross_entropy, trained_gpt
from labkit.training.batches import Batch
from labkit.training.models import SmallGPT


@contextmanager
def checkpointed(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Activation checkpointing inside the block: each module keeps its input for backward alone.

    What the module computed is dropped after its forward pass, and computed again in backward from
    the same input, random state and autocast settings. Call backward inside ``emulate_gpu()`` too:
    the emulation is not among the settings that torch restores.
    """
    blocks = list(blocks)
    for block in blocks:
        block.forward = partial(recomputed, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # the class's own method is seen again


def unigram_entropy(text: str) -> float:
    """The entropy of the characters' frequencies in nats: the loss of one who knows only these."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log(share) for share in shares)


def training_bytes(
    model: SmallGPT, batch: Batch, *, precision: str = "bf16", checkpoint: bool = False
) -> dict[str, int]:
    """The bytes that a step with AdamW holds, by kind: 16 a parameter, and the activations.

    Weights, gradients and both moments are float32, as under autocast. "activations" are what
    autograd keeps from forward to backward, measured on this batch, 16-bit copies of weights among
    them. With ``checkpoint`` they are what is kept, and one block's share of the rest: backward
    holds one block at a time.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    _, activations = work_and_memory(model, batch, precision=precision)
    if checkpoint:
        with checkpointed(model.blocks):
            _, kept = work_and_memory(model, batch, precision=precision)
        activations = kept + (activations - kept) // len(model.blocks)
    model.zero_grad()
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "moments": 8 * parameters,
        "activations": activations,
    }


def zero_table(held: dict[str, int], ranks: int) -> pd.DataFrame:
    """What each of ``ranks`` devices holds of ``training_bytes`` under ZeRO's stages 0 to 3.

    Stage 1 divides the moments, stage 2 the gradients too, stage 3 the weights too. Activations are
    each device's own.

    Source: Rajbhandari et al. 2020, arXiv:1910.02054, with torch autocast's float32 weights and
    gradients in place of 16-bit ones beside masters: both make 16 bytes a parameter.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} devices hold nothing; pass 1 or more")
    divided = ((), ("moments",), ("moments", "gradients"), ("moments", "gradients", "weights"))
    rows = [
        {kind: size / ranks if kind in kinds else size for kind, size in held.items()}
        for kinds in divided
    ]
    table = pd.DataFrame(rows, index=pd.Index(range(4), name="ZeRO stage"))
    return table.assign(total=table.sum(axis=1)).map(math.ceil)


def moved(
    step: Callable[..., object],
    optimizers: Callable[[SmallGPT], tuple[Optimizer, Optimizer]],
    batch: Batch,
    *,
    scale: float,
) -> list[bool]:
    """Whether a block's matrix and the head of the trained GPT move in one FP16 step.

    ``step`` gets (model, loss, both optimizers of ``optimizers(model)``, the scaler, a limit of 1).
    """
    gpt, scaler = trained_gpt(), torch.amp.GradScaler("cpu", init_scale=scale)
    watched = gpt.blocks[0].qkv.weight, gpt.head.weight
    before = [p.detach().clone() for p in watched]
    tokens, targets = batch
    with emulate_gpu():
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(gpt(tokens), targets)
        step(gpt, loss, *optimizers(gpt), scaler, 1.0)
    return [not torch.equal(old, p) for old, p in zip(before, watched, strict=True)]
