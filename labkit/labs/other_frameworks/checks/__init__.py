"""Checks of lab 14: a port from Keras, dtypes in a jaxpr, and two training steps in JAX.

A run imports Keras or JAX beside the answer. No judge does: it sees plain data, and computes what
is right with NumPy and torch.
"""

from labkit.labs.other_frameworks.checks.matmul_dtypes import check_matmul_dtypes
from labkit.labs.other_frameworks.checks.scaled_step import check_scaled_step
from labkit.labs.other_frameworks.checks.step import check_step
from labkit.labs.other_frameworks.checks.twin import check_twin

__all__ = ["check_matmul_dtypes", "check_scaled_step", "check_step", "check_twin"]
