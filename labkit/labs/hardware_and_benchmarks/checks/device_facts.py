"""Checks of lab 06, sitting A: three facts, the recipe, the peak, the roofline."""

import math
import random

from labkit.labs.engine import Mistake, attempt, calls, check, number, several, truth, word
from labkit.labs.engine.behaviour import near
from labkit.labs.engine.messages import fill
from labkit.labs.hardware_and_benchmarks.checks.shared import only_fit

LAB = "06_hardware_and_benchmarks"

_OTHER_FACT = "{name}: `{call}` gives {got} for {fact}; it is {want}. {why}"
_WHY = {
    # true of every answer, whichever way it is wrong
    ("fp16", "storable"): "Memory holds bytes: a tensor of FP16 can be made on any card.",
    ("bf16", "storable"): "Memory holds bytes: a tensor of BF16 can be made on any card.",
    ("fp8", "storable"): "Memory holds bytes: a tensor of FP8 can be made on any card.",
    ("tf32", "storable"): "No tensor has the dtype TF32: its values lie in memory as FP32.",
    ("fp16", "computable"): "torch adds two FP16 tensors on any card, if need be through FP32.",
    ("bf16", "computable"): "torch adds two BF16 tensors on any card, if need be through FP32.",
    ("fp8", "computable"): "FP8 has one operation, the scaled matmul, and that needs the units.",
    ("tf32", "computable"): "TF32 is a way in which the units multiply: no units, no TF32.",
    ("fp16", "accelerated"): "It gives at least as many FP16 results a clock as FP32 results.",
    ("bf16", "accelerated"): "Tensor Cores take BF16 from 8.0 on.",
    ("tf32", "accelerated"): "Tensor Cores take TF32 from 8.0 on.",
    ("fp8", "accelerated"): "Tensor Cores take FP8 from 8.9 on.",
}
_SLOW = "6.1 gives 2 FP16 results a clock, and 128 of FP32."

_OTHER_RECIPE = "`{call}` is {got}; {want} is wanted. {why}"

_SCALERS = {
    "fp16": "In FP16 small gradients become 0 unless the loss is scaled.",
    "bf16": "BF16 reaches as far down as FP32, so no gradient becomes 0 for want of a scale.",
    "fp32": "A scaler saves gradients that FP16 would make 0; FP32 holds them.",
}

_OTHER_PEAK = "{name}: `{call}` is {got}; {source} {printed} TFLOP/s. {why}"
_ROUNDED = "Yours is rounded: return all digits."
_TIMES = "Yours is {times:.4g} times the right number."

_OTHER_TIME = (
    "`{call}` takes {got} us; computing alone takes {computing} us, moving alone {moving} us. {why}"
)
_TIMES_LONGER = "Yours is {times:.4g} times the longer one."
_KINDS = {
    "sum": "Yours is the sum of the two, and they go on at the same time.",
    "computing": "Yours is the time of computing, and moving takes longer.",
    "moving": "Yours is the time of moving, and computing takes longer.",
    "one less": (
        "You count 2 k - 1 operations for each of the m * n results. A unit adds the first "
        "product too, to 0: count 2 k, as the peak does."
    ),
    "half": "You count m * n * k operations; a multiply and an add are two.",
    "inputs": "You move the two inputs only; the result crosses the bus too.",
    "values": "You move as if each value had one byte; here it has {size}.",
    "bits": "You move 8 times too much: `size` counts bytes, not bits.",
}
_OTHER_BOUND = (
    "`{call}` says that {got} is the bound; computing takes {computing} us and moving {moving} us, "
    "so it is {want}."
)


# Three facts. What the documents say of each device, written out: CUDA C++ Programming Guide
# ("Compute Capabilities", "Arithmetic Instructions") and NVIDIA's architecture whitepapers.
# "c" is the lab's sense of computable: torch has some kernel. Not every one: below 7.0 many
# versions of cuBLAS refuse BF16 products (CUBLAS_STATUS_NOT_SUPPORTED, pytorch/pytorch#57773).

_DTYPES = ("fp16", "bf16", "tf32", "fp8")
_DOCUMENTED = {
    # name, capability: for each dtype storable, computable, accelerated as s, c, a
    ("Tegra X1", (5, 3)): "sca sc - s",
    ("GTX 1080", (6, 1)): "sc sc - s",
    ("P100", (6, 0)): "sca sc - s",
    ("Jetson TX2", (6, 2)): "sca sc - s",
    ("V100", (7, 0)): "sca sc - s",
    ("Jetson Xavier", (7, 2)): "sca sc - s",
    ("GTX 1660", (7, 5)): "sca sc - s",
    ("RTX 2080", (7, 5)): "sca sc - s",
    ("A100", (8, 0)): "sca sca ca s",
    ("RTX 3090", (8, 6)): "sca sca ca s",
    ("Jetson Orin", (8, 7)): "sca sca ca s",
    ("L4", (8, 9)): "sca sca ca sca",
    ("H100", (9, 0)): "sca sca ca sca",
    ("B200", (10, 0)): "sca sca ca sca",
    ("B300", (10, 3)): "sca sca ca sca",
    ("RTX 5090", (12, 0)): "sca sca ca sca",
}
_DEVICES = tuple(_DOCUMENTED)  # what goes beside the answer: no facts
# Where "computable" is built on "accelerated", a wrong one makes the other wrong: the cause first.
_REPORTED = {"accelerated": 2, "storable": 0, "computable": 1}


def run_three_facts(three_facts):
    """`three_facts` for each dtype on sixteen GPUs."""
    return {
        (name, capability, dtype): attempt(three_facts, dtype, capability)
        for name, capability in _DEVICES
        for dtype in _DTYPES
    }


@check(run_three_facts)
def check_three_facts(answers):
    """Storable, computable and accelerated, told apart on sixteen GPUs."""
    for name, capability, dtype in [(*device, dtype) for device in _DEVICES for dtype in _DTYPES]:
        call = f'three_facts("{dtype}", {capability})'
        facts = several(answers[name, capability, dtype], 3, call=call)
        facts = [truth(fact, call=f"{call}[{place}]") for place, fact in enumerate(facts)]
        documented = _DOCUMENTED[name, capability].split()[_DTYPES.index(dtype)]
        for fact, place in _REPORTED.items():
            want = "sca"[place] in documented
            if facts[place] == want:
                continue
            slow = (dtype, fact, want) == ("fp16", "accelerated", False)
            raise Mistake(
                _OTHER_FACT,
                name=name,
                call=call,
                got=facts[place],
                fact=fact,
                want=want,
                why=_SLOW if slow else _WHY[dtype, fact],
            )


_NO_UNITS = (
    "no-units-means-not-computable",
    "The card has no units for it. What does torch do with an addition that no unit takes?",
)
check_three_facts.slip(*_NO_UNITS, cut=' or dtype in ("fp16", "bf16")')
check_three_facts.slip(*_NO_UNITS, swap=('in ("fp16", "bf16")', '== "fp16"'))
check_three_facts.slip(*_NO_UNITS, swap=('in ("fp16", "bf16")', '== "bf16"'))
check_three_facts.slip(
    "tf32-is-a-dtype-in-memory",
    "How many bytes does a TF32 value take in memory, and which dtype does its tensor name?",
    swap=('return dtype != "tf32"', "return True"),
)
check_three_facts.slip(
    "storable-means-computable",
    "An FP8 tensor can be made anywhere. Try torch.ones(2).to(torch.float8_e4m3fn) + 1: which "
    "operation has torch for it, and what does that ask for?",
    swap=('in ("fp16", "bf16")', 'in ("fp16", "bf16", "fp8")'),
)
check_three_facts.slip(
    "fp16-is-fast-since-it-exists",
    "No capability below (7, 0) says by its size how fast FP16 is. Which ones does your comparison "
    "let in?",
    swap=("in ((5, 3), (6, 0), (6, 2)) or capability >= (7, 0)", ">= (5, 3)"),
)
check_three_facts.slip(
    "tensor-cores-take-every-16-bit-dtype",
    "Tensor Cores came with 7.0 and took one 16-bit dtype. From which capability on the other?",
    swap=('"bf16": (8, 0)', '"bf16": (7, 0)'),
)


# The recipe

_OLD = ("fp32", False), "Tensor Cores came with 7.0."
_NO_CORES = ("fp32", False), "No GTX 16 has Tensor Cores."
_FP16 = ("fp16", True), "Its Tensor Cores take FP16 and no BF16."
_BF16 = ("bf16", False), "BF16 is accelerated there."
_RECIPES = {
    # name, capability: the recipe, and why
    ("Tesla P100-SXM2-16GB", (6, 0)): _OLD,
    ("NVIDIA GeForce GTX 1080", (6, 1)): _OLD,
    ("Tesla V100-SXM2-16GB", (7, 0)): _FP16,
    ("NVIDIA TITAN V", (7, 0)): _FP16,
    ("NVIDIA GeForce GTX 1660", (7, 5)): _NO_CORES,
    ("NVIDIA GeForce GTX 1650 SUPER", (7, 5)): _NO_CORES,
    ("NVIDIA GeForce GTX 1630", (7, 5)): _NO_CORES,
    ("NVIDIA GeForce RTX 2080", (7, 5)): _FP16,
    ("Tesla T4", (7, 5)): _FP16,
    ("NVIDIA A100-SXM4-40GB", (8, 0)): _BF16,
    ("NVIDIA GeForce RTX 4090", (8, 9)): _BF16,
    ("NVIDIA H100", (9, 0)): _BF16,
    ("NVIDIA B200", (10, 0)): _BF16,
}


@check(calls([*_RECIPES]))
def check_recipe(answers):
    """A precision for thirteen GPUs, from what their Tensor Cores take."""
    pairs = zip(_RECIPES.items(), answers, strict=True)
    for ((name, capability), (want, why)), got in pairs:
        call = f'recipe("{name}", {capability})'
        precision, scaler = several(got, 2, call=call)
        precision = word(precision, ("bf16", "fp16", "fp32"), call=f"{call}[0]")
        recipe = precision, truth(scaler, call=f"{call}[1]")
        if recipe != want:
            why = _SCALERS[precision] if precision == want[0] else why
            raise Mistake(_OTHER_RECIPE, call=call, got=recipe, want=want, why=why)


check_recipe.slip(
    "capability-7-means-tensor-cores",
    "The RTX 2080 has the same capability and gets the same from you. What of the two names "
    "differs, and where in the name does it stand?",
    cut=' and "GTX 16" not in name',
)
check_recipe.slip(
    "computable-means-fast",
    "torch computes BF16 there through float32. What is left of the speed that you wanted?",
    swap=('return "fp16", True', 'return "bf16", False'),
)
check_recipe.slip(
    "bf16-needs-a-loss-scale",
    "What does a scale protect from, and does BF16 have that fault?",
    swap=('return "bf16", False', 'return "bf16", True'),
)
check_recipe.slip(
    "fp16-before-bf16",
    "Both are accelerated there at the same rate. Which of the two can do without a part that "
    "can go wrong?",
    swap=('return "bf16", False', 'return "fp16", True'),
)


# The peak

_PEAKS = {
    # units, fused multiply-adds of one unit per clock, clock in MHz; the dense TFLOP/s as the
    # vendor prints them, with all digits, or as they follow from the instruction
    "V100's Tensor Cores": ((640, 64, 1530), "125", "the vendor prints"),
    "A100's Tensor Cores": ((432, 256, 1410), "312", "the vendor prints"),
    "A100's FP32 cores": ((6912, 1, 1410), "19.5", "the vendor prints"),
    "H100's Tensor Cores": ((528, 512, 1830), "989.4", "the vendor prints"),
    "MI300X's Matrix Cores": ((1216, 256, 2100), "1307.4", "the vendor prints"),
    "one core with AMX at 2 GHz": ((1, 512, 2000), "2.048", "1024 operations a clock make"),
}


_CHIPS = [inputs for inputs, *_ in _PEAKS.values()]  # what goes beside the answer: no peaks


def _peak_inputs(seed):
    """Units, multiply-adds and clocks of the chips above, and of one that is drawn."""
    draw = random.Random(seed)
    drawn = draw.randrange(10, 1000), draw.choice((1, 64, 128, 256)), draw.randrange(1000, 2500)
    return [*_CHIPS, drawn]


def _peaks(seed):
    *_, drawn = _peak_inputs(seed)
    units, multiply_adds, clock = drawn
    operations = 2 * units * multiply_adds
    made = drawn, f"{operations * clock / 1e6:.6f}", f"{operations} operations a clock make"
    return _PEAKS | {"a chip of no vendor": made}


@check(calls(_peak_inputs))
def check_peak(answers, seed):
    """Dense peaks from units and clock, as the vendors print them."""
    for (name, (inputs, printed, source)), got in zip(_peaks(seed).items(), answers, strict=True):
        call = f"peak({', '.join(map(str, inputs))})"
        value = number(got, call=call)
        # A printed figure is rounded to its last digit: half a unit of it, and float32's roundings.
        half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
        if abs(value - float(printed)) <= half * (1 + 1e-6) + 2.0**-22 * float(printed):
            continue
        right = 2 * math.prod(inputs) / 1e6
        rounded = abs(value - right) < 1 and value == round(value, 2)
        raise Mistake(
            _OTHER_PEAK,
            name=name,
            call=call,
            got=value,
            source=source,
            printed=printed,
            why=_ROUNDED if rounded else fill(_TIMES, times=value / right),
        )


check_peak.slip("an-fma-is-one-flop", "How many operations are in a * b + c?", cut="2 * ")
check_peak.slip(
    "the-sparse-figure-is-the-peak",
    "The larger figure of a data sheet holds where two of every four weights are 0. Are yours?",
    swap=("2 * ", "4 * "),
)
check_peak.slip(
    "units-convert-themselves", "The clock comes in MHz. How many a second is 1 MHz?", cut=" * 1e6"
)
check_peak.slip(
    "a-chip-computes-one-per-clock",
    "A unit starts many multiply-adds at each clock. How many?",
    cut=" * fma_per_clock",
)


# The roofline

_PRODUCTS = [
    # m, n, k, bytes of a value, peak in FLOP/s, bandwidth in bytes/s
    (4096, 4096, 4096, 2, 989e12, 3.35e12),
    (1, 4096, 4096, 2, 312e12, 1.555e12),
    (512, 512, 512, 2, 989e12, 3.35e12),
    (8192, 64, 8192, 2, 312e12, 1.555e12),
    (4096, 4096, 4096, 4, 19.5e12, 1.555e12),
    (16, 4096, 16, 2, 65e12, 320e9),
    # bound by memory, with values of 4 bytes and of 1
    (1, 4096, 4096, 4, 19.5e12, 1.555e12),
    (16, 4096, 4096, 1, 1979e12, 3.35e12),
    # 85 FLOP a byte keep these units busy, 341 do not keep those
    (512, 512, 512, 4, 19.5e12, 1.555e12),
    (1024, 1024, 1024, 2, 756e12, 2e12),
]


def _products(seed):
    """The products above, and four that are drawn, on two devices."""
    draw = random.Random(seed)
    drawn = []
    for rate, bandwidth in [(989e12, 3.35e12), (19.5e12, 1.555e12)] * 2:
        shape = [2 ** draw.randrange(14) for _ in range(3)]
        drawn.append((*shape, draw.choice((1, 2, 4)), rate, bandwidth))
    return _PRODUCTS + drawn


@check(calls(_products))
def check_least_time(answers, seed):
    """The least time of a product, and what bounds it."""
    for inputs, got in zip(_products(seed), answers, strict=True):
        m, n, k, size, rate, bandwidth = inputs
        call = f"least_time({m}, {n}, {k}, {size}, {rate:.4g}, {bandwidth:.4g})"
        seconds, bound = several(got, 2, call=call)
        seconds = number(seconds, call=f"{call}[0]")
        bound = word(bound, ("compute", "memory"), call=f"{call}[1]")
        computing = 2 * m * n * k / rate
        moving = size * (m * k + k * n + m * n) / bandwidth
        said = {"call": call, "computing": 1e6 * computing, "moving": 1e6 * moving}
        longer = max(computing, moving)
        if not near(seconds, longer):
            kind = only_fit(seconds, {"computing": computing, "moving": moving})
            kind = kind or only_fit(seconds, _other_times(inputs, computing, moving))
            why = fill(_KINDS.get(kind, _TIMES_LONGER), times=seconds / longer, size=size)
            raise Mistake(_OTHER_TIME, got=1e6 * seconds, why=why, **said)
        want = "compute" if computing > moving else "memory"
        if bound != want:
            raise Mistake(_OTHER_BOUND, got=bound, want=want, **said)


def _other_times(inputs, computing, moving):
    """What people compute for the least time, wrongly."""
    m, n, k, size, rate, bandwidth = inputs
    return {
        "sum": computing + moving,
        "one less": max(m * n * (2 * k - 1) / rate, moving),
        "half": max(computing / 2, moving),
        "inputs": max(computing, size * (m * k + k * n) / bandwidth),
        "values": max(computing, moving / size),
        "bits": max(computing, 8 * moving),
    }


check_least_time.slip(
    "time-is-flop-over-peak",
    "The values must also come from memory. How long does that take?",
    swap=("max(computing, moving)", "computing"),
)
check_least_time.slip(
    "computing-and-moving-take-turns",
    "The device loads the next tile while it multiplies this one. What of two things at once is "
    "the time?",
    swap=("max(computing, moving)", "computing + moving"),
)
check_least_time.slip(
    "the-result-is-not-moved",
    "Two matrices are read. Where does the third one go?",
    cut=" + m * n",
)
check_least_time.slip("an-fma-is-one-flop", "How many operations are in a * b + c?", cut="2 * ")
