"""Programs for the code questions asked at a whiteboard: right ones, and natural wrong ones.

``RIGHT`` holds programs by question. ``WRONG`` holds pairs: a program, or what is replaced in the
question's own solution and by what; and words that must stand in what its author is told.
"""

RIGHT = {
    "round-with-sixteen-random-bits": (
        """
def stochastic_bf16(x, noise):
    bits = x.view(torch.int32)
    return (((bits + noise) >> 16) << 16).view(torch.float32).to(torch.bfloat16)
""",
        """
def stochastic_bf16(x, noise):
    bits = x.view(torch.int32)
    low = bits & 0xFFFF
    up = bits - low + 0x10000 * (low + noise >= 0x10000).int()
    return up.view(torch.float32).bfloat16()
""",
    ),
    "fp32-from-six-bf16-matmuls": (
        """
def matmul_fp32(a, b, mm):
    a1 = a.bfloat16()
    a2 = (a - a1).bfloat16()
    a3 = (a - a1 - a2).bfloat16()
    b1 = b.bfloat16()
    b2 = (b - b1).bfloat16()
    b3 = (b - b1 - b2).bfloat16()
    small = mm(a1, b3) + mm(a2, b2) + mm(a3, b1)
    return mm(a1, b1) + (mm(a1, b2) + mm(a2, b1) + small)
""",
    ),
    "bf16-weights-with-kahan": (
        """
def kahan_step(w, c, update):
    y = update - c
    t = (w + y).to(torch.bfloat16)
    return t, ((t.float() - w) - y).to(torch.bfloat16)
""",
        """
def kahan_step(w, c, update):
    c = c + update.bfloat16()
    before = w.clone()
    w = w + c
    return w, c + (before - w)
""",
    ),
    "gptq-in-ten-lines": (
        """
def gptq(W, X, scale, damp=0.01):
    W = W.clone()
    n = W.shape[1]
    H = X.T @ X
    H.diagonal().add_(damp * H.diagonal().mean())
    U = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    Q = []
    for j in range(n):
        w, s = W[:, j], scale[:, j]
        q = torch.clamp(torch.round(w / s), -7, 7) * s
        Q.append(q)
        W[:, j + 1:] -= ((w - q) / U[j, j])[:, None] * U[j, j + 1:]
    return torch.stack(Q, dim=1)
""",
    ),
    "awq-scale-search": (
        """
def search_scale(W, X, quantize, exponents):
    want, m, tried = X @ W.T, X.abs().mean(0), {}
    for a in exponents:
        s = m.pow(a)
        q = quantize(W * s)
        tried[a] = ((X / s) @ q.T - want).norm().item(), q / s
    a = min(tried, key=lambda k: tried[k][0])
    return a, tried[a][1]
""",
    ),
    "combine-two-softmax-halves": (
        """
def combine(lse_a, out_a, lse_b, out_b):
    lse = torch.logaddexp(lse_a, lse_b)
    safe = lse.masked_fill(lse == -torch.inf, 0.0)
    a, b = (lse_a - safe).exp(), (lse_b - safe).exp()
    return lse, a.unsqueeze(1) * out_a + b.unsqueeze(1) * out_b
""",
        """
def combine(lse_a, out_a, lse_b, out_b):
    lse = torch.stack([lse_a, lse_b])
    share = lse.softmax(0).nan_to_num(0.0)
    return lse.logsumexp(0), (share[..., None] * torch.stack([out_a, out_b])).sum(0)
""",
    ),
    "loss-in-chunks": (
        """
def loss_in_chunks(hidden, head, targets, chunk):
    h, lse = hidden.float(), None
    for part in head.split(chunk):
        new = (h @ part.float().T).logsumexp(1)
        lse = new if lse is None else torch.logaddexp(lse, new)
    right = (h * head[targets].float()).sum(1)
    return (lse - right).mean()
""",
    ),
    "matmul-with-block-scales": (
        """
def block_matmul(a, sa, b, sb, block):
    A = a.float().unflatten(1, (-1, block))
    B = b.float().unflatten(1, (-1, block))
    partial = torch.einsum("mkc,nkc->mnk", A, B)
    scales = sa[:, None] * sb.repeat_interleave(block, 0)[None]
    return (partial * scales).sum(-1)
""",
    ),
    "fp8-linear-by-rows": (
        """
def fp8_linear(x, w, bias):
    sx = x.abs().amax(1).clamp(min=1e-12) / 448
    sw = w.abs().amax(1).clamp(min=1e-12) / 448
    qx = (x / sx[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    qw = (w / sw[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (qx.float() @ qw.float().T * torch.outer(sx, sw) + bias).to(torch.bfloat16)
""",
    ),
    "operands-of-the-fp8-backward": (
        """
def backward(g, x, w, quantize):
    grad_w = quantize(g.T, 1) @ quantize(x, 0)
    return quantize(g, -1) @ quantize(w.T, -1).T, grad_w
""",
    ),
    "write-nvfp4": (
        """
def to_nvfp4(x):
    rows, k = x.shape
    top = x.abs().max() / 2688
    b = x.reshape(rows, k // 16, 16)
    s = (b.abs().amax(2) / (6 * top)).clamp(2.0**-6, 448.0).to(torch.float8_e4m3fn)
    return quantize(b / s.float().unsqueeze(2) / top, E2M1).reshape(rows, k), s, top
""",
    ),
    "int8-state-in-blocks": (
        """
def pack_state(x, block):
    codes, scales = [], []
    for part in x.split(block):
        scale = part.abs().max() / 127
        scales.append(scale)
        codes.append((part / scale if scale > 0 else part).round().to(torch.int8))
    return torch.cat(codes), torch.stack(scales)
""",
        """
def pack_state(x, block):
    padded = torch.nn.functional.pad(x, (0, -len(x) % block)).reshape(-1, block)
    scales = padded.abs().amax(1) / 127
    codes = torch.round(padded / scales.clamp(min=1e-30)[:, None]).to(torch.int8)
    return codes.flatten()[: len(x)], scales
""",
    ),
    "reduce-with-error-feedback": (
        """
def reduce(gradients, errors, quantize):
    total, left = 0, []
    for g, e in zip(gradients, errors, strict=True):
        sent = quantize(g + e)
        total = total + sent
        left.append(g + e - sent)
    return total / len(gradients), left
""",
    ),
    "smoothquant-in-place": (
        """
def smooth(norm, linear, amax, alpha=0.5):
    with torch.no_grad():
        top = linear.weight.abs().max(dim=0).values
        s = torch.where((amax > 0) & (top > 0), amax.pow(alpha) / top.pow(1 - alpha), 1.0)
        norm.weight.div_(s)
        norm.bias.div_(s)
        linear.weight.copy_(linear.weight * s)
""",
    ),
    "verify-a-drafted-token": (
        """
def verify(p, q, token, u):
    if q[token] * u < p[token]:
        return None
    rest = torch.relu(p - q)
    return torch.nn.functional.normalize(rest, p=1, dim=0)
""",
    ),
    "ppo-loss-for-two-engines": (
        """
def policy_loss(new, old, rollout, advantage, mask, clip=0.2, cap=2.0):
    with torch.no_grad():
        weight = torch.exp(old - rollout).clamp(max=cap) * mask / mask.sum()
    ratio = torch.exp(new - old.detach())
    loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))
    return (weight * loss).sum()
""",
    ),
    "find-the-corrupted-value": (
        """
def find_fault(a, b, c):
    a, b, c = a.double(), b.double(), c.double()
    k = a.shape[1]
    row_gap = (c.sum(1) - a @ b.sum(1)).abs()
    col_gap = (c.sum(0) - a.sum(0) @ b).abs()
    row_ok = row_gap <= k * 2.0**-24 * (a.abs() @ b.abs().sum(1))
    col_ok = col_gap <= k * 2.0**-24 * (a.abs().sum(0) @ b.abs())
    if row_ok.all() and col_ok.all():
        return None
    return (~row_ok).int().argmax(), (~col_ok).int().argmax()
""",
    ),
}

WRONG = {
    "round-with-sixteen-random-bits": (
        (
            """
def stochastic_bf16(x, noise):
    return x.bfloat16()
""",
            "the mean of the results",
        ),
        (("+ noise", "+ noise // 2"), "the mean of the results"),
        (("+ noise", "- noise"), "is wanted"),
    ),
    "fp32-from-six-bf16-matmuls": (
        (("range(3)", "range(2)"), "list index out of range"),
        (("i + j <= 2", "i + j <= 1"), "is wanted"),
        (
            """
def matmul_fp32(a, b, mm):
    return mm(a, b)
""",
            "takes BF16",
        ),
    ),
    "bf16-weights-with-kahan": (
        (
            """
def kahan_step(w, c, update):
    return (w.float() + update).bfloat16(), c
""",
            "in exact arithmetic",
        ),
        (
            """
def kahan_step(w, c, update):
    return w + update, c
""",
            "bfloat16",
        ),
    ),
    "gptq-in-ten-lines": (
        (("W[:, j:] -= torch.outer(error, U[j, j:])", "pass"), "rounding each weight by itself"),
        (("W, Q = W.clone(), torch", "W, Q = W, torch"), "the caller's W"),
    ),
    "awq-scale-search": (
        (("X.abs().mean(0)", "X.abs().amax(0)"), "the weight of"),
        (("error < best[0]", "error > best[0]"), "the smallest error"),
    ),
    "combine-two-softmax-halves": (
        (
            """
def combine(lse_a, out_a, lse_b, out_b):
    return torch.logaddexp(lse_a, lse_b), (out_a + out_b) / 2
""",
            "output of combine",
        ),
        (("top + total.log()", "total.log()"), "lse of combine"),
    ),
    "loss-in-chunks": (
        (("total = total * (top - new).exp()", "total = total"), "is wanted"),
        ((".mean()", ".sum()"), "is wanted"),
    ),
    "matmul-with-block-scales": (
        (("sb[:, k].repeat_interleave(block)", "1"), "is wanted"),
        (
            (
                "sb[:, k].repeat_interleave(block)",
                "sb[:, k].repeat(block)",
            ),
            "is wanted",
        ),
    ),
    "fp8-linear-by-rows": (
        (("+ bias)", ")"), "is wanted"),
        (("amax / 448, 1.0", "amax, 1.0"), "is wanted"),
        ((".bfloat16()", ""), "bfloat16"),
    ),
    "operands-of-the-fp8-backward": (
        (("grad_x = quantize(g, 1) @ quantize(w, 0)", "grad_x = g @ w"), "grad_x"),
        (("quantize(x, 0)", "quantize(x, 1)"), "grad_w"),
    ),
    "write-nvfp4": (
        (("(448 * 6)", "448"), "tensor scale"),
        ((".clamp(2**-6, 448)", ""), "not kept at 2**-6"),
    ),
    "int8-state-in-blocks": (
        (("/ 127", "/ 128"), "amax / 127"),
        (
            """
def pack_state(x, block):
    blocks = x.reshape(-1, block)
    scales = blocks.abs().amax(1) / 127
    return (blocks / scales[:, None]).round().to(torch.int8).flatten(), scales
""",
            "19 values",
        ),
    ),
    "reduce-with-error-feedback": (
        (("g + e for g, e", "g - e for g, e"), "add up to"),
        ((".mean(0)", ".sum(0)"), "add up to"),
    ),
    "smoothquant-in-place": (
        (("linear.weight *= s", "linear.weight /= s"), "output moved"),
        (("norm.weight /= s", "pass"), "output moved"),
    ),
    "verify-a-drafted-token": (
        (("u < p[token] / q[token]", "p[token] >= q[token]"), "comes out with probability"),
        (("(p - q).clamp(min=0)", "(p - q).abs()"), "comes out with probability"),
    ),
    "ppo-loss-for-two-engines": (
        ((".clamp(max=cap)", ""), "the loss is"),
        (("* mask).sum()", ").sum()"), "is wanted"),
    ),
    "find-the-corrupted-value": (
        (
            """
def find_fault(a, b, c):
    gap = (a @ b - c).abs().nan_to_num(nan=torch.inf)
    room = a.shape[1] * 2.0**-24 * (a.abs() @ b.abs())
    bad = (gap > room).nonzero()
    return tuple(bad[0].tolist()) if len(bad) else None
""",
            "as many as the product",
        ),
        (
            (
                "return rows.nonzero()[0].item(), columns",
                "return columns.nonzero()[0].item(), rows",
            ),
            "find_fault",
        ),
    ),
}
