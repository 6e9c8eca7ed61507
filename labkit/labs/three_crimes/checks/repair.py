"""Checks of lab 01: the repair of run D."""

import reprlib
from dataclasses import replace

from labkit.labs.engine import AnswerError, Mistake, attempt, check, plain
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.three_crimes.trials import RUNS, run

LAB = "01_three_crimes"

ENDS = (
    "With {pardon} the loss ends at {loss:.2f}, and a step moves {moved:.0%} of the weights. In "
    "FP32 the run ends at {twin:.2f}, and a step moves {twin_moved:.0%}."
)
NO_PARDON = (
    "pardon is {given}; a dict with one setting and its new value is wanted, such as "
    '{{"eps": 1e-6}}.'
)
NO_SETTING = "{setting} is no setting that you may change; choose one setting among {settings}."
NO_PRECISION = 'precision is {came}; a name is wanted, such as "pure_fp16".'
NO_NUMBER = "{setting} is {came}; a number is wanted, such as 1e-6, with no quotes."
NO_CHANGE = "{pardon} is what the run has already: choose another value or another setting."
REFUSED = "The run refuses {pardon}: {why}."
NOTHING_TO_LEARN = (
    "{pardon} multiplies the loss and every gradient by 0, so the weights cannot learn."
)
ZERO_EPS = (
    "Where Adam's mean square is 0, Adam divides by eps alone. Your eps is 0, so the quotient is "
    "inf or NaN."
)


# The repair of run D

STALLED = RUNS["D"]
# Runs of FP32 from other first weights end this far from each other by chance alone, at most:
# tests/labs/three_crimes/test_three_crimes_runs.py measures it.
CHANCE = 0.06


SETTINGS = ("precision", "lr", "eps", "loss_weight")


def run_pardon(pardon):
    """What the pardon is, and of which type; the judge runs it, for a run can be forged."""
    kind, pardon = type(pardon).__name__, plain(pardon)
    if type(pardon) is not dict:
        return [pardon if type(pardon) in (str, int, float, list) else None, kind]
    return [{setting: _lower(value) for setting, value in pardon.items()}, kind]


def _lower(text):
    return text.strip().lower() if type(text) is str else text


def _refusal(pardon, kind):
    """Why a pardon is not run at all; "" if it is."""
    if type(pardon) is not dict or len(pardon) != 1:
        given = f"a {kind}" if pardon is None else reprlib.repr(pardon)
        return fill(NO_PARDON, given=given)
    ((setting, value),) = pardon.items()
    if setting not in SETTINGS:
        return fill(NO_SETTING, setting=reprlib.repr(setting), settings=", ".join(SETTINGS))
    if setting == "precision" and type(value) is not str:
        return fill(NO_PRECISION, came=came(value))
    if setting != "precision" and type(value) not in (int, float):
        return fill(NO_NUMBER, setting=setting, came=came(value))
    return ""


@check(run_pardon)
def check_pardon(given):
    """One setting, and the run follows FP32 with its own small steps."""
    pardon, kind = given
    if refusal := _refusal(pardon, kind):
        raise Mistake(refusal)
    # The stall shows up on the numbers of a run, never on a name that is no setting.
    outcome = attempt(lambda: run(replace(STALLED, **pardon)))
    ((setting, value),) = pardon.items()
    if type(outcome) is Raised and setting == "loss_weight" and value == 0:
        raise Mistake(NOTHING_TO_LEARN, pardon=pardon)
    if type(outcome) is Raised:
        raise AnswerError(REFUSED, pardon=pardon, why=outcome.message.rstrip("."))
    if getattr(STALLED, setting) == value:
        raise Mistake(NO_CHANGE, pardon=pardon)
    twin = run(replace(STALLED, precision="fp32"))
    ends_alike = abs(outcome.final_loss - twin.final_loss) <= CHANCE
    if setting == "precision" and value not in ("fp32", "tf32") and ends_alike:
        return
    no_eps = setting == "eps" and value == 0
    raise Mistake(
        f"{ENDS} {ZERO_EPS}" if no_eps else ENDS,
        pardon=pardon,
        loss=outcome.final_loss,
        moved=outcome.usual_move,
        twin=twin.final_loss,
        twin_moved=twin.usual_move,
        misconception=_pardon_idea(setting, value),
    )


def _pardon_idea(setting, value):
    if value in ("fp32", "tf32"):
        return "sixteen-bits-must-go"
    if setting == "lr":
        return "smaller-steps-are-safer" if value < STALLED.lr else "a-faster-run-is-a-repair"
    if value == "pure_fp16":
        return "more-mantissa-bits-are-enough"
    if setting == "eps" and value > STALLED.eps:
        return "eps-cures-all"
    return "scale-cures-a-stall" if setting == "loss_weight" and value > 1 else None


check_pardon.slip(
    "smaller-steps-are-safer",
    "Most updates of run D are lost because they are below half a gap. What does a smaller "
    "learning rate do to them?",
    swap=('"precision": "bf16"', '"lr": 1e-5'),
)
check_pardon.slip(
    "a-faster-run-is-a-repair",
    "A larger learning rate makes the updates larger, but the repaired run must keep its small "
    "ones. Which setting lets small updates add up?",
    swap=('"precision": "bf16"', '"lr": 1e-3'),
)
check_pardon.slip(
    "scale-cures-a-stall",
    "Adam divides by the gradient's own size, so a factor on the loss cancels and the updates stay "
    "as small as before. Where is such an update lost?",
    swap=('"precision": "bf16"', '"loss_weight": 65536.0'),
)
check_pardon.slip(
    "sixteen-bits-must-go",
    "Now no matmul is 16-bit. Which precision has 16-bit matmuls and FP32 weights?",
    swap=('"precision": "bf16"', '"precision": "fp32"'),
)
check_pardon.slip(
    "more-mantissa-bits-are-enough",
    "FP16 has three more mantissa bits than BF16, but rounds eps = 1e-8 to 0, as in run C. Which "
    "tensors must be FP32?",
    swap=('"precision": "bf16"', '"precision": "pure_fp16"'),
)
check_pardon.slip(
    "eps-cures-all",
    "A larger eps helps where Adam's denominator is 0, and in BF16 it was never 0. In which "
    "operation is D's update lost?",
    swap=('"precision": "bf16"', '"eps": 1e-4'),
)
