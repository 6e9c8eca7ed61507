# %% [markdown]
# # 2. Build a number system
#
# Build FP16 from its bits, and learn to predict what a format keeps of a tensor and what it loses.
#
# *any laptop · needs: Python and PyTorch tensors*
#
# After this lab you can:
#
# - read the bits of any float format as a number;
# - predict when an addition changes nothing, how a number rounds, and when it overflows or underflows;
# - say which of FP16, BF16 and FP8 suits a given tensor, and why.

# %% [markdown]
# ## Sitting A: the values of a format
#
# *You are here:* **a sum that stops** → four bits → sixteen bits → the gap → *stop*

# %%
import math
import pandas as pd, torch
from labkit.labs.engine import predict, whose, yours
from labkit.labs.number_formats import predictions as guesses, solutions as ours
from labkit.labs.number_formats.checks import check_decode, check_e2m1_value, check_ulp
from labkit.formats import BF16, E2M1, FP16, quantize, spacing

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("02_number_formats")

# %% [markdown]
# ### A sum that stops
#
# An optimizer changes each weight a little, thousands of times, so a weight is a long sum. Suppose that a
# sum is kept in FP16 and has reached 2048. FP16 can hold numbers up to 65504, so there is plenty of room.
#
# The next cell adds 1. The result stays hidden until you guess it.


# %% predict="step-at-2048"
@predict(guesses.step_at_2048)
def step():
    return torch.tensor(2048, dtype=torch.float16) + 1


# %% [markdown]
# The result is 2048, so the addition changed nothing. This is not overflow: 2049 is far below 65504. The
# reason is that FP16 has no value between 2048 and 2050. The exact sum, 2049, lies halfway between the two
# and is rounded to 2048. If you add 1 a thousand times more, the sum still stays at 2048.
#
# To predict such a case, you need to know where the values of a format lie.

# %% [markdown]
# ### Four bits: E2M1
#
# Begin with the smallest floating-point format that GPUs multiply. FP4 has four bits: one **sign** bit,
# two **exponent** bits and one **mantissa** bit. Its other name, **E2M1**, counts the exponent and mantissa
# bits. The four bits, read as an integer, are the **code** of a number.
#
# A float format is scientific notation in binary: one nonzero digit before the point, more digits after it,
# times a power of two. In binary the only nonzero digit is 1, so the format does not store it. It is called
# the **implied 1**. The mantissa bit $m$ is the digit after the point and is worth one half:
#
# $$(-1)^{\text{sign}} \times (1 + m/2) \times 2^{E - \text{bias}}$$
#
# The exponent field $E$ is 0, 1, 2 or 3. To reach small numbers too, the format subtracts a constant, the
# **bias**, which is 1 in E2M1. For example, code 5 has the bits `0 10 1`: sign 0, $E = 2$ and $m = 1$.
# Its value is $(1 + 1/2) \times 2^{2-1} = 3$.
#
# With an implied 1, no code could mean zero. When $E$ is 0, the digit before the point is therefore 0. The
# exponent is the same as for $E = 1$, so that the values go on evenly from 1 down to 0:
#
# $$(-1)^{\text{sign}} \times (0 + m/2) \times 2^{1 - \text{bias}}$$
#
# This gives 0 for $m = 0$ and 0.5 for $m = 1$. A nonzero number with $E = 0$ is called **subnormal**, and a
# number with an implied 1 is called **normal**.
#
# Try it in the explorer. First reach 6, then −0.5, and then find the two codes that mean zero.

# %% tags=["nbval-ignore-output"]
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer

FormatExplorer(fmt=E2M1, value=1.0)

# %% [markdown]
# ### Exercise: decode E2M1
#
# *10 minutes, about 6 lines.* Write `e2m1_value(code)`, the number that a four-bit code stands for.
# Write it yourself: labkit's `decode` and `look_at_code` do not count.
#
# - **Input:** an int from 0 to 15.
# - **Output:** a float. `e2m1_value(0b0101)` is 3.0, and `e2m1_value(0b1001)` is −0.5.
# - **Edge case:** code 8 has only its sign bit set. It means −0.0, and the check looks at the sign.


# %% exercise="e2m1-value"
def e2m1_value(code: int) -> float:
    """The value of a four-bit E2M1 code."""
    # `code >> 1 & 0b11` drops the lowest bit and keeps the two above it.
    ### BEGIN SOLUTION
    sign = -1.0 if code >> 3 else 1.0
    exponent, fraction = code >> 1 & 0b11, (code & 1) / 2
    if exponent == 0:
        return sign * fraction
    return sign * (1 + fraction) * 2.0 ** (exponent - 1)
    ### END SOLUTION


# %% check="e2m1-value" points=1
check_e2m1_value(e2m1_value)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take the code 5, which is `0 10 1`. Which Python expression gives you its sign bit, which its
# exponent field, and which its mantissa bit?
# </details>
# <details><summary>Hint 2</summary>
#
# Consider a smaller format with one exponent bit, one mantissa bit, no sign and bias 0. Its codes
# `0 0`, `0 1`, `1 0` and `1 1` mean 0, 1, 2 and 3. Exponent field 0 gives $(0 + m/2) \times 2^1$,
# and field 1 gives $(1 + m/2) \times 2^1$. Where does your function make this distinction?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# sign = -1.0 if code >> 3 else 1.0
# E, m = code >> 1 & 0b11, code & 1
# if E == 0:
#     return sign * ...
# return sign * ... * 2.0 ** (E - 1)
# ```
# </details>

# %% [markdown]
# The next cell prints your function's values for the codes 0 to 7 and draws all values of E2M1.

# %% tags=["nbval-ignore-output"]
from labkit import plots

value_of = yours(e2m1_value, ours.e2m1_value)
print(f"{whose(value_of)} e2m1_value:", [value_of(code) for code in range(8)])
plots.number_line([E2M1], limit=6)

# %% [markdown]
# ### Spacing, and a scale for each block
#
# From 2 to 4 the values are 1 apart, and from 4 to 6 they are 2 apart. In every float format the values from one
# power of two to the next are evenly spaced, and the spacing doubles at each power of two. Only the subnormals
# differ: below 1, the smallest normal value, the spacing stays 0.5 down to 0.
#
# The weights of a network are often near 0.05, and E2M1 alone would round all of them to 0. An FP4 tensor
# is therefore stored in blocks that each have a **scale**: in MXFP4 a power of two for 32 values, in NVFP4
# an 8-bit float for 16. The next cell stores four weights with MXFP4's rule: the scale is the power of two that
# brings the largest magnitude to at least 4 and below 8.

# %%
weights = torch.tensor([0.031, -0.012, 0.045, 0.001])
scale = 2.0 ** (math.floor(math.log2(weights.abs().max())) - 2)
columns = {
    "weight": weights,
    "E2M1 alone": quantize(weights, E2M1),
    "weight / scale": weights / scale,
    "E2M1 with a scale": quantize(weights / scale, E2M1) * scale,
}
pd.DataFrame(columns).round(4)

# %% [markdown]
# With the scale, the first three weights are kept within 5 %. The last one still becomes 0.

# %% [markdown]
# ### Sixteen bits: FP16
#
# FP16 follows the same rule with 5 exponent bits, 10 mantissa bits and bias 15. The mantissa field $m$ is a
# whole number from 0 to 1023 and counts steps of $1/1024$:
#
# $$(-1)^{\text{sign}} \times (1 + m/2^{10}) \times 2^{E - 15} \qquad \text{and, for } E = 0, \qquad (-1)^{\text{sign}} \times (0 + m/2^{10}) \times 2^{-14}$$
#
# One thing is new: IEEE 754 reserves the highest exponent field, 31, for **inf** ($m = 0$) and **NaN**
# ($m > 0$). The largest finite value therefore has $E = 30$ and $m = 1023$, and is
# $(2 - 2^{-10}) \times 2^{15} = 65504$.
#
# How many of the positive finite values lie below 1?


# %% predict="below-one"
@predict(guesses.below_one)
def percent_below_one():
    codes = torch.arange(1, 0x7C00, dtype=torch.int16)  # 0x7C00 is the code of inf
    values = codes.view(torch.float16)
    return round(100 * (values < 1).float().mean().item())


# %% [markdown]
# Nearly half of them lie below 1. Each exponent comes with the same 1024 mantissas, so the interval from 2⁻⁵
# to 2⁻⁴ holds as many values as the interval from 2¹⁴ to 2¹⁵. Below 1 there are 14 such intervals and 1023
# subnormals, which makes 15,359 of the 31,743 positive finite values. Such a distribution suits weights and
# gradients, whose sizes spread over many powers of two.

# %% [markdown]
# ### Exercise: decode any format
#
# *14 minutes, optional, about 8 lines.* Write `decode(code, exponent_bits, mantissa_bits, bias)`, the rule
# above for any widths and any bias, without labkit's `decode` and `look_at_code`.
#
# - **Input:** four ints. No code of inf or NaN occurs, so treat the highest exponent field like the others.
# - **Output:** a float. `decode(0b01111011, 5, 2, 15)` is 57344.0, the largest value of E5M2.
# - **Edge cases:** subnormals, −0.0, and two formats with the widths of E4M3, one with bias 7 and one with bias 8.


# %% exercise="decode"
def decode(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """The value of a finite code that reads: sign, exponent field, mantissa field."""
    # `2**n - 1` is a mask of n ones.
    ### BEGIN SOLUTION
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & (2**exponent_bits - 1)
    fraction = (code & (2**mantissa_bits - 1)) / 2**mantissa_bits
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias)
    return sign * (1 + fraction) * 2.0 ** (exponent - bias)
    ### END SOLUTION


# %% check="decode" points=0
check_decode(decode)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which numbers in your `e2m1_value` came from "1 mantissa bit", which from "2 exponent bits", and
# which from "bias 1"?
# </details>
# <details><summary>Hint 2</summary>
#
# For a format `s eee mm` the sign is `code >> 5`, the exponent field is `code >> 2 & 0b111`, and
# the fraction is `(code & 0b11) / 4`. Replace 5, 2, `0b111`, `0b11` and 4 by expressions in the
# arguments.
# </details>

# %% [markdown]
# ### What torch.finfo tells you
#
# `torch.finfo(dtype)` has the largest value, the smallest normal value and eps. The other rows of this
# table are computed from these three.

# %%
dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn]
infos = {str(dtype).removeprefix("torch."): torch.finfo(dtype) for dtype in dtypes}
rows = [(info.max, info.smallest_normal, info.eps) for info in infos.values()]
table = pd.DataFrame(rows, columns=["largest", "smallest normal", "eps"], index=infos)
table["smallest subnormal"] = table["smallest normal"] * table["eps"]
for column in ("smallest normal", "smallest subnormal"):
    table[f"log2(largest / {column})"] = (table["largest"] / table[column]).map(math.log2).round()
table.map("{:.6g}".format).T

# %% [markdown]
# - **eps** is the distance from 1 to the next value, so it depends only on the number of mantissa bits. BF16
#   has 7 of them, and FP16 has 10.
# - The **normal range** is the largest value divided by the smallest normal value. The table gives its log2. It
#   depends mainly on the number of exponent bits. BF16 has 8, as many as FP32, and E5M2 has 5, as many
#   as FP16.
# - With subnormals the range is larger by a factor of 1/eps. So `smallest_normal`, also called `tiny`, is
#   *not* the smallest positive value.

# %% [markdown]
# ### The gap to the next value
#
# Take an FP16 value $x$ with $2^e \le x < 2^{e+1}$ and $e \ge -14$. The next larger value is $2^{e-10}$ away,
# because 10 mantissa bits divide the interval into 1024 steps. This distance is called one **ulp**, *unit in
# the last place*. If you add a positive number smaller than half the gap to such an x, the sum is rounded back to x: the number
# that you added is lost.
#
# ### Exercise: the gap above x
#
# *16 minutes, about 3 lines.* Write `ulp(x)`, the distance from |x| to the next larger FP16 value.
# Compute it yourself: labkit's `spacing` and `exact.ulp`, numpy's `spacing` and any `nextafter` do not count.
#
# - **Input:** a float that FP16 holds exactly, possibly negative or zero. Not inf, NaN or ±65504.
# - **Output:** a float. `ulp(3.0)` is 2⁻⁹, because FP16 divides the interval from 2 to 4 into 1024 steps.
# - **Edge case:** if |x| is below 2⁻¹⁴, 0 included, the gap is 2⁻²⁴.


# %% exercise="ulp"
def ulp(x: float) -> float:
    """The distance from |x| to the next larger FP16 value."""
    # `math.frexp(x)` returns (f, k) with x = f * 2**k and 0.5 <= abs(f) < 1; for 0.0, (0.0, 0).
    ### BEGIN SOLUTION
    exponent = math.frexp(x)[1] - 1 if x else -14
    return 2.0 ** (max(exponent, -14) - 10)
    ### END SOLUTION


# %% check="ulp" points=2
check_ulp(ulp)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Print `math.frexp(1.0)`. In our notation 1.0 is $1.0 \times 2^0$. How does the exponent that
# `frexp` returns differ from ours?
# </details>
# <details><summary>Hint 2</summary>
#
# In E2M1 the gap above 3.0 is $2^{1-1} = 1$. The gap above 0.5 is $2^{0-1} = 0.5$, although 0.5 is
# $2^{-1}$: the smallest normal exponent is 0, and subnormals use it too. Which Python function
# keeps a number from falling below a bound?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# exponent = ... if x else -14
# return 2.0 ** (max(exponent, ...) - 10)
# ```
# </details>

# %% tags=["nbval-ignore-output"]
gap = yours(ulp, ours.ulp)
gaps = {"FP16": gap, "BF16": lambda x: spacing(x, BF16)}
plots.gap_staircase(gaps, exponents=range(-20, 13), whose=whose(gap))

# %% [markdown]
# Below 2⁻¹³ the FP16 line is flat: the subnormals and the first normal values share the gap 2⁻²⁴. From
# 2⁻¹⁴ on, the gaps of BF16 are eight times as wide, because BF16 has three mantissa bits fewer.

# %%
points = [1.0, 256.0, 1024.0, 2048.0, 32768.0]
pd.DataFrame(
    {"gap in FP16": [gap(x) for x in points], "gap in BF16": [spacing(x, BF16) for x in points]},
    index=pd.Index(points, name="x"),
)

# %% [markdown]
# Now you can explain the sum at the beginning. At 2048 the gap of FP16 is 2, so 2049 lies halfway between two
# values; sitting B explains why it is rounded down. In BF16 the gap reaches 2 at 256 already, so a counter
# that adds 1 stops there. Near 0.05 the gap of BF16 is 0.00024, and an update of 0.0001, less than half of it,
# does not move a weight. This is why mixed precision training keeps the weights in FP32.
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: rounding, and a format for a tensor
#
# *You are here:* *stop* → **rounding** → real tensors → eight bits → six statements

# %%
import math, torch
import pandas as pd
from labkit.labs.engine import predict, whose, yours
from labkit.labs.number_formats import predictions as guesses, solutions as ours
from labkit.labs.number_formats.checks import check_eight_bits, check_snap, check_window
from labkit.formats import BF16, E4M3, E4M3FNUZ, E5M2, FP16, FP32, FloatFormat
from labkit.formats import decode as labkit_decode, quantize, spacing

# %% [markdown]
# ### Rounding to the nearest value
#
# A **cast** such as `x.half()` replaces each number by the nearest value of the format. A number halfway
# between two values is called a **tie**. By default IEEE 754 then takes the value whose mantissa field is even: *round to nearest, ties to even*. If all ties were rounded up, long sums would drift upward.
#
# What happens just above 65504?


# %% predict="near-the-top"
@predict(guesses.near_the_top)
def cast():
    return torch.tensor(65519.0).half().item()


# %% [markdown]
# The result is 65504. The cast first rounds as if the exponent had no upper limit. Without that limit, the
# next value after 65504 would be 65536. The number 65519 is 15 above 65504 and 17 below 65536, so it is
# rounded down. The halfway point, 65520, is a tie, and 65536 has the even mantissa field. So from
# 65520 on, numbers are rounded to 65536 or more. FP16 has no such value, and the result is inf: the number
# **overflows**.

# %% [markdown]
# ### Exercise: round to FP16
#
# *20 minutes, about 5 lines.* Write `snap(x)`, the FP16 value that x is rounded to. You may call
# `spacing(x, FP16)`, the gap at any finite x, also at an x that is not an FP16 value. Round it yourself: labkit's
# `quantize`, `encode`, `nearest`, `rounded_exact` and `round_tensor`, numpy's `float16` and Python's `struct.pack` do not count.
#
# - **Input:** any float, inf and NaN included. Do not go through float32, as torch's
#   cast of a float64 tensor does: that would round twice.
# - **Output:** a float. `snap(2049.5)` is 2050.0. `snap(2049.0)` is a tie and gives 2048.0.
# - **Edge cases:** from ±65520 on the result is ±inf. inf and NaN are returned unchanged. A zero keeps its
#   sign, and a negative number that is rounded to zero gives −0.0. Subnormal results occur.


# %% exercise="snap"
def snap(x: float) -> float:
    """The FP16 value nearest to x, ties to even; inf from 65520 on."""
    # `round(2.5)` is 2: Python's round sends ties to even, and returns an int.
    ### BEGIN SOLUTION
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)
    ### END SOLUTION


# %% check="snap" points=3
check_snap(snap)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# At 2049.5 the gap is 2. How many gaps long is 2049.5? Which whole number of gaps is nearest?
# </details>
# <details><summary>Hint 2</summary>
#
# Try it in E2M1, whose largest value is 6. The number 2.6 is 2.6 gaps of 1, which rounds to 3 gaps,
# so 3.0. The number 5.1 is 2.55 gaps of 2, which rounds to 3 gaps, so 6.0. The number 7.0 is 3.5
# gaps of 2, a tie, and rounds to 4 gaps, so 8.0. That is above 6. What should FP16 return in such a
# case? And what sign does `round(-0.1)` have?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# if not math.isfinite(x):
#     return x
# gap = spacing(x, FP16)
# value = round(abs(x) / gap) * gap
# return math.copysign(..., ...)
# ```
# </details>

# %% [markdown]
# The next cell compares your function with torch's cast, and then shows a few cases.

# %%
nearest = yours(snap, ours.snap)
sample = torch.randn(3000, generator=torch.Generator().manual_seed(0)).exp().square()
agree = sum(nearest(x) == y for x, y in zip(sample.tolist(), sample.half().tolist(), strict=True))
print(f"{whose(nearest)} snap agrees with torch on {agree} of 3000 values.")
cases = {
    "65519.99": 65519.99,
    "65520": 65520.0,
    "2049, a tie": 2049.0,
    "2051, a tie": 2051.0,
    "2**-25, a tie": 2.0**-25,
    "1.01 * 2**-25": 1.01 * 2.0**-25,
}
pd.DataFrame({"rounds to": [f"{nearest(x):.7g}" for x in cases.values()]}, index=cases)

# %% [markdown]
# The last two rows show where **underflow** begins, here: where a nonzero number is rounded to 0. The
# smallest positive FP16 value is 2⁻²⁴, about 6e-8. Half of it, 2⁻²⁵, and every smaller positive number
# become 0.
#
# IEEE 754 defines other rounding directions too. In the explorer below, type `65519.99` and open *Every
# rounding of x*: only `up` gives inf for sure. Stochastic rounding, which goes up or down at random, is not a mode
# of IEEE 754.

# %% tags=["nbval-ignore-output"]
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer

FormatExplorer(fmt=FP16, value=2049.0)

# %% [markdown]
# ### What a format keeps of a real tensor
#
# A small network (64-256-256-10 units) learned handwritten digits in FP32. After 400 steps 8191
# values were saved from each of three tensors of one layer: its weights, the activations that enter it, and
# the gradients of these activations.

# %%
from labkit.training.data import digits_mlp
from labkit.formats.histograms import range_report

tensors = digits_mlp()
reports = {name: range_report(tensor, FP16) for name, tensor in tensors.items()}
pd.DataFrame(
    {name: {"values": x.numel(), "zeros": int((x == 0).sum())} for name, x in tensors.items()}
).T


# %% predict="loses-most"
@predict(guesses.loses_most)
def largest_share_lost():
    return max(reports, key=lambda name: reports[name].share_lost)


# %% [markdown]
# More than a quarter of the gradients have a magnitude of at most 2⁻²⁵ and become 0 in FP16. The weights and
# activations of this layer keep all their nonzero values. After the exercise a figure shows why.

# %% [markdown]
# A cast can damage a tensor in two ways. First, a value outside the range is lost: if it is too small it
# becomes 0, and if it is too large it becomes inf. Second, a value inside the range is rounded. The
# relative error is at most eps/2 for normal values and can be larger for subnormal ones.
#
# ### Exercise: lost values and rounding error
#
# *16 minutes, optional, about 5 lines.* Write `window(x, dtype)`, which casts a tensor and measures both kinds of damage.
# Write it yourself: labkit's `range_report` does not count.
#
# - **Input:** a float32 tensor, zeros and subnormals included, and `torch.float16` or `torch.bfloat16`. No
#   value overflows, and at least one nonzero value survives.
# - **Output:** two numbers: the share, from 0 to 1, of the nonzero values that the cast turns into 0, and the
#   median of |cast − x| / |x| over the nonzero values that survive.
# - **Example:** for `x = [0, 1e-9, 0.1]` in FP16 the share is 0.5, and the error, that of 0.1, is 0.00024.


# %% exercise="window"
def window(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """(lost, error) of a float32 tensor cast to a 16-bit dtype."""
    # Compute the error in float32: `.float()` brings the cast values back unchanged.
    ### BEGIN SOLUTION
    x = x[x != 0]
    after = x.to(dtype).float()
    kept = after != 0
    error = ((after - x)[kept] / x[kept]).abs().median()
    return (~kept).float().mean().item(), error.item()
    ### END SOLUTION


# %% check="window" points=0
check_window(window)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which values count as lost: those below some bound that you compute, or those that the cast has
# turned into 0?
# </details>
# <details><summary>Hint 2</summary>
#
# You need two boolean masks: "nonzero before the cast" and "nonzero after the cast". Which of them
# selects the values for the median?
# </details>

# %% [markdown]
# ### Range or precision
#
# The next cells draw the three tensors and measure both kinds of damage. In the figure, the histograms give the sizes
# of the values in powers of two, and the bars under them show which sizes each format can hold.

# %% tags=["nbval-ignore-output"]
from labkit import plots

plots.windows(
    reports,
    [FP16, BF16],
    provenance="Recorded after 400 float32 steps (Intel Xeon, torch 2.13.0, 2026-11-21).",
)

# %%
measure = yours(window, ours.window)
print(f"Computed with {whose(measure)} window:")
rows = {
    name: (*measure(x, torch.float16), *measure(x, torch.bfloat16)) for name, x in tensors.items()
}
pd.DataFrame(
    [[f"{a:.0%}", f"{b:.5f}", f"{c:.0%}", f"{d:.5f}"] for a, b, c, d in rows.values()],
    index=list(rows),
    columns=["FP16: lost", "FP16: error", "BF16: lost", "BF16: error"],
)

# %% [markdown]
# BF16 loses none of the gradients. It pays with precision: its error on the weights is about eight times that of
# FP16. On the gradients it is the other way round, because most gradients that survive in FP16 are subnormal and have
# lost significant bits.
#
# Do not call a value lost only because it lies below the smallest *normal* value. 94 % of
# these gradients lie below it, but FP16 keeps most of them as subnormals. Lab 04 saves the lost 28 % with loss scaling.

# %%
gradients = tensors["gradients"].abs()
below = (gradients < torch.finfo(torch.float16).smallest_normal).float().mean().item()
print(f"below 2**-14: {below:.0%}   lost: {measure(gradients, torch.float16)[0]:.0%}")

# %% [markdown]
# ### Eight bits for the gradients
#
# An FP8 number has seven bits besides its sign. How should exponent and mantissa share them? The next
# cell tries one split on the gradients above.

# %%
exponents = torch.frexp(gradients[gradients > 0])[1] - 1
print(f"The nonzero magnitudes lie between 2**{exponents.min()} and 2**{exponents.max() + 1}.")
trial = FloatFormat("trial", exponent_bits=4, mantissa_bits=3, bias=24)
report = range_report(tensors["gradients"], trial)
print(
    f"4 + 3 bits, bias 24: {report.share_lost:.2%} lost, {report.overflowed} overflow, error {report.error:.1%}"
)

# %% [markdown]
# ### Exercise: design an eight-bit format
#
# *16 minutes, optional.* Find the widths and the bias of a format that holds these gradients. To try a format, change `trial`
# in the cell above and run it again.
#
# - **Answer:** `dict(exponent_bits=..., mantissa_bits=..., bias=...)`, whole numbers. inf and NaN are as
#   in IEEE 754, so you need at least two exponent bits and one mantissa bit.
# - **Goal:** no value overflows, at most 1 % are lost, and the median relative error of the others is at most 6 %.
# - **Given:** with $k$ exponent bits the finite values lie below $2^{2^k - 1 - \text{bias}}$.

# %% exercise="eight-bits"
eight_bits = ...  # dict(exponent_bits=, mantissa_bits=, bias=)
### BEGIN SOLUTION
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=38)
### END SOLUTION

# %% check="eight-bits" points=0
check_eight_bits(eight_bits)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# From the smallest to the largest gradient, how many powers of two must the format span? With k
# exponent bits, how many does it span in its normal values? Each mantissa bit adds one more of
# subnormals.
# </details>
# <details><summary>Hint 2</summary>
#
# Choose the widths first, until the error is small enough and the range wide enough. Then change
# the bias in steps of one.
# </details>

# %% [markdown]
# ### Why FP8 training often uses two formats
#
# Five exponent bits and two mantissa bits can hold these gradients. The common recipe for FP8 training uses this
# split, **E5M2**, for gradients, and **E4M3** for weights and activations: they span fewer powers of two, so the
# third mantissa bit is worth more to them. The standard formats have a fixed bias. Instead of changing the bias,
# training multiplies the tensor by a scale before the cast. With a scale for each small block, some recipes use E4M3
# for gradients too.
#
# ### Two formats called E4M3
#
# E4M3 of the Open Compute Project has bias 7, uses the highest exponent field for numbers, and keeps only mantissa
# 111 for NaN. Its largest value is $(1 + 6/8) \times 2^{15-7} = 448$. The next cell decodes four codes in this
# format and in E4M3FNUZ (finite, with NaN, unsigned zero), which AMD's MI300 uses. E4M3FNUZ has bias 8.

# %%
codes = (0b0_0111_000, 0b0_1111_110, 0b0_1111_111, 0b1_0000_000)
pd.DataFrame(
    {
        "E4M3": [labkit_decode(code, E4M3) for code in codes],
        "E4M3FNUZ": [labkit_decode(code, E4M3FNUZ) for code in codes],
    },
    index=[f"{code:08b}" for code in codes],
)

# %% [markdown]
# A code that is a number in both means half as much in E4M3FNUZ. If you load a checkpoint saved in one format as if
# it were in the other, you get wrong weights and no error.
#
# ### TF32
#
# TF32 is not a dtype: the tensor stays FP32. When TF32 is on, the matrix units of NVIDIA GPUs from Ampere on
# round the inputs of an FP32 matmul to 8 exponent bits and at least 10 mantissa bits, and add the products
# in FP32. So TF32 has about the range of FP32 and
# about the precision of FP16.

# %% [markdown]
# ### Six statements about formats
#
# Judge six statements like those in articles and interviews. *binary16* is IEEE 754's name for FP16.

# %%
import struct


def whole_range(fmt):
    return math.log2(fmt.max / fmt.smallest_subnormal)


# %% predict="published"
@predict(guesses.published)
def sentences():
    binary16 = int.from_bytes(struct.pack(">e", 0.1))  # IEEE's 16-bit code of 0.1
    bf16 = torch.tensor(0.1).bfloat16().view(torch.int16).item()
    return [
        binary16 == bf16,
        abs(whole_range(FP16) - whole_range(E5M2)) <= 1,
        BF16.max == FP32.max and BF16.smallest_subnormal == FP32.smallest_subnormal,
        all(quantize(float(n), FP16) == n for n in range(2049)),
        whole_range(BF16) < whole_range(FP16),
        not E4M3.has_inf,
    ]


# %% [markdown]
# Statements 4 and 6 are right.
#
# 1. binary16 has 5 exponent bits, and BF16 has 8. They store 0.1 as 0x2E66 and 0x3DCD.
# 2. With subnormals, the range of FP16 is a factor of 2⁴⁰, and that of E5M2 is 2³². Their *normal* ranges are
#    both about 2³⁰. If somebody says that the ranges are the same, ask which ranges are meant.
# 3. The exponents are the same, but 3.4e38 is finite in FP32 and inf in BF16, and the subnormals of FP32 reach
#    further down. "About the range of FP32" would be right.
# 4. Below 2048 the gap of FP16 is at most 1, so every integer up to 2048 is a value.
# 5. Mantissa bits determine precision, and mainly the exponent bits determine range. BF16 has fewer of the first and more
#    of the second.
# 6. IEEE 754 would reserve two codes for ±inf. In E4M3 these codes are ordinary numbers.

# %% [markdown]
# ### Say it
#
# Where a question asks you to speak, answer aloud, write one line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("02_number_formats")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** IEEE 754-2019, sections 3 and 4.3. OCP 8-bit Floating Point Specification v1.0. OCP
# Microscaling Formats (MX) v1.0, sections 5.3.3 and 6.3. Micikevicius et al., *FP8 Formats for Deep
# Learning*, arXiv:2209.05433, for the roles of E5M2 and E4M3. Noune et al., arXiv:2206.02915, for
# the fnuz variants. NVIDIA, *CUDA Math API*, on the conversion to TF32.
#
# **Next.** [Lab 03: overflow, underflow, rounding](03_overflow_underflow_rounding.ipynb).
