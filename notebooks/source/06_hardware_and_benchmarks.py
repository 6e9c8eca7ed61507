# %% [markdown]
# # 6. A lab report: hardware, and honest benchmarks
#
# Say what a device can do and what bounds its speed, and tell a speed-up from noise.
#
# *any laptop, or a GPU · needs: lab 05, above all which values are 16-bit*
#
# After this lab you can:
#
# - choose a precision for a GPU from what torch says of it, and predict the least time of a matmul;
# - time GPU work correctly, and read in a profile where a step spends its time;
# - judge from paired rounds whether one training step is faster than another.

# %% [markdown]
# ## Sitting A: what a device can do
#
# *You are here:* **half the bits** → three questions → recipe → peaks → three bounds → *stop*

# %%
import pandas as pd, torch
from torch.utils.benchmark import Timer
from labkit.labs.engine import predict, whose, yours
from labkit.labs.hardware_and_benchmarks import predictions as guesses, solutions as ours
from labkit.labs.hardware_and_benchmarks.checks import check_least_time, check_recipe
from labkit.labs.hardware_and_benchmarks.simulated_cuda import simulated_gpu
from labkit.devices import Description, detect, device_of

# %% [markdown]
# First, questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("06_hardware_and_benchmarks")

# %% [markdown]
# ### Half the bits, twice the speed?
#
# A 16-bit value has half the bytes of an FP32 value. Is a 16-bit matmul twice as fast? Measure it on
# your machine. `torch.utils.benchmark.Timer` warms up, waits until a GPU has finished its work, and repeats the statement.

# %% tags=["nbval-ignore-output"]
device = "cuda" if torch.cuda.is_available() else "cpu"
times = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    x = torch.randn(256, 256, device=device).to(dtype)
    timer = Timer("x @ x", globals={"x": x}, num_threads=torch.get_num_threads())
    times[str(dtype)] = 1e6 * timer.blocked_autorange(min_run_time=0.3).median
pd.DataFrame({"microseconds": times}).round(1)

# %% [markdown]
# The answer depends on your machine. Some processors multiply BF16 several times faster than FP32. On others a
# 16-bit matmul takes longer, often because torch converts the values to FP32 first.

# %% [markdown]
# ### Storable, computable, accelerated
#
# "Does this GPU support BF16?" can mean three things: can its memory hold BF16, can torch compute
# with it, and does the chip have fast hardware for it? The T4, which many free notebook services offer, shows the
# difference. `simulated_gpu` makes `torch.cuda` answer as on a machine with that GPU.


# %% predict="t4-bf16"
@predict(guesses.t4_bf16)
def statements():
    with simulated_gpu("Tesla T4", (7, 5)):
        supported = torch.cuda.is_bf16_supported()
    bf16 = device_of(Description(name="Tesla T4", kind="cuda", capability="7.5")).dtypes["bf16"]
    facts = [bf16.storable, bf16.computable, bf16.accelerated]
    return [*(fact.answer for fact in facts), supported]


# %% [markdown]
# The T4 stores BF16 and computes with it, but only by converting to FP32 and back. Its Tensor Cores take
# FP16 and not BF16. `is_bf16_supported()` returns `True` for every GPU on which torch can create a BF16 tensor. Call
# `is_bf16_supported(including_emulation=False)` to ask for hardware that takes BF16.

# %% [markdown]
# - **Storable**: memory can hold the dtype. TF32 is never stored: it is a way to multiply FP32 values that are
#   rounded to 10 mantissa bits.
# - **Computable**: torch has an operation for the dtype there, fast or slow.
# - **Accelerated**: the chip computes with the dtype at least as fast as with FP32. Whether torch uses that hardware is another
#   question, so measure.
#
# What an NVIDIA GPU accelerates depends mostly on its **compute capability**, a version number that
# `torch.cuda.get_device_capability()` returns: `(7, 5)` for the T4. Here is what is accelerated, by labkit's rules.

# %%
names = ["GTX 1660", "Tesla T4", "A100", "RTX 4090", "H100", "B200"]
rows = {}
for name, capability in zip(names, ["7.5", "7.5", "8.0", "8.9", "9.0", "10.0"], strict=True):
    gpu = device_of(Description(name=name, kind="cuda", capability=capability))
    words = {d: gpu.dtypes[d].accelerated.word for d in ("fp16", "bf16", "tf32", "fp8", "fp4")}
    rows[name] = {"capability": capability, "Tensor Cores": gpu.matrix_units.word, **words}
pd.DataFrame(rows).T

# %% [markdown]
# Tensor Cores came with 7.0, BF16 and TF32 with 8.0, FP8 with 8.9, and FP4 with 10.0. FP4 values share
# a scale in each block of 16 (NVFP4) or 32 (the **MX** formats, which also exist for FP8).
#
# The GTX 1660 shares 7.5 with the T4, but has no Tensor Cores. Only its ordinary cores accelerate FP16, so training in 16 bits saves memory but
# little time.
#
# ### Exercise: the recipe
#
# *10 minutes, about 6 lines.* Write `recipe()`, which asks `torch.cuda` about the current GPU and chooses how to train.
# Write it yourself: labkit's `device_of` and `recommend` do not count.
#
# - **Output:** `(dtype, scaler)`: a `torch.dtype` for autocast, and whether to use a `GradScaler`. Choose BF16
#   where Tensor Cores take it, otherwise FP16 where there are Tensor Cores, otherwise `torch.float32`, that is, no autocast.
# - **Also:** where BF16 is accelerated, TF32 is too. Set `torch.backends.cuda.matmul.fp32_precision` to `"tf32"` there, and leave it as you find it elsewhere.
# - **Edge case:** cards with "GTX 16" in `torch.cuda.get_device_name()` have capability 7.5 and no Tensor Cores. (A few
#   small cards such as the T1000 have none either; the check leaves them out.)
# - **Example:** on a T4, `(torch.float16, True)`.


# %% exercise="recipe"
def recipe() -> tuple[torch.dtype, bool]:
    """(dtype for autocast, is a GradScaler needed?); lets float32 matmuls use TF32 where it can."""
    # Tuples compare as you need: (7, 5) < (8, 0) < (10, 0).
    ### BEGIN SOLUTION
    if torch.cuda.is_bf16_supported(including_emulation=False):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return torch.bfloat16, False
    has_cores = torch.cuda.get_device_capability() >= (7, 0)
    if has_cores and "GTX 16" not in torch.cuda.get_device_name():
        return torch.float16, True
    return torch.float32, False
    ### END SOLUTION


# %% check="recipe" points=2
check_recipe(recipe)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the three questions does `is_bf16_supported()` answer by default, and which one do you need?
# </details>
# <details><summary>Hint 2</summary>
#
# Suppose the dtypes were only "BF16 or FP32". One `if` with one call would do. Which two more questions to `torch.cuda`
# separate the T4 from the GTX 1080 and from the GTX 1660?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# if torch.cuda.is_bf16_supported(...):
#     torch.backends.cuda.matmul.fp32_precision = "tf32"
#     return torch.bfloat16, False
# if torch.cuda.get_device_capability() >= (7, 0) and ...:
#     return torch.float16, True
# return torch.float32, False
# ```
# </details>

# %%
choose = yours(recipe, ours.recipe)
print(f"By {whose(choose)} recipe:")
for name, capability in {"Tesla T4": (7, 5), "NVIDIA H100 80GB HBM3": (9, 0)}.items():
    with simulated_gpu(name, capability):
        print(f"{name}: {choose()}, fp32_precision {torch.backends.cuda.matmul.fp32_precision}")

# %% [markdown]
# Now your own machine. `detect()` asks the system and tries each dtype in a child process, so that a broken
# driver crashes only that process. Press an answer in the table to see its evidence.

# %% tags=["nbval-ignore-output"]
from labkit.labs.hardware_and_benchmarks.widget_device_card import DeviceCard

DeviceCard(detect())

# %% [markdown]
# **AMD.** A ROCm build of torch also calls its GPUs `cuda`, and sets `torch.version.hip`. Instinct
# cards have Matrix Cores from MI100 on, for FP16 and BF16; from MI300 on also for FP8, and from MI350X on for FP4. The rules
# above do not apply: an MI300X reports capability `(9, 4)`, and `is_bf16_supported()` is always true.
# Ask `get_device_properties(0).gcnArchName` instead; on an MI300X it begins with `gfx942`.
#
# **Apple.** GPUs from M1 to M4, the device `mps`, have no matrix units,
# so 16 bits save mostly memory and bandwidth and little computing time. From M5 on each GPU core has a
# matrix unit. Whether torch uses it depends on your versions, so measure.

# %% [markdown]
# ### Peaks: printed and achieved
#
# A **peak** is arithmetic: units, times operations that each can start per clock, times clocks per second. An H100 SXM5 has 528 Tensor
# Cores. Each starts 512 FP16 multiply-adds per clock, at 1830 MHz, and a multiply-add counts as two operations:

# %%
print(f"{2 * 528 * 512 * 1830e6 / 1e12:.1f} TFLOP/s")

# %% [markdown]
# The data sheet prints 1979 "with sparsity". That figure needs two zeros among every four weights, so 989 is the **dense** peak,
# the one for ordinary weights.
#
# Matmuls do not reach 989: power limits the clock under full load, and few shapes
# fill all units. The next cell compares dense BF16 peaks with the fastest matmuls of a *published* search over shapes
# (caches reset between runs).

# %%
from labkit.devices.roofline import matmul_work, roofs

measured = {"A100 SXM4 80GB": 271.2, "H100 SXM5 80GB": 794.5, "MI300X": 668.4}
printed = {roof.device: roof.flops / 1e12 for roof in roofs("bf16", devices=list(measured))}
table = pd.DataFrame({"printed": printed, "achieved": measured})
table.assign(share=(table.achieved / table.printed).map("{:.0%}".format))

# %% [markdown]
# Before you divide two peaks, ask which format your matmuls use today.


# %% predict="tf32-baseline"
@predict(guesses.tf32_baseline)
def over_tf32():
    tf32, bf16 = (roofs(d, devices=["A100 SXM4 40GB"])[0].flops for d in ("tf32", "bf16"))
    return bf16 / tf32


# %% [markdown]
# A factor of 2. The often quoted 16 compares BF16 with FP32 on the ordinary cores. By default torch uses TF32 for
# cuDNN's convolutions and not for matmuls.

# %%
print(
    "matmul:", torch.backends.cuda.matmul.fp32_precision
)  # "none", the default, is IEEE FP32, as "ieee" is
print("convolution:", torch.backends.cudnn.conv.fp32_precision)
names = ["V100 SXM2", "A100 SXM4 40GB", "H100 SXM5 80GB", "RTX 4090"]
peaks = {
    d: {r.device: r.flops / 1e12 for r in roofs(d, devices=names)} for d in ("fp32", "tf32", "fp16")
}
pd.DataFrame(peaks).assign(over_fp32=lambda t: (t.fp16 / t.fp32).round(1))

# %% [markdown]
# The RTX 4090 gains least. GeForce cards multiply FP16 at half the rate if they accumulate in FP32,
# as training does: 165 TFLOP/s instead of 330. Their TF32 peak is no higher than their FP32 peak.

# %% [markdown]
# ### Three bounds
#
# A matmul of an (m, k) and a (k, n) matrix needs 2·m·n·k operations. The device must also read both matrices and write the
# result. And the host, your Python process, must **launch** a kernel, which takes it several microseconds. Below we assume 5.
#
# Computing, moving and launching overlap, so over many matmuls the slowest of the three sets the time: the work
# is **compute-bound**, **memory-bound** or **overhead-bound**.


# %% predict="small-matmul"
@predict(guesses.small_matmul)
def bound():
    flop, moved = matmul_work(512, 512, 512, "fp16")
    times = {"compute": flop / 989e12, "memory": moved / 3.35e12, "overhead": 5e-6}
    return max(times, key=times.get)


# %% [markdown]
# Computing takes 0.27 µs, moving 0.47 µs, and launching 5 µs. The GPU is idle for nine tenths of the time, and
# narrower values would not change that.

# %% [markdown]
# ### Exercise: the least time
#
# *10 minutes, about 6 lines.* Write `least_time(m, n, k, size, peak, bandwidth, launch)` for one of many equal matmuls.
# Write it yourself: labkit's `matmul_work` and `Roof` do not count.
#
# - **Input:** the sizes, bytes per value, FLOP/s, bytes/s, and seconds of a launch (0 is possible). Inputs and result have the
#   same dtype, and each matrix crosses the memory bus once.
# - **Output:** the longest of the three times in seconds, and its bound: `"compute"`, `"memory"` or `"overhead"`. No two of the times are equal.
# - **Example:** `least_time(4096, 4096, 4096, 2, 989e12, 3.35e12, 5e-6)` is 139 µs, so about `(1.39e-4, "compute")`.


# %% exercise="least-time"
def least_time(
    m: int, n: int, k: int, size: int, peak: float, bandwidth: float, launch: float
) -> tuple[float, str]:
    """(seconds, "compute", "memory" or "overhead") of one of many matmuls, (m, k) by (k, n)."""
    ### BEGIN SOLUTION
    times = {
        "compute": 2 * m * n * k / peak,
        "memory": size * (m * k + k * n + m * n) / bandwidth,
        "overhead": launch,
    }
    bound = max(times, key=times.get)
    return times[bound], bound
    ### END SOLUTION


# %% check="least-time" points=2
check_least_time(least_time)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many values do the three matrices hold together? How many bytes is that?
# </details>
# <details><summary>Hint 2</summary>
#
# Take a smaller problem: bread bakes 40 minutes while soup cooks 30 minutes and you lay the table for 5. After
# how many minutes is dinner ready, and what decided it?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# times = {"compute": ..., "memory": ..., "overhead": launch}
# bound = max(times, key=times.get)
# ```
# </details>

# %%
fastest = yours(least_time, ours.least_time)
print(f"By {whose(fastest)} least_time, a 4096 x 4096 layer in FP16 on an H100:")
for batch in (1, 64, 344, 345, 4096):
    seconds, why = fastest(batch, 4096, 4096, 2, 989e12, 3.35e12, 5e-6)
    print(f"batch {batch:4}: {1e6 * seconds:6.1f} us, {why}")

# %% [markdown]
# Up to a batch of 344 the layer is memory-bound, because its 34 MB of weights are read whatever the batch is. There 16 bits help
# by halving the bytes.
#
# The widget draws a **roofline**: the reachable speed over the **arithmetic intensity**, the operations for each byte moved. Bandwidth limits the sloping part of a roof, the
# peak its flat part. Each dot is one n × n matmul on one GPU; a
# dot below its roof is overhead-bound. Raise n until every dot lies on the flat part of its roof. Which n does each GPU need?

# %% tags=["nbval-ignore-output"]
from labkit.labs.hardware_and_benchmarks.widget_roofline import Roofline

Roofline(roofs("fp16", devices=["T4", "A100 SXM4 40GB", "H100 SXM5 80GB"]), launch_seconds=5e-6)

# %% [markdown]
# At n = 1024 the dots of the T4 and the A100 lie on the flat part, and at 2048 that of the H100 too.
#
# The next figure is *simulated*: forty matmuls of 0.47 µs, launched one by one, and then as a **CUDA graph**, which
# records the forty kernels once and starts them all with a single launch.

# %% tags=["nbval-ignore-output"]
from labkit.devices import AsyncDevice
from labkit.labs.hardware_and_benchmarks.timeline import timeline

eager, graph = AsyncDevice(launch_seconds=5e-6), AsyncDevice(launch_seconds=5e-6)
for _ in range(40):
    eager.launch("matmul", seconds=0.47e-6)
graph.launch("graph of 40 matmuls", seconds=40 * 0.47e-6)
timeline(
    {"one by one": eager.trace, "CUDA graph": graph.trace},
    provenance="Simulated with 5 us a launch.",
)

# %% [markdown]
# Gaps in the GPU's lane of a real profiler's timeline mean that the GPU waits for the host. Remedies: larger batches; `torch.compile(model)`, which fuses
# elementwise operations into fewer kernels; and
# `torch.compile(model, mode="reduce-overhead")`, which also uses CUDA graphs. A graph needs fixed
# shapes, and code that waits for the GPU, such as `loss.item()`, must stay outside.
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: the experiment
#
# *You are here:* *stop* → **timer** → profile → benchmark → verdict

# %%
import math, torch
import torch.nn.functional as F
from labkit.labs.engine import predict, whose, yours
from labkit.labs.hardware_and_benchmarks import predictions as guesses, solutions as ours
from labkit.labs.hardware_and_benchmarks.checks import check_speedup, check_timed, check_verdict
from labkit.devices import AsyncDevice, BlockingDevice

# %% [markdown]
# ### The timer
#
# A program reads the clock, calls a matmul that runs on a GPU, and reads the clock again. labkit has a simulated device that behaves
# like a GPU, with a clock of its own. What does this timer read, in milliseconds?


# %% predict="launches"
@predict(guesses.launches)
def milliseconds():
    gpu = AsyncDevice(launch_seconds=1e-5)
    start = gpu.clock()
    gpu.launch("matmul", seconds=0.002)
    return 1000 * (gpu.clock() - start)


# %% [markdown]
# The timer reads 0.01 ms, the launch alone. A call that runs on a GPU returns as soon as the work is *queued*, so when the program reads
# the clock again, the matmul is not done.

# %% [markdown]
# CUDA's own stopwatch is a pair of **events**. `event.record()` puts a mark into the GPU's queue. The
# GPU notes the time when it reaches the mark, so earlier work is not counted:
#
# ```python
# start = torch.cuda.Event(enable_timing=True)
# end = torch.cuda.Event(enable_timing=True)
# start.record()
# work()
# end.record()
# end.synchronize()        # wait until the GPU has reached `end`
# start.elapsed_time(end)  # milliseconds
# ```
#
# A good timer also calls `work()` once before, because a first call loads and chooses a kernel. It
# takes the median of several calls, because one disturbed call moves a mean.
#
# ### Exercise: the timer
#
# *12 minutes, about 9 lines.* Write `timed(cuda, work, repeats)`, which times work on a GPU.
#
# - **Input:** `cuda` is `torch.cuda`, or a stand-in with its `Event` and `synchronize`. `work()` launches one kernel.
#   `repeats` is 1 or more.
# - **Output:** the median milliseconds of `repeats` calls; for an even number, either middle one or their mean. The stand-in keeps a simulated time, which
#   a host clock such as `time.perf_counter` cannot see.
# - **Example:** the first call takes 500 ms, and the five after it 2, 2, 9, 2 and 2 ms. Then `timed(cuda, work, 5)` is about 2.
# - **Edge cases:** the device may be busy when you begin; the first call may be slow; one or two of five
#   calls may be disturbed.


# %% exercise="timed"
def timed(cuda, work, repeats: int) -> float:
    """The median milliseconds of work(), which launches one kernel."""
    # `from statistics import median` may help.
    ### BEGIN SOLUTION
    from statistics import median

    work()
    times = []
    for _ in range(repeats):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)
    ### END SOLUTION


# %% check="timed" points=2
check_timed(timed)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Draw a line for the program and a line for the GPU. At which points of each line do the two events lie?
# </details>
# <details><summary>Hint 2</summary>
#
# For one call the seven lines above are enough. What must happen once before the loop, and what once after it?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# work()
# times = []
# for _ in range(repeats):
#     ...
#     times.append(start.elapsed_time(end))
# return ...
# ```
# </details>

# %%
stopwatch = yours(timed, ours.timed)
gpu = AsyncDevice(launch_seconds=1e-5, warm_up_seconds=0.5)
milliseconds = stopwatch(gpu, lambda: gpu.launch("matmul", seconds=0.002), 5)
print(f"{whose(stopwatch)} timer on the simulated GPU: {milliseconds:.2f} ms")

# %% [markdown]
# The matmul takes 2 ms; in the other 0.01 ms the idle device waits for the launch. The next cell runs the same
# function on your machine, beside torch's `Timer`. For a CPU, `BlockingDevice` replaces `torch.cuda`: a
# CPU call returns when it is done, so these events only read a clock.

# %% tags=["nbval-ignore-output"]
from torch.utils.benchmark import Timer

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(512, 512, device=device)
here = stopwatch(torch.cuda if device == "cuda" else BlockingDevice(), lambda: x @ x, 51)
timer = Timer("x @ x", globals={"x": x}, num_threads=torch.get_num_threads())
print(f"{whose(stopwatch)} timer: {here:.3f} ms")
print(f"torch.utils.benchmark: {1e3 * timer.blocked_autorange(min_run_time=0.5).median:.3f} ms")

# %% [markdown]
# ### Where does the time go?
#
# Before you change a precision, find out what part of a step the change can make faster. A **profile** lists the operators that
# ran and their times. Here is one training step under `torch.profiler`.

# %% tags=["nbval-ignore-output"]
from torch.profiler import profile
from labkit.labs.hardware_and_benchmarks.profiles import profiler_log_hidden
from labkit.training.models import mlp

torch.manual_seed(0)
model = mlp(64, 256, 10)
optimizer = torch.optim.AdamW(model.parameters())
images, labels = torch.randn(128, 64), torch.randint(10, (128,))


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


step()  # the warm-up
with profiler_log_hidden(), profile() as trace:
    step()
print(trace.key_averages().table(sort_by="self_cpu_time_total", row_limit=8))

# %% [markdown]
# *CPU total* includes the operators that an operator calls. `aten::linear` calls `aten::addmm`, so the *CPU total* of
# each includes the same matmul. **Self** times do not overlap, so their sum is the time spent in operators. Python time between them is
# missing, unless a row of its own records it, as for `Optimizer.step` or a DataLoader. On a GPU
# read *Self CUDA* (`self_device_time_total`), where each kernel also has a row of its own: add up the operators or the kernels, not both.
#
# ### Optional: how much can faster matmuls bring?
#
# A profile says how large the share of the matmuls is.


# %% predict="amdahl"
@predict(guesses.amdahl)
def whole_step():
    seconds = []
    for faster in (1, 2):
        gpu = AsyncDevice()
        gpu.launch("matmuls", seconds=70 / faster)
        gpu.launch("the rest", seconds=30)
        gpu.synchronize()
        seconds.append(gpu.clock())
    return round(seconds[0] / seconds[1], 2)


# %% [markdown]
# The new time is 0.3 + 0.7 / 2 = 0.65 of the old one, and 1 / 0.65 = 1.54. Even matmuls in no time at all would
# make this step only 1 / 0.3 = 3.33 times as fast. This is **Amdahl's law**.

# %% [markdown]
# ### Exercise: the whole step
#
# *12 minutes, optional, about 5 lines.* Write `speedup(profile, factor)`: how many times as fast is the step if its matmuls become
# `factor` times as fast?
#
# - **Input:** a profile as above. `profile.key_averages()` gives entries with `key` and
#   `self_cpu_time_total` in microseconds. Take the sum of all self times as the step's time. Do not round. A factor below 1 makes matmuls slower.
# - **Matmuls** are the operators `aten::mm`, `aten::addmm` and `aten::bmm`. There may be none.
# - **Example:** 100 µs in `aten::addmm`, 20 in `aten::relu` and 30 in `aten::linear` itself, factor 2: 150 / 100 = 1.5.


# %% exercise="speedup"
def speedup(profile, factor: float) -> float:
    """How many times as fast the profiled step is if its matmuls are `factor` times as fast."""
    ### BEGIN SOLUTION
    matmul_keys = {"aten::mm", "aten::addmm", "aten::bmm"}
    entries = profile.key_averages()
    before = sum(e.self_cpu_time_total for e in entries)
    matmuls = sum(e.self_cpu_time_total for e in entries if e.key in matmul_keys)
    return before / (before - matmuls + matmuls / factor)
    ### END SOLUTION


# %% check="speedup" points=0
check_speedup(speedup)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which two sums over the entries do you need: of which entries, and of which of their times?
# </details>
# <details><summary>Hint 2</summary>
#
# In the example the step takes 150 µs. How many of them stay as they are, and what becomes of the others?
# </details>

# %% tags=["nbval-ignore-output"]
whole = yours(speedup, ours.speedup)
for factor in (2, 8, 1000):
    print(f"matmuls {factor:4} times as fast: the step {whole(trace, factor):.2f} times")

# %% [markdown]
# ### Optional: casts, sizes and utilisation
#
# Casts cost time too, and so do dimensions that are not multiples of 8, which Tensor Cores handle more slowly.
# `count_casts` and `misaligned` find both.

# %%
from labkit.emulation import emulate_gpu
from labkit.measuring import count_casts, misaligned

for layer in misaligned(model):
    print(f"layer {layer.layer}: {layer.dimension} {layer.size}, next {layer.next_multiple}")
with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
    casts = count_casts(lambda: F.cross_entropy(model(images), labels))
print(casts.describe())

# %% [markdown]
# "GPU utilisation" is the share of time in which at least one kernel ran. **Model FLOPs utilisation** (MFU), the
# operations that the model itself needs, per second of training, divided by the dense peak, shows how much of the GPU's arithmetic the model uses. Llama 3 405B reached 38 to 43 % on up to 16,384 H100s (*published*).

# %% [markdown]
# ### A benchmark
#
# Many comparisons train in FP32, then in FP16, and divide the times. The second run starts on a warm
# machine: even the *same* precision, timed twice in this way, can differ.
#
# `benchmark` trains each mode from the same weights. A **round** runs a few steps of every
# mode in shuffled order. For each mode a round gives one ratio: the mode's time over FP32's. FP32 runs a second time in each round, and the ratio of the two
# FP32 times is the **A/A control**, which should be near 1.

# %% tags=["nbval-ignore-output"]
from labkit.measuring import benchmark
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN

data = digits()
train_set = list(batches(data.train_images, data.train_labels, 64))
test_set = (data.test_images, data.test_labels)


def make():
    model = SmallCNN()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


report = benchmark(
    ("fp32", "bf16"), make=make, batches=train_set, test=test_set, steps=3, rounds=12, device=device
)
report

# %% [markdown]
# On a CPU `benchmark` *emulates* a GPU's 16-bit autocast, whatever the CPU itself can do, so these times say nothing about a GPU. Read the
# control first. Then read the ratio with its interval, and the word that compares the interval with the **margin**:
# a difference that would not matter, here 2 %, chosen before the run. The other columns say what the speed costs.
#
# ### Exercise: the verdict
#
# *16 minutes, about 12 lines.* Write `verdict(ratios, control, margin, t)`, which turns paired rounds into one word.
# Write it yourself: labkit's `measuring.verdict` does not count.
#
# 1. Take logarithms, so that half and twice are equally far from 0. For n logarithms with mean $d$ and sample standard deviation $s$, the
#    95 % **confidence interval** of the mean is $d \pm t\, s/\sqrt n$. The factor $t$, from Student's distribution, is given.
# 2. Compute the control's interval in the same way. If 0 lies outside it, identical runs differ on this machine: take the end
#    of the control's interval that is nearer to 0, and widen the interval of the ratios at both ends by its distance from 0.
# 3. Let L = log(1 + margin). If the whole interval of the ratios lies between −L and L: `"equivalent"`. Below −L: `"faster"`. Above L: `"slower"`.
#    Otherwise: `"inconclusive"`.
#
# - **Input:** two lists of equally many ratios, new time over old; a margin such as 0.02; t. No end of an interval lies exactly on a limit.
# - **Example:** the control's interval is 0.01 to 0.03, that of the ratios −0.05 to −0.04. (All are logarithms.) Widened by 0.01 it is −0.06 to −0.03. With margin 0.02, L is 0.0198: `"faster"`.


# %% exercise="verdict"
def verdict(ratios: list[float], control: list[float], margin: float, t: float) -> str:
    """ "faster", "slower", "equivalent" or "inconclusive"; t belongs to this number of rounds."""
    # `statistics.stdev` divides by n - 1, as it must here.
    ### BEGIN SOLUTION
    from statistics import fmean, stdev

    def interval(ratios):
        logs = [math.log(ratio) for ratio in ratios]
        half = t * stdev(logs) / len(logs) ** 0.5
        return fmean(logs) - half, fmean(logs) + half

    low, high = interval(ratios)
    least, most = interval(control)
    away = max(0.0, least, -most)
    low, high, limit = low - away, high + away, math.log(1 + margin)
    if -limit < low and high < limit:
        return "equivalent"
    if high < -limit:
        return "faster"
    return "slower" if low > limit else "inconclusive"
    ### END SOLUTION


# %% check="verdict" points=2
check_verdict(verdict)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The interval from 0.8 to 1.2 holds 1. Does it also hold ratios that would matter?
# </details>
# <details><summary>Hint 2</summary>
#
# Write a helper that returns the two ends for a list of ratios, and call it twice. How far from 0 is an interval that ends at −0.04? And
# one that begins at 0.03?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# low, high = interval(ratios)
# least, most = interval(control)
# away = max(0.0, ..., ...)
# ```
# </details>

# %%
judge = yours(verdict, ours.verdict)
quiet, drift = [1.01, 0.99, 1.0, 1.01, 0.99], [1.05, 1.04, 1.06, 1.05, 1.05]
rows = {
    "clear, and too small to matter": ([0.995, 0.994, 0.996, 0.995, 0.995], quiet),
    "not significant, and perhaps large": ([0.8, 1.1, 0.95, 1.2, 0.9], quiet),
    "5 % faster": ([0.95, 0.951, 0.949, 0.95, 0.95], quiet),
    "5 % faster, but the control drifts by 5 %": ([0.95, 0.951, 0.949, 0.95, 0.95], drift),
}
for name, (ratios, control) in rows.items():
    print(f"{name}: {judge(ratios, control, 0.02, 2.776)}")

# %% [markdown]
# The first difference is statistically clear and does not matter. The second is not significant, and may be 20 %. About four times as many rounds halve an interval. They do not cure a bad control. Nor does a control show
# much if its interval is very wide: `benchmark` calls it bad unless the interval lies within 5 % of 1.
#
# Student's t assumes roughly normal logarithms, and one stalled round widens Student's interval very much. So `benchmark` leaves
# out rounds whose ratio is far from all others, says how many, and widens the interval a little for each.

# %% tags=["nbval-ignore-output"]
report.plot()

# %% [markdown]
# ### Optional: the same question about accuracy
#
# `accuracy_impact` trains both precisions from the same seeds, takes the **paired
# differences** in test accuracy, and judges them in the same way, here against 2 percentage points.

# %% tags=["nbval-ignore-output"]
from labkit.measuring import accuracy_impact


def small():
    model = mlp(64, 32, 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


impact = accuracy_impact(("fp32", "bf16"), make=small, seeds=range(3), epochs=2, margin=0.02, device=device,
                         train_data=(data.train_images, data.train_labels), test_data=test_set)  # fmt: skip
impact

# %% [markdown]
# With 359 test images, one image is 0.28 points: two runs that differ at all differ by at least that.
#
# ### Optional: a recording with a bad control
#
# `labkit record` measures a machine. The recording that ships with the course comes from a shared server. Equal
# matmuls differed there by a factor of 2.7, so this recording supports no verdict.

# %% tags=["nbval-ignore-output"]
from labkit.measuring.recordings import recordings

for recording in recordings():
    print(recording.source, *recording.trouble, sep="\n")

# %% [markdown]
# ### Say it
#
# Interview questions of this lab. If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("06_hardware_and_benchmarks")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** NVIDIA, *CUDA C++ Programming Guide*; whitepapers of A100, H100 and Ada; data/gpus.csv names the source of each peak. S. Bekman, *Machine Learning
# Engineering*, "Maximum Achievable Matmul FLOPS" (BF16, v2). H. He, *Making Deep Learning Go Brrrr*. Launches: *pegainfer (3)*, 4 to 6 µs on an RTX 5070 Ti. T. Zakharko, *GPU Neural
# Accelerators on Apple A19/M5*. *The Llama 3 Herd of Models*, table 4.
#
# **Next.** [Lab 07: memory, and training on many GPUs](07_memory_and_many_gpus.ipynb).
