"""Which zeros a tensor holds: exact ones, those that only a cast would make, and their pattern."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """Shares of a tensor, each from 0 to 1.

    Args:
        exact: of values that are 0, of either sign; NaN and inf are none.
        made_by_cast: of values that are not 0 and that the cast turns into 0.
        rows, columns: of whole rows and columns that are 0; NaN where the tensor is no matrix.
        two_of_four: each group of four neighbours of a row has at most two values that are not 0;
            False where a row is no multiple of four.
    """

    exact: float
    made_by_cast: float
    rows: float
    columns: float
    two_of_four: bool

    def describe(self) -> str:
        """One line, with what a cast would add apart from what is there."""
        pattern = "every group of 4 has at most 2 values" if self.two_of_four else "not 2:4"
        return (
            f"{self.exact:.1%} exact zeros, {self.made_by_cast:.1%} made by the cast; whole rows "
            f"{self.rows:.1%}, whole columns {self.columns:.1%}; {pattern}"
        )


@torch.no_grad()
def sparsity(x: Tensor, dtype: torch.dtype) -> Sparsity:
    """The zeros of a tensor, and those that a cast to ``dtype`` would add.

    >>> x = torch.tensor([[0.0, 1e-9, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    >>> sparsity(x, torch.float16).describe()
    '75.0% exact zeros, 12.5% made by the cast; whole rows 50.0%, whole columns 50.0%; \
every group of 4 has at most 2 values'
    """
    zero = x == 0
    made = (x.to(dtype).float() == 0) & ~zero
    matrix = x.ndim == 2
    groups = matrix and x.shape[1] % 4 == 0
    return Sparsity(
        exact=zero.double().mean().item(),
        made_by_cast=made.double().mean().item(),
        rows=zero.all(dim=1).double().mean().item() if matrix else float("nan"),
        columns=zero.all(dim=0).double().mean().item() if matrix else float("nan"),
        two_of_four=groups and bool((zero.view(-1, 4).sum(dim=1) >= 2).all()),
    )
