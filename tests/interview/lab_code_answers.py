"""Programs for the code questions that a lab's check judges: right ones, and natural wrong ones.

``RIGHT`` holds programs by question. ``WRONG`` holds pairs: a program, or what is replaced in the
question's own solution and by what; and words that must stand in what its author is told.
"""

RIGHT = {
    "byte-ledger-code": (
        """
def ledger(parameters, activations):
    fp32, fp16 = 4, 2
    return dict(weights=parameters * fp32, gradients=parameters * fp32, adam=2 * parameters * fp32,
                copies=parameters * fp16, activations=activations * fp16)
""",
        """
import torch

def ledger(parameters, activations):
    wide, half = torch.float32.itemsize, torch.float16.itemsize
    rows = [("weights", parameters, wide), ("gradients", parameters, wide),
            ("adam", 2 * parameters, wide), ("copies", parameters, half),
            ("activations", activations, half)]
    return {name: count * size for name, count, size in rows}
""",
        """
import numpy as np
from collections import defaultdict

def ledger(parameters, activations):
    out = defaultdict(int)
    for name, bits in {"weights": 32, "gradients": 32, "adam": 64, "copies": 16}.items():
        out[name] += np.int64(parameters) * bits // 8
    out["activations"] = np.int64(activations) * 2
    return out
""",
    ),
    "three-facts-code": (
        """
def three_facts(dtype, capability):
    since = (8, 9) if dtype == "fp8" else (8, 0)
    fast = capability != (6, 1) if dtype == "fp16" else capability >= since
    return [dtype != "tf32", fast or dtype in {"fp16", "bf16"}, fast]
""",
        """
def three_facts(dtype, capability):
    if dtype == "fp16":
        return True, True, capability in [(5, 3), (6, 0), (6, 2)] or capability[0] >= 7
    if dtype == "bf16":
        return True, True, capability[0] >= 8
    if dtype == "tf32":
        return False, capability[0] >= 8, capability[0] >= 8
    return True, capability >= (8, 9), capability >= (8, 9)
""",
        """
import numpy as np

def three_facts(dtype, capability):
    version = capability[0] + capability[1] / 10
    since = {"bf16": 8.0, "tf32": 8.0, "fp8": 8.9}
    fast = np.bool_(version != 6.1) if dtype == "fp16" else np.float64(version) >= since[dtype]
    return dtype != "tf32", np.logical_or(fast, dtype.endswith("16")), fast
""",
    ),
    "timer-code": (
        """
def timed(cuda, work, repeats):
    def once():
        marks = [cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        work()
        marks[1].record()
        cuda.synchronize()
        return marks[0].elapsed_time(marks[1])
    once()
    return sorted(once() for _ in range(repeats))[repeats // 2]
""",
        """
import torch

def timed(cuda, work, repeats):
    for _ in range(3):
        work()
    pairs = []
    for _ in range(repeats):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        pairs.append((start, end))
    cuda.synchronize()
    return torch.tensor([start.elapsed_time(end) for start, end in pairs]).median()
""",
        """
import numpy as np

def timed(cuda, work, repeats):
    work(), cuda.synchronize()
    marks = [cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work(), mark.record()
    marks[-1].synchronize()
    return np.median([a.elapsed_time(b) for a, b in zip(marks, marks[1:])])
""",
    ),
    "verdict-code": (
        """
import numpy as np

def verdict(differences, margin, t):
    d = np.array(differences)
    half = t * d.std(ddof=1) / np.sqrt(len(d))
    low, high = d.mean() - half, d.mean() + half
    if low > -margin and high < margin:
        return "equivalent"
    return "worse" if high < -margin else "better" if low > margin else "inconclusive"
""",
        """
def verdict(differences, margin, t):
    n = len(differences)
    mean = sum(differences) / n
    half = t * (sum((x - mean) ** 2 for x in differences) / (n - 1) / n) ** 0.5
    if abs(mean) + half < margin:
        return "equivalent"
    if abs(mean) - half > margin:
        return "better" if mean > 0 else "worse"
    return "inconclusive"
""",
        """
import torch

def verdict(differences, margin, t):
    d = torch.tensor(differences, dtype=torch.double)
    half = t * d.std() / len(d) ** 0.5
    ends = torch.stack([d.mean() - half, d.mean() + half])
    if (ends.abs() < margin).all():
        return "equivalent"
    if (ends < -margin).all():
        return "worse"
    return "better" if (ends > margin).all() else "inconclusive"
""",
    ),
    "scaler-transition": (
        """
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return to_float32(scale * backoff), 0
    count += 1
    if count == interval:
        grown = to_float32(scale * growth)
        if grown != math.inf:
            scale = grown
        count = 0
    return scale, count
""",
        """
import numpy as np

def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return np.float32(np.float64(scale) * backoff), 0
    if count + 1 < interval:
        return np.float32(scale), count + 1
    with np.errstate(over="ignore"):
        grown = np.float32(np.float64(scale) * growth)
    return (grown if np.isfinite(grown) else np.float32(scale)), 0
""",
        """
import torch

def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    due = not found_inf and count + 1 >= interval
    factor = backoff if found_inf else growth if due else 1.0
    new = torch.tensor(scale * factor, dtype=torch.float32)
    if due and new.isinf():
        new = torch.tensor(scale)
    return new.item(), 0 if found_inf or due else count + 1
""",
    ),
    "unscale-check-step": (
        """
@torch.no_grad()
def scaled_step(optimizer, scale):
    params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if any(p.grad.dtype == torch.float16 for p in params):
        raise ValueError("no FP16 gradients")
    skipped = False
    for p in params:
        p.grad.div_(scale)
        if not torch.isfinite(p.grad).all():
            skipped = True
    if skipped:
        return True
    optimizer.step()
    return False
""",
        """
def scaled_step(optimizer, scale):
    bad = torch.tensor(False)
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype is torch.half:
                raise ValueError
            p.grad = p.grad * (1.0 / scale)
            bad = bad | p.grad.isnan().any() | p.grad.isinf().any()
    if not bad:
        optimizer.step()
    return bad
""",
        """
import math

@torch.no_grad()
def scaled_step(optimizer, scale):
    worst = 0.0
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        if p.grad is None:
            continue
        if p.grad.dtype == torch.float16:
            raise ValueError("FP16 gradients")
        p.grad /= scale
        top = p.grad.abs().max().item()
        worst = top if math.isnan(top) or math.isnan(worst) else max(worst, top)
        if math.isnan(top):
            worst = math.inf
    if math.isfinite(worst):
        optimizer.step()
        return False
    return True
""",
    ),
    "masters-by-hand": (
        """
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.masters = {p: p.detach().clone().float() for p in self.parameters}

    @torch.no_grad()
    def step(self):
        for p, m in self.masters.items():
            if p.grad is None:
                continue
            m.add_(p.grad.float(), alpha=-self.lr)
            p.data.copy_(m)
""",
        """
class Masters:
    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.copies = [torch.nn.Parameter(p.detach().to(torch.float32)) for p in self.parameters]
        self.sgd = torch.optim.SGD(self.copies, lr=lr)

    @torch.no_grad()
    def step(self):
        for p, c in zip(self.parameters, self.copies):
            c.grad = None if p.grad is None else p.grad.to(torch.float32)
        self.sgd.step()
        for p, c in zip(self.parameters, self.copies):
            if p.grad is not None:
                p.copy_(c.to(p.dtype))
""",
        """
class Masters:
    def __init__(self, parameters, lr):
        self.lr = lr
        self.pairs = [(p, p.detach().double()) for p in parameters]

    def step(self):
        with torch.no_grad():
            for i, (p, m) in enumerate(self.pairs):
                if p.grad is not None:
                    m = m - self.lr * p.grad.double()
                    self.pairs[i] = p, m
                    p.copy_(m.to(torch.bfloat16))
""",
    ),
    "verdict-on-an-ab-test": (
        """
import statistics

def verdict(differences, margin, t):
    mean = statistics.mean(differences)
    reach = t * statistics.stdev(differences) / len(differences) ** 0.5
    low, high = mean - reach, mean + reach
    if high < -margin:
        return "worse"
    elif low > margin:
        return "better"
    elif low > -margin and high < margin:
        return "equivalent"
    return "inconclusive"
""",
        """
from math import sqrt

def verdict(differences, margin, t):
    n, mean = len(differences), sum(differences) / len(differences)
    error = sqrt(sum(x * x for x in differences) / n - mean * mean) / sqrt(n - 1)
    if mean - t * error > -margin and mean + t * error < margin:
        return "equivalent"
    if mean + t * error < -margin:
        return "worse"
    return "better" if mean - t * error > margin else "inconclusive"
""",
        """
import numpy as np

def verdict(differences, margin, t):
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    interval = np.mean(differences) + np.array([-1, 1]) * t * error
    return ("worse" if max(interval) < -margin else "better" if min(interval) > margin
            else "equivalent" if max(abs(interval)) < margin else "inconclusive")
""",
    ),
    "kahan-in-bf16": (
        """
def kahan(x):
    s, c = x[0], torch.zeros_like(x[0])
    for v in x[1:]:
        y = v - c
        t = s + y
        c = (t - s) - y
        s = t
    return s
""",
        """
def kahan(x):
    total = torch.zeros((), dtype=torch.bfloat16)
    lost = torch.zeros((), dtype=torch.bfloat16)
    for value in x:
        corrected = value + lost
        new = total + corrected
        lost = corrected - (new - total)
        total = new
    return total
""",
        """
def kahan(x):
    s = torch.tensor(0.0, dtype=x.dtype)
    c = torch.tensor(0.0, dtype=x.dtype)
    for i in range(x.shape[0]):
        y = torch.sub(x[i], c)
        t = torch.add(s, y)
        c = torch.sub(torch.sub(t, s), y)
        s = t
    return s.item()
""",
    ),
    "mixed-matmul": (
        """
def rescue(a, b, in_dtype, out_dtype):
    low = [m.to(in_dtype).to(torch.float32) for m in (a, b)]
    out = torch.mm(*low).to(out_dtype)
    return out, bool(out.isinf().any() or out.isnan().any())
""",
        """
import torch

def rescue(a, b, in_dtype, out_dtype):
    c = torch.einsum("ik,kj->ij", a.to(in_dtype).float(), b.to(in_dtype).float()).type(out_dtype)
    return c, torch.logical_not(torch.isfinite(c)).any()
""",
        """
import numpy as np

def rescue(a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).float().numpy(), b.to(in_dtype).float().numpy()
    c = torch.from_numpy(x @ y).to(out_dtype)
    return [c, not np.isfinite(c.float().numpy()).all()]
""",
    ),
    "fair-rounding": (
        """
def fair_round(x):
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 2**16, x.shape, dtype=torch.int32)
    return ((bits + noise) & -65536).view(torch.float32)
""",
        """
def fair_round(x):
    gap = spacing(x, BF16)
    low = torch.floor(x / gap) * gap
    part = (x - low) / gap
    return torch.where(torch.rand_like(x) < part, low + gap, low)
""",
        """
def fair_round(x):
    gap = spacing(x, BF16)
    return torch.floor(x / gap + torch.rand(x.shape)) * gap
""",
    ),
    "masked-softmax": (
        """
def masked_softmax(scores, keep):
    wide = scores.float().masked_fill(~keep, float("-inf"))
    weights = torch.softmax(wide, dim=-1).nan_to_num(0.0)
    return weights.half()
""",
        """
def masked_softmax(scores, keep):
    low = torch.full_like(scores, torch.finfo(torch.float16).min)
    return torch.where(keep, scores, low).softmax(-1)
""",
        """
def masked_softmax(scores, keep):
    x = torch.where(keep, scores, torch.tensor(-65504.0, dtype=scores.dtype)).float()
    e = (x - x.amax(-1, keepdim=True)).exp() * keep
    return (e / e.sum(-1, keepdim=True).clamp_min(1e-30)).to(scores.dtype)
""",
    ),
    "log-sum-exp": (
        """
def logsumexp(x):
    c = x.max()
    if torch.isinf(c) or torch.isnan(c):
        return c
    return c + torch.log(torch.sum(torch.exp(x - c)))
""",
        """
def logsumexp(x):
    x = x.float()
    c = x.amax().nan_to_num(nan=float("nan"), posinf=0.0, neginf=0.0)
    return ((x - c).exp().sum().log() + c).half()
""",
        """
import math

def logsumexp(x):
    values = x.tolist()
    if any(math.isnan(v) for v in values):
        return math.nan
    top = max(values)
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(v - top) for v in values))
""",
    ),
    "the-whole-amp-loop": (
        """
def fit(model, batches, loss_fn, optimizer, dtype, device):
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses = []
    model.train()
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device, dtype=dtype):
            out = model(x)
            if out.dtype != dtype:
                raise RuntimeError(f"{out.dtype} instead of {dtype}")
            loss = loss_fn(out, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    return losses
""",
        """
def fit(model, batches, loss_fn, optimizer, dtype, device):
    fp16 = dtype is torch.float16
    scaler = torch.amp.GradScaler(device) if fp16 else None
    losses = []
    for inputs, targets in batches:
        model.train()
        with torch.autocast(device, dtype):
            output = model(inputs)
        if output.dtype is not dtype:
            warnings.warn("autocast is off")
        with torch.autocast(device, dtype):
            loss = loss_fn(output, targets)
        if fp16:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
""",
        """
def fit(model, batches, loss_fn, optimizer, dtype, device):
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    amp = torch.autocast(device, dtype=dtype)
    losses = []
    model.train()
    for inputs, targets in batches:
        optimizer.zero_grad()
        with amp:
            output = model(inputs)
            loss = loss_fn(output, targets)
        if output.dtype != dtype:
            warnings.warn(f"{output.dtype}")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss)
    return torch.stack(losses).tolist()
""",
    ),
}

WRONG = {
    "byte-ledger-code": (
        (('"adam": 8', '"adam": 12'), "no second copy is kept"),
        (('"gradients": 4', '"gradients": 2'), "Which dtype does `weight.grad` have"),
        (('"activations": 2', '"activations": 4'), "How many bytes does one value take?"),
        (
            (
                '"weights": 4',
                '"weights": 2',
                '"gradients": 4',
                '"gradients": 2',
                '"adam": 8',
                '"adam": 12',
                '"copies": 2 * parameters',
                '"copies": 0',
            ),
            "as the ZeRO paper counts it",
        ),
        (('"copies":', '"copy":'), "has the keys weights, gradients, adam, copy, activations"),
    ),
    "three-facts-code": (
        (('"fp8": (8, 9)', '"fp8": (9, 0)'), 'L4: `three_facts("fp8", (8, 9))` gives False'),
        (('or dtype in ("fp16", "bf16")', "or True"), "no units, no TF32"),
        (
            ("capability in ((5, 3), (6, 0), (6, 2)) or ", ""),
            "at least as many FP16 results a clock",
        ),
        (("(8, 9)", "8.9"), "raised TypeError"),
    ),
    "timer-code": (
        (("median(times)", "sum(times) / repeats"), "is the mean of the calls"),
        (("        end.synchronize()\n", ""), "has not reached the end event yet"),
        (("    work()\n    times", "    times"), "warm-up of the first call, 500 ms"),
        (("return median(times)", "return min(times)"), "is the least of the calls"),
        (("range(repeats)", "range(10)"), "as often with 1 repeat"),
    ),
    "verdict-code": (
        (("fmean, stdev", "fmean, pstdev as stdev"), "a little too wide"),
        (("high < -margin", "high < 0"), "Part of it lies inside"),
        (("len(differences) ** 0.5", "len(differences)"), "The interval goes from -0.6192"),
        (
            ("-margin < low and high < margin", "abs(fmean(differences)) < margin"),
            "from -1.451 to 1.251 and the margin is 0.5",
        ),
    ),
    "scaler-transition": (
        (("count + 1 < interval", "count + 1 <= interval"), "good step 3 of 3 in a row"),
        (
            (
                "return (grown if math.isfinite(grown) else scale), 0",
                "return (grown, 0) if math.isfinite(grown) else (scale, count + 1)",
            ),
            "so the scale stays, and the count is 0",
        ),
        (("scale * backoff", "scale / growth"), "the scale is multiplied by 0.9"),
        (("to_float32(scale * growth)", "scale * growth"), "Growth would make the scale inf"),
        (
            ("to_float32(scale * backoff)", "max(to_float32(scale * backoff), 1.0)"),
            "GradScaler goes to (2**-121, 0)",
        ),
    ),
    "unscale-check-step": (
        (
            ("if p.grad is None:\n                continue\n            ", ""),
            "'NoneType' object has no attribute 'dtype'",
        ),
        (("p.grad / scale", "p.grad * scale"), "finite gradients: parameter 1 becomes"),
        (("return found_inf", "return not found_inf"), "are all finite, and you return True"),
        (("not p.grad.isfinite().all()", "p.grad.isnan().any()"), "SGD: the gradients hold an inf"),
        (("found_inf |= not", "found_inf = not"), "hold an inf or a NaN, and you return False"),
    ),
    "masters-by-hand": (
        (("p.detach().float()", "p.detach().clone()"), "no earlier step was kept"),
        (
            (
                "if p.grad is not None:\n                master -= self.lr * p.grad.float()\n"
                "                p.copy_(master)",
                "master -= self.lr * p.grad.float()\n            p.copy_(master)",
            ),
            "before them a parameter without a gradient: your class raised AttributeError",
        ),
        (("master -= self", "master += self"), "after 300 steps weight 0 is 1.29688"),
        (
            ("self.lr * p.grad.float()", "(self.lr * p.grad).float()"),
            "lr * gradient was rounded to BF16 before it was subtracted",
        ),
    ),
    "verdict-on-an-ab-test": (
        ((" / len(differences) ** 0.5", ""), "The interval goes from -0.2891 to 0.2491"),
        (("high < margin", "True"), "All of it lies above 0.5: better"),
        (('else "inconclusive"', 'else "no difference"'), "is 'no difference', a str"),
        (
            ("-margin < low and high < margin", "low <= 0 <= high", "high < -margin", "high < 0"),
            "inconclusive",
        ),
    ),
    "kahan-in-bf16": (
        (("(t - s) - y", "t - (s - y)"), "and c = -1, so the next y is 2"),
        (("torch.zeros((), dtype=x.dtype)", "torch.zeros(())"), "say `dtype=x.dtype`"),
        (("for value in x", "for value in x.tolist()"), "values into Python or numpy"),
        (("value - c", "value"), "Your sum is the plain sum"),
        (("(t - s) - y", "(t - s) - value"), "Subtract y instead"),
    ),
    "mixed-matmul": (
        (
            ("a.to(in_dtype).float() @ b.to(in_dtype).float()", "a.to(in_dtype) @ b.to(in_dtype)"),
            "rounded to in_dtype before the last cast",
        ),
        (
            ("not product.isfinite().all().item()", "product.isinf().any().item()"),
            "the flag is False, but your product holds NaN",
        ),
        (
            ("not product.isfinite().all()", "product.isfinite().all()"),
            "every element of your product is finite",
        ),
        ((".to(out_dtype)", ""), "has dtype torch.float32; torch.float16 is asked for"),
        (("return product, not product.isfinite().all().item()", "return product"), "2 values"),
    ),
    "fair-rounding": (
        (("torch.rand(x.shape)", "torch.rand(())"), "a draw of its own"),
        (("torch.rand(x.shape)", "torch.randn(x.shape)"), "x lies 0.250 of the way"),
        (("spacing(x, BF16)", "2.0**-8"), "the BF16 neighbours are 1 and 1.0078125"),
        ((".floor()", ".trunc()"), "For the positive x before"),
    ),
    "masked-softmax": (
        (("torch.finfo(scores.dtype).min", "-1e4"), "constant is not far enough below"),
        (("torch.finfo(scores.dtype).min", "-float('inf')"), "Below -65504 FP16 has only -inf"),
        (("~keep", "keep"), "your hidden positions have 1 of the weight"),
        (("scores.masked", "scores.float().masked"), "has dtype torch.float32"),
        (("dim=-1", "dim=0"), "those of a softmax over axis 0"),
    ),
    "log-sum-exp": (
        (
            ("top + (x - top).exp().sum().log()", "(x - top).exp().sum().log() - top"),
            "is c added at the end, or subtracted?",
        ),
        (("x.max()", "x.mean()"), "which c makes every x - c at most 0?"),
        (("sum().log()", "mean().log()"), "do you take the mean"),
        (("if not top.isfinite():", "if x.isinf().any():"), "Your result is the maximum alone"),
        ((".sum().log()", ".sum()"), "take the logarithm of that sum"),
    ),
    "the-whole-amp-loop": (
        (("        optimizer.zero_grad()\n", ""), "Which line empties it?"),
        (("        scaler.update()\n", ""), "Which call lowers the scale?"),
        (("    model.train()\n", ""), "came to you in eval mode"),
        (("return losses", "return sum(losses) / len(losses)"), "Return a list of 6 losses"),
        (("enabled=dtype is torch.float16", "enabled=True"), "your scaler is enabled"),
    ),
}
