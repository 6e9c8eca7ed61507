"""A cut of lab 02 that grades in seconds, and hidden checks for it."""

CUT = '''\
# %% [markdown]
# # 2. Build a number system
#
# Two exercises of lab 02 and an optional one.
#
# *any laptop · needs: nothing*

# %%
import math, torch
from labkit.labs.engine import predict, whose, yours
from labkit.labs.number_formats.checks import check_e2m1_value, check_eight_bits
from labkit.labs.number_formats import predictions as guesses
from labkit.labs.number_formats.checks import check_ulp
from labkit.formats import FP16, spacing

# %% predict="step-at-2048"
@predict(guesses.step_at_2048)
def step():
    return torch.tensor(2048, dtype=torch.float16) + 1

# %% [markdown]
# The gap at 2048 is 2.

# %% exercise="e2m1-value"
def e2m1_value(code: int) -> float:
    """The value of a four-bit E2M1 code."""
    ### BEGIN SOLUTION
    sign = -1.0 if code >> 3 else 1.0
    exponent, mantissa = code >> 1 & 0b11, code & 1
    if exponent == 0:
        return sign * (mantissa / 2)
    return sign * (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    ### END SOLUTION

# %% check="e2m1-value" points=1
check_e2m1_value(e2m1_value)

# %% exercise="ulp"
def ulp(x: float) -> float:
    """Gap between |x| and the next larger FP16 value."""
    ### BEGIN SOLUTION
    exponent = math.frexp(x)[1] - 1 if x else -14
    return 2.0 ** (max(exponent, -14) - 10)
    ### END SOLUTION

# %% check="ulp" points=2 seconds=4
check_ulp(ulp)

# %%
gap = yours(ulp, lambda x: spacing(x, FP16))
print(f"{whose(gap)} gap above 3 is {gap(3.0)}")

# %% exercise="eight-bits"
eight_bits = ...
### BEGIN SOLUTION
eight_bits = dict(exponent_bits=5, mantissa_bits=2, bias=38)
### END SOLUTION

# %% check="eight-bits" points=0
check_eight_bits(eight_bits)
'''

EXTRA = '''\
"""An instructor's own check of the gap, on numbers that differ from student to student."""

import random

from labkit.labs.engine import attempt, check, same_value
from labkit.formats import FP16, spacing

LAB = "02_number_formats"
POINTS = {"ulp": 3}


def inputs(seed):
    draw = random.Random(seed).uniform
    return [0.0, 2.0**-20, *(draw(-60000, 60000) for _ in range(20))]


def run_ulp(ulp, seed):
    return [attempt(ulp, x) for x in inputs(seed)]


@check(run_ulp)
def check_ulp(gaps, seed):
    """The gap above numbers that you had not seen."""
    for x, gap in zip(inputs(seed), gaps, strict=True):
        same_value(gap, spacing(x, FP16), call=f"ulp({x})")
'''
