"""Checks of lab 99: say here what the lab's exercises are about."""

import numpy as np

from labkit.labs.engine import calls, check, same_value

LAB = "99_new_topic"  # the name of the notebook

# The inputs of one exercise. Each edge case that the exercise's text announces is among them, and
# so is an input on which each shortcut fails: a negative number, one that is not 2**n, a subnormal.
_GAP_INPUTS = (1.0, 0.75, 3.0, -3.0, 1000.0, 2.0**-15)


# `calls` runs the answer on each input, beside the answer. The function below is the judge: it sees
# only what came back. Its name is check_ and the exercise's id, with _ for -. The first line of its
# docstring is what a learner reads when the answer passes.
@check(calls(_GAP_INPUTS))
def check_gap(gaps):
    """The gap above a number in FP16."""
    for x, got in zip(_GAP_INPUTS, gaps, strict=True):
        # What is right is computed by somebody else: numpy, torch, exact fractions.
        want = abs(float(np.spacing(np.float16(x))))
        same_value(got, want, call=f"gap({x})")


# Known wrong answers, four at least for each exercise. Each names an idea of
# data/misconceptions.toml and asks its holder one question. A slip is the lab's solution with one
# change: `cut` takes text out of it, `swap` replaces text that stands in it exactly once.
check_gap.slip(
    "ulp-is-constant",
    "The answer is the same for every x. Which FP16 values lie between 1024 and 1032?",
    swap=("max(math.frexp(x)[1], -13) - 11", "-10"),
)
check_gap.slip(
    "gap-shrinks-below-normal",
    "Right in the normal range. Which exponent do all subnormals share?",
    swap=("max(math.frexp(x)[1], -13)", "math.frexp(x)[1]"),
)


# What is no small change of the solution is written out.
@check_gap.wrong("ulp-is-relative", "2.0 and 3.0 share one gap. What changes between them?")
def _(x):
    return 2.0**-10 * abs(x)


@check_gap.wrong("gap-below-is-gap-above", "Which neighbour of 1.0 is nearer, and which is asked?")
def _(x):
    below = np.nextafter(np.float16(abs(x)), np.float16(0))
    return abs(x) - float(below)
