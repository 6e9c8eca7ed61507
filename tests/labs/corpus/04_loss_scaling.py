# Answers to lab 04 that the author of its checks had not foreseen: see tests/corpus.py.

import numpy as np


# %% right fate: numpy's float16
def fate(weight, gradient, lr):
    g = float(np.float16(gradient))
    if not g:
        return "underflowed"
    return "swamped" if np.float16(weight - lr * g) == weight else "fine"


# %% right fate: torch, by item
def fate(weight, gradient, lr):
    g = torch.tensor(gradient, dtype=torch.float64).half().double().item()
    new = torch.tensor(weight - lr * g, dtype=torch.float64).half().item()
    return "underflowed" if g == 0 else "fine" if new != weight else "swamped"


# %% wrong fate: lr in FP16 too
#    says: and FP16 stores
fate = changed("lr * stored", "quantize(lr, FP16) * stored")


# %% wrong fate: the order of the questions
#    says: FP16 stores the gradient as 0.0
def fate(weight, gradient, lr):
    stored = quantize(gradient, FP16)
    if quantize(weight - lr * stored, FP16) == weight:
        return "swamped"
    return "underflowed" if stored == 0 else "fine"


# %% wrong fate: capitals of another word
#    says: one of underflowed, swamped, fine
def fate(weight, gradient, lr):
    return "lost"


# %% right masters: by index, in place
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.masters = [p.detach().clone().to(torch.float32) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for i, p in enumerate(self.parameters):
            if p.grad is None:
                continue
            self.masters[i] = self.masters[i] - self.lr * p.grad.to(torch.float32)
            p.data.copy_(self.masters[i])


# %% right masters: a dict and float64
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.kept = {p: p.detach().double() for p in self.parameters}

    @torch.no_grad()
    def step(self):
        for p, kept in self.kept.items():
            if p.grad is not None:
                kept.sub_(p.grad.double(), alpha=self.lr)
                p.data = kept.bfloat16()


# %% right masters: torch's SGD on the masters
class Masters:
    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in self.parameters]
        self.sgd = torch.optim.SGD(self.masters, lr)

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.parameters, self.masters):
            m.grad = None if p.grad is None else p.grad.float()
        self.sgd.step()
        for p, m in zip(self.parameters, self.masters):
            p.copy_(m)


# %% wrong masters: the generator is walked twice
#    says: from a generator
Masters = changed(
    "for p in self.parameters]", "for p in parameters]", "strict=True", "strict=False"
)

# %% wrong masters: it returns at the first parameter without a gradient
#    says: before them a parameter without a gradient
Masters = changed(
    "            if p.grad is not None:\n                master -= self.lr * p.grad.float()\n"
    "                p.copy_(master)",
    "            if p.grad is None:\n                return\n"
    "            master -= self.lr * p.grad.float()\n            p.copy_(master)",
)

# %% wrong masters: the new master is not kept
#    says: no earlier step was kept
Masters = changed("master -=", "master = master -")

# %% wrong masters: masters in BF16
#    idea: masters-are-a-cast
#    never: A float32 copy
Masters = changed("p.detach().float()", "p.detach().clone()", "p.grad.float()", "p.grad.float()")

# %% wrong masters: no look for None
#    says: NoneType
Masters = changed("if p.grad is not None:", "if True:")

# %% wrong masters: plus
#    says: exact arithmetic gives
Masters = changed("master -=", "master +=")

# %% wrong masters: lr forgotten
#    says: exact arithmetic gives
Masters = changed("self.lr * ", "")


# %% right pick-scale: a loop upwards
def pick_scale(gradients, headroom):
    power, largest = -60, float(gradients.abs().max())
    while headroom * largest * 2.0 ** (power + 1) <= 65504:
        power += 1
    return 2.0**power


# %% right pick-scale: log2
def pick_scale(gradients, headroom):
    return torch.exp2(torch.floor(torch.log2(65504 / (headroom * gradients.double().abs().max()))))


# %% wrong pick-scale: no absolute value
#    says: Headroom times S
pick_scale = changed("gradients.abs().max()", "gradients.max()")

# %% wrong pick-scale: up to 65536
#    says: above FP16's largest value
pick_scale = changed("65504", "65536")

# %% wrong pick-scale: no power of two
#    says: is no power of two
pick_scale = changed("2.0 ** (math.frexp(limit)[1] - 1)", "limit")


# %% right transition: numpy's float32
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return np.float32(scale * backoff), 0
    count += 1
    if count == interval:
        with np.errstate(over="ignore"):
            grown = np.float32(scale * growth)
        return (grown if np.isfinite(grown) else np.float32(scale)), 0
    return np.float32(scale), count


# %% right transition: torch's float32, a list
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    factor = backoff if found_inf else growth if count + 1 == interval else 1.0
    new = torch.tensor(scale * factor, dtype=torch.float64).float()
    return [new if new.isfinite() else scale, 0 if factor != 1.0 else count + 1]


# %% wrong transition: growth refused at inf, and the count goes on
#    says: counting begins again at 0
#    never: before this step is added
transition = changed(
    "return (grown if math.isfinite(grown) else scale), 0",
    "return (grown, 0) if math.isfinite(grown) else (scale, count + 1)",
)

# %% wrong transition: interval not used
#    says: This is good step 3 in a row of 3
#    never: before this step is added
transition = changed("count + 1 < interval", "count + 1 < 2000")

# %% wrong transition: the overflow itself is counted
#    says: After an overflow
#    never: A good step before
transition = changed("to_float32(scale * backoff), 0", "to_float32(scale * backoff), count + 1")

# %% wrong transition: it grows one step early
#    says: only the count changes
#    never: after a single good step
transition = changed("count + 1 < interval", "count + 2 < interval")

# %% wrong transition: the factor in float32
#    says: to float32 before the product
transition = changed(
    "scale * backoff", "scale * to_float32(backoff)", "scale * growth", "scale * to_float32(growth)"
)


# %% wrong transition: late by one
#    idea: growth-comes-one-step-later
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return to_float32(scale * backoff), 0
    if count >= interval:
        grown = to_float32(scale * growth)
        return (scale if grown == math.inf else grown), 0
    return scale, count + 1


# %% wrong transition: the scale alone
#    says: 2 values are asked for
transition = changed("return scale, count + 1", "return scale")

# %% wrong transition: no backoff
#    says: After an overflow
transition = changed("to_float32(scale * backoff), 0", "scale, 0")


# %% right scaled-step: in place, and it stops at the first inf
@torch.no_grad()
def scaled_step(optimizer, scale):
    for p in [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]:
        if p.grad.dtype is torch.float16:
            raise ValueError("no FP16")
        if p.grad.is_sparse:
            p.grad = p.grad.coalesce()
        values = p.grad.values() if p.grad.is_sparse else p.grad
        values /= scale
        if not torch.isfinite(values).all():
            return True
    optimizer.step()
    return False


# %% wrong scaled-step: a copy of the sparse gradient is divided
#    says: what does p.grad hold
scaled_step = changed(
    "            p.grad = p.grad / scale\n"
    "            numbers = p.grad.coalesce().values() if p.grad.is_sparse else p.grad\n",
    "            grad = p.grad.coalesce() if p.grad.is_sparse else p.grad\n"
    "            numbers = grad.values() if p.grad.is_sparse else grad\n"
    "            numbers /= scale\n",
)

# %% wrong scaled-step: no case for sparse gradients
#    says: SGD with sparse gradients
#    never: Facebook
scaled_step = changed("p.grad.coalesce().values() if p.grad.is_sparse else p.grad", "p.grad")

# %% wrong scaled-step: a ValueError for all but float32
#    says: BF16 and float64 gradients
scaled_step = changed("== torch.float16", "!= torch.float32")

# %% wrong scaled-step: the truth turned round
#    says: and you return
scaled_step = changed("return found_inf", "return not found_inf")

# %% right which-line: the method of E
which_line = ours.which_line | {"E": 4}

# %% wrong which-line: a number as text
#    says: is no line number
which_line = ours.which_line | {"A": "5"}

# %% wrong which-line: no fault in A
#    says: you find no fault
which_line = ours.which_line | {"A": 0}

# %% right scaler: with or
Scaler = changed(
    "self.found_inf |= unscale_and_step(optimizer, self.current)",
    "self.found_inf = unscale_and_step(optimizer, self.current) or self.found_inf",
)

# %% wrong scaler: update halves by itself and forgets growth
#    says: so the scale doubles
Scaler = changed(
    "self.current, self.count = advance(*now, interval=self.interval)",
    "self.current = self.current / 2 if self.found_inf else self.current",
)

# %% wrong scaler: the interval is not handed on
#    says: so the scale doubles
Scaler = changed(", interval=self.interval)", ")")

# %% wrong scaler: the count is not handed on
#    says: of 3, so the scale
Scaler = changed("self.current, self.count, self.found_inf\n", "self.current, 0, self.found_inf\n")

# %% wrong diagnosis: E is taken for divergence
#    says: in one step
diagnosis = ours.diagnosis | {"E": "divergence"}

# %% wrong diagnosis: two at once
#    idea: no-skip-means-healthy
diagnosis = ours.diagnosis | {"B": "healthy", "D": "underflow"}
