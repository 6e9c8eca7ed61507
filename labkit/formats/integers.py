"""Affine integers: a grid of 2**bits equal steps on which 0.0 stands exactly, and rounding to it.

``choose`` lays the grid over a range, ``quantize_affine`` gives the codes of values on it and
``dequantize_affine`` the values of codes. ``fake_quantize`` does both in floating point and lets
gradients pass. ``QuantParams.axis`` says who shares a scale:

    choose(*w.aminmax(), bits=8, symmetric=True)                   # the tensor
    choose(*w.aminmax(dim=1), bits=8, symmetric=True, axis=0)      # each row
    groups = w.unflatten(1, (-1, 32))                              # each 32 weights of a row
    choose(*groups.aminmax(dim=2), bits=4, symmetric=True, axis=(0, 1))

After Jacob et al. 2018 (arXiv:1712.05877), section 2.1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.formats.inputs import FLOATS, INTEGERS, plain_tensor

BITS = range(2, 17)
"""How many bits a code may have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantParams:
    """A grid: the code q stands for (q - zero_point) * scale.

    Args:
        scale: the step, float32, finite and above 0; 0-d, or one for each place along ``axis``.
        zero_point: the code of 0.0, int32, of the same shape.
        low, high: the smallest and the largest code.
        axis: None where all values share one scale; else the dimension, or the dimensions in
            order, along which scales differ.

    Raises:
        ValueError: a scale or a zero point is not as described.
    """

    scale: Tensor
    zero_point: Tensor
    low: int
    high: int
    axis: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not (self.scale.isfinite() & (self.scale > 0)).all():
            raise ValueError(f"scale={self.scale}: a step is finite and above 0")
        if self.scale.shape != self.zero_point.shape:
            raise ValueError(
                f"{_sizes(self.scale)} scales and {_sizes(self.zero_point)} zero points: "
                "each scale has one"
            )
        if not ((self.low <= self.zero_point) & (self.zero_point <= self.high)).all():
            raise ValueError(
                f"zero_point={self.zero_point}: 0.0 needs a code from {self.low} to {self.high}"
            )

    @property
    def dtype(self) -> torch.dtype:
        """The smallest integer dtype that holds the codes."""
        dtypes = (torch.uint8, torch.int8, torch.int16, torch.int32)
        spans = ((torch.iinfo(dtype), dtype) for dtype in dtypes)
        return next(d for span, d in spans if span.min <= self.low and self.high <= span.max)


def choose(
    lo: Tensor | float,
    hi: Tensor | float,
    *,
    bits: int,
    symmetric: bool,
    axis: int | tuple[int, ...] | None = None,
) -> QuantParams:
    """The grid of 2**bits codes that covers lo to hi, with 0.0 on it.

    Affine (not symmetric) codes run from 0 to 2**bits - 1, and the range is widened to contain 0.
    Symmetric ones run from -(2**(bits-1) - 1) to its opposite, and the zero point is 0. A range of
    0 to 0 gets the scale 1.

    Args:
        lo, hi: numbers, or real tensors with one value for each place along ``axis``.
        bits: 2 to 16.

    Raises:
        TypeError: a bound is another kind of tensor.
        ValueError: ``bits`` lies outside, a bound is NaN or infinite, or lo is above hi.

    >>> grid = choose(-1.0, 3.0, bits=8, symmetric=False)
    >>> round(grid.scale.item(), 6), grid.zero_point.item()
    (0.015686, 64)
    """
    if bits not in BITS:
        raise ValueError(f"bits={bits!r}: pass a whole number from {BITS[0]} to {BITS[-1]}")
    # In float64: hi - lo of two float32 values may be beyond the largest of them.
    low, high = (_real(torch.as_tensor(bound), "lo and hi").double() for bound in (lo, hi))
    if not (low.isfinite() & high.isfinite()).all():
        raise ValueError(f"the range {lo} to {hi} is not finite; look for NaN and inf in the data")
    if (low > high).any():
        raise ValueError(f"the range {lo} to {hi} ends below its beginning: pass lo, then hi")
    if symmetric:
        last = 2 ** (int(bits) - 1) - 1
        first, span = -last, 2 * torch.maximum(low.abs(), high.abs())
    else:
        first, last = 0, 2 ** int(bits) - 1
        low, high = low.clamp(max=0), high.clamp(min=0)
        span = high - low
    scale = (span / (last - first)).float()
    # A range of subnormal numbers still has a step.
    scale = torch.where(span > 0, scale.clamp(min=torch.finfo(torch.float32).tiny), 1.0)
    if symmetric:
        zero = torch.zeros_like(scale)
    else:
        zero = (first - low / scale.double()).round().clamp(first, last)
    return QuantParams(scale=scale, zero_point=zero.int(), low=first, high=last, axis=axis)


def quantize_affine(x: Tensor, params: QuantParams) -> Tensor:
    """Codes of x: x / scale rounded to nearest, ties to even, plus the zero point, saturated.

    Values beyond the grid, infinite ones too, get its first or last code. The codes have x's shape
    and ``params.dtype``. ``torch.quantize_per_tensor`` multiplies by 1 / scale and adds the zero
    point before it rounds, so where x / scale is a tie, or nearly, it may give the next code.

    Raises:
        TypeError: x is no dense tensor of 16-bit to 64-bit floats or of integers.
        ValueError: x holds NaN, or has other sizes along the axis than there are scales.

    >>> grid = choose(-1.0, 3.0, bits=8, symmetric=False)
    >>> quantize_affine(torch.tensor([-9.0, 0.0, 1.0, 3.0]), grid)
    tensor([  0,  64, 128, 255], dtype=torch.uint8)
    """
    return _codes(x, params).clamp(params.low, params.high).to(params.dtype)


def dequantize_affine(codes: Tensor, params: QuantParams) -> Tensor:
    """The values that the codes, of any real dtype, stand for: float32, of the codes' shape.

    Raises:
        TypeError: the codes are no dense tensor of 16-bit to 64-bit floats or of integers.
        ValueError: the codes have other sizes along the axis than there are scales.

    >>> grid = choose(-1.0, 1.0, bits=2, symmetric=True)
    >>> dequantize_affine(torch.tensor([-1, 0, 1]), grid)
    tensor([-1.,  0.,  1.])
    """
    codes = _real(codes, "codes")
    scale, zero = _spread(params, codes)
    return (codes.float() - zero) * scale


def fake_quantize(x: Tensor, params: QuantParams) -> Tensor:
    """The nearest values on the grid, float32 (float64 of a float64 x), with a gradient.

    Rounding has the derivative 0 almost everywhere, and nothing would learn. The straight-through
    estimator (Bengio et al. 2013, arXiv:1308.3432) takes 1 where x has a code of its own and 0
    where x saturates, as ``torch.fake_quantize_per_tensor_affine`` does. Scales get no gradient.

    Raises:
        TypeError, ValueError: as ``quantize_affine``.

    >>> x = torch.tensor([0.3, 7.0], requires_grad=True)
    >>> y = fake_quantize(x, choose(-1.0, 1.0, bits=3, symmetric=True))
    >>> y.sum().backward()
    >>> y.detach(), x.grad
    (tensor([0.3333, 1.0000]), tensor([1., 0.]))
    """
    return _StraightThrough.apply(x, params)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, params: QuantParams) -> Tensor:  # type: ignore[no-untyped-def]
        codes = _codes(x, params)
        ctx.save_for_backward((codes >= params.low) & (codes <= params.high))
        scale, zero = _spread(params, x)
        return (codes.clamp(params.low, params.high) - zero) * scale

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (inside,) = ctx.saved_tensors
        return gradient * inside, None


def _codes(x: Tensor, params: QuantParams) -> Tensor:
    """Codes before they saturate, whole numbers in a floating dtype."""
    x = _real(x, "x")
    if x.isnan().any():
        raise ValueError("x holds NaN, which no code stands for")
    scale, zero = _spread(params, x)
    # bfloat16 / a 0-d float32 scale would stay bfloat16, whose 8 bits lose codes.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide / scale).round() + zero


def _real(x: Tensor, name: str) -> Tensor:
    return plain_tensor(x, name, FLOATS + INTEGERS, "convert it with .float()").detach()


def _spread(params: QuantParams, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and zero points in a shape that broadcasts against x."""
    if params.axis is None:
        axes: tuple[int, ...] = ()
    else:
        axes = params.axis if isinstance(params.axis, tuple) else (params.axis,)
    if any(not -x.ndim <= axis < x.ndim for axis in axes):
        raise ValueError(f"axis={params.axis} of a tensor of {x.ndim} dimensions")
    sizes = [x.shape[axis] for axis in axes]
    if list(params.scale.shape) != sizes:
        raise ValueError(
            f"{_sizes(params.scale)} scales for axis={params.axis} of a tensor of "
            f"{_sizes(x)}: each place along the axis has one"
        )
    shape = [1] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return params.scale.view(shape), params.zero_point.view(shape)


def _sizes(x: Tensor) -> str:
    return " x ".join(map(str, x.shape)) or "1"
