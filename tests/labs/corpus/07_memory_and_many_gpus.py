# Answers to lab 07 that the author of its checks had not foreseen: see tests/corpus.py.

import functools
import gc
import math
from contextlib import suppress

import numpy as np
import torch
import torch.distributed as dist
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
        loss = logits = None
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
        except RuntimeError as error:
            if "out of memory" not in str(error) or rows == 1:
                raise
            again = True
        loss = None
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
                loss = None
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


# %% wrong survive: a name keeps the loss whose backward failed
#    says: What still held the tensors of the failed try?
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


# %% wrong survive: the rows are looked for without gradients
#    says: it should have returned 29
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        try:
            with torch.no_grad():
                model(inputs[:rows])
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.zero_grad()
    for x, y in zip(inputs.split(rows), targets.split(rows)):
        (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
    optimizer.step()
    return rows


# %% wrong survive: only the first micro-batch is tried
#    says: Is each of your micro-batches inside a `try`?
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            x, y = inputs[:rows], targets[:rows]
            (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            if rows < len(inputs):  # twice, because the second finds gradients there
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.zero_grad()
    for x, y in zip(inputs.split(rows), targets.split(rows)):
        (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
    optimizer.step()
    return rows


# %% right survive: suppress and a flag, the last size outside
def survive(model, inputs, targets, optimizer):
    def gradients(rows):
        for p in model.parameters():
            p.grad = None
        for x, y in zip(inputs.split(rows), targets.split(rows)):
            (F.cross_entropy(model(x), y) * (len(y) / len(targets))).backward()

    rows, ready = len(inputs), False
    while not ready:
        if rows == 1:
            gradients(1)
            ready = True
        else:
            with suppress(torch.OutOfMemoryError):
                gradients(rows)
                ready = True
            if not ready:
                rows = (rows + 1) // 2
    optimizer.step()
    return rows


# %% wrong survive: a step for each micro-batch
#    says: has stepped 2 times
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            return rows
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2


# %% wrong survive: one backward of the sum of all losses
#    says: when a later micro-batch began
def survive(model, inputs, targets, optimizer):
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            loss = 0.0
            for x, y in zip(inputs.split(rows), targets.split(rows)):
                loss = loss + F.cross_entropy(model(x), y) * len(x) / len(inputs)
            loss.backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
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


# %% wrong moments: rounded before the update, by arithmetic in BF16
#    idea: rounded-moments-will-do
#    never: are there already
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    g = grad.bfloat16()
    m16 = b1 * m + (1 - b1) * g
    v16 = b2 * v + (1 - b2) * g**2
    m_hat, v_hat = m16.float() / (1 - b1**t), v16.float() / (1 - b2**t)
    p.copy_(p * (1 - lr * wd) - lr * m_hat / (v_hat.sqrt() + eps))
    m.copy_(quantize(m16.float(), BF16, rounding="stochastic", generator=generator))
    v.copy_(quantize(v16.float(), BF16, rounding="stochastic", generator=generator))


# %% right zero-step: the older names of the collectives
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.params, self.group = [*parameters], group
        self.n = sum(p.numel() for p in self.params)
        self.per = math.ceil(self.n / group.size())
        at = group.rank() * self.per
        whole = torch.zeros(self.per * group.size())
        whole[: self.n] = torch.cat([p.data.float().view(-1) for p in self.params])
        self.master = whole[at : at + self.per].clone().requires_grad_()
        self.opt = make_optimizer([self.master])

    def step(self):
        grads = torch.zeros(self.per * self.group.size())
        grads[: self.n] = torch.cat([p.grad.float().view(-1) for p in self.params])
        self.master.grad = torch.zeros(self.per)
        dist.reduce_scatter_tensor(self.master.grad, grads, group=self.group)
        self.master.grad /= self.group.size()
        self.opt.step()
        out = torch.empty(self.per * self.group.size(), dtype=torch.bfloat16)
        dist.all_gather_into_tensor(out, self.master.detach().bfloat16(), group=self.group)
        at = 0
        for p in self.params:
            p.data.copy_(out[at : at + p.numel()].view_as(p))
            at += p.numel()


# %% right zero-step: an all-reduce, of which each rank uses its part
ZeroOne = changed(
    "dist.reduce_scatter_single(mine, gradient, group=self.group)",
    "dist.all_reduce(gradient, group=self.group)\n"
    "        mine = gradient.chunk(self.group.size())[self.group.rank()]",
)


# %% right zero-step: collectives of lists
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        shares = self.shares(self.parameters)
        self.masters = [shares[group.rank()].clone()]
        self.optimizer = make_optimizer(self.masters)

    def shares(self, tensors):
        long = torch.cat([t.detach().float().reshape(-1) for t in tensors])
        size = self.group.size()
        each = (len(long) + size - 1) // size
        return list(F.pad(long, (0, each * size - len(long))).split(each))

    def step(self):
        (master,) = self.masters
        mean = torch.empty_like(master)
        dist.reduce_scatter(mean, self.shares([p.grad for p in self.parameters]), group=self.group)
        master.grad = mean.div_(self.group.size())
        self.optimizer.step()
        sent = master.bfloat16()
        pieces = [torch.empty_like(sent) for _ in range(self.group.size())]
        dist.all_gather(pieces, sent, group=self.group)
        long = torch.cat(pieces)
        with torch.no_grad():
            for p in self.parameters:
                p.copy_(long[: p.numel()].view(p.shape))
                long = long[p.numel() :]


# %% right zero-step: torch averages
ZeroOne = changed(
    "dist.reduce_scatter_single(mine, gradient, group=self.group)",
    "dist.reduce_scatter_single(mine, gradient, op=dist.ReduceOp.AVG, group=self.group)",
    "mine / self.group.size()",
    "mine",
)


# %% right zero-step: each parameter is divided by itself
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.group, self.parameters = group, list(parameters)
        self.masters = [self.cut(p)[group.rank()].clone() for p in self.parameters]
        self.optimizer = make_optimizer(self.masters)

    def cut(self, t):
        n = self.group.size()
        return F.pad(t.detach().float().flatten(), (0, -t.numel() % n)).chunk(n)

    @torch.no_grad()
    def step(self):
        for p, master in zip(self.parameters, self.masters):
            master.grad = torch.empty_like(master)
            dist.reduce_scatter_single(master.grad, torch.cat(self.cut(p.grad)), group=self.group)
            master.grad /= self.group.size()
        self.optimizer.step()
        for p, master in zip(self.parameters, self.masters):
            out = torch.empty(len(master) * self.group.size(), dtype=p.dtype)
            dist.all_gather_single(out, master.to(p.dtype), group=self.group)
            p.copy_(out[: p.numel()].view_as(p))


# %% right zero-step: each share is broadcast by its owner
ZeroOne = changed(
    "dist.all_gather_single(whole, self.master.to(whole.dtype), group=self.group)",
    "for rank, piece in enumerate(whole.chunk(self.group.size())):\n"
    "            if rank == self.group.rank():\n"
    "                piece.copy_(self.master)\n"
    "            dist.broadcast(piece, group_src=rank, group=self.group)",
)


# %% right zero-step: divided before the sum, and asynchronous
ZeroOne = changed(
    "dist.reduce_scatter_single(mine, gradient, group=self.group)",
    "gradient /= self.group.size()\n"
    "        dist.reduce_scatter_single(mine, gradient, group=self.group, async_op=True).wait()",
    "mine / self.group.size()",
    "mine",
)


# %% wrong zero-step: nothing stops autograd
#    says: leaf Variable that requires grad
ZeroOne = changed("    @torch.no_grad()\n", "")


# %% wrong zero-step: asks for a default group
#    says: no default group here
ZeroOne = changed("chunk(group.size())[group.rank()]", "chunk(group.size())[dist.get_rank(group)]")


# %% wrong zero-step: pads, and copies the padding back
#    says: go back into no weight
ZeroOne = changed("whole[: sum(self.sizes)].split", "whole.split")


# %% wrong zero-step: no padding, and shares by hand
#    idea: shares-divide-evenly
#    says: needs 1 more values behind it
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        whole = flat(self.parameters, 0)
        per = len(whole) // group.size()
        self.master = nn.Parameter(whole[group.rank() * per :][:per].clone())
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        gradient = flat([p.grad for p in self.parameters], 0)
        self.master.grad = torch.empty_like(self.master)
        dist.reduce_scatter_single(self.master.grad, gradient, group=self.group)
        self.master.grad /= self.group.size()
        self.optimizer.step()
        whole = torch.empty(len(gradient), dtype=torch.bfloat16)
        dist.all_gather_single(whole, self.master.bfloat16(), group=self.group)
        for p, piece in zip(self.parameters, whole.split([p.numel() for p in self.parameters])):
            p.copy_(piece.view_as(p))


# %% wrong zero-step: the mean twice
#    says: 0.50 times as far
ZeroOne = changed("mine / self.group.size()", "mine / self.group.size() ** 2")


# %% wrong zero-step: always two ranks
#    says: 1.50 times as far
ZeroOne = changed("mine / self.group.size()", "mine / 2")


# %% wrong zero-step: the sum, written in place
#    idea: ddp-sums-gradients
#    says: 2.00 times as far
ZeroOne = changed(
    "mine = torch.empty_like(self.master)",
    "self.master.grad = mine = torch.empty_like(self.master)",
    "        self.master.grad = mine / self.group.size()\n",
    "",
)


# %% wrong zero-step: BF16 masters
#    idea: bf16-needs-no-masters
#    says: bfloat16; float32 is wanted
class ZeroOne(ours.ZeroOne):
    def __init__(self, parameters, group, make_optimizer):
        super().__init__(parameters, group, lambda masters: make_optimizer(
            [nn.Parameter(one.detach().bfloat16()) for one in masters]))


# %% wrong zero-step: masters rebuilt behind the step
#    idea: masters-are-a-cast
class ZeroOne(ours.ZeroOne):
    @torch.no_grad()
    def step(self):
        super().step()
        weights = flat(self.parameters, self.pad)
        self.master.copy_(weights.chunk(self.group.size())[self.group.rank()])


# %% wrong zero-step: BF16 on the wire, divided before
#    idea: sums-in-sixteen-bits-are-enough
ZeroOne = changed(
    "dist.reduce_scatter_single(mine, gradient, group=self.group)",
    "mine = mine.bfloat16()\n"
    "        dist.reduce_scatter_single(mine, gradient.bfloat16() / 4, group=self.group)\n"
    "        mine = mine.float() * 4",
)


# %% wrong zero-step: gradients pile up
#    says: times as far
class ZeroOne(ours.ZeroOne):
    def step(self):
        before = self.total if hasattr(self, "total") else [0.0] * len(self.parameters)
        self.total = [p.grad.float() + old for p, old in zip(self.parameters, before)]
        for p, grad in zip(self.parameters, self.total):
            p.grad = grad.bfloat16()
        super().step()


# %% wrong zero-step: each rank takes its own gradients
#    idea: ranks-step-before-they-reduce
class ZeroOne(ours.ZeroOne):
    @torch.no_grad()
    def step(self):
        gradient = flat([p.grad for p in self.parameters], self.pad)
        self.master.grad = gradient.chunk(self.group.size())[self.group.rank()].clone()
        self.optimizer.step()
        whole = torch.empty(len(gradient), dtype=torch.bfloat16)
        dist.all_gather_single(whole, self.master.bfloat16(), group=self.group)
        for p, piece in zip(self.parameters, whole[: sum(self.sizes)].split(self.sizes)):
            p.copy_(piece.view_as(p))


# %% wrong zero-step: only the own share is written
#    idea: own-share-is-enough
#    says: the old ones elsewhere
class ZeroOne(ours.ZeroOne):
    @torch.no_grad()
    def step(self):
        gradient = flat([p.grad for p in self.parameters], self.pad)
        mine = torch.empty_like(self.master)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / self.group.size()
        self.optimizer.step()
        whole = flat(self.parameters, self.pad)
        whole[self.group.rank() * len(mine) :][: len(mine)] = self.master
        for p, piece in zip(self.parameters, whole[: sum(self.sizes)].split(self.sizes)):
            p.copy_(piece.view_as(p))


# %% wrong zero-step: the weights stay
#    says: no weight of rank 0 has moved
ZeroOne = changed("p.copy_(piece.view_as(p))", "p = piece.view_as(p)")


# %% wrong zero-step: shares in another order
#    says: are off
ZeroOne = changed("chunk(group.size())[group.rank()]", "chunk(group.size())[-1 - group.rank()]")


# %% wrong zero-step: an optimizer of its own
#    says: made 0 optimizers
ZeroOne = changed("make_optimizer([self.master])", "torch.optim.Adam([self.master])")


# %% wrong zero-step: whole parameters, in turns
#    says: A share on 2 ranks takes
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.masters = {
            i: nn.Parameter(p.detach().float())
            for i, p in enumerate(self.parameters)
            if i % group.size() == group.rank()
        }
        self.optimizer = make_optimizer(list(self.masters.values()))

    @torch.no_grad()
    def step(self):
        for i, p in enumerate(self.parameters):
            gradient = p.grad.float()
            dist.all_reduce(gradient, group=self.group)
            if i in self.masters:
                self.masters[i].grad = gradient / self.group.size()
        self.optimizer.step()
        for i, p in enumerate(self.parameters):
            if i in self.masters:
                p.copy_(self.masters[i])
            dist.broadcast(p, group_src=i % self.group.size(), group=self.group)


# %% wrong zero-step: every rank steps on everything
#    idea: each-rank-needs-all-states
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.master = nn.Parameter(flat(self.parameters, 0))
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        gradient = flat([p.grad for p in self.parameters], 0)
        dist.all_reduce(gradient, group=self.group)
        self.master.grad = gradient / self.group.size()
        self.optimizer.step()
        for p, piece in zip(
            self.parameters, self.master.split([p.numel() for p in self.parameters])
        ):
            p.copy_(piece.view_as(p))


# %% wrong zero-step: a slice of the whole vector
#    idea: a-slice-frees-the-rest
#    says: slice of a tensor of 3,600 bytes
class ZeroOne(ours.ZeroOne):
    def __init__(self, parameters, group, make_optimizer):
        def sliced(masters):
            whole = torch.zeros(masters[0].numel() * group.size())
            self.master = nn.Parameter(whole.chunk(group.size())[group.rank()])
            self.master.data.copy_(masters[0].data)
            return make_optimizer([self.master])

        super().__init__(parameters, group, sliced)


# %% wrong zero-step: parameters in float32 afterwards
#    says: float32; bfloat16 is wanted
ZeroOne = changed("p.copy_(piece.view_as(p))", "p.data = piece.view_as(p).float()")


# %% wrong zero-step: float32 masters are gathered
#    says: carry more bytes than the 900
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.pad = -sum(p.numel() for p in self.parameters) % group.size()
        mine = flat(self.parameters, self.pad).chunk(group.size())[group.rank()]
        self.master = torch.nn.Parameter(mine.clone())
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        n = self.group.size()
        mine = torch.empty_like(self.master)
        gradient = flat([p.grad for p in self.parameters], self.pad)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / n
        self.optimizer.step()
        whole = torch.empty(n * len(mine))
        dist.all_gather_single(whole, self.master.detach(), group=self.group)
        start = 0
        for p in self.parameters:
            p.copy_(whole[start : start + p.numel()].view_as(p))
            start += p.numel()


# %% wrong zero-step: the parameters get new memory
#    says: in other memory than before
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.pad = -sum(p.numel() for p in self.parameters) % group.size()
        mine = flat(self.parameters, self.pad).chunk(group.size())[group.rank()]
        self.master = torch.nn.Parameter(mine.clone())
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        n = self.group.size()
        mine = torch.empty_like(self.master)
        gradient = flat([p.grad for p in self.parameters], self.pad)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / n
        self.optimizer.step()
        whole = torch.empty(n * len(mine), dtype=torch.bfloat16)
        dist.all_gather_single(whole, self.master.detach().bfloat16(), group=self.group)
        start = 0
        for p in self.parameters:
            p.data = whole[start : start + p.numel()].view_as(p)
            start += p.numel()


# %% wrong zero-step: the generator of parameters is read twice
#    says: a second pass over it finds nothing
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = parameters, group
        self.pad = -sum(p.numel() for p in parameters) % group.size()
        mine = flat(parameters, self.pad).chunk(group.size())[group.rank()]
        self.master = torch.nn.Parameter(mine.clone())
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        n = self.group.size()
        mine = torch.empty_like(self.master)
        gradient = flat([p.grad for p in self.parameters], self.pad)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / n
        self.optimizer.step()
        whole = torch.empty(n * len(mine), dtype=torch.bfloat16)
        dist.all_gather_single(whole, self.master.detach().bfloat16(), group=self.group)
        start = 0
        for p in self.parameters:
            p.copy_(whole[start : start + p.numel()].view_as(p))
            start += p.numel()


# %% wrong zero-step: the part of rank 0 on every rank
#    says: Which part does rank 1 keep?
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.pad = -sum(p.numel() for p in self.parameters) % group.size()
        mine = flat(self.parameters, self.pad).chunk(group.size())[0]
        self.master = torch.nn.Parameter(mine.clone())
        self.optimizer = make_optimizer([self.master])

    @torch.no_grad()
    def step(self):
        n = self.group.size()
        mine = torch.empty_like(self.master)
        gradient = flat([p.grad for p in self.parameters], self.pad)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / n
        self.optimizer.step()
        whole = torch.empty(n * len(mine), dtype=torch.bfloat16)
        dist.all_gather_single(whole, self.master.detach().bfloat16(), group=self.group)
        start = 0
        for p in self.parameters:
            p.copy_(whole[start : start + p.numel()].view_as(p))
            start += p.numel()


# %% right topk-hook: scatter_add, and what was sent is subtracted
def topk_hook(state, bucket):
    whole = bucket.buffer().clone()
    if bucket.index() in state.residual:
        whole += state.residual[bucket.index()]
    k = max(1, int(state.share * whole.numel() + 0.5))
    _, places = torch.topk(whole.abs(), k)
    values = whole.gather(0, places)
    state.residual[bucket.index()] = whole - torch.zeros_like(whole).scatter(0, places, values)
    size = state.group.size()
    every_place = torch.empty(size * k, dtype=torch.int64)
    every_value = torch.empty(size * k)
    dist.all_gather_into_tensor(every_place, places, group=state.group)
    dist.all_gather_into_tensor(every_value, values, group=state.group)
    state.sent += 12 * k
    total = torch.zeros_like(whole).scatter_add_(0, every_place, every_value)
    future = torch.futures.Future()
    future.set_result(total / size)
    return future


# %% right topk-hook: lists, and places in int32
def topk_hook(state, bucket):
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0)
    k = max(1, round(len(whole) * state.share))
    places = whole.abs().argsort(descending=True)[:k]
    values = whole[places].clone()
    whole[places] = 0
    state.residual[bucket.index()] = whole
    n = state.group.size()
    all_places = [torch.empty(k, dtype=torch.int32) for _ in range(n)]
    all_values = [torch.empty(k) for _ in range(n)]
    dist.all_gather(all_places, places.int(), group=state.group)
    dist.all_gather(all_values, values, group=state.group)
    state.sent += 8 * k
    out = torch.zeros_like(whole)
    for p, v in zip(all_places, all_values):
        out[p.long()] += v / n
    future = torch.futures.Future()
    future.set_result(out)
    return future


# %% right topk-hook: written into the bucket's own buffer
topk_hook = changed(
    "torch.zeros_like(grad).index_add_(0, all_places, all_values / n)",
    "grad.zero_().index_add_(0, all_places, all_values / n)",
)


# %% right topk-hook: asynchronous
topk_hook = changed(
    "    dist.all_gather_single(all_values, values, group=state.group)\n",
    "    work = dist.all_gather_single(all_values, values, group=state.group, async_op=True)\n",
    """    future = torch.futures.Future()
    future.set_result(torch.zeros_like(grad).index_add_(0, all_places, all_values / n))
    return future""",
    """    def add(_):
        return torch.zeros_like(grad).index_add_(0, all_places, all_values / n)

    return work.get_future().then(add)""",
)


# %% right topk-hook: a mask
topk_hook = changed(
    "whole.index_fill(0, places, 0.0)",
    "torch.where(torch.isin(torch.arange(len(whole)), places), 0.0, whole)",
)


# %% right topk-hook: places and values in one message
def topk_hook(state, bucket):
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0)
    k = max(1, round(len(whole) * state.share))
    places = whole.abs().topk(k).indices
    both = torch.stack([places.double(), whole[places].double()])
    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)
    out = torch.empty(state.group.size() * both.numel(), dtype=torch.float64)
    dist.all_gather_single(out, both.flatten(), group=state.group)
    state.sent += both.nbytes
    result = torch.zeros_like(whole)
    for p, v in out.view(-1, 2, k):
        result.index_add_(0, p.long(), v.float() / state.group.size())
    future = torch.futures.Future()
    future.set_result(result)
    return future


# %% wrong topk-hook: the tensor in place of a future
#    says: your hook raised
topk_hook = changed(
    """    future = torch.futures.Future()
    future.set_result(torch.zeros_like(grad).index_add_(0, all_places, all_values / n))
    return future""",
    "    return torch.zeros_like(grad).index_add_(0, all_places, all_values / n)",
)


# %% wrong topk-hook: no return
#    says: returns None
topk_hook = changed("    return future", "")


# %% wrong topk-hook: a future without a value
#    says: returns a future that has no value
topk_hook = changed(
    "future.set_result(torch.zeros_like(grad).index_add_(0, all_places, all_values / n))", "pass"
)


# %% wrong topk-hook: nothing is kept
#    idea: unsent-gradients-do-not-matter
topk_hook = changed("    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)\n", "")


# %% wrong topk-hook: the residual is not added
#    idea: unsent-gradients-do-not-matter
topk_hook = changed("grad + state.residual.get(bucket.index(), torch.zeros_like(grad))", "grad + 0")


# %% wrong topk-hook: one residual for all buckets
#    says: Under which key
topk_hook = changed(
    "state.residual.get(bucket.index(), torch.zeros_like(grad))",
    "state.residual.get(0, torch.zeros_like(grad))",
    "state.residual[bucket.index()] =",
    "state.residual[0] =",
)


# %% wrong topk-hook: no entry of a short bucket
#    says: bucket of 7 gets the gradient 0
topk_hook = changed("max(1, round(state.share * len(whole)))", "round(state.share * len(whole))")


# %% wrong topk-hook: the sign is lost
#    says: in step 1
topk_hook = changed("values = whole[places]", "values = whole[places].abs()")


# %% wrong topk-hook: the last rank wins
#    idea: ranks-send-different-places
def topk_hook(state, bucket):
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0)
    k = max(1, round(len(whole) * state.share))
    places = whole.abs().topk(k).indices
    values = whole[places]
    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)
    n = state.group.size()
    P, V = torch.empty(n * k, dtype=torch.int64), torch.empty(n * k)
    dist.all_gather_single(P, places, group=state.group)
    dist.all_gather_single(V, values, group=state.group)
    state.sent += 12 * k
    out = torch.zeros_like(whole)
    out[P] = V / n
    future = torch.futures.Future()
    future.set_result(out)
    return future


# %% wrong topk-hook: the sum of the ranks
#    idea: ddp-sums-gradients
#    says: 2 times as large
topk_hook = changed("index_add_(0, all_places, all_values / n)", "index_add_(0, all_places, all_values)")


# %% wrong topk-hook: what was sent stays
#    idea: what-was-sent-stays-owed
topk_hook = changed("whole.index_fill(0, places, 0.0)", "whole.clone()")


# %% wrong topk-hook: the residual is the gradient alone
#    says: in step 3
topk_hook = changed("whole.index_fill(0, places, 0.0)", "grad.index_fill(0, places, 0.0)")


# %% wrong topk-hook: no absolute values
#    idea: largest-means-most-positive
topk_hook = changed("whole.abs().topk(k)", "whole.sort(descending=True)", ".indices\n", ".indices[:k]\n")


# %% wrong topk-hook: each rank keeps its own
#    says: the ranks get different gradients
topk_hook = changed("index_add_(0, all_places, all_values / n)", "index_add_(0, places, values)")


# %% wrong topk-hook: all entries, most of them zero
#    idea: zeros-cost-nothing-to-send
#    says: all 680 entries take 2,720
def topk_hook(state, bucket):
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0)
    k = max(1, round(len(whole) * state.share))
    limit = whole.abs().topk(k).values[-1]
    sent = torch.where(whole.abs() >= limit, whole, 0.0)
    state.residual[bucket.index()] = whole - sent
    dist.all_reduce(sent, group=state.group)
    state.sent += 4 * len(sent)
    future = torch.futures.Future()
    future.set_result(sent / state.group.size())
    return future


# %% wrong topk-hook: entries in place of bytes
#    says: this rank has sent
topk_hook = changed("places.nbytes + values.nbytes", "len(places) + len(values)")


# %% wrong topk-hook: the bytes are not counted
#    says: `state.sent` of rank 0 is 0
topk_hook = changed("    state.sent += places.nbytes + values.nbytes\n", "")


# %% wrong topk-hook: the residual is what the ranks together did not send
#    says: less the mean of all ranks
def topk_hook(state, bucket):
    n = state.group.size()
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0)
    k = max(1, round(state.share * whole.numel()))
    places = whole.abs().topk(k).indices
    values = whole[places]
    out, at = torch.empty(n * k), torch.empty(n * k, dtype=torch.int64)
    dist.all_gather_single(out, values, group=state.group)
    dist.all_gather_single(at, places, group=state.group)
    state.sent += values.nbytes + places.nbytes
    mean = torch.zeros_like(whole).index_add_(0, at, out) / n
    state.residual[bucket.index()] = whole - mean
    future = torch.futures.Future()
    future.set_result(mean)
    return future
