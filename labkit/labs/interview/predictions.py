"""The prediction of lab 16."""

from labkit.labs.engine import ChoiceGuess

LAB = "16_interview"

first_break = ChoiceGuess(
    id="first-break",
    lab=LAB,
    question="One forward pass of the model, as it is, under FP16 autocast. What happens first?",
    by_choice={
        "nothing": (
            "Autocast protects what is on its lists. The model has lines that are on none.",
            "unlisted-ops-run-in-fp32",
        ),
        "NaN": "NaN needs a row that is masked whole, or queries of zero. torch stops before that.",
        "an error": "",
        "a wrong number": "That comes too, from the squares: with queries above 255.",
    },
)
