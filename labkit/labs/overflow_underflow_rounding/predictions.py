"""The predictions of lab 03."""

from labkit.labs.engine import NumberGuess, TickGuess

LAB = "03_overflow_underflow_rounding"

triage = TickGuess(
    id="triage",
    lab=LAB,
    question="Six patients, all in FP16. Tick those with a range fault.",
    by_item={
        "`exp(12)` is inf, and the softmax around it NaN.": (
            "It is a range fault: exp(12) = 162,755 is beyond 65504."
        ),
        "A counter stays at 2048.": (
            "It is a rounding fault: 2049 is far from 65504, but at 2048 the gap is 2, and 2049 is "
            "no FP16 value."
        ),
        "A loss of 3 should fall by 0.0005 a step. It stands still.": (
            "It is a rounding fault: at 3 the gap is 2**-9 = 0.00195, and 0.0005 is less than half "
            "of it."
        ),
        "A gradient of 1e-8 is 0.": (
            "It is a range fault: 1e-8 is less than half the smallest FP16 value, 2**-24 = 6e-8."
        ),
        "201² - 200 × 202 comes out as 32.": (
            "It is a rounding fault: 40,401 and 40,400 are in range, but there the gap is 32, so "
            "both are rounded before they are subtracted."
        ),
        "The square of an activation of 300 is inf.": (
            "It is a range fault: 300² = 90,000 is beyond 65504."
        ),
    },
    by_pattern={
        (True,) * 6: (
            "More exponent bits would cure three of them and leave three as they are.",
            "nan-and-stall-are-one-illness",
        ),
        (False,) * 6: (
            "More exponent bits alone cure three of them.",
            "nan-and-stall-are-one-illness",
        ),
    },
)
masked_row = NumberGuess(
    id="masked-row",
    lab=LAB,
    question="Three scores, all hidden by -1e9, in FP16: what does the softmax give for each?",
    by_number={
        0: ("-1e9 is -inf in FP16, and -inf - (-inf) is NaN.", "mask-constant-overflows"),
        (0.3, 0.34): (
            "So it is in float32. In FP16 the constant -1e9 is -inf.",
            "mask-constant-overflows",
        ),
        "inf": "A weight is a quotient of two exponentials; here both are NaN.",
    },
    otherwise=(
        "-1e9 is -inf in FP16. Softmax subtracts the row's maximum first, and -inf - (-inf) is NaN."
    ),
)
late_upcast = NumberGuess(
    id="late-upcast",
    lab=LAB,
    question="What does `(a.half() @ a.half().T).float()` give?",
    by_number={
        131072: (
            "That is the exact sum. The product has the dtype FP16 before the cast.",
            "upcast-too-late",
        ),
        65504: (
            "FP16 rounds to inf from 65520 on; it does not stop at its largest value.",
            "overflow-saturates",
        ),
        "nan": "All products are positive, so nothing is subtracted from inf.",
    },
    otherwise="The exact sum is 131072. It becomes an FP16 value before it becomes a float32 one.",
)
torch_sum = NumberGuess(
    id="torch-sum",
    lab=LAB,
    question="What does `torch.ones(10_000, dtype=torch.bfloat16).sum()` give?",
    by_number={
        256: (
            "A loop of adds stops there. `sum` keeps its running sum in float32.",
            "sum-adds-in-its-dtype",
        ),
        10000: (
            "The float32 sum is 10000, and then it becomes a BF16 value. Those are 64 apart here."
        ),
        10048: "The float32 sum, 10000, is 16 above one BF16 value and 48 below this one.",
        "inf": "BF16 reaches 3.4e38.",
    },
    otherwise=(
        "`sum` adds in float32, so without loss, and rounds once at the end, to the nearest BF16 "
        "value. Near 10,000 these are 64 apart."
    ),
)
remedies = TickGuess(
    id="remedies",
    lab=LAB,
    question="Articles prescribe these remedies. Tick those that work.",
    by_item={
        "Against stalled FP16 weights of 1: add random noise of 1e-4 to them.": (
            "Noise of 1e-4 is less than half the gap around 1, so the cast removes most of it.",
            "noise-cures-rounding",
        ),
        "Against overflowing features of 1e5: resample the rare class.": (
            "Resampling changes how often a row comes. The values in it stay too large."
        ),
        "Against overflowing features of 1e5: divide them by their standard deviation, in FP32.": (
            "It works: after the division the features are near 1, far from either end of FP16."
        ),
        "Against a gradient of 1e-8 that becomes 0: clip the gradients.": (
            "Clipping shortens what is too long. This gradient is too short."
        ),
        "Against a stalled BF16 sum: round stochastically.": (
            "It works: each add goes up as often as makes the mean right."
        ),
    },
)
