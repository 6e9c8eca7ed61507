"""A GPU gives the bits a CPU gives.

Where a GPU is: ``pytest tests/formats/test_formats_cuda.py``.
"""

import numpy as np
import pytest
import torch
from rounding_oracle import DETERMINISTIC, hard_points

from labkit.formats import FORMATS, FP16, decode, encode, quantize, spacing

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False"
)


def points(fmt, dtype):
    """The hard points of the format, or of fp16 for a format too large to list, and random bits."""
    x = torch.from_numpy(hard_points(fmt if fmt.bits <= 16 else FP16, dtype))
    integer = torch.int32 if x.dtype == torch.float32 else torch.int64
    info = torch.iinfo(integer)
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(info.min, info.max, (100_000,), generator=generator)
    return torch.cat([x, bits.to(integer).view(x.dtype)])


def same_bits(a, b):
    """Equal bits, every NaN counting as the same."""
    integer = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(
        a.nan_to_num(7, torch.inf, -torch.inf).view(integer),
        b.nan_to_num(7, torch.inf, -torch.inf).view(integer),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)
def test_a_gpu_gives_the_bits_of_a_cpu(fmt, dtype):
    x = points(fmt, dtype)
    for rounding in DETERMINISTIC:
        for saturate in (False, True):
            want = quantize(x, fmt, rounding=rounding, saturate=saturate)
            got = quantize(x.cuda(), fmt, rounding=rounding, saturate=saturate)
            assert got.is_cuda and got.dtype == x.dtype
            assert same_bits(got.cpu(), want), (rounding, saturate)
    assert same_bits(spacing(x.cuda(), fmt).cpu(), spacing(x, fmt))


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)
def test_codes_on_a_gpu(fmt):
    x = points(fmt, np.float32)
    x = x[~x.isnan() & (x >= (-torch.inf if fmt.signed else 0))]
    codes = encode(x.cuda(), fmt)
    assert codes.is_cuda and torch.equal(codes.cpu(), encode(x, fmt))
    assert same_bits(decode(codes, fmt).cpu(), decode(codes.cpu(), fmt))


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)
def test_stochastic_rounding_on_a_gpu(fmt):
    x = torch.rand(100_000, device="cuda") * 4
    first, second = (
        quantize(
            x,
            fmt,
            rounding="stochastic",
            generator=torch.Generator("cuda").manual_seed(3),
        )
        for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(quantize(first, fmt, rounding="stochastic"), first)
    down, up = (quantize(x, fmt, rounding=rounding) for rounding in ("down", "up"))
    assert ((first == down) | (first == up)).all()
