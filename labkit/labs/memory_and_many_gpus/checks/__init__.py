"""Checks of lab 07: a loss in chunks, a step that survives, BF16 moments, a hook, ZeRO-1."""

from labkit.labs.memory_and_many_gpus.checks.chunked_loss import check_chunked_loss
from labkit.labs.memory_and_many_gpus.checks.moments import check_moments
from labkit.labs.memory_and_many_gpus.checks.survive import check_survive
from labkit.labs.memory_and_many_gpus.checks.topk_hook import check_topk_hook
from labkit.labs.memory_and_many_gpus.checks.zero_step import check_zero_step

__all__ = [
    "check_chunked_loss",
    "check_moments",
    "check_survive",
    "check_topk_hook",
    "check_zero_step",
]
