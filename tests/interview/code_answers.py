"""Programs as people write them for code questions: right ones, and wrong ones nobody listed.

``RIGHT`` holds programs by question. ``WRONG`` holds pairs: a program, and words that must stand in
what its author is told. The imports of the question's stub are there.
"""

RIGHT = {
    "bf16-code-function": (
        "def bf16_code(code): return (code + 0x7FFF + ((code >> 16) & 1)) >> 16",
        """
def bf16_code(code: int) -> int:
    upper, lower = divmod(code, 1 << 16)
    if lower > 0x8000 or (lower == 0x8000 and upper % 2):
        upper += 1
    return upper
""",
        """
def bf16_code(code):
    low = code & 0xFFFF
    code >>= 16
    return code + (low > 0x8000 or low == 0x8000 and bool(code & 1))
""",
        """
import numpy as np

def bf16_code(code):
    code = np.uint64(code)
    return (code + np.uint64(0x7FFF) + ((code >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
""",
        "bf16_code = lambda c: (c + 32767 + (c // 65536) % 2) // 65536",
        """
def bf16_code(code):
    sign, rest = code & 0x80000000, code & 0x7FFFFFFF
    return (sign >> 16) | ((rest + 0x7FFF + (rest >> 16 & 1)) >> 16)
""",
    ),
    "zero-gradient-share": (
        """
def zero_share(gradients, reference):
    out = {}
    for name in reference:
        alive = reference[name].ne(0)
        n = int(alive.sum())
        out[name] = 0.0 if n == 0 else int((gradients[name][alive] == 0).sum()) / n
    return out
""",
        """
import torch

def zero_share(gradients, reference):
    def share(name):
        there = reference[name].flatten() != 0
        if not there.any():
            return 0.0
        return (gradients[name].flatten()[there] == 0).float().mean().item()
    return {name: share(name) for name in reference}
""",
        """
import torch

def zero_share(gradients, reference):
    return {
        k: ((gradients[k] == 0) & (r != 0)).sum() / (r != 0).sum().clamp(min=1)
        for k, r in reference.items()
    }
""",
        """
import numpy as np

def zero_share(gradients, reference):
    shares = {}
    for k, r in reference.items():
        r, g = r.numpy(), gradients[k].numpy()
        alive = np.count_nonzero(r)
        shares[k] = np.float64(np.count_nonzero((g == 0) & (r != 0)) / alive) if alive else 0.0
    return shares
""",
        """
from collections import OrderedDict

def zero_share(gradients, reference):
    result = OrderedDict()
    for (name, exact), low in zip(reference.items(), gradients.values()):
        pairs = list(zip(exact.flatten().tolist(), low.flatten().tolist()))
        alive = [b for a, b in pairs if a != 0]
        result[name] = sum(b == 0 for b in alive) / len(alive) if alive else 0
    return result
""",
    ),
    "first-bad-module": (
        """
import torch

def first_bad_module(model, x):
    names = {m: n for n, m in model.named_modules()}
    found = []
    def hook(m, args, out):
        if not torch.isfinite(out).all() and not found:
            found.append(names[m])
    handles = [m.register_forward_hook(hook) for m in model.modules()]
    model(x)
    for h in handles:
        h.remove()
    return found[0] if found else None
""",
        """
import functools

def first_bad_module(model, x):
    first = None
    def look(name, module, inputs, output):
        nonlocal first
        if first is None and (output.isnan() | output.isinf()).any():
            first = name
    handles = []
    for n, m in model.named_modules():
        handles.append(m.register_forward_hook(functools.partial(look, n)))
    try:
        model(x)
    finally:
        [h.remove() for h in handles]
    return first
""",
        """
import torch
from contextlib import ExitStack

def first_bad_module(model, x):
    class Found(Exception):
        pass
    def make(name):
        def hook(module, args, output):
            if not output.isfinite().all():
                raise Found(name)
        return hook
    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_hook(make(name)).remove)
        try:
            model(x)
        except Found as found:
            return found.args[0]
    return None
""",
        """
import torch

def first_bad_module(model, x):
    names = {id(m): n for n, m in model.named_modules()}
    bad = []
    def hook(module, args, output):
        if not (output - output == 0).all():
            bad.append(names[id(module)])
    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        with torch.no_grad():
            model(x)
    finally:
        handle.remove()
    return next(iter(bad), None)
""",
        """
def first_bad_module(model, x):
    seen, handles = {}, []
    for name, module in model.named_modules():
        def hook(m, i, o, name=name):
            seen.setdefault(name, bool(o.isfinite().all()))
        handles.append(module.register_forward_hook(hook))
    model(x)
    for handle in handles:
        handle.remove()
    for name, fine in seen.items():
        if not fine:
            return name
""",
    ),
    "write-scaled-e4m3": (
        """
def to_e4m3(x):
    amax = float(x.abs().amax())
    scale = 1.0 if amax == 0 else min(448.0 / amax, 3.4028234663852886e38)
    q = torch.clamp(x.float() * scale, -448, 448).to(torch.float8_e4m3fn)
    return q, scale
""",
        """
def to_e4m3(x):
    amax = x.abs().max()
    scale = torch.where(amax > 0, 448 / amax, torch.ones_like(amax))
    scale = scale.clamp(max=torch.finfo(torch.float32).max)
    return (x * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale.item()
""",
        """
def to_e4m3(x):
    amax = x.abs().max().item()
    if amax == 0:
        return x.to(torch.float8_e4m3fn), 1.0
    scale = min(448 / amax, torch.finfo(torch.float32).max)
    y = (x.double() * scale).float()
    return y.clip(-448, 448).to(torch.float8_e4m3fn), scale
""",
        """
import numpy as np

def to_e4m3(x):
    top = torch.finfo(torch.float8_e4m3fn).max
    amax = np.abs(x.numpy()).max()
    scale = np.float32(min(top / max(float(amax), 1e-300), 3.4028235e38)) if amax else np.float32(1)
    return (x * float(scale)).clamp(-top, top).to(torch.float8_e4m3fn), scale
""",
        """
def to_e4m3(x):
    amax = torch.linalg.vector_norm(x, ord=float("inf"))
    if not amax:
        scale = torch.tensor(1.0)
    else:
        scale = (448 / amax).clamp(max=torch.finfo(torch.float32).max)
    return [(x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale]
""",
    ),
    "write-fake-quantize": (
        """
def fake_quantize(x, scale, low, high):
    q = torch.clamp(torch.round(x / scale), low, high) * scale
    inside = (torch.round(x / scale) >= low) & (torch.round(x / scale) <= high)
    return x * inside + (q - x * inside).detach()
""",
        """
class Fake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        code = (x / scale).round()
        ctx.save_for_backward((code >= low) & (code <= high))
        return code.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None

def fake_quantize(x, scale, low, high):
    return Fake.apply(x, scale, low, high)
""",
        """
def fake_quantize(x, scale, low, high):
    y = x / scale
    y = (y.round() - y).detach() + y
    return y.clamp(low, high).mul(scale)
""",
        """
def fake_quantize(x, scale, low, high):
    code = (x / scale).round()
    kept = code.ge(low).logical_and(code.le(high)).float()
    return (code.clamp(min=low, max=high) * scale - x * kept).detach() + x * kept
""",
        """
def fake_quantize(x, scale, low, high):
    code = torch.round(x / scale)
    q = code.clamp(low, high) * scale
    passes = torch.where((code >= low) & (code <= high), x, x.detach())
    return passes + (q - x).detach()
""",
    ),
    "write-affine-uint8": (
        """
def quantize_uint8(x):
    lo, hi = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = ((hi - lo) / 255).item()
    if scale == 0:
        return torch.zeros_like(x, dtype=torch.uint8), 1.0, 0
    zp = int(torch.round(-lo / scale))
    return (x / scale).round().add(zp).clamp(0, 255).to(torch.uint8), scale, zp
""",
        """
def quantize_uint8(x):
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = (high - low) / 255.0 if high > low else 1.0
    zero_point = max(0, min(255, round(-low / scale)))
    q = torch.round(x / scale + zero_point).clamp(0, 255).byte()
    return q, scale, zero_point
""",
        """
import numpy as np

def quantize_uint8(x):
    a = x.numpy().astype(np.float64)
    low, high = min(a.min(), 0), max(a.max(), 0)
    scale = (high - low) / 255 or 1.0
    zero = np.rint(-low / scale)
    q = np.clip(np.rint(a / scale) + zero, 0, 255).astype(np.uint8)
    return torch.from_numpy(q), scale, int(zero)
""",
        """
def quantize_uint8(x):
    with_zero = torch.cat([x.flatten(), torch.zeros(1)])
    low, high = with_zero.aminmax()
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.tensor(1.0), scale)
    zero = (-low / scale).round()
    q = ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8)
    return q, scale, zero.int()
""",
        """
def quantize_uint8(x):
    low = min(x.min().item(), 0)
    high = max(x.max().item(), 0)
    scale = (high - low) / 255
    if not scale:
        scale = 1.0
    zero_point = int(-low / scale + 0.5)
    codes = [min(255, max(0, round(v / scale) + zero_point)) for v in x.tolist()]
    return torch.tensor(codes, dtype=torch.uint8), scale, zero_point
""",
    ),
    "stable-softmax": (
        """
def softmax(x):
    y = x.float()
    y = torch.exp(y - y.amax(-1, keepdim=True))
    return (y / y.sum(-1, keepdim=True)).to(x.dtype)
""",
        """
def softmax(x):
    e = (x - x.amax(dim=-1, keepdim=True)).exp()
    return e / e.sum(dim=-1, keepdim=True)
""",
        """
def softmax(x):
    d = x.double()
    return (d - d.logsumexp(-1, keepdim=True)).exp().half()
""",
        """
def softmax(x):
    shifted = x - x.max(dim=-1, keepdim=True)[0]
    e = shifted.float().exp()
    return (e / e.sum(dim=-1, keepdim=True)).half()
""",
        """
import numpy as np

def softmax(x):
    a = x.numpy().astype(np.float32)
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return torch.from_numpy((e / e.sum(axis=-1, keepdims=True)).astype(np.float16))
""",
        """
def softmax(x):
    rows = [row.float() for row in x]
    rows = [(row - row.max()).exp() for row in rows]
    return torch.stack([(row / row.sum()).half() for row in rows])
""",
    ),
    "online-softmax": (
        """
def absorb(m, l, o, scores, values):
    new = max(m, scores.max())
    p = torch.exp(scores - new)
    fade = torch.exp(m - new)
    return new, fade * l + p.sum(), fade * o + p @ values
""",
        """
def absorb(m, l, o, scores, values):
    for s, v in zip(scores, values):
        top = torch.maximum(m, s)
        old, new = (m - top).exp(), (s - top).exp()
        m, l, o = top, l * old + new, o * old + new * v
    return m, l, o
""",
        """
def absorb(m, l, o, scores, values):
    m_new = torch.maximum(m, scores.amax())
    w = torch.exp(scores - m_new)
    a = torch.exp(m - m_new)
    o = a * o + (w[:, None] * values).sum(dim=0)
    l = a * l + w.sum()
    return [m_new, l, o]
""",
        """
import math

def absorb(m, l, o, scores, values):
    top = max(m.item(), scores.max().item()) if torch.is_tensor(m) else max(m, scores.max().item())
    weights = (scores - top).exp()
    old = math.exp(float(m) - top)
    return top, float(l) * old + weights.sum().item(), o * old + values.T @ weights
""",
        """
def absorb(m, l, o, scores, values):
    # relative to the maximum so far
    block_max = scores.max()
    block = (scores - block_max).exp()
    bl, bo = block.sum(), block @ values
    top = torch.maximum(m, block_max)
    a, b = (m - top).exp(), (block_max - top).exp()
    return top, a * l + b * bl, a * o + b * bo
""",
    ),
    "code-layer-sensitivity": (
        """
from copy import deepcopy

def sensitivity(model, name, x, dtype):
    other = deepcopy(model)
    layer = other.get_submodule(name)
    for p in layer.parameters():
        p.data = p.data.to(dtype).float()
    forward = layer.forward
    layer.forward = lambda t: forward(t.to(dtype).float()).to(dtype).float()
    with torch.no_grad():
        want = model(x)
        return float(torch.linalg.norm(other(x) - want) / torch.linalg.norm(want))
""",
        """
def sensitivity(model, name, x, dtype):
    layer = dict(model.named_modules())[name]
    saved = [p.detach().clone() for p in layer.parameters()]
    low = lambda t: t.to(dtype).to(torch.float32)
    with torch.no_grad():
        exact = model(x)
        pre = layer.register_forward_pre_hook(lambda m, a: (low(a[0]),))
        post = layer.register_forward_hook(lambda m, a, out: low(out))
        try:
            for p in layer.parameters():
                p.copy_(low(p))
            got = model(x)
        finally:
            pre.remove()
            post.remove()
            for p, s in zip(layer.parameters(), saved):
                p.copy_(s)
    return ((got - exact).norm() / exact.norm()).item()
""",
        """
import torch.nn as nn, copy

class Rounded(nn.Module):
    def __init__(self, inner, dtype):
        super().__init__()
        self.inner, self.dtype = inner, dtype
    def forward(self, x):
        return self.inner(x.to(self.dtype).float()).to(self.dtype).float()

@torch.no_grad()
def sensitivity(model, name, x, dtype):
    twin = copy.deepcopy(model)
    inner = twin.get_submodule(name).to(dtype).float()
    twin.set_submodule(name, Rounded(inner, dtype))
    a, b = model(x), twin(x)
    return (b - a).norm() / a.norm()
""",
        """
from torch.func import functional_call

@torch.no_grad()
def sensitivity(model, name, x, dtype):
    r = lambda t: t.to(dtype).to(t.dtype)
    layer = model.get_submodule(name)
    weights = {k: r(p) if k.startswith(name + ".") else p for k, p in model.named_parameters()}
    exact = model(x)
    handles = [
        layer.register_forward_pre_hook(lambda m, args: r(args[0])),
        layer.register_forward_hook(lambda m, args, out: r(out)),
    ]
    try:
        got = functional_call(model, weights, (x,))
    finally:
        for h in handles:
            h.remove()
    return ((got - exact).norm() / exact.norm()).item()
""",
        """
import copy

def sensitivity(model, name, x, dtype):
    twin = copy.deepcopy(model)
    layer = twin.get_submodule(name)
    layer.load_state_dict({k: v.to(dtype).float() for k, v in layer.state_dict().items()})
    layer.register_forward_pre_hook(lambda m, i: tuple(t.to(dtype).float() for t in i))
    layer.register_forward_hook(lambda m, i, o: o.to(dtype).float())
    exact, got = model(x).detach(), twin(x).detach()
    return (((got - exact) ** 2).sum().sqrt() / (exact**2).sum().sqrt()).item()
""",
    ),
    "gradient-penalty-under-amp": (
        """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device_type=device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    penalty = sum((g * inverse).square().sum() for g in grads)
    return loss + weight * penalty
""",
        """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, torch.float16):
        loss = loss_fn(model(inputs), targets)
    scaled = scaler.scale(loss)
    grads = torch.autograd.grad(scaled, tuple(model.parameters()), create_graph=True)
    flat = torch.cat([g.flatten() for g in grads]) / scaler.get_scale()
    return loss + weight * (flat @ flat)
""",
        """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        out = model(inputs)
        loss = loss_fn(out, targets)
    params = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(scaler.scale(loss), params, create_graph=True)
    total = 0.0
    for g in grads:
        total = total + (g.float() / scaler.get_scale()).pow(2).sum()
    return loss + weight * total
""",
        """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(
        outputs=scaler.scale(loss), inputs=list(model.parameters()), create_graph=True
    )
    s = scaler.get_scale()
    return loss + weight * torch.stack([(g / s).norm() ** 2 for g in gs]).sum()
""",
        """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    scaler.scale(loss)
    s = scaler.get_scale()
    gs = torch.autograd.grad(loss * s, list(model.parameters()), create_graph=True)
    return loss + weight * sum(((g / s) ** 2).sum() for g in gs)
""",
    ),
}

WRONG = {
    "bf16-code-function": (
        ("def bf16_code(code): return code >> 16", "keep the upper half"),
        ("def bf16_code(code): return (code + 0x8000) >> 16", "0x8000"),
        ("def bf16_code(code): return (code + 0x7FFF) >> 16", "upper half is odd"),
        ("def bf16_code(code): return (code & 0xFFFF)", "is wanted"),
        ("def bf16_code(code): return (code + 0x7FFF + (code & 1)) >> 16", "upper half is odd"),
        ("def bf16_code(code): return code // 65536 + (code % 65536 >= 0x8000)", "0x8000"),
        ("def bf16_code(code): return round(code / 65536) * 65536", "is wanted"),
        ("def bf16_code(code): print(code >> 16)", "None"),
        ("def bf16_code(code): return hex(code >> 16)", "one number"),
    ),
    "zero-gradient-share": (
        (
            """
def zero_share(gradients, reference):
    return {
        k: (((gradients[k] == 0) & (r != 0)).sum() / (r != 0).sum()).item()
        for k, r in reference.items()
    }
""",
            "'dead'",
        ),
        (
            """
def zero_share(gradients, reference):
    return {
        k: ((gradients[k] == 0).sum() / (r != 0).sum().clamp(min=1)).item()
        for k, r in reference.items()
    }
""",
            "not 0 in FP32",
        ),
        (
            """
def zero_share(gradients, reference):
    return {k: 100 * ((gradients[k] == 0) & (r != 0)).sum().item() / max(1, (r != 0).sum().item())
            for k, r in reference.items()}
""",
            "is ",
        ),
        (
            """
def zero_share(gradients, reference):
    lost = sum(((gradients[k] == 0) & (r != 0)).sum().item() for k, r in reference.items())
    return lost / sum((r != 0).sum().item() for r in reference.values())
""",
            "dict",
        ),
        (
            """
def zero_share(gradients, reference):
    return {k: ((gradients[k] != 0) & (r != 0)).sum().item() / max(1, (r != 0).sum().item())
            for k, r in reference.items()}
""",
            "'first'",
        ),
        (
            """
def zero_share(gradients, reference):
    return {k: (gradients[k].abs() < 2**-14).logical_and(r != 0).sum().item()
            / max(1, (r != 0).sum().item()) for k, r in reference.items()}
""",
            "'first'",
        ),
        (
            """
def zero_share(gradients, reference):
    return {k: ((gradients[k] == 0) & (r != 0)).sum().item() / max(1, (r != 0).sum().item())
            for k, r in reference.items() if (r != 0).any()}
""",
            "dead",
        ),
    ),
    "first-bad-module": (
        (
            """
def first_bad_module(model, x):
    for name, module in model.named_children():
        x = module(x)
        if not x.isfinite().all():
            return name
""",
            "'1.1'",
        ),
        (
            """
def first_bad_module(model, x):
    outputs, handles = {}, []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda m, i, o, name=name: outputs.__setitem__(name, o)))
    model(x)
    for h in handles:
        h.remove()
    for name, module in model.named_modules():
        if not list(module.children()) and not outputs[name].isfinite().all():
            return name
""",
            "another order",
        ),
        (
            """
def first_bad_module(model, x):
    bad, handles = [], []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda m, i, o, name=name: bad.append(name) if o.isinf().any() else None))
    model(x)
    for h in handles:
        h.remove()
    return bad[0] if bad else None
""",
            "NaN",
        ),
        (
            """
import torch

def first_bad_module(model, x):
    names = {m: n for n, m in model.named_modules()}
    bad = []
    torch.nn.modules.module.register_module_forward_hook(
        lambda m, i, o: None if o.isfinite().all() else bad.append(names.get(m)))
    model(x)
    return bad[0] if bad else None
""",
            "hook",
        ),
        (
            """
def first_bad_module(model, x):
    bad, handles = [], []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda m, i, o, name=name: None if o.isfinite().all() else bad.append(name)))
    model(x)
    for h in handles:
        h.remove()
    return bad[0] if bad else ""
""",
            "None",
        ),
        (
            """
def first_bad_module(model, x):
    bad, handles = [], []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda m, i, o: None if o.isfinite().all() else bad.append(type(m).__name__)))
    model(x)
    for h in handles:
        h.remove()
    return bad[0] if bad else None
""",
            "'1'",
        ),
        (
            """
def first_bad_module(model, x):
    bad, handles = [], []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda m, i, o, name=name: None if o.isfinite().any() else bad.append(name)))
    model(x)
    for h in handles:
        h.remove()
    return bad[0] if bad else None
""",
            "one inf among",
        ),
    ),
    "write-scaled-e4m3": (
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = 448 / amax if amax else 1.0
    return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
""",
            "1e-40",
        ),
        (
            """
def to_e4m3(x):
    scale = 448 / max(x.abs().max().item(), 1e-12)
    return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
""",
            "zeros",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = 240 / amax if amax else 1.0
    return (x * scale).clamp(-240, 240).to(torch.float8_e4m3fn), scale
""",
            "with amax 0.0003331",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = min(448 / amax, 3.4e38) if amax else 1.0
    return (x * scale).to(torch.float8_e5m2), scale
""",
            "float8_e4m3fn",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
    return (x * scale).clamp(-448, 448), scale
""",
            "float8_e4m3fn",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
""",
            "comes back as",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().mean().item()
    scale = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
    return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
""",
            "scale",
        ),
        (
            """
def to_e4m3(x):
    amax = x.abs().max().item()
    scale = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
    return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
""",
            "2 values",
        ),
    ),
    "write-fake-quantize": (
        (
            """
def fake_quantize(x, scale, low, high):
    code = x / scale
    code = code + (code.round() - code).detach()
    low, high = torch.tensor(float(low)), torch.tensor(float(high))
    return torch.maximum(torch.minimum(code, high), low) * scale
""",
            "is 0.5; 1 is wanted",
        ),
        (
            "def fake_quantize(x, scale, low, high):\n    return (x / scale).round() * scale",
            "the value of",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    q = torch.clamp(torch.round(x / scale), low, high) * scale
    return q.detach()
""",
            "gradient",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    code = x / scale
    code = code + (torch.round(code) - code).detach()
    return torch.clamp(code, low, high)
""",
            "the value of",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    code = x * scale
    code = code + (torch.round(code) - code).detach()
    return torch.clamp(code, low, high) / scale
""",
            "the value of",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    q = torch.clamp(torch.round(x / scale), low, high)
    return (x / scale + (q - x / scale).detach())
""",
            "the value of",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    code = x / scale
    code = code + (torch.trunc(code + 0.5) - code).detach()
    return torch.clamp(code, low, high) * scale
""",
            "the value of",
        ),
        (
            """
def fake_quantize(x, scale, low, high):
    code = torch.clamp(x / scale, low, high)
    code = code + (torch.round(code) - code).detach()
    return code * scale
""",
            "gradient",
        ),
    ),
    "write-affine-uint8": (
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / 256 or 1.0
    zp = round(-low / scale)
    return torch.clamp(torch.round(x / scale) + zp, 0, 255).to(torch.uint8), scale, zp
""",
            "scale",
        ),
        (
            """
def quantize_uint8(x):
    amax = x.abs().max().item()
    scale = 2 * amax / 255 or 1.0
    return torch.clamp(torch.round(x / scale) + 128, 0, 255).to(torch.uint8), scale, 128
""",
            "scale",
        ),
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / 255
    zp = round(-low / scale)
    return torch.clamp(torch.round(x / scale) + zp, 0, 255).to(torch.uint8), scale, zp
""",
            "ZeroDivisionError",
        ),
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / 255 or 1.0
    zp = -low / scale
    return torch.clamp(torch.round(x / scale + zp), 0, 255).to(torch.uint8), scale, zp
""",
            "zero point",
        ),
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / 255 or 1.0
    zp = round(-low / scale)
    return (torch.round(x / scale) + zp).to(torch.int8), scale, zp
""",
            "uint8",
        ),
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = (high - low) / 255 or 1.0
    zp = round(-low / scale)
    return torch.clamp(torch.round(x / scale) - zp, 0, 255).to(torch.uint8), scale, zp
""",
            "an error of",
        ),
        (
            """
def quantize_uint8(x):
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    scale = 255 / (high - low) if high > low else 1.0
    zp = round(-low * scale)
    return torch.clamp(torch.round(x * scale) + zp, 0, 255).to(torch.uint8), scale, zp
""",
            "scale",
        ),
    ),
    "stable-softmax": (
        (
            "def softmax(x):\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)",
            "exp(12)",
        ),
        (
            "def softmax(x):\n    e = x.float().exp()\n"
            "    return (e / e.sum(-1, keepdim=True)).half()",
            "88.7",
        ),
        (
            "def softmax(x):\n    e = (x.float() - x.max()).exp()\n"
            "    return (e / e.sum(-1, keepdim=True)).half()",
            "scores of",
        ),
        (
            "def softmax(x):\n    e = (x.float() - x.float().max(-1, keepdim=True)[0]).exp()\n"
            "    return (e / e.sum()).half()",
            "weight 0 is",
        ),
        (
            "def softmax(x):\n    e = (x.float() - x.float().max(-1, keepdim=True)[0]).exp()\n"
            "    return e / e.sum(-1, keepdim=True)",
            "float32",
        ),
        (
            "def softmax(x):\n    e = x.float().clamp(-10, 10).exp()\n"
            "    return (e / e.sum(-1, keepdim=True)).half()",
            "scores of 12 and 11",
        ),
        (
            "def softmax(x):\n    e = (x.float() - x.float().mean(-1, keepdim=True)).exp()\n"
            "    return (e / e.sum(-1, keepdim=True)).half()",
            "is wanted",
        ),
        (
            "def softmax(x):\n    y = x.float() - x.float().max(-1, keepdim=True)[0]\n"
            "    return (y.exp() / (y.exp().sum(-1, keepdim=True) + 1e-3)).half()",
            "is wanted",
        ),
    ),
    "online-softmax": (
        (
            """
def absorb(m, l, o, scores, values):
    w = scores.exp()
    return torch.maximum(m, scores.max()), l + w.sum(), o + w @ values
""",
            "o / l",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).exp()
    old = (top - m).exp()
    return top, l * old + w.sum(), o * old + w @ values
""",
            "o / l",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).exp()
    old = (m - top).exp()
    return m, l * old + w.sum(), o * old + w @ values
""",
            "o / l",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).softmax(0)
    old = (m - top).exp()
    return top, l * old + 1, o * old + w @ values
""",
            "o / l",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).exp()
    old = (m - top).exp()
    l = l * old + w.sum()
    return top, l, (o * old + w @ values) / l
""",
            "o / l",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).exp()
    old = (m - top).exp()
    return top, l * old + w.sum(), o * old + w[:, None] * values
""",
            "the shape is (5, 3)",
        ),
        (
            """
def absorb(m, l, o, scores, values):
    top = torch.maximum(m, scores.max())
    w = (scores - top).exp()
    return l * (m - top).exp() + w.sum(), o * (m - top).exp() + w @ values
""",
            "m, l and o",
        ),
    ),
    "code-layer-sensitivity": (
        (
            """
import copy

def sensitivity(model, name, x, dtype):
    twin = copy.deepcopy(model)
    layer = twin.get_submodule(name)
    layer.register_forward_hook(lambda m, i, o: o.to(dtype).float())
    with torch.no_grad():
        exact = model(x)
        return ((twin(x) - exact).norm() / exact.norm()).item()
""",
            "is wanted",
        ),
        (
            """
def sensitivity(model, name, x, dtype):
    with torch.no_grad():
        exact = model(x)
        layer = model.get_submodule(name)
        layer.to(dtype).float()
        got = model(x)
    return ((got - exact).norm() / exact.norm()).item()
""",
            "weights are other numbers",
        ),
        (
            """
import copy

def sensitivity(model, name, x, dtype):
    r = lambda t: t.to(dtype).float()
    twin = copy.deepcopy(model)
    layer = twin.get_submodule(name)
    layer.register_forward_pre_hook(lambda m, i: r(i[0]))
    layer.register_forward_hook(lambda m, i, o: r(o))
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(r(p))
        exact, got = model(x), twin(x)
        return ((got - exact).norm() / got.norm()).item()
""",
            "cancelling model",
        ),
        (
            """
import copy

def sensitivity(model, name, x, dtype):
    r = lambda t: t.to(dtype).float()
    twin = copy.deepcopy(model)
    layer = twin.get_submodule(name)
    layer.register_forward_pre_hook(lambda m, i: r(i[0]))
    layer.register_forward_hook(lambda m, i, o: r(o))
    with torch.no_grad():
        layer.weight.copy_(r(layer.weight))
        exact, got = model(x), twin(x)
        return ((got - exact).abs().max() / exact.abs().max()).item()
""",
            "is wanted",
        ),
        (
            """
import copy

def sensitivity(model, name, x, dtype):
    twin = copy.deepcopy(model).to(dtype)
    with torch.no_grad():
        exact = model(x)
        return ((twin(x.to(dtype)).float() - exact).norm() / exact.norm()).item()
""",
            "0.000753",
        ),
        (
            """
def sensitivity(model, name, x, dtype):
    r = lambda t: t.to(dtype).float()
    layer = model.get_submodule(name)
    saved = [p.clone() for p in layer.parameters()]
    with torch.no_grad():
        exact = model(x)
        layer.register_forward_pre_hook(lambda m, i: r(i[0]))
        layer.register_forward_hook(lambda m, i, o: r(o))
        for p in layer.parameters():
            p.copy_(r(p))
        got = model(x)
        for p, s in zip(layer.parameters(), saved):
            p.copy_(s)
    return ((got - exact).norm() / exact.norm()).item()
""",
            "hook",
        ),
    ),
    "gradient-penalty-under-amp": (
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    return loss + weight * sum((g / scaler.get_scale()).norm() for g in gs)
""",
            "your loss is",
        ),
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    gs = [g / scaler.get_scale() for g in gs]
    return scaler.scale(loss + weight * sum(g.pow(2).sum() for g in gs))
""",
            "your loss is",
        ),
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    gs = [g / scaler.get_scale() for g in gs]
    return (loss + weight * sum(g.pow(2).sum() for g in gs)).item()
""",
            "graph",
        ),
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    with torch.no_grad():
        gs = [g / scaler.get_scale() for g in gs]
    return loss + weight * sum(g.pow(2).sum() for g in gs)
""",
            "gradient",
        ),
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    return loss + weight * sum(g.pow(2).sum() for g in gs) / scaler.get_scale()
""",
            "your loss is",
        ),
        (
            """
def penalized_loss(model, loss_fn, inputs, targets, scaler, weight, device):
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
        inputs.requires_grad_()
        gs = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
        gs = [g.half() / scaler.get_scale() for g in gs]
    return loss + weight * sum(g.pow(2).sum() for g in gs)
""",
            "a loss of 1e-7",
        ),
    ),
}
