# %% [markdown]
# # 2. Build a number system
#
# You build FP16 from sixteen codes, then measure what a format keeps of real tensors and what it loses.
#
# *any laptop · needs: Python and PyTorch tensors, nothing about floats*
#
# After this lab you can:
#
# - read any code of any float format as a number, and name the gap to its neighbour;
# - say to which value a number rounds, and where overflow and underflow begin;
# - measure what FP16 and BF16 do to a tensor, and design a format for it.
#
# Two sittings: **A** builds the numbers, **B** puts them to work. Each starts alone.

# %% [markdown]
# ## Sitting A: from sixteen codes to FP16
#
# *You are here:* **sixteen numbers** → a longer ruler → the gap → *stop* → snap → two windows → eight bits

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.number_formats import predictions as guesses, solutions as ours
from labkit.labs.number_formats.checks import check_decode, check_e2m1_value, check_ulp
from labkit.formats import BF16, E2M1, FORMATS, FP16, spacing

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("02_number_formats")

# %% [markdown]
# ### A first guess
#
# FP16 holds numbers up to 65504. Run the next cell: it computes a sum and keeps it until you have
# guessed. Type a number, press Enter, and say how sure you are. **Show me** gives the answer without a
# guess.


# %% predict="step-at-2048"
@predict(guesses.step_at_2048)
def step():
    return torch.tensor(2048, dtype=torch.float16) + 1


# %% [markdown]
# The sum is far below the largest value, and yet it did not move. At the end of this sitting you can
# say why, and where the same happens in BF16.

# %% [markdown]
# ### Sixteen numbers
#
# The smallest float in use has four bits: E2M1, or FP4. Its **code** 编码, the bits as an integer, reads
# `s EE m`: one **sign** bit 符号, two **exponent** bits 指数, one **mantissa** bit 尾数.
#
# $$(-1)^s \times 1.m \times 2^{E - \text{bias}} \qquad \text{bias} = 1$$
#
# Here $1.m$ is binary: $m = 1$ makes it $1 + 1/2$. The **bias** 偏置 lets the field $E$ stand for small exponents without a sign of its own. With $E = 0$
# the implied 1 goes, and the exponent stays that of field 1:
#
# $$(-1)^s \times 0.m \times 2^{1 - \text{bias}}$$
#
# The values other than zero among these are **subnormal** 非规格化数.

# %% tags=["nbval-ignore-output"]
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer

FormatExplorer(fmt=E2M1, value=1.0)

# %% [markdown]
# Click a bit, or move with the arrow keys and toggle with the space bar. Three targets: reach 6, reach
# -0.5, then find the two codes that mean zero.

# %% [markdown]
# ### Exercise: sixteen numbers
#
# *12 minutes, about 6 lines.* Write `e2m1_value`: a code from 0 to 15 becomes its value. Both zeros
# count: code 8 is -0.0.


# %% exercise="e2m1-value"
def e2m1_value(code: int) -> float:
    """The value of a four-bit E2M1 code."""
    # `code >> 1 & 0b11` shifts one bit out on the right and keeps the lowest two of the rest.
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
# Write down the three fields of code 5, which is `0 10 1`. Which power of two does field 2 stand for?
# </details>
# <details><summary>Hint 2</summary>
#
# With one exponent bit, one mantissa bit and bias 0, the four codes `0 0`, `0 1`, `1 0`, `1 1` mean 0, 1,
# 2 and 3. Field 0 gives 0.m × 2, field 1 gives 1.m × 2. Where does your function branch?
# </details>

# %% tags=["nbval-ignore-output"]
from labkit import plots

ruler = yours(e2m1_value, ours.e2m1_value)
print(f"Computed with {whose(ruler)} e2m1_value:", [ruler(code) for code in range(8)])
plots.number_line([E2M1], limit=6)

# %% [markdown]
# The steps are 0.5, then 1, then 2. Within an **octave** 倍频程 (binade), from one power of two to the
# next, they are equal. Below 1 the first octave's step goes on down to zero and leaves no hole.

# %% [markdown]
# ### A longer ruler
#
# FP16 is the same idea, longer: 5 exponent bits, 10 mantissa bits, bias 15. Its largest value is 65504.
# Where do its numbers lie?


# %% predict="below-one"
@predict(guesses.below_one)
def percent_below_one():
    codes = torch.arange(1, 0x7C00, dtype=torch.int16)
    values = codes.view(torch.float16)
    return round(100 * (values < 1).float().mean().item())


# %% [markdown]
# Each octave of normal values holds 1024, whether it starts at 2**-14 or at 2**15. Float formats spend
# their codes by ratio, not by distance.

# %% [markdown]
# ### Exercise: one rule for all
#
# *14 minutes, about 8 lines.* Write `decode` for any widths and any bias. A mantissa field $m$ of 10 bits
# counts steps and means $m / 2^{10}$. IEEE formats keep the highest exponent field for inf (mantissa 0)
# and NaN (all others); in E2M1 and E4M3 it holds ordinary numbers. The check gives no code of inf or NaN. It tries E2M1,
# FP16, BF16, FP32 and two E4M3 formats with different biases. Subnormals are among its codes. A zero whose sign bit is
# set is -0.0.


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


# %% check="decode" points=2
check_decode(decode)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In `e2m1_value`, which of your numbers came from "1 mantissa bit", which from "2 exponent bits", and
# which from "bias 1"?
# </details>
# <details><summary>Hint 2</summary>
#
# For six bits `s eee mm`: the sign is `code >> 5`, the exponent field `code >> 2 & 0b111`, the fraction
# `(code & 0b11) / 4`. Now replace 5, 2, `0b111`, `0b11` and 4 by expressions in the arguments.
# </details>

# %%
rule = yours(decode, ours.decode)
codes = range(0, 0x7C00, 31)  # every 31st code up to 0x7C00, which is inf
by_torch = torch.tensor(codes, dtype=torch.int16).view(torch.float16)
same = all(
    rule(code, 5, 10, 15) == value for code, value in zip(codes, by_torch.tolist(), strict=True)
)
claim(f"{len(codes)} FP16 codes decode as in torch, by one rule", same)

# %% [markdown]
# One rule, all formats. Their **dynamic range** 动态范围 is a ratio: the largest over the smallest positive
# value, counted in octaves.

# %%
import pandas as pd

pd.DataFrame(
    {
        "exponent bits": fmt.exponent_bits,
        "mantissa bits": fmt.mantissa_bits,
        "largest": f"{fmt.max:.5g}",
        "smallest": f"{fmt.smallest_subnormal:.3g}",
        "eps": f"{fmt.eps:.3g}",
        "octaves": round(math.log2(fmt.max / fmt.smallest_subnormal)),
    }
    for fmt in FORMATS.values()
    if fmt.name in ("fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3", "e2m1")
).set_axis(["FP32", "TF32", "FP16", "BF16", "E5M2", "E4M3", "E2M1"])

# %% [markdown]
# Read two columns apart. Exponent bits buy octaves. Mantissa bits buy a small **eps** 机器精度, the gap
# above 1. BF16 (brain float, from Google) and TF32 have FP32's exponent bits. They have fewer mantissa
# bits, so fewer subnormals, and a few octaves less. TF32 has the eps of FP16, BF16 a coarser one.

# %% [markdown]
# ### The gap
#
# An FP16 value $1.m \times 2^e$ has 10 mantissa bits, so the next larger value is $2^{e-10}$ away. That
# gap is one **ulp** (unit in the last place) 末位单位. Zero and the subnormals share one gap, that of the
# octave above them, where $e = -14$.

# %% [markdown]
# ### Exercise: the gap above x
#
# *16 minutes, about 2 lines.* Write `ulp` for FP16 values below 65504, 0, -0.0 and subnormals included. The sign of x does not
# matter.


# %% exercise="ulp"
def ulp(x: float) -> float:
    """Gap between |x| and the next larger FP16 value."""
    # `math.frexp(x)` returns (m, e) with x = m * 2**e and 0.5 <= abs(m) < 1; (0.0, 0) for 0.0.
    ### BEGIN SOLUTION
    exponent = math.frexp(x)[1] - 1 if x else -14
    return 2.0 ** (max(exponent, -14) - 10)
    ### END SOLUTION


# %% check="ulp" points=2
check_ulp(ulp)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Print `math.frexp(1.0)`. What is $e$ for 1.0 in our notation, where the mantissa starts at 1?
# </details>
# <details><summary>Hint 2</summary>
#
# On E2M1 the gap above 3.0 is $2^{1-1} = 1$, and the gap above 0.0 is $2^{0-1} = 0.5$. There the smallest
# normal exponent is 0. Which function keeps an exponent from falling below a bound? And is 0, as frexp says,
# the exponent of zero?
# </details>

# %% tags=["nbval-ignore-output"]
gap = yours(ulp, ours.ulp)
gaps = {"FP16": gap, "BF16": lambda x: spacing(x, BF16)}
plots.gap_staircase(gaps, exponents=range(-20, 13), whose=whose(gap))

# %%
claim("from 1024 to 2048 the gap of FP16 is 1", gap(1024.0) == gap(2047.0) == 1)
claim("from 2048 on it is 2, so 2048 + 1 falls back to 2048", gap(2048.0) == 2)
integers = torch.arange(2049.0)
claim("the integers to 2048 survive FP16", torch.equal(integers.half().float(), integers))
claim("BF16 has 3 bits fewer: from 256 to 512 its gap is 2", spacing(256.0, BF16) == 2)

# %% tags=["nbval-ignore-output"]
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer

FormatExplorer(fmt=FP16, value=2047.0)

# %% [markdown]
# Press the up arrow twice and watch the marker: 2048, then 2050. Type `1`, then `2**-14`. Below that the
# gap stays 2**-24: the flat stair on the left of the picture.
#
# **A stopping point.** You have built FP16: codes, values, gaps. Sitting B starts with its own setup.

# %% [markdown]
# ## Sitting B: formats at work
#
# *You are here:* sixteen numbers → a longer ruler → the gap → *stop* → **snap** → two windows → eight bits

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.number_formats import predictions as guesses, solutions as ours
from labkit.labs.number_formats.checks import check_eight_bits, check_snap, check_tf32, check_window
from labkit.formats import BF16, E4M3, E4M3FNUZ, E5M2, FP16, FP32, TF32, FloatFormat
from labkit.formats import decode as labkit_decode, quantize, spacing

# %% [markdown]
# ### Near the top
#
# The largest FP16 value is 65504. What happens to a number a little above it?


# %% predict="near-the-top"
@predict(guesses.near_the_top)
def cast():
    return torch.tensor(65519.0).half().item()


# %% [markdown]
# The cast rounds first and looks at the range afterwards. 65519 is 15 above 65504 and 17 below 65536, where the next
# value would be, so it rounds to 65504.

# %% [markdown]
# ### Snap
#
# A **cast** 类型转换, such as `x.half()`, takes the nearest value of the format. Midway between two
# values, in a **tie** 中点, the even mantissa wins: round to nearest, ties to even 就近舍入，中点取偶.
# **Overflow** 上溢 needs no rule of its own. Round as if the exponent had no end. A result above 65504
# becomes inf.

# %% [markdown]
# ### Exercise: snap
#
# *20 minutes, about 5 lines.* Write `snap`: any float becomes the FP16 value it rounds to. `spacing(x,
# FP16)` is the gap at x. inf and NaN pass through. A zero keeps its sign, and a negative x that rounds to zero gives
# -0.0. Round once: x has all the digits of a float64.


# %% exercise="snap"
def snap(x: float) -> float:
    """The FP16 value nearest to x, ties to even; inf from the overflow cut on."""
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
# How many gaps long is 2049.5, at a gap of 2? Which whole number is nearest to that?
# </details>
# <details><summary>Hint 2</summary>
#
# On E2M1, 2.6 is 2.6 gaps of 1, so 3 gaps, so 3.0. And 5.1 is 2.55 gaps of 2: 3 gaps, 6.0. At 7.0 you
# get 4 gaps, 8.0. That is above the largest value, 6. What does FP16 do there? Which sign has `round(-0.1)`?
# </details>

# %%
nearest = yours(snap, ours.snap)
sample = torch.randn(3000, generator=torch.Generator().manual_seed(0)).exp().square()
same = [nearest(x) for x in sample.tolist()] == sample.half().tolist()
claim(f"{whose(nearest)} snap agrees with torch's cast on 3000 values", same)
claim("65519.99 is nearer to 65504 than to the next step", nearest(65519.99) == 65504)
claim("the cut is 65520", nearest(65520.0) == math.inf)
claim("ties: 2049 to 2048, 2051 to 2052", (nearest(2049.0), nearest(2051.0)) == (2048, 2052))
claim("2**-25, half of the smallest value, becomes 0", nearest(2.0**-25) == 0)
claim("a little more survives", nearest(1.01 * 2.0**-25) == 2.0**-24)

# %% tags=["nbval-ignore-output"]
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer

FormatExplorer(fmt=FP16, value=2049.0)

# %% [markdown]
# Read the rows of the rounding modes. At 2049 they part, at 2048 none does. Type `1/3`, then `65519.99`:
# only "up" reaches inf for sure. IEEE 754 names the modes; a cast uses "nearest even".

# %% [markdown]
# ### Two windows
#
# A network of 64-256-256-10 units has learnt handwritten digits in float32. Late in the run three tensors
# of one layer were recorded: its weights, its input activations, and the gradients of those activations.

# %%
from labkit.training.data import digits_mlp
from labkit.formats.histograms import range_report

tensors = digits_mlp()
reports = {name: range_report(tensor, FP16) for name, tensor in tensors.items()}


# %% predict="loses-most"
@predict(guesses.loses_most)
def largest_share_lost():
    return max(reports, key=lambda name: reports[name].share_lost)


# %% [markdown]
# More than a quarter of the gradients is too small for FP16 and becomes 0: **underflow** 下溢. Weights and activations
# keep all their values.

# %% [markdown]
# Now measure it, as two questions: what leaves the range, and how well is the rest rounded?
#
# ### Exercise: two windows
#
# *16 minutes, about 5 lines.* Write `window`. Return the share of the non-zero values that become zero in
# the cast, from 0 to 1. Then the median relative error of the non-zero values that survive. x holds zeros,
# negative values and subnormals too. `dtype` is `torch.float16` or `torch.bfloat16`.


# %% exercise="window"
def window(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """(lost, error) of a float32 tensor cast to a 16-bit dtype."""
    # Compute the error in float32 or wider: `.float()` brings the cast values back unchanged.
    ### BEGIN SOLUTION
    x = x[x != 0]
    after = x.to(dtype).float()
    kept = after != 0
    error = ((after - x)[kept] / x[kept]).abs().median()
    return (~kept).float().mean().item(), error.item()
    ### END SOLUTION


# %% check="window" points=2
check_window(window)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which values can be called lost: those below some bound, or those that the cast has made zero?
# </details>
# <details><summary>Hint 2</summary>
#
# For x = [0, 1e-9, 0.1] in FP16: one of two non-zero values is lost, so 0.5. The error is that of 0.1
# alone. Which masks pick "non-zero before" and "non-zero after"?
# </details>

# %%
see = yours(window, ours.window)
print(f"Computed with {whose(see)} window, on recorded tensors:")
for name, x in tensors.items():
    (lost16, error16), (lost_b, error_b) = see(x, torch.float16), see(x, torch.bfloat16)
    print(
        f"{name:12} FP16 lost {lost16:4.0%}, error 2**{math.log2(error16):5.1f}   "
        f"BF16 lost {lost_b:4.0%}, error 2**{math.log2(error_b):5.1f}"
    )

# %% tags=["nbval-ignore-output"]
from labkit import plots

plots.windows(
    reports,
    [FP16, BF16],
    provenance="Recorded after 400 float32 steps (Intel Xeon, torch 2.13.0, 2026-11-21).",
)

# %% [markdown]
# The bars are the windows of the two formats. Weights and activations stand inside both. The gradients
# reach out of the FP16 window on the left. In BF16 they fit.
#
# More than a quarter of these gradients is gone in FP16. Most of the rest is subnormal, so even the
# survivors are coarse. BF16 loses none, but rounds weights eight times as coarsely. Lab 04 moves the
# gradients into the window by **loss scaling** 损失缩放.
#
# A cutoff at the smallest normal value would have told another story:

# %%
gradients = tensors["gradients"].abs()
claim(
    "94 % lie below 2**-14, where subnormals begin",
    round(100 * (gradients < 2.0**-14).float().mean().item()) == 94,
)
claim(
    "28 % are lost: the cast keeps all above 2**-25",
    round(100 * see(tensors["gradients"], torch.float16)[0]) == 28,
)

# %% [markdown]
# ### Six published sentences
#
# Some of what articles say of number formats is right. Judge six sentences before the cell does.

# %%
import struct


def octaves(fmt):
    return round(math.log2(fmt.max / fmt.smallest_subnormal))


# %% predict="published"
@predict(guesses.published)
def sentences():
    binary16 = int.from_bytes(struct.pack(">e", 0.1))  # IEEE's 16-bit code of 0.1
    bf16 = torch.tensor(0.1).bfloat16().view(torch.int16).item()
    return [
        binary16 == bf16,
        abs(octaves(FP16) - octaves(E5M2)) <= 1,
        BF16.max == FP32.max and BF16.smallest_subnormal == FP32.smallest_subnormal,
        all(quantize(float(n), FP16) == n for n in range(2049)),
        octaves(BF16) < octaves(FP16),
        not E4M3.has_inf,
    ]


# %% [markdown]
# Sentences 4 and 6 are right. 0.1 has the code 0x2E66 in binary16 and 0x3DCD in BF16, so the two are not the same
# format (1). From the smallest subnormal to the largest value, FP16 spans 40 octaves and E5M2 32 (2); their normal
# values span 30 each. BF16 spans 261 (5). 3.4e38 is finite in FP32 and inf in BF16 (3).

# %% [markdown]
# ### Eight bits
#
# FP8 has half the bits. Where should they go? The gradients decide: their octaves must fit, and the rest
# of the bits buys precision.
#
# ### Exercise: eight bits
#
# *16 minutes, optional.* Design a format for these gradients: one sign bit and seven more, inf and NaN as in
# IEEE 754, so at least two exponent bits and one mantissa bit. The budget: no overflow, at most 1 % lost, a median relative error of at most
# 6 %. The bias moves the window. With $k$ exponent bits all values lie below $2^{(2^k - 1 - \text{bias})}$.

# %%
exponents = torch.frexp(gradients)[1] - 1
print(
    f"The gradients lie between 2**{exponents.min()} and 2**{exponents.max() + 1}; their median is near 2**{exponents.median()}."
)
trial = FloatFormat("trial", exponent_bits=4, mantissa_bits=3, bias=24)
report = range_report(tensors["gradients"], trial)
print(
    f"A trial of 4 and 3 bits, bias 24: {report.share_lost:.1%} lost, error {report.error:.1%}, {report.overflowed} overflow"
)

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
# How many octaves must the window span? How many does a format with k exponent bits span? Count the
# normal octaves first; each mantissa bit adds one of subnormals.
# </details>
# <details><summary>Hint 2</summary>
#
# Change `trial` above and run it: first the widths until the error fits and the window is wide enough,
# then the bias, one step at a time.
# </details>

# %% [markdown]
# A bias is a scale in disguise: raising it by one halves every value. FP8 training keeps the format and
# scales the tensor instead, which is the subject of lab 08.

# %% [markdown]
# ### TF32 by hand
#
# *Optional.* TF32 has float32's 8 exponent bits and FP16's 10 mantissa bits: 19 bits in all, stored in 32.
# So 13 mantissa bits go. NVIDIA's conversion instruction `cvt.rna.tf32` sends ties away from zero. Its
# matrix instructions leave the exact precision of TF32 to the hardware. So the name promises no bits.

# %% [markdown]
# ### Exercise: TF32 in integers
#
# *12 minutes, optional, about 3 lines.* Round a float32 tensor to TF32, ties away from zero. Work on its
# codes: `x.view(torch.int32)`. Below the sign bit, a larger code is a larger magnitude. inf and zeros keep their sign,
# subnormals round like other values, and x itself stays as it is. NaN is not tried.


# %% exercise="tf32"
def tf32(x: torch.Tensor) -> torch.Tensor:
    """float32 values rounded to 10 mantissa bits, ties away from zero, as float32."""
    # `~0x1FFF` is a mask that clears the lowest 13 bits.
    ### BEGIN SOLUTION
    codes = x.view(torch.int32)
    return (codes + 0x1000 & ~0x1FFF).view(torch.float32)
    ### END SOLUTION


# %% check="tf32" points=0
check_tf32(tf32)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In decimal: to round 2.7 to a whole number by cutting digits, what do you add first?
# </details>
# <details><summary>Hint 2</summary>
#
# To drop two bits, ties away, add `0b10` and clear `0b11`. Half of a step of 13 bits is which number?
# </details>

# %%
away = yours(tf32, ours.tf32)
x = torch.tensor([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-12, 3.14159274])
for name, values in (
    ("ties away", away(x.clone())),
    ("truncated", quantize(x, TF32, rounding="toward_zero")),
):
    print(f"{name:10}", [f"{value:.10f}" for value in values.tolist()])
claim("1 + 2**-11 needs an eleventh bit: TF32 has ten", away(x.clone())[1] != x[1])

# %% [markdown]
# Ties away and truncation part at the second and third value. Both are in use under one name.

# %% [markdown]
# ### Two formats called E4M3
#
# The name gives widths only. The Open Compute Project's E4M3 and the "fnuz" variant of some AMD GPUs
# share them and disagree on nearly every code:

# %%
for code in (0b0_0111_000, 0b0_1111_110, 0b0_1111_111, 0b1_0000_000):
    print(
        f"{code:08b}   E4M3 {labkit_decode(code, E4M3):6}   E4M3FNUZ {labkit_decode(code, E4M3FNUZ):6}"
    )
claim(f"one name, two largest values: {E4M3.max} and {E4M3FNUZ.max}", E4M3.max != E4M3FNUZ.max)

# %% [markdown]
# Read a checkpoint of one as the other, and the weights come out half or twice as large. A stored -0.0
# becomes NaN. No error is raised. So ask "which E4M3": for its bias and its NaN codes.

# %% [markdown]
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("02_number_formats")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** IEEE 754-2019, sections 3 and 4.3. OCP Microscaling Formats (MX) v1.0 and OCP 8-bit Floating
# Point v1.0. Micikevicius et al., *Mixed Precision Training*, arXiv:1710.03740. Noune et al.,
# arXiv:2206.02915, for the fnuz variants. NVIDIA's PTX manual, `cvt.rna.tf32`.
#
# **Next.** [Lab 03: overflow, underflow, rounding](03_overflow_underflow_rounding.ipynb).
