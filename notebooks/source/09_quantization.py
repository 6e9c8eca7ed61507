# %% [markdown]
# # 9. Quantization, and fine-tuning in four bits: a parcel with a weight limit
#
# You bring a trained GPT from 452 kB to at most 75 kB at a loss that you can state, and fine-tune it in four bits.
#
# *any laptop · needs: labs 02 and 05, least squares*
#
# After this lab you can:
#
# - run a linear layer in integers, round weights to four bits by GPTQ, and train FP32 adapters on a frozen 4-bit base;
# - say which weights share a scale, what each bit costs, and when a remedy for outliers is worth nothing.
#
# ## Sitting A: scales and integers
#
# *You are here:* **eight bits** → which weights share a scale → where to cut → integers only → outliers → *stop*

# %%
import copy, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.quantization import figures, predictions as guesses, solutions as ours
from labkit.labs.quantization.checks import check_fake_quant, check_integer_linear, check_smooth
from labkit.training import bits_per_character, trained_gpt

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("09_quantization")

# %% [markdown]
# ### Eight bits cost almost nothing
#
# A device has 75 kB for your GPT, and in FP32 the GPT takes 452 kB. To **quantize** a matrix, divide it by a **scale** s and
# round to integers, its **codes**. The network then computes with code × s, so s is the *step* from one value to the next. For codes from −127 to 127, s is the
# largest magnitude in the matrix divided by 127. The cell does this to all eleven matrices, biases and norms excepted, and measures bits a character on text
# that the GPT was not trained on.

# %%
from labkit.training.data import shakespeare_split

text, test = shakespeare_split()


def rounded(matrix, bits):
    """The nearest multiples of one scale for the whole matrix."""
    largest = 2 ** (bits - 1) - 1
    scale = matrix.abs().max() / largest
    return (matrix / scale).round() * scale


@torch.no_grad()
def rounded_gpt(bits):
    model = trained_gpt()
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(rounded(p, bits))
    return model


print(f"FP32: 451,856 bytes, {bits_per_character(trained_gpt(), test):.3f} bits a character")
for bits in (8, 4, 3):
    size = 111_104 * bits // 8 + 4 * (11 + 1_860)  # codes; FP32 scales, biases and norms
    loss = bits_per_character(rounded_gpt(bits), test)
    print(f"INT{bits}: {size:7,} bytes, {loss:.3f} bits a character")

# %% [markdown]
# INT8 is 3.8 times smaller and costs 0.002 bits a character. INT4 would fit the device, but costs 0.6 bits a character. At INT3 the
# text falls apart, as the next cell shows.

# %% tags=["nbval-ignore-output"]
from labkit.training.data import characters, shakespeare

vocabulary = characters(shakespeare())


@torch.no_grad()
def write(model, start="BRUTUS.\n", length=150):
    tokens, generator = vocabulary.encode(start)[None], torch.Generator().manual_seed(0)
    for _ in range(length):
        chances = model(tokens[:, -64:])[0, -1].softmax(0)
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)[None]], 1)
    return vocabulary.decode(tokens)


for bits in (8, 3):
    print(f"INT{bits}: {write(rounded_gpt(bits))}\n")

# %% [markdown]
# ### Which weights share a scale
#
# One large weight makes the steps of its whole matrix coarse. With one scale for each row, or for each **group** of neighbouring
# weights in a row, it does so only there. But the scales must be stored too, here in FP16: a group of 32 pays 16/32 = 0.5 bits a weight.
# The cell rounds all eleven matrices to four bits.

# %%
from labkit.labs.quantization.weights import group_quantize, matrices, with_weights

gpt = trained_gpt()
print("a scale for     bits a weight   bits a character")
for group in ("tensor", "row", 32, 16):
    weights = {n: group_quantize(m.weight, bits=4, group=group) for n, m in matrices(gpt).items()}
    size = sum(w.nbytes for w in weights.values()) * 8 / 111_104
    loss = bits_per_character(with_weights(gpt, weights), test)
    print(f"{group!s:15}{size:14.2f}{loss:19.2f}")

# %% [markdown]
# FP32 has 2.10. One scale a row costs 0.2 bits a weight and removes almost three quarters of the increase over FP32 (from 0.62 to 0.17 bits a character). Large models commonly use groups of 128, at 0.125 bits a weight.
#
# ### The affine grid
#
# Weights lie on both sides of 0. Activations often do not: after a ReLU none is negative, so the grid used so far, symmetric around 0, wastes half its
# codes. An **affine** grid moves the codes: value = (code − z) × s, where the integer **zero point** z is the code of 0.0. For values from −1
# to 3 and codes from 0 to 255 there are 255 steps, so s = 4/255 (about 0.0157), and z = round(−lo / s) = round(1/s) = 64.

# %%
from labkit.formats import choose, dequantize_affine, quantize_affine

grid = choose(-1.0, 3.0, bits=8, symmetric=False)
x = torch.tensor([-1.0, 0.0, 0.01, 1.0, 3.0, 5.0])
codes = quantize_affine(x, grid)
print("values      ", [round(v, 3) for v in x.tolist()])
print("codes       ", codes.tolist())
print("values again", [round(v, 3) for v in dequantize_affine(codes, grid).tolist()])

# %% [markdown]
# A value beyond the range saturates: 5 becomes about 3. Zero is exact, because z is an integer. That matters, because padding and
# ReLU produce many zeros, and if each had the same small error, a sum would add up all these errors. For the same reason a range without 0 is first
# widened until it contains 0: from 0.5 … 1 to 0 … 1.
#
# ### Where to cut
#
# Activations have no fixed largest value, so you record their range on some batches: **calibration**. If the grid covers the
# farthest value, its steps are wide, and all values are *rounded* coarsely. If you cut the range, the steps are finer, but values beyond it are *clipped*.
# The widget shows what GELU puts out in one block of the GPT. Move the ends until the total error is at most 1 % above the smallest possible one, first at 8 bits, then at 4.

# %% tags=["nbval-ignore-output"]
from labkit.labs.quantization.widget_clip_dial import ClipDial

dial = ClipDial()
dial

# %% [markdown]
# Common advice is to cut at the 99.9th percentile of the magnitudes. The cell compares this cut with the full range by the root mean squared error (RMSE), on the inputs of another
# layer, and on 10,000 values from N(0, 1) and one outlier of 100. Its last row chooses the cut on all 10,001 values and judges the 10,000 alone.

# %%
from labkit.labs.quantization.calibration import Observer
from labkit.formats import fake_quantize
from labkit.labs.quantization.weights import layer_inputs

tokens = vocabulary.encode(text[:8192]).view(128, 64)
activations = layer_inputs(gpt, [tokens])["blocks.0.qkv"].flatten()
normal = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
spiked = torch.cat([normal, torch.tensor([100.0])])
print("                         full range   99.9 % cut")
for name, x, judged, bits in (
    ("GPT, 8 bits", activations, activations, 8),
    ("GPT, 4 bits", activations, activations, 4),
    ("outlier, 8 bits", spiked, spiked, 8),
    ("the others alone, 8 bits", spiked, normal, 8),
):
    print(f"{name:24}", end="")
    for kind in ("minmax", "percentile"):
        observer = Observer(kind, bits=bits, symmetric=True)
        observer.observe(x)
        error = fake_quantize(judged, observer.freeze()) - judged
        print(f"{error.square().mean().sqrt():12.3f}", end="")
    print()

# %% [markdown]
# For these activations the advice is wrong at 8 bits and right at 4, where finer steps are worth more than the clipped values. With the outlier, the cut divides the RMSE of the 10,000 by 13 and
# turns 100 into about 3.4. The RMSE cannot say whether the network needs that value, so measure the loss.
#
# ### Sums of codes
#
# A matmul of codes adds up products of codes.

# %%
a = torch.full((16,), 100, dtype=torch.int8)
b = torch.full((16,), 100, dtype=torch.int8)


# %% predict="int8-product"
@predict(guesses.int8_product)
def product():
    return (a @ b).item()


# %% [markdown]
# The exact sum is 160,000 = 625 × 256, and torch's `@` of int8 tensors returns int8, which keeps the remainder modulo 256: 0. Integer kernels therefore add in **int32**.
# A product of a uint8 code and an int8 code from −127 to 127 is at most 255 × 127, so int32 holds any sum of up to 66,311 such products; float32 is guaranteed exact only for up to 518. On a CPU, write `a.int() @ b.int()`. `torch._int_mm` is the fast call, but
# on x86 processors without VNNI (8-bit dot-product instructions) its intermediate sums can saturate, and the result is then wrong.

# %% [markdown]
# In a linear layer on codes, the input has one scale sx and a zero point zx, and row i of the weight has a scale sw[i] and no zero point. Let x be the input's codes, w the codes of row i, and y[i] the real output:
#
# y[i] = sx × sw[i] × Σ (x − zx) × w + bias[i].
#
# The sum is an integer. The bias is rounded to an integer multiple of sx × sw[i], so that it can be added to this sum as an integer. Multiplied by sx × sw[i] / sy, rounded, and
# with zy added, the sum becomes a code on the output's own grid, sy and zy. If calibration looked at the output after a ReLU, lo and zy are 0, and clamping the codes at 0 *is* the ReLU.
#
# ### Exercise: a linear layer in integers
#
# *16 minutes, about 8 lines.* Write `integer_linear`, a linear layer whose input, weight and output are integer codes.
# Write it yourself: labkit's own `integer_linear` and `IntegerLinear` do not count.
#
# - **Input:** `x` uint8 (N, in) with scale `sx` (float) and zero point `zx` (int); `w` int8 (out, in) with one scale a row, `sw` float32 (out);
#   `bias` float32 (out); the floats `lo` and `hi`, the smallest and the largest output in the calibration.
# - **The output's grid:** if `lo` is above 0 or `hi` below 0, this end becomes 0. `sy` is `(hi - lo) / 255`, `zy` the integer nearest to `-lo / sy`.
# - **Output:** `(y, sy, zy)`: y uint8 (N, out), sy a float, zy an int. Sum in int32 and add the integer nearest to `bias / (sx * sw)`. Multiply by `sx * sw / sy`,
#   round to nearest, add `zy`, and clamp to 0 to 255.
# - **Example:** x = [[130, 120]], sx = 0.5, zx = 128, w = [[2, 1]], sw = [0.25], bias = [0.3], lo = -2, hi = 3. The sum is 4 - 8, the bias
#   adds 2, and -2 * 0.125 / sy is -12.75. So y = [[89]], sy = 0.0196, zy = 102.
# - **Edge cases:** with 1,040 inputs a sum can pass 2²⁵, where float32 holds only every fourth integer, so keep it in int32. The
#   multiplication may then be in float32 or in float64. `lo` and `hi` are never both 0.


# %% exercise="integer-linear"
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    """Output codes (uint8), their scale and their zero point."""
    ### BEGIN SOLUTION
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    acc = (x.int() - zx) @ w.int().t()
    acc = acc + torch.round(bias / (sx * sw)).int()
    y = torch.round(acc.double() * (sx * sw / sy).double()) + zy
    return y.clamp(0, 255).to(torch.uint8), sy, zy
    ### END SOLUTION


# %% check="integer-linear" points=3
check_integer_linear(integer_linear)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which real number does the input code `zx` stand for, and what must it add to the sum? In which dtype does torch compute a product of
# two int8 tensors?
# </details>
# <details><summary>Hint 2</summary>
#
# Take one input and one weight: x = 130, zx = 128, sx = 0.5, w = 2, sw = 0.25. The product of the values is 1.0 * 0.5. How do you get it
# from the integer 2 * 2? By which factor do you divide a bias of 0.3 so that you may add it to this integer?
# </details>
# <details><summary>Hint 3</summary>
#
# `lo, hi = min(lo, 0.0), max(hi, 0.0)`, then `sy` and `zy`, then
# `acc = (x.int() - zx) @ w.int().t()`, `acc = acc + torch.round(...).int()`, and
# `y = torch.round(acc.double() * ...) + zy`, clamped.
# </details>

# %% [markdown]
# ### Integers only: the digit reader
#
# The cell trains a digit reader in FP32, records the ranges of its layers on 256 training images, and runs it in integers: the output codes of one layer are
# the input codes of the next. These ranges are **static**. **Dynamic** ones are measured on each batch. Compare both on images that are up to five times brighter than those
# of the calibration.

# %%
from labkit.training.data import batches, digits
from labkit.training.models import mlp

data = digits()
torch.manual_seed(1)
reader = mlp(64, 64, 64, 10)
adam = torch.optim.Adam(reader.parameters(), lr=3e-3)
for epoch in range(10):
    for images, labels in batches(data.train_images, data.train_labels, 64, seed=epoch):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(reader(images), labels).backward()
        adam.step()
layers = [layer for layer in reader if isinstance(layer, torch.nn.Linear)]


# %%
@torch.no_grad()
def ranges(images):
    """lo and hi of the images and of each layer's output, after its ReLU."""
    x = images.flatten(1)
    found = [x.aminmax()]
    for layer in layers:
        x = layer(x) if layer is layers[-1] else layer(x).relu()
        found.append(x.aminmax())
    return [(lo.item(), hi.item()) for lo, hi in found]


in_integers = yours(integer_linear, ours.integer_linear)


@torch.no_grad()
def read(images, spans):
    grid = choose(*spans[0], bits=8, symmetric=False)
    codes = quantize_affine(images.flatten(1), grid), grid.scale.item(), grid.zero_point.item()
    for layer, (lo, hi) in zip(layers, spans[1:], strict=True):
        rows = layer.weight.abs().amax(dim=1) / 127
        w = (layer.weight / rows[:, None]).round().to(torch.int8)
        x, scale, zero = codes
        codes = in_integers(x, w, layer.bias, scale, zero, rows, lo, hi)
    return codes[0].int().argmax(dim=1)  # all outputs share a scale: the largest code wins


calibrated = ranges(data.train_images[:256])
answers = read(data.test_images, calibrated)
differ = (answers != reader(data.test_images).argmax(1)).sum().item()
claim(f"{whose(in_integers)} integers: at most 3 of 359 answers differ from FP32's", differ <= 3)

# %% tags=["nbval-ignore-output"]
print("brightness   FP32   static   dynamic")
for brightness in (1, 2, 5):
    images = brightness * data.test_images
    found = reader(images).argmax(1), read(images, calibrated), read(images, ranges(images))
    print(
        f"{brightness:10}",
        *(f"{100 * (a == data.test_labels).double().mean():6.1f} %" for a in found),
    )

# %% [markdown]
# With static ranges, activations beyond the calibrated range saturate. Dynamic ranges follow the data, but a range is known only when all outputs are computed, so the outputs stay in a wider format until one more pass has measured
# them. Small integer devices usually use static ranges, and language models on GPUs dynamic ones, with one scale a token.
#
# ### Outliers, with and without
#
# **W8A8** means 8-bit weights and activations, here INT8. In large language models this can
# fail: a few channels of the activations are 20 to 100 times larger than most others (LLM.int8(), SmoothQuant), and a shared scale leaves few codes to the rest. **SmoothQuant** divides each such channel by a number and multiplies the matching column of the next weight by the same number.
#
# The cell measures W8A8, with one scale for each row of a weight and one for each activation tensor, measured on each batch, on the GPT as trained, and on a copy in which we *plant* outliers: two channels of each norm are multiplied by
# 30, and the next layer's columns divided by 30, which changes nothing in FP32.

# %%
from labkit.labs.quantization.activations import norm_pairs, with_w8a8
from labkit.labs.quantization.weights import plant_outliers

planted = copy.deepcopy(gpt)
for _, norm, layer in norm_pairs(planted):
    plant_outliers(norm, layer, channels=[3, 40], factor=30.0)
networks = {"as trained": gpt, "planted": planted}
for name, model in networks.items():
    fp32, int8 = bits_per_character(model, test), bits_per_character(with_w8a8(model), test)
    print(f"{name:11} FP32 {fp32:.3f}   W8A8 {int8:.3f} bits a character")

# %% [markdown]
# As trained, W8A8 costs about 0.005 bits a character, so there is nothing to repair. With planted outliers it costs 0.4.
#
# ### Exercise: smooth
#
# *8 minutes, optional, about 6 lines.* Write `smooth`, which moves the size of a LayerNorm's output channels into the next layer's weight.
#
# - **Input:** `norm`, an `nn.LayerNorm` with gain and bias; `linear`, the `nn.Linear` that reads it; `amax` float32 (in), the largest
#   magnitude of each channel in the calibration; `alpha`, from 0 to 1.
# - **Effect, in place:** channel j of norm's output is divided by s[j] = amax[j] ** alpha / (largest |weight| of column j) ** (1 - alpha), and
#   linear's output stays what it was.
# - **Example:** amax 16, largest weight 1/4, alpha 0.5: s is 4 / 0.5 = 8, and both maxima become 2.
# - **Edge case:** where amax or a whole column is 0, any positive s is right.


# %% exercise="smooth"
@torch.no_grad()
def smooth(norm, linear, amax, alpha=0.5):
    """SmoothQuant's rescaling, in place."""
    ### BEGIN SOLUTION
    columns = linear.weight.abs().amax(dim=0)
    s = amax**alpha / columns ** (1 - alpha)
    s[(amax == 0) | (columns == 0)] = 1.0
    norm.weight /= s
    norm.bias /= s
    linear.weight *= s
    ### END SOLUTION


# %% check="smooth" points=0
check_smooth(smooth)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Channel j of the LayerNorm's output is `gain[j] * normed[j] + bias[j]`. Which three tensors must change so that channel j becomes smaller
# and the next layer's output stays?
# </details>
# <details><summary>Hint 2</summary>
#
# `linear.weight` is (out, in). Over which dimension is the maximum of a column taken, and along which one does a vector of length in
# broadcast?
# </details>
# <details><summary>Hint 3</summary>
#
# `columns = linear.weight.abs().amax(dim=...)`, `s = amax**alpha / columns ** (...)`, then 1 for s where it would be 0 or inf, and
# three in-place operations.
# </details>

# %% [markdown]
# The cell smooths both networks. In the figure, compare the two planted peaks before and after smoothing.

# %%
smoothing = yours(smooth, ours.smooth)


def smoothed(model):
    model, seen = copy.deepcopy(model), layer_inputs(model, [tokens])
    for name, norm, layer in norm_pairs(model):
        smoothing(norm, layer, seen[name].abs().amax(dim=0))
    return model


networks["planted, smoothed"] = smoothed(planted)
for name, model in (("as trained", smoothed(gpt)), ("planted", networks["planted, smoothed"])):
    loss = bits_per_character(with_w8a8(model), test)
    print(f"{name:11} smoothed by {whose(smoothing)} function: W8A8 {loss:.2f}")

# %% tags=["nbval-ignore-output"]
reads = {name: layer_inputs(model, [tokens])["blocks.0.qkv"] for name, model in networks.items()}
figures.channels_picture({name: x.abs().amax(dim=0) for name, x in reads.items()})

# %% [markdown]
# On the trained GPT smoothing gains nothing that you would notice. On the planted copy it undoes all of the damage, but that proves little, because we planted exactly
# what it removes. Look at the channels of *your* model before you add a remedy.
#
# ### Optional: the KV cache
#
# A **KV cache** keeps the keys and values of earlier tokens. The cell rounds the keys to 3 bits. Common advice, one scale a channel for keys (KIVI), assumes that a few key channels are outliers. This network has no outlier channels in its keys, so one
# scale a token is better. Then the cell plants one such channel in each head, which changes nothing in FP32, and one scale a channel is better.

# %%
from labkit.labs.quantization.weights import plant_key_outliers


def with_rounded_keys(model, dim):
    """Bits a character with 3-bit keys; the values along `dim` share a grid."""
    model = copy.deepcopy(model)

    def hook(layer, args, out):
        q, k, v = out.chunk(3, dim=-1)
        k = k.unflatten(-1, (4, 16))  # N x tokens x heads x channels
        lo, hi = k.amin(dim, keepdim=True), k.amax(dim, keepdim=True)
        step = (hi - lo) / 7
        k = ((k - lo) / step).round() * step + lo
        return torch.cat([q, k.flatten(-2), v], dim=-1)

    for block in model.blocks:
        block.qkv.register_forward_hook(hook)
    return bits_per_character(model, test)


planted = copy.deepcopy(gpt)
for block in planted.blocks:
    plant_key_outliers(block, channel=3, factor=16.0)
for name, model in (("as trained", gpt), ("planted", planted)):
    token, channel = (with_rounded_keys(model, dim) for dim in (-1, 1))
    print(f"{name:11} a scale a token {token:.2f}, a channel {channel:.2f}")

# %% [markdown]
# ### Optional: training with the rounding
#
# At 2 bits, with the codes −1, 0 and 1, rounding costs the digit reader about a fifth of its right answers. **Quantization-aware training** (QAT) rounds the weights in each forward pass, so that
# training can adapt to the rounding. But the derivative of `round` is 0, so no gradient arrives at the weights.


# %%
def two_bits(weight):
    scale = weight.detach().abs().amax(dim=1, keepdim=True)
    return (weight / scale).round() * scale


def train_rounded(rounding, epochs):
    """A copy of the reader after QAT: right answers of 359, and its first weight."""
    copied = copy.deepcopy(reader)
    linears = [layer for layer in copied if isinstance(layer, torch.nn.Linear)]
    adam = torch.optim.Adam(copied.parameters(), lr=1e-3)

    def forward(x):
        x = x.flatten(1)
        for layer in linears:
            x = torch.nn.functional.linear(x, rounding(layer.weight), layer.bias)
            x = x if layer is linears[-1] else x.relu()
        return x

    for epoch in range(epochs):
        for images, labels in batches(data.train_images, data.train_labels, 64, seed=epoch):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(forward(images), labels).backward()
            adam.step()
    right = (forward(data.test_images).argmax(1) == data.test_labels).sum().item()
    return right, linears[0].weight


# %% predict="without-ste"
@predict(guesses.without_ste)
def accuracy():
    before, after = (train_rounded(two_bits, epochs=epochs)[0] for epochs in (0, 5))
    return "higher" if after > before else "lower" if after < before else "unchanged"


# %% [markdown]
# It rises, although no bit of any weight changes. The biases are not rounded, so they learn. A rising accuracy
# does not prove that every part of a network learns.

# %% [markdown]
# The **straight-through estimator** (STE) rounds in the forward pass and treats `round` as the identity in the backward pass: `w + (two_bits(w) - w).detach()` has
# the value of `two_bits(w)` and the gradient of w.


# %%
def straight_through(w):
    return w + (two_bits(w) - w).detach()


stuck, learned = (train_rounded(f, epochs=5) for f in (two_bits, straight_through))
claim("without STE no weight changed", torch.equal(stuck[1], layers[0].weight))
claim("with STE the reader is within 10 answers of FP32's 349", learned[0] > 339)

# %% [markdown]
# ### Exercise: fake quantization
#
# *8 minutes, optional, about 5 lines.* Write `fake_quant`, which rounds `x` to a grid, returns floats, and lets the gradient through.
# Write it yourself: labkit's `fake_quantize` and torch's `fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine` do not count.
#
# - **Input:** `x` float32, any shape, finite; `scale`, a float or a tensor that broadcasts over x, such as one scale a row; ints `zero`, `low`, `high`.
# - **Output:** float32, `(code - zero) * scale`. The code is the integer nearest to `x / scale`, plus `zero`, clamped to `low` to `high`.
# - **Gradient:** passes unchanged where the code was not clamped, and is 0 elsewhere.
# - **Example:** with scale 0.1, zero 0 and codes from -8 to 7, 0.26 becomes 0.3 with gradient 1, and 5.0 becomes 0.7 with gradient 0.
# - **Not tested:** values up to half a step beyond an end of the range. Their code is not clamped, but a program that clamps x itself stops their gradient.


# %% exercise="fake-quant"
def fake_quant(x, scale, zero, low, high):
    """x on the affine grid, with a straight-through gradient."""
    ### BEGIN SOLUTION
    codes = (x / scale).round() + zero
    inside = (codes >= low) & (codes <= high)
    rounded = (codes.clamp(low, high) - zero) * scale
    passed = x * inside
    return passed + (rounded - passed).detach()
    ### END SOLUTION


# %% check="fake-quant" points=0
check_fake_quant(fake_quant)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What is the derivative of `round`? Which values of `x` may still move the output, if you ignore the single steps?
# </details>
# <details><summary>Hint 2</summary>
#
# `t.detach()` has t's values and no gradient. What are the value and the gradient of `x + (y - x).detach()`?
# </details>
# <details><summary>Hint 3</summary>
#
# Compute the codes, then `inside = (codes >= low) & ...`, then the rounded values. With `passed = x * inside`, return
# `passed + (...).detach()`.
# </details>
#
# **A stopping point.** Sitting B brings the GPT under 75 kB.

# %% [markdown]
# ## Sitting B: four bits, and fine-tuning
#
# *You are here:* **GPTQ** → under 75 kB → fine-tuning

# %%
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.quantization import figures, predictions as guesses, solutions as ours
from labkit.labs.quantization.checks import check_gptq, check_lora_linear
from labkit.training import bits_per_character, trained_gpt

# %% [markdown]
# ### GPTQ: round one column, correct the others
#
# Rounding to nearest treats each weight alone, but the next layer sees only the *output*. Suppose two inputs are always equal,
# both weights are 0.4, and the scale is 1. Nearest gives 0 and 0: the output is 0 instead of 0.8 times the input. A better way: round the first weight to 0, add its lost 0.4 to the second, and round that: 0.8 becomes 1. Now the output is off by 0.2 times the input.
#
# **GPTQ** does this with all columns and with recorded inputs X. After each rounded column it changes the columns that are not yet rounded so that
# the squared error of X @ W.T becomes as small as possible. Each correction is a least-squares problem, and one Cholesky factor
# of the inverse of H = XᵀX solves them all.
#
# ### Exercise: GPTQ
#
# *12 minutes, about 8 lines.* Write `gptq`, which rounds the columns of `W` from left to right and corrects the columns to their right.
#
# - **Input:** `W` float32 (out, in); `X` float32 (N, in); `scale` float32 (out, in), the scale of each weight; the float `damp`.
# - **Output:** float32 (out, in), codes from -7 to 7 times their scale: `nearest`, given below, rounds. The caller's `W` stays as it is.
# - **H** is `X.T @ X`, with `damp` times the mean of its diagonal added to the diagonal. **U** is upper triangular,
#   with `U.T @ U` = the inverse of H: `torch.linalg.cholesky(..., upper=True)`.
# - **Column j** of a copy of `W`: round it as it is now, after the earlier corrections; the result is `Q[:, j]`, a column of the output. Divide the
#   error `W[:, j] - Q[:, j]` by `U[j, j]`, and subtract the quotient times `U[j, k]` from each column k to the right.
# - **Example:** W = [[0.6, 0.7]], X = [[1, 1]], scales of 1, damp 0.01. Column 0 is rounded up by 0.4, so column 1 becomes 0.7 - 0.396 and
#   is rounded down: [[1, 0]], where nearest gives [[1, 1]].
# - **Edge cases:** if an input is always 0, or X has fewer rows than columns, the damping makes H invertible. A weight beyond
#   seven steps is clamped, and its error counts like any other.


# %%
def nearest(w, scale):
    """The nearest value on the 4-bit grid: a code from -7 to 7, times the scale."""
    return (w / scale).round().clamp(-7, 7) * scale


# %% exercise="gptq"
def gptq(W, X, scale, damp=0.01):
    """W on the 4-bit grid, with a small error of X @ W.T."""
    ### BEGIN SOLUTION
    W, Q = W.clone(), torch.zeros_like(W)
    H = X.T @ X
    H = H + damp * H.diag().mean() * torch.eye(len(H))
    U = torch.linalg.cholesky(torch.linalg.inv(H), upper=True)
    for j in range(W.shape[1]):
        Q[:, j] = nearest(W[:, j], scale[:, j])
        error = (W[:, j] - Q[:, j]) / U[j, j]
        W[:, j:] -= torch.outer(error, U[j, j:])
    return Q
    ### END SOLUTION


# %% check="gptq" points=3
check_gptq(gptq)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Suppose column 0 is rounded up by 0.3, and inputs 0 and 1 are almost equal. In which direction must column 1 move so that the output
# stays?
# </details>
# <details><summary>Hint 2</summary>
#
# Do the example by hand: H = [[1.01, 1], [1, 1.01]]. How far does column 1 move, and what are `U[0, 0]` and `U[0, 1]`? Which of your
# variables holds the column as it is now, and which the column as the caller gave it?
# </details>
# <details><summary>Hint 3</summary>
#
# `U = torch.linalg.cholesky(torch.linalg.inv(H), upper=True)`, then for each j: `Q[:, j] = nearest(W[:, j], scale[:, j])`,
# `error = ... / U[j, j]`, `W[:, j:] -= torch.outer(error, ...)`.
# </details>

# %% [markdown]
# X is what each layer reads while the GPT sees 8,192 characters of its training text. In the first feed-forward layer,
# compare GPTQ with nearest by the error of the weights, |Q − W|, and by the error of the outputs, |X @ (Q − W).T|.

# %%
from labkit.labs.quantization.weights import group_quantize, layer_inputs, scales_for
from labkit.training.data import characters, shakespeare, shakespeare_split

gpt, (text, test), by_gptq = trained_gpt(), shakespeare_split(), yours(gptq, ours.gptq)
vocabulary = characters(shakespeare())
inputs = layer_inputs(gpt, [vocabulary.encode(text[:8192]).view(128, 64)])


def both(name, group="row"):
    """W, and W on the 4-bit grid by nearest and by GPTQ."""
    W = gpt.get_submodule(name).weight.detach()
    scales = scales_for(W, bits=4, group=group).float()
    scales = scales.repeat_interleave(W.shape[1] // scales.shape[1], dim=1)
    return W, nearest(W, scales), by_gptq(W, inputs[name], scales)


# %% predict="gptq-weight-error"
@predict(guesses.gptq_weight_error)
def errors():
    name = "blocks.0.feed_forward.0"
    (W, near, moved), x = both(name), inputs[name]
    pairs = (moved - W, near - W), ((moved - W) @ x.T, (near - W) @ x.T)
    weights, outputs = ("larger" if a.norm() > b.norm() else "smaller" for a, b in pairs)
    return f"weights' {weights}, outputs' {outputs}"


# %% [markdown]
# The weights' error is 1.4 times that of nearest, and the outputs' error is 0.73 times that of nearest. Nearest has the smallest error that the grid allows for each weight, so any
# other choice is worse for the weights. GPTQ accepts this, because it aims at a small error of the outputs.

# %% [markdown]
# ### Your GPT: under 75 kB
#
# The cell packs the eight matrices of the blocks in four bits, both embeddings and the head in INT8 with one scale a row, and scales, biases and
# norms in FP16. The table compares four ways to choose the 4-bit codes.


# %%
from labkit.labs.quantization.parcel import parcel

names = [name for name in inputs if "blocks" in name]
print("a scale for   codes       bytes   bits a character   above FP32")
for group in ("row", 32):
    for place, method in ((1, "nearest"), (2, "GPTQ")):
        packed, size = parcel(gpt, {name: both(name, group)[place] for name in names}, group=group)
        loss = bits_per_character(packed, test)
        print(f"{group!s:14}{method:9}{size:8,}{loss:19.2f}{loss - 2.1044:13.2f}")
claim("the parcel of GPTQ in groups of 32 weighs at most 75 kB", size <= 75_000)
claim(f"with {whose(by_gptq)} codes it loses less than 0.06 bits a character", loss < 2.1044 + 0.06)

# %% [markdown]
# The GPT now fits: 72 kB instead of 452 kB, at a cost of 0.05 bits a character.
# GPTQ depends on its calibration: with 64 characters instead of 8,192 it is *worse* than nearest (with one scale a row it costs 0.16 bits a character, nearest 0.11).
#
# The figure shows GPTQ's errors of the weights and of the outputs in each of the eight layers, as multiples of nearest's.

# %% tags=["nbval-ignore-output"]
figures.gptq_picture({name: both(name) for name in names}, inputs)

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The ledger is the table that lab 00 began: bytes, quality and time of your GPT in each format. `stored` rounds all eleven matrices, here with one scale a row, counts codes and scales, and keeps biases and norms
# in FP16. The third row is the parcel of GPTQ in groups of 32.

# %% tags=["nbval-ignore-output"]
from labkit.measuring.ledger import Ledger, stored


def to_nearest(bits):
    def to_format(name, weight):
        packed = group_quantize(weight, bits=bits)
        return packed.dequantize(), packed.nbytes

    return to_format


LAB, ledger, by = "09_quantization", Ledger(), whose(by_gptq)
int8 = ledger.add(LAB, "INT8", *stored(gpt, to_nearest(8)))
int4 = ledger.add(LAB, "INT4", *stored(gpt, to_nearest(4)))
by_layer = {name: both(name, 32)[2] for name in names}
mixed = ledger.add(LAB, "INT4 by GPTQ and INT8", *parcel(gpt, by_layer, group=32), whose=by)
claim("INT8 costs less than 0.002 bits a character", int8.bits < 2.1044 + 0.002)
claim(f"{by} parcel costs less than half of what INT4 costs", 2 * mixed.bits < int4.bits + 2.1044)
ledger

# %% tags=["nbval-ignore-output"]
ledger.plot()

# %% [markdown]
# The parcel costs 10 kB more than INT4 in all matrices and less than half as many bits. Both embeddings and the head stay in INT8 there; lab 12 asks which matrices deserve the bits.

# %% [markdown]
# ### Fine-tuning in four bits
#
# Suppose your users write in capitals. On such text the GPT needs 7.3 bits a character, more than guessing evenly among its 68 characters (log₂ 68 = 6.1). Training all weights with AdamW
# takes 16 bytes a weight: the weight, its gradient and two moments, all FP32.
#
# **QLoRA** freezes each weight matrix W in four bits (NF4 in the paper, INT4 here) and trains an **adapter** beside it: a product B A of two thin matrices, of rank 8 for example. The layer computes
# W x + (alpha / rank) B A x, where alpha is a constant that you choose, and only A and B have gradients and moments. Matmuls run in BF16, so W is **dequantized** to BF16 for each of them. Here A and B are stored in FP32 and cast for each matmul, because in BF16 their small updates would be rounded away (lab 04).
# W needs no gradient, but the gradient of x passes *through* W to earlier layers. B starts at 0, so training starts from the rounded network.
#
# The cell compares both for Llama 3 8B, activations not counted.

# %%
# Llama 3 8B: 32 blocks of query and output, key and value, three feed-forward matrices
shapes = [(4096, 4096)] * 2 + [(4096, 1024)] * 2 + [(4096, 14336)] * 3
linear, embeddings = 32 * sum(a * b for a, b in shapes), 2 * 128_256 * 4096
adapters = 32 * sum(8 * (a + b) for a, b in shapes)
qlora = (0.5 + 2 / 64) * linear + 2 * embeddings + 16 * adapters  # an FP16 scale for 64 weights
print(f"all weights: {16 * (linear + embeddings) / 1e9:.0f} GB")
print(f"QLoRA: {qlora / 1e9:.1f} GB, with adapters of {adapters / linear:.1%} of the weights")

# %% [markdown]
# ### Exercise: adapters on a 4-bit layer
#
# *12 minutes, about 12 lines.* Write `LoRALinear`, a linear layer with a frozen 4-bit weight and one adapter, the float32 matrices A and B.
#
# - **`__init__`:** `codes` int8 (out, in), from -7 to 7; `scale` float16 (out, groups): each group of in / groups neighbouring weights in a row shares a scale;
#   `bias` float32 (out); `rank`; `alpha`.
# - **Parameters:** only `A` (rank, in), random with a root mean square of about 1 / sqrt(in), and `B` (out, rank), zeros, both float32.
# - **Buffers:** codes, scale and bias. The module stores no float tensor of the weight's size: each call dequantizes the weight again.
# - **`forward(x)`:** from x (..., in) of any float dtype to BF16 (..., out): (code * scale) times x, plus the bias, plus alpha / rank times
#   B A x. Every matmul gets BF16 operands. Multiply x by A first, because B @ A is as large as the weight.
# - **Gradients** reach A, B and x, through the frozen weight too.
# - **Example:** codes [[2, -1]], scale [[0.5]], bias [0.25] and x = [1, 3] give -0.25 at first, and 3.75 with rank 1, alpha 2, A = [[1, 1]]
#   and B = [[0.5]].


# %% exercise="lora-linear"
class LoRALinear(torch.nn.Module):
    """A frozen 4-bit linear layer with a float32 adapter."""

    def __init__(self, codes, scale, bias, rank=8, alpha=16):
        super().__init__()
        ### BEGIN SOLUTION
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.A = torch.nn.Parameter(torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5)
        self.B = torch.nn.Parameter(torch.zeros(codes.shape[0], rank))
        self.factor = alpha / rank
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        x = x.bfloat16()
        group = self.codes.shape[1] // self.scale.shape[1]
        weight = self.codes * self.scale.float().repeat_interleave(group, dim=1)
        base = torch.nn.functional.linear(x, weight.bfloat16(), self.bias.bfloat16())
        return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)
        ### END SOLUTION


# %% check="lora-linear" points=3
check_lora_linear(LoRALinear)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What must an optimizer find in `layer.parameters()`, and what must a checkpoint hold besides? Which of A and B makes the layer
# equal to its base at the start, and why may the other one not be zero too?
# </details>
# <details><summary>Hint 2</summary>
#
# Take the example with one row: weight = [2, -1] * 0.5. With two groups of one weight each and scale [[0.5, 2.0]], which scale belongs to
# which code? `repeat_interleave` repeats each scale as often as its group is long.
# </details>
# <details><summary>Hint 3</summary>
#
# In `__init__`: three times `self.register_buffer(name, tensor)`, twice `torch.nn.Parameter(...)`, and the factor alpha / rank. In
# `forward`: `x = x.bfloat16()`, the weight, `base = torch.nn.functional.linear(x, ...)`, and
# `return base + self.factor * (x @ ... @ ...)`, with each factor cast by `.bfloat16()`.
# </details>

# %% [markdown]
# The cell puts this layer in place of the eight matrices, rounded to nearest with one scale a row, and trains 50 steps on capitals.
# Your 50 steps are black in the figure. Compare the three recorded runs.

# %%
from labkit.labs.quantization.linear import replace_linears
from labkit.training.data import character_batches

Layer = yours(LoRALinear, ours.LoRALinear)


def with_adapters(name, linear):
    if name == "head":
        return linear
    weight = group_quantize(linear.weight, bits=4)
    layer = Layer(weight.codes, weight.scales, linear.bias.detach())
    layer.register_forward_hook(lambda _, inputs, y: y.float())  # attention and norms in FP32
    return layer


torch.manual_seed(0)
tuned = replace_linears(trained_gpt().requires_grad_(False), with_adapters)
learning = [p for p in tuned.parameters() if p.requires_grad]
adam = torch.optim.AdamW(learning, lr=3e-3, weight_decay=0.0)
live = {0: bits_per_character(tuned, test.upper())}
for x, y in character_batches(text.upper(), 64, 16, steps=50, vocabulary=vocabulary):
    adam.zero_grad()
    torch.nn.functional.cross_entropy(tuned(x).flatten(0, 1), y.flatten()).backward()
    adam.step()
live[50] = bits_per_character(tuned, test.upper())
fell = live[0] > 7 and live[50] < 4
claim(f"{whose(Layer)} adapters: above 7 bits before, below 4 after 50 steps", fell)
print(f"{sum(p.numel() for p in learning):,} parameters learned, beside 112,964 frozen ones")

# %% tags=["nbval-ignore-output"]
from labkit.labs.quantization.recorded import fine_tuning

figures.fine_tuning_picture(fine_tuning(), live=live, caption=f"{whose(Layer)} adapters")

# %% [markdown]
# Training all weights ends at 2.44 bits a character, and adapters with a seventh of the parameters at 2.64. On a 4-bit base the adapters end only 0.01 bits a character higher.
#
# Three limits. First, these adapters add 66 kB in FP32, too much for this device. Second, if you merge B A into W, the sum lies on no 4-bit grid, so
# serve the adapter beside W, or round again and measure again. Third, in this layer autograd keeps each BF16 copy of W until the backward pass, so training needs a BF16 model's memory after all; bitsandbytes dequantizes W again in the backward pass instead.
#
# ### Optional: quantize with torchao
#
# torchao's `quantize_` replaces the weights of a model's linear layers, in place, by quantized tensors; the filter leaves the head alone. The cell measures INT4 weights in groups of 32, then W8A8 with dynamic ranges.

# %% tags=["nbval-ignore-output"]
from labkit.base.home import import_optional


def in_blocks(layer, name):
    return isinstance(layer, torch.nn.Linear) and "blocks" in name


try:
    ao = import_optional("torchao.quantization")
    groups = import_optional("torchao.quantization.granularity").PerGroup(32)
except ImportError as missing:
    print(missing)
    print("INT4 in groups of 32 costs 0.07 bits a character, INT8 weights and activations 0.001.")
else:
    for config in (
        ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups),
        ao.Int8DynamicActivationInt8WeightConfig(),
    ):
        model = trained_gpt()
        ao.quantize_(model, config, filter_fn=in_blocks)
        cost = bits_per_character(model, test) - 2.1044
        print(f"{type(config).__name__}: {cost:.3f} bits a character above FP32")

# %% [markdown]
# For *static* ranges, PT2E (PyTorch 2 Export quantization) exports the model as a graph, puts observers into it, calibrates them and converts the graph for a backend, here x86 CPUs.

# %% tags=["nbval-ignore-output"]
try:
    pt2e = import_optional("torchao.quantization.pt2e.quantize_pt2e")
    x86 = import_optional("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
except ImportError as missing:
    print(missing)
    print("Static INT8 weights and activations cost 0.001 bits a character.")
else:
    tokens = vocabulary.encode(text[:8192]).view(128, 64)
    any_number = ({0: torch.export.Dim("pieces")},)
    graph = torch.export.export(trained_gpt(), (tokens,), dynamic_shapes=any_number).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    observed = pt2e.prepare_pt2e(graph, quantizer)
    observed(tokens)  # calibration
    converted = pt2e.convert_pt2e(observed)
    cost = bits_per_character(lambda tokens: converted(tokens), test) - 2.1044
    print(f"static W8A8 by PT2E: {cost:.3f} bits a character above FP32")

# %% [markdown]
# ### Quantization in 2026
#
# - **Few users:** decoding a token reads every weight that it uses, so memory bandwidth limits the speed (lab 06). Teams use **W4A16**, 4-bit weights and 16-bit activations, by GPTQ or by AWQ, which scales the channels that matter most before it rounds.
# - **Many users:** with large batches matmuls are compute-bound, so activations must be narrow too: INT8 on older GPUs, FP8 since Ada and Hopper, NVFP4 or MXFP4 on Blackwell (lab 08).
# - **Long contexts:** storing the KV cache in FP8 instead of BF16 halves its bytes.
# - **Models trained for few bits:** gpt-oss was released with its MoE weights in MXFP4. Kimi K2 Thinking was post-trained with its MoE weights rounded to INT4 in the forward pass (QAT).
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("09_quantization")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Jacob et al., arXiv:1712.05877 (integers only). Bengio et al., arXiv:1308.3432 (STE). Frantar et al., *GPTQ*, arXiv:2210.17323. Dettmers et al., *LLM.int8()*, arXiv:2208.07339, and
# *QLoRA*, arXiv:2305.14314. Xiao et al., *SmoothQuant*, arXiv:2211.10438. Lin et al., *AWQ*, arXiv:2306.00978. Liu et al., *KIVI*, arXiv:2402.02750. Hu et al., *LoRA*, arXiv:2106.09685. vLLM and LLM Compressor documentation, *Choosing the right
# compression scheme*, *Quantized KV cache*. OpenAI, *gpt-oss model card*, arXiv:2508.10925. S. Liu (Moonshot AI), *Quantization is not a compromise*, 2025.
#
# **Next.** [Lab 11: monitoring and debugging](11_monitoring_and_debugging.ipynb). If your model must fit a small device, take [lab 10: compression](10_compression.ipynb) first.
