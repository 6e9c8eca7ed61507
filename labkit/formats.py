"""A number format is data: a handful of widths decides which numbers exist.

This module believes three things, and says them in this order:

1. ``FloatFormat`` records the widths. Everything else about a format (its largest value, its
   gaps, its codes) is derived from them and exact.
2. ``quantize`` rounds to a format's values as ``labkit.rounding`` does, then settles what no
   rounding can: values beyond the largest, and zeros and signs that the format lacks.
3. ``encode`` and ``decode`` go between values and integer codes.

Nothing here is differentiable: results are detached from the graph of their input.
"""

import math
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from labkit.rounding import ROUNDINGS, round_tensor, shared_grid, step_at

SPECIALS = ("ieee", "fn", "fnuz", "none")


@dataclass(frozen=True)
class FloatFormat:
    """Widths of a floating point format, and all that follows from them.

    ``mantissa_bits`` counts stored bits, without the leading 1. ``bias`` defaults to IEEE 754's,
    ``2**(exponent_bits - 1) - 1``, and ``storage_bits`` to ``bits``. ``specials`` says which
    codes are no finite numbers:

    - ``"ieee"``: the top exponent holds inf and NaN (IEEE 754-2019, section 3.4);
    - ``"fn"``: no inf; NaN is the code of all ones, with either sign (OCP 8-bit FP, 2023);
    - ``"fnuz"``: no inf and no -0; NaN takes the code of -0 (arXiv:2206.02915);
    - ``"none"``: every code is a finite number (OCP MX, 2023: the 4 and 6 bit formats).

    A format with neither sign nor mantissa bits serves scales, like E8M0: its codes are powers of
    two from the first on, so it has no zero. Every format fits into float64; widths that do not,
    or that leave no normal number, raise ValueError.

    >>> tiny = FloatFormat("tiny", exponent_bits=2, mantissa_bits=1, specials="none")
    >>> [decode(code, tiny) for code in range(8)]
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """

    name: str
    _: KW_ONLY
    exponent_bits: int
    mantissa_bits: int
    bias: int | None = None
    signed: bool = True
    specials: str = "ieee"
    storage_bits: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be a string that is not empty, got {self.name!r}")
        if not isinstance(self.signed, bool):
            raise TypeError(f"{self.name}: signed must be True or False, got {self.signed!r}")
        if self.specials not in SPECIALS:
            raise ValueError(
                f"{self.name}: specials must be one of {SPECIALS}, got {self.specials!r}"
            )
        self._require_int("exponent_bits", 1, 11)
        self._require_int("mantissa_bits", 0, 52)
        if self.bias is None:
            object.__setattr__(self, "bias", 2 ** (self.exponent_bits - 1) - 1)
        if self.storage_bits is None:
            object.__setattr__(self, "storage_bits", self.bits)
        self._require_int("storage_bits", self.bits, 64)
        self._require_room()

    def _require_int(self, field: str, low: int, high: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{self.name}: {field} must be an int, got {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{self.name}: {field} must be from {low} to {high}, got {value}")

    def _require_room(self) -> None:
        if self.specials == "ieee" and self.mantissa_bits == 0:
            raise ValueError(
                f"{self.name}: specials 'ieee' needs mantissa_bits of at least 1 to tell inf "
                f"from NaN, got 0; 'fn' and 'none' allow it"
            )
        if self.specials == "fnuz" and not self.signed:
            raise ValueError(f"{self.name}: specials 'fnuz' keeps NaN in -0, so signed=True")
        first, last = int(self.has_zero), self._max_code >> self.mantissa_bits
        if last < first:
            raise ValueError(
                f"{self.name}: exponent_bits={self.exponent_bits} with specials "
                f"{self.specials!r} leaves no normal number; use at least "
                f"{self.exponent_bits + 1} exponent bits"
            )
        # Normal values are normal in float64, and a step of at most 1 keeps x / step exact.
        lowest = max(last - 1023, first - self.mantissa_bits)
        self._require_int("bias", lowest, 1022 + first)

    @property
    def bits(self) -> int:
        """Bits of a code: sign, exponent and mantissa."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @property
    def has_inf(self) -> bool:
        """Whether some code means infinity."""
        return self.specials == "ieee"

    @property
    def has_nan(self) -> bool:
        """Whether some code means NaN."""
        return self.specials != "none"

    @property
    def has_zero(self) -> bool:
        """Whether some code means zero; only scales without sign and mantissa have none."""
        return self.signed or self.mantissa_bits > 0

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0.0 has a code of its own."""
        return self.signed and self.specials != "fnuz"

    @property
    def _max_code(self) -> int:
        reserved = {"ieee": 1 << self.mantissa_bits, "fn": 1, "fnuz": 0, "none": 0}
        return (1 << self.exponent_bits + self.mantissa_bits) - 1 - reserved[self.specials]

    @property
    def min_exponent(self) -> int:
        """Exponent e of the smallest normal value, 1.0 * 2**e."""
        return int(self.has_zero) - self.bias

    @property
    def max_exponent(self) -> int:
        """Exponent e of the largest value, 1.m * 2**e (numpy's finfo counts one more)."""
        return (self._max_code >> self.mantissa_bits) - self.bias

    @property
    def max(self) -> float:
        """Largest finite value."""
        leading_one = 1 << self.mantissa_bits
        mantissa = self._max_code % leading_one
        return math.ldexp(leading_one + mantissa, self.max_exponent - self.mantissa_bits)

    @property
    def eps(self) -> float:
        """Gap between 1.0 and the next larger value."""
        return math.ldexp(1.0, -self.mantissa_bits)

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value with a leading 1."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value; equal to ``smallest_normal`` without mantissa bits."""
        return math.ldexp(1.0, self.min_exponent - self.mantissa_bits)


FP64 = FloatFormat("fp64", exponent_bits=11, mantissa_bits=52)
FP32 = FloatFormat("fp32", exponent_bits=8, mantissa_bits=23)
TF32 = FloatFormat("tf32", exponent_bits=8, mantissa_bits=10, storage_bits=32)
FP16 = FloatFormat("fp16", exponent_bits=5, mantissa_bits=10)
BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7)
E5M2 = FloatFormat("e5m2", exponent_bits=5, mantissa_bits=2)
E4M3 = FloatFormat("e4m3", exponent_bits=4, mantissa_bits=3, specials="fn")
E4M3FNUZ = FloatFormat("e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, specials="fnuz")
E5M2FNUZ = FloatFormat("e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, specials="fnuz")
E3M4 = FloatFormat("e3m4", exponent_bits=3, mantissa_bits=4)
E8M0 = FloatFormat("e8m0", exponent_bits=8, mantissa_bits=0, signed=False, specials="fn")
E3M2 = FloatFormat("e3m2", exponent_bits=3, mantissa_bits=2, specials="none")
E2M3 = FloatFormat("e2m3", exponent_bits=2, mantissa_bits=3, specials="none")
E2M1 = FloatFormat("e2m1", exponent_bits=2, mantissa_bits=1, specials="none")

_NAMED = (FP64, FP32, TF32, FP16, BF16, E5M2, E4M3, E4M3FNUZ, E5M2FNUZ, E3M4, E8M0)
FORMATS = {fmt.name: fmt for fmt in (*_NAMED, E3M2, E2M3, E2M1)}


_NATIVE = {torch.float32: FP32, torch.float64: FP64}


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


def _values(x: Tensor | float, fmt: FloatFormat) -> Tensor:
    """The argument x of a public function as a detached float tensor, and fmt checked."""
    _require_format(fmt)
    if isinstance(x, Tensor):
        if x.dtype not in _NATIVE:
            raise TypeError(
                f"x must be a tensor of torch.float32 or torch.float64, got {x.dtype}; "
                f"widen 16 bits with x.float(), integers with x.double()"
            )
        return x.detach()
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"x must be a tensor, a float or an int, got {x!r}")
    if isinstance(x, int) and (abs(x) >= 1 << 1024 or float(x) != x):
        raise ValueError(f"x must be exact in float64, or it would be rounded twice; got {x}")
    return torch.tensor(float(x), dtype=torch.float64)


def quantize(
    x: Tensor | float,
    fmt: FloatFormat,
    *,
    rounding: str = "nearest_even",
    saturate: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor | float:
    """Round each value of x to a value of the format, once, and keep x's dtype.

    ``x`` is a float32 or float64 tensor of any shape on any device, or a Python number (then the
    answer is a float). The result is a new contiguous tensor, detached from x's graph; it holds
    values that both the format and x's dtype have. A format at least as wide as x copies it.

    - ``rounding``: ``"nearest_even"`` and ``"nearest_away"`` differ in ties only; ``"up"`` is
      toward +inf and ``"down"`` toward -inf (IEEE 754-2019, section 4.3). ``"stochastic"`` takes
      the value farther from zero with a probability equal to the fraction of the step, to within
      2**-23: it draws r = 23 bits for each value (``labkit.rounding.RANDOM_BITS``), so the mean
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

    Raises TypeError for other dtypes and ValueError for an unknown rounding.

    >>> quantize(torch.tensor([0.3, 100.0, 465.0]), E4M3)
    tensor([ 0.3125, 96.0000,     nan])
    >>> quantize(465.0, E4M3, saturate=True), quantize(465.0, E4M3, rounding="toward_zero")
    (448.0, 448.0)
    """
    values = _values(x, fmt)
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {ROUNDINGS}, got {rounding!r}")
    native = _NATIVE[values.dtype]
    as_wide = fmt.has_inf and fmt.signed and _within(native, fmt)
    if values.numel() == 0 or (as_wide and not saturate):
        result = values.clone(memory_format=torch.contiguous_format)
    else:
        result = round_tensor(values, fmt, rounding, saturate, generator).to(values.dtype)
    return result if isinstance(x, Tensor) else result.item()


def spacing(x: Tensor | float, fmt: FloatFormat) -> Tensor | float:
    """Gap between abs(x), cut down to a value of the format, and the next larger value: its ulp.

    Zero and the subnormals share ``smallest_subnormal``; inf and NaN give themselves, as in
    ``math.ulp``. The result has x's dtype, or float64 where the format needs it.

    >>> spacing(2049.0, FP16), spacing(0.0, FP16) == FP16.smallest_subnormal
    (2.0, True)
    """
    values = _values(x, fmt)
    dtype = values.dtype if _within(fmt, FP32) else torch.float64
    grid = shared_grid(fmt, dtype)
    values = values.to(grid.dtype).contiguous()
    step = step_at(values, grid, out=torch.empty_like(values))
    gap = torch.where(values.isfinite(), step, values.abs()).to(dtype)
    return gap if isinstance(x, Tensor) else gap.item()


_CODE_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


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


def encode(
    x: Tensor | float, fmt: FloatFormat, *, rounding: str = "nearest_even", saturate: bool = False
) -> Tensor | int:
    """Codes of the quantized values of x: sign, exponent and mantissa in the low bits of int64.

    Arguments as in ``quantize``; a Python number gives an int. Every NaN gets one code (positive,
    quiet), because processors disagree about its sign and payload. The 64 bits of FP64 fill an
    int64, so its negative values have negative codes in a tensor; the int is never negative.

    Raises ValueError for NaN where the format has none, for a negative value where it has no
    sign, and where ``quantize`` would.

    >>> f"{encode(-0.3, E4M3):08b}"
    '10101010'
    """
    values = _values(x, fmt)
    # In a dtype that has every value of the format.
    grid = shared_grid(fmt, values.dtype if _within(fmt, FP32) else torch.float64)
    y = quantize(values.to(grid.dtype), fmt, rounding=rounding, saturate=saturate)
    if not fmt.signed and (values < 0).any():
        raise ValueError(f"{fmt.name} has no sign, so no code for {values[values < 0][0].item()}")
    if not fmt.has_nan and y.isnan().any():
        raise ValueError(f"{fmt.name} has no code for NaN; replace NaN before encoding")

    finite = torch.where(y.isfinite(), y.abs(), fmt.smallest_normal)
    step = step_at(finite, grid, out=torch.empty_like(finite))
    # frexp returns 0.5 for the mantissa of a power of two: one more than the exponent of 1.m.
    exponent = step.frexp().exponent.long() - 1 + fmt.mantissa_bits
    # A normal value's leading 1 is the multiple's highest bit: added, it raises the exponent
    # field by one. Subnormals lack it, and so the field stays 0.
    code = ((exponent - fmt.min_exponent) << fmt.mantissa_bits) + (finite / step).long()
    if not fmt.has_zero:
        code -= 1  # the smallest value, 1 * 2**min_exponent, has code 0
    inf_code, nan_code = _special_codes(fmt)
    code = torch.where(y.isinf(), inf_code, code)
    if fmt.signed:
        code |= torch.signbit(y).long() << (fmt.bits - 1)
    code = torch.where(y.isnan(), _int64(nan_code), code)
    return code if isinstance(x, Tensor) else code.item() % (1 << 64)


def _power_of_two(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """2**exponent for exponents of normal values: pow and ldexp need not be exact."""
    native = _NATIVE[dtype]
    bits = (exponent + native.bias) << native.mantissa_bits
    return bits.view(dtype) if dtype is torch.float64 else bits.int().view(dtype)


def _codes(code: Tensor | int, fmt: FloatFormat) -> Tensor:
    """The argument of decode as an int64 tensor, checked."""
    strays = []
    if isinstance(code, Tensor) and code.dtype in _CODE_DTYPES:
        codes = code.long()
        if fmt.bits < 64:
            strays = codes[codes >> fmt.bits != 0].tolist()
    elif isinstance(code, int) and not isinstance(code, bool):
        codes = torch.tensor(_int64(code % (1 << 64)))
        strays = [] if 0 <= code < 1 << fmt.bits else [code]
    else:
        got = code.dtype if isinstance(code, Tensor) else repr(code)
        raise TypeError(f"decode takes an int or a tensor of integers, got {got}")
    if strays:
        raise ValueError(f"a code of {fmt.name} lies in 0 .. {2**fmt.bits - 1}, got {strays[0]}")
    return codes


def decode(code: Tensor | int, fmt: FloatFormat) -> Tensor | float:
    """Values of integer codes: float32 where it holds the whole format, else float64.

    ``code`` is a tensor of integers (as ``encode`` gives them) or an int; an int gives a float.
    Raises TypeError for other dtypes and ValueError for codes outside 0 .. 2**bits - 1.

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
