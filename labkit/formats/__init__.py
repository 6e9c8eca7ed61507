"""A number format is data: which numbers exist, and what rounding to them does to a tensor.

Read ``float_formats`` first (a format, and fifteen of them), then ``tensors`` (``quantize``,
``encode``, ``decode``, ``spacing``) and ``inputs`` (which tensors are taken), ``rounding`` below
them, ``rounding_kernel`` (the same for large tensors, compiled), ``integers`` (affine integers,
their scales and zero points), ``block_scaling`` (``scaled``, ``mx``, ``nvfp4``: codes of few bits
with the scales that multiply them out), ``histograms`` (what a format does to a tensor, as a
record), ``accumulators`` (sums of few bits), ``matmul`` (which dtypes a matmul reads, adds in and
stores), ``exact`` (formats in fractions), ``expressions`` (how questions state numbers) and
``written_numbers`` (numbers as people type them). Only names that work on tensors import torch.
"""

from typing import TYPE_CHECKING

from labkit.base.home import lazily
from labkit.formats.float_formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FP64,
    SPECIALS,
    TF32,
    FloatFormat,
)

if TYPE_CHECKING:
    from labkit.formats.block_scaling import ScaledTensor, mx, nvfp4, scaled
    from labkit.formats.integers import (
        QuantParams,
        choose,
        dequantize_affine,
        fake_quantize,
        quantize_affine,
    )
    from labkit.formats.rounding import ROUNDINGS
    from labkit.formats.tensors import decode, encode, quantize, spacing

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M2",
    "E3M4",
    "E4M3",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "E8M0",
    "FORMATS",
    "FP16",
    "FP32",
    "FP64",
    "ROUNDINGS",
    "SPECIALS",
    "TF32",
    "FloatFormat",
    "QuantParams",
    "ScaledTensor",
    "choose",
    "decode",
    "dequantize_affine",
    "encode",
    "fake_quantize",
    "mx",
    "nvfp4",
    "quantize",
    "quantize_affine",
    "scaled",
    "spacing",
]

__getattr__ = lazily(
    __name__,
    {
        "block_scaling": "ScaledTensor mx nvfp4 scaled",
        "integers": "QuantParams choose dequantize_affine fake_quantize quantize_affine",
        "rounding": "ROUNDINGS",
        "tensors": "decode encode quantize spacing",
    },
)
