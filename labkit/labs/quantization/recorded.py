"""What lab 09 recorded: the price of each bit, outliers, digits in integers, and fine-tuning."""

import json
from dataclasses import dataclass
from typing import Any

from labkit.base.home import DATA


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Fine-tuning of one kind, some seeds.

    Args:
        steps: at which the text was measured.
        bits: for each seed, bits a character at these steps.
    """

    steps: tuple[int, ...]
    bits: tuple[tuple[float, ...], ...]


def fine_tuning(task: str = "capitals") -> dict[str, FineTuning]:
    """Runs by what was trained: all weights, or adapters on a base in FP32 or in few bits.

    Args:
        task: "capitals", the course's text in capitals, or "same text", which the model has learnt.
    """
    record = quantization_record()
    return {
        arm: FineTuning(steps=tuple(record["at"]), bits=tuple(map(tuple, seeds)))
        for arm, seeds in record["fine_tuning"][task].items()
    }


def quantization_record() -> dict[str, Any]:
    """data/emulated/quantization.json: its part "weights" holds a row for each way to round."""
    path = DATA / "emulated" / "quantization.json"
    return json.loads(path.read_text(encoding="utf-8"))
