"""Check of lab 00: one small exercise, there to be failed once."""

from labkit.labs.engine import calls, check, same_value

LAB = "00_start_here"

_COUNTS = (1, 1000, 0, 7_000_000)


@check(calls(_COUNTS))
def check_fp16_bytes(answers):
    """The bytes of any number of FP16 values."""
    for count, got in zip(_COUNTS, answers, strict=True):
        same_value(got, 2.0 * count, call=f"fp16_bytes({count})", why="One FP16 value has 16 bits.")


check_fp16_bytes.slip(
    "every-float-has-four-bytes",
    "Four bytes are a float32. How many bits does the name FP16 promise?",
    swap=("2 * count", "4 * count"),
)
check_fp16_bytes.slip(
    "bits-for-bytes",
    "That is the number of bits. How many bits has a byte?",
    swap=("2 * count", "16 * count"),
)
check_fp16_bytes.slip(
    "tensors-are-python-floats",
    "Eight bytes are a Python float, in double precision. What is stored in an FP16 tensor?",
    swap=("2 * count", "8 * count"),
)
check_fp16_bytes.slip(
    "one-value-is-a-tensor",
    "Your answer is the same for every count. Where is `count`?",
    cut=" * count",
)
