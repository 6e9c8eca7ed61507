"""Check of lab 08: a format for each of the six operands of a linear layer."""

from labkit.labs.engine import Mistake, check, entries, word
from labkit.labs.engine.messages import fill
from labkit.labs.fp8_and_fp4.recipes import (
    FORMATS,
    MATMULS,
    OPERANDS,
    bits,
    matmul_quality,
    quality,
)

LAB = "08_fp8_and_fp4"

MISSED = (
    "Your recipe takes {bits:.2f} bits an operand ({limit} are allowed), and the SQNR is "
    "{y:.1f} dB for y, {dX:.1f} for dX and {dW:.1f} for dW ({goals} are asked for). {why}"
)
TOO_MANY = "The SQNRs are high enough: some operands may have fewer bits."
TOO_LOW = "{name} is too low: its operands are {a} in {a_format} and {b} in {b_format}."
SWAPPED = "With {operand} in {other} it would be {better:.1f} dB."

LIMIT = 5.7
GOALS = {"y": 17.0, "dX": 17.0, "dW": 28.0}

_BETTER = {  # what a format is replaced by, and the idea if that alone reaches the goal
    "mxfp8": ("e4m3", None),
    "e2m1": ("nvfp4", None),
    "e5m2": ("e4m3", "scaled-gradients-need-e5m2"),
    "mxfp4": ("nvfp4", "mxfp4-is-nvfp4"),
    "nvfp4_sr": ("nvfp4", "stochastic-rounding-is-more-precise"),
}


def run_recipe(recipe):
    """A recipe is data already."""
    return recipe


@check(run_recipe)
def check_recipe(recipe):
    """Six formats within 5.7 bits an operand that keep y, dX and dW within the goals."""
    recipe = entries(recipe, OPERANDS, call="recipe")
    recipe = {key: word(name, FORMATS, call=f'recipe["{key}"]') for key, name in recipe.items()}
    found, spent = quality(recipe), bits(recipe)
    missed = [name for name, goal in GOALS.items() if not found[name] >= goal]
    if spent <= LIMIT and not missed:
        return
    reasons = [_why(recipe, name) for name in missed] or [(TOO_MANY, None)]
    why, idea = " ".join(said for said, _ in reasons), next((i for _, i in reasons if i), None)
    if set(recipe.values()) in ({"nvfp4"}, {"e4m3"}):
        idea = "all-matmuls-need-one-format"
    goals = ", ".join(f"{goal:g}" for goal in GOALS.values())
    raise Mistake(
        MISSED, bits=spent, limit=LIMIT, goals=goals, why=why, misconception=idea, **found
    )


def _why(recipe, name):
    """The operands of a result that is too low, and the one change that would lift it."""
    a, b = MATMULS[name]
    said = fill(TOO_LOW, name=name, a=a, a_format=recipe[a], b=b, b_format=recipe[b])
    for operand in (a, b):
        other, idea = _BETTER.get(recipe[operand], ("", None))
        if other and (better := matmul_quality(name, recipe | {operand: other})) >= GOALS[name]:
            return f"{said} {fill(SWAPPED, operand=operand, other=other, better=better)}", idea
    return said, None


check_recipe.slip(
    "all-matmuls-need-one-format",
    "dW has a goal of its own. Which two operands reach it, and where can you save their bits?",
    swap=('"dw_grad": "e4m3", "dw_x": "e4m3"', '"dw_grad": "nvfp4", "dw_x": "nvfp4"'),
)
check_recipe.slip(
    "scaled-gradients-need-e5m2",
    "A scale moves the gradient into the range of either format. Which one keeps more bits of it?",
    swap=('"dw_grad": "e4m3"', '"dw_grad": "e5m2"'),
)
check_recipe.slip(
    "mxfp4-is-nvfp4",
    "Both have values in E2M1. How do their scales differ?",
    swap=('"dx_grad": "nvfp4"', '"dx_grad": "mxfp4"'),
)
check_recipe.slip(
    "stochastic-rounding-is-more-precise",
    "Stochastic rounding is right on average. Can one draw be nearer to x than the nearest value?",
    swap=('"dx_grad": "nvfp4"', '"dx_grad": "nvfp4_sr"'),
)
