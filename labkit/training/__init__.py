"""Train in a precision: one visible loop, the precisions, the loss scaler, models and data.

Read ``loop`` first, then ``precision`` (what each one is), ``scaling`` (loss scaling as a state
machine) and ``loss_scaler`` (which applies it), ``models`` and ``data``.
"""

from labkit.training.loop import StepRecord, cross_entropy, evaluate, train
from labkit.training.precision import PRECISIONS, PrecisionWarning

__all__ = ["PRECISIONS", "PrecisionWarning", "StepRecord", "cross_entropy", "evaluate", "train"]
