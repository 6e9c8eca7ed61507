"""``quantize``, ``encode``, ``decode`` and ``spacing``: what a number format does to a tensor.

It has two parts:

1. ``quantize`` rounds to a format's values as ``rounding`` does, then settles what no
   rounding can: values beyond the largest, and zeros and signs that the format lacks.
2. ``encode`` and ``decode`` go between values and integer codes.

Nothing here is differentiable: results are detached from the graph of their input.
"""

import math
from typing import TypeVar, overload

import torch
from torch import Tensor

from labkit.formats.dtypes import format_of
from labkit.formats.float_formats import FP32, FloatFormat
from labkit.formats.inputs import INTEGERS, plain_tensor
from labkit.formats.rounding import ROUNDINGS, power_at, round_tensor, shared_grid

_Values = TypeVar("_Values", Tensor, float)


def _within(inner: FloatFormat, outer: FloatFormat) -> bool:
    """Whether every finite value of one format is a value of the other."""
    return (
        inner.mantissa_bits <= outer.mantissa_bits
        and inner.smallest_subnormal >= outer.smallest_subnormal
        and inner.max <= outer.max
    )


def _require_format(fmt: object) -> None:
    if not isinstance(fmt, FloatFormat):
        raise TypeError(f"fmt must be a FloatFormat such as labkit.formats.E4M3, got {fmt!r}")


def _values(x: Tensor | float, fmt: FloatFormat, *, looked_at: bool = False) -> Tensor:
    """The argument x of a public function as a detached float tensor, and fmt checked."""
    _require_format(fmt)
    if isinstance(x, Tensor):
        taken = (torch.float32, torch.float64)
        fix = "widen 16 bits with x.float(), integers with x.double()"
        return plain_tensor(x, "x", taken, fix, values=looked_at).detach()
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"x must be a tensor, a float or an int, got {x!r}")
    if isinstance(x, int) and (abs(x) >= 1 << 1024 or float(x) != x):
        raise ValueError(f"x must be exact in float64, or it would be rounded twice; got {x}")
    return torch.tensor(float(x), dtype=torch.float64)


def quantize(
    x: _Values,
    fmt: FloatFormat,
    *,
    rounding: str = "nearest_even",
    saturate: bool = False,
    generator: torch.Generator | None = None,
) -> _Values:
    """Round each value of x to a value of the format, once, and keep x's dtype.

    ``x`` is a float32 or float64 tensor of any shape on any device, or a Python number (then the
    answer is a float). The result is a new contiguous tensor, detached from x's graph; it holds
    values that both the format and x's dtype have. A format at least as wide as x copies it.

    - ``rounding``: ``"nearest_even"`` and ``"nearest_away"`` differ in ties only; ``"up"`` is
      toward +inf and ``"down"`` toward -inf (IEEE 754-2019, section 4.3). ``"stochastic"`` takes
      the value farther from zero with a probability equal to the fraction of the step, to within
      2**-23: it draws r = 23 bits for each value (``rounding.RANDOM_BITS``), so the mean
      is off by at most 2**-r steps, and a value of the format never moves. A CPU ``generator``
      fills one value after another in order of index, and an accelerator is given all at once,
      so the size of chunks does not change a draw.
    - Overflow: where the rounding points past max, the answer is inf if the format has it, else
      NaN if it has that, else max. An infinite x is no result of rounding: it becomes inf, NaN
      or max in the same order, whatever the rounding. ``saturate=True`` gives max for all of
      them. NaN stays NaN, even for a format without it.
    - -0.0 stays where the format has it and becomes 0.0 elsewhere.
    - An unsigned format gives NaN for a negative value (0 if it has no NaN): a negative scale is
      a mistake and no rounding error. E8M0 has no zero either: zero and everything below
      2**-127 become 2**-127, for a scale of zero would erase its block. Its ties go up, as in
      torch and ml_dtypes: where no significand is even the larger wins (IEEE 754-2019, 4.3.1).

    Under ``torch.set_flush_denormal(True)`` what is subnormal in float32 is 0, before and after.

    Raises TypeError for other dtypes and for tensors that are not dense, ValueError for an unknown
    rounding.

    >>> from labkit.formats import E4M3
    >>> quantize(torch.tensor([0.3, 100.0, 465.0]), E4M3)
    tensor([ 0.3125, 96.0000,     nan])
    >>> quantize(465.0, E4M3, saturate=True), quantize(465.0, E4M3, rounding="toward_zero")
    (448.0, 448.0)
    """
    values = _values(x, fmt)
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {ROUNDINGS}, got {rounding!r}")
    native = format_of(values.dtype)
    as_wide = fmt.has_inf and fmt.signed and _within(native, fmt)
    if values.numel() == 0 or (as_wide and not saturate):
        result = values.clone(memory_format=torch.contiguous_format)
    else:
        result = round_tensor(values, fmt, rounding, saturate, generator).to(values.dtype)
    return result if isinstance(x, Tensor) else result.item()


def spacing(x: _Values, fmt: FloatFormat) -> _Values:
    """Gap between abs(x), cut down to a value of the format, and the next larger value: its ulp.

    Zero and the subnormals share ``smallest_subnormal``; inf and NaN give themselves, as in
    ``math.ulp``. The result has x's dtype, or float64 where the format needs it.

    >>> from labkit.formats import FP16
    >>> spacing(2049.0, FP16), spacing(0.0, FP16) == FP16.smallest_subnormal
    (2.0, True)
    """
    values = _values(x, fmt)
    dtype = values.dtype if _within(fmt, FP32) else torch.float64
    grid = shared_grid(fmt, dtype)
    values = values.to(grid.dtype).contiguous()
    step = power_at(values, grid, out=torch.empty_like(values)).mul_(2.0**-grid.mantissa_bits)
    gap = torch.where(values.isfinite(), step, values.abs()).to(dtype)
    return gap if isinstance(x, Tensor) else gap.item()


def _int64(code: int) -> int:
    """The int64 with the bits of a 64-bit code."""
    return code - (1 << 64) if code >= 1 << 63 else code


def _special_codes(fmt: FloatFormat) -> tuple[int, int]:
    """The codes of +inf and of the one NaN that encode writes; only where the format has them."""
    inf = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
    match fmt.specials:
        case "ieee":
            return inf, inf | 1 << (fmt.mantissa_bits - 1)  # the quiet NaN
        case "fnuz":
            return inf, 1 << (fmt.bits - 1)
    return inf, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1


@overload
def encode(x: Tensor, fmt: FloatFormat, *, rounding: str = ..., saturate: bool = ...) -> Tensor: ...
@overload
def encode(x: float, fmt: FloatFormat, *, rounding: str = ..., saturate: bool = ...) -> int: ...
def encode(
    x: Tensor | float, fmt: FloatFormat, *, rounding: str = "nearest_even", saturate: bool = False
) -> Tensor | int:
    """Codes of the quantized values of x: sign, exponent and mantissa in the low bits of int64.

    Arguments as in ``quantize``; a Python number gives an int. Every NaN gets one code (positive,
    quiet), because processors disagree about its sign and payload. The 64 bits of FP64 fill an
    int64, so its negative values have negative codes in a tensor; the int is never negative.

    Raises ValueError for NaN where the format has none, for a negative value where it has no
    sign, and where ``quantize`` would.

    >>> from labkit.formats import E4M3
    >>> f"{encode(-0.3, E4M3):08b}"
    '10101010'
    """
    values = _values(x, fmt, looked_at=not (fmt.signed and fmt.has_nan))
    # In a dtype that has every value of the format.
    grid = shared_grid(fmt, values.dtype if _within(fmt, FP32) else torch.float64)
    y = quantize(values.to(grid.dtype), fmt, rounding=rounding, saturate=saturate)
    if not fmt.signed and (values < 0).any():
        raise ValueError(f"{fmt.name} has no sign, so no code for {values[values < 0][0].item()}")
    if not fmt.has_nan and y.isnan().any():
        raise ValueError(f"{fmt.name} has no code for NaN; replace NaN before encoding")

    finite = torch.where(y.isfinite(), y.abs(), fmt.smallest_normal)
    power = power_at(finite, grid, out=torch.empty_like(finite))
    # frexp returns 0.5 for the mantissa of a power of two: one more than the exponent of 1.m.
    exponent = power.frexp().exponent.long() - 1
    multiple = (finite / power * 2.0**fmt.mantissa_bits).long()
    # A normal value's leading 1 is the multiple's highest bit: added, it raises the exponent
    # field by one. Subnormals lack it, and so the field stays 0.
    code = ((exponent - fmt.min_exponent) << fmt.mantissa_bits) + multiple
    if not fmt.has_zero:
        code -= 1  # the smallest value, 1 * 2**min_exponent, has code 0
    inf_code, nan_code = _special_codes(fmt)
    code = torch.where(y.isinf(), inf_code, code)
    if fmt.signed:
        code |= torch.signbit(y).long() << (fmt.bits - 1)
    code = torch.where(y.isnan(), _int64(nan_code), code)
    return code if isinstance(x, Tensor) else int(code.item()) % (1 << 64)


def _power_of_two(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """2**exponent for exponents of normal values: pow and ldexp need not be exact."""
    native = format_of(dtype)
    bits = (exponent + native.bias) << native.mantissa_bits
    return bits.view(dtype) if dtype is torch.float64 else bits.int().view(dtype)


def _codes(code: Tensor | int, fmt: FloatFormat) -> Tensor:
    """The argument of decode as an int64 tensor, checked."""
    if isinstance(code, Tensor):
        codes = plain_tensor(code, "code", INTEGERS, "encode makes such codes of values").long()
        strays = codes[codes >> fmt.bits != 0].tolist() if fmt.bits < 64 else []
    elif isinstance(code, int) and not isinstance(code, bool):
        codes = torch.tensor(_int64(code % (1 << 64)))
        strays = [] if 0 <= code < 1 << fmt.bits else [code]
    else:
        raise TypeError(f"decode takes an int or a tensor of integers, got {code!r}")
    if strays:
        raise ValueError(f"a code of {fmt.name} lies in 0 .. {2**fmt.bits - 1}, got {strays[0]}")
    return codes


@overload
def decode(code: Tensor, fmt: FloatFormat) -> Tensor: ...
@overload
def decode(code: int, fmt: FloatFormat) -> float: ...
def decode(code: Tensor | int, fmt: FloatFormat) -> Tensor | float:
    """Values of integer codes: float32 where it holds the whole format, else float64.

    ``code`` is a tensor of integers (as ``encode`` gives them) or an int; an int gives a float.
    Raises TypeError for other dtypes and ValueError for codes outside 0 .. 2**bits - 1.

    >>> from labkit.formats import E4M3
    >>> decode(0b0_1111_110, E4M3), decode(0b0_1111_111, E4M3)
    (448.0, nan)
    """
    _require_format(fmt)
    codes = _codes(code, fmt)
    magnitude = codes & ((1 << fmt.exponent_bits + fmt.mantissa_bits) - 1)
    field = magnitude >> fmt.mantissa_bits
    first_normal = int(fmt.has_zero)
    leading_one = (field >= first_normal).long() << fmt.mantissa_bits
    multiple = (magnitude & ((1 << fmt.mantissa_bits) - 1)) + leading_one
    exponent = field.clamp(min=first_normal) - fmt.bias - fmt.mantissa_bits
    dtype = torch.float32 if _within(fmt, FP32) else torch.float64
    # Two factors: the step itself may be subnormal in dtype.
    half = exponent >> 1
    value = multiple.to(dtype) * _power_of_two(half, dtype) * _power_of_two(exponent - half, dtype)
    if fmt.signed:
        value = torch.where((codes >> (fmt.bits - 1)) & 1 == 1, -value, value)
    inf_code, nan_code = _special_codes(fmt)
    if fmt.has_inf:
        value = torch.where(magnitude == inf_code, value.sign() * math.inf, value)
        value = torch.where(magnitude > inf_code, math.nan, value)
    elif fmt.has_nan:
        spot = codes if fmt.specials == "fnuz" else magnitude
        value = torch.where(spot == _int64(nan_code), math.nan, value)
    return value if isinstance(code, Tensor) else value.item()
