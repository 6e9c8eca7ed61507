"""The predictions of lab 05."""

from labkit.labs.automatic_mixed_precision.pull_request import HUNKS
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
        "`y.relu()`": "`relu` is on no list, so it keeps the dtype of its input, 16 bits.",
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
            "A function on no list is not cast to FP32: it runs in the dtype of its inputs.",
            "unlisted-ops-run-in-fp32",
        ),
    },
)
used_nine_times = NumberGuess(
    id="used-nine-times",
    lab=LAB,
    question="A weight's nine uses give the gradients 2048 and eight times 1. What is `w.grad`?",
    by_number={
        2056: (
            "That is the sum in FP32. The nine uses share one FP16 copy, so autograd adds their "
            "gradients in FP16.",
            "gradients-are-summed-in-fp32",
        ),
        2057: "Eight ones and 2048 are 2056, and the sum is rounded to FP16 after each addition.",
        (1, 9): "Every use adds its gradient, and 2048 is one of them.",
    },
    otherwise=(
        "The nine uses share one FP16 copy, so autograd adds their gradients in FP16. At 2048 the "
        "gap is 2."
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
    question="The gradients of D overflow, those of G do not. Which optimizer makes its step?",
    by_choice={
        "neither": (
            "The scaler notes for each optimizer whether it found an inf.",
            "one-inf-stops-both",
        ),
        "D": "D has the inf, so its step is skipped.",
        "G": "",
        "both": "The step of an optimizer whose gradients hold an inf is skipped.",
    },
)
six_hunks = TickGuess(
    id="six-hunks",
    lab=LAB,
    question="Which of the six hunks need a change before they are merged?",
    by_item={
        f"hunk {number}: {hunk.about.split(':')[0]}": hunk.why
        for number, hunk in enumerate(HUNKS, start=1)
    },
    by_pattern={
        (False,) * 6: (
            "Some of the six run without an error but train wrongly.",
            "what-runs-is-right",
        )
    },
)
