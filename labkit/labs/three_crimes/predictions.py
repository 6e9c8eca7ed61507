"""The predictions of lab 01."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "01_three_crimes"

# No reason names a cause: finding those is the lab's work.
bet = TickGuess(
    id="bet",
    lab=LAB,
    question="Three of the five runs end with a worse loss than the same run in FP32. Which?",
    by_item={
        "A": "A has no loss scale and ends where its FP32 run ends.",
        "B": "B computes and stores everything in FP16 and ends where its FP32 run ends.",
        "C": "C fails. It is B with another optimizer.",
        "D": "D fails, although BF16 has nearly the range of FP32.",
        "E": "E fails. It is A with another task, another rate and a weight on its loss.",
    },
    by_pattern={
        (True, True, True, False, True): (
            "You chose the four runs that use FP16. Two of them train well, and D, in BF16, fails.",
            "fp16-is-the-risky-one",
        ),
        (False, True, True, True, False): (
            "You chose the three runs that are 16-bit throughout. One of them trains well, and one "
            "of the two runs under autocast fails.",
            "half-is-always-fatal",
        ),
        (True, False, False, False, True): (
            "You chose the two runs under autocast without a loss scale. One of them trains well.",
            "no-scaler-no-training",
        ),
    },
)
# The floating-point formats of the tensors of one training step, as each is usually set up.
FORMATS = {
    "pure FP16": {"fp16"},
    "autocast": {"bf16", "fp32"},
    "master weights": {"bf16", "fp32"},
    "FP8": {"e4m3", "e5m2", "fp32"},
    "PTQ": set(),  # there is no training step
    "QAT": {"fp32"},
}
methods = TickGuess(
    id="methods",
    lab=LAB,
    question=(
        "Articles call all six of these mixed precision. Tick those whose training step stores "
        "its tensors in more than one floating-point format."
    ),
    by_item={
        "`model.half()`, then train as before.": (
            "After `model.half()`, parameters, activations, gradients and Adam's moments are all "
            "FP16: one format.",
            "half-is-mixed-precision",
        ),
        "Autocast around the forward pass, with FP32 parameters.": (
            "Matmuls run in 16 bits, and the loss and the update in FP32: two formats."
        ),
        "A 16-bit model whose optimizer updates an FP32 copy of its weights.": (
            "Forward and backward run in 16 bits, and the update runs in FP32: two formats."
        ),
        "Matmuls that take FP8 inputs with a scale for each tensor or block.": (
            "FP8 is a floating-point format. The inputs of the matmuls are FP8, and their outputs "
            "and the weights have wider formats.",
            "eight-bits-are-integers",
        ),
        "Convert a trained model to INT8 with some calibration batches (PTQ).": (
            "Training is over before PTQ begins, and INT8 is an integer format."
        ),
        "Train with values rounded to the INT8 grid, for later use in INT8 (QAT).": (
            "QAT imitates INT8 by rounding values in FP32. The tensors usually stay FP32.",
            "qat-is-mixed-precision",
        ),
    },
)
lower_rate = ChoiceGuess(
    id="lower-rate",
    lab=LAB,
    question=(
        "Run D gets a fifth of its learning rate. Does a usual step then change more weights, as "
        "many, or fewer?"
    ),
    by_choice={
        "more": (
            "A smaller update is more often below half a gap, and then weight plus update is "
            "rounded back to the weight.",
            "smaller-steps-are-safer",
        ),
        "as many": "The gaps between BF16 values stay the same, and the updates become smaller.",
        "fewer": "",
    },
)
peak = NumberGuess(
    id="peak",
    lab=LAB,
    question=(
        "In FP32 with fused Adam, a training step holds at most 16 bytes a parameter. (The batch "
        "is 1, so activations hardly count, and zero_grad sets the gradients to None after each "
        "step.) How many does it hold at most under BF16 autocast, rounded to a whole number?"
    ),
    by_number={
        (17.5, 18.5): (
            "18 is the sum of all entries of your table. They are not all alive at one time."
        ),
        (7.5, 10.5): (
            "Weights, gradients and Adam's two moments stay FP32: 16 bytes, as before.",
            "amp-halves-everything",
        ),
        (11.5, 12.5): (
            "12 bytes hold the FP32 weights and moments. The gradients and copies need memory too."
        ),
        (13.5, 14.5): (
            "14 bytes are alive at the end of the forward pass. The gradients come later."
        ),
    },
    otherwise="Weights and moments take 12 bytes. Copies (2) and gradients (4) come and go.",
)
myths = TickGuess(
    id="myths",
    lab=LAB,
    question="Tick the claims that are true.",
    by_item={
        "A step in FP16 needs fewer floating-point operations than in FP32.": (
            "Multiplying two matrices takes the same number of operations in every format. A "
            "Tensor Core does more of them in a second.",
            "fewer-bits-fewer-flops",
        ),
        "Under autocast, the gradients and Adam's moments take half the bytes.": (
            "Both have the dtype of the parameter, which stays FP32.",
            "amp-halves-the-optimizer",
        ),
        "Autocast looks at the values and chooses dtypes.": (
            "Autocast looks up the name of each function in a fixed list. Only the loss scale "
            "follows the values.",
            "dynamic-means-dynamic-dtypes",
        ),
        "Casting FP16 weights to FP32 at the end restores their precision.": (
            "The cast to FP32 only appends zeros. The bits that the cast to FP16 dropped are gone.",
            "casting-back-restores",
        ),
    },
)
