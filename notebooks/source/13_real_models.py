# %% [markdown]
# # 13. Real models (ResNet, BERT, GPT, GAN): a crash-test series
#
# You run four architectures in 16 bits until something breaks, and write the lines of today's model files that prevent it.
#
# *any laptop · needs: labs 03 to 05*
#
# After this lab you can:
#
# - write rotary positions that survive autocast, one step of a language model with all its parts, and one step of Muon beside AdamW;
# - say what 16 bits do to batch norm, padding, attention scores and a checkpoint that is loaded as BF16.
#
# ## Sitting A: the parts of a model
#
# *You are here:* **positions** → batch norm → padding → attention → *stop*

# %%
import torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.real_models import checks, figures, predictions as guesses, solutions as ours

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("13_real_models")

# %% [markdown]
# ### A picture that autocast wipes out
#
# A small network learns to paint a digit: from the row and the column of a pixel it computes its gray value. As in a transformer, each number first becomes the cosines and sines of several angles. Rows and columns are numbered
# from 65,536, as in one published image generator. The cell trains the network in FP32 and lets it paint twice: in FP32 and under BF16 autocast.

# %%
from labkit.training.data import digits

digit = F.interpolate(digits().train_images[:1], size=24, mode="bicubic").clamp(0, 1)[0, 0]
places = 65_536 + torch.cartesian_prod(torch.arange(24), torch.arange(24))  # (row, column)


def waves(places):
    """cos and sin of eight angles for the row, and of eight for the column."""
    inverse = 100.0 ** (-torch.arange(0, 16, 2).float() / 16)
    angles = (places.float()[:, :, None] @ inverse[None]).flatten(1)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


torch.manual_seed(0)
painter = nn.Sequential(
    nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)
)
adam = torch.optim.Adam(painter.parameters(), lr=1e-2)
for _ in range(200):
    adam.zero_grad()
    F.mse_loss(painter(waves(places)).view(24, 24), digit).backward()
    adam.step()


@torch.no_grad()
def paint(waves, bf16=True):
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        return painter(waves(places)).float().view(24, 24)


pictures = {"FP32": paint(waves, bf16=False), "BF16 autocast": paint(waves)}

# %% tags=["nbval-ignore-output"]
figures.pictures_picture(pictures)

# %% [markdown]
# Under autocast all pixels have the same gray, although `waves` calls `.float()` twice. The reason is the `@`: autocast casts its inputs to BF16, FP32 ones too. From 65,536 on, neighbouring BF16 numbers are 512
# apart, so all 24 rows and columns become 65,536. In June 2026 that image generator painted flat pictures for this reason (diffusers #13920).
#
# Language models number their tokens from 0. How many of 4,096 positions does BF16 keep apart?


# %% predict="positions-left"
@predict(guesses.positions_left)
def positions():
    return torch.arange(4096).to(torch.bfloat16).unique().numel()


# %% [markdown]
# BF16 has 8 significant bits, so all integers up to 256 remain: 257 numbers with 0. From 256 to 512 it holds every second integer, from 512 to 1024 every
# fourth: 128 in each of the four intervals up to 4096. 257 + 4 × 128 = 769.

# %% [markdown]
# ### Rotary positions
#
# Most language models use **rotary position embedding** (RoPE). Attention rotates each pair of numbers in a query or a key at position p by the angle p × f. Pair i has its own **inverse frequency** f = base^(−2i / width), which falls from 1 radian per position in pair 0 to almost 1 / base in the last pair.
# The dot product of two rotated vectors then depends on the *distance* of their positions. In pair 0, a position that is off by 1 turns the vector by 1 radian too much. So compute positions and angles in FP32. Only the cosines and sines may be cast.
#
# In published code BF16 got into the angles in three ways:
#
# - autocast casts the inputs of `@` and `einsum` (but not those of `*`);
# - `model.to(torch.bfloat16)` casts every float **buffer**, and models often keep f in one. `.float()` in `forward` then comes too late. `model.to(torch.bfloat16)` also makes complex buffers and parameters real, which drops the sines; `.half()` and `.bfloat16()` leave them complex;
# - `positions.to(x.dtype)` makes 256 and 257 equal.

# %% [markdown]
# ### Exercise: rotary positions
#
# *13 minutes, about 5 lines.* Write `Rotary`, a module that turns positions into cosines and sines.
#
# - **Input:** an even `width`, and `base`. `forward` gets T positions, int64, from 0 to 131,071 in any order.
# - **Output:** `(cos, sin)`, each float32, T x width/2. Column i is for the angle position × base^(−2i / width).
# - **Example:** the angles of `Rotary(4)(torch.tensor([1, 300]))` are [[1, 0.01], [300, 3]].
# - **Edge cases:** cos and sin keep the precision of float32 inside BF16 and FP16 autocast, and after `.to(torch.bfloat16)` or `.half()` of the module.


# %% exercise="rotary"
class Rotary(nn.Module):
    """The cosines and sines by which rotary attention turns queries and keys."""

    def __init__(self, width, base=10000.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.width, self.base = width, base
        ### END SOLUTION

    def forward(self, positions):
        ### BEGIN SOLUTION
        even = torch.arange(0, self.width, 2, dtype=torch.float32, device=positions.device)
        inverse = self.base ** (-even / self.width)
        angles = positions.float()[:, None] * inverse
        return angles.cos(), angles.sin()
        ### END SOLUTION


# %% check="rotary" points=3
checks.check_rotary(Rotary)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Print `(a @ b).dtype` and `(a * b).dtype` of two float32 tensors inside autocast. What does `.to(torch.bfloat16)` convert: Python floats, attributes, buffers, parameters?
# </details>
# <details><summary>Hint 2</summary>
#
# Take width 4 and the positions 0, 1 and 257. The inverse frequencies are 1 and 0.01. Where would 257 become 256, and 0.01 become 0.01001?
# </details>
# <details><summary>Hint 3</summary>
#
# `__init__` keeps `self.width` and `self.base`, two Python numbers. In `forward`: `even = torch.arange(0, self.width, 2, dtype=..., device=...)`,
# `inverse = self.base ** (...)`, then `angles = positions.float()[:, None] ... inverse`.
# </details>

# %% [markdown]
# Paint once more under BF16 autocast, now with the angles of `Rotary`.

# %%
Angles = yours(Rotary, ours.Rotary)
rotary = Angles(16, base=100.0)


def rotary_waves(places):
    (cos_row, sin_row), (cos_column, sin_column) = (rotary(place) for place in places.T)
    return torch.cat([cos_row, cos_column, sin_row, sin_column], dim=1)


repaired = paint(rotary_waves)
claim(f"{whose(Angles)} angles bring the digit back", F.mse_loss(repaired, digit).item() < 1e-3)

# %% tags=["nbval-ignore-output"]
figures.pictures_picture(pictures | {f"BF16 autocast, {whose(Angles)} angles": repaired})

# %% [markdown]
# ### Batch norm: statistics that training never reads
#
# A ResNet is an image network whose blocks add to their input. It normalizes each channel by **batch norm**: in training with the mean and the variance of the batch, in `eval` mode with **running statistics**: moving averages that each training step updates and that stand in buffers. The cell looks at one batch norm under FP16 autocast.
# Then it casts batch norms by `.to(dtype)` and prints the standard deviation of their outputs in training and in `eval` mode, for activations with mean 1000 and standard deviation 300.

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.resnet import SmallResNet

resnet = SmallResNet()
norm = resnet.blocks[0].body[1]
norm.register_forward_hook(lambda _, args, out: print("reads", args[0].dtype, "gives", out.dtype))
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    resnet(digits().train_images[:64])
print("its running variance is", norm.running_var.dtype)

activations = 1000 + 300 * torch.randn(16, 4, 8, 8, generator=torch.Generator().manual_seed(0))
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    layer, x = nn.BatchNorm2d(4).to(dtype), activations.to(dtype)
    for _ in range(50):
        trained = layer(x)
    layer.eval()
    spread = [round(out.float().std().item(), 1) for out in (trained, layer(x))]
    mean = layer.running_mean.float().mean().item()
    print(f"{dtype}: training {spread[0]}, eval {spread[1]}, running mean {mean:.0f}")

# %% [markdown]
# Autocast leaves weights and statistics in FP32, so there is nothing to repair. After `.half()` *training* looks healthy, because the statistics of a batch are computed in FP32. But the variance, 90,000, is inf in an FP16 buffer, so in `eval` mode
# every output is a constant. In BF16 the running mean stays short of FP32's, because small updates are rounded away (lab 04). So evaluate a 16-bit copy before you ship it.
#
# Tensor Cores read images fastest if the channels of a pixel lie side by side. `model.to(memory_format=torch.channels_last)`, and the same for the images, changes the order in memory, but no shape and no value.
#
# ### Padding: who must know the mask
#
# A BERT-style classifier reads a whole text at once. A **tokenizer** turns words into numbers, and short texts of a batch are filled with **padding**. A **mask** says which tokens are real. The classifier below guesses from which of three plays a speech comes.
# Two places must use the mask: attention, and the mean over tokens before the last layer. The cell leaves the mask out of one place at a time and counts the answers that change.

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.text import trained_classifier


def card_mean(hidden, mask):
    """The mean over real tokens, as it stands on many model cards."""
    mask = mask[..., None].to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


trained = trained_classifier(seed=0, pool=card_mean)
bert, (tokens, mask, labels) = trained.model, trained.test.values()
everything = torch.ones_like(mask)
with torch.no_grad():
    hidden, unmasked = (bert.hidden(tokens, seen) for seen in (mask, everything))
    right = bert.head(card_mean(hidden, mask)).argmax(1)
    print(f"padding: {(~mask).double().mean():.0%} of the tokens")
    for place, logits in {
        "the mean": bert.head(card_mean(hidden, everything)),
        "attention": bert.head(card_mean(unmasked, mask)),
    }.items():
        answers = logits.argmax(1)
        changed, hits = (answers != right).double(), (answers == labels).double()
        print(f"no mask in {place}: {changed.mean():.0%} changed, {hits.mean():.0%} right")
print(f"both masks: {trained.accuracy:.0%} right")

# %% [markdown]
# Without the mask in attention many answers change, and fewer are right. Without it in the mean only a few percent change, and the accuracy hardly shows it. So test the mask itself: add padding to a text, and its output must stay the same.
#
# The numbers of a mask must fit the format too. Many files add −1e9 to masked scores, and in FP16 that is −inf. A text without a real token then has only −inf, and softmax gives NaN (lab 03). Pass a bool mask to `F.scaled_dot_product_attention`, which gives zeros in this case, or fill with `torch.finfo(scores.dtype).min`, which gives the mean.

# %% [markdown]
# ### Exercise: the mean over real tokens
#
# *8 minutes, optional, about 3 lines.* Write `pooled`, the mean of each row's real tokens.
#
# - **Input:** `hidden`, N x T x width in BF16 or FP16; `mask`, N x T bool, True at the real tokens. They may stand anywhere in a row.
# - **Output:** N x width, with the dtype and the precision of float32.
# - **Example:** the numbers 1, 3 and 100 with the mask True, True, False: 2.
# - **Edge cases:** a row of more than 256 tokens, a sum above 65504, a row without real tokens (its mean is 0), NaN in the padding. The call stands inside autocast or outside.


# %% exercise="pooled"
def pooled(hidden, mask):
    """The mean over the tokens that `mask` marks; zeros where it marks none."""
    ### BEGIN SOLUTION
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ### END SOLUTION


# %% check="pooled" points=0
checks.check_pooled(pooled)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Sum, count and quotient: which of the three is in 16 bits? What is NaN × 0?
# </details>
# <details><summary>Hint 2</summary>
#
# Take one row of 2,049 tokens of value 40 in FP16, and one row without real tokens.
# </details>
# <details><summary>Hint 3</summary>
#
# `kept = hidden.float().masked_fill(..., 0)`, then `kept.sum(dim=1) / mask.sum(...).clamp(min=...)`.
# </details>

# %% [markdown]
# ### Attention scores that grow
#
# A **score** is the dot product of a query and a key, divided by √width, where width is how many numbers each of them has (32 here). Nothing bounds it. The cell trains a small GPT in FP16 whose attention is written out, as in many model files. The learning rate is 0.1, far too large, so that scores grow within 150 steps. In the second run
# **QK-norm** divides each query and each key by its root mean square, so no score exceeds √32 = 5.7.

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.attention import crash_run, small_gpt

for name, qk_norm in (("without QK-norm", False), ("with QK-norm", True)):
    run = crash_run(small_gpt(qk_norm=qk_norm, seed=0), precision="fp16", seed=0)
    end = f"NaN in step {run.died}" if run.died else f"loss {run.final_loss:.2f} nats"
    print(f"{name}: largest score {run.largest_score:,.1f}, {end}")

# %% [markdown]
# A score of 11,580 is a dot product of 65,504, √32 times as much. Above it FP16 has only inf, so without QK-norm the loss becomes NaN. Is FP16 to blame? The figure shows four recorded runs, two of them in FP32. (Where exactly the NaN comes depends on the order of additions, so your run may end in another step.)

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.recorded import crash_runs

figures.crash_picture({arm: run for arm, run in crash_runs().items() if "0.03" not in arm})

# %% [markdown]
# In FP32 nothing overflows. But the scores of that run grow to 36,000, and it ends worse than the run with QK-norm. So FP16 makes the growth fatal and does not cause it. QK-norm helps in both formats.
#
# What do large scores cost if nothing overflows? *Eager* attention is `(q @ k.mT / width**0.5).softmax(-1) @ v`: under autocast each matmul returns 16 bits, so scores are rounded. *Fused* attention (`F.scaled_dot_product_attention`, FlashAttention) keeps scores and softmax in FP32 and rounds only the weights and the output. Where no fused kernel fits, torch takes its *math* backend: it computes in FP32 and rounds only the output.


# %%
def attention_errors(gain):
    """Relative errors of eager and fused attention in BF16, when the scores are `gain` times larger."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 64, 64, generator=generator) for _ in range(3))
    q, k, v = (gain**0.5 * q).bfloat16(), (gain**0.5 * k).bfloat16(), v.bfloat16()
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.bfloat16):
        eager = (q @ k.mT / 8).softmax(-1) @ v
        fused = F.scaled_dot_product_attention(q, k, v)
    return [((found - exact).norm() / exact.norm()).item() for found in (eager, fused)]


print(f"scores up to 4: eager {attention_errors(1)[0]:.1%}, fused {attention_errors(1)[1]:.1%}")


# %% predict="scores-grow"
@predict(guesses.scores_grow)
def error():
    before, after = attention_errors(1)[1], attention_errors(64)[1]
    return "falls" if after < before / 1.5 else "rises" if after > 1.5 * before else "stays"


# %% [markdown]
# The error of fused attention falls to a third, and that of eager attention rises to more than four times as much. When scores grow, one token gets nearly all weight of a row. Weights of 1 and 0 are exact in BF16, so fused attention has hardly anything to round. Eager attention rounds the scores themselves: at 200 the gap of BF16 is 1,
# and a score that is off by 0.5 changes a weight by a factor of 1.6.

# %% [markdown]
# In the widget, raise the largest score of the attention to 4,096. Find the fewest repairs that keep the error within 0.5 % *and* let a gradient pass through the softmax. (What "passes" counts stands below the table.)

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.widget_crash_rig import CrashRig

rig = CrashRig()
rig

# %% [markdown]
# You need two repairs: QK-norm, and fused attention or an FP32 matmul. Without QK-norm one token has nearly all the weight, so hardly any gradient passes through the softmax, even in FP64. QK-norm gives other tokens weight again, so the rounding of eager scores matters again. Fused attention removes this rounding error. An FP32 matmul does so too, and is slower. A **soft cap**, cap × tanh(score / cap), bounds scores too. After an overflow, though, it turns inf into a healthy-looking number whose gradient is 0.

# %% [markdown]
# ### Exercise: attention with QK-norm
#
# *8 minutes, optional, about 4 lines.* Write `attend`, causal attention with QK-norm.
#
# - **Input:** `q`, `k`, `v`, each N x heads x T x width in BF16 or FP16, inside autocast; `q_gain` and `k_gain`, float32 (width).
# - **Output:** N x heads x T x width. Divide each query and key by the square root of (1e-6 + the mean of the squares of its numbers), multiply by its gain, and attend with
#   scores divided by sqrt(width).
# - **Example:** before the gain, the query [3, 4] becomes [3, 4] / sqrt(12.5), about [0.85, 1.13].
# - **Edge cases:** queries of 300 and of 0.001, and a query of zeros.


# %% exercise="attend"
def attend(q, k, v, q_gain, k_gain):
    """Causal attention of normed queries and keys; all N x heads x T x width."""
    ### BEGIN SOLUTION
    q = F.rms_norm(q.float(), q.shape[-1:], q_gain.float(), eps=1e-6)
    k = F.rms_norm(k.float(), k.shape[-1:], k_gain.float(), eps=1e-6)
    return F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
    ### END SOLUTION


# %% check="attend" points=0
checks.check_attend(attend)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which dtype has `x * x` for an FP16 x inside the block? What do you divide a query of zeros by?
# </details>
# <details><summary>Hint 2</summary>
#
# `F.rms_norm(x, normalized_shape, weight, eps)`: for a head of width 2, what is `normalized_shape`?
# </details>
# <details><summary>Hint 3</summary>
#
# `q = F.rms_norm(q.float(), q.shape[...], ..., eps=...)`, the same for k, then `F.scaled_dot_product_attention` with both in `v.dtype`.
# </details>

# %% [markdown]
# ### Exercise: the loss of a capped head
#
# *8 minutes, optional, about 5 lines.* Write `head_loss`, the loss of a head with a soft cap and a **z-loss**, a penalty on (log Z)² that keeps it near 0.
#
# - **Input:** `logits`, M x V in BF16, FP16 or FP32; `targets`, M int64, −100 where a row has none.
# - **Output:** a scalar tensor. With capped = cap × tanh(logits / cap) and Z the sum of exp(capped) over a row: the mean cross-entropy of `capped`
#   plus z × the mean of (log Z)². Both means are over the rows with a target, in float32, and gradients reach the logits.
# - **Example:** logits [[0, 0]], target 0, z = 0.1: log 2 + 0.1 × (log 2)² = 0.741.
# - **Edge cases:** logits around 200 and −200, also with cap = 100. The call stands inside autocast or outside.


# %% exercise="head-loss"
def head_loss(logits, targets, cap=30.0, z=1e-4):
    """Cross-entropy of capped logits, and the z-loss."""
    ### BEGIN SOLUTION
    capped = cap * torch.tanh(logits.float() / cap)
    log_z = capped.logsumexp(dim=-1)[targets != -100]
    return F.cross_entropy(capped, targets) + z * log_z.square().mean()
    ### END SOLUTION


# %% check="head-loss" points=0
checks.check_head_loss(head_loss)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Is `tanh` on a list of autocast? Over which rows is the mean of (log Z)² taken?
# </details>
# <details><summary>Hint 2</summary>
#
# Take two rows with V = 2, one of them with the target −100. Which rows does `F.cross_entropy` leave out, and which does `logsumexp`?
# </details>
# <details><summary>Hint 3</summary>
#
# `capped = cap * torch.tanh(... / cap)`, `log_z = capped.logsumexp(dim=-1)[...]`, then `F.cross_entropy(capped, targets) + z * ...`.
# </details>

# %% [markdown]
# **A stopping point.** You have seen what 16 bits do to the parts of a model. Sitting B trains.

# %% [markdown]
# ## Sitting B: the run
#
# *You are here:* **the step of a language model** → Muon beside AdamW → do they train?

# %%
import torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.real_models import checks, figures, predictions as guesses, solutions as ours
from labkit.measuring.efficiency import work_and_memory
from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.models import SmallGPT

# %% [markdown]
# ### The step of a language model
#
# A step of a GPT combines what lab 05 built separately: autocast, micro-batches, clipping, the scaler and a learning-rate schedule. This step is modelled on published ones. Read it as a reviewer before you go on.


# %%
def published_step(model, group, optimizer, scheduler, scaler, limit, device):
    optimizer.zero_grad()
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            loss = cross_entropy(model(tokens), targets) / len(group)
        scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()


# %% [markdown]
# The step has three faults.
#
# - Each loss is a mean over the real tokens of *one* micro-batch. The mean of these means gives a token in a short micro-batch more weight, and a micro-batch of padding alone has the mean 0 / 0. Weighting by sequences does not help, because they differ in length too.
# - The clip sees gradients that are still multiplied by the scale. A clip also hides a wrong divisor: a gradient above the limit gets the same norm, whatever the loss was divided by.
# - The schedule moves in skipped steps too. A scaler often begins with skips, so the warm-up ends too early. Only a scale that *falls* in `update` means a skip: after many good steps it grows.
#
# ### Exercise: one step of a language model
#
# *17 minutes, about 14 lines.* Write `language_step`, one optimizer step over a group of micro-batches in FP16.
# Write it yourself: labkit's `train` does not count.
#
# - **Input:** `group`, a list of (tokens, targets), each N x T; a target of −100 does not count. Micro-batches differ in N and in how many targets count. `model(tokens)` gives logits, N x T x vocabulary. The scaler is enabled.
# - **Output:** the mean loss over all targets of the group, a float. The step follows its gradient, clipped to the norm `limit`. Forward and loss run under autocast.
# - **Schedule:** `scheduler.step()` follows a step that was taken, never a skipped one.
# - **Memory:** run each micro-batch's backward before the next one's forward.
# - **Example:** 3 targets of loss 1 in one micro-batch and 1 of loss 5 in the next: 2.
# - **Edge cases:** a micro-batch without targets; an overflow in backward or in forward (return the loss all the same, also NaN); a scale that grows after a good step.


# %% exercise="language-step"
def language_step(model, group, optimizer, scheduler, scaler, limit, device) -> float:
    """One optimizer step over the group's micro-batches; returns its mean loss."""
    ### BEGIN SOLUTION
    count = sum((targets != -100).sum() for _, targets in group)
    optimizer.zero_grad()
    mean = 0.0
    for tokens, targets in group:
        with torch.autocast(device, dtype=torch.float16):
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    return mean
    ### END SOLUTION


# %% check="language-step" points=3
checks.check_language_step(language_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The loss is a mean over how many targets, and when do you know this number? What does the scale do when a step was skipped, and what when it was taken?
# </details>
# <details><summary>Hint 2</summary>
#
# Two micro-batches have 1 and 3 targets with the losses 5 and 1, 1, 1. `5 / 4 + 3 / 4` is 2. What is divided by 4 here?
# </details>
# <details><summary>Hint 3</summary>
#
# `count = sum(... for _, targets in group)`; for each micro-batch the forward, `F.cross_entropy(..., reduction="sum") / count`, and backward of the scaled loss. Then
# unscale, clip, step, `before = scaler.get_scale()`, update, and `if scaler.get_scale() ... before: scheduler.step()`.
# </details>

# %% [markdown]
# The cell trains a fresh GPT, from a scale that is too large, in groups of two micro-batches. In the second, the last 32 of the 64 targets of each row are −100. The loss must fall below the entropy of single characters.

# %%
from labkit.labs.real_models.language import unigram_entropy

text, test = shakespeare_split()
vocabulary = characters(shakespeare())
entropy = unigram_entropy(text)
batches = list(character_batches(text, 64, 8, steps=80, vocabulary=vocabulary))
torch.manual_seed(0)
gpt, scaler = SmallGPT(68, 64), torch.amp.GradScaler("cpu", init_scale=2.0**24)
adamw = torch.optim.AdamW(gpt.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.LinearLR(adamw, 0.1, total_iters=10)
step, losses = yours(language_step, ours.language_step), []
with emulate_gpu():
    for first, (tokens, targets) in zip(batches[::2], batches[1::2], strict=True):
        targets[:, 32:] = -100
        group = [first, (tokens, targets)]
        losses.append(step(gpt, group, adamw, schedule, scaler, 1.0, "cpu"))
claim(f"{whose(step)} step ends below {entropy:.2f} nats", sum(losses[-5:]) / 5 < entropy)

# %% [markdown]
# ### Optional: activation checkpointing
#
# Most memory of a step is here activations that forward keeps for backward. **Activation checkpointing** keeps only the input of each block and runs its forward once more in backward. Does the second forward round as the first did?

# %%
from functools import partial
from torch.utils.checkpoint import checkpoint
from labkit.labs.real_models.language import training_bytes, zero_table


def one_gradient(recompute):
    """All gradients of one FP16 step, and the bytes that forward kept."""
    gpt = trained_gpt()
    if recompute:
        for block in gpt.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    with emulate_gpu():
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(gpt(batches[0][0]), batches[0][1])
        loss.backward()  # runs the blocks once more, so the emulation must still be on
    return [p.grad for p in gpt.parameters()], work_and_memory(gpt, batches[0], precision="fp16")


(kept, (flop, stored)), (again, (more_flop, less)) = one_gradient(False), one_gradient(True)
print("the same bits:", all(torch.equal(a, b) for a, b in zip(kept, again, strict=True)))
print(f"bytes kept: 1/{stored / less:.1f}, FLOP: x {more_flop / flop:.2f}")
zero_table(training_bytes(trained_gpt(), batches[0], precision="fp16", checkpoint=True), ranks=8)

# %% [markdown]
# The gradients are equal to the last bit, because torch restores the state of autocast for the second forward, and the kernels here are deterministic. The table shows the bytes that each of eight GPUs holds. **ZeRO** divides the moments among the GPUs (stage 1), then also the gradients (2), then also the weights (3). Each GPU keeps its own activations. (The non-reentrant form is the one to use. The reentrant one loses gradients where a block's input needs none.)

# %% [markdown]
# ### Muon beside AdamW
#
# AdamW looks at each weight alone. **Muon** looks at a matrix: it makes all singular values of the momentum about 1 (by five Newton–Schulz iterations, in BF16), so the step is about equally long in all directions. `torch.optim.Muon` takes matrices only. Embeddings, head, biases and norms go to AdamW, so such a run has two optimizers and, in FP16, one scaler.
#
# What happens to each optimizer if the gradients are never divided by the loss scale?


# %%
OPTIMIZERS = {
    "SGD": lambda w: torch.optim.SGD([w], lr=0.02),
    "AdamW": lambda w: torch.optim.AdamW([w], lr=0.02),
    "Muon": lambda w: torch.optim.Muon([w], lr=0.02, weight_decay=0.0),
}


def distance(name, scales):
    """How far scaled gradients lead from the right weights, relative to the way to them."""

    def run(scales):
        torch.manual_seed(0)
        w = nn.Parameter(0.1 * torch.randn(8, 8))
        start, optimizer = w.detach().clone(), OPTIMIZERS[name](w)
        for scale in scales:
            x, noise = torch.randn(2, 4, 8)
            optimizer.zero_grad()
            (scale * (x @ w - x - noise).square().mean()).backward()
            optimizer.step()
        return w.detach(), start

    (scaled, _), (right, start) = run(scales), run([1.0] * len(scales))
    return ((scaled - right).norm() / (right - start).norm()).item()


# %% predict="muon-unscaled"
@predict(guesses.muon_unscaled)
def farther():
    far = [name for name in OPTIMIZERS if distance(name, [1024.0] * 5) > 0.01]
    return " and ".join(far)


# %% [markdown]
# Only SGD. Muon's weights do not differ in a single bit, and AdamW's by a few millionths, because its eps is not scaled. A normalized update ignores a factor that all gradients share.

# %% [markdown]
# In a real run the scale changes. The cell halves it after each of the first five steps, from 2¹⁶ to 2¹¹.

# %%
falling = [2.0 ** (16 - min(i, 5)) for i in range(12)]
for name in ("AdamW", "Muon"):
    off = distance(name, falling)
    print(f"{name}: more than 20 % off: {off > 0.2}")

# %% [markdown]
# Both end far away: the momentum mixes gradients of several scales, and old ones count up to 32 times too much. So divide by the scale before any optimizer steps. And do not leave loss scaling out: Muon lengthens weak directions of a gradient, up to almost 500 times, and these underflow first.
#
# One problem remains: `scaler.step` decides for each optimizer alone. The cell begins at a scale of 2²⁰, where the gradient of one bias overflows in the trained GPT and those of the matrices do not.


# %%
from labkit.labs.real_models.language import moved


def optimizers(gpt):
    """Muon for the matrices of the blocks, AdamW for everything else."""
    matrices = [p for p in gpt.blocks.parameters() if p.ndim == 2]
    rest = [p for p in gpt.parameters() if all(p is not m for m in matrices)]
    return torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=3e-3)


def each_alone(gpt, loss, muon, adamw, scaler, limit):
    scaler.scale(loss).backward()
    scaler.step(muon)
    scaler.step(adamw)
    scaler.update()


halves = moved(each_alone, optimizers, batches[2], scale=2.0**20)
print("Muon's weights moved: {}, AdamW's: {}".format(*halves))

# %% [markdown]
# That was half a step. In the GAN of lab 05 half a step is right, because its two networks have two losses. Here both halves belong to *one* gradient. The norm for the clip belongs to all gradients too. The norm also decides whether to step: after `unscale_` it is finite only if every gradient is.

# %% [markdown]
# ### Exercise: both optimizers step, or neither
#
# *11 minutes, about 9 lines.* Write `joint_step`, one step of two optimizers on one model.
#
# - **Input:** `loss`, not scaled; `muon`, which has some matrices of `model`, and `adamw`, which has all other parameters (in the check sometimes an SGD). `.grad` may
#   hold old gradients.
# - **Output:** True if both stepped, False if neither did. Clip *all* gradients together to the norm `limit`.
# - **Example:** Muon's gradients have norm 3, AdamW's 4, the limit is 1: all are divided by 5.
# - **Edge cases:** if any gradient overflows, no weight moves and the scale halves. The loss may be finite all the same. The scale may also grow.


# %% exercise="joint-step"
def joint_step(model, loss, muon, adamw, scaler, limit) -> bool:
    """One step of both optimizers, or of neither; True if the step was taken."""
    ### BEGIN SOLUTION
    muon.zero_grad()
    adamw.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(muon)
    scaler.unscale_(adamw)
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    finite = bool(norm.isfinite())
    if finite:
        scaler.step(muon)
        scaler.step(adamw)
    scaler.update()
    return finite
    ### END SOLUTION


# %% check="joint-step" points=3
checks.check_joint_step(joint_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# After `unscale_`, what is the norm of all gradients if one of them is inf? What does `unscale_` note for `update`?
# </details>
# <details><summary>Hint 2</summary>
#
# Take two scalar parameters, one for each optimizer, and one gradient of inf. Which calls must run, and which must not?
# </details>
# <details><summary>Hint 3</summary>
#
# Empty both gradients, backward of the scaled loss, `unscale_` for both, `norm = nn.utils.clip_grad_norm_(model.parameters(), ...)`,
# `if norm....: ` step both; `update` after the `if`, in either case.
# </details>

# %% [markdown]
# Repeat the step from the scale 2²⁰, then train a fresh GPT.

# %%
both = yours(joint_step, ours.joint_step)
halves = moved(both, optimizers, batches[2], scale=2.0**20)
claim(f"with {whose(both)} step neither half moves", halves == [False, False])

torch.manual_seed(0)
gpt, scaler = SmallGPT(68, 64), torch.amp.GradScaler("cpu")
muon, adamw = optimizers(gpt)
with emulate_gpu():
    for tokens, targets in batches[:40]:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(gpt(tokens), targets)
        both(gpt, loss, muon, adamw, scaler, 1.0)
claim("after 40 steps the loss is below 3 nats", loss.item() < 3)

# %% [markdown]
# ### Optional: a GAN in 16 bits
#
# A GAN has two networks, two optimizers and one scaler (lab 05). The cell trains one on points in eight blobs. Image generators often ship a **moving average** of the generator's weights. The figure shows points of the generator itself and of two averages, kept in FP32 and in BF16.

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.gan import ring_points, ring_run

run = ring_run(precision="fp16", seed=0)
print("D is right about {:.0%} of the points at best, {:.0%} at the end".format(*run.accuracy))
names = {"raw": "the generator", "float32": "FP32 average", "bfloat16": "BF16 average"}
samples = {names[kind]: points for kind, points in run.samples.items()}
figures.ring_picture(samples, ring_points(500, torch.Generator().manual_seed(1)))

# %% [markdown]
# The GAN trains in FP16: its generator finds all eight blobs. The FP32 average covers the ring as well. The BF16 average hardly moves: with decay 0.995 a step moves it by 0.5 % of its *distance* to the weight, and this is lost if it is less than half a gap of BF16, which is 0.2 to 0.4 % of the *average itself*. Keep averages in FP32.

# %% [markdown]
# ### Do they train in 16 bits?
#
# The table holds means of ten recorded runs. *Equivalent* means that the accuracy differs from that of FP32 by less than 0.02, with 95 % confidence, over pairs of runs with the same seed (lab 06). All GANs found all eight blobs.

# %%
from labkit.labs.real_models.recorded import precision_table

precision_table()

# %% [markdown]
# These networks are tiny. The runs show that autocast does no harm *here*, and not that a large model needs nothing more.

# %% [markdown]
# ### Optional: a checkpoint in transformers
#
# Most large language models are published in BF16. The cell saves a tiny GPT-2 in BF16, loads it in two ways, and trains four steps under BF16 autocast with a learning rate of 1e-5. Compare how many weights move.

# %% tags=["nbval-ignore-output"]
from labkit.labs.real_models.library import loaded_run
from labkit.labs.real_models.recorded import loaded_runs

try:
    runs = {"default": loaded_run(), "float32": loaded_run(torch.float32)}
except ImportError as missing:
    print(f"{missing}\nRecorded:")
    runs = {asked: five[0] for asked, five in loaded_runs().items()}
for asked, run in runs.items():
    print(f"asked for {asked}: {run.parameters} weights, {run.moved:.0%} of them moved")

# %% [markdown]
# transformers 5 loads a checkpoint in the dtype that its configuration names, usually the one in which it was saved. Autocast (also the Trainer's `bf16=True`) adds no master weights, so most updates are rounded away (lab 04). To train, load with `dtype=torch.float32`. For inference BF16 is right.
#
# ### What stays in FP32
#
# | in FP32 in a 16-bit run | why |
# |---|---|
# | positions and angles | an error of 1 is 1 radian |
# | running statistics, moving averages, master weights | small updates are rounded away; in FP16 a variance can be inf |
# | scores and softmax, the inside of norms, the loss | `exp` and squares overflow, sums lose terms |
# | counts of tokens, sums over tokens | BF16 counts to 256 |

# %% [markdown]
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("13_real_models")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** diffusers #13920 (positions); transformers #25681, #29285 (rotary angles in BF16), #34191 (accumulation). Su et al., *RoFormer*, arXiv:2104.09864. Wang et al., *When precision meets position*, arXiv:2411.13476. Ioffe and Szegedy, arXiv:1502.03167 (batch norm). Henry et al., arXiv:2010.04245 (QK-norm).
# Wortsman et al., *Small-scale proxies*, arXiv:2309.14322. Dao, *FlashAttention-2*, arXiv:2307.08691. Jordan, *Muon*, 2024. Liu et al., *Muon is scalable*, arXiv:2502.16982. PyTorch 2.13, `torch/optim/_muon.py`, `torch/amp/grad_scaler.py`, `torch/utils/checkpoint.py`.
#
# **Next.** If you came from lab 05: [lab 06: hardware, and honest benchmarks](06_hardware_and_benchmarks.ipynb). Otherwise: [lab 14: Keras and JAX](14_other_frameworks.ipynb), if you work with one of them, or [lab 15: production](15_production.ipynb).
