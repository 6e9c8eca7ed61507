# %% [markdown]
# # 17. Ship it under a budget
#
# You return a trained network in 120,000, 68,000 and 47,000 bytes, and sign a limit for how far each copy is from the original.
#
# *any laptop · needs: labs 09 and 12*
#
# After this lab you can:
#
# - ship a network under a budget in bytes, and sign a limit for its distance from the original;
# - say what each of your decisions saved, and what it cost.

# %%
import torch
from labkit.labs.engine import whose, yours
from labkit.labs.ship_it import checks, solutions as ours
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
# A trained network takes 451,856 bytes, and the device that it is meant for has room for a fraction of that. Earlier labs gave you tools: formats and their scales, a search for better scales, GPTQ, bits for each matrix, and training that sees its own
# rounding. In this lab you choose among them. There is one exercise and no single right answer.
#
# `compress` gets the FP32 weights of a small GPT and a budget: 120,000, 68,000 or 47,000 bytes, which is 8.5, 4.8 or 3.3 bits a parameter. It returns the network in at most so many bytes. These weights are not those of the course's
# checkpoint. Every matrix has noise added to it, so a network that was prepared from the checkpoint is too far away: its KL is above 0.1. The order of channels, heads and hidden units differs too, so settings that you tuned for single rows do not fit. Under a grader each student gets another network.
#
# ### What is measured: KL from the original
#
# The measure is KL(original || yours), in bits a character (lab 12). It is 0 only if your network gives the same probabilities as the original. The loss would be a worse measure here: a little more training lowers this network's loss and could hide what the
# rounding costs, but the result would be another network than the one that you were asked to ship.
#
# The KL is measured on text that you cannot see. After you have returned your networks, the original network writes it, character by character from its own probabilities. You can write such text too, with `sampled`.
#
# ### What counts as a byte
#
# Each tensor is returned **packed**, as codes of a format and scales. `pack(codes, fmt, scales)` packs a tensor. For an integer format, pass whole numbers. For a floating-point format, pass the values divided by their scales, and `pack` rounds them to nearest.
# `unpack` gives the tensor's float32 values, code × scale.
#
# - **Formats:** `int2` to `int8` (`int4` holds −8 to 7), `e2m1`, `e4m3`, `e5m2`, `fp16`, `bf16`, `fp32`. Codes lie without gaps: 1,000 codes of three bits take 375 bytes.
# - **Scales:** a tensor of float32, float16, bfloat16, float8_e4m3fn or float8_e8m0fnu. Its shape is rows × groups, or 1 × groups if all rows share the scales; the groups divide a row into equal parts, and a tensor of one dimension is one row. `None` means that the codes are the values.
# - **Count:** the codes, the scales and 8 bytes for a header. `nbytes` counts a tensor, and `total_bytes` the network.
#
# `in_integers` packs a matrix in integers with FP16 scales, one a row or a group; `clip=True` searches for the scale of least squared error (lab 09). The cell packs one matrix in four ways. Compare what the scales cost.

# %%
from labkit.labs.ship_it.variants import network

example = network(0)["blocks.0.qkv.weight"]
print("format  group   bytes")
for bits, group in ((8, None), (4, None), (4, 32), (3, 32)):
    packed = in_integers(example, bits=bits, group=group, clip=True)
    print(f"int{bits:<5}{group or 'row'!s:6}{nbytes(packed):7,} of {example.nbytes:,}")

# %% [markdown]
# Groups of 32 cost 12,288 / 32 × 2 = 768 bytes of scales, half a bit a weight. One scale a row costs a quarter of a bit in this matrix, whose rows have 64 weights.
#
# ### The claim, and how a network earns points
#
# With each network you return a **claim**: a KL that you sign for, so that others can plan with it. If the claim is at most the first KL that the cell below prints for a budget (`full` in the code), the budget earns all its points. Above `full`, each doubling of the claim costs
# a third of the points, until nothing is left at eight times `full`. **If the measured KL is above your claim, the budget earns nothing.** So a claim should be low, but true.

# %%
for budget, scale in BUDGETS.items():
    print(
        f"{budget:7,} bytes: {scale.share:.0%} of the points at {scale.full}, none from {scale.none} on"
    )

# %% [markdown]
# For example, with 68,000 bytes a KL of 0.07 and a claim of 0.08 earn a third of 40 %, because 0.08 is two doublings above 0.02. Between doublings the share follows the logarithm of the claim.
#
# How far above your own measurement should the claim be? The judge measures on another text than you. The cell packs all matrices in four bits and measures the KL on four texts of 2,048 characters. The judge's text is as long as all four together.

# %% tags=["nbval-ignore-output"]
weights = network(0)
in_bf16 = {name: pack(w, "bf16") for name, w in weights.items() if w.ndim == 1}
matrices = {name: w for name, w in weights.items() if w.ndim == 2}
in_int4 = {name: in_integers(w, bits=4, group=32, clip=True) for name, w in matrices.items()}
written = sampled(weights, 128, generator=torch.Generator().manual_seed(0))
kls = [divergence(weights, unpacked(in_bf16 | in_int4), text) for text in written.split(32)]
print(f"{total_bytes(in_bf16 | in_int4):,} bytes, KL", *(f"{kl:.3f}" for kl in kls))

# %% [markdown]
# The KL of a text this short varies by several per cent. So measure on a longer text that the original writes, and sign a limit above the KL that you measure. A claim equal to your measurement would be broken on about every second text.
#
# ### A ladder of methods
#
# The table shows what four methods reached on the networks of five seeds, each method added to the one before. A claim equal to the KL is assumed, so the points, in % of all, are the most that each can earn.

# %%
from labkit.labs.ship_it.recorded import ladder_table

ladder_table()

# %% [markdown]
# The first two rows give all matrices one width: 8 bits with one scale a row, and 4 and 2 bits with one scale for 32 weights. Three bits with one scale a row would take 48,328 bytes, which is too much for the smallest budget. *Clip search* is lab 09's search for the scale of least squared error, and *bits by sensitivity* chooses a width for each
# matrix by the KL that rounding this matrix causes, as in lab 12. *Then distilled* adds 100 steps of training: forward passes see the rounded weights, the straight-through estimator (lab 09) passes their gradients on, and the target is the original's probabilities. No method is best everywhere. With 120,000 bytes, rounding to
# 8 bits earns all the points, and the distilled network is worse. The points that are left to earn are those of 68,000 and 47,000 bytes.
#
# ### Exercise: ship it
#
# *40 minutes, as many lines as you like.* Write `compress`, which packs the network for one budget.
#
# - **Input:** `weights`, {name: float32 tensor} of a SmallGPT, a copy of its own for each call; `text`, the 334,129 characters of the training text; `budget` in bytes. Any budget of the three may come first.
# - **Output:** `(artifact, claim)`: {name: packed tensor} with exactly the names and shapes of `weights`, and the KL that you sign for, a number in bits a character.
# - **Limits:** an exception, a byte too much, a tensor that `unpack` refuses, or a claim below the measured KL earns 0 for that budget. All three calls together may take 180 seconds of CPU time, all threads counted. The grader stops an answer that takes longer, and this answer earns nothing. The check in this notebook has no such clock, so measure with `time.process_time()`.
# - **Tools:** `pieces(text, n, seed=0)` gives n pieces of 64 characters as tokens, the same ones for the same seed, and `sampled(weights, n, generator=...)` n pieces that a network writes. `divergence(original, artifact, tokens)` is the KL of two dicts of float32
#   tensors. To train, load the weights into `labkit.training.trained_gpt()`. `torch.func.functional_call(model, weights, (tokens,))` runs a model on other weights, and gradients reach these.
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
# ### Your GPT in the ledger
#
# *Optional.* `compress` takes any network with these names and shapes, so give it the course's checkpoint, and add the result to the ledger that lab 00 began. If your `compress` trains, the cell takes as long as one budget does.

# %% tags=["nbval-ignore-output"]
from labkit.measuring.ledger import Ledger
from labkit.training import trained_gpt
from labkit.training.data import shakespeare_split

gpt, ledger, packing = trained_gpt(), Ledger(), yours(compress, ours.compress)
own, promised = packing(gpt.state_dict(), shakespeare_split()[0], 68_000)
gpt.load_state_dict(unpacked(own))
ledger.add("17_ship_it", "within 68,000 bytes", gpt, total_bytes(own), whose=whose(packing))
ledger

# %% tags=["nbval-ignore-output"]
ledger.plot()

# %% [markdown]
# The ledger's column is the loss on held-out text, not the KL. The rows from FP32 to your last one show what fewer bytes cost this network.
#
# ### Say it
#
# Say aloud, in two minutes, to somebody who has to plan with your network: which decision saved the most bytes, what it cost in KL and how you measured that, and why your claim is as high as it is.

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Frantar et al., *GPTQ*, arXiv:2210.17323. Yao et al., *HAWQ-V3*, arXiv:2011.10680 (bits by sensitivity). Bengio et al., arXiv:1308.3432 (the straight-through estimator). Hinton et al., arXiv:1503.02531 (distillation). Lin et al., *AWQ*, arXiv:2306.00978.
#
# **Next.** [Lab 16: the interview](16_interview.ipynb) asks about all of this.
