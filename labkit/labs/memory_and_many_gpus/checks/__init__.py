"""Checks of lab 07: a loss in chunks, a step that survives, AdamW with BF16 moments."""

from labkit.labs.memory_and_many_gpus.checks.chunked_loss import check_chunked_loss
from labkit.labs.memory_and_many_gpus.checks.moments import check_moments
from labkit.labs.memory_and_many_gpus.checks.survive import check_survive

__all__ = ["check_chunked_loss", "check_moments", "check_survive"]
