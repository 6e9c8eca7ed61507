# Answers to lab 05 that the author of its checks had not foreseen: see tests/corpus.py.

from torch import nn


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


# %% right mini-autocast: match by name
class mini_autocast(torch.overrides.TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, dict(kwargs or {})
        if name not in LOW | WIDE:
            return func(*args, **kwargs)
        to = self.dtype if name in LOW else torch.float32
        sixteen = {torch.float16, torch.bfloat16, torch.float32}
        args = list(args)
        for i, a in enumerate(args):
            if getattr(a, "dtype", None) in sixteen:
                args[i] = a.type(to)
        for key, a in kwargs.items():
            if getattr(a, "dtype", None) in sixteen:
                kwargs[key] = a.type(to)
        return func(*args, **kwargs)


# %% right mini-autocast: a generator function as a context manager
import contextlib


@contextlib.contextmanager
def mini_autocast(dtype):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            target = {True: dtype}.get(func.__name__ in LOW)
            if func.__name__ in WIDE:
                target = torch.float32

            def cast(x):
                if target is None or not torch.is_tensor(x) or x.dtype == torch.float64:
                    return x
                return x.to(target) if x.dtype.is_floating_point else x

            return func(*map(cast, args), **{k: cast(v) for k, v in (kwargs or {}).items()})

    with Mode():
        yield


# %% right mini-autocast: lists of tensors are cast, too
mini_autocast = changed(
    "            eligible = isinstance(x, torch.Tensor) and x.is_floating_point()\n",
    "            if isinstance(x, (list, tuple)):\n                return type(x)(map(cast, x))\n"
    "            eligible = isinstance(x, torch.Tensor) and x.is_floating_point()\n",
)


# %% right mini-autocast: sets joined first, a lambda
class mini_autocast(torch.overrides.TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.of = {**{n: dtype for n in LOW}, **{n: torch.float32 for n in WIDE}}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        to = self.of.get(func.__name__)
        cast = lambda x: (
            torch.ops.aten._to_copy(x, dtype=to)
            if to and isinstance(x, torch.Tensor) and x.is_floating_point() and x.element_size() < 8
            else x
        )
        return func(*[cast(a) for a in args], **{k: cast(a) for k, a in (kwargs or {}).items()})


# %% right mini-autocast: the result is cast as well, to what it is
mini_autocast = changed(
    "return func(*[cast(value) for value in args], **kwargs)",
    "return cast(func(*[cast(value) for value in args], **kwargs))",
)


# %% wrong mini-autocast: every other function in float32
#    idea: unlisted-ops-run-in-fp32
mini_autocast = changed("in LOW else None", "in LOW else torch.float32")


# %% wrong mini-autocast: names that only hold a listed one
#    says: `log1p` and `abs` are in neither set
mini_autocast = changed("func.__name__ in WIDE", "any(w in func.__name__ for w in WIDE)")


# %% wrong mini-autocast: torch's own autocast
#    says: uses `torch.autocast`
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


# %% wrong mini-autocast: float64 is brought down
#    idea: every-tensor-is-cast
mini_autocast = changed("eligible and x.dtype != torch.float64", "eligible")


# %% wrong mini-autocast: labels are cast
#    idea: every-tensor-is-cast
mini_autocast = changed(
    "isinstance(x, torch.Tensor) and x.is_floating_point()", "isinstance(x, torch.Tensor)"
)


# %% wrong mini-autocast: only float32 is cast
#    says: also where the inputs have 16 bits
mini_autocast = changed("x.dtype != torch.float64", "x.dtype == torch.float32")


# %% wrong mini-autocast: only the first argument
#    says: in your line `return func(cast(args[0])
mini_autocast = changed("*[cast(value) for value in args]", "cast(args[0]), *args[1:]")


# %% wrong mini-autocast: all in FP16 or BF16
#    idea: autocast-casts-every-op
mini_autocast = changed("self.dtype if func.__name__ in LOW else None", "self.dtype")


# %% wrong mini-autocast: WIDE in float64
#    says: is float64; torch.autocast gives float32
mini_autocast = changed("torch.float32 if func", "torch.float64 if func")


# %% wrong mini-autocast: casts under no_grad
#    says: Does your cast cut the graph?
mini_autocast = changed(
    "return x.to(target) if",
    "\n            with torch.no_grad():\n                return x.to(target) if",
)


# %% wrong mini-autocast: the function, not its name, looked up in the lists
#    says: `@` arrives as the name `matmul`
mini_autocast = changed(
    "func.__name__ in LOW", "func in LOW", "func.__name__ in WIDE", "func in WIDE"
)


# %% right fit: float(loss), of which torch warns
fit = changed("loss.item()", "float(loss)")


# %% right fit: the output made float32 outside of the block
fit = changed(
    "            loss = loss_fn(output, targets)\n",
    "        loss = loss_fn(output.float(), targets)\n",
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


# %% right fit: a null context for FP32
import contextlib


def fit(model, batches, loss_fn, optimizer, dtype, device):
    model.train()
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses = []
    for inputs, targets in batches:
        model.zero_grad()
        narrow = dtype != torch.float32
        with torch.autocast(device, dtype) if narrow else contextlib.nullcontext():
            output = model(inputs)
            loss = loss_fn(output, targets)
        if output.dtype != dtype:
            raise RuntimeError(f"autocast is off: {output.dtype}")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


# %% right fit: torch turns FP32 autocast off by itself
fit = changed(", enabled=dtype is not torch.float32", "")


# %% wrong fit: a scaler for a device that is not there
#    says: torch.amp.GradScaler("cpu")
#    never: cuda.amp
fit = changed(
    "GradScaler(device, enabled=dtype is torch.float16)",
    "GradScaler(enabled=dtype is torch.float16)",
)


# %% wrong fit: no autocast at all
#    says: Asked for BF16, your loop trained on outputs of float32 dtype
#    never: cuda.amp
fit = changed("enabled=dtype is not torch.float32", "enabled=False")


# %% wrong fit: FP16 whatever was asked for
#    says: Asked for FP32, your loop trained on outputs of float16 dtype
fit = changed(
    "with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):",
    "with torch.autocast(device, dtype=torch.float16):",
)


# %% wrong fit: FP16 for every 16-bit dtype
#    says: Asked for BF16, your loop trained on outputs of float16 dtype
fit = changed("dtype=dtype, enabled", "dtype=torch.float16, enabled")


# %% wrong fit: the loss outside of the block, in 16 bits
#    says: the loss was computed in 16 bits
fit = changed(
    "            loss = loss_fn(output, targets)\n",
    "        loss = loss_fn(output, targets)\n",
)


# %% wrong fit: backward inside of the block
#    says: your autocast block was still open while backward ran
fit = changed(
    "        if output.dtype is not dtype:\n    ",
    "            if output.dtype is not dtype:\n        ",
    "        scaler.scale(loss).backward()",
    "            scaler.scale(loss).backward()",
)


# %% wrong fit: it always warns
#    says: your loop warned
fit = changed("if output.dtype is not dtype:", "if True:")


# %% wrong fit: a new scaler in each iteration
#    says: In FP16
fit = changed(
    "        optimizer.zero_grad()",
    "        optimizer.zero_grad()\n        scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)",
)


# %% wrong fit: the mean of the losses
#    says: Return a list of 6 losses
fit = changed("return losses", "return sum(losses) / len(losses)")


# %% wrong fit: a live scaler for FP32 and BF16 too
#    idea: bf16-needs-a-loss-scale
fit = changed(", enabled=dtype is torch.float16", "")


# %% wrong fit: a live scaler for BF16
#    says: your scaler is enabled
fit = changed("enabled=dtype is torch.float16", "enabled=dtype is not torch.float32")


# %% wrong fit: autocast around the whole loop
#    idea: a-block-may-span-steps
def fit(*training):
    *_, dtype, device = training
    with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
        return ours.fit(*training)


# %% wrong fit: the loss is logged with its scale
#    idea: scaled-loss-is-the-loss
fit = changed("loss.item()", "scaler.scale(loss).item()")


# %% wrong fit: each batch makes two steps
#    says: In FP
fit = changed(
    "        scaler.step(optimizer)\n", "        scaler.step(optimizer)\n        optimizer.step()\n"
)


# %% wrong fit: the model is made 16-bit
#    idea: autocast-casts-the-parameters
fit = changed("model.train()", "model.to(dtype).train()")


# %% wrong fit: one backward for all batches
#    says: loss 1
def fit(model, batches, loss_fn, optimizer, dtype, device):
    model.train()
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    losses = []
    optimizer.zero_grad()
    for inputs, targets in batches:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            output = model(inputs)
            losses.append(loss_fn(output, targets))
        if output.dtype is not dtype:
            raise RuntimeError
    scaler.scale(sum(losses)).backward()
    scaler.step(optimizer)
    scaler.update()
    return [loss.item() for loss in losses]


# %% wrong fit: loud for FP16 alone
#    says: BF16 was asked for and FP32 came out
fit = changed(
    "if output.dtype is not dtype", "if dtype is torch.float16 and output.dtype is not dtype"
)


# %% wrong fit: it looks at the loss's dtype
#    says: Outputs of the network were bfloat16, as asked
fit = changed(
    'if output.dtype is not dtype:\n            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)',
    "if loss.dtype is not dtype:\n            raise RuntimeError(dtype)",
)


# %% wrong fit: the mean loss so far
#    says: only the losses that you return are wrong
fit = changed(
    "losses.append(loss.item())", "losses.append((sum(losses) + loss.item()) / (len(losses) + 1))"
)


# %% right clipped-step: the norm by hand
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()\n    for p in model.parameters():\n        p.grad *= min(1.0, limit / (norm.item() + 1e-6))",
)


# %% right clipped-step: the parameters of the optimizer
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    'held = [p for group in optimizer.param_groups for p in group["params"]]\n    norm = torch.nn.utils.clip_grad_norm_(held, max_norm=limit)',
)


# %% right clipped-step: get_total_norm, then clip_grads_with_norm_
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)",
)


# %% right clipped-step: a scaled limit, and the norm divided by the scale
clipped_step = changed(
    "    scaler.unscale_(optimizer)\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n",
    "    scale = scaler.get_scale()\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit * scale) / scale\n",
)


# %% right clipped-step: a tensor comes back
clipped_step = changed("return norm.item()", "return norm")


# %% right clipped-step: math.hypot, and no clip for small norms
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "import math\n    norm = torch.tensor(math.hypot(*(p.grad.norm().item() for p in model.parameters())))\n    if norm > limit:\n        for p in model.parameters():\n            p.grad.mul_(limit / norm)",
)


# %% wrong clipped-step: the optimizer's own step
#    says: this step must be skipped
#    never: length 0.1
clipped_step = changed("scaler.step(optimizer)", "optimizer.step()")


# %% wrong clipped-step: it clips at twice the limit
#    says: the step has length 0.1
clipped_step = changed("(model.parameters(), limit)", "(model.parameters(), 2 * limit)")


# %% wrong clipped-step: the scaler's step before the clip
#    idea: clip-may-come-last
clipped_step = changed(
    "    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n    scaler.step(optimizer)\n",
    "    scaler.step(optimizer)\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)\n",
)


# %% wrong clipped-step: the loss is clipped
#    says: moved by 0 instead of 0.1
clipped_step = changed(
    "scaler.scale(loss).backward()", "scaler.scale(loss.clamp(max=limit)).backward()"
)


# %% wrong clipped-step: not scaled at all
#    says: did not use scaler.scale(loss
clipped_step = changed("scaler.scale(loss).backward()", "loss.backward()")


# %% wrong clipped-step: the norm of the largest
#    says: moved by 0.11 instead of 0.1
clipped_step = changed(
    "(model.parameters(), limit)", '(model.parameters(), limit, norm_type=float("inf"))'
)


# %% wrong clipped-step: each tensor by itself
#    says: moved by 0.11 instead of 0.1
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "norm = torch.stack([torch.nn.utils.clip_grad_norm_([p], limit) for p in model.parameters()]).norm()",
)


# %% wrong clipped-step: always of the limit's length
#    says: nothing should be clipped
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n    for p in model.parameters():\n        p.grad *= limit / norm",
)


# %% wrong clipped-step: the loss comes back
#    says: The gradient norm is 1.069; you report 1.827
clipped_step = changed("return norm.item()", "return loss.item()")


# %% wrong clipped-step: nothing comes back
#    says: you report None
clipped_step = changed("return norm.item()", "pass")


# %% wrong clipped-step: the squared norm
#    says: you report 1.142
clipped_step = changed("return norm.item()", "return norm.item() ** 2")


# %% wrong clipped-step: inf is made 0
#    says: The gradient norm is inf; you report 1.283
clipped_step = changed(
    "    norm = torch",
    "    for p in model.parameters():\n        p.grad.nan_to_num_(0, 0, 0)\n    norm = torch",
)


# %% wrong clipped-step: the norm divided by the scale that update left
#    says: The gradient norm is 0.4139; you report 0.2069
clipped_step = changed(
    "scaler.unscale_(optimizer)\n    ",
    "",
    "(model.parameters(), limit)",
    "(model.parameters(), limit * scaler.get_scale())",
    "norm.item()",
    "norm.item() / scaler.get_scale()",
)


# %% wrong clipped-step: the limit is always 1
#    says: the limit 0.5
clipped_step = changed("(model.parameters(), limit)", "(model.parameters(), 1.0)")


# %% wrong clipped-step: a limit above 1 counts as 1
#    says: the limit 2
clipped_step = changed("(model.parameters(), limit)", "(model.parameters(), min(limit, 1.0))")


# %% wrong clipped-step: at most the limit is reported
#    idea: norm-after-clipping
clipped_step = changed("norm.item()", "min(norm.item(), limit)")


# %% wrong clipped-step: the norms of the parameters added up
#    says: The norm that you report is 1.683
clipped_step = changed(
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)",
    "norm = sum(p.grad.norm() for p in model.parameters())\n    if norm > limit:\n        for p in model.parameters():\n            p.grad.mul_(limit / norm)",
)


# %% right accumulate: transposed logits
accumulate = changed(
    "= model(inputs).flatten(0, 1)",
    "= model(inputs).transpose(1, 2)",
    "targets.flatten(), reduction",
    "targets, reduction",
)


# %% right accumulate: means, weighed by their tokens, and none for a micro-batch of padding
accumulate = changed(
    'loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count',
    "n = (targets != -100).sum()\n                "
    "loss = F.cross_entropy(logits, targets.flatten()) * n / count if n else 0.0 * logits.sum()",
)


# %% right accumulate: a mask and the losses one by one
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    losses = []
    for i in range(0, len(batches), k):
        optimizer.zero_grad(set_to_none=True)
        tokens = torch.cat([y.flatten() for _, y in batches[i : i + k]]).ne(-100).sum().item()
        mean = 0.0
        for x, y in batches[i : i + k]:
            with torch.autocast(device, dtype):
                each = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
                loss = each[y.flatten() != -100].sum() / tokens
            scaler.scale(loss).backward()
            mean += float(loss.detach())
        scaler.step(optimizer)
        scaler.update()
        losses.append(mean)
    return losses


# %% right accumulate: padding cut out before the loss
accumulate = changed(
    "logits = model(inputs).flatten(0, 1)\n",
    "logits = model(inputs)[targets != -100]\n",
    "targets.flatten(), reduction",
    "targets[targets != -100], reduction",
)


# %% right accumulate: one loop over all batches
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    losses, total = [], 0.0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(batches):
        first = i - i % k
        count = sum(int((t != -100).sum()) for _, t in batches[first : first + k])
        with torch.autocast(device, dtype=dtype):
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        loss = loss / count
        scaler.scale(loss).backward()
        total += loss.item()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(total)
            total = 0.0
    return losses


# %% right accumulate: the loss computed behind the block, in float32
accumulate = changed(
    "                loss = F.cross_entropy(logits, targets",
    "            loss = F.cross_entropy(logits.float(), targets",
)


# %% right accumulate: unscaled, then stepped
accumulate = changed(
    "        scaler.step(optimizer)\n",
    "        if scaler.is_enabled():\n            scaler.unscale_(optimizer)\n"
    "        scaler.step(optimizer)\n",
)


# %% wrong accumulate: one backward for the group
#    says: You held the forward passes of 12 sequences at once
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    losses = []
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        count, total = sum((y != -100).sum() for _, y in group), 0.0
        optimizer.zero_grad()
        for x, y in group:
            with torch.autocast(device, dtype=dtype):
                logits = model(x).flatten(0, 1)
                total = total + F.cross_entropy(logits, y.flatten(), reduction="sum") / count
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(total.item())
    return losses


# %% wrong accumulate: one large batch
#    says: You held the forward passes of 12 sequences at once
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    losses = []
    for start in range(0, len(batches), k):
        x, y = (torch.cat(part) for part in zip(*batches[start : start + k]))
        losses += ours.accumulate(model, [(x, y)], 1, optimizer, scaler, dtype, device)
    return losses


# %% wrong accumulate: weighed by sequences, of which each micro-batch has as many
#    idea: mean-of-means
accumulate = changed(
    'targets.flatten(), reduction="sum") / count',
    "targets.flatten()) * len(targets) / sum(len(y) for _, y in group)",
)


# %% wrong accumulate: means divided by the number of micro-batches
#    idea: mean-of-means
accumulate = changed(
    'targets.flatten(), reduction="sum") / count', "targets.flatten()) / len(group)"
)


# %% wrong accumulate: divided by all positions
#    idea: padding-counts-as-tokens
accumulate = changed("(targets != -100).sum()", "targets.numel()")


# %% wrong accumulate: the mean of no targets
#    idea: an-empty-mean-is-zero
accumulate = changed(
    'targets.flatten(), reduction="sum") / count',
    "targets.flatten()) * (targets != -100).sum() / count",
)


# %% wrong accumulate: micro-batches of padding are dropped, and so is their place in k
#    says: you return
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    batches = [(x, y) for x, y in batches if (y != -100).any()]
    return ours.accumulate(model, batches, k, optimizer, scaler, dtype, device)


# %% wrong accumulate: a loss for each micro-batch
#    says: you return 4 losses; 2 are wanted
#    never: steps
accumulate = changed(
    "losses.append(0.0)", "pass", "losses[-1] += loss.item()", "losses.append(loss.item())"
)


# %% wrong accumulate: no autocast
#    says: outputs of the network are float32
accumulate = changed(
    "            with torch.autocast(device, dtype=dtype):\n", "            if True:\n"
)


# %% wrong accumulate: always FP16
#    says: outputs of the network are float16; under BF16 autocast they are bfloat16
accumulate = changed("dtype=dtype", "dtype=torch.float16")


# %% wrong accumulate: not scaled
#    says: did not use scaler.scale(loss
accumulate = changed("scaler.scale(loss).backward()", "loss.backward()")


# %% wrong accumulate: update after each micro-batch
#    says: No inf checks were recorded prior to update
accumulate = changed(
    "            losses[-1] += loss.item()\n        scaler.step(optimizer)\n        scaler.update()\n",
    "            losses[-1] += loss.item()\n            scaler.update()\n        scaler.step(optimizer)\n",
)


# %% wrong accumulate: the scaled loss is reported
#    says: That is 512 times as much, which is the scale
accumulate = changed("losses[-1] += loss.item()", "losses[-1] += scaler.scale(loss).item()")


# %% wrong accumulate: no update
#    says: step() has already been called since the last update()
accumulate = changed("        scaler.update()\n", "")


# %% wrong accumulate: the optimizer steps
#    says: the weights end as inf or NaN
accumulate = changed(
    "        scaler.step(optimizer)\n        scaler.update()\n", "        optimizer.step()\n"
)


# %% wrong accumulate: sums that are not divided
#    idea: sums-need-no-division
accumulate = changed(" / count", "")


# %% wrong accumulate: the last loss of each group
#    says: one large batch has
accumulate = changed("losses[-1] += loss.item()", "losses[-1] = loss.item()")


# %% wrong accumulate: the whole epoch is one group
#    says: you return 1 loss; 2 are wanted
def accumulate(model, batches, k, optimizer, scaler, dtype, device):
    return ours.accumulate(model, batches, len(batches), optimizer, scaler, dtype, device)


# %% right accumulate: the NaN of an empty mean made 0
accumulate = changed(
    'targets.flatten(), reduction="sum") / count',
    "targets.flatten()).nan_to_num() * (targets != -100).sum() / count",
)


# %% wrong accumulate: the loss outside of the block, in 16 bits
#    says: above 65504
accumulate = changed("                loss = F.cross", "            loss = F.cross")


# %% wrong accumulate: means added up
#    says: 2 times as much; the group has 2 micro-batches
accumulate = changed('targets.flatten(), reduction="sum") / count', "targets.flatten())")


# %% wrong accumulate: autocast without the dtype
#    says: Which dtype does your `autocast` get?
#    never: outside of the block
accumulate = changed("torch.autocast(device, dtype=dtype)", "torch.autocast(device)")


# %% wrong accumulate: the right sum, and its share of a micro-batch
#    says: only the losses that you return are wrong
accumulate = changed(
    "        scaler.update()", "        scaler.update()\n        losses[-1] /= len(group)"
)


# %% right gan-step: a fresh fake for G
gan_step = changed("on_fake = discriminator(fake)\n", "on_fake = discriminator(generator(noise))\n")


# %% right gan-step: two losses of D, two backwards
def gan_step(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(noise), 1)
    d_optimizer.zero_grad()
    with torch.autocast(device, torch.float16):
        a = bce(discriminator(real), ones)
    scaler.scale(a).backward()
    with torch.no_grad(), torch.autocast(device, torch.float16):
        fake = generator(noise)
    with torch.autocast(device, torch.float16):
        b = bce(discriminator(fake), zeros)
    scaler.scale(b).backward()
    scaler.step(d_optimizer)
    g_optimizer.zero_grad()
    with torch.autocast(device, torch.float16):
        g_loss = bce(discriminator(generator(noise)), ones)
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return (a + b).item(), g_loss.item()


# %% right gan-step: D's weights are frozen for G
def gan_step(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    bce = F.binary_cross_entropy_with_logits
    with torch.autocast(device, dtype=torch.float16):
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        d_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    d_optimizer.zero_grad()
    scaler.scale(d_loss).backward()
    scaler.step(d_optimizer)
    discriminator.requires_grad_(False)
    with torch.autocast(device, dtype=torch.float16):
        on_fake = discriminator(fake)
        g_loss = bce(on_fake, torch.ones_like(on_fake))
    g_optimizer.zero_grad()
    scaler.scale(g_loss).backward()
    discriminator.requires_grad_(True)
    scaler.step(g_optimizer)
    scaler.update()
    return [d_loss.detach(), g_loss.detach()]


# %% right gan-step: softplus for the two losses
gan_step = changed(
    "bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))",
    "F.softplus(-on_real.float()).mean() + F.softplus(on_fake.float()).mean()",
    "g_loss = bce(on_fake, torch.ones_like(on_fake))",
    "g_loss = F.softplus(-on_fake.float()).mean()",
)


# %% right gan-step: real and fake in one pass of D
gan_step = changed(
    "        on_real, on_fake = discriminator(real), discriminator(fake.detach())\n",
    "        on_real, on_fake = discriminator(torch.cat([real, fake.detach().float()])).chunk(2)\n",
)


# %% right gan-step: the gradients emptied first, by both
gan_step = changed(
    "    bce = F.binary_cross_entropy_with_logits\n",
    "    bce = F.binary_cross_entropy_with_logits\n    g_optimizer.zero_grad()\n",
)


# %% wrong gan-step: the fake is detached once too often
#    says: No inf checks were recorded
#    never: through the fakes to G
gan_step = changed("on_fake = discriminator(fake)\n", "on_fake = discriminator(fake.detach())\n")


# %% wrong gan-step: G steps by itself
#    says: times as far as it should
gan_step = changed("scaler.step(g_optimizer)", "g_optimizer.step()")


# %% wrong gan-step: neither loss is scaled
#    says: Attempted step but _scale is None
gan_step = changed("scaler.scale(d_loss)", "d_loss", "scaler.scale(g_loss)", "g_loss")


# %% wrong gan-step: labels exchanged for D
#    says: In step 0 D's weights moved in the opposite direction
gan_step = changed(
    "bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))",
    "bce(on_real, torch.zeros_like(on_real)) + bce(on_fake, torch.ones_like(on_fake))",
)


# %% wrong gan-step: G wants its fakes called 0
#    says: In step 0 G's weights moved in the opposite direction
gan_step = changed(
    "g_loss = bce(on_fake, torch.ones_like(on_fake))",
    "g_loss = bce(on_fake, torch.zeros_like(on_fake))",
)


# %% wrong gan-step: no autocast for G
#    says: outputs of D are float16 and float32
gan_step = changed(
    "    with torch.autocast(device, dtype=torch.float16):\n        on_fake = discriminator(fake)\n",
    "    if True:\n        on_fake = discriminator(fake.float())\n",
)


# %% wrong gan-step: the mean of D's two losses
#    says: D moved 0.5 times as far
gan_step = changed(
    "d_loss = bce(on_real",
    "d_loss = 0.5 * bce(on_real",
    "+ bce(on_fake, torch.zeros",
    "+ 0.5 * bce(on_fake, torch.zeros",
)


# %% wrong gan-step: no update
#    says: step() has already been called since the last update()
gan_step = changed("    scaler.update()\n", "")


# %% wrong gan-step: G against the old D
#    says: No inf checks were recorded for this optimizer
gan_step = changed(
    "    scaler.step(d_optimizer)\n",
    "",
    "    scaler.step(g_optimizer)\n",
    "    d_optimizer.zero_grad()\n    scaler.step(g_optimizer)\n    scaler.step(d_optimizer)\n",
)


# %% wrong gan-step: D's own step
#    says: In step 0 D moved 4096 times as far
gan_step = changed("scaler.step(d_optimizer)", "d_optimizer.step()")


# %% wrong gan-step: only D's loss comes back
#    says: Two losses are wanted
gan_step = changed("return d_loss.item(), g_loss.item()", "return d_loss.item()")


# %% wrong gan-step: the losses exchanged
#    says: the loss of D is 0.7279; 1.259
gan_step = changed("return d_loss.item(), g_loss.item()", "return g_loss.item(), d_loss.item()")


# %% right gan-step: gradients emptied at the end, for the next step
gan_step = changed(
    "    d_optimizer.zero_grad()\n",
    "",
    "    g_optimizer.zero_grad()\n",
    "",
    "    scaler.update()\n",
    "    scaler.update()\n    d_optimizer.zero_grad()\n    g_optimizer.zero_grad()\n",
)


# %% wrong gan-step: D's gradients are never emptied
#    idea: g-backward-leaves-d-alone
gan_step = changed("    d_optimizer.zero_grad()\n", "")


# %% wrong gan-step: one block around everything
#    says: D's weights from before D's step
def gan_step(*arguments):
    with torch.autocast("cpu", dtype=torch.float16):
        return ours.gan_step(*arguments)


# %% wrong gan-step: BF16
#    says: Which dtype does your `autocast` get?
#    never: outside of the block
gan_step = changed(
    "torch.float16):\n        fake", "torch.bfloat16):\n        fake",
    "torch.float16):\n        on_fake", "torch.bfloat16):\n        on_fake",
)  # fmt: skip


# %% wrong gan-step: losses outside of the block, in 16 bits
#    says: is a value of FP16
gan_step = changed("        d_loss = ", "    d_loss = ", "        g_loss = ", "    g_loss = ")


# %% wrong gan-step: the loss of G alone outside of the block, in 16 bits
#    says: Each of your losses of G
gan_step = changed("        g_loss = ", "    g_loss = ")


# %% wrong gan-step: the scaled losses come back
#    says: 4096 times as much, which is the scale
gan_step = changed(
    "d_loss.item(), g_loss.item()", "scaler.scale(d_loss).item(), scaler.scale(g_loss).item()"
)


# %% wrong gan-step: the graph is kept in place of a detach
#    idea: detach-is-optional
def gan_step(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    bce = F.binary_cross_entropy_with_logits
    for optimizer in (g_optimizer, d_optimizer):
        optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        fake = generator(noise)
        real_logits, fake_logits = discriminator(real), discriminator(fake)
        d_loss = bce(real_logits, torch.ones_like(real_logits))
        d_loss = d_loss + bce(fake_logits, torch.zeros_like(fake_logits))
    scaler.scale(d_loss).backward(retain_graph=True)
    scaler.step(d_optimizer)
    with torch.autocast(device, dtype=torch.float16):
        fake_logits = discriminator(fake)
        g_loss = bce(fake_logits, torch.ones_like(fake_logits))
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return d_loss.item(), g_loss.item()


# %% wrong gan-step: neither steps if one overflows
#    says: the scaler has checked no gradient
gan_step = changed(
    "    scaler.step(d_optimizer)\n",
    "",
    "    scaler.step(g_optimizer)\n",
    "    if all(p.grad.isfinite().all() for n in (generator, discriminator) for p in n.parameters()):\n"
    "        scaler.step(d_optimizer)\n        scaler.step(g_optimizer)\n",
)


# %% wrong clipped-step: it returns before update when a step overflows
#    says: also after a step that overflows
clipped_step = changed(
    "    scaler.step(optimizer)\n",
    "    if not norm.isfinite():\n        return norm.item()\n    scaler.step(optimizer)\n",
)
