# %% [markdown]
# # 8. The mechanisms of FP8 and FP4 training: a replication study
#
# You rebuild FP8 and FP4 training from PyTorch's own calls, and see which published mechanisms make a difference on one small GPT.
#
# *any laptop · needs: labs 02 (formats), 03 (stochastic rounding) and 04 (scales)*
#
# After this lab you can:
#
# - train a linear layer in FP8 with `scaled_mm`, and say what its scales must be;
# - quantise to MXFP8, MXFP4 and NVFP4 by block, and choose a recipe for them.
#
# ## Sitting A: FP8, one scale for a tensor
#
# *You are here:* **why FP8** → scales → three matmuls → *stop* (optional: delayed scaling, accumulators)

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.fp8_and_fp4 import predictions as guesses, solutions as ours
from labkit.labs.fp8_and_fp4.checks import check_delayed, check_fp8_matmul, check_to_fp8

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("08_fp8_and_fp4")

# %% [markdown]
# ### What FP8 buys
#
# FP8 makes matmuls faster. The table shows the published dense peaks of matrix units, in TFLOP/s.

# %%
import pandas as pd
from labkit.devices.roofline import roofs

gpus = ["A100 SXM4 80GB", "H100 SXM5 80GB", "MI300X", "B200 SXM", "MI355X"]
peaks = {
    d: {r.device: r.flops / 1e12 for r in roofs(d, devices=gpus)} for d in ("bf16", "fp8", "fp4")
}
pd.DataFrame(peaks, index=gpus).map(lambda peak: "none" if math.isnan(peak) else f"{peak:,.0f}")

# %% [markdown]
# The peak doubles from BF16 to FP8, and again to FP4. An FP8 operand also takes half the bytes of a BF16 operand, in memory and between GPUs. Training
# memory shrinks less: master weights, gradients and Adam's moments keep their 16 bytes a parameter.
#
# Among NVIDIA's and AMD's GPUs, FP8 needs Hopper, Ada, MI300 or later; matmuls in MX formats need Blackwell, MI350 or later, and those in NVFP4 need Blackwell or later. This lab runs on the CPU. It rounds to each format as an NVIDIA GPU does, but a GPU's
# kernel may scale, and add, in another order and precision.
#
# The cell rounds both operands, input and weight, of the eight linear layers in the trained GPT's blocks to E4M3, and measures bits a character on unseen text.

# %%
from labkit.formats import E4M3
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split
from labkit.training.low_bit import LowBitRecipe, Operand, convert

train_text, test_text = shakespeare_split()
scaled_fp8 = LowBitRecipe(Operand(E4M3, "tensorwise"))
bits_fp32 = bits_per_character(trained_gpt(), test_text)
bits_fp8 = bits_per_character(convert(trained_gpt(), scaled_fp8), test_text)
print(f"FP32: {bits_fp32:.3f} bits a character, E4M3: {bits_fp8:.3f}")
claim("E4M3 costs less than 0.02 bits a character", bits_fp8 < bits_fp32 + 0.02)

# %% [markdown]
# E4M3 takes a quarter of FP32's bytes for these operands, and costs 0.6 % more bits a character. `"tensorwise"` stands for the part that you will write: one scale for each tensor.
#
# ### A falling loss is not enough
#
# Training also casts gradients, which are far smaller than weights and activations. The cell trains a new GPT for 40 steps in FP32, and again with all operands in E4M3 *without* scales. `learn` is the usual loop, and
# counts nonzero elements in the weight gradients of the blocks.

# %%
from labkit.labs.fp8_and_fp4 import figures
from labkit.training import cross_entropy
from labkit.training.data import character_batches, characters, shakespeare
from labkit.training.models import SmallGPT

vocabulary = characters(shakespeare())


def learn(prepare, steps=40):
    torch.manual_seed(0)
    model, losses, nonzero = prepare(SmallGPT(vocabulary.size, 64)), [], []
    weights = [m.weight for m in model.blocks.modules() if isinstance(m, torch.nn.Linear)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = character_batches(train_text, 64, 32, steps=steps, vocabulary=vocabulary)
    for tokens, next_tokens in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), next_tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        nonzero += [(weight.grad != 0).double().mean().item() for weight in weights]
    return losses, sum(nonzero) / len(nonzero)


in_fp32, nonzero_fp32 = learn(lambda model: model)
unscaled, nonzero_unscaled = learn(lambda model: convert(model, LowBitRecipe(Operand(E4M3))))
claim("the loss falls by more than 1 nat in both runs", max(in_fp32[-1], unscaled[-1]) < 3.2)
claim("in FP32, over 99 % of the blocks' weight gradients are not 0", nonzero_fp32 > 0.99)
claim("in E4M3 without scales, every one is 0 at every step", nonzero_unscaled == 0)

# %% tags=["nbval-ignore-output"]
figures.losses_picture({"FP32": in_fp32, "E4M3 without scales": unscaled})

# %% [markdown]
# Without scales, no weight matrix in a block received a gradient. E4M3's smallest positive value is 2⁻⁹ (0.00195), and magnitudes up to half of it round to 0. The loss is a mean over 32 × 64 = 2,048 characters, so
# each character's gradient is divided by 2¹¹, and in this run every
# element of the gradient at the output of every linear layer in a block is below 2⁻¹⁰ (0.00098). The loss falls because the head, the embeddings, the final norm and the output biases
# of the blocks get gradients in FP32 through the residual path. In 300 recorded steps, at least 99.8 % of these gradients
# stayed 0 on each of ten seeds. Before you trust an FP8 run, look at the share of zeros in each layer's weight gradient.
#
# ### Float8 tensors in PyTorch
#
# `torch.float8_e4m3fn` and `torch.float8_e5m2` are dtypes for storage. PyTorch has little arithmetic for them.

# %%
x = torch.tensor([[0.3, -500.0], [2.0, math.inf]])
q = x.to(torch.float8_e4m3fn)
calls = {
    "q + q": lambda: q + q,
    "q.sum()": lambda: q.sum(),
    "q @ q.t()": lambda: (q @ q.t()).dtype,
    "q as float": lambda: q.float().tolist(),
    "E5M2 as float": lambda: (200 * x).to(torch.float8_e5m2).float().tolist(),
}
for name, call in calls.items():
    try:
        print(f"{name:14}", call())
    except NotImplementedError as error:
        print(f"{name:14}", type(error).__name__, error)

# %% [markdown]
# `+` and `sum` are missing, and on a CPU `@` rounds its result to FP8. In torch 2.13 a value that is too large saturates in E4M3, where even inf becomes 448, and becomes inf in E5M2. Other
# versions and libraries differ, so labkit's scaled casts require `overflow=`.
#
# For matmuls there is `torch.nn.functional.scaled_mm`. It multiplies two matrices of FP8 values, called *codes* here, and, with one scale a tensor, multiplies the result by two numbers, one **descale** for each matrix: a matrix is its codes times its descale.
# Transformer Engine calls the reciprocal the *scale*, and so does this lab: codes = x × scale, descale = 1 / scale.
#
# ### Exercise: to FP8
#
# *7 minutes, about 4 lines.* Write `to_fp8(x, dtype)`, which casts a tensor to FP8 with one scale, without labkit's `scaled`.
#
# - **Input:** `x`, a float32 or bfloat16 tensor of any shape without inf and NaN; `dtype` is `torch.float8_e4m3fn` or `torch.float8_e5m2`.
# - **Output:** the pair `(codes, descale)`. `codes` has the shape of `x` and the given dtype. `descale` is a float32 tensor with one value, and
#   `codes.float() * descale` is close to `x`. The largest magnitude in `x` becomes the format's largest value, `torch.finfo(dtype).max`: 448 or 57,344.
# - **Example:** for `x = [-7, 3.5]` in E4M3, `codes` is [-448, 224] and `descale` is 7/448 = 0.015625.
# - **Edge cases:** a tensor of zeros gives zeros and any finite positive `descale`. Every other tensor reaches ±448 or ±57,344: its largest magnitude may be as
#   small as 1e-35 in E4M3 and 1e-30 in E5M2, and as large as 1e30, and it may belong to a negative value.


# %% exercise="to-fp8"
def to_fp8(x, dtype):
    """The codes of x in an FP8 dtype, and the float32 number that multiplies them back."""
    ### BEGIN SOLUTION
    amax = x.abs().amax().float()
    descale = torch.where(amax > 0, amax / torch.finfo(dtype).max, 1.0)
    return (x.float() / descale).to(dtype), descale
    ### END SOLUTION


# %% check="to-fp8" points=2
check_to_fp8(to_fp8)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which single number of `x` decides the scale, and in which dtype should you divide it?
# </details>
# <details><summary>Hint 2</summary>
#
# Suppose a format ends at 6. For `x = [-3, 1]` the largest magnitude is 3. Which number takes 3 to 6 when you divide by it? Which `x` makes that number 0, and
# what does 0 / 0 give?
# </details>
# <details><summary>Hint 3</summary>
#
# Fill in: `amax = x....amax().float()`, then `descale = torch.where(amax > 0, amax / ..., 1.0)`, then return `(x.float() / descale).to(dtype), descale`.
# </details>
#
# The cell casts the gradient at the output of one layer of the trained GPT, without a scale and with one.

# %%
cast = yours(to_fp8, ours.to_fp8)

# %%
from labkit.labs.fp8_and_fp4.layer_tensors import layer_tensors, sqnr

activation, gradient = layer_tensors()  # 2,048 characters x 64 and x 256
codes, descale = cast(gradient, torch.float8_e4m3fn)
plain = gradient.to(torch.float8_e4m3fn).float()
for name, stored in {"no scale": plain, f"{whose(cast)} scale": codes.float() * descale}.items():
    error = (stored - gradient).norm() / gradient.norm()
    print(f"E4M3, {name}: relative error {error:.3f}")

# %% [markdown]
# ### How wrong may a scale be?
#
# How well a cast keeps a tensor is often given as **SQNR**, the signal-to-quantisation-noise ratio: 10 log₁₀(Σx² / Σerror²) decibels (dB). 6 dB more means half the error. With the right
# scale, E4M3 keeps this gradient with 31.5 dB. Suppose that the scale is 100 times too small, so that the largest code is about 4.5 instead of 448.


# %% predict="wrong-scale"
@predict(guesses.wrong_scale)
def db():
    small = 448 / gradient.abs().max() / 100
    stored = (gradient * small).to(torch.float8_e4m3fn).float() / small
    return round(sqnr(gradient, stored), 1)


# %% [markdown]
# It is 31.5 dB again. A float has the same relative precision at every exponent, so a smaller scale costs nothing until values that carry much of Σx² become subnormal.
# INT8 has equal steps, and a scale that is half as large doubles the step.

# %% tags=["nbval-ignore-output"]
figures.wrong_scale_picture(gradient)

# %% [markdown]
# Right of the figure's line the scale is too large and the largest values clip: at a factor of 4 only 14 to 15 dB are left. `to_fp8` measures each tensor and cannot clip. Where a scale is chosen before the tensor is known, leave
# **headroom**: in FP8, a scale 2 or 4 times smaller than the largest that fits costs almost nothing.
#
# ### The three matmuls of a linear layer
#
# Let x have the shape (N, K), w the shape (M, K) and g, the gradient of the output, (N, M). Each of the three matmuls sums over a different axis:
#
# | matmul | computes | sums over |
# |---|---|---|
# | forward | `x @ w.T` | K, the inputs |
# | gradient of x | `g @ w` | M, the outputs |
# | gradient of w | `g.T @ x` | N, the tokens |
#
# The FP8 units of Hopper and Ada want both operands contiguous along the summed axis, so CUDA's `scaled_mm` takes a row-major and a column-major matrix. `scaled_matmul` below takes two row-major
# matrices and passes the second as `.t()`, a column-major view. For the gradients some operands must be transposed first. `.t()` alone moves no bytes: add `.contiguous()`. A CPU takes
# any layout, but inside `as_on_cuda()` it refuses what CUDA refuses.

# %%
import torch.nn.functional as F


def scaled_matmul(a, b):
    """a @ b.T in float32, for two pairs (codes, descale) with row-major codes (n, k) and (m, k)."""
    (a_codes, a_descale), (b_codes, b_descale) = a, b
    one = F.ScalingType.TensorWise
    return F.scaled_mm(
        a_codes, b_codes.t(), a_descale, one, b_descale, one, output_dtype=torch.float32
    )


# %%
from labkit.emulation import as_on_cuda

codes, descale = cast(torch.ones(32, 64), torch.float8_e4m3fn)
try:
    with as_on_cuda():
        scaled_matmul((codes.t(), descale), (codes.t(), descale))
except RuntimeError as error:
    print(error)


# %% [markdown]
# ### Exercise: the FP8 matmul
#
# *18 minutes, about 8 lines.* Write `Fp8Matmul`, an `autograd.Function` for `x @ w.T` whose three matmuls run in FP8 with one scale a tensor.
#
# - **Input:** `x` of shape (N, K), `w` of shape (M, K) and, in `backward`, the gradient `g` of shape (N, M): all float32, with N, K and M multiples of 16.
# - **Output:** `forward` returns `x @ w.T`; `backward` returns the gradients of `x`, `g @ w`, and of `w`, `g.T @ x`. All are float32.
# - `x` and `w` are cast to E4M3, and `g` is cast to E5M2 (the *hybrid* recipe), each with `cast`, which is your `to_fp8`. Every matmul goes through `scaled_matmul`.
# - The check applies CUDA's layout rules: the codes that you pass to `scaled_matmul` are row-major, that is contiguous.
# - **Example:** for 16 × 16 matrices, x of ones, w of twos and g of threes, `y` is 32, the gradient of x is 96 and that of w is 48 everywhere.


# %% exercise="fp8-matmul"
class Fp8Matmul(torch.autograd.Function):
    """x @ w.T in FP8, forward and backward."""

    @staticmethod
    def forward(ctx, x, w):
        ### BEGIN SOLUTION
        ctx.save_for_backward(x, w)
        return scaled_matmul(cast(x, torch.float8_e4m3fn), cast(w, torch.float8_e4m3fn))
        ### END SOLUTION

    @staticmethod
    def backward(ctx, g):
        ### BEGIN SOLUTION
        x, w = ctx.saved_tensors
        grad_x = scaled_matmul(
            cast(g, torch.float8_e5m2), cast(w.t().contiguous(), torch.float8_e4m3fn)
        )
        grad_w = scaled_matmul(
            cast(g.t().contiguous(), torch.float8_e5m2),
            cast(x.t().contiguous(), torch.float8_e4m3fn),
        )
        return grad_x, grad_w
        ### END SOLUTION


# %% check="fp8-matmul" points=3
check_fp8_matmul(Fp8Matmul)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write each of the three matmuls as `a @ b.T`. Which `a` and which `b` are they?
# </details>
# <details><summary>Hint 2</summary>
#
# Take 2×3 `x`, 4×3 `w` and 2×4 `g`. `scaled_matmul` adds up the last axis of both operands: 3 in `forward`. Over which axis does `g @ w` add up, and over
# which does `g.T @ x`? What must be transposed for that axis to be the last, and is the result of `.t()` contiguous?
# </details>
# <details><summary>Hint 3</summary>
#
# Fill in: `grad_x = scaled_matmul(cast(g, ...), cast(w.t().contiguous(), ...))`, and `grad_w` is the `scaled_matmul` of the transposed `g` and the transposed
# `x`. Return one gradient for each argument of `forward`.
# </details>
#
# Now repeat the 40 steps with your scaled matmul in all eight linear layers of the blocks. torchao's `Float8Linear` works like the class below.

# %%
Matmul = yours(Fp8Matmul, ours.Fp8Matmul)


class Fp8Linear(torch.nn.Linear):
    def forward(self, x):
        y = Matmul.apply(x.flatten(0, -2), self.weight)
        return y.unflatten(0, x.shape[:-1]) + self.bias


def in_fp8(model):
    for module in model.blocks.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = Fp8Linear
    return model


with_scales, nonzero_scaled = learn(in_fp8)
claim(
    f"{whose(Matmul)} FP8 matmuls stay within 0.03 nats of FP32",
    abs(with_scales[-1] - in_fp32[-1]) < 0.03,
)
claim("over 99 % of the blocks' weight gradients are not 0", nonzero_scaled > 0.99)

# %% [markdown]
# One scale a tensor is enough here: the layers in the blocks learn.
#
# ### Delayed scaling
#
# *Optional.* `to_fp8` reads the tensor twice: for its largest magnitude and for the cast. **Delayed scaling**, Transformer Engine's first recipe, casts with a scale from
# earlier steps and records this step's magnitude in the same pass. A value above the whole history clips, so a `margin` leaves headroom. The history is state: save it
# in checkpoints, and do not update it in evaluation.
#
# ### Exercise: delayed scaling
#
# *14 minutes, optional, about 3 lines change.* Each step's scale must come from the steps *before* it.
# The method below has three faults. Write `Delayed` without them.
#
# ```python
# def cast(self, x, dtype):
#     codes = (x * self.scale).clamp(-self.largest, self.largest).to(dtype)
#     self.history = [*self.history[1:], x.abs().max().item()]
#     if max(self.history) > 0:
#         self.scale = self.largest / max(self.history)
#     return codes, 1 / self.scale
# ```
#
# - **Input:** `largest` is the format's largest value, such as 448.0; `length` is how many magnitudes the history holds; `margin` is a whole number.
#   `cast` takes a float32 tensor `x` and an FP8 dtype.
# - **Output:** `(codes, descale)`, both of this step: `codes.float() * descale` is close to `x`, as far as `x` stays below ±`largest` × `descale`. Beyond, codes saturate.
# - The scale is `largest / max(history) / 2**margin`. It is 1 at first and stays as it was while the history holds only zeros.
# - After a largest magnitude that is inf or NaN, history and scale stay as they are. The codes of inf and NaN are not checked.
# - **Example:** with largest 448, length 2 and margin 0, tensors with the largest magnitudes 1, 2 and 4 are cast with scales 1, 448 and 224.


# %% exercise="delayed"
class Delayed:
    """FP8 casts of one tensor, each with a scale from the steps before it."""

    def __init__(self, largest, length=16, margin=0):
        self.largest, self.margin = largest, margin
        self.history, self.scale = [0.0] * length, 1.0

    def cast(self, x, dtype):
        """The codes and the descale of this step; then x's largest magnitude is remembered."""
        ### BEGIN SOLUTION
        codes = (x * self.scale).clamp(-self.largest, self.largest).to(dtype)
        descale = 1 / self.scale
        amax = x.abs().max().item()
        if math.isfinite(amax):
            self.history = [*self.history[1:], amax]
        if max(self.history) > 0:
            self.scale = self.largest / max(self.history) / 2**self.margin
        return codes, descale
        ### END SOLUTION


# %% check="delayed" points=0
check_delayed(Delayed)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which scale made the codes, and which one does the last line return? What happens to the history if a step overflows?
# </details>
# <details><summary>Hint 2</summary>
#
# Take `largest` 4, length 2, margin 1 and the magnitudes 1, inf, 2. The scales are 1, 2, 2, and 1 after that. Follow the lines of the statement: which descale do they return at step 1, and what
# is 1 / scale at step 2?
# </details>
# <details><summary>Hint 3</summary>
#
# Keep `descale = 1 / self.scale` before anything changes, store the magnitude only `if math.isfinite(...)`, and divide the new scale by `2**...`.
# </details>
#
# ### Narrow accumulators
#
# *Optional.* Sums are narrow too. DeepSeek-V3's authors found that Hopper's FP8 units keep about 14 bits of a running sum. Their kernels therefore **promote** the sum: they add it to a float32 sum every 128 products. The cell
# computes the relative error of a sum of positive products, where every truncation errs in the same direction, for two models of such a unit. One truncates after each product; the other adds 32 products exactly before it truncates.

# %%
intervals = (32, 128, 512, 1024, 4096)
each = figures.accumulator_errors(intervals, together=1)
many = figures.accumulator_errors(intervals, together=32)
for name, errors in {"after each product": each, "after 32 products": many}.items():
    print(f"truncated {name:19} never promoted {errors[4096]:.2f} %, every 128 {errors[128]:.3f} %")

# %% tags=["nbval-ignore-output"]
figures.accumulator_picture(each, many)

# %% [markdown]
# Promotion every 128 products cuts the error about 100-fold in the first model and 24-fold in the second. NVIDIA does not say how
# the units add, and DeepSeek's description leaves open whether the running sum is cut with the products, which decides between the two curves. So 128 cannot be derived here; in DeepSeek's experiments it was the shortest interval that costs little time.
#
# **Stop here** if you like. Sitting B, on blocks and four bits, begins with a cell of its own.
#
# ## Sitting B: a scale for each block
#
# *You are here:* why FP8 → scales → three matmuls → *stop* → **blocks** → four bits → a recipe

# %%
import torch
from labkit.formats import E2M1, E4M3, mx, nvfp4, quantize, scaled
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.fp8_and_fp4 import predictions as guesses, solutions as ours
from labkit.labs.fp8_and_fp4.checks import check_mx_block, check_nvfp4_block, check_recipe

# %% [markdown]
# ### One outlier in a block
#
# With one scale, in E4M3, another value than the largest survives unless it is 458,752 times (2¹⁸·⁸) smaller. In E2M1, with the magnitudes
# 0, 0.5, 1, 1.5, 2, 3, 4 and 6, everything that is 24 times smaller becomes 0: one outlier empties the tensor. **Block scaling** gives a scale to each block of neighbours along
# the summed axis, 32 in MXFP8 and MXFP4 and 16 in NVFP4, so an outlier harms only its own block. In the widget, double one value of a real gradient until its neighbours become 0, with one scale and with blocks.

# %% tags=["nbval-ignore-output"]
from labkit.labs.fp8_and_fp4.widget_block_bench import BlockBench

BlockBench()

# %% [markdown]
# In sitting A's gradient, the largest magnitude is 750 times the median. The table casts it.

# %%
import pandas as pd
from labkit.labs.fp8_and_fp4.layer_tensors import layer_tensors, sqnr

activation, gradient = layer_tensors()
casts = {
    "E4M3, one scale": scaled(gradient, E4M3, overflow="saturate"),
    "MXFP8": mx(gradient, E4M3, overflow="saturate"),
    "E2M1, one scale": scaled(gradient, E2M1, overflow="saturate"),
    "MXFP4": mx(gradient, E2M1, overflow="saturate"),
    "NVFP4": nvfp4(gradient, overflow="saturate"),
}


def facts(cast):
    stored = cast.dequantize()
    zeros = ((stored == 0) & (gradient != 0)).double().mean().item()
    return f"{cast.bits_per_value:.2f}", f"{zeros:.0%}", f"{sqnr(gradient, stored):.1f}"


rows = {name: facts(cast) for name, cast in casts.items()}
pd.DataFrame(rows, index=["bits a value", "became 0", "SQNR, dB"]).T

# %% [markdown]
# In FP4, blocks halve the zeros. In FP8 they gain no SQNR on this tensor: with one scale only 4 % become 0, and MXFP8 even loses 2.4 dB.
#
# ### MX: a power of two for 32 values
#
# The **MX** formats of the Open Compute Project store a power of two (in E8M0, an 8-bit exponent) for each 32 values. Three common rules choose it from the block's
# largest magnitude, *amax*. For amax = 3.9 in E4M3:
#
# - **floor**, the specification's: 3.9 lies in 2¹ to 2² and 448 in 2⁸ to 2⁹, so the scale is 2⁻⁷. 3.9 / 2⁻⁷ is 499 and clips to 448, an error of 10 %.
# - **up**: the smallest scale without clipping, 2⁻⁶.
# - **even**: floor, after amax is rounded to the format's mantissa bits. 3.9 becomes 4, so 2⁻⁶.

# %%
rules = {
    f"{name} of the {what}": {
        rule: f"{sqnr(x, mx(x, fmt, rule=rule, overflow='saturate').dequantize()):.1f} dB"
        for rule in ("floor", "up", "even")
    }
    for name, fmt in {"MXFP8": E4M3, "MXFP4": E2M1}.items()
    for what, x in {"activation": activation, "gradient": gradient}.items()
}
pd.DataFrame(rules).T

# %% [markdown]
# In MXFP8, the floor rule, which the first table used, clips and costs 1.3 and 2.4 dB. Rounded up, MXFP8 equals one scale on this gradient. NVIDIA reports that pre-training can diverge with the floor rule, and rounds up (arXiv:2506.08027). In MXFP4, rounding up hardly matters: fewer values clip, but more become 0.
#
# ### Exercise: an MXFP8 cast
#
# *14 minutes, optional, about 6 lines.* Write `to_mx(x)`, the MXFP8 cast of the OCP specification, without labkit's `mx`.
#
# - **Input:** a float32 tensor of shape (rows, K), K a multiple of 32, without inf and NaN. A block is 32 neighbours of one row. It holds only zeros, or its
#   largest magnitude is between 2⁻⁶⁰ and 2¹⁰⁰.
# - **Output:** `(codes, scales)`: `codes` of shape (rows, K) in `torch.float8_e4m3fn`, `scales` of shape (rows, K / 32) in
#   `torch.float8_e8m0fnu`. Values are `codes * scales`.
# - The floor rule: the scale is `2**(e - 8)`, where e is the exponent of the block's largest magnitude: `2**e <= amax < 2**(e + 1)`. 8 is the
#   exponent of E4M3's largest value, 448. A code is the value divided by its block's scale, clamped to ±448 and cast to E4M3.
# - **Example:** a block whose largest magnitude is 3.5 has e = 1 and the scale 2⁻⁷. The code of 3.5 is 448; that of 3.9 would be 448 as well.
# - **Edge cases:** a block of zeros has zeros as its codes, and any scale but NaN. The exponent is exact: the float32 just below 1024 has e = 9.


# %% exercise="mx-block"
def to_mx(x):
    """MXFP8 by the floor rule: codes (rows, K) in E4M3, scales (rows, K / 32) in E8M0."""
    # `torch.frexp(a)` gives m and e with a = m * 2**e and 0.5 <= m < 1.
    ### BEGIN SOLUTION
    blocks = x.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1)
    exponent = torch.where(amax > 0, torch.frexp(amax).exponent - 1 - 8, -127)
    scales = torch.exp2(exponent.clamp(-127, 127).float())
    codes = (blocks / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(-2), scales.to(torch.float8_e8m0fnu)
    ### END SOLUTION


# %% check="mx-block" points=0
check_mx_block(to_mx)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.frexp(3.5)` gives the exponent 2, and the specification's e is 1. What is to be subtracted in all?
# </details>
# <details><summary>Hint 2</summary>
#
# Suppose a block has 2 values and the format ends at 6 = 1.5 × 2². The block [5, 1] has e = 2, so its scale is `2**(2 - 2)` = 1 and its codes are 5 and 1
# rounded. What are the scale and the codes of [7, 1]?
# </details>
# <details><summary>Hint 3</summary>
#
# `blocks = x.unflatten(-1, (-1, 32))` has one block in each row of its last axis. Fill in: `exponent = torch.frexp(blocks.abs().amax(-1)).exponent - ...`,
# then `scales = torch.exp2(exponent.clamp(-127, 127).float())`, then `codes = (blocks / scales[..., None])` clamped to ±... and cast.
# </details>
#
# ### NVFP4: two scales, and FP4 values
#
# With the floor rule, a block's largest value is anywhere from 4 to 8 after the division, and E2M1 ends at 6. **NVFP4** stores the block scale in E4M3, whose mantissa bits put the block's largest value near 6; and a block has
# 16 values. But E4M3 reaches only from 2⁻⁹ to 448, and sitting A's gradient needs block scales below 2⁻¹². So a second scale, a float32 number for the tensor, brings the largest block scale to 448.

# %%
without = nvfp4(gradient, tensor_scale=False, overflow="saturate").dequantize()
print(f"without the tensor's scale: {(without == 0).double().mean():.1%} of the codes are 0")

# %% [markdown]
# `fp4(x)` rounds float32 values to E2M1. The values stay in float32; magnitudes above 6 become ±6.


# %%
def fp4(x):
    return quantize(x, E2M1, saturate=True)


# %% [markdown]
# ### Exercise: NVFP4
#
# *14 minutes, about 6 lines.* Write `to_nvfp4(x)` without labkit's `nvfp4` and `scaled`.
#
# - **Input:** a float32 tensor of shape (rows, K), K a multiple of 16, without inf and NaN, with at least one value that is not 0. A block is 16 neighbours of one row.
# - **Output:** `(values, block_scales, tensor_scale)`: float32 values on E2M1's grid, shape (rows, K); `torch.float8_e4m3fn` of shape (rows, K / 16); a float32 tensor
#   with one value. `x` is close to values × block scale × tensor scale.
# - `tensor_scale` is the largest magnitude of `x` divided by 448 × 6, so that the block that holds it has the block scale 448.
# - A block's scale is its largest magnitude divided by 6 and by `tensor_scale`, clamped to the range from 2⁻⁶ to 448, and cast to E4M3. 2⁻⁶ is E4M3's smallest normal value; below it E4M3 loses precision.
# - Divide the block by the scales as *stored*, not by the unrounded ones, and round with `fp4`.
# - **Example:** let the largest magnitudes of two blocks be 3 and 0.3. `tensor_scale` is 3 / 2688. The block scales are 448 and 44, the E4M3 value nearest to 44.8. In the second block 0.1 becomes 2.
# - **Edge cases:** a block of zeros has the block scale 2⁻⁶ and values 0. Tensors whose values are all near 1e-5 or near 1e4 need no special case.


# %% exercise="nvfp4-block"
def to_nvfp4(x):
    """NVFP4: values (rows, K) on E2M1's grid, block scales (rows, K / 16) in E4M3, tensor scale."""
    ### BEGIN SOLUTION
    blocks = x.unflatten(-1, (-1, 16))
    tensor_scale = x.abs().amax() / (448 * 6)
    wanted = blocks.abs().amax(-1) / 6 / tensor_scale
    block_scales = wanted.clamp(2**-6, 448).to(torch.float8_e4m3fn)
    values = fp4(blocks / (block_scales.float() * tensor_scale)[..., None])
    return values.flatten(-2), block_scales, tensor_scale
    ### END SOLUTION


# %% check="nvfp4-block" points=3
check_nvfp4_block(to_nvfp4)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A block's scale is stored in E4M3. Which range of numbers can it hold, and which factor moves your scales into that range?
# </details>
# <details><summary>Hint 2</summary>
#
# Take two blocks of two values, [6, 3] and [2.6, 0.1], and let block scales be whole numbers up to 4. The tensor scale is 6 / (4 × 6) = 0.25. The first block's
# scale is 6 / 6 / 0.25 = 4. What is the second's before and after rounding, and by which number do you divide 2.6?
# </details>
# <details><summary>Hint 3</summary>
#
# Fill in: `wanted = blocks.abs().amax(-1) / ... / tensor_scale`, then `block_scales = wanted.clamp(2**-6, 448).to(...)`, then
# `fp4(blocks / (block_scales.float() * ...)[..., None])`.
# </details>

# %%
to_four_bits = yours(to_nvfp4, ours.to_nvfp4)
values, block_scales, tensor_scale = to_four_bits(gradient)
same = torch.equal(values, casts["NVFP4"].codes)
claim(f"{whose(to_four_bits)} codes are those of labkit.formats.nvfp4", same)

# %% [markdown]
# ### Stochastic rounding of gradients
#
# Rounded to nearest, a small element of a gradient becomes 0, and its contribution is lost. **Stochastic rounding** (lab 03) chooses between the two neighbours by chance, so that the mean is
# right. NVFP4 recipes use it for gradients. To nearest, NVFP4 keeps this gradient with 21.3 dB.


# %% predict="stochastic-once"
@predict(guesses.stochastic_once)
def once_db():
    chance = torch.Generator().manual_seed(0)
    once = nvfp4(gradient, rounding="stochastic", generator=chance, overflow="saturate")
    return round(sqnr(gradient, once.dequantize()), 1)


# %% [markdown]
# One stochastic cast has 17.6 dB, because it often takes the neighbour that is further away. The mean of many casts is better, and an optimizer adds the gradients of many
# steps. So the SQNR of one batch cannot judge stochastic rounding.

# %%
from functools import partial


def mean_of(count, cast):
    chance = torch.Generator().manual_seed(0)
    how = {"rounding": "stochastic", "generator": chance, "overflow": "saturate"}
    return sum(cast(gradient, **how).dequantize().double() for _ in range(count)) / count


fours = {"NVFP4": nvfp4, "MXFP4": partial(mx, fmt=E2M1)}
for count in (1, 4, 16):
    found = [
        f"{name} {sqnr(gradient, mean_of(count, cast)):.1f} dB" for name, cast in fours.items()
    ]
    print(f"mean of {count:2} stochastic casts:", *found)


# %% [markdown]
# MXFP4 gains less, because a clipped value always becomes ±6, so the mean of many casts keeps its error.
#
# ### A rotation before the cast
#
# A **random Hadamard transform** (RHT) multiplies each group of 16 values by a Hadamard matrix H, with orthogonal rows of ±1/4 and random signs for its columns, and so spreads an outlier over its group. NVFP4's recipe
# rotates both operands of the weight gradient's matmul along the tokens, where H cancels: (Hg)ᵀ(Hx) = gᵀx. The cell rotates the gradient along the tokens, casts it in blocks of tokens and rotates it back.

# %%
from labkit.training.low_bit import hadamard

plain, rotation, by_token = torch.eye(16), hadamard(16, seed=0), gradient.t().contiguous()


def db(cast, H):
    turned = (by_token.unflatten(-1, (-1, 16)) @ H.T).flatten(-2)
    back = (cast(turned).dequantize().unflatten(-1, (-1, 16)) @ H).flatten(-2)
    return sqnr(by_token, back)


fp4_casts = {
    "one scale": lambda x: scaled(x, E2M1, overflow="saturate"),
    "MXFP4": lambda x: mx(x, E2M1, overflow="saturate"),
    "NVFP4": lambda x: nvfp4(x, overflow="saturate"),
}


# %% predict="rotation"
@predict(guesses.rotation)
def gains():
    return [db(cast, rotation) > db(cast, plain) for cast in fp4_casts.values()]


# %% [markdown]
# One scale and MXFP4 gain, and NVFP4 loses. Outliers hold most of this gradient's energy. NVFP4's scale puts an outlier near 6 and stores it with an error of at most 6 %. With MXFP4's power of two it lies
# between 4 and 8, where rounding errs by up to 20 % and clipping by up to 25 %. After the rotation the values are nearly normally distributed, and MXFP4 and NVFP4 have the SQNR that they have for such values: about 19 and 20 dB.

# %%
for name, by in fp4_casts.items():
    print(f"{name:10} plain {db(by, plain):4.1f} dB, rotated {db(by, rotation):4.1f} dB")

# %% [markdown]
# ### Two copies of one weight
#
# Blocks lie along the summed axis: K in the forward matmul, M in that for the gradient of x. So a weight is cast twice, along its rows and along its columns. Where the two
# copies differ, the forward and backward passes use different weights.

# %%
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

test_text = shakespeare_split()[1]
weight = trained_gpt().blocks[1].feed_forward[0].weight.detach()
copies = {
    "E4M3, 32, float32 scales": partial(scaled, weight, E4M3, granularity="block", block=32),
    "E4M3, 32, scales 2**k": partial(mx, weight, E4M3, rule="up"),
    "NVFP4, 16": partial(nvfp4, weight),
    "NVFP4, 16 x 16": partial(nvfp4, weight, square=True),
}
for name, copied in copies.items():
    rows, columns = (copied(axis=axis, overflow="saturate").dequantize() for axis in (1, 0))
    differ = (rows != columns).double().mean()
    print(f"{name:26} {differ:4.0%} of the values differ, {sqnr(weight, rows):.1f} dB")

# %% [markdown]
# There are two remedies. One is scales that are powers of two: in E4M3 they change only the exponent of a code, so the copies agree unless a value clips or becomes subnormal. NVFP4's scales are not powers of two,
# so its recipe has **square blocks** for weights, 16 × 16, at a cost of 1.5 dB.
#
# ### Ten seeds a recipe
#
# For the figure, the GPT was trained from scratch with each recipe and ten seeds, for 300 steps. All recipes of a seed start from the same weights and read the same text. Lab 06's paired
# verdict compares their bits a character with FP32's, against a margin of 0.02 that was named beforehand. `tensorwise` is one scale a tensor, `fp8_` is hybrid, `mx` uses the floor rule, `sr` rounds gradients stochastically, `rht` rotates,
# and `square` has 16 × 16 blocks of weights.

# %% tags=["nbval-ignore-output"]
from labkit.labs.fp8_and_fp4.recorded import mechanisms_table
from labkit.labs.fp8_and_fp4.figures import gaps_picture

gaps_picture()

# %% [markdown]
# The table compares the recipe that has a published mechanism with the one that lacks it. *Mechanism visible*: the verdict is "better", the whole interval above the margin. *Visible only if*: better, but only under the condition that the row names. *Not visible at this scale*: neither of these,
# which does not prove that there is no advantage.

# %%
mechanisms_table()

# %% [markdown]
# In these runs one scale a tensor rescues E4M3, and FP8 with one scale then ends within the margin of FP32. In four bits, blocks help, and NVFP4's scales beat MXFP4's. Blocks in FP8, E5M2 for gradients, stochastic rounding, rotation and square blocks show no advantage.
# Without scales, E5M2 gradients end even higher than E4M3's; this lab does not explain why. None of this
# refutes NVIDIA's NVFP4 run (12 B parameters, 10 trillion tokens): small errors of one sign add up over a long run, and large models have larger outliers.
#
# ### Exercise: choose a recipe
#
# *12 minutes, optional, 6 words.* A linear layer has three matmuls: `y = x @ w.T`, `dX = grad @ w` and `dW = grad.T @ x`. `recipe` says in which format each
# of their six operands is stored. `quality(recipe)` stores the operands of one layer of the trained GPT, from one real batch, in these formats, and gives the SQNR of y, dX and dW in dB. It does not train; it
# shows which recipes are worth training.
#
# - **Input:** none. **Output:** a dict with the keys `x`, `w`, `dx_grad`, `dx_w`, `dw_grad` and `dw_x`, and names of `FORMATS` as values:
#   `e4m3`, `e5m2` and `e2m1` have one scale a tensor, `mxfp8` and `mxfp4` use the floor rule, `nvfp4` rounds to nearest, and `nvfp4_sr` stochastically.
# - **Goals:** at most 5.7 bits an operand on average, 17 dB or more for y and for dX, and 28 dB or more for dW. These goals are made up for the exercise.
# - **Example:** all six in `"e4m3"` gives 31.1, 28.2 and 29.1 dB, and takes 8 bits.

# %%
from labkit.labs.fp8_and_fp4.recipes import FORMATS, OPERANDS, quality

print("bits a value:", {name: operand.bits for name, operand in FORMATS.items()})
{name: round(db, 1) for name, db in quality(dict.fromkeys(OPERANDS, "e4m3")).items()}

# %% exercise="recipe"
recipe = ...
### BEGIN SOLUTION
recipe = {
    "x": "nvfp4", "w": "nvfp4",
    "dx_grad": "nvfp4", "dx_w": "nvfp4",
    "dw_grad": "e4m3", "dw_x": "e4m3",
}  # fmt: skip
### END SOLUTION

# %% check="recipe" points=0
check_recipe(recipe)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which matmul has the highest goal? Give its operands what they need, and see how many bits are left for the other four.
# </details>
# <details><summary>Hint 2</summary>
#
# Try one operand at a time: `quality(dict.fromkeys(OPERANDS, "e4m3") | {"dx_grad": "mxfp4"})`. The weaker of two operands decides the result. Which format of 8 bits and which of
# about 4 loses least?
# </details>
# <details><summary>Hint 3</summary>
#
# Four operands share one format of 4.5 bits, and the two of dW share one of 8: (4 × 4.5 + 2 × 8) / 6 = 5.67. Fill in:
# `recipe = dict.fromkeys(OPERANDS, ...) | dict.fromkeys(("dw_grad", "dw_x"), ...)`.
# </details>
#
# ### What real stacks do in 2026
#
# Scales are of three kinds. *Delayed* scales come from earlier steps: they need one pass, but a sudden larger value clips silently. *Current* scales, such as those of `to_fp8`, fit the tensor and need a second pass. With *block* scales an outlier harms only its own block, at the cost of more scales
# and of a second cast along the other axis. With all three, master weights stay in FP32.
#
# | stack | formats and scales |
# |---|---|
# | torchao `float8` | `rowwise`: E4M3 for all operands, a scale 2ᵏ a row; `tensorwise` (default): one scale a tensor, hybrid; MXFP8 and NVFP4 are prototypes |
# | TorchTitan | torchao by configuration; `filter_fqns` leaves out named layers such as `lm_head`, and with `auto_filter_small_kn` small ones |
# | Transformer Engine | `DelayedScaling` and `Float8CurrentScaling` (hybrid), `Float8BlockScaling`, `MXFP8BlockScaling` (E4M3), `NVFP4BlockScaling` |
# | DeepSeek-V3 | E4M3 only; 1 × 128 blocks of activations, 128 × 128 of weights; embedding, head, gates, norms and the attention operators stay wider |
# | NVIDIA's NVFP4 run | 12 B parameters, 10 trillion tokens: 16 × 16 blocks of weights, stochastic rounding, RHT, some layers wider |
#
# Stacks usually leave out the head, small layers that do not repay the casts, and layers whose sizes are not multiples of 16. The cell converts all layers of the GPT but the head with torchao (FP32: 2.104).

# %% tags=["nbval-ignore-output"]
from labkit.base.home import import_optional


try:
    float8, model = import_optional("torchao.float8"), trained_gpt()
    config = float8.Float8LinearConfig.from_recipe_name("rowwise")
    float8.convert_to_float8_training(
        model, module_filter_fn=lambda module, name: name != "head", config=config
    )
    print(f"torchao, rowwise E4M3: {bits_per_character(model, test_text):.3f} bits a character")
except ImportError as error:
    print(error)

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The ledger is the table that lab 00 began. `stored` rounds all eleven matrices of the GPT, embeddings and head too, counts codes and scales, and keeps biases and norms in FP16. The last column but one is a lower bound on
# the time that a token of an 8 B model takes: an H100 reads all weights once for each token. The H100 has no matmuls in FP4, so there a kernel casts these weights to BF16 after reading them.

# %% tags=["nbval-ignore-output"]
from labkit.measuring.ledger import Ledger, stored


def casting(cast):
    def to_format(name, weight):
        packed = cast(weight)
        return packed.dequantize(), packed.bits_per_value * weight.numel() / 8

    return to_format


def by_yours(name, weight):
    values, block_scales, tensor_scale = to_four_bits(weight)
    blocks = values.unflatten(-1, (-1, 16)) * (block_scales.float() * tensor_scale)[..., None]
    return blocks.flatten(-2), weight.numel() / 2 + block_scales.numel() + 4


gpt, ledger = trained_gpt(), Ledger()
forms = {
    "E4M3, a scale a tensor": casting(lambda weight: scaled(weight, E4M3, overflow="saturate")),
    "MXFP4": casting(lambda weight: mx(weight, E2M1, overflow="saturate")),
}
rows = [ledger.add("08_fp8_and_fp4", form, *stored(gpt, cast)) for form, cast in forms.items()]
by = whose(to_four_bits)
rows.append(ledger.add("08_fp8_and_fp4", "NVFP4", *stored(gpt, by_yours), whose=by))

# %% tags=["nbval-ignore-output"]
e4m3, mxfp4, in_nvfp4 = rows
claim("E4M3 costs less than 0.02 bits a character", e4m3.bits < 2.1044 + 0.02)
claim(f"NVFP4 with {by} cast costs less than MXFP4", in_nvfp4.bits < mxfp4.bits - 0.03)
ledger

# %% [markdown]
# The GPT was not trained for four bits. Lab 09 rounds such weights better, and trains adapters on a four-bit base.
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("08_fp8_and_fp4")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., arXiv:2209.05433 (FP8). OCP, *Microscaling Formats (MX) v1.0*. DeepSeek-AI, arXiv:2412.19437, sections 3.3 and 3.5.2. NVIDIA, arXiv:2509.25149 (NVFP4). Mishra et al.,
# arXiv:2506.08027 (MXFP8). Tseng et al., arXiv:2502.20586 (MXFP4 with stochastic rounding and RHT). Transformer Engine 2.15, `common.recipe`. torchao 0.18, `torchao.float8`. TorchTitan, `docs/float8.md`. Peaks: data/gpus.csv.
#
# **Next.** [Lab 09: quantization, and fine-tuning in four bits](09_quantization.ipynb).
