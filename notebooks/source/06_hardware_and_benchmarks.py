# %% [markdown]
# # 6. A lab report: hardware, and honest benchmarks
#
# You say what a device can do, and how you know; you tell a speed-up from noise.
#
# *any laptop, or a GPU · needs: lab 05, above all which values are 16-bit*
#
# After this lab you can:
#
# - keep apart what a device stores, computes and accelerates, and choose a precision from that;
# - predict the least time of a product, time one, and judge whether a faster run is as good.
#
# Two sittings: **A** is about the device, **B** about the experiment. Each starts alone.

# %% [markdown]
# ## Sitting A: the device
#
# *You are here:* **three facts** → recipe → peak → roofline → this machine → *stop* → Amdahl → timer → benchmark → verdict

# %%
import pandas as pd, torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.hardware_and_benchmarks import predictions as guesses, solutions as ours
from labkit.labs.hardware_and_benchmarks.checks import device_facts as device
from labkit.devices import Description, detect, device_of, recommend

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("06_hardware_and_benchmarks")

# %% [markdown]
# ### One question is three
#
# "Does this card support BF16?" asks three things at once. Can memory hold it? Can torch compute with it? Has the chip
# units for it?

# %%
gtx_1660 = device_of(Description(name="GeForce GTX 1660", kind="cuda", capability="7.5"))


# %% predict="gtx-1660"
@predict(guesses.gtx_1660)
def claims():
    bf16 = gtx_1660.dtypes["bf16"]
    facts = [gtx_1660.matrix_units, bf16.storable, bf16.computable, bf16.accelerated]
    return [fact.answer for fact in facts]


# %% [markdown]
# The GTX 1660 stores BF16 and computes it through float32, slowly. Its capability is that of cards with Tensor Cores,
# and its chip has none.

# %% [markdown]
# - **Storable**: bytes are bytes, so any card stores FP16, BF16 and FP8. TF32 is no dtype in memory: its values are
#   kept as FP32.
# - **Computable**, here: torch has *some* kernel. Where no unit takes a 16-bit value, it goes through FP32 and rounds:
#   elementwise on any card, products of BF16 from 7.0 on, slowly. Below 7.0 many versions of cuBLAS refuse them, and current
#   wheels have no code for cards below 7.5. On NVIDIA's cards FP8 has one operation, the scaled product; it asks for the
#   units. So does TF32.
# - **Accelerated**: units of the chip take it at no less than the rate of FP32.
#
# NVIDIA's documents, by **compute capability**:
#
# | | FP16 results a clock, FP32 results | Tensor Cores take |
# |---|---|---|
# | 5.3, 6.0, 6.2 | twice as many | |
# | 6.1 | 2 against 128 | |
# | 7.0, 7.2, 7.5 | twice as many | FP16 |
# | 8.0, 8.6, 8.7 | at least as many | FP16, BF16, TF32 |
# | 8.9 and later | at least as many | FP16, BF16, TF32, FP8 |
#
# ### Exercise: three facts
#
# *12 minutes, about 6 lines.* Turn the table into rules. They are tried on sixteen devices, from 5.3 to 12.0. For
# *computable* one operation is enough: torch adds two BF16 tensors on every card.


# %% exercise="three-facts"
def three_facts(dtype: str, capability: tuple[int, int]) -> tuple[bool, bool, bool]:
    """(storable, computable, accelerated) of "fp16", "bf16", "tf32" or "fp8"."""
    # Tuples compare as you need: (8, 9) < (10, 0). No capability is below (5, 3).
    ### BEGIN SOLUTION
    if dtype == "fp16":
        accelerated = capability in ((5, 3), (6, 0), (6, 2)) or capability >= (7, 0)
    else:
        accelerated = capability >= {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}[dtype]
    computable = accelerated or dtype in ("fp16", "bf16")
    return dtype != "tf32", computable, accelerated
    ### END SOLUTION


# %% check="three-facts" points=2
device.check_three_facts(three_facts)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Which of the four dtypes is the only one that no memory holds? For which two has torch
# some kernel on every card?
#
# Write `accelerated` first. "Computable" is "accelerated", or one of two dtypes.
#
# For FP16, 6.1 is the exception: a comparison with `>=` alone cannot be right.
# </details>

# %%
facts = yours(three_facts, ours.three_facts)
cards = {"GTX 1080": (6, 1), "T4": (7, 5), "A100": (8, 0), "L4": (8, 9), "B200": (10, 0)}
dtypes = ("fp16", "bf16", "tf32", "fp8")


def letters(answers):
    return "".join(letter if yes else "-" for letter, yes in zip("sca", answers, strict=True))


rows = {name: [letters(facts(d, at)) for d in dtypes] for name, at in cards.items()}
print(f"stored, computed, accelerated, by {whose(facts)} rules")
pd.DataFrame.from_dict(rows, orient="index", columns=dtypes)

# %% [markdown]
# A program that tests "BF16 works" by computing with it finds the second letter, and a T4 passes. Only the third letter is
# speed.
#
# ### Exercise: the recipe
#
# *4 minutes, about 4 lines.* Choose a precision for training, and whether it needs a loss scaler. BF16 wherever it is
# accelerated. Otherwise FP16, if there are Tensor Cores. Otherwise FP32. Tensor Cores came with 7.0, but the chips of the
# GTX 16 series have none, though their capability is 7.5.


# %% exercise="recipe"
def recipe(name: str, capability: tuple[int, int]) -> tuple[str, bool]:
    """("bf16", "fp16" or "fp32", does it need a loss scaler?)"""
    # `name` is what the driver says, such as "NVIDIA GeForce GTX 1660".
    ### BEGIN SOLUTION
    if capability >= (8, 0):
        return "bf16", False
    if capability >= (7, 0) and "GTX 16" not in name:
        return "fp16", True
    return "fp32", False
    ### END SOLUTION


# %% check="recipe" points=1
device.check_recipe(recipe)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Which of the three precisions can lose a gradient to underflow?
#
# Two cards of capability 7.5 get different recipes. What besides the capability do you have?
# </details>
#
# `labkit.devices.recommend` also gives the reasons, and lines to paste:

# %%
t4 = recommend(device_of(Description(name="Tesla T4", kind="cuda", capability="7.5")))
print(*t4.reasons, t4.code, sep="\n")

# %% [markdown]
# ### This machine
#
# `detect()` asks the system and tries each dtype in a process of its own, since a broken driver would take yours along.
# Press an answer on the card: is its evidence a **probe**, a table, a flag of the processor, or nothing at all?

# %% tags=["nbval-ignore-output"]
from labkit.labs.hardware_and_benchmarks.widget_device_card import DeviceCard

DeviceCard(detect())

# %% [markdown]
# ### Exercise: the peak
#
# *3 minutes, 1 line.* A **peak** is arithmetic: how many units, how many multiply-adds each starts per clock, how many
# clocks a second. An H100 has 528 Tensor Cores; each starts 512 multiply-adds of FP16 a clock, at 1830 MHz. Return all
# digits, not a rounded number.


# %% exercise="peak"
def peak(units: int, fma_per_clock: int, clock_mhz: float) -> float:
    """The dense peak in TFLOP/s: 10**12 operations a second."""
    ### BEGIN SOLUTION
    return 2 * units * fma_per_clock * clock_mhz * 1e6 / 1e12
    ### END SOLUTION


# %% check="peak" points=1
device.check_peak(peak)

# %% [markdown]
# <details><summary>Hints</summary>
#
# `a * b + c` is one instruction. How many operations is it?
#
# One unit, one multiply-add a clock, 1 MHz: that is 2 million operations a second.
# </details>

# %%
from labkit.devices.roofline import roofs

of = yours(peak, ours.peak)
h100 = next(roof for roof in roofs("fp16") if roof.device == "H100 SXM5 80GB")
print(f"by {whose(of)} peak {of(528, 512, 1830):.1f} TFLOP/s, the table {h100.flops / 1e12:.1f}")
claim(
    "the table's figure is this arithmetic", abs(of(528, 512, 1830) * 1e12 / h100.flops - 1) < 1e-3
)

# %% [markdown]
# The data sheet prints 1979, twice as much, with a footnote: *with sparsity*. It holds where two of every four weights are
# 0 in a fixed pattern. Yours are not, so 989 is the peak of your products.
#
# ### The roof
#
# A peak says how fast the units are, not whether they are fed: memory may be too slow for them.

# %%
from labkit.devices.roofline import matmul_work


# %% predict="small-matmul"
@predict(guesses.small_matmul)
def bound():
    flop, moved = matmul_work(512, 512, 512, "fp16")
    return h100.bound(flop=flop, bytes_moved=moved)


# %% [markdown]
# The product needs 2 × 512³ FLOP and moves 3 × 512² × 2 bytes: 171 FLOP for each byte. In the time in which its memory
# delivers a byte, this card can do 295.

# %% [markdown]
# **Arithmetic intensity** is FLOP a byte. Under 989 / 3.35 = 295 FLOP a byte, this card waits for memory, however
# fast its units are.
#
# ### Exercise: the least time
#
# *6 minutes, about 4 lines.* An (m, k) by (k, n) product. Each matrix crosses the memory bus once, the result too. The
# device computes and moves at the same time, so the longer of the two is the least time.


# %% exercise="least-time"
def least_time(
    m: int, n: int, k: int, size: int, peak: float, bandwidth: float
) -> tuple[float, str]:
    """(seconds, "compute" or "memory"); size in bytes a value, peak in FLOP/s, bandwidth in bytes/s."""
    ### BEGIN SOLUTION
    computing = 2 * m * n * k / peak
    moving = size * (m * k + k * n + m * n) / bandwidth
    return max(computing, moving), "compute" if computing > moving else "memory"
    ### END SOLUTION


# %% check="least-time" points=2
device.check_least_time(least_time)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Each of the m * n results is a sum of k products.
#
# How many values do the three matrices have together?
# </details>

# %%
time = yours(least_time, ours.least_time)
for batch in (1, 16, 256):
    seconds, why = time(batch, 4096, 4096, 2, 989e12, 3.35e12)
    print(f"batch {batch:3}: {1e6 * seconds:4.1f} us, bound by {why}")
one, _ = time(1, 4096, 4096, 2, 989e12, 3.35e12)
claim("256 samples take less than 1.2 times as long as one", seconds < 1.2 * one)
bounds = [time(batch, 4096, 4096, 2, 989e12, 3.35e12)[1] for batch in (344, 345)]
claim("Memory is the bound up to a batch of 344", bounds == ["memory", "compute"])

# %% [markdown]
# A layer of 4096 x 4096 weights is bound by memory up to a batch of 344: the weights must be read either way. There 16 bits
# help by being half as large, not by being multiplied faster. Move the slider: at which size do the units become the bound?

# %%
from labkit.labs.hardware_and_benchmarks.widget_roofline import Roofline

v100, a100 = roofs("fp16", devices=["V100 SXM2", "A100 SXM4 40GB"])
claim("An A100's dense FP16 peak is 2.5 times a V100's", round(a100.flops / v100.flops, 1) == 2.5)
Roofline(roofs("fp16", devices=["T4", "A100 SXM4 40GB", "H100 SXM5 80GB"]))

# %% [markdown]
# That was **published**. Now **measured** here, for a few seconds, the arms by turns. The line of the A/A control is the
# same product timed twice. What differs by less is no difference.

# %% tags=["nbval-ignore-output"]
from labkit.measuring import measure

here = measure(dtypes=("fp32", "bf16", "fp16"), sizes=(256, 512), seconds=3)
print(here.describe())

# %% [markdown]
# Find your processor's flags on the card and your rates here. Is each accelerated dtype the faster one? If not, one
# possible reason is a library without code for these units. A flag is a fact about the chip, a rate one about the
# whole. This machine under its roof:

# %% tags=["nbval-ignore-output"]
Roofline([here.roof("fp32"), *roofs("fp32", devices=["T4", "A100 SXM4 40GB"])])

# %% [markdown]
# And **recorded**: the same measurement, made by `labkit record` on another day, on the device that it names.

# %%
from labkit.measuring.recordings import recordings

for recording in recordings():
    rates = {d: recording.measurement.peak(d) / 1e9 for d in ("fp32", "bf16", "fp16")}
    print(recording.source, {d: f"{rate:.0f} GFLOP/s" for d, rate in rates.items()})

# %% [markdown]
#
# *Stop here if you like: sitting B starts alone.*
#
# ## Sitting B: the experiment
#
# *You are here:* three facts → recipe → peak → roofline → this machine → *stop* → **Amdahl** → timer → benchmark → verdict

# %%
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.hardware_and_benchmarks import predictions as guesses, solutions as ours
from labkit.labs.hardware_and_benchmarks.checks import honest_benchmarks as bench

# %% [markdown]
# ### Amdahl's bet
#
# Products take 70 % of a training step. FP16 makes them twice as fast, and nothing else.


# %% predict="amdahl"
@predict(guesses.amdahl)
def whole_step():
    return round(ours.speedup({"products": 0.7, "rest": 0.3}, {"products": 2}), 2)


# %% [markdown]
# What remains of the time is 0.3 + 0.7 / 2 = 0.65, and 1 / 0.65 = 1.54. The 30 % that FP16 leaves as they are now are
# nearly half of the step.

# %% [markdown]
# ### Exercise: the whole step
#
# *4 minutes, about 3 lines.* **Amdahl's law**, from times: a step has parts, some become faster. A part can also
# become slower: casts are work. Leave both dicts as they are.


# %% exercise="speedup"
def speedup(seconds: dict[str, float], faster: dict[str, float]) -> float:
    """How many times faster the step is; a part that `faster` lacks stays as it is."""
    ### BEGIN SOLUTION
    after = sum(time / faster.get(part, 1) for part, time in seconds.items())
    return sum(seconds.values()) / after
    ### END SOLUTION


# %% check="speedup" points=1
bench.check_speedup(speedup)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Write down the time of the step before, and after. Which divides which?
#
# `faster.get(part, 1)` is 1 for a part that nothing changed.
# </details>

# %%
whole = yours(speedup, ours.speedup)
step = {"products": 7.0, "norms and losses": 2.0, "data": 1.0}
for factor in (2, 8, 1000):
    print(f"products {factor:4} times as fast: the step {whole(step, {'products': factor}):.2f}")

# %% [markdown]
# Faster products alone end at 3.33 here, for any card. Then the norms count, and the loader: **profile** before you cast.
#
# ### The timer
#
# A GPU call returns when the work is *queued*. On a laptop you cannot feel that, so labkit has a device that behaves so, with
# a clock of its own. A launch takes 0.01 ms, and a product takes the device 2 ms. Here is a timer, which reads ms:
#
# ```python
# start = gpu.clock()
# gpu.launch("matmul", seconds=0.002)
# 1000 * (gpu.clock() - start)
# ```

# %%
from labkit.devices import AsyncDevice


# %% predict="launches"
@predict(guesses.launches)
def milliseconds():
    gpu = AsyncDevice(launch_seconds=1e-5)
    start = gpu.clock()
    gpu.launch("matmul", seconds=0.002)
    return round(1000 * (gpu.clock() - start), 3)


# %% [markdown]
# It read the time of a **launch**. When the clock is read, the product is queued and not done.

# %% [markdown]
# A timer needs four things. A warm-up, since a first call loads and chooses its kernel. An
# idle device when the clock starts, and a finished one when it stops. And a middle that one disturbance does not move.
#
# ### Exercise: the timer
#
# *7 minutes, about 8 lines.* `device.synchronize()` waits until all queued work is done; `device.clock()` is its
# `time.perf_counter()`. The device may be busy when you begin, its first call may be slow, and one or two of five calls
# may be disturbed. `repeats` says of how many runs the median is; it may be 1.


# %% exercise="timed"
def timed(device, work, repeats: int) -> float:
    """The median seconds of one work(), which launches one kernel on the device."""
    # `from statistics import median` may help.
    ### BEGIN SOLUTION
    from statistics import median

    work()
    times = []
    for _ in range(repeats):
        device.synchronize()
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    return median(times)
    ### END SOLUTION


# %% check="timed" points=3
bench.check_timed(timed)

# %% [markdown]
# <details><summary>Hints</summary>
#
# Draw two lines, one for the program and one for the device. Where are the two readings of your clock?
#
# Whose work may still be queued when you begin? Your own warm-up counts.
#
# Warm up; then for each repeat: wait, read, work, wait, read.
# </details>

# %%
timer = yours(timed, ours.timed)
gpu = AsyncDevice(launch_seconds=1e-5, warm_up_seconds=0.5)
seconds = timer(gpu, lambda: gpu.launch("matmul", seconds=0.002), 5)
print(f"{whose(timer)} timer: {1000 * seconds:.2f} ms")

# %% [markdown]
# `torch.cuda.synchronize()` is that call on a real GPU. `loss.item()` waits too, which is why a logged loss slows a loop.
#
# ### A benchmark
#
# The published benchmark trains FP32, then FP16, and divides. Its second arm finds a warm machine: run the same arm twice in
# this way, and one of them can "win" by a factor. `benchmark` gives each arm fresh weights from one seed, lets the arms take
# turns in blocks, and runs the first arm **twice**.

# %% tags=["nbval-ignore-output"]
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN
from labkit.measuring import benchmark

data = digits()
on = "cuda" if torch.cuda.is_available() else "cpu"


def fresh():
    model = SmallCNN()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


train_set = list(batches(data.train_images, data.train_labels, 64))
test_set = (data.test_images, data.test_labels)
report = benchmark(("fp32", "bf16", "fp16"), make=fresh, batches=train_set, test=test_set,
                   steps=5, rounds=5, device=on)  # fmt: skip
print(report.describe())

# %%
from labkit.measuring import work_and_memory

again = report.control_verdict
kept = {
    p: work_and_memory(fresh()[0], train_set[0], precision=p, device=on)[1]
    for p in ("fp32", "fp16")
}
claim("FP32 against FP32 is not exactly 1: that is the noise", again.low < again.high)
claim("FP16 autocast keeps less for the backward pass than FP32", kept["fp16"] < kept["fp32"])

# %% [markdown]
# On a CPU this benchmark emulates the 16 bits of a GPU: its times say nothing of one, and the report says so. Its bytes, losses and
# skipped steps are those of a GPU. A speed-up counts only outside the A/A spread, and beside the quality that it cost.
#
# ### Exercise: the verdict
#
# *14 minutes, about 8 lines.* Is BF16 *as good as* FP32? Train both from the same seeds and take the **paired differences**
# in accuracy. Their mean $d$ has the 95 % **confidence interval** $d \pm t\, s/\sqrt n$, with $s$ the sample's standard
# deviation. The factor $t$ is the 97.5 % quantile of Student's distribution with $n - 1$ degrees of freedom. A table gives
# 4.303 for three pairs, 2.776 for five. Before the run you state a **margin**: a difference that would not matter.
#
# - the whole interval inside ±margin: *equivalent*;
# - the whole interval below -margin: *worse*; above margin: *better*;
# - anything else: *inconclusive*, so run more seeds.


# %% exercise="verdict"
def verdict(differences: list[float], margin: float, t: float) -> str:
    """ "equivalent", "worse", "better" or "inconclusive"; t belongs to this number of pairs."""
    # `statistics.stdev` divides by n - 1, as it must here.
    ### BEGIN SOLUTION
    from statistics import fmean, stdev

    half = t * stdev(differences) / len(differences) ** 0.5
    low, high = fmean(differences) - half, fmean(differences) + half
    if -margin < low and high < margin:
        return "equivalent"
    if high < -margin:
        return "worse"
    return "better" if low > margin else "inconclusive"
    ### END SOLUTION


# %% check="verdict" points=2
bench.check_verdict(verdict)

# %% [markdown]
# <details><summary>Hints</summary>
#
# The interval from -0.8 to +0.6 holds 0. Does it also hold differences that would matter?
#
# Compute `low` and `high` first. Each of the four words is then a comparison with the margin.
# </details>

# %%
judge = yours(verdict, ours.verdict)
print("0.1 points apart, over and over:", judge([-0.1, -0.1, -0.11, -0.1, -0.09], 0.5, 2.776))
print("no significant difference:      ", judge([-1.5, 0.9, -0.4, 1.1, -0.6], 0.5, 2.776))
claim(
    "'p > 0.05' is not 'equivalent'",
    judge([-1.5, 0.9, -0.4, 1.1, -0.6], 0.5, 2.776) == "inconclusive",
)

# %% [markdown]
# The first difference is certain and does not matter. The second is too noisy to say. Now a real one, three seeds of a small
# network. The control is FP32 against FP32 with its batches in another order, so it shows what chance does:

# %% tags=["nbval-ignore-output"]
from labkit.training.models import mlp
from labkit.measuring import accuracy_impact


def small():
    model = mlp(64, 32, 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


impact = accuracy_impact(("fp32", "bf16"), make=small, seeds=range(3), epochs=2, margin=0.02, device=on,
                         train_data=(data.train_images, data.train_labels), test_data=test_set)  # fmt: skip
print(impact.describe())

# %% [markdown]
# Whatever the words are, they come with an interval and a margin. Three seeds are few, so t is 4.3: the next few make the
# interval much narrower, since t falls too. From many pairs on, four times as many halve it. A larger test set helps as well.
#
# ### Where does the time go?
#
# Three cheap looks before you blame a dtype: are the dimensions multiples of 8, which Tensor Cores want for 16 bits? How many
# casts does a step make? Does it wait for its data?

# %%
from labkit.emulation import emulate_gpu
from labkit.measuring import count_casts, misaligned

model, _ = fresh()
for layer in misaligned(model):
    print(layer)
x, y = train_set[0]
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    casts = count_casts(lambda: torch.nn.functional.cross_entropy(model(x), y))
claim("autocast casts inputs and weights in each forward pass", casts.count >= 6)

# %% [markdown]
# Ten classes are no multiple of 8: vocabularies are padded for that reason. The benchmark above also says which share of a
# step waited for data, and energy only where a counter gives it. "GPU utilisation" says that *some* kernel ran. **Model FLOPs
# utilisation** (MFU), the useful FLOP over the peak, says how well.
#
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("06_hardware_and_benchmarks")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** NVIDIA, *CUDA C++ Programming Guide* (compute capabilities; throughput of arithmetic instructions); whitepapers of
# A100 and H100; peaks and bandwidths with their sources in data/gpus.csv. Williams, Waterman, Patterson, *Roofline* (2009).
# G. Amdahl (1967). Schuirmann, equivalence by two one-sided tests (1987). PyTorch 2.13: `fp32_precision`, CUDA semantics.
#
# **Next.** [Lab 16: the interview](16_interview.ipynb). Labs 07 to 15, on memory, FP8, quantization and production, come with
# later releases.
