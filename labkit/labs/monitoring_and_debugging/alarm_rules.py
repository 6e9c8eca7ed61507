"""Rules for a spike in a loss, each as a limit that is computed from the losses before it.

``SpikeAlarm`` and ``Monitor`` see one loss at a time; here whole runs are judged by numpy, so that
AlarmBench can try a rule on a hundred runs at each move of a slider.
"""

from typing import NamedTuple

import numpy as np

from labkit.measuring.monitor import MAD_TO_SIGMA

RULES = {
    "own": "mean, σ with the value itself",
    "mean": "mean, σ of those before",
    "log": "median, MAD of logs before",
    "median": "median, MAD of those before",
}


class Normal(NamedTuple):
    """Middle and width of the losses before each step; NaN where the window is not full."""

    middle: np.ndarray
    width: np.ndarray


def normal(losses: np.ndarray, rule: str, window: int) -> Normal:
    """What ``rule`` takes for normal at each step; a loss that is not finite is left out.

    Args:
        losses: float64, one run.
        rule: a key of ``RULES``; "own" takes the window - 1 losses before a step, since its window
            ends with the loss itself.
        window: how many losses.
    """
    finite = np.isfinite(losses)
    past = losses[finite]
    if rule == "log":
        past = np.log(np.maximum(past, np.finfo(np.float64).tiny))
    count = window - 1 if rule == "own" else window
    # The last window stands before the step after the run.
    windows = np.lib.stride_tricks.sliding_window_view(past, count)
    if rule in ("own", "mean"):
        middle = windows.mean(axis=1)
        width = windows.std(axis=1, ddof=0 if rule == "own" else 1)
    else:
        middle = np.median(windows, axis=1)
        width = MAD_TO_SIGMA * np.median(np.abs(windows - middle[:, None]), axis=1)
    # A step has the newest full window of finite losses before it.
    newest = np.cumsum(finite) - finite - count
    full = newest >= 0
    place = np.where(full, newest, 0)
    return Normal(*(np.where(full, each[place], np.nan) for each in (middle, width)))


def limits(past: Normal, *, rule: str, window: int, k: float, margin: float) -> np.ndarray:
    """The loss above which ``rule`` rings at each step; inf where it cannot ring.

    A loss rings where it lies more than k widths, and more than ``margin``, above the middle.
    """
    middle, width = past
    if rule == "log":
        limit = np.maximum(np.exp(middle + k * width), np.exp(middle) + margin)
    elif rule == "own":
        limit = middle + np.maximum(_own_reach(window, k) * width, margin * window / (window - 1))
    else:
        limit = middle + np.maximum(k * width, margin)
    return np.where(np.isnan(limit), np.inf, limit)


def _own_reach(window: int, k: float) -> float:
    """How many σ of the other values a value lies off them when it lies k σ off their mean with it.

    With d its distance from the mean of the others and s their σ, the mean of all n moves by d / n
    and the variance of all is (s**2 + d**2 / n) * (n - 1) / n. Solved for d / s; a value never lies
    more than sqrt(n - 1) σ off a mean that it is part of.
    """
    room = window - 1 - k * k
    return float(np.sqrt(window / room)) * k if room > 0 else np.inf


def alarms(losses: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Steps at which a loss is above its limit or not finite, and was not so one step before."""
    wrong = ~np.isfinite(losses) | (losses > limit)
    return np.flatnonzero(wrong & ~np.concatenate([[False], wrong[:-1]]))
