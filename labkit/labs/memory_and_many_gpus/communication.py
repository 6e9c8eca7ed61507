"""What ranks send one another: sums around a ring, and a hook of DDP that sends fewer bits."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.distributed as dist


def ring(
    values: Sequence[float],
    dtype: torch.dtype,
    *,
    order: Sequence[int] | None = None,
    divide: Literal["first", "last"] | None = None,
) -> float:
    """The sum of one number of each rank, rounded to ``dtype`` after each addition.

    So adds a ring whose messages have this dtype. Other reductions add in a wider one.

    Args:
        values: one number for each rank; it is rounded first.
        dtype: of the messages and the additions.
        order: the ranks in the order of the ring, each once; 0, 1, 2, ... by default.
        divide: "first" gives the mean of values that are divided before they are sent, "last" that
            of a sum that is divided; None the sum.

    Raises:
        ValueError: no values, an order that is none, or another word in ``divide``.
    """
    ranks = range(len(values))
    order = ranks if order is None else order
    if not values or sorted(order) != list(ranks):
        raise ValueError(
            f"the order {list(order)!r} does not name each of {len(values)} ranks once"
        )
    if divide not in (None, "first", "last"):
        raise ValueError(f'divide is {divide!r}; "first", "last" or None is wanted')
    sent = torch.tensor(values, dtype=dtype)
    if divide == "first":
        sent = sent / len(values)
    total, *rest = (sent[rank] for rank in order)
    for one in rest:
        total = total + one
    return (total / len(values) if divide == "last" else total).item()


def cast_hook(
    dtype: torch.dtype,
) -> Callable[[dist.ProcessGroup, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A communication hook that sends each gradient in ``dtype``, divided before it is sent.

    ``model.register_comm_hook(group, cast_hook(torch.bfloat16))`` on DistributedDataParallel; as
    torch's ``bf16_compress_hook``, for any dtype. The gradient that DDP gets has its own dtype.
    """

    def hook(
        group: dist.ProcessGroup, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        gradient = bucket.buffer()
        sent = gradient.to(dtype).div_(group.size())
        work = dist.all_reduce(sent, group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0].to(gradient.dtype))

    return hook
