# %% [markdown]
# # 8. The mechanisms of FP8 and FP4 training: a replication study
#
# You rebuild FP8 and FP4 training from PyTorch's own calls, and measure on one small GPT which of its published mechanisms are visible.
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
# *You are here:* **why FP8** → scales → three matmuls → accumulators → *stop*

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
# ### A falling loss is not enough
#
# ### Float8 tensors in PyTorch
#
# ### Exercise: to FP8
#
# *8 minutes, about 4 lines.* Write `to_fp8(x, dtype)`, which casts a tensor to FP8 with one scale.
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
# ### How wrong may a scale be?


# %% predict="wrong-scale"
@predict(guesses.wrong_scale)
def db():
    return 0.0


# %% [markdown]
# Explanation.

# %% [markdown]
# ### The three matmuls of a linear layer
#
# `scaled_matmul` wraps PyTorch's public call.

# %%
from torch.nn.functional import ScalingType, scaled_mm

cast = yours(to_fp8, ours.to_fp8)


def scaled_matmul(a, b):
    """a @ b.T in float32, for two pairs (codes, descale) with row-major codes (n, k) and (m, k)."""
    (a_codes, a_descale), (b_codes, b_descale) = a, b
    one = ScalingType.TensorWise
    return scaled_mm(
        a_codes, b_codes.t(), a_descale, one, b_descale, one, output_dtype=torch.float32
    )


# %% [markdown]
# ### Exercise: the FP8 matmul
#
# *20 minutes, about 8 lines.* Write `Fp8Matmul`, an `autograd.Function` for `x @ w.T` whose three matmuls run in FP8 with one scale a tensor.
#
# - **Input:** `x` of shape (N, K), `w` of shape (M, K) and, in `backward`, the gradient `g` of shape (N, M): all float32, with N, K and M multiples of 16.
# - **Output:** `forward` returns `x @ w.T`; `backward` returns the gradients of `x`, `g @ w`, and of `w`, `g.T @ x`. All are float32.
# - `x` and `w` are cast to E4M3, and `g` is cast to E5M2, each with `cast`. Every matmul goes through `scaled_matmul`.
# - The check applies CUDA's layout rules: the codes that you pass to `scaled_matmul` are row-major, that is contiguous.


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
# ### Delayed scaling
#
# ### Exercise: delayed scaling
#
# *14 minutes, optional, about 3 lines change.* This class is like one that people published. Each step's scale must come from the steps *before* it,
# and it has three faults. Write `Delayed` without them.
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
# - **Output:** `(codes, descale)`, both of this step: `codes.float() * descale` is close to `x`, as far as `x` stays below ±`largest` × `descale`. Beyond, codes saturate.
# - The scale is `largest / max(history) / 2**margin`. It is 1 at first and stays as it was while the history holds only zeros.
# - A largest magnitude that is inf or NaN is not stored. The codes of inf and NaN are not checked.
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
# Take `largest` 4, length 2, margin 1 and the magnitudes 1, inf, 2. The scales are 1, 2, 2, and 1 after that. Follow the published lines with a pencil: at
# which steps do they differ?
# </details>
# <details><summary>Hint 3</summary>
#
# Keep `descale = 1 / self.scale` before anything changes, store the magnitude only `if math.isfinite(...)`, and divide the new scale by `2**...`.
# </details>
#
# ### Narrow accumulators
#
# **Stop here** if you like. Sitting B begins with a cell of its own.
#
# ## Sitting B: a scale for each block
#
# *You are here:* why FP8 → scales → three matmuls → accumulators → *stop* → **blocks** → four bits → a recipe

# %%
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.fp8_and_fp4 import predictions as guesses, solutions as ours
from labkit.labs.fp8_and_fp4.checks import check_mx_block, check_nvfp4_block, check_recipe

# %% [markdown]
# ### One outlier in a block
#
# ### MX: a power of two for 32 values
#
# ### Exercise: an MXFP8 cast
#
# *14 minutes, optional, about 6 lines.* Write `to_mx(x)`, the MXFP8 cast of the OCP specification.
#
# - **Input:** a float32 tensor of shape (rows, K), K a multiple of 32, without inf and NaN. A block is 32 neighbours of one row. It holds only zeros, or its
#   largest magnitude is between 2**-60 and 2**100.
# - **Output:** `(codes, scales)`: `codes` of shape (rows, K) in `torch.float8_e4m3fn`, `scales` of shape (rows, K / 32) in
#   `torch.float8_e8m0fnu`. Values are `codes * scales`.
# - The floor rule: the scale is 2**(e - 8), where e is the exponent of the block's largest magnitude: 2**e <= amax < 2**(e + 1). 8 is the
#   exponent of E4M3's largest value, 448. What lies above 448 after the division becomes 448.
# - **Example:** a block whose largest magnitude is 3.5 has e = 1 and the scale 2**-7. The code of 3.5 is 448; that of 3.9 would be 448 as well.
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
# Suppose a block has 2 values and the format ends at 6 = 1.5 × 2². The block [5, 1] has e = 2, so its scale is 2**(2 - 2) = 1 and its codes are 5 and 1
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
# `fp4(x)` rounds float32 values to E2M1, whose magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4 and 6. PyTorch has no arithmetic for this format, so the values
# stay in float32. What lies above 6 becomes 6.

# %%
from labkit.formats import E2M1, quantize


def fp4(x):
    return quantize(x, E2M1, saturate=True)


# %% [markdown]
# ### Exercise: NVFP4
#
# *18 minutes, about 6 lines.* Write `to_nvfp4(x)`.
#
# - **Input:** a float32 tensor of shape (rows, K), K a multiple of 16, without inf and NaN, with at least one value that is not 0. A block is 16 neighbours of one row.
# - **Output:** `(values, block_scales, tensor_scale)`: float32 values on E2M1's grid, shape (rows, K); `torch.float8_e4m3fn` of shape (rows, K / 16); a float32 tensor
#   with one value. `x` is close to values × block scale × tensor scale.
# - `tensor_scale` is the largest magnitude of `x` divided by 448 × 6, so that the block that holds it has the block scale 448.
# - A block's scale is its largest magnitude divided by 6 and by `tensor_scale`, clamped to 2**-6 .. 448, and cast to E4M3. 2**-6 is E4M3's smallest normal value.
# - Divide the block by the scales as *stored*, not by the unrounded ones, and round with `fp4`.
# - **Edge cases:** a block of zeros; tensors whose values are all near 1e-5 or near 1e4.


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
#
# ### Stochastic rounding of gradients


# %% predict="stochastic-once"
@predict(guesses.stochastic_once)
def db():
    return 0.0


# %% [markdown]
# Explanation.

# %% [markdown]
# ### A rotation before the cast


# %% predict="rotation"
@predict(guesses.rotation)
def scales():
    return ""


# %% [markdown]
# Explanation.

# %% [markdown]
# ### Two copies of one weight
#
# ### Training, recorded
#
# ### Exercise: choose a recipe
#
# *12 minutes, optional, 6 words.* A linear layer has three matmuls: `y = x @ w.T`, `dX = grad @ w` and `dW = grad.T @ x`. `recipe` says in which format each
# of their six operands is stored. `quality` casts one real batch of the trained GPT so, and gives the SQNR of the three results in dB. It is not a training
# run: use it to choose what is worth one.
#
# - **Input:** none. **Output:** a dict with the keys `x`, `w`, `dx_grad`, `dx_w`, `dw_grad` and `dw_x`, and names of `FORMATS` as values.
# - **Goals:** at most 5.7 bits an operand on average, 17 dB or more for y and for dX, and 28 dB or more for dW, which the optimizer adds up.
# - **Example:** all six in `"e4m3"` gives 31.1, 28.2 and 29.1 dB, and takes 8 bits.

# %%
from labkit.labs.fp8_and_fp4.recipes import FORMATS, OPERANDS, bits, quality

print({name: operand.bits for name, operand in FORMATS.items()})
quality(dict.fromkeys(OPERANDS, "e4m3"))

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
# Try one operand at a time: `quality(recipe | {"dx_grad": "mxfp4"})`. The weaker of two operands decides the result. Which format of 8 bits and which of
# about 4 loses least?
# </details>
# <details><summary>Hint 3</summary>
#
# Four operands share one format of 4.5 bits, and the two of dW share one of 8: (4 × 4.5 + 2 × 8) / 6 = 5.67. Fill in:
# `recipe = dict.fromkeys(OPERANDS, ...) | dict.fromkeys(("dw_grad", "dw_x"), ...)`.
# </details>
#
# ### What real stacks do
#
# ### Your GPT
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
# **Sources.**
#
# **Next.** [Lab 16: the interview](16_interview.ipynb).
