"""The lists of lab 05's small autocast: which functions run in 16 bits, which in float32."""

LOW = frozenset(["linear", "conv1d", "conv2d", "conv3d", "matmul", "mm", "bmm", "addmm", "einsum"])
"""Names of functions that autocast runs in 16 bits: products."""

WIDE = frozenset(
    "softmax log_softmax nll_loss mse_loss layer_norm exp log pow sum norm cumsum".split()  # noqa: SIM905
)
"""Names of functions that autocast runs in float32: range or long sums."""
