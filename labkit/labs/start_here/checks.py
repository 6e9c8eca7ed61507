"""Check of lab 00: one small exercise, there to be failed once."""

import random

from labkit.labs.engine import calls, check, same_value

LAB = "00_start_here"

_COUNTS = (1, 1000, 0, 7_000_000)
_WHY = "One FP16 value has 16 bits."
# The lab orders this failure, so it is no slip: nobody's log shall hold it as an idea.
_WHY_ORDERED = "Four bytes are a float32. How many bits does the name FP16 promise?"


def _counts(seed):
    """The counts above, and three that are drawn."""
    draw = random.Random(seed)
    return [*_COUNTS, *(draw.randrange(2, 1_000_000) for _ in range(3))]


@check(calls(_counts))
def check_fp16_bytes(answers, seed):
    """The bytes of any number of FP16 values."""
    counts = _counts(seed)
    plain = all(type(got) in (int, float) for got in answers)
    ordered = plain and answers == [4 * count for count in counts]
    why = _WHY_ORDERED if ordered else _WHY
    for count, got in zip(counts, answers, strict=True):
        same_value(got, 2.0 * count, call=f"fp16_bytes({count})", why=why)


check_fp16_bytes.slip(
    "fp16-takes-one-byte",
    "One byte is an FP8 value. How many bytes are 16 bits?",
    swap=("2 * count", "count"),
)
check_fp16_bytes.slip(
    "bits-for-bytes",
    "Your answer is the number of bits. How many bits are in a byte?",
    swap=("2 * count", "16 * count"),
)
check_fp16_bytes.slip(
    "tensors-are-python-floats",
    "Eight bytes hold one Python float. How many bits does one value of an FP16 tensor have?",
    swap=("2 * count", "8 * count"),
)
check_fp16_bytes.slip(
    "one-value-is-a-tensor",
    "Your answer is the same for every count. Where does your formula use `count`?",
    cut=" * count",
)
