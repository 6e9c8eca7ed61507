# %% [markdown]
# # 5. Automatic mixed precision
#
# You open autocast, rebuild it in a dozen lines, write the loops around it, and review a pull request.
#
# *any laptop, or a GPU · needs: labs 03 and 04, above all the loss scale*
#
# After this lab you can:
#
# - say of any value in a training step which dtype it has, and why;
# - write a loop with clipping, accumulation and two optimizers, and see what is wrong with another's.
#
# Two sittings: **A** opens autocast, **B** writes and reviews loops. Each starts alone.

# %% [markdown]
# ## Sitting A: open the box
#
# *You are here:* **paint** → rebuild → cache → lists → recipes → the loop → *stop* → order → clip → accumulate → GAN → review

# %%
import torch, torch.nn as nn, torch.nn.functional as F, warnings
from labkit.labs.automatic_mixed_precision import predictions as guesses, solutions as ours
from labkit.labs.automatic_mixed_precision.checks import amp_loops, op_lists as amp
from labkit.labs.engine import claim, predict, whose, yours
from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.lists import LOW, WIDE

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("05_automatic_mixed_precision")

# %% [markdown]
# ### Paint the step
#
# One training step of a small network under FP16 autocast, with Adam. Paint each value: 16 bits or FP32? Guess freely,
# then run the step. It is a real step, **emulated** here, measured if `device` is a GPU.

# %%
from labkit.labs.automatic_mixed_precision.dtype_map import example

device = "cuda" if torch.cuda.is_available() else "cpu"
edges = example(device)

# %% tags=["nbval-ignore-output"]
from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap

DtypeMap(edges)

# %%
low = [edge.name for edge in edges if edge.dtype == "fp16"]
activations = ["linear", "relu", "linear 2"]
values = [f"after {a}" for a in activations] + [f"gradient of {a}" for a in activations[::-1]]
claim("the only values of 16 bits are these activations and their gradients", low == values)

# %% [markdown]
# So weights, their `.grad` and Adam's memory never leave FP32. The optimizer's weights *are* the **master weights**;
# nobody calls `.half()`. A gradient has the dtype of the value it belongs to.
#
# ### Whose list
#
# Nothing intelligent chooses, and nothing switches as time goes by. **Autocast** has two lists of functions:
# products run in 16 bits, functions that need range or add up much run in FP32. A short third list, `dot` for one, takes
# the widest dtype of its inputs. Whatever is on no list takes what comes.


# %% predict="six-ops"
@predict(guesses.six_ops)
def sixteen_bits():
    x = torch.eye(2, device=device)
    with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
        y = x @ x
        results = [y, y.relu(), y.exp(), x + x, y + y, y.sum()]
    return [result.dtype is torch.float16 for result in results]


# %% [markdown]
# `y`, `y.relu()` and `y + y` have 16 bits. `@` is on the 16-bit list; `exp` and `sum` are on the FP32 list; `relu` and
# `+` are on no list, so they take what comes.

# %% [markdown]
# Those are CUDA's lists, and `emulate_gpu()` follows them. The CPU has lists of its own:

# %%
twelve = torch.full((4,), 12.0).half()
with torch.autocast("cpu", dtype=torch.float16):
    claim("without emulate_gpu(), exp(12) stays in FP16: inf", twelve.exp().isinf().all())
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    claim("with it, as on CUDA: FP32", twelve.exp().dtype is torch.float32)

# %% [markdown]
# ### Autocast by hand
#
# A `TorchFunctionMode` is called in place of each torch function inside its block. `func` is the function, with its name
# in `func.__name__`. You may change the arguments before you call it.
#
# ### Exercise: a small autocast
#
# *18 minutes, about 8 lines.* Names in `LOW` get `self.dtype`, names in `WIDE` get float32, all others what they
# got. Both are sets of names: print them. Only floating point tensors are cast, those passed by keyword too, and float64
# is left alone. Gradients pass through the casts.

# %% exercise="mini-autocast"
from torch.overrides import TorchFunctionMode


class mini_autocast(TorchFunctionMode):
    """Autocast's forward pass: `with mini_autocast(torch.float16): ...`"""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # `x.to(dtype)` returns a new tensor, and backward goes through it.
        ### BEGIN SOLUTION
        target = self.dtype if func.__name__ in LOW else None
        target = torch.float32 if func.__name__ in WIDE else target

        def cast(x):
            eligible = isinstance(x, torch.Tensor) and x.is_floating_point()
            return x.to(target) if target and eligible and x.dtype != torch.float64 else x

        kwargs = {key: cast(value) for key, value in (kwargs or {}).items()}
        return func(*[cast(value) for value in args], **kwargs)
        ### END SOLUTION


# %% check="mini-autocast" points=3
amp.check_mini_autocast(mini_autocast)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Of each argument ask: a tensor, floating point, which list? `args` is a tuple, `kwargs` a dict or None:
# `func(*[cast(a) for a in args], **{...})`. What does cast return for a label?
# </details>
#
# What does a dozen lines miss?

# %%
mine = yours(mini_autocast, ours.mini_autocast)
logits, labels = torch.randn(4, 3).half(), torch.tensor([0, 2, 1, 2])
with emulate_gpu():
    with mine(torch.float16):
        missed = F.cross_entropy(logits, labels).dtype
    with torch.autocast("cpu", dtype=torch.float16):
        real = F.cross_entropy(logits, labels).dtype
claim(f"cross_entropy: {missed} in {whose(mine)} mini_autocast", missed is torch.float16)
claim(f"and {real} in torch's", real is torch.float32)

# %% [markdown]
# `cross_entropy` calls `nll_loss` inside, where our mode is switched off. Real autocast sits in the **dispatcher**,
# below Python, and sees every call. It also keeps a cache.
#
# ### One copy for all uses
#
# A weight is cast once in a block, and the copy serves all its uses: that is the **weight cache**. Say a weight
# is used nine times. Its nine gradients are 1, eight times, and 2048.


# %%
def gradient():
    w = torch.ones(1, 1, device=device, requires_grad=True)
    with emulate_gpu(), torch.autocast(device, dtype=torch.float16):
        uses = [torch.full_like(w, x, requires_grad=False) @ w for x in [1.0] * 8 + [2048.0]]
        total = sum(use.float().sum() for use in uses)
    total.backward()
    return w.grad.item()


# %% predict="used-nine-times"
@predict(guesses.used_nine_times)
def summed():
    return gradient()


# %% [markdown]
# One copy has one gradient, summed in FP16. Backward begins with the last use, 2048, and at 2048 the gap of FP16 is 2,
# so adding 1 changes nothing. With `cache_enabled=False` each use casts anew, the sum is FP32, and `w.grad` is 2056.
# Recurrent and tied weights meet this.

# %% [markdown]
# The cache is emptied when the block ends, so a block must not outlive a step: its copies would be stale.
#
# ### The lists, backwards
#
# Reading a list is easy. Can you choose an operation for the dtype that you want?
#
# ### Exercise: the inverse
#
# *6 minutes, 4 short expressions.* `x` is float32, `h` has 16 bits. No casts, no factories and no `dtype=`: let operations
# decide.


# %% exercise="dtypes"
def dtypes(x, h):
    """(low, wide, both, kept), called inside an autocast block; x and h are 3 by 3."""
    # low: 16 bits, from x        wide: float32, from h
    # both: float32, from x and h, by promotion        kept: 16 bits, from h and a number
    ### BEGIN SOLUTION
    return x @ x, h.exp(), x + h, 2.0 * h
    ### END SOLUTION


# %% check="dtypes" points=1
amp.check_dtypes(dtypes)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Which list brings float32 down, which 16 bits up? On no list float32 beats 16 bits; a Python number beats nothing.
# </details>
#
# ### Recipes
#
# Promotion also says which formats make a pair. A **recipe** gives each role a format:
#
# | role | FP16 AMP | BF16 AMP | FP8 |
# |---|---|---|---|
# | weights of the optimizer | FP32 | FP32 | FP32 |
# | inputs of products | FP16 | BF16 | E4M3, gradients E5M2 |
# | other activations | FP16 | BF16 | BF16 |
# | losses, norms, softmax | FP32 | FP32 | FP32 |
# | scale | one, dynamic | none | one a tensor or block |

# %%
pair = torch.ones(1).half() + torch.ones(1).bfloat16()
claim("FP16 + BF16 is float32", pair.dtype is torch.float32)

# %% [markdown]
# "FP16 with BF16" is no recipe. Both have 16 bits and, on an H100, the same 989 TFLOP/s (NVIDIA's data sheet), so BF16
# buys range and not speed. Where the two meet, you pay for float32.
#
# ### The loop
#
# **AMP** is two tools that do not know each other. Autocast chooses dtypes and scales nothing. `GradScaler`
# scales the loss, and its `step` *un*scales the gradients, looks for inf, and steps or skips.

# %%
w = nn.Parameter(torch.zeros(1))
optimizer, scaler = torch.optim.SGD([w], lr=1.0), torch.amp.GradScaler("cpu", init_scale=1024.0)
scaler.scale((3 * w).sum()).backward()
claim("before step, w.grad is 3072", w.grad.item() == 3072)
scaler.step(optimizer)
claim("after it 3, and w is -3", (w.grad.item(), w.item()) == (3.0, -3.0))

# %% [markdown]
# ### Exercise: the whole loop
#
# *24 minutes, about 15 lines.* Train one epoch with the forward pass and the loss under autocast, then test. FP16 needs a scaler, BF16 none. The
# network ends in a linear layer; if its output is not of `dtype`, say so loudly: raise, or `warnings.warn`, and be silent
# otherwise. The network may come in training or in evaluation mode. Test under autocast as well.


# %% exercise="fit"
def fit(model, batches, test, optimizer, dtype, device):
    """(losses, one a batch; the share of `test` that is right). test is (inputs, targets)."""
    # loss: F.cross_entropy. `GradScaler(device, enabled=False)` passes everything through.
    losses = []
    ### BEGIN SOLUTION
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    model.train()
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            output = model(inputs)
            loss = F.cross_entropy(output, targets)
        if output.dtype is not dtype:
            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad(), torch.autocast(device, dtype=dtype):
        right = model(test[0]).argmax(dim=1) == test[1]
    ### END SOLUTION
    return losses, right.float().mean().item()


# %% check="fit" points=3
amp_loops.check_fit(fit)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Eight calls in an iteration: empty, open, forward, close, scale, backward, step, update. Which need no autocast?
# </details>
# <details><summary>Hint 2</summary>
#
# `scaler = torch.amp.GradScaler(device, enabled=...)`, once, before the loop. `model.train()` and `model.eval()` go where?
# </details>

# %%
from labkit.training.data import batches, digits

data = digits()
train = data.train_images, data.train_labels
train_model = yours(fit, ours.fit)
test = data.test_images.to(device), data.test_labels.to(device)
for dtype in (torch.float16, torch.bfloat16):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = 2 * [(x.to(device), y.to(device)) for x, y in batches(*train, 32)]
    with emulate_gpu():
        _, share = train_model(model, loader, test, optimizer, dtype, device)
    claim(f"{whose(train_model)} loop in {dtype}: 9 of 10 digits right", share > 0.9)

# %% [markdown]
# Never trust names. `torch.cuda.amp` takes no device: without CUDA it switches itself off, and hides every scaler bug.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    old = torch.cuda.amp.GradScaler()
claim("torch.cuda.amp's scaler is live only on CUDA", old.is_enabled() == torch.cuda.is_available())

# %% [markdown]
# **Beside `torch.compile`.** Open autocast inside the compiled function or around it, as before. But the bits change.
# Where Inductor fuses two 16-bit operators, it leaves out the rounding between them (`torch._inductor.config`,
# `emulate_precision_casts`). That is closer to the exact result. It is not equal to eager mode, so compare with a tolerance.
#
# **A stopping point.** You know what AMP casts, what it keeps, and what it scales.

# %% [markdown]
# ## Sitting B: loops that others wrote
#
# *You are here:* paint → rebuild → cache → lists → recipes → the loop → *stop* → **order** → clip → accumulate → GAN → review

# %%
import math, torch, torch.nn as nn, torch.nn.functional as F
from labkit.labs.automatic_mixed_precision import predictions as guesses, solutions as ours
from labkit.labs.automatic_mixed_precision.checks import amp_loops, amp_review, op_lists as amp
from labkit.labs.engine import claim, predict, whose, yours

# %%
from labkit.labs.automatic_mixed_precision.call_order import CALLS, faults, record_calls
from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.widget_call_order import CallOrder

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ### Put it in order
#
# Ten calls of one step, shuffled. Put them in order until no row complains. Is there more than one right order?

# %% tags=["nbval-ignore-output"]
CallOrder()

# %%
claim("this order is right", faults(CALLS) == [])
last = [*CALLS[1:], "zero_grad"]
claim("so is zero_grad at the end, if no gradient is there before the first step", not faults(last))

# %% [markdown]
# What matters is what state a call finds. The same tool records a loop that runs. Here is one, as published:


# %%
def published(model, inputs, targets, optimizer, scaler):
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()


model = nn.Linear(6, 4).to(device)
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(device)
batch = torch.ones(8, 6, device=device), torch.zeros(8, dtype=torch.long, device=device)
with emulate_gpu(), record_calls() as recorder:
    published(model, *batch, optimizer, scaler)

# %% tags=["nbval-ignore-output"]
CallOrder(recorder.calls)

# %% [markdown]
# Two rows complain. Repair them in the widget: what must be put in, and where?
#
# ### Clip
#
# **Gradient clipping** shortens a gradient whose norm is above a limit. Some texts prescribe it against overflow.


# %%
def clipped(*gradient):
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor(gradient)
    torch.nn.utils.clip_grad_norm_([p], 1.0)
    return p.grad.tolist()


# %% predict="clipped-inf"
@predict(guesses.clipped_inf)
def first():
    return clipped(math.inf, 1.0)[0]


# %% [markdown]
# The norm is inf, so clipping multiplies by 1 / inf = 0, and inf times 0 is NaN. Clipping cannot repair a gradient that
# overflowed; the scaler skips that step.

# %%
tiny = torch.tensor([1e-9, 1e-9]).tolist()
claim("clipping does nothing for a vanishing gradient", clipped(*tiny) == tiny)

# %% [markdown]
# A vanishing gradient is scaled, not clipped. Clipping is for true, finite, large gradients. `unscale_` makes them true;
# the scaler remembers it, and `step` will not divide again.
#
# ### Exercise: a clipped step
#
# *6 minutes, about 6 lines.* One FP16 step whose gradient norm is clipped to `limit`. Return the true norm before clipping,
# which is not finite in a step that overflows.


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
# <details><summary>Hints</summary>
#
# With a scale of 4 and a limit of 1, a true norm of 0.5 reads 2 after `backward`. Which call must come before the clip?
# </details>
#
# ### Accumulate
#
# **Gradient accumulation** adds up the gradients of k **micro-batches**, then steps once. It saves the
# activations' memory, and it should end where one large batch ends. Two things make that hard: the last group may be
# short, and its last micro-batch small.
#
# ### Exercise: accumulate
#
# *20 minutes, about 12 lines.* One epoch in FP16, a step for each k micro-batches and for what is left. Each step is that
# of one large batch: the loss is the mean over its *examples*. Micro-batches may differ in length. There is memory for
# the forward pass of one of them: run its backward before the next one's forward. Return one loss a step.


# %% exercise="accumulate"
def accumulate(model, batches, k, optimizer, scaler, device) -> list:
    """The mean loss of each step; batches is a list of (inputs, targets) of unequal lengths."""
    # `batches[i : i + k]` is a group, shorter at the end. loss: F.cross_entropy.
    losses = []
    ### BEGIN SOLUTION
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        count = sum(len(targets) for _, targets in group)
        optimizer.zero_grad()
        losses.append(0.0)
        for inputs, targets in group:
            with torch.autocast(device, dtype=torch.float16):
                loss = F.cross_entropy(model(inputs), targets) * len(targets) / count
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        scaler.step(optimizer)
        scaler.update()
    ### END SOLUTION
    return losses


# %% check="accumulate" points=2
amp_loops.check_accumulate(accumulate)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Three examples with loss 1 and one with loss 5 have the mean 2. What is the mean of the two means? `backward` adds: by
# which share do you weigh a micro-batch's loss?
# </details>

# %%
total = torch.zeros(()).half()
for _ in range(4096):
    total += 1e-3
claim("4096 times 0.001 in FP16 is 4: accumulate in FP32, as .grad does", total.item() == 4)

# %% [markdown]
# So accumulation saves memory, not precision. Across GPUs, DDP sends gradients at each backward; `no_sync()` around all
# but the last micro-batch of a group saves that.
#
# ### Two optimizers
#
# A GAN trains two networks, each with its optimizer, and one scaler serves both. In one iteration the gradients of the
# discriminator D overflow, those of the generator G do not.


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
    claim("the shared scale backs off once", scaler.get_scale() == 2.0**15)
    return ["neither", "D", "G", "both"][(d.item() != 1) + 2 * (g.item() != 1)]


# %% [markdown]
# The scaler keeps what it found for each optimizer apart: D's step is skipped, G's is not. At `update` the shared scale
# is halved, once.

# %% [markdown]
# ### Exercise: a GAN's step
#
# *20 minutes, about 14 lines.* First D: real is 1, fake is 0, its loss the sum of the two. Then G, against the new D: it
# wants its fakes called 1. All in FP16. If only one of the two overflows, the other still steps. Return both losses.


# %% exercise="gan-step"
def gan_step(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    """(loss of D, loss of G) of one step of each, as floats."""
    # `bce(logits, torch.ones_like(logits))`; a fake that is `.detach()`ed ends D's backward.
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


# %% check="gan-step" points=2
amp_loops.check_gan_step(gan_step)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Two scaled backwards, two steps, one scale. When has the scaler seen all? G's backward leaves gradients in D: who
# empties them?
# </details>

# %%
from labkit.training.data import batches, digits
from labkit.training.models import Discriminator, Generator

torch.manual_seed(0)
G, D = Generator().to(device), Discriminator().to(device)
g_optimizer = torch.optim.Adam(G.parameters(), lr=1e-3)
d_optimizer = torch.optim.Adam(D.parameters(), lr=1e-3)
step, scaler = yours(gan_step, ours.gan_step), torch.amp.GradScaler(device)
with emulate_gpu():
    for real, _ in batches(digits().train_images, digits().train_labels, 128):
        noise = torch.randn(len(real), G.noise).to(device)
        losses = step(G, D, real.to(device), noise, d_optimizer, g_optimizer, scaler, device)
claim(f"{whose(step)} step: both losses are finite", all(map(math.isfinite, losses)))

# %% [markdown]
# ### Review a pull request
#
# Eight hunks, taken from loops that people published. Five of them have faults, one even two; three look odd and are
# right. Read them as a reviewer does: what state does each call find?

# %%
print(amp_review.pull_request())

# %% [markdown]
# ### Exercise: your review
#
# *20 minutes.* Comment on lines: a dict from the number of a line to a reason. One comment for each fault is enough.
# Where a line is missing, comment on any line of the hunk that shows it.

# %% exercise="review"
review = ...  # such as {2: "stale", 7: "silent"}
### BEGIN SOLUTION
review = {1: "weights", 14: "stale", 31: "scaled", 35: "twice", 36: "silent", 56: "stale"}
### END SOLUTION

# %% check="review" points=3
amp_review.check_review(review)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Put the calls of each hunk into `faults([...])`, or into the widget. Hunks 1 and 6 ask another question: which dtype?
# </details>

# %% [markdown]
# ### What the machine says
#
# Hunks 2, 4 and 7 are right: `backward` needs no block, `step` does not unscale twice, one scale wants one update. Now
# hunk 3. What does a loop without `zero_grad` do? Measure before you answer.


# %%
def last_gradient(xs, scaler):
    """The gradient of w * x in the last of a few steps without zero_grad."""
    w = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], lr=0.0)
    for x in xs:
        scaler.scale(w * x).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    return w.grad.item()


off, live = (torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=on) for on in (False, True))
claim("no scaler: four gradients of 1 become 4", last_gradient([1.0] * 4, off) == 4)
claim("a scale of 1024: they become 1.001", round(last_gradient([1.0] * 4, live), 3) == 1.001)
after = last_gradient([math.inf, 1.0, 1.0, 1.0], live)
claim("one inf, then three good batches: still no finite gradient", not math.isfinite(after))

# %% [markdown]
# So a live scaler hides the fault: old gradients are divided by the scale once more. Then the first overflow comes, and
# inf plus anything stays inf. Each step from then on is skipped. No error, no further learning.
#
# ### Four things called mixed precision
#
# | | weights in memory | products | updates |
# |---|---|---|---|
# | autocast AMP | FP32 | 16 bits | FP32 |
# | 16-bit weights with masters | 16 bits, and FP32 masters | 16 bits | FP32, then rounded |
# | pure BF16 | BF16 | BF16 | BF16, rounded stochastically |
# | scaled FP8 | FP32 or BF16 | FP8 with scales | FP32 |
#
# **Quantization** is another thing: a trained network is stored or run in few bits. The recipe of this lab is the
# first row: FP32 parameters, forward and loss in autocast, a scaler only for FP16. Then compare with an FP32 run.

# %% [markdown]
# ### Optional: the NaN detective
#
# A run fails; you have eight instruments and four queries. Ask for what rules out most suspects, then accuse. Another
# number opens another case.

# %% tags=["nbval-ignore-output"]
from labkit.labs.detective.widget_nan_detective import NanDetective

NanDetective(5, lab="05_automatic_mixed_precision")

# %% [markdown]
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("05_automatic_mixed_precision")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** PyTorch 2.13: `torch.amp` (the lists), *Automatic Mixed Precision examples* (clipping, accumulation, several
# models), `ATen/autocast_mode.h`, `torch/amp/grad_scaler.py`, `torch/_inductor/config.py`. Micikevicius et al.,
# arXiv:1710.03740. NVIDIA, *H100 Tensor Core GPU* data sheet. Goodfellow et al., arXiv:1406.2661 (GAN).
#
# **Next.** [Lab 06: hardware, and honest benchmarks](06_hardware_and_benchmarks.ipynb).
