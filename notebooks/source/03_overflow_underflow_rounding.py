# %% [markdown]
# # 3. Clinic: overflow, underflow, rounding
#
# Patients come in with NaN, zeros and stalled sums; you find the cause and prescribe the cure.
#
# *any laptop · needs: lab 02, above all the gap between floats*
#
# After this lab you can:
#
# - tell a range fault from a rounding fault by one test, and write softmax, masks and norms for FP16;
# - choose the dtypes of a product, bound its error, and add 16-bit numbers without losing them.
#
# Two sittings: **A** treats range, **B** rounding. Each starts alone.

# %% [markdown]
# ## Sitting A: the range ward
#
# *You are here:* **waiting room** → cliffs → log-sum-exp → masks → underflow → *stop* → products → sums

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.overflow_underflow_rounding import checks as clinic
from labkit.labs.overflow_underflow_rounding import predictions as guesses, solutions as ours
from labkit.formats import FP16, TF32, quantize

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("03_overflow_underflow_rounding")

# %% [markdown]
# ### The waiting room
#
# Six patients, all in FP16, have a **range** fault 范围故障 or a **rounding** fault 舍入故障. A range fault: a value left the
# window, so inf, NaN or 0 came out. A rounding fault: every value fits, but a gap swallowed a difference.

# %%
is_well = [
    lambda q: q(math.exp(12)) < math.inf,
    lambda q: q(2048.0 + 1) > 2048,
    lambda q: q(3 - 0.0005) < 3,
    lambda q: q(1e-8) > 0,
    lambda q: q(q(201.0**2) - q(200.0 * 202)) == 1,
    lambda q: q(300.0**2) < math.inf,
]
assert not any(test(lambda x: quantize(x, FP16)) for test in is_well)


# %% predict="triage"
@predict(guesses.triage)
def cured_by_exponent_bits():
    return [test(lambda x: quantize(x, TF32)) for test in is_well]


# %% [markdown]
# The test is general. TF32 has the 10 mantissa bits of FP16 and the exponent bits of FP32. Whoever recovers in TF32 had
# a range fault. Whoever does not needs mantissa bits, or another order of operations.

# %% [markdown]
# ### Cliffs
#
# Patient 1. Somewhere below 12 `exp` goes from finite to inf. Positive codes count upwards, from 0 to
# `0x7C00`, which is inf. So **bisection** 二分法 over codes finds any cliff in 15 steps.
#
# ### Exercise: the cliff finder
#
# *12 minutes, about 7 lines.* Write `cliff`: the largest FP16 x at which a rising f is finite.
#
# - **Input:** a function f that takes and returns FP16 tensors. It never falls as x grows, and f(0) is finite.
# - **Output:** a number that FP16 holds, from 0 to 65504. It need not be a whole number.
# - **Edge case:** for an f that never overflows the answer is 65504.


# %% exercise="cliff"
def cliff(f) -> float:
    """The largest FP16 x >= 0 for which f(x) is finite; f takes and returns FP16 tensors."""

    # `torch.tensor(code, dtype=torch.int16).view(torch.float16)` is the value of a code.
    ### BEGIN SOLUTION
    def value(code):
        return torch.tensor(code, dtype=torch.int16).view(torch.float16)

    safe, unsafe = 0, 0x7C00
    while unsafe - safe > 1:
        middle = (safe + unsafe) // 2
        safe, unsafe = (middle, unsafe) if f(value(middle)).isfinite() else (safe, middle)
    return value(safe).item()
    ### END SOLUTION


# %% check="cliff" points=1
clinic.check_cliff(cliff)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# At one code f is finite, at the other it is not. Which of the two does the middle replace?
# </details>
# <details><summary>Hint 2</summary>
#
# Eight places, 0 safe, 7 not. Place 3 is safe, 5 is not, 4 is not. When does your loop stop?
# </details>


# %%
find = yours(cliff, ours.cliff)
print(f"Computed with {whose(find)} cliff: exp {find(torch.exp)}, square {find(lambda x: x * x)}")
claim("ln 65504 is no FP16 value: it lies above the cliff", find(torch.exp) < math.log(65504))

# %% [markdown]
# Two numbers to keep: 11.0859375 for `exp`, 255.875 for a square. Every softmax, norm and variance contains one of them.
#
# ### Log-sum-exp
#
# Cross-entropy and attention need $\log \sum_i e^{x_i}$. Scores of 12 are common, and beyond the cliff. For any $c$:
#
# $$\log \sum_i e^{x_i} = c + \log \sum_i e^{x_i - c}$$
#
# One choice of $c$ makes every exponential at most 1. This is a **stable formula** 数值稳定的公式.
#
# ### Exercise: log-sum-exp
#
# *12 minutes, about 4 lines.* Write it for an FP16 vector of one value or more, without torch's own.
#
# - **Input:** values from -65504 to 65504, so x may be far above or below the range of `exp`.
# - **Output:** one number. Rounding errors of FP16 operations are allowed.
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
clinic.check_logsumexp(logsumexp)

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
x = torch.tensor([12.0, 11.0, 1.0]).half()
claim(f"{whose(stable)} log-sum-exp: 12.3125", float(stable(x)) == 12.3125)
claim("float32 only moves the cliff: exp(89) is inf", torch.tensor(89.0).exp().isinf())

# %% [markdown]
# ### Masked attention
#
# Attention hides some places before its softmax: padding, or the future. Many programs write -1e9 there. In some rows
# every place is hidden.


# %% predict="masked-row"
@predict(guesses.masked_row)
def weight():
    return torch.full((3,), -1e9).half().softmax(dim=0)[0].item()


# %% [markdown]
# -1e9 is -inf in FP16, and softmax shifts by the maximum: -inf - (-inf). The row is unused, but its NaN spreads.

# %% [markdown]
# ### Exercise: repair the mask
#
# *14 minutes, 1 or 2 lines.* This code fails in FP16:
#
# ```python
# return torch.where(keep, scores, -1e9).softmax(dim=-1)
# ```
#
# Mend it.
#
# - **Input:** FP16 `scores` and a boolean `keep` of one shape, with one axis or more. Neither may be changed.
# - **Output:** weights of the same shape, in FP16: the softmax of the kept scores over the last axis. Hidden places get
#   weight 0, for kept scores down to -60000.
# - **Edge case:** a row with nothing to keep gets finite weights from 0 to 1, whose sum is at most 1.


# %% exercise="masked-softmax"
def masked_softmax(scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis of FP16 scores; keep is True where a place may be seen."""
    # `torch.finfo(scores.dtype)` knows the lowest and the highest value of a dtype.
    ### BEGIN SOLUTION
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=-1)
    ### END SOLUTION


# %% check="masked-softmax" points=2
clinic.check_masked_softmax(masked_softmax)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which finite number of the scores' own dtype is below every score?
# </details>
# <details><summary>Hint 2</summary>
#
# In E2M1 nothing lies below -6. Of [1, 2] with the 2 hidden you want softmax([1, -6]). What replaces?
# </details>

# %%
low = torch.finfo(torch.float16).min
claim("-40 + finfo.min is -inf: adding overflows too", (torch.tensor(-40).half() + low).isinf())
hide = yours(masked_softmax, ours.masked_softmax)
row = hide(torch.full((1, 3), -40.0).half(), torch.zeros(1, 3, dtype=torch.bool))
claim(f"{whose(hide)} masked_softmax keeps an empty row finite", row.isfinite().all())

# %% [markdown]
# ### Gradual underflow
#
# Patient 4, the other end. Below 2**-14 FP16 loses bits one by one: **gradual underflow** 渐进下溢. Some hardware modes skip
# the subnormals and **flush to zero** 刷新为零. What does that cost?


# %%
def flushed(x):
    y = quantize(x, FP16)
    return torch.where(y.abs() < FP16.smallest_normal, torch.zeros_like(y), y)


a, b = torch.tensor(1.5 * 2.0**-14), torch.tensor(2.0**-14)
claim("a - b is 2**-15, a subnormal", quantize(a - b, FP16) == 2.0**-15)
claim("flushed, a - b is 0 although a is not b", flushed(a - b) == 0 and flushed(a) != flushed(b))

# %%
from labkit import plots
from labkit.training.data import digits_mlp
from labkit.formats.histograms import range_report

gradients = digits_mlp()["gradients"]
report = range_report(gradients, FP16)
lost = (flushed(gradients) == 0).float().mean().item()
claim("FP16 loses 28 % of these gradients of lab 02", round(100 * report.share_lost) == 28)
claim("flushed to zero it would lose 94 %", round(100 * lost) == 94)

# %% tags=["nbval-ignore-output"]
plots.windows({"gradients": report}, [FP16], provenance="Recorded after 400 float32 steps.")

# %% [markdown]
# 94 - 28 = 66 % of these gradients live in FP16 as subnormals, the pale part. Also two different numbers always keep a
# difference, so `if a != b: 1 / (a - b)` never divides by 0.
#
# ### An eps that is there
#
# A norm divides by $\sqrt{\text{mean}(x^2) + \epsilon}$, and $\epsilon$ = 1e-8 guards against 0 / 0. In FP16 it meets
# both patients, 4 and 6. So does Adam, whose eps is 1e-8 too.
#
# ### Exercise: a norm that survives
#
# *12 minutes, optional, 2 or 3 lines.* Normalise each row by the formula above. Keep $\epsilon$ as it is.
#
# - **Input:** an FP16 tensor with two axes. A row may hold only zeros, values near 60000, or values near 2**-14.
# - **Output:** an FP16 tensor of the same shape, each row divided by a number of its own.


# %% exercise="unit-rms"
def unit_rms(x: torch.Tensor) -> torch.Tensor:
    """Each row of an FP16 tensor divided by sqrt(mean(x**2) + 1e-8), as FP16."""
    # `x.mean(dim=-1, keepdim=True)` is a column of the rows' means.
    ### BEGIN SOLUTION
    mean = x.float().square().mean(dim=-1, keepdim=True)
    return (x.float() / (mean + 1e-8).sqrt()).half()
    ### END SOLUTION


# %% check="unit-rms" points=0
clinic.check_unit_rms(unit_rms)

# %% [markdown]
# <details><summary>Hints</summary>
#
# What is 1e-8 in FP16, and 300 squared? Which dtype holds both, and from which operation on?
# </details>
#
# **A stopping point.** Range is treated: shift, replace by the lowest value, widen before the square.

# %% [markdown]
# ## Sitting B: the rounding ward
#
# *You are here:* cliffs → log-sum-exp → masks → underflow → *stop* → **products** → sums → remedies

# %%
import math, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.overflow_underflow_rounding import checks as clinic
from labkit.labs.overflow_underflow_rounding import predictions as guesses, solutions as ours
from labkit.formats import BF16, FP16, FP32, FloatFormat, quantize, spacing
from labkit.formats.matmul import mixed_matmul

# %% [markdown]
# ### The dtypes of a matmul
#
# The row `a` holds 16, 512 times, so the product of `a` with itself is 512 × 16 × 16 = 131072. A published program
# computes it in FP16 and casts the result to float32.


# %% predict="late-upcast"
@predict(guesses.late_upcast)
def converted():
    a = torch.full((1, 512), 16.0)
    return (a.half() @ a.half().T).float().item()


# %% [markdown]
# The product is an FP16 value, and 131072 is beyond 65504. Casting inf to float32 leaves it inf.

# %% [markdown]
# A **mixed precision** 混合精度 product has three dtypes: that of its inputs, of its running sum (the **accumulator** 累加器)
# and of its output.
#
# ### Exercise: rescue the matmul
#
# *8 minutes, about 3 lines.* Round the inputs to `in_dtype`, a torch dtype, add in float32, round once to `out_dtype`.
#
# - **Input:** two float32 matrices. An element may be NaN, or too large for `in_dtype`.
# - **Output:** the product in `out_dtype`, and a flag. The flag is one truth value: True if some element of the product
#   that you return is inf or NaN.
# - **Edge case:** a sum of 65512 fits, because FP16 rounds it to 65504.


# %% exercise="rescue"
def rescue(a, b, in_dtype, out_dtype):
    """(product, flag) of two float32 matrices."""
    # A CPU has no mixed product: give `@` float32 tensors that hold 16-bit values.
    ### BEGIN SOLUTION
    product = (a.to(in_dtype).float() @ b.to(in_dtype).float()).to(out_dtype)
    return product, not product.isfinite().all().item()
    ### END SOLUTION


# %% check="rescue" points=3
clinic.check_rescue(rescue)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What does `x.half().float()` do to the values of x, and what to its dtype?
# </details>
# <details><summary>Hint 2</summary>
#
# FP16 in, BF16 out: round to FP16, widen, multiply, round to BF16. Which of these does the flag see?
# </details>

# %%
uniform = torch.Generator().manual_seed(0)
x, y = torch.rand(32, 1000, generator=uniform), torch.rand(1000, 32, generator=uniform)
exact = x.double() @ y.double()


def error(**dtypes):
    return (mixed_matmul(x, y, **dtypes).result.double() - exact).abs().max() / exact.max()


wide, narrow = error(), error(accumulate=torch.float16)
claim("1000 products, float32 sums: error below 1e-4", wide < 1e-4)
claim("FP16 sums: more than 100 times that", narrow > 100 * wide)
claim("FP16 output only: between the two", wide < error(out_dtype=torch.float16) < narrow)

# %% [markdown]
# So the accumulator decides. The output's single rounding costs at most half a gap.
#
# ### What Tensor Cores really do
#
# "Accumulates in FP32" hides three habits. Sums inside a Tensor Core are truncated, not rounded (Fasi et al.).
# **Split-K** 切分K维 gives parts of a sum to different blocks, and may round the parts to 16 bits. Some units keep fewer
# bits: about 14 for FP8 on Hopper, says DeepSeek-V3. An emulation, by rule:


# %%
from labkit.formats.accumulators import add_up

terms = torch.rand(8, 2, 1024, generator=uniform).half().double().prod(dim=1)
fourteen = FloatFormat("14 bits", exponent_bits=8, mantissa_bits=13)
split = quantize(terms.view(8, 16, 64).sum(dim=2), FP16)  # 16 parts, each rounded to FP16
for name, sums in {
    "FP32, nearest": add_up(terms, FP32),
    "FP32, truncated": add_up(terms, FP32, rounding="toward_zero"),
    "14 bits, truncated": add_up(terms, fourteen, rounding="toward_zero"),
    "14 bits, FP32 every 128": add_up(terms, fourteen, rounding="toward_zero", promote_every=128),
    "split-K, 16 parts in FP16": add_up(split, FP16),
    "FP16, nearest": add_up(terms, FP16),
}.items():
    print(f"{name:26} relative error {(sums / terms.sum(dim=1) - 1).abs().max():.0e}")

# %% [markdown]
# Truncation errs in one direction, so its errors add up: 14 bits truncated do worse than 11 to nearest. FP32 every 128
# adds cuts that short. (13 mantissa bits are stored; the leading one makes 14.)
#
# ### A tolerance with a reason
#
# Each float32 operation errs by at most $u$ = 2**-24, relatively. Through $k$ of them the factors compound to at most
# $\gamma_k = k u / (1 - k u)$ (Higham). So an element is off by at most
#
# $$\gamma_k \sum_i |a_i| |b_i|$$
#
# That sum over $|\sum a_i b_i|$ is the **condition number** 条件数: it is large where terms cancel.
#
# ### Exercise: the tolerance
#
# *10 minutes, optional, about 2 lines.* Bound the error of each element of `a @ b` in float32.
#
# - **Input:** float32 matrices with k columns and k rows. Terms may cancel, and they may be as large as 1e8.
# - **Output:** a tensor with a bound for each element. A bound below $k u \sum |a_i| |b_i|$ is too small, and one above
#   four times that is refused as lax.


# %% exercise="tolerance"
def tolerance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A bound on the error of each element of a @ b, float32 matrices."""
    # `a.shape[1]` is k.
    ### BEGIN SOLUTION
    ku = a.shape[1] * 2.0**-24
    return ku / (1 - ku) * (a.abs() @ b.abs())
    ### END SOLUTION


# %% check="tolerance" points=0
clinic.check_tolerance(tolerance)

# %% [markdown]
# <details><summary>Hints</summary>
#
# For two products: k = 2, times |a₁b₁| + |a₂b₂|. Which matrix product gives that sum everywhere?
# </details>

# %%
bound = yours(tolerance, ours.tolerance)
claim("1e8 + 1 - 1e8 is 0 in float32: off by 100 %", torch.tensor(1e8) + 1 - 1e8 == 0)
a, b = (2 * x - 1).half().float(), (2 * y - 1).half().float()
exact, room = a.double() @ b.double(), bound(a, b).double()
product = mixed_matmul(a, b, out_dtype=torch.float16).result
inside = ((exact - room).half() <= product) & (product <= (exact + room).half())
claim(f"by {whose(bound)} E, each FP16 result lies in [round(S - E), round(S + E)]", inside.all())

# %% [markdown]
# This **interval test** 区间检验 has no factor to tune. Our checks use it.
#
# ### Reach the sum
#
# Add ones by hand, first 1000 at once, then one by one. Where does FP16 stick, and where BF16?

# %% tags=["nbval-ignore-output"]
from labkit.labs.overflow_underflow_rounding.widget_reach_the_sum import ReachTheSum

ReachTheSum()

# %% [markdown]
# A term below half a gap is lost, and at half a gap ties go to even: **swamping** 大数吃小数. Does torch's own sum suffer
# from it?


# %% predict="torch-sum"
@predict(guesses.torch_sum)
def ones():
    return torch.ones(10000, dtype=torch.bfloat16).sum().item()


# %% [markdown]
# `sum` rounds once, at the end: 9984 is the BF16 value nearest to 10000. Its running sum is wider than 16 bits.

# %% [markdown]
# ### Exercise: reach 5000
#
# *12 minutes, optional, about 4 lines.* Add up an FP16 vector by `+` on FP16 tensors: no `sum`, no wider dtype, no
# Python floats, no numpy.
#
# - **Input:** an FP16 vector. Its length may be odd, and it may be 1.
# - **Output:** one number. 5000 ones must give 5000, and 4000 numbers between 0 and 2 a sum within 1.2 %.


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
clinic.check_total(total)

# %% [markdown]
# <details><summary>Hints</summary>
#
# 1 + 1 is exact, and so is 2 + 2. Add equals to equals. Of five numbers, which has no partner?
# </details>
#
# This is **pairwise summation** 成对求和. A chain of n adds has n roundings; a tree has log₂ n levels.
#
# ### Fair rounding
#
# 1 + 2**-9 lies a quarter of the way from 1 to the next BF16 value. To nearest it is always 1, so an update of 2**-9
# never arrives. **Stochastic rounding** 随机舍入 goes up as often as makes the mean right.
#
# ### Exercise: fair rounding
#
# *16 minutes, optional, about 3 lines.* Round float32 to BF16 values, up or down at random, so that the mean is x.
#
# - **Input:** a float32 vector of finite values, possibly negative. Many may be equal: each is drawn for itself.
# - **Output:** a vector of the same length. Each value is one of the two BF16 neighbours.
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


# %% check="fair-round" points=0
clinic.check_fair_round(fair_round)

# %% [markdown]
# <details><summary>Hints</summary>
#
# With a gap of 1, 2.25 becomes 3 once in four times: the draw is below 0.25. Now count in gaps.
# </details>

# %%
fair = yours(fair_round, ours.fair_round)
torch.manual_seed(0)
plain, lucky = torch.ones(500), torch.ones(500)
for _ in range(1000):
    plain, lucky = quantize(plain + 1e-4, BF16), fair(lucky + 1e-4)
claim("1 plus 1000 times 1e-4, to nearest: 1", (plain == 1).all())
claim(f"with {whose(fair)} fair rounding: 1.1 on average", abs(lucky.mean() - 1.1) < 0.01)

# %% [markdown]
# ### Kahan in BF16
#
# **Compensated summation** 补偿求和 needs no luck. It carries the error of each add into the next, in one more BF16
# number. After `t = s + y`, what arrived is `t - s`. What was sent is `y`. Their difference is `c`.
#
# ### Exercise: Kahan
#
# *16 minutes, about 6 lines.* Add up a BF16 vector with a loop of BF16 adds and subtractions: no `sum`, no wider
# dtype, no Python floats, no numpy. What an add loses goes into the next one.
#
# - **Input:** a BF16 vector, such as 256, 1 and 1, or 5000 ones.
# - **Output:** one BF16 number, within two gaps of the exact sum. Of 256, 1 and 1 it is 258, and of ones the nearest value.


# %% exercise="kahan"
def kahan(x: torch.Tensor) -> torch.Tensor:
    """The sum of a BF16 vector, with compensation."""
    s = c = torch.zeros((), dtype=x.dtype)  # the sum, and what it has got too much
    ### BEGIN SOLUTION
    for value in x:
        y = value - c
        t = s + y
        c = (t - s) - y
        s = t
    ### END SOLUTION
    return s


# %% check="kahan" points=2
clinic.check_kahan(kahan)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# s = 256, c = 0, and a 1 comes: t = 256. What is (t - s) - y, and what should the next 1 become?
# </details>
# <details><summary>Hint 2</summary>
#
# Four lines: `y = value - ...`, `t = s + y`, `c = (... - s) - ...`, `s = t`. Why is that one last?
# </details>

# %%
carry = yours(kahan, ours.kahan)
ones = torch.ones(5000, dtype=torch.bfloat16)
claim(f"{whose(carry)} Kahan sum of 5000 ones: 4992", float(carry(ones)) == 4992)
claim("5000 is no BF16 value: above 4992 the gap is 32", spacing(4992.0, BF16) == 32)
steps = torch.tensor([1.0] + 1000 * [1e-4]).bfloat16()
claim("1 plus 1000 times 1e-4: 1.1015625, the value next to 1.1", float(carry(steps)) == 1.1015625)

# %% [markdown]
# No BF16 answer is better than 4992; the missing 8 is in `c`, as -8. Some optimizers keep such a `c` beside BF16 weights.
#
# ### Variance in one pass
#
# $E[x^2] - E[x]^2$ is the square patient and the cancelling patient in one. Welford's formula goes through a stream
# once. With $\mu$ before and $\mu'$ after a value $x$, the sum of squares grows by $(x - \mu)(x - \mu')$.
#
# ### Exercise: Welford
#
# *14 minutes, optional, about 6 lines.* Mean and variance (divided by n) of a stream, which can be read once. Its numbers
# may lie near 1e9, and there may be only one.


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
clinic.check_welford(welford)

# %% [markdown]
# <details><summary>Hints</summary>
#
# For 1, then 3, the mean goes from 1 to 2: by half of 3 - 1. The squares grow by (3 - 1)(3 - 2).
# </details>
#
# ### Rounded twice
#
# float64 to BF16 goes by way of float32 in torch. Two roundings to nearest are not one.
#
# ### Exercise: a hair
#
# *8 minutes, optional.* Find a Python float that BF16 gets wrong this way: the nearest BF16 value is another.

# %% exercise="hair"
hair = ...  # a Python float, such as 1 + 2**-3
### BEGIN SOLUTION
hair = 1 + 2**-8 + 2**-30
### END SOLUTION

# %% check="hair" points=0
clinic.check_hair(hair)

# %% [markdown]
# <details><summary>Hints</summary>
#
# 1 + 2**-8 is a tie, and goes down to even. Which addend breaks it, too small for float32 to see?
# </details>
#
# ### Five remedies
#
# Articles prescribe them. The next cell makes the data on which the cell after it tries each.

# %%
features = 1e5 * torch.randn(64, 16, generator=uniform)
noisy = (1 + 1e-4 * torch.randn(10000, generator=uniform)).half()
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
        abs(lucky.mean().item() - 1.1) < 0.01,
    ]


# %% [markdown]
# Remedies 3 and 5 work. Overflow comes from the **scale** 量级 of the data, and the balance of the classes does not
# change it; a class weight of 1e5 even is inf in FP16. Noise below half a gap vanishes in rounding. It helps only
# inside the rounding, as in remedy 5.

# %% [markdown]
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("03_overflow_underflow_rounding")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., chapters 3 and 4. Fasi et al.,
# *Numerical behavior of NVIDIA tensor cores*, PeerJ CS 7:e330. DeepSeek-V3, arXiv:2412.19437, section 3.5. Micikevicius
# et al., arXiv:1710.03740. Zamirai et al., arXiv:2010.06192 (BF16).
#
# **Next.** [Lab 04: master weights and loss scaling](04_loss_scaling.ipynb).
