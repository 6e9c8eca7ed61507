"""Train in a precision: one visible loop, the precisions, the loss scaler, models and data.

Read ``loop`` first, then ``precision`` (what each one is), ``scaling`` (the rule by which
``torch.amp.GradScaler`` chooses a loss scale), ``models`` and ``data``, ``gpt``, the trained model
that several labs start from, and ``low_bit``, linear layers in FP8 and FP4. ``batches``,
``arguments`` and ``interrupts`` are the loop's.
"""

from labkit.training.batches import cross_entropy
from labkit.training.gpt import bits_per_character, trained_gpt
from labkit.training.loop import StepRecord, TrainingRun, evaluate, in_eval_mode, train
from labkit.training.precision import PRECISIONS, PrecisionWarning

__all__ = [
    "PRECISIONS",
    "PrecisionWarning",
    "StepRecord",
    "TrainingRun",
    "bits_per_character",
    "cross_entropy",
    "evaluate",
    "in_eval_mode",
    "train",
    "trained_gpt",
]
