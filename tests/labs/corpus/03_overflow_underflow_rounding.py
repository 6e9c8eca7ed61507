# Answers to lab 03 that the author of its checks had not foreseen: see tests/corpus.py.
import functools
import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import torch

from labkit.formats import BF16, FP16, quantize, spacing


# %% right cliff: all values at once
def cliff(f):
    values = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)
    return values[f(values).isfinite()].max()


# %% right cliff: nextafter from the bottom of numpy's list
def cliff(f):
    values = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if torch.isfinite(f(torch.tensor(values[middle]))):
            low = middle
        else:
            high = middle
    return values[low]


# %% right cliff: bits from the top
def cliff(f):
    code = 0
    for bit in reversed(range(15)):
        more = code | 1 << bit
        if more < 0x7C00:
            x = torch.tensor(more, dtype=torch.int16).view(torch.float16)
            if f(x).isfinite().item():
                code = more
    return float(torch.tensor(code, dtype=torch.int16).view(torch.float16))


# %% right cliff: bisect over codes with a closed range
def cliff(f):
    low, high, best = 0, 31743, 0
    while low <= high:
        middle = (low + high) // 2
        x = torch.tensor([middle], dtype=torch.int16).view(torch.float16)
        if torch.isfinite(f(x)).all():
            best, low = x.item(), middle + 1
        else:
            high = middle - 1
    return best


# %% right cliff: real bisection rounded at each step
def cliff(f):
    low, high = 0.0, 65536.0
    for _ in range(60):
        middle = float(torch.tensor((low + high) / 2).half())
        if middle in (low, high):
            break
        if f(torch.tensor(middle).half()).isfinite():
            low = middle
        else:
            high = middle
    while low < 65504:
        above = low + spacing(low, FP16)
        if not f(torch.tensor(above).half()).isfinite():
            break
        low = above
    return low


# %% right cliff: an early return where nothing overflows
def cliff(f):
    top = torch.tensor(65504.0).half()
    return 65504 if f(top).isfinite() else ours.cliff(f)


# %% wrong cliff: the logarithm, in FP16
#    says: is already inf
#    never: two ends
def cliff(f):
    return torch.tensor(math.log(65504)).half()


# %% wrong cliff: the logarithm
#    says: no FP16 value
#    never: bisect
def cliff(f):
    return math.log(65504)


# %% wrong cliff: bisection over real numbers, to 1e-6
#    idea: cliff-is-a-real-number
def cliff(f):
    low, high = 0.0, 65504.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if f(torch.tensor(middle).half()).isfinite() else (low, middle)
    return low


# %% wrong cliff: the code cast instead of viewed
#    idea: only-whole-numbers-count
#    never: You step
def cliff(f):
    return changed(
        "return torch.tensor(code, dtype=torch.int16).view(torch.float16)",
        "return torch.tensor(code).half()",
    )(f)


# %% wrong cliff: whole numbers, one by one
#    idea: only-whole-numbers-count
#    says: finite as well
def cliff(f):
    x = 0
    while x < 2048 and f(torch.tensor(float(x + 1)).half()).isfinite():
        x += 1
    return x


# %% wrong cliff: the code, not its value
#    says: the code of
def cliff(f):
    return changed("value(safe).item()", "safe")(f)


# %% wrong cliff: the unsafe end
#    idea: first-unsafe-is-last-safe
def cliff(f):
    return changed("value(safe).item()", "float(value(unsafe))")(f)


# %% wrong cliff: f of the safe end
#    says: is already inf
def cliff(f):
    return f(torch.tensor(ours.cliff(f)).half()).item()


# %% wrong cliff: f in float32
#    idea: overflow-depends-on-the-number-alone
def cliff(f):
    low, high = 0.0, 65536.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if f(torch.tensor(middle)).isfinite() else (low, middle)
    return low


# %% wrong cliff: f of a Python float
#    says: raised
def cliff(f):
    return max(x for x in range(65504) if math.isfinite(f(float(x))))


# %% wrong cliff: doubling
#    idea: only-powers-of-two-count
def cliff(f):
    x = torch.tensor(2.0**-14).half()
    while (2 * x).isfinite() and f(2 * x).isfinite():
        x = 2 * x
    return x.item()


# %% wrong cliff: the last code is not tried
#    says: finite as well
def cliff(f):
    return changed("0x7C00", "0x7BFF")(f)


# %% right logsumexp: float64, shifted
def logsumexp(x):
    x = x.double()
    top = x.max()
    return top if top.isinf() or top.isnan() else ((x - top).exp().sum().log() + top).half()


# %% right logsumexp: numpy
def logsumexp(x):
    a = x.numpy().astype(np.float64)
    top = a.max()
    if not np.isfinite(top):
        return top
    return np.log(np.exp(a - top).sum()) + top


# %% right logsumexp: Python floats
def logsumexp(x):
    values = x.tolist()
    if any(math.isnan(v) for v in values):
        return math.nan
    top = max(values)
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


# %% right logsumexp: the shift is 0 where the maximum is infinite
def logsumexp(x):
    c = torch.where(x.max().isfinite(), x.max(), torch.zeros_like(x.max()))
    return torch.log(torch.sum(torch.exp(x - c))) + c


# %% right logsumexp: nan_to_num of the shift
def logsumexp(x):
    c = torch.nan_to_num(x.max(), nan=0.0, posinf=0.0, neginf=0.0)
    return (x - c).exp().sum().log() + c


# %% right logsumexp: online
def logsumexp(x):
    m, s = -math.inf, 0.0
    for v in x.tolist():
        if math.isnan(v) or v == math.inf:
            return v
        if v == -math.inf:
            continue
        new = max(m, v)
        s = s * math.exp(m - new) + math.exp(v - new)
        m = new
    return m + math.log(s) if s else -math.inf


# %% right logsumexp: logaddexp, one after the other
def logsumexp(x):
    return functools.reduce(torch.logaddexp, x.float()).half()


# %% wrong logsumexp: the formula in float32
#    says: overflowed
def logsumexp(x):
    return torch.log(torch.exp(x.float()).sum()).half()


# %% wrong logsumexp: the formula as it stands
#    idea: exp-never-overflows
def logsumexp(x):
    return torch.log(torch.sum(torch.exp(x)))


# %% wrong logsumexp: shift by the largest magnitude
#    says: underflowed to 0
#    never: mean
def logsumexp(x):
    c = x.abs().max()
    return c if not c.isfinite() else c + (x - c).exp().sum().log()


# %% wrong logsumexp: shift by the mean
#    says: overflowed
def logsumexp(x):
    c = x.mean()
    return c + (x - c).exp().sum().log() if c.isfinite() else x.max()


# %% wrong logsumexp: shift by the minimum
#    says: overflowed
def logsumexp(x):
    c = x.min()
    return c + (x - c).exp().sum().log() if c.isfinite() else x.max()


# %% wrong logsumexp: no word on infinities
#    idea: shift-is-always-defined
def logsumexp(x):
    c = x.max()
    return c + torch.log(torch.exp(x - c).sum())


# %% wrong logsumexp: the maximum is subtracted again
#    says: twice the maximum
def logsumexp(x):
    top = x.max()
    return top if not top.isfinite() else (x - top).exp().sum().log() - top


# %% wrong logsumexp: the maximum is not added
#    idea: shift-changes-nothing-to-undo
def logsumexp(x):
    top = x.max()
    return top if not top.isfinite() else (x - top).exp().sum().log()


# %% wrong logsumexp: the mean of the exponentials
#    says: lacks log(3)
def logsumexp(x):
    top = x.max()
    return top if not top.isfinite() else top + (x - top).exp().mean().log()


# %% wrong logsumexp: no logarithm
def logsumexp(x):
    top = x.max()
    return top if not top.isfinite() else top + (x - top).exp().sum()


# %% wrong logsumexp: just the maximum
#    says: maximum alone
def logsumexp(x):
    return x.max()


# %% wrong logsumexp: any -inf gives -inf
#    says: exp(-inf) is 0
def logsumexp(x):
    if not x.isfinite().all():
        return x.min() if x.min() == -math.inf else x.max()
    return ours.logsumexp(x)


# %% wrong logsumexp: NaN is dropped
#    says: NaN
def logsumexp(x):
    return ours.logsumexp(x[~x.isnan()])


# %% wrong logsumexp: clamped
#    says: overflowed
def logsumexp(x):
    return x.clamp(max=11).exp().sum().log()
