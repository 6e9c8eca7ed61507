"""What every lab stands on: checks, predictions, claims, the codec, and the base of widgets.

A notebook takes ``claim``, ``predict``, ``whose`` and ``yours`` from here; a lab's ``checks``
module takes ``check``, ``calls``, ``attempt``, the comparisons, and what reads an answer's values;
its ``predictions`` module takes the three kinds of guesses.
"""

from labkit.labs.engine.checks import (
    Check,
    CheckFailed,
    CheckResult,
    KnownWrong,
    check,
    whose,
    yours,
)
from labkit.labs.engine.comparing import near_value, same_bits, same_value
from labkit.labs.engine.predictions import (
    ChoiceGuess,
    NumberGuess,
    Prediction,
    TickGuess,
    predict,
)
from labkit.labs.engine.reading import (
    AnswerError,
    Mistake,
    Worth,
    entries,
    number,
    several,
    tensor,
    truth,
    word,
)
from labkit.labs.engine.running import attempt, calls, collect, listening, plain
from labkit.labs.engine.showing import claim
from labkit.labs.engine.slips import Slip, SlipError

__all__ = [
    "AnswerError",
    "Check",
    "CheckFailed",
    "CheckResult",
    "ChoiceGuess",
    "KnownWrong",
    "Mistake",
    "NumberGuess",
    "Prediction",
    "Slip",
    "SlipError",
    "TickGuess",
    "Worth",
    "attempt",
    "calls",
    "check",
    "claim",
    "collect",
    "entries",
    "listening",
    "near_value",
    "number",
    "plain",
    "predict",
    "same_bits",
    "same_value",
    "several",
    "tensor",
    "truth",
    "whose",
    "word",
    "yours",
]
