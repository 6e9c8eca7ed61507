# %% [markdown]
# # 17. Ship it under a budget
#
# You hand over a trained network in 120,000, 68,000 and 47,000 bytes, and sign for how far each copy is from the original.
#
# *any laptop · needs: labs 09 and 12*
#
# After this lab you can:
#
# - ship a network under a budget in bytes, and sign a bound on its distance from the original;
# - say which decision paid for which part of the result.

# %%
import torch
from labkit.labs.ship_it import checks
from labkit.labs.ship_it.packed import in_integers, nbytes, pack, total_bytes, unpack, unpacked
from labkit.labs.ship_it.scoring import BUDGETS, divergence, pieces, sampled

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("17_ship_it")

# %% [markdown]
# ### The task
#
# You get the FP32 weights of a small GPT, 451,856 bytes, and return it in at most so many bytes. Three budgets are graded: 120,000, 68,000 and 47,000 bytes, which is 8.5, 4.8 and 3.3 bits a parameter.
# The weights are not those of the course's checkpoint: each matrix has noise of 8 %, and channels, heads and hidden units stand in another order. Under a grader, each student gets other ones.
#
# Quality is KL(original || yours), in bits a character (lab 12), on text that you do not see: after you have returned your networks, the original writes it. A lower loss than the original's earns nothing; the same answers do.
#
# ### What counts as a byte
#
# Each tensor is **packed**: codes of a format, and scales. `pack(codes, fmt, scales)` packs a tensor and `unpack` gives its float32 values, code × scale.
#
# - The format is one of int2 to int8, e2m1, e4m3, e5m2, fp16, bf16 or fp32. Codes are packed without gaps.
# - The scales are a tensor of float32, float16, bfloat16, float8_e4m3fn or float8_e8m0fnu, of shape (rows or 1) × groups of a row; or None.
# - A tensor costs its codes, its scales and 8 bytes for its header. `nbytes` counts one tensor, `total_bytes` the network.
#
# `in_integers` packs a matrix in integers, with one FP16 scale a row or a group; `clip=True` searches for the scale of least squared error (lab 09). The cell packs one matrix in four ways.

# %%
from labkit.labs.ship_it.variants import network

example = network(0)["blocks.0.qkv.weight"]
print("format  group   bytes   relative error")
for bits, group in ((8, None), (4, None), (4, 32), (3, 32)):
    packed = in_integers(example, bits=bits, group=group, clip=True)
    error = (unpack(packed) - example).norm() / example.norm()
    print(f"int{bits:<5}{group or 'row'!s:6}{nbytes(packed):7,}{error:12.1%}")

# %% [markdown]
# ### How a network earns points
#
# With each network you return a **claim**: the KL that you sign for as an upper bound. A budget is scored by the larger of claim and measured KL. If the measured KL is above the claim, the budget earns nothing.
# Each halving of the KL earns the same, between two ends that the cell prints.

# %%
for budget, scale in BUDGETS.items():
    print(
        f"{budget:7,} bytes: {scale.share:.0%} of the points at {scale.full}, none from {scale.none} on"
    )

# %% [markdown]
# ### Exercise: ship it
#
# *40 minutes, as many lines as you like.* Write `compress`, which packs the network for one budget.
#
# - **Input:** `weights`, {name: float32 tensor} of a SmallGPT; `text`, the 334,129 characters of the training text; `budget` in bytes. Any budget of the three may come first.
# - **Output:** `(artifact, claim)`: {name: packed tensor} with exactly the names and shapes of `weights`, and the KL that you sign for, in bits a character.
# - **Limits:** a byte too much, a tensor that `unpack` refuses, or a claim below what is measured earns 0 for that budget. All three calls together may take 180 seconds of computing time.
# - **Allowed:** everything of the course, training included. Only packed tensors leave `compress`.
# - **Example:** INT8 with one scale a row and BF16 for the rest takes 117,768 bytes, with a KL of about 0.0007.


# %% exercise="compress"
MENU = ((2, 32), (3, None), (3, 32), (4, None), (4, 32), (5, None), (6, None), (8, None))


def compress(weights, text, budget):
    """({name: packed tensor} of at most `budget` bytes, the KL that is signed for)."""
    ### BEGIN SOLUTION
    artifact = {name: pack(w, "bf16") for name, w in weights.items() if w.ndim == 1}
    options, cost, tokens = {}, {}, pieces(text, 32)
    for name, w in weights.items():
        for at, (bits, group) in enumerate(MENU if w.ndim == 2 else ()):
            packed = in_integers(w, bits=bits, group=group, clip=True)
            options[name, at] = packed
            cost[name, at] = divergence(weights, {**weights, name: unpack(packed)}, tokens)
    now = {name: 0 for name, _ in options}
    left = budget - total_bytes(artifact) - sum(nbytes(options[one]) for one in now.items())
    while True:
        steps = []
        for name, at in options:
            more = nbytes(options[name, at]) - nbytes(options[name, now[name]])
            gain = cost[name, now[name]] - cost[name, at]
            if 0 < more <= left and gain > 0:
                steps.append((gain / more, more, name, at))
        if not steps:
            break
        _, more, name, now[name] = max(steps)
        left -= more
    artifact |= {name: options[name, at] for name, at in now.items()}
    own = sampled(weights, 128, generator=torch.Generator().manual_seed(0))
    return artifact, 1.1 * divergence(weights, unpacked(artifact), own) + 0.0001
    ### END SOLUTION


# %% check="compress" points=20 seconds=180 tags=["nbval-ignore-output"]
checks.check_compress(compress)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Begin with one format for all matrices that fits, and let the check count. Which tensors take bytes beside the codes?
# </details>
# <details><summary>Hint 2</summary>
#
# Lab 12 gave each matrix its number of bits. Here a budget in bytes is given, and the sum of the KLs is to be small: which step lowers it most for each byte?
# </details>
# <details><summary>Hint 3</summary>
#
# After the allocation, train: the straight-through estimator of lab 09, with the *original's* probabilities as the target.
# </details>

# %% [markdown]
# ### Say it
#
# Ask for the answer aloud, as to a colleague.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("17_ship_it")

# %% [markdown]
# ### Sources
#
# Clip search and groups: lab 09. Sensitivity and allocation: lab 12. Straight-through estimator: Bengio et al. 2013 (arXiv:1308.3432). Distillation: Hinton et al. 2015 (arXiv:1503.02531).
#
# **Next.** [Back to the start](00_start_here.ipynb).
