"""Train in a precision, and compare precisions: how fast, how well.

Read ``loop`` first: one visible loop for every precision.
"""

from labkit.precision import PRECISIONS, PrecisionWarning
from labkit.training.loop import StepRecord, evaluate, train

__all__ = ["PRECISIONS", "PrecisionWarning", "StepRecord", "evaluate", "train"]
