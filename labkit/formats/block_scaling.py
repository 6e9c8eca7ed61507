"""Block scaling: a tensor as codes of few bits and the scales that multiply them out.

FP8 and FP4 have too little range for gradients and activations. So a tensor is divided by a scale
before the cast, and whoever reads the codes multiplies by it again. ``scaled`` gives one scale to
the tensor, to each row or to each block; ``mx`` and ``nvfp4`` are the two block formats that
hardware has. All three return a ``ScaledTensor``.

A scale here is a **descale**: ``codes * scales`` is the tensor again, as ``F.scaled_mm``, OCP MX
and torchao have it. Transformer Engine's scale is the reciprocal.

What holds for all three functions:

- ``x`` is a float32, bfloat16 or float16 tensor with at least one value. The arithmetic is
  float32's, in the order of torchao's reference code, and results are detached from x's graph.
- ``overflow`` says what becomes of a value that rounds past the format's largest, and has no
  default, because casts of torch, of ml_dtypes and of GPUs differ. ``"saturate"`` gives the
  largest, ``"nan"`` gives NaN (ValueError for a format without NaN, such as E2M1), ``"raise"``
  raises ValueError, for inf and NaN in x too.
- An axis must be whole blocks. Nothing is padded: the error says how many zeros are missing.
- A block of zeros has codes of 0 and a finite scale above 0. In any other, inf counts as float32's
  largest value when the scale is chosen. A NaN makes its block's scale NaN and so all its values.
- Under ``torch.set_flush_denormal(True)`` scales below 2**-126 count as 0.

Sources: OCP Microscaling Formats (MX) v1.0, sections 5 and 6.3; NVIDIA's NVFP4 (arXiv:2509.25149);
DeepSeek-V3 (arXiv:2412.19437, section 3.3: blocks of 1x128 and 128x128).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labkit.formats.float_formats import E2M1, E4M3, E5M2, E8M0, FP32, FloatFormat
from labkit.formats.inputs import plain_tensor
from labkit.formats.tensors import quantize

OVERFLOWS = ("saturate", "nan", "raise")
GRANULARITIES = ("tensorwise", "rowwise", "block")
MX_RULES = ("floor", "up", "even")

Block = int | tuple[int, int]
"""Values along one axis, or (rows, columns) of the last two axes."""

_TAKEN = (torch.float32, torch.bfloat16, torch.float16)
_FLOAT8 = {E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}
_E8M0_NAN = 255
_SMALLEST = FP32.smallest_subnormal


@dataclass(frozen=True, kw_only=True)
class ScaledTensor:
    """A tensor as codes and descales: ``codes * scales * tensor_scale`` is the tensor again.

    Args:
        codes: the shape of x. A float8 dtype for E4M3 and E5M2; for other formats, which torch
            cannot hold one to an element, float32 values of the format.
        scales: float32, float8_e8m0fnu or float8_e4m3fn. No axes where the tensor has one scale;
            else x's axes, with one entry for each row or block.
        tensor_scale: NVFP4's second scale, float32 without axes; None elsewhere.
        fmt: the format of the codes.
        block: values along ``axis`` that share a scale, or (rows, columns) of the last two axes;
            None where a tensor or a row has one scale.
        axis: the axis along which rows or blocks run, not negative.
    """

    codes: Tensor
    scales: Tensor
    tensor_scale: Tensor | None
    fmt: FloatFormat
    block: Block | None
    axis: int

    def dequantize(self) -> Tensor:
        """The values that the codes stand for, float32, with the shape of x."""
        scales = self.scales.float()
        if self.tensor_scale is not None:
            scales = self.tensor_scale * scales
        return self.codes.float() * _spread(scales, self.block, self.axis)

    @property
    def bits_per_value(self) -> float:
        """Bits that a value takes in memory, with its share of the scales."""
        scales = [self.scales] if self.tensor_scale is None else [self.scales, self.tensor_scale]
        shared = sum(8 * scale.itemsize * scale.numel() for scale in scales)
        return self.fmt.bits + shared / self.codes.numel()


def scaled(
    x: Tensor,
    fmt: FloatFormat,
    *,
    overflow: str,
    granularity: str = "tensorwise",
    block: Block | None = None,
    scale_format: FloatFormat | None = None,
    axis: int = -1,
    rounding: str = "nearest_even",
    generator: torch.Generator | None = None,
) -> ScaledTensor:
    """Divide x by a scale that takes the largest magnitude to the format's largest value; cast.

    - ``granularity``: ``"tensorwise"`` has one scale, ``"rowwise"`` one for all values along
      ``axis``, ``"block"`` one for each ``block``: an int for so many values along ``axis``, or
      (rows, columns) for tiles of the last two axes, such as (128, 128) for a weight.
    - ``scale_format``: None keeps the descale ``amax / fmt.max`` in float32; E8M0 rounds it up to
      a power of two, so that nothing overflows; E4M3 rounds it to nearest, between 2**-6 (its
      smallest normal value) and 448.
    - ``rounding`` and ``generator`` are those of ``quantize``.

    The largest code is ``fmt.max`` for every amax from 1e-35 up if the scales are float32. The
    module says what holds for inf, NaN, zeros and ``overflow``. Raises TypeError for a tensor of
    other dtypes, ValueError for an unknown word, a wrong ``block`` or an axis of broken blocks.

    >>> from labkit.formats import E4M3
    >>> q = scaled(torch.tensor([0.5, -7.0, 0.01]), E4M3, overflow="saturate")
    >>> q.codes.float(), q.scales
    (tensor([  32.0000, -448.0000,    0.6250]), tensor(0.0156))
    """
    x, axis = _checked(x, fmt, overflow, axis)
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be one of {GRANULARITIES}, got {granularity!r}")
    if (granularity == "block") != (block is not None):
        raise ValueError(f"block={block!r} with granularity={granularity!r}: give both or neither")
    if block is not None:
        amax = _block_amax(x, block, axis)
    elif granularity == "rowwise":
        amax = x.abs().amax(axis, keepdim=True)
    else:
        amax = x.abs().amax()
    if scale_format is None or scale_format == FP32:
        scales = _descale(amax, fmt.max)
        values = _quotient(x, _spread(scales, block, axis))
    elif scale_format == E8M0:
        scales = _power_above(amax, fmt)
        values = _quotient(x, _spread(scales.float(), block, axis))
    elif scale_format == E4M3:
        scales = _e4m3_scales(_finite(amax) / fmt.max)
        values = x * _spread(1 / scales.float(), block, axis)
    else:
        raise ValueError(f"scale_format must be None, FP32, E8M0 or E4M3, got {scale_format!r}")
    codes = _cast(values, fmt, overflow, rounding, generator)
    return ScaledTensor(
        codes=codes, scales=scales, tensor_scale=None, fmt=fmt, block=block, axis=axis
    )


def mx(
    x: Tensor,
    fmt: FloatFormat,
    *,
    overflow: str,
    rule: str = "floor",
    axis: int = -1,
    rounding: str = "nearest_even",
    generator: torch.Generator | None = None,
) -> ScaledTensor:
    """OCP MX: blocks of 32 values along ``axis``, whose scales are powers of two in E8M0.

    ``rule`` chooses the power of two from a block's amax; emax is the exponent of ``fmt.max``.

    - ``"floor"``: floor(log2(amax)) - emax, OCP MX 1.0. It takes amax to somewhere from 2**emax
      to 2**(emax + 1), so values overflow that come to lie past ``fmt.max``: between 448 and 512
      in E4M3, between 6 and 8 in E2M1.
    - ``"up"``: amax / fmt.max rounded up to a power of two, so nothing overflows (cuBLAS, and
      torchao's RCEIL).
    - ``"even"``: as floor, after amax is rounded to the mantissa bits of ``fmt``, ties up.

    Exponents below -127 become -127. ValueError for another rule; the rest as in ``scaled``.

    >>> from labkit.formats import E4M3
    >>> x = torch.full((1, 32), 500.0)
    >>> [mx(x, E4M3, overflow="saturate", rule=rule).scales.item() for rule in MX_RULES]
    [1.0, 2.0, 2.0]
    """
    x, axis = _checked(x, fmt, overflow, axis)
    if rule not in MX_RULES:
        raise ValueError(f"rule must be one of {MX_RULES}, got {rule!r}")
    amax = _block_amax(x, 32, axis)
    if rule == "up":
        scales = _power_above(amax, fmt)
    else:
        # frexp's mantissa lies in [0.5, 1): its exponent is one more than that of 1.m.
        fraction, exponent = torch.frexp(_finite(amax))
        if rule == "even":
            exponent = exponent + (fraction >= 1 - 2.0 ** -(fmt.mantissa_bits + 2)).int()
        scales = _e8m0(exponent - 1 - fmt.max_exponent, amax)
    values = _quotient(x, _spread(scales.float(), 32, axis))
    codes = _cast(values, fmt, overflow, rounding, generator)
    return ScaledTensor(codes=codes, scales=scales, tensor_scale=None, fmt=fmt, block=32, axis=axis)


def nvfp4(
    x: Tensor,
    *,
    overflow: str,
    tensor_scale: bool = True,
    square: bool = False,
    axis: int = -1,
    rounding: str = "nearest_even",
    generator: torch.Generator | None = None,
) -> ScaledTensor:
    """NVFP4: E2M1 in blocks of 16 along ``axis``, E4M3 block scales, one float32 tensor scale.

    The tensor scale is amax / (448 * 6), so that the largest block scale is 448. A block's scale
    is its amax / 6 / tensor scale, rounded to E4M3 and kept from 2**-6 to 448 as in torchao: a
    block below 2**-6 / 448 of the largest has codes below 6. ``tensor_scale=False`` leaves the
    block scales alone, which then cover amaxes from 0.09375 to 2688 only. ``square=True`` has
    blocks of 16x16 of the last two axes, so that a weight and its transpose have the same codes.
    Errors and the rest as in ``scaled``.

    >>> q = nvfp4(torch.linspace(-3, 1.5, 16), overflow="saturate")
    >>> q.codes[:4], q.scales, q.bits_per_value
    (tensor([-6., -6., -4., -4.]), tensor([448.], dtype=torch.float8_e4m3fn), 6.5)
    """
    block: Block = (16, 16) if square else 16
    x, axis = _checked(x, E2M1, overflow, axis)
    amax = _block_amax(x, block, axis)
    largest = _descale(amax.amax(), E4M3.max * E2M1.max) if tensor_scale else None
    second = 1.0 if largest is None else largest
    scales = _e4m3_scales(_finite(amax) / E2M1.max / second)
    factor = 1 / second / scales.float()
    if factor.isinf().any():  # of a tensor so small that the reciprocal is past float32's largest
        values = _quotient(x, _spread((second * scales.float()).clamp(min=_SMALLEST), block, axis))
    else:
        values = x * _spread(factor, block, axis)
    codes = _cast(values, E2M1, overflow, rounding, generator)
    return ScaledTensor(
        codes=codes, scales=scales, tensor_scale=largest, fmt=E2M1, block=block, axis=axis
    )


def _checked(x: Tensor, fmt: FloatFormat, overflow: str, axis: int) -> tuple[Tensor, int]:
    """x detached in float32, and axis counted from the front."""
    x = plain_tensor(x, "x", _TAKEN, "convert integers and float64 with x.float()")
    if not isinstance(fmt, FloatFormat):
        raise TypeError(f"fmt must be a FloatFormat such as labkit.formats.E4M3, got {fmt!r}")
    if not fmt.signed or fmt.bits > 8:
        raise ValueError(f"fmt={fmt.name}: codes have a sign and at most 8 bits")
    if overflow not in OVERFLOWS:
        raise ValueError(f"overflow must be one of {OVERFLOWS}, got {overflow!r}")
    if overflow == "nan" and not fmt.has_nan:
        raise ValueError(f"overflow='nan': {fmt.name} has no NaN; take 'saturate' or 'raise'")
    if not x.numel():
        raise ValueError(f"x has no values: its shape is {tuple(x.shape)}")
    axes = max(x.ndim, 1)
    if not -axes <= axis < axes:
        raise ValueError(f"axis={axis}: x has the shape {tuple(x.shape)}")
    x = x.detach().float()
    if overflow == "raise" and not x.isfinite().all():
        strays = x[~x.isfinite()]
        raise ValueError(f"x has {strays.numel()} values that are inf or NaN")
    return x, axis % axes


def _sizes(block: Block, axis: int, shape: torch.Size) -> dict[int, int]:
    """How many values of which axes share a scale."""
    sizes = block if isinstance(block, tuple) else (block,)
    wrong = isinstance(block, tuple) and len(block) != 2
    if wrong or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"block must be an int above 0 or a pair of such, got {block!r}")
    if len(sizes) > len(shape):
        raise ValueError(f"block={block!r}: x has the shape {tuple(shape)}")
    axes = [axis] if len(sizes) == 1 else [len(shape) - 2, len(shape) - 1]
    return dict(zip(axes, sizes, strict=True))


def _block_amax(x: Tensor, block: Block, axis: int) -> Tensor:
    """The largest magnitude of each block."""
    amax = x.abs()
    for along, size in _sizes(block, axis, x.shape).items():
        missing = -x.shape[along] % size
        if missing:
            raise ValueError(
                f"axis {along} of the shape {tuple(x.shape)} does not divide into blocks of "
                f"{size}: append {missing} zeros along it, with torch.nn.functional.pad"
            )
        amax = amax.unflatten(along, (-1, size)).amax(along + 1)
    return amax


def _spread(scales: Tensor, block: Block | None, axis: int) -> Tensor:
    """Scales in the shape of the tensor, or in one that broadcasts to it."""
    if block is not None:
        for along, size in _sizes(block, axis, scales.shape).items():
            scales = scales.repeat_interleave(size, along)
    return scales


def _quotient(x: Tensor, scales: Tensor) -> Tensor:
    """x / scales. Where the processor takes a subnormal scale for 0, zeros stay zeros."""
    return torch.where((x == 0) & (scales == 0), x, x / scales)


def _finite(amax: Tensor) -> Tensor:
    return amax.clamp(max=FP32.max)


def _descale(amax: Tensor, top: float) -> Tensor:
    """amax / top in float32, never 0; 1 for a block of zeros."""
    return torch.where(amax == 0, 1.0, (_finite(amax) / top).clamp(min=_SMALLEST))


def _e8m0(exponent: Tensor, amax: Tensor) -> Tensor:
    """2**exponent in E8M0: 2**-127 for a block of zeros, NaN for one with NaN."""
    codes = torch.where(amax == 0, 0, exponent.clamp(-127, 127) + 127)
    return torch.where(amax.isnan(), _E8M0_NAN, codes).to(torch.uint8).view(torch.float8_e8m0fnu)


def _power_above(amax: Tensor, fmt: FloatFormat) -> Tensor:
    """amax / fmt.max in float32, rounded up to E8M0."""
    fraction, exponent = torch.frexp(_descale(amax, fmt.max))
    return _e8m0(exponent - (fraction == 0.5).int(), amax)


def _e4m3_scales(descale: Tensor) -> Tensor:
    return descale.clamp(E4M3.smallest_normal, E4M3.max).to(torch.float8_e4m3fn)


def _cast(
    values: Tensor,
    fmt: FloatFormat,
    overflow: str,
    rounding: str,
    generator: torch.Generator | None,
) -> Tensor:
    """Scaled values as codes."""
    saturate = overflow == "saturate"
    codes = quantize(
        values,
        fmt if saturate else _open_ended(fmt),
        rounding=rounding,
        saturate=saturate,
        generator=generator,
    )
    if not saturate:
        past = ~(codes.abs() <= fmt.max)
        if overflow == "raise" and past.any():
            raise ValueError(
                f"{int(past.sum())} of {values.numel()} values are past {fmt.max}, the largest of "
                f"{fmt.name}, after scaling: up to {values.abs().amax().item():.6g}"
            )
        codes.masked_fill_(past, math.nan)
    if not fmt.has_nan:
        codes.nan_to_num_(0)  # the scale of such a block is NaN
    return codes.to(_FLOAT8.get(fmt, torch.float32))


def _open_ended(fmt: FloatFormat) -> FloatFormat:
    """A format in which an overflow of fmt shows: with NaN, or with values beyond its largest."""
    if fmt.has_nan:
        return fmt
    return replace(fmt, exponent_bits=fmt.exponent_bits + 1, storage_bits=fmt.storage_bits + 1)
