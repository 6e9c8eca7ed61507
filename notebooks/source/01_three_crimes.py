# %% [markdown]
# # 1. Three crimes: what mixed precision is, and is not
#
# You turn a training loop into a mixed precision loop, see three 16-bit runs fail, and count the bytes of one step.
#
# *any laptop · needs: Python, and what a training step does*
#
# After this lab you can:
#
# - write a BF16 training step, and say which of its tensors are 16-bit, which FP32, and what each costs in bytes;
# - tell three failures of 16-bit training apart by their evidence, and repair them.
#
# ## Sitting A: one loop in 16 bits
#
# *You are here:* **the gain** → dtypes → five runs → the first NaN → *stop*

# %%
from dataclasses import replace
import torch
from torch.nn.functional import cross_entropy
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.three_crimes import checks, predictions as guesses, solutions as ours
from labkit.labs.three_crimes.trials import RUNS, run

# %% [markdown]
# First, a few questions about bytes and figures. FP16 is a 16-bit float format.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("01_three_crimes")

# %% [markdown]
# ### What 16 bits gain
#
# This loop trains a small network on images of digits for one epoch, in FP32 (`torch.float32`, the
# default of PyTorch, with 24 significant bits).

# %%
from labkit.training.data import batches, digits
from labkit.training.models import mlp

data = digits()
images, labels = data.train_images.flatten(1), data.train_labels
torch.manual_seed(0)
model = mlp(64, 256, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

losses = []
for x, y in batches(images, labels, 64):
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
claim("in one epoch the loss falls from above 2.2 to below 2", losses[-1] < 2 < 2.2 < losses[0])

# %% [markdown]
# One more line makes this a **mixed precision** loop: matmuls run in a 16-bit format, and what needs more precision or
# range stays in FP32. These gains are **published**, not measured here:
#
# | model and GPU | FP32 | mixed precision | speed | quality, FP32 and mixed |
# |---|---|---|---|---|
# | GPT, 254 M parameters, H100 PCIe | 16,882 tokens/s | BF16: 63,361 tokens/s | 3.8 times | loss 3.8173 and 3.8163 |
# | ResNet-50, V100 16 GB; mixed with a larger batch and another memory layout | 367 images/s, 0.70 s for 256 | FP16: 1200 images/s, 0.21 s for 256 | 3.3 times | top-1 77.0 % and 76.9 % |
#
# The Tensor Cores of a GPU multiply 16-bit matrices many times faster than its ordinary cores multiply FP32 ones, and
# the 16-bit tensors move half as many bytes. So large matmuls and convolutions gain most. A tiny model gains nothing,
# and neither does one that waits for data.
#
# There are two 16-bit formats. **FP16** (`torch.float16`) keeps 11 significant bits, about 3 decimal digits, but
# has a short range: its largest number is 65504, and a magnitude of 2⁻²⁵ (3e-8) or less becomes 0. **BF16**
# (`torch.bfloat16`) has nearly the range of FP32 (up to 3e38), but only 8 significant bits, 2 to 3 digits.
#
# `torch.autocast` makes the casts. Inside its block each matmul and convolution gets 16-bit copies of its inputs, while
# functions such as `cross_entropy` run in FP32. The block holds the forward pass and the loss. `backward` stands after it,
# because autograd runs each op of the backward pass in the dtype of its forward.
#
# ### Exercise: a step in BF16
#
# *9 minutes, about 6 lines.* Write `bf16_step`, the body of the loop above with BF16 autocast around the forward pass and
# the loss. `with torch.autocast(device_type, dtype=...):` opens the block. Without a `dtype`, the block is FP16 on a GPU. labkit's `train` does not count.
#
# - **Input:** a model with FP32 parameters, its optimizer, a batch of images and labels. The device type is
#   `images.device.type`; autocast works on "cpu" too.
# - **Output:** the loss as a Python float, not a tensor, such as 2.34 for the untrained model above and its first
#   batch. The parameters
#   stay FP32.
# - **Edge case:** `.grad` may still hold gradients of an earlier step. They must not count.
# - `backward()` and the optimizer's step run outside the block.


# %% exercise="bf16-step"
def bf16_step(model, optimizer, images, labels) -> float:
    """One training step under BF16 autocast: the loss of the batch."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION


# %% check="bf16-step" points=2
checks.check_bf16_step(bf16_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the five lines in the loop call the model or the loss function? Only those need the block.
# </details>
# <details><summary>Hint 2</summary>
#
# In FP16, for a model that returns its own loss: `with torch.autocast("cuda", dtype=torch.float16): loss = model(batch)`.
# </details>
#
# Now compare both steps on your machine. `work_and_memory` counts the operations of a step and the bytes that autograd keeps for backward. The
# times are rough, on one thread; lab 06 measures properly.

# %%
from labkit.measuring import work_and_memory

wide, batch = mlp(64, 512, 512, 10), (images[:1024].repeat(4, 1), labels[:1024].repeat(4))
work, kept = {}, {}
for precision in ("fp32", "bf16"):
    work[precision], kept[precision] = work_and_memory(wide, batch, precision=precision)
    print(f"{precision}: {work[precision] / 1e9:.1f} GFLOP, {kept[precision] / 1e6:.1f} MB kept")

# %% tags=["nbval-ignore-output"]
from torch.utils.benchmark import Timer


def fp32_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    optimizer.step()


step_in_bf16, wide_adam = yours(bf16_step, ours.bf16_step), torch.optim.Adam(wide.parameters())
for name, step in {"FP32": fp32_step, f"BF16, {whose(step_in_bf16)} step": step_in_bf16}.items():
    timer = Timer("step(wide, wide_adam, *batch)", globals=globals() | {"step": step})
    print(f"{name}: {1e3 * timer.timeit(4).mean:.0f} ms")

# %% [markdown]
# In BF16 autograd keeps a little more than half of the bytes. The time depends on your processor: without BF16
# instructions it may rise.
#
# **The default in 2026** is what you wrote: BF16 autocast, FP32 parameters and optimizer state, no loss scaler (a scaler multiplies the
# loss before backward, so that small gradients do not become 0 in FP16). The exception is a GPU without fast BF16, such as a T4 or a V100: there you use FP16 autocast with a `GradScaler` (lab 04).
#
# ### The dtypes of a step
#
# Which tensors of your step are 16-bit? You can read the dtypes of parameters, gradients and
# optimizer state after the step. To see the output of a layer you need
# a **forward hook**: a function that the layer calls after each forward pass.
#
# ### Exercise: the dtype of each tensor
#
# *9 minutes, about 7 lines.* Write `witness`, which runs `step()` once and returns a dict of five dtypes:
#
# - `"parameter"` and `"gradient"`: of the layer's weight;
# - `"activation"`: of the layer's output during the step;
# - `"loss"`: of the tensor that `step()` returns;
# - `"state"`: of Adam's running mean of the weight's gradient.
#
# If model and batch were cast to BF16, all five would be `torch.bfloat16`. The step may use autocast or not. The layer may be of any kind and
# may have no bias; another layer of the model may have another dtype. Leave no hook on the layer.


# %% exercise="witness"
def witness(layer, optimizer, step) -> dict:
    """Role -> dtype of one training step; step() does forward, backward and update, returns loss."""
    # `handle = layer.register_forward_hook(look)` asks the layer to call look(layer, inputs, output)
    # each time it has computed. look must return None: anything else replaces the output.
    # `handle.remove()` ends that.
    # `optimizer.state[layer.weight]["exp_avg"]` is Adam's running mean of the gradient.
    seen = {}
    ### BEGIN SOLUTION
    handle = layer.register_forward_hook(
        lambda layer, inputs, output: seen.update(activation=output.dtype)
    )
    seen["loss"] = step().dtype
    handle.remove()
    seen["parameter"] = layer.weight.dtype
    seen["gradient"] = layer.weight.grad.dtype
    seen["state"] = optimizer.state[layer.weight]["exp_avg"].dtype
    ### END SOLUTION
    return seen


# %% check="witness" points=2
checks.check_witness(witness)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four of the five can be read after `step()`. Which one cannot?
# </details>
# <details><summary>Hint 2</summary>
#
# With a list instead of a dict: `h = layer.register_forward_hook(lambda l, i, o: found.append(...))`, then `step()`,
# then `h....()`.
# </details>
#
# `emulate_gpu()` makes autocast on a CPU follow the rules of a GPU. On a GPU you leave it out and write "cuda".

# %%
from labkit.emulation import emulate_gpu


def autocast_step():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images[:64]), labels[:64])
    loss.backward()
    optimizer.step()
    return loss


report = yours(witness, ours.witness)
with emulate_gpu():
    dtypes = report(model[1], optimizer, autocast_step)
print(f"By {whose(report)} function, under BF16 autocast:")
for role in ("activation", "parameter", "gradient", "state", "loss"):
    print(f"  {role:10} {dtypes[role]}")

# %% [markdown]
# Of these five, only the activation is 16-bit. Autocast makes 16-bit copies of the weights, and the weights stay FP32. The
# backward pass computes the gradients of activations and weights in 16 bits. At this cast it converts the weight's
# gradient to FP32. The loss is FP32 because autocast runs `cross_entropy` in FP32.
#
# Large systems often use another design: a 16-bit model whose optimizer updates an FP32 copy of the weights, the **master
# weights**. Under autocast the parameters themselves are FP32, so no master copy is needed.
#
# Judge six methods.


# %% predict="methods"
@predict(guesses.methods)
def mixed():
    return [len(formats) > 1 for formats in guesses.FORMATS.values()]


# %% [markdown]
# Mixed precision means that a training step stores its tensors in more than one floating-point format.
#
# | method | what it is |
# |---|---|
# | `model.half()` | pure 16-bit training |
# | autocast | mixed precision, FP32 parameters |
# | 16-bit model, FP32 copy | mixed precision with master weights |
# | FP8 matmuls with scales | mixed precision with 8-bit floats, as in NVIDIA's Transformer Engine |
# | PTQ | quantization after training: no training step at all |
# | QAT | quantization prepared in training: values are rounded to integers, the arithmetic usually stays in one float format |

# %% [markdown]
# ### Five runs
#
# Five small networks train in 16 bits under `emulate_gpu()`. For each there is an FP32 run with the same data and initial
# weights.
#
# | run | what is 16-bit | optimizer and rate | task |
# |---|---|---|---|
# | A | matmuls in FP16 (autocast), no loss scale | Adam, 1e-3 | digits |
# | B | everything in FP16 (`model.half()`) | SGD, 0.1 | digits |
# | C | everything in FP16 | Adam, 1e-3 | digits |
# | D | everything in BF16 | Adam, 5e-5 | digits |
# | E | matmuls in FP16 (autocast), no loss scale | Adam, 1e-2 | autoencoder, loss times 1e-3 |
#
# The next cell trains all ten in a few seconds.


# %% predict="bet"
@predict(guesses.bet)
def fails():
    pairs = [(run(trial), run(replace(trial, precision="fp32"))) for trial in RUNS.values()]
    # FP32 runs from other initial weights end up to CHANCE apart. A NaN counts as a failure.
    return [not abs(low.final_loss - full.final_loss) < checks.CHANCE for low, full in pairs]


# %% [markdown]
# The format alone does not decide. A and B use FP16 and train as well as FP32: A has no loss scale, and no tensor of B is FP32. D uses BF16, which many call the safe format, and fails. The rest of this lab finds out why C, D and E fail.

# %% [markdown]
# The picture compares three runs of one task: in FP32, with everything in 16 bits, and in mixed precision. Press *Play*.
# Then change one setting at a time and change it back: which ones rescue the run that is 16-bit throughout?

# %% tags=["nbval-ignore-output"]
from labkit.labs.three_crimes.widget_run_race import RunRace

race = RunRace()
race

# %% [markdown]
# From the opening position, two settings keep the run that is 16-bit throughout free of NaN: BF16, or an eps of 1e-4.
# Neither works in every position: at the middle learning rate BF16 stalls. Mixed precision in BF16, or in FP16 with a
# loss scale, ends like FP32 in every position.
#
# ### The first NaN
#
# Run C is the first loop of this lab with model and images cast to FP16.

# %%
torch.manual_seed(0)
model = mlp(64, 256, 10).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)

losses = []
with emulate_gpu():
    for x, y in batches(images.half(), labels, 64):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(f"loss {losses[0]:.1f}, then {losses[1]}, and at the end {losses[-1]}")

# %% [markdown]
# The loss is NaN from the second step on. NaN spreads to everything computed from it, so look for the **first** tensor
# that is not finite. The failure lies in the operation that made it, or before.
#
# ### Exercise: the first that is not finite
#
# *4 minutes, about 3 lines.* Write `first_nonfinite`.
#
# - **Input:** pairs (name, tensor) in the order in which they were computed, possibly from an iterator, possibly without any
#   pair. A tensor may be empty and may hold integers or floats of 16, 32 or 64 bits. The sum of finite values may overflow:
#   such a tensor is still finite.
# - **Output:** the name of the first tensor that holds inf, -inf or NaN, else None. For
#   `[("a", torch.tensor([1.0])), ("b", torch.tensor([torch.inf]))]` it is `"b"`.


# %% exercise="first-nonfinite"
def first_nonfinite(named_tensors):
    """The name of the first tensor that holds an inf or a NaN; None if all are finite."""
    ### BEGIN SOLUTION
    for name, x in named_tensors:
        if not x.isfinite().all():
            return name
    return None
    ### END SOLUTION


# %% check="first-nonfinite" points=2
checks.check_first_nonfinite(first_nonfinite)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.isfinite` answers for each element. What must hold for all of them?
# </details>
# <details><summary>Hint 2</summary>
#
# For plain floats: `next((name for name, x in pairs if not math.isfinite(x)), None)`.
# </details>
#
# The next cell repeats the first step of run C and searches its tensors.

# %%
torch.manual_seed(0)
model = mlp(64, 256, 10).half()
weight = model[1].weight
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
with emulate_gpu():
    loss = cross_entropy(model(images[:64].half()), labels[:64])
    loss.backward()
    optimizer.step()
mean, square = (optimizer.state[weight][key] for key in ("exp_avg", "exp_avg_sq"))
tensors = {"loss": loss, "gradient": weight.grad, "mean": mean, "square": square, "weight": weight}
find, vanished = yours(first_nonfinite, ours.first_nonfinite), square == 0
claim(f"by {whose(find)} search, the first is the weight", find(tensors.items()) == "weight")
claim("eps, 1e-8, is 0 in FP16", torch.tensor(1e-8).half() == 0)
claim("more than 9 in 10 of Adam's mean squares are 0", vanished.float().mean() > 0.9)
claim("where the mean is 0 too, 0 / 0 is NaN", torch.equal(weight.isnan(), vanished & (mean == 0)))
claim(
    "where the mean square is 0 and the mean is not, mean / 0 is inf",
    torch.equal(weight.isinf(), vanished & (mean != 0)),
)

# %% [markdown]
# The loss and the gradients are finite. Adam divides the running mean of the gradient, m, by sqrt(v) + eps, where v is the
# running mean of its square. In FP16, eps = 1e-8 is rounded to 0. In the first step v is 0.001 times the squared
# gradient. It is rounded to 0 where the magnitude of the gradient is below about 0.0055, because 0.001 × 0.0055² is
# about 2⁻²⁵. (Fused Adam computes the denominator in FP32 and does not divide by 0.) Run B uses SGD, which does not divide.
#
# *A good place to stop.* Sitting B has its own setup.

# %% [markdown]
# ## Sitting B: causes, repairs and bytes
#
# *You are here:* *stop* → **causes** → repairs → bytes → claims → outlook

# %%
from dataclasses import replace
import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.three_crimes import checks, predictions as guesses, solutions as ours
from labkit.labs.three_crimes.trials import RUNS, run

# %% [markdown]
# ### Three failures
#
# Of the five runs, A and B end like FP32; C, D and E do not. *Zero gradients* is their share in the first step, and *moved*
# the share of weights that a usual step changes (steps with a NaN loss are skipped). Compare C and E with A, and D
# with its own FP32 run.

# %% tags=["nbval-ignore-output"]
trials = {name: RUNS[name] for name in "ACDE"} | {"D in FP32": replace(RUNS["D"], precision="fp32")}
rows = {}
for name, trial in trials.items():
    end = run(trial)
    rows[name] = [
        end.losses[0],
        end.losses[-1],
        f"{end.zero_gradients:.0%}",
        f"{end.usual_move:.0%}",
    ]
pd.DataFrame(rows, ["first loss", "last loss", "zero gradients", "moved"]).T

# %% [markdown]
# A quarter of zero gradients is normal here: FP32 has them too, from black pixels and idle units. **C** becomes NaN in its
# first update, because Adam's denominator is 0. **E** has no gradient left: its loss is the squared error, averaged over 92,032
# pixels (1438 images of 64) and multiplied by 1e-3. The derivative of a squared error is 2 times the error, and no error
# is above 1 here. So the gradient of an output pixel, which is FP16 as the output is, is at most 2 / 92,032 × 1e-3, or
# 2.2e-8. This is below
# 2⁻²⁵ and becomes 0 in FP16, and so does every gradient computed from it. This is **underflow**. **D** has its gradients,
# and still few weights move: the run **stalls**.
#
# The **gap** is the distance from a number to the next one in its format. The gap grows with the number: in BF16 it is 4.9e-4 at
# 0.1 and 1.5e-5 at 0.003. An update below about half a gap is lost when it is added: 0.1 + 5e-5 is 0.1 again in BF16. Adam's updates are at most about as large as its learning rate, and D's rate
# is 5e-5.

# %%
pixels = 1438 * 64
claim("2 / pixels * 1e-3 bounds E's gradients: below 2**-25", 2 / pixels * 1e-3 < 2**-25)
w = torch.tensor([0.1, 0.003], dtype=torch.bfloat16)
claim(
    "0.1 + 5e-5 is 0.1 in BF16, and 0.003 + 5e-5 is not 0.003", (w + 5e-5 == w).tolist() == [1, 0]
)

# %% [markdown]
# ### Exercise: updates that change nothing
#
# *8 minutes, about 4 lines.* Write `lost_updates`, a monitor that tells a stall from a vanished gradient. Of the updates
# that are not 0, it returns the share that leaves its weight as it was.
#
# - **Input:** `weight`, a tensor in float32, float16 or bfloat16; `update`, float32, of the same shape. The new weight is
#   `weight + update`, rounded once, to the dtype of `weight`.
# - **Output:** a float from 0 to 1. For BF16 weights `[1, 1, 1]` and updates `[0, 2**-9, 2**-7]` it is 0.5: the gap at 1 is 2⁻⁷, so
#   the second update is lost and the third arrives. The first does not count.
# - **Edge cases:** 0.0 if all updates are 0, or if the tensors are empty. Updates and weights may be negative.
# - Leave `weight` itself unchanged.


# %% exercise="lost-updates"
def lost_updates(weight, update) -> float:
    """Of the updates other than 0, the share that the sum with the weight rounds away."""
    ### BEGIN SOLUTION
    stored = (weight + update).to(weight.dtype)
    tried = update != 0
    if not tried.any():
        return 0.0
    return (stored == weight)[tried].float().mean().item()
    ### END SOLUTION


# %% check="lost-updates" points=2
checks.check_lost_updates(lost_updates)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A BF16 tensor plus a float32 tensor is float32. What does the optimizer store?
# </details>
# <details><summary>Hint 2</summary>
#
# For one FP16 weight: `(w + u).half() == w`. A boolean tensor can also select: `lost[u != 0]`.
# </details>
#
# The next cell takes the first update of run D in FP32 and prints the share of it that weights in each format
# would lose.

# %% tags=["nbval-ignore-output"]
from labkit.training.data import digits
from labkit.training.models import mlp

data = digits()
torch.manual_seed(0)
model = mlp(64, 256, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
before = model[1].weight.detach().clone()
cross_entropy(model(data.train_images[:64].flatten(1)), data.train_labels[:64]).backward()
optimizer.step()
update = model[1].weight.detach() - before
lost = yours(lost_updates, ours.lost_updates)
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    print(f"{dtype}: {lost(before.to(dtype), update):.0%} lost, by {whose(lost)} function")
claim("BF16 loses most of these updates", ours.lost_updates(before.bfloat16(), update) > 0.8)

# %% [markdown]
# FP16 weights lose almost nothing, because with 3 more bits their gaps are 8 times narrower.
#
# ### Repairs
#
# For run D a colleague proposes a fifth of its learning rate, "to be careful".


# %% predict="lower-rate"
@predict(guesses.lower_rate)
def moved():
    slow, usual = run(replace(RUNS["D"], lr=1e-5)), run(RUNS["D"])
    change = slow.usual_move - usual.usual_move
    return "as many" if abs(change) < 0.01 else "more" if change > 0 else "fewer"


# %% [markdown]
# A BF16 weight changes only if its update is at least about half the gap at that weight. An update a fifth as large reaches
# this at fewer weights, so a lower learning rate makes the stall worse.

# %% [markdown]
# ### Exercise: a repair in one setting
#
# *4 minutes, 1 line.* Repair run D by changing one setting. The run must keep some 16-bit matmuls and end where the FP32 run
# with D's settings ends, because its small updates arrive. Ending there by larger or other updates does not count.
#
# Set `pardon` to a dict with one setting and its new value, such as `{"eps": 1e-6}`. The settings are `lr`, `eps`,
# `loss_weight` and `precision`: "pure_bf16" (now), "pure_fp16", "fp32", or autocast in "bf16" or "fp16".

# %%
print(RUNS["D"])

# %% exercise="pardon"
pardon = ...  # such as {"eps": 1e-6}
### BEGIN SOLUTION
pardon = {"precision": "bf16"}
### END SOLUTION

# %% check="pardon" points=2 seconds=120
checks.check_pardon(pardon)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Each update has the right size and is lost in the sum. Which tensor needs more significant bits?
# </details>
# <details><summary>Hint 2</summary>
#
# In FP32, 0.1 + 5e-5 is not 0.1. In which of the precisions did `witness` find FP32 weights?
# </details>
#
# Autocast keeps the weights, and so Adam's state, in FP32. There neither v nor eps is rounded to 0, so autocast repairs C
# as well. E needs **loss scaling**: multiply the loss before backward, and divide the gradients afterwards (lab 04). A
# larger eps only seems to repair C.

# %% tags=["nbval-ignore-output"]
repaired = {
    "C under autocast": run(replace(RUNS["C"], precision="fp16")),
    "C with eps 1e-4": run(replace(RUNS["C"], eps=1e-4)),
    "C in FP32": run(replace(RUNS["C"], precision="fp32")),
    "C in FP32 with eps 1e-4": run(replace(RUNS["C"], precision="fp32", eps=1e-4)),
    "E with a loss scale of 256": run(replace(RUNS["E"], precision="fp16", loss_scale=256.0)),
    "E in FP32": run(replace(RUNS["E"], precision="fp32")),
}
pd.DataFrame(
    {name: [end.final_loss] for name, end in repaired.items()}, ["mean loss of the last 20 steps"]
).T

# %% [markdown]
# With eps = 1e-4, run C ends lower than FP32 with either eps. It became another run: where the mean square is still 0, Adam
# divides by eps alone, and the step is lr / eps = 10 times the mean gradient.
#
# ### The byte ledger
#
# "Mixed precision halves the memory" is true of some tensors only. A step holds five kinds: weights, gradients, Adam's two **moments** (the running means of the
# gradient and of its square), the 16-bit copies of the weights, and **activations**, the outputs
# that backward needs again. Backward needs the copies too, so they are kept until then.
#
# ### Exercise: the byte ledger
#
# *6 minutes, about 5 lines.* Count the bytes of each kind, at its largest, in a step under 16-bit autocast with Adam.
#
# - **Input:** the number of parameters, and of activation values kept for backward; either may be 0. Each of these
#   activations is the output of an op that ran in 16 bits. Assume that autocast copies every parameter.
# - **Output:** a dict with the keys `"weights"`, `"gradients"`, `"adam"`, `"copies"` and `"activations"`. For a model and
#   optimizer that are FP16 throughout, `ledger(1, 0)` would give 2, 2, 4, 0 and 0.


# %% exercise="ledger"
def ledger(parameters: int, activations: int) -> dict:
    """Kind of tensor -> bytes under 16-bit autocast with Adam."""
    ### BEGIN SOLUTION
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "adam": 8 * parameters,
        "copies": 2 * parameters,
        "activations": 2 * activations,
    }
    ### END SOLUTION


# %% check="ledger" points=2
checks.check_ledger(ledger)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which dtype did `witness` report for each kind, and how many bytes has it?
# </details>
# <details><summary>Hint 2</summary>
#
# Adam keeps two numbers for each parameter. In which dtype?
# </details>
#
# `LiveBytes` adds up the tensors that are alive after each op of a real step.

# %%
from labkit.labs.three_crimes.figures import time_line
from labkit.measuring.live_bytes import LiveBytes


def one_step(*, bf16, keep_gradients=False, batch=1):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x = torch.randn(batch, 256, requires_grad=True)  # like the output of an earlier layer
    with LiveBytes().hold(model) as live:
        for _ in range(2):  # the first step only makes Adam's state
            live.restart()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                loss = model(x).square().mean()
            live.mark("end of forward")
            loss.backward()
            live.mark("end of backward")
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep_gradients)
            live.mark("after step and zero_grad")
    return live


parameters = 8 * 256 * 256


# %% predict="peak"
@predict(guesses.peak)
def most():
    return round(max(one_step(bf16=True).history) / parameters)


# %% [markdown]
# The copies and the gradients are never all alive together. At the end of the forward pass 14 bytes are alive: weights (4),
# moments (8) and copies (2). Backward then goes through the layers. It frees a layer's 2-byte copy as it makes the 4-byte
# gradient, so the total rises to 16. `zero_grad` sets the gradients to None, and 12 are left.

# %%
steps = {
    "FP32": one_step(bf16=False),
    "BF16 autocast": one_step(bf16=True),
    "BF16 autocast, gradients kept": one_step(bf16=True, keep_gradients=True),
}
for name, step in steps.items():
    alive = [f"{size / parameters:.1f}" for _, size in step.marks.values()]
    print(f"{name}: {', '.join(alive)} bytes a parameter")

# %% tags=["nbval-ignore-output"]
time_line(steps, parameters)

# %% [markdown]
# In the third line gradients stay alive between steps, because you accumulate them over micro-batches or call
# `zero_grad(set_to_none=False)`. Then gradients and copies coexist: about **18 bytes** a parameter. With fused Adam a step needs
# about **16**, as in FP32. Adam's `foreach` version, torch's default on a GPU, holds temporary tensors of some 4 bytes more.
#
# Interviewers often mean another 16, that of the [ZeRO paper](https://arxiv.org/abs/1910.02054), for a 16-bit model with
# master weights: 2 (weights) + 2 (gradients) + 4 (master weights) + 4 + 4 (moments).
#
# What shrinks is the activations, from 4 bytes to 2, where an op ran in 16 bits. So the saving grows with the batch,
# the sequence and the image size.

# %%
wide = {bf16: max(one_step(bf16=bf16, batch=1024).history) for bf16 in (False, True)}
claim("batch 1024: the peak is at least a fifth lower", wide[True] < 0.8 * wide[False])

# %% [markdown]
# ### Four claims
#
# The cells below decide four claims from articles.

# %%
from labkit.emulation import emulate_gpu
from torch.utils.flop_counter import FlopCounterMode


def flops(dtype):
    layer, x = torch.nn.Linear(64, 128).to(dtype), torch.ones(32, 64, dtype=dtype)
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    return counter.get_total_flops()


def chosen(x):
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        y = x @ x
        return y.dtype, y.softmax(dim=1).dtype, (y + y).dtype


# %% predict="myths"
@predict(guesses.myths)
def hold():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    entries = ours.ledger(1, 0)
    return [
        flops(torch.float16) < flops(torch.float32),
        entries["gradients"] + entries["adam"] < 12,
        len({chosen(size * x) for size in (1e-6, 1.0, 1e6)}) > 1,
        torch.equal(x.half().float(), x),
    ]


# %% [markdown]
# All four are false. The operations are the same; Tensor Cores do more of them in a second, and fewer bytes move. Gradients
# and moments are FP32. Autocast looks up each function in a fixed list. In "dynamic loss scaling" only the scale is dynamic,
# not the dtypes. What a cast dropped stays lost; under autocast nothing needs restoring, because the weights stay FP32.

# %% [markdown]
# ### Outlook
#
# On Hopper and later GPUs, FP8 matmuls with scales are in use: [DeepSeek-V3](https://arxiv.org/abs/2412.19437) was
# trained that way. FP4 with block scales, such as [NVFP4](https://arxiv.org/abs/2509.25149), is beginning.
#
# Three cards to discuss, each with its source.
#
# <details><summary>Edge devices: train where the data is?</summary>
#
# Lin et al. (arXiv:2206.15472) fine-tune in INT8 on a microcontroller and rescale the gradients, whose sizes differ widely.
# Which of the three failures can they prevent, and why?
# </details>
# <details><summary>Federated learning: send fewer bits?</summary>
#
# FedPAQ (arXiv:1909.13014) quantizes the updates that devices send. Which bytes that a device sends are missing from your ledger?
# </details>
# <details><summary>Continual learning: small steps on an old model?</summary>
#
# Schiemer et al. (PMLR 274:198-220) report that usual fully quantized training does not converge there. New tasks often mean
# small updates to large weights. Which of the five runs is like that?
# </details>

# %% [markdown]
# ### Say it
#
# Where a question asks you to speak, answer aloud, write one line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("01_three_crimes")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** H100: RalphLabsAI/ralph, release v0.5.1 (2026), one run each, use of TF32 not stated. V100: NVIDIA
# DeepLearningExamples, ResNet50 v1.5 for PyTorch. Micikevicius et al., arXiv:1710.03740. Zamirai et al., arXiv:2010.06192.
# PyTorch documentation, `torch.amp`.
#
# **Next.** Lab 02 builds the number formats: [Build a number system](02_number_formats.ipynb).
