"""The predictions of lab 11."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "11_monitoring_and_debugging"

largest_z = NumberGuess(
    id="largest-z",
    lab=LAB,
    question=(
        "Nine losses are 1, the tenth is a million. How many standard deviations of these ten "
        "numbers (`statistics.pstdev`) does the tenth lie above their mean?"
    ),
    by_number={
        (1e3, 1e7): (
            "The large value pulls the mean and, even more, the standard deviation along with it."
        ),
        10: "That is n. The bound is the square root of n - 1.",
        9: "Nearly: take its square root.",
    },
    otherwise="A value lies at most sqrt(n - 1) standard deviations from a mean that contains it.",
)
waiting = NumberGuess(
    id="waiting",
    lab=LAB,
    question=(
        "One step is 15 ms of kernels on the GPU and 2 ms of Python between the steps. Without "
        "logging a step takes 15 ms. How many milliseconds with one `loss.item()` a step?"
    ),
    unit="ms",
    slack=0.3,
    by_number={
        (14.5, 15.5): (
            "The copy of one number is fast. But the host waits for the GPU, and then the GPU "
            "waits for the host's 2 ms of Python."
        ),
    },
    otherwise="After the wait the queue is empty, so the 2 ms of Python no longer overlap.",
)
who_notices = ChoiceGuess(
    id="who-notices",
    lab=LAB,
    question=(
        "A sum of squares overflows in an FP16 forward pass: the loss is inf. What does "
        "`torch.autograd.detect_anomaly` report?"
    ),
    by_choice={
        "the operator that overflowed": (
            "It does not look at the forward pass at all, except to remember where each backward "
            "function came from."
        ),
        "a later operator": "It would, if a backward function returned a NaN. Here none does.",
        "nothing": "",
    },
)
