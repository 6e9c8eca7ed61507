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
#    says: True and False are no numbers
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
def e2m1_value(code):
    return [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code & 7]


# %% right ulp: torch.finfo
def ulp(x):
    info = torch.finfo(torch.float16)
    octave = max(math.floor(math.log2(abs(x))) if x else -14, -14)
    return info.eps * 2.0**octave


# %% right ulp: numpy's spacing of FP16
def ulp(x):
    return np.spacing(np.float16(abs(x)))


# %% right ulp: the next code
def ulp(x):
    code = np.float16(abs(x)).view(np.uint16)
    return float(np.uint16(code + 1).view(np.float16)) - abs(x)


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
