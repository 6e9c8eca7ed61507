"""The predictions of lab 07."""

from labkit.labs.engine import ChoiceGuess

LAB = "07_memory_and_many_gpus"

peak_op = ChoiceGuess(
    id="peak-op",
    lab=LAB,
    question="In which part of the step are the most bytes alive?",
    by_choice={
        "attention": (
            "Attention keeps query, key and value for backward, but the kernel never stores the "
            "scores of all pairs of positions."
        ),
        "a linear layer": (
            "The linear layers keep a little less than half of what the 12 blocks keep, and "
            "backward frees one block before it reaches the next."
        ),
        "the loss": "",
        "the update": (
            "The update needs weights, gradients, moments and one more copy: 20 bytes a "
            "parameter. But the activations are gone by then. For a batch of one text you would "
            "be right."
        ),
    },
)
amp_peak = ChoiceGuess(
    id="amp-peak",
    lab=LAB,
    question="In FP32 the peak is 11 GiB. What is it under BF16 autocast?",
    by_choice={
        "about 5.5 GiB": (
            "Half would need everything in 16 bits. Weights, gradients, moments and the tensors of "
            "log-softmax stay FP32.",
            "amp-halves-everything",
        ),
        "about 8.5 GiB": "",
        "about 11 GiB": (
            "The activations of the blocks do get smaller, and they are alive at the peak."
        ),
    },
)
eight_ranks = ChoiceGuess(
    id="eight-ranks",
    lab=LAB,
    question=(
        "One of eight ranks holds 256, the others hold 1. A ring adds them in BF16, from rank 0 "
        "on, and rounds after each addition. The exact sum is 263. What is the sum in BF16?"
    ),
    by_choice={
        "256": (
            "It is 256 only if rank 0 or rank 1 holds the large number. Later ranks leave 260 or "
            "264."
        ),
        "263": "263 is odd, and above 256 BF16 holds even numbers only.",
        "264": "264 is 263 rounded once. A ring rounds after each addition.",
        "it depends on which rank holds 256": "",
    },
)
