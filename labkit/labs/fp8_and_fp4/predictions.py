"""The predictions of lab 08."""

from labkit.labs.engine import ChoiceGuess, NumberGuess

LAB = "08_fp8_and_fp4"

wrong_scale = NumberGuess(
    id="wrong-scale",
    lab=LAB,
    question="By how many dB does the SQNR fall when the scale is 1,000 times too small?",
    unit="dB",
    slack=3,
    by_number={},
    otherwise="A float keeps its precision wherever its scale puts it, down to its subnormals.",
)
stochastic_once = NumberGuess(
    id="stochastic-once",
    lab=LAB,
    question="By how many dB does one stochastic rounding change the SQNR?",
    unit="dB",
    slack=1,
    by_number={},
    otherwise="-",
)
rotation = ChoiceGuess(
    id="rotation",
    lab=LAB,
    question="Which formats gain?",
    by_choice={"": ""},
)
