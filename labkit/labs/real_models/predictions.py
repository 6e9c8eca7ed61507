"""The predictions of lab 13."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "13_real_models"

positions_left = NumberGuess(
    id="positions-left",
    lab=LAB,
    question="The positions 0 to 4095 are cast to BF16. How many different numbers remain?",
    slack=1,  # whether 4095 rounds up to 4096 is not the question
    by_number={
        4096: (
            "BF16 reaches 3e38, but it has 8 significant bits: from 256 on it skips integers.",
            "integers-always-exact",
        ),
        (255, 257): (
            "All integers up to 256 remain. Above 256 BF16 holds 128 numbers from each power of "
            "two to the next, and four such intervals follow."
        ),
        2048: "Half would remain only where BF16's gap is 2, from 256 to 512. The gap doubles.",
        (640, 642): "That is the answer for 2048 positions. From 2048 to 4096 there are 128 more.",
    },
    otherwise=(
        "Up to 256 all integers remain. From there to 4096 the gap doubles at each power of two, "
        "so each of the four intervals keeps 128 numbers."
    ),
)
scores_grow = ChoiceGuess(
    id="scores-grow",
    lab=LAB,
    question=(
        "The queries and keys grow until the largest score is about 270 instead of 4. In BF16, the "
        "relative error of *fused* attention"
    ),
    by_choice={
        "rises": (
            "It would if the scores were rounded to BF16. Fused attention keeps them in FP32 "
            "until after the softmax."
        ),
        "stays": (
            "Fused attention does not round the scores, so they add no error. But the weights "
            "change too: more and more of the row's weight lies on one token."
        ),
        "falls": "",
    },
)
muon_unscaled = ChoiceGuess(
    id="muon-unscaled",
    lab=LAB,
    question=(
        "The loss is multiplied by 1024 in all five steps, and no gradient is divided by 1024. "
        "With which optimizers do the weights end up more than 1 % away from the right run?"
    ),
    by_choice={
        "all three": (
            "The update of Adam and of Muon is normalized: a factor that all gradients share "
            "cancels out.",
            "adam-steps-grow-with-the-scale",
        ),
        "SGD and AdamW": (
            "AdamW divides the mean of the gradients by the root of the mean of their squares. "
            "Both are 1024 times larger."
        ),
        "SGD and Muon": (
            "Muon's update has singular values of about 1, whatever the size of the gradient."
        ),
        "SGD": "",
        "none": "SGD's step is the gradient times the learning rate, so it is 1024 times longer.",
    },
)
