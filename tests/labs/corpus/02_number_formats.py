# Answers to lab 02 that the author of its checks had not foreseen: see tests/corpus.py.
import math
from fractions import Fraction

import numpy as np
import torch


# %% right e2m1-value: fractions, with the sign of zero from copysign
def e2m1_value(code):
    exponent, mantissa = code >> 1 & 3, Fraction(code & 1, 2)
    value = mantissa if exponent == 0 else (1 + mantissa) * 2 ** (exponent - 1)
    return value if code < 8 else math.copysign(value, -1)


# %% right e2m1-value: a tensor of values
def e2m1_value(code):
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    return torch.cat([values, -values])[code]


# %% right e2m1-value: numpy's float16
def e2m1_value(code):
    sign = np.float16(-1 if code & 8 else 1)
    exponent, mantissa = (code & 7) >> 1, code & 1
    if exponent == 0:
        return sign * np.float16(mantissa / 2)
    return sign * np.ldexp(np.float16(0.5), exponent) * np.float16(2 + mantissa) / 2


# %% wrong e2m1-value: a truth value for 1
#    says: True and False do not count as numbers
def e2m1_value(code):
    value = [0.0, 0.5, np.True_, 1.5, 2.0, 3.0, 4.0, 6.0][code & 7]
    return value if code < 8 else -float(value)


# %% wrong e2m1-value: no value is returned for the negative half
#    says: `e2m1_value(0b1001)` returns None: is there a `return`
def e2m1_value(code):
    if code < 8:
        return [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code]


# %% wrong e2m1-value: a pair of fields
#    says: one number is asked for
def e2m1_value(code):
    return code >> 1 & 3, code & 1


# %% wrong e2m1-value: the sign is dropped
#    says: Every code with its sign bit set comes out positive
def e2m1_value(code):
    return [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code & 7]


# %% right ulp: torch.finfo
def ulp(x):
    info = torch.finfo(torch.float16)
    octave = max(math.floor(math.log2(abs(x))) if x else -14, -14)
    return info.eps * 2.0**octave


# %% right ulp: the next code
def ulp(x):
    code = np.float16(abs(x)).view(np.uint16)
    return float(np.uint16(code + 1).view(np.float16)) - abs(x)


# %% right ulp: the exponent field
def ulp(x):
    field = int(np.float16(abs(x)).view(np.uint16)) >> 10
    return 2.0 ** (max(field, 1) - 25)


# %% right ulp: doubled until 2048 of it are more than x
def ulp(x):
    gap = 2.0**-24
    while abs(x) >= 2048 * gap:
        gap *= 2
    return gap


# %% right ulp: a fraction
def ulp(x):
    exponent = math.frexp(x)[1] - 1 if x else -14
    return Fraction(2) ** (max(exponent, -14) - 10)


# %% right ulp: an array without dimensions
def ulp(x):
    return np.array(ours.ulp(x), dtype=np.float32)


# %% wrong ulp: eps times x, in other words
#    idea: ulp-is-relative
def ulp(x):
    return torch.finfo(torch.float16).eps * abs(x)


# %% wrong ulp: the exponent of frexp, as it is
#    idea: frexp-starts-at-one
def ulp(x):
    return 2.0 ** (max(math.frexp(x)[1], -14) - 10)


# %% wrong ulp: half a gap
#    says: 0.5 times the right gap
def ulp(x):
    return ours.ulp(x) / 2


# %% wrong ulp: float64's own gap
#    says: the gap of float64
def ulp(x):
    return math.ulp(x)


# %% wrong ulp: nothing comes back for zero
#    says: returns None: is there a `return`
def ulp(x):
    if x:
        return ours.ulp(x)


# %% wrong ulp: zero has no logarithm
#    says: ValueError
def ulp(x):
    return 2.0 ** (max(math.floor(math.log2(abs(x))), -14) - 10)


# %% wrong ulp: float32's gap
#    says: the gap of float32
def ulp(x):
    return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -126, -126) - 23)


# %% wrong ulp: BF16's gap
#    says: the gap of BF16
def ulp(x):
    return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -126, -126) - 7)


# %% wrong ulp: the sign comes along
#    says: A gap is a distance
def ulp(x):
    return math.copysign(ours.ulp(x), x)


# %% wrong ulp: eleven bits
#    says: Every one of your gaps is 0.5 times
def ulp(x):
    return changed("- 10)", "- 11)")(x)


# %% wrong ulp: the next value of a negative x
#    says: Yours is right for every x >= 0
def ulp(x):
    return ours.ulp(x) / (1 if math.copysign(1, x) > 0 else 2)


# %% wrong ulp: subnormals end at 2**-15
#    says: Yours is right where |x| is at least 2**-14
def ulp(x):
    return 2.0**-25 if abs(x) < 2.0**-14 else ours.ulp(x)


# %% wrong ulp: the next value itself
#    says: Yours is the next value itself
def ulp(x):
    return abs(x) + ours.ulp(x)


# %% right e2m1-value: a table
def e2m1_value(code):
    table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    return -table[code - 8] if code >= 8 else table[code]


# %% right e2m1-value: text of bits
def e2m1_value(code):
    s, e1, e0, m = (int(bit) for bit in f"{code:04b}")
    e = 2 * e1 + e0
    value = m * 0.5 if not e else 2 ** (e - 1) * (1 + m / 2)
    return (-1.0) ** s * value


# %% right e2m1-value: ldexp
def e2m1_value(code):
    field, mantissa = divmod(code & 7, 2)
    return math.copysign(math.ldexp(mantissa + 2 * (field > 0), max(field, 1) - 2), 0.5 - (code > 7))


# %% wrong e2m1-value: every value doubled
#    says: Every value is 2 times the right one
def e2m1_value(code):
    return 2 * ours.e2m1_value(code)


# %% wrong e2m1-value: bias 2
#    says: above 0 are wrong. Each wrong value is 0.5 times
def e2m1_value(code):
    return changed("2.0 ** (exponent - 1)", "2.0 ** (exponent - 2)")(code)


# %% wrong e2m1-value: the sign is the wrong way round
#    says: Every sign is the wrong way round
def e2m1_value(code):
    return -ours.e2m1_value(code)


# %% wrong e2m1-value: subnormals are 0
#    says: Only codes with an exponent field of 0 are wrong
def e2m1_value(code):
    return changed("return sign * fraction\n", "return sign * 0.0\n")(code)


# %% wrong e2m1-value: no mantissa in normal values
#    says: Only codes with an exponent field above 0
def e2m1_value(code):
    return changed("(1 + fraction)", "1")(code)


# %% wrong e2m1-value: the highest field is NaN
#    says: Only codes with the highest exponent field
def e2m1_value(code):
    return math.nan if code & 6 == 6 else ours.e2m1_value(code)


# %% wrong e2m1-value: plain zero for code 8
#    says: The sign bit of a zero counts
def e2m1_value(code):
    return ours.e2m1_value(code) or 0.0


# %% wrong e2m1-value: a whole number
#    idea: sign-is-twos-complement
def e2m1_value(code):
    return changed("    exponent, fraction", "    code = -code & 15 if code > 7 else code\n    exponent, fraction")(code)


# %% right decode: text of bits
def decode(code, exponent_bits, mantissa_bits, bias):
    bits = f"{code:0{1 + exponent_bits + mantissa_bits}b}"
    exponent, mantissa = int(bits[1 : 1 + exponent_bits], 2), int(bits[1 + exponent_bits :], 2)
    value = mantissa / 2**mantissa_bits + (exponent > 0)
    return (-1.0) ** int(bits[0]) * value * 2.0 ** (max(exponent, 1) - bias)


# %% right decode: divmod and ldexp
def decode(code, exponent_bits, mantissa_bits, bias):
    rest, mantissa = divmod(code, 2**mantissa_bits)
    sign, exponent = divmod(rest, 2**exponent_bits)
    hidden = 2**mantissa_bits if exponent else 0
    value = math.ldexp(hidden + mantissa, max(exponent, 1) - bias - mantissa_bits)
    return -value if sign else value


# %% right decode: a fraction and copysign
def decode(code, exponent_bits, mantissa_bits, bias):
    mantissa = Fraction(code % 2**mantissa_bits, 2**mantissa_bits)
    exponent = (code >> mantissa_bits) % 2**exponent_bits
    value = (mantissa + bool(exponent)) * Fraction(2) ** (max(exponent, 1) - bias)
    return math.copysign(float(value), -1 if code >> exponent_bits + mantissa_bits else 1)


# %% right decode: numpy
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = np.float64(1 - 2 * (code >> (exponent_bits + mantissa_bits)))
    exponent = np.int64((code >> mantissa_bits) & ((1 << exponent_bits) - 1))
    mantissa = np.float64(code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    if exponent == 0:
        return sign * mantissa * np.exp2(np.float64(1 - bias))
    return sign * (1 + mantissa) * np.exp2(np.float64(exponent - bias))


# %% right decode: a float64 tensor
def decode(code, exponent_bits, mantissa_bits, bias):
    return torch.tensor(ours.decode(code, exponent_bits, mantissa_bits, bias), dtype=torch.float64)


# %% right decode: bit by bit
def decode(code, exponent_bits, mantissa_bits, bias):
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    value = 1.0 if exponent else 0.0
    for place in range(mantissa_bits):
        if code >> place & 1:
            value += 2.0 ** (place - mantissa_bits)
    value *= 2.0 ** ((exponent or 1) - bias)
    return -value if code >> exponent_bits + mantissa_bits & 1 else value


# %% wrong decode: no sign
#    says: Every code with its sign bit set comes out positive
#    never: The sign bit of a zero counts
def decode(code, exponent_bits, mantissa_bits, bias):
    return abs(ours.decode(code, exponent_bits, mantissa_bits, bias))


# %% wrong decode: the sign at bit 15
#    says: Yours is right for every code of FP16, BF16
#    never: The sign bit of a zero counts
def decode(code, exponent_bits, mantissa_bits, bias):
    return changed("code >> (exponent_bits + mantissa_bits)", "code >> 15")(
        code, exponent_bits, mantissa_bits, bias
    )


# %% wrong decode: ten mantissa bits
#    says: Yours is right for every code of FP16, and wrong
def decode(code, exponent_bits, mantissa_bits, bias):
    return ours.decode(code, exponent_bits, 10, bias)


# %% wrong decode: the bias is added
#    says: Only codes with an exponent field above 0
def decode(code, exponent_bits, mantissa_bits, bias):
    return changed("(exponent - bias)", "(exponent + bias)")(
        code, exponent_bits, mantissa_bits, bias
    )


# %% wrong decode: subnormals are zeros
#    says: Only codes with an exponent field of 0
def decode(code, exponent_bits, mantissa_bits, bias):
    return changed("return sign * fraction", "return sign * 0.0 * fraction")(
        code, exponent_bits, mantissa_bits, bias
    )


# %% wrong decode: one exponent too low everywhere
#    says: 0.5 times the right one
def decode(code, exponent_bits, mantissa_bits, bias):
    return ours.decode(code, exponent_bits, mantissa_bits, bias) / 2


# %% wrong decode: the mantissa is not divided
#    says: Only codes with a mantissa field above 0
def decode(code, exponent_bits, mantissa_bits, bias):
    return changed(" / 2**mantissa_bits", "")(code, exponent_bits, mantissa_bits, bias)


# %% wrong decode: fields in another order
#    says: OverflowError
def decode(code, exponent_bits, mantissa_bits, bias):
    return ours.decode(code, mantissa_bits, exponent_bits, bias)


# %% wrong decode: a sign that forgets zero
#    says: The sign bit of a zero counts
def decode(code, exponent_bits, mantissa_bits, bias):
    return ours.decode(code, exponent_bits, mantissa_bits, bias) or 0.0


# %% wrong decode: the highest field is inf
#    says: Yours is right for every code of FP16, BF16
def decode(code, exponent_bits, mantissa_bits, bias):
    if code >> mantissa_bits & 2**exponent_bits - 1 == 2**exponent_bits - 1:
        return math.inf
    return ours.decode(code, exponent_bits, mantissa_bits, bias)


# %% right snap: a threshold first
def snap(x):
    if x != x or x == 0 or abs(x) >= 65520:
        return x if x != x or x == 0 else math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(round(abs(x) / gap) * gap, x)


# %% right snap: a fraction
def snap(x):
    if not math.isfinite(x):
        return x
    gap = Fraction(spacing(x, FP16))
    value = float(round(Fraction(abs(x)) / gap) * gap)
    return math.copysign(math.inf if value > 65504 else value, x)


# %% right snap: torch, from the value that was rounded once
def snap(x):
    return torch.tensor(ours.snap(x), dtype=torch.float16)


# %% right snap: numpy's rint
def snap(x):
    if not np.isfinite(x):
        return float(x)
    gap = spacing(x, FP16)
    value = np.rint(x / gap) * gap
    return np.copysign(np.inf if abs(value) > 65504 else value, x)


# %% wrong snap: inf is not asked for
#    says: inf and NaN are returned unchanged
def snap(x):
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: only NaN passes
#    says: inf and NaN are returned unchanged
def snap(x):
    if x != x:
        return x
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: torch's cast
#    idea: rounding-twice-is-rounding-once
def snap(x):
    return torch.tensor(x, dtype=torch.float64).to(torch.float16).item()


# %% wrong snap: floor
#    says: lies nearer to 1.0009765625
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    return math.floor(x / gap) * gap


# %% wrong snap: no overflow
#    says: rounds to inf
def snap(x):
    return changed("value if value <= 65504 else math.inf", "value")(x)


# %% wrong snap: the negative half loses its sign
#    says: Rounding keeps the sign
def snap(x):
    return abs(ours.snap(x)) if x == x else x


# %% wrong snap: one gap for all
#    idea: ulp-is-constant
def snap(x):
    if not math.isfinite(x):
        return x
    value = round(abs(x) * 1024) / 1024
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: inf becomes NaN
#    says: NaN is not the answer
def snap(x):
    return ours.snap(x) if math.isfinite(x) else math.nan


# %% wrong snap: the negative zero
#    idea: zero-has-no-sign
def snap(x):
    return ours.snap(x) or 0.0


# %% right window: masks
def window(x, dtype):
    present = x != 0
    after = x.to(dtype).to(torch.float32)
    kept = present & (after != 0)
    error = torch.abs(after[kept] / x[kept] - 1).median()
    return 1 - kept.sum().item() / present.sum().item(), error


# %% right window: float64 and numpy
def window(x, dtype):
    before = x[x != 0].double().numpy()
    after = x[x != 0].to(dtype).double().numpy()
    kept = after != 0
    return np.mean(~kept), np.median(np.abs(after - before)[kept] / np.abs(before[kept]))


# %% right window: a list
def window(x, dtype):
    return list(ours.window(x, dtype))


# %% right window: a tensor of two
def window(x, dtype):
    return torch.tensor(ours.window(x, dtype), dtype=torch.float64)


# %% right window: a loop
def window(x, dtype):
    lost, errors = 0, []
    for before, after in zip(x.tolist(), x.to(dtype).double().tolist()):
        if before == 0:
            continue
        if after == 0:
            lost += 1
        else:
            errors.append(abs(after - before) / abs(before))
    return lost / (lost + len(errors)), sorted(errors)[len(errors) // 2]


# %% right window: the quantile
def window(x, dtype):
    x = x[torch.nonzero(x, as_tuple=True)]
    after = x.type(dtype).type(torch.float32)
    error = torch.quantile(((x - after) / x).abs()[after.ne(0)].double(), 0.5)
    return (after.eq(0).sum() / x.numel()).item(), error.item()


# %% wrong window: signed errors
#    says: the survivors' median relative error
#    never: the median of |cast - x|
def window(x, dtype):
    return changed(".abs().median()", ".median()")(x, dtype)


# %% wrong window: the error in 16 bits
#    says: A median of 0
#    never: the median of |cast - x|
def window(x, dtype):
    x = x[x != 0]
    after = x.to(dtype)
    kept = after != 0
    error = ((after - x.to(dtype))[kept] / x[kept]).abs().median()
    return (~kept).float().mean().item(), error.item()


# %% wrong window: in percent
#    says: Yours is in percent
def window(x, dtype):
    lost, error = ours.window(x, dtype)
    return 100 * lost, 100 * error


# %% wrong window: a count
#    says: Yours is the count
def window(x, dtype):
    return ours.window(x, dtype)[0] * (x != 0).sum().item(), ours.window(x, dtype)[1]


# %% wrong window: the survivors
#    says: the share that survives
def window(x, dtype):
    lost, error = ours.window(x, dtype)
    return 1 - lost, error


# %% wrong window: swapped
#    says: return lost first
def window(x, dtype):
    return ours.window(x, dtype)[::-1]


# %% wrong window: the mean
#    says: Yours is the mean
def window(x, dtype):
    return changed(".median()", ".mean()")(x, dtype)


# %% wrong window: the largest
#    says: Yours is the largest error
def window(x, dtype):
    return changed(".median()", ".max()")(x, dtype)


# %% wrong window: divided by the cast
#    says: relative to x is asked for
def window(x, dtype):
    return changed(" / x[kept]", " / after[kept]")(x, dtype)


# %% wrong window: one number
#    says: 2 values are asked for
def window(x, dtype):
    return ours.window(x, dtype)[0]


# %% wrong window: absolute errors
#    idea: error-is-absolute
def window(x, dtype):
    x = x[x != 0]
    after = x.to(dtype).float()
    return (after == 0).float().mean(), (after - x)[after != 0].abs().median()


# %% right eight-bits: the least bias
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": 32}


# %% right eight-bits: the largest bias
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": 40}


# %% right eight-bits: numpy's integers
eight_bits = {key: np.int64(value) for key, value in ours.eight_bits.items()}


# %% right eight-bits: whole floats
eight_bits = {key: float(value) for key, value in ours.eight_bits.items()}


# %% right eight-bits: in another order
eight_bits = dict(bias=36, mantissa_bits=2, exponent_bits=5)


# %% right eight-bits: tensors
eight_bits = {key: torch.tensor(value) for key, value in ours.eight_bits.items()}


# %% wrong eight-bits: E4M3 moved
#    says: Values are lost at both ends
eight_bits = {"exponent_bits": 4, "mantissa_bits": 3, "bias": 26}


# %% wrong eight-bits: three exponent bits
#    says: Values are lost at both ends
eight_bits = {"exponent_bits": 3, "mantissa_bits": 4, "bias": 20}


# %% wrong eight-bits: E5M2 as it is
#    idea: default-bias-fits-all
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": 15}


# %% wrong eight-bits: too low
#    says: The range ends below the largest gradient
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": 50}


# %% wrong eight-bits: too high
#    says: does it lie too high
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": 24}


# %% wrong eight-bits: no mantissa
#    says: leave no mantissa bit
#    never: specials
eight_bits = {"exponent_bits": 7, "mantissa_bits": 0, "bias": 63}


# %% wrong eight-bits: a negative bias
#    says: Which bias moves the normal values
eight_bits = {"exponent_bits": 5, "mantissa_bits": 2, "bias": -24}


# %% wrong eight-bits: nine bits
#    idea: sign-bit-is-free
eight_bits = {"exponent_bits": 5, "mantissa_bits": 3, "bias": 38}


# %% wrong eight-bits: half a bit
#    says: whole numbers are wanted
eight_bits = {"exponent_bits": 4.5, "mantissa_bits": 2.5, "bias": 38}


# %% wrong eight-bits: a list
#    says: a dict with the keys
eight_bits = [5, 2, 38]


# %% wrong eight-bits: seven bits
#    says: are 7 bits
eight_bits = {"exponent_bits": 4, "mantissa_bits": 2, "bias": 30}


# %% wrong eight-bits: a precise error is not all
#    idea: range-is-all-that-counts
eight_bits = {"exponent_bits": 6, "mantissa_bits": 1, "bias": 50}


# %% wrong e2m1-value: the sign bit stays in the exponent
#    idea: sign-bit-left-in-exponent
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1, code & 1
    if e == 0:
        return (-1) ** s * (m / 2)
    return (-1) ** s * (1 + m / 2) * 2.0 ** (e - 1)


# %% wrong ulp: int in place of floor
#    says: `int` makes it -3
def ulp(x):
    if abs(x) < 2**-14:
        return 2.0**-24
    return 2.0 ** (int(math.log2(abs(x))) - 10)


# %% wrong ulp: round in place of floor
#    says: `round` makes it 2
def ulp(x):
    if abs(x) < 2**-14:
        return 2.0**-24
    return 2.0 ** (round(math.log2(abs(x))) - 10)


# %% wrong ulp: every negative number is below 2**-14
#    says: Yours is right for every x >= 0
def ulp(x):
    return 2.0**-24 if x < 2**-14 else 2.0 ** (math.frexp(x)[1] - 11)


# %% wrong decode: the bias that the exponent's width suggests
#    idea: bias-is-always-ieee
#    says: Each wrong value is 2 times the right one
def decode(code, exponent_bits, mantissa_bits, bias):
    return ours.decode(code, exponent_bits, mantissa_bits, 2 ** (exponent_bits - 1) - 1)


# %% wrong decode: 1 << n - 1 is 1 << (n - 1)
#    says: exponent 1, mantissa 0
def decode(code, exponent_bits, mantissa_bits, bias):
    return changed("& (2**exponent_bits - 1)", "& (1 << exponent_bits - 1)")(
        code, exponent_bits, mantissa_bits, bias
    )


# %% right snap: IEEE's remainder
def snap(x):
    if math.isinf(x) or math.isnan(x):
        return x
    value = x - math.remainder(x, spacing(x, FP16))
    if abs(value) > 65504:
        value = math.inf
    return math.copysign(value, x)


# %% wrong snap: NaN is not below the largest value
#    says: NaN stays NaN
#    never: copies a sign
def snap(x):
    if not abs(x) < 65520:
        return math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(round(abs(x) / gap) * gap, x)


# %% wrong snap: one gap for all, and another cut
#    idea: ulp-is-constant
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) >= 65520:
        return math.copysign(math.inf, x)
    return math.copysign(round(abs(x) * 1024) / 1024, x)


# %% wrong snap: every overflow is positive
#    says: -65520 rounds to -inf
def snap(x):
    value = ours.snap(x)
    return abs(value) if math.isfinite(x) and math.isinf(value) else value


# %% wrong window: the share of all values
#    says: Yours is their share of all 82 values
def window(x, dtype):
    lost, error = ours.window(x, dtype)
    return lost * (x != 0).float().mean().item(), error


# %% wrong window: how many
#    says: lost is 15; 15 of 55 non-zero values become 0, that is 0.2727.
def window(x, dtype):
    return (x != 0).sum() - x.to(dtype).count_nonzero(), ours.window(x, dtype)[1]


# %% wrong eight-bits: E4M3 moved until almost nothing is lost
#    says: Which width must grow?
#    never: larger bias
eight_bits = {"exponent_bits": 4, "mantissa_bits": 3, "bias": 31}


# %% right ulp: the exponent field of FP16's code
def ulp(x):
    field = torch.tensor(abs(x), dtype=torch.float16).view(torch.int16).item() >> 10
    return math.ldexp(1, max(field, 1) - 25)


# %% right ulp: the gap of float64, 2**42 times as wide
def ulp(x):
    return max(math.ulp(x) * 2**42, 2.0**-24)


# %% right snap: a float64 whose lower bits are lost in a sum
def snap(x):
    shift = 2**52 * spacing(x, FP16) if math.isfinite(x) else 0
    value = abs(x) + shift - shift
    return math.copysign(value if value <= 65504 else math.inf, x) if x == x else x


# %% wrong e2m1-value: labkit's decode
#    says: uses `labkit.formats.decode`
def e2m1_value(code):
    from labkit.formats import E2M1, decode

    return decode(code, E2M1)


# %% wrong e2m1-value: the format explorer's
#    says: uses `labkit.labs.number_formats.look.look_at_code`
def e2m1_value(code):
    from labkit.formats import E2M1
    from labkit.labs.number_formats.look import look_at_code

    return look_at_code(code, E2M1).value


# %% wrong decode: labkit's decode
#    says: uses `labkit.formats.decode`
def decode(code, exponent_bits, mantissa_bits, bias):
    from labkit import formats

    widths = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits, "bias": bias}
    return formats.decode(code, formats.FloatFormat("mine", **widths, specials="none"))


# %% wrong decode: the format explorer's
#    says: uses `labkit.labs.number_formats.look.look_at_code`
def decode(code, exponent_bits, mantissa_bits, bias):
    from labkit.formats import FloatFormat
    from labkit.labs.number_formats import look

    widths = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits, "bias": bias}
    return look.look_at_code(code, FloatFormat("mine", **widths, specials="none")).value


# %% wrong ulp: labkit's spacing
#    says: uses `labkit.formats.spacing`
def ulp(x):
    return spacing(x, FP16)


# %% wrong ulp: labkit's exact ulp
#    says: uses `labkit.formats.exact.ulp`
def ulp(x):
    from labkit.formats import exact

    return exact.ulp(x, FP16)


# %% wrong ulp: numpy's spacing
#    says: uses `numpy.spacing`
def ulp(x):
    return np.spacing(np.float16(abs(x)))


# %% wrong ulp: numpy's nextafter
#    says: uses `numpy.nextafter`
def ulp(x):
    x = np.float16(abs(x))
    return np.nextafter(x, np.float16(np.inf)) - x


# %% wrong ulp: torch's nextafter
#    says: uses `torch.nextafter`
def ulp(x):
    above = torch.nextafter(torch.tensor(abs(x)).half(), torch.tensor(math.inf).half())
    return (above.float() - abs(x)).item()


# %% wrong ulp: torch's nextafter, as a method
#    says: uses `torch.Tensor.nextafter`
def ulp(x):
    above = torch.tensor(abs(x)).half().nextafter(torch.tensor(math.inf).half())
    return (above.float() - abs(x)).item()


# %% wrong snap: labkit's quantize
#    says: uses `labkit.formats.quantize`
def snap(x):
    from labkit.formats import quantize

    return quantize(x, FP16)


# %% wrong snap: labkit's encode and decode
#    says: uses `labkit.formats.encode`
def snap(x):
    from labkit.formats import decode, encode

    return decode(encode(x, FP16), FP16)


# %% wrong snap: labkit's exact nearest
#    says: uses `labkit.formats.exact.nearest`
def snap(x):
    from labkit.formats import exact

    return math.copysign(exact.nearest(x, FP16), x)


# %% wrong snap: what labkit's quantize is made of
#    says: uses `labkit.formats.rounding.round_tensor`
def snap(x):
    from labkit.formats.rounding import round_tensor

    x = torch.tensor(x, dtype=torch.float64)
    return round_tensor(x, FP16, "nearest_even", False, None).item()


# %% wrong snap: the format explorer's
#    says: uses `labkit.labs.number_formats.look.rounded_exact`
def snap(x):
    from labkit.labs.number_formats.look import rounded_exact

    return rounded_exact(x, FP16)


# %% wrong snap: numpy's float16
#    says: uses `numpy.float16`
def snap(x):
    return np.float16(x)


# %% wrong snap: numpy's cast
#    says: uses `numpy.float16`
def snap(x):
    with np.errstate(over="ignore"):
        return np.float64(x).astype(np.float16)


# %% wrong snap: struct
#    says: uses `struct.pack`
def snap(x):
    import struct

    if math.isfinite(x) and abs(x) < 65520:
        return struct.unpack("<e", struct.pack("<e", x))[0]
    return math.copysign(math.inf, x) if x == x else x


# %% wrong window: labkit's report
#    says: uses `labkit.formats.histograms.range_report`
def window(x, dtype):
    from labkit.formats.dtypes import format_of
    from labkit.formats.histograms import range_report

    report = range_report(x, format_of(dtype))
    return report.share_lost, report.error
