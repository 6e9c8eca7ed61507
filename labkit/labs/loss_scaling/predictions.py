"""The predictions of lab 04."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "04_loss_scaling"

zero_gradients = NumberGuess(
    id="zero-gradients",
    lab=LAB,
    question="What percentage of the 20,816 gradients is exactly 0 in the FP16 run?",
    unit="%",
    slack=0.5,  # whole percent are asked for
    by_number={
        (0, 25): (
            "Some gradients are 0 in FP32 already. FP16 has a smaller range, so it adds more zeros."
        ),
        (25, 60): (
            "That is about what a cast of the finished FP32 gradients gives. But in the FP16 run "
            "each gradient is computed from the FP16 gradient of the layer behind it."
        ),
        (60, 98): (
            "Even the largest gradients are 0. They are not too small themselves: each is computed "
            "from the gradient at the network's output, which is too small."
        ),
        (98, 100): "Nearly: the largest gradients are 0 too.",
    },
    otherwise="A share lies between 0 and 100 %.",
)
lost_updates = ChoiceGuess(
    id="lost-updates",
    lab=LAB,
    question="Of 100 updates in the first step, how many change no weight?",
    by_choice={
        "under 10": (
            "Half of BF16's gap is at least 1/512 of a weight. Most updates are much smaller.",
            "bf16-needs-no-masters",
        ),
        "about half": "The median update is about 1/14,000 of its weight, far below half a gap.",
        "over 80": "",
    },
)
doubling = NumberGuess(
    id="doubling",
    lab=LAB,
    question="What percentage of the steps does this scaler skip?",
    unit="%",
    slack=0.5,  # whole percent are asked for
    by_number={
        (0, 0.5): (
            "The scale doubles after each good step, so the gradients soon overflow again.",
            "growth-at-each-step",
        ),
        (0.5, 2): (
            "That holds if the scale grows after 100 good steps. This scale grows after each good "
            "step."
        ),
        (32, 34): (
            "One good step doubles the scale and one overflow halves it, so the next step is good "
            "again: a cycle of two steps, not three."
        ),
        (66, 67): (
            "One overflow halves the scale, and the next step is good: the cycle has two steps, "
            "not three."
        ),
        100: "After an overflow the scale is halved and fits, so the next step is good.",
    },
    otherwise="A good step doubles the scale, the next step overflows and halves it, and so on.",
)
zeroed_step = ChoiceGuess(
    id="zeroed-step",
    lab=LAB,
    question="All gradients are set to 0, then `adam.step()` is called. What do the weights do?",
    by_choice={
        "stand still": (
            "With plain SGD they would. Adam steps by its running means, and these are not 0.",
            "zeroed-step-is-a-skip",
        ),
        "move": "",
    },
)
