# %% [markdown]
# # 4. Build one machine: master weights and loss scaling
#
# You see a network that does not learn in FP16, repair it with a few lines of AMP, and build the loss scaler behind them.
#
# *any laptop · needs: labs 02 and 03, above all half a gap and the range of FP16*
#
# After this lab you can:
#
# - write the FP16 training loop and the dynamic loss scaler in it, and say what each line prevents;
# - tell a gradient that underflowed from an update that was rounded away, and repair each.
#
# ## Sitting A: gradients and updates that disappear
#
# *You are here:* **the backward pass** → AMP loop → fixed scale → master weights → *stop*

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.loss_scaling import figures, predictions as guesses, solutions as ours
from labkit.labs.loss_scaling.checks import check_amp_loop, check_masters
from labkit.labs.loss_scaling.recorded import autoencoder_gradients
from labkit.training.data import digits

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("04_loss_scaling")

# %% [markdown]
# ### A run that does not learn
#
# This autoencoder squeezes an image of 64 pixels into 16 numbers and rebuilds it. Its error is one of several terms of a
# loss, so it is weighted by 1e-3. `learn` is the usual loop, in FP32 or with FP16 autocast. With `emulate_gpu()`, autocast on
# a CPU rounds at the same places as on CUDA.

# %%
from labkit.emulation import emulate_gpu
from labkit.training.models import Autoencoder

images = digits().train_images.flatten(1)  # 1,438 digits of 64 pixels


def weighted_error(output, images):
    return 1e-3 * torch.nn.functional.mse_loss(output, images)


def learn(steps, autocast):
    torch.manual_seed(0)
    model, losses = Autoencoder(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with emulate_gpu():
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
                loss = weighted_error(model(images), images)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return model, losses


(_, in_fp32), (_, in_fp16) = learn(25, autocast=False), learn(25, autocast=True)
claim("FP32: after 25 steps the loss is less than half", in_fp32[-1] < in_fp32[0] / 2)
claim("FP16: the loss is the same in all 25 steps", len(set(in_fp16)) == 1)

# %% [markdown]
# The model has 20,816 parameters. Look at their gradients in the first step of the FP16 run.


# %% predict="zero-gradients"
@predict(guesses.zero_gradients)
def percent():
    model, _ = learn(1, autocast=True)
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    return 100 * (gradients == 0).double().mean().item()


# %% [markdown]
# The loss itself is FP32. The first gradient that must fit in FP16 is the one at the network's output, and `mse_loss`
# has divided it by 1438 × 64 values, and the factor 1e-3 divides it by another 1000. Its largest element is 2.6e-8. In FP16 every value of magnitude
# at most 2⁻²⁵ (3.0e-8) rounds to 0. Every gradient further back is computed from these zeros, so it is 0 as well.

# %% [markdown]
# The figure follows the backward pass from the loss to the input, with two gradients for each layer: of its output and of
# its weight. In the upper plot, compare the gradients with the dashed line at 2⁻²⁵. In the lower plot, compare each gradient's two bars: the zeros after a cast
# of the FP32 gradient, and the zeros in the FP16 pass.

# %%
torch.manual_seed(0)
model = Autoencoder()
fp32 = figures.layer_gradients(model, images, weighted_error, autocast=False)
fp16 = figures.layer_gradients(model, images, weighted_error, autocast=True)
claim("no gradient of an output reaches 2**-25", all(g.output.abs().max() < 2**-25 for g in fp32))
fits = [(g.weight.abs() > 2**-25).double().mean() for g in fp32]
claim("of each weight's gradients, 50 to 75 % would fit FP16", 0.5 < min(fits) < max(fits) < 0.75)

# %% tags=["nbval-ignore-output"]
figures.backward_picture(fp32, fp16)

# %% [markdown]
# A weight's gradient adds up 1,438 examples, so it is larger than an output's: more than half of these values would fit in FP16. They are
# 0 all the same, because backpropagation computes them from output gradients that are 0.
#
# The share of gradients that FP16 loses depends on what you count. The cell counts in three ways.

# %%
parameters = torch.autograd.grad(weighted_error(model(images), images), list(model.parameters()))
parameters = torch.cat([g.flatten() for g in parameters])
everything = torch.cat([parameters, fp32[0].output.flatten()])
weights = torch.cat([g.weight.flatten() for g in fp16])


def too_small(gradients):
    return (gradients[gradients != 0].abs() <= 2**-25).double().mean()


zeros = (weights == 0).double().mean()
print(f"FP32 gradients of parameters, not 0 but too small:   {too_small(parameters):.1%}")
print(f"the same, with the gradient at the output counted:   {too_small(everything):.1%}")
print(f"weight gradients that the FP16 backward pass made 0: {zeros:.1%}")

# %% [markdown]
# Only the third line runs the backward pass in FP16, and it
# is what training sees. If a histogram of FP32 gradients shows many values below 2⁻²⁵, you
# need loss scaling. If it shows few, you may need it all the same, because FP16 also rounds the gradients between the layers.
#
# ### The AMP loop
#
# **Loss scaling** multiplies the loss by a number S before `backward()`, so every gradient is S times as large. Under autocast the
# parameters' gradients end up in FP32, so dividing them by S is safe. `torch.amp.GradScaler` does this:
#
# - `scaler.scale(loss)` returns the loss times S; call `backward()` on that;
# - `scaler.step(optimizer)` divides the gradients by S and calls `optimizer.step()`, or skips it if a gradient is inf or NaN;
# - `scaler.update()` chooses the S of the next step.
#
# ### Exercise: the AMP loop
#
# *10 minutes, about 7 lines.* Write `train_fp16`, one epoch with FP16 autocast and the scaler that you are given. labkit's `train` does not count.
#
# - **Input:** an FP32 model on the CPU, `loss_fn(outputs, targets)`, optimizer, `GradScaler`, and pairs `(inputs, targets)`,
#   possibly from a generator. The caller has opened `emulate_gpu()`.
# - **Output:** one loss per batch as a Python float, *not* scaled: about 2.4e-04 for the first step above.
# - **Edge cases:** `.grad` may hold old gradients, also before the first step; they must not count. Compute the loss inside the autocast block. The first scales may be too large, so that steps are skipped.


# %% exercise="amp-loop"
def train_fp16(model, loss_fn, optimizer, scaler, batches) -> list[float]:
    """One epoch of FP16 mixed precision training: the loss of each batch."""
    losses = []
    for inputs, targets in batches:
        ### BEGIN SOLUTION
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        ### END SOLUTION
    return losses


# %% check="amp-loop" points=3
check_amp_loop(train_fp16)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start from the loop in `learn`. Which of its lines must go through the scaler, and which call comes last?
# </details>
# <details><summary>Hint 2</summary>
#
# For a BF16 loop, which needs no scaler: `opt.zero_grad()`, `with torch.autocast(..., dtype=torch.bfloat16): l = f(m(x), y)`,
# `l.backward()`, `opt.step()`. The dtype becomes float16, two calls go through the scaler, and one call is added.
# </details>

# %%
amp_loop = yours(train_fp16, ours.train_fp16)
torch.manual_seed(0)
model, scaler = Autoencoder(), torch.amp.GradScaler("cpu")
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
with emulate_gpu():
    scaled = amp_loop(model, weighted_error, optimizer, scaler, [(images, images)] * 25)
near = abs(scaled[-1] / in_fp32[-1] - 1) < 0.05
claim(f"with {whose(amp_loop)} loop FP16 ends within 5 % of FP32", near)

# %% [markdown]
# ### Choosing a fixed scale
#
# Which S is right? The widget shows the FP32 gradients of the first step, parameters and output, without zeros. At S = 1
# it calls 89.3 % **lost**, as printed above. Move the scale: bring **lost** below 0.1 % while nothing overflows.

# %% tags=["nbval-ignore-output"]
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow

window = GradientWindow(autoencoder_gradients()[:1])
window

# %%
good = [k for k in range(41) if window.steps_held(scale=2.0**k)]
print(f"{len(good)} powers of two reach the goal, from 2**{good[0]} to 2**{good[-1]}")

# %% [markdown]
# Eighteen powers of two work for this step, but gradients change from step to step. An overflow costs you a whole step, while a few
# lost gradients cost almost nothing. So leave **headroom**: stay below the largest scale that fits.
#
# ### Scaling and rounding
#
# *Optional.* Does scaling also make gradients more precise? The table scales each value by 2¹², rounds it to FP16 and divides again.

# %%
from labkit.formats import FP16, quantize

print("value   error unscaled   error with S = 2**12")
for x in (1e-2, 1e-4, 1e-6, 1e-8):
    errors = [abs(quantize(x * S, FP16) / S - x) / x for S in (1, 2.0**12)]
    print(f"{x:5.0e}{errors[0]:14.0e}{errors[1]:18.0e}")

# %% [markdown]
# For 1e-2 and 1e-4 the error stays the same, because a power of two changes no mantissa bit. Scaling
# restores only what subnormals drop (1e-6) and what became 0 (1e-8).
#
# ### Underflow and swamping
#
# A gradient can be lost in two places: when it is stored, and when the weight is updated. SGD computes `weight - lr * gradient`, and the result is rounded to the weight's format.
#
# - **Underflow**: the gradient is stored as 0, whatever the learning rate. Range helps: a loss scale, or BF16.
# - **Swamping**: the update is not 0, but less than half the gap at the weight, so the weight does not change. Mantissa bits
#   help. A loss scale does not, because it is divided out before the update.
#
# In FP16 the gap just below 1 is 2⁻¹¹ (4.9e-4), and half of it is 2.4e-4. For a weight of 1 and lr = 1, a gradient of 1e-8 underflows; 1e-4 is stored, and 1 - 1e-4 rounds back to 1.
#
# ### Master weights
#
# BF16 has almost the range of float32, so almost nothing underflows. It has only 8 significant bits, though, so swamping is worse than in FP16. Here a small
# network learns digits with weights and gradients in BF16, by SGD with lr = 0.003.

# %%
from labkit.training.models import mlp

labels = digits().train_labels


def classify(make_optimizer, steps):
    torch.manual_seed(0)
    model, losses = mlp(64, 32, 10).bfloat16(), []
    optimizer = make_optimizer(model.parameters(), 0.003)
    with emulate_gpu():
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(model(images.bfloat16()).float(), labels)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return model, losses


# %% predict="lost-updates"
@predict(guesses.lost_updates)
def lost():
    model, _ = classify(torch.optim.SGD, steps=1)
    swamped = [(p - 0.003 * p.grad == p)[p.grad != 0] for p in model.parameters()]
    share = torch.cat(swamped).double().mean()
    return "over 80" if share > 0.8 else "under 10" if share < 0.1 else "about half"


# %% [markdown]
# 97 of 100 updates are swamped. Half of BF16's gap is 1/512 to 1/256 of a weight, and the median update here is about 1/14,000 of its
# weight. A smaller learning rate makes updates smaller, so more of them are swamped. With a schedule that lowers the learning rate, the end of
# training suffers most.

# %% [markdown]
# The repair is to add where the gap is small. **Master weights** are a float32 copy of each weight. The optimizer updates the copy and
# rounds it into the 16-bit weight with which the network computes.
#
# ### Exercise: masters
#
# *12 minutes, about 5 lines.* Write SGD for a model whose parameters and gradients are BF16 and stay BF16.
#
# - **Input:** `parameters` may be a generator, as `model.parameters()` is; `lr` is a float.
# - `step()` computes `lr * p.grad` in float32, subtracts it from the float32 master and rounds the master into `p`. From a weight of 1, 300 steps with gradient
#   1 and lr = 2⁻¹⁰ lead to 0.707.
# - **Edge case:** a parameter whose `grad` is None stays as it is, wherever in the list it stands.


# %% exercise="masters"
class Masters:
    """SGD on 16-bit parameters with float32 master weights."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        ### BEGIN SOLUTION
        self.masters = [p.detach().float() for p in self.parameters]
        ### END SOLUTION

    @torch.no_grad()
    def step(self):
        # `p.copy_(x)` writes x into p and rounds it to p's dtype.
        ### BEGIN SOLUTION
        for p, master in zip(self.parameters, self.masters, strict=True):
            if p.grad is not None:
                master -= self.lr * p.grad.float()
                p.copy_(master)
        ### END SOLUTION


# %% check="masters" points=2
check_masters(Masters)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# After the first of those 300 steps the exact weight is 0.9990. BF16 rounds it to 1. Which tensor must still hold 0.9990 at the second step?
# </details>
# <details><summary>Hint 2</summary>
#
# For one weight: `m -= lr * w.grad.float()`, then `w....(m)`. Where must `m` be stored so that the next `step()` finds it?
# </details>
#
# The figure shows 3,000 steps, recorded with five seeds, and in black the first 150 steps with your class. Compare BF16 weights alone
# with the other lines.

# %%
from labkit.labs.loss_scaling.recorded import weight_runs

Keeper, recorded = yours(Masters, ours.Masters), weight_runs()
_, live = classify(Keeper, steps=150)
near = abs(live[-1] - recorded["float32 weights"].losses[0][3]) < 0.01
claim(f"after 150 steps {whose(Keeper)} masters are within 0.01 of FP32's loss", near)
for name, runs in recorded.items():
    print(f"{name:26} accuracy after 3,000 steps: {100 * sum(runs.accuracy) / 5:.0f} %")

# %% tags=["nbval-ignore-output"]
figures.weights_picture(recorded, live=live, caption=f"{whose(Keeper)} masters, first 150 steps")

# %% [markdown]
# With BF16 weights alone the network guesses: its accuracy is 8 %, where chance gives 10 %. Masters restore FP32's result. The table
# compares them with two alternatives that need no float32 copy.
#
# | BF16 weights with | extra bytes a parameter | the idea | limit |
# |---|---|---|---|
# | float32 masters | 4 | add where the gap is small | the most memory |
# | Kahan's compensation (lab 03) | 2 | a BF16 number keeps what rounding dropped | needs an optimizer that also updates the compensation |
# | stochastic rounding (lab 03) | 0 | an update of a tenth of the gap moves the weight in one step of ten | adds noise; needs random bits in each step |
#
# A loss scale would have repaired none of this: here the gradients did not underflow, the updates were swamped.
#
# ### Master weights and autocast
#
# Does autocast keep a master copy as well? Look at the dtypes.

# %%
layer = torch.nn.Linear(64, 64)
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    claim("autocast: the matmul's output is FP16", layer(images).dtype == torch.float16)
claim("the parameter is float32", layer.weight.dtype == torch.float32)
same = layer.weight.half().float() == layer.weight
claim("to FP16 and back: over 99 of 100 weights have changed", same.double().mean() < 0.01)

# %% [markdown]
# No: under autocast the *parameter* itself is the FP32 weight. The copy is 16-bit: autocast makes it at the first use in a block and drops it when the outermost block
# ends. Only a model that is stored in 16 bits needs masters. Casting such a model back to FP32 does not restore the lost bits.
#
# **A stopping point.** You repaired underflow with a scale and swamping with masters. Sitting B builds the
# scaler, which changes the scale when the gradients change.

# %% [markdown]
# ## Sitting B: the loss scaler
#
# *You are here:* **the chase** → transition → step → scaler → limits of the idea

# %%
import copy, math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.loss_scaling import predictions as guesses, solutions as ours
from labkit.labs.loss_scaling.checks import check_scaled_step, check_scaler, check_transition
from labkit.training.scaling import LossScale, to_float32

# %% [markdown]
# ### The scale chase
#
# This is a recording of sitting A's autoencoder in FP32. It has 60 frames, and a frame holds the gradients of one step. In frames 21 to 34 a faulty loader delivers pixels of 0 to 4095 instead of 0 to 1.
# In the game each frame is repeated for 2,000 steps with the same gradients. A step is **held** if
# the optimizer takes it and less than 0.1 % of the gradients are lost. A step that overflows is skipped.
#
# Hold 90 % of the 120,000 steps. First try one fixed scale: set the slider in frame 1 and press *play*. Then press *dynamic* and *play*:
# the chase begins again at 2¹⁶, where `GradScaler` starts. The scale is halved at each overflow and doubled after each frame.

# %% tags=["nbval-ignore-output"]
from labkit.labs.loss_scaling.recorded import autoencoder_gradients
from labkit.training.data import digits
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow

chase = GradientWindow(autoencoder_gradients())
chase

# %%
best = max(chase.steps_held(scale=2.0**k) for k in range(41))
print(f"best fixed scale: {best:,} of 120,000 steps; dynamic: {chase.steps_held():,}")

# %% [markdown]
# No fixed scale holds 90 %: a scale that suits the first frames overflows in every step of frames 21 to 34. When a gradient overflows, **dynamic loss scaling**
# skips that step and halves S (**backoff**); after 2,000 good steps in a row it doubles
# S (**growth**). It searches for the largest scale that fits, so at times it goes one doubling too far, and when the gradients jump, as in frame 21, it needs several halvings. Each overflow
# costs a **skipped step**, here 45 of 120,000,
# and several in a row are normal at the start.
#
# ### Why 2,000 steps
#
# Suppose a scaler doubles after *every* good step, the gradients do not change, and the scale starts at the
# largest with which they fit.


# %%
def share_skipped(interval, steps=10_000, largest=2.0**20):
    state, skipped = LossScale(scale=largest, growth_interval=interval), 0
    for _ in range(steps):
        skipped += state.scale > largest
        state = state.updated(state.scale > largest)
    return 100 * skipped / steps


# %% predict="doubling"
@predict(guesses.doubling)
def percent():
    return share_skipped(interval=1)


# %% [markdown]
# A good step doubles the scale, so the next step overflows and halves it again: every second step is skipped. With an interval of 2,000 it
# is 4 steps of 10,000, or 0.04 %.

# %% [markdown]
# ### Exercise: the transition
#
# *10 minutes, about 8 lines.* Write the rule of `GradScaler.update`, a whiteboard question. `count` is the number of good
# steps since it was last set to 0. Write the rule yourself: `GradScaler` and labkit's `LossScale` do not count.
#
# 1. After an overflow the scale is multiplied by `backoff`, and the count is 0.
# 2. A good step raises the count by 1. When the count reaches `interval`, the scale is multiplied by `growth`, and the count is 0.
# 3. The scale is a float32 number. Multiply Python floats, then round the result with `to_float32`. If growth would make it inf, keep
#    the scale as it is, but still reset the count to 0. The scale has no lower limit and may become 0.
#
# **Example:** interval 2, from (8, 0): good → (8, 1), good → (16, 0), overflow → (8, 0).


# %% exercise="transition"
def transition(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    """The next (scale, count); found_inf is True after an overflow."""
    # `to_float32(x)` rounds a Python float to the nearest float32, inf beyond its range.
    ### BEGIN SOLUTION
    if found_inf:
        return to_float32(scale * backoff), 0
    if count + 1 < interval:
        return scale, count + 1
    grown = to_float32(scale * growth)
    return (grown if math.isfinite(grown) else scale), 0
    ### END SOLUTION


# %% check="transition" points=3
check_transition(transition)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Continue the example: after (8, 0) come two good steps. What is the pair after each?
# </details>
# <details><summary>Hint 2</summary>
#
# `if found_inf: return ..., 0`; `if count + 1 < interval: return scale, ...`; then growth. Which two returns have a count of 0?
# </details>

# %%
advance = yours(transition, ours.transition)
scale, count = 65536.0, 0
for _ in range(200):
    scale, count = advance(scale, count, True)
claim(f"200 overflows in a row: {whose(advance)} scale is 0", scale == 0)

# %% [markdown]
# From 0 the scale cannot grow again, because 2 × 0 = 0. If the scale falls without end, some gradient is inf or NaN at every scale. labkit's `train(..., max_skips=20)` stops such a run.
#
# ### What large runs add
#
# Megatron-LM's scaler has two more settings. A **minimum scale** stops the fall, but not the NaN: watch the loss as well.
# With **hysteresis** h, a counter starts at h and falls by 1 at each overflow. While it is above 0, an overflow only skips its step; after
# that each overflow also lowers the scale. Growth resets the counter to h. So with h = 2 the first bad batch after a growth costs one step and no halving.
#
# With sharded parameters each GPU holds the gradients of its own shard only, so **all ranks must agree on `found_inf`**. Here rank 1 alone finds an inf.

# %%
ranks = {"rank 0": (65536.0, 0), "rank 1": (65536.0, 0)}
found = {"rank 0": False, "rank 1": True}
alone = {rank: advance(*ranks[rank], found[rank])[0] for rank in ranks}
agreed = {rank: advance(*ranks[rank], any(found.values()))[0] for rank in ranks}
print("each for itself:", alone)
print("after an all-reduce (max) of found_inf:", agreed)

# %% [markdown]
# Without agreement rank 0 steps while rank 1 skips, and then they scale by different numbers. FSDP1's `ShardedGradScaler`, or `GradScaler` itself on FSDP2's
# tensors, all-reduces the flag. DDP needs no such step, because every rank holds the same averaged gradients.
#
# ### Unscale and step
#
# A colleague skips a step by setting all gradients to 0 and calling `adam.step()` as always.


# %% predict="zeroed-step"
@predict(guesses.zeroed_step)
def weights():
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([weight], lr=0.1)
    for gradient in (1.0, 0.0):
        before = weight.detach().clone()
        weight.grad = torch.full((3,), gradient)
        adam.step()
    return "stand still" if torch.equal(weight, before) else "move"


# %% [markdown]
# The weights move. Adam divides a running mean of the gradients by the root of a running mean of their squares. A gradient of 0 makes both means
# smaller, but not 0. To skip a step, do not call `adam.step()` at all.

# %% [markdown]
# ### Exercise: unscale and step
#
# *16 minutes, optional, about 12 lines.* Write a strict `scaler.step(optimizer)`: divide every gradient by the scale, and step only if all results are
# finite. In a skipped step no bit of parameters and moments may change. (PyTorch tests before it divides. The two differ only if the division itself gives
# inf or NaN, as with a scale near 0.) `GradScaler` does not count.
#
# - **Output:** True if the step was skipped, else False. With SGD, lr 1, weight 1, gradient 8 and scale 16 the weight becomes 0.5.
# - Parameters come in groups: `group["params"]` for each group of `optimizer.param_groups`. Some have no gradient.
# - An FP16 gradient raises a ValueError, as in PyTorch: divided in FP16, it would underflow again. Gradients of the other dtypes are divided.
# - Finite gradients step however large they are, even where their sum or norm would be inf.
# - After a skipped step `.grad` may hold any values.


# %% exercise="scaled-step"
@torch.no_grad()
def scaled_step(optimizer, scale: float) -> bool:
    """Unscale and step; True if the step was skipped."""
    ### BEGIN SOLUTION
    found_inf = False
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype == torch.float16:
                raise ValueError("FP16 gradients would underflow when they are unscaled")
            p.grad = p.grad / scale
            found_inf |= not p.grad.isfinite().all().item()
    if not found_inf:
        optimizer.step()
    return found_inf
    ### END SOLUTION


# %% check="scaled-step" points=0
check_scaled_step(scaled_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# What must you know about *all* gradients before the optimizer may touch the first weight?
# </details>
#
# ### Exercise: the scaler
#
# *10 minutes, about 6 lines.* Put the parts together. `unscale_and_step(optimizer, scale)` divides the gradients and steps, and returns True if it skipped.
# `advance(scale, count, found_inf, interval=...)` is the transition. Write the rest yourself: `GradScaler` and labkit's `LossScale` do not count.
#
# - An iteration calls `scale` for each loss, `step` once for each optimizer, then `update` once.
# - An optimizer takes its step if its own gradients are finite, whatever another one found. Overflows in one iteration lower the scale once.
# - After `load_state_dict`, a scaler with the same `interval` goes on as the saved one would. The dict that `state_dict()` returned must not change when the old scaler goes on.
# - **Example:** scale 8, and in an iteration the first of two optimizers overflows. The second one steps, and `update` leads to scale 4, count 0.

# %%
unscale_and_step = yours(scaled_step, ours.scaled_step)


# %% exercise="scaler"
class Scaler:
    """Dynamic loss scaling for any number of optimizers."""

    def __init__(self, scale=65536.0, interval=2000):
        self.current, self.count, self.interval = scale, 0, interval
        self.found_inf = False  # by any optimizer since the last update

    def scale(self, loss):
        return loss * self.current

    def step(self, optimizer):
        ### BEGIN SOLUTION
        self.found_inf |= unscale_and_step(optimizer, self.current)
        ### END SOLUTION

    def update(self):
        ### BEGIN SOLUTION
        now = self.current, self.count, self.found_inf
        self.current, self.count = advance(*now, interval=self.interval)
        self.found_inf = False
        ### END SOLUTION

    def state_dict(self):
        ### BEGIN SOLUTION
        return {"scale": self.current, "count": self.count}
        ### END SOLUTION

    def load_state_dict(self, state):
        ### BEGIN SOLUTION
        self.current, self.count = state["scale"], state["count"]
        ### END SOLUTION


# %% check="scaler" points=2
check_scaler(Scaler)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The first optimizer found an inf, the second did not. What must `update` know, and who forgets it afterwards?
# </details>
# <details><summary>Hint 2</summary>
#
# Each method is one to three lines. Which number besides the scale decides when the scale grows next?
# </details>
#
# ### Train with it
#
# Your scaler drives the AMP loop of sitting A from a scale that is too high. After 30
# steps a new scaler resumes from the saved state. PyTorch's scaler trains a copy of the model without a break.

# %%
from labkit.emulation import emulate_gpu
from labkit.training.models import Autoencoder

images, Machine = digits().train_images.flatten(1), yours(Scaler, ours.Scaler)


def weighted_error(output, images):
    return 1e-3 * torch.nn.functional.mse_loss(output, images)


def run(scaler, model, adam, steps):
    with emulate_gpu():
        return ours.train_fp16(model, weighted_error, adam, scaler, [(images, images)] * steps)


torch.manual_seed(0)
mine = Autoencoder()
theirs = copy.deepcopy(mine)
adams = [torch.optim.Adam(model.parameters(), lr=5e-3) for model in (mine, theirs)]
first, resumed = Machine(scale=2.0**33, interval=8), Machine(interval=8)
losses = run(first, mine, adams[0], 30)
resumed.load_state_dict(first.state_dict())
losses += run(resumed, mine, adams[0], 20)
torchs = torch.amp.GradScaler("cpu", init_scale=2.0**33, growth_interval=8)
same_losses = losses == run(torchs, theirs, adams[1], 50)
same = all(map(torch.equal, mine.parameters(), theirs.parameters()))
claim(f"{whose(Machine)} Scaler trains as GradScaler does, to the bit", same and same_losses)
claim("the loss fell to a third", losses[-1] < losses[0] / 3)

# %% [markdown]
# ### Reading a trace
#
# *Optional.* A log of scale and loss shows most faults. Step through five recorded runs, and and before you read the table, say
# for each run what happened.

# %% tags=["nbval-ignore-output"]
from labkit.labs.loss_scaling.recorded import five_traces
from labkit.labs.loss_scaling.widget_scale_timeline import ScaleTimeline

ScaleTimeline(five_traces())

# %% [markdown]
# | run | what you see | cause |
# |---|---|---|
# | A | from step 10 on about every second step is skipped | growth after each good step |
# | B | no skip, and the loss stands still | underflow: the scale is 1 |
# | C | skips at the start, then none | the scale started too high: harmless |
# | D | a skip now and then, the loss falls | growth tries a larger scale: healthy |
# | E | from step 20 on every step is skipped | the loss itself is NaN: from step 20 on one pixel is NaN |
#
# ### Optional: hardware that saturates
#
# Some accelerators turn an overflow into the largest finite value, and NaN into 0: Huawei's Atlas training products before the A2 have no other mode. A
# scaler that looks for inf then never skips and keeps growing. The cell emulates both kinds of hardware in one step.

# %%
from contextlib import nullcontext
from labkit.labs.loss_scaling.saturating import saturating_gradients


def gradient(scale, mode=nullcontext, fp16=True):
    torch.manual_seed(0)
    model = Autoencoder()
    with emulate_gpu(), mode(model):
        with torch.autocast("cpu", dtype=torch.float16, enabled=fp16):
            loss = weighted_error(model(images), images)
        (scale * loss).backward()
    return torch.cat([p.grad.flatten() / scale for p in model.parameters()])


right = gradient(1.0, fp16=False).norm()
for k in (16, 34, 40):
    skips = not gradient(2.0**k).isfinite().all()
    share = (gradient(2.0**k, saturating_gradients).norm() / right).item()
    print(
        f"S = 2**{k}: a GPU skips: {skips!s:5}  saturating: a step of {share:.0%} of the right length"
    )

# %% [markdown]
# At 2⁴⁰ a GPU skips the step. The saturating device takes it with a gradient of 3 % of its true length. On such hardware use the vendor's scaler, which reads
# an overflow flag of the device, or a fixed scale with headroom. Newer products have inf and NaN by default.
#
# ### Loss scaling in 2026
#
# BF16 needs no scaler. FP16 does. FP16 training is still used on GPUs without fast BF16, such as T4 and V100, and for models that will run in FP16. FP8 and FP4 training replace the scaled loss by a scale for each tensor or block (lab 08).

# %% [markdown]
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("04_loss_scaling")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., *Mixed Precision Training*, arXiv:1710.03740, sections 3.1 and 3.2. Zamirai et al.,
# arXiv:2010.06192 (BF16 weights with stochastic rounding or Kahan). PyTorch, `torch/amp/grad_scaler.py` and `AmpGradScalerKernels`. Megatron-LM,
# `megatron/core/optimizer/grad_scaler.py`. Huawei CANN, `aclrtFloatOverflowMode` and `INF_NAN_MODE_ENABLE`.
#
# **Next.** [Lab 05: automatic mixed precision](05_automatic_mixed_precision.ipynb).
