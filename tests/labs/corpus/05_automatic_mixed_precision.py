# Answers to lab 05 that the author of its checks had not foreseen: see tests/corpus.py.

# %% right dtypes: torch.nn.functional, which passes dtype=None on
def dtypes(x, h):
    return F.linear(x, x), F.softmax(h, dim=0), torch.cat([x, h]), h * 3


# %% right dtypes: log_softmax and stack
def dtypes(x, h):
    return torch.mm(x, x), F.log_softmax(h, dim=0), torch.stack([x, h]), h + h


# %% right dtypes: norm and where
def dtypes(x, h):
    return x @ x.T, h.norm(), torch.where(x > 0, x, h), -h


# %% right dtypes: torch.norm, sub, div
def dtypes(x, h):
    return x.matmul(x), torch.norm(h), torch.sub(x, h), h / 2


# %% right dtypes: sum, hstack
def dtypes(x, h):
    return torch.einsum("ij,jk->ik", x, x), h.sum(), torch.hstack((h, x)), h.abs() + 1


# %% right dtypes: cumsum, mul
def dtypes(x, h):
    return [torch.addmm(x, x, x), h.cumsum(0), x * h, 2 - h]


# %% wrong dtypes: a mean for wide
#    says: a function of no list keeps the 16 bits of h
#    never: relu
def dtypes(x, h):
    return x @ x, h.mean(), x + h, 2 * h


# %% wrong dtypes: a root for wide
#    says: a function of no list keeps the 16 bits of h
#    never: relu
def dtypes(x, h):
    return x @ x, h.abs().sqrt(), x + h, 2 * h


# %% wrong dtypes: both of two 16-bit operands
#    says: A product has 16 bits
def dtypes(x, h):
    return x @ x, h.exp(), (x @ x) + h, 2 * h


# %% wrong dtypes: relu of x for low
#    says: Only products bring float32 down
#    never: Addition
def dtypes(x, h):
    return x.relu(), h.exp(), x + h, 2 * h


# %% wrong dtypes: low meets h
#    says: Only products bring float32 down
#    never: Addition
def dtypes(x, h):
    return x * h, h.exp(), x + h, 2 * h


# %% wrong dtypes: a cast
#    says: You called `half`
def dtypes(x, h):
    return x.half(), h.exp(), x + h, 2 * h


# %% wrong dtypes: a softmax with dtype=
#    says: You called `softmax`
def dtypes(x, h):
    return x @ x, torch.softmax(h, 0, dtype=torch.float32), x + h, 2 * h


# %% wrong dtypes: kept meets x
#    says: so does meeting x
def dtypes(x, h):
    return x @ x, h.exp(), x + h, x * h


# %% wrong dtypes: h as it is
#    says: `kept` is h itself
def dtypes(x, h):
    return x @ x, h.exp(), x + h, h


# %% wrong dtypes: three of four
#    says: Four tensors are wanted
def dtypes(x, h):
    return x @ x, h.exp(), x + h


# %% right mini-autocast: a comprehension with a helper outside of the class
def moved(x, target):
    if not isinstance(x, torch.Tensor) or x.dtype not in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
    ):
        return x
    return x.to(target)


class mini_autocast(torch.overrides.TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.__name__ in LOW:
            target = self.dtype
        elif func.__name__ in WIDE:
            target = torch.float32
        else:
            return func(*args, **kwargs)
        args = tuple(moved(a, target) for a in args)
        kwargs = {k: moved(v, target) for k, v in kwargs.items()}
        return func(*args, **kwargs)


# %% right mini-autocast: tree_map
class mini_autocast(torch.overrides.TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.table = dict.fromkeys(WIDE, torch.float32) | dict.fromkeys(LOW, dtype)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        from torch.utils._pytree import tree_map

        target = self.table.get(func.__name__)
        if target:
            args, kwargs = tree_map(
                lambda x: (
                    x.to(target)
                    if torch.is_tensor(x) and x.is_floating_point() and x.dtype != torch.float64
                    else x
                ),
                (args, kwargs or {}),
            )
        return func(*args, **(kwargs or {}))


# %% wrong mini-autocast: every other function in float32
#    idea: unlisted-ops-run-in-fp32
mini_autocast = changed("in LOW else None", "in LOW else torch.float32")

# %% wrong mini-autocast: names that only hold a listed one
#    says: `log1p` and `abs` are in neither set
mini_autocast = changed("func.__name__ in WIDE", "any(w in func.__name__ for w in WIDE)")


# %% wrong mini-autocast: torch's own autocast
#    says: `log1p` and `abs` are in neither set
def mini_autocast(dtype):
    return torch.autocast("cpu", dtype=dtype)


# %% wrong mini-autocast: nothing returned
#    says: 'Tensor' and 'NoneType'
mini_autocast = changed("return func(", "func(")

# %% wrong mini-autocast: the kwargs are forgotten
#    says: inside `mini_autocast(float16)`
mini_autocast = changed(", **kwargs)", ")")

# %% wrong mini-autocast: the two lists swapped
#    says: `x @ w` inside `mini_autocast(float16)` is float32
mini_autocast = changed("in LOW else", "in WIDE else", "in WIDE else target", "in LOW else target")

# %% wrong mini-autocast: always FP16
#    says: inside `mini_autocast(bfloat16)`
mini_autocast = changed("self.dtype if", "torch.float16 if")

# %% wrong mini-autocast: cut from the graph
#    says: does not require grad
mini_autocast = changed("return x.to(target) if", "return x.detach().to(target) if")

# %% wrong mini-autocast: args not cast at all
#    says: `x @ w` inside `mini_autocast(float16)` is float32
mini_autocast = changed("*[cast(value) for value in args]", "*args")

# %% right fit: float(loss), of which torch warns
fit = changed("loss.item()", "float(loss)")

# %% right fit: the output made float32 outside of the block
fit = changed(
    "            loss = F.cross_entropy(output, targets)\n",
    "        loss = F.cross_entropy(output.float(), targets)\n",
)

# %% right fit: it raises
fit = changed(
    'warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)',
    'raise TypeError("not what was asked for")',
)

# %% right fit: zero_grad after the step too, losses detached
fit = changed(
    "scaler.update()",
    "scaler.update()\n        optimizer.zero_grad(set_to_none=True)",
    "losses.append(loss.item())",
    "losses.append(loss.detach())",
)

# %% right fit: two ways through the loop
fit = changed(
    "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n"
    "        scaler.update()\n",
    "        if dtype is torch.float16:\n            scaler.scale(loss).backward()\n"
    "            scaler.step(optimizer)\n            scaler.update()\n"
    "        else:\n            loss.backward()\n            optimizer.step()\n",
)

# %% right fit: inference_mode, a mean of truths
fit = changed("torch.no_grad()", "torch.inference_mode()")

# %% wrong fit: a scaler for a device that is not there
#    says: CUDA is not available
#    never: cuda.amp
fit = changed(
    "GradScaler(device, enabled=dtype is torch.float16)",
    "GradScaler(enabled=dtype is torch.float16)",
)

# %% wrong fit: no autocast at all
#    says: trained on outputs of float32 dtype
#    never: cuda.amp
fit = changed(
    "with torch.autocast(device, dtype=dtype):\n            output",
    "if True:\n            output",
)

# %% wrong fit: FP16 whatever was asked for
#    says: Asked for bf16, your loop trained on outputs of float16 dtype
#    never: the dtype that was asked for
fit = changed(
    "with torch.autocast(device, dtype=dtype):", "with torch.autocast(device, dtype=torch.float16):"
)

# %% wrong fit: the loss outside of the block, in 16 bits
#    says: the loss was computed in 16 bits
fit = changed(
    "            loss = F.cross_entropy(output, targets)\n",
    "        loss = F.cross_entropy(output, targets)\n",
)

# %% wrong fit: a test without autocast
#    says: tested on outputs of float32 dtype
fit = changed(", torch.autocast(device, dtype=dtype):\n        right", ":\n        right")

# %% wrong fit: a test without autocast and without no_grad
#    says: tested on outputs of float32 dtype
fit = changed("with torch.no_grad(), torch.autocast(device, dtype=dtype):", "if True:")

# %% wrong fit: it always warns
#    says: your loop warned
fit = changed("if output.dtype is not dtype:", "if True:")

# %% wrong fit: a new scaler in each iteration
#    says: In fp16
fit = changed(
    "        optimizer.zero_grad()",
    "        optimizer.zero_grad()\n        scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)",
)

# %% wrong fit: the number of right answers
#    says: The share of right answers
fit = changed("right.float().mean()", "right.sum()")

# %% wrong fit: the share alone
#    says: Two things are wanted
fit = changed("return losses, ", "return ")

# %% wrong clipped-step: the optimizer's own step
#    says: this step must be skipped
#    never: length 0.1
clipped_step = changed("scaler.step(optimizer)", "optimizer.step()")

# %% wrong clipped-step: it clips at twice the limit
#    says: the step has length 0.1
clipped_step = changed("(model.parameters(), limit)", "(model.parameters(), 2 * limit)")

# %% right accumulate: sums of each micro-batch's loss
accumulate = changed(
    "F.cross_entropy(model(inputs), targets) * len(targets) / count",
    "F.cross_entropy(model(inputs), targets, reduction='sum') / count",
)

# %% right accumulate: a list of losses, summed
accumulate = changed(
    "losses.append(0.0)",
    "parts = []",
    "losses[-1] += loss.item()",
    "parts.append(loss.item())",
    "        scaler.step(optimizer)",
    "        losses.append(sum(parts))\n        scaler.step(optimizer)",
)


# %% right accumulate: one loop over all batches
def accumulate(model, batches, k, optimizer, scaler, device):
    losses, total = [], 0.0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        first = i - i % k
        count = sum(len(t) for _, t in batches[first : first + k])
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        loss = loss * (len(targets) / count)
        scaler.scale(loss).backward()
        total += loss.item()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(total)
            total = 0.0
    return losses


# %% wrong accumulate: one backward for the group
#    says: You held the forward passes of 24 examples at once
def accumulate(model, batches, k, optimizer, scaler, device):
    losses = []
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        count, total = sum(len(t) for _, t in group), 0.0
        optimizer.zero_grad()
        for inputs, targets in group:
            with torch.autocast(device, dtype=torch.float16):
                total = total + F.cross_entropy(model(inputs), targets) * len(targets) / count
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(total.item())
    return losses


# %% wrong accumulate: one large batch
#    says: You held the forward passes of 24 examples at once
def accumulate(model, batches, k, optimizer, scaler, device):
    losses = []
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        inputs, targets = (torch.cat(part) for part in zip(*group))
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% wrong accumulate: a loss for each micro-batch
#    says: you return 4 losses; 2 are wanted
#    never: steps
accumulate = changed(
    "losses.append(0.0)", "pass", "losses[-1] += loss.item()", "losses.append(loss.item())"
)

# %% wrong accumulate: a sum in FP16, divided after it is unscaled
#    says: you skipped other steps
accumulate = changed(
    " * len(targets) / count",
    " * len(targets)",
    "losses[-1] += loss.item()",
    "losses[-1] += loss.item() / count",
    "        scaler.step(optimizer)",
    "        scaler.unscale_(optimizer)\n        for p in model.parameters():\n"
    "            p.grad /= count\n        scaler.step(optimizer)",
)

# %% wrong gan-step: the fake is detached once too often
#    says: No inf checks were recorded
#    never: One graph was walked twice
gan_step = changed("on_fake = discriminator(fake)\n", "on_fake = discriminator(fake.detach())\n")

# %% wrong gan-step: G steps by itself
#    says: times as far as it should
gan_step = changed("scaler.step(g_optimizer)", "g_optimizer.step()")

# %% wrong gan-step: neither loss is scaled
#    says: Attempted step but _scale is None
gan_step = changed("scaler.scale(d_loss)", "d_loss", "scaler.scale(g_loss)", "g_loss")

# %% right gan-step: a fresh fake for G
gan_step = changed("on_fake = discriminator(fake)\n", "on_fake = discriminator(generator(noise))\n")

# %% wrong review: nothing at all
#    idea: what-runs-is-right
#    never: All eight run
review = {}

# %% wrong review: a right hunk
#    says: is not true here
review = ours.review | {2: "stale"}
