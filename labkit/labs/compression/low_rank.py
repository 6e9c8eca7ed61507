"""Low rank: a linear layer as two thin ones, and the rank from which on that saves nothing."""

import torch
from torch import nn


def rank_limit(rows: int, columns: int) -> int:
    """The largest rank whose two factors hold fewer numbers than the matrix.

    A rank r takes r * (rows + columns) numbers in place of rows * columns.

    >>> rank_limit(256, 256), rank_limit(512, 256)
    (127, 170)
    """
    return (rows * columns - 1) // (rows + columns)


@torch.no_grad()
def factorise(linear: nn.Linear, rank: int) -> nn.Sequential:
    """Two linear layers whose weights multiply to the original's best one of this rank.

    They have the dtype and the device of the original. The singular values are computed in float32,
    because torch has no SVD in 16 bits on a CPU. Each factor gets their square roots: all of them
    in one factor overflow FP16 sooner. The error in the Frobenius norm is the root of the sum of
    the squares of the other singular values (Eckart and Young 1936).

    Raises:
        ValueError: the rank is below 1 or above that of the weight's shape.
    """
    rows, columns = linear.weight.shape
    if not 1 <= rank <= min(rows, columns):
        raise ValueError(f"rank {rank} of a {rows} x {columns} weight: 1 to {min(rows, columns)}")
    left, values, right = torch.linalg.svd(linear.weight.float(), full_matrices=False)
    scale = values[:rank].sqrt()
    device = linear.weight.device
    thin = nn.Linear(columns, rank, bias=False, device=device)
    wide = nn.Linear(rank, rows, bias=linear.bias is not None, device=device)
    thin.weight.copy_(scale[:, None] * right[:rank])
    wide.weight.copy_(left[:, :rank] * scale)
    if linear.bias is not None:
        wide.bias.copy_(linear.bias)
    return nn.Sequential(thin, wide).to(linear.weight.dtype)
