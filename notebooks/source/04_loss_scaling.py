# %% [markdown]
# # 4. Build one machine: master weights and loss scaling
#
# Part by part you build a loss scaler, until yours trains a network and walks in step with PyTorch's.
#
# *70 minutes · any laptop · needs: labs 02 and 03, above all half a gap and the end of FP16's window*
#
# After this lab you can:
#
# - tell the two ways in which 16 bits lose a gradient, and repair each with its own tool;
# - write dynamic loss scaling on a whiteboard, and read its traces.
#
# Two sittings: **A** builds the parts that stand still, **B** the machine. Each starts alone.

# %% [markdown]
# ## Sitting A: the parts that stand still
#
# *You are here:* **two losses** → masters → scale → *stop* → transition → step → scaler → traces

# %%
import math, torch
from labkit.checks import claim, reveal, whose, yours
from labkit.checks import master_weights as part
from labkit.data import autoencoder_gradients, digits, digits_mlp
from labkit.formats import FP16, quantize

# %% [markdown]
# From labs 02 and 03, aloud: which gradients does FP16 turn into 0? Which addend does a weight of 1 swallow, in FP16 and
# in BF16? Which of the two has the range of float32?
#
# <details><summary>Answers</summary>
#
# 2**-25 and below. Half a gap and less: 2**-11 upwards in FP16, 2**-8 in BF16. BF16.
# </details>

# %% [markdown]
# ### A network that stands still
#
# This autoencoder copies digits. Its error is one of several terms of a loss, so somebody weighted it by 1e-3.

# %%
from labkit.loss_scaler import LossScaler
from labkit.models import Autoencoder
from labkit.scaling import LossScale
from labkit.training import train

images = digits().train_images.flatten(1)


def weighted_error(output, images):
    return 1e-3 * torch.nn.functional.mse_loss(output, images)


def learn(steps, **settings):
    torch.manual_seed(0)
    model = Autoencoder()
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    batches = [(images, images)] * steps
    return model, train(model, batches, optimizer=adam, loss_fn=weighted_error, **settings)


# %% [markdown]
# One step in emulated FP16 autocast, as published loops do it. How many percent of the gradients are exactly 0?

# %% predict="zero-gradients"
guess, sure = ..., 2  # a number from 0 to 100

# %%


@reveal(guess, sure, part.zero_gradients)
def percent():
    model, _ = learn(1, precision="fp16_unscaled", progress=False)
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    return 100 * (gradients == 0).double().mean().item()


# %% [markdown]
# The loss is in float32. On its way back, the gradient meets FP16 at the last layer. The mean over 1437 images of 64
# pixels divides it.

# %%
largest = 1e-3 * 2 / images.numel()  # the gradient where an output is off by 1
print(f"{largest:.1e} at an output that is off by 1; FP16 makes 0 of {2.0**-25:.1e} and below")
claim("so no output of this network gets a gradient", quantize(largest, FP16) == 0)

# %% [markdown]
# Now repair it with one number: **loss scaling** 损失缩放. Multiply the loss by S = 256, so every gradient is 256 times as
# large. Divide the gradients by 256, in float32, before the optimizer sees them.

# %%
losses = {}
for name, settings in {
    "float32": {"precision": "fp32"},
    "FP16, unscaled": {"precision": "fp16_unscaled"},
    "FP16, S = 256": {"precision": "fp16", "scaler": LossScaler(LossScale.static(256.0))},
}.items():
    losses[name] = [record.loss for record in learn(40, **settings)[1]]
first, last = losses["float32"][0], losses["float32"][-1]
claim("float32 learns: its loss halves", last < first / 2)
claim(
    "FP16 unscaled: the loss of step 40 is that of step 1", len(set(losses["FP16, unscaled"])) == 1
)
claim(
    "FP16 with S = 256 ends within 5 % of float32",
    abs(losses["FP16, S = 256"][-1] / last - 1) < 0.05,
)

# %% [markdown]
# Another seed changes the final float32 loss by about as much as those 5 %.
#
# ### Two losses
#
# A gradient that survives the cast can still be lost. The weight's own gap decides, as in lab 03.
#
# - **Underflow** 下溢: FP16 stores the gradient as 0. The learning rate has no say, and range would help.
# - **Swamping** 大数吃小数: the update is there, but weight minus update rounds back to the weight. Mantissa bits would help.
#
# ### Exercise: fine, underflowed or swamped
#
# *5 minutes, about 4 lines.* Everything is in FP16: the gradient is rounded once, `weight - lr * gradient` once. No
# gradient is 0.


# %% exercise="fate"
def fate(weight: float, gradient: float, lr: float) -> str:
    """ "underflowed", "swamped" or "fine"; the weight is an FP16 value."""
    # `quantize(x, FP16)` rounds a Python float to FP16, ties and subnormals included.
    ### BEGIN SOLUTION
    stored = quantize(gradient, FP16)
    if stored == 0:
        return "underflowed"
    return "swamped" if quantize(weight - lr * stored, FP16) == weight else "fine"
    ### END SOLUTION


# %% check="fate" points=1
part.check_fate(fate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the three numbers can change whether a gradient underflows? And whether it is swamped?
# </details>
# <details><summary>Hint 2</summary>
#
# Weight 1, gradient 2**-20, rate 1: FP16 holds 2**-20. What is 1 - 2**-20, rounded?
# </details>

# %%
from collections import Counter

decide = yours(fate, part.fate)
layer = digits_mlp()  # recorded late in a float32 run
pairs = [
    (quantize(w, FP16), g)
    for w, g in zip(layer["weights"].tolist(), layer["gradients"].tolist(), strict=True)
    if g
]
print(f"Decided with {whose(decide)} fate, of {len(pairs)} recorded pairs:")
for lr in (1.0, 0.01):
    print(f"  lr {lr:<5}", dict(sorted(Counter(decide(w, g, lr) for w, g in pairs).items())))

# %% [markdown]
# The learning rate changes swamping only. Two faults, so two parts: masters for the second, a scale for the first.
#
# ### Master weights
#
# BF16 has the range of float32, so nothing underflows there. That leaves swamping alone. A small network learns digits
# with BF16 weights at a learning rate of 0.003. Of 100 updates in the first step, how many change no weight?

# %%
from labkit.emulation import emulate_gpu
from labkit.models import mlp

labels = digits().train_labels


def classify(dtype, make_optimizer, steps=100):
    torch.manual_seed(0)
    model, losses = mlp(64, 32, 10).to(dtype), []
    optimizer = make_optimizer(list(model.parameters()), 0.003)
    with emulate_gpu():
        for _ in range(steps):
            output = model(images.to(dtype)).float()
            loss = torch.nn.functional.cross_entropy(output, labels)
            model.zero_grad()
            loss.backward()
            before = [p.detach().clone() for p in model.parameters()]
            optimizer.step()
            losses.append(loss.item())
    return model, before, losses


# %% predict="lost-updates"
guess, sure = ..., 2  # "under 10", "about half" or "over 80"

# %%


@reveal(guess, sure, part.lost_updates)
def lost():
    model, before, _ = classify(torch.bfloat16, torch.optim.SGD, steps=1)
    updates = [(p.grad != 0, p == old) for p, old in zip(model.parameters(), before, strict=True)]
    share = sum((g & same).sum() for g, same in updates) / sum(g.sum() for g, _ in updates)
    return "over 80" if share > 0.8 else "under 10" if share < 0.1 else "about half"


# %% [markdown]
# Smaller steps lose more: the end of training, when the rate is small, suffers first. The cure is to add up where the gap
# is small. Keep a float32 copy of each weight, the **master weights** 主权重. Update it in float32. After each step round it
# to 16 bits for the network.
#
# ### Exercise: masters
#
# *7 minutes, about 5 lines.* SGD for a model whose parameters and gradients are BF16. They stay BF16. A parameter
# whose `grad` is None is left alone.


# %% exercise="masters"
class Masters:
    """SGD on 16-bit parameters with float32 master weights."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        # What must live from one step to the next?
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
part.check_masters(Masters)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# 300 steps of 2**-10 from a weight of 1: which number must be 0.99902 after the first?
# </details>
# <details><summary>Hint 2</summary>
#
# Three things a step: widen the gradient, move the master, round it into the parameter. Which of them in place?
# </details>

# %%
Keeper = yours(Masters, part.Masters)
curves = {
    "float32 weights": classify(torch.float32, torch.optim.SGD)[2],
    "BF16 weights": classify(torch.bfloat16, torch.optim.SGD)[2],
    f"BF16 weights, {whose(Keeper)} float32 masters": classify(torch.bfloat16, Keeper)[2],
}
plain, narrow, kept = (curve[0] - curve[-1] for curve in curves.values())
claim("BF16 weights make less than a third of float32's progress", narrow < plain / 3)
claim("with masters it is float32's, within 2 %", abs(kept / plain - 1) < 0.02)

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3))
for (name, curve), style in zip(curves.items(), ("-", ":", "--"), strict=True):
    axes.plot(curve, style, label=name, linewidth=2)
axes.set(xlabel="step", ylabel="loss on 1437 digits", title="Emulated here: SGD, lr 0.003")
_ = axes.legend()

# %% [markdown]
# The dotted line barely falls; the other two are one.
#
# ### Which copy is the copy?
#
# "AMP keeps an FP32 backup of the weights", many texts say. Look at PyTorch's autocast. And does it help to turn FP16
# weights back into float32 at the end?

# %%
layer = torch.nn.Linear(64, 64)
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    product = layer(images)
claim("autocast: the product is FP16", product.dtype == torch.float16)
claim("the parameter is float32: it is its own master", layer.weight.dtype == torch.float32)
back = layer.weight.half().float()
claim(
    "FP16 and back: of 100 weights, 99 are no longer what they were",
    (back == layer.weight).double().mean() < 0.01,
)

# %% [markdown]
# Under autocast the copy is the 16-bit one, made for each product and dropped. Only a model stored in 16 bits needs
# masters beside it, 4 bytes a weight. A cast back pads zeros; the lost bits stay lost.
#
# ### The window
#
# Masters do not help the autoencoder: its gradients are gone before any update. Its first gradients, in float32, lie
# below. Move the scale. Bring **lost** under 0.1 % with nothing overflowed. Which scales do it?

# %% tags=["nbval-ignore-output"]
from labkit.widgets.gradient_window import GradientWindow

GradientWindow(autoencoder_gradients()[:1])

# %% [markdown]
# Every power of two from 2\*\*16 to 2\*\*31 will do for this step. The next steps' gradients are others. One inf among
# thousands spoils the whole step, and a few lost ones hardly matter. So stay away from the upper end: **headroom** 余量.
#
# ### Exercise: pick S
#
# *5 minutes, stretch, about 3 lines.* The largest power of two for which the largest gradient, `headroom` times as large
# as now, is at most 65504 when scaled.


# %% exercise="pick-scale"
def pick_scale(gradients: torch.Tensor, headroom: float) -> float:
    """A power of two for float32 gradients, not all 0."""
    # `math.frexp(x)` gives (m, e) with x = m * 2**e and 0.5 <= m < 1, exactly.
    ### BEGIN SOLUTION
    limit = 65504 / (headroom * gradients.abs().max().item())
    return 2.0 ** (math.frexp(limit)[1] - 1)
    ### END SOLUTION


# %% check="pick-scale" points=0
part.check_pick_scale(pick_scale)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Largest gradient 0.01, headroom 1: how often may it double before 65504? For a limit of 5 the answer is 4: round which
# way?
# </details>

# %%
choose = yours(pick_scale, part.pick_scale)
gradients = digits_mlp()["gradients"]
S = choose(gradients, 16)
scaled = (gradients * S).half()
print(f"{whose(choose)} pick_scale takes 2**{math.log2(S):.0f}")
claim(
    "nothing overflows, also if the gradients grow 16-fold",
    (16 * gradients * S).half().isfinite().all(),
)
claim(
    "unscaled FP16 loses 28 % of these gradients",
    round(100 * (gradients.half() == 0).double().mean().item()) == 28,
)
claim("scaled it loses less than 0.1 %", ((scaled == 0) & (gradients != 0)).double().mean() < 1e-3)

# %% [markdown]
# ### What scaling does not do
#
# A value of 0.01 is normal in FP16. Scaled by 2\*\*12 it is 41, rounded there, and divided again. How does its relative
# rounding error change?

# %% predict="scaled-error"
guess, sure = ..., 2  # "smaller", "the same" or "larger"

# %%


def error(x, S):
    return abs(quantize(x * S, FP16) / S - x) / x


@reveal(guess, sure, part.scaled_error)
def change():
    before, after = error(0.01, 1), error(0.01, 2.0**12)
    return "the same" if before == after else "smaller" if after < before else "larger"


# %%
for x in (1e-2, 1e-4, 1e-6, 1e-8):
    print(f"{x:.0e}: error {error(x, 1):.0e} unscaled, {error(x, 2.0**12):.0e} with S = 2**12")

# %% [markdown]
# Loss scaling saves what was 0, and restores the bits that subnormals drop, as at 1e-6. It does not round a normal value
# any better. BF16 has float32's range, so it needs no scale, and it has fewer mantissa bits, so it needs masters more.
#
# **A stopping point.** Two faults, two tools. What is missing: who moves S when the gradients move?

# %% [markdown]
# ## Sitting B: the machine
#
# *You are here:* two losses → masters → scale → *stop* → **transition** → step → scaler → traces

# %%
import math, torch
from labkit.checks import claim, reveal, whose, yours
from labkit.checks import loss_scaling as part
from labkit.loss_scaler import LossScaler
from labkit.scaling import LossScale, to_float32

# %% [markdown]
# ### The scale chase
#
# A recorded run: the same autoencoder, 60 frames. From frame 20 on a loader delivers 12-bit images, for a while. Hold
# **lost** under 0.1 % without overflow in 54 of the 60 frames. First with one scale, chosen at the start. Then press
# **dynamic**.

# %% tags=["nbval-ignore-output"]
from labkit.data import autoencoder_gradients
from labkit.widgets.gradient_window import GradientWindow

chase = GradientWindow(autoencoder_gradients())
chase

# %%
held = [chase.frames_held(scale=2.0**k) for k in range(41)]
claim("the best fixed scale holds 46 of 60 frames", max(held) == 46)
claim("a dynamic scale holds them all", chase.frames_held() == 60)

# %% [markdown]
# **Dynamic loss scaling** 动态损失缩放 needs no choice. After an overflow it skips the step and halves S: **backoff** 回退. After
# 2000 good steps in a row it doubles S: **growth** 增长. It looks for the largest scale that works, so now and then it must
# step too far. A skipped step is the price of the search, and at the start a few of them in a row are normal.
#
# ### Why 2000?
#
# A published scaler doubles after *every* good step and halves after each overflow. Gradients do not change. When the
# scale has reached its ceiling, how many percent of the steps are skipped?

# %% predict="doubling"
guess, sure = ..., 2  # a number from 0 to 100

# %%


def share_skipped(interval, steps=10_000, ceiling=2.0**20):
    state, skipped = LossScale(scale=ceiling, growth_interval=interval), 0
    for _ in range(steps):
        found_inf = state.scale > ceiling
        skipped += found_inf
        state = state.updated(found_inf)
    return 100 * skipped / steps


@reveal(guess, sure, part.doubling)
def percent():
    return share_skipped(interval=1)


# %%
print(f"An interval of 2000: {share_skipped(interval=2000)} % of 10 000 steps are skipped.")

# %% [markdown]
# ### Exercise: the transition
#
# *8 minutes, about 8 lines.* The question of the interview's whiteboard. From scale and count (good steps in a row so
# far) to the next ones.
#
# 1. An overflow: the scale times `backoff`, and counting begins again.
# 2. A good step counts. With the `interval`-th in a row: the scale times `growth`, and counting begins again.
# 3. The scale is a float32 number. Growth that would make it inf is not done; counting begins again all the same.


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
part.check_transition(transition)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Walk interval 2 through good, good, overflow, good, good from scale 8. Where are 16, 8 and 16, and each count?
# </details>
# <details><summary>Hint 2</summary>
#
# Three returns: after an overflow, after a step that only counts, after growth. Which two return a count of 0?
# </details>

# %%
advance = yours(transition, part.transition)
scale, count = 2.0**125, 0
for _ in range(5):
    scale, count = advance(scale, count, False, interval=1)
claim(f"{whose(advance)} scale stops growing at 2**127", scale == 2.0**127)
for _ in range(400):
    scale, count = advance(scale, count, True)
claim("and nothing stops it from falling: 400 overflows in a row end at 0.0", scale == 0)

# %% [markdown]
# There is **no floor**, in PyTorch's either. From 0 no growth leads back. A scale that falls without end has met a NaN that
# no scale can cure: in the data, or in the network. Somebody must stop the run.

# %%
weight = torch.nn.Parameter(torch.ones(1))
watchful = LossScaler(max_skips=20)
try:
    while True:
        watchful.scale(weight.sum() * math.nan).backward()
        watchful.step(torch.optim.SGD([weight], lr=0.1))
        watchful.update()
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ### Unscale and step
#
# "Skip the step" can be done wrong. Somebody sets all gradients to 0 and calls `adam.step()`. Do the weights stand still?

# %% predict="zeroed-step"
guess, sure = ..., 2  # "stand still" or "move"

# %%


@reveal(guess, sure, part.zeroed_step)
def weights():
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([weight], lr=0.1)
    for gradient in (1.0, 0.0):
        before = weight.detach().clone()
        weight.grad = torch.full((3,), gradient)
        adam.step()
    return "stand still" if torch.equal(weight, before) else "move"


# %% [markdown]
# ### Exercise: unscale and step
#
# *9 minutes, about 12 lines.* Divide every gradient of the optimizer by the scale. Step, unless one of them is inf or NaN:
# then no bit of parameters and moments may change. FP16 gradients: ValueError, as in PyTorch.
#
# An optimizer has several groups: `group["params"]` for each group of `optimizer.param_groups`. Some parameters have no gradient.


# %% exercise="scaled-step"
@torch.no_grad()
def scaled_step(optimizer, scale: float) -> bool:
    """Unscale and step; True if the step was skipped."""
    # A sparse gradient: `grad = grad.coalesce()`, and its numbers are `grad.values()`.
    ### BEGIN SOLUTION
    found_inf = False
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.dtype == torch.float16:
                raise ValueError("FP16 gradients would underflow when they are unscaled")
            p.grad = p.grad / scale
            numbers = p.grad.coalesce().values() if p.grad.is_sparse else p.grad
            found_inf |= not numbers.isfinite().all().item()
    if not found_inf:
        optimizer.step()
    return found_inf
    ### END SOLUTION


# %% check="scaled-step" points=2
part.check_scaled_step(scaled_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What must you know about all gradients before the optimizer may touch the first weight?
# </details>
# <details><summary>Hint 2</summary>
#
# Two loops, one inside the other; in the inner one skip None, refuse FP16, divide, look. Where does the step stand?
# </details>
#
# ### Which line?
#
# *5 minutes, stretch.* Five scalers after published ones. Four have one line that fails. One only looks wrong: write 0.
#
# ```python
# # A: called after each step
# 1 def after_step(self, overflow):
# 2     if overflow:
# 3         self.scale = self.scale / 2
# 4     else:
# 5         self.scale = self.scale * 2
# ```
# ```python
# # B: the gradients are unscaled already
# 1 def step(self, optimizer):
# 2     for p in optimizer.param_groups[0]["params"]:
# 3         if p.grad is not None and not p.grad.isfinite().all():
# 4             return False
# 5     optimizer.step()
# ```
# ```python
# # C: for a model that was made by model.half()
# 1 def unscale(self, model):
# 2     for p in model.parameters():
# 3         if p.grad is not None:
# 4             p.grad /= self.scale
# ```
# ```python
# # D: called after each step
# 1 def after_step(self, overflow):
# 2     self.skips += 1
# 3     if overflow:
# 4         self.scale, self.skips = self.scale / 2, 0
# 5     elif self.skips == 2000:
# 6         self.scale, self.skips = self.scale * 2, 0
# ```
# ```python
# # E: in a class
# 1 class Scaler:
# 2     def __init__(self, scale=65536.0):
# 3         self.scale = scale
# 4     def scale(self, loss):
# 5         return loss * self.scale
# ```

# %% exercise="which-line"
which_line = {"A": ..., "B": ..., "C": ..., "D": ..., "E": ...}
### BEGIN SOLUTION
which_line = {"A": 5, "B": 2, "C": 4, "D": 0, "E": 3}
### END SOLUTION

# %% check="which-line" points=0
part.check_which_line(which_line)

# %% [markdown]
# ### The machine
#
# All parts are there. Yours are used where they have passed.

# %%
unscale_and_step = yours(scaled_step, part.scaled_step)
print(f"Built from {whose(advance)} transition and {whose(unscale_and_step)} scaled_step.")

# %% [markdown]
# ### Exercise: the scaler
#
# *9 minutes, about 7 lines.* Use `advance(scale, count, found_inf, interval=...)` and `unscale_and_step(optimizer, scale)`.
# One iteration calls `scale`, then `step` once for each optimizer, then `update` once. An optimizer whose own gradients
# are finite steps, whatever the others found. A loaded scaler goes on as if it had never stopped.


# %% exercise="scaler"
class Scaler:
    """Dynamic loss scaling for any number of optimizers."""

    def __init__(self, scale=65536.0, interval=2000):
        self.current, self.count, self.interval = scale, 0, interval
        self.found_inf = False  # by any optimizer since the last update

    def scale(self, loss):
        ### BEGIN SOLUTION
        return loss * self.current
        ### END SOLUTION

    def step(self, optimizer):
        ### BEGIN SOLUTION
        self.found_inf |= unscale_and_step(optimizer, self.current)
        ### END SOLUTION

    def update(self):
        ### BEGIN SOLUTION
        self.current, self.count = advance(
            self.current, self.count, self.found_inf, interval=self.interval
        )
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
part.check_scaler(Scaler)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two optimizers, the first found an inf, the second nothing. What must `update` know?
# </details>
# <details><summary>Hint 2</summary>
#
# Each method is one or two lines. Which number besides the scale decides when it grows next?
# </details>
#
# ### Train with it
#
# The weighted autoencoder of sitting A, in emulated FP16 autocast, with a high start and a short interval, so that
# something happens. After step 30 the run is stopped, saved, and resumed in a new scaler. Beside it PyTorch's scaler
# runs without a break.

# %%
from labkit.data import digits
from labkit.emulation import emulate_gpu
from labkit.models import Autoencoder
from labkit.training import StepRecord

images = digits().train_images.flatten(1)


def iterate(scaler, model, adam, steps, records):
    watched = model.decoder[-1].bias
    with emulate_gpu():
        for _ in range(steps):
            adam.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = 1e-3 * torch.nn.functional.mse_loss(model(images), images)
            scaler.scale(loss).backward()
            S = scaler.scale(torch.ones(())).item()
            norm = math.hypot(*(p.grad.norm().item() / S for p in model.parameters()))
            before = watched.detach().clone()
            scaler.step(adam)
            scaler.update()
            skipped = torch.equal(before, watched)
            records.append(StepRecord(len(records), loss.item(), norm, S, skipped))


# %%
def start():
    torch.manual_seed(0)
    model = Autoencoder()
    return model, torch.optim.Adam(model.parameters(), lr=5e-3)


Machine = yours(Scaler, part.Scaler)
mine, records = start(), []
scaler = Machine(scale=2.0**33, interval=8)
iterate(scaler, *mine, steps=30, records=records)
saved = scaler.state_dict()
scaler = Machine(interval=8)
scaler.load_state_dict(saved)
iterate(scaler, *mine, steps=20, records=records)

torchs, their_records = start(), []
grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**33, growth_interval=8)
iterate(grad_scaler, *torchs, steps=50, records=their_records)

# %%
pairs = zip(mine[0].parameters(), torchs[0].parameters(), strict=True)
same = all(torch.equal(a, b) for a, b in pairs)
claim(f"{whose(Machine)} Scaler and torch.amp.GradScaler: every parameter equal, bit for bit", same)
scales = [[r.loss_scale for r in run] for run in (records, their_records)]
claim("and the scale, at each of 50 steps", scales[0] == scales[1])
claim(
    "steps were skipped, and the loss fell to a third",
    any(r.skipped for r in records) and records[-1].loss < records[0].loss / 3,
)

# %% tags=["nbval-ignore-output"]
from labkit.widgets.scale_timeline import ScaleTimeline

ScaleTimeline(records)

# %% [markdown]
# Step through your own run. At the start the scale falls until gradients fit: calibration, not divergence. Then it
# grows after 8 good steps, and meets the ceiling again. The gradients shrink, so the ceiling rises.
#
# ### Exercise: five traces
#
# *6 minutes, stretch.* Five recorded runs. Give each one of: `"calibration"`, `"growth at each step"`, `"NaN in the
# data"`, `"underflow"`, `"healthy"`, `"divergence"`. One word is left over.

# %% tags=["nbval-ignore-output"]
ScaleTimeline(part.traces())

# %% exercise="diagnosis"
diagnosis = {"A": ..., "B": ..., "C": ..., "D": ..., "E": ...}
### BEGIN SOLUTION
diagnosis = {
    "A": "growth at each step",
    "B": "underflow",
    "C": "calibration",
    "D": "healthy",
    "E": "NaN in the data",
}
### END SOLUTION

# %% check="diagnosis" points=0
part.check_diagnosis(diagnosis)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Where are the skips: at the start, everywhere, from one step on, now and then, nowhere? And does the loss fall?
# </details>

# %% [markdown]
# ### Say it
#
# Answer aloud, or in one line, as in an interview. Then open ours.
#
# <details><summary>What is gradient scaling, and why does FP16 training need it?</summary>
#
# Multiply the loss by S, so that gradients stay above 2**-25; divide them by S in float32 before the update. It cures
# underflow and restores subnormals' bits. It does not improve the rounding of normal values. BF16 needs none.
# </details>
# <details><summary>How is the scale adjusted, and how do you choose it?</summary>
#
# Start at 2**16. On inf or NaN skip the step and halve. After 2000 good steps in a row double. A fixed S: largest
# gradient times S well below 65504. Save the count with the scale, unscale all groups once, alert on long skip streaks.
# </details>
# <details><summary>What are master weights, and where are they in PyTorch AMP?</summary>
#
# Float32 weights that take the updates, which 16-bit weights would swallow. Under autocast the parameters are the
# masters; the 16-bit copy lives for one product. A model stored in 16 bits needs a separate float32 copy.
# </details>
# <details><summary>How does mixed precision training solve the problems of 16 bits?</summary>
#
# Masters against swamping, loss scaling against underflow, float32 sums and a list of float32 operators against bad
# reductions. AMP packs the three.
# </details>
# <details><summary>The first steps of your run are skipped. And: the scale is 2**-40 and falling. What now?</summary>
#
# The first is calibration, wait. The second is a NaN or inf that does not come from the scale: look at the data and at
# the forward pass.
# </details>

# %% tags=["nbval-ignore-output"]
from labkit.widgets.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., *Mixed Precision Training*, arXiv:1710.03740, sections 3.1 and 3.2. PyTorch,
# `torch/amp/grad_scaler.py` and `AmpGradScalerKernels`. PyTorch docs, *Automatic Mixed Precision examples*. Zamirai et
# al., arXiv:2010.06192 (BF16 weights).
#
# **Next.** Lab 05 opens autocast itself. [Back to the start](00_start_here.ipynb).
