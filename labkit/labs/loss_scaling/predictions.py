"""The predictions of lab 04."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "04_loss_scaling"

zero_gradients = NumberGuess(
    id="zero-gradients",
    lab=LAB,
    question="How many percent of the gradients of this step are exactly 0?",
    unit="%",
    slack=0.5,  # whole percent are asked for
    by_number={
        (0, 2): "A gradient below 2**-25 becomes 0 in FP16, and each of these is below it.",
        (2, 98): (
            "A part would be lost if the gradients reached across 2**-25. All of them lie below it."
        ),
        (98, 100): "Nearly. Not one is left.",
    },
    otherwise="A share lies between 0 and 100 %.",
)
lost_updates = ChoiceGuess(
    id="lost-updates",
    lab=LAB,
    question="Of 100 updates in the first step, how many change no weight?",
    by_choice={
        "under 10": (
            "Half a gap of BF16 is about 1/512 of a weight, and most updates are smaller.",
            "bf16-needs-no-masters",
        ),
        "about half": "More. A typical update here is some thousandth of its weight.",
        "over 80": "",
    },
)
scaled_error = ChoiceGuess(
    id="scaled-error",
    lab=LAB,
    question="How does the relative rounding error of 0.01 change?",
    by_choice={
        "smaller": (
            "A power of two moves the exponent only. The mantissa bits, and their error, stay.",
            "scaling-rounds-better",
        ),
        "the same": "",
        "larger": "Nothing overflows at 41, and a power of two changes no mantissa.",
    },
)
doubling = NumberGuess(
    id="doubling",
    lab=LAB,
    question="At its ceiling, how many percent of the steps does this scaler skip?",
    unit="%",
    slack=0.5,  # whole percent are asked for
    by_number={
        (0, 0.5): (
            "The scale grows after each good step, so it overflows again and again.",
            "growth-at-each-step",
        ),
        (0.5, 2): "So it would be if the scale grew after 100 good steps. It grows after each one.",
        (32, 34): (
            "One good step doubles the scale, and one overflow halves it. The step after that is "
            "good again: a cycle of two steps."
        ),
        (66, 67): "After one overflow the scale fits again: a cycle of two steps, not three.",
        100: "After an overflow the scale is halved and fits, so the next step is good.",
    },
    otherwise="A good step doubles the scale, the overflow after it halves it, and so on.",
)
zeroed_step = ChoiceGuess(
    id="zeroed-step",
    lab=LAB,
    question="All gradients are set to 0, then `adam.step()` is called. What do the weights do?",
    by_choice={
        "stand still": (
            "SGD's would. Adam steps by its moments, which a gradient of 0 leaves alive.",
            "zeroed-step-is-a-skip",
        ),
        "move": "",
    },
)
