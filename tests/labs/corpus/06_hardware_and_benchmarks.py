# Answers to lab 06 that the author of its checks had not foreseen: see tests/corpus.py.
import math
import statistics
import time
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import torch


# %% right recipe: by capability alone
def recipe():
    major, minor = torch.cuda.get_device_capability(0)
    if major >= 8:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return torch.bfloat16, False
    if major == 7 and "GTX 16" not in torch.cuda.get_device_name(0):
        return torch.float16, True
    return torch.float32, False


# %% right recipe: the properties of the device, and a list
def recipe():
    device = torch.device("cuda", torch.cuda.current_device())
    p = torch.cuda.get_device_properties(device)
    tensor_cores = p.major >= 7 and not p.name.startswith("NVIDIA GeForce GTX 16")
    dtype = torch.bfloat16 if p.major > 7 else torch.float16 if tensor_cores else torch.float32
    if dtype is torch.bfloat16:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    return [dtype, dtype == torch.float16]


# %% right recipe: the older setting for TF32
def recipe():
    if torch.cuda.is_bf16_supported(False):
        torch.set_float32_matmul_precision("high")
        return torch.bfloat16, False
    name = torch.cuda.get_device_name()
    if torch.cuda.get_device_capability()[0] < 7 or "GTX 16" in name:
        return torch.float32, False
    return torch.float16, True


# %% right recipe: allow_tf32
def recipe():
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if bf16:
        torch.backends.cuda.matmul.allow_tf32 = True
    return ours.recipe() if not bf16 else (torch.bfloat16, False)


# %% right recipe: numpy's truth, and convolutions too
def recipe():
    capability = float("{}.{}".format(*torch.cuda.get_device_capability()))
    if capability >= 8.0:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "tf32"
    fp16 = 7.0 <= capability < 8.0 and " GTX 16" not in torch.cuda.get_device_name()
    return {True: torch.half, False: torch.float}[
        fp16
    ] if capability < 8 else torch.bfloat16, np.bool_(fp16)


# %% right recipe: an early return for the old ones
def recipe():
    if torch.cuda.get_device_capability() < (7, 0):
        return torch.float32, False
    if "GTX 16" in torch.cuda.get_device_properties(0).name:
        return torch.float32, False
    if torch.cuda.is_bf16_supported(including_emulation=False):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return torch.bfloat16, False
    return torch.float16, True


# %% wrong recipe: emulation counts
#    says: Its Tensor Cores take FP16 and not BF16
def recipe():
    if torch.cuda.get_device_capability() < (7, 0) or "GTX 16" in torch.cuda.get_device_name():
        return torch.float32, False
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return torch.bfloat16, not torch.cuda.is_bf16_supported()


# %% wrong recipe: 7.0 means Tensor Cores
#    idea: capability-7-means-tensor-cores
#    says: No GTX 16 has Tensor Cores
def recipe():
    major, _ = torch.cuda.get_device_capability()
    if major >= 8:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return torch.bfloat16, False
    return (torch.float16, True) if major == 7 else (torch.float32, False)


# %% wrong recipe: a scaler everywhere below FP32
#    idea: bf16-needs-a-loss-scale
#    says: BF16 has FP32's range
def recipe():
    dtype, _ = ours.recipe()
    return dtype, dtype.itemsize == 2


# %% wrong recipe: FP16 without a scaler
#    says: FP16 gradients can underflow to 0
recipe = changed("return torch.float16, True", "return torch.float16, False")


# %% wrong recipe: TF32 is never asked for
#    says: leaves `torch.backends.cuda.matmul.fp32_precision` as "ieee"; "tf32" is wanted
recipe = changed('torch.backends.cuda.matmul.fp32_precision = "tf32"', "pass")


# %% wrong recipe: TF32 on every GPU
#    says: This GPU has no TF32
def recipe():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return ours.recipe()


# %% wrong recipe: TF32 for convolutions only
#    says: "tf32" is wanted
recipe = changed("cuda.matmul.fp32", "cudnn.conv.fp32")


# %% wrong recipe: the dtype as text
#    says: a torch.dtype such as torch.bfloat16 is asked for
def recipe():
    dtype, scaler = ours.recipe()
    return str(dtype).removeprefix("torch."), scaler


# %% wrong recipe: the GTX 1660 by its whole name
#    says: No GTX 16 has Tensor Cores
recipe = changed('"GTX 16" not in', '"GTX 1660" not in')


# %% wrong recipe: everything with a 16 in its name
#    says: The 16 in its name counts gigabytes
recipe = changed('"GTX 16" not in', '"16" not in')


# %% wrong recipe: only GeForce RTX counts as Turing
#    says: Its Tensor Cores take FP16
recipe = changed('"GTX 16" not in', '"RTX" in')


# %% wrong recipe: FP16 from 6.0 on
#    says: Tensor Cores came with capability 7.0
recipe = changed("(7, 0)", "(6, 0)")


# %% wrong recipe: the dtype alone
#    says: 2 values are asked for
def recipe():
    return ours.recipe()[0]


# %% wrong recipe: nothing on old cards
#    says: `recipe()` returns None
def recipe():
    found = ours.recipe()
    return found if found[0] != torch.float32 else None


# %% wrong recipe: a capability that is a number
#    says: raised TypeError
recipe = changed(">= (7, 0)", ">= 7.0")


# %% right least-time: float32
def least_time(m, n, k, size, peak, bandwidth, launch):
    f = np.float32
    computing = f(2) * f(m) * f(n) * f(k) / f(peak)
    moving = f(size) * (f(m) * f(k) + f(k) * f(n) + f(m) * f(n)) / f(bandwidth)
    longest = max(computing, moving, f(launch))
    return longest, {computing: "compute", moving: "memory"}.get(longest, "overhead")


# %% right least-time: by the intensity
def least_time(m, n, k, size, peak, bandwidth, launch):
    flop, moved = 2 * m * n * k, size * (m * k + k * n + m * n)
    found = (
        (flop / peak, "compute")
        if flop / moved > peak / bandwidth
        else (moved / bandwidth, "memory")
    )
    return found if found[0] > launch else (launch, "overhead")


# %% right least-time: the largest of three pairs
def least_time(m, n, k, size, peak, bandwidth, launch):
    return max(
        (2 * m * n * k / peak, "compute"),
        ((m * k + k * n + m * n) * size / bandwidth, "memory"),
        (launch, "overhead"),
    )


# %% right least-time: the roof first
def least_time(m, n, k, size, peak, bandwidth, launch):
    flop = 2.0 * m * n * k
    rate = min(peak, flop / (size * (m * n + n * k + k * m)) * bandwidth)
    if flop / rate < launch:
        return [launch, "overhead"]
    return [flop / rate, "compute" if rate == peak else "memory"]


# %% right least-time: fractions
def least_time(m, n, k, size, peak, bandwidth, launch):
    times = {
        "compute": Fraction(2 * m * n * k) / Fraction(peak),
        "memory": Fraction(size * (m * k + k * n + m * n)) / Fraction(bandwidth),
        "overhead": Fraction(launch),
    }
    bound = max(times, key=times.get)
    return times[bound], bound


# %% right least-time: a tensor in float32
def least_time(m, n, k, size, peak, bandwidth, launch):
    times = torch.tensor([2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth, launch])
    return times.max(), ("compute", "memory", "overhead")[times.argmax()]


# %% wrong least-time: no overhead
#    idea: a-launch-takes-no-time
#    says: moving, which is not the longest
def least_time(m, n, k, size, peak, bandwidth, launch):
    computing, moving = 2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth
    return max(computing, moving), "compute" if computing > moving else "memory"


# %% wrong least-time: the launch comes on top
#    says: the host launches while the device works
def least_time(m, n, k, size, peak, bandwidth, launch):
    computing, moving = 2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth
    return launch + max(computing, moving), ours.least_time(m, n, k, size, peak, bandwidth, launch)[
        1
    ]


# %% wrong least-time: the sum of all
#    idea: computing-and-moving-take-turns
#    says: the sum of the three, but they overlap
def least_time(m, n, k, size, peak, bandwidth, launch):
    computing, moving = 2 * m * n * k / peak, size * (m * k + k * n + m * n) / bandwidth
    times = [computing, moving, launch]
    return math.fsum(times), ("compute", "memory", "overhead")[times.index(max(times))]


# %% wrong least-time: never overhead by name
#    says: so it is "overhead"
def least_time(m, n, k, size, peak, bandwidth, launch):
    seconds, bound = ours.least_time(m, n, k, size, peak, bandwidth, launch)
    return seconds, bound.replace("overhead", "memory")


# %% wrong least-time: the words exchanged
#    says: so it is "compute"
least_time = changed(
    '"compute": 2', '"tmp": 2', '"memory": size', '"compute": size', '"tmp"', '"memory"'
)


# %% wrong least-time: the shortest time
#    says: which is not the longest
least_time = changed("max(times", "min(times")


# %% wrong least-time: in microseconds
#    says: Your time is in microseconds
least_time = changed("return times[bound]", "return 1e6 * times[bound]")


# %% wrong least-time: values for bytes
#    says: a value has 2 bytes here
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


# %% wrong least-time: the result stays
#    idea: the-result-is-not-moved
#    says: the result crosses the bus too
least_time = changed("(m * k + k * n + m * n)", "k * (m + n)")


# %% wrong least-time: the result twice, read and written
#    says: You move the result twice
least_time = changed("+ m * n)", "+ 2 * m * n)")


# %% wrong least-time: two-byte values only
#    says: You move two bytes for each value, but a value has 4 here
least_time = changed("size * (", "2 * (")


# %% wrong least-time: the ridge of an H100 for all
#    says: so it is
def least_time(m, n, k, size, peak, bandwidth, launch):
    seconds, _ = ours.least_time(m, n, k, size, peak, bandwidth, launch)
    intensity = 2 * m * n * k / (size * (m * k + k * n + m * n))
    return seconds, "overhead" if seconds == launch else "compute" if intensity > 295 else "memory"


# %% wrong least-time: the time alone
#    says: 2 values are asked for
def least_time(*args):
    return ours.least_time(*args)[0]


# %% wrong least-time: another word
#    says: one of compute, memory, overhead is asked for
least_time = changed('"overhead": launch', '"launch": launch')


# %% right timed: torch's median, in float32
def timed(cuda, work, repeats):
    times = []
    for _ in range(repeats + 1):
        start, end = (cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        work()
        end.record()
        cuda.synchronize()
        times.append(start.elapsed_time(end))
    return torch.tensor(times[1:]).median()


# %% right timed: all launched, then waited for
def timed(cuda, work, repeats):
    work()
    pairs = [(cuda.Event(True), cuda.Event(True)) for _ in range(repeats)]
    for start, end in pairs:
        start.record()
        work()
        end.record()
    cuda.synchronize()
    return np.median([start.elapsed_time(end) for start, end in pairs])


# %% right timed: the end of one is the start of the next
def timed(cuda, work, repeats):
    work()
    marks = [cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    marks[-1].synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))


# %% right timed: three calls of warm-up, synchronized
def timed(cuda, work, repeats):
    for _ in range(3):
        work()
    cuda.synchronize()

    def once():
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        while not end.query():
            end.synchronize()
        return start.elapsed_time(end)

    return sorted(once() for _ in range(repeats))[repeats // 2]


# %% right timed: the same two events each time
def timed(cuda, work, repeats):
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    times = np.empty(repeats, dtype=np.float32)
    work()
    for i in range(repeats):
        start.record()
        work()
        end.record()
        end.synchronize()
        times[i] = start.elapsed_time(end)
    return np.median(times)


# %% right timed: a warm-up as long as the run, and the lower middle
def timed(cuda, work, repeats):
    def run():
        for _ in range(repeats):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            yield start.elapsed_time(end)

    list(run())
    return statistics.median_low(run())


# %% wrong timed: always five
#    says: as often with 1 repeat
timed = changed("range(repeats)", "range(5)")


# %% wrong timed: the mean without the extremes
#    says: without the largest and the smallest
timed = changed(
    "return median(times)", "kept = sorted(times)[1:-1] or times; return sum(kept) / len(kept)"
)


# %% wrong timed: the mean, by statistics
#    idea: the-mean-of-times
#    says: is the mean of the calls
timed = changed("return median(times)", "import statistics; return statistics.mean(times)")


# %% wrong timed: the least
#    says: is the least of the calls
timed = changed("median(times)", "min(times)")


# %% wrong timed: all calls between two events, divided
#    idea: the-mean-of-times
def timed(cuda, work, repeats):
    work()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


# %% wrong timed: all calls together
#    says: that of all 5 calls together
def timed(cuda, work, repeats):
    work()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


# %% wrong timed: in seconds
#    says: Your time is in seconds
timed = changed("return median(times)", "return median(times) / 1000")


# %% wrong timed: milliseconds of milliseconds
#    says: a thousand times too large
timed = changed("return median(times)", "return 1000 * median(times)")


# %% wrong timed: the host's clock
#    says: recorded no event of `cuda`
def timed(cuda, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        cuda.synchronize()
        start = time.perf_counter()
        work()
        cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


# %% wrong timed: nobody waits
#    idea: a-call-that-returned-is-done
#    says: has not reached the end event yet
timed = changed("        end.synchronize()\n", "")


# %% wrong timed: waits before the work
#    idea: a-call-that-returned-is-done
#    says: Wait for it first
timed = changed("end.synchronize()", "start.synchronize()")


# %% wrong timed: no warm-up
#    idea: the-first-run-is-like-the-others
#    says: The warm-up of the first call, 500 ms
timed = changed("    work()\n    times", "    times")


# %% wrong timed: a fifth too long
#    says: is 2.412 ms; the median call takes 2 ms
#    never: warm-up
timed = changed("return median(times)", "return 1.2 * median(times)")


# %% wrong timed: both events before the work
#    says: No kernel lies between your two events
timed = changed("start.record()\n", "start.record(); end.record()\n", "        end.record()\n", "")


# %% wrong timed: end and start exchanged
#    says: runs backwards
timed = changed("start.elapsed_time(end)", "end.elapsed_time(start)")


# %% wrong timed: events that do not time
#    says: enable_timing=True
timed = changed(
    "cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)", "cuda.Event(), cuda.Event()"
)


# %% wrong timed: the end is never recorded
#    says: must be recorded
timed = changed("        end.record()\n", "")


# %% wrong timed: the warm-up lies between the first events
#    says: Two calls lie between your events
def timed(cuda, work, repeats):
    times = []
    for _ in range(repeats):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


# %% wrong timed: one call too few
#    says: called work() 4 times; it needs at least 5 calls
timed = changed("range(repeats)", "range(max(repeats - 2, 1))")


# %% wrong timed: the last one
#    says: is 303.5 ms; the median call takes 3.5 ms
timed = changed("median(times)", "times[-1]")


# %% wrong timed: the list of times
#    says: one number is asked for
timed = changed("return median(times)", "return times")


# %% right speedup: shares
def speedup(profile, factor):
    total = matmuls = 0
    for entry in profile.key_averages():
        total += entry.self_cpu_time_total
        if entry.key in ("aten::mm", "aten::addmm", "aten::bmm"):
            matmuls += entry.self_cpu_time_total
    share = matmuls / total
    return 1 / ((1 - share) + share / factor)


# %% right speedup: the total of the list
def speedup(profile, factor):
    averages = profile.key_averages()
    before = averages.self_cpu_time_total
    saved = sum(
        e.self_cpu_time_total * (1 - 1 / factor)
        for e in averages
        if e.key.removeprefix("aten::") in {"mm", "addmm", "bmm"}
    )
    return before / (before - saved)


# %% right speedup: a dict of times in float32
def speedup(profile, factor):
    times = {e.key: np.float32(e.self_cpu_time_total) for e in profile.key_averages()}
    after = {
        k: t / factor if k in ("aten::mm", "aten::addmm", "aten::bmm") else t
        for k, t in times.items()
    }
    return sum(times.values()) / sum(after.values())


# %% right speedup: every event by itself
def speedup(profile, factor):
    before = after = Fraction(0)
    for event in profile.events():
        own = Fraction(event.self_cpu_time_total)
        before += own
        after += (
            own / Fraction(factor)
            if event.name in ("aten::mm", "aten::bmm", "aten::addmm")
            else own
        )
    return before / after


# %% right speedup: a tensor
def speedup(profile, factor):
    entries = profile.key_averages()
    own = torch.tensor([float(e.self_cpu_time_total) for e in entries])
    is_matmul = torch.tensor([e.key.endswith(("::mm", "::addmm", "::bmm")) for e in entries])
    return own.sum() / torch.where(is_matmul, own / factor, own).sum()


# %% right speedup: mean times count
def speedup(profile, factor):
    def own(entries):
        return sum(e.count * (e.self_cpu_time_total / e.count) for e in entries)

    entries = list(profile.key_averages())
    matmuls = [e for e in entries if e.key in {"aten::mm", "aten::addmm", "aten::bmm"}]
    others = [e for e in entries if e not in matmuls]
    return own(entries) / (own(others) + own(matmuls) / factor)


# %% wrong speedup: totals of all
#    idea: a-total-time-is-its-own
#    says: `cpu_time_total`
def speedup(profile, factor):
    entries = profile.key_averages()
    before = sum(e.cpu_time_total for e in entries)
    matmuls = sum(
        e.cpu_time_total for e in entries if e.key in ("aten::mm", "aten::addmm", "aten::bmm")
    )
    return before / (before - matmuls + matmuls / factor)


# %% wrong speedup: whatever has mm in its name
#    says: only have mm in their names
speedup = changed("e.key in matmul_keys", '"mm" in e.key')


# %% wrong speedup: addmm only
#    says: You leave out the operator aten::mm
speedup = changed('{"aten::mm", "aten::addmm", "aten::bmm"}', '{"aten::addmm"}')


# %% wrong speedup: no bmm
#    says: You leave out the operator aten::bmm
speedup = changed(', "aten::bmm"}', "}")


# %% wrong speedup: what calls the matmuls, too
#    says: You also count what calls the matmuls
speedup = changed('"aten::bmm"}', '"aten::bmm", "aten::linear", "aten::matmul"}')


# %% wrong speedup: without aten::
#    says: Their keys begin with `aten::`
speedup = changed('{"aten::mm", "aten::addmm", "aten::bmm"}', '{"mm", "addmm", "bmm"}')


# %% wrong speedup: the inverse
#    idea: after-over-before
#    says: the time after over the time before
def speedup(profile, factor):
    return 1 / ours.speedup(profile, factor)


# %% wrong speedup: the time after
#    says: is the step's time afterwards, not
speedup = changed("return before / (", "return (")


# %% wrong speedup: the share that is saved
#    says: the share of the time that is saved
def speedup(profile, factor):
    return 1 - 1 / ours.speedup(profile, factor)


# %% wrong speedup: averaged
#    idea: speed-ups-average
def speedup(profile, factor):
    entries = profile.key_averages()
    own = {e.key: e.self_cpu_time_total for e in entries}
    share = sum(own.get(f"aten::{k}", 0) for k in ("mm", "addmm", "bmm")) / sum(own.values())
    return share * factor + (1 - share) * 1


# %% wrong speedup: multiplied
#    says: You multiply the matmuls' time by the factor
speedup = changed("matmuls / factor", "matmuls * factor")


# %% wrong speedup: the factor itself
#    idea: a-fast-part-is-a-fast-whole
def speedup(profile, factor):
    return factor


# %% wrong speedup: never below 1
#    says: matmuls that become slower
def speedup(profile, factor):
    return max(1.0, ours.speedup(profile, factor))


# %% wrong speedup: no matmul is an error
#    says: raised ZeroDivisionError
def speedup(profile, factor):
    own = [
        e.self_cpu_time_total for e in profile.key_averages() if e.key[6:] in ("mm", "addmm", "bmm")
    ]
    return ours.speedup(profile, factor) + 0 / len(own)


# %% wrong speedup: in percent
#    says: in percent
def speedup(profile, factor):
    return 100 * ours.speedup(profile, factor)


# %% wrong speedup: rounded
#    says: Your answer is rounded
def speedup(profile, factor):
    return round(ours.speedup(profile, factor), 2)


# %% right verdict: numpy
def verdict(ratios, control, margin, t):
    def ends(r):
        d = np.log(r)
        return d.mean() + np.array([-1, 1]) * t * d.std(ddof=1) / np.sqrt(d.size)

    low, high = ends(ratios)
    least, most = ends(control)
    away = max(least, -most, 0)
    ends_of_both, limit = np.array([low - away, high + away]), np.log1p(margin)
    if np.all(np.abs(ends_of_both) < limit):
        return "equivalent"
    return "faster" if high + away < -limit else "slower" if low - away > limit else "inconclusive"


# %% right verdict: torch in float64, in base 2
def verdict(ratios, control, margin, t):
    def interval(r):
        d = torch.tensor(r, dtype=torch.float64).log2()
        half = t * d.std() / len(d) ** 0.5
        return d.mean() - half, d.mean() + half

    (low, high), (least, most) = interval(ratios), interval(control)
    if least > 0:
        low, high = low - least, high + least
    if most < 0:
        low, high = low + most, high - most
    limit = math.log2(1 + margin)
    if low > limit:
        return "slower"
    if high < -limit:
        return "faster"
    return "equivalent" if low > -limit and high < limit else "inconclusive"


# %% right verdict: back to ratios
def verdict(ratios, control, margin, t):
    def interval(r):
        logs = [math.log(x) for x in r]
        half = t * statistics.stdev(logs) / math.sqrt(len(r))
        return math.exp(statistics.mean(logs) - half), math.exp(statistics.mean(logs) + half)

    low, high = interval(ratios)
    least, most = interval(control)
    away = max(1, least, 1 / most)
    low, high = low / away, high * away
    if 1 / (1 + margin) < low and high < 1 + margin:
        return "Equivalent"
    if high < 1 / (1 + margin):
        return "Faster"
    return "Slower" if low > 1 + margin else "Inconclusive"


# %% right verdict: by loops
def verdict(ratios, control, margin, t):
    def centre_and_reach(values):
        logs = list(map(math.log, values))
        n = len(logs)
        mean = sum(logs) / n
        return mean, t * math.sqrt(sum((x - mean) ** 2 for x in logs) / (n - 1) / n)

    mean, reach = centre_and_reach(ratios)
    other, its_reach = centre_and_reach(control)
    reach += max(0, abs(other) - its_reach)
    limit = math.log(1 + margin)
    if abs(mean) + reach < limit:
        return "equivalent"
    if abs(mean) - reach > limit:
        return "slower" if mean > 0 else "faster"
    return "inconclusive"


# %% right verdict: float32
def verdict(ratios, control, margin, t):
    def interval(r):
        d = torch.tensor(r).log()
        return (d.mean() + sign * t * d.std() / len(r) ** 0.5 for sign in (-1, 1))

    low, high = interval(ratios)
    least, most = interval(control)
    away = torch.stack([least, -most, torch.tensor(0.0)]).max()
    low, high, limit = (low - away).item(), (high + away).item(), math.log1p(margin)
    return (
        "faster"
        if high < -limit
        else "slower"
        if low > limit
        else "equivalent"
        if -limit < low <= high < limit
        else "inconclusive"
    )


# %% right verdict: a table of words
def verdict(ratios, control, margin, t):
    ends = []
    for r in (control, ratios):
        logs = np.log(np.asarray(r))
        ends.append((logs.mean(), t * np.std(logs, ddof=1) / len(logs) ** 0.5))
    (c, reach_c), (d, reach) = ends
    reach = reach + max(abs(c) - reach_c, 0.0)
    where = [
        int(x > -math.log(1 + margin)) + int(x > math.log(1 + margin))
        for x in (d - reach, d + reach)
    ]
    words = {(1, 1): "equivalent", (0, 0): "faster", (2, 2): "slower"}
    return words.get(tuple(where), "inconclusive")


# %% wrong verdict: the mean decides, in another way
#    idea: the-mean-decides
def verdict(ratios, control, margin, t):
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    away = math.exp(abs(statistics.fmean(map(math.log, control))))
    if mean * away < 1 / (1 + margin):
        return "faster"
    if mean / away > 1 + margin:
        return "slower"
    return (
        "equivalent"
        if 1 / (1 + margin) < mean / away and mean * away < 1 + margin
        else "inconclusive"
    )


# %% wrong verdict: not significant is equal
#    idea: not-significant-means-equal
def verdict(ratios, control, margin, t):
    found = ours.verdict(ratios, control, margin, t)
    logs = [math.log(r) for r in ratios]
    away = abs(statistics.fmean(logs))
    half = t * statistics.stdev(logs) / len(logs) ** 0.5
    controls = [math.log(r) for r in control]
    half += max(
        0, abs(statistics.fmean(controls)) - t * statistics.stdev(controls) / len(controls) ** 0.5
    )
    return "equivalent" if away <= half else found


# %% wrong verdict: a control that does not count
#    idea: a-control-need-not-count
def verdict(ratios, control, margin, t):
    return ours.verdict(ratios, [0.999, 1.001] * 2 + [1.0], margin, t)


# %% wrong verdict: the control's own interval is subtracted
#    says: leaves out 1: widened on both sides
def verdict(ratios, control, margin, t):
    shift = statistics.fmean(map(math.log, control))
    return ours.verdict([r / math.exp(shift) for r in ratios], [0.99, 1.0, 1.01], margin, t)


# %% wrong verdict: widened by the control's whole width
#    says: The interval of the ratios goes from
def verdict(ratios, control, margin, t):
    logs = [math.log(r) for r in ratios]
    half = t * statistics.stdev(logs) / len(logs) ** 0.5
    half += t * statistics.stdev(map(math.log, control)) / len(control) ** 0.5
    low, high, limit = (
        statistics.fmean(logs) - half,
        statistics.fmean(logs) + half,
        math.log(1 + margin),
    )
    if -limit < low and high < limit:
        return "equivalent"
    return "faster" if high < -limit else "slower" if low > limit else "inconclusive"


# %% wrong verdict: ratios without logarithms
#    says: The interval of the ratios goes from
def verdict(ratios, control, margin, t):
    def interval(r):
        half = t * statistics.stdev(r) / len(r) ** 0.5
        return statistics.fmean(r) - half, statistics.fmean(r) + half

    low, high = interval(ratios)
    least, most = interval(control)
    away = max(0, least - 1, 1 - most)
    low, high = low - away, high + away
    if 1 / (1 + margin) < low and high < 1 + margin:
        return "equivalent"
    return "faster" if high < 1 / (1 + margin) else "slower" if low > 1 + margin else "inconclusive"


# %% wrong verdict: the margin without its logarithm
#    says: All of the interval lies below the margin: faster
verdict = changed("math.log(1 + margin)", "-math.log(1 - margin)")


# %% wrong verdict: n in the deviation
#    says: a little too wide
#    says: crosses an end of the margin
#    says: divide by n - 1
verdict = changed("import fmean, stdev", "import fmean, pstdev as stdev")


# %% wrong verdict: the root of n - 1
#    says: just within
#    says: All of the interval lies inside the margin
#    says: divide by the root of n
verdict = changed("len(logs) ** 0.5", "(len(logs) - 1) ** 0.5")


# %% wrong verdict: the spread of one round
#    idea: the-spread-is-the-error-of-the-mean
verdict = changed("t * stdev(logs) / len(logs) ** 0.5", "t * stdev(logs)")


# %% wrong verdict: no t
#    says: an interval without t
verdict = changed("t * stdev", "stdev")


# %% wrong verdict: faster and slower exchanged
#    says: All of the interval lies below the margin: faster
verdict = changed(
    'return "faster"', 'return "slower"', 'return "slower" if low', 'return "faster" if low'
)


# %% wrong verdict: one end inside is enough
#    says: The interval of the ratios goes from
verdict = changed("-limit < low and high < limit", "-limit < low or high < limit")


# %% wrong verdict: significant is enough
#    idea: significant-means-it-matters
verdict = changed(
    "    if -limit < low",
    '    if high < 0:\n        return "faster"\n    if low > 0:\n        return "slower"\n    if -limit < low',
)


# %% wrong verdict: another word
#    says: one of equivalent, faster, slower, inconclusive is asked for
verdict = changed('else "inconclusive"', 'else "unclear"')


# %% wrong verdict: no word at the end
#    says: returns None
def verdict(ratios, control, margin, t):
    found = ours.verdict(ratios, control, margin, t)
    if found != "inconclusive":
        return found


# %% wrong verdict: the margin for its logarithm
#    says: All of the interval lies below the margin: faster
verdict = changed("math.log(1 + margin)", "margin")


# %% wrong verdict: a control that is only ever slower
#    says: a control that drifts the other way
verdict = changed("max(0.0, least, -most)", "max(0.0, least)")


# %% wrong verdict: widened by the control's mean
#    says: The interval of the ratios goes from
verdict = changed("max(0.0, least, -most)", "abs(least + most) / 2")


# %% wrong verdict: a bad control makes everything inconclusive
#    says: a control that just leaves out 1
#    says: All of the interval lies below the margin: faster
verdict = changed(
    "    if -limit < low", '    if away:\n        return "inconclusive"\n    if -limit < low'
)


# %% wrong recipe: only what autocast is told
#    says: leaves `torch.backends.cuda.matmul.fp32_precision` as "ieee"
def recipe():
    major, _ = torch.cuda.get_device_capability()
    if major >= 8:
        torch.backends.cudnn.allow_tf32 = True
        return torch.bfloat16, False
    return ours.recipe()


# %% wrong timed: the last event only is waited for, before it is recorded
#    idea: a-call-that-returned-is-done
#    says: has not reached the end event yet
timed = changed(
    "end.record()\n        end.synchronize()", "end.synchronize()\n        end.record()"
)


# %% wrong speedup: averages of one call
#    says: You divide by the number of calls
def speedup(profile, factor):
    entries = profile.key_averages()
    own = {e.key: e.self_cpu_time_total / e.count for e in entries}
    matmuls = sum(own.get(f"aten::{k}", 0) for k in ("mm", "addmm", "bmm"))
    before = sum(own.values())
    return before / (before - matmuls + matmuls / factor)


# %% wrong recipe: the setting is put back to ieee elsewhere
#    says: The setting was "tf32" before
def recipe():
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    return ours.recipe()


# %% wrong recipe: capabilities as text
#    says: as text "10.0" comes before "8.0"
def recipe():
    capability = "{}.{}".format(*torch.cuda.get_device_capability())
    if capability >= "8.0":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return torch.bfloat16, False
    has_cores = capability >= "7.0" and "GTX 16" not in torch.cuda.get_device_name()
    return (torch.float16, True) if has_cores else (torch.float32, False)


# %% wrong least-time: a launch of 0 taken for none given
#    says: A launch takes 0 s here
least_time = changed('"overhead": launch', '"overhead": launch or 5e-6')


# %% wrong timed: torch.cuda in place of the argument
#    says: Use the argument `cuda`
def timed(cuda, work, repeats):
    return ours.timed(torch.cuda, work, repeats)


# %% wrong timed: the warm-up among the calls
#    idea: the-first-run-is-like-the-others
#    says: The first call, which warms up, is among those
def timed(cuda, work, repeats):
    times = []
    for _ in range(repeats + 1):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


# %% wrong timed: one start for all ends
#    says: Your intervals grow from call to call
def timed(cuda, work, repeats):
    work()
    times, start = [], cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        end = cuda.Event(enable_timing=True)
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


# %% wrong speedup: the matmuls by their totals
#    says: also counts what they call
speedup = changed("matmuls = sum(e.self_cpu_time_total", "matmuls = sum(e.cpu_time_total")


# %% wrong speedup: times the number of calls
#    says: You multiply by the number of calls
speedup = changed(
    "before = sum(e.self_cpu_time_total",
    "before = sum(e.count * e.self_cpu_time_total",
    "matmuls = sum(e.self_cpu_time_total",
    "matmuls = sum(e.count * e.self_cpu_time_total",
)


# %% wrong speedup: nothing but matmuls afterwards
#    says: You leave out the time of the other operators
speedup = changed("before - matmuls + matmuls / factor", "matmuls / factor or before")


# %% wrong speedup: microseconds saved
#    says: the microseconds that are saved
speedup = changed(
    "return before / (before - matmuls + matmuls / factor)", "return matmuls - matmuls / factor"
)


# %% wrong verdict: widened by the far end of the control
#    says: the distance of its nearer end
verdict = changed("max(0.0, least, -most)", "0.0 if least < 0 < most else max(-least, most)")


# %% wrong verdict: widened by half the width of the control's interval
#    says: the distance of its nearer end
verdict = changed("max(0.0, least, -most)", "0.0 if least < 0 < most else (most - least) / 2")


# %% wrong verdict: a margin of 2 percent always
#    says: The margin allows 0.8696 to 1.15
verdict = changed("math.log(1 + margin)", "math.log(1.02)")


# %% wrong verdict: 1.96 for t
#    says: 1.96 in place of t
def verdict(ratios, control, margin, t):
    return ours.verdict(ratios, control, margin, 1.96)


# %% wrong verdict: ratios over the control's, round by round
#    says: widen their interval instead
def verdict(ratios, control, margin, t):
    over = [ratio / same for ratio, same in zip(ratios, control)]
    return ours.verdict(over, [1.0] * len(control), margin, t)


# %% wrong recipe: a scaler or None
#    says: is None; True or False is asked for
#    never: is there a `return`
def recipe():
    dtype, scaler = ours.recipe()
    return dtype, scaler or None


# %% wrong least-time: bytes over the peak, operations over the bandwidth
#    says: You divide operations by the bandwidth
least_time = changed("k / peak", "k / tmp", "/ bandwidth", "/ peak", "tmp", "bandwidth")


# %% wrong least-time: the roofline alone
#    idea: a-launch-takes-no-time
#    says: gives a time of 0.4695 us
def least_time(m, n, k, size, peak, bandwidth, launch):
    operations, moved = 2 * m * n * k, size * (m * k + k * n + m * n)
    speed = min(peak, operations / moved * bandwidth)
    return operations / speed, "compute" if speed == peak else "memory"


# %% wrong speedup: the share
#    says: the matmuls' share of the time
speedup = changed("return before / (before - matmuls + matmuls / factor)", "return matmuls / before")


# %% wrong verdict: the variance for the deviation
#    says: The interval of the ratios goes from
verdict = changed("t * stdev(logs)", "t * stdev(logs) ** 2")


# %% wrong verdict: around the median
#    says: three fast rounds of five
def verdict(ratios, control, margin, t):
    def around_median(values):
        logs = [math.log(value) for value in values]
        off = statistics.median(logs) - statistics.fmean(logs)
        return [math.exp(log + off) for log in logs]

    return ours.verdict(around_median(ratios), around_median(control), margin, t)


# %% wrong verdict: the logarithm of the mean ratio
#    says: take the mean of the logarithms
def verdict(ratios, control, margin, t):
    def around_mean(values):
        off = math.log(statistics.fmean(values)) - statistics.fmean(map(math.log, values))
        return [value * math.exp(off) for value in values]

    return ours.verdict(around_mean(ratios), around_mean(control), margin, t)


# %% wrong timed: one pair of events, read after the loop
#    says: that of one call
#    never: largest
def timed(cuda, work, repeats):
    work()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    for _ in range(repeats):
        start.record()
        work()
        end.record()
    end.synchronize()
    return statistics.median(start.elapsed_time(end) for _ in range(repeats))


# %% wrong speedup: a step of the aten operators alone
#    says: do not begin with `aten::`
#    never: averages
def speedup(profile, factor):
    entries = [e for e in profile.key_averages() if e.key.startswith("aten::")]
    return ours.speedup(SimpleNamespace(key_averages=lambda: entries), factor)


# %% right timed: asks until the end event is reached
def timed(cuda, work, repeats):
    work()
    times = []
    for _ in range(repeats):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        while not end.query():
            pass
        times.append(start.elapsed_time(end))
    return statistics.median(times)


# %% wrong recipe: labkit's own rules
#    says: uses `labkit.devices.device_of`
def recipe():
    from labkit.devices import Description, device_of

    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    gpu = device_of(Description(name=name, kind="cuda", capability="{}.{}".format(*capability)))
    if gpu.dtypes["bf16"].accelerated.answer:
        torch.set_float32_matmul_precision("high")
        return [torch.bfloat16, False]
    return [torch.float16, True] if gpu.matrix_units.answer else [torch.float32, False]


# %% wrong recipe: labkit's own recipe
#    says: uses `labkit.devices.
def recipe():
    from labkit import devices

    name, capability = torch.cuda.get_device_name(), "{}.{}".format(*torch.cuda.get_device_capability())
    gpu = devices.Description(name=name, kind="cuda", capability=capability)
    found = devices.recommend(devices.device_of(gpu))
    if found.tf32:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    return dtypes[found.dtype], found.scaler


# %% wrong least-time: labkit's count of FLOP and bytes
#    says: uses `labkit.devices.roofline.matmul_work`
def least_time(m, n, k, size, peak, bandwidth, launch):
    from labkit.devices.roofline import matmul_work

    flop, moved = matmul_work(m, n, k, "fp16")
    moved *= size / 2
    return max((flop / peak, "compute"), (moved / bandwidth, "memory"), (launch, "overhead"))


# %% wrong least-time: labkit's roof
#    says: uses `labkit.devices.roofline.Roof`
def least_time(m, n, k, size, peak, bandwidth, launch):
    from labkit.devices.roofline import Roof

    roof = Roof("", "", peak, bandwidth)
    work = {"flop": 2 * m * n * k, "bytes_moved": size * (m * k + k * n + m * n)}
    return max((roof.seconds(**work), roof.bound(**work)), (launch, "overhead"))


# %% wrong verdict: labkit's verdict on differences
#    says: uses `labkit.measuring.verdict`
def verdict(ratios, control, margin, t):
    from labkit import measuring

    logs, again = ([-math.log(ratio) for ratio in rounds] for rounds in (ratios, control))
    found = measuring.verdict(logs, math.log1p(margin), control=again).answer
    return {"better": "faster", "worse": "slower"}.get(found, found)
