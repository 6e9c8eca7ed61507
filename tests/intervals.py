"""Where exact sums, a derived error bound and one rounding put a 16-bit result.

Every operator judged here is linear in each of its tensors, so ``op(|a|, |b|)`` is the sum of the
magnitudes of its products, and one float64 run gives the sum S itself. float32 additions of k
terms in any order miss S by at most E = gamma_k * sum|a_i b_i|, gamma_k = k u / (1 - k u),
u = 2**-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Additions that
truncate, as those of a Tensor Core do (Fasi et al., PeerJ CS-330), lose up to twice as much each.
Rounding is monotone, so a result rounded once lies between the rounded ends of S - E and S + E.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from labkit.formats import BF16, FP16, FloatFormat, quantize

ROUNDED, TRUNCATED = 2.0**-24, 2.0**-23
"""The unit roundoff of float32 additions to nearest, and of those that truncate."""

FORMATS = {torch.float16: FP16, torch.bfloat16: BF16}
LOW = pytest.mark.parametrize("low", FORMATS, ids=["fp16", "bf16"])


def bound(magnitude: Tensor, terms: int, unit: float = ROUNDED) -> Tensor:
    """E for float32 sums, plus what the float64 reference itself may miss."""
    ku = terms * unit
    return magnitude * (ku / (1 - ku) + terms * 2.0**-52)


def interval(exact: Tensor, error: Tensor, fmt: FloatFormat) -> tuple[Tensor, Tensor]:
    return quantize(exact - error, fmt), quantize(exact + error, fmt)


def assert_inside(result: Tensor, ends: tuple[Tensor, Tensor]) -> None:
    low, high = ends
    wide = result.double()
    outside = ~((low <= wide) & (wide <= high))
    assert not outside.any(), (
        f"{outside.sum()} of {outside.numel()} outside, such as "
        f"{wide[outside][0]} of [{low[outside][0]}, {high[outside][0]}]"
    )


def judge(
    op: Callable[..., Tensor], *args: Tensor, terms: int, unit: float = ROUNDED, device="cpu"
) -> Tensor:
    """Run a linear operator on a device and compare with its interval; returns the result."""
    result = op(*[x.to(device) for x in args]).cpu()
    assert result.dtype is args[0].dtype
    doubles = [x.double() for x in args]
    error = bound(op(*[x.abs() for x in doubles]), terms, unit)
    assert_inside(result, interval(op(*doubles), error, FORMATS[args[0].dtype]))
    return result


def plain(shape: tuple[int, ...], low: torch.dtype) -> Tensor:
    return torch.randn(shape).to(low)


def many_exponents(shape: tuple[int, ...], low: torch.dtype) -> Tensor:
    """Exponents from 2**-14 to 2**7, signs at random: sums are made by few of their terms."""
    return (
        torch.randn(shape).sign() * torch.rand(shape).add(1) * 2.0 ** torch.randint(-14, 8, shape)
    ).to(low)


def with_subnormals(shape: tuple[int, ...], low: torch.dtype) -> Tensor:
    return (torch.randn(shape) * 2.0 ** torch.randint(-26, -8, shape)).to(low)


def nearly_cancelling(shape: tuple[int, ...], low: torch.dtype) -> Tensor:
    """Along the last axis each value is followed by its negative, one in eight slightly off."""
    half = torch.randn(*shape[:-1], (shape[-1] + 1) // 2)
    off = 1 + 2.0**-6 * (torch.rand(half.shape) < 0.125)
    return torch.stack([half, -half * off], dim=-1).flatten(-2)[..., : shape[-1]].to(low)


ADVERSARIES = pytest.mark.parametrize(
    "values", [plain, many_exponents, with_subnormals, nearly_cancelling]
)

CONVOLUTIONS = {
    "1-D": ((2, 4, 20), (6, 4, 5), {"padding": 2}),
    "2-D": ((2, 4, 9, 9), (6, 4, 3, 3), {"padding": 1}),
    "2-D strided": ((2, 4, 9, 9), (6, 4, 3, 3), {"stride": 2}),
    "2-D grouped": ((2, 4, 9, 9), (6, 2, 3, 3), {"groups": 2}),
    "2-D depthwise": ((2, 4, 9, 9), (4, 1, 3, 3), {"groups": 4}),
    "2-D dilated": ((2, 4, 9, 9), (6, 4, 3, 3), {"dilation": 2}),
    "2-D of many channels": ((1, 512, 5, 5), (3, 512, 3, 3), {}),
    "3-D": ((2, 3, 5, 5, 5), (4, 3, 3, 3, 3), {}),
}


def gradients(op, settings, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    op(x, weight, **settings).backward(grad)
    return x.grad, weight.grad
