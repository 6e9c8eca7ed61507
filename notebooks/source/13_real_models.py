# %% [markdown]
# # 13. Real models: ResNet, BERT, GPT, GAN: a crash-test series
#
# You run four architectures in 16 bits until something breaks, and write the lines of today's model files that prevent it.
#
# *any laptop · needs: labs 03 and 05*
#
# After this lab you can:
#
# - write rotary positions that survive autocast, one step of a language model with all its parts, and one step of Muon beside AdamW;
# - say what 16 bits do to batch norm, padding, attention scores and a checkpoint that is loaded as BF16.
#
# ## Sitting A: the parts of a model
#
# *You are here:* **positions** → ResNet → BERT → *stop*

# %%
import torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.real_models import predictions as guesses, solutions as ours
from labkit.labs.real_models.checks import check_pooled, check_rotary

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("13_real_models")

# %% [markdown]
# ### A picture that autocast wipes out

# %% predict="positions-left"
@predict(guesses.positions_left)
def positions():
    return torch.arange(4096).to(torch.bfloat16).unique().numel()


# %% [markdown]
# BF16 has 8 significant bits.

# %% [markdown]
# ### Exercise: rotary positions
#
# *14 minutes, about 5 lines.* Write `Rotary`, whose forward turns positions (int64, T) into cos and sin of the angles (each float32, T x width/2).


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
check_rotary(Rotary)

# %% [markdown]
# ### ResNet: batch norm and the order of the bytes

# %% [markdown]
# ### BERT: padding

# %% [markdown]
# ### Exercise: the mean over real tokens
#
# *8 minutes, optional, about 3 lines.* Write `pooled(hidden, mask)`: the mean of each row's real tokens, N x width float32, from hidden (N x T x width, 16 bits) and mask (N x T, bool).


# %% exercise="pooled"
def pooled(hidden, mask):
    """The mean over the tokens that `mask` marks; zeros where it marks none."""
    ### BEGIN SOLUTION
    kept = hidden.float().masked_fill(~mask[..., None], 0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ### END SOLUTION


# %% check="pooled" points=0
check_pooled(pooled)

# %% [markdown]
# ### Optional: a GAN in 16 bits
#
# **A stopping point.**

# %% [markdown]
# ## Sitting B: the run
#
# *You are here:* **attention** → the step of a language model → Muon beside AdamW → the library

# %%
import copy, torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.real_models import predictions as guesses, solutions as ours
from labkit.labs.real_models import checks
from labkit.training import trained_gpt

# %% [markdown]
# ### Attention scores that grow

# %% predict="scores-grow"
@predict(guesses.scores_grow)
def error():
    return "falls"


# %% [markdown]
# Explanation.

# %% [markdown]
# ### Exercise: attention with QK-norm
#
# *8 minutes, optional, about 4 lines.* Write `attend(q, k, v, q_gain, k_gain)`: RMS norm of q and k over each head (times their gains), then fused causal attention.


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
# ### Exercise: the loss of a capped head
#
# *8 minutes, optional, about 5 lines.* Write `head_loss(logits, targets, cap, z)`: with capped = cap * tanh(logits / cap), the mean cross-entropy over targets that are not -100, plus z times the mean of (log Z)**2 over the same rows.


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
# ### Exercise: one step of a language model
#
# *18 minutes, about 14 lines.* Write `language_step`: one FP16 step over a list of (tokens, targets), whose loss is the mean over all targets that are not -100, clipped to `limit`, with a schedule that moves only with the optimizer; return the loss.


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
# ### Muon beside AdamW

# %% predict="muon-unscaled"
@predict(guesses.muon_unscaled)
def farther():
    return "AdamW"


# %% [markdown]
# Explanation.

# %% [markdown]
# ### Exercise: both optimizers step, or neither
#
# *14 minutes, about 9 lines.* Write `joint_step`: backward of `loss` through the scaler, all gradients clipped together to `limit`, then both optimizers step or neither; return whether they stepped.


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
# ### Optional: the same with transformers

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
# **Sources.**
#
# **Next.** [Lab 08: FP8 and FP4](08_fp8_and_fp4.ipynb).
