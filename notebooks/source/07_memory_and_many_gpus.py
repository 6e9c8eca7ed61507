# %% [markdown]
# # 07. Memory, and training on many GPUs
#
# You see where the bytes of a GPT-2 training step are, make it fit a card of 4 GiB instead of 16, and divide an optimizer among ranks.
#
# *any laptop · needs: labs 04 and 05*
#
# After this lab you can:
#
# - say which tensors are alive at the peak of a training step, and lower this peak;
# - write a loss in chunks, a step that recovers from an out-of-memory error, and the step of ZeRO-1.
#
# ## Sitting A: one card
#
# *You are here:* **where the bytes are** → autocast → loss in chunks → checkpointing → out of memory → *stop*

# %%
import torch, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from labkit.labs.engine import claim, predict, yours
from labkit.labs.memory_and_many_gpus import checks, predictions as guesses, solutions as ours
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.tape import tape

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("07_memory_and_many_gpus")

# %% [markdown]
# ### Where the bytes of a training step are
#
# Run a training step of GPT-2 with a head of its own: 163 million parameters, 8 texts of 1,024 tokens. Its tensors are **fake tensors**: PyTorch computes their shapes and dtypes but stores no values.
# `LiveBytes` counts the bytes of all live tensors. (A GPU adds CUDA's context, workspaces and rounding to 512 B.) Look at what each phase adds.

# %%
from torch._subclasses.fake_tensor import FakeTensorMode
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import cross_entropy, trained_gpt
from labkit.training.models import SmallGPT, mlp

GIB = 2**30
with FakeTensorMode():
    gpt2 = SmallGPT(50304, 1024, width=768, blocks=12, heads=12)
    tokens = torch.zeros(8, 1024, dtype=torch.int64)
    optimizer = torch.optim.AdamW(gpt2.parameters(), foreach=True)  # the default on a GPU
    with LiveBytes().hold(gpt2, tokens) as live:
        print(f"weights {live.now / GIB:19.2f} GiB")
        loss = cross_entropy(gpt2(tokens), tokens)
        print(f"after forward {live.now / GIB:13.2f} GiB")
        loss.backward()
        print(f"after backward {live.now / GIB:12.2f} GiB")
        optimizer.step()
        print(f"after the update {live.now / GIB:10.2f} GiB")

# %% [markdown]
# After the update 16 bytes a parameter are alive (lab 01): FP32 weights, gradients, and Adam's two moments, together 2.43 GiB. Forward added more than twice as much, because autograd keeps tensors that backward will need. The largest of these tensors, the log-probabilities, is as large as the **logits**: one number for each of 8,192 positions and 50,304 tokens of the vocabulary, 1.54 GiB in FP32.
#
# A step fits a card if its **peak** does, the most bytes that are alive at one moment. The peak lies inside a phase, so the four numbers above do not show it. It is highest from the second step on, when Adam's moments exist from the start.


# %% predict="peak-op"
@predict(guesses.peak_op)
def holds_the_peak():
    at = tape().peak_at  # the operator that runs when the most bytes are alive
    parts = {"softmax_backward": "the loss", "attention": "attention", "foreach": "the update"}
    return next((part for name, part in parts.items() if name in at), "a linear layer")


# %% [markdown]
# The peak is 10.98 GiB, in the backward of log-softmax. Beside all that the 12 blocks keep, three tensors of the logits' size are alive: the log-probabilities, the gradient that arrives, and the one that is being computed.

# %% [markdown]
# The tape shows the whole step. Look for the peak of each phase.

# %%
from labkit.labs.memory_and_many_gpus.figures import tape_picture

tape_picture(tape(), limit=8 * GIB)

# %% [markdown]
# ### What autocast saves
#
# A card of 16 GiB holds this step. Under BF16 autocast (lab 05) linear layers and attention keep BF16 tensors for backward. Weights, gradients, moments and log-softmax stay FP32, and autocast adds a BF16 copy of each linear layer's weights.


# %% predict="amp-peak"
@predict(guesses.amp_peak)
def under_autocast():
    peak = tape(StepSettings(autocast=True)).peak / GIB
    nearest = min((5.5, 8.5, 11.0), key=lambda guess: abs(guess - peak))
    return f"about {nearest:g} GiB"


# %% [markdown]
# The peak falls from 10.98 to 8.46 GiB, by 23 %: most of what is alive there is FP32. With one text, forward under autocast even keeps *more*: the copies outweigh what the activations save.

# %% [markdown]
# ### The loss in chunks
#
# A card of 8 GiB is too small, and the peak is in the loss. A loss never needs the logits of two positions together, so compute it in chunks of rows. A loop alone saves only a part: the temporary tensors of the loss and its backward are then small, but autograd keeps all log-probabilities until backward.
# `checkpoint(function, *inputs, use_reentrant=False)` runs `function` and keeps only its inputs. Backward runs `function` again, uses the tensors that it makes, and frees them.

# %% [markdown]
# ### Exercise: the loss in chunks
#
# *12 minutes, about 7 lines.* Write `chunked_loss`, the mean cross-entropy of `head(hidden)`, in chunks of rows. Torch's own `F.linear_cross_entropy` and `nn.LinearCrossEntropyLoss` do not count.
#
# - **Input:** `head`, a linear layer, FP32 or BF16, with a bias or with `bias=None`; `hidden` (N, D) of the same dtype, which may need a gradient or not; `targets` (N), −100 where a row does not count; `rows`, how many rows a chunk has.
#   N need not be a multiple of `rows` and may be smaller. All targets of a chunk may be −100, but never all targets of a call.
# - **Output:** the mean over all rows that count, a float32 scalar. Cast the logits to float32 before `cross_entropy`. The caller calls backward once and gets the gradients of the whole loss.
# - **Memory:** beside head, hidden and their gradients, at most 8 chunks of float32 logits are alive. `cross_entropy` and its backward need about 3.
# - **Example:** with weights of 0 and biases of ln 3 and 0, class 0 costs 0.2877 and class 1 costs 1.3863. With targets 0, −100, 1, 1 and `rows = 2`, the loss is (0.2877 + 2 · 1.3863) / 3 = 1.0201.


# %% exercise="chunked-loss"
def chunked_loss(head, hidden, targets, rows):
    """The mean cross-entropy of head(hidden), with the logits of `rows` rows alive at a time."""

    ### BEGIN SOLUTION
    def part(h, t):
        return F.cross_entropy(head(h).float(), t, reduction="sum")

    total = torch.zeros((), device=hidden.device)
    for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
        total = total + checkpoint(part, h, t, use_reentrant=False)
    return total / (targets != -100).sum()
    ### END SOLUTION


# %% check="chunked-loss" points=3
checks.check_chunked_loss(chunked_loss)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Chunks have different numbers of rows that count. Which quantity of a chunk can you add up, and by which number do you divide at the end?
# </details>
# <details><summary>Hint 2</summary>
#
# Write a function of one chunk that returns the sum of its losses, and give this function to `checkpoint`. Everything as large as a chunk's logits must be made inside it.
# </details>
# <details><summary>Hint 3</summary>
#
#     def part(h, t):
#         return F.cross_entropy(..., t, reduction="sum")
#
#     total = 0.0
#     for h, t in zip(hidden.split(rows), targets.split(rows)):
#         total = total + checkpoint(part, h, t, use_reentrant=False)
#     return total / ...
# </details>

# %% [markdown]
# The cell counts a small head with 64 MiB of logits: in one chunk, in 16 by a loop alone, and in 16 by your function. The last line is GPT-2's step.

# %%
in_chunks = yours(chunked_loss, ours.chunked_loss)
head = torch.nn.Linear(64, 8192)
hidden, targets = torch.randn(2048, 64, requires_grad=True), torch.randint(0, 8192, (2048,))


def loop_alone(head, hidden, targets, rows):
    parts = zip(hidden.split(rows), targets.split(rows), strict=True)
    return sum(F.cross_entropy(head(h), t, reduction="sum") for h, t in parts) / len(targets)


for loss_of, rows in (in_chunks, 2048), (loop_alone, 128), (in_chunks, 128):
    head.zero_grad()
    with LiveBytes().hold(head, hidden, targets) as live:
        loss_of(head, hidden, targets, rows).backward()
    print(f"{loss_of.__name__:12} of {rows:4} rows: peak {live.peak / 2**20:3.0f} MiB")
print(tape(StepSettings(autocast=True, loss_chunks=16)).describe())

# %% [markdown]
# The loop alone still holds 64 MiB of log-probabilities. GPT-2's peak falls to 4.97 GiB; a card of 6 GiB holds it. The price, the 9 % FLOP, is a second forward matmul with the head. Torch 2.13 has `F.linear_cross_entropy(..., options=nn.LinearCrossEntropyOptions())`; its loss has its inputs' dtype.

# %% [markdown]
# ### Activation checkpointing
#
# A checkpointed *block* keeps only its input, and backward runs its forward again. The model with checkpointed blocks must have the same gradients. Compare the bytes that a block keeps for backward, and its FLOP.


# %%
class Checkpointed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


plain, wrapped = trained_gpt(), trained_gpt()
wrapped.blocks = torch.nn.Sequential(*map(Checkpointed, wrapped.blocks))

# %%
text = torch.randint(0, 68, (8, 64), generator=torch.Generator().manual_seed(0))
for model in (plain, wrapped):
    cross_entropy(model(text), text).backward()
same = all(map(torch.equal, *([p.grad for p in m.parameters()] for m in (plain, wrapped))))
claim("both models have the same gradients, bit for bit", same)
for name, model in {"plain": plain, "checkpointed": wrapped}.items():
    with LiveBytes().hold(model) as live:
        before = live.now
        out = model.blocks[0](torch.ones(8, 64, 64, requires_grad=True))
        kept = live.now - before - out.nbytes
        out.sum().backward()
    print(f"{name:12} {kept:9,} bytes kept, {live.flop:11,} FLOP")

# %% [markdown]
# The checkpointed block keeps its input alone, for the FLOP of a second forward. With the older `use_reentrant=True`, a module's weights get no gradient if no *input* needs one; only a warning says so.
#
# The widget is the tape with its settings. Make the step fit 4 GiB with few extra FLOP. The last goal allows neither micro-batches nor moments in fewer bits. The tape does not count their price: the speed that small matmuls lose, and the precision of the moments.

# %% tags=["nbval-ignore-output"]
from labkit.labs.memory_and_many_gpus.widget_memory_tape import MemoryTape

memory_tape = MemoryTape(StepSettings(autocast=True, loss_chunks=16), limit=4 * GIB, goal=0.17)
memory_tape

# %% [markdown]
# With all blocks checkpointed and the loss in chunks, the peak is in `optimizer.step`: 3.04 GiB, 20 bytes a parameter, because `foreach` makes a temporary tensor for all parameters at once. Here `foreach=False` or `fused=True` helps.
#
# ### A step that survives an out-of-memory error
#
# A full card is **out of memory** (OOM): PyTorch raises `torch.OutOfMemoryError`. A program can catch it, halve the micro-batch and try again, as the often published form `retry_inside` does. It gets 997 rows and a card of 2 MiB, which is a `LiveBytes` with a limit. Look at the bytes in use before each try.

# %%
from contextlib import suppress


def retry_inside(model, inputs, targets, optimizer, rows):
    print(f"{rows:4} rows: {card.now / 2**20:.2f} MiB in use")
    optimizer.zero_grad()
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
            (F.cross_entropy(model(x), y) * len(x) / len(inputs)).backward()
    except torch.OutOfMemoryError:
        if rows > 1:
            return retry_inside(model, inputs, targets, optimizer, (rows + 1) // 2)
        raise
    optimizer.step()
    return rows


network, inputs, targets = mlp(*[64] * 9, 10), torch.randn(997, 64), torch.randint(0, 10, (997,))
sgd = torch.optim.SGD(network.parameters(), lr=0.1)
card = LiveBytes(2 * 2**20).hold(network, inputs, targets)
with suppress(torch.OutOfMemoryError), card:
    retry_inside(network, inputs, targets, sgd, len(inputs))

# %% [markdown]
# In the end not even one row fits, where 499 would on an empty card. While an `except` block runs, Python keeps the exception. Its traceback holds the frames of the failed forward, and their local variables hold activations. Only the end of the block frees them. `torch.cuda.empty_cache()` returns to the driver only memory that no tensor uses.

# %% [markdown]
# ### Exercise: survive an out-of-memory error
#
# *14 minutes, about 12 lines.* Write `survive`, one optimizer step over the whole batch, in micro-batches that fit the card.
#
# - **Input:** `model`, which makes logits of rows; `inputs` and `targets`, N rows and their classes; `optimizer`. Gradients from before the call do not count.
# - **Tries:** the first try takes all rows at once. After a `torch.OutOfMemoryError` the next try takes half as many a micro-batch, rounded up. The last micro-batch may be smaller. A try may fail at any micro-batch, in forward or in backward, because other processes use the card. When a try begins, nothing holds a tensor of the failed one, not even a variable `loss`.
# - **Output:** the number of rows in a micro-batch of the try that succeeds. The weights move once, as after one step with the mean cross-entropy of all rows.
# - **Errors:** if not even one row fits, the error reaches the caller and the weights stay. Any other error reaches the caller at once.
# - **Example:** of 57 rows a card has room for 8. The tries with 57, 29 and 15 rows fail. Seven micro-batches of 8 rows and one of 1 row succeed, one step follows, and the function returns 8.


# %% exercise="survive"
def survive(model, inputs, targets, optimizer):
    """One step over the whole batch; the rows of a micro-batch, halved until they fit."""
    ### BEGIN SOLUTION
    rows = len(inputs)
    while True:
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
            break
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
        rows = (rows + 1) // 2
    optimizer.step()
    return rows
    ### END SOLUTION


# %% check="survive" points=3
checks.check_survive(survive)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# When is the exception gone, and with it the frames that hold the activations? Which line of your code is the first to run after that?
# </details>
# <details><summary>Hint 2</summary>
#
# Use a loop, not a recursion. In the `except` block decide only whether to raise again. What must happen at the start of each try, if the last one had left gradients?
# </details>
# <details><summary>Hint 3</summary>
#
#     while True:
#         optimizer.zero_grad()
#         try:
#             ...  # all micro-batches, each mean times its share of the rows
#             break
#         except torch.OutOfMemoryError:
#             if rows == 1:
#                 raise
#         rows = ...
# </details>

# %% [markdown]
# ### Optional: moments in 16 bits
#
# Adam's moments are 8 of the 16 bytes a parameter. BF16 moments would save 4. But a step moves the second moment v by (1 − beta2)(grad² − v). While grad² is below 2v, this is at most 0.001 of v for the usual beta2 of 0.999. Half a gap of BF16 is 0.002 to 0.004 of the value, so rounding to nearest can stop v.

# %% [markdown]
# ### Exercise: AdamW with BF16 moments
#
# *12 minutes, optional, about 7 lines.* Write `adamw_step`, one step of AdamW that keeps its moments in BF16. `torch.optim.AdamW` and `torch.optim.Adam` do not count.
#
# - **Input:** `p` and `grad`, float32; the moments `m` and `v`, bfloat16; `t`, the number of the step, from 1; a `generator`; the settings. Entries of `grad` may be 0.
# - **AdamW:** m becomes b1·m + (1 − b1)·grad, and v becomes b2·v + (1 − b2)·grad². Then p becomes p·(1 − lr·wd) − lr·m̂ / (√v̂ + eps), with m̂ = m / (1 − b1ᵗ) and v̂ = v / (1 − b2ᵗ).
# - **Precision:** compute in float32. The update uses the new m and v before they are rounded. Then round both stochastically to BF16: `quantize(x, BF16, rounding="stochastic", generator=generator)` (lab 03) takes and returns float32. Seeded alike, two runs give the same bits.
# - **Output:** none. `p`, `m` and `v` change in place, `grad` stays.
# - **Example:** p = 1, grad = 0.5, m = v = 0, t = 1: p becomes 0.99899. Before rounding m is 0.05, and it becomes 0.0500488 in four of five cases, 0.0498047 in the others.

# %%
from labkit.formats import BF16, quantize


# %% exercise="moments"
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    """One step of AdamW, in place; p is float32, the moments m and v are bfloat16."""
    ### BEGIN SOLUTION
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        old.copy_(quantize(new, BF16, rounding="stochastic", generator=generator))
    ### END SOLUTION


# %% check="moments" points=0
checks.check_moments(adamw_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of your variables are float32, and which are BF16? How many of them does the update of p read?
# </details>
# <details><summary>Hint 2</summary>
#
# Keep two names for each moment: `m` is the caller's BF16 tensor, `m32` the new value in float32. Only the last lines write into `m`, with `copy_`.
# </details>

# %% [markdown]
# The cell lets each gradient be 1, so v should approach 1. It compares PyTorch's AdamW, whose state has the dtype of the parameter, with your step.

# %%
adam_step = yours(adamw_step, ours.adamw_step)
ones, generator = torch.ones(1000), torch.Generator().manual_seed(0)
p, m, v = torch.zeros(1000), ones.bfloat16() * 0, ones.bfloat16() * 0
for t in range(1, 1501):
    adam_step(p, ones, m, v, t, generator)
for dtype in (torch.float32, torch.bfloat16):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=dtype))
    optimizer = torch.optim.AdamW([parameter], foreach=True)
    for _ in range(1500):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    print(f"{dtype} v: {optimizer.state[parameter]['exp_avg_sq'].item():.3f}")
print(f"BF16 v, stochastic: {v.float().mean().item():.2f}")

# %% [markdown]
# Rounded to nearest, v stops at 0.5: the gap there is 0.004, and a step adds at most 0.001. With `fused=True`, which rounds once a step instead of twice, v stops at 0.25 already. Too small a v makes updates too large. With beta2 = 0.95, which many language models use, a step moves v by 5 % of its distance to 1, and v ends within 4 % of 1 without any repair.

# %% [markdown]
# *This is a good place to stop.*
#
# ## Sitting B: from one card to many
#
# *You are here:* **messages** → a sum over ranks → ZeRO → FSDP2

# %%
import copy, torch, torch.distributed as dist, torch.nn.functional as F
from labkit.labs.engine import claim, predict, yours
from labkit.labs.memory_and_many_gpus import checks, predictions as guesses, solutions as ours
from labkit.labs.memory_and_many_gpus.ranks import ranks, torchrun
from labkit.training.models import mlp

# %% [markdown]
# ### What an out-of-memory message says
#
# Because PyTorch caches freed memory, the message names three amounts: what *is free*, *is allocated by PyTorch*, and *is reserved by PyTorch but unallocated*, the cache:
#
# | message | cause | remedy |
# | --- | --- | --- |
# | allocated is near the capacity | the step is too large | sitting A |
# | reserved but unallocated exceeds the request | **fragmentation**: each free piece is too small | `PYTORCH_ALLOC_CONF=expandable_segments:True` |
# | `torch.cuda.memory_allocated()` grows from step to step | tensors are kept, as by `losses.append(loss)` | `loss.item()` |
# | little is free and little is allocated | another process uses the card | `nvidia-smi` shows it |
#
# ### Optional: remedies in their order
#
# `plan_memory` takes one remedy after the other, the cheapest first, until a step fits a budget. The cell asks for a step of the course's GPT in 10 MiB. No remedy changes the dtype of a parameter: a published function that calls `param.data.half()` when memory is short destroys the master weights.

# %%
from labkit.labs.memory_and_many_gpus.plan import plan_memory
from labkit.training import trained_gpt

texts = torch.zeros(64, 64, dtype=torch.int64)
plan_memory(10 * 2**20, trained_gpt(), (texts, texts))

# %% [markdown]
# Micro-batches add no FLOP, but small matmuls use a GPU less well. The last remedies are AdamW without `foreach` and moments in 8 bits. If nothing is enough, train fewer parameters (LoRA, lab 09), or use more cards.

# %% [markdown]
# ### A sum over ranks
#
# In **data parallel** training each process, a **rank**, has the whole model and a part of the batch. After backward, an **all-reduce** gives each rank the sum of all gradients. Here `ranks(work, n)` calls `work(group)` in n threads, which use `torch.distributed` as n processes do.


# %%
def add_up(group):
    mine = torch.tensor([1.0, group.rank()])
    dist.all_reduce(mine, group=group)
    return mine.tolist()


ranks(add_up, 4)

# %% [markdown]
# In a **ring** all-reduce, partial sums go from rank to rank, and each rank adds its value. BF16 halves the bytes, but each addition rounds to 8 significant bits.


# %%
def ring_sum(values, dtype):
    """The sum of one number of each rank, in the order of the ring."""
    total, *rest = torch.tensor(values, dtype=dtype)
    for one in rest:
        total = total + one  # rounded to dtype
    return total.item()


# %% predict="eight-ranks"
@predict(guesses.eight_ranks)
def in_bf16():
    places = ([256.0 if rank == place else 1.0 for rank in range(8)] for place in range(8))
    sums = {ring_sum(values, torch.bfloat16) for values in places}
    return "it depends on which rank holds 256" if len(sums) > 1 else f"{sums.pop():.0f}"


# %% [markdown]
# Above 256 the gap of BF16 is 2, so 256 + 1 rounds back to 256. If rank 0 holds the 256, all ones are lost. If rank 7 holds it, the ones are added first, and 7 + 256 rounds to 264.

# %% [markdown]
# All ranks still receive the same sum, bit for bit. In FP16 the *range* is the danger. Training needs the mean, and one can divide last or first.

# %%
for values in ([40000.0] * 2, [2.0**-24] * 4):
    n = len(values)
    last = ring_sum(values, torch.float16) / n
    first = ring_sum([value / n for value in values], torch.float16)
    print(f"mean of {n} times {values[0]:g}: {last:g} divided last, {first:g} first")

# %% [markdown]
# Divided last, a sum can overflow; divided first, small gradients become 0. So add up gradients in FP32 where the network is fast enough, else in BF16.
#
# ### Optional: send less
#
# `DistributedDataParallel` (DDP) collects gradients in **buckets** and adds up each bucket by an all-reduce. `register_comm_hook(state, hook)` replaces the all-reduce by your function. A hook that casts to BF16 halves the bytes. **Top-k** sends only the k values of largest magnitude of each rank and their places, 12 bytes for each of them instead of 4 bytes for every value. What a rank did not send it keeps in a **residual** and adds to its next gradient. This is **error feedback**: without it, a weight whose gradient is never among the largest never moves.

# %% [markdown]
# ### Exercise: top-k with error feedback
#
# *16 minutes, optional, about 13 lines.* Write `topk_hook`, a communication hook for DDP that sends the largest entries and keeps the rest.
#
# - **Input:** `bucket.buffer()`, this rank's gradient, a flat float32 tensor; `bucket.index()`, the bucket's number: a model may have several. `state` has `group`, `share`, `residual` (a dict, empty at first) and `sent` (a count of bytes).
# - **Choice:** add the bucket's residual, kept under its number, to the gradient. Of the sum send the k values of largest magnitude: k = share · length, rounded, at least 1. What is not sent is the new residual.
# - **Sending:** `dist.all_gather_single(out, mine, group=state.group)` writes the ranks' tensors one after the other into `out`. Gather values and places. If ranks choose the same place, all their values count. Add to `state.sent` the number of bytes that this rank sends, at most 16 for each chosen value.
# - **Output:** a `torch.futures.Future()` that is finished (`set_result`): the sum over the ranks, divided by their number.
# - **Example:** two ranks, share 1/3, gradients (3, 0, 1) and (0, −2, 1). Both get (1.5, −1, 0), and both residuals are (0, 0, 1).


# %% exercise="topk-hook"
def topk_hook(state, bucket):
    """A future of the bucket's averaged gradient, of which each rank sends its largest entries."""
    ### BEGIN SOLUTION
    grad, n = bucket.buffer(), state.group.size()
    whole = grad + state.residual.get(bucket.index(), torch.zeros_like(grad))
    k = max(1, round(state.share * len(whole)))
    places = whole.abs().topk(k).indices
    values = whole[places]
    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)
    all_places = torch.empty(n * k, dtype=places.dtype)
    all_values = torch.empty(n * k, dtype=values.dtype)
    dist.all_gather_single(all_places, places, group=state.group)
    dist.all_gather_single(all_values, values, group=state.group)
    state.sent += places.nbytes + values.nbytes
    future = torch.futures.Future()
    future.set_result(torch.zeros_like(grad).index_add_(0, all_places, all_values / n))
    return future
    ### END SOLUTION


# %% check="topk-hook" points=0
checks.check_topk_hook(topk_hook)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two ranks send different places. How does one rank learn which places the values of another rank belong to?
# </details>
# <details><summary>Hint 2</summary>
#
# `whole.abs().topk(k).indices` are the places, `whole[places]` the values with their signs. Gather both into tensors of n · k entries. Which method of a zero tensor adds values at places, and adds twice where a place comes twice?
# </details>

# %% [markdown]
# The cell trains a digit reader with DDP on two ranks, and sends all values or 1 % of them. DDP forms its buckets anew after the first step, so the residuals of the first step belong to no later bucket, and the loop drops them.

# %% tags=["nbval-ignore-output"]
from types import SimpleNamespace
from torch.nn.parallel import DistributedDataParallel
from labkit.training.data import digits

send, data = yours(topk_hook, ours.topk_hook), digits()


def epochs(group, models, share):
    state = SimpleNamespace(group=group, share=share, residual={}, sent=0)
    model = DistributedDataParallel(models[group.rank()], process_group=group)
    model.register_comm_hook(state, send)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(60):
        if step == 1:
            state.residual.clear()
        rows = slice(32 * (2 * step + group.rank()) % 1408, None)
        x, y = data.train_images[rows][:32], data.train_labels[rows][:32]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return state.sent / 60, loss.item()


# %% tags=["nbval-ignore-output"]
for share in (1.0, 0.01):
    torch.manual_seed(0)
    reader = mlp(64, 64, 10)
    sent, loss = ranks(epochs, 2, [copy.deepcopy(reader) for _ in range(2)], share)[0]
    print(f"{share:4.0%} of the values: {sent:6,.0f} B a step and rank, last loss {loss:.2f}")

# %% [markdown]
# Sending every value with its place costs more than an all-reduce, 12 bytes instead of 4, so top-k pays only below a third of the values. That is the limit for two ranks. With n ranks it is 2 / (3n), because an all-gather carries every rank's values to every other rank, while a ring all-reduce sends at most 8 bytes a value. At 1 % the loss falls more slowly: with feedback, what is not sent is late, but not lost.

# %% [markdown]
# ### ZeRO: one optimizer in n parts
#
# A BF16 model needs 16 bytes a parameter: 2 each for weights and gradients, 12 for FP32 masters (lab 04) and Adam's two moments. In data parallel training each rank keeps all of them and makes the same update:


# %%
class AllMasters:
    """Data parallel: each rank has the float32 masters and states of all parameters."""

    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in self.parameters]
        self.optimizer = make_optimizer(self.masters)

    @torch.no_grad()
    def step(self):
        for p, master in zip(self.parameters, self.masters, strict=True):
            master.grad = p.grad.float()
            dist.all_reduce(master.grad, group=self.group)
            master.grad /= self.group.size()
        self.optimizer.step()
        for p, master in zip(self.parameters, self.masters, strict=True):
            p.copy_(master)


# %% [markdown]
# **ZeRO** (*zero redundancy optimizer*) keeps each master and each moment on one rank only. In stage 1 each of n ranks has those of one n-th of the parameters, its **shard**. Two collectives, **reduce-scatter** and **all-gather**, replace the all-reduce:
#
# - `dist.reduce_scatter_single(mine, whole, group=group)` adds up `whole` over the ranks and writes the rank's own n-th of the sum into `mine`; from this sum each rank updates its shard.
# - `dist.all_gather_single(whole, mine, group=group)` writes the shards of all ranks, in the order of the ranks, into `whole`.
#
# In one dtype they send as many bytes as a ring all-reduce. Stage 2 divides the gradients, too, and stage 3 the weights. The cell counts these bytes of a rank, without activations, for 7 billion parameters on 64 ranks.

# %%
from labkit.labs.memory_and_many_gpus.sharding import zero_bytes

for stage in range(4):
    print(f"stage {stage}: {zero_bytes(7_000_000_000, 64, stage) / 2**30:6.1f} GiB a rank")

# %% [markdown]
# ### Exercise: the step of ZeRO-1
#
# *18 minutes, about 14 lines.* Write `ZeroOne`, an optimizer that keeps one n-th of the float32 masters and states on each of n ranks. PyTorch's `ZeroRedundancyOptimizer` and `fully_shard` do not count.
#
# - **`__init__`:** `parameters`, an iterator of BF16 tensors like `model.parameters()`, alike on all ranks; `group`, not the default group, with `rank()` and `size()`; `make_optimizer`, which makes Adam, SGD or another elementwise optimizer of a list of parameters.
#   Join all parameters into one float32 vector, and pad it with zeros to a multiple of n. Cut it into n equal shards; rank r (from 0) keeps shard r as a single master. A slice keeps the whole vector's memory alive, a clone does not.
# - **`step()`:** average the gradients, which every parameter has, in float32 over the ranks. Update this rank's master. Then gather the masters in BF16 and write them into the parameters, in place. Masters are never made again from the BF16 weights.
# - **Result:** on 2, 3 or 4 ranks the weights are those of `AllMasters`.
# - **Example:** 901 parameters on 2 ranks: a padding of 1, 451 masters a rank.


# %%
def flat(tensors, pad):
    """All tensors as one float32 vector, followed by `pad` zeros."""
    return F.pad(torch.cat([tensor.detach().float().flatten() for tensor in tensors]), (0, pad))


# %% exercise="zero-step"
class ZeroOne:
    """An optimizer whose float32 masters and states are divided among the ranks of a group."""

    def __init__(self, parameters, group, make_optimizer):
        ### BEGIN SOLUTION
        self.parameters, self.group = list(parameters), group
        self.sizes = [p.numel() for p in self.parameters]
        self.pad = -sum(self.sizes) % group.size()
        share = flat(self.parameters, self.pad).chunk(group.size())[group.rank()]
        self.master = torch.nn.Parameter(share.clone())
        self.optimizer = make_optimizer([self.master])
        ### END SOLUTION

    @torch.no_grad()
    def step(self):
        ### BEGIN SOLUTION
        gradient = flat([p.grad for p in self.parameters], self.pad)
        mine = torch.empty_like(self.master)
        dist.reduce_scatter_single(mine, gradient, group=self.group)
        self.master.grad = mine / self.group.size()
        self.optimizer.step()
        whole = torch.empty(len(gradient), dtype=self.parameters[0].dtype)
        dist.all_gather_single(whole, self.master.to(whole.dtype), group=self.group)
        pieces = whole[: sum(self.sizes)].split(self.sizes)
        for p, piece in zip(self.parameters, pieces, strict=True):
            p.copy_(piece.view_as(p))
        ### END SOLUTION


# %% check="zero-step" points=3
checks.check_zero_step(ZeroOne)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the vectors have the full length on each rank, and which have one n-th of it? In which dtype is each?
# </details>
# <details><summary>Hint 2</summary>
#
# `flat(tensors, pad).chunk(group.size())[group.rank()]` is this rank's part. Keep a clone of it as `torch.nn.Parameter`, and give its `.grad` a float32 tensor of the same length in each step.
# </details>
# <details><summary>Hint 3</summary>
#
#     mine = torch.empty_like(self.master)
#     dist.reduce_scatter_single(mine, flat([p.grad for p in ...], self.pad), group=self.group)
#     self.master.grad = ...
#     self.optimizer.step()
#     whole = torch.empty(..., dtype=torch.bfloat16)
#     dist.all_gather_single(whole, ..., group=self.group)
# </details>

# %% [markdown]
# The cell trains a small network with `AllMasters`, then with your class, in two processes that `torchrun` starts. They talk over gloo, PyTorch's backend for CPUs.

# %% tags=["nbval-ignore-output"]
zero = yours(ZeroOne, ours.ZeroOne)


def five_steps(group, stepper):
    torch.manual_seed(0)
    network = mlp(16, 33, 10).bfloat16()
    masters = stepper(network.parameters(), group, lambda some: torch.optim.Adam(some, lr=0.01))
    x = torch.randn(5, group.size(), 8, 16).bfloat16()
    y = torch.randint(0, 10, (5, group.size(), 8))
    for step in range(5):
        logits = network(x[step, group.rank()]).float()
        F.cross_entropy(logits, y[step, group.rank()]).backward()
        masters.step()
        network.zero_grad()
    return flat(network.parameters(), 0)


def both(group):
    return five_steps(group, AllMasters), five_steps(group, zero)


for rank, (all_masters, shards) in enumerate(torchrun(both)):
    claim(f"rank {rank} ends with the same weights, bit for bit", torch.equal(all_masters, shards))

# %% [markdown]
# ZeRO-1 computes the same update as data parallel training, and only divides the work among the ranks.
#
# ### What FSDP2 stores and what it adds up
#
# PyTorch's stage 3 is `fully_shard` (FSDP2). In its `MixedPrecisionPolicy`, layers compute in `param_dtype`, and gradients are added up in `reduce_dtype`. The optimizer updates FP32 shards, so `grad.dtype` is float32. Four policies were recorded in two processes. The last column counts gradient values that are BF16 numbers.

# %%
from labkit.labs.memory_and_many_gpus.recorded import policies_table

policies_table()

# %% [markdown]
# With `param_dtype=torch.bfloat16` alone, every gradient is a BF16 number in a float32 tensor, because gradients are added up in BF16, too. `reduce_dtype=torch.float32` keeps the sum's bits. (Many sums of two BF16 numbers are BF16 numbers by chance, so the share is not 0 %.)
#
# With gradient accumulation, `set_requires_gradient_sync(False)` leaves out the reduction until the last micro-batch. Until then each rank keeps the gradients of *all* parameters in `reduce_dtype`: on N ranks N times the bytes of its shard. FSDP1 calls this `no_sync`.
#
# ### Optional: layers gathered when they are needed
#
# In stage 3 a rank gathers a layer's weights before it runs the layer, in forward and again in backward. If memory is left, some layers may stay in a cache. `Pool` is one: it holds at most `limit` bytes, and evicts the tensor that was not used for the longest time. The cell runs 24 layers with room for 12.

# %%
from labkit.labs.memory_and_many_gpus.pool import Pool


def gathers(order, room):
    """How often a layer of 1,000 BF16 weights is gathered, if `room` layers may stay."""
    pool, count = Pool(room * 2000), 0
    for layer in order:
        if layer in pool:
            pool.get(layer)  # the layer is now the most recently used
        else:
            pool.put(layer, (1000,), torch.bfloat16)
            count += 1
    return count


forward, backward = list(range(24)), list(range(23, -1, -1))
print("forward and backward:", gathers(forward + backward, room=12), "gathers instead of 48")
print("forward twice:", gathers(forward + forward, room=12), "gathers instead of 48")

# %% [markdown]
# Backward starts with the layers that forward used last, and they are still there. A model that only runs forward gains nothing: when it starts again with layer 0, only the last 12 layers are there, and each gather evicts the one that is needed soonest. In FSDP2 `reshard_after_forward` decides whether layers stay.
#
# ### Optional: one layer on several ranks
#
# If one layer is too large for a card, **tensor parallel** training divides its matrices. The first matrix of a feed-forward block is divided by its output features, the second by its input features (*column* and *row parallel* in the papers). Each rank then computes one summand of the block's output, and one all-reduce adds them up.

# %%
from labkit.labs.memory_and_many_gpus.sharding import column_row, coordinates

generator = torch.Generator().manual_seed(0)
shapes = (32, 64), (256, 64), (64, 256)
x, up, down = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
one, two = (ranks(column_row, size, x, up / 8, down / 16) for size in (1, 2))
claim("both ranks have the same output", torch.equal(*two))
claim("not all of its bits are those of one rank", not torch.equal(one[0], two[0]))
print(coordinates(13, dp=2, pp=2, tp=4, world=16))

# %% [markdown]
# In BF16 the result differs from that of one rank, because each rank rounds its summand before the summands are added. Large runs combine data parallel, tensor parallel, and **pipeline parallel** training, where ranks hold different layers. The ranks then form a **mesh** with one axis for each way. `coordinates` gives a rank's place in it: rank 13 of 16 is in replica 1 and pipeline stage 1, and computes part 1 of its layers (all counted from 0).
#
# ### Say it
#
# Say an answer aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("07_memory_and_many_gpus")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Rajbhandari et al., *ZeRO*, arXiv:1910.02054. Chen et al., arXiv:1604.06174 (checkpointing). Lin et al., *Deep gradient compression*, arXiv:1712.01887. Zhao et al., *PyTorch FSDP*, arXiv:2304.11277. Shoeybi et al., *Megatron-LM*, arXiv:1909.08053. PyTorch 2.13: `torch.utils.checkpoint`, FAQ *My out of memory exception handler can't allocate memory*, *CUDA semantics*.
#
# **Next.** [Lab 08: FP8 and FP4](08_fp8_and_fp4.ipynb).
