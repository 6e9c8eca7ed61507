# Answers to lab 04 that the author of its checks had not foreseen: see tests/corpus.py.

import numpy as np


# %% right amp-loop: unscale_ and a clip that never bites
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses = []
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    return losses


# %% right amp-loop: torch.amp.autocast, zero_grad last and first
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    model.zero_grad()
    losses = []
    for batch in batches:
        with torch.amp.autocast("cpu", torch.half):
            output = model(batch[0])
            loss = loss_fn(output, batch[1])
        losses.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        optimizer.zero_grad()
        scaler.update()
    return losses


# %% right amp-loop: the loss outside, on float32 outputs
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        loss = loss_fn(outputs.float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% right amp-loop: a step of its own, and 0-d tensors
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    def step(x, y):
        for p in model.parameters():
            p.grad = None
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return [step(x, y) for x, y in batches]


# %% right amp-loop: emulate_gpu once more
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    from labkit.emulation import emulate_gpu

    with emulate_gpu():
        return ours.train_fp16(model, loss_fn, optimizer, scaler, batches)


# %% right amp-loop: numpy's array of losses
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    return np.array(ours.train_fp16(model, loss_fn, optimizer, scaler, list(batches)))


# %% right amp-loop: scaled by hand, stepped by the scaler
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(model(inputs), targets)
            scaled = scaler.scale(loss)
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append((scaled / (scaled / loss)).item() if scaled.isfinite() else loss.item())
    return losses


# %% right amp-loop: the gradients through autograd.grad
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses, parameters = [], list(model.parameters())
    for inputs, targets in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(model(inputs), targets)
        for p, g in zip(parameters, torch.autograd.grad(scaler.scale(loss), parameters)):
            p.grad = g
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% right amp-loop: backward inside the block of each batch
train_fp16 = changed(
    "        scaler.scale(loss).backward()", "            scaler.scale(loss).backward()"
)


# %% wrong amp-loop: backward on the loss itself
#    says: scale
train_fp16 = changed("scaler.scale(loss).backward()", "loss.backward()")


# %% wrong amp-loop: scale is called and its result is dropped
#    says: The weights did not move, and the largest gradient at the network's output was 0
#    says: On which loss do you call backward()?
train_fp16 = changed("scaler.scale(loss).backward()", "scaler.scale(loss)\n        loss.backward()")


# %% wrong amp-loop: no autocast
#    says: are float32; under FP16 autocast they are float16
train_fp16 = changed('with torch.autocast("cpu", dtype=torch.float16):', "if True:")


# %% wrong amp-loop: BF16
#    says: are bfloat16; under FP16 autocast they are float16
train_fp16 = changed("torch.float16", "torch.bfloat16")


# %% wrong amp-loop: the device's default dtype
#    says: are bfloat16
train_fp16 = changed(", dtype=torch.float16", "")


# %% wrong amp-loop: the loss in FP16
#    says: Where does your block end?
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(inputs)
        loss = loss_fn(outputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% wrong amp-loop: no update
#    idea: the-scale-adjusts-itself
train_fp16 = changed("scaler.update()", "pass")


# %% wrong amp-loop: the optimizer's own step
#    idea: any-step-unscales
train_fp16 = changed("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()")


# %% wrong amp-loop: both steps
#    idea: any-step-unscales
train_fp16 = changed("scaler.step(optimizer)", "optimizer.step()\n        scaler.step(optimizer)")


# %% wrong amp-loop: zero_grad after backward
#    says: did not move
#    says: were all 0: what empties them
train_fp16 = changed(
    "        optimizer.zero_grad()\n",
    "",
    "scaler.step(optimizer)",
    "optimizer.zero_grad(set_to_none=False)\n        scaler.step(optimizer)",
)


# %% wrong amp-loop: the last loss alone
#    says: a list of 8 losses is wanted
train_fp16 = changed("return losses", "return losses[-1]")


# %% wrong amp-loop: scaled losses
#    idea: scaled-loss-is-the-loss
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = scaler.scale(loss_fn(model(inputs), targets))
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% wrong amp-loop: zero_grad forgotten
#    idea: gradients-reset-themselves
train_fp16 = changed("optimizer.zero_grad()", "pass")


# %% wrong amp-loop: update before step
#    says: update
train_fp16 = changed(
    "scaler.step(optimizer)\n        scaler.update()",
    "scaler.update()\n        scaler.step(optimizer)",
)


# %% wrong amp-loop: nothing returned
#    says: a list of 8 losses is wanted
train_fp16 = changed("return losses", "return None")


# %% wrong amp-loop: zero_grad only at the end of each batch
#    says: A second epoch began with old gradients in .grad
train_fp16 = changed(
    "        optimizer.zero_grad()\n",
    "",
    "scaler.update()",
    "scaler.update()\n        optimizer.zero_grad()",
)


# %% wrong amp-loop: zero_grad once, before the loop
#    idea: gradients-reset-themselves
train_fp16 = changed(
    "    losses = []\n",
    "    losses = []\n    optimizer.zero_grad()\n",
    "        optimizer.zero_grad()\n",
    "",
)


# %% wrong amp-loop: no step
#    says: `optimizer.step` never ran
train_fp16 = changed("        scaler.step(optimizer)\n        scaler.update()\n", "")


# %% wrong amp-loop: the loss is scaled twice
#    says: `optimizer.step` never ran
train_fp16 = changed("scaler.scale(loss)", "scaler.scale(scaler.scale(loss))")


# %% wrong amp-loop: one block around all batches
#    says: The autocast block is still open while backward() runs
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    with torch.autocast("cpu", dtype=torch.float16):
        losses = []
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses


# %% wrong amp-loop: the optimizer steps itself, and update is called
#    idea: any-step-unscales
train_fp16 = changed("scaler.step(optimizer)", "optimizer.step()")


# %% wrong amp-loop: both steps, the scaler's first
#    idea: any-step-unscales
#    never: scaled gradients
train_fp16 = changed("scaler.step(optimizer)", "scaler.step(optimizer)\n        optimizer.step()")


# %% wrong amp-loop: divided once more by hand
#    says: The scaler divides them once
train_fp16 = changed(
    "        scaler.step(optimizer)",
    "        for p in model.parameters():\n"
    "            p.grad /= scaler.get_scale()\n"
    "        scaler.step(optimizer)",
)


# %% wrong amp-loop: scaled gradients are clipped
#    says: Which line of yours changes them as well?
train_fp16 = changed(
    "        scaler.step(optimizer)",
    "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "        scaler.step(optimizer)",
)


# %% wrong amp-loop: the loss is divided by the scale
#    says: does not change `loss`
train_fp16 = changed("loss.item()", "loss.item() / scaler.get_scale()")


# %% wrong amp-loop: the scaled loss is divided after update
#    says: by the scale after `update()`?
train_fp16 = changed(
    "scaler.scale(loss).backward()",
    "loss = scaler.scale(loss)\n        loss.backward()",
    "loss.item()",
    "loss.item() / scaler.get_scale()",
)


# %% wrong amp-loop: the model in FP16
#    says: the model's weights are float16; they must stay float32
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    return ours.train_fp16(model.half(), loss_fn, optimizer, scaler, batches)


# %% wrong amp-loop: no gradients are recorded
#    says: does not require grad
#    never: hook
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    with torch.no_grad():
        return ours.train_fp16(model, loss_fn, optimizer, scaler, batches)


# %% wrong amp-loop: a scaler of its own
#    says: The scaler that you were given still has its first scale
def train_fp16(model, loss_fn, optimizer, scaler, batches):
    return ours.train_fp16(model, loss_fn, optimizer, torch.amp.GradScaler("cpu"), batches)


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


# %% right masters: what BF16 drops is kept, not the weight
class Masters:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.rests = [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for p, rest in zip(self.parameters, self.rests):
            if p.grad is not None:
                whole = p.float() + rest - self.lr * p.grad.float()
                p.copy_(whole)
                rest.copy_(whole - p.float())


# %% right masters: a torch.optim.Optimizer
class Masters(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        for p in self.param_groups[0]["params"]:
            self.state[p]["master"] = p.detach().float()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["master"].add_(p.grad.float(), alpha=-group["lr"])
                    p.copy_(self.state[p]["master"])


# %% wrong masters: the generator is walked twice
#    says: in a generator
#    says: which line reads it a second time?
#    never: no earlier step
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


# %% wrong masters: nothing is copied into the weights
#    idea: masters-train-the-model
#    never: no earlier step
Masters = changed("                p.copy_(master)", "                pass")


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


# %% right transition: torch's kernel
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    new, good = torch.tensor([scale]), torch.tensor([count], dtype=torch.int32)
    found = torch.tensor([float(found_inf)])
    torch._amp_update_scale_(new, good, found, growth, backoff, interval)
    return new.item(), good.item()


# %% wrong transition: rounded only to see whether it is finite
#    idea: scale-is-a-python-float
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return scale * backoff, 0
    if count + 1 < interval:
        return scale, count + 1
    return (scale * growth if math.isfinite(to_float32(scale * growth)) else scale), 0


# %% wrong transition: growth refused at inf, and the count goes on
#    says: and the count is 0
#    never: before this step is added
transition = changed(
    "return (grown if math.isfinite(grown) else scale), 0",
    "return (grown, 0) if math.isfinite(grown) else (scale, count + 1)",
)


# %% wrong transition: interval not used
#    says: This is good step 3 of 3 in a row
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
#    says: to float32 before multiplying
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
#    says: the scale is multiplied by
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
        p.grad /= scale
        if not torch.isfinite(p.grad).all():
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
    values = [p.grad for p in held]
    bad = any(bool((~v.isfinite()).any()) for v in values)
    if not bad:
        optimizer.step()
    return bad


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
            torch._amp_foreach_non_finite_check_and_unscale_(
                [p.grad], found, torch.tensor(1 / scale)
            )
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
        ok = ok and math.isfinite(p.grad.abs().max().item())
    if ok:
        optimizer.step()
    return not ok


# %% right scaled-step: bad gradients are set to None, which no optimizer steps
scaled_step = changed(
    "    if not found_inf:\n        optimizer.step()\n",
    "    if found_inf:\n        optimizer.zero_grad()\n    optimizer.step()\n",
)


# %% wrong scaled-step: GradScaler does it
#    says: uses `torch.amp.GradScaler`
def scaled_step(optimizer, scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(torch.zeros(()))
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    return any(found.item() for found in scaler._found_inf_per_device(optimizer).values())


# %% right scaled-step: a difference with itself, multiplied by the inverse
@torch.no_grad()
def scaled_step(optimizer, scale):
    ok = torch.tensor(True)
    for p in (p for g in optimizer.param_groups for p in g["params"] if p.grad is not None):
        if p.grad.dtype is torch.float16:
            raise ValueError(p.grad.dtype)
        p.grad.mul_(1 / scale)
        ok &= ((p.grad - p.grad) == 0).all()
    if ok:
        optimizer.step()
    return not ok


# %% right scaled-step: all gradients in one tensor
@torch.no_grad()
def scaled_step(optimizer, scale):
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if torch.float16 in {g.dtype for g in grads}:
        raise ValueError("FP16")
    torch._foreach_div_(grads, scale)
    skipped = not torch.cat([g.flatten() for g in grads]).isfinite().all().item()
    if not skipped:
        optimizer.step()
    return skipped


# %% wrong scaled-step: the norm of the divided gradients decides
#    says: whose sum and norm are inf in float32: the gradients are all finite
@torch.no_grad()
def scaled_step(optimizer, scale):
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if any(g.dtype == torch.float16 for g in grads):
        raise ValueError("FP16")
    for g in grads:
        g.div_(scale)
    if math.isfinite(sum(g.float().norm() ** 2 for g in grads) ** 0.5):
        optimizer.step()
        return False
    return True


# %% wrong scaled-step: the norm decides
#    says: whose sum and norm are inf in float32: the gradients are all finite
@torch.no_grad()
def scaled_step(optimizer, scale):
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if any(g.dtype == torch.float16 for g in grads):
        raise ValueError("FP16")
    if not all(g.norm().isfinite() for g in grads):
        return True
    for g in grads:
        g.div_(scale)
    optimizer.step()
    return False


# %% wrong scaled-step: a list of the first group's gradients
#    idea: first-group-is-all
#    says: It is an inf, in `param_groups[1]`
@torch.no_grad()
def scaled_step(optimizer, scale):
    grads = [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None]
    if any(g.dtype == torch.float16 for g in grads):
        raise ValueError("FP16")
    if not all(g.isfinite().all() for g in grads):
        return True
    for g in grads:
        g.div_(scale)
    optimizer.step()
    return False


# %% wrong scaled-step: the quotient stays in a variable
#    idea: unscaling-is-optional
#    says: is 1.049e+06 times as long as it should be; the scale is 2**20, or 1.049e+06
@torch.no_grad()
def scaled_step(optimizer, scale):
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if any(g.dtype == torch.float16 for g in grads):
        raise ValueError("FP16")
    for g in grads:
        g = g / scale
        if not g.isfinite().all():
            return True
    optimizer.step()
    return False


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
scaled_step = changed("not p.grad.isfinite().all().item()", "p.grad.isnan().any().item()")


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
    "p.grad = (p.grad / scale).nan_to_num()\n",
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


# %% wrong scaler: torch's own
#    says: uses `torch.amp.GradScaler`
def Scaler(scale=65536.0, interval=2000):
    return torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)


# %% right scaler: a copy of __dict__
Scaler = changed(
    'return {"scale": self.current, "count": self.count}',
    "return dict(self.__dict__)",
    'self.current, self.count = state["scale"], state["count"]',
    "self.__dict__.update(state)",
)


# %% right scaler: tensors are saved
Scaler = changed(
    'return {"scale": self.current, "count": self.count}',
    'return {"both": torch.tensor([self.current, self.count])}',
    'self.current, self.count = state["scale"], state["count"]',
    'self.current, self.count = state["both"].tolist()',
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
#    says: of 3 in a row, so the scale
Scaler = changed("self.current, self.count, self.found_inf\n", "self.current, 0, self.found_inf\n")


# %% wrong scaler: the flag is never set
#    says: so the scale halves, once
Scaler = changed("self.found_inf |= unscale", "unscale")


# %% wrong scaler: step takes the step again
#    says: own gradient overflowed, so the weight stays
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
#    says: of 3 in a row, so the scale stays
Scaler = changed("interval=self.interval)", "interval=1)")


# %% wrong scaler: the flag is kept turned round
#    says: so the scale halves, once
Scaler = changed("|= unscale_and_step(", "|= not unscale_and_step(")


# %% wrong scaler: the count is saved and not loaded
#    idea: resuming-needs-the-scale-alone
#    says: Which other number must be saved and loaded?
Scaler = changed(
    'self.current, self.count = state["scale"], state["count"]',
    'self.current, self.count = state["scale"], 0',
)


# %% wrong scaler: nothing loaded
#    says: another one loaded what was saved
Scaler = changed('self.current, self.count = state["scale"], state["count"]', "pass")


# %% wrong scaler: loading returns a new scaler
#    says: the saved scale was not loaded
Scaler = changed(
    'self.current, self.count = state["scale"], state["count"]',
    'new = Scaler(state["scale"], self.interval)\n'
    '        new.count = state["count"]\n'
    "        return new",
)


# %% wrong scaler: state_dict returns nothing
#    says: 'NoneType' object is not subscriptable
Scaler = changed('return {"scale": self.current, "count": self.count}', "pass")
