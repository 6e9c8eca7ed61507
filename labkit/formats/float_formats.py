"""What a number format is: a handful of widths, from which everything else about it follows.

``FloatFormat`` records the widths. Its largest value, its gaps and its exponents are derived from
them, and exact. Nothing here needs torch, so a question about a format can be asked without it;
``labkit.formats`` rounds tensors to a format and gives these names too.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import cast

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
    >>> tiny.max, tiny.smallest_subnormal
    (6.0, 0.5)
    """

    name: str
    _: KW_ONLY
    exponent_bits: int
    mantissa_bits: int
    # None only until __post_init__ settles it: who reads a format finds an int.
    bias: int = cast("int", None)
    signed: bool = True
    specials: str = "ieee"
    storage_bits: int = cast("int", None)

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
