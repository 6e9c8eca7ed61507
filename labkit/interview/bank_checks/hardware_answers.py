"""Checks of the code questions about hardware and evaluation that no lab asks."""

import math
import random
from statistics import fmean, stdev

from labkit.labs.engine import Mistake, attempt, calls, check, several, truth, word
from labkit.labs.engine.messages import fill

LAB = "interview"

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

_OTHER_WORD = (
    "{name}: `{call}` is {got}. The interval goes from {low} to {high} and the margin is {margin}. "
    "{why}"
)
_WORDS = {
    "equivalent": "All of it lies inside ±{margin}: equivalent.",
    "worse": "All of it lies below -{margin}: worse.",
    "better": "All of it lies above {margin}: better.",
    "inconclusive": "Part of it lies inside ±{margin} and part outside: inconclusive.",
}


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


# The verdict on paired differences

_PAIRS = {
    # differences in points of accuracy, margin
    "A/A": ([0.0, 0.0, 0.0, 0.0, 0.0], 0.5),
    "close": ([0.1, -0.1, 0.0, 0.1, -0.1], 0.5),
    "scattered": ([-0.3, 0.2, 0.1, -0.2, 0.1], 0.5),
    "wide": ([-1.5, 0.9, -0.4, 1.1, -0.6], 0.5),
    "small but certain": ([-0.2, -0.21, -0.19, -0.2, -0.2], 0.5),
    "broken": ([-3.1, -2.7, -3.3, -2.9, -3.0], 0.5),
    "worse, and perhaps by less than the margin": ([-0.7, -0.3, -0.5, -0.6, -0.35], 0.5),
    "three pairs": ([-0.30, 0.15, 0.0], 0.5),
    "a mean outside": ([-1.6, 0.1, -0.9, -0.2, -0.4], 0.5),
    "better": ([1.1, 0.9, 1.2, 1.0, 0.8], 0.5),
    # Dividing by n in the deviation would make it equivalent,
    "a little too wide": ([0.41, -0.38, 0.42, -0.4, 0.05], 0.5),
    # by the root of n - 1 in the error of the mean would not.
    "just within": ([-0.38, 0.36, -0.33, 0.36, -0.01], 0.46),
    "one seed far out": ([-0.55, -0.58, -0.53, -0.56, -1.4], 0.1),
    # An interval twice as wide would fit, one without the root of n would not.
    "a narrow margin": ([0.1, -0.1, 0.0, 0.1, -0.1], 0.26),
    "a wide margin": ([-1.5, 0.9, -0.4, 1.1, -0.6], 2.0),
}
# Student's t, 97.5 %: for 2 and 4 degrees of freedom, four digits (any table of the distribution).
_T = {3: 4.303, 5: 2.776}


def _pairs(seed):
    """The differences above, and four rows that are drawn."""
    draw, drawn = random.Random(seed), {}
    for place in range(1, 5):
        centre, spread = draw.uniform(-1, 1), draw.uniform(0.05, 0.5)
        drawn[f"row {place}"] = ([round(draw.gauss(centre, spread), 2) for _ in range(5)], 0.5)
    return _PAIRS | drawn


@check(calls(lambda seed: [(list(p), margin, _T[len(p)]) for p, margin in _pairs(seed).values()]))
def check_paired_verdict(answers, seed):
    """Equivalent, worse, better or inconclusive, against a margin."""
    for (name, (pairs, margin)), got in zip(_pairs(seed).items(), answers, strict=True):
        call = f"verdict({pairs}, {margin}, {_T[len(pairs)]})"
        got = word(got, _WORDS, call=call)
        half = _T[len(pairs)] * stdev(pairs) / math.sqrt(len(pairs))
        low, high = fmean(pairs) - half, fmean(pairs) + half
        want = _word(low, high, margin)
        if got != want:
            raise Mistake(
                _OTHER_WORD,
                name=name,
                call=call,
                got=got,
                low=low,
                high=high,
                margin=margin,
                why=fill(_WORDS[want], margin=margin),
            )


def _word(low, high, margin):
    if high < -margin:
        return "worse"
    if low > margin:
        return "better"
    return "equivalent" if -margin < low and high < margin else "inconclusive"
