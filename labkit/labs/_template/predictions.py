"""The predictions of lab 99: questions that a learner answers before a cell shows the truth."""

from labkit.labs.engine import NumberGuess

LAB = "99_new_topic"  # the name of the notebook

# NumberGuess, ChoiceGuess or TickGuess; its name is its id, with _ for -. Each plausible wrong
# guess has its reason, and the id of the idea behind it where the guess leaves no other
# explanation.
gap_at_2048 = NumberGuess(
    id="gap-at-2048",
    lab=LAB,
    question="How far is it from 2048 to the next larger FP16 value?",
    by_number={
        1: ("FP16 holds no odd integer above 2048.", "integers-always-exact"),
        2.0**-10: "That is the gap above 1. It doubles at each power of two.",
    },
    otherwise="The gap above 1 is 2**-10, and it doubles at each power of two up to 2048 = 2**11.",
)
