# %% [markdown]
# # 07. Memory, and training on many GPUs
#
# You count where the bytes of a GPT-2 training step are, make the step fit a card of 4 GiB instead of 16, and divide an optimizer among several ranks.
#
# *any laptop · needs: labs 04 and 05*
#
# After this lab you can:
#
# - say which tensors stand at the peak of a training step, and which remedy lowers this peak;
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
from labkit.labs.memory_and_many_gpus.tape import Settings, tape

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("07_memory_and_many_gpus")

# %% [markdown]
# ### Where the bytes of a training step are
#
# Run one training step of GPT-2: 163 million parameters, 8 texts of 1,024 tokens. Your laptop needs no memory for it, because the tensors are **fake**: PyTorch computes their shapes and dtypes, but stores no values.
# `Card` counts the bytes of all tensors that are alive at the same time, as a GPU's allocator would. A GPU adds its own context, workspaces, and rounding to 512 B.

# %%
from torch._subclasses.fake_tensor import FakeTensorMode
from labkit.measuring.card import Card
from labkit.training import cross_entropy
from labkit.training.models import SmallGPT

GIB = 2**30
with FakeTensorMode():
    gpt2 = SmallGPT(50304, 1024, width=768, blocks=12, heads=12)
    tokens = torch.zeros(8, 1024, dtype=torch.int64)
    optimizer = torch.optim.AdamW(gpt2.parameters(), foreach=True)  # a GPU's default
    with Card().hold(gpt2, tokens) as card:
        print(f"weights {card.now / GIB:19.2f} GiB")
        loss = cross_entropy(gpt2(tokens), tokens)
        print(f"after forward {card.now / GIB:13.2f} GiB")
        loss.backward()
        print(f"after backward {card.now / GIB:12.2f} GiB")
        optimizer.step()
        optimizer.zero_grad()
        print(f"after the step {card.now / GIB:12.2f} GiB")

# %% [markdown]
# FP32 weights take 4 bytes a parameter, gradients 4, Adam's two moments 8: 16 bytes a parameter while a step updates the weights, 2.43 GiB here. Forward adds more than twice as much: autograd keeps the inputs of each operator that backward needs. The last of them are the **logits**, one number for each of 8,192 positions and 50,304 tokens: 1.54 GiB in FP32.
#
# A step fits a card if its **peak** does, the largest sum of bytes alive at one moment. The printed numbers are those between the phases; the peak lies inside one.

# %% predict="peak-op"
@predict(guesses.peak_op)
def holds_the_peak():
    at = tape().peak_at  # the operator that ran when most bytes were alive
    parts = {"softmax_backward": "the loss", "attention": "attention", "foreach": "the update"}
    return next((part for name, part in parts.items() if name in at), "a linear layer")


# %% [markdown]
# The peak is 10.98 GiB, in the backward of log-softmax. Three tensors of the logits' size stand there at the same time: the log-probabilities that forward kept, the gradient that arrives, and the gradient that leaves.

# %% [markdown]
# The tape shows the whole step, operator by operator. Look for the three hills: forward and backward of the blocks, the loss at the top, and the optimizer's update at the end.

# %%
from labkit.labs.memory_and_many_gpus.figures import tape_picture

tape_picture(tape(), limit=16 * GIB)

# %% [markdown]
# ### What autocast saves
#
# A card of 16 GiB holds this step, one of 8 GiB does not. Under BF16 autocast (lab 05) linear layers and attention keep 16-bit tensors for backward. The weights, gradients and moments stay FP32, log-softmax runs in FP32, and each weight gets a 16-bit copy.


# %% predict="amp-peak"
@predict(guesses.amp_peak)
def under_autocast():
    peak = tape(Settings(autocast=True)).peak / GIB
    return min((5.5, 8.5, 11.0), key=lambda guess: abs(guess - peak))


# %% [markdown]
# The peak falls from 10.98 to 8.46 GiB, by 23 %: the logits, which stand there three times, are hardly smaller. A card of 8 GiB still does not hold the step. With one text instead of eight, autocast even keeps *more*, because the 16-bit copies of the weights outweigh the smaller activations.

# %% [markdown]
# ### The loss in chunks
#
# The loss needs all logits of one position, but never those of two positions together. So compute it for a few rows at a time, and forget each chunk's logits at once. A loop alone does not forget: autograd keeps each chunk's tensors until backward.
# `checkpoint(function, *inputs, use_reentrant=False)` runs `function` and keeps only its inputs; backward runs the function again and then has what it needs.

# %% [markdown]
# ### Exercise: the loss in chunks
#
# *12 minutes, about 7 lines.* Write `chunked_loss`, the mean cross-entropy of `head(hidden)`, with the logits of a few rows alive at a time.
#
# - **Input:** `head`, a linear layer; `hidden` (N, D), FP32 or BF16; `targets` (N), −100 where a row does not count; `rows`, the rows of a chunk.
# - **Output:** the mean over all rows that count, a float32 scalar with a gradient.


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
# The cell applies your function to GPT-2's head, and to the whole step.

# %%
in_chunks = yours(chunked_loss, ours.chunked_loss)
with FakeTensorMode():
    head = torch.nn.Linear(768, 50304)
    hidden, targets = torch.zeros(8192, 768, requires_grad=True), torch.zeros(8192).long()
    for rows in (8192, 512):
        with Card().hold(head, hidden, targets) as card:
            in_chunks(head, hidden, targets, rows).backward()
        print(f"chunks of {rows} rows: peak {card.peak / GIB:.2f} GiB")
print(tape(Settings(autocast=True, loss_chunks=16)).describe())

# %% [markdown]
# With the loss in 16 chunks the peak of the step falls to 4.97 GiB: cards of 8 and of 6 GiB hold it. Since torch 2.13 `F.linear_cross_entropy` does the same in one call; in BF16 its loss is BF16, too.

# %% [markdown]
# ### Activation checkpointing
#
# The peak now lies where the blocks' activations are. Checkpointing a whole block keeps only the block's input and runs its forward twice.

# %%
from labkit.labs.memory_and_many_gpus.checkpointed import Checkpointed

# %% [markdown]
# The widget is the tape with its settings. Fit the step into 4 GiB, with as few extra FLOP as you can.

# %% tags=["nbval-ignore-output"]
from labkit.labs.memory_and_many_gpus.widget_memory_tape import MemoryTape

memory_tape = MemoryTape(Settings(autocast=True), limit=4 * GIB, goal=4 * GIB)
memory_tape

# %% [markdown]
# ### A step that survives an out-of-memory error
#
# When a card is full, PyTorch raises `torch.OutOfMemoryError`. Halving the batch and trying again is the usual answer. The cell shows a published form, on a card of 2 MiB.

# %%
def retry_inside(model, inputs, targets, optimizer, rows=None):
    """A step in micro-batches; tries again from inside the except block."""
    rows = rows or len(inputs)
    optimizer.zero_grad()
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
            (F.cross_entropy(model(x), y) * len(x) / len(inputs)).backward()
    except torch.OutOfMemoryError as error:
        print(f"{rows:4} rows: {error}")
        if rows == 1:
            raise
        return retry_inside(model, inputs, targets, optimizer, (rows + 1) // 2)
    optimizer.step()
    return rows


# %% [markdown]
# ### Exercise: survive an out-of-memory error
#
# *13 minutes, about 12 lines.* Write `survive`, one step over the whole batch in micro-batches that fit.
#
# - **Input:** `model`, `inputs`, `targets`, `optimizer`.
# - **Output:** the rows of a micro-batch that fit.


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
# ### What an out-of-memory message says
#
# ### The order of the remedies
#
# `plan_memory` asks which measures a budget needs, the cheapest first. It never changes a parameter's dtype.

# %%
from labkit.labs.memory_and_many_gpus.plan import plan_memory

# %% [markdown]
# ### Optional: moments in 16 bits
#
# Adam's moments are half of the 16 bytes a parameter.

# %% [markdown]
# ### Exercise: AdamW with BF16 moments
#
# *9 minutes, optional, about 6 lines.* Write `adamw_step`, one step of AdamW with its moments in BF16.


# %%
def stochastic(x, generator):
    """float32 rounded to BF16, up or down at random: on average exact."""
    noise = torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32)
    return ((x.view(torch.int32) + noise) & -65536).view(torch.float32).bfloat16()


# %% exercise="moments"
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    """One step of AdamW, in place; p is float32, the moments m and v are bfloat16."""
    ### BEGIN SOLUTION
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    m.copy_(stochastic(m32, generator))
    v.copy_(stochastic(v32, generator))
    ### END SOLUTION


# %% check="moments" points=0
checks.check_moments(adamw_step)

# %% [markdown]
# *This is a good place to stop.*
#
# ## Sitting B: many cards
#
# *You are here:* **a sum over ranks** → ZeRO → FSDP2 → gathered layers → a divided layer

# %%
import torch, torch.distributed as dist, torch.nn.functional as F
from labkit.labs.engine import claim, predict, yours
from labkit.labs.memory_and_many_gpus import checks, predictions as guesses, solutions as ours
from labkit.labs.memory_and_many_gpus.communication import ring
from labkit.labs.memory_and_many_gpus.ranks import ranks, torchrun

# %% [markdown]
# ### A sum over ranks
#
# In **data parallel** training each process, a **rank**, has a copy of the model and a part of the batch. After backward an **all-reduce** adds up the gradients of all ranks and gives each rank the sum.

# %% predict="eight-ranks"
@predict(guesses.eight_ranks)
def in_bf16():
    sums = set()
    for place in range(8):
        values = [256.0 if rank == place else 1.0 for rank in range(8)]
        sums.add(ring(values, torch.bfloat16))
    return "it depends on the rank" if len(sums) > 1 else str(sums.pop())


# %% [markdown]
# BF16 has a gap of 2 at 256.

# %% [markdown]
# ### Optional: send less
#
# `DistributedDataParallel` (DDP) lets you replace its all-reduce by a **communication hook**.

# %% [markdown]
# ### Exercise: top-k with error feedback
#
# *14 minutes, optional, about 13 lines.* Write `topk_hook`, a communication hook for DDP that sends the largest entries.


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
# ### ZeRO: one optimizer in n parts
#
# In data parallel training each rank keeps the same FP32 masters and moments. **ZeRO** (*zero redundancy optimizer*) stage 1 gives each rank one n-th of them.

# %% [markdown]
# ### Exercise: the step of ZeRO-1
#
# *16 minutes, about 14 lines.* Write `ZeroOne`, an optimizer of which each rank keeps one part.
#
# - **`__init__`:** `parameters`, BF16 and alike on all ranks; `group`; `make_optimizer`, which makes an optimizer of a list of parameters.
# - **`step()`:** averages the gradients over the ranks, updates this rank's FP32 share, and gives each rank all new weights.


# %%
def flat(tensors, pad):
    """All tensors as one float32 vector, with `pad` zeros behind."""
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
# ### What FSDP2 stores and what it adds up
#
# ### Layers gathered when they are needed
#
# ### One layer on several ranks
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

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
