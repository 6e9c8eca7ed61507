"""A real Tensor Core keeps the interval too.

Where a GPU is: ``pytest tests/emulation/test_tensor_core_cuda.py``.

Its sums truncate, so u is 2**-23. Sums split over K may by default meet in 16 bits; that is
switched off here. Kernels that cuDNN may compute by Winograd, which rounds inside, are left out.
"""

import pytest
import torch
import torch.nn.functional as F
from intervals import (
    ADVERSARIES,
    CONVOLUTIONS,
    FORMATS,
    LOW,
    TRUNCATED,
    assert_inside,
    bound,
    gradients,
    interval,
    judge,
    nearly_cancelling,
    plain,
)

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False"
)


@pytest.fixture(autouse=True)
def sums_in_float32(monkeypatch):
    matmul = torch.backends.cuda.matmul
    monkeypatch.setattr(matmul, "allow_fp16_reduced_precision_reduction", False)
    monkeypatch.setattr(matmul, "allow_bf16_reduced_precision_reduction", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@LOW
@ADVERSARIES
@pytest.mark.parametrize("k", [8, 64, 1000, 8192])
def test_mm(low, values, k):
    torch.manual_seed(k)
    b = values((k, 16), low) if values is not nearly_cancelling else torch.ones(k, 16).to(low)
    judge(torch.mm, values((16, k), low), b, terms=k, unit=TRUNCATED, device="cuda")


@LOW
def test_a_linear_layer_rounds_once(low):
    torch.manual_seed(0)
    x, weight, bias = plain((64, 512), low), plain((64, 512), low), plain((64,), low)
    judge(F.linear, x, weight, bias, terms=513, unit=TRUNCATED, device="cuda")


@LOW
@pytest.mark.parametrize("k", [1024, 8192])
def test_exact_partial_sums_give_the_rounded_sum_itself(low, k):
    torch.manual_seed(k)
    a, b = torch.randint(-8, 9, (64, k)), torch.randint(-8, 9, (k, 64))
    wanted = torch.mm(a.double(), b.double()).to(low)
    assert torch.equal(torch.mm(a.to("cuda", low), b.to("cuda", low)).cpu(), wanted)


@LOW
@pytest.mark.parametrize("name", ["2-D strided", "2-D dilated", "1-D"])
def test_convolutions_and_their_gradients(low, name):
    torch.manual_seed(0)
    shape, kernel, settings = CONVOLUTIONS[name]
    op = getattr(F, f"conv{len(shape) - 2}d")
    x, weight = plain(shape, low), plain(kernel, low)
    terms = kernel[1] * kernel[2] * (kernel[3] if len(kernel) > 3 else 1)
    y = judge(
        lambda x, w: op(x, w, **settings), x, weight, terms=terms, unit=TRUNCATED, device="cuda"
    )
    grad = plain(tuple(y.shape), low)
    terms = max(x.numel(), y.numel(), weight.numel())  # no gradient sums more products than these
    results = gradients(op, settings, *[t.cuda() for t in (x, weight, grad)])
    exact = gradients(op, settings, *[t.double() for t in (x, weight, grad)])
    sizes = gradients(op, settings, *[t.double().abs() for t in (x, weight, grad)])
    for result, value, magnitude in zip(results, exact, sizes, strict=True):
        error = bound(magnitude, terms, TRUNCATED)
        assert_inside(result.cpu(), interval(value, error, FORMATS[low]))
