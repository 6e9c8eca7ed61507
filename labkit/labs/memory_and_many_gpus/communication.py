"""What ranks send one another: a sum around a ring."""

from collections.abc import Sequence
from typing import Literal

import torch


def ring_sum(
    values: Sequence[float], dtype: torch.dtype, *, divide: Literal["first", "last"] | None = None
) -> float:
    """The sum of one number of each rank, rounded to ``dtype`` after each addition.

    So adds a ring whose messages have this dtype. Other reductions add in a wider one.

    Args:
        values: one number for each rank, in the order of the ring; it is rounded first.
        dtype: of the messages and the additions.
        divide: "first" gives the mean of values that are divided before they are sent, "last" that
            of a sum that is divided; None the sum.
    """
    sent = torch.tensor(values, dtype=dtype)
    if divide == "first":
        sent = sent / len(values)
    total = sent[0]
    for one in sent[1:]:
        total = total + one
    return (total / len(values) if divide == "last" else total).item()
