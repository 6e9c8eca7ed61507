"""Measure: how fast a dtype or a precision is here, whether accuracy holds, and where a step loses.

``throughput`` times matmuls by dtype, ``speed`` whole training steps by precision, in the paired
rounds of ``timing``, which shows them; ``quality`` asks whether the accuracy is the same.
``verdicts`` says what pairs show against a margin. ``live_bytes`` counts the bytes that are alive,
``efficiency`` what else a step needs, ``energy`` reads joules; ``monitor`` watches a run for
faults. ``recordings`` are such results of named machines. ``ledger`` is the table of what the labs
made of the course's GPT.
"""

from typing import TYPE_CHECKING

from labkit.base.home import lazily

if TYPE_CHECKING:
    from labkit.measuring.efficiency import (
        Casts,
        Misaligned,
        count_casts,
        misaligned,
        work_and_memory,
    )
    from labkit.measuring.monitor import Fault, Monitor
    from labkit.measuring.quality import Impact, accuracy_impact
    from labkit.measuring.speed import benchmark
    from labkit.measuring.throughput import measure
    from labkit.measuring.timing import Measurement, Timing
    from labkit.measuring.verdicts import Verdict, verdict

__all__ = [
    "Casts",
    "Fault",
    "Impact",
    "Measurement",
    "Misaligned",
    "Monitor",
    "Timing",
    "Verdict",
    "accuracy_impact",
    "benchmark",
    "count_casts",
    "measure",
    "misaligned",
    "verdict",
    "work_and_memory",
]

__getattr__ = lazily(
    __name__,
    {
        "efficiency": "Casts Misaligned count_casts misaligned work_and_memory",
        "monitor": "Fault Monitor",
        "quality": "Impact accuracy_impact",
        "speed": "benchmark",
        "throughput": "measure",
        "timing": "Measurement Timing",
        "verdicts": "Verdict verdict",
    },
)
