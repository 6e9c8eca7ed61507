# Answers to lab 13 that the author of its checks had not foreseen: see tests/corpus.py.

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


# %% right rotary: in float64, with outer
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.exponents = [2 * i / width for i in range(width // 2)]
        self.base = base

    def forward(self, positions):
        inverse = torch.tensor([self.base**-e for e in self.exponents], dtype=torch.float64)
        angles = torch.outer(positions.double(), inverse)
        return angles.cos().float(), angles.sin().float()


# %% right rotary: a matmul in a block without autocast
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.width, self.base = width, base

    @torch.no_grad()
    def forward(self, positions):
        with torch.autocast(device_type=positions.device.type, enabled=False):
            even = torch.arange(0, self.width, 2, dtype=torch.int64).float()
            inverse = 1.0 / (self.base ** (even / self.width))
            angles = positions.float()[:, None] @ inverse[None, :]
            return torch.cos(angles), torch.sin(angles)


# %% right rotary: exp of a logarithm, in float32
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.width, self.log = width, math.log(base)

    def forward(self, positions):
        steps = torch.arange(self.width // 2, device=positions.device)
        inverse = torch.exp(steps.float() * (-2 * self.log / self.width))
        angles = positions.unsqueeze(-1).to(torch.float32) * inverse.unsqueeze(0)
        return angles.cos(), angles.sin()


# %% right rotary: numpy
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.inverse = np.power(float(base), -np.arange(0, width, 2) / width)

    def forward(self, positions):
        angles = positions.numpy()[:, None] * self.inverse
        return [torch.from_numpy(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]


# %% right rotary: a buffer that `_apply` leaves in float32
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.register_buffer("inverse", base ** (-even / width), persistent=False)

    def _apply(self, fn, recurse=True):
        kept = self.inverse
        super()._apply(fn, recurse)
        self.inverse = kept.to(self.inverse.device)
        return self

    def forward(self, positions):
        angles = torch.mul(positions[:, None], self.inverse)
        return angles.cos(), angles.sin()


# %% right rotary: a plain attribute, complex exponentials
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.inverse = torch.pow(base, torch.arange(0, -width, -2) / width)

    def forward(self, positions):
        angles = positions.float().view(-1, 1) * self.inverse.to(positions.device)
        turned = torch.polar(torch.ones_like(angles), angles)
        return turned.real, turned.imag


# %% right rotary: a cached table of float32 outside of the buffers
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        inverse = base ** (-torch.arange(0, width, 2).double() / width)
        angles = torch.arange(131072).double()[:, None] * inverse
        self.table = angles.cos().float(), angles.sin().float()

    def forward(self, positions):
        return tuple(part[positions] for part in self.table)


# %% wrong rotary: a buffer, as most model files had it
#    idea: upcast-too-late
#    says: after .to(torch.bfloat16), position 1, pair 1
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, positions):
        with torch.autocast(positions.device.type, enabled=False):
            freqs = positions[:, None].float() @ self.inv_freq[None].float()
            return freqs.cos(), freqs.sin()


# %% wrong rotary: the frequencies as a parameter
#    idea: upcast-too-late
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.inverse = nn.Parameter(base ** (-even / width), requires_grad=False)

    def forward(self, positions):
        angles = positions.float()[:, None] * self.inverse.float()
        return angles.cos(), angles.sin()


# %% wrong rotary: a buffer that is not converted back
#    says: after .to(torch.bfloat16)
#    never: inside autocast
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.register_buffer("inverse", base ** (-even / width))

    def forward(self, positions):
        angles = positions[:, None] * self.inverse
        return angles.cos(), angles.sin()


# %% wrong rotary: positions in the dtype of the buffer
#    says: after .to(torch.bfloat16)
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.register_buffer("inverse", base ** (-even / width))

    def forward(self, positions):
        angles = positions.to(self.inverse.dtype)[:, None] * self.inverse
        return angles.cos().float(), angles.sin().float()


# %% wrong rotary: a matmul of float32 tensors
#    idea: float-is-a-shelter
Rotary = changed(
    "positions.float()[:, None] * inverse", "torch.mm(positions.float()[:, None], inverse[None])"
)


# %% wrong rotary: a matmul, and float32 afterwards
#    idea: float-is-a-shelter
#    says: as a matmul rounds them inside autocast
Rotary = changed(
    "positions.float()[:, None] * inverse", "(positions.float()[:, None] @ inverse[None]).float()"
)


# %% wrong rotary: autocast switched off for xpu
#    idea: autocast-off-for-another-device
#    says: an autocast block for xpu
Rotary = changed(
    "        angles = positions.float()[:, None] * inverse\n",
    "        with torch.autocast(device_type='xpu', enabled=False):\n"
    "            angles = (positions.float()[:, None] @ inverse[None, :]).float()\n",
)


# %% wrong rotary: positions in FP16
#    idea: positions-are-small-integers
#    says: rounded to float16
Rotary = changed("positions.float()", "positions.half().float()")


# %% wrong rotary: sine first
#    says: Your first tensor holds the sines
Rotary = changed("angles.cos(), angles.sin()", "angles.sin(), angles.cos()")


# %% wrong rotary: the exponent i / width
#    says: Yours are those of the angle 0.8
Rotary = changed("-even / self.width", "-even / (2 * self.width)")


# %% wrong rotary: the exponent without the minus sign
#    says: position 1, pair 1
Rotary = changed("-even / self.width", "even / self.width")


# %% wrong rotary: the base is always 10000
#    says: Yours come out with the base 10000
Rotary = changed("self.width, self.base = width, base", "self.width, self.base = width, 10000.0")


# %% wrong rotary: twice as wide, as transformers has it
#    says: has shape
Rotary = changed(
    "return angles", "angles = torch.cat([angles, angles], dim=-1)\n        return angles"
)


# %% wrong rotary: rows counted instead of positions read
#    says: Does your forward read `positions`?
Rotary = changed("positions.float()", "torch.arange(len(positions)).float()")


# %% wrong rotary: the results in the dtype of autocast
#    says: cos is bfloat16; float32 is wanted. The angles are right
Rotary = changed(
    "return angles.cos(), angles.sin()",
    "dtype = torch.get_autocast_dtype('cpu') if torch.is_autocast_enabled('cpu') else torch.float32\n"
    "        return angles.cos().to(dtype), angles.sin().to(dtype)",
)


# %% wrong rotary: a table of buffers
#    says: All your cosines are values of bfloat16
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        inverse = base ** (-torch.arange(0, width, 2).double() / width)
        angles = torch.arange(131072).double()[:, None] * inverse
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())

    def forward(self, positions):
        return self.cos[positions].float(), self.sin[positions].float()


# %% wrong rotary: a table of 8192 positions
#    says: IndexError
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        inverse = base ** (-torch.arange(0, width, 2).double() / width)
        angles = torch.arange(8192).double()[:, None] * inverse
        self.table = angles.cos().float(), angles.sin().float()

    def forward(self, positions):
        return tuple(part[positions] for part in self.table)


# %% wrong rotary: the angles, no cosines
#    says: 2 values are asked for
Rotary = changed("return angles.cos(), angles.sin()", "return angles")


# %% right pooled: a loop over rows
def pooled(hidden, mask):
    rows = []
    for row, keep in zip(hidden, mask):
        real = row[keep].float()
        rows.append(real.mean(dim=0) if len(real) else torch.zeros(hidden.shape[-1]))
    return torch.stack(rows)


# %% right pooled: in float64, with where
def pooled(hidden, mask):
    kept = torch.where(mask.unsqueeze(-1), hidden.double(), 0.0)
    count = torch.count_nonzero(mask, dim=1).clamp_min(1)
    return (kept.sum(1) / count[:, None]).float()


# %% right pooled: a sum in float32 of 16-bit values
def pooled(hidden, mask):
    total = hidden.masked_fill(~mask.unsqueeze(2), 0).sum(dim=1, dtype=torch.float32)
    return total / mask.float().sum(1, keepdim=True).clamp(min=1e-9)


# %% right pooled: nan_to_num before the mask is multiplied
def pooled(hidden, mask):
    real = mask[..., None].float()
    return (hidden.float().nan_to_num() * real).sum(1) / torch.clamp(real.sum(1), min=1e-9)


# %% right pooled: nanmean of what is real
def pooled(hidden, mask):
    kept = hidden.float().masked_fill(~mask[..., None], torch.nan)
    return kept.nanmean(dim=1).nan_to_num()


# %% right pooled: numpy
def pooled(hidden, mask):
    kept = np.where(mask.numpy()[..., None], hidden.float().numpy(), 0)
    count = np.maximum(mask.numpy().sum(axis=1, keepdims=True), 1)
    return (kept.sum(axis=1) / count).astype(np.float32)


# %% right pooled: a matmul in a block without autocast
def pooled(hidden, mask):
    with torch.autocast("cpu", enabled=False):
        weights = mask.float() / mask.sum(1, keepdim=True).clamp(min=1)
        clean = hidden.float().masked_fill(~mask[..., None], 0)
        return torch.einsum("nt,ntw->nw", weights, clean)


# %% wrong pooled: the model card's
#    idea: eps-fits-every-format
def pooled(token_embeddings, attention_mask):
    expanded = (
        attention_mask.unsqueeze(-1).expand(token_embeddings.size()).to(token_embeddings.dtype)
    )
    summed = torch.sum(token_embeddings * expanded, 1)
    return (summed / torch.clamp(expanded.sum(1), min=1e-9)).float()


# %% wrong pooled: the model card's, in the dtype of its input
#    says: has dtype torch.bfloat16
def pooled(token_embeddings, attention_mask):
    expanded = (
        attention_mask.unsqueeze(-1).expand(token_embeddings.size()).to(token_embeddings.dtype)
    )
    return torch.sum(token_embeddings * expanded, 1) / torch.clamp(expanded.sum(1), min=1e-9)


# %% wrong pooled: the model card's in float32
#    idea: zero-times-anything-is-zero
def pooled(token_embeddings, attention_mask):
    expanded = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).float()
    return torch.sum(token_embeddings.float() * expanded, 1) / expanded.sum(1).clamp(min=1e-9)


# %% wrong pooled: the count in the dtype of hidden
#    idea: counting-is-exact
#    says: divided by 256
def pooled(hidden, mask):
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(1) / mask.sum(1, keepdim=True, dtype=hidden.dtype).clamp(min=1)


# %% wrong pooled: the plain mean
#    idea: padding-averages-out
def pooled(hidden, mask):
    return hidden.float().mean(1)


# %% wrong pooled: zeros are filled in, and all positions counted
#    says: the sum is divided by all 8 positions
def pooled(hidden, mask):
    return hidden.float().masked_fill(~mask[..., None], 0).mean(1)


# %% wrong pooled: the first tokens, as many as are real
#    says: the mean of the first 5 positions
def pooled(hidden, mask):
    out = torch.zeros(len(hidden), hidden.shape[2])
    for i, n in enumerate(mask.sum(1).tolist()):
        if n:
            out[i] = hidden[i, :n].float().mean(0)
    return out


# %% wrong pooled: only one row's count
#    says: row 1
def pooled(hidden, mask):
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(1) / max(int(mask[0].sum()), 1)


# %% wrong pooled: no clamp
#    idea: an-empty-mean-is-zero
def pooled(hidden, mask):
    return torch.stack([row[keep].float().mean(0) for row, keep in zip(hidden, mask)])


# %% wrong pooled: a weighted sum by einsum
#    says: has dtype torch.bfloat16
def pooled(hidden, mask):
    clean = hidden.float().masked_fill(~mask[..., None], 0)
    weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("nt,ntw->nw", weights, clean)


# %% wrong pooled: the padding is kept, and the tokens left out
#    says: row 0, channel 0
pooled = changed("~mask[..., None]", "mask[..., None]")


# %% wrong pooled: summed in 16 bits
#    idea: upcast-too-late
#    says: the sum of the tokens is rounded to bfloat16
def pooled(hidden, mask):
    kept = hidden.masked_fill(~mask[..., None], 0)
    return kept.sum(1).float() / mask.sum(1, keepdim=True).clamp(min=1)


# %% right attend: by hand in float32, eager
def attend(q, k, v, q_gain, k_gain):
    with torch.autocast("cpu", enabled=False):
        q, k, v = q.float(), k.float(), v.float()
        q = q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6) * q_gain
        k = k * torch.rsqrt(k.pow(2).mean(-1, keepdim=True) + 1e-6) * k_gain
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -torch.inf).softmax(-1) @ v


# %% right attend: eager in 16 bits
def attend(q, k, v, q_gain, k_gain):
    q = F.rms_norm(q.float(), (q.shape[-1],), eps=1e-6) * q_gain
    k = F.rms_norm(k.float(), (k.shape[-1],), eps=1e-6) * k_gain
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    keep = torch.ones(scores.shape[-2:]).tril().bool()
    return scores.masked_fill(~keep, float("-inf")).softmax(dim=-1) @ v


# %% right attend: modules
def attend(q, k, v, q_gain, k_gain):
    def normed(x, gain):
        norm = nn.RMSNorm(x.shape[-1], eps=1e-6)
        norm.weight.data = gain
        return norm(x.float()).to(v.dtype)

    return F.scaled_dot_product_attention(normed(q, q_gain), normed(k, k_gain), v, is_causal=True)


# %% right attend: a mask instead of is_causal
def attend(q, k, v, q_gain, k_gain):
    q = F.rms_norm(q.float(), q.shape[-1:], q_gain, 1e-6).type_as(v)
    k = F.rms_norm(k.float(), k.shape[-1:], k_gain, 1e-6).type_as(v)
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# %% right attend: float64
def attend(q, k, v, q_gain, k_gain):
    q, k = (x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    out = F.scaled_dot_product_attention(
        q * q_gain.double(), k * k_gain.double(), v.double(), is_causal=True
    )
    return out.to(v.dtype)


# %% right attend: a loop over heads
def attend(q, k, v, q_gain, k_gain):
    out = []
    for head in range(q.shape[1]):
        a, b = (F.rms_norm(x[:, head].float(), x.shape[-1:], eps=1e-6) for x in (q, k))
        a, b = (a * q_gain).to(v.dtype), (b * k_gain).to(v.dtype)
        out.append(F.scaled_dot_product_attention(a, b, v[:, head], is_causal=True))
    return torch.stack(out, dim=1)


# %% right attend: the gains exchanged, which changes no dot product
attend = changed(
    "q.shape[-1:], q_gain", "q.shape[-1:], k_gain", "k.shape[-1:], k_gain", "k.shape[-1:], q_gain"
)


# %% wrong attend: by hand in the dtype of the input
#    idea: squares-fit-fp16
#    says: float16 with queries of about 300
def attend(q, k, v, q_gain, k_gain):
    q = q * torch.rsqrt((q * q).mean(-1, keepdim=True) + 1e-6) * q_gain.to(q.dtype)
    k = k * torch.rsqrt((k * k).mean(-1, keepdim=True) + 1e-6) * k_gain.to(k.dtype)
    return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)


# %% wrong attend: lengths of 1
#    idea: length-is-root-mean-square
def attend(q, k, v, q_gain, k_gain):
    q = (F.normalize(q.float(), dim=-1) * q_gain).to(v.dtype)
    k = (F.normalize(k.float(), dim=-1) * k_gain).to(v.dtype)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# %% wrong attend: only the queries
#    idea: one-norm-bounds-the-scores
#    says: the keys are not normed
attend = changed("F.rms_norm(k.float(), k.shape[-1:], k_gain.float(), eps=1e-6)", "k")


# %% wrong attend: only the keys
#    idea: one-norm-bounds-the-scores
#    says: the queries are not normed
attend = changed("F.rms_norm(q.float(), q.shape[-1:], q_gain.float(), eps=1e-6)", "q")


# %% wrong attend: not causal
#    says: a position attends to those after it too
attend = changed("v, is_causal=True", "v")


# %% wrong attend: no gains
#    says: the gains are left out
attend = changed("q_gain.float()", "None", "k_gain.float()", "None")


# %% wrong attend: scores not divided
#    says: not divided by sqrt(width)
attend = changed("is_causal=True", "is_causal=True, scale=1.0")


# %% wrong attend: divided twice
#    says: divided by sqrt(width) twice
attend = changed("q.to(v.dtype)", "(q / q.shape[-1] ** 0.5).to(v.dtype)")


# %% wrong attend: the norm over positions
#    says: of its size away from the right one
def attend(q, k, v, q_gain, k_gain):
    q, k = (x.float() / (x.float().square().mean(-2, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    return F.scaled_dot_product_attention(
        (q * q_gain).to(v.dtype), (k * k_gain).to(v.dtype), v, is_causal=True
    )


# %% wrong attend: a layer norm
#    says: of its size away from the right one
def attend(q, k, v, q_gain, k_gain):
    q = F.layer_norm(q.float(), q.shape[-1:], q_gain, eps=1e-6)
    k = F.layer_norm(k.float(), k.shape[-1:], k_gain, eps=1e-6)
    return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)


# %% wrong attend: no eps
#    idea: a-norm-needs-no-eps
def attend(q, k, v, q_gain, k_gain):
    q, k = (x.float() / x.float().square().mean(-1, keepdim=True).sqrt() for x in (q, k))
    return F.scaled_dot_product_attention(
        (q * q_gain).to(v.dtype), (k * k_gain).to(v.dtype), v, is_causal=True
    )


# %% wrong attend: dtypes left apart
#    says: raised RuntimeError
attend = changed("q.to(v.dtype), k.to(v.dtype)", "q.double(), k")


# %% right head-loss: rows without a target taken out first
def head_loss(logits, targets, cap=30.0, z=1e-4):
    keep = targets != -100
    capped = cap * (logits[keep].float() / cap).tanh()
    log_z = torch.logsumexp(capped, 1)
    own = capped.gather(1, targets[keep][:, None])[:, 0]
    return (log_z - own).mean() + z * (log_z**2).mean()


# %% right head-loss: in float64
def head_loss(logits, targets, cap=30.0, z=1e-4):
    keep = targets.ne(-100)
    capped = cap * torch.tanh(logits.double() / cap)
    log_p = capped - capped.logsumexp(-1, keepdim=True)
    entropy = F.nll_loss(log_p, targets)
    return (entropy + z * capped.logsumexp(-1)[keep].pow(2).mean()).float()


# %% right head-loss: a sum divided by the count
def head_loss(logits, targets, cap=30.0, z=1e-4):
    mask = (targets != -100).float()
    capped = torch.tanh(logits.to(torch.float32) / cap).mul(cap)
    entropy = F.cross_entropy(capped, targets, reduction="none")
    square = torch.logsumexp(capped, dim=-1).square() * mask
    return (entropy.sum() + z * square.sum()) / mask.sum()


# %% right head-loss: autocast switched off
def head_loss(logits, targets, cap=30.0, z=1e-4):
    with torch.autocast(logits.device.type, enabled=False):
        logits = logits.float()
        capped = torch.nn.functional.tanh(logits / cap) * cap
        log_z = torch.log(torch.exp(capped - capped.amax(1, keepdim=True)).sum(1)) + capped.amax(1)
        keep = targets >= 0
        return nn.CrossEntropyLoss()(capped, targets) + z * (log_z[keep] * log_z[keep]).mean()


# %% right head-loss: a loop over rows
def head_loss(logits, targets, cap=30.0, z=1e-4):
    losses = []
    for row, target in zip(logits.float(), targets.tolist()):
        if target != -100:
            capped = cap * torch.tanh(row / cap)
            log_z = capped.logsumexp(0)
            losses.append(log_z - capped[target] + z * log_z**2)
    return torch.stack(losses).mean()


# %% right head-loss: tanh by a sigmoid
def head_loss(logits, targets, cap=30.0, z=1e-4):
    capped = cap * (2 * torch.sigmoid(2 * logits.double() / cap) - 1)
    log_z = capped.logsumexp(-1)[targets != -100]
    return F.cross_entropy(capped, targets, ignore_index=-100) + z * torch.mean(log_z**2)


# %% wrong head-loss: tanh in the dtype of the logits
#    idea: unlisted-ops-run-in-fp32
#    says: computed in bfloat16
head_loss = changed("torch.tanh(logits.float() / cap)", "torch.tanh(logits / cap)")


# %% wrong head-loss: float32 after the cap
#    says: tanh and the cap are computed in bfloat16
#    never: padding
head_loss = changed(
    "cap * torch.tanh(logits.float() / cap)", "(cap * torch.tanh(logits / cap)).float()"
)


# %% wrong head-loss: a clamp
#    idea: clamping-is-capping
head_loss = changed(
    "cap * torch.tanh(logits.float() / cap)", "torch.clamp(logits.float(), -cap, cap)"
)


# %% wrong head-loss: the padding counts in the z-loss
#    idea: padding-averages-out
head_loss = changed("[targets != -100]", "")


# %% wrong head-loss: the square of the mean
#    idea: square-of-the-mean
head_loss = changed("log_z.square().mean()", "log_z.mean().square()")


# %% wrong head-loss: log Z of the logits
#    idea: z-loss-sees-raw-logits
head_loss = changed("capped.logsumexp(dim=-1)", "logits.float().logsumexp(dim=-1)")


# %% wrong head-loss: log of a sum of exp
#    idea: exp-never-overflows
head_loss = changed("capped.logsumexp(dim=-1)", "torch.log(torch.exp(capped).sum(-1))")


# %% wrong head-loss: no z-loss
#    says: the z-loss is left out
head_loss = changed(" + z * log_z.square().mean()", "")


# %% wrong head-loss: no cap
#    says: is wanted: a cross-entropy of
head_loss = changed("cap * torch.tanh(logits.float() / cap)", "logits.float()")


# %% wrong head-loss: log Z not squared
#    says: the mean of log Z is not squared
head_loss = changed("log_z.square().mean()", "log_z.mean()")


# %% wrong head-loss: divided by all rows
#    says: both terms are divided by all rows
def head_loss(logits, targets, cap=30.0, z=1e-4):
    capped = cap * torch.tanh(logits.float() / cap)
    entropy = F.cross_entropy(capped, targets, reduction="sum")
    return (entropy + z * capped.logsumexp(-1)[targets != -100].square().sum()) / len(targets)


# %% wrong head-loss: the cap forgotten outside of the tanh
#    says: tanh is not multiplied by the cap
head_loss = changed("cap * torch.tanh", "torch.tanh")


# %% wrong head-loss: the z-loss detached
#    says: It is what the cross-entropy alone sends
head_loss = changed("z * log_z", "z * log_z.detach()")


# %% wrong head-loss: a Python float
#    says: sends no gradient to the logits
head_loss = changed(
    "F.cross_entropy(capped, targets) +",
    "F.cross_entropy(capped, targets).item() +",
    "log_z.square().mean()",
    "log_z.square().mean().item()",
)


# %% wrong head-loss: the cross-entropy of 16-bit logits
#    says: the cross-entropy takes the logits before the cap
head_loss = changed("F.cross_entropy(capped, targets)", "F.cross_entropy(logits.float(), targets)")


# %% right language-step: the skip is read from the norm
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    total = sum(int((y != -100).sum()) for _, y in group)
    optimizer.zero_grad(set_to_none=True)
    losses = []
    for x, y in group:
        with torch.autocast(device_type=device, dtype=torch.float16):
            logits = model(x)
            loss = F.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="sum"
            )
        scaler.scale(loss / total).backward()
        losses.append(loss.detach() / total)
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    if torch.isfinite(norm):
        scheduler.step()
    return sum(losses)


# %% right language-step: gradients of sums, divided before the clip
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    optimizer.zero_grad()
    count, total = 0, 0.0
    for x, y in group:
        with torch.autocast(device, torch.float16):
            loss = F.cross_entropy(model(x).transpose(1, 2), y, reduction="sum") / 32
        scaler.scale(loss).backward()
        count += (y != -100).sum().item()
        total += 32 * loss.item()
    scaler.unscale_(optimizer)
    for p in model.parameters():
        p.grad *= 32 / count
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=limit)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if not scaler.get_scale() < before:
        scheduler.step()
    return total / count


# %% right language-step: means weighted by their targets, empty ones passed over
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    counts = [y.ne(-100).sum().item() for _, y in group]
    mean = 0.0
    for (x, y), count in zip(group, counts):
        if not count:
            continue
        with torch.autocast(device, dtype=torch.float16):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten()) * count / sum(counts)
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    old = scaler.get_scale()
    scaler.update()
    optimizer.zero_grad()
    if scaler.get_scale() >= old:
        scheduler.step()
    return mean


# %% right language-step: log-probabilities by hand
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    optimizer.zero_grad()
    n = torch.cat([y.flatten() for _, y in group]).ne(-100).sum()
    total = torch.zeros(())
    for x, y in group:
        keep = y != -100
        with torch.autocast(device, dtype=torch.float16):
            log_p = model(x)[keep].log_softmax(-1)
            loss = -log_p.gather(-1, y[keep].unsqueeze(-1)).sum() / n
        scaler.scale(loss).backward()
        total += loss.detach()
    scaler.unscale_(optimizer)
    grads = [p.grad for p in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    if norm > limit:
        for g in grads:
            g.mul_(limit / norm)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return total.item()


# %% right language-step: whether the optimizer's step ran is noted by a hook
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    taken = []
    hook = optimizer.register_step_post_hook(lambda *args: taken.append(True))
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    mean = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            loss = nn.CrossEntropyLoss(reduction="sum")(
                model(tokens).flatten(0, 1), targets.flatten()
            )
        scaler.scale(loss / count).backward()
        mean += (loss / count).item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=False)
    scaler.step(optimizer)
    scaler.update()
    hook.remove()
    if taken:
        scheduler.step()
    return np.float64(mean)


# %% right language-step: one call of step for each, functions of their own
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    def total(x, y):
        with torch.autocast(device, dtype=torch.float16):
            return F.cross_entropy(
                model(x).flatten(end_dim=1), y.view(-1), ignore_index=-100, reduction="sum"
            )

    count = sum(y.numel() - (y == -100).sum().item() for _, y in group)
    optimizer.zero_grad()
    sums = []
    for x, y in group:
        sums.append(total(x, y) / count)
        scaler.scale(sums[-1]).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(list(model.parameters()), limit)
    was = float(scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()
    skipped = scaler.get_scale() < was
    if not skipped:
        scheduler.step()
    return float(sum(s.item() for s in sums))


# %% wrong language-step: as most trainers had it in 2024
#    idea: mean-of-means
language_step = changed(
    'targets.flatten(), reduction="sum") / count', "targets.flatten()) / len(group)"
)


# %% wrong language-step: weighted by rows
#    idea: examples-are-tokens
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    rows = sum(len(x) for x, _ in group)
    optimizer.zero_grad()
    mean = 0.0
    for x, y in group:
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) * (len(x) / rows)
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return mean


# %% wrong language-step: divided by all positions
#    idea: padding-counts-as-tokens
language_step = changed("(targets != -100).sum()", "targets.nelement()")


# %% wrong language-step: the sum, undivided
#    idea: sums-need-no-division
#    says: 22 times as much
language_step = changed(" / count", "")


# %% wrong language-step: divided by the micro-batch's own count
#    says: about 3 times as much
language_step = changed(" / count", " / (targets != -100).sum().clamp(min=1)")


# %% wrong language-step: the mean of each, weighted by its count
#    idea: an-empty-mean-is-zero
language_step = changed(
    'targets.flatten(), reduction="sum") / count',
    "targets.flatten()) * ((targets != -100).sum() / count)",
)


# %% wrong language-step: no unscale_
#    idea: clip-before-unscale
language_step = changed("scaler.unscale_(optimizer)", "pass")


# %% wrong language-step: clip before unscale_
#    idea: clip-before-unscale
#    says: a limit of 0.1: in step 0 the weights moved
language_step = changed(
    "    scaler.unscale_(optimizer)\n    nn.utils.clip_grad_norm_(model.parameters(), limit)\n",
    "    nn.utils.clip_grad_norm_(model.parameters(), limit)\n    scaler.unscale_(optimizer)\n",
)


# %% wrong language-step: each value clipped
#    says: a limit of 0.1
language_step = changed("nn.utils.clip_grad_norm_", "nn.utils.clip_grad_value_")


# %% wrong language-step: no clip
#    says: a limit of 0.1: in step 0 the weights moved
#    says: A step without any clip ends there too
language_step = changed("nn.utils.clip_grad_norm_(model.parameters(), limit)", "pass")


# %% wrong language-step: the schedule moves always
#    idea: scheduler-waits-for-the-scaler
#    says: because 0 of 1 steps were taken
language_step = changed(
    "if scaler.get_scale() >= before:\n        scheduler", "if True:\n        scheduler"
)


# %% wrong language-step: the schedule never moves
#    says: after step 0 the learning rate is 0.5; 0.25 is wanted
language_step = changed("scheduler.step()", "pass")


# %% wrong language-step: a scale that stays is a step
#    idea: a-changed-scale-is-a-skip
language_step = changed(">= before", "== before")


# %% wrong language-step: the scale before the step, compared before update
#    says: You read the scale twice before `update`
language_step = changed(
    "    scaler.update()\n    if scaler.get_scale() >= before",
    "    grew = scaler.get_scale() >= before\n    scaler.update()\n    if grew",
)


# %% wrong language-step: the scale in the loss
#    says: which is the scale
language_step = changed("mean += loss.item()", "mean += scaler.scale(loss).item()")


# %% wrong language-step: the last loss alone
#    says: The weights are right
language_step = changed("mean += loss.item()", "mean = loss.item()")


# %% wrong language-step: forward in float32
#    says: the model's outputs are float32
language_step = changed(
    "torch.autocast(device, dtype=torch.float16)",
    "torch.autocast(device, dtype=torch.float16, enabled=False)",
)


# %% wrong language-step: bfloat16
#    says: the model's outputs are bfloat16
#    says: Which dtype does autocast get?
language_step = changed("dtype=torch.float16", "dtype=torch.bfloat16")


# %% wrong language-step: all micro-batches at once
#    says: the forward passes of 6 sequences at once
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    tokens, targets = (torch.cat(part) for part in zip(*group))
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return loss.item()


# %% wrong language-step: one backward at the end
#    says: the forward passes of 6 sequences at once
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    total = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            logits = model(tokens).flatten(0, 1)
            total = total + F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
    scaler.scale(total).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return total.item()


# %% wrong language-step: nothing is returned
#    says: step 0 returns a loss of None
language_step = changed("    return mean\n", "")


# %% wrong language-step: the scaler is not used
#    says: in a right run the scaled gradients of step 0 hold an inf
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    mean = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
        loss.backward()
        mean += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    scheduler.step()
    return mean


# %% wrong language-step: update after each micro-batch
#    says: the scaler has checked no gradient
language_step = changed("mean += loss.item()", "mean += loss.item()\n        scaler.update()")


# %% right joint-step: what `unscale_` counted, parameter by parameter
def joint_step(model, loss, muon, adamw, scaler, limit):
    both = [muon, adamw]
    for optimizer in both:
        optimizer.zero_grad(set_to_none=False)
    scaler.scale(loss).backward()
    for optimizer in both:
        scaler.unscale_(optimizer)
    taken = all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    if taken:
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        for optimizer in both:
            scaler.step(optimizer)
    scaler.update()
    return taken


# %% right joint-step: an exception on a norm that is not finite
def joint_step(model, loss, muon, adamw, scaler, limit):
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(muon)
    scaler.unscale_(adamw)
    try:
        nn.utils.clip_grad_norm_(model.parameters(), limit, error_if_nonfinite=True)
    except RuntimeError:
        scaler.update()
        return False
    scaler.step(muon)
    scaler.step(adamw)
    scaler.update()
    return True


# %% right joint-step: the optimizers' own step, by hand clipped
def joint_step(model, loss, muon, adamw, scaler, limit):
    adamw.zero_grad()
    muon.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(adamw)
    scaler.unscale_(muon)
    grads = [p.grad for p in model.parameters()]
    norm = torch.sqrt(sum(g.square().sum() for g in grads))
    ok = math.isfinite(norm)
    if ok:
        for g in grads:
            g *= min(1.0, limit / (norm.item() + 1e-6))
        muon.step()
        adamw.step()
    scaler.update()
    return ok


# %% right joint-step: the groups of both optimizers
def joint_step(model, loss, muon, adamw, scaler, limit):
    weights = [p for o in (muon, adamw) for g in o.param_groups for p in g["params"]]
    for p in weights:
        p.grad = None
    scaler.scale(loss).backward()
    scaler.unscale_(muon), scaler.unscale_(adamw)
    norm = nn.utils.clip_grad_norm_(weights, limit)
    if torch.isfinite(norm):
        scaler.step(muon), scaler.step(adamw)
    scaler.update()
    return torch.isfinite(norm)


# %% right joint-step: gradients emptied in a skip, and emptied at the end
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad(), adamw.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(muon)
    scaler.unscale_(adamw)
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    if torch.isinf(total) or torch.isnan(total):
        scaler.update()
        return False
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, total)
    for o in (adamw, muon):
        scaler.step(o)
    scaler.update()
    muon.zero_grad()
    return np.bool_(True)


# %% right joint-step: the scale falls, so it was skipped
def joint_step(model, loss, muon, adamw, scaler, limit):
    for p in model.parameters():
        p.grad = None
    scaler.scale(loss).backward()
    scaler.unscale_(muon)
    scaler.unscale_(adamw)
    finite = nn.utils.clip_grad_norm_(model.parameters(), limit).isfinite().item()
    for optimizer in (muon, adamw) if finite else ():
        scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    return scaler.get_scale() >= before


# %% wrong joint-step: each by itself
#    idea: half-a-step-is-a-skip
#    says: Both must stay
joint_step = changed(
    "if finite:\n        scaler.step(muon)\n        scaler.step(adamw)",
    "scaler.step(muon)\n    scaler.step(adamw)",
)


# %% wrong joint-step: no clip, each by itself
#    says: SGD, a limit of 0.02
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(muon)
    scaler.step(adamw)
    scaler.update()
    return True


# %% wrong joint-step: each with a norm of its own
#    idea: two-norms-are-one
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    scaler.scale(loss).backward()
    norms = []
    for o in (muon, adamw):
        scaler.unscale_(o)
        norms.append(
            nn.utils.clip_grad_norm_([p for g in o.param_groups for p in g["params"]], limit)
        )
    ok = all(n.isfinite() for n in norms)
    if ok:
        scaler.step(muon)
        scaler.step(adamw)
    scaler.update()
    return ok


# %% wrong joint-step: Muon not unscaled, AdamW is
#    idea: muon-needs-no-unscale
joint_step = changed("scaler.unscale_(muon)\n    ", "")


# %% wrong joint-step: AdamW not unscaled
#    idea: one-unscale-is-for-all
joint_step = changed("    scaler.unscale_(adamw)\n", "")


# %% wrong joint-step: neither unscaled by hand
#    idea: clip-before-unscale
joint_step = changed("    scaler.unscale_(muon)\n    scaler.unscale_(adamw)\n", "")


# %% wrong joint-step: no scaler at all
#    says: afterwards the scale is
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    if norm.isfinite():
        muon.step()
        adamw.step()
    return bool(norm.isfinite())


# %% wrong joint-step: scaled gradients into both, without a clip
#    says: times as far as they must
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    if norm.isfinite():
        muon.step()
        adamw.step()
    return bool(norm.isfinite())


# %% wrong joint-step: update only after a step
#    idea: a-skip-needs-no-update
joint_step = changed(
    "    scaler.update()\n    return finite",
    "    if finite:\n        scaler.update()\n    return finite",
)


# %% wrong joint-step: an early return in a skip
#    idea: a-skip-needs-no-update
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(muon)
    scaler.unscale_(adamw)
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    if not norm.isfinite():
        return False
    scaler.step(muon)
    scaler.step(adamw)
    scaler.update()
    return True


# %% wrong joint-step: one update an optimizer
#    idea: one-update-per-optimizer
joint_step = changed(
    "        scaler.step(adamw)", "        scaler.update()\n        scaler.step(adamw)"
)


# %% wrong joint-step: Muon's gradients are never emptied
#    idea: gradients-reset-themselves
joint_step = changed("muon.zero_grad()\n    ", "")


# %% wrong joint-step: the loss decides
#    says: Muon stayed, and AdamW's weights moved
joint_step = changed(
    "finite = bool(norm.isfinite())\n    if finite:\n        scaler.step(muon)\n        scaler.step(adamw)",
    "finite = bool(loss.isfinite())\n    scaler.step(muon)\n    scaler.step(adamw)",
    "    scaler.update()\n    return finite",
    "    scaler.update()\n    return finite",
)


# %% wrong joint-step: only Muon's norm decides
#    says: an inf in a bias of AdamW
joint_step = changed(
    "finite = bool(norm.isfinite())",
    "finite = bool(muon.param_groups[0]['params'][0].grad.isfinite().all())",
)


# %% wrong joint-step: inf and NaN replaced by 0
#    says: Muon's gradient holds an inf
joint_step = changed(
    "    norm = nn.utils",
    "    for p in model.parameters():\n        p.grad.nan_to_num_(0, 0, 0)\n    norm = nn.utils",
)


# %% wrong joint-step: gradients emptied after the step
#    says: old gradients in .grad, step 0
#    says: Before the first step .grad held gradients of another loss
joint_step = changed(
    "    muon.zero_grad()\n    adamw.zero_grad()\n",
    "",
    "    return finite",
    "    model.zero_grad()\n    return finite",
)


# %% wrong joint-step: no clip
#    says: A step without any clip ends there too
joint_step = changed("model.parameters(), limit", "model.parameters(), float('inf')")


# %% wrong joint-step: always True
#    says: you return True; False is wanted
joint_step = changed("    return finite", "    return True")


# %% wrong joint-step: nothing is returned
#    says: you return None; True is wanted
joint_step = changed("    return finite", "    pass")


# %% wrong joint-step: the norm is returned
#    says: you return
joint_step = changed("    return finite", "    return norm")


# %% wrong joint-step: the optimizers' own steps, whatever the gradient
#    says: hold inf or NaN
joint_step = changed(
    "if finite:\n        scaler.step(muon)\n        scaler.step(adamw)",
    "muon.step()\n    adamw.step()",
)


# %% wrong joint-step: each value clipped
#    says: a limit of 0.02
joint_step = changed(
    "nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    nn.utils.clip_grad_value_(model.parameters(), limit)",
)


# %% wrong language-step: the clip after the step
#    says: A step without any clip ends there too
language_step = changed(
    "    nn.utils.clip_grad_norm_(model.parameters(), limit)\n    scaler.step(optimizer)\n",
    "    scaler.step(optimizer)\n    nn.utils.clip_grad_norm_(model.parameters(), limit)\n",
)


# %% wrong language-step: the loss outside of the block
#    says: the loss was computed in 16 bits
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    mean = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            logits = model(tokens).flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return mean


# %% right language-step: scaled gradients, clipped to the scaled limit
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    mean = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
        scaler.scale(loss).backward()
        mean += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), limit * scaler.get_scale())
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return mean


# %% right attend: torch's own norm of 16-bit queries
def attend(q, k, v, q_gain, k_gain):
    q = F.rms_norm(q, q.shape[-1:], q_gain.to(q.dtype), eps=1e-6)
    k = F.rms_norm(k, k.shape[-1:], k_gain.to(k.dtype), eps=1e-6)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# %% right rotary: logspace
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.inverse = torch.logspace(0, -(width - 2) / width, width // 2, base=base)

    def forward(self, positions):
        angles = torch.einsum("i,j->ij", positions.double(), self.inverse.double())
        return angles.cos().float(), angles.sin().float()


# %% wrong rotary: float64 comes back
#    says: cos is float64; float32 is wanted
Rotary = changed("positions.float()", "positions.double()")


# %% wrong rotary: an FP16 block of its own
#    idea: upcast-too-late
#    says: rounded to float16
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.inverse = [base ** (-2 * i / width) for i in range(width // 2)]

    def forward(self, positions):
        inverse = torch.tensor(self.inverse)
        with torch.autocast("cpu", dtype=torch.float16):
            angles = torch.mm(positions.float()[:, None], inverse[None])
        return angles.float().cos(), angles.float().sin()


# %% wrong pooled: the mask as a bias
#    says: row 0, channel 0 is -inf
#    never: 65504
def pooled(hidden, mask):
    hidden = hidden.float() + (~mask)[..., None] * torch.finfo(torch.float32).min
    return hidden.mean(1)


# %% wrong pooled: the empty row is NaN on purpose
#    idea: an-empty-mean-is-zero
def pooled(hidden, mask):
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(1) / mask.sum(1)[:, None]


# %% wrong pooled: rows summed in FP16, counted in float32
#    says: row 0
def pooled(hidden, mask):
    total = (hidden.double() * mask[..., None]).nan_to_num().sum(1).to(hidden.dtype).float()
    return total / mask.sum(1, keepdim=True).clamp(min=1)


# %% wrong head-loss: targets of -100 read as classes
#    says: raised
head_loss = changed("F.cross_entropy(capped, targets)", "F.nll_loss(capped.log_softmax(-1), targets, ignore_index=-1)")


# %% wrong head-loss: the sum over rows
#    says: is wanted: a cross-entropy of
head_loss = changed("F.cross_entropy(capped, targets)", 'F.cross_entropy(capped, targets, reduction="sum")')


# %% wrong joint-step: AdamW's gradients are never emptied
#    idea: gradients-reset-themselves
joint_step = changed("    adamw.zero_grad()\n", "")


# %% wrong joint-step: a step only where nothing is clipped
#    says: SGD, a limit of 0.02, step 0: all gradients are finite
joint_step = changed("finite = bool(norm.isfinite())", "finite = bool(norm <= limit)")


# %% wrong joint-step: only NaN is looked for
#    says: Muon stayed, and AdamW's weights moved
joint_step = changed("norm.isfinite()", "not norm.isnan()")


# %% wrong joint-step: the clip before unscale_
#    idea: clip-before-unscale
joint_step = changed(
    "    scaler.unscale_(muon)\n    scaler.unscale_(adamw)\n    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)\n",
    "    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)\n    scaler.unscale_(muon)\n    scaler.unscale_(adamw)\n",
)


# %% wrong joint-step: update first
#    says: With which call does an iteration end?
joint_step = changed("    if finite:", "    scaler.update()\n    if finite:", "    scaler.update()\n    return", "    return")


# %% wrong joint-step: the scaled loss is scaled by hand
#    says: afterwards the scale is
def joint_step(model, loss, muon, adamw, scaler, limit):
    muon.zero_grad()
    adamw.zero_grad()
    scale = scaler.get_scale()
    (loss * scale).backward()
    for p in model.parameters():
        p.grad /= scale
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    if norm.isfinite():
        muon.step()
        adamw.step()
    return bool(norm.isfinite())


# %% wrong joint-step: backward of the unscaled loss
#    says: The scaler has scaled no loss yet
joint_step = changed("scaler.scale(loss).backward()", "loss.backward()")


# %% wrong language-step: the schedule before the step
#    says: no limit: in step 0
language_step = changed(
    "    scaler.step(optimizer)\n", "    scheduler.step()\n    scaler.step(optimizer)\n",
    "if scaler.get_scale() >= before:\n        scheduler.step()", "pass",
)


# %% wrong language-step: the schedule waits for a finite loss
#    says: Here the loss is finite, and a gradient is not
language_step = changed("if scaler.get_scale() >= before", "if mean < float('inf')")


# %% wrong language-step: the first micro-batch's targets, as many in each
#    says: step 0 returns a loss
language_step = changed(
    "sum((targets != -100).sum() for _, targets in group)",
    "(group[0][1] != -100).sum() * len(group)",
)


# %% wrong language-step: the number of rows in all, times the length
#    idea: padding-counts-as-tokens
language_step = changed("count = sum((targets != -100).sum() for _, targets in group)", "count = sum(targets.shape[0] * targets.shape[1] for _, targets in group)")


# %% wrong language-step: the optimizer's own step after unscale_
#    says: an overflow in step 0
language_step = changed("    scaler.step(optimizer)\n", "    optimizer.step()\n")


# %% wrong language-step: the clip for each micro-batch
#    says: a limit of 0.1
language_step = changed(
    "mean += loss.item()", "mean += loss.item()\n        nn.utils.clip_grad_norm_(model.parameters(), limit * scaler.get_scale())",
    "    nn.utils.clip_grad_norm_(model.parameters(), limit)\n", "",
)


# %% wrong language-step: every weight ends as inf
#    says: weights are inf or NaN
language_step = changed(
    "    return mean", '    for p in model.parameters():\n        p.data.fill_(float("inf"))\n    return mean'
)


# %% wrong language-step: the learning rate set by hand
#    says: the learning rate is
language_step = changed("scheduler.step()", "optimizer.param_groups[0]['lr'] *= 0.9")


# %% wrong rotary: a buffer that is not persistent, and no float32 afterwards
#    says: Yours come out if the frequencies are rounded to bfloat16
#    never: brings back no bit
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.register_buffer("inverse", base ** (-even / width), persistent=False)

    def forward(self, positions):
        angles = positions[:, None].float() * self.inverse
        return angles.cos(), angles.sin()


# %% wrong rotary: the angles, twice
#    says: Your first tensor holds the angles
Rotary = changed("angles.cos(), angles.sin()", "angles, angles")


# %% wrong pooled: all rows' tokens counted together
#    says: the sum is divided by 13
pooled = changed("mask.sum(dim=1, keepdim=True)", "mask.sum()")


# %% wrong attend: eps beside the root
#    says: queries of about 0.001
#    says: the 1e-6 inside of the square root
def attend(q, k, v, q_gain, k_gain):
    def norm(x, gain):
        x = x.float()
        return (x / (x.square().mean(dim=-1, keepdim=True).sqrt() + 1e-6) * gain).to(v.dtype)

    return F.scaled_dot_product_attention(norm(q, q_gain), norm(k, k_gain), v, is_causal=True)


# %% wrong attend: the eps that rms_norm takes by itself
#    says: missing or far too small
attend = changed(", q_gain.float(), eps=1e-6", ", q_gain", ", k_gain.float(), eps=1e-6", ", k_gain")


# %% wrong attend: the values normed too
#    says: the values are normed too
attend = changed(", v, is_causal", ", F.rms_norm(v.float(), v.shape[-1:]).to(v.dtype), is_causal")


# %% wrong attend: the gain of the queries for both
#    says: the gain of the queries
attend = changed("k_gain.float()", "q_gain.float()")


# %% wrong attend: the mean square of the whole tensor
#    says: over the whole tensor
def attend(q, k, v, q_gain, k_gain):
    q = q.float() / (q.float().square().mean() + 1e-6).sqrt() * q_gain
    k = k.float() / (k.float().square().mean() + 1e-6).sqrt() * k_gain
    return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)


# %% wrong attend: a mask that shows the future only
#    says: to itself and to those after it
attend = changed(
    "is_causal=True", "attn_mask=torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu()"
)


# %% wrong head-loss: log of softmax
#    says: The probability of a target is exp(-19
#    says: Of what do you take the log?
head_loss = changed(
    "F.cross_entropy(capped, targets)",
    "F.nll_loss(capped.softmax(dim=-1).log(), targets)",
)


# %% wrong head-loss: log of a sum of exp over the real rows
#    idea: exp-never-overflows
#    says: is above the largest float32 value
head_loss = changed(
    "capped.logsumexp(dim=-1)[targets != -100]", "capped[targets != -100].exp().sum(-1).log()"
)


# %% wrong head-loss: tanh in 16 bits, the cap in float32
#    says: Yours comes out if tanh is computed in bfloat16
head_loss = changed("torch.tanh(logits.float() / cap)", "torch.tanh(logits / cap).float()")


# %% wrong head-loss: not divided by the cap
#    says: the logits are not divided by the cap
head_loss = changed("logits.float() / cap", "logits.float()")


# %% wrong head-loss: the cap is always 30
#    says: Yours comes out if the cap is 30
head_loss = changed("cap * torch.tanh(logits.float() / cap)", "30 * torch.tanh(logits.float() / 30)")


# %% wrong head-loss: z is forgotten
#    says: the z-loss is not multiplied by z
head_loss = changed(" + z * ", " + ")


# %% wrong rotary: the first call's result is kept
#    says: an earlier call of the same module
class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.width, self.base, self.kept = width, base, None

    def forward(self, positions):
        if self.kept is None:
            inverse = self.base ** (-torch.arange(0, self.width, 2).float() / self.width)
            angles = positions.float()[:, None] * inverse
            self.kept = angles.cos(), angles.sin()
        return self.kept


# %% wrong rotary: distances from the first position
#    says: each position minus the first position, 1
Rotary = changed("positions.float()", "(positions - positions[0]).float()")


# %% wrong pooled: zeros of real tokens are taken for padding
#    says: zeros among the real tokens are not counted
def pooled(hidden, mask):
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(dim=1) / (kept != 0).sum(dim=1).clamp(min=1)


# %% wrong attend: clamped so that the squares fit FP16
#    says: the queries are clamped
#    never: 90,000
def attend(q, k, v, q_gain, k_gain):
    def norm(x, gain):
        x = x.clamp(-255, 255).float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain).to(v.dtype)

    return F.scaled_dot_product_attention(norm(q, q_gain), norm(k, k_gain), v, is_causal=True)


# %% wrong language-step: labkit's loop
#    says: uses `labkit.training.train`
def language_step(model, group, optimizer, scheduler, scaler, limit, device):
    from labkit.training import train

    run = train(
        model, group, optimizer=optimizer, precision="fp16", scaler=scaler, schedule=scheduler,
        max_grad_norm=limit, accumulate=len(group), device=device, progress=False,
    )  # fmt: skip
    return run[0].loss
