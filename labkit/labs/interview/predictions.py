"""The prediction of lab 16."""

from labkit.labs.engine import ChoiceGuess

LAB = "16_interview"

first_break = ChoiceGuess(
    id="first-break",
    lab=LAB,
    question="The unchanged model runs one forward pass under FP16 autocast. What happens first?",
    by_choice={
        "nothing": (
            "Autocast casts only what the functions on its lists receive. Some lines of this model "
            "use no such function.",
            "unlisted-ops-run-in-fp32",
        ),
        "NaN": (
            "NaN comes where a row of scores is masked as a whole, or where a query is all 0. This "
            "input has neither."
        ),
        "an error": "",
        "a wrong number": (
            "Wrong numbers come from queries above 255, whose squares overflow. The queries of a "
            "new model are far smaller."
        ),
    },
)
