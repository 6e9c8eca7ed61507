"""Train in a precision, and compare precisions: how fast, how well.

Read ``loop`` first: one visible loop for every precision. Then ``speed`` (times, memory, work and
energy side by side; its records are in ``report``), ``quality`` (is the accuracy the same?),
``efficiency`` (what a step needs, and where it loses) and ``energy`` (joules).
"""

from labkit.precision import PRECISIONS, PrecisionWarning
from labkit.training.efficiency import Casts, Misaligned, count_casts, misaligned, work_and_memory
from labkit.training.loop import StepRecord, evaluate, train
from labkit.training.quality import Impact, Verdict, accuracy_impact, verdict
from labkit.training.report import Benchmark, ModeResult
from labkit.training.speed import benchmark

__all__ = [
    "PRECISIONS",
    "Benchmark",
    "Casts",
    "Impact",
    "Misaligned",
    "ModeResult",
    "PrecisionWarning",
    "StepRecord",
    "Verdict",
    "accuracy_impact",
    "benchmark",
    "count_casts",
    "evaluate",
    "misaligned",
    "train",
    "verdict",
    "work_and_memory",
]
