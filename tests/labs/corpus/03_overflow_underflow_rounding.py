# Answers to lab 03 that the author of its checks had not foreseen: see tests/corpus.py.
import functools
import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import torch

from labkit.formats import BF16, FP16, quantize, spacing


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


# %% wrong logsumexp: the last of the cumulative ones
#    says: uses `torch.Tensor.logcumsumexp`
def logsumexp(x):
    return x.double().logcumsumexp(0)[-1].half()


# %% right logsumexp: logaddexp, one after the other
def logsumexp(x):
    return functools.reduce(torch.logaddexp, x.float()).half()


# %% wrong logsumexp: the formula in float32
#    idea: wider-dtype-replaces-the-shift
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
#    says: Your result is 12.0 plus the sum of the exponentials
def logsumexp(x):
    top = x.max()
    return top if not top.isfinite() else top + (x - top).exp().sum()


# %% wrong logsumexp: neither a logarithm nor the maximum
#    says: sum of the shifted exponentials
def logsumexp(x):
    top = x.max()
    return (x - top).exp().sum() if top.isfinite() else top


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


# %% wrong logsumexp: Python's max, which passes over a NaN beside -inf
#    says: NaN in x must make the result NaN
def logsumexp(x):
    top = max(x.tolist())
    if math.isinf(top):
        return torch.tensor(top)
    return top + (x - top).exp().sum().log()


# %% wrong logsumexp: clamped
#    says: overflowed
def logsumexp(x):
    return x.clamp(max=11).exp().sum().log()


# %% right masked-softmax: where with a tensor
def masked_softmax(scores, keep):
    low = torch.tensor(torch.finfo(torch.float16).min, dtype=torch.float16)
    return torch.softmax(torch.where(keep, scores, low), -1)


# %% right masked-softmax: -inf, then NaN becomes 0
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, -math.inf).softmax(-1).nan_to_num(0.0)


# %% right masked-softmax: a clone, filled in place
def masked_softmax(scores, keep):
    s = scores.clone()
    s[~keep] = -65504
    return s.softmax(-1) * keep


# %% right masked-softmax: float32 inside
def masked_softmax(scores, keep):
    wide = scores.float().masked_fill(~keep, -1e9)
    return wide.softmax(dim=-1).half()


# %% right masked-softmax: by hand
def masked_softmax(scores, keep):
    s = scores.double().masked_fill(~keep, -math.inf)
    top = s.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)
    e = (s - top).exp()
    return (e / e.sum(dim=-1, keepdim=True).clamp(min=1e-9)).half()


# %% right masked-softmax: row by row
def masked_softmax(scores, keep):
    out = torch.zeros_like(scores)
    rows, seen, to = scores.reshape(-1, 4), keep.reshape(-1, 4), out.view(-1, 4)
    for i in range(len(rows)):
        if seen[i].any():
            to[i, seen[i]] = torch.softmax(rows[i, seen[i]], dim=0)
    return out


# %% wrong masked-softmax: -3e4
#    idea: any-negative-number-masks
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, -3e4).softmax(dim=-1)


# %% wrong masked-softmax: -6e4
#    idea: any-negative-number-masks
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, -6e4).softmax(dim=-1)


# %% wrong masked-softmax: -1e4 where not kept
#    idea: any-negative-number-masks
def masked_softmax(scores, keep):
    return torch.where(keep, scores, torch.tensor(-1e4).half()).softmax(-1)


# %% wrong masked-softmax: -1e4 added
#    says: hidden positions
def masked_softmax(scores, keep):
    return (scores + (~keep).half() * -1e4).softmax(-1)


# %% wrong masked-softmax: the caller's scores are filled
#    says: changes its argument
def masked_softmax(scores, keep):
    scores[~keep] = torch.finfo(scores.dtype).min
    return scores.softmax(dim=-1)


# %% wrong masked-softmax: masked_fill_
#    says: changes its argument
def masked_softmax(scores, keep):
    return scores.masked_fill_(~keep, torch.finfo(scores.dtype).min).softmax(dim=-1)


# %% wrong masked-softmax: masked_fill of -1e9
#    idea: mask-constant-overflows
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, -1e9).softmax(dim=-1)


# %% wrong masked-softmax: -inf
#    idea: mask-constant-overflows
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)


# %% wrong masked-softmax: a wider mask
#    says: dtype torch.float32
def masked_softmax(scores, keep):
    return (scores + torch.where(keep, 0.0, -1e9)).softmax(-1)


# %% wrong masked-softmax: keep and hide exchanged
#    says: hidden positions have 1 of the weight
#    says: in this row lies where keep is False
def masked_softmax(scores, keep):
    return scores.masked_fill(keep, torch.finfo(scores.dtype).min).softmax(-1)


# %% wrong masked-softmax: the first axis
#    says: last axis
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=0)


# %% wrong masked-softmax: the second axis
#    says: last axis
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=1)


# %% wrong masked-softmax: a float's lowest value
#    idea: mask-constant-overflows
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, torch.finfo(torch.float32).min).softmax(dim=-1)


# %% wrong masked-softmax: the smallest positive value
#    idea: masked-means-score-zero
def masked_softmax(scores, keep):
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).tiny).softmax(dim=-1)


# %% wrong masked-softmax: the mask after the softmax, not renormalised
#    idea: mask-after-the-softmax
def masked_softmax(scores, keep):
    return torch.softmax(scores, -1).masked_fill(~keep, 0)


# %% wrong masked-softmax: renormalised afterwards
#    says: keep
def masked_softmax(scores, keep):
    w = torch.softmax(scores, -1) * keep
    return w / w.sum(-1, keepdim=True)


# %% wrong masked-softmax: ten below the lowest score
#    idea: any-negative-number-masks
#    says: not far enough below the kept scores
def masked_softmax(scores, keep):
    return torch.where(keep, scores, scores.min() - 10).softmax(dim=-1)


# %% right unit-rms: float64 and numpy
def unit_rms(x):
    a = x.numpy().astype(np.float64)
    return torch.from_numpy((a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-8)).astype(np.float16))


# %% right unit-rms: rsqrt
def unit_rms(x):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-8)).to(x.dtype)


# %% wrong unit-rms: torch's own
#    says: uses `torch.nn.functional.rms_norm`
def unit_rms(x):
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], eps=1e-8).half()


# %% right unit-rms: row by row
def unit_rms(x):
    rows = [r.float() / torch.sqrt((r.float() ** 2).mean() + 1e-8) for r in x]
    return torch.stack(rows).half()


# %% right unit-rms: unsqueeze
def unit_rms(x):
    y = x.to(torch.float32)
    mean = (y * y).sum(dim=1) / y.shape[1]
    return y.div((mean + 1e-8).sqrt().unsqueeze(1)).to(torch.float16)


# %% right unit-rms: Python floats
def unit_rms(x):
    out = []
    for row in x.tolist():
        rms = math.sqrt(sum(v * v for v in row) / len(row) + 1e-8)
        out.append([v / rms for v in row])
    return torch.tensor(out, dtype=torch.float16)


# %% wrong unit-rms: mean without keepdim
#    says: raised
def unit_rms(x):
    return changed("square().mean(dim=-1, keepdim=True)", "square().mean(dim=-1)")(x)


# %% wrong unit-rms: the mean of the whole tensor
#    says: of its own
def unit_rms(x):
    y = x.float()
    return (y / (y.square().mean() + 1e-8).sqrt()).half()


# %% wrong unit-rms: the mean over columns
#    says: columns
def unit_rms(x):
    y = x.float()
    return (y / (y.square().mean(dim=0, keepdim=True) + 1e-8).sqrt()).half()


# %% wrong unit-rms: all in FP16
#    idea: eps-fits-every-format
def unit_rms(x):
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-8).sqrt()


# %% wrong unit-rms: no eps
#    says: nan
#    says: 0 / 0
def unit_rms(x):
    return changed("(mean + 1e-8)", "mean")(x)


# %% wrong unit-rms: no eps, and NaN to 0
#    says: without an eps
#    never: under the root
def unit_rms(x):
    y = x.float()
    return (y / y.square().mean(-1, True).sqrt()).nan_to_num(0.0).half()


# %% wrong unit-rms: eps after the root
#    idea: eps-may-stand-anywhere
def unit_rms(x):
    y = x.float()
    return (y / (y.square().mean(-1, True).sqrt() + 1e-8)).half()


# %% wrong unit-rms: eps 1e-6
#    idea: a-larger-eps-costs-nothing
def unit_rms(x):
    return changed("mean + 1e-8", "mean + 1e-6")(x)


# %% wrong unit-rms: eps 1e-5, as torch has it
#    idea: a-larger-eps-costs-nothing
def unit_rms(x):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).half()


# %% wrong unit-rms: clamped to eps
#    says: expected
def unit_rms(x):
    y = x.float()
    return (y / y.square().mean(-1, True).clamp(min=1e-8).sqrt()).half()


# %% wrong unit-rms: no root
#    says: root
def unit_rms(x):
    return changed(".sqrt()", "")(x)


# %% wrong unit-rms: the sum instead of the mean
#    says: sum
def unit_rms(x):
    return changed("square().mean(", "square().sum(")(x)


# %% wrong unit-rms: the mean is subtracted
#    says: mean(x)
def unit_rms(x):
    y = x.float()
    y = y - y.mean(-1, True)
    return (y / (y.square().mean(-1, True) + 1e-8).sqrt()).half()


# %% wrong unit-rms: float32 comes back
#    says: dtype
def unit_rms(x):
    return changed(".half()", "")(x)


# %% wrong unit-rms: the square in FP16
#    idea: upcast-too-late
def unit_rms(x):
    mean = (x * x).float().mean(dim=-1, keepdim=True)
    return (x / torch.sqrt(mean + 1e-8)).half()


# %% right unit-rms: the root in FP16
def unit_rms(x):
    return x / (x.float().square().mean(dim=-1, keepdim=True) + 1e-8).sqrt().half()


# %% right rescue: numpy, and a flag of numpy's
def rescue(a, b, in_dtype, out_dtype):
    x, y = (t.to(in_dtype).float().numpy() for t in (a, b))
    c = torch.from_numpy(x @ y).to(out_dtype)
    return c, not np.isfinite(c.float().numpy()).all()


# %% right rescue: torch.mm, a list, a flag as a tensor
def rescue(a, b, in_dtype, out_dtype):
    c = torch.mm(a.type(in_dtype).type(torch.float32), b.type(in_dtype).type(torch.float32))
    c = c.type(out_dtype)
    return [c, ~torch.isfinite(c).all()]


# %% right rescue: isinf or isnan
def rescue(a, b, in_dtype, out_dtype):
    c = torch.matmul(a.to(in_dtype).to(torch.float), b.to(in_dtype).to(torch.float)).to(out_dtype)
    return c, bool((c.isinf() | c.isnan()).any())


# %% right rescue: a loop over k
def rescue(a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).float(), b.to(in_dtype).float()
    s = torch.zeros(len(a), b.shape[1])
    for i in range(a.shape[1]):
        s += x[:, i : i + 1] * y[i]
    c = s.to(out_dtype)
    return c, c.isfinite().all().item() is False


# %% right rescue: einsum
def rescue(a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).float(), b.to(in_dtype).float()
    c = torch.einsum("ik,kj->ij", x, y).to(out_dtype)
    return c, any(not math.isfinite(v) for v in c.flatten().tolist())


# %% right rescue: a difference that is no number
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, bool((c - c != 0).any())


# %% wrong rescue: the flag before the cast, by the largest value
#    says: the flag is True
#    says: 65504
def rescue(a, b, in_dtype, out_dtype):
    c = a.to(in_dtype).float() @ b.to(in_dtype).float()
    flag = (c.abs() > torch.finfo(out_dtype).max).any() | c.isnan().any()
    return c.to(out_dtype), flag


# %% wrong rescue: the flag before the cast
#    idea: only-the-sum-can-overflow
def rescue(a, b, in_dtype, out_dtype):
    c = a.to(in_dtype).float() @ b.to(in_dtype).float()
    return c.to(out_dtype), not c.isfinite().all()


# %% wrong rescue: True if all is well
#    says: every element of your product is finite
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, c.isfinite().all()


# %% wrong rescue: True if nothing is finite
#    says: the flag is False
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, not c.isfinite().any()


# %% wrong rescue: a flag for each element
#    says: True or False is asked for
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, ~c.isfinite()


# %% wrong rescue: isinf alone
#    says: the flag is False
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, c.isinf().any()


# %% wrong rescue: isnan alone
#    says: the flag is False
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return c, c.isnan().any()


# %% wrong rescue: never raised
#    says: the flag is False
#    never: the last cast made it inf
def rescue(a, b, in_dtype, out_dtype):
    return (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype), False


# %% wrong rescue: a 16-bit product, widened
#    idea: upcast-too-late
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype) @ b.to(in_dtype)).to(out_dtype)
    return c, not c.isfinite().all()


# %% wrong rescue: the inputs are not rounded
#    idea: inputs-keep-their-bits
def rescue(a, b, in_dtype, out_dtype):
    c = torch.matmul(a, b).to(out_dtype)
    return c, not c.isfinite().all()


# %% wrong rescue: only one input is rounded
#    says: expected
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b).to(out_dtype)
    return c, not c.isfinite().all()


# %% wrong rescue: the product alone
#    says: 2 values are asked for
def rescue(a, b, in_dtype, out_dtype):
    return (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)


# %% wrong rescue: float32 comes back
#    says: dtype torch.float32
def rescue(a, b, in_dtype, out_dtype):
    c = a.to(in_dtype).float() @ b.to(in_dtype).float()
    return c, not c.isfinite().all()


# %% wrong rescue: NaN becomes 0
#    says: NaN
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float().nan_to_num() @ b.to(in_dtype).float()).to(out_dtype)
    return c, not c.isfinite().all()


# %% wrong rescue: rounded to in_dtype at the end
#    says: dtype
def rescue(a, b, in_dtype, out_dtype):
    c = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(in_dtype)
    return c, not c.isfinite().all()


# %% right total: recursion
def total(x):
    if len(x) == 1:
        return x[0]
    h = len(x) // 2
    return total(x[:h]) + total(x[h:])


# %% right total: folding halves
def total(x):
    while len(x) > 1:
        h = (len(x) + 1) // 2
        y = x[:h].clone()
        y[: len(x) - h] += x[h:]
        x = y
    return x.item()


# %% right total: padded to a power of two
def total(x):
    n = 1 << (len(x) - 1).bit_length()
    x = torch.cat([x, torch.zeros(n - len(x), dtype=x.dtype)])
    while len(x) > 1:
        x = torch.add(x[: len(x) // 2], x[len(x) // 2 :])
    return x


# %% right total: the last one is kept aside
def total(x):
    while x.numel() > 1:
        rest = x[-1:] if len(x) % 2 else x[:0]
        x = torch.cat((x[:-1:2] + x[1::2] if len(x) % 2 else x[::2] + x[1::2], rest))
    return x.squeeze()


# %% right total: a list of tensors, as a queue
def total(x):
    queue = list(x)
    while len(queue) > 1:
        pairs = [a + b for a, b in zip(queue[::2], queue[1::2])]
        queue = pairs + queue[len(pairs) * 2 :]
    return queue[0]


# %% right total: pad
def total(x):
    while len(x) > 1:
        x = torch.nn.functional.pad(x, (0, len(x) % 2))
        x = x[0::2] + x[1::2]
    return float(x[0])


# %% wrong total: two chains
#    says: 4096
#    never: odd length
def total(x):
    s = [x.new_zeros(()), x.new_zeros(())]
    for i, v in enumerate(x):
        s[i % 2] = s[i % 2] + v
    return s[0] + s[1]


# %% wrong total: Python floats
#    says: Python
def total(x):
    return sum(x.tolist())


# %% wrong total: fsum
#    says: uses `math.fsum`
def total(x):
    return math.fsum(x)


# %% wrong total: numpy
#    says: numpy
def total(x):
    return x.numpy().sum()


# %% wrong total: item by item
#    says: Python
def total(x):
    s = 0.0
    for v in x:
        s += v.item()
    return s


# %% wrong total: the builtin sum of tensors
#    idea: adding-never-stalls
def total(x):
    return sum(x)


# %% wrong total: reduce
#    idea: adding-never-stalls
def total(x):
    return functools.reduce(lambda a, b: a + b, x)


# %% wrong total: its own sum
#    idea: sum-adds-in-its-dtype
def total(x):
    return x.sum(dim=0)


# %% wrong total: einsum
#    says: `einsum`
def total(x):
    return torch.einsum("i->", x)


# %% wrong total: float32 zeros
#    says: dtype=x.dtype
def total(x):
    while len(x) > 1:
        if len(x) % 2:
            x = torch.cat([x, torch.zeros(1)])
        x = x[::2] + x[1::2]
    return x[0]


# %% wrong total: the odd one is dropped
#    idea: every-length-is-even
def total(x):
    while len(x) > 1:
        h = len(x) // 2
        x = x[:h] + x[h : 2 * h]
    return x[0]


# %% wrong total: an odd length raises
#    says: raised
def total(x):
    while len(x) > 1:
        x = x[::2] + x[1::2]
    return x[0]


# %% wrong total: one level only
#    says: one number is asked for
def total(x):
    return x[: len(x) // 2 * 2 : 2] + x[1::2]


# %% right kahan: two-sum by Knuth
def kahan(x):
    s = c = torch.zeros((), dtype=x.dtype)
    for v in x:
        y = v + c
        t = s + y
        b = t - s
        c = (s - (t - b)) + (y - b)
        s = t
    return s


# %% right kahan: the excess with the other sign
def kahan(x):
    s = c = x.new_zeros(())
    for v in x:
        y = v + c
        t = s + y
        c = y - (t - s)
        s = t
    return s


# %% right kahan: torch.add and torch.sub
def kahan(x):
    s, c = torch.zeros((), dtype=x.dtype), torch.zeros((), dtype=x.dtype)
    for i in range(len(x)):
        y = torch.sub(x[i], c)
        t = torch.add(s, y)
        c = torch.sub(torch.sub(t, s), y)
        s = t
    return s.item()


# %% right kahan: the last excess is taken off
def kahan(x):
    return changed("return s", "return s - c")(x)


# %% right kahan: one-element tensors
def kahan(x):
    s = c = torch.zeros(1, dtype=torch.bfloat16)
    for v in x.split(1):
        y = v - c
        t = s + y
        s, c = t, (t - s) - y
    return s


# %% right kahan: a state in a list
def kahan(x):
    def step(state, v):
        s, c = state
        y = v - c
        t = s + y
        return t, t - s - y

    zero = torch.zeros((), dtype=x.dtype)
    return functools.reduce(step, x, (zero, zero))[0]


# %% wrong kahan: pairwise
#    says: Your sum of 256, 1 and 1 is 256
def kahan(x):
    while len(x) > 1:
        x = torch.nn.functional.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% wrong kahan: c added at the end
#    says: 257 ones
def kahan(x):
    return changed("return s", "return s + c")(x)


# %% wrong kahan: fsum
#    says: Your line `return math.fsum(x.tolist())` uses `math.fsum`
def kahan(x):
    return math.fsum(x.tolist())


# %% wrong kahan: Python floats
#    says: Python
def kahan(x):
    return sum(x.tolist())


# %% wrong kahan: c from value instead of y
#    says: Subtract y instead
def kahan(x):
    return changed("(t - s) - y", "(t - s) - value")(x)


# %% wrong kahan: s is not updated
#    says: 258
def kahan(x):
    return changed("\n        s = t", "")(x)


# %% wrong kahan: a plain chain
#    idea: compensation-is-optional
def kahan(x):
    s = x.new_zeros(())
    for v in x:
        s = s + v
    return s


# %% wrong kahan: t - (s + y), which is always 0
#    says: Is your c -1 after the first 1
#    never: Which line of yours uses
def kahan(x):
    return changed("(t - s) - y", "t - (s + y)")(x)


# %% wrong kahan: t adds the number instead of y
#    says: does your t add y
def kahan(x):
    return changed("t = s + y", "t = s + value")(x)


# %% wrong kahan: the wrong sign of c
#    idea: compensation-has-no-sign
def kahan(x):
    return changed("(t - s) - y", "y - (t - s)")(x)


# %% wrong kahan: s before c
#    idea: order-of-updates-is-free
def kahan(x):
    s = c = torch.zeros((), dtype=x.dtype)
    for v in x:
        y = v - c
        t = s + y
        s = t
        c = (t - s) - y
    return s


# %% wrong kahan: float32 accumulators
#    says: float32
def kahan(x):
    return ours.kahan(x.float()).bfloat16()


# %% wrong kahan: zeros without a dtype
#    says: float32
def kahan(x):
    return changed(", dtype=x.dtype", "")(x)


# %% wrong kahan: (t - y) - s
#    says: 258
def kahan(x):
    return changed("(t - s) - y", "(s - t) - y")(x)


# %% wrong kahan: c is returned
#    says: 258
def kahan(x):
    return changed("return s", "return c")(x)


# %% right kahan: a float32 zero that is cast
def kahan(x):
    s, c = x[0], torch.tensor(0.0).bfloat16()
    for i in range(1, len(x)):
        y = x[i] - c
        t = s + y
        c, s = (t - s) - y, t
    return s


# %% wrong kahan: Kahan in Python floats
#    says: Python
#    never: dtype=
def kahan(x):
    s = c = 0.0
    for value in x.tolist():
        y = value - c
        t = s + y
        c = (t - s) - y
        s = t
    return torch.tensor(s).bfloat16()


# %% wrong kahan: Neumaier's variant
#    idea: losses-may-wait-for-the-end
#    never: Subtract y instead
def kahan(x):
    s = c = torch.zeros((), dtype=x.dtype)
    for v in x:
        t = s + v
        c = c + ((s - t) + v if s.abs() >= v.abs() else (v - t) + s)
        s = t
    return s + c


# %% wrong kahan: it returns in the first round
#    says: first number alone
def kahan(x):
    return changed("s = t", "s = t\n        return s")(x)


# %% right fair-round: floor and a draw
def fair_round(x):
    gap = spacing(x, BF16)
    return torch.floor(x / gap + torch.rand_like(x)) * gap


# %% right fair-round: random bits below the cut
def fair_round(x):
    bits = x.view(torch.int32) + torch.randint(0, 1 << 16, x.shape, dtype=torch.int32)
    return (bits & -65536).view(torch.float32)


# %% right fair-round: one of two whole numbers of gaps
def fair_round(x):
    gap = spacing(x, BF16)
    low = (x / gap).floor()
    return torch.where(torch.rand_like(x) < x / gap - low, low + 1, low) * gap


# %% wrong fair-round: both neighbours by quantize
#    says: uses `labkit.formats.quantize`
def fair_round(x):
    low, high = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
    share = torch.where(high > low, (x - low) / (high - low).clamp(min=1e-30), torch.zeros_like(x))
    return torch.where(torch.rand(x.shape) < share, high, low)


# %% right fair-round: bernoulli, in bfloat16
def fair_round(x):
    gap = spacing(x, BF16)
    low = torch.floor(x / gap) * gap
    return (low + gap * torch.bernoulli((x - low) / gap)).bfloat16()


# %% right fair-round: towards zero and away
def fair_round(x):
    gap = spacing(x, BF16)
    low = torch.trunc(x / gap) * gap
    return low + torch.sign(x) * gap * (torch.rand(x.shape) < (x - low).abs() / gap)


# %% right fair-round: numpy draws
def fair_round(x):
    gap = spacing(x, BF16)
    low = (x / gap).floor() * gap
    up = np.random.default_rng().random(len(x)) < ((x - low) / gap).numpy()
    return low + gap * torch.from_numpy(up)


# %% wrong fair-round: one draw for all
#    says: All 4096 copies
def fair_round(x):
    return changed("torch.rand(x.shape) <", "torch.rand(1) <")(x)


# %% wrong fair-round: randn
#    says: of the way
def fair_round(x):
    return changed("torch.rand(x.shape) <", "torch.randn(x.shape) <")(x)


# %% wrong fair-round: truncated at negatives
#    says: away from zero
#    never: draw
def fair_round(x):
    return changed("(x / gap).floor()", "(x / gap).trunc()")(x)


# %% wrong fair-round: from the nearest
#    says: All 4096 copies
#    says: the lower or the nearest
def fair_round(x):
    return changed("(x / gap).floor()", "(x / gap).round()")(x)


# %% wrong fair-round: the distance not in gaps
#    says: of the way
#    says: divide it by the gap
def fair_round(x):
    return changed("(x - below) / gap", "x - below")(x)


# %% wrong fair-round: FP16's gap
#    says: neighbours
def fair_round(x):
    return changed("gap = spacing(x, BF16)", "gap = spacing(x, BF16) / 8")(x)


# %% wrong fair-round: the gap is not added
#    says: neighbours
def fair_round(x):
    return changed("+ gap * (", "+ 1.0 * (")(x)


# %% wrong fair-round: nearest
#    idea: nearest-is-fair
def fair_round(x):
    return x.bfloat16().float()


# %% wrong fair-round: it seeds the generator
#    says: as in the first call
def fair_round(x):
    torch.manual_seed(0)
    gap = spacing(x, BF16)
    return (x / gap + torch.rand(x.shape)).floor() * gap


# %% wrong fair-round: noise of a whole gap before a cast
#    says: of the way
#    never: exchanged
def fair_round(x):
    return (x + torch.rand(x.shape) * spacing(x, BF16)).bfloat16().float()


# %% right welford: delta
def welford(stream):
    n = mean = m2 = 0
    for x in stream:
        n += 1
        delta = x - mean
        mean += delta / n
        m2 += delta * (x - mean)
    return mean, m2 / n


# %% wrong welford: numpy of a list
#    says: uses `numpy.var`
def welford(stream):
    values = list(stream)
    return np.mean(values), np.var(values)


# %% wrong welford: statistics
#    says: uses `statistics.pvariance`
def welford(stream):
    values = list(stream)
    return statistics.fmean(values), statistics.pvariance(values)


# %% wrong welford: the square of a standard deviation
#    says: uses `numpy.ndarray.std`
def welford(stream):
    values = np.array(list(stream))
    return values.mean(), values.std() ** 2


# %% right welford: a running variance
def welford(stream):
    n = mean = variance = 0.0
    for x in stream:
        n += 1
        delta = x - mean
        mean += delta / n
        variance += (delta * (x - mean) - variance) / n
    return mean, variance


# %% right welford: a list, read twice
def welford(stream):
    values = list(stream)
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((x - mean) ** 2 for x in values) / len(values)


# %% right welford: fractions
def welford(stream):
    n, s, q = 0, Fraction(0), Fraction(0)
    for x in map(Fraction, stream):
        n, s, q = n + 1, s + x, q + x * x
    return s / n, q / n - (s / n) ** 2


# %% right welford: shifted by the first
def welford(stream):
    first = next(stream)
    n, s, q = 1, 0.0, 0.0
    for x in stream:
        n, s, q = n + 1, s + (x - first), q + (x - first) ** 2
    return [first + s / n, q / n - (s / n) ** 2]


# %% right welford: a tensor
def welford(stream):
    values = torch.tensor(list(stream), dtype=torch.float64)
    mean = values.mean()
    return torch.stack([mean, (values - mean).square().mean()])


# %% wrong welford: the standard deviation
#    says: root
def welford(stream):
    mean, variance = ours.welford(stream)
    return mean, math.sqrt(variance)


# %% wrong welford: not divided
#    says: 4 times
def welford(stream):
    return changed("squares / n", "squares")(stream)


# %% wrong welford: n + 1
#    says: 0.8 times
def welford(stream):
    return changed("squares / n", "squares / (n + 1)")(stream)


# %% wrong welford: a second pass
#    says: read only once
def welford(stream):
    n, s = 0, 0.0
    for x in stream:
        n, s = n + 1, s + x
    mean = s / n
    return mean, sum((x - mean) ** 2 for x in stream) / n


# %% wrong welford: the mean is the last step
#    says: the mean is
#    never: longdouble
def welford(stream):
    return changed("mean + (x - mean) / n", "mean + (x - mean) / 2")(stream)


# %% wrong welford: exchanged
#    says: mean
def welford(stream):
    return ours.welford(stream)[::-1]


# %% wrong welford: n - 1
#    idea: variance-divides-by-n-minus-1
def welford(stream):
    values = list(stream)
    return statistics.fmean(values), statistics.variance(values)


# %% wrong welford: squares of x
#    idea: algebra-survives-rounding
def welford(stream):
    n = s = q = 0.0
    for x in stream:
        n, s, q = n + 1, s + x, q + x * x
    return s / n, q / n - (s / n) ** 2


# %% wrong welford: a float32 tensor
#    says: gap of float32
#    never: squared
def welford(stream):
    x = torch.tensor(list(stream))
    return x.mean().item(), (x - x.mean()).square().mean().item()


# %% right hair: above three
hair = 3 + 2**-7 + 2**-40

# %% right hair: below an odd neighbour's tie
hair = 1 + 3 * 2**-8 - 2**-28

# %% right hair: negative
hair = -(1 + 2**-8 + 2**-30)

# %% right hair: a tensor
hair = torch.tensor(1 + 2**-8 + 2**-30, dtype=torch.float64)

# %% right hair: nextafter
hair = math.nextafter(257.0, math.inf)

# %% right hair: a fraction
hair = Fraction(257, 256) + Fraction(1, 2**40)

# %% right hair: above max, nearer to it than the cast's inf
hair = (2 - 2**-8) * 2.0**127 - 2.0**100

# %% wrong hair: a tie
#    idea: a-tie-is-enough
hair = 1 + 2**-8

# %% wrong hair: float32 has eaten it
#    idea: a-tie-is-enough
hair = torch.tensor(1 + 2**-8 + 2**-30)

# %% wrong hair: float32 sees it
#    idea: float32-rounds-nothing-away
hair = 1 + 2**-8 + 2**-23

# %% wrong hair: below the tie
#    idea: both-sides-of-a-tie-differ
hair = 1 + 2**-8 - 2**-30

# %% wrong hair: a BF16 value
#    says: BF16 holds it
hair = 1 + 2**-7

# %% wrong hair: far from a tie
#    idea: every-second-rounding-hurts
#    says: far from a tie
hair = 1 + 2**-30

# %% wrong hair: too large
#    says: finite
hair = 1e39

# %% wrong hair: the largest float32, inf both ways
#    says: finite
hair = torch.finfo(torch.float32).max

# %% wrong hair: text
#    says: one number is asked for
hair = "1 + 2**-8 + 2**-30"
