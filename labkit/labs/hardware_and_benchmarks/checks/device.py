"""Checks of lab 06, sitting A: a recipe from what torch says of a GPU, and the least time."""

import random

import torch

from labkit.labs.engine import (
    AnswerError,
    Mistake,
    attempt,
    calls,
    check,
    number,
    several,
    truth,
    word,
)
from labkit.labs.engine.behaviour import near
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure
from labkit.labs.hardware_and_benchmarks.checks.shared import only_fit
from labkit.labs.hardware_and_benchmarks.simulated_cuda import simulated_gpu

LAB = "06_hardware_and_benchmarks"

_CRASHED = "{where} `recipe()` raised {error}."
_NO_DTYPE = "{where} `recipe()[0]` is {came}; a torch.dtype such as torch.bfloat16 is asked for."
_NO_SCALER = "{where} `recipe()[1]` is None; True or False is asked for."
_OTHER_RECIPE = "{where} `recipe()` returns {got}; it should return {want}. {why}"
_OTHER_SWITCH = (
    "{where} `recipe()` leaves `torch.backends.cuda.matmul.fp32_precision` as {got}; {want} is "
    "wanted. {why}"
)
_SCALERS = {
    torch.float16: "FP16 gradients can underflow to 0, so the loss needs a scale.",
    torch.bfloat16: "BF16 has FP32's range of exponents, so its gradients need no loss scale.",
    torch.float32: "FP32 gradients need no loss scale.",
}
_HAS_TF32 = "Tensor Cores take TF32 from capability 8.0 on."
_NO_TF32 = "This GPU has no TF32, so leave the setting as it was."
_WAS_TF32 = 'The setting was "tf32" before; this GPU has no TF32, so leave it as it was.'

_OTHER_TIME = (
    "`{call}` gives a time of {got} us; computing takes {computing} us, moving {moving} us and "
    "launching {launching} us. {why}"
)
_TIMES_LONGER = "Your time is {times:.6g} times the longest of the three."
_OWN_LAUNCH = "A launch takes 0 s here. Does your code put another time in its place?"
_KINDS = {
    "sum": "Your time is the sum of the three, but they overlap.",
    "two": "Your time is the sum of computing and moving, but they overlap.",
    "computing": "Your time is that of computing, which is not the longest.",
    "moving": "Your time is that of moving, which is not the longest.",
    "launching": "Your time is that of launching, which is not the longest.",
    "late launch": "Your time adds the launch, but the host launches while the device works.",
    "half": "You count m * n * k operations, but a multiply and an add are two.",
    "one less": (
        "You count 2 k - 1 operations for each of the m * n results. A unit adds the first term "
        "too, to 0, so count 2 k, as the peak does."
    ),
    "inputs": "You move only the two inputs, but the result crosses the bus too.",
    "result twice": "You move the result twice; it is written once, and not read.",
    "values": "You move one byte for each value, but a value has {size} bytes here.",
    "two bytes": "You move two bytes for each value, but a value has {size} here.",
    "bits": "You move 8 times too much: `size` counts bytes, not bits.",
    "exchanged": "You divide operations by the bandwidth and bytes by the peak: exchange them.",
    "microseconds": "Your time is in microseconds; seconds are asked for.",
}
_OTHER_BOUND = (
    '`{call}` says "{got}"; computing takes {computing} us, moving {moving} us and launching '
    '{launching} us, so it is "{want}".'
)


# The recipe. NVIDIA, CUDA C++ Programming Guide ("Compute Capabilities") and whitepapers.

_OLD = (torch.float32, False), "Tensor Cores came with capability 7.0."
_NO_CORES = (torch.float32, False), "No GTX 16 has Tensor Cores, although its capability is 7.5."
_FP16 = (torch.float16, True), "Its Tensor Cores take FP16 and not BF16."
_BF16 = (torch.bfloat16, False), "Its Tensor Cores take BF16."
_FP16_GIGABYTES = (
    (torch.float16, True),
    "Its Tensor Cores take FP16 and not BF16. The 16 in its name counts gigabytes.",
)
_BF16_TWO_DIGITS = (
    (torch.bfloat16, False),
    'Its Tensor Cores take BF16. (10, 0) comes after (8, 0); as text "10.0" comes before "8.0".',
)
_RECIPES = {
    ("NVIDIA GeForce GTX 1080", (6, 1)): _OLD,
    # Whoever leaves out 7.0 fails at the first, and whoever looks for a 16 at the second.
    ("NVIDIA TITAN V", (7, 0)): _FP16,
    ("Tesla V100-SXM2-16GB", (7, 0)): _FP16_GIGABYTES,
    ("Tesla T4", (7, 5)): _FP16,
    ("NVIDIA GeForce RTX 2080", (7, 5)): _FP16,
    ("NVIDIA GeForce GTX 1660", (7, 5)): _NO_CORES,
    ("NVIDIA GeForce GTX 1650 SUPER", (7, 5)): _NO_CORES,
    ("NVIDIA GeForce GTX 1630", (7, 5)): _NO_CORES,
    ("NVIDIA A100-SXM4-40GB", (8, 0)): _BF16,
    ("Orin", (8, 7)): _BF16,
    ("NVIDIA GeForce RTX 4090", (8, 9)): _BF16,
    ("NVIDIA H100 80GB HBM3", (9, 0)): _BF16,
    ("NVIDIA B200", (10, 0)): _BF16_TWO_DIGITS,
}
# What goes beside the answer, and the setting before it: no recipes.
_GPUS = [(*gpu, "tf32" if "RTX 2080" in gpu[0] else "ieee") for gpu in _RECIPES]


_CAPABILITIES = (5, 0), (6, 1), (7, 0), (7, 2), (7, 5), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0)


def _gpus(seed):
    """The GPUs above, and eight that are drawn, by names that nobody has listed."""
    draw = random.Random(seed)
    drawn = []
    for _ in range(8):
        capability, number = draw.choice(_CAPABILITIES), draw.randrange(1000)
        name = f"NVIDIA Graphics Device {number}"
        if capability == (7, 5) and number % 2:
            name = f"NVIDIA GeForce GTX 16{number % 10}0"
        before = "ieee" if capability >= (8, 0) else draw.choice(("ieee", "tf32"))
        drawn.append((name, capability, before))
    return _GPUS + drawn


def run_recipe(recipe, seed):
    """`recipe` on simulated GPUs, with the setting for float32 matmuls that it leaves."""
    found = []
    for name, capability, before in _gpus(seed):
        with simulated_gpu(name, capability) as matmul_precision:
            torch.backends.cuda.matmul.fp32_precision = before
            got = attempt(recipe)
            found.append((got, matmul_precision()))
    return found


@check(run_recipe, own_work=("labkit.devices.device_of", "labkit.devices.recommend"))
def check_recipe(answers, seed):
    """The dtype, the scaler and TF32 of many GPUs, from what torch says of them."""
    for (name, capability, before), (got, switch) in zip(_gpus(seed), answers, strict=True):
        (dtype, scaler), why = _right_recipe(name, capability)
        where = f"On {name}, capability {capability},"
        if isinstance(got, Raised):
            raise AnswerError(_CRASHED, where=where, error=failure(got))
        chosen, scaled = several(got, 2, call="recipe()")
        if not isinstance(chosen, torch.dtype):
            raise Mistake(_NO_DTYPE, where=where, came=came(chosen))
        if scaled is None:
            raise Mistake(_NO_SCALER, where=where)
        found = chosen, truth(scaled, call="recipe()[1]")
        if found != (dtype, scaler):
            why = _SCALERS[dtype] if chosen == dtype else why
            want = (dtype, scaler)
            raise Mistake(_OTHER_RECIPE, where=where, got=str(found), want=str(want), why=why)
        has_tf32 = capability >= (8, 0)
        want = "tf32" if has_tf32 else before
        if switch != want:
            why = _HAS_TF32 if has_tf32 else _WAS_TF32 if before == "tf32" else _NO_TF32
            raise Mistake(_OTHER_SWITCH, where=where, got=f'"{switch}"', want=f'"{want}"', why=why)


def _right_recipe(name, capability):
    """What is right for a GPU, and why."""
    if (name, capability) in _RECIPES:
        return _RECIPES[name, capability]
    if "GTX 16" in name:
        return _NO_CORES
    return _BF16 if capability >= (8, 0) else _FP16 if capability >= (7, 0) else _OLD


check_recipe.slip(
    "computable-means-fast",
    "is_bf16_supported() also says True where torch computes BF16 through FP32. Which argument "
    "leaves that out?",
    cut="including_emulation=False",
)
check_recipe.slip(
    "capability-7-means-tensor-cores",
    "The RTX 2080 has the same capability, and your recipe is the same for both. What else does "
    "torch.cuda say of a card?",
    cut=' and "GTX 16" not in torch.cuda.get_device_name()',
)
check_recipe.slip(
    "bf16-needs-a-loss-scale",
    "What does a loss scale protect small gradients from, and can it happen in BF16?",
    swap=("return torch.bfloat16, False", "return torch.bfloat16, True"),
)
check_recipe.slip(
    "fp16-before-bf16",
    "This GPU runs matmuls in both dtypes at the same rate. Which dtype needs no scaler?",
    swap=("return torch.bfloat16, False", "return torch.float16, True"),
)


# The least time

_H100, _A100 = (989e12, 3.35e12, 5e-6), (312e12, 1.555e12, 5e-6)
_MATMULS = [
    # m, n, k, bytes of a value, peak in FLOP/s, bandwidth in bytes/s, seconds of a launch
    (4096, 4096, 4096, 2, *_H100),
    (512, 512, 512, 2, *_H100),
    (1, 4096, 4096, 2, *_A100),
    (8192, 64, 8192, 2, *_A100),
    (4096, 4096, 4096, 4, 19.5e12, 1.555e12, 5e-6),
    (16, 4096, 16, 2, 65e12, 320e9, 1e-5),
    # bound by memory, with values of 4 bytes and of 1
    (1, 4096, 4096, 4, 19.5e12, 1.555e12, 5e-6),
    (16, 4096, 4096, 1, 1979e12, 3.35e12, 2e-6),
    # launched in no time, as inside a CUDA graph: 85 FLOP a byte keep these units busy
    (512, 512, 512, 4, 19.5e12, 1.555e12, 0.0),
    (512, 512, 512, 2, 989e12, 3.35e12, 0.0),
    # a slow launch, on a device that has nearly as much to do
    (2048, 2048, 2048, 2, 989e12, 3.35e12, 2e-5),
]


def _matmuls(seed):
    """The matmuls above, and four that are drawn, on two devices."""
    draw = random.Random(seed)
    drawn = []
    for device in [_H100, (19.5e12, 1.555e12, 1e-5)] * 2:
        shape = [2 ** draw.randrange(14) for _ in range(3)]
        drawn.append((*shape, draw.choice((1, 2, 4)), *device))
    return _MATMULS + drawn


@check(
    calls(_matmuls),
    own_work=("labkit.devices.roofline.matmul_work", "labkit.devices.roofline.Roof"),
)
def check_least_time(answers, seed):
    """The least time of a matmul, and which of three things bounds it."""
    for inputs, got in zip(_matmuls(seed), answers, strict=True):
        m, n, k, size, rate, bandwidth, launch = inputs
        call = f"least_time({m}, {n}, {k}, {size}, {rate:.4g}, {bandwidth:.4g}, {launch:.4g})"
        seconds, bound = several(got, 2, call=call)
        seconds = number(seconds, call=f"{call}[0]")
        bound = word(bound, ("compute", "memory", "overhead"), call=f"{call}[1]")
        computing = 2 * m * n * k / rate
        moving = size * (m * k + k * n + m * n) / bandwidth
        times = {"compute": computing, "memory": moving, "overhead": launch}
        said = {"computing": computing, "moving": moving, "launching": launch}
        said = {"call": call} | {name: 1e6 * time for name, time in said.items()}
        longest = max(times.values())
        if not near(seconds, longest):
            alone = {"computing": computing, "moving": moving, "launching": launch}
            kind = only_fit(seconds, alone)
            seconds = alone.get(kind, seconds)  # with no other last digit than the time beside it
            kind = kind or only_fit(seconds, _other_times(inputs, computing, moving))
            other = _OWN_LAUNCH if seconds > longest and not launch else _TIMES_LONGER
            why = fill(_KINDS.get(kind, other), times=seconds / longest, size=size)
            raise Mistake(_OTHER_TIME, got=1e6 * seconds, why=why, **said)
        want = max(times, key=times.get)
        if bound != want:
            raise Mistake(_OTHER_BOUND, got=bound, want=want, **said)


def _other_times(inputs, computing, moving):
    """What people compute for the least time, wrongly."""
    m, n, k, size, rate, bandwidth, launch = inputs
    device = max(computing, moving)
    return {
        "sum": computing + moving + launch,
        "two": max(computing + moving, launch),
        "late launch": device + launch,
        "one less": max(m * n * (2 * k - 1) / rate, moving, launch),
        "half": max(computing / 2, moving, launch),
        "inputs": max(computing, size * (m * k + k * n) / bandwidth, launch),
        "result twice": max(computing, moving + size * m * n / bandwidth, launch),
        "values": max(computing, moving / size, launch),
        "two bytes": max(computing, 2 * moving / size, launch),
        "bits": max(computing, 8 * moving, launch),
        "exchanged": max(computing * rate / bandwidth, moving * bandwidth / rate, launch),
        "microseconds": 1e6 * max(computing, moving, launch),
    }


check_least_time.slip(
    "time-is-flop-over-peak",
    "The values must also come from memory. How long does that take?",
    swap=("max(times, key=times.get)", '"compute"'),
)
check_least_time.slip(
    "computing-and-moving-take-turns",
    "The device loads the next tile while it multiplies this one, and the host launches ahead. How "
    "long do the three take if they go on at the same time?",
    swap=("times[bound], bound", "sum(times.values()), bound"),
)
check_least_time.slip(
    "the-result-is-not-moved", "Two matrices are read. Where does the third one go?", cut=" + m * n"
)
check_least_time.slip("an-fma-is-one-flop", "How many operations are in a * b + c?", cut="2 * ")
check_least_time.slip(
    "a-launch-takes-no-time",
    "The host must launch one kernel for each matmul. How many can it launch in a second?",
    swap=('        "overhead": launch,\n', ""),
)
