# Answers to lab 06 that the author of its checks had not foreseen: see tests/corpus.py.
import functools
import math
import statistics
import time
from fractions import Fraction

import numpy as np
import torch

FROM = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}


# %% right three-facts: numpy's truth values
def three_facts(dtype, capability):
    return tuple(np.array(ours.three_facts(dtype, capability)))


# %% right three-facts: a list, by early returns
def three_facts(dtype, capability):
    if dtype == "tf32":
        fast = capability >= (8, 0)
        return [False, fast, fast]
    if dtype == "fp8":
        fast = capability >= (8, 9)
        return [True, fast, fast]
    if dtype == "bf16":
        return [True, True, capability >= (8, 0)]
    return [True, True, capability != (6, 1)]


# %% right three-facts: a decimal number for a capability
def three_facts(dtype, capability):
    major, minor = capability
    version = major * 10 + minor
    fast = {
        "fp16": version in (53, 60, 62) or version >= 70,
        "bf16": version >= 80,
        "tf32": version >= 80,
        "fp8": version >= 89,
    }[dtype]
    return dtype in ("fp16", "bf16", "fp8"), dtype.endswith("16") or fast, fast


# %% right three-facts: match and a set of what memory holds
def three_facts(dtype, capability):
    match dtype:
        case "fp16":
            accelerated = capability != (6, 1)
        case "bf16" | "tf32":
            accelerated = capability[0] >= 8
        case "fp8":
            accelerated = capability >= (8, 9)
    return dtype in {"fp16", "bf16", "fp8"}, accelerated or "16" in dtype, accelerated


# %% right three-facts: a tensor of truth values
def three_facts(dtype, capability):
    return torch.tensor(ours.three_facts(dtype, capability))


# %% right three-facts: the slow ones by name
def three_facts(dtype, capability):
    slow = {"fp16": lambda c: c == (6, 1)}
    accelerated = not slow.get(dtype, lambda c: c < FROM[dtype])(tuple(capability))
    storable = not dtype == "tf32"
    computable = True if dtype in ["fp16", "bf16"] else accelerated
    return storable, computable, accelerated


# %% wrong three-facts: no value for what it does not know
#    says: returns None
def three_facts(dtype, capability):
    return ours.three_facts(dtype, capability) if capability >= (7, 0) else None


# %% wrong three-facts: FP8 on whatever comes after the RTX 3090
#    says: Jetson Orin: `three_facts("fp8", (8, 7))` gives True for accelerated
#    says: from 8.9 on
three_facts = changed('"fp8": (8, 9)', '"fp8": (8, 7)')


# %% wrong three-facts: FP8 from 8.0 on
#    says: Tensor Cores take FP8 from 8.9 on
#    never: added with
three_facts = changed('"fp8": (8, 9)', '"fp8": (8, 0)')


# %% wrong three-facts: TF32 is computable everywhere
#    says: no units, no TF32
#    never: FP8
three_facts = changed('or dtype in ("fp16", "bf16")', 'or dtype != "fp8"')


# %% wrong three-facts: BF16 is computable from 7.0 on, as products are
#    says: torch adds two BF16 tensors on any card
#    never: units for it
def three_facts(dtype, capability):
    storable, computable, accelerated = ours.three_facts(dtype, capability)
    return storable, computable and (dtype != "bf16" or capability >= (7, 0)), accelerated


# %% wrong three-facts: BF16 is not computable before 8.0
#    idea: no-units-means-not-computable
def three_facts(dtype, capability):
    storable, computable, accelerated = ours.three_facts(dtype, capability)
    return storable, accelerated if dtype == "bf16" else computable, accelerated


# %% wrong three-facts: both 16-bit dtypes are fast on the same cards
#    says: Tensor Cores take BF16 from 8.0 on
#    never: Tensor Cores came with 7.0
def three_facts(dtype, capability):
    fast = ours.three_facts("fp16" if dtype == "bf16" else dtype, capability)[2]
    return dtype != "tf32", fast or dtype in ("fp16", "bf16"), fast


# %% wrong three-facts: FP16 is fast from 7.0 on, and nowhere below
#    says: Tegra X1: `three_facts("fp16", (5, 3))` gives False for accelerated
#    says: at least as many FP16 results a clock
def three_facts(dtype, capability):
    fast = capability >= FROM[dtype]
    return dtype != "tf32", fast or "16" in dtype, fast


# %% wrong three-facts: a comparison that lets 6.1 in
#    idea: fp16-is-fast-since-it-exists
three_facts = changed("in ((5, 3), (6, 0), (6, 2)) or capability >= (7, 0)", ">= (5, 0)")


# %% wrong three-facts: a table of the cards that were named, and no others
#    says: gives False for accelerated
def three_facts(dtype, capability):
    fast = {
        "fp16": [(5, 3), (6, 0), (6, 2), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0)],
        "bf16": [(8, 0), (8, 6), (8, 9), (9, 0)],
        "tf32": [(8, 0), (8, 6), (8, 9), (9, 0)],
        "fp8": [(8, 9), (9, 0)],
    }
    accelerated = capability in fast[dtype]
    return dtype != "tf32", accelerated or "16" in dtype, accelerated


# %% wrong three-facts: FP8 cannot be stored before 8.9
#    says: Memory holds bytes
three_facts = changed(
    'return dtype != "tf32"', 'return dtype != "tf32" and (dtype != "fp8" or accelerated)'
)


# %% wrong three-facts: accelerated comes first
#    says: for accelerated
def three_facts(dtype, capability):
    return ours.three_facts(dtype, capability)[::-1]


# %% wrong three-facts: the last fact only
#    says: 3 values are asked for
def three_facts(dtype, capability):
    return ours.three_facts(dtype, capability)[2]


# %% wrong three-facts: words for truths
#    says: True or False is asked for
def three_facts(dtype, capability):
    return tuple("yes" if fact else "no" for fact in ours.three_facts(dtype, capability))


# %% wrong three-facts: the major version alone
#    says: from 8.9 on
def three_facts(dtype, capability):
    major = capability[0]
    if dtype == "fp16":
        fast = capability in ((5, 3), (6, 0), (6, 2)) or major >= 7
    else:
        fast = major >= 8
    return dtype != "tf32", fast or "16" in dtype, fast


# %% right recipe: a list with numpy's truth value
def recipe(name, capability):
    return list(np.array(ours.recipe(name, capability)[1:])) and [
        ours.recipe(name, capability)[0],
        np.bool_(ours.recipe(name, capability)[1]),
    ]


# %% right recipe: a pattern for the series
def recipe(name, capability):
    import re

    if capability[0] >= 8:
        return "bf16", False
    cores = capability[0] == 7 and not re.search(r"GTX\s*16\d\d", name)
    return ("fp16", True) if cores else ("fp32", False)


# %% right recipe: no GTX has Tensor Cores
def recipe(name, capability):
    precision = "fp32"
    if capability >= (7, 0) and "GTX" not in name:
        precision = "bf16" if capability >= (8, 0) else "fp16"
    return precision, precision == "fp16"


# %% right recipe: the four parts of a name
def recipe(name, capability):
    words = name.split()
    gtx16 = any(a == "GTX" and b.startswith("16") for a, b in zip(words, words[1:]))
    tensor_cores = capability >= (7, 0) and not gtx16
    if tensor_cores and capability >= (8, 0):
        return ("bf16", False)
    elif tensor_cores:
        return ("fp16", True)
    else:
        return ("fp32", False)


# %% right recipe: on top of the three facts
def recipe(name, capability):
    if ours.three_facts("bf16", capability)[2]:
        return "bf16", False
    if capability < (7, 0) or "GTX 16" in name:
        return "fp32", False
    return "fp16", True


# %% right recipe: capitals
def recipe(name, capability):
    precision, scaler = ours.recipe(name, capability)
    return precision.upper(), scaler


# %% wrong recipe: the name begins with the maker
#    idea: capability-7-means-tensor-cores
#    says: where in the name
#    never: takes for granted
recipe = changed('"GTX 16" not in name', 'not name.startswith("GTX 16")')


# %% wrong recipe: GTX 1630 missed
#    says: "NVIDIA GeForce GTX 1630", (7, 5))` is ('fp16', True)
#    says: No GTX 16 has Tensor Cores
recipe = changed('"GTX 16" not in name', '"GTX 165" not in name and "GTX 166" not in name')


# %% wrong recipe: 16 anywhere in the name
#    says: V100-SXM2-16GB
recipe = changed('"GTX 16"', '"16"')


# %% wrong recipe: only RTX cards of 7.5
#    says: `recipe("Tesla V100-SXM2-16GB", (7, 0))` is ('fp32', False); ('fp16', True) is wanted
recipe = changed('"GTX 16" not in name', '"RTX" in name')


# %% wrong recipe: FP16 without a scaler
#    says: ('fp16', False); ('fp16', True) is wanted. In FP16 small gradients become 0
recipe = changed('"fp16", True', '"fp16", False')


# %% wrong recipe: FP16 wherever it is accelerated
#    says: `recipe("Tesla P100-SXM2-16GB", (6, 0))` is ('fp16', True)
#    says: Tensor Cores came with 7.0
def recipe(name, capability):
    if capability >= (8, 0):
        return "bf16", False
    fast = ours.three_facts("fp16", capability)[2] and "GTX 16" not in name
    return ("fp16", True) if fast else ("fp32", False)


# %% wrong recipe: BF16 from 7.5 on
#    says: Its Tensor Cores take FP16 and no BF16
recipe = changed("capability >= (8, 0)", 'capability >= (7, 5) and "GTX 16" not in name')


# %% wrong recipe: a scaler for all, it does no harm
#    says: ('fp32', True); ('fp32', False) is wanted. A scaler saves gradients
recipe = changed('"fp32", False', '"fp32", True', '"bf16", False', '"bf16", True')


# %% wrong recipe: torch's names of dtypes
#    says: one of bf16, fp16, fp32 is asked for
recipe = changed('return "fp32"', 'return "float32"')


# %% wrong recipe: the precision alone
#    says: 2 values are asked for
def recipe(name, capability):
    return ours.recipe(name, capability)[0]


# %% wrong recipe: the GTX 16 gets FP16, and its name decides at 8.0
#    idea: capability-7-means-tensor-cores
def recipe(name, capability):
    if capability >= (8, 0):
        return "bf16", False
    return ("fp16", True) if capability >= (7, 0) else ("fp32", False)


# %% right peak: in units of 10**6
def peak(units, fma_per_clock, clock_mhz):
    return units * fma_per_clock * clock_mhz / 500_000


# %% right peak: float32
def peak(units, fma_per_clock, clock_mhz):
    return (
        np.float32(2) * units * np.float32(fma_per_clock) * np.float32(clock_mhz) / np.float32(1e6)
    )


# %% right peak: a fraction
def peak(units, fma_per_clock, clock_mhz):
    return Fraction(2 * units * fma_per_clock) * Fraction(clock_mhz) / 10**6


# %% right peak: a tensor
def peak(units, fma_per_clock, clock_mhz):
    return torch.tensor([2.0, units, fma_per_clock, clock_mhz * 1e6]).prod() / 1e12


# %% right peak: step by step
def peak(units, fma_per_clock, clock_mhz):
    flop_per_clock = units * fma_per_clock * 2
    clocks_per_second = clock_mhz * 10**6
    tera = 10**12
    return flop_per_clock * clocks_per_second / tera


# %% right peak: GFLOP/s first
def peak(units, fma_per_clock, clock_mhz):
    gigahertz = clock_mhz / 1000
    gflops = 2 * math.prod((units, fma_per_clock, gigahertz))
    return gflops / 1000


# %% wrong peak: in GFLOP/s
#    says: Yours is 1000 times the right number
#    never: How many clocks a second
peak = changed("1e12", "1e9")


# %% wrong peak: mega is 10**9
#    says: Yours is 1000 times the right number
peak = changed("1e6", "1e9")


# %% wrong peak: the clock as it comes
#    idea: units-convert-themselves
def peak(units, fma_per_clock, clock_mhz):
    return units * fma_per_clock * 2 * clock_mhz / 10**12


# %% wrong peak: in FLOP/s
#    says: Yours is 1e+12 times the right number
peak = changed(" / 1e12", "")


# %% wrong peak: a multiply-add is one operation
#    idea: an-fma-is-one-flop
def peak(units, fma_per_clock, clock_mhz):
    return units * fma_per_clock * clock_mhz / 1e6


# %% wrong peak: with sparsity
#    idea: the-sparse-figure-is-the-peak
def peak(units, fma_per_clock, clock_mhz):
    return 4 * units * fma_per_clock * clock_mhz / 1e6


# %% wrong peak: three operations
#    says: Yours is 1.5 times the right number
peak = changed("2 * units", "3 * units")


# %% wrong peak: rounded to one digit
#    says: rounded: return all digits
def peak(units, fma_per_clock, clock_mhz):
    return round(2 * units * fma_per_clock * clock_mhz / 1e6, 1)


# %% wrong peak: whole TFLOP/s
#    says: `peak(432, 256, 1410)` is 311; the vendor prints 312 TFLOP/s. Yours is rounded
def peak(units, fma_per_clock, clock_mhz):
    return 2 * units * fma_per_clock * clock_mhz // 1000000


# %% wrong peak: units left out
#    says: times the right number
peak = changed("2 * units * fma", "2 * fma")


# %% wrong peak: 2048 operations a clock of AMX
#    says: 1024 operations a clock make 2.048
#    never: 2048 operations
def peak(units, fma_per_clock, clock_mhz):
    return ours.peak(units, fma_per_clock, clock_mhz) * (2 if units == 1 else 1)


# %% wrong peak: as text
#    says: one number is asked for
def peak(units, fma_per_clock, clock_mhz):
    return f"{ours.peak(units, fma_per_clock, clock_mhz):.1f} TFLOP/s"


# %% right least-time: float32
def least_time(m, n, k, size, peak, bandwidth):
    f = np.float32
    computing = f(2) * f(m) * f(n) * f(k) / f(peak)
    moving = f(size) * (f(m) * f(k) + f(k) * f(n) + f(m) * f(n)) / f(bandwidth)
    return max(computing, moving), "compute" if computing > moving else "memory"


# %% right least-time: by the intensity
def least_time(m, n, k, size, peak, bandwidth):
    flop, moved = 2 * m * n * k, size * (m * k + k * n + m * n)
    if flop / moved > peak / bandwidth:
        return flop / peak, "compute"
    return moved / bandwidth, "memory"


# %% right least-time: the larger of two pairs
def least_time(m, n, k, size, peak, bandwidth):
    return max(
        (2 * m * n * k / peak, "compute"), ((m * k + k * n + m * n) * size / bandwidth, "memory")
    )


# %% right least-time: the roof first
def least_time(m, n, k, size, peak, bandwidth):
    flop = 2.0 * m * n * k
    intensity = flop / (size * (m * n + n * k + k * m))
    rate = min(peak, intensity * bandwidth)
    return [flop / rate, "compute" if rate == peak else "memory"]


# %% right least-time: fractions and a dict
def least_time(m, n, k, size, peak, bandwidth):
    times = {
        "compute": Fraction(2 * m * n * k) / Fraction(peak),
        "memory": Fraction(size * (m * k + k * n + m * n)) / Fraction(bandwidth),
    }
    bound = max(times, key=times.get)
    return times[bound], bound


# %% right least-time: a tensor in float32
def least_time(m, n, k, size, peak, bandwidth):
    times = torch.tensor([2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth])
    return times.max(), ("compute", "memory")[times.argmax()]


# %% wrong least-time: compute is always the bound
#    says: so it is memory
least_time = changed('"compute" if computing > moving else "memory"', '"compute"')


# %% wrong least-time: the words exchanged
#    says: so it is compute
least_time = changed('"compute" if computing > moving', '"compute" if computing < moving')


# %% wrong least-time: the shorter time
#    says: Yours is the time of moving, and computing takes longer
least_time = changed("max(computing, moving)", "min(computing, moving)")


# %% wrong least-time: in microseconds
#    says: Yours is 1e+06 times the longer one
least_time = changed("return max(computing, moving)", "return 1e6 * max(computing, moving)")


# %% wrong least-time: values for bytes
#    says: as if each value had one byte; here it has 2
least_time = changed("size * (", "(")


# %% wrong least-time: bits for bytes
#    says: `size` counts bytes, not bits
least_time = changed("size * (", "8 * size * (")


# %% wrong least-time: one operation for each multiply-add
#    idea: an-fma-is-one-flop
#    says: a multiply and an add are two
least_time = changed("2 * m * n * k", "m * n * k")


# %% wrong least-time: k - 1 adds
#    says: You count 2 k - 1 operations
least_time = changed("2 * m * n * k", "m * n * (2 * k - 1)")


# %% wrong least-time: the sum
#    idea: computing-and-moving-take-turns
#    says: they go on at the same time
def least_time(m, n, k, size, peak, bandwidth):
    computing, moving = 2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth
    return computing + moving, ["memory", "compute"][computing > moving]


# %% wrong least-time: bytes over the peak
#    says: moving alone 21.59 us. Yours is 0.004984 times the longer one
least_time = changed("/ bandwidth", "/ peak")


# %% wrong least-time: the result twice, read and written
#    says: moving alone
least_time = changed("+ m * n)", "+ 2 * m * n)")


# %% wrong least-time: the result stays
#    idea: the-result-is-not-moved
#    says: the result crosses the bus too
def least_time(m, n, k, size, peak, bandwidth):
    times = 2 * m * n * k / peak, size * k * (m + n) / bandwidth
    return max(times), "compute" if times[0] > times[1] else "memory"


# %% wrong least-time: the time alone
#    says: 2 values are asked for
def least_time(*args):
    return ours.least_time(*args)[0]


# %% wrong least-time: another word
#    says: one of compute, memory is asked for
def least_time(*args):
    seconds, bound = ours.least_time(*args)
    return seconds, bound.replace("memory", "bandwidth")


# %% right speedup: float32
def speedup(seconds, faster):
    after = np.float32(0)
    for part, t in seconds.items():
        after += np.float32(t) / np.float32(faster.get(part, 1))
    return np.float32(sum(seconds.values())) / after


# %% right speedup: a tensor
def speedup(seconds, faster):
    before = torch.tensor([seconds[part] for part in seconds])
    factors = torch.tensor([float(faster.get(part, 1.0)) for part in seconds])
    return before.sum() / (before / factors).sum()


# %% right speedup: shares
def speedup(seconds, faster):
    total = math.fsum(seconds.values())
    shares = {part: t / total for part, t in seconds.items()}
    return 1 / sum(share / faster.get(part, 1.0) for part, share in shares.items())


# %% right speedup: what is saved
def speedup(seconds, faster):
    before = after = sum(seconds.values())
    for part, factor in faster.items():
        after -= seconds[part] * (1 - 1 / factor)
    return before / after


# %% right speedup: fractions
def speedup(seconds, faster):
    after = sum(Fraction(t) / Fraction(faster.get(part, 1)) for part, t in seconds.items())
    return sum(map(Fraction, seconds.values())) / after


# %% right speedup: a copy of the dict
def speedup(seconds, faster):
    new = dict(seconds)
    for part in new:
        if part in faster:
            new[part] /= faster[part]
    return sum(seconds.values()) / sum(new.values())


# %% wrong speedup: after over before, in other words
#    idea: after-over-before
def speedup(seconds, faster):
    before = sum(seconds.values())
    after = sum(time / faster.get(part, 1.0) for part, time in seconds.items())
    return (1 / before) / (1 / after)


# %% wrong speedup: the time after
#    says: Yours is the time after, not how many times faster
def speedup(seconds, faster):
    return sum(t / faster.get(part, 1) for part, t in seconds.items())


# %% wrong speedup: the seconds for shares
#    idea: the-parts-take-one-second
#    says: the time before was 10
def speedup(seconds, faster):
    return 1 / sum(t / faster.get(part, 1) for part, t in seconds.items())


# %% wrong speedup: the share that is saved
#    says: Yours is the share of the time that is saved
def speedup(seconds, faster):
    return 1 - 1 / ours.speedup(seconds, faster)


# %% wrong speedup: times multiplied by factors
#    says: You multiply times by factors
speedup = changed("time / faster", "time * faster")


# %% wrong speedup: what nothing made faster left out
#    says: You leave out the parts that nothing made faster
speedup = changed(
    "for part, time in seconds.items())\n", "for part, time in seconds.items() if part in faster)\n"
)


# %% wrong speedup: a part below 1 is skipped
#    says: that part becomes slower
speedup = changed("faster.get(part, 1)", "max(faster.get(part, 1), 1)")


# %% wrong speedup: the mean of the factors
#    says: the step took 10 and takes 6.5
def speedup(seconds, faster):
    return statistics.fmean(faster.get(part, 1.0) for part in seconds)


# %% wrong speedup: the weighted mean of the factors
#    idea: speed-ups-average
def speedup(seconds, faster):
    total = sum(seconds.values())
    return math.fsum(t * faster.get(part, 1) for part, t in seconds.items()) / total


# %% wrong speedup: an empty dict raises
#    says: `speedup({'data': 4.0}, {})` raised
def speedup(seconds, faster):
    return ours.speedup(seconds, faster) if max(faster.values()) else 1


# %% wrong speedup: the caller's dict is changed
#    says: leaves `seconds` as
def speedup(seconds, faster):
    before = sum(seconds.values())
    for part, factor in faster.items():
        seconds[part] /= factor
    return before / sum(seconds.values())


# %% wrong speedup: a part that faster lacks raises
#    says: KeyError
speedup = changed("faster.get(part, 1)", "faster[part]")


# %% wrong speedup: in percent
#    says: the step took 10 and takes 6.5
def speedup(seconds, faster):
    return 100 * (ours.speedup(seconds, faster) - 1)


# %% wrong speedup: rounded
#    says: 1.54; the step took 10 and takes 6.5: 1.538
def speedup(seconds, faster):
    return round(ours.speedup(seconds, faster), 2)


# %% right timed: torch's median, in float32
def timed(device, work, repeats):
    times = []
    for _ in range(repeats + 1):
        device.synchronize()
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    return torch.tensor(times[1:]).median()


# %% right timed: numpy's median
def timed(device, work, repeats):
    work()
    device.synchronize()
    times = np.empty(repeats)
    for i in range(repeats):
        t0 = device.clock()
        work()
        device.synchronize()
        times[i] = device.clock() - t0
    return np.median(times)


# %% right timed: three calls of warm-up
def timed(device, work, repeats):
    for _ in range(3):
        work()

    def once():
        device.synchronize()
        start = device.clock()
        work()
        device.synchronize()
        return device.clock() - start

    return sorted(once() for _ in range(repeats))[repeats // 2]


# %% right timed: clocks in float32
def timed(device, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        device.synchronize()
        start = np.float32(device.clock())
        work()
        device.synchronize()
        times.append(np.float32(device.clock()) - start)
    return statistics.median(times)


# %% right timed: a warm-up as long as the run
def timed(device, work, repeats):
    def run():
        for _ in range(repeats):
            start = device.clock()
            work()
            device.synchronize()
            yield device.clock() - start

    device.synchronize()
    list(run())
    return statistics.median(run())


# %% right timed: one synchronize more
def timed(device, work, repeats):
    device.synchronize()
    work()
    device.synchronize()
    stamps = []
    while len(stamps) < repeats:
        before = device.clock()
        work()
        device.synchronize()
        after = device.clock()
        stamps.append((before, after))
    return statistics.median_low([b - a for a, b in stamps])


# %% wrong timed: always five
#    says: as often for 1 repeat
timed = changed("range(repeats)", "range(5)")


# %% wrong timed: the mean without the extremes
#    says: without the largest and the smallest
def timed(device, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        device.synchronize()
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    kept = sorted(times)[1:-1] or times
    return sum(kept) / len(kept)


# %% wrong timed: the least
#    says: Yours is the least of the runs
timed = changed("median(times)", "min(times)")


# %% wrong timed: all runs, divided
#    idea: the-mean-of-times
def timed(device, work, repeats):
    work()
    device.synchronize()
    start = device.clock()
    for _ in range(repeats):
        work()
    device.synchronize()
    return (device.clock() - start) / repeats


# %% wrong timed: all runs together
#    says: all 5 runs together
def timed(device, work, repeats):
    work()
    device.synchronize()
    start = device.clock()
    for _ in range(repeats):
        work()
    device.synchronize()
    return device.clock() - start


# %% wrong timed: in milliseconds
#    says: Yours is in milliseconds
timed = changed("return median(times)", "return 1000 * median(times)")


# %% wrong timed: a clock of another world
#    says: never read `device.clock()`
#    never: kernel was still running
def timed(device, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        device.synchronize()
        start = time.perf_counter()
        work()
        device.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# %% wrong timed: no synchronize at all
#    idea: a-call-that-returned-is-done
#    says: what a launch takes
def timed(device, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        start = device.clock()
        work()
        times.append(device.clock() - start)
    return statistics.median(times)


# %% wrong timed: no warm-up
#    idea: the-first-run-is-like-the-others
timed = changed("    work()\n    times", "    times")


# %% wrong timed: waits for its own warm-up no more than for anything else
#    idea: the-device-was-idle
#    says: Yours holds two runs
def timed(device, work, repeats):
    device.synchronize()
    work()
    times = []
    for _ in range(repeats):
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    return statistics.median(times)


# %% wrong timed: neither a warm-up nor an idle device
#    idea: the-device-was-idle
#    says: from before, 1 s, is in it
def timed(device, work, repeats):
    times = []
    for _ in range(repeats):
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    return statistics.median(times)


# %% wrong timed: one warm-up too few
#    says: ran work() 4 times; at least 5
def timed(device, work, repeats):
    work()
    device.synchronize()
    times = []
    for _ in range(max(repeats - 2, 1)):
        start = device.clock()
        work()
        device.synchronize()
        times.append(device.clock() - start)
    return statistics.median(times)


# %% wrong timed: the last one
#    says: is 303.5 ms; the median run takes 3.5 ms
timed = changed("median(times)", "times[-1]")


# %% wrong timed: a clock that is not called
#    says: raised TypeError
timed = changed("start = device.clock()", "start = device.clock")


# %% wrong timed: the list of times
#    says: one number is asked for
timed = changed("return median(times)", "return times")


# %% right verdict: numpy
def verdict(differences, margin, t):
    d = np.asarray(differences)
    half = t * d.std(ddof=1) / np.sqrt(d.size)
    if np.all(np.abs(d.mean() + np.array([-half, half])) < margin):
        return "equivalent"
    if d.mean() + half < -margin:
        return "worse"
    if d.mean() - half > margin:
        return "better"
    return "inconclusive"


# %% right verdict: torch in float64
def verdict(differences, margin, t):
    d = torch.tensor(differences, dtype=torch.float64)
    half = t * d.std() / len(d) ** 0.5
    low, high = d.mean() - half, d.mean() + half
    return (
        "worse"
        if high < -margin
        else "better"
        if low > margin
        else "equivalent"
        if low > -margin and high < margin
        else "inconclusive"
    )


# %% right verdict: by loops
def verdict(differences, margin, t):
    n = len(differences)
    mean = sum(differences) / n
    s = math.sqrt(sum((x - mean) ** 2 for x in differences) / (n - 1))
    reach = t * s / math.sqrt(n)
    if abs(mean) + reach < margin:
        return "equivalent"
    if abs(mean) - reach > margin:
        return "better" if mean > 0 else "worse"
    return "inconclusive"


# %% right verdict: float32
def verdict(differences, margin, t):
    d = torch.tensor(differences)
    half = t * d.std() / math.sqrt(len(d))
    low, high = (d.mean() - half).item(), (d.mean() + half).item()
    if -margin < low <= high < margin:
        return "equivalent"
    return "worse" if high < -margin else "better" if low > margin else "inconclusive"


# %% right verdict: a table of words
def verdict(differences, margin, t):
    low, high = (
        statistics.mean(differences)
        + sign * t * statistics.stdev(differences) / len(differences) ** 0.5
        for sign in (-1, 1)
    )
    where = lambda x: (x > -margin) + (x > margin)
    return {(1, 1): "equivalent", (0, 0): "worse", (2, 2): "better"}.get(
        (where(low), where(high)), "inconclusive"
    )


# %% right verdict: the variance of the mean
def verdict(differences, margin, t):
    from statistics import fmean, variance

    centre = fmean(differences)
    half = t * math.sqrt(variance(differences) / len(differences))
    inside = centre - half > -margin and centre + half < margin
    outside = centre + half < -margin or centre - half > margin
    if inside:
        return "Equivalent"
    return ("Worse" if centre < 0 else "Better") if outside else "Inconclusive"


# %% wrong verdict: the mean decides, in another way
#    idea: the-mean-decides
def verdict(differences, margin, t):
    mean = statistics.fmean(differences)
    if abs(mean) < margin:
        return "equivalent"
    return "better" if mean > margin else "worse"


# %% wrong verdict: not significant is equal, with open ends
#    idea: not-significant-means-equal
def verdict(differences, margin, t):
    half = t * statistics.stdev(differences) / len(differences) ** 0.5
    low, high = statistics.fmean(differences) - half, statistics.fmean(differences) + half
    if low < 0 < high or (-margin < low and high < margin):
        return "equivalent"
    return "worse" if high < -margin else "better" if low > margin else "inconclusive"


# %% wrong verdict: a test of significance
#    says: inconclusive
def verdict(differences, margin, t):
    half = t * statistics.stdev(differences) / len(differences) ** 0.5
    low, high = statistics.fmean(differences) - half, statistics.fmean(differences) + half
    if low <= 0 <= high:
        return "equivalent"
    return "worse" if high < 0 else "better"


# %% wrong verdict: n in the deviation
#    says: a little too wide
#    says: Part of it lies inside
verdict = changed("stdev(differences) / len", "__import__('statistics').pstdev(differences) / len")


# %% wrong verdict: the root of n - 1
#    says: just within
#    says: All of it lies inside
verdict = changed("len(differences) ** 0.5", "(len(differences) - 1) ** 0.5")


# %% wrong verdict: divided by n
#    says: The interval goes from
verdict = changed("len(differences) ** 0.5", "len(differences)")


# %% wrong verdict: an interval twice as wide
#    says: The interval goes from
#    never: varies less than one pair
verdict = changed("half = t", "half = 2 * t")


# %% wrong verdict: no t
#    says: The interval goes from
verdict = changed("t * stdev", "stdev")


# %% wrong verdict: worse and better exchanged
#    says: All of it lies below
verdict = changed('return "worse"', 'return "better"', '"better" if low', '"worse" if low')


# %% wrong verdict: one end inside is enough
#    says: All of it lies below -0.5: worse
verdict = changed("-margin < low and high < margin", "-margin < low or high < margin")


# %% wrong verdict: every pair inside the margin
#    says: The interval goes from
def verdict(differences, margin, t):
    if all(abs(x) < margin for x in differences):
        return "equivalent"
    if all(x < -margin for x in differences):
        return "worse"
    return "better" if all(x > margin for x in differences) else "inconclusive"


# %% wrong verdict: another word
#    says: one of equivalent, worse, better, inconclusive is asked for
verdict = changed('else "inconclusive"', 'else "unclear"')


# %% wrong verdict: no word at the end
#    says: returns None
def verdict(differences, margin, t):
    found = ours.verdict(differences, margin, t)
    if found != "inconclusive":
        return found


# %% wrong verdict: the spread of one pair
#    idea: the-spread-is-the-error-of-the-mean
def verdict(differences, margin, t):
    d = np.array(differences)
    low, high = d.mean() - t * d.std(ddof=1), d.mean() + t * d.std(ddof=1)
    if -margin < low and high < margin:
        return "equivalent"
    return "worse" if high < -margin else "better" if low > margin else "inconclusive"
