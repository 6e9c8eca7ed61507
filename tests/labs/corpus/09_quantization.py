# Answers to lab 09 that the author of its checks had not foreseen: see tests/corpus.py.

from fractions import Fraction

import numpy as np
import torch.nn.functional as F
from torch import nn


# %% right integer-linear: numpy in int64
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0), max(hi, 0)
    sy = (hi - lo) / 255
    zy = int(np.rint(-lo / sy))
    acc = (x.numpy().astype(np.int64) - zx) @ w.numpy().astype(np.int64).T
    unit = sx * sw.numpy().astype(np.float64)
    acc = acc + np.rint(bias.numpy() / unit).astype(np.int64)
    return np.clip(np.rint(acc * (unit / sy)) + zy, 0, 255).astype(np.uint8), sy, zy


# %% right integer-linear: float32 for the factor, scales as tensors
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    ends = torch.tensor([lo, hi, 0.0])
    lo, hi = ends.min(), ends.max()
    sy = (hi - lo) / 255
    zy = torch.round(-lo / sy).int()
    acc = (x.to(torch.int32) - zx).matmul(w.to(torch.int32).T)
    acc += torch.round(bias / (sw * sx)).to(torch.int32)
    y = (acc * (sx * sw / sy)).round() + zy
    return torch.clamp(y, 0, 255).type(torch.uint8), sy, zy


# %% right integer-linear: a zero-point term beside the sum of raw codes, in float64
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    low, high = (lo if lo < 0 else 0.0), (hi if hi > 0 else 0.0)
    sy = (high - low) / 255.0
    zy = round(abs(low) / sy)
    acc = F.linear(x.double(), w.double()) - zx * w.double().sum(dim=1)
    acc = acc + (bias.double() / (sx * sw.double())).round()
    y = (acc * sx * sw.double() / sy).round().long() + zy
    return y.clamp(0, 255).byte(), np.float64(sy), np.int32(zy)


# %% right integer-linear: _int_mm on codes moved by 128, where it is exact
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    full = torch.full((1, 16), 127, dtype=torch.int8)
    if torch._int_mm(full, full.t()).item() == 16 * 127 * 127:
        acc = torch._int_mm((x.int() - 128).to(torch.int8), w.t().contiguous())
    else:  # this processor saturates
        acc = (x.int() - 128) @ w.int().t()
    acc = acc - (zx - 128) * w.sum(1, dtype=torch.int32)
    acc = acc + torch.round(bias / (sx * sw)).int()
    y = torch.round(acc.double() * (sx * sw.double() / sy)) + zy
    return y.clamp(0, 255).to(torch.uint8), sy, zy


# %% right integer-linear: loops over exact fractions
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(Fraction(lo), 0), max(Fraction(hi), 0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    y = []
    for row in x.tolist():
        y.append([])
        for codes, scale, b in zip(w.tolist(), sw.tolist(), bias.tolist()):
            unit = Fraction(sx) * Fraction(scale)
            acc = sum((a - zx) * c for a, c in zip(row, codes)) + round(Fraction(b) / unit)
            y[-1].append(max(0, min(255, round(acc * unit / sy) + zy)))
    return torch.tensor(y, dtype=torch.uint8), sy, zy


# %% right integer-linear: a multiplier of 31 bits and a shift, as a small device has it
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    acc = (x.long() - zx) @ w.long().t() + torch.round(bias / (sx * sw)).long()
    factor = sx * sw.double() / sy
    exponent = torch.frexp(factor).exponent.long()
    multiplier = (factor * 2.0 ** (31 - exponent)).round().long()
    shift = 31 - exponent
    y = (acc * multiplier + (1 << (shift - 1))) >> shift
    return (y + zy).clamp(0, 255).to(torch.uint8), sy, zy


# %% right integer-linear: the zero point clamped, einsum in int32
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = sorted((lo, hi, 0.0))[0], sorted((lo, hi, 0.0))[-1]
    sy = (hi - lo) / 255
    zy = max(0, min(255, round(0 - lo / sy)))
    acc = torch.einsum("ni,oi->no", x.int() - zx, w.int())
    acc = acc + (bias / (sx * sw)).round().int()
    return [((acc * (sx * sw / sy)).round() + zy).clamp(0, 255).to(torch.uint8), sy, zy]


# %% wrong integer-linear: no zero-point term
#    idea: codes-are-values
integer_linear = changed("(x.int() - zx) @ w.int().t()", "x.int() @ w.int().t()")


# %% wrong integer-linear: the zero point subtracted in uint8
#    says: x - zx stays in uint8
integer_linear = changed("(x.int() - zx)", "(x - zx).int()")


# %% wrong integer-linear: int8 times int8
#    idea: int8-products-widen
integer_linear = changed(
    "(x.int() - zx) @ w.int().t()", "((x.int() - zx).to(torch.int8) @ w.t()).int()"
)


# %% wrong integer-linear: uint8 read as int8
#    says: the sum of (x - zx) * w is
integer_linear = changed("(x.int() - zx)", "(x.view(torch.int8).int() - zx)")


# %% wrong integer-linear: dequantized to floats, quantized again
#    idea: integer-layers-add-a-float-bias
#    says: divided by sx * sw and not rounded
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    y = F.linear((x.double() - zx) * sx, w.double() * sw.double()[:, None], bias.double())
    return (torch.round(y / sy) + zy).clamp(0, 255).to(torch.uint8), sy, zy


# %% wrong integer-linear: the sum in float32
#    says: here sums reach 33.7 million
integer_linear = changed(
    "(x.int() - zx) @ w.int().t()",
    "((x.float() - zx) @ w.float().t())",
    "torch.round(bias / (sx * sw)).int()",
    "torch.round(bias / (sx * sw))",
)


# %% wrong integer-linear: the sum in int16
#    says: the sum of (x - zx) * w is
integer_linear = changed("(x.int() - zx) @ w.int().t()", "((x.short() - zx) @ w.short().t()).int()")


# %% wrong integer-linear: the bias at the scale of the weight
#    idea: bias-has-the-scale-of-the-weight
integer_linear = changed("bias / (sx * sw)", "bias / sw")


# %% wrong integer-linear: the bias unscaled
#    says: rounded without being divided by sx * sw
integer_linear = changed("bias / (sx * sw)", "bias")


# %% wrong integer-linear: the bias multiplied by the scale
#    says: and the bias adds 2
integer_linear = changed("bias / (sx * sw)", "bias * sx * sw")


# %% wrong integer-linear: no bias
#    says: and the bias adds 2
integer_linear = changed("acc = acc + torch.round(bias / (sx * sw)).int()", "pass")


# %% wrong integer-linear: the first row's scale for all
#    says: sx * sw / sy is
integer_linear = changed("(sx * sw / sy)", "(sx * sw[0] / sy).expand(len(sw))")


# %% wrong integer-linear: the scales of rows along the batch
#    says: raised
integer_linear = changed("(sx * sw / sy)", "(sx * sw / sy)[:, None]")


# %% wrong integer-linear: no division by sy
#    idea: the-sum-is-a-code
integer_linear = changed("(sx * sw / sy)", "(sx * sw)")


# %% wrong integer-linear: floor
#    says: You took the integer below that number
integer_linear = changed("torch.round(acc.double()", "torch.floor(acc.double()")


# %% wrong integer-linear: cut off by the cast
#    says: You took the integer below that number
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    acc = (x.int() - zx) @ w.int().t() + torch.round(bias / (sx * sw)).int()
    return (acc * (sx * sw / sy) + zy).clamp(0, 255).to(torch.uint8), sy, zy


# %% wrong integer-linear: zy forgotten
#    says: if zy is not added
integer_linear = changed(".double()) + zy", ".double())")


# %% wrong integer-linear: wraps
#    idea: codes-clamp-themselves
integer_linear = changed("y.clamp(0, 255).to(torch.uint8)", "y.int().to(torch.uint8)")


# %% wrong integer-linear: clamped to int8
#    says: the code is clamped
integer_linear = changed("y.clamp(0, 255)", "y.clamp(-128, 127)")


# %% wrong integer-linear: codes as floats
#    says: has dtype torch.float64; torch.uint8 is asked for
integer_linear = changed(".clamp(0, 255).to(torch.uint8)", ".clamp(0, 255)")


# %% wrong integer-linear: values in place of codes
#    says: torch.uint8 is asked for
integer_linear = changed("y.clamp(0, 255).to(torch.uint8)", "(y.clamp(0, 255) - zy) * sy")


# %% wrong integer-linear: the codes alone
#    says: 3 values are asked for
integer_linear = changed("to(torch.uint8), sy, zy", "to(torch.uint8)")


# %% wrong integer-linear: the range of the data
#    idea: the-range-is-that-of-the-data
integer_linear = changed("lo, hi = min(lo, 0.0), max(hi, 0.0)", "pass")


# %% wrong integer-linear: lo moved and hi not
#    says: with lo = -3, hi = -1
#    says: -3 to 0.0 in 255 steps
integer_linear = changed("min(lo, 0.0), max(hi, 0.0)", "min(lo, 0.0), hi")


# %% wrong integer-linear: a symmetric range
#    says: -2 to 3 in 255 steps
integer_linear = changed(
    "min(lo, 0.0), max(hi, 0.0)", "-max(abs(lo), abs(hi)), max(abs(lo), abs(hi))"
)


# %% wrong integer-linear: 256 steps
#    idea: codes-are-steps
integer_linear = changed("/ 255", "/ 256")


# %% wrong integer-linear: the zero point's sign
#    idea: zero-point-has-the-sign-of-lo
integer_linear = changed("round(-lo / sy)", "round(lo / sy)")


# %% wrong integer-linear: a zero point with a fraction
#    idea: zero-point-may-be-fractional
integer_linear = changed("round(-lo / sy)", "-lo / sy")


# %% wrong integer-linear: the zero point cut off
#    says: the integer nearest to -lo / sy = 124.8
#    says: You took the integer below that number
integer_linear = changed("round(-lo / sy)", "int(-lo / sy)")


# %% wrong integer-linear: the zero point moved by 128
#    says: 102 is wanted, the integer nearest to -lo / sy
integer_linear = changed("round(-lo / sy)", "round(-lo / sy) - 128")


# %% wrong integer-linear: the difference cast to int8, the product wide
#    says: x - zx is cast to int8
integer_linear = changed("(x.int() - zx)", "(x.int() - zx).to(torch.int8).int()")


# %% wrong integer-linear: a float bias in float32
#    says: divided by sx * sw and not rounded
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    y = F.linear((x.float() - zx) * sx, w.float() * sw[:, None], bias)
    return (torch.round(y / sy) + zy).clamp(0, 255).to(torch.uint8), sy, zy


# %% right fake-quant: an autograd.Function
def fake_quant(x, scale, zero, low, high):
    class Fake(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            codes = torch.round(x / scale) + zero
            ctx.save_for_backward((low <= codes) & (codes <= high))
            return (codes.clip(low, high) - zero) * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    return Fake.apply(x)


# %% right fake-quant: clamp the value, then round straight through
def fake_quant(x, scale, zero, low, high):
    scale = torch.as_tensor(scale)
    c = torch.minimum(torch.maximum(x, (low - zero) * scale), (high - zero) * scale)
    return c + ((c / scale).round() * scale - c).detach()


# %% right fake-quant: round straight through in codes
def fake_quant(x, scale, zero, low, high):
    v = x / scale + zero
    v = v + (v.round() - v).detach()
    return (v.clamp(low, high) - zero) * scale


# %% right fake-quant: a hook that masks the gradient
def fake_quant(x, scale, zero, low, high):
    codes = torch.round(x.detach() / scale) + zero
    inside = codes.eq(codes.clamp(low, high))
    out = x + ((codes.clamp(low, high) - zero) * scale - x).detach()
    if out.requires_grad:
        out.register_hook(lambda g: g)
    return torch.where(inside, out, out.detach())


# %% right fake-quant: a product with the mask, and a no_grad block
def fake_quant(x, scale, zero, low, high):
    with torch.no_grad():
        raw = torch.div(x, scale).round().add(zero)
        q = raw.clamp(low, high)
        mask = (raw == q).type_as(x)
        value = q.sub(zero).mul(scale)
    return value + mask * (x - x.detach())


# %% right fake-quant: in float64 and back
def fake_quant(x, scale, zero, low, high):
    wide = x.double()
    codes = (wide / scale).round() + zero
    kept = wide * ((codes >= low) * (codes <= high))
    return (kept + ((codes.clamp(low, high) - zero) * scale - kept).detach()).float()


# %% wrong fake-quant: no straight-through gradient
#    idea: rounding-passes-gradients
def fake_quant(x, scale, zero, low, high):
    return ((torch.round(x / scale) + zero).clamp(low, high) - zero) * scale


# %% wrong fake-quant: detached altogether
#    says: its grad is None
def fake_quant(x, scale, zero, low, high):
    return (((x.detach() / scale).round() + zero).clamp(low, high) - zero) * scale


# %% wrong fake-quant: straight through everywhere
#    idea: ste-ignores-clipping
def fake_quant(x, scale, zero, low, high):
    codes = ((x / scale).round() + zero).clamp(low, high)
    return x + ((codes - zero) * scale - x).detach()


# %% wrong fake-quant: the codes themselves
#    idea: codes-are-values
def fake_quant(x, scale, zero, low, high):
    codes = (x / scale).round() + zero
    passed = x * ((codes >= low) & (codes <= high))
    return passed + (codes.clamp(low, high) - passed).detach()


# %% wrong fake-quant: values compared with codes
#    idea: the-grid-bounds-the-values
fake_quant = changed("(codes >= low) & (codes <= high)", "(x >= low) & (x <= high)")


# %% wrong fake-quant: not clamped
#    idea: codes-clamp-themselves
#    says: 5 becomes 5
#    says: if no code is clamped
fake_quant = changed("codes.clamp(low, high)", "codes")


# %% wrong fake-quant: the zero point not subtracted
#    idea: zero-point-is-added-once
fake_quant = changed("(codes.clamp(low, high) - zero) * scale", "codes.clamp(low, high) * scale")


# %% wrong fake-quant: the zero point left out of the clamp
#    says: clamped before zero is added
def fake_quant(x, scale, zero, low, high):
    codes = (x / scale).round().clamp(low, high)
    passed = x * ((x / scale).round() == codes)
    return passed + (codes * scale - passed).detach()


# %% wrong fake-quant: the sign of the zero point
#    says: with codes 0 to 255, zero 90
fake_quant = changed("round() + zero", "round() - zero", "high) - zero)", "high) + zero)")


# %% wrong fake-quant: the gradient divided by the scale
#    says: All your gradients are 1 / scale times
def fake_quant(x, scale, zero, low, high):
    v = x / scale + zero
    codes = v.round().clamp(low, high)
    passed = v * (v.round() == codes)
    return passed + ((codes - zero) * scale - passed).detach()


# %% wrong fake-quant: a mask that takes the gradient of clamped values alone
#    says: The gradient of the output at x =
fake_quant = changed("x * inside", "x * ~inside")


# %% wrong fake-quant: floor
#    says: x / scale is rounded down
fake_quant = changed("(x / scale).round()", "(x / scale).floor()")


# %% wrong fake-quant: multiplied by the scale
#    says: becomes
fake_quant = changed("(x / scale)", "(x * scale)")


# %% wrong fake-quant: symmetric ends
#    says: 0.7 is wanted, code 7 of -8 to 7
def fake_quant(x, scale, zero, low, high):
    top = max(abs(low), abs(high))
    return ours.fake_quant(x, scale, zero, -top, top)


# %% wrong fake-quant: nothing returned
#    says: returns None
def fake_quant(x, scale, zero, low, high):
    ours.fake_quant(x, scale, zero, low, high)


# %% wrong fake-quant: detach around the other term
#    says: Your output is x itself
fake_quant = changed("passed + (rounded - passed).detach()", "rounded + (x - rounded).detach()")


# %% wrong fake-quant: no gradient at the ends
#    says: An end of the grid is a code like the others
fake_quant = changed("(codes >= low) & (codes <= high)", "(codes > low) & (codes < high)")


# %% right gptq: the published order, errors of a whole block at once
def gptq(W, X, scale, damp=0.01):
    W = W.clone().float()
    H = 2 / len(X) * X.T @ X
    H.diagonal().add_(damp * H.diagonal().mean())
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    Q = torch.zeros_like(W)
    for start in range(0, W.shape[1], 8):
        end = min(start + 8, W.shape[1])
        block, errors = W[:, start:end].clone(), torch.zeros_like(W[:, start:end])
        for i in range(end - start):
            j = start + i
            Q[:, j] = nearest(block[:, i], scale[:, j])
            errors[:, i] = (block[:, i] - Q[:, j]) / U[j, j]
            block[:, i + 1 :] -= errors[:, i, None] * U[j, j + 1 : end]
        W[:, end:] -= errors @ U[start:end, end:]
    return Q


# %% right gptq: least squares after each column, in float64
def gptq(W, X, scale, damp=0.01):
    W0, X, n = W.double(), X.double(), W.shape[1]
    ridge = (damp * X.square().sum(0).mean()).sqrt() * torch.eye(n).double()
    A, now, Q = torch.cat([X, ridge]), W0.clone(), torch.zeros(W.shape).double()
    for j in range(n):
        Q[:, j] = nearest(now[:, j], scale[:, j].double())
        if j + 1 < n:
            rest = A @ W0.T - A[:, : j + 1] @ Q[:, : j + 1].T
            now[:, j + 1 :] = torch.linalg.lstsq(A[:, j + 1 :], rest).solution.T
    return Q.float()


# %% right gptq: numpy in float64, a row at a time
def gptq(W, X, scale, damp=0.01):
    x, s = X.numpy().astype(np.float64), scale.numpy().astype(np.float64)
    H = x.T @ x
    H += damp * np.mean(np.diag(H)) * np.eye(len(H))
    U = np.linalg.cholesky(np.linalg.inv(H)).T
    out = np.zeros(W.shape)
    for i, w in enumerate(W.numpy().astype(np.float64)):
        w = w.copy()
        for j in range(len(w)):
            out[i, j] = np.clip(np.rint(w[j] / s[i, j]), -7, 7) * s[i, j]
            w[j + 1 :] -= (w[j] - out[i, j]) / U[j, j] * U[j, j + 1 :]
    return torch.from_numpy(out).float()


# %% right gptq: the inverse shrinks with each column, as in OBQ
def gptq(W, X, scale, damp=0.01):
    W, H = W.double().clone(), (X.T @ X).double()
    inverse = torch.linalg.inv(H + damp * H.diag().mean() * torch.eye(len(H)))
    columns = []
    while W.shape[1]:
        j = len(columns)
        columns.append(nearest(W[:, 0], scale[:, j].double()))
        W = W[:, 1:] - torch.outer((W[:, 0] - columns[-1]) / inverse[0, 0], inverse[0, 1:])
        inverse = inverse[1:, 1:] - torch.outer(inverse[1:, 0], inverse[0, 1:]) / inverse[0, 0]
    return torch.stack(columns, dim=1).float()


# %% right gptq: solve for each column with H alone
def gptq(W, X, scale, damp=0.01):
    now, H = W.double().clone(), (X.T @ X).double()
    H.diagonal().add_(damp * H.diagonal().mean().item())
    Q = torch.zeros_like(now)
    for j in range(W.shape[1]):
        Q[:, j] = nearest(now[:, j], scale[:, j])
        lost = now[:, j] - Q[:, j]
        if j + 1 < W.shape[1]:
            share = torch.linalg.solve(H[j + 1 :, j + 1 :], H[j + 1 :, j])
            now[:, j + 1 :] += torch.outer(lost, share)
    return Q.to(W.dtype)


# %% right gptq: the lower factor, transposed
def gptq(W, X, scale, damp=0.01):
    work = torch.clone(W)
    H = torch.einsum("ni,nj->ij", X, X)
    H = H + torch.diag(torch.full((len(H),), damp * torch.diagonal(H).mean().item()))
    L = torch.linalg.cholesky(torch.linalg.inv(H))
    Q = torch.empty_like(W)
    for j in range(W.size(1)):
        Q[:, j] = (work[:, j] / scale[:, j]).round().clamp(-7, 7) * scale[:, j]
        work -= torch.outer((work[:, j] - Q[:, j]) / L[j, j], L[:, j])
    return Q


# %% wrong gptq: to nearest
#    says: what rounding each weight by itself gives
def gptq(W, X, scale, damp=0.01):
    return nearest(W, scale)


# %% wrong gptq: the corrected column is not what is rounded
#    says: what rounding each weight by itself gives
gptq = changed("W, Q = W.clone()", "W0, W, Q = W, W.clone()", "nearest(W[:, j]", "nearest(W0[:, j]")


# %% wrong gptq: the other sign
#    idea: errors-add-up-in-the-neighbours
gptq = changed("-= torch.outer", "+= torch.outer")


# %% wrong gptq: the error the other way round
#    idea: errors-add-up-in-the-neighbours
gptq = changed("(W[:, j] - Q[:, j])", "(Q[:, j] - W[:, j])")


# %% wrong gptq: no division
#    idea: one-division-is-enough
gptq = changed(" / U[j, j]", "")


# %% wrong gptq: divided twice
#    says: To make up for the columns before, which are right
gptq = changed(" / U[j, j]", " / U[j, j] ** 2")


# %% wrong gptq: rows of the inverse
#    idea: rounded-columns-stay-free
gptq = changed("torch.linalg.cholesky(torch.linalg.inv(H), upper=True)", "torch.linalg.inv(H)")


# %% wrong gptq: the factor of H
#    idea: h-is-its-own-inverse
gptq = changed("torch.linalg.inv(H)", "H")


# %% wrong gptq: the lower factor
#    says: In a lower factor it is the other way round
gptq = changed(", upper=True", "")


# %% wrong gptq: the inverse of the upper factor of H
#    says: which are right, it must become
gptq = changed(
    "torch.linalg.cholesky(torch.linalg.inv(H), upper=True)",
    "torch.linalg.inv(torch.linalg.cholesky(H)).T",
)


# %% wrong gptq: the error to the neighbour alone
#    says: which are right, it must become
gptq = changed(
    "W[:, j:] -= torch.outer(error, U[j, j:])",
    "if j + 1 < W.shape[1]:\n            W[:, j + 1] += W[:, j] - Q[:, j]",
)


# %% wrong gptq: H of the weights
#    idea: gptq-looks-at-the-weights
gptq = changed("X.T @ X", "W.T @ W")


# %% wrong gptq: no damping
#    idea: any-h-has-an-inverse
#    says: if X has fewer rows than columns
gptq = changed("H = H + damp * H.diag().mean() * torch.eye(len(H))", "pass")


# %% wrong gptq: an absolute damping
#    idea: damping-is-absolute
gptq = changed("damp * H.diag().mean() *", "damp *")


# %% wrong gptq: the mean of all of H
#    says: steps before it is rounded
gptq = changed("H.diag().mean()", "H.mean()")


# %% wrong gptq: the largest of the diagonal
#    says: steps before it is rounded
gptq = changed("H.diag().mean()", "H.diag().max()")


# %% wrong gptq: damping everywhere
#    says: the input matrix is singular
gptq = changed(" * torch.eye(len(H))", "")


# %% wrong gptq: a fixed damping
#    says: damp = 0.5
gptq = changed("damp * H.diag()", "0.01 * H.diag()")


# %% wrong gptq: from right to left
#    says: steps
def gptq(W, X, scale, damp=0.01):
    return ours.gptq(W.flip(1), X.flip(1), scale.flip(1), damp).flip(1)


# %% wrong gptq: by the size of the inputs, as act-order does
#    says: steps
def gptq(W, X, scale, damp=0.01):
    order = (X * X).sum(dim=0).argsort(descending=True)
    back = order.argsort()
    return ours.gptq(W[:, order], X[:, order], scale[:, order], damp)[:, back]


# %% wrong gptq: the caller's weight
#    idea: arguments-are-copies
gptq = changed("W.clone()", "W")


# %% wrong gptq: the corrected weight
#    says: a code from -7 to 7 times the scale is wanted
gptq = changed(
    "return Q",
    "return W",
    "W[:, j:] -= torch.outer(error, U[j, j:])",
    "W[:, j + 1 :] -= torch.outer(error, U[j, j + 1 :])",
)


# %% wrong gptq: codes
#    says: by what must a code be multiplied
def gptq(W, X, scale, damp=0.01):
    return (ours.gptq(W, X, scale, damp) / scale).round()


# %% wrong gptq: codes from -8
#    says: a code from -7 to 7 times the scale is wanted
gptq = changed(
    "nearest(W[:, j], scale[:, j])", "(W[:, j] / scale[:, j]).round().clamp(-8, 7) * scale[:, j]"
)


# %% wrong gptq: the first column's scale for all
#    says: a scale for each 4 weights
#    says: a code from -7 to 7 times the scale is wanted
gptq = changed("scale[:, j]", "scale[:, 0]")


# %% wrong gptq: the correction forgets what was clamped
#    says: which are right, it must become
def gptq(W, X, scale, damp=0.01):
    W, Q = W.clone(), torch.zeros_like(W)
    H = X.T @ X
    H = H + damp * H.diag().mean() * torch.eye(len(H))
    U = torch.linalg.cholesky(torch.linalg.inv(H), upper=True)
    for j in range(W.shape[1]):
        free = (W[:, j] / scale[:, j]).round() * scale[:, j]
        Q[:, j] = nearest(W[:, j], scale[:, j])
        W[:, j:] -= torch.outer((W[:, j] - free) / U[j, j], U[j, j:])
    return Q


# %% wrong gptq: a column of U in place of the row
#    says: column j holds zeros
gptq = changed("U[j, j:])", "U[j:, j])")


# %% wrong gptq: the error of the caller's column
#    says: the error of a column is that of the caller's W
gptq = changed("W, Q = W.clone()", "given, W, Q = W, W.clone()", "(W[:, j] - Q", "(given[:, j] - Q")


# %% wrong gptq: the row of U as far as the next column
#    says: if a column corrects the next one alone
gptq = changed("W[:, j:] -= torch.outer(error, U[j, j:])",
               "W[:, j : j + 2] -= torch.outer(error, U[j, j : j + 2])")


# %% wrong gptq: clipped before the first column
#    says: clipped to seven steps before the first column
gptq = changed("W.clone()", "W.clamp(-7 * scale, 7 * scale)")


# %% right smooth: with .data and a clamp as in the paper's code
def smooth(norm, linear, amax, alpha=0.5):
    w = linear.weight.abs().max(dim=0).values.clamp(min=1e-5)
    s = (amax.pow(alpha) / w.pow(1 - alpha)).clamp(min=1e-5)
    norm.weight.data.div_(s)
    norm.bias.data.div_(s)
    linear.weight.data.mul_(s.view(1, -1))


# %% right smooth: new parameters
@torch.no_grad()
def smooth(norm, linear, amax, alpha=0.5):
    top = linear.weight.abs().amax(0)
    s = torch.where((amax > 0) & (top > 0), amax**alpha * top ** (alpha - 1), 1.0)
    norm.weight = nn.Parameter(norm.weight / s)
    norm.bias = nn.Parameter(norm.bias / s)
    linear.weight = nn.Parameter(linear.weight * s)


# %% right smooth: a loop over channels
def smooth(norm, linear, amax, alpha=0.5):
    with torch.no_grad():
        for j in range(len(amax)):
            column = linear.weight[:, j].abs().max().item()
            if amax[j] == 0 or column == 0:
                continue
            s = amax[j].item() ** alpha / column ** (1 - alpha)
            norm.weight[j] /= s
            norm.bias[j] /= s
            linear.weight[:, j] *= s


# %% right smooth: numpy
def smooth(norm, linear, amax, alpha=0.5):
    w, g, b = (p.detach().numpy() for p in (linear.weight, norm.weight, norm.bias))
    s = np.maximum(amax.numpy(), 1e-6) ** alpha / np.maximum(np.abs(w).max(0), 1e-6) ** (1 - alpha)
    w *= s
    g /= s
    b /= s


# %% right smooth: by logarithms, through state_dict
def smooth(norm, linear, amax, alpha=0.5):
    columns = linear.weight.detach().abs().amax(dim=0)
    s = torch.exp(alpha * amax.log() - (1 - alpha) * columns.log())
    s = s.where(s.isfinite() & (s > 0), torch.ones_like(s))
    norm.load_state_dict({k: v / s for k, v in norm.state_dict().items()})
    linear.load_state_dict(linear.state_dict() | {"weight": linear.weight.detach() * s})


# %% right smooth: copy_ of products, in float64
@torch.no_grad()
def smooth(norm, linear, amax, alpha=0.5):
    a, c = amax.double(), linear.weight.double().abs().amax(dim=0)
    s = (a.clamp(min=1e-12) ** alpha) / (c.clamp(min=1e-12) ** (1 - alpha))
    for p, f in ((norm.weight, 1 / s), (norm.bias, 1 / s), (linear.weight, s)):
        p.copy_(p.double() * f)


# %% wrong smooth: norm's bias forgotten
#    idea: a-norm-is-its-gain
smooth = changed("    norm.bias /= s\n", "")


# %% wrong smooth: the activations alone
#    idea: activations-scale-alone
smooth = changed("    linear.weight *= s\n", "")


# %% wrong smooth: the weight alone
#    says: linear's output moved
smooth = changed("    norm.weight /= s\n    norm.bias /= s\n", "")


# %% wrong smooth: the wrong way round
#    idea: scale-is-its-inverse
smooth = changed(
    "norm.weight /= s",
    "norm.weight *= s",
    "norm.bias /= s",
    "norm.bias *= s",
    "linear.weight *= s",
    "linear.weight /= s",
)


# %% wrong smooth: maxima of rows
#    says: 16 channels to 8 outputs: your smooth raised
def smooth(norm, linear, amax, alpha=0.5):
    with torch.no_grad():
        s = amax**alpha / linear.weight.abs().amax(dim=1) ** (1 - alpha)
        norm.weight /= s
        norm.bias /= s
        linear.weight *= s


# %% wrong smooth: rows multiplied
#    says: raised
smooth = changed("linear.weight *= s", "linear.weight *= s[:, None]")


# %% wrong smooth: linear's bias too
#    says: Your smooth changed linear's bias
smooth = changed("linear.weight *= s", "linear.weight *= s\n    linear.bias *= s.mean()")


# %% wrong smooth: the largest weight with its sign
#    says: the largest |weight| of the column
smooth = changed("linear.weight.abs().amax(dim=0)", "linear.weight.amax(dim=0)")


# %% wrong smooth: the mean in place of the maximum
#    says: the largest |weight| of the column
smooth = changed("abs().amax(dim=0)", "abs().mean(dim=0)")


# %% wrong smooth: one maximum for the whole matrix
#    says: the largest |weight| of the column
smooth = changed("abs().amax(dim=0)", "abs().amax().expand(linear.in_features)")


# %% wrong smooth: alpha for both
#    idea: alpha-is-for-both
smooth = changed("columns ** (1 - alpha)", "columns**alpha")


# %% wrong smooth: the exponents exchanged
#    says: exponents alpha and 1 - alpha exchanged
smooth = changed("amax**alpha / columns ** (1 - alpha)", "amax ** (1 - alpha) / columns**alpha")


# %% wrong smooth: a product in place of the quotient
#    says: and so s is
smooth = changed("alpha / columns", "alpha * columns")


# %% wrong smooth: always alpha 0.5
#    says: if alpha is always 0.5
smooth = changed("amax**alpha / columns ** (1 - alpha)", "(amax / columns).sqrt()")


# %% wrong smooth: all channels to 1
#    idea: smoothing-evens-out-the-activations
smooth = changed("amax**alpha / columns ** (1 - alpha)", "1 * amax")


# %% wrong smooth: zeros
#    idea: every-channel-is-alive
smooth = changed("    s[(amax == 0) | (columns == 0)] = 1.0\n", "")


# %% wrong smooth: nothing happens
#    says: norm and linear hold what they held before
def smooth(norm, linear, amax, alpha=0.5):
    norm = nn.LayerNorm(len(amax))


# %% wrong smooth: autograd refuses
#    says: raised RuntimeError
def smooth(norm, linear, amax, alpha=0.5):
    s = amax**alpha / linear.weight.abs().amax(dim=0) ** (1 - alpha)
    norm.weight /= s


# %% wrong smooth: only large channels are moved
#    says: Your s is never below 1
smooth = changed("columns ** (1 - alpha)", "columns ** (1 - alpha)\n    s = s.clamp(min=1.0)")


# %% wrong smooth: one s for all channels
#    says: Your s is the same in all channels
smooth = changed("linear.weight.abs().amax(dim=0)", "linear.weight.abs().max() + 0 * amax\n    amax = amax.max() + 0 * amax")


# %% wrong smooth: the largest weight with its sign, where it is positive
#    says: taken with its sign
smooth = changed(
    "linear.weight.abs().amax(dim=0)",
    "linear.weight.amax(dim=0).clamp(min=0)",
)


# %% right lora-linear: adapters as nn.Linear, weight by view
class LoRALinear(nn.Module):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        out, width = codes.shape
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.A = nn.Linear(width, rank, bias=False)
        self.B = nn.Linear(rank, out, bias=False)
        nn.init.zeros_(self.B.weight)
        self.alpha, self.rank = alpha, rank

    def forward(self, x):
        x = x.to(torch.bfloat16)
        groups = self.codes.view(*self.scale.shape, -1) * self.scale[..., None].float()
        y = F.linear(x, groups.flatten(1).to(torch.bfloat16)) + self.bias.to(torch.bfloat16)
        down = F.linear(x, self.A.weight.to(torch.bfloat16))
        up = F.linear(down, self.B.weight.to(torch.bfloat16))
        return y + up * (self.alpha / self.rank)


# %% right lora-linear: autocast casts the operands
class LoRALinear(nn.Module):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        for name, t in {"codes": codes, "scale": scale, "bias": bias}.items():
            self.register_buffer(name, t.clone())
        self.A = nn.Parameter(torch.empty(rank, codes.shape[1]))
        nn.init.kaiming_uniform_(self.A, a=5**0.5)
        self.B = nn.Parameter(torch.zeros(len(codes), rank))
        self.alpha = alpha

    def forward(self, x):
        with torch.no_grad():
            group = self.codes.shape[1] // self.scale.shape[1]
            weight = self.codes.float() * self.scale.float().repeat_interleave(group, 1)
        with torch.autocast("cpu", torch.bfloat16):
            base = F.linear(x.float(), weight, self.bias)
            return base + F.linear(F.linear(x.float(), self.A), self.B) * (self.alpha / len(self.A))


# %% right lora-linear: codes two to a byte
class LoRALinear(nn.Module):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        pairs = (codes + 8).to(torch.uint8).view(len(codes), -1, 2)
        self.register_buffer("packed", pairs[..., 0] | (pairs[..., 1] << 4))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.A = nn.Parameter(0.02 * torch.randn(rank, codes.shape[1]))
        self.B = nn.Parameter(torch.zeros(len(codes), rank))
        self.factor = alpha / rank

    def weight(self):
        low, high = self.packed & 15, self.packed >> 4
        codes = torch.stack([low, high], dim=-1).flatten(1).to(torch.bfloat16) - 8
        return (
            codes.unflatten(1, (self.scale.shape[1], -1)) * self.scale[..., None].bfloat16()
        ).flatten(1)

    def forward(self, x):
        x = x.bfloat16()
        y = x @ self.weight().T + self.bias.bfloat16()
        return torch.add(y, x @ self.A.bfloat16().T @ self.B.bfloat16().T, alpha=self.factor)


# %% right lora-linear: frozen tensors as parameters without a gradient
class LoRALinear(nn.Module):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        self.codes = nn.Parameter(codes, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.A = nn.Parameter(torch.rand(rank, codes.shape[1]) - 0.5)
        self.B = nn.Parameter(torch.zeros(codes.shape[0], rank))
        self.s = torch.tensor(alpha / rank)

    def forward(self, x):
        w = torch.cat(
            [
                c * s[:, None].float()
                for c, s in zip(self.codes.chunk(self.scale.shape[1], 1), self.scale.unbind(1))
            ],
            1,
        ).bfloat16()
        x = x.bfloat16()
        out = torch.einsum("...i,oi->...o", x, w) + self.bias
        return (
            out + self.s * torch.einsum("...i,ri,or->...o", x, self.A.bfloat16(), self.B.bfloat16())
        ).bfloat16()


# %% right lora-linear: the backward pass dequantizes again, as bitsandbytes does
class LoRALinear(nn.Module):
    class Base(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, layer):
            ctx.layer = layer
            return x @ layer.weight().T

        @staticmethod
        def backward(ctx, grad):
            return grad @ ctx.layer.weight(), None

    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.A = nn.Parameter(torch.randn(rank, codes.shape[1]) / rank)
        self.B = nn.Parameter(torch.zeros(codes.shape[0], rank))
        self.factor = alpha / rank

    def weight(self):
        group = self.codes.shape[1] // self.scale.shape[1]
        return (self.codes * self.scale.float().repeat_interleave(group, dim=1)).bfloat16()

    def forward(self, x):
        x = x.bfloat16()
        base = self.Base.apply(x, self) + self.bias.bfloat16()
        return base + self.factor * (x @ self.A.bfloat16().T) @ self.B.bfloat16().T


# %% right lora-linear: the weight in FP16 first, scaled adapters
class LoRALinear(nn.Module):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        self.register_buffer("codes", codes, persistent=True)
        self.register_buffer("scale", scale)
        self.register_buffer("b", bias.float())
        self.lora_A = nn.Parameter(torch.randn(rank, codes.size(1)).mul_(codes.size(1) ** -0.5))
        self.lora_B = nn.Parameter(torch.zeros(codes.size(0), rank))
        self.scaling = alpha / rank

    def forward(self, x):
        n = self.codes.size(1) // self.scale.size(1)
        w = (self.codes.half() * self.scale.repeat_interleave(n, 1)).bfloat16()
        h = x.bfloat16()
        low = (h @ self.lora_A.t().bfloat16()) * self.scaling
        return torch.nn.functional.linear(h, w, self.b.bfloat16()).add(
            low @ self.lora_B.t().bfloat16()
        )


# %% wrong lora-linear: B random
#    idea: adapters-start-random
LoRALinear = changed(
    "torch.zeros(codes.shape[0], rank)", "0.01 * torch.randn(codes.shape[0], rank)"
)


# %% wrong lora-linear: both zeros
#    idea: zeros-learn-like-any-start
LoRALinear = changed(
    "torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5", "torch.zeros(rank, codes.shape[1])"
)


# %% wrong lora-linear: A zeros and B random
#    says: at the start A is 0 and B is random
#    never: differs from the base's
LoRALinear = changed(
    "torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5",
    "torch.zeros(rank, codes.shape[1])",
    "torch.zeros(codes.shape[0], rank)",
    "torch.randn(codes.shape[0], rank)",
)


# %% wrong lora-linear: A all ones
#    says: at the start A has rank 1; random rows have rank 8
LoRALinear = changed("torch.randn(rank, codes.shape[1]) /", "torch.ones(rank, codes.shape[1]) /")


# %% wrong lora-linear: alpha forgotten
#    idea: alpha-is-optional
LoRALinear = changed("self.factor * (x", "(x")


# %% wrong lora-linear: alpha without the rank
#    says: Your adapters count 16 times, and alpha / rank is 2
LoRALinear = changed("alpha / rank", "alpha")


# %% wrong lora-linear: alpha over the root of the rank
#    says: Your adapters count 5.7 times, and alpha / rank is 2
LoRALinear = changed("alpha / rank", "alpha / rank**0.5")


# %% wrong lora-linear: the scaling on the base too
#    says: if the base is multiplied by alpha / rank too
LoRALinear = changed("return base + self.factor * (x", "return self.factor * (base + x")


# %% wrong lora-linear: adapters in BF16
#    idea: bf16-needs-no-masters
LoRALinear = changed(
    "torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5",
    "(torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5).bfloat16()",
    "torch.zeros(codes.shape[0], rank)",
    "torch.zeros(codes.shape[0], rank, dtype=torch.bfloat16)",
)


# %% wrong lora-linear: adapters in FP16
#    says: A is stored in float16
LoRALinear = changed(
    "self.factor = alpha / rank", "self.factor = alpha / rank\n        self.half()"
)


# %% wrong lora-linear: adapters in float64
#    says: A is stored in float64
LoRALinear = changed(
    "torch.randn(rank, codes.shape[1])", "torch.randn(rank, codes.shape[1], dtype=torch.float64)"
)


# %% wrong lora-linear: the dequantized weight as a parameter
#    says: bytes, where the codes take 1,536 at four bits
#    idea: a-dense-copy-costs-nothing
class LoRALinear(ours.LoRALinear):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__(codes, scale, bias, rank, alpha)
        group = codes.shape[1] // scale.shape[1]
        self.weight = nn.Parameter(codes * scale.float().repeat_interleave(group, dim=1))

    def forward(self, x):
        x = x.bfloat16()
        base = F.linear(x, self.weight.bfloat16(), self.bias.bfloat16())
        return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)


# %% wrong lora-linear: a BF16 copy, made by the first call
#    idea: a-dense-copy-costs-nothing
class LoRALinear(ours.LoRALinear):
    cached = None

    def forward(self, x):
        if self.cached is None:
            group = self.codes.shape[1] // self.scale.shape[1]
            self.cached = (
                self.codes * self.scale.float().repeat_interleave(group, dim=1)
            ).bfloat16()
        x = x.bfloat16()
        base = F.linear(x, self.cached, self.bias.bfloat16())
        return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)


# %% wrong lora-linear: scale and bias learn too
#    says: the parameters with a gradient are A (8, 64), B (48, 8), scale (48, 2), bias (48,)
class LoRALinear(ours.LoRALinear):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__(codes, scale, bias, rank, alpha)
        del self.scale, self.bias
        self.scale, self.bias = nn.Parameter(scale), nn.Parameter(bias)


# %% wrong lora-linear: plain attributes
#    idea: attributes-travel-with-the-module
LoRALinear = changed(
    'self.register_buffer("codes", codes)',
    "self.codes = codes",
    'self.register_buffer("scale", scale)',
    "self.scale = scale",
    'self.register_buffer("bias", bias)',
    "self.bias = bias",
)


# %% wrong lora-linear: the bias as a plain attribute
#    idea: attributes-travel-with-the-module
#    says: no buffer of your layer holds the bias
LoRALinear = changed('self.register_buffer("bias", bias)', "self.bias = bias")


# %% wrong lora-linear: adapters as plain tensors
#    says: the parameters with a gradient are none
LoRALinear = changed(
    "self.A = torch.nn.Parameter(", "self.A = (", "self.B = torch.nn.Parameter(", "self.B = ("
)


# %% wrong lora-linear: A is (in, rank)
#    says: A (8, 64) and B (48, 8) are wanted
class LoRALinear(ours.LoRALinear):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__(codes, scale, bias, rank, alpha)
        self.A = nn.Parameter(torch.randn(codes.shape[1], rank))


# %% wrong lora-linear: computed in float32
#    idea: four-bit-weights-compute-in-fp32
class LoRALinear(ours.LoRALinear):
    def forward(self, x):
        x = x.float()
        group = self.codes.shape[1] // self.scale.shape[1]
        weight = self.codes * self.scale.float().repeat_interleave(group, dim=1)
        return (F.linear(x, weight, self.bias) + self.factor * (x @ self.A.T @ self.B.T)).bfloat16()


# %% wrong lora-linear: the adapters in float32
#    says: gets float32; BF16 operands are wanted
LoRALinear = changed(
    "(x @ self.A.bfloat16().T @ self.B.bfloat16().T)",
    "(x.float() @ self.A.T @ self.B.T).bfloat16()",
)


# %% wrong lora-linear: the output in float32
#    says: has dtype torch.float32; torch.bfloat16 is asked for
LoRALinear = changed("return base +", "return base.float() +")


# %% wrong lora-linear: B times A first
#    idea: adapters-are-merged-first
LoRALinear = changed(
    "(x @ self.A.bfloat16().T @ self.B.bfloat16().T)",
    "(x @ (self.B.bfloat16() @ self.A.bfloat16()).T)",
)


# %% wrong lora-linear: B times A by einsum
#    idea: adapters-are-merged-first
LoRALinear = changed(
    "(x @ self.A.bfloat16().T @ self.B.bfloat16().T)",
    '(x @ torch.einsum("or,ri->io", self.B.bfloat16(), self.A.bfloat16()))',
)


# %% wrong lora-linear: computed in float32, by einsum
#    idea: four-bit-weights-compute-in-fp32
LoRALinear = changed(
    "torch.nn.functional.linear(x, weight.bfloat16(), self.bias.bfloat16())",
    '(torch.einsum("...i,oi->...o", x.float(), weight) + self.bias).bfloat16()',
)


# %% wrong lora-linear: NaN
#    says: an output is nan
LoRALinear = changed("self.factor * (x", "torch.nan * (x")


# %% wrong lora-linear: merged into the weight, then one matmul
#    idea: adapters-are-merged-first
#    says: makes a matrix of the weight's size
class LoRALinear(ours.LoRALinear):
    def forward(self, x):
        group = self.codes.shape[1] // self.scale.shape[1]
        weight = self.codes * self.scale.float().repeat_interleave(group, dim=1)
        weight = weight + self.factor * (self.B.bfloat16() @ self.A.bfloat16())
        return F.linear(x.bfloat16(), weight.bfloat16(), self.bias.bfloat16())


# %% wrong lora-linear: merged into the codes
#    idea: qlora-trains-in-four-bits
class LoRALinear(ours.LoRALinear):
    def forward(self, x):
        with torch.no_grad():
            group = self.codes.shape[1] // self.scale.shape[1]
            wide = self.scale.float().repeat_interleave(group, dim=1)
            merged = self.codes * wide + self.factor * self.B @ self.A
            self.codes = (merged / wide).round().clamp(-7, 7).to(torch.int8)
        return super().forward(x)


# %% wrong lora-linear: x detached
#    idea: a-frozen-layer-passes-no-gradient
LoRALinear = changed("x = x.bfloat16()", "x = x.bfloat16().detach()")


# %% wrong lora-linear: the base without a graph
#    says: That is the adapters' part alone, without the weight's.
#    idea: a-frozen-layer-passes-no-gradient
class LoRALinear(ours.LoRALinear):
    def forward(self, x):
        x = x.bfloat16()
        with torch.no_grad():
            group = self.codes.shape[1] // self.scale.shape[1]
            weight = (self.codes * self.scale.float().repeat_interleave(group, dim=1)).bfloat16()
            base = F.linear(x, weight, self.bias.bfloat16())
        return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)


# %% wrong lora-linear: the adapters read a detached x
#    says: the gradient of x at
LoRALinear = changed("(x @ self.A", "(x.detach() @ self.A")


# %% wrong lora-linear: A detached
#    says: no gradient reaches A
LoRALinear = changed("self.A.bfloat16().T", "self.A.detach().bfloat16().T")


# %% wrong lora-linear: A cast once, at the start
#    says: with A and B set to random values, an output is
class LoRALinear(ours.LoRALinear):
    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__(codes, scale, bias, rank, alpha)
        self.narrow = self.A.bfloat16()

    def forward(self, x):
        x = x.bfloat16()
        group = self.codes.shape[1] // self.scale.shape[1]
        weight = (self.codes * self.scale.float().repeat_interleave(group, dim=1)).bfloat16()
        base = F.linear(x, weight, self.bias.bfloat16())
        return base + self.factor * (x @ self.narrow.T @ self.B.bfloat16().T)


# %% wrong lora-linear: no scale
#    says: at the start, an output is
LoRALinear = changed(
    "self.codes * self.scale.float().repeat_interleave(group, dim=1)", "self.codes.float()"
)


# %% wrong lora-linear: the scales of groups by turns
#    says: groups of 32
#    says: alternate from code to code
LoRALinear = changed(".repeat_interleave(group, dim=1)", ".repeat(1, group)")


# %% wrong lora-linear: the first group's scale for the row
#    says: groups of 32
LoRALinear = changed(
    "self.scale.float().repeat_interleave(group, dim=1)", "self.scale.float()[:, :1]"
)


# %% wrong lora-linear: no bias
#    says: if the bias is not added
LoRALinear = changed(", self.bias.bfloat16())", ")")


# %% wrong lora-linear: the adapters alone
#    says: at the start, an output is 0
LoRALinear = changed("return base + self", "return self")


# %% wrong lora-linear: the base alone
#    says: an output is
LoRALinear = changed(
    "return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)", "return base"
)


# %% wrong lora-linear: no super().__init__()
#    says: raised AttributeError
LoRALinear = changed("        super().__init__()\n", "")


# %% right lora-linear: A of the size that GPT-2's weights start with
LoRALinear = changed(
    "torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5",
    "0.02 * torch.randn(rank, codes.shape[1])",
)


# %% wrong lora-linear: A of size 1
#    says: the root mean square of A is 1
LoRALinear = changed(" / codes.shape[1] ** 0.5", "")


# %% wrong lora-linear: the factor on the bias too
#    says: if the bias is multiplied by alpha / rank too
LoRALinear = changed("self.bias.bfloat16())", "self.factor * self.bias.bfloat16())")


# %% wrong integer-linear: labkit's sums
#    says: uses `labkit.labs.quantization.linear.integer_linear`
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    from labkit.formats import choose
    from labkit.labs.quantization import linear

    grid = choose(lo, hi, bits=8, symmetric=False)
    sums = linear.integer_linear(x, w, zx) + torch.round(bias / (sx * sw)).int()
    y = torch.round(sums * (sx * sw / grid.scale)) + grid.zero_point
    return y.clamp(0, 255).to(torch.uint8), grid.scale.item(), grid.zero_point.item()


# %% wrong integer-linear: labkit's integer layer
#    says: uses `labkit.labs.quantization.linear.IntegerLinear`
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    from labkit.formats import QuantParams, choose, quantize_affine
    from labkit.labs.quantization.linear import IntegerLinear

    zero = torch.tensor(zx, dtype=torch.int32)
    of_x = QuantParams(scale=torch.tensor(sx), zero_point=zero, low=0, high=255)
    of_y = choose(lo, hi, bits=8, symmetric=False)
    layer = IntegerLinear(w, sw, (bias / (sx * sw)).round() * (sx * sw), of_x)
    y = layer((x.float() - zx) * sx)
    return quantize_affine(y, of_y), of_y.scale.item(), of_y.zero_point.item()


# %% wrong fake-quant: labkit's
#    says: uses `labkit.formats.fake_quantize`
def fake_quant(x, scale, zero, low, high):
    from labkit.formats import QuantParams, fake_quantize

    scale = torch.as_tensor(scale)
    scale, axis = (scale.flatten(), 0) if scale.ndim else (scale, None)
    zeros = torch.full(scale.shape, zero, dtype=torch.int32)
    grid = QuantParams(scale=scale, zero_point=zeros, low=low, high=high, axis=axis)
    return fake_quantize(x, grid)


# %% wrong fake-quant: torch's
#    says: uses `torch.fake_quantize_per_
def fake_quant(x, scale, zero, low, high):
    if not isinstance(scale, torch.Tensor) or scale.numel() == 1:
        return torch.fake_quantize_per_tensor_affine(x, float(scale), zero, low, high)
    zeros = torch.full((scale.numel(),), zero, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scale.flatten(), zeros, 0, low, high)
