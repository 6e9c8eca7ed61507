"""The predictions of lab 12."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "12_choosing_precision"

kl_of_eight = NumberGuess(
    id="kl-of-eight",
    lab=LAB,
    question=(
        "BF16's rounding errors are 8 times FP16's. By which factor is its KL larger, "
        "as a power of two?"
    ),
    by_number={
        8: (
            "That would hold if KL grew in proportion to the error. Near 0 KL has its minimum, "
            "and there it grows with the square of the error.",
            "kl-is-linear",
        ),
        1: "Both formats keep the answers nearly the same, but KL still tells them apart.",
        16: "KL grows with the square of the error, and 8 squared is 64.",
        3: "Three is the number of bits. Each bit doubles the error.",
        256: "That would be an error 16 times as large, as from BF16 to E4M3.",
        512: "That is the cube of 8. KL grows with the square of the error.",
    },
    otherwise="KL grows with the square of the error, and 8 squared is 64.",
)
same_weight_error = ChoiceGuess(
    id="same-weight-error",
    lab=LAB,
    question=(
        "At 4 bits all matrices lose about the same share of their norm. The largest KL of a "
        "matrix, divided by the smallest, is"
    ),
    by_choice={
        "about 1": (
            "Equal errors of the weights reach the output by different paths: some are multiplied "
            "by large inputs, others are averaged away.",
            "weight-error-is-sensitivity",
        ),
        "about 3": "The spread is larger: KL also squares what the error of the output is.",
        "more than 10": "",
    },
)
fp8_tokens = ChoiceGuess(
    id="fp8-tokens",
    lab=LAB,
    question=(
        "An engine in E4M3 writes the tokens, a trainer in BF16 scores them. For which share of "
        "the tokens do the two probabilities differ by more than 10 %?"
    ),
    by_choice={
        "less than 2 %": "Rounding errors of E4M3 are up to 6 %, and many of them add up.",
        "10 to 50 %": "",
        "more than 90 %": (
            "The errors have both signs and largely cancel, and a token that is nearly certain "
            "hardly changes its probability."
        ),
    },
)
