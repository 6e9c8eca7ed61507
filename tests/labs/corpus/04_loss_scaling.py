# Answers to lab 04 that the author of its checks had not foreseen: see tests/corpus.py.

import struct

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


# %% right fate: struct's half floats
def fate(weight, gradient, lr):
    def half(x):
        return struct.unpack("<e", struct.pack("<e", x))[0]

    stored = half(gradient)
    if abs(stored) == 0:
        return "underflowed"
    moved = half(weight - lr * stored)
    return ("fine", "swamped")[moved == weight]


# %% right fate: the update, looked at as a difference
def fate(weight, gradient, lr):
    g = np.float64(np.float16(gradient))
    new = np.float16(np.float64(weight) - np.float64(lr) * g)
    if not g.any():
        return "underflowed"
    return "fine" if float(new) - weight != 0 else "swamped"


# %% right fate: match
def fate(weight, gradient, lr):
    g = quantize(gradient, FP16)
    match g == 0, quantize(weight - lr * g, FP16) == weight:
        case True, _:
            return "underflowed"
        case False, True:
            return "swamped"
    return "fine"


# %% right fate: a numpy string in capitals
def fate(weight, gradient, lr):
    g = torch.tensor(gradient, dtype=torch.float64).to(torch.float16).item()
    new = quantize(weight - g * lr, FP16)
    return np.str_("UNDERFLOWED" if not g else "SWAMPED" if new == weight else "FINE")


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


# %% wrong fate: the gradient times lr is what underflows
#    says: FP16 stores the gradient as 0.0
def fate(weight, gradient, lr):
    update = quantize(lr * gradient, FP16)
    if update == 0:
        return "underflowed"
    return "swamped" if quantize(weight - update, FP16) == weight else "fine"


# %% wrong fate: the gradient is not rounded
#    says: FP16 stores the gradient as 0.0
fate = changed("stored = quantize(gradient, FP16)", "stored = gradient")


# %% wrong fate: plus
#    says: weight - lr * 2**-11 is 0.99951171875
fate = changed("weight - lr", "weight + lr")


# %% wrong fate: 2**-24 is the limit
#    says: FP16 stores the gradient as 2**-24
fate = changed("stored == 0", "abs(gradient) < 2.0**-24")


# %% wrong fate: half of eps
#    says: and FP16 stores 1.4990234375
def fate(weight, gradient, lr):
    stored = quantize(gradient, FP16)
    if stored == 0:
        return "underflowed"
    return "swamped" if abs(lr * stored) < abs(weight) * 2.0**-11 else "fine"


# %% wrong fate: lr is forgotten
#    idea: updates-are-gradients
fate = changed("weight - lr * stored", "weight - stored")


# %% wrong fate: the words exchanged
#    says: FP16 stores the gradient as 0.0
fate = changed(
    'return "underflowed"', 'return "swamped"', 'return "swamped" if', 'return "underflowed" if'
)


# %% wrong fate: nothing for fine
#    says: is there a `return` at the end of each path
def fate(weight, gradient, lr):
    stored = quantize(gradient, FP16)
    if stored == 0:
        return "underflowed"
    if quantize(weight - lr * stored, FP16) == weight:
        return "swamped"


# %% wrong fate: no look at underflow
#    says: FP16 stores the gradient as 0.0
fate = changed('    if stored == 0:\n        return "underflowed"\n', "")


# %% wrong fate: all in FP16 tensors
#    says: and FP16 stores 3.731250762939453e-05
def fate(weight, gradient, lr):
    w, g = torch.tensor(weight).half(), torch.tensor(gradient).half()
    if g == 0:
        return "underflowed"
    return "swamped" if w - lr * g == w else "fine"


# %% wrong fate: True and False
#    says: is False, a bool; one of underflowed
def fate(weight, gradient, lr):
    return quantize(gradient, FP16) == 0


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


# %% right masters: numpy's float32 arrays
class Masters:
    def __init__(self, parameters, lr):
        self.held = [(p, p.detach().float().numpy().copy()) for p in parameters]
        self.lr = np.float32(lr)

    def step(self):
        for p, master in self.held:
            if p.grad is None:
                continue
            master -= self.lr * p.grad.float().numpy()
            with torch.no_grad():
                p.copy_(torch.from_numpy(master))


# %% right masters: one flat vector
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = tuple(parameters), lr
        self.flat = torch.cat([p.detach().flatten().float() for p in self.parameters])

    @torch.no_grad()
    def step(self):
        at = 0
        for p in self.parameters:
            piece = self.flat[at : at + p.numel()]
            if p.grad is not None:
                piece.add_(p.grad.flatten().float(), alpha=-self.lr)
                p.copy_(piece.view_as(p))
            at += p.numel()


# %% right masters: made at the first step
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr, self.masters = list(parameters), lr, {}

    def step(self):
        for p in self.parameters:
            if p.grad is None:
                continue
            master = self.masters.setdefault(id(p), p.detach().to(torch.float32))
            master.sub_(p.grad.float().mul(self.lr))
            p.data = master.to(p.dtype)


# %% right masters: no detach, under no_grad
Masters = changed("p.detach().float()", "p.float()")


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


# %% wrong masters: made again in each step
#    idea: masters-are-a-cast
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is not None:
                master = p.float()
                master -= self.lr * p.grad.float()
                p.copy_(master)


# %% wrong masters: half() instead of BF16
#    says: is torch.float16; it must stay
#    never: float32 weights
Masters = changed("p.copy_(master)", "p.data = master.half()")


# %% wrong masters: the gradient is added up
#    says: 2 times as far as it should
Masters = changed(
    "master -= self.lr * p.grad.float()\n",
    "p.grad += p.grad\n                master -= self.lr * p.grad.float()\n",
)


# %% wrong masters: only where the gradient is positive
#    says: weight 1 is -2.9
Masters = changed("p.grad.float()", "p.grad.float().abs()")


# %% wrong masters: it breaks at the first parameter without a gradient
#    says: It did not move
Masters = changed(
    "            if p.grad is not None:\n                master -= self.lr * p.grad.float()\n"
    "                p.copy_(master)",
    "            if p.grad is None:\n                break\n"
    "            master -= self.lr * p.grad.float()\n            p.copy_(master)",
)


# %% wrong masters: a master in FP16
#    says: exact arithmetic gives 0.1
#    never: times as far
Masters = changed("p.detach().float()", "p.detach().half()")


# %% wrong masters: copied the wrong way round
#    idea: masters-train-the-model
Masters = changed("p.copy_(master)", "master.copy_(p)")


# %% wrong masters: the model's first weights are kept by reference
#    says: no earlier step was kept
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is not None:
                p -= self.lr * p.grad


# %% right pick-scale: a loop upwards
def pick_scale(gradients, headroom):
    power, largest = -60, float(gradients.abs().max())
    while headroom * largest * 2.0 ** (power + 1) <= 65504:
        power += 1
    return 2.0**power


# %% right pick-scale: log2
def pick_scale(gradients, headroom):
    return torch.exp2(torch.floor(torch.log2(65504 / (headroom * gradients.double().abs().max()))))


# %% right pick-scale: math.floor of log2, then a look
def pick_scale(gradients, headroom):
    limit = 65504 / headroom / gradients.abs().max().item()
    power = math.floor(math.log2(limit))
    while 2.0 ** (power + 1) <= limit:
        power += 1
    while 2.0**power > limit:
        power -= 1
    return 2**power if power >= 0 else 1 / 2**-power


# %% right pick-scale: numpy's frexp
def pick_scale(gradients, headroom):
    limit = np.float64(65504) / (headroom * np.abs(gradients.double().numpy()).max())
    mantissa, exponent = np.frexp(limit)
    return np.ldexp(0.5, exponent)


# %% right pick-scale: the bits of the limit
def pick_scale(gradients, headroom):
    limit = 65504 / (headroom * max(abs(g) for g in gradients.tolist()))
    code = struct.unpack("<Q", struct.pack("<d", limit))[0]
    return struct.unpack("<d", struct.pack("<Q", code >> 52 << 52))[0]


# %% right pick-scale: a list of powers
def pick_scale(gradients, headroom):
    largest = gradients.abs().max().item() * headroom
    return max(2.0**k for k in range(-40, 80) if largest * 2.0**k <= torch.finfo(torch.float16).max)


# %% wrong pick-scale: no absolute value
#    says: Headroom times S
pick_scale = changed("gradients.abs().max()", "gradients.max()")


# %% wrong pick-scale: up to 65536
#    says: above FP16's largest value
pick_scale = changed("65504", "65536")


# %% wrong pick-scale: no power of two
#    says: is no power of two
pick_scale = changed("2.0 ** (math.frexp(limit)[1] - 1)", "limit")


# %% wrong pick-scale: headroom divides
#    says: headroom 16: you pick 2**26
pick_scale = changed(
    "headroom * gradients.abs().max().item()", "gradients.abs().max().item() / headroom"
)


# %% wrong pick-scale: one doubling too few
#    says: twice that is still at most 65504
pick_scale = changed("[1] - 1)", "[1] - 2)")


# %% wrong pick-scale: one doubling too many
#    says: is 83886.1, above FP16's largest value
pick_scale = changed("[1] - 1)", "[1])")


# %% wrong pick-scale: rounded up
#    says: is 83886.1, above FP16's largest value
pick_scale = changed("2.0 ** (math.frexp(limit)[1] - 1)", "2.0 ** math.ceil(math.log2(limit))")


# %% wrong pick-scale: BF16's largest value
#    says: above FP16's largest value
pick_scale = changed("65504", "3.38953e38")


# %% wrong pick-scale: the largest of all is a norm
#    says: twice that is still at most 65504
pick_scale = changed("gradients.abs().max()", "gradients.norm()")


# %% wrong pick-scale: the exponent alone
#    says: 22.0 is no power of two
pick_scale = changed("return 2.0 ** (math.frexp(limit)[1] - 1)", "return math.frexp(limit)[1] - 1")


# %% wrong pick-scale: the median
#    says: above FP16's largest value
pick_scale = changed("gradients.abs().max()", "gradients.abs().median()")


# %% wrong pick-scale: a negative power
#    says: you pick 2**-22
pick_scale = changed("2.0 ** (", "2.0 ** -(")


# %% wrong pick-scale: a whole number of headrooms
#    says: 6550400.0 is no power of two
pick_scale = changed("2.0 ** (math.frexp(limit)[1] - 1)", "float(int(limit))")


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


# %% right transition: three cases by match
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    match bool(found_inf), count + 1 >= interval:
        case True, _:
            return to_float32(backoff * scale), 0
        case False, False:
            return scale, count + 1
    grown = to_float32(growth * scale)
    return (scale if math.isinf(grown) else grown), 0


# %% right transition: modulo
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    count = 0 if found_inf else (count + 1) % interval
    factor = backoff if found_inf else growth if count == 0 else 1.0
    new = to_float32(scale * factor)
    return new if new < float("inf") else scale, count


# %% right transition: a numpy array of two
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    return np.array(ours.transition(scale, count, found_inf, growth, backoff, interval))


# %% right transition: a named tuple of a 0-d tensor and a count
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    from collections import namedtuple

    State = namedtuple("State", "scale count")
    scale, count = ours.transition(float(scale), int(count), found_inf, growth, backoff, interval)
    return State(torch.tensor(scale), count)


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


# %% wrong transition: the count is not set back by growth
#    idea: counter-survives-growth
transition = changed("else scale), 0", "else scale), count + 1")


# %% wrong transition: a floor of 1
#    says: is (1, 0); GradScaler goes to (2**-121, 0)
transition = changed("to_float32(scale * backoff), 0", "max(to_float32(scale * backoff), 1.0), 0")


# %% wrong transition: growth and backoff exchanged
#    says: After an overflow the scale is multiplied by 0.5
transition = changed(
    "scale * backoff",
    "scale * growth",
    "to_float32(scale * growth)\n    return (",
    "to_float32(scale * backoff)\n    return (",
)


# %% wrong transition: the overflow counts down
#    says: is (32768, -1)
#    says: the count is 0
#    never: A good step before
transition = changed("to_float32(scale * backoff), 0", "to_float32(scale * backoff), count - 1")


# %% wrong transition: factors 2 and one half whatever is asked
#    says: the scale is multiplied by 1.1
transition = changed("scale * backoff", "scale * 0.5", "scale * growth", "scale * 2.0")


# %% wrong transition: divided by backoff
#    says: After an overflow the scale is multiplied by 0.5
transition = changed("scale * backoff", "scale / backoff")


# %% wrong transition: capped at 65536
#    says: is (65536, 0); GradScaler goes to (2**127, 0)
transition = changed(
    "return (grown if math.isfinite(grown) else scale), 0", "return min(grown, 65536.0), 0"
)


# %% wrong transition: the pair exchanged
#    says: The scale comes first
transition = changed("return scale, count + 1", "return count + 1, scale")


# %% wrong transition: nothing after an overflow
#    says: is (32768, 1); GradScaler goes to (32768, 0)
transition = changed(
    "        return to_float32(scale * backoff), 0\n",
    "        scale = to_float32(scale * backoff)\n        count = 0\n",
)


# %% wrong transition: the first step of a new scale is not counted
#    says: is (32768, -1)
#    says: the count is 0
transition = changed("else scale), 0", "else scale), -1")


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


# %% right scaled-step: two passes
@torch.no_grad()
def scaled_step(optimizer, scale):
    held = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if any(p.grad.dtype is torch.half for p in held):
        raise ValueError("gradients of FP16")
    for p in held:
        p.grad = p.grad.mul(1.0 / scale)
    values = [p.grad.coalesce().values() if p.grad.is_sparse else p.grad for p in held]
    bad = any(bool((~v.isfinite()).any()) for v in values)
    if not bad:
        optimizer.step()
    return bad


# %% right scaled-step: sums of zeros
@torch.no_grad()
def scaled_step(optimizer, scale):
    total = 0.0
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype == torch.float16:
                raise ValueError(p.grad.dtype)
            p.grad = p.grad.coalesce() / scale if p.grad.is_sparse else p.grad / scale
            values = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
            total += (values * 0.0).sum().item()  # 0 * inf is NaN
    if total != 0:
        return True
    optimizer.step()
    return False


# %% right scaled-step: numpy's truth
@torch.no_grad()
def scaled_step(optimizer, scale):
    return np.bool_(ours.scaled_step(optimizer, scale))


# %% right scaled-step: torch's kernel
@torch.no_grad()
def scaled_step(optimizer, scale):
    found = torch.zeros(1)
    for group in optimizer.param_groups:
        for p in filter(lambda p: p.grad is not None, group["params"]):
            if p.grad.dtype == torch.float16:
                raise ValueError("FP16")
            if p.grad.is_sparse:
                p.grad = p.grad.coalesce()
            g = p.grad._values() if p.grad.is_sparse else p.grad
            torch._amp_foreach_non_finite_check_and_unscale_([g], found, torch.tensor(1 / scale))
    if not found.item():
        optimizer.step()
    return bool(found)


# %% right scaled-step: max of magnitudes
@torch.no_grad()
def scaled_step(optimizer, scale):
    ok = True
    for p in (p for g in optimizer.param_groups for p in g["params"]):
        g = p.grad
        if g is None:
            continue
        if g.dtype == torch.float16:
            raise ValueError("FP16")
        p.grad = g / scale
        flat = p.grad.to_dense() if p.grad.is_sparse else p.grad
        ok = ok and math.isfinite(flat.abs().max().item())
    if ok:
        optimizer.step()
    return not ok


# %% right scaled-step: bad gradients are set to None, which no optimizer steps
scaled_step = changed(
    "    if not found_inf:\n        optimizer.step()\n",
    "    if found_inf:\n        optimizer.zero_grad()\n    optimizer.step()\n",
)


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


# %% wrong scaled-step: it steps before it looks
#    says: no bit may change
scaled_step = changed("    if not found_inf:\n        optimizer.step()\n", "    optimizer.step()\n")


# %% wrong scaled-step: multiplied
#    says: times as long as it should be
scaled_step = changed("p.grad / scale", "p.grad * scale")


# %% wrong scaled-step: only NaN
#    says: hold an inf or a NaN, and you return False
scaled_step = changed("not numbers.isfinite().all().item()", "numbers.isnan().any().item()")


# %% wrong scaled-step: the last parameter decides
#    says: SGD with momentum: the gradients hold an inf or a NaN
scaled_step = changed("found_inf |=", "found_inf =")


# %% wrong scaled-step: nothing returned
#    says: you return None; True (skipped) or False
scaled_step = changed("return found_inf", "pass")


# %% wrong scaled-step: no case for None
#    says: 'NoneType' object has no attribute 'dtype'
scaled_step = changed("            if p.grad is None:\n                continue\n", "")


# %% wrong scaled-step: TypeError for FP16
#    says: TypeError; a ValueError is wanted
#    never: underflow is back
scaled_step = changed("raise ValueError(", "raise TypeError(")


# %% wrong scaled-step: FP16 is cast up
#    idea: sixteen-bit-gradients-can-be-unscaled
scaled_step = changed(
    '                raise ValueError("FP16 gradients would underflow when they are unscaled")\n',
    "                p.grad = p.grad.float().half()\n",
)


# %% wrong scaled-step: inf is cut off
#    says: hold an inf or a NaN, and you return False
scaled_step = changed(
    "p.grad = p.grad / scale\n",
    "p.grad = (p.grad / scale).nan_to_num() if not p.grad.is_sparse else p.grad / scale\n",
)


# %% wrong scaled-step: it returns None where it skips
#    says: you return None; True (skipped) or False
scaled_step = changed(
    "    if not found_inf:\n        optimizer.step()\n    return found_inf",
    "    if found_inf:\n        return\n    optimizer.step()\n    return False",
)


# %% wrong scaled-step: the parameters are divided
#    says: times as long as it should be
scaled_step = changed("p.grad = p.grad / scale", "p.data = p.data / scale")


# %% right which-line: the method of E
which_line = ours.which_line | {"E": 4}


# %% right which-line: made from a list
which_line = dict(zip("ABCDE", (5, 2, 4, 0, 3)))


# %% right which-line: numpy's whole numbers
which_line = {name: np.int64(line) for name, line in ours.which_line.items()}


# %% right which-line: keywords, from E to A
which_line = dict(E=4, D=0, C=4, B=2, A=5)


# %% right which-line: an OrderedDict
from collections import OrderedDict

which_line = OrderedDict(sorted(ours.which_line.items()))


# %% right which-line: floats that are whole
which_line = {name: float(line) for name, line in ours.which_line.items()}


# %% wrong which-line: a number as text
#    says: one number is asked for
which_line = ours.which_line | {"A": "5"}


# %% wrong which-line: no fault in A
#    says: you find no fault
which_line = ours.which_line | {"A": 0}


# %% wrong which-line: A halves
#    idea: growth-at-each-step
which_line = ours.which_line | {"A": 3}


# %% wrong which-line: B's step
#    idea: first-group-is-all
which_line = ours.which_line | {"B": 5}


# %% wrong which-line: C's loop
#    says: an FP16 gradient of 0.001 at scale 65536 is 0
which_line = ours.which_line | {"C": 2}


# %% wrong which-line: D counts wrongly
#    says: its scale is GradScaler's
which_line = ours.which_line | {"D": 5}


# %% wrong which-line: E's product
#    idea: methods-and-attributes-live-apart
which_line = ours.which_line | {"E": 5}


# %% wrong which-line: a line that is not there
#    says: B: you point to line 7
which_line = ours.which_line | {"B": 7}


# %% wrong which-line: D left out
#    says: has the keys A, B, C, E
which_line = {name: line for name, line in ours.which_line.items() if name != "D"}


# %% wrong which-line: None for no fault
#    says: 0 says that no line fails
which_line = ours.which_line | {"D": None}


# %% wrong which-line: a list of lines
#    says: a dict with the keys A, B, C, D, E
which_line = [5, 2, 4, 0, 3]


# %% wrong which-line: all are right
#    says: A: you find no fault
which_line = dict.fromkeys("ABCDE", 0)


# %% right scaler: with or
Scaler = changed(
    "self.found_inf |= unscale_and_step(optimizer, self.current)",
    "self.found_inf = unscale_and_step(optimizer, self.current) or self.found_inf",
)


# %% right scaler: a flag for each optimizer
class Scaler:
    def __init__(self, scale=65536.0, interval=2000):
        self.state, self.interval, self.flags = (scale, 0), interval, []

    def scale(self, loss):
        return self.state[0] * loss

    def step(self, optimizer):
        self.flags.append(unscale_and_step(optimizer, self.state[0]))

    def update(self):
        self.state = advance(*self.state, any(self.flags), interval=self.interval)
        self.flags.clear()

    def state_dict(self):
        return {"state": list(self.state)}

    def load_state_dict(self, state):
        self.state = tuple(state["state"])


# %% right scaler: an if
Scaler = changed(
    "        self.found_inf |= unscale_and_step(optimizer, self.current)",
    "        if unscale_and_step(optimizer, self.current):\n            self.found_inf = True",
)


# %% right scaler: max
Scaler = changed(
    "self.found_inf |= unscale_and_step(optimizer, self.current)",
    "self.found_inf = max(self.found_inf, unscale_and_step(optimizer, self.current))",
)


# %% right scaler: the interval is saved, too
Scaler = changed(
    'return {"scale": self.current, "count": self.count}',
    'return {"scale": self.current, "count": self.count, "interval": self.interval}',
    'self.current, self.count = state["scale"], state["count"]',
    'self.current, self.count, self.interval = state["scale"], state["count"], state["interval"]',
)


# %% right scaler: torch's own
def Scaler(scale=65536.0, interval=2000):
    return torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)


# %% right scaler: a copy of __dict__
Scaler = changed(
    'return {"scale": self.current, "count": self.count}',
    "return dict(self.__dict__)",
    'self.current, self.count = state["scale"], state["count"]',
    "self.__dict__.update(state)",
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


# %% wrong scaler: the flag is never set
#    says: so the scale halves, once
Scaler = changed("self.found_inf |= unscale", "unscale")


# %% wrong scaler: step takes the step again
#    says: Its own gradient overflowed, so it stays
Scaler = changed(
    "self.found_inf |= unscale_and_step(optimizer, self.current)",
    "self.found_inf |= unscale_and_step(optimizer, self.current)\n        optimizer.step()",
)


# %% wrong scaler: divided by the scale of before
#    says: It went 16384 times as far as it should; the scale was 16384
Scaler = changed("unscale_and_step(optimizer, self.current)", "unscale_and_step(optimizer, 1.0)")


# %% wrong scaler: the loss is not scaled
#    says: after step 1 the scale is 1, with GradScaler 32768
Scaler = changed("return loss * self.current", "return loss")


# %% wrong scaler: the count is never kept
#    says: so the scale doubles
Scaler = changed("self.current, self.count = advance(", "self.current, _ = advance(")


# %% wrong scaler: the count alone is loaded
#    says: another one loaded what was saved
Scaler = changed(
    'self.current, self.count = state["scale"], state["count"]', 'self.count = state["count"]'
)


# %% wrong scaler: it grows at each good step
#    says: of 3, so the scale stays
Scaler = changed("interval=self.interval)", "interval=1)")


# %% wrong scaler: the flag is kept turned round
#    says: so the scale halves, once
Scaler = changed("|= unscale_and_step(", "|= not unscale_and_step(")


# %% wrong scaler: nothing loaded
#    says: another one loaded what was saved
Scaler = changed('self.current, self.count = state["scale"], state["count"]', "pass")


# %% wrong scaler: state_dict returns nothing
#    says: 'NoneType' object is not subscriptable
Scaler = changed('return {"scale": self.current, "count": self.count}', "pass")


# %% right diagnosis: an OrderedDict, E first
from collections import OrderedDict

diagnosis = OrderedDict(reversed(ours.diagnosis.items()))


# %% right diagnosis: capitals
diagnosis = {name: cause.capitalize() for name, cause in ours.diagnosis.items()}


# %% right diagnosis: keywords
diagnosis = dict(
    A="growth at each step",
    B="underflow",
    C="calibration",
    D="healthy",
    E="NaN in the data",
)


# %% right diagnosis: numpy's strings
diagnosis = {name: np.str_(cause) for name, cause in ours.diagnosis.items()}


# %% right diagnosis: a space at the end
diagnosis = ours.diagnosis | {"B": "underflow "}


# %% right diagnosis: filled key by key
diagnosis = {"A": ..., "B": ..., "C": ..., "D": ..., "E": ...}
for name, cause in ours.diagnosis.items():
    diagnosis[name] = cause


# %% wrong diagnosis: E is taken for divergence
#    says: in one step
diagnosis = ours.diagnosis | {"E": "divergence"}


# %% wrong diagnosis: two at once
#    idea: no-skip-means-healthy
diagnosis = ours.diagnosis | {"B": "healthy", "D": "underflow"}


# %% wrong diagnosis: A diverges
#    says: In a divergence the loss rises
diagnosis = ours.diagnosis | {"A": "divergence"}


# %% wrong diagnosis: A calibrates
#    says: A calibration is a row of skips at the start
diagnosis = ours.diagnosis | {"A": "calibration"}


# %% wrong diagnosis: C is healthy
#    says: many good steps lie between two skips
diagnosis = ours.diagnosis | {"C": "healthy"}


# %% wrong diagnosis: C has NaN in the data
#    says: the loss from 0.000242 to 3.23e-05
diagnosis = ours.diagnosis | {"C": "NaN in the data"}


# %% wrong diagnosis: D calibrates
#    says: 0 in a row
diagnosis = ours.diagnosis | {"D": "calibration"}


# %% wrong diagnosis: D grows at each step
#    idea: every-skip-is-a-fault
diagnosis = ours.diagnosis | {"D": "growth at each step"}


# %% wrong diagnosis: B diverges
#    says: In a divergence the loss rises
diagnosis = ours.diagnosis | {"B": "divergence"}


# %% wrong diagnosis: a word of its own
#    says: is 'NaN', a str; one of calibration
diagnosis = ours.diagnosis | {"E": "NaN"}


# %% wrong diagnosis: E underflows
#    says: In an underflow nothing is skipped
diagnosis = ours.diagnosis | {"E": "underflow"}


# %% wrong diagnosis: a list
#    says: a dict with the keys A, B, C, D, E
diagnosis = ["growth at each step", "underflow", "calibration", "healthy", "NaN in the data"]
