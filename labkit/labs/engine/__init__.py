"""What every lab stands on: checks, predictions, claims, the codec, and the base of widgets.

A notebook takes ``claim``, ``predict``, ``whose`` and ``yours`` from here; a lab's ``checks``
module takes ``check``, ``calls``, ``attempt``, the comparisons, and what reads an answer's values;
its ``predictions`` module takes the three kinds of guesses.
"""

from labkit.base.home import lazily

__getattr__ = lazily(
    __name__,
    {
        "checks": "Check CheckFailed CheckResult KnownWrong check whose yours",
        "comparing": "near_value same_bits same_value",
        "predictions": "ChoiceGuess NumberGuess Prediction TickGuess predict",
        "reading": "AnswerError Mistake Worth entries number several tensor truth word",
        "running": "attempt calls collect listening plain",
        "showing": "claim",
        "slips": "Slip SlipError",
    },
)
