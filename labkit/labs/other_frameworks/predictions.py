"""The predictions of lab 14."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "14_other_frameworks"

four_twos = TickGuess(
    id="four-twos",
    lab=LAB,
    question="In JAX `h` is a vector in FP16. Which of these are float32?",
    by_item={
        "`h * 2.0`": "A Python number has no dtype of its own: the result has `h`'s.",
        "`h * np.float32(2)`": "NumPy's number has a dtype, float32, and it is the wider one.",
        "`h * jnp.float32(2)`": "`jnp.float32` names the dtype, so the 0-d array has it.",
        "`h * jnp.array(2.0)`": (
            "An array made of a Python number, without a dtype, is weakly typed as well."
        ),
    },
    by_pattern={
        (False,) * 4: (
            "That is PyTorch's rule: a value without dimensions never widens a vector. JAX asks "
            "whether the value was given a dtype.",
            "every-scalar-is-weak",
        ),
        (True,) * 4: "In JAX a Python number takes the dtype of the array beside it.",
        (False, True, True, True): (
            "`jnp.array(2.0)` is weakly typed: nobody gave it a dtype, although it shows one."
        ),
    },
)
bf16_adam = ChoiceGuess(
    id="bf16-adam",
    lab=LAB,
    question=(
        "Policy `bfloat16`, Keras' Adam with beta_2 = 0.999: which share of the weights differs "
        "from its start after one epoch?"
    ),
    by_choice={
        "none": "",
        "about half": (
            "Small updates would be lost for large weights only. Compute first what beta_2 is in "
            "BF16, and then alpha."
        ),
        "nearly all": (
            "That is true of torch.optim.Adam and optax, whose bias correction is computed outside "
            "of BF16. Keras computes it in the dtype of the weights."
        ),
    },
)
one_bias = NumberGuess(
    id="one-bias",
    lab=LAB,
    question=(
        "Weights and inputs of a network of four linear layers are BF16, and so are the biases, "
        "but for the first layer's, which is float32. How many of the four matmuls get an input "
        "in float32?"
    ),
    by_number={
        0: "The bias is added to a BF16 matrix, and the sum has the wider dtype, float32.",
        1: (
            "The second matmul's result is float32 too: float32 times BF16 gives float32.",
            "one-wide-operand-stays-alone",
        ),
        4: "The first matmul comes before the bias.",
        2: "What makes the input of the fourth matmul narrow again?",
    },
    otherwise="Follow the dtype from layer to layer: what is BF16 + float32, and what times BF16?",
)
