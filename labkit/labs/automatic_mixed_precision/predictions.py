"""The predictions of lab 05."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "05_automatic_mixed_precision"

six_ops = TickGuess(
    id="six-ops",
    lab=LAB,
    question=(
        "In an FP16 autocast block, `x` is float32 and `y = x @ x`. Which of these have 16 bits?"
    ),
    by_item={
        "`y`": "`@` is on the 16-bit list.",
        "`y.relu()`": "`relu` is on no list, so it takes what comes: 16 bits.",
        "`y.exp()`": "`exp` is on the FP32 list.",
        "`x + x`": "`+` is on no list: float32 in, float32 out.",
        "`y + y`": "`+` is on no list: 16 bits in, 16 bits out.",
        "`y.sum()`": "`sum` is on the FP32 list.",
    },
    by_pattern={
        (True,) * 6: (
            "Autocast does not cast every operation: only some are on its 16-bit list.",
            "autocast-casts-every-op",
        ),
        (True, False, False, False, False, False): (
            "What is on no list does not go to FP32: it takes what comes.",
            "unlisted-ops-run-in-fp32",
        ),
    },
)
used_nine_times = NumberGuess(
    id="used-nine-times",
    lab=LAB,
    question="A weight's nine gradients are 1, eight times, and 2048. What is `w.grad`?",
    by_number={
        2056: (
            "So says float32. The cache made one 16-bit copy, and its gradient is summed in FP16.",
            "gradients-are-summed-in-fp32",
        ),
        2057: "Eight ones and 2048 are 2056 in exact arithmetic, and here they are rounded.",
        (1, 9): "Every use adds its gradient; 2048 is one of them.",
    },
    otherwise=(
        "One 16-bit copy serves all uses, so its gradient is summed in FP16. At 2048 the gap is 2."
    ),
)
clipped_inf = NumberGuess(
    id="clipped-inf",
    lab=LAB,
    question="A gradient is [inf, 1], and you clip it to norm 1. What becomes of the inf?",
    by_number={
        1: ("The factor is 1 / inf = 0, and inf times 0 is NaN.", "clipping-repairs-inf"),
        0: (
            "The factor is 1 / inf = 0. The 1 beside it becomes 0; inf times 0 is NaN.",
            "clipping-repairs-inf",
        ),
        "inf": "The norm is inf, so the factor is 1 / inf = 0, and inf times 0 is not inf.",
    },
    otherwise="The norm is inf, so the factor is 1 / inf = 0. What is inf times 0?",
)
only_d = ChoiceGuess(
    id="only-d",
    lab=LAB,
    question="The gradients of D overflow, those of G do not. Which of the two steps?",
    by_choice={
        "neither": (
            "The scaler keeps what it found for each optimizer apart.",
            "one-inf-stops-both",
        ),
        "D": "D has the inf, so its step is skipped.",
        "G": "",
        "both": "The step of an optimizer whose gradients hold an inf is skipped.",
    },
)
