# %% [markdown]
# # 10. Compression: a weigh-in
#
# You bring the file of a trained network from 340 kB to 23 kB, state the price in accuracy, and compare it with a network that was small from the start.
#
# *any laptop · needs: labs 02, 04 and 06; lab 09 helps*
#
# After this lab you can:
#
# - prune a network so that its zeros stay, store them in few bytes, and compare the result with a smaller network;
# - say what pruning, packing and low rank save, in bytes and in time, and what they do not.

# %%
import copy, torch
from torch import nn
from labkit.labs.compression import checks, predictions as guesses, solutions as ours
from labkit.labs.compression.pipeline import accuracy, linears
from labkit.labs.engine import claim, predict, whose, yours
from labkit.training import train

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("10_compression")

# %% [markdown]
# ### The file of a pruned network
#
# A digit reader is to be shipped to many devices, and its file is too large. The file has the **safetensors** format: a short header, then the bytes of all tensors.
# The cell trains the reader, two hidden layers of 256 units with 85,002 parameters, and prints the length of its file.

# %%
from labkit.labs.compression.storage import file_bytes
from labkit.training.data import batches, digits
from labkit.training.models import mlp

data = digits()
torch.manual_seed(0)
reader = mlp(64, 256, 256, 10)
adam = torch.optim.AdamW(reader.parameters(), lr=1e-3)
images = batches(data.train_images, data.train_labels, 64)
train(reader, images, optimizer=adam, epochs=15, progress=False)
print(f"{file_bytes(reader.state_dict()):,} bytes")

# %% [markdown]
# The file holds 4 bytes for each parameter and a header of 432 bytes. **Magnitude pruning** sets the weights of the smallest magnitude to 0. The next cell prunes 90 % of all weights with torch's own function,
# and weighs the file of the result.


# %% predict="pruned-file"
@predict(guesses.pruned_file)
def pruned_file():
    from torch.nn.utils import prune

    pruned = copy.deepcopy(reader)
    weights = [(layer, "weight") for layer in linears(pruned)]
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=0.9)
    return f"{round(file_bytes(pruned.state_dict()), -4) // 1000} kB"


# %% [markdown]
# torch keeps each weight as it was (`weight_orig`) and a mask of the same size (`weight_mask`), both in FP32, and multiplies them in every forward pass. `prune.remove` leaves their product only, and
# the file has 340 kB again, because a dense tensor stores a 0 in 4 bytes like any other number. Training under autocast makes no smaller file either: autocast casts copies, and the parameters stay in FP32.

# %% [markdown]
# ### Zeros that do not stay
#
# Pruning costs accuracy, and further training (**fine-tuning**) wins most of it back. The next cell sets the smallest 90 % of the weights to 0 and trains for one more epoch with AdamW.


# %% predict="zeros-after"
@predict(guesses.zeros_after)
def zeros_after():
    from labkit.labs.compression.pruning import hold_masks

    pruned = copy.deepcopy(reader)
    optimizer = torch.optim.AdamW(pruned.parameters(), lr=1e-3)
    hold_masks(pruned, optimizer, 0.9).remove()  # prunes now, and holds no zeros later
    images = batches(data.train_images, data.train_labels, 64)
    train(pruned, images, optimizer=optimizer, progress=False)
    weights = torch.cat([layer.weight.flatten() for layer in linears(pruned)])
    left = (weights == 0).float().mean().item()
    return min(("90 %", "50 %", "15 %", "0 %"), key=lambda c: abs(float(c[:-1]) / 100 - left))


# %% [markdown]
# A weight of 0 has a gradient like any other, and the optimizer moves it. The zeros that are left had no gradient in the whole epoch: they read a pixel that is blank in every training image, or they belong to
# (or read) a unit whose ReLU outputs 0 for every image.

# %% [markdown]
# So the zeros must be written again after every step, into the FP32 weights that the optimizer updates. If the GradScaler skips a step (lab 04), the optimizer does not run, and the zeros stay.

# %% [markdown]
# ### Exercise: zeros that stay
#
# *12 minutes, about 10 lines.* Write `hold_masks`, which prunes a model and keeps its zeros through training. labkit's own `hold_masks` does not
# count.
#
# - **Input:** `model`; `optimizer`, which holds all parameters of `model` and may have steps behind it; `share`, from 0 to 1.
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
# The cell prunes the reader and fine-tunes it for three epochs with these masks.

# %%
holding = yours(hold_masks, ours.hold_masks)
pruned = copy.deepcopy(reader)
tuner = torch.optim.AdamW(pruned.parameters(), lr=1e-3)
holding(pruned, tuner, 0.9)
images = batches(data.train_images, data.train_labels, 64)
train(pruned, images, optimizer=tuner, epochs=3, progress=False)
zeros = sum((layer.weight == 0).sum().item() for layer in linears(pruned))
claim(f"{whose(holding)} masks: 76,032 of 84,480 weights are 0", zeros == 76_032)

# %% [markdown]
# The figure shows how much can be pruned, on nine seeds. One line compares the magnitudes of all layers, as you did, and the other prunes the same share of each layer.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.figures import pruning_picture

pruning_picture()

# %% [markdown]
# Before pruning the reader has 97.2 %. After three epochs of fine-tuning, 80 % zeros give 97.5 % and 90 % zeros 96.0 %. At 90 and 95 %, comparing all layers keeps more accuracy. At 98 % both ways fail, and comparing all layers is worse: this leaves the middle weight about 0.4 % of its values. Then keep at least some share of each layer.
#
# ### What the place of a value costs
#
# A file that leaves out the zeros must say where the other values belong. The **density** is the share of values that are kept. The format **CSR** (compressed sparse rows) stores each kept value with the number of its column, an int64 after `to_sparse_csr`.


# %% predict="csr-density"
@predict(guesses.csr_density)
def csr_density():
    csr = torch.ones(1000, 1000).to_sparse_csr()
    each = (csr.values().nbytes + csr.col_indices().nbytes) / csr.values().numel()
    return f"1/{each / torch.ones(1).nbytes:.0f}"


# %% [markdown]
# CSR takes 4 bytes for a value and 8 for its column, 12 where the dense tensor takes 4. It also stores where each row begins, which matters little for long rows. With INT8 values it takes 9 bytes where the dense tensor takes 1, so it is smaller only below a density of 1/9.

# %% [markdown]
# A **bitmask** stores one bit for each weight, kept or not, and then the kept values without their places. The figure compares the layouts for INT8 values.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.figures import layout_picture

layout_picture()

# %% [markdown]
# At a density of 10 % the bitmask takes 0.1 + 0.125 = 0.225 bytes a weight, and CSR with 2-byte column numbers takes 0.3 (row starts and scales not counted). The bitmask never takes less than 0.125, so below a density of 1/16 CSR with 2-byte column numbers takes less.
#
# The kept values can be INT8 codes (lab 09). The mask restores the zeros, whatever the grid is. In a dense INT8 file they are codes too, so the grid must hold 0 exactly, as our symmetric one does: on an affine grid without an integer zero point all zeros become small numbers.

# %% [markdown]
# ### Exercise: pack a pruned matrix
#
# *10 minutes, about 8 lines.* Write `pack`, which stores a pruned weight as a bitmask and INT8 codes. labkit's own `pack_weight` does not count.
#
# - **Input:** `weight`, float32 (rows, columns), which stays as it is.
# - **Codes:** a row's scale is its largest magnitude / 127, and a code is the integer nearest to weight / scale.
# - **Output:** a dict of dense tensors. `"shape"`, int64: rows and columns. `"mask"`, uint8: `np.packbits` of the flattened matrix, with a 1 for each kept weight.
#   `"values"`, int8: their codes, row by row. `"scale"`, of shape (rows,): a float of at most 4 bytes for each row.
# - **Kept:** a weight that is 0 must not be stored, and one whose code is 0 need not be. The given `unpack_weight(packed)` must return each 0 as 0, and every other weight at most 0.51 scales off.
# - **Example:** [[0, 2.54, 0, -1], [0, 0, 0, 0]] has the scale 0.02 in row 0, the values 127 and -50, and the mask 0b01010000 = 80.
# - **Edge cases:** rows need not fill whole bytes. A row of zeros gets any finite scale above 0. The largest magnitude of a row may be 1e-6: choose a dtype for the
#   scale that holds it.


# %%
import numpy as np
from labkit.labs.compression.storage import unpack_weight


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
# The cell packs the three weights of the pruned reader and prints their bytes and both accuracies.

# %% tags=["nbval-ignore-output"]
packing = yours(pack, ours.pack)
before, size = accuracy(pruned, data), 0
for layer in linears(pruned):
    packed = packing(layer.weight.detach())
    size += file_bytes(packed)
    layer.weight.data = unpack_weight(packed)
print(f"{size:,} bytes, accuracy {before:.1%}, then {accuracy(pruned, data):.1%} after packing")
claim(f"{whose(packing)} pack: the weights take at most 22,500 bytes", size <= 22_500)

# %% [markdown]
# With FP16 biases and a header the file takes 23 kB; packing costs almost no accuracy.
#
# ### Compare with a network that was small from the start
#
# Before you report a gain, train a **control**: a network that was small from the start, for as long as the large one was trained and fine-tuned. The figure shows readers with hidden layers of 256, 128, 64 and 32 units, as FP32, FP16 and INT8 files, pruned, and with the middle weight cut to rank 8 (replaced by two thin matrices).

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.figures import weigh_in_picture

weigh_in_picture()

# %% [markdown]
# INT8 alone makes the large file 3.9 times smaller and changes no accuracy. With 90 % zeros it takes 23 kB and has 96.9 % in place of 97.4 % (96.0 % above, after less training and fine-tuning). With a bitmask it cannot get below 14 kB: the mask alone takes 10,560 bytes.
#
# The control is the medium reader (128 units): 28 kB as a dense INT8 file, and 96.7 %. Pruned by 80 % it takes 11 kB. Compare the two pruned readers in pairs of seeds (lab 06).

# %%
from labkit.labs.compression.recorded import compare

print(compare("medium, 80 % pruned, INT8", "large, 90 % pruned, INT8", margin=0.01).describe())

# %% [markdown]
# The pruned medium reader is equivalent within one point, in half of the bytes. Your network may differ: train the control.

# %% [markdown]
# ### Exercise: a reader in 6,000 bytes
#
# *12 minutes, optional, a dict.* Find an `entry` whose file has at most 6,000 bytes and whose mean accuracy over nine seeds is at least 95 %. Pruning does pay for small files: at about 10 kB the pruned medium reader has 96.8 %, the dense small one (64 units) 95.9 %.
#
# - `hidden`: units of each of the two hidden layers, 1 to 512. `rank`: None, or the rank to which the weight between them is cut, at most `hidden` (two thin matrices replace it).
# - `prune`: the share of weights that become 0, from 0 to below 1. `values`: `"fp32"`, `"fp16"` or `"int8"`.
# - `weigh(entry, seed)` trains the network, cuts its rank, prunes it, fine-tunes after each of these, and stores it: densely or as a bitmask, whichever is smaller. Biases are in FP16
#   beside INT8 codes.
# - The check does this with the seeds 0 to 8, within a minute. No file may have more than 6,000 bytes.
# - **Example:** the cell below weighs a small dense network: its file is too large. The last number is the time of a forward pass over the 359 test images on this machine.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.pipeline import weigh

print(weigh(dict(hidden=64, rank=None, prune=0.0, values="int8"), seed=0).describe())


# %% exercise="weigh-in"
entry = ...  # dict(hidden=, rank=, prune=, values=)
### BEGIN SOLUTION
entry = dict(hidden=64, rank=None, prune=0.7, values="int8")
### END SOLUTION


# %% check="weigh-in" points=0 seconds=60
checks.check_weigh_in(entry)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Weigh a network of 256 units of which you prune 98 %. Which bytes does pruning not remove, and on what do they depend?
# </details>
# <details><summary>Hint 2</summary>
#
# Begin with 64 units in INT8. How many bytes too many are its values, and which share of them must go if each weight also gets a bit?
# </details>
# <details><summary>Hint 3</summary>
#
# `dict(hidden=64, rank=None, prune=..., values="int8")`, with a share between 0.5 and 0.9.
# </details>

# %% [markdown]
# ### Zeros by pruning and zeros by a cast
#
# *Optional.* A report that counts zeros after a cast to FP16 may call an underflow sparsity. The **sparsity** of a tensor is its share of exact zeros. A weight of 1e-9 counts as any other, because every layout stores it at full price. A cast to FP16 turns it into a zero, but this is a lost value and not a
# pruned one. So count the two kinds apart, as this cell does for the middle weight after training and for Adam's moments of this weight.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.sparsity import sparsity

middle = linears(reader)[1].weight
moments = adam.state[middle]
rows = {"weight": middle, "exp_avg": moments["exp_avg"], "exp_avg_sq": moments["exp_avg_sq"]}
for name, x in rows.items():
    zeros = sparsity(x, torch.float16)
    print(f"{name:10} {zeros.exact:.1%} exact zeros, {zeros.made_by_cast:.1%} made by the cast")

# %% [markdown]
# In FP16 no weight is lost, but about 16 % of Adam's moments are, because they are far smaller than the weights (12 to 19 % over all layers, on nine seeds). Their exact zeros belong to weights that never had a gradient.

# %% [markdown]
# ### Two thin matrices
#
# *Optional.* A matrix of m rows and n columns has **rank** r or less if it is a product of two factors, m × r and r × n. The factors hold r × (m + n) numbers in place of m × n, so they save bytes only if r < m × n / (m + n): for 256 × 256, up to rank 127.
#
# The singular value decomposition (SVD) writes a weight as U × diag(s) × Vᵀ, with singular values s in falling order. If you keep the first r of them, no other matrix of rank r is closer in the Frobenius norm (the root of the sum of the squares), and
# the error is the root of the sum of the squares of the other singular values (Eckart and Young). torch computes no SVD in 16 bits on a CPU: compute it in FP32 and cast the factors. The cell prints what the middle weight of the reader keeps at each rank.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.pipeline import low_rank

squares = torch.linalg.svdvals(linears(reader)[1].weight.detach()).square()
for rank in (2, 4, 8, 32):
    kept = squares[:rank].sum() / squares.sum()
    read = accuracy(low_rank(reader, rank), data)
    print(f"rank {rank:3}: {kept:.0%} of the squared norm, accuracy {read:.1%}")

# %% [markdown]
# Rank 8 keeps about 55 % of the squared norm (11 % of that of a random matrix; the mean of nine seeds is 56 %), and without fine-tuning the reader is almost as accurate as with the full weight: the digits need little else of this layer.

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
# - **Edge cases:** W may be wide, tall or BF16, for which torch has no SVD on a CPU. With singular values up to 400,000, both weights of a float32 layer must be finite in FP16, so split each singular
#   value between the two weights.


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
# *Optional.* A published recipe compresses in four stages: prune, factorise, quantize to INT8, cast to FP16. `pipeline` runs stages in any order and weighs the network after each of them. The cell runs the recipe with a share of 70 % and rank 32, and then the same share and rank with the rank first and INT8 last. Each list fine-tunes once, for three epochs.

# %% tags=["nbval-ignore-output"]
from labkit.labs.compression.pipeline import pipeline

published = [("prune", 0.7), ("tune", 3), ("rank", 32), ("store", "int8"), ("store", "fp16")]
rank_first = [("rank", 32), ("prune", 0.7), ("tune", 3), ("store", "int8")]
for stages in (published, rank_first):
    for weighed in pipeline(stages):
        print(weighed.describe())
    print()

# %% [markdown]
# The rank undoes the pruning: factors of a sparse weight are dense, so the file has as many values as before, about 25,500, though the middle weight is now two thin matrices. The cast to FP16 undoes INT8: it turns each code back into a value and stores that value in two bytes, rounding error of INT8 included. The recipe ends at about 56.5 kB, where the same pruning and INT8 alone take 40 kB. In the second run pruning takes 70 % of the factors as well, 10,598 values are left, and INT8 comes last: 19.6 kB. On nine seeds the two ends have 97.6 and 97.3 %, equivalent within one point.
#
# In time, only the rank gains: on our CPU with one thread the forward pass takes about half as long after it, because the factors hold a quarter of the middle weight's numbers. Pruning and INT8 leave the time as it was: `pipeline` times dense FP32 matmuls, which multiply by zeros, too.
#
# ### Where zeros save time
#
# *Optional.* A dense matmul multiplies by zeros as by any other number. The cell compares a 1024 × 1024 weight with four others: itself once more (an A/A test, lab 06), the same with 90 % zeros, these zeros left out in CSR, and a tenth of its rows.

# %% tags=["nbval-ignore-output"]
import time
from functools import partial
from itertools import islice
from statistics import median
from labkit.measuring.timing import take_turns

weight, x = torch.randn(1024, 1024), torch.randn(1024, 64)
zeroed = weight * (torch.rand(1024, 1024) > 0.9)
arms = {"dense": weight, "dense again": weight, "90 % zeros": zeroed}
arms |= {"90 % zeros, CSR": zeroed.to_sparse_csr(), "a tenth of the rows": weight[:102]}


def seconds(matrix):
    start = time.perf_counter()
    matrix @ x
    return time.perf_counter() - start


calls = [partial(seconds, matrix) for matrix in arms.values()]
rounds = list(islice(take_turns(calls), 60))[10:]  # the first ones warm up
for place, name in enumerate(arms):
    print(f"{name:20} {median(each[place] / each[0] for each in rounds):5.2f} x dense")

# %% [markdown]
# Zeros in a dense tensor save no time. CSR skips them, but for each kept weight it must fetch another row of the input, so a tenth of the multiplications takes more than a tenth of the time. A weight with fewer rows (**structured pruning**) is dense, so every device multiplies by it with its usual kernel, and faster unless the matmul is overhead-bound. But train the control here, too. If you keep, of the 256 units of each hidden layer, the 64 whose weights have the largest norm, and fine-tune for 3 epochs after 15, the reader has 94.9 %. A reader of 64 units from scratch has 95.4 % after 18 epochs (and 96.0 % in the comparison above, after 21). In nine pairs of seeds the pruned one is 0.5 points worse (95 % CI -1.3 to +0.2): no gain from having been wide. **2:4** sparsity stands between scattered zeros and fewer rows:
# of four neighbours in a row at most two are not 0, and NVIDIA's Tensor Cores since Ampere run such matmuls at up to twice the dense rate. In torch this needs CUDA (`torch.sparse.to_sparse_semi_structured`).
#
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
# **Sources.** Han et al., *Deep compression*, arXiv:1510.00149. Zhu and Gupta, arXiv:1710.01878. Liu et al., *Rethinking the value of network pruning*, arXiv:1810.05270. Mishra et al. (2:4), arXiv:2104.08378. Eckart and Young, 1936.
#
# **Next.** [Lab 11: monitoring and debugging](11_monitoring_and_debugging.ipynb).
