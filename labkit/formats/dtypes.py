"""The dtypes of this course, a row each: the short name, torch's name, the bytes, the format.

Importing it does not load torch: what a machine can do is asked before torch is there. Only
``Dtype.torch`` does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.formats.float_formats import BF16, E2M1, E4M3, FP16, FP32, FP64, TF32, FloatFormat

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Dtype:
    """A dtype as people, torch and memory know it.

    Args:
        short: the name that people say, and the tables of this course: "bf16".
        name: the name that torch gives to its tensors: "bfloat16".
        bytes: what one value takes in memory.
        format: the values that it has; None for integers.
    """

    short: str
    name: str
    bytes: int | float
    format: FloatFormat | None

    @property
    def torch(self) -> "torch.dtype":
        """torch's own."""
        import torch

        return getattr(torch, self.name)


_ROWS = (
    Dtype("fp64", "float64", 8, FP64),
    Dtype("fp32", "float32", 4, FP32),
    Dtype("tf32", "float32", 4, TF32),  # a way to multiply float32, kept as float32
    Dtype("fp16", "float16", 2, FP16),
    Dtype("bf16", "bfloat16", 2, BF16),
    Dtype("fp8", "float8_e4m3fn", 1, E4M3),
    Dtype("fp4", "float4_e2m1fn_x2", 0.5, E2M1),  # two in each element
    Dtype("int8", "int8", 1, None),
)

DTYPE_NAMED = {row.short: row for row in _ROWS}
"""The rows by their short names."""

_OF_TORCH = {row.name: row for row in _ROWS if row.short != "tf32"}


def dtype_of(dtype: "torch.dtype") -> Dtype:
    """The row of a torch dtype; ValueError for one that the course does not speak of.

    >>> import torch
    >>> dtype_of(torch.bfloat16).short, dtype_of(torch.float32).format.name
    ('bf16', 'fp32')
    """
    try:
        return _OF_TORCH[name_of(dtype)]
    except KeyError:
        raise ValueError(f"dtype={dtype}: one of {', '.join(_OF_TORCH)}") from None


def format_of(dtype: "torch.dtype") -> FloatFormat:
    """The format of a torch dtype; ValueError where it is no floating point dtype of the course."""
    fmt = dtype_of(dtype).format
    if fmt is None:
        raise ValueError(f"dtype={dtype}: integers have no floating point format")
    return fmt


def name_of(dtype: object) -> str:
    """torch's name of any of its dtypes, without "torch." before it.

    >>> import torch
    >>> name_of(torch.int64)
    'int64'
    """
    return str(dtype).removeprefix("torch.")
