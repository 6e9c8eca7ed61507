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
# *12 minutes, about 10 lines.* Write `hold_masks`, which prunes a model and keeps its zeros through all later steps of an optimizer.


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
# hint
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
# *13 minutes, about 7 lines.* Write `pack`, which stores a pruned weight as a bitmask and INT8 codes.


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
# hint
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
# *10 minutes, optional, about 7 lines.* Write `factorise`, which replaces a linear layer by two of a smaller rank.


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
