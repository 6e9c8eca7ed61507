"""The predictions of lab 10."""

from labkit.labs.engine import ChoiceGuess

LAB = "10_compression"

pruned_file = ChoiceGuess(
    id="pruned-file",
    lab=LAB,
    question="90 % of the weights are pruned. How large is the file of the pruned model?",
    by_choice={
        "30 kB": (
            "A dense tensor stores its zeros like all other numbers, 4 bytes each.",
            "zeros-take-no-space",
        ),
        "340 kB": (
            "The zeros indeed save nothing, but torch's function stores more than one tensor for "
            "each weight.",
            "prune-writes-into-the-weight",
        ),
        "680 kB": "",
    },
)
zeros_after = ChoiceGuess(
    id="zeros-after",
    lab=LAB,
    question="Which share of the weights is 0 after this epoch?",
    by_choice={
        "90 %": (
            "A weight of 0 has a gradient, too, and the optimizer moves it.",
            "zeros-have-no-gradient",
        ),
        "50 %": "AdamW moves each weight that has a gradient, in its first step already.",
        "15 %": "",
        "0 %": (
            "That holds if each weight gets a gradient. Some read a pixel that is blank in every "
            "image, or belong to a unit whose ReLU is never active."
        ),
    },
)
csr_density = ChoiceGuess(
    id="csr-density",
    lab=LAB,
    question="Below which density is CSR smaller than the dense FP32 tensor?",
    by_choice={
        "1/1": (
            "That would hold if the column numbers took no bytes.",
            "sparse-indices-are-free",
        ),
        "1/2": (
            "That would hold for 4-byte column numbers; in torch they are int64.",
            "torch-indices-have-four-bytes",
        ),
        "1/3": "",
        "1/9": "That is the density for INT8 values in an INT8 tensor.",
    },
)
