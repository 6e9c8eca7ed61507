# Blind answers to lab 02, written before any check was run. `thinks` is the idea of a wrong answer.

import bisect
import math
import statistics
import struct
from fractions import Fraction

import numpy as np
import torch

from labkit.formats import FP16, FloatFormat, spacing


# %% right e2m1-value: a table of magnitudes in ints and floats
def e2m1_value(code):
    return [1, -1.0][code // 8] * float([0, 0.5, 1, 1.5, 2, 3, 4, 6][code % 8])


# %% right e2m1-value: the bits as text
def e2m1_value(code):
    s, e1, e0, m = (int(bit) for bit in f"{code:04b}")
    e = 2 * e1 + e0
    return (-1) ** s * (min(e, 1) + m / 2) * 2 ** (max(e, 1) - 1)


# %% right e2m1-value: ldexp and copysign
def e2m1_value(code):
    exponent, m = (code & 7) >> 1, code & 1
    magnitude = math.ldexp(2 + m, exponent - 2) if exponent else m / 2
    return math.copysign(magnitude, -1 if code & 8 else 1)


# %% right e2m1-value: match on the exponent field
def e2m1_value(code):
    sign, rest = divmod(code, 8)
    field, m = divmod(rest, 2)
    match field:
        case 0:
            value = 0.5 * m
        case _:
            value = (1 + 0.5 * m) * 2.0 ** (field - 1)
    return -value if sign else value


# %% right e2m1-value: numpy's float64
def e2m1_value(code):
    table = np.array([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return np.concatenate([table, -table])[code]


# %% right e2m1-value: walk up the codes by the gap
def e2m1_value(code):
    value = 0.0
    for step in range(code & 0b111):
        value += 0.5 if step < 4 else 1.0 if step < 6 else 2.0
    return -value if code > 7 else value


# %% wrong e2m1-value: no subnormals
#    thinks: the implied 1 is always there
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    return (-1) ** s * (1 + m / 2) * 2.0 ** (e - 1)


# %% wrong e2m1-value: subnormals with exponent 0 - bias
#    thinks: a subnormal has the exponent 0 - bias
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    lead = 1 if e > 0 else 0
    return (-1) ** s * (lead + m / 2) * 2.0 ** (e - 1)


# %% wrong e2m1-value: zero has no sign
#    thinks: zero has no sign
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    if e == 0 and m == 0:
        return 0.0
    value = m / 2 if e == 0 else (1 + m / 2) * 2.0 ** (e - 1)
    return -value if s else value


# %% wrong e2m1-value: the mantissa bit is worth 1
#    thinks: the mantissa bit is worth one
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    if e == 0:
        return (-1) ** s * float(m)
    return (-1) ** s * (1 + m) * 2.0 ** (e - 1)


# %% wrong e2m1-value: no bias for normals
#    thinks: forgets the bias
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    if e == 0:
        return (-1) ** s * (m / 2)
    return (-1) ** s * (1 + m / 2) * 2.0**e


# %% wrong e2m1-value: the sign bit stays in the exponent
#    thinks: none (the mask is missing)
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1, code & 1
    if e == 0:
        return (-1) ** s * (m / 2)
    return (-1) ** s * (1 + m / 2) * 2.0 ** (e - 1)


# %% wrong e2m1-value: == binds tighter than &
#    thinks: none (precedence)
def e2m1_value(code):
    sign = -1.0 if code & 0b1000 else 1.0
    m = code & 1
    if code & 0b0110 == 0:
        return sign * m / 2
    return sign * (1 + m / 2) * 2.0 ** ((code >> 1 & 0b11) - 1)


# %% wrong e2m1-value: two's complement
#    thinks: negative codes count down, as in integers
def e2m1_value(code):
    if code >= 8:
        return -e2m1_value(16 - code) if code > 8 else -0.0
    e, m = code >> 1, code & 1
    return m / 2 if e == 0 else (1 + m / 2) * 2.0 ** (e - 1)


# %% wrong e2m1-value: exponent 3 is inf and NaN
#    thinks: the highest exponent field is reserved, as in IEEE 754
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    sign = -1.0 if s else 1.0
    if e == 3:
        return sign * math.inf if m == 0 else math.nan
    return sign * (m / 2 if e == 0 else (1 + m / 2) * 2.0 ** (e - 1))


# %% wrong e2m1-value: prints
#    thinks: none (prints in place of return)
def e2m1_value(code):
    s, e, m = code >> 3, code >> 1 & 3, code & 1
    print((-1) ** s * (m / 2 if e == 0 else (1 + m / 2) * 2.0 ** (e - 1)))


# %% right decode: the bits as text
def decode(code, exponent_bits, mantissa_bits, bias):
    text = f"{code:0{1 + exponent_bits + mantissa_bits}b}"
    e, m = int(text[1 : 1 + exponent_bits], 2), int("0" + text[1 + exponent_bits :], 2)
    value = (bool(e) + m / 2**mantissa_bits) * 2.0 ** (max(e, 1) - bias)
    return -value if text[0] == "1" else value


# %% right decode: divmod
def decode(code, exponent_bits, mantissa_bits, bias):
    rest, m = divmod(code, 2**mantissa_bits)
    s, e = divmod(rest, 2**exponent_bits)
    f = m / 2**mantissa_bits
    if e == 0:
        return (-1.0) ** s * f * 2.0 ** (1 - bias)
    return (-1.0) ** s * (1 + f) * 2.0 ** (e - bias)


# %% right decode: a whole number of the smallest steps
def decode(code, exponent_bits, mantissa_bits, bias):
    e = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    m = code & ((1 << mantissa_bits) - 1)
    if e:
        m |= 1 << mantissa_bits
    value = math.ldexp(m, max(e, 1) - bias - mantissa_bits)
    return math.copysign(value, -1 if code >> (exponent_bits + mantissa_bits) else 1)


# %% right decode: fractions
def decode(code, exponent_bits, mantissa_bits, bias):
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = Fraction(code % 2**mantissa_bits, 2**mantissa_bits)
    value = (f if e == 0 else 1 + f) * Fraction(2) ** ((e or 1) - bias)
    return -float(value) if code >> exponent_bits + mantissa_bits else float(value)


# %% right decode: labkit's own format
def decode(code, exponent_bits, mantissa_bits, bias):
    from labkit.formats import decode as labkit_decode

    e = code >> mantissa_bits & (1 << exponent_bits) - 1
    m = code & (1 << mantissa_bits) - 1
    sign = np.float64(-1 if code >> exponent_bits + mantissa_bits else 1)
    del labkit_decode
    return sign * np.ldexp(float(m if e == 0 else m + 2**mantissa_bits), max(e, 1) - bias - mantissa_bits)


# %% right decode: a loop over the mantissa bits
def decode(code, exponent_bits, mantissa_bits, bias):
    e = 0
    for i in range(exponent_bits):
        e += (code >> mantissa_bits + i & 1) * 2**i
    value = 0.0 if e == 0 else 1.0
    for i in range(mantissa_bits):
        value += (code >> i & 1) * 2.0 ** (i - mantissa_bits)
    value *= 2.0 ** (1 - bias if e == 0 else e - bias)
    return value if code < 1 << exponent_bits + mantissa_bits else -value


# %% wrong decode: eight bits always
#    thinks: the sign is bit 7
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> 7 else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: the mantissa field counts halves
#    thinks: every mantissa step is one half
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: the highest exponent field is inf and NaN
#    thinks: the highest exponent field is always reserved
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    if e == 2**exponent_bits - 1:
        return sign * math.inf if f == 0 else math.nan
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: subnormals with exponent 0 - bias
#    thinks: a subnormal has the exponent 0 - bias
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * ((e > 0) + f) * 2.0 ** (e - bias)


# %% wrong decode: the bias from the width
#    thinks: the bias is always 2**(k - 1) - 1
def decode(code, exponent_bits, mantissa_bits, bias):
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: FP16's exponent for subnormals
#    thinks: subnormals have exponent -14 in every format
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * (f * 2.0**-14 if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: 1 << n - 1
#    thinks: none (precedence of << and -)
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & (1 << exponent_bits - 1)
    f = (code & (1 << mantissa_bits) - 1) / 2**mantissa_bits
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: the sign stays in the exponent
#    thinks: none (the mask is missing)
def decode(code, exponent_bits, mantissa_bits, bias):
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% wrong decode: zero loses its sign
#    thinks: zero has no sign
def decode(code, exponent_bits, mantissa_bits, bias):
    negative = code >> exponent_bits + mantissa_bits
    e = code >> mantissa_bits & 2**exponent_bits - 1
    m = code & 2**mantissa_bits - 1
    if e == m == 0:
        return 0.0
    f = m / 2**mantissa_bits
    value = f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias)
    return -value if negative else value


# %% wrong decode: negative zero is NaN with bias 8
#    thinks: bias 8 means E4M3FNUZ, where -0.0's code is NaN
def decode(code, exponent_bits, mantissa_bits, bias):
    if bias == 8 and code == 0b1000_0000:
        return math.nan
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    e = code >> mantissa_bits & 2**exponent_bits - 1
    f = (code & 2**mantissa_bits - 1) / 2**mantissa_bits
    return sign * (f * 2.0 ** (1 - bias) if e == 0 else (1 + f) * 2.0 ** (e - bias))


# %% right ulp: numpy's spacing of a float16
def ulp(x):
    return np.spacing(np.float16(abs(x)))


# %% right ulp: the next code
def ulp(x):
    h = torch.tensor(abs(x), dtype=torch.float16)
    up = (h.view(torch.int16) + 1).view(torch.float16)
    return up.item() - h.item()


# %% right ulp: log2 and floor
def ulp(x):
    if abs(x) < 2**-14:
        return 2**-24
    return 2 ** (math.floor(math.log2(abs(x))) - 10)


# %% right ulp: doubling in a loop
def ulp(x):
    top, gap = 2.0**-13, 2.0**-24
    while abs(x) >= top:
        top, gap = 2 * top, 2 * gap
    return gap


# %% right ulp: from the gap of float64
def ulp(x):
    return max(math.ulp(x) * 2.0**42, 2.0**-24)


# %% right ulp: the exponent field, by struct
def ulp(x):
    (code,) = struct.unpack("<H", struct.pack("<e", x))
    field = code >> 10 & 0x1F
    return math.ldexp(1.0, max(field, 1) - 25)


# %% wrong ulp: eps times |x|
#    thinks: the gap is eps * x
def ulp(x):
    return abs(x) * 2**-10 if x else 2**-24


# %% wrong ulp: frexp's exponent as it is
#    thinks: frexp's exponent is ours
def ulp(x):
    _, k = math.frexp(x)
    return 2.0 ** (max(k, -14) - 10) if x else 2.0**-24


# %% wrong ulp: no bound below
#    thinks: subnormals get ever finer
def ulp(x):
    return 2.0 ** (math.frexp(x)[1] - 11)


# %% wrong ulp: log2 of x itself
#    thinks: none (log2 of a negative number)
def ulp(x):
    if x == 0:
        return 2.0**-24
    return 2.0 ** (max(math.floor(math.log2(x)), -14) - 10)


# %% wrong ulp: int in place of floor
#    thinks: none (int truncates towards zero)
def ulp(x):
    if abs(x) < 2**-14:
        return 2.0**-24
    return 2.0 ** (int(math.log2(abs(x))) - 10)


# %% wrong ulp: round in place of floor
#    thinks: none (the nearest power of two)
def ulp(x):
    if abs(x) < 2**-14:
        return 2.0**-24
    return 2.0 ** (round(math.log2(abs(x))) - 10)


# %% wrong ulp: no abs before the subnormal question
#    thinks: none (every negative number is below 2**-14)
def ulp(x):
    if x < 2**-14:
        return 2.0**-24
    return 2.0 ** (math.frexp(x)[1] - 11)


# %% wrong ulp: the gap of float32
#    thinks: none (float32's gap)
def ulp(x):
    return float(np.spacing(np.float32(abs(x))))


# %% wrong ulp: the gap below
#    thinks: the gap below is as wide as the gap above
def ulp(x):
    h = np.float16(abs(x))
    if h == 0:
        return 2.0**-24
    return float(h - np.nextafter(h, np.float16(0)))


# %% wrong ulp: eps everywhere
#    thinks: the gap is eps everywhere
def ulp(x):
    return torch.finfo(torch.float16).eps


# %% wrong ulp: zero has no gap
#    thinks: none (zero as a special case gives 0)
def ulp(x):
    if x == 0:
        return 0.0
    return 2.0 ** (max(math.frexp(x)[1] - 1, -14) - 10)


# %% wrong ulp: the gap of a negative number is negative
#    thinks: none (spacing of a negative number)
def ulp(x):
    return float(np.spacing(np.float16(x)))


# %% right snap: numpy's float16
def snap(x):
    with np.errstate(all="ignore"):
        return float(np.float16(x))


# %% right snap: struct, and inf where it refuses
def snap(x):
    try:
        return struct.unpack("e", struct.pack("e", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


# %% right snap: IEEE's remainder
def snap(x):
    if math.isinf(x) or math.isnan(x):
        return x
    value = x - math.remainder(x, spacing(x, FP16))
    if abs(value) > 65504:
        value = math.inf
    return math.copysign(value, x)


# %% right snap: fractions
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) >= 65520:
        return math.copysign(math.inf, x)
    gap = Fraction(2) ** max(math.frexp(x)[1] - 11, -24)
    return math.copysign(float(round(Fraction(x) / gap) * gap), x)


# %% right snap: a search in the table of all values
_CODES = torch.arange(0, 0x7C00, dtype=torch.int16)
_VALUES = [*_CODES.view(torch.float16).tolist(), 65536.0]


def snap(x):
    if x != x or abs(x) == math.inf:
        return x
    i = bisect.bisect_left(_VALUES, abs(x))
    if i == len(_VALUES):
        return math.copysign(math.inf, x)
    near = min((j for j in (i - 1, i) if j >= 0), key=lambda j: (abs(_VALUES[j] - abs(x)), j % 2))
    return math.copysign(_VALUES[near] if _VALUES[near] < 65536 else math.inf, x)


# %% right snap: torch's round in float64
def snap(x):
    t = torch.tensor(x, dtype=torch.float64)
    if not t.isfinite():
        return x
    gap = spacing(x, FP16)
    y = (t / gap).round() * gap
    return torch.where(y.abs() > 65504, torch.copysign(torch.tensor(math.inf).double(), t), y).item()


# %% wrong snap: torch's cast of a float32 tensor
#    thinks: a tensor holds x exactly
def snap(x):
    return torch.tensor(x).half().item()


# %% wrong snap: torch's cast of a float64 tensor
#    thinks: torch casts float64 to float16 in one step
def snap(x):
    return torch.tensor(x, dtype=torch.float64).half().item()


# %% wrong snap: the sign of zero is lost
#    thinks: zero has no sign
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    y = round(x / gap) * gap
    return math.copysign(math.inf, x) if abs(y) > 65504 else y


# %% wrong snap: saturates
#    thinks: values above the largest become the largest
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    return math.copysign(min(round(abs(x) / gap) * gap, 65504.0), x)


# %% wrong snap: inf above 65504
#    thinks: everything above the largest value is inf
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) > 65504:
        return math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(round(abs(x) / gap) * gap, x)


# %% wrong snap: 65520 itself stays
#    thinks: none (> in place of >=)
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) > 65520:
        return math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(round(abs(x) / gap) * gap, x)


# %% wrong snap: ties go up
#    thinks: a half is rounded up
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = math.floor(abs(x) / gap + 0.5) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: truncates
#    thinks: a cast cuts the bits off
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) >= 65520:
        return math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(int(abs(x) / gap) * gap, x)


# %% wrong snap: subnormals are flushed
#    thinks: below the smallest normal there is only 0
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) < 2**-14:
        return math.copysign(0.0, x)
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: inf and nan not asked about
#    thinks: none (round of inf raises)
def snap(x):
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)


# %% wrong snap: minus inf becomes inf
#    thinks: none (the sign of an overflow)
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = math.copysign(round(abs(x) / gap) * gap, x)
    return value if abs(value) <= 65504 else math.inf


# %% wrong snap: multiples of eps
#    thinks: the gap is eps everywhere
def snap(x):
    if not math.isfinite(x):
        return x
    if abs(x) >= 65520:
        return math.copysign(math.inf, x)
    return math.copysign(round(abs(x) * 1024) / 1024, x)


# %% wrong snap: nan becomes inf
#    thinks: none (nan <= 65504 is False)
def snap(x):
    if not abs(x) <= 65519.999:
        return math.copysign(math.inf, x)
    gap = spacing(x, FP16)
    return math.copysign(round(abs(x) / gap) * gap, x)


# %% right window: two masks, tensors out
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean(), ((y[kept] - x[kept]) / x[kept]).abs().median()


# %% right window: the median by sorting, a list
def window(x, dtype):
    cast = x.to(dtype).float()
    nonzero, alive = x != 0, cast != 0
    lost = 1 - alive.sum().item() / nonzero.sum().item()
    errors = ((cast - x).abs() / x.abs())[alive].sort().values
    return [lost, errors[(len(errors) - 1) // 2].item()]


# %% right window: numpy's median
def window(x, dtype):
    a, b = x.double().numpy(), x.to(dtype).double().numpy()
    nonzero, kept = a != 0, b != 0
    return np.sum(nonzero & ~kept) / np.sum(nonzero), np.median(np.abs(b[kept] / a[kept] - 1))


# %% right window: a Python loop
def window(x, dtype):
    pairs = [(a, b) for a, b in zip(x.tolist(), x.to(dtype).tolist()) if a != 0]
    errors = [abs(b - a) / abs(a) for a, b in pairs if b != 0]
    return 1 - len(errors) / len(pairs), statistics.median(errors)


# %% right window: nanmedian
def window(x, dtype):
    nan = torch.tensor(math.nan)
    cast = x.to(dtype).float()
    lost = ((cast == 0) & (x != 0)).sum() / x.count_nonzero()
    error = torch.where(cast != 0, (cast - x).abs() / x.abs(), nan).nanmedian()
    return float(lost), float(error)


# %% right window: a quantile, in float64
def window(x, dtype):
    wide, cast = x.double(), x.to(dtype).double()
    alive = cast.abs() > 0
    share = 1.0 - alive.sum() / (wide.abs() > 0).sum()
    errors = ((cast - wide) / wide)[alive].abs()
    return share.item(), torch.quantile(errors, 0.5).item()


# %% wrong window: the share of all values
#    thinks: zeros count as lost or as values
def window(x, dtype):
    y = x.to(dtype).float()
    kept = y != 0
    lost = ((x != 0) & ~kept).float().mean().item()
    return lost, ((y - x).abs() / x.abs())[kept].median().item()


# %% wrong window: zeros are lost too
#    thinks: every zero after the cast is lost
def window(x, dtype):
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean().item(), ((y - x).abs() / x.abs())[kept].median().item()


# %% wrong window: lost is below the smallest normal value
#    thinks: subnormals are lost
def window(x, dtype):
    x = x[x != 0]
    kept = x.abs() >= torch.finfo(dtype).tiny
    y = x.to(dtype).float()
    return (~kept).float().mean().item(), ((y - x) / x).abs()[kept].median().item()


# %% wrong window: lost is below the smallest subnormal value
#    thinks: what is below the smallest subnormal becomes 0
def window(x, dtype):
    x = x[x != 0]
    info = torch.finfo(dtype)
    kept = x.abs() >= info.tiny * info.eps
    y = x.to(dtype).float()
    return (~kept).float().mean().item(), ((y - x) / x).abs()[kept].median().item()


# %% wrong window: the median over the lost values too
#    thinks: lost values have the relative error 1
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    return (y == 0).float().mean().item(), ((y - x) / x).abs().median().item()


# %% wrong window: the mean
#    thinks: none (mean in place of median)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean().item(), ((y - x) / x).abs()[kept].mean().item()


# %% wrong window: the absolute error
#    thinks: none (absolute in place of relative)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean().item(), (y - x).abs()[kept].median().item()


# %% wrong window: the error in the narrow dtype
#    thinks: the error can be computed in the dtype of the cast
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype)
    kept = y != 0
    error = ((y - x.to(dtype)) / y).abs()[kept].median().item()
    return (~kept).float().mean().item(), error


# %% wrong window: the error with its sign
#    thinks: none (no abs)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean().item(), ((y - x) / x)[kept].median().item()


# %% wrong window: percent
#    thinks: none (100 times)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return 100 * (~kept).float().mean().item(), ((y - x) / x).abs()[kept].median().item()


# %% wrong window: always float16
#    thinks: none (the dtype is not used)
def window(x, dtype):
    x = x[x != 0]
    y = x.half().float()
    kept = y != 0
    return (~kept).float().mean().item(), ((y - x) / x).abs()[kept].median().item()


# %% wrong window: divided by the cast value
#    thinks: none (|cast - x| / |cast|)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).float().mean().item(), ((y - x) / y).abs()[kept].median().item()


# %% wrong window: the other way round
#    thinks: none (order of the two numbers)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return ((y - x) / x).abs()[kept].median().item(), (~kept).float().mean().item()


# %% wrong window: a count
#    thinks: none (a count in place of a share)
def window(x, dtype):
    x = x[x != 0]
    y = x.to(dtype).float()
    kept = y != 0
    return (~kept).sum().item(), ((y - x) / x).abs()[kept].median().item()


# %% right eight-bits: in the middle
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=36)

# %% right eight-bits: the smallest bias
eight_bits = {"bias": 32, "mantissa_bits": 2, "exponent_bits": 5}

# %% right eight-bits: the largest bias
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=40)

# %% right eight-bits: numpy's whole numbers
eight_bits = dict(exponent_bits=np.int64(5), mantissa_bits=np.int64(2), bias=np.int64(37))

# %% right eight-bits: computed from the largest gradient
_top = -9
eight_bits = dict(exponent_bits=5, mantissa_bits=7 - 5, bias=2**5 - 1 - _top)

# %% right eight-bits: the fields of a FloatFormat
_trial = FloatFormat("trial", exponent_bits=5, mantissa_bits=2, bias=38)
eight_bits = {
    name: getattr(_trial, name) for name in ("exponent_bits", "mantissa_bits", "bias")
}

# %% wrong eight-bits: the trial of the cell
#    thinks: none
eight_bits = dict(exponent_bits=4, mantissa_bits=3, bias=24)

# %% wrong eight-bits: E4M3 with a larger bias
#    thinks: the bias alone can do it
eight_bits = dict(exponent_bits=4, mantissa_bits=3, bias=31)

# %% wrong eight-bits: E5M2 as it is
#    thinks: the standard format's bias suits every tensor
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=15)

# %% wrong eight-bits: as many exponent bits as fit
#    thinks: range is all
eight_bits = dict(exponent_bits=6, mantissa_bits=1, bias=45)

# %% wrong eight-bits: no sign bit
#    thinks: the widths make eight bits without the sign
eight_bits = dict(exponent_bits=5, mantissa_bits=3, bias=36)

# %% wrong eight-bits: a bias too large
#    thinks: none (overflow)
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=44)

# %% wrong eight-bits: 1.0 % in print, a little more in truth
#    thinks: none (the printed share is rounded)
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=31)

# %% wrong eight-bits: the bias with its sign turned
#    thinks: a larger bias reaches larger numbers
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=-36)

# %% wrong eight-bits: no bias
#    thinks: none (a key is missing)
eight_bits = dict(exponent_bits=5, mantissa_bits=2)

# %% wrong eight-bits: a tuple
#    thinks: none (the form of the answer)
eight_bits = (5, 2, 36)

# %% wrong eight-bits: a FloatFormat
#    thinks: none (the form of the answer)
eight_bits = FloatFormat("mine", exponent_bits=5, mantissa_bits=2, bias=36)

# %% wrong eight-bits: more mantissa bits
#    thinks: the error is what must shrink
eight_bits = dict(exponent_bits=3, mantissa_bits=4, bias=16)
