"""``Plan``: what a policy for faults is given beside an event, and gives back with its answer.

The policy, lab 15's exercise, is a pure function: what it must remember, the non-finite steps in a
row, stands in the plan. So it can be tested by a table, and a log of its plans says why a run
changed its format.
"""

from dataclasses import dataclass

ANSWERS = ("go on", "skip", "roll back", "retry", "save and stop")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run goes on.

    Args:
        precision: "fp16", "bf16" or "fp32".
        micro_batch: rows of one forward pass.
        accumulate: forward passes of one step; times ``micro_batch``, the global batch.
        streak: non-finite steps in a row so far.

    Raises:
        ValueError: another precision, or a count that is too small.
    """

    precision: str
    micro_batch: int
    accumulate: int
    streak: int = 0

    def __post_init__(self) -> None:
        if self.precision not in ("fp16", "bf16", "fp32"):
            raise ValueError(f"precision={self.precision!r}: fp16, bf16 or fp32")
        if min(self.micro_batch - 1, self.accumulate - 1, self.streak) < 0:
            raise ValueError("micro_batch and accumulate count from 1 on, streak from 0 on")
