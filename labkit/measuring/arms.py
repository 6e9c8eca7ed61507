"""Arms that take turns: the paired rounds behind every comparison of times in the course.

In a round each arm runs once, in a shuffled order, so a machine that slows down slows them all.
The arm that the others are compared with takes part twice, and the ratio of its two times, round
by round, is the A/A control: what chance alone does. ``measure`` and ``benchmark`` both count this
way, and ``labkit.measuring.verdicts`` says what the ratios mean.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan
from statistics import quantiles
from typing import TypeVar

import torch

Given = TypeVar("Given")
Three = tuple[float, float, float]


def take_turns(
    arms: Sequence[Callable[[], Given]], *, seed: int = 0, on_turn: Callable[[], object]
) -> Iterator[tuple[Given, ...]]:
    """Rounds without end: what each arm gave, in the order of ``arms`` whatever order they ran in.

    Args:
        arms: called once a round each, in an order that is shuffled anew every round.
        seed: the same seed gives the same orders.
        on_turn: called after each arm, as by a progress bar.
    """
    shuffle, order = random.Random(seed).shuffle, list(range(len(arms)))
    while True:
        shuffle(order)
        given = {}
        for number in order:
            given[number] = arms[number]()
            on_turn()
        yield tuple(given[number] for number in range(len(arms)))


def synchronize(device: torch.device) -> None:
    """Wait for all that was launched on the device; a CPU has nothing in flight."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def ratio(part: float, whole: float) -> float:
    """One time over another; NaN where one of them is 0: the clock could not tell."""
    return part / whole if part and whole else nan


def quartiles(values: Sequence[float]) -> Three:
    """Lower quartile, median and upper quartile, interpolated; NaN without values or with a NaN."""
    if not values or any(map(isnan, values)):
        return nan, nan, nan
    if len(values) == 1:  # quantiles() of Python 3.11 and 3.12 wants two
        return (values[0],) * 3
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high
