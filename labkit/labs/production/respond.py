"""A policy for faults: an event and a plan give an answer and the plan to go on with.

The policy is a pure function: what it must remember, the non-finite steps in a row, stands in the
plan. So it can be tested by a table, and a log of its plans says why a run changed its format.
"""

from dataclasses import dataclass, replace

EVENTS = ("ok", "non-finite", "out of memory", "loader", "corruption")
ANSWERS = ("go on", "skip", "roll back", "retry", "save and stop")
_WIDER = {"fp16": "bf16", "bf16": "fp32"}


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


def respond(event: str, plan: Plan, patience: int = 3) -> tuple[str, Plan]:
    """The answer to an event, one of ``ANSWERS``, and the plan to go on with.

    ``patience`` non-finite steps in a row roll back to the last checkpoint in the next wider
    format: the same format would meet the same values again. Damaged memory rolls back too, in the
    same format, for it is not the format's fault. A full device halves the micro-batch and doubles
    the passes, so that the global batch stays. Where nothing is left to try, and at any other
    event, the run saves and stops.
    """
    wider = _WIDER.get(plan.precision)
    if event == "ok":
        return "go on", replace(plan, streak=0)
    if event == "non-finite" and plan.streak + 1 < patience:
        return "skip", replace(plan, streak=plan.streak + 1)
    if event == "non-finite" and wider:
        return "roll back", replace(plan, precision=wider, streak=0)
    if event == "corruption":
        return "roll back", replace(plan, streak=0)
    if event == "out of memory" and plan.micro_batch > 1:
        half, twice = plan.micro_batch // 2, 2 * plan.accumulate
        return "retry", replace(plan, micro_batch=half, accumulate=twice)
    return "save and stop", plan
