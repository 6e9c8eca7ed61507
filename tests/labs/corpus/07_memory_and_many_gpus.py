# Answers to lab 07 that the author of its checks had not foreseen: see tests/corpus.py.

import functools
import gc
import math

import numpy as np
import torch.nn.functional as F
from torch import nn


# %% right chunked-loss: slices by number, a sum of checkpointed sums
def chunked_loss(head, hidden, targets, rows):
    def summed(x, y):
        return F.cross_entropy(head(x).to(torch.float32), y, reduction="sum", ignore_index=-100)

    parts = [
        checkpoint(summed, hidden[i : i + rows], targets[i : i + rows], use_reentrant=False)
        for i in range(0, hidden.shape[0], rows)
    ]
    return sum(parts) / targets.ne(-100).sum()


# %% right chunked-loss: log-softmax by hand, counted chunk by chunk
def one_chunk(head, x, y):
    counts = y != -100
    logp = head(x).float().log_softmax(dim=-1)
    picked = logp.gather(1, y.clamp(min=0)[:, None])[:, 0]
    return -(picked * counts).sum()


def chunked_loss(head, hidden, targets, rows):
    total, count = 0.0, 0
    for start in range(0, len(targets), rows):
        x, y = hidden[start : start + rows], targets[start : start + rows]
        total = total + checkpoint(one_chunk, head, x, y, use_reentrant=False)
        count += int((y != -100).sum())
    return total / count


# %% right chunked-loss: a gradient of its own, computed in forward (as Liger does)
class Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, rows):
        count = (targets != -100).sum()
        d_hidden, d_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        total = torch.zeros(())
        for i in range(0, len(hidden), rows):
            h, t = hidden[i : i + rows], targets[i : i + rows]
            logits = F.linear(h, weight, bias).float()
            total += F.cross_entropy(logits, t, reduction="sum")
            grad = logits.softmax(-1)
            kept = t != -100
            grad[torch.arange(len(t)), t.clamp(min=0)] -= 1
            grad = (grad * kept[:, None] / count).to(weight.dtype)
            d_hidden[i : i + rows] = grad @ weight
            d_weight += grad.T @ h
            if d_bias is not None:
                d_bias += grad.sum(0)
        ctx.grads = d_hidden, d_weight, d_bias
        return total / count

    @staticmethod
    def backward(ctx, scale):
        return (*(None if g is None else g * scale for g in ctx.grads), None, None)


def chunked_loss(head, hidden, targets, rows):
    return Chunked.apply(hidden, head.weight, head.bias, targets, rows)


# %% right chunked-loss: chunks without a counted target are left out
def chunked_loss(head, hidden, targets, rows):
    losses, counts = [], []
    for h, t in zip(torch.split(hidden, rows), torch.split(targets, rows)):
        n = (t != -100).sum()
        if n == 0:
            continue
        f = lambda h, t: F.cross_entropy(head(h).float(), t)  # noqa: E731
        losses.append(checkpoint(f, h, t, use_reentrant=False) * n)
        counts.append(n)
    return torch.stack(losses).sum() / torch.stack(counts).sum()


# %% right chunked-loss: a module, a partial, a lambda with defaults
class SumLoss(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head
        self.loss = nn.CrossEntropyLoss(reduction="sum")

    def forward(self, h, t):
        return self.loss(self.head(h).float(), t)


def chunked_loss(head, hidden, targets, rows):
    part = functools.partial(checkpoint, SumLoss(head), use_reentrant=False)
    return torch.stack([part(h, t) for h, t in zip(hidden.split(rows), targets.split(rows))]).sum(
    ) / (targets >= 0).sum().float()


# %% right chunked-loss: logits in float32 from weights in float32
def chunked_loss(head, hidden, targets, rows):
    bias = None if head.bias is None else head.bias.float()

    def part(h, t):
        logits = F.linear(h.float(), head.weight.float(), bias)
        return F.nll_loss(F.log_softmax(logits, -1), t, reduction="sum")

    total = torch.tensor(0.0)
    for i in range(math.ceil(len(hidden) / rows)):
        chunk = slice(i * rows, (i + 1) * rows)
        total += checkpoint(part, hidden[chunk], targets[chunk], use_reentrant=False)
    return total.div((targets != -100).sum().item())


# %% right chunked-loss: only the rows that count
def chunked_loss(head, hidden, targets, rows):
    kept = targets != -100
    hidden, targets = hidden[kept], targets[kept]
    loss = 0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        loss += checkpoint(
            lambda a, b: F.cross_entropy(head(a).float(), b, reduction="sum"),
            h,
            t,
            use_reentrant=False,
        )
    return loss / len(targets)


# %% right chunked-loss: smaller chunks than allowed
def chunked_loss(head, hidden, targets, rows):
    return ours.chunked_loss(head, hidden, targets, max(1, rows // 2))


# %% wrong chunked-loss: all rows at once
#    says: You call head on up to 1000 rows at once; `rows` is 64
def chunked_loss(head, hidden, targets, rows):
    return F.cross_entropy(head(hidden).float(), targets)


# %% wrong chunked-loss: the whole loss in one checkpoint
#    says: You call head on up to 1000 rows at once
def chunked_loss(head, hidden, targets, rows):
    def whole(h, t):
        return F.cross_entropy(head(h).float(), t)

    return checkpoint(whole, hidden, targets, use_reentrant=False)


# %% wrong chunked-loss: the whole loop in one checkpoint
#    says: backward then computes all 16 chunks before it frees one
def chunked_loss(head, hidden, targets, rows):
    def whole(h, t):
        total = 0.0
        for x, y in zip(h.split(rows), t.split(rows)):
            total = total + F.cross_entropy(head(x).float(), y, reduction="sum")
        return total / (t != -100).sum()

    return checkpoint(whole, hidden, targets, use_reentrant=False)


# %% wrong chunked-loss: `rows` is taken for the number of chunks
#    says: `rows` is 8
def chunked_loss(head, hidden, targets, rows):
    def part(h, t):
        return F.cross_entropy(head(h).float(), t, reduction="sum")

    chunks = zip(hidden.chunk(rows), targets.chunk(rows))
    total = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks)
    return total / (targets != -100).sum()


# %% wrong chunked-loss: backward for each chunk, a number comes back
#    says: your function has called backward itself
def chunked_loss(head, hidden, targets, rows):
    total, count = 0.0, (targets != -100).sum()
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        loss = F.cross_entropy(head(h).float(), t, reduction="sum") / count
        loss.backward()
        total += loss.item()
    return total


# %% wrong chunked-loss: items are added up
#    says: no gradient can flow from it
def chunked_loss(head, hidden, targets, rows):
    total = 0.0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        total += F.cross_entropy(head(h).float(), t, reduction="sum").item()
    return torch.tensor(total / (targets != -100).sum().item())


# %% wrong chunked-loss: no_grad instead of checkpoint
#    says: no gradient can flow from it
def chunked_loss(head, hidden, targets, rows):
    total = 0.0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        with torch.no_grad():
            total = total + F.cross_entropy(head(h).float(), t, reduction="sum")
    return total / (targets != -100).sum()


# %% wrong chunked-loss: hidden is detached
#    says: The gradient of hidden is missing
def chunked_loss(head, hidden, targets, rows):
    return ours.chunked_loss(head, hidden.detach(), targets, rows)


# %% wrong chunked-loss: the total is in the dtype of hidden
#    says: your loss has dtype torch.bfloat16
def chunked_loss(head, hidden, targets, rows):
    total = hidden.new_zeros(())
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        f = lambda h, t: F.cross_entropy(head(h), t, reduction="sum")  # noqa: E731
        total = total + checkpoint(f, h, t, use_reentrant=False)
    return total / (targets != -100).sum()


# %% wrong chunked-loss: the sum of the chunks' means
#    idea: sums-need-no-division
#    says: the chunks' means are added up
def chunked_loss(head, hidden, targets, rows):
    total = 0.0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        f = lambda h, t: F.cross_entropy(head(h).float(), t)  # noqa: E731
        total = total + checkpoint(f, h, t, use_reentrant=False)
    return total


# %% wrong chunked-loss: means weighted by the rows of a chunk
#    idea: an-empty-mean-is-zero
#    says: weighted by its rows
def chunked_loss(head, hidden, targets, rows):
    total = 0.0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        f = lambda h, t: F.cross_entropy(head(h).float(), t)  # noqa: E731
        total = total + checkpoint(f, h, t, use_reentrant=False) * len(h) / len(hidden)
    return total


# %% wrong chunked-loss: nan_to_num for the empty chunks, and a mean of means
#    idea: mean-of-means
#    says: with 0 for a chunk in which no target counts
def chunked_loss(head, hidden, targets, rows):
    def part(h, t):
        return F.cross_entropy(head(h).float(), t).nan_to_num()

    chunks = list(zip(hidden.split(rows), targets.split(rows)))
    return sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks) / len(chunks)


# %% wrong chunked-loss: whole chunks only
#    says: 1,000 rows
def chunked_loss(head, hidden, targets, rows):
    whole = len(hidden) // rows * rows or len(hidden)
    return ours.chunked_loss(head, hidden[:whole], targets[:whole], rows)


# %% wrong chunked-loss: the head's weight without its bias
#    says: head's bias is left out
def chunked_loss(head, hidden, targets, rows):
    def part(h, t):
        return F.cross_entropy((h @ head.weight.T).float(), t, reduction="sum")

    chunks = zip(hidden.split(rows), targets.split(rows))
    total = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks)
    return total / (targets != -100).sum()


# %% wrong chunked-loss: the mode of checkpoint is left to torch, which takes the reentrant one
#    idea: reentrant-is-a-detail
def chunked_loss(head, hidden, targets, rows):
    def part(h, t):
        return F.cross_entropy(head(h).float(), t, reduction="sum")

    total = 0.0
    for h, t in zip(hidden.split(rows), targets.split(rows)):
        total = total + checkpoint(part, h, t)
    return total / (targets != -100).sum()


# %% wrong chunked-loss: logits of a chunk are appended, and joined for the loss
#    says: are alive at the peak
def chunked_loss(head, hidden, targets, rows):
    logits = [checkpoint(head, h, use_reentrant=False) for h in hidden.split(rows)]
    return F.cross_entropy(torch.cat(logits).float(), targets)


# %% wrong chunked-loss: torch's own
#    says: linear_cross_entropy
def chunked_loss(head, hidden, targets, rows):
    return F.linear_cross_entropy(hidden.float(), head.weight.float(), targets)


# %% right survive: a flag, and numbers as slices
def survive(model, inputs, targets, optimizer):
    n = len(inputs)
    size = n
    fits = False
    while not fits:
        optimizer.zero_grad(set_to_none=True)
        try:
            for i in range(0, n, size):
                logits = model(inputs[i : i + size])
                loss = F.cross_entropy(logits, targets[i : i + size], reduction="sum") / n
                loss.backward()
            fits = True
        except torch.cuda.OutOfMemoryError:
            if size <= 1:
                raise
        if not fits:
            size = math.ceil(size / 2)
    optimizer.step()
    return size


# %% right survive: the try is a function that says whether it went through
def fits(model, inputs, targets, rows):
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows)):
            part = F.cross_entropy(model(x), y) * len(y)
            (part / len(targets)).backward()
        return True
    except torch.OutOfMemoryError:
        if rows == 1:
            raise
    return False


def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    optimizer.zero_grad()
    while not fits(model, inputs, targets, rows):
        rows -= rows // 2
        optimizer.zero_grad()
    optimizer.step()
    return rows


# %% right survive: recursion after the except block has ended
def survive(model, inputs, targets, optimizer, rows=None):
    rows = len(inputs) if rows is None else rows
    model.zero_grad()
    full = False
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows)):
            (F.cross_entropy(model(x), y) * x.shape[0] / inputs.shape[0]).backward()
    except torch.OutOfMemoryError:
        full = True
        if rows == 1:
            raise
    if full:
        return survive(model, inputs, targets, optimizer, (rows + 1) // 2)
    optimizer.step()
    return rows


# %% right survive: the text of the error, gc, and everything deleted
def survive(model, inputs, targets, optimizer):
    rows = torch.tensor(len(inputs))
    while True:
        for p in model.parameters():
            p.grad = None
        again = False
        try:
            for x, y in zip(inputs.split(int(rows)), targets.split(int(rows))):
                loss = F.cross_entropy(model(x), y) * (len(y) / len(targets))
                loss.backward()
                del loss
        except RuntimeError as error:
            if "out of memory" not in str(error) or rows == 1:
                raise
            again = True
        if not again:
            optimizer.step()
            return rows
        gc.collect()
        torch.cuda.empty_cache()
        rows = (rows + 1) // 2


# %% right survive: gradients of sums, divided at the end
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = None
        try:
            for i in range(0, len(inputs), rows):
                F.cross_entropy(
                    model(inputs[i : i + rows]), targets[i : i + rows], reduction="sum"
                ).backward()
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        else:
            break
        rows = -(-rows // 2)
    for p in model.parameters():
        p.grad /= len(inputs)
    optimizer.step()
    return np.int64(rows)


# %% right survive: autograd.grad and sums of its own
def survive(model, inputs, targets, optimizer):
    rows, params = len(inputs), list(model.parameters())
    while True:
        total, done = None, False
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                loss = F.cross_entropy(model(x), y, reduction="sum") / len(inputs)
                some = torch.autograd.grad(loss, params)
                total = some if total is None else [a + b for a, b in zip(total, some)]
            done = True
        except torch.OutOfMemoryError:
            total = loss = some = None
            if rows == 1:
                raise
        if done:
            break
        rows = (rows + 1) // 2
    for p, g in zip(params, total):
        p.grad = g
    optimizer.step()
    return rows


# %% right survive: for over the sizes, computed before
def survive(model, inputs, targets, optimizer):
    sizes = [len(inputs)]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    for rows in sizes:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
                loss = F.cross_entropy(model(x), y)
                loss.mul(len(x) / len(inputs)).backward()
        except torch.OutOfMemoryError:
            if rows > 1:
                continue
            raise
        optimizer.step()
        return float(rows)


# %% wrong survive: empty_cache in the handler, then again from inside it
#    idea: a-caught-error-is-over
#    says: 47,832 bytes were in use
def survive(model, inputs, targets, optimizer, rows=None):
    rows = rows or len(inputs)
    optimizer.zero_grad()
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows)):
            (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        if rows == 1:
            raise
        return survive(model, inputs, targets, optimizer, (rows + 1) // 2)
    optimizer.step()
    return rows


# %% wrong survive: the loop goes on inside the except block
#    idea: a-caught-error-is-over
#    says: What still held the tensors of the failed try?
def survive(model, inputs, targets, optimizer):
    def once(rows):
        optimizer.zero_grad()
        for x, y in zip(inputs.split(rows), targets.split(rows)):
            (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()

    rows = len(inputs)
    try:
        once(rows)
    except torch.OutOfMemoryError:
        while True:
            rows = (rows + 1) // 2
            try:
                once(rows)
                break
            except torch.OutOfMemoryError:
                if rows == 1:
                    raise
    optimizer.step()
    return rows


# %% wrong survive: a list of the errors
#    says: What still held the tensors of the failed try?
#    says: it should have returned 29
def survive(model, inputs, targets, optimizer):
    rows, errors = len(inputs), []
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError as error:
            errors.append(error)
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: rounded down
#    says: After 57 rows you tried 28. Half of 57, rounded up, is 29
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while rows:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows //= 2
    optimizer.step()
    return rows


# %% wrong survive: one row fewer in each try
#    says: After 57 rows you tried 56
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows -= 1
    optimizer.step()
    return rows


# %% wrong survive: the number of micro-batches comes back
#    says: That is the number of micro-batches
def survive(model, inputs, targets, optimizer):
    return math.ceil(len(inputs) / ours.survive(model, inputs, targets, optimizer))


# %% wrong survive: nothing comes back
#    says: returned None
def survive(model, inputs, targets, optimizer):
    ours.survive(model, inputs, targets, optimizer)


# %% wrong survive: it goes on with the rest of the batch
#    says: The first layers move rightly, and the last ones do not
def survive(model, inputs, targets, optimizer):
    rows, done = len(inputs), 0
    optimizer.zero_grad()
    while done < len(inputs):
        try:
            x, y = inputs[done : done + rows], targets[done : done + rows]
            (F.cross_entropy(model(x), y) * len(x) / len(inputs)).backward()
            done += len(x)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: only the first micro-batch is used
#    says: the weights' movement differs
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            F.cross_entropy(model(inputs[:rows]), targets[:rows]).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: gradients are emptied for each micro-batch
#    says: the weights' movement differs
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: zip over chunks, whose last one is dropped
#    says: the weights' movement differs
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for i in range(len(inputs) // rows):
                x, y = inputs[i * rows : (i + 1) * rows], targets[i * rows : (i + 1) * rows]
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: no step
#    says: Where does your optimizer step?
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            return rows
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2


# %% wrong survive: a step although one row does not fit
#    says: it should have raised OutOfMemoryError
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while rows >= 1:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                print("does not fit")
                break
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: RuntimeError is caught, whatever it says
#    idea: every-error-is-a-full-card
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except RuntimeError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: MemoryError, which torch does not raise
#    says: After the try of 57 rows came no other
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except MemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: a smaller batch is trained instead of the whole one
#    says: Your first try had 32 rows
def survive(model, inputs, targets, optimizer):
    rows = 32
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows //= 2
    optimizer.step()
    return rows


# %% right moments: lerp_ and addcmul on float32 copies
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32, v32 = m.float(), v.float()
    m32.lerp_(grad, 1 - b1)
    v32.mul_(b2).addcmul_(grad, grad, value=1 - b2)
    denominator = (v32.sqrt() / math.sqrt(1 - b2**t)).add_(eps)
    p.mul_(1 - lr * wd)
    p.addcdiv_(m32, denominator, value=-lr / (1 - b1**t))
    m.copy_(quantize(m32, BF16, rounding="stochastic", generator=generator))
    v.copy_(quantize(v32, BF16, rounding="stochastic", generator=generator))


# %% right moments: bits by hand, v before m
def rounded(x, generator):
    noise = torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32)
    return ((x.view(torch.int32) + noise) & -65536).view(torch.float32)


def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    new_v = v.float() * b2 + grad.square() * (1 - b2)
    new_m = m.float() * b1 + grad * (1 - b1)
    v[:] = rounded(new_v, generator)
    m[:] = rounded(new_m, generator)
    step = new_m / (1 - b1**t) / (torch.sqrt(new_v / (1 - b2**t)) + eps)
    p[:] = p * (1 - lr * wd) - lr * step


# %% right moments: float64 inside
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    g = grad.double()
    new = b1 * m.double() + (1 - b1) * g, b2 * v.double() + (1 - b2) * g**2
    hat = new[0] / (1 - b1**t), new[1] / (1 - b2**t)
    p.copy_(p.double() * (1 - lr * wd) - lr * hat[0] / (hat[1] ** 0.5 + eps))
    for stored, value in zip((m, v), new):
        stored.copy_(quantize(value.float(), BF16, rounding="stochastic", generator=generator))


# %% right moments: a random number between the two neighbours
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    def fair(x):
        down, up = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
        share = torch.where(up > down, (x - down) / (up - down), torch.zeros_like(x))
        return torch.where(torch.rand(x.shape, generator=generator) < share, up, down)

    m32 = m.float() * b1 + (1 - b1) * grad
    v32 = v.float() * b2 + (1 - b2) * grad * grad
    p.sub_(lr * wd * p)
    p -= lr * m32 / (1 - b1**t) / ((v32 / (1 - b2**t)) ** 0.5 + eps)
    m.copy_(fair(m32).bfloat16())
    v.copy_(fair(v32).bfloat16())


# %% right moments: set_ of the data, and numpy's root
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = torch.add(b1 * m.to(torch.float32), grad, alpha=1 - b1)
    v32 = torch.addcmul(b2 * v.to(torch.float32), grad, grad, value=1 - b2)
    root = torch.from_numpy(np.sqrt(v32.numpy() / np.float32(1 - b2**t)))
    p.data = p.data * (1 - lr * wd) - lr * (m32 / (1 - b1**t)) / (root + eps)
    m.data = quantize(m32, BF16, rounding="stochastic", generator=generator).bfloat16()
    v.data = quantize(v32, BF16, rounding="stochastic", generator=generator).bfloat16()


# %% right moments: the step size first
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    with torch.no_grad():
        m32, v32 = m.float().mul(b1).add(grad, alpha=1 - b1), v.float().mul(b2)
        v32 += (1 - b2) * grad.pow(2)
        update = m32.div(1 - b1**t).div(v32.div(1 - b2**t).sqrt().add(eps))
        p.add_(p, alpha=-lr * wd).add_(update, alpha=-lr)
        for kept, new in zip([m, v], [m32, v32]):
            kept.copy_(quantize(new, BF16, rounding="stochastic", generator=generator))


# %% wrong moments: in place in BF16
#    idea: rounded-moments-will-do
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    g = grad.bfloat16()
    m.mul_(b1).add_(g, alpha=1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m.float() / (1 - b1**t)) / ((v.float() / (1 - b2**t)).sqrt() + eps))


# %% wrong moments: names are assigned, and nothing is written
#    says: still holds what it held before the call
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m = b1 * m.float() + (1 - b1) * grad
    v = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps))
    m = quantize(m, BF16, rounding="stochastic", generator=generator)
    v = quantize(v, BF16, rounding="stochastic", generator=generator)


# %% wrong moments: p is rebound
#    says: p still holds
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    kept = p.clone()
    ours.adamw_step(p, grad, m, v, t, generator, lr, b1, b2, eps, wd)
    new = p.clone()
    p.copy_(kept)
    p = new


# %% wrong moments: only v is rounded stochastically
#    idea: nearest-is-fair
#    says: m is
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    m.copy_(m32)
    v.copy_(quantize(v32, BF16, rounding="stochastic", generator=generator))


# %% wrong moments: the global generator
#    says: Where do your random numbers come from?
adamw_step = changed("generator=generator", "generator=None")


# %% wrong moments: one random number for all weights
#    says: does each have a random number of its own?
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        noise = torch.randint(1 << 14, (1 << 16), (1,), generator=generator, dtype=torch.int32)
        noise |= 0xFFFF
        old.copy_(((new.view(torch.int32) + noise) & -65536).view(torch.float32))


# %% wrong moments: noise of half a gap, and then to nearest
#    says: goes up for
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        old.copy_(new * (1 + 2.0**-9 * (torch.rand(new.shape, generator=generator) - 0.5)))


# %% wrong moments: bias-corrected moments are stored
#    says: those after the bias correction
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = (b1 * m.float() + (1 - b1) * grad) / (1 - b1**t)
    v32 = (b2 * v.float() + (1 - b2) * grad * grad) / (1 - b2**t)
    p.mul_(1 - lr * wd)
    p.sub_(lr * m32 / (v32.sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        old.copy_(quantize(new, BF16, rounding="stochastic", generator=generator))


# %% wrong moments: eps under the root
#    says: eps stands under the root
adamw_step = changed("((v32 / (1 - b2**t)).sqrt() + eps)", "(v32 / (1 - b2**t) + eps).sqrt()")


# %% wrong moments: v without its root
#    idea: adam-divides-by-v
adamw_step = changed("((v32 / (1 - b2**t)).sqrt() + eps)", "(v32 / (1 - b2**t) + eps)")


# %% wrong moments: the decay is not multiplied by lr
#    says: the weights decay by wd, and not by lr * wd
adamw_step = changed("1 - lr * wd", "1 - wd")


# %% wrong moments: the decay comes after the update
#    says: p decays after the update
adamw_step = changed(
    "    p.mul_(1 - lr * wd)\n", "", "+ eps))\n", "+ eps))\n    p.mul_(1 - lr * wd)\n"
)


# %% wrong moments: no decay
#    says: nothing decays
adamw_step = changed("    p.mul_(1 - lr * wd)\n", "")


# %% wrong moments: the settings of the paper, whatever is passed
#    says: the settings are always the default ones
def adamw_step(p, grad, m, v, t, generator, **settings):
    ours.adamw_step(p, grad, m, v, t, generator)


# %% wrong moments: t counts from 0
#    says: t counts from 0
def adamw_step(p, grad, m, v, t, generator, **settings):
    ours.adamw_step(p, grad, m, v, t + 1, generator, **settings)


# %% wrong moments: grad is squared in place
#    says: changes grad
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad.square_()
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        old.copy_(quantize(new, BF16, rounding="stochastic", generator=generator))


# %% wrong moments: only m is corrected
#    says: v is not corrected for its start at 0
adamw_step = changed("(v32 / (1 - b2**t)).sqrt()", "v32.sqrt()")


# %% wrong moments: v takes the gradient and not its square
#    never: NameError
adamw_step = changed("(1 - b2) * grad * grad", "(1 - b2) * grad.abs()")


# %% wrong moments: sqrt of m's correction is forgotten in v, by a root over both
#    never: NameError
adamw_step = changed("1 - b2**t", "1 - b2 * t")


# %% wrong moments: torch's own optimizer
#    says: torch.optim.AdamW
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    q = nn.Parameter(p)
    optimizer = torch.optim.AdamW([q], lr=lr, betas=(b1, b2), eps=eps, weight_decay=wd)
    q.grad = grad
    optimizer.step()
