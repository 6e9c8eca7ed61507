# %% [markdown]
# # 3. Clinic: overflow, underflow, rounding
#
# You tell two kinds of numerical fault apart, then repair a softmax, a mask, a matmul and a sum in 16 bits.
#
# *any laptop · needs: lab 02, above all the gap between floats*
#
# After this lab you can:
#
# - tell a range fault from a rounding fault, and name torch calls that compute in float32 by themselves;
# - write log-sum-exp, an attention mask and a matmul that stay inside FP16's range;
# - keep small updates alive in BF16 by stochastic rounding or Kahan summation.

# %% [markdown]
# ## Sitting A: values outside the range
#
# *You are here:* **two kinds of fault** → float32 inside torch → log-sum-exp → masks → matmuls → *stop*

# %%
import math, torch
from labkit.labs.engine import predict, whose, yours
from labkit.labs.overflow_underflow_rounding import checks, solutions as ours
from labkit.labs.overflow_underflow_rounding import predictions as guesses
from labkit.formats import FP16, TF32, quantize

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("03_overflow_underflow_rounding")

# %% [markdown]
# ### Two kinds of fault
#
# One FP16 run shows NaN. In another the loss stands still. They need different remedies.
#
# - In a **range fault** a value lies outside the format. FP16 ends at 65504, so 1e5 becomes inf. Magnitudes below
#   2⁻²⁵ (3e-8) become 0.
# - In a **rounding fault** every value fits, but the neighbours are too far apart. From 4 to 8 the gap is 2⁻⁸ (0.0039),
#   so 4 + 0.001 stays 4.
#
# Each test is True if a result is acceptable; `q` rounds a number to a format. All six fail in FP16. Which ones for
# lack of range?

# %%
is_right = [
    lambda q: q(math.exp(12)) < math.inf,
    lambda q: q(2048.0 + 1) > 2048,
    lambda q: q(3 - 0.0005) < 3,
    lambda q: q(1e-8) > 0,
    lambda q: q(q(201.0**2) - q(200.0 * 202)) == 1,
    lambda q: q(300.0**2) < math.inf,
]
assert not any(test(lambda x: quantize(x, FP16)) for test in is_right)


# %% predict="triage"
@predict(guesses.triage)
def cured_by_exponent_bits():
    return [test(lambda x: quantize(x, TF32)) for test in is_right]


# %% [markdown]
# The cell repeats the tests in TF32, which has the 10 mantissa bits of FP16 and the 8 exponent bits of FP32. A result
# that becomes right lacked range. A result that stays wrong needs more mantissa bits, or another order of operations.
# The test has a limit: FP32's range ends as well, so exp(100) stays inf in TF32.

# %% [markdown]
# ### Where a function overflows
#
# The cell tries all non-negative FP16 values and prints the largest x at which a function is still finite.

# %%
values = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)  # 0 to 65504, in order
for f in (torch.exp, torch.square):
    print(f.__name__, values[f(values).isfinite()].max().item())

# %% [markdown]
# In code that *you* write in FP16, `exp` overflows above 11.09 and `x * x` above 255.9.
#
# ### What torch computes in float32 by itself
#
# `softmax`, `log_softmax`, `layer_norm`, `rms_norm` and `norm` contain an `exp` or a square, and yet they are safe if
# their result fits, as are `sum` and `mean`. Each of them reads FP16, computes in float32, and **rounds once**, at its end. Not every call does:
# in FP16, `F.mse_loss` squares an error of 300 to inf. And between two calls you always hold an FP16
# tensor. The table compares one call with a chain of calls, and shows the first element of each result.

# %%
import pandas as pd
from torch.nn import functional as F

logits, x = torch.tensor([12.0, 11.0]).half(), torch.tensor([300.0, 301.0, 302.0, 500.0]).half()
variance = x.square().mean() - x.mean().square()
pairs = {
    "softmax": (logits.softmax(0), logits.exp() / logits.exp().sum()),
    "layer_norm": (F.layer_norm(x, (4,)), (x - x.mean()) / (variance + 1e-5).sqrt()),
    "rms_norm": (F.rms_norm(x, (4,)), x / x.square().mean().sqrt()),
    "norm": (x.norm(), x.square().sum().sqrt()),
    "mean": (x[[3] * 200].mean(), x[[3] * 200].sum() / 200),
}
first = {name: [f"{y.flatten()[0].item():.1f}" for y in pair] for name, pair in pairs.items()}
pd.DataFrame(first, index=["one call", "a chain of calls"]).T

# %% [markdown]
# Take care with chains: your own softmax or RMSNorm, attention scores, a custom loss. Compute the chain in float32 and
# round at its end, or rewrite it so that no intermediate value is large.

# %% [markdown]
# ### Log-sum-exp
#
# Cross-entropy needs $\log \sum_i e^{x_i}$. For the logits [12, 11, 1] the result is 12.3, but exp(12) is inf.
# Float32 only moves the limit: exp(89) is inf there. The same value can be written in a form that works in every
# format. For any finite number $c$
#
# $$\log \sum_i e^{x_i} = c + \log \sum_i e^{x_i - c}$$
#
# One choice of $c$ makes the largest exponential exactly 1. The sum of n exponentials then lies between 1 and n, so
# it cannot become 0, and in FP16 it overflows only if n is above 65504.
#
# ### Exercise: log-sum-exp
#
# *10 minutes, about 4 lines.* Write it for an FP16 vector, without torch's `logsumexp` and `logcumsumexp`.
#
# - **Input:** one to 60,000 values from -65504 to 65504.
# - **Output:** one number, up to the rounding errors of FP16 operations. [12, 11, 1] gives 12.3125.
# - **Edge cases:** a -inf beside finite values adds nothing. All -inf gives -inf, an inf gives inf, and a NaN, at any
#   place, gives NaN.


# %% exercise="logsumexp"
def logsumexp(x: torch.Tensor) -> torch.Tensor:
    """log(sum(exp(x))) of an FP16 vector."""
    # `x - x.max()` of an inf is NaN: try it on torch.tensor([-math.inf]).
    ### BEGIN SOLUTION
    top = x.max()
    if not top.isfinite():
        return top
    return top + (x - top).exp().sum().log()
    ### END SOLUTION


# %% check="logsumexp" points=2
checks.check_logsumexp(logsumexp)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which element of x has the largest exponential? What should it become?
# </details>
# <details><summary>Hint 2</summary>
#
# For [9, 8] with c = 9: 9 + log(exp(0) + exp(-1)). Which c has [-inf, -inf], and what is -inf - c?
# </details>

# %%
stable = yours(logsumexp, ours.logsumexp)
far = torch.tensor([0.0, -20.0]).half()
print(f"x - {whose(stable)} logsumexp:", (far - stable(far)).tolist())
print("softmax, then log:", far.softmax(0).log().tolist())

# %% [markdown]
# The first line is `log_softmax`. In the second, the probability 2e-9 became 0 before the logarithm. So give logits
# to `cross_entropy` and `binary_cross_entropy_with_logits`.

# %% [markdown]
# ### Masked attention
#
# Attention hides positions, such as padding, by giving them a very low score before the softmax. Much code writes
# -1e9. FP16 cannot hold -1e9, but not every call says so:

# %%
scores, keep = torch.tensor([2.0, 1.0, 0.5]).half(), torch.tensor([True, True, False])
try:
    scores.masked_fill(~keep, -1e9)
except RuntimeError as error:
    print("masked_fill:", error)
print("where:", torch.where(keep, scores, -1e9))

# %% [markdown]
# `masked_fill` raises. `torch.where` and `.half()` silently turn -1e9 into -inf. A single -inf does no harm, but a
# batch can hold rows in which every position is hidden.


# %% predict="masked-row"
@predict(guesses.masked_row)
def weight():
    return torch.full((3,), -1e9).half().softmax(dim=0)[0].item()


# %% [markdown]
# All scores are -inf in FP16. Softmax subtracts the row's maximum, and -inf - (-inf) is NaN. Even if nothing reads
# this row, its NaN can reach the model's parameters: in the backward pass the row's gradient is 0, the softmax
# multiplies this gradient by its own output, NaN, and 0 × NaN is NaN.

# %% [markdown]
# ### Exercise: repair the mask
#
# *9 minutes, 1 or 2 lines.* In FP16 this code fails on a row without visible positions. Repair it.
#
# ```python
# return torch.where(keep, scores, -1e9).softmax(dim=-1)
# ```
#
# - **Input:** FP16 `scores` and a boolean `keep` of one shape, with one axis or more. Neither may be changed.
# - **Output:** FP16 weights of the same shape: the softmax of the kept scores over the last axis. Hidden positions
#   get weight 0 if every kept score is at least -60000. [2, 1, 0.5] with the last one hidden gives [0.731, 0.269, 0].
# - **Edge case:** a row with nothing to keep gets finite weights from 0 to 1, whose sum is at most 1 up to rounding.
#   Equal weights and zeros are both right.


# %% exercise="masked-softmax"
def masked_softmax(scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis of FP16 scores; keep is True where a position may be seen."""
    # `torch.finfo(scores.dtype)` knows the lowest and the highest value of a dtype.
    ### BEGIN SOLUTION
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=-1)
    ### END SOLUTION


# %% check="masked-softmax" points=2
checks.check_masked_softmax(masked_softmax)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which finite number of the scores' own dtype is below every score?
# </details>
# <details><summary>Hint 2</summary>
#
# Suppose a format ends at -6. Of the scores [1, 2] the 2 is hidden, so you put the lowest value of the format there:
# [1, -6]. Which call does this?
# </details>

# %%
hide = yours(masked_softmax, ours.masked_softmax)
nothing = torch.zeros(2, 2, dtype=torch.bool)  # two rows without a visible position
low, q = torch.full((2, 2), -40.0).half(), torch.ones(1, 2, 4)
attention = torch.nn.MultiheadAttention(4, num_heads=1, batch_first=True)
outputs = {
    f"{whose(hide)} masked_softmax": hide(low, nothing),
    "scores + finfo.min, softmax": (low + torch.finfo(low.dtype).min).softmax(-1),
    "scaled_dot_product_attention": F.scaled_dot_product_attention(q, q, q, attn_mask=nothing),
    "MultiheadAttention": attention(q, q, q, attn_mask=~nothing)[0],
}
pd.DataFrame({"all finite": {name: bool(y.isfinite().all()) for name, y in outputs.items()}})

# %% [markdown]
# In FP16 -40 + finfo.min is -inf, so replace hidden scores instead of adding to them. `scaled_dot_product_attention`
# returns zeros for such rows on CPU and CUDA since torch 2.5; older versions and other devices may return NaN.
# `MultiheadAttention` calls a plain softmax and returns NaN, unless `need_weights=False`.

# %% [markdown]
# ### The dtypes of a matmul
#
# The row `a` holds 16, 512 times, so `a @ a.T` is 131072. This code multiplies in FP16 and converts the result to
# float32.


# %% predict="late-upcast"
@predict(guesses.late_upcast)
def converted():
    a = torch.full((1, 512), 16.0)
    return (a.half() @ a.half().T).float().item()


# %% [markdown]
# By default an FP16 matmul adds in float32, but it returns FP16. 131072 is above 65504, so it was inf before `.float()` saw it.

# %% [markdown]
# A matmul has three dtypes: its inputs, its **accumulator** (the running sum) and its output. Calling `.float()` on
# the result changes none of them. On a GPU `torch.mm(a16, b16, out_dtype=torch.float32)` returns the float32 sums;
# torch documents it for CUDA only. On a CPU you emulate it.
#
# ### Exercise: rescue the matmul
#
# *8 minutes, about 3 lines.* Round the inputs to `in_dtype`, multiply and add in float32, round once to `out_dtype`.
# labkit's `mixed_matmul` does not count.
#
# - **Input:** two float32 matrices and two torch dtypes. An element may be NaN, or too large for `in_dtype`.
# - **Output:** the product in `out_dtype`, and True if some element of that product is inf or NaN, else False. The
#   matmul above gives 131072 and False for float32 out, inf and True for FP16 out.
# - **Edge case:** a sum of 65512 fits, because FP16 rounds it to 65504.


# %% exercise="rescue"
def rescue(a, b, in_dtype, out_dtype):
    """(product, flag) of two float32 matrices."""
    # `@` of float32 tensors adds in float32, also when they hold 16-bit values.
    ### BEGIN SOLUTION
    product = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return product, not product.isfinite().all().item()
    ### END SOLUTION


# %% check="rescue" points=3
checks.check_rescue(rescue)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What does `x.half().float()` do to the values of x, and what to its dtype?
# </details>
# <details><summary>Hint 2</summary>
#
# FP16 in, BF16 out: round to FP16, widen, multiply, round to BF16. Which of these does the flag see?
# </details>
#
# The cell prints the largest error, relative to the largest element, for sums of 1000 products.

# %%
from labkit.formats.matmul import mixed_matmul

uniform = torch.Generator().manual_seed(0)
a, b = torch.rand(32, 1000, generator=uniform), torch.rand(1000, 32, generator=uniform)
exact = a.double() @ b.double()
dtypes = {
    "float32 sums, float32 out": {},
    "float32 sums, FP16 out": {"out_dtype": torch.float16},
    "FP16 sums, FP16 out": {"accumulate": torch.float16, "out_dtype": torch.float16},
}
for name, chosen in dtypes.items():
    error = (mixed_matmul(a, b, **chosen).result.double() - exact).abs().max() / exact.max()
    print(f"FP16 in, {name:26} error {error:.0e}")

# %% [markdown]
# The FP16 sums cost most. On a GPU, torch by default asks cuBLAS for float32 sums of 16-bit inputs, but cuBLAS may
# split a long sum (split-K) and round the parts to 16 bits. Two flags permit this, and both are True by default:

# %%
flags = torch.backends.cuda.matmul
flags.allow_fp16_reduced_precision_reduction, flags.allow_bf16_reduced_precision_reduction

# %% [markdown]
# ### Gradual underflow
#
# *Optional.* Below 2⁻¹⁴ FP16 loses its bits one by one: **gradual underflow**. Some hardware modes **flush**
# subnormals to zero. The cell tries both on the gradients of lab 02.

# %%
from labkit.formats.histograms import range_report
from labkit.training.data import digits_mlp

gradients = digits_mlp()["gradients"]
lost = range_report(gradients, FP16).share_lost
flushed = (quantize(gradients, FP16).abs() < FP16.smallest_normal).float().mean().item()
print(f"0 in FP16: {lost:.0%}; 0 if subnormals are flushed: {flushed:.0%}")

# %% [markdown]
# Thanks to subnormals, a - b is 0 only if a equals b. Still, 1 / (a - b) is inf for every difference up to 2⁻¹⁶.

# %% [markdown]
# ### An eps that FP16 can hold
#
# A norm divides by $\sqrt{\text{mean}(x^2) + \epsilon}$, so that a row of zeros gives 0 and not 0 / 0. FP16 holds the
# usual 1e-5 as a subnormal. It rounds 1e-8, Adam's eps, to 0, as run C of lab 01 showed.
#
# ### Exercise: a norm that survives
#
# *10 minutes, optional, 2 or 3 lines.* Divide each row by the root above, with $\epsilon$ = 1e-8.
# torch's `rms_norm` and `RMSNorm` do not count.
#
# - **Input:** an FP16 tensor with two axes. A row may hold only zeros, values near 60000, or values near 2⁻¹⁴.
# - **Output:** an FP16 tensor of the same shape. A row of four 3s becomes four 1s.


# %% exercise="unit-rms"
def unit_rms(x: torch.Tensor) -> torch.Tensor:
    """Each row of an FP16 tensor divided by sqrt(mean(x**2) + 1e-8), as FP16."""
    # `x.mean(dim=-1, keepdim=True)` is a column of the rows' means.
    ### BEGIN SOLUTION
    mean = x.float().square().mean(dim=-1, keepdim=True)
    return (x.float() / (mean + 1e-8).sqrt()).half()
    ### END SOLUTION


# %% check="unit-rms" points=0
checks.check_unit_rms(unit_rms)

# %% [markdown]
# <details><summary>Hints</summary>
#
# What is 1e-8 in FP16, and 300 squared? Which dtype holds both, and from which operation on?
# </details>
#
# **A stopping point.** Sitting B starts with its own setup.

# %% [markdown]
# ## Sitting B: values that rounding loses
#
# *You are here:* *stop* → **sums** → stochastic rounding → Kahan → compiled code

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.overflow_underflow_rounding import checks, solutions as ours
from labkit.labs.overflow_underflow_rounding import predictions as guesses
from labkit.formats import BF16, FP16, FP32, FloatFormat, quantize, spacing

# %% [markdown]
# ### Reach the sum
#
# Choose a format in the widget and add ones. Where does the sum stop growing in FP16, and where in BF16?

# %% tags=["nbval-ignore-output"]
from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import ReachTheSum

ReachTheSum()

# %% [markdown]
# A term that is smaller than half a gap is lost. At exactly half a gap, as here, the even mantissa wins. This is called
# **swamping**. Does torch's own `sum` suffer from swamping?


# %% predict="torch-sum"
@predict(guesses.torch_sum)
def ones():
    return torch.ones(10000, dtype=torch.bfloat16).sum().item()


# %% [markdown]
# `sum` adds in float32 and rounds once: 9984 is the BF16 value nearest to 10000. A loop of your own rounds at every
# step, such as a running mean, an optimizer's state or gradients accumulated in BF16.

# %% [markdown]
# The first remedy is a wider accumulator: add in float32. The second is another order of additions. In a chain, the first term takes part in n - 1 roundings. In a balanced tree, each term takes part in only log₂ n roundings on its way
# to the total. This is **pairwise summation**. The next sections treat a BF16 weight that gets one small update after
# another and must stay in 16 bits.
#
# ### Exercise: reach 5000
#
# *10 minutes, optional, about 4 lines.* Add up an FP16 vector by `+` on FP16 tensors: no `sum`, no wider dtype, no
# Python floats, no `math.fsum`, no numpy.
#
# - **Input:** an FP16 vector. Its length may be odd, and it may be 1.
# - **Output:** one number. 5000 ones give 5000, and 4000 numbers between 0 and 2 give their sum within 1.2 %.


# %% exercise="total"
def total(x: torch.Tensor) -> torch.Tensor:
    """The sum of an FP16 vector of any length from 1 on."""
    # `x[::2]` are the elements at even places, `x[1::2]` those at odd ones.
    ### BEGIN SOLUTION
    while len(x) > 1:
        if len(x) % 2:
            x = torch.cat([x, x.new_zeros(1)])
        x = x[::2] + x[1::2]
    return x[0]
    ### END SOLUTION


# %% check="total" points=0
checks.check_total(total)

# %% [markdown]
# <details><summary>Hints</summary>
#
# 1 + 1 is exact, and so is 2 + 2. Add equals to equals. Of five numbers, which has no partner?
# </details>

# %% [markdown]
# ### Fair rounding
#
# A BF16 weight is 1 and gets updates of 1e-4. The gap above 1 is 2⁻⁷ (0.0078), so rounding to nearest loses each
# update. **Stochastic rounding** keeps them on average. 1 + 2⁻⁹ lies a quarter of the way from 1 to the next value,
# so it goes up with probability 1/4 and down with 3/4: its mean is 1 + 2⁻⁹. Some BF16 training therefore keeps no
# FP32 copy of the weights.
#
# ### Exercise: fair rounding
#
# *14 minutes, about 3 lines.* Round float32 to BF16 values, up or down at random, so that the mean is x.
# labkit's `quantize` does not count.
#
# - **Input:** a float32 vector of finite values, possibly negative. Many may be equal: draw for each, anew
#   at each call.
# - **Output:** a vector of the same length. Each value is one of the two BF16 neighbours of its x.
# - **Edge case:** a value that BF16 holds, such as 0, stays as it is.


# %% exercise="fair-round"
def fair_round(x: torch.Tensor) -> torch.Tensor:
    """Finite float32 values, stochastically rounded to BF16 values (as float32)."""
    # `spacing(x, BF16)` is the gap at x; `torch.rand(x.shape)` draws from 0 to 1.
    ### BEGIN SOLUTION
    gap = spacing(x, BF16)
    below = (x / gap).floor() * gap
    return below + gap * (torch.rand(x.shape) < (x - below) / gap)
    ### END SOLUTION


# %% check="fair-round" points=1
checks.check_fair_round(fair_round)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# With a gap of 1, 2.25 becomes 3 once in four times: the draw is below 0.25. Now count in gaps.
# </details>
# <details><summary>Hint 2</summary>
#
# For a gap of 1: `below = x.floor()`, then `below + (torch.rand(x.shape) < x - below)`. Where does another gap enter?
# </details>

# %% tags=["nbval-ignore-output"]
from labkit.labs.overflow_underflow_rounding.sum_pictures import running_sums

fair = yours(fair_round, ours.fair_round)


def trained(update, steps, rounded):
    """The values of 500 weights of 1 after each of these updates."""
    w, path = torch.ones(500), []
    for _ in range(steps):
        w = rounded(w + update)
        path.append(w)
    return torch.stack(path)


torch.manual_seed(0)
lucky = trained(1e-4, 1000, fair)
lines = {
    "exact": 1 + 1e-4 * torch.arange(1, 1001),
    "to nearest": trained(1e-4, 1000, lambda x: quantize(x, BF16))[:, 0],
    "mean of 500 weights": lucky.mean(dim=1),
    "first weight": lucky[:, 0],
    "second weight": lucky[:, 1],
}
running_sums({f"1000 updates of 1e-4, {whose(fair)} fair_round": lines}, grid=BF16)

# %% [markdown]
# A stochastically rounded weight waits, then jumps by a whole gap. The mean follows the exact line. The price is noise: the final weights have a standard deviation of about 0.03.

# %% [markdown]
# ### Kahan in BF16
#
# **Kahan summation** needs no random numbers. It keeps the rounding error in a second BF16 variable. After `t = s +
# y` the sum has grown by `t - s`, where it should have grown by `y`. The excess `c = (t - s) - y` is subtracted from
# the next term. Two ones are added to 256, where the gap is 2:
#
# | term | y = term - c | t = s + y | c = (t - s) - y |
# |---|---|---|---|
# | 1 | 1 - 0 = 1 | 256 | (256 - 256) - 1 = -1 |
# | 1 | 1 + 1 = 2 | 258 | (258 - 256) - 2 = 0 |
#
# ### Exercise: Kahan
#
# *10 minutes, about 5 lines.* Add up a BF16 vector with a loop of BF16 adds and subtractions: no `sum`, no wider
# dtype, no Python floats, no `math.fsum`, no numpy.
#
# - **Input:** a BF16 vector: ones, numbers between 0 and 1, a large number and then ones, or a 1 and then 1000 times
#   1e-4.
# - **Output:** one BF16 number, within two gaps of the exact sum. [256, 1, 1] gives 258. A vector of ones gives the
#   nearest BF16 value: 5000 ones give 4992.


# %% exercise="kahan"
def kahan(x: torch.Tensor) -> torch.Tensor:
    """The sum of a BF16 vector, with compensation."""
    s = c = torch.zeros((), dtype=x.dtype)  # the sum, and by how much it is too large
    ### BEGIN SOLUTION
    for value in x:
        y = value - c
        t = s + y
        c = (t - s) - y
        s = t
    ### END SOLUTION
    return s


# %% check="kahan" points=2
checks.check_kahan(kahan)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# s = 256, c = 0, and a 1 comes: t = 256. What is (t - s) - y, and what should the next 1 become?
# </details>
# <details><summary>Hint 2</summary>
#
# Four lines: `y = value - ...`, `t = s + y`, `c = (... - s) - ...`, `s = t`. Why is that one last?
# </details>
#
# Both series of updates add up to 0.1.

# %% tags=["nbval-ignore-output"]
carry = yours(kahan, ours.kahan)
panels = {}
for update, steps in ((1e-4, 1000), (1e-5, 10_000)):
    terms = torch.tensor([1.0] + steps * [update]).bfloat16()
    counts = torch.arange(0, steps + 1, steps // 20)
    by_kahan = [float(carry(terms[: n + 1])) for n in counts.tolist()]
    mean = trained(update, steps, fair).mean(dim=1)[counts[1:] - 1]
    panels[f"{steps} updates of {update:g}"] = {
        "exact": 1 + update * counts,
        f"{whose(carry)} kahan": torch.tensor(by_kahan),
        f"{whose(fair)} fair_round, mean of 500": torch.cat([torch.ones(1), mean]),
    }
running_sums(panels, grid=BF16)

# %%
print("after 10,000 updates of 1e-5, Kahan:", by_kahan[-1], f" stochastic: {mean[-1]:.1f}")

# %% [markdown]
# On the right c itself stalls. It stops at -2⁻⁸ (half the gap of s), where its own gap is 2⁻¹⁵, and 1e-5 is less than
# half of that. Two BF16 numbers behave like one of about 16 bits: updates below about 2⁻¹⁶ of the weight (1.5e-5) are
# lost.
#
# **Neumaier's** variant collects the losses and adds them at the end. It helps where a term exceeds the sum, but in
# BF16 the collected losses stall too:

# %%
terms = torch.ones(5000, dtype=torch.bfloat16)
s = losses = torch.zeros((), dtype=torch.bfloat16)
for value in terms:
    t = s + value
    losses = losses + ((s - t) + value if s.abs() >= value.abs() else (value - t) + s)
    s = t
print("Neumaier:", (s + losses).item(), f" {whose(carry)} kahan:", float(carry(terms)))

# %% [markdown]
# ### What torch.compile changes
#
# In eager mode each elementwise call rounds once. `torch.compile` fuses neighbouring elementwise calls into one
# kernel, and its backend Inductor keeps float32 inside. The next cell computes both by hand: 16 × 4096 overflows only
# if it is rounded to FP16.

# %%
a = torch.tensor(16.0).half()
print("eager, two roundings:", (a * 4096 / 4096).item())
print("fused, one rounding: ", (a.float() * 4096 / 4096).half().item())

# %% [markdown]
# Fusion breaks Kahan summation. With t in float32, `t - s` is almost
# y, so c is almost 0, and storing s in BF16 loses the update. With torch 2.13, 1000 compiled Kahan updates of 1e-4
# leave a BF16 weight at 1.0; eager updates give 1.1016. `torch._inductor.config.emulate_precision_casts = True`
# restores eager's roundings.

# %% [markdown]
# ### Five remedies
#
# Articles recommend five remedies. The next cell prepares a trial of each.

# %%
features = 1e5 * torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
noisy = (1 + 1e-4 * torch.randn(10000, generator=torch.Generator().manual_seed(2))).half()
gradient = torch.tensor([1e-8])
clipped = gradient * min(1, 1 / gradient.norm().item())  # to a norm of at most 1


# %% predict="remedies"
@predict(guesses.remedies)
def works():
    return [
        (noisy != 1).float().mean().item() > 0.5,
        bool(features[[0] * 32].half().isfinite().all()),
        bool((features / features.std()).half().isfinite().all()),
        clipped.half().item() != 0,
        abs(lucky[-1].mean().item() - 1.1) < 0.01,
    ]


# %% [markdown]
# Remedies 3 and 5 work. Overflow depends on the scale of the data, and the balance of the classes does not change it.
# Clipping only shortens gradients. Noise on a weight is rounded away while it is below half a gap; stochastic
# rounding puts the randomness inside the rounding, where it fits the gap.

# %% [markdown]
# ### How Tensor Cores add
#
# *Optional.* Tensor Cores truncate inside a float32 sum (Fasi et al.). For FP8, Hopper keeps only about 14 bits, so
# DeepSeek-V3 moves the sum to float32 every 128 products. The cell models this by a chain of single adds; real units
# add several products at a time.

# %%
from labkit.formats.accumulators import add_up

uniform = torch.Generator().manual_seed(3)
terms = torch.rand(8, 2, 1024, generator=uniform).half().double().prod(dim=1)
fourteen = FloatFormat("14 bits", exponent_bits=8, mantissa_bits=13)  # the leading 1 makes 14
for name, sums in {
    "FP32, nearest": add_up(terms, FP32),
    "FP32, truncated": add_up(terms, FP32, rounding="toward_zero"),
    "14 bits, truncated": add_up(terms, fourteen, rounding="toward_zero"),
    "14 bits, FP32 every 128": add_up(terms, fourteen, rounding="toward_zero", promote_every=128),
    "FP16, nearest": add_up(terms, FP16),
}.items():
    print(f"{name:26} relative error {(sums / terms.sum(dim=1) - 1).abs().max():.0e}")

# %% [markdown]
# Truncation errs toward 0. All terms here are positive, so the errors have one sign and add up.

# %% [markdown]
# ### A tolerance with a reason
#
# *Optional.* A test that compares two matmuls needs a tolerance, and a bound on the error gives one. Each float32
# operation has a relative error of at most $u = 2^{-24}$, if nothing overflows or underflows. An element of a matmul
# is a sum of $k$ products. It is off by at most (Higham)
#
# $$\frac{k u}{1 - k u} \sum_i |a_i| |b_i|$$
#
# The bound is relative to this sum of magnitudes, not to the result. Where terms cancel, the result can be completely
# wrong. To compare two float32 matmuls (with TF32 off), allow twice the bound.

# %%
claim("1e8 + 1 - 1e8 is 0 in float32", torch.tensor(1e8) + 1 - 1e8 == 0)
uniform = torch.Generator().manual_seed(4)
a, b = (torch.rand(shape, generator=uniform) - 0.5 for shape in ((32, 1000), (1000, 32)))
error = ((a @ b).double() - a.double() @ b.double()).abs()
ku = 1000 * 2.0**-24
claim("each error is within its bound", (error <= ku / (1 - ku) * (a.abs() @ b.abs())).all())

# %% [markdown]
# ### Variance in one pass
#
# *Optional.* $E[x^2] - E[x]^2$ squares large numbers, then subtracts two nearly equal ones. Welford avoids both: if a
# value x moves the mean from μ to μ′, the sum of squared deviations grows by (x - μ)(x - μ′).
#
# ### Exercise: Welford
#
# *12 minutes, optional, about 6 lines.* Write `welford(stream)`, the mean and the variance (divided by n) of numbers
# that can be read only once. The numbers 1 and 3 give (2.0, 1.0). Numbers may lie near 1e9. A single number has
# variance 0.0. Functions such as `var`, `std`, `var_mean`, `std_mean`, `pvariance` and `pstdev` do not count.


# %% exercise="welford"
def welford(stream) -> tuple[float, float]:
    """(mean, variance) of an iterator of Python floats."""
    ### BEGIN SOLUTION
    n, mean, squares = 0, 0.0, 0.0
    for x in stream:
        n += 1
        before, mean = mean, mean + (x - mean) / n
        squares += (x - before) * (x - mean)
    return mean, squares / n
    ### END SOLUTION


# %% check="welford" points=0
checks.check_welford(welford)

# %% [markdown]
# <details><summary>Hints</summary>
#
# For 1, then 3, the mean goes from 1 to 2: by half of 3 - 1. The squares grow by (3 - 1)(3 - 2).
# </details>

# %% [markdown]
# ### Rounded twice
#
# *Optional.* torch casts float64 to BF16 by way of float32. Two roundings can differ from one.
#
# ### Exercise: a hair
#
# *8 minutes, optional, 1 line.* Find a Python float for which this cast does not give the nearest BF16 value.

# %% exercise="hair"
hair = ...  # a Python float, such as 1 + 2**-3
### BEGIN SOLUTION
hair = 1 + 2**-8 + 2**-30
### END SOLUTION

# %% check="hair" points=0
checks.check_hair(hair)

# %% [markdown]
# <details><summary>Hints</summary>
#
# 1 + 2**-8 is a tie, and goes down to even. Which addend breaks the tie, but is too small for float32?
# </details>

# %% [markdown]
# ### Say it
#
# Where a question asks for speech, answer aloud and tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("03_overflow_underflow_rounding")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., chapters 3, 4. Fasi et al., PeerJ CS
# 7:e330. DeepSeek-V3, arXiv:2412.19437, section 3.3. Zamirai et al., arXiv:2010.06192. PyTorch 2.13:
# ATen/AccumulateType.h, `torch.mm`, torch/_inductor/config.py; PRs 133882 and 157727.
#
# **Next.** [Lab 04: master weights and loss scaling](04_loss_scaling.ipynb).
