"""A model on many ranks: bytes by ZeRO stage, a divided layer, a rank's place in a mesh."""

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

WEIGHT_BYTES = 2
"""Of a weight in BF16, and of its gradient."""

STATE_BYTES = 12
"""Of a weight's FP32 master and Adam's two moments."""


def zero_bytes(parameters: int, ranks: int, stage: int) -> int:
    """Bytes that each of ``ranks`` keeps of a model, without activations.

    BF16 weights and gradients, FP32 states of Adam. Stage 0 is data parallel. ZeRO stage 1 divides
    the states among the ranks, stage 2 the gradients as well, stage 3 the weights too (Rajbhandari
    et al., arXiv:1910.02054, section 3). The last share is filled up to the size of the others.

    Raises:
        ValueError: a stage other than 0 to 3, or less than one rank.
    """
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage is {stage!r}; ZeRO has the stages 0, 1, 2 and 3")
    if ranks < 1:
        raise ValueError(f"{ranks} ranks; 1 or more are wanted")
    share = -(-parameters // ranks)
    weights, gradients, states = (share if stage >= first else parameters for first in (3, 2, 1))
    return WEIGHT_BYTES * (weights + gradients) + STATE_BYTES * states


def column_row(group: dist.ProcessGroup, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """A feed-forward pair, ``down(gelu(up(x)))``, divided among the ranks of a group.

    Tensor parallelism as in Megatron-LM (arXiv:1909.08053, section 3): each rank has some rows of
    ``up``, which are hidden units, and the same columns of ``down``. What the ranks compute adds up
    to the output, by one all-reduce. The forward pass alone.

    Args:
        group: the ranks; each gets the whole output.
        x: (..., in), alike on all ranks.
        up: (hidden, in), of which each rank reads its rows.
        down: (out, hidden), of which each rank reads its columns.

    Raises:
        ValueError: the hidden units cannot be divided among the ranks.
    """
    rank, size = group.rank(), group.size()
    if len(up) % size:
        raise ValueError(f"{len(up)} hidden units cannot be divided among {size} ranks")
    hidden = F.gelu(F.linear(x, up.chunk(size, dim=0)[rank]))
    y = F.linear(hidden, down.chunk(size, dim=1)[rank])
    dist.all_reduce(y, group=group)
    return y


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """A rank's place in a mesh: its replica, its stage of the pipeline, its part of each layer.

    ``tensor_group`` are the ranks that hold the other parts of its layers, itself included.
    """

    data: int
    pipeline: int
    tensor: int
    tensor_group: tuple[int, ...]


def coordinates(rank: int, *, dp: int, pp: int, tp: int, world: int) -> Coordinates:
    """Where a rank stands in a mesh of ``dp`` x ``pp`` x ``tp`` ranks; neighbours share layers.

    Tensor parallelism sends most, so its groups are ranks in a row: those of one machine.

    Raises:
        ValueError: the mesh has not as many places as there are ranks, or there is no such rank.
    """
    if dp * pp * tp != world:
        raise ValueError(f"{dp} x {pp} x {tp} = {dp * pp * tp} is not {world}")
    if not 0 <= rank < world:
        raise ValueError(f"rank is {rank}; a world of {world} has the ranks 0 to {world - 1}")
    first = rank - rank % tp
    return Coordinates(
        data=rank // (pp * tp),
        pipeline=rank // tp % pp,
        tensor=rank % tp,
        tensor_group=tuple(range(first, first + tp)),
    )
