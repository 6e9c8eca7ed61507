"""What several checks of lab 03 need: a row as text, inputs by a seed."""

import torch


def row_text(row):
    """The values of a vector in brackets: whole numbers as they are, others with four digits."""
    texts = (f"{value:.8g}" if value.is_integer() else f"{value:.4g}" for value in row.tolist())
    return f"[{', '.join(texts)}]"


def uniform_tensor(seed, *shape):
    """Numbers from 0 to 1 as a float32 tensor of this shape, the same for the same seed."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
