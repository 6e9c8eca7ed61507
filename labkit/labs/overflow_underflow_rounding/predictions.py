"""The predictions of lab 03."""

from labkit.labs.engine import NumberGuess, TickGuess

LAB = "03_overflow_underflow_rounding"

triage = TickGuess(
    id="triage",
    lab=LAB,
    question="Six failures in FP16. Tick the range faults.",
    by_item={
        "`exp(12)` is inf, and the softmax around it NaN.": (
            "It is a range fault: exp(12) = 162,755 is above 65504."
        ),
        "A counter stays at 2048.": (
            "It is a rounding fault: 2049 is far below 65504, but the gap above 2048 is 2, so FP16 "
            "has no 2049."
        ),
        "A weight of 3 should fall by 0.0005 a step. It stands still.": (
            "It is a rounding fault: the gap at 3 is 2**-9 = 0.00195, and 0.0005 is less than half "
            "of it."
        ),
        "A gradient of 1e-8 is 0.": (
            "It is a range fault: 1e-8 is less than half the smallest FP16 value, 2**-24 = 6e-8."
        ),
        "201² - 200 × 202 comes out as 32.": (
            "It is a rounding fault: 40,401 and 40,400 are in range, but the gap there is 32, so "
            "both are rounded before the subtraction."
        ),
        "The square of an activation of 300 is inf.": (
            "It is a range fault: 300² = 90,000 is above 65504."
        ),
    },
    by_pattern={
        (True,) * 6: (
            "More exponent bits repair three of them and leave the other three as they are.",
            "nan-and-stall-are-one-illness",
        ),
        (False,) * 6: (
            "More exponent bits alone repair three of them.",
            "nan-and-stall-are-one-illness",
        ),
    },
)
masked_row = NumberGuess(
    id="masked-row",
    lab=LAB,
    question="Three scores, all set to -1e9, in FP16: which weight does the softmax give to each?",
    by_number={
        0: (
            "FP16 turns -1e9 into -inf. Softmax subtracts the maximum first, and -inf - (-inf) is "
            "NaN.",
            "mask-constant-overflows",
        ),
        (0.3, 0.34): (
            "Float32 gives one third. FP16 turns the constant -1e9 into -inf.",
            "mask-constant-overflows",
        ),
        "inf": "A weight is one exponential divided by the sum of all, and here both are NaN.",
    },
    otherwise=(
        "FP16 turns -1e9 into -inf. Softmax subtracts the row's maximum first, and -inf - (-inf) "
        "is NaN."
    ),
)
late_upcast = NumberGuess(
    id="late-upcast",
    lab=LAB,
    question="What does `(a.half() @ a.half().T).float()` give?",
    by_number={
        131072: (
            "The exact sum is 131072, but the result of the matmul is an FP16 tensor before the "
            "cast to float32.",
            "upcast-too-late",
        ),
        65504: (
            "FP16 rounds everything from 65520 on to inf; it does not stop at its largest value.",
            "overflow-saturates",
        ),
        "nan": "All products are positive, so no inf is subtracted from another one.",
    },
    otherwise=(
        "The exact sum is 131072. The matmul returns it in FP16, and only then is it cast to "
        "float32."
    ),
)
torch_sum = NumberGuess(
    id="torch-sum",
    lab=LAB,
    question="What does `torch.ones(10_000, dtype=torch.bfloat16).sum()` give?",
    by_number={
        256: (
            "A loop of BF16 adds stops at 256. `sum` keeps its running sum in float32.",
            "sum-adds-in-its-dtype",
        ),
        10000: (
            "The float32 sum is 10000. The result is a BF16 value, and near 10,000 these are 64 "
            "apart."
        ),
        10048: "The float32 sum, 10000, is 16 above one BF16 value and 48 below 10048.",
        "inf": "BF16 reaches 3.4e38, so a sum near 10,000 does not overflow.",
    },
    otherwise=(
        "`sum` adds in float32, without any loss here, and rounds once at the end to the nearest "
        "BF16 value. Near 10,000 these are 64 apart."
    ),
)
remedies = TickGuess(
    id="remedies",
    lab=LAB,
    question="Articles recommend these remedies. Tick those that work.",
    by_item={
        "Against stalled FP16 weights of 1: add random noise of 1e-4 to them.": (
            "Noise of 1e-4 is less than half the gap around 1, so the cast removes most of it.",
            "noise-cures-rounding",
        ),
        "Against overflowing features of 1e5: resample the rare class.": (
            "Resampling changes how often a row is seen. The values in the row stay too large."
        ),
        "Against overflowing features of 1e5: divide them by their standard deviation, in FP32.": (
            "It works: after the division the features are near 1, far from both ends of FP16."
        ),
        "Against a gradient of 1e-8 that becomes 0: clip the gradients.": (
            "Clipping shrinks gradients that are too large. This gradient is too small."
        ),
        "Against a stalled BF16 sum: round stochastically.": (
            "It works: each sum is rounded up with the probability that makes the mean right."
        ),
    },
)
