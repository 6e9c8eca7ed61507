"""Checks of lab 06, sitting A: three facts, the recipe, the peak, the roofline."""

from labkit.labs.engine import Mistake, attempt, calls, check, number
from labkit.labs.engine.codec import Raised

LAB = "06_hardware_and_benchmarks"


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
    ("GTX 1660", (7, 5)): "sca sc - s",
    ("RTX 2080", (7, 5)): "sca sc - s",
    ("A100", (8, 0)): "sca sca ca s",
    ("RTX 3090", (8, 6)): "sca sca ca s",
    ("L4", (8, 9)): "sca sca ca sca",
    ("H100", (9, 0)): "sca sca ca sca",
    ("B200", (10, 0)): "sca sca ca sca",
    ("RTX 5090", (12, 0)): "sca sca ca sca",
}
_DEVICES = tuple(_DOCUMENTED)  # what goes beside the answer: no facts


def _documented(name, capability, dtype):
    said = _DOCUMENTED[name, capability].split()[_DTYPES.index(dtype)]
    return tuple(letter in said for letter in "sca")


def run_three_facts(three_facts):
    """`three_facts` for each dtype on thirteen GPUs."""
    return {
        (name, capability, dtype): attempt(three_facts, dtype, capability)
        for name, capability in _DEVICES
        for dtype in _DTYPES
    }


@check(run_three_facts)
def check_three_facts(answers):
    """Storable, computable and accelerated, told apart on thirteen GPUs."""
    for name, capability, dtype in [(*device, dtype) for device in _DEVICES for dtype in _DTYPES]:
        call = f'three_facts("{dtype}", {capability})'
        facts = _three(answers[name, capability, dtype], call)
        want = _documented(name, capability, dtype)
        for fact, at in _REPORTED.items():
            if facts[at] != want[at]:
                raise Mistake(
                    f"{name}: `{call}` says {fact} is {facts[at]}; {_SOURCES[fact]} {want[at]}.",
                    misconception=_fact_idea(answers),
                )


# Where "computable" is built on "accelerated", a wrong one makes the other wrong: the cause first.
_REPORTED = {"accelerated": 2, "storable": 0, "computable": 1}
_SOURCES = {
    "accelerated": "NVIDIA's documents give",
    "storable": "that a tensor keeps its values in this dtype is",
    "computable": "that torch has some kernel for it there is",
}


def _three(got, call):
    if type(got) is Raised:
        number(got, call=call)
    if type(got) not in (tuple, list) or len(got) != 3 or any(type(x) is not bool for x in got):
        raise Mistake(f"`{call}` is {got!r}; three of True and False are wanted.")
    return tuple(got)


def _fact_idea(answers):
    """The one idea that all wrong facts have in common; None where they have several."""
    wrong = {
        (dtype, fact, mine)
        for (name, capability, dtype), got in answers.items()
        for fact, mine, want in zip(
            "sca", _three(got, ""), _documented(name, capability, dtype), strict=True
        )
        if mine != want
    }
    ideas = {
        "no-units-means-not-computable": {("bf16", "c", False), ("fp16", "c", False)},
        "tf32-is-a-dtype-in-memory": {("tf32", "s", True)},
        "storable-means-computable": {("fp8", "c", True), ("tf32", "c", True)},
        "fp16-is-fast-since-it-exists": {("fp16", "a", True)},
        "tensor-cores-take-every-16-bit-dtype": {("bf16", "a", True)},
    }
    fitting = [idea for idea, these in ideas.items() if wrong <= these]
    return fitting[0] if len(fitting) == 1 else None


check_three_facts.slip(
    "no-units-means-not-computable",
    "The card has no units for it. What does torch do with an addition that no unit takes?",
    cut=' or dtype in ("fp16", "bf16")',
)
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
    "Look at the row of 6.1 once more: 2 results per clock against 128. Which chips does your "
    "comparison let in?",
    swap=("in ((5, 3), (6, 0), (6, 2)) or capability >= (7, 0)", ">= (5, 3)"),
)
check_three_facts.slip(
    "tensor-cores-take-every-16-bit-dtype",
    "Tensor Cores came with 7.0 and took one 16-bit dtype. From which capability on the other?",
    swap=('"bf16": (8, 0)', '"bf16": (7, 0)'),
)


# The recipe

_RECIPES = {
    ("Tesla P100-SXM2-16GB", (6, 0)): ("fp32", False),
    ("NVIDIA GeForce GTX 1080", (6, 1)): ("fp32", False),
    ("Tesla V100-SXM2-16GB", (7, 0)): ("fp16", True),
    ("NVIDIA TITAN V", (7, 0)): ("fp16", True),
    ("NVIDIA GeForce GTX 1660", (7, 5)): ("fp32", False),
    ("NVIDIA GeForce GTX 1650 SUPER", (7, 5)): ("fp32", False),
    ("NVIDIA GeForce RTX 2080", (7, 5)): ("fp16", True),
    ("Tesla T4", (7, 5)): ("fp16", True),
    ("NVIDIA A100-SXM4-40GB", (8, 0)): ("bf16", False),
    ("NVIDIA GeForce RTX 4090", (8, 9)): ("bf16", False),
    ("NVIDIA H100", (9, 0)): ("bf16", False),
    ("NVIDIA B200", (10, 0)): ("bf16", False),
}


@check(calls([*_RECIPES]))
def check_recipe(answers):
    """A precision for twelve GPUs, from what their Tensor Cores take."""
    pairs = zip(_RECIPES.items(), answers, strict=True)
    for ((name, capability), want), got in pairs:
        call = f'recipe("{name}", {capability})'
        if type(got) is Raised:
            number(got, call=call)
        if type(got) not in (tuple, list) or len(got) != 2:
            raise Mistake(f"`{call}` is {got!r}; a pair such as ('bf16', False) is wanted.")
        if tuple(got) != want:
            raise Mistake(f"`{call}` is {tuple(got)!r}; {want!r} is wanted.")


check_recipe.slip(
    "capability-7-means-tensor-cores",
    "7.5 is the RTX 2080 and the GTX 1660. Which of the two has what your rule takes for granted?",
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
    "one core with AMX at 2 GHz": ((1, 512, 2000), "2.048", "2048 operations a clock make"),
}


@check(calls([inputs for inputs, *_ in _PEAKS.values()]))
def check_peak(answers):
    """Dense peaks from units and clock, as the vendors print them."""
    for (name, (inputs, printed, source)), got in zip(_PEAKS.items(), answers, strict=True):
        call = f"peak({', '.join(map(str, inputs))})"
        value = number(got, call=call)
        # A printed figure is rounded to its last digit: half a unit of it, and float64's roundings.
        half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
        if not abs(value - float(printed)) <= half * (1 + 1e-9):
            raise Mistake(f"{name}: `{call}` is {value:.6g}; {source} {printed} TFLOP/s.")


check_peak.slip("an-fma-is-one-flop", "How many operations are in a * b + c?", cut="2 * ")
check_peak.slip(
    "the-sparse-figure-is-the-peak",
    "The larger figure of a data sheet holds where half of the weights are zeros in a fixed "
    "pattern. Are yours?",
    swap=("2 * ", "4 * "),
)
check_peak.slip("mega-is-a-billion", "How many clocks a second are 1 MHz?", swap=("1e6", "1e9"))
check_peak.slip(
    "a-chip-computes-one-per-clock",
    "A unit starts many multiply-adds at each clock. How many?",
    cut=" * fma_per_clock",
)


# The roofline

_PRODUCTS = [
    # m, n, k, bytes of a value, peak in FLOP/s, bandwidth in bytes/s
    (4096, 4096, 4096, 2, 989e12, 3.35e12),
    (512, 512, 512, 2, 989e12, 3.35e12),
    (1, 4096, 4096, 2, 312e12, 1.555e12),
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


@check(calls(_PRODUCTS))
def check_least_time(answers):
    """The least time of a product, and what bounds it."""
    for inputs, got in zip(_PRODUCTS, answers, strict=True):
        m, n, k, size, rate, bandwidth = inputs
        call = f"least_time({m}, {n}, {k}, {size}, {rate:.4g}, {bandwidth:.4g})"
        if type(got) is Raised:
            number(got, call=call)
        if type(got) not in (tuple, list) or len(got) != 2:
            raise Mistake(f"`{call}` is {got!r}; a pair (seconds, bound) is wanted.")
        seconds, bound = number(got[0], call=call), got[1]
        computing = 2 * m * n * k / rate
        moving = size * (m * k + k * n + m * n) / bandwidth
        # Float64 arithmetic in any order errs by less than 10 roundings of 2**-53.
        exact = m * n * (2 * k - 1) / rate
        if computing > moving and abs(seconds / exact - 1) <= 1e-14:
            raise Mistake(
                f"`{call}` counts 2 k - 1 operations for each of the m * n results. A unit adds "
                "the first product too, to 0: count 2 k, as the peak does."
            )
        if not abs(seconds / max(computing, moving) - 1) <= 1e-14:
            raise Mistake(
                f"`{call}` takes {1e6 * seconds:.4g} us; computing alone takes "
                f"{1e6 * computing:.4g} us, moving {1e6 * moving:.4g} us."
            )
        want = "compute" if computing > moving else "memory"
        if bound != want:
            raise Mistake(f"`{call}` is bound by {bound!r}; the longer of the two is {want!r}.")


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
