"""Check of lab 00: one small exercise, there to be failed once."""

from labkit.labs.engine import calls, check, same_value

LAB = "00_start_here"

_COUNTS = (1, 1000, 0, 7_000_000)


@check(calls(_COUNTS))
def check_fp16_bytes(answers):
    """The bytes of any number of FP16 values."""
    for count, got in zip(_COUNTS, answers, strict=True):
        same_value(got, 2.0 * count, call=f"fp16_bytes({count})", why="One FP16 value has 16 bits.")


@check_fp16_bytes.wrong(
    "every-float-has-four-bytes",
    "Four bytes are a float32. How many bits does the name FP16 promise?",
)
def _(count):
    return 4 * count


@check_fp16_bytes.wrong("bits-for-bytes", "That is the number of bits. How many bits has a byte?")
def _(count):
    return 16 * count


@check_fp16_bytes.wrong(
    "tensors-are-python-floats",
    "Eight bytes are a Python float, in double precision. What is stored in an FP16 tensor?",
)
def _(count):
    return 8 * count


@check_fp16_bytes.wrong(
    "one-value-is-a-tensor", "Your answer is the same for every count. Where is `count`?"
)
def _(count):
    return 2
