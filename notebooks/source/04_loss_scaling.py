# %% [markdown]
# # 4. Build one machine: master weights and loss scaling
#
# Part by part you build a loss scaler, until yours trains a network and walks in step with PyTorch's.
#
# *any laptop · needs: labs 02 and 03, above all half a gap and the end of FP16's window*
#
# After this lab you can tell the two ways in which 16 bits lose a gradient and repair each. You can write dynamic loss
# scaling on a whiteboard and read its traces. Two sittings: **A** builds the parts that stand still, **B** the
# machine.
#
# ## Sitting A: the parts that stand still
#
# *You are here:* **two losses** → masters → scale → *stop* → transition → step → scaler → traces

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.loss_scaling import predictions as guesses, solutions as ours
from labkit.labs.loss_scaling.checks import master_weights as part
from labkit.training.data import autoencoder_gradients, digits, digits_mlp
from labkit.formats import FP16, quantize

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("04_loss_scaling")

# %% [markdown]
# ### A weighted loss
#
# This autoencoder copies digits. Its error is one of several terms of a loss, so somebody weighted it by 1e-3.

# %%
from labkit.training.models import Autoencoder
from labkit.training import train

images, labels = digits().train_images.flatten(1), digits().train_labels


def weighted_error(output, images):
    return 1e-3 * torch.nn.functional.mse_loss(output, images)


def learn(steps, **settings):
    torch.manual_seed(0)
    model = Autoencoder()
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    settings = {"optimizer": adam, "loss_fn": weighted_error} | settings
    return model, train(model, [(images, images)] * steps, progress=False, **settings)


# %% [markdown]
# One step in emulated FP16 autocast, as published loops do it.


# %% predict="zero-gradients"
@predict(guesses.zero_gradients)
def percent():
    model, _ = learn(1, precision="fp16_unscaled")
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    return 100 * (gradients == 0).double().mean().item()


# %% [markdown]
# The loss is in float32. Its gradient meets FP16 at the last layer, divided by the 1438 times 64 pixels of the mean:
# where an output is off by 1, the gradient is 2.2e-8, and FP16 rounds it to 0.

# %% [markdown]
# **Loss scaling** needs one number. Multiply the loss by S = 256, so every gradient is 256 times as large. Divide
# the gradients by 256, in float32, before the optimizer sees them.


# %%
def losses(**settings):
    return [record.loss for record in learn(25, **settings)[1]]


plain, unscaled = losses(precision="fp32"), losses(precision="fp16_unscaled")
scaled = losses(precision="fp16", scaler=torch.amp.GradScaler("cpu", init_scale=256.0))
claim("float32 learns: its loss halves", plain[-1] < plain[0] / 2)
claim("FP16 unscaled: the loss of each step is that of the first", len(set(unscaled)) == 1)
claim("FP16 with S = 256 ends within 5 % of float32", abs(scaled[-1] / plain[-1] - 1) < 0.05)

# %% [markdown]
# ### Two losses
#
# A gradient that survives the cast can still be lost. The weight's own gap decides, as in lab 03.
#
# - **Underflow**: FP16 stores the gradient as 0. The learning rate has no say, and range would help.
# - **Swamping**: the update is there, but weight minus update rounds back to the weight. Mantissa bits would help.
#
# ### Exercise: fine, underflowed or swamped
#
# *10 minutes, about 4 lines.* The weight is an FP16 value. Round the gradient to FP16 once, and `weight - lr * gradient`
# once; `lr` and the product are not rounded. Weights and gradients may be negative. No gradient is 0.


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
# <details><summary>Hints</summary>
#
# Which of the three numbers can change whether a gradient underflows? And whether it is swamped?
#
# Weight 1, gradient 2**-20, rate 1: FP16 holds 2**-20. What is 1 - 2**-20, rounded?
# </details>

# %%
from collections import Counter

decide = yours(fate, ours.fate)
layer = digits_mlp()  # recorded late in a float32 run
pairs = zip(layer["weights"].half().tolist(), layer["gradients"].tolist(), strict=True)
pairs = list(pairs)[::8]
print(f"{len(pairs)} recorded weights and gradients, decided with {whose(decide)} fate:")
for lr in (1.0, 0.01):
    print(f"  lr {lr}:", dict(Counter(decide(w, g, lr) for w, g in pairs)))

# %% [markdown]
# The learning rate changes swamping only. Two faults, so two parts: masters for the second, a scale for the first.
#
# ### Master weights
#
# BF16 has the range of float32, so nothing underflows there. That leaves swamping alone. A small network learns digits
# with BF16 weights at a learning rate of 0.003.

# %%
from labkit.emulation import emulate_gpu
from labkit.training.models import mlp


def classify(dtype, make_optimizer, steps=60):
    torch.manual_seed(0)
    model, losses = mlp(64, 32, 10).to(dtype), []
    optimizer, x = make_optimizer(list(model.parameters()), 0.003), images.to(dtype)
    with emulate_gpu():
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(model(x).float(), labels)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return model, losses


# %% predict="lost-updates"
@predict(guesses.lost_updates)
def lost():
    model, _ = classify(torch.bfloat16, torch.optim.SGD, steps=1)
    swallowed = [(p - 0.003 * p.grad == p)[p.grad != 0] for p in model.parameters()]
    share = torch.cat(swallowed).double().mean()
    return "over 80" if share > 0.8 else "under 10" if share < 0.1 else "about half"


# %% [markdown]
# More than 80. A typical update here is less than half the gap of its weight. Smaller steps lose more: the end of
# training, when the rate is small, suffers first.

# %% [markdown]
# The cure for swamping is to add up where the gap is small. Keep a float32 copy of each weight, the **master weights**. Update it in float32. After each step
# round it to 16 bits for the network.
#
# ### Exercise: masters
#
# *14 minutes, about 5 lines.* SGD for a model whose parameters and gradients are BF16. They stay BF16. A parameter
# whose `grad` is None is left alone, wherever it stands. `parameters` may be a generator, as `model.parameters()` is one.


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
part.check_masters(Masters)

# %% [markdown]
# <details><summary>Hints</summary>
#
# 300 steps of 2**-10 from a weight of 1: which number must be 0.99902 after the first?
#
# Three things a step: widen the gradient, move the master, round it into the parameter. Which of them in place?
# </details>

# %% tags=["nbval-ignore-output"]
import matplotlib.pyplot as plt

Keeper = yours(Masters, ours.Masters)
curves = {
    "float32 weights": classify(torch.float32, torch.optim.SGD)[1],
    "BF16 weights": classify(torch.bfloat16, torch.optim.SGD)[1],
    f"{whose(Keeper)} masters": classify(torch.bfloat16, Keeper)[1],
}
plain, narrow, kept = (curve[0] - curve[-1] for curve in curves.values())
claim("BF16 weights make less than a third of float32's progress", narrow < plain / 3)
claim("with masters it is float32's, within 2 %", abs(kept / plain - 1) < 0.02)
figure, axes = plt.subplots(figsize=(6, 3))
for (name, curve), style in zip(curves.items(), ("-", ":", "--"), strict=True):
    axes.plot(curve, style, label=name, linewidth=2)
axes.set(xlabel="step", ylabel="loss on 1438 digits", title="Emulated here: SGD, lr 0.003")
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
    claim("autocast: the product is FP16", layer(images).dtype == torch.float16)
claim("the parameter is float32: it is its own master", layer.weight.dtype == torch.float32)
same = layer.weight.half().float() == layer.weight
claim("to FP16 and back: 99 of 100 weights have changed", same.double().mean() < 0.01)

# %% [markdown]
# Under autocast the copy is the 16-bit one, made for each product and dropped. Only a model stored in 16 bits needs
# masters beside it, 4 bytes a weight. A cast back pads zeros; the lost bits stay lost.
#
# ### The window
#
# Masters do not help the autoencoder: its gradients are gone before any update. Its first gradients, in float32, lie
# below. Move the scale. Bring **lost** under 0.1 % with nothing overflowed. Which scales do it?

# %% tags=["nbval-ignore-output"]
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow

window = GradientWindow(autoencoder_gradients()[:1])
window

# %%
in_the_goal = [k for k in range(41) if window.frames_held(scale=2.0**k)]
claim("2**16 to 2**31 reach the goal, no other power of two", in_the_goal == list(range(16, 32)))

# %% [markdown]
# Sixteen scales will do for this step; the next step's gradients are others. One inf spoils a whole step, a few lost
# ones hardly matter. So stay away from the upper end: **headroom**.
#
# ### Exercise: pick S
#
# *10 minutes, optional, about 3 lines.* The largest power of two for which the largest gradient, `headroom` times as
# large as now, is at most 65504 when scaled. Gradients may be negative, and some may be 0.


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
# Largest gradient 0.01, headroom 1: how often may it double? And which way do you round an exponent?
# </details>
#
# ### Scaling and rounding
#
# A value of 0.01 is normal in FP16. Scaled by 2\*\*12 it is 41, rounded there, and divided again.


# %% predict="scaled-error"
@predict(guesses.scaled_error)
def change():
    def error(x, S):
        return abs(quantize(x * S, FP16) / S - x) / x

    before, after = error(0.01, 1), error(0.01, 2.0**12)
    return "the same" if before == after else "smaller" if after < before else "larger"


# %% [markdown]
# Loss scaling does not round a normal value any better. It saves what was 0, and restores the bits that subnormals drop:
#
# | value | error unscaled | error with S = 2\*\*12 |
# |---|---|---|
# | 1e-2, 1e-4 | 2e-4 | 2e-4 |
# | 1e-6 | 1e-2 | 2e-4 |
# | 1e-8 | 1 | 3e-4 |

# %% [markdown]
# BF16 has float32's range, so it needs no scale, and it has fewer mantissa bits, so it needs masters
# more.
#
# **A stopping point.** Two faults, two tools. What is missing: who moves S when the gradients move?

# %% [markdown]
# ## Sitting B: the machine
#
# *You are here:* two losses → masters → scale → *stop* → **transition** → step → scaler → traces

# %%
import copy, math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.loss_scaling import predictions as guesses, solutions as ours
from labkit.labs.loss_scaling.checks import loss_scaling as part, scalers_read as review
from labkit.training.scaling import LossScale, to_float32

# %% [markdown]
# ### The scale chase
#
# A recorded run: the same autoencoder, 60 frames. From frame 20 on a loader delivers 12-bit images, for a while. Hold
# **lost** under 0.1 % without overflow in 54 of the 60 frames. First with one scale, chosen at the start. Then press
# **dynamic**.

# %% tags=["nbval-ignore-output"]
from labkit.training.data import autoencoder_gradients, digits
from labkit.labs.loss_scaling.widget_gradient_window import GradientWindow

chase = GradientWindow(autoencoder_gradients())
chase

# %%
held = [chase.frames_held(scale=2.0**k) for k in range(41)]
claim("the best fixed scale holds 46 of 60 frames", max(held) == 46)
claim("a dynamic scale holds them all", chase.frames_held() == 60)

# %% [markdown]
# **Dynamic loss scaling** needs no choice. After an overflow it skips the step and halves S: **backoff**.
# After 2000 good steps in a row it doubles S: **growth**. (In the chase a frame stands for so many.) It looks for the
# largest scale that works, so now and then it must step too far. A skipped step is the price of the search, and at the start a few of them in a row are
# normal.
#
# ### Why 2000?
#
# A published scaler doubles after *every* good step and halves after each overflow. Say that the gradients do not change,
# and that the scale has reached its ceiling, the largest with which they fit.


# %%
def share_skipped(interval, steps=10_000, ceiling=2.0**20):
    state, skipped = LossScale(scale=ceiling, growth_interval=interval), 0
    for _ in range(steps):
        skipped += state.scale > ceiling
        state = state.updated(state.scale > ceiling)
    return 100 * skipped / steps


# %% predict="doubling"
@predict(guesses.doubling)
def percent():
    return share_skipped(interval=1)


# %% [markdown]
# Every second step doubles the scale past the ceiling, and the next one overflows and is skipped. With an interval of
# 2000 good steps it is 4 of 10 000 steps, 0.04 %.

# %% [markdown]
# ### Exercise: the transition
#
# *16 minutes, about 8 lines.* The question of the interview's whiteboard. From scale and count (good steps in a row so
# far) to the next ones.
#
# 1. An overflow: the scale times `backoff`, and counting begins again.
# 2. A good step counts. With the `interval`-th in a row: the scale times `growth`, and counting begins again.
# 3. The scale is a float32 number: multiply Python floats and round the product to float32. Growth that would make it inf is not done; counting
#    begins again all the same. Nothing stops its fall to 0.


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
# <details><summary>Hints</summary>
#
# Walk interval 2 through good, good, overflow, good, good from scale 8. Where are 16, 8 and 16, and each count?
#
# Three returns: after an overflow, after a step that only counts, after growth. Which two return a count of 0?
# </details>

# %%
advance = yours(transition, ours.transition)
scale, count = 2.0**125, 0
for _ in range(5):
    scale, count = advance(scale, count, False, interval=1)
claim(f"{whose(advance)} scale stops growing at 2**127", scale == 2.0**127)
for _ in range(400):
    scale, count = advance(scale, count, True)
claim("nothing stops its fall: 400 overflows in a row end at 0.0", scale == 0)

# %% [markdown]
# There is **no floor**, in PyTorch's either, and from 0 no growth leads back. A scale that falls without end has met a
# NaN that no scale can cure, in the data or in the network. Somebody must stop the run: `LossScaler(max_skips=20)` of
# labkit raises NumericalInstability.
#
# ### Unscale and step
#
# How is a step skipped? Somebody sets all gradients to 0 instead, and calls `adam.step()` as always.


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
# They move. Adam divides its running mean of the gradients by the root of its running mean of their squares. A gradient
# of 0 makes both smaller, and neither 0. A skipped step does not call `step` at all.

# %% [markdown]
# ### Exercise: unscale and step
#
# *18 minutes, about 12 lines.* Divide every gradient of the optimizer by the scale. Step, unless one of them is inf or
# NaN: then no bit of parameters and moments may change. FP16 gradients: ValueError, as in PyTorch;
# float32, BF16 and float64 ones are divided. In a skipped step the gradients may stay as they are.
#
# Parameters come in groups: `group["params"]` for each group of `optimizer.param_groups`. Some have no gradient, and some
# a sparse one, as `torch.nn.Embedding(..., sparse=True)` makes it. Gradients may be finite while their sum is not.


# %% exercise="scaled-step"
@torch.no_grad()
def scaled_step(optimizer, scale: float) -> bool:
    """Unscale and step; True if the step was skipped."""
    # A sparse gradient: `p.grad = p.grad.coalesce()`, and its numbers are `p.grad.values()`.
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
# <details><summary>Hints</summary>
#
# What must you know about all gradients before the optimizer may touch the first weight?
#
# Two loops, one inside the other; in the inner one skip None, refuse FP16, divide, look. Where does the step stand?
# </details>
#
# ### Which line?
#
# *10 minutes, optional.* Five scalers after published ones. Four have one line that fails; one only looks wrong: write
# 0. In E two lines clash: name either.

# %%
unscale_and_step = yours(scaled_step, ours.scaled_step)
print(review.SCALERS)

# %% exercise="which-line"
which_line = {"A": ..., "B": ..., "C": ..., "D": ..., "E": ...}
### BEGIN SOLUTION
which_line = {"A": 5, "B": 2, "C": 4, "D": 0, "E": 3}
### END SOLUTION

# %% check="which-line" points=0
review.check_which_line(which_line)

# %% [markdown]
# ### Exercise: the scaler
#
# *18 minutes, about 6 lines.* Use `advance(scale, count, found_inf, interval=...)` and `unscale_and_step(optimizer,
# scale)`. One iteration calls `scale`, then `step` once for each optimizer, then `update` once. An optimizer whose own
# gradients are finite steps, whatever the others found. A loaded scaler goes on as if it had never stopped, and what
# `state_dict` returned stays as it was while the old scaler goes on.


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
part.check_scaler(Scaler)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Two optimizers, the first found an inf, the second nothing. What must `update` know?
#
# Each method is one or two lines. Which number besides the scale decides when it grows next?
# </details>
#
# ### Train with it
#
# The weighted autoencoder of sitting A, in emulated FP16, with a high start and a short interval, so that something
# happens. After 30 steps a new scaler resumes from the saved state. PyTorch's scaler runs beside it without a break.

# %%
from labkit.emulation import emulate_gpu
from labkit.training.models import Autoencoder
from labkit.training import StepRecord
from labkit.labs.loss_scaling.widget_scale_timeline import ScaleTimeline

images, one = digits().train_images.flatten(1), torch.ones(())


def iterate(scaler, model, adam, steps):
    with emulate_gpu():
        for step in steps:
            adam.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = 1e-3 * torch.nn.functional.mse_loss(model(images), images)
            scaler.scale(loss).backward()
            S = scaler.scale(one).item()
            norm = math.hypot(*(p.grad.norm().item() / S for p in model.parameters()))
            scaler.step(adam)
            scaler.update()
            yield StepRecord(step, loss.item(), norm, S, skipped=scaler.scale(one).item() < S)


# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
mine = Autoencoder()
theirs = copy.deepcopy(mine)
adams = [torch.optim.Adam(model.parameters(), lr=5e-3) for model in (mine, theirs)]
Machine = yours(Scaler, ours.Scaler)
first, resumed = Machine(scale=2.0**33, interval=8), Machine(interval=8)
records = list(iterate(first, mine, adams[0], range(30)))
resumed.load_state_dict(first.state_dict())
records += iterate(resumed, mine, adams[0], range(30, 50))
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**33, growth_interval=8)
same_records = records == list(iterate(scaler, theirs, adams[1], range(50)))
same = all(map(torch.equal, mine.parameters(), theirs.parameters()))
claim(f"{whose(Machine)} Scaler trains as GradScaler does, to the bit", same and same_records)
fell = records[-1].loss < records[0].loss / 3
claim("steps were skipped, and the loss fell to a third", fell and any(r.skipped for r in records))
ScaleTimeline(records)

# %% [markdown]
# Step through your own run. At the start the scale falls until gradients fit: calibration, not divergence. Then it
# grows after 8 good steps, and meets the ceiling again. The gradients shrink, so the ceiling rises.
#
# ### Exercise: five traces
#
# *12 minutes, optional.* Five recorded runs. Give each one of: `"calibration"`, `"growth at each step"`, `"NaN in the
# data"`, `"underflow"`, `"healthy"`, `"divergence"`. One word is left over.

# %% tags=["nbval-ignore-output"]
ScaleTimeline(review.traces())

# %% exercise="diagnosis"
diagnosis = {"A": ..., "B": ..., "C": ..., "D": ..., "E": ...}
### BEGIN SOLUTION
diagnosis = {"A": "growth at each step", "B": "underflow", "C": "calibration", "D": "healthy"}
diagnosis["E"] = "NaN in the data"
### END SOLUTION

# %% check="diagnosis" points=0
review.check_diagnosis(diagnosis)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Where are the skips: at the start, everywhere, from one step on, now and then, nowhere? And does the loss fall?
# </details>
#
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("04_loss_scaling")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., *Mixed Precision Training*, arXiv:1710.03740, sections 3.1 and 3.2. Zamirai et al.,
# arXiv:2010.06192 (BF16 weights). PyTorch, `torch/amp/grad_scaler.py` and `AmpGradScalerKernels`.
#
# **Next.** [Lab 05: automatic mixed precision](05_automatic_mixed_precision.ipynb).
