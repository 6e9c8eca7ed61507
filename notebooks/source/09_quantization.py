# %% [markdown]
# # 9. Quantization, and fine-tuning in four bits: a parcel with a weight limit
#
# You bring a trained GPT from 452 kB to at most 75 kB at a loss that you can state, and then fine-tune it in four bits.
#
# *any laptop · needs: labs 02 and 05, least squares*
#
# After this lab you can:
#
# - run a linear layer in integers, round weights to four bits by GPTQ, and train FP32 adapters on a frozen 4-bit base;
# - say which scale a tensor needs, what each bit costs, and when a remedy for outliers is worth nothing.
#
# ## Sitting A: integers in place of floats
#
# *You are here:* **eight bits** → the affine grid → where to cut → integers only → *stop*

# %%
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.quantization import predictions as guesses, solutions as ours
from labkit.labs.quantization.checks import check_fake_quant, check_integer_linear
from labkit.training import bits_per_character, trained_gpt

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("09_quantization")

# %% [markdown]
# ### Eight bits are free
#
# ### The affine grid
#
# ### Where to cut
#
# ### Sums of int8

# %%
a = torch.full((16,), 100, dtype=torch.int8)
b = torch.full((16,), 100, dtype=torch.int8)


# %% predict="int8-product"
@predict(guesses.int8_product)
def product():
    return (a @ b).item()


# %% [markdown]
# The exact sum is 160,000.

# %% [markdown]
# ### Exercise: a linear layer in integers
#
# *16 minutes, about 7 lines.* Write `integer_linear`, a linear layer whose input, weight and output are integer codes.
#
# - **Input:** `x` uint8 (N, in) with scale `sx` (float) and zero point `zx` (int); `w` int8 (out, in), symmetric, with one scale a row, `sw` float32
#   (out); `bias` float32 (out). `lo` and `hi` are floats: the smallest and the largest output that calibration saw.
# - **Output:** `(y, sy, zy)`: codes uint8 (N, out), the scale (float) and the zero point (int) of the output.


# %% exercise="integer-linear"
def integer_linear(x, w, bias, sx, zx, sw, lo, hi):
    """Output codes (uint8), their scale and their zero point."""
    ### BEGIN SOLUTION
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    acc = (x.int() - zx) @ w.int().t() + torch.round(bias / (sx * sw)).int()
    y = torch.round(acc.double() * (sx * sw / sy).double()) + zy
    return y.clamp(0, 255).to(torch.uint8), sy, zy
    ### END SOLUTION


# %% check="integer-linear" points=3
check_integer_linear(integer_linear)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which real number does the input code `zx` stand for?
# </details>
#
# ### Integers only: the digit reader
#
# ### Static and dynamic
#
# ### Optional: training with the rounding

# %% predict="without-ste"
@predict(guesses.without_ste)
def accuracy():
    return "higher"


# %% [markdown]
# The weights did not change.

# %% [markdown]
# ### Exercise: fake quantization
#
# *8 minutes, optional, about 5 lines.* Write `fake_quant`, which rounds to the grid and returns floats, and lets the gradient through.
#
# - **Input:** `x`, float32, any shape; `scale`, a float or a tensor that broadcasts; `zero` (int), `low`, `high`: the codes' range.
# - **Output:** the value of the nearest code, `(code - zero) * scale`, in float32.
# - **Gradient:** 1 where the rounded code lies in low to high, before it is clamped; 0 outside.


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
# `t.detach()` has t's values and no gradient.
# </details>
#
# **A stopping point.**

# %% [markdown]
# ## Sitting B: four bits, and fine-tuning
#
# *You are here:* **one scale for whom** → GPTQ → outliers → adapters → the weight limit

# %%
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.quantization import predictions as guesses, solutions as ours
from labkit.labs.quantization.checks import check_gptq, check_lora_linear, check_smooth
from labkit.training import bits_per_character, trained_gpt

# %% [markdown]
# ### One scale for whom
#
# ### GPTQ

# %% [markdown]
# ### Exercise: GPTQ
#
# *16 minutes, about 8 lines.* Write `gptq`, which rounds one column after another and lets the columns to its right make up for the error.
#
# - **Input:** `W` float32 (out, in); `X` float32 (N, in), inputs of the layer; `scale` float32 (out, 1); `damp`.
# - **Output:** float32 (out, in): a code from -7 to 7 times its row's scale. `W` stays as it is.


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
    H += damp * H.diag().mean() * torch.eye(len(H))
    U = torch.linalg.cholesky(torch.linalg.inv(H), upper=True)
    for j in range(W.shape[1]):
        Q[:, j] = nearest(W[:, j], scale[:, 0])
        W[:, j:] -= torch.outer((W[:, j] - Q[:, j]) / U[j, j], U[j, j:])
    return Q
    ### END SOLUTION


# %% check="gptq" points=3
check_gptq(gptq)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Suppose column 0 is rounded up by 0.3.
# </details>


# %% predict="gptq-weight-error"
@predict(guesses.gptq_weight_error)
def errors():
    return "are larger and smaller"


# %% [markdown]
# The weights' error is larger.

# %% [markdown]
# ### Outliers
#
# ### Exercise: smooth
#
# *8 minutes, optional, about 4 lines.* Write `smooth`, which moves the size of a LayerNorm's output channels into the next layer's weight.
#
# - **Input:** `norm`, an `nn.LayerNorm` with gain and bias; `linear`, the `nn.Linear` that reads it; `amax` (in), the largest magnitude
#   of each channel that calibration saw; `alpha`.
# - **Effect:** in place. Channel j of `norm`'s output is divided by s[j] = amax[j] ** alpha / (largest |weight| of column j) ** (1 - alpha),
#   and the layer's output stays what it was.


# %% exercise="smooth"
@torch.no_grad()
def smooth(norm, linear, amax, alpha=0.5):
    """SmoothQuant's rescaling, in place."""
    ### BEGIN SOLUTION
    s = amax**alpha / linear.weight.abs().amax(dim=0) ** (1 - alpha)
    norm.weight /= s
    norm.bias /= s
    linear.weight *= s
    ### END SOLUTION


# %% check="smooth" points=0
check_smooth(smooth)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which three tensors carry channel j?
# </details>
#
# ### The KV cache
#
# ### Fine-tuning in four bits
#
# ### Exercise: adapters on a 4-bit layer
#
# *14 minutes, about 10 lines.* Write `LoRALinear`: a frozen 4-bit weight, and two small FP32 matrices that learn.
#
# - **Input of `__init__`:** `codes` int8 (out, in), from -7 to 7; `scale` (out, 1) float16; `bias` float32 (out); `rank`; `alpha`.
# - Parameters: `A` (rank, in) and `B` (out, rank), float32, and no others. B starts at 0 and A does not. Codes, scale and bias are
#   buffers.
# - **forward(x):** x of any floating dtype (..., in) to BF16 (..., out): the matmul with the weight codes * scale in BF16, plus the
#   bias, plus alpha / rank times B A x, with both factors cast to BF16.


# %% exercise="lora-linear"
class LoRALinear(torch.nn.Module):
    """A frozen 4-bit linear layer with FP32 adapters."""

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
        weight = (self.codes * self.scale.float()).bfloat16()
        base = torch.nn.functional.linear(x, weight, self.bias.bfloat16())
        return base + self.factor * (x @ self.A.bfloat16().T @ self.B.bfloat16().T)
        ### END SOLUTION


# %% check="lora-linear" points=3
check_lora_linear(LoRALinear)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What must an optimizer find in `layer.parameters()`?
# </details>
#
# ### Your GPT: the weight limit
#
# ### With torchao
#
# ### Quantization in 2026
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
# **Sources.**
#
# **Next.** [Lab 16: interview](16_interview.ipynb).
