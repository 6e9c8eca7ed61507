# %% [markdown]
# # 5. Automatic mixed precision
#
# Turn on mixed precision for a small GPT: first BF16, then FP16, then everything else that a real training loop needs.
#
# *any laptop, or a GPU · needs: labs 03 and 04, above all the loss scale*
#
# After this lab you can:
#
# - say of any value in a training step which dtype it has, and why;
# - write a loop for FP32, BF16 and FP16, with clipping, accumulation, checkpoints and a guard against bad batches;
# - see what is wrong with somebody else's loop.
#
# Both sittings train the course's GPT: two transformer blocks, 112,964 parameters, one character at a time.

# %% [markdown]
# ## Sitting A: turn it on
#
# *You are here:* **BF16 in one line** → a block → the lists → an FP32 island → the weight cache → FP16 → *stop*

# %%
import time, torch, torch.nn as nn, torch.nn.functional as F, warnings
import pandas as pd
from labkit.labs.automatic_mixed_precision import predictions as guesses, solutions as ours
from labkit.labs.automatic_mixed_precision.checks import amp_loops, op_lists as amp
from labkit.labs.engine import predict, whose, yours
from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.lists import LOW, WIDE
from labkit.labs.automatic_mixed_precision.runs import gpt_batches, loss_curves

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("05_automatic_mixed_precision")

# %% [markdown]
# ### BF16 in one line
#
# This is one training step of the GPT. The only line for mixed precision is the `with` line: inside the block,
# **autocast** runs matmuls with BF16 inputs. The weights stay FP32, and nobody calls `.bfloat16()` or `.half()`. On a CPU,
# `emulate_gpu()` makes autocast follow a GPU's rules.

# %%
from labkit.measuring.efficiency import work_and_memory
from labkit.training import cross_entropy, trained_gpt
from labkit.training.models import SmallGPT

device = "cuda" if torch.cuda.is_available() else "cpu"


def one_step(model, tokens, following, optimizer, dtype):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
        loss = cross_entropy(model(tokens), following)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% [markdown]
# The next cell trains 25 steps in FP32 and in BF16, from the same weights and on the same batches. Compare the two curves.

# %% tags=["nbval-ignore-output"]
losses, rows, batches = {}, {}, gpt_batches(25, device)
for name, dtype in {"FP32": torch.float32, "BF16": torch.bfloat16}.items():
    torch.manual_seed(0)
    model = SmallGPT(68, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with emulate_gpu():
        losses[name] = [one_step(model, *batches[0], optimizer, dtype)]  # warms up, not timed
        begin = time.perf_counter()
        losses[name] += [one_step(model, *batch, optimizer, dtype) for batch in batches[1:]]
        seconds = (time.perf_counter() - begin) / 24
    kept = work_and_memory(model, batches[0], precision=name.lower(), device=device)[1]
    weights = sum(p.nbytes for p in model.parameters())
    rows[name] = [1000 * seconds, weights / 2**20, kept / 2**20]
loss_curves(losses, provenance="Measured on a GPU; on a CPU, the dtypes of a GPU are emulated.")

# %% [markdown]
# The curves lie on each other: BF16 trains as FP32 does. The table shows what it saves.

# %% tags=["nbval-ignore-output"]
columns = ["ms a step", "MiB of weights", "MiB kept for backward"]
pd.DataFrame(rows, columns).T.round(2)

# %% [markdown]
# Autocast saves no weight memory, because the weights stay FP32. It saves about a third of what forward keeps for
# backward, because many of those tensors are now 16-bit. Read the step time on a GPU only: a GPU's matrix units multiply
# 16-bit inputs faster, while on a CPU BF16 is emulated and slower.

# %% [markdown]
# ### The dtypes of a block
#
# Walk through a step of one transformer block with **next**. Stop at the first diamond, at the `+`, and at the first
# weight gradient.

# %% tags=["nbval-ignore-output"]
from labkit.labs.automatic_mixed_precision.dtype_map import record_block
from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap

kinds = {"FP16": torch.float16, "BF16": torch.bfloat16, "FP32": torch.float32}
DtypeMap({name: record_block(dtype, device) for name, dtype in kinds.items()})

# %% [markdown]
# - The optimizer owns FP32 weights. A linear layer multiplies with a 16-bit copy, which autocast makes.
# - The **residual stream** stays FP32 in this GPT. The embedding gives FP32, and FP32 plus FP16 is FP32.
# - Backward runs in the dtypes of forward. A linear layer's weight gradient is therefore *computed in 16 bits*, and only
#   then cast to FP32 and stored in `.grad`.
#
# The last point answers a common question: why scale the loss if `.grad` is FP32? What underflowed in the FP16 matmul is 0, and the cast to
# FP32 does not bring it back. Large runs divide the loss by about a million tokens, which makes each token's
# gradient small. The next cell imitates that with the course's trained GPT: `cross_entropy` divides by its 512 tokens, and the cell by 2000 more.

# %%
gpt = trained_gpt().to(device)
tokens, following = gpt_batches(1, device)[0]


def gradients(dtype, scale=1.0):
    gpt.zero_grad()
    with emulate_gpu():
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            loss = cross_entropy(gpt(tokens), following) / 2000
        (scale * loss).backward()
    return torch.cat([p.grad.flatten() for p in gpt.parameters() if p.grad.dim() == 2])


exact = gradients(torch.float32)
shares = {}
for name, dtype, scale in [("FP16", torch.float16, 1.0), ("FP16, scale 65536", torch.float16, 65536.0),
                           ("BF16", torch.bfloat16, 1.0)]:  # fmt: skip
    lost = (gradients(dtype, scale) == 0) & (exact != 0)
    shares[name] = [f"{lost.sum() / (exact != 0).sum():.0%}"]
pd.DataFrame(shares, ["weight gradients lost"]).T

# %% [markdown]
# Without a scale, FP16 loses a part of the gradients. BF16 has the range of FP32 and needs no scale. BF16 is therefore the
# default of 2026, and FP16 is for GPUs without fast BF16, such as T4 and V100.

# %% [markdown]
# ### Which functions run in 16 bits
#
# Autocast never looks at your values. At each call it looks up the function's name. These are the main entries of
# CUDA's two lists:

# %%
print("16-bit list:", *sorted(LOW))
print("FP32 list:  ", *sorted(WIDE))

# %% [markdown]
# A function on the 16-bit list gets 16-bit inputs, and a function on the FP32 list gets FP32 inputs. A function on no list, such as
# `+`, `relu` or `mean`, runs with the dtypes it receives, and arithmetic such as `+` **promotes** two different dtypes to the wider one.


# %% predict="six-ops"
@predict(guesses.six_ops)
def sixteen_bits():
    x = torch.eye(2, device=device)
    with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
        y = x @ x
        results = [y, y.relu(), y.exp(), x + x, y + y, y.sum()]
    return [result.dtype is torch.float16 for result in results]


# %% [markdown]
# `y`, `y.relu()` and `y + y` have 16 bits. `@` is on the 16-bit list. `exp` and `sum` are on the FP32 list. `relu` and `+` are on
# no list, so they keep the dtype of their inputs.

# %% [markdown]
# Not every reduction *returns* FP32: `mean`, `var` and `batch_norm` are on no list, so their results have 16 bits. Inside, they still
# add in FP32. The last line uses a CPU's own lists.

# %%
y = torch.full((2, 4, 3), 12.0, device=device).half()
with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
    for name, result in {"sum": y.sum(), "mean": y.mean(), "var": y.var(),
                         "batch_norm": nn.BatchNorm1d(4).to(device)(y), "exp": y.exp()}.items():  # fmt: skip
        print(f"{name:12}{str(result.dtype).removeprefix('torch.')}")
with torch.autocast("cpu", dtype=torch.float16):
    print("exp(12) by the CPU's lists:", y.cpu().exp().max().item())

# %% [markdown]
# On the CPU's lists `exp` runs in FP16, and exp(12) = 162,755 overflows. So the course uses `emulate_gpu()` on a CPU.
#
# `torch.fft` is on no list of CUDA, so `rfft` gets a linear layer's FP16. In FP16 it refuses lengths that are no power of two, and output 0,
# the sum of all values, may exceed 65504. Call it on `x.float()`.

# %% [markdown]
# ### Optional: autocast by hand
#
# A `TorchFunctionMode` is called in place of each torch function inside its block. `func` is the function and
# `func.__name__` its name: `@` arrives as `matmul`, `x ** 2` as `pow`. Real autocast works in the **dispatcher**, below
# Python, and so sees functions inside others too, such as `log_softmax` in `cross_entropy`.
#
# ### Exercise: a small autocast
#
# *18 minutes, optional, about 8 lines.* A function whose name is in `LOW` gets its arguments cast to
# `self.dtype`, one whose name is in `WIDE` to float32. All others keep theirs unchanged. `torch.autocast` itself does
# not count as an answer.
#
# - Cast floating-point tensors only, also those passed by keyword. Leave float64 alone, and tensors inside lists.
# - Gradients must pass through the casts.
# - **Example:** inside `mini_autocast(torch.float16)`, `x @ x` of a float32 `x` is float16, and `(x @ x).exp()` is float32.

# %% exercise="mini-autocast"
from torch.overrides import TorchFunctionMode


class mini_autocast(TorchFunctionMode):
    """Autocast's forward pass: `with mini_autocast(torch.float16): ...`"""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # Backward goes through `x.to(dtype)`. kwargs is a dict or None.
        ### BEGIN SOLUTION
        target = self.dtype if func.__name__ in LOW else None
        target = torch.float32 if func.__name__ in WIDE else target

        def cast(x):
            eligible = isinstance(x, torch.Tensor) and x.is_floating_point()
            return x.to(target) if target and eligible and x.dtype != torch.float64 else x

        kwargs = {key: cast(value) for key, value in (kwargs or {}).items()}
        return func(*[cast(value) for value in args], **kwargs)
        ### END SOLUTION


# %% check="mini-autocast" points=0
amp.check_mini_autocast(mini_autocast)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Of each argument ask: is it a tensor, is it floating point, and on which list is the function? What must your cast return
# for an integer tensor, such as labels?
# </details>
# <details><summary>Hint 2</summary>
#
# `func(*[cast(a) for a in args], **{key: cast(a) for key, a in kwargs.items()})`
# </details>

# %% [markdown]
# ### An FP32 island
#
# No list helps where your own code computes with `*`. (`F.rms_norm` is on the FP32 list.) Suppose that a model norms its queries by the
# `rms_norm` below. Queries come
# from a linear layer, so they are FP16, and 300 * 300 overflows.
#
# The repair is a nested block with `enabled=False` and an explicit `.float()`. `enabled=False` alone leaves `q`
# in FP16. `.float()` alone is enough here. In a matmul, autocast would cast the inputs to FP16 again. It casts sparse COO matrices too, and
# CUDA has no FP16 kernel for those.


# %%
def rms_norm(q):
    return q * torch.rsqrt((q * q).mean(dim=-1, keepdim=True) + 1e-6)


def rms_norm_in_fp32(q):
    with torch.autocast(q.device.type, enabled=False):
        return rms_norm(q.float()).to(q.dtype)


q = torch.tensor([[300.0, -300.0, 100.0, 200.0]], device=device)
with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
    q = q @ torch.eye(4, device=device)  # FP16, as from a linear layer
    print("by the lists: ", rms_norm(q).tolist())
    print("in the island:", [[round(x, 3) for x in row] for row in rms_norm_in_fp32(q).tolist()])

# %% [markdown]
# By the lists the mean of the squares is inf, and q times 1 / sqrt(inf) is 0: the output vanishes, with no error and no NaN. BF16 does not
# overflow here, but its squares have only 8 significant bits, so the island helps there too.
#
# <details><summary>What does a custom <code>autograd.Function</code> need?</summary>
#
# Its backward runs after the block, without autocast. The incoming gradient is FP16, the saved inputs are FP32, and a matmul of both
# raises an error. `torch.amp.custom_fwd(device_type=...)` above `forward` and `custom_bwd` above `backward` give backward the autocast
# state of forward. `cast_inputs=torch.float32` makes an FP32 island of both, but only where autocast is on.
# </details>

# %% [markdown]
# ### The weight cache
#
# A recurrent cell multiplies by the same weight at every time step, and a shared layer is applied several times. Autocast casts such a
# trainable weight once and keeps the copy until the outermost block ends: the **weight cache**. Suppose that a weight's nine uses contribute the gradients 2048 and eight
# times 1, and that backward adds 2048 first.


# %%
def gradient(cache_enabled=True):
    w = torch.ones(1, 1, device=device, requires_grad=True)
    with emulate_gpu(), torch.autocast(device, torch.float16, cache_enabled=cache_enabled):
        uses = [torch.full((1, 1), g, device=device) @ w for g in [1.0] * 8 + [2048.0]]
        total = sum(use.float() for use in uses)
    total.backward()  # visits the last use first
    return w.grad.item()


# %% predict="used-nine-times"
@predict(guesses.used_nine_times)
def summed():
    return gradient()


# %% [markdown]
# `w.grad` is 2048. The uses share one FP16 copy, so autograd adds their gradients in FP16 and casts only the total to FP32.
# FP16 has a gap of 2 at 2048, so every 2048 + 1 is rounded back to 2048. With `cache_enabled=False` each gradient is cast to FP32 first,
# and the sum is 2056.

# %% [markdown]
# An autocast block that is opened once around all steps keeps the copies of the *first* weights, and forward runs with stale weights. Open the block
# anew for each forward pass, and close it before `optimizer.step()`.

# %% [markdown]
# ### Autocast and the loss scaler
#
# **AMP** consists of two tools that work independently. Autocast chooses dtypes and scales nothing. `GradScaler` scales the
# loss; its `step` divides the gradients by the scale (unless `unscale_` has done so), looks for inf and NaN, and then runs the optimizer or skips; its
# `update` adjusts the scale.

# %%
w = nn.Parameter(torch.zeros(1))
optimizer, scaler = torch.optim.SGD([w], lr=1.0), torch.amp.GradScaler("cpu", init_scale=1024.0)
scaler.scale((3 * w).sum()).backward()
print("before step: .grad", w.grad.item(), " w", w.item())
scaler.step(optimizer)
print("after step:  .grad", w.grad.item(), "    w", w.item())

# %% [markdown]
# ### Recipes
#
# A **recipe** says which format each kind of tensor has. Mixing FP16 and BF16 gains nothing: their matmuls have the same peak speed on an A100 or H100, and where an
# FP16 tensor meets a BF16 tensor, promotion gives FP32.
#
# | tensor, in a transformer | FP16 AMP | BF16 AMP | FP8 |
# |---|---|---|---|
# | weights and Adam's state | FP32 | FP32 | FP32, or less |
# | matmul inputs | FP16 | BF16 | E4M3, gradients often E5M2 |
# | residual stream | FP32 | FP32 | BF16 |
# | softmax, layer norm, loss | FP32 (attention's softmax: inside its kernel) | as FP16 AMP | FP32 |
# | scale | one for the loss, dynamic | none | one a tensor or block |

# %% [markdown]
# ### Exercise: the whole loop
#
# *18 minutes, about 10 lines.* Write one loop that trains in FP32, BF16 or FP16. Forward and loss run under autocast. FP16 gets
# a scaler. BF16 and FP32 get none: `GradScaler(device, enabled=False)` passes everything through. labkit's `train` does not count.
#
# - **Input:** a model with FP32 weights, possibly in evaluation mode (`fit` puts it into training mode); batches `(inputs, targets)`;
#   `loss_fn(output, targets)`; the optimizer; `dtype`, one of `torch.float32`, `torch.bfloat16`, `torch.float16`; the device.
# - **Output:** a list with the loss of each batch, as floats, not scaled. Close the block before `backward`.
# - **Be loud:** the model ends in a linear layer. If its output is not of `dtype`, autocast is not active: raise an
#   error, or call `warnings.warn`. Otherwise be silent.
# - **Example:** w = 1, x = 1, target 0, squared error, SGD with lr 0.25, three times, in FP32 or BF16: losses 1.0, 0.25, 0.0625. In FP16
#   the scaler skips the first two steps, so the losses are 1.0, 1.0, 1.0.


# %% exercise="fit"
def fit(model, batches, loss_fn, optimizer, dtype, device):
    """The loss of each batch, as floats; trains the model in place."""
    # `torch.autocast(..., enabled=...)` and `GradScaler(device, enabled=...)` take a condition.
    losses = []
    ### BEGIN SOLUTION
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    model.train()
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            output = model(inputs)
            loss = loss_fn(output, targets)
        if output.dtype is not dtype:
            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    ### END SOLUTION
    return losses


# %% check="fit" points=3
amp_loops.check_fit(fit)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An iteration makes eight calls: empty the gradients, open the block, forward, close the block, scale, backward, step, update. Which
# of them computes something that autocast should cast?
# </details>
# <details><summary>Hint 2</summary>
#
# For three batches and one scaler: how often is `GradScaler(...)` called, and how often `scaler.update()`?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# with torch.autocast(device, dtype=dtype, enabled=...):
#     output = model(inputs)
#     loss = loss_fn(output, targets)
# scaler.scale(loss).backward()
# ...
# scaler.update()
# ```
# </details>
#
# Now the GPT in all three precisions, with your loop:

# %% tags=["nbval-ignore-output"]
train_gpt, losses = yours(fit, ours.fit), {}
for name, dtype in {"FP32": torch.float32, "BF16": torch.bfloat16, "FP16": torch.float16}.items():
    torch.manual_seed(0)
    model = SmallGPT(68, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with emulate_gpu():
        losses[name] = train_gpt(
            model, gpt_batches(25, device), cross_entropy, optimizer, dtype, device
        )
loss_curves(losses, provenance=f"Trained with {whose(train_gpt)} loop; emulated on a CPU.")

# %% [markdown]
# All three curves agree. Be loud about the dtype, because many older loops use `torch.cuda.amp`, which takes no device. Without CUDA its autocast
# and its scaler warn and switch themselves off. Whoever overlooks the warning trains in FP32, where no scaler bug can show. Use
# `torch.amp` and name the tensor's device, in every call: on a CPU without `emulate_gpu()`, `torch.autocast("cuda", enabled=False)` is no
# island, and `torch.is_autocast_enabled()` asks for CUDA's autocast, so it is False.
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: the rest of the loop
#
# *You are here:* *stop* → **order** → clip → accumulate → bad batches → checkpoints → review → labkit's loop

# %%
import inspect, math, torch, torch.nn as nn, torch.nn.functional as F
from labkit.labs.automatic_mixed_precision import predictions as guesses, solutions as ours
from labkit.labs.automatic_mixed_precision.checks import accumulation, amp_loops, two_optimizers
from labkit.labs.automatic_mixed_precision.runs import gpt_batches, loss_curves
from labkit.labs.engine import predict, whose, yours
from labkit.emulation import emulate_gpu
from labkit.training import cross_entropy, train, trained_gpt
from labkit.training.models import SmallGPT

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ### The order of the calls
#
# This training step is like one that people published. `record_calls` writes down its calls while it trains the GPT, and the widget says at each call what goes
# wrong. The widget marks two rows. Insert the missing calls in the widget.


# %%
def published(model, inputs, targets, optimizer, scaler):
    with torch.autocast(device, dtype=torch.float16):
        loss = cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()


# %% tags=["nbval-ignore-output"]
from labkit.labs.automatic_mixed_precision.call_order import record_calls
from labkit.labs.automatic_mixed_precision.widget_call_order import CallOrder

gpt = trained_gpt().to(device)
optimizer, scaler = torch.optim.AdamW(gpt.parameters()), torch.amp.GradScaler(device)
with emulate_gpu(), record_calls() as recorder:
    published(gpt, *gpt_batches(1, device)[0], optimizer, scaler)
CallOrder(recorder.calls)

# %% [markdown]
# `backward` adds to what is in `.grad`, so `zero_grad` must come before it. (At the end of the step it works too, but gradients from earlier code then remain for the first step.)
# Clipping compares the gradients' norm with the limit, and after `backward` they are
# still multiplied by the scale. So call `unscale_` between `backward` and clipping.
#
# A loop without `zero_grad` raises no error. The next cell shows what happens with an enabled scaler, where every batch has the gradient 1.


# %%
def last_gradient(xs, scaler):
    w = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], lr=0.0)
    for x in xs:  # no zero_grad
        scaler.scale(w * x).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    return w.grad.item()


live = torch.amp.GradScaler("cpu", init_scale=1024.0)
print("four good batches:         ", round(last_gradient([1.0] * 4, live), 6))
print("one inf, then good batches:", last_gradient([math.inf, 1.0, 1.0, 1.0], live))

# %% [markdown]
# Without a scaler the last gradient would be 4. An enabled scaler nearly hides the fault, because each `step` divides the old gradients by
# the scale once more. After the first overflow, inf plus a finite gradient stays inf: every
# later step is skipped, and nothing is learned.

# %% [markdown]
# ### Gradient clipping
#
# **Gradient clipping** shortens a gradient whose norm is above a limit: it multiplies all gradients by limit / norm. Some texts
# prescribe it against overflow.


# %%
def clipped(*gradient):
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor(gradient)
    torch.nn.utils.clip_grad_norm_([p], 1.0)
    return p.grad.tolist()


print("[3, 4] becomes", [round(x, 4) for x in clipped(3.0, 4.0)])


# %% predict="clipped-inf"
@predict(guesses.clipped_inf)
def first():
    return clipped(math.inf, 1.0)[0]


# %% [markdown]
# The norm is inf, so clipping multiplies by 1 / inf = 0, and inf times 0 is NaN. Clipping cannot repair a gradient that
# overflowed.

# %% [markdown]
# Clipping is for gradients that are large but finite. An overflow is the scaler's task: it skips the step.
#
# ### Exercise: a clipped step
#
# *5 minutes, about 5 lines.* Make one FP16 step whose gradient norm is clipped to `limit`. labkit's `train` does not count.
#
# - **Input:** `limit` is any positive float.
# - **Output:** the norm of the gradients, unscaled and before clipping, as a float. It is not finite in a step that overflows; such a step
#   still calls `step` and `update`.
# - **Example:** under a scale of 4 and a limit of 1, gradients of norm 0.5 are not clipped, and 0.5 is returned.


# %% exercise="clipped-step"
def clipped_step(model, inputs, targets, optimizer, scaler, limit, device) -> float:
    """One step of `optimizer` with clipped gradients; returns their norm, unscaled, unclipped."""
    # `torch.nn.utils.clip_grad_norm_` returns the norm that it found.
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    ### BEGIN SOLUTION
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    return norm.item()
    ### END SOLUTION


# %% check="clipped-step" points=2
amp_loops.check_clipped_step(clipped_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# With a scale of 4 and a limit of 1, a true norm of 0.5 reads 2 after `backward`. Which call must come before the clip?
# </details>
# <details><summary>Hint 2</summary>
#
# The order is: backward of the scaled loss, unscale, clip, step, update. Which of these returns the norm?
# </details>

# %% [markdown]
# ### Gradient accumulation
#
# **Gradient accumulation** adds up the gradients of k **micro-batches** and then makes one step. Only one micro-batch of activations is in
# memory at a time. Unscale and clip once, before that step: a second `unscale_` before `update` raises *unscale_() has already been called
# on this optimizer since the last update()*. So does the next `unscale_` of a loop that skips `step` and `update` after
# it unscaled a bad batch.
#
# A language model's loss is a mean over *tokens*, and padding is left out: `F.cross_entropy` ignores targets of −100. Suppose that one micro-batch
# has 64 real tokens and the next has 4. The mean of the two means gives each of the 4 tokens 16 times the weight. Several LLM trainers
# had this bug until 2024.

# %%
gpt = trained_gpt().to(device)
tokens, following = gpt_batches(1, device)[0]
padded = following[:2].clone()
padded[1, 4:] = -100  # the second sequence ends after 4 tokens
with torch.no_grad():
    means = [cross_entropy(gpt(tokens[i : i + 1]), padded[i : i + 1]).item() for i in (0, 1)]
    both = cross_entropy(gpt(tokens[:2]), padded).item()
print(f"mean of the means {sum(means) / 2:.2f}, mean over the tokens {both:.2f}")

# %% [markdown]
# ### Exercise: accumulate by tokens
#
# *12 minutes, about 9 lines.* Train one epoch with one optimizer step for each k micro-batches, and one for what is left. Each step
# equals that of one large batch: its loss is the mean over all targets of the group that are not −100. Forward and loss run under autocast.
# labkit's `train` does not count.
#
# - **Input:** a model with logits N x T x classes; `batches`, a list of (inputs, targets), targets N x T; `dtype`,
#   float16 with an enabled scaler or bfloat16 with a disabled one.
# - **Output:** a list with one loss a step, not scaled.
# - **Memory:** run each micro-batch's backward before the next one's forward.
# - **Edge cases:** the last group may be short. Micro-batches differ in their number of counted targets, and a micro-batch may have none (a group has
#   at least one). Its mean loss is 0 / 0, so add up sums instead (`reduction="sum"`). A step may overflow: the scaler skips it, and its loss still goes into the list.
# - **Example:** 3 targets with loss 1 in one micro-batch and 1 with loss 5 in the other: the step's loss is 2.


# %% exercise="accumulate"
def accumulate(model, batches, k, optimizer, scaler, dtype, device) -> list:
    """The mean loss over the counted targets of each step."""
    # `F.cross_entropy` takes logits.flatten(0, 1) and targets.flatten().
    losses = []
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        ### BEGIN SOLUTION
        count = sum((targets != -100).sum() for _, targets in group)
        optimizer.zero_grad()
        losses.append(0.0)
        for inputs, targets in group:
            with torch.autocast(device, dtype=dtype):
                logits = model(inputs).flatten(0, 1)
                loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        scaler.step(optimizer)
        scaler.update()
        ### END SOLUTION
    return losses


# %% check="accumulate" points=3
accumulation.check_accumulate(accumulate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `backward` adds. If every micro-batch contributes the *sum* of its losses, by which number must each sum be divided, and when do you know that number?
# </details>
# <details><summary>Hint 2</summary>
#
# For groups of plain numbers: `total = sum(len(part) for part in group)`, then `mean = sum(sum(part) / total for part in group)`.
# </details>
#
# Across GPUs, DDP averages the gradients at each backward. So sum the count over all GPUs and multiply each loss by their number, or the
# mean of the means returns. To send once a group, run forward *and* backward of all micro-batches but the last inside `ddp.no_sync()`:
# DDP decides in forward whether its backward will send. FSDP2's own mixed precision does not use autocast's lists:
# `MixedPrecisionPolicy(param_dtype=..., reduce_dtype=...)` casts whole modules, layer norm too.

# %% [markdown]
# ### Bad batches
#
# Here each batch's loss is multiplied by a weight, and the second weight is NaN, as if it had been computed as 0 / 0. In FP16 the scaler finds the
# NaN gradients and skips the step. BF16 and FP32 have no scaler, so nobody looks. The guard is one line: clipping computes the
# norm anyway, so step only if it is finite.


# %%
def bf16_steps(guard):
    tokens, following = gpt_batches(1, device)[0]
    model, skipped = SmallGPT(68, 64).to(device), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for weight in (1.0, math.nan, 1.0):
        optimizer.zero_grad()
        with emulate_gpu(), torch.autocast(device, dtype=torch.bfloat16):
            loss = weight * cross_entropy(model(tokens), following)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite() or not guard:
            optimizer.step()
        else:
            skipped += 1
    lost = sum(p.isnan().sum().item() for p in model.parameters())
    return f"{lost} of 112964 weights are NaN, skipped: {skipped}"


print("no guard:", bf16_steps(False))
print("guard:   ", bf16_steps(True))

# %% [markdown]
# The guard makes the CPU wait for one number from the GPU at each step. Count the skipped
# steps, and stop after several in a row: a guard must not hide a broken run.

# %% [markdown]
# ### Checkpoints and schedules
#
# The scale is part of the training state. This loop *sums* its loss over the tokens, so the initial scale, 65536, is too large, and the
# scaler skips steps until it fits. A run that resumes without `scaler.state_dict()` starts at 65536 and skips steps again.
#
# A skipped step must not advance the learning-rate schedule, or the warm-up ends early. `scaler.step` does not say whether it
# skipped, but with one optimizer and a scale above 0, `update` lowers the scale after a skip and only then.


# %%
def some_steps(model, optimizer, scheduler, scaler, steps):
    skipped = 0
    for tokens, following in gpt_batches(steps, device):
        optimizer.zero_grad()
        with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
            loss = cross_entropy(model(tokens), following) * following.numel()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        if scaler.get_scale() < before:
            skipped += 1
        else:
            scheduler.step()
    return skipped


model, scaler = trained_gpt().to(device), torch.amp.GradScaler(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=100)
print("skips at the start:", some_steps(model, optimizer, scheduler, scaler, 20) > 0)
state = scaler.state_dict()  # goes into the checkpoint, beside model, optimizer and scheduler
resumed, fresh = torch.amp.GradScaler(device), torch.amp.GradScaler(device)
resumed.load_state_dict(state)
print("skips, with the state:", some_steps(model, optimizer, scheduler, resumed, 10) > 0)
print("skips, without it:", some_steps(model, optimizer, scheduler, fresh, 10) > 0)

# %% [markdown]
# ### Two optimizers
#
# *Optional.* A GAN trains two networks, a generator G and a discriminator D. Each has its own optimizer, and one scaler serves both.


# %% predict="only-d"
@predict(guesses.only_d)
def steps():
    d, g = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in (d, g)]
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(math.inf * d + g).sum().backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return ["neither", "D", "G", "both"][(d.item() != 1) + 2 * (g.item() != 1)]


# %% [markdown]
# The scaler notes for each optimizer whether it found an inf: D's step is skipped, and G makes its step. At `update` the shared scale is halved once.

# %% [markdown]
# ### Exercise: a GAN's step
#
# *20 minutes, optional, about 14 lines.* First train D: real images should get the label 1 and fakes 0; its loss is the sum of the two means. Then train G against the updated D:
# its loss compares D's logits for the same fakes with the label 1. Forward and loss of both run under FP16 autocast. Open a new block for G's loss, because a block
# keeps 16-bit copies of D's old weights.
#
# - **Output:** (loss of D, loss of G), as floats. If D's logits are all 0, D's loss is 2 ln 2 = 1.386.
# - D's loss must not reach G: use `fake.detach()` there. G's loss goes through D and fills D's gradients too.
# - In a step the gradients of one of the two may overflow. The two share one scale.


# %% exercise="gan-step"
def gan_step(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    """(loss of D, loss of G) of one step of each, as floats."""
    # `bce(logits, torch.ones_like(logits))` compares with the label 1. On probabilities,
    # `F.binary_cross_entropy` raises under autocast.
    bce = F.binary_cross_entropy_with_logits
    ### BEGIN SOLUTION
    with torch.autocast(device, dtype=torch.float16):
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        d_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    d_optimizer.zero_grad()
    scaler.scale(d_loss).backward()
    scaler.step(d_optimizer)
    with torch.autocast(device, dtype=torch.float16):
        on_fake = discriminator(fake)
        g_loss = bce(on_fake, torch.ones_like(on_fake))
    g_optimizer.zero_grad()
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return d_loss.item(), g_loss.item()
    ### END SOLUTION


# %% check="gan-step" points=0
two_optimizers.check_gan_step(gan_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# There are two scaled backwards, two steps and one scale. When has the scaler seen all gradients?
# </details>
# <details><summary>Hint 2</summary>
#
# G's backward leaves gradients in D. Which call empties them before D's next backward?
# </details>

# %%
from labkit.labs.automatic_mixed_precision.digit_gan import Discriminator, Generator
from labkit.training.data import batches, digits

torch.manual_seed(0)
G, D = Generator().to(device), Discriminator().to(device)
g_optimizer = torch.optim.Adam(G.parameters(), lr=1e-3)
d_optimizer = torch.optim.Adam(D.parameters(), lr=1e-3)
step, scaler = yours(gan_step, ours.gan_step), torch.amp.GradScaler(device)
with emulate_gpu():
    for real, _ in batches(digits().train_images, digits().train_labels, 128):
        noise = torch.randn(len(real), G.noise).to(device)
        losses = step(G, D, real.to(device), noise, d_optimizer, g_optimizer, scaler, device)
print(f"with {whose(step)} step, finite losses:", all(map(math.isfinite, losses)))

# %% [markdown]
# ### Review a pull request
#
# These six hunks are modelled on loops that people published. Read them as a reviewer: what state does each call find?

# %%
from labkit.labs.automatic_mixed_precision.pull_request import HUNKS, pull_request

print(pull_request())


# %% predict="six-hunks"
@predict(guesses.six_hunks)
def need_a_change():
    return [hunk.faulty for hunk in HUNKS]


# %% [markdown]
# Hunks 1, 2, 4 and 5 need a change, and only 1 and 4 raise an error. Hunk 2 learns until the first overflow and never again. Hunk 5 trains in
# FP32 on a machine without CUDA.

# %% [markdown]
# ### labkit's loop
#
# `labkit.training.train` is the loop that the rest of the course uses. For each call on autocast, the scaler, clipping, the optimizer
# and the schedule, name the section that explains it. `share` is a batch's part of the tokens. `train` calls
# `optimizer.step()` itself, because `scaler.step` would make the CPU wait once more.

# %% tags=["nbval-ignore-output"]
source = inspect.getsource(train)
print(source[source.index("        for step, group") :])

# %% [markdown]
# torch casts, caches, scales and skips. You must take care of the order of the calls, clipping after `unscale_`, losses weighted by
# token, the guard, the scaler's state in the checkpoint, and a schedule that does not advance on skipped steps.
#
# ### Optional: the GPT once more
#
# Train it in three precisions with labkit's loop, clipping and accumulation.

# %% tags=["nbval-ignore-output"]
losses = {}
for precision in ("fp32", "bf16", "fp16"):
    torch.manual_seed(0)
    model = SmallGPT(68, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = train(model, gpt_batches(30), optimizer=optimizer, precision=precision, device=device,
                accumulate=2, max_grad_norm=1.0, progress=False)  # fmt: skip
    losses[precision.upper()] = [record.loss for record in run]
loss_curves(losses, provenance="labkit's loop, two micro-batches a step; emulated on a CPU.")

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The ledger is the table that lab 00 began: bytes, quality and time of your GPT in each format. What does AMP change in it? The cell trains the GPT for 30 more steps in BF16 with
# `accumulate`, two micro-batches a step. It adds a row for the result, and one for the same weights cast to BF16, as they would be stored for serving.

# %% tags=["nbval-ignore-output"]
from labkit.labs.engine import claim
from labkit.measuring.ledger import Ledger

LAB, ledger, train_on = "05_automatic_mixed_precision", Ledger(), yours(accumulate, ours.accumulate)
gpt = trained_gpt().to(device)
optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)
no_scaler = torch.amp.GradScaler(device, enabled=False)
with emulate_gpu():
    train_on(gpt, gpt_batches(60, device), 2, optimizer, no_scaler, torch.bfloat16, device)
size = sum(parameter.nbytes for parameter in gpt.parameters())
amp_row = ledger.add(LAB, "BF16 AMP, 30 steps", gpt, size, whose=whose(train_on))
gpt.bfloat16()
size = sum(parameter.nbytes for parameter in gpt.parameters())
bf16_row = ledger.add(LAB, "BF16 AMP, cast to BF16", gpt.float(), size, whose=whose(train_on))
claim("AMP leaves 4 bytes a parameter", amp_row.bytes == 4 * 112_964)
claim("the cast costs less than 0.005 bits a character", bf16_row.bits < amp_row.bits + 0.005)
ledger

# %% [markdown]
# Autocast saves activations, not weights: the first row has as many bytes as FP32. Training needs these FP32 weights, because small updates would be lost in BF16 (lab 04). Serving makes no updates, so a single cast
# at the end halves the bytes, and with them the time in which a large model's weights are read.

# %% [markdown]
# ### Optional: the NaN detective
#
# A run fails. You have eight instruments and 40 GPU-minutes; each query has its price. Ask cheap queries that rule out
# many suspects, then accuse one. Another first argument than 5 opens another case.

# %% tags=["nbval-ignore-output"]
from labkit.labs.detective.widget_nan_detective import NanDetective

NanDetective(5, lab="05_automatic_mixed_precision")

# %% [markdown]
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("05_automatic_mixed_precision")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** PyTorch 2.13: `torch.amp` (the lists), *Automatic Mixed Precision examples* (clipping, accumulation, several
# models), `ATen/autocast_mode.h`, `torch/amp/grad_scaler.py`. Micikevicius et al.,
# arXiv:1710.03740. NVIDIA, *H100 Tensor Core GPU* data sheet. Hugging Face, *Fixing Gradient Accumulation*, 2024. Goodfellow et al.,
# arXiv:1406.2661 (GAN).
#
# **Next.** [Lab 06: hardware, and honest benchmarks](06_hardware_and_benchmarks.ipynb). If you want to train real models first,
# take [lab 13](13_real_models.ipynb), which needs no more than this lab.
