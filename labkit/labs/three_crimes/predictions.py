"""The predictions of lab 01."""

from labkit.labs.engine import ChoiceGuess, TickGuess

LAB = "01_three_crimes"

# No reason names a cause: finding those is the lab's work.
bet = TickGuess(
    id="bet",
    lab=LAB,
    question="Three of the five runs fall behind their FP32 twins. Which?",
    by_item={
        "A": "A has no loss scale, and ends where its twin ends.",
        "B": "B computes and stores everything in FP16, and ends where its twin ends.",
        "C": "C falls behind. It is B with another optimizer.",
        "D": "D falls behind, although BF16 has the range of FP32.",
        "E": "E falls behind. It is A with another task, and with a weight on its loss.",
    },
    by_pattern={
        (True, True, True, False, True): (
            "Your four are all that use FP16. Two of them train well, and BF16's D does not.",
            "fp16-is-the-risky-one",
        ),
        (False, True, True, True, False): (
            "Your three hold everything in 16 bits. One of them trains well, and of the two under "
            "autocast one does not.",
            "half-is-always-fatal",
        ),
        (True, False, False, False, True): (
            "Your two have no loss scale. It is missing in both, and harms one.",
            "no-scaler-no-training",
        ),
    },
)
lower_rate = ChoiceGuess(
    id="lower-rate",
    lab=LAB,
    question=(
        "Run D with a fifth of its learning rate: does a usual step then move more weights, as "
        "many, or fewer?"
    ),
    by_choice={
        "more": (
            "Smaller updates are more often below half a gap, where rounding undoes them.",
            "smaller-steps-are-safer",
        ),
        "as many": "The gaps of BF16 stay as they are, and the updates become smaller.",
        "fewer": "",
    },
)
myths = TickGuess(
    id="myths",
    lab=LAB,
    question="Tick the claims that are true.",
    by_item={
        "FP16 needs fewer floating-point operations than FP32.": (
            "A product of the same matrices is the same number of operations in any format. A "
            "Tensor Core does more of them in a second.",
            "fewer-bits-fewer-flops",
        ),
        (
            "Under FP16 autocast a parameter costs fewer bytes of weights, copies, gradients and "
            "Adam's state than in FP32."
        ): (
            "Weights, gradients and Adam's two means stay in FP32, 16 bytes as before, and the "
            "16-bit copy comes on top.",
            "amp-halves-everything",
        ),
        "Autocast looks at the values, or at how busy the GPU is, and chooses dtypes.": (
            "Autocast looks up the name of each function in a fixed list. Only the loss scale "
            "follows the values."
        ),
        "Casting FP16 weights to FP32 at the end restores their precision.": (
            "The cast to FP32 adds zeros. The bits that the cast to FP16 dropped are gone.",
            "casting-back-restores",
        ),
    },
)
