"""The predictions of lab 15."""

from labkit.labs.engine import ChoiceGuess

LAB = "15_production"

aa_phases = ChoiceGuess(
    id="aa-phases",
    lab=LAB,
    question=(
        "Both arms are FP32. In how many of 20 experiments does the published test find a "
        "difference?"
    ),
    by_choice={
        "0": (
            "That would need equal losses in both halves. The precision is the same, but the "
            "second half of a run has lower losses than the first."
        ),
        "1": (
            "One in 20 is what a sound test at 5 % gives. This one compares early losses of a "
            "run with late ones, and these differ for another reason than chance."
        ),
        "10": (
            "Then the losses of the halves would differ clearly in only half of the runs. The loss "
            "falls from the first half to the second in every run, by far more than its noise."
        ),
        "20": "",
    },
)
twenty_looks = ChoiceGuess(
    id="twenty-looks",
    lab=LAB,
    question=(
        "The candidates are as good as the reference, and one look accuses 5 % of them. What "
        "share is accused by at least one of 20 looks, one after every 400 disagreements?"
    ),
    by_choice={
        "about 5 %": (
            "5 % is the share of one look. Each further look is another chance to cross the line.",
            "looking-again-is-free",
        ),
        "about 20 %": "",
        "about 65 %": (
            "1 − 0.95²⁰ is 64 %, for 20 independent tests. These looks share their data: the "
            "second contains all that the first one saw."
        ),
    },
)
bits_seen = ChoiceGuess(
    id="bits-seen",
    lab=LAB,
    question=(
        "One random bit of one FP32 weight, drawn from the matrices, flips. In how many of 100 "
        "such cases does the loss move by more than 0.01 nats, or become NaN?"
    ),
    by_choice={
        "about 3 of 100": "",
        "about 25 of 100": (
            "That would be all eight bits of the exponent. Seven of them make one weight smaller, "
            "or mostly at most 16 times as large, which hardly moves the loss."
        ),
        "about 50 of 100": (
            "That would be half of all bits. 23 of the 32 are bits of the mantissa, and they "
            "change a weight by at most half of its value.",
            "every-flipped-bit-shows",
        ),
        "about 75 of 100": (
            "A bit of the mantissa changes a weight by at most half of its value, mostly far "
            "less, and one weight among 111,104 matters little.",
            "every-flipped-bit-shows",
        ),
    },
)
