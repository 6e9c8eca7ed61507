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
# *16 minutes, about 8 lines.* Write `integer_linear`, a linear layer whose input, weight and output are integer codes.
#
# - **Input:** `x` uint8 (N, in), where a code c stands for `sx * (c - zx)`; `w` int8 (out, in), where row i stands for `sw[i] * w[i]`;
#   `sw` float32 (out); `bias` float32 (out); `sx`, `lo` and `hi` floats, `zx` an int. `lo` and `hi` are the smallest and the largest output
#   that calibration saw.
# - **The output's grid:** if `lo` is above 0 or `hi` below 0, that end of the range becomes 0. `sy` is `(hi - lo) / 255`, and `zy` the integer nearest to
#   `-lo / sy`.
# - **Output:** `(y, sy, zy)`, where `y` is uint8 (N, out). Sum `(x - zx) * w` in int32. Add the bias as an integer, the one nearest to
#   `bias / (sx * sw)`. Multiply by `sx * sw / sy`, round to the nearest integer, add `zy`, and clamp to 0 to 255.
# - **Example:** x = [[130, 120]], w = [[2, 1]], bias = [0.3], sx = 0.5, zx = 128, sw = [0.25], lo = -2, hi = 3. The sum is 2 * 2 - 8 = -4, the
#   bias adds 2, and -2 * 0.125 / sy is -12.75. So y = [[89]], sy = 0.0196 and zy = 102.
# - **Edge case:** with 1,040 inputs a sum can pass 2²⁵, where float32 holds only every fourth integer.


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
# *8 minutes, optional, about 5 lines.* Write `fake_quant`, which rounds `x` to the grid, returns floats, and lets the gradient through.
#
# - **Input:** `x` float32, any shape; `scale`, a float or a tensor that broadcasts over `x`, such as one scale a row; `zero`, `low` and `high`,
#   ints.
# - **Output:** float32. The code of a value is the integer nearest to `x / scale`, plus `zero`, clamped to `low` to `high`. The output is
#   `(code - zero) * scale`.
# - **Gradient:** that of the output passes unchanged where the code did not have to be clamped, and is 0 elsewhere.
# - **Example:** with scale 0.1, zero 0 and codes from -8 to 7, 0.26 becomes 0.3 with gradient 1, and 5.0 becomes 0.7 with gradient 0.
# - **Not tested:** values within half a step of the ends of the grid, where torch's own functions differ.


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
# What is the derivative of `round`? Which values of `x` may still move the output a little, seen from afar?
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
# *16 minutes, about 8 lines.* Write `gptq`. It rounds the columns of `W` from left to right, and after each column it changes the columns to
# its right so that they make up for the error as well as they can.
#
# - **Input:** `W` float32 (out, in); `X` float32 (N, in), inputs of the layer; `scale` float32 (out, in), the scale of each weight; `damp`, a
#   float.
# - **Output:** float32 (out, in), each value a code from -7 to 7 times its scale. `nearest` below rounds. The caller's `W` stays as it is.
# - **H:** `X.T @ X`, with `damp` times the mean of its diagonal added to the diagonal. U is the upper Cholesky factor of the inverse of H.
# - **Each column j:** round it. Divide its error, `W[:, j] - Q[:, j]`, by `U[j, j]`. From each column k to its right subtract this times
#   `U[j, k]`.
# - **Example:** with W = [[0.6, 0.7]], X = [[1, 1]] and all scales 1, nearest gives [[1, 1]]. The first column is rounded up by 0.4, so the second
#   becomes 0.7 - 0.396 and is rounded down: [[1, 0]].
# - **Edge cases:** an input that is always 0, fewer inputs than columns, and weights beyond seven steps, whose error counts like any
#   other. The damping makes H invertible in the first two.


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
# *8 minutes, optional, about 6 lines.* Write `smooth`, which moves the size of a LayerNorm's output channels into the next layer's weight.
#
# - **Input:** `norm`, an `nn.LayerNorm` with gain and bias; `linear`, the `nn.Linear` that reads it; `amax` float32
#   (in), the largest magnitude of each channel that calibration saw; `alpha`, from 0 to 1.
# - **Effect, in place:** channel j of norm's output is divided by s[j] = amax[j] ** alpha / (largest |weight| of column j) ** (1 - alpha), and
#   linear's output stays what it was. Nothing is returned.
# - **Example:** a channel with amax 16 whose largest weight is 1/4, alpha 0.5: s is 4 / 0.5 = 8, and both maxima become 2.
# - **Edge case:** if amax[j] or the whole column is 0, any positive s[j] is right. All values stay finite.


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
#
# ### The KV cache
#
# ### Fine-tuning in four bits
#
# ### Exercise: adapters on a 4-bit layer
#
# *16 minutes, about 12 lines.* Write `LoRALinear`: a linear layer with a frozen 4-bit weight, and two small float32 matrices that learn.
#
# - **`__init__`:** `codes` int8 (out, in), from -7 to 7; `scale` float16 (out, groups), one scale for each in / groups neighbouring weights of
#   a row; `bias` float32 (out); `rank`; `alpha`.
# - **Parameters:** `A` (rank, in), random, and `B` (out, rank), zeros, both float32. Nothing else has a gradient.
# - **Buffers:** codes, scale and bias, which never change. The layer keeps no float tensor of the weight's size, so `forward` makes the
#   weight anew in each call.
# - **`forward(x)`:** from x (..., in) of any float dtype to BF16 (..., out): the matmul with the weight code * scale, plus the bias, plus
#   alpha / rank times B A x. Every matmul gets BF16 operands. Multiply x by A first: B @ A would be as large as the weight.
# - **Gradients:** reach A, B and x, through the frozen weight too.
# - **Example:** codes [[2, -1]], scale [[0.5]], bias [0.25] and x = [1, 3] give -0.25 at first. With rank 1, alpha 2, A = [[1, 1]] and B = [[0.5]]
#   they give 3.75.


# %% exercise="lora-linear"
class LoRALinear(torch.nn.Module):
    """A frozen 4-bit linear layer with float32 adapters."""

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
# What must an optimizer find in `layer.parameters()`, and what must a checkpoint hold besides? Which of the two adapters makes the layer
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
