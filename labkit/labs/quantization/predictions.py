"""The predictions of lab 09."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "09_quantization"

int8_product = NumberGuess(
    id="int8-product",
    lab=LAB,
    question="What does `a @ b` print, for two int8 vectors of sixteen times 100?",
    by_number={
        160_000: (
            "That is the exact sum. It needs more than 8 bits, and torch's `@` returns the dtype "
            "of its operands, int8.",
            "int8-products-widen",
        ),
        127: (
            "That would be saturation. An int8 addition in torch wraps around: only the lowest "
            "8 bits remain.",
            "codes-clamp-themselves",
        ),
        10_000: "That is one of the sixteen products, and it does not fit in int8 either.",
        16: "10000 modulo 256 is 16, and the sum of sixteen such products wraps once more.",
    },
    otherwise="The result is the exact sum, 160,000, modulo 256, as a number from -128 to 127.",
)
without_ste = ChoiceGuess(
    id="without-ste",
    lab=LAB,
    question=(
        "The weights are rounded to 2 bits with plain `round`, whose gradient is 0. After 5 epochs "
        "the test accuracy is"
    ),
    by_choice={
        "unchanged": (
            "You are right about the weights: not one bit of them changed. The biases are not "
            "rounded, so they have gradients and they learn.",
            "no-ste-no-learning",
        ),
        "higher": "",
        "lower": "Nothing pushes it down: the biases receive correct gradients and are trained.",
    },
)
gptq_weight_error = ChoiceGuess(
    id="gptq-weight-error",
    lab=LAB,
    question=(
        "With GPTQ instead of nearest, do the errors of the weights and of the outputs become "
        "larger or smaller?"
    ),
    by_choice={
        "weights' smaller, outputs' smaller": (
            "Rounding to nearest has the smallest possible error in each weight, so no other "
            "choice of codes on the same grid can be closer.",
            "nearest-weights-best-output",
        ),
        "weights' larger, outputs' smaller": "",
        "weights' smaller, outputs' larger": (
            "The other way round: GPTQ gives up some accuracy of the weights for the outputs."
        ),
    },
)
