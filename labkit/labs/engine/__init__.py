"""What every lab stands on: checks, predictions, claims, the codec, and the base of widgets.

A notebook takes ``claim``, ``predict``, ``whose`` and ``yours`` from here; a lab's ``checks``
module takes ``check``, ``calls``, ``collect`` and the comparisons.
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
from labkit.labs.engine.comparing import AnswerError, Mistake, number, same_bits, same_value
from labkit.labs.engine.predictions import Prediction, predict, reveal
from labkit.labs.engine.running import attempt, calls, collect
from labkit.labs.engine.showing import claim
from labkit.labs.engine.slips import Slip, SlipError

__all__ = [
    "AnswerError",
    "Check",
    "CheckFailed",
    "CheckResult",
    "KnownWrong",
    "Mistake",
    "Prediction",
    "Slip",
    "SlipError",
    "attempt",
    "calls",
    "check",
    "claim",
    "collect",
    "number",
    "predict",
    "reveal",
    "same_bits",
    "same_value",
    "whose",
    "yours",
]
