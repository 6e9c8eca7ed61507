"""Attention written out, with and without QK-norm, and a run that drives its scores up.

Eager attention stores the scores of a query with all keys; in 16 bits they are rounded, and above
65504 they are inf in FP16. QK-norm (Henry et al. 2020, arXiv:2010.04245) gives each query and key
the length sqrt(width of a head), which bounds a score by that number.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.training import train
from labkit.training.batches import Batch
from labkit.training.data import character_batches, shakespeare
from labkit.training.models import Block, SmallGPT
from labkit.training.scaling import LossScale


class EagerBlock(Block):
    """A transformer block whose scores are tensors of their own.

    Attributes:
        qk_norm: queries and keys are normed in float32 before they meet, without a gain.
        largest_score: the largest absolute score of all calls so far, computed in float32.
    """

    def __init__(self, width: int, heads: int, *, qk_norm: bool) -> None:
        super().__init__(width, heads)
        self.qk_norm, self.largest_score = qk_norm, 0.0

    def attention(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each N x heads x T x width/heads
        if self.qk_norm:
            q, k = (F.rms_norm(part.float(), part.shape[-1:]) for part in (q, k))
        self._watch(q, k)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(dim=-1) @ v
        return self.attention_out(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def _watch(self, q: Tensor, k: Tensor) -> None:
        with torch.autocast(q.device.type, enabled=False):
            scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
        self.largest_score = max(self.largest_score, scores.abs().max().item())


def small_gpt(*, qk_norm: bool, seed: int) -> SmallGPT:
    """A SmallGPT of 2 blocks with 2 heads and eager attention, for 68 characters and context 32."""
    torch.manual_seed(seed)
    model = SmallGPT(68, context=32, blocks=2, heads=2)
    for place, plain in enumerate(model.blocks):
        block = EagerBlock(64, 2, qk_norm=qk_norm)
        block.load_state_dict(plain.state_dict())
        model.blocks[place] = block
    return model


@dataclass(frozen=True, kw_only=True)
class CrashRun:
    """A run at a learning rate that is too high.

    Args:
        losses: one a step; nats a character. A loss that is not finite ends the run and is not
            among them.
        largest_score: the largest absolute attention score of the run.
        died: the step whose loss was inf or NaN; None if all were finite.
    """

    losses: tuple[float, ...]
    largest_score: float
    died: int | None

    @property
    def final_loss(self) -> float:
        """The mean of the last ten losses; NaN if the run died."""
        if self.died is not None:
            return math.nan
        last = self.losses[-10:]
        return sum(last) / len(last)


def crash_run(
    model: SmallGPT, *, precision: str, seed: int, steps: int = 150, lr: float = 0.1
) -> CrashRun:
    """Train ``small_gpt`` on Shakespeare at ``lr`` until a loss is inf or NaN.

    AdamW with betas (0.9, 0.95), a warm-up of 20 steps, 16 pieces of 32 characters a step, in
    "fp16" a dynamic loss scale from 1024 on.

    Args:
        precision: "fp32", "bf16" or "fp16", as in ``labkit.training.train``.
        seed: of the pieces of text.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    losses: list[float] = []

    def until_broken() -> Iterator[Batch]:
        for batch in character_batches(shakespeare(), 32, 16, steps=steps, seed=seed):
            if losses and not math.isfinite(losses[-1]):
                return
            yield batch

    train(
        model,
        until_broken(),
        optimizer=optimizer,
        precision=precision,
        scaler=LossScale(2.0**10) if precision == "fp16" else None,
        schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (i + 1) / 20)),
        on_step=lambda record: losses.append(record.loss),
        progress=False,
    )
    finite = tuple(filter(math.isfinite, losses))
    largest = max(block.largest_score for block in model.blocks)
    died = len(finite) if len(finite) < len(losses) else None
    return CrashRun(losses=finite, largest_score=largest, died=died)
