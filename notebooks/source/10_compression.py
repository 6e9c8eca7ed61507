# %% [markdown]
# # 10. Compression: a weigh-in
#
# You bring a trained network from a file of 340 kB to a fifteenth of it, state what that costs in accuracy, and compare the result with a network that was small from the start.
#
# *any laptop · needs: labs 02 and 04; lab 09 helps*
#
# After this lab you can:
#
# - prune a network so that its zeros stay, pack it into few bytes, and say what each way to store a sparse matrix costs;
# - say when pruning saves bytes, when it saves time, and when a smaller network is the better answer.

# %%
import copy, torch
from torch import nn
from labkit.labs.compression import checks, predictions as guesses, solutions as ours
from labkit.labs.compression.pipeline import accuracy, fit, linears
from labkit.labs.engine import claim, predict, whose, yours

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("10_compression")

# %% [markdown]
# ### The file of a pruned network
#
# You are to ship a digit reader, and the download is charged by the byte. Only one scale counts here: the length of the file in the **safetensors** format,
# a short header and then the bytes of all tensors. The cell trains the reader, which has 85,002 parameters, and weighs it.

# %%
from labkit.training.data import digits
from labkit.training.models import mlp
from safetensors.torch import save

data = digits()
torch.manual_seed(0)
reader = mlp(64, 256, 256, 10)
adam = torch.optim.AdamW(reader.parameters(), lr=1e-3)
fit(reader, data, adam, epochs=15)


def file_bytes(model):
    return len(save(model.state_dict()))


print(f"FP32: {file_bytes(reader):,} bytes")

# %% tags=["nbval-ignore-output"]
print(f"accuracy: {accuracy(reader, data):.1%} of {len(data.test_labels)} test images")

# %% [markdown]
# The file holds 4 bytes for each parameter, and a header of 432 bytes. **Magnitude pruning** sets the weights with the smallest magnitudes to 0. The next cell prunes 90 % of all weights with torch's own function.


# %% predict="pruned-file"
@predict(guesses.pruned_file)
def pruned_file():
    from torch.nn.utils import prune

    pruned = copy.deepcopy(reader)
    weights = [(layer, "weight") for layer in linears(pruned)]
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=0.9)
    return f"{round(file_bytes(pruned), -4) // 1000} kB"


# %% [markdown]
# To prune again later, torch keeps each weight as it was (`weight_orig`) beside an FP32 mask (`weight_mask`), and multiplies them in every forward pass. `prune.remove` drops both, and the
# file has 340,440 bytes again: in a dense tensor a 0 takes 4 bytes, like any other number. Training with autocast makes no smaller file either, because autocast casts copies and the parameters stay FP32.

# %% [markdown]
# ### Zeros by pruning and zeros by a cast
#
# The **sparsity** of a tensor is its share of exact zeros. A weight of 1e-9 is not a zero: every dense format stores it at full price. A cast can make zeros, too, where values underflow.
# Those are lost values, so count them apart. The cell does this for an FP16 cast of what training left behind.

# %%
from labkit.labs.compression.sparsity import sparsity

first = linears(reader)[1].weight
moments = adam.state[first]
print("                 exact zeros   made by FP16")
for name, x in (
    ("weight", first),
    ("exp_avg", moments["exp_avg"]),
    ("exp_avg_sq", moments["exp_avg_sq"]),
):
    found = sparsity(x.detach(), torch.float16)
    print(f"{name:14}{found.exact:14.1%}{found.made_by_cast:15.1%}")

# %% [markdown]
# The cast makes hardly a zero among the weights, and many among Adam's moments, whose values are much smaller.
#
# ### Zeros that do not stay
#
# After pruning, one trains on, because the remaining weights can make up for what was removed. The next cell sets the smallest 90 % of the weights to 0, trains one more epoch with AdamW, and does nothing else.


# %% predict="zeros-after"
@predict(guesses.zeros_after)
def zeros_after():
    from labkit.labs.compression.pruning import hold_masks

    pruned = copy.deepcopy(reader)
    optimizer = torch.optim.AdamW(pruned.parameters(), lr=1e-3)
    hold_masks(pruned, optimizer, 0.9).remove()  # prunes, and then holds nothing
    fit(pruned, data, optimizer, epochs=1)
    weights = torch.cat([layer.weight.flatten() for layer in linears(pruned)])
    left = (weights == 0).float().mean().item()
    return min(("90 %", "50 %", "15 %", "0 %"), key=lambda c: abs(float(c[:-1]) / 100 - left))


# %% [markdown]
# A weight of 0 has a gradient like any other, so the first step fills it again. The zeros that stay have never had a gradient: they read a pixel that is blank in all images, or belong to
# a unit whose ReLU is never active.

# %% [markdown]
# ### Exercise: zeros that stay
#
# *12 minutes, about 10 lines.* Write `hold_masks`, which prunes a model and keeps its zeros through training. labkit's own `hold_masks` does not
# count.
#
# - **Input:** `model`; `optimizer`, which holds all its parameters and may have steps behind it; `share`, from 0 to 1.
# - **At once:** of the n weights of all `nn.Linear` layers together (`linears(model)`), the `round(share * n)` of smallest magnitude become 0. All else stays, and each
#   parameter stays the same tensor.
# - **After each step** the same weights are 0 again, and the others train on. `optimizer.register_step_post_hook(f)` calls `f(optimizer, args, kwargs)` after
#   each step, and returns a handle.
# - **Output:** this handle. After `handle.remove()` the zeros train again.
# - **Example:** of the weights [[0.5, -0.1]] and [[-2.0], [0.3]], share 0.5 makes -0.1 and 0.3 zero.
# - **Edge cases:** of equal magnitudes any may go, but the count is exact. The optimizer may have momentum and weight decay, and a `GradScaler` may skip a step.


# %% exercise="hold-masks"
def hold_masks(model, optimizer, share):
    """Set the smallest share of all linear weights to 0 and keep them 0; the hook's handle."""
    ### BEGIN SOLUTION
    weights = [layer.weight for layer in linears(model)]
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    dropped = torch.zeros_like(sizes, dtype=torch.bool)
    dropped[sizes.topk(round(share * len(sizes)), largest=False).indices] = True
    parts = dropped.split([w.numel() for w in weights])

    @torch.no_grad()
    def zero(*_):
        for weight, part in zip(weights, parts, strict=True):
            weight[part.view_as(weight)] = 0

    zero()
    return optimizer.register_step_post_hook(zero)
    ### END SOLUTION


# %% check="hold-masks" points=3
checks.check_hold_masks(hold_masks)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# When during a step does a weight of 0 change, and when must it be set back? Would it change if its gradient were 0?
# </details>
# <details><summary>Hint 2</summary>
#
# Join the magnitudes of all layers: [0.5, 0.1, 2.0, 0.3]. `topk(2, largest=False).indices` gives the places 1 and 3. In a vector of four
# falses, set these to True. How does `split([2, 2])` lead back to the two layers, and which shape must each part have?
# </details>
# <details><summary>Hint 3</summary>
#
# `sizes = torch.cat([w.detach().abs().flatten() for w in weights])`; `dropped[sizes.topk(..., largest=False).indices] = True`;
# `parts = dropped.split(...)`. Under `torch.no_grad()`, a function `zero(*_)` sets `weight[part.view_as(weight)] = 0` for each pair. Call it once, and then
# `return optimizer.register_step_post_hook(zero)`.
# </details>

# %% [markdown]
# The cell prunes the reader with these masks and fine-tunes it for three epochs.

# %%
holding = yours(hold_masks, ours.hold_masks)
pruned = copy.deepcopy(reader)
tuner = torch.optim.AdamW(pruned.parameters(), lr=1e-3)
handle = holding(pruned, tuner, 0.9)
fit(pruned, data, tuner, epochs=3)
zeros = sum((layer.weight == 0).sum().item() for layer in linears(pruned))
claim(f"{whose(holding)} masks: at least 76,032 of 84,480 weights are 0", zeros >= 76_032)

# %% [markdown]
# ### What the place of a value costs
#
# A file that leaves the zeros out must say where the other values stood. **CSR** (compressed sparse rows) stores the column of each value, in torch as int64.
# The **density** is the share of values that are kept.


# %% predict="csr-density"
@predict(guesses.csr_density)
def csr_density():
    csr = torch.ones(1000, 1000).to_sparse_csr()
    a_value = (csr.values().nbytes + csr.col_indices().nbytes) / csr.values().numel()
    return f"1/{a_value / 4:.0f}"


# %% [markdown]
# CSR takes 4 bytes for an FP32 value and 8 for its column: 12 bytes for 4, so it is smaller than the dense tensor below a density of 1/3. With INT8 values it is 9 bytes for 1.

# %% [markdown]
# A **bitmask** has one bit for each weight, kept or not, and the kept values in a row.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.figures import layout_picture

layout_picture()

# %% [markdown]
# ### Exercise: pack a pruned matrix
#
# *10 minutes, about 8 lines.* Write `pack`, which stores a pruned weight as a bitmask and INT8 codes. labkit's own `pack` does not count.
#
# - **Input:** `weight`, float32 (rows, columns), which stays as it is.
# - **Codes:** a row's scale is its largest magnitude / 127, and a code is the integer nearest to weight / scale.
# - **Output:** a dict of dense tensors. `"shape"`, int64: rows and columns. `"mask"`, uint8: `np.packbits` of the flattened matrix, with a 1 for each kept weight.
#   `"values"`, int8: their codes, row by row. `"scale"`: a float for each row.
# - **Kept** is no weight that is 0. `unpack(packed)`, given, must return each 0 as 0, and every other weight at most 0.51 scales off.
# - **Example:** [[0, 2.54, 0, -1], [0, 0, 0, 0]] has the scale 0.02 in row 0, the values 127 and -50, and the mask 0b01010000 = 80.
# - **Edge cases:** rows need not fill whole bytes. A row of zeros gets any finite scale above 0, so that 0 / 0 never occurs. The largest magnitude of a row may be 1e-6: choose a dtype for the
#   scale that holds it.


# %%
import numpy as np
from labkit.labs.compression.storage import unpack


# %% exercise="pack"
def pack(weight):
    """The tensors of a file: shape, bitmask, INT8 codes of the kept weights, a scale a row."""
    ### BEGIN SOLUTION
    scale = weight.abs().amax(dim=1) / 127
    scale[scale == 0] = 1.0
    codes = (weight / scale[:, None]).round().to(torch.int8)
    kept = codes != 0
    mask = torch.from_numpy(np.packbits(kept.numpy()))
    return {
        "shape": torch.tensor(weight.shape),
        "mask": mask,
        "values": codes[kept],
        "scale": scale,
    }
    ### END SOLUTION


# %% check="pack" points=3
checks.check_pack(pack)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many bytes does a bool take in a torch tensor? Which number is 1e-6 / 127 in FP16?
# </details>
# <details><summary>Hint 2</summary>
#
# Take one row: [0, 2.54, 0, -1]. Which integers are weight / scale, rounded? Which of them does the file need? `np.packbits(np.array([0, 1, 0, 1]))` is
# [80], and it flattens a matrix by itself.
# </details>
# <details><summary>Hint 3</summary>
#
# `scale = weight.abs().amax(dim=1) / 127`, then `scale[scale == 0] = 1.0`;
# `codes = (weight / scale[:, None]).round().to(torch.int8)`; `kept = ...`;
# `mask = torch.from_numpy(np.packbits(kept.numpy()))`; `"values": codes[...]`.
# </details>

# %% [markdown]
# ### The weigh-in
#
# The figure.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.figures import weigh_in_picture

weigh_in_picture()

# %% [markdown]
# ### Exercise: an entry for the weigh-in
#
# *12 minutes, optional, a dict.* Find an `entry` whose file has at most 6,000 bytes and whose mean accuracy over nine seeds is at least 96.5 %.
#
# - `hidden`: units of each of the two hidden layers, 1 to 512. `rank`: None, or the rank of the weight between them, at most `hidden`.
# - `prune`: the share of weights that become 0, from 0 to below 1. `values`: `"fp32"`, `"fp16"` or `"int8"`.
# - `weigh(entry, seed)` trains the network, cuts its rank, prunes it, fine-tunes after each of these, and stores it: densely or as a bitmask, whichever is smaller. Biases are in FP16
#   beside INT8 codes.
# - The check does this with the seeds 0 to 8, within a minute. No file may have more than 6,000 bytes.


# %% exercise="weigh-in"
entry = ...  # dict(hidden=, rank=, prune=, values=)
### BEGIN SOLUTION
entry = dict(hidden=64, rank=None, prune=0.7, values="int8")
### END SOLUTION


# %% check="weigh-in" points=0 seconds=60
checks.check_weigh_in(entry)

# %% [markdown]
# ### Two thin matrices
#
# *Optional.* Low rank.

# %% [markdown]
# ### Exercise: factorise a layer
#
# *12 minutes, optional, about 9 lines.* Write `factorise`, which replaces a linear layer by two of a smaller rank. labkit's own `factorise` does not count.
#
# - **Input:** `linear`, an `nn.Linear`, which stays as it is; `rank`, from 1 to the smaller side of its weight W.
# - **Output:** an `nn.Sequential` of two `nn.Linear`: inputs to `rank`, without a bias, and `rank` to outputs, with the bias of `linear`, if it has one. Both have the dtype of `linear`.
# - **Weights:** the second weight @ the first is the matrix of this rank that is nearest to W. `torch.linalg.svd(..., full_matrices=False)` returns U, S and Vh with W = U @ diag(S) @ Vh; keep the `rank`
#   largest singular values.
# - **Example:** [[3, 0], [0, 1]] with rank 1 becomes two weights whose matmul is [[3, 0], [0, 0]].
# - **Edge cases:** W may be wide, tall or BF16, for which torch has no SVD on a CPU. With singular values up to 400,000, both weights of a float32 layer must be finite in FP16, so share the values
#   between them.


# %% exercise="factorise"
def factorise(linear, rank):
    """Two linear layers whose weights multiply to the best approximation of this rank."""
    ### BEGIN SOLUTION
    u, s, vh = torch.linalg.svd(linear.weight.detach().float(), full_matrices=False)
    root = s[:rank].sqrt()
    biased = linear.bias is not None
    down = nn.Linear(linear.in_features, rank, bias=False)
    up = nn.Linear(rank, linear.out_features, bias=biased)
    with torch.no_grad():
        down.weight.copy_(root[:, None] * vh[:rank])
        up.weight.copy_(u[:, :rank] * root)
        if biased:
            up.bias.copy_(linear.bias)
    return nn.Sequential(down, up).to(linear.weight.dtype)
    ### END SOLUTION


# %% check="factorise" points=0
checks.check_factorise(factorise)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which dtype has an SVD? What is the largest number of FP16, and what does a singular value of 400,000 become if each of two weights gets its square root?
# </details>
# <details><summary>Hint 2</summary>
#
# `torch.linalg.svd` of [[3, 0], [0, 1]] gives S = [3, 1]. Which row of Vh belongs to 3, and which column of U?
# </details>
# <details><summary>Hint 3</summary>
#
# `u, s, vh = torch.linalg.svd(linear.weight.detach().float(), full_matrices=False)`; `root = s[:rank].sqrt()`;
# `down.weight.copy_(root[:, None] * vh[...])` and `up.weight.copy_(u[...] * root)` under `torch.no_grad()`; then the bias and the dtype.
# </details>

# %% [markdown]
# ### The order of the stages
#
# *Optional.* A pipeline.

# %% [markdown]
# ### Where zeros save time
#
# *Optional.* Latency.

# %% [markdown]
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("10_compression")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.**
#
# **Next.** [Lab 11: monitoring and debugging](11_monitoring_and_debugging.ipynb).
