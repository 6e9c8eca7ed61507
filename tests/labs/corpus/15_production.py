# Answers to lab 15 that the author of its checks had not foreseen: see tests/corpus.py.

import copy
import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import statistics
import struct
import zipfile
import zlib
from collections import defaultdict, namedtuple
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from labkit.labs.production.run_plan import Plan


class Counting:
    """The constructor that the gate's exercise gives."""

    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0


# %% right ship: numpy, seeds in order
def ship(reference, candidate, margin, t):
    if sorted(reference) != sorted(candidate) or len(reference) < 2:
        raise ValueError("seeds")
    seeds = sorted(reference)
    ref = np.array([reference[s] for s in seeds])
    cand = np.array([candidate[s] for s in seeds])
    if np.isnan(ref).any():
        return "hold"
    if np.isnan(cand).any():
        return "reject"
    d = cand - ref
    se = d.std(ddof=1) / np.sqrt(len(d))
    low, high = d.mean() - t * se, d.mean() + t * se
    return "ship" if low > -margin else "reject" if high < -margin else "hold"


# %% right ship: torch in float32
def ship(reference, candidate, margin, t):
    if set(reference) ^ set(candidate) or len(candidate) <= 1:
        raise ValueError
    r = torch.tensor(list(reference.values()))
    c = torch.tensor([candidate[s] for s in reference])
    if r.isnan().any():
        return "hold"
    if c.isnan().any():
        return "reject"
    d = c - r + margin
    t_value = d.mean() / (d.std() / len(d) ** 0.5)
    if d.std() == 0:
        return "ship" if d.mean() > 0 else "reject"
    if t_value > t:
        return "ship"
    return "reject" if t_value < -t else "hold"


# %% right ship: sums by hand, StatisticsError for one pair
def ship(reference, candidate, margin, t):
    for seed in reference:
        if seed not in candidate:
            raise ValueError(f"seed {seed}")
    if len(candidate) > len(reference):
        raise ValueError("too many")
    if not reference:
        raise ValueError("nothing")
    dead_reference = [s for s, x in reference.items() if x != x]
    dead_candidate = [s for s, x in candidate.items() if x != x]
    if len(reference) == 1:
        statistics.stdev([1.0])
    if dead_reference:
        return "hold"
    if dead_candidate:
        return "reject"
    n, total, squares = 0, 0.0, 0.0
    for seed, score in candidate.items():
        n += 1
        total += score - reference[seed]
    mean = total / n
    for seed, score in candidate.items():
        squares += (score - reference[seed] - mean) ** 2
    half = t * (squares / (n - 1) / n) ** 0.5
    decision = "hold"
    if mean - half > -margin:
        decision = "ship"
    elif mean + half < -margin:
        decision = "reject"
    return decision


# %% right ship: a helper, losses instead of scores, capitals
def ship(reference, candidate, margin, t):
    if reference.keys() != candidate.keys() or len(reference) < 2:
        raise ValueError("pairs")

    def crashed(arm):
        return any(math.isnan(score) for score in arm.values())

    if crashed(reference):
        return "Hold"
    if crashed(candidate):
        return "Reject"
    losses = [reference[s] - candidate[s] for s in candidate]
    middle, reach = fmean(losses), t * stdev(losses) / math.sqrt(len(losses))
    if middle + reach < margin:
        return "Ship"
    return "Reject" if middle - reach > margin else "Hold"


# %% right ship: pandas
def ship(reference, candidate, margin, t):
    import pandas as pd

    if set(reference) != set(candidate) or len(reference) < 2:
        raise ValueError("pairs")
    both = pd.DataFrame({"r": reference, "c": candidate})
    if both.r.isna().any():
        return "hold"
    if both.c.isna().any():
        return "reject"
    d = both.c - both.r
    if d.mean() - t * d.sem() > -margin:
        return "ship"
    if d.mean() + t * d.sem() < -margin:
        return "reject"
    return "hold"


# %% right ship: one expression for the interval, match on signs
def ship(reference, candidate, margin, t):
    if len({*reference, *candidate}) != len(reference) or len(reference) != len(candidate):
        raise ValueError("other seeds")
    if len(reference) < 2:
        raise ValueError("one pair")
    scores = [*reference.values()]
    if math.isnan(sum(scores)):
        return "hold"
    if math.isnan(sum(candidate.values())):
        return "reject"
    d = np.subtract([candidate[s] for s in reference], scores)
    ends = d.mean() + np.array([-1, 1]) * t * np.std(d, ddof=1) / len(d) ** 0.5
    return {(True, True): "ship", (False, False): "reject"}.get(
        tuple((ends > -margin).tolist()), "hold"
    )


# %% wrong ship: 1.96 for every number of pairs, and an error of the learner's own words
#    idea: three-runs-are-many
def ship(reference, candidate, margin, t):
    if len(reference) < 2 or sorted(reference) != sorted(candidate):
        raise ValueError(f"cannot pair {len(reference)} runs with {len(candidate)} others")
    if any(map(math.isnan, reference.values())):
        return "hold"
    if any(map(math.isnan, candidate.values())):
        return "reject"
    gains = [candidate[seed] - reference[seed] for seed in reference]
    mean, half = statistics.mean(gains), 1.96 * statistics.stdev(gains) / len(gains) ** 0.5
    if mean - half > -margin:
        return "ship"
    return "reject" if mean + half < -margin else "hold"


# %% wrong ship: 1.645, one side at 5 %
#    idea: three-runs-are-many
def ship(reference, candidate, margin, t):
    return ours.ship(reference, candidate, margin, min(t, 1.645))


# %% wrong ship: 2 for every number of pairs
#    idea: three-runs-are-many
def ship(reference, candidate, margin, t):
    return ours.ship(reference, candidate, margin, 2.0)


# %% wrong ship: numpy's standard deviation
#    says: a standard deviation that divides by n
ship = changed("stdev(gains)", "__import__('numpy').std(gains)")


# %% wrong ship: the root of n - 1
#    says: s over the root of n - 1
ship = changed("math.sqrt(len(gains))", "math.sqrt(len(gains) - 1)")


# %% wrong ship: divided by n
#    says: s over n;
ship = changed("math.sqrt(len(gains))", "len(gains)")


# %% wrong ship: no t
#    says: an interval without t
ship = changed("half = t *", "half =")


# %% wrong ship: a NaN is never compared as True
#    says: run of seed 4 crashed
ship = changed("not all(map(math.isfinite, candidate.values()))", "False")


# %% wrong ship: NaN by "in", which finds one object only
#    says: run of seed 4 crashed
ship = changed(
    "not all(map(math.isfinite, reference.values()))",
    "math.nan in reference.values()",
    "not all(map(math.isfinite, candidate.values()))",
    "math.nan in candidate.values()",
)


# %% wrong ship: crashes before errors
#    says: a ValueError is wanted
def ship(reference, candidate, margin, t):
    if any(map(math.isnan, reference.values())):
        return "hold"
    if any(map(math.isnan, candidate.values())):
        return "reject"
    return ours.ship(reference, candidate, margin, t)


# %% wrong ship: the candidate's crash first
#    says: both runs of a seed crashed
#    says: The reference's run of seed 3 crashed
ship = changed(
    'if not all(map(math.isfinite, reference.values())):\n        return "hold"\n    '
    'if not all(map(math.isfinite, candidate.values())):\n        return "reject"',
    'if not all(map(math.isfinite, candidate.values())):\n        return "reject"\n    '
    'if not all(map(math.isfinite, reference.values())):\n        return "hold"',
)


# %% wrong ship: any crash holds
#    says: The candidate's run of seed 4 crashed
ship = changed('return "reject"\n    gains', 'return "hold"\n    gains')


# %% wrong ship: any crash rejects
#    says: The reference's run of seed 1 crashed
ship = changed(
    'math.isfinite, reference.values())):\n        return "hold"',
    'math.isfinite, reference.values())):\n        return "reject"',
)


# %% wrong ship: a crash is a score of 0
#    says: The candidate's run of seed 4 crashed
def ship(reference, candidate, margin, t):
    filled = [{s: 0.0 if x != x else x for s, x in arm.items()} for arm in (reference, candidate)]
    return ours.ship(*filled, margin, t)


# %% wrong ship: numpy's nanmean
#    idea: crashed-runs-are-missing-data
def ship(reference, candidate, margin, t):
    if set(reference) != set(candidate) or len(reference) < 2:
        raise ValueError("pairs")
    d = np.array([candidate[s] - reference[s] for s in reference])
    half = t * np.nanstd(d, ddof=1) / np.sqrt(len(d))
    if np.nanmean(d) - half > -margin:
        return "ship"
    return "reject" if np.nanmean(d) + half < -margin else "hold"


# %% wrong ship: no look at the seeds
#    says: raised KeyError
#    says: a ValueError is wanted
ship = changed(" or reference.keys() != candidate.keys()", "")


# %% wrong ship: as many seeds are the same seeds
#    says: other seeds:
#    says: Of seed 4 only the reference has a score
ship = changed("reference.keys() != candidate.keys()", "len(reference) != len(candidate)")


# %% wrong ship: one pair may hold
#    says: One pair has no standard deviation
def ship(reference, candidate, margin, t):
    if set(reference) != set(candidate):
        raise ValueError("seeds")
    if len(reference) < 2:
        return "hold"
    return ours.ship(reference, candidate, margin, t)


# %% wrong ship: at least three pairs
#    says: two pairs:
#    says: hold is wanted
ship = changed("len(reference) < 2", "len(reference) < 3")


# %% wrong ship: assert instead of raise
#    says: raised AssertionError
#    says: a ValueError is wanted
def ship(reference, candidate, margin, t):
    assert len(reference) >= 2 and reference.keys() == candidate.keys()
    return ours.ship(reference, candidate, margin, t)


# %% wrong ship: a relative margin
#    says: just
#    says: a share of the reference's score; the margin is a drop of the score itself
ship = changed("gains = [", "margin *= abs(fmean(reference.values()))\n    gains = [")


# %% wrong ship: relative differences
#    says: just
#    says: a share of the reference's score; the margin is a drop of the score itself
ship = changed(
    "candidate[seed] - reference[seed]",
    "(candidate[seed] - reference[seed]) / abs(reference[seed])",
)


# %% wrong ship: no spread, ship
#    says: the same drop in all pairs
#    says: their interval goes from -0.125 to -0.125, and -margin is -0.01
#    never: Your words
ship = changed(
    "half = t * stdev(gains) / math.sqrt(len(gains))",
    "half = t * stdev(gains) / math.sqrt(len(gains))\n"
    '    if half < 1e-12:\n        return "ship"',
)


# %% wrong ship: no spread, hold
#    says: is hold; ship is wanted
ship = changed("if fmean(gains) - half", 'if half < 1e-12:\n        return "hold"\n    if fmean(gains) - half')


# %% wrong ship: two pairs must be left after the crashes
#    says: two pairs, and a candidate's run that crashed
#    says: reject is wanted
#    says: A pair with a crashed run counts as a pair: here are 2.
ship = changed(
    "len(reference) < 2",
    "sum(math.isfinite(reference[s] + candidate.get(s, 0)) for s in reference) < 2",
)


# %% wrong ship: two runs of the reference must be left
#    says: two pairs, and a reference run that crashed
#    says: hold is wanted
#    says: A pair with a crashed run counts as a pair: here are 2.
ship = changed("len(reference) < 2", "sum(map(math.isfinite, reference.values())) < 2")


# %% wrong ship: against 0
#    says: -margin is -0.01: all of the interval lies above it
ship = changed("- half > -margin", "- half > 0")


# %% wrong ship: +margin
#    says: is reject; ship is wanted
#    says: -margin is -0.01: all of the interval lies above it
ship = changed("- half > -margin", "- half > margin", "+ half < -margin", "+ half < margin")


# %% wrong ship: the median
#    says: one pair far below the others
#    says: have mean -0.0044
def ship(reference, candidate, margin, t):
    if len(reference) < 2 or reference.keys() != candidate.keys():
        raise ValueError("pairs")
    if any(x != x for x in reference.values()):
        return "hold"
    if any(x != x for x in candidate.values()):
        return "reject"
    gains = [candidate[seed] - reference[seed] for seed in reference]
    middle, half = statistics.median(gains), t * stdev(gains) / math.sqrt(len(gains))
    if middle - half > -margin:
        return "ship"
    return "reject" if middle + half < -margin else "hold"


# %% wrong ship: sorted by score
#    says: the same scores for other seeds
#    says: have mean 0
ship = changed(
    "[candidate[seed] - reference[seed] for seed in reference]",
    "[c - r for c, r in zip(sorted(candidate.values()), sorted(reference.values()))]",
)


# %% wrong ship: Welch's error, unpaired
#    idea: pairs-need-no-pairing
ship = changed(
    "stdev(gains) / math.sqrt(len(gains))",
    "math.sqrt((stdev(reference.values()) ** 2 + stdev(candidate.values()) ** 2) / len(gains))",
)


# %% wrong ship: forgotten hold
#    says: returns None
ship = changed(
    'return "reject" if fmean(gains) + half < -margin else "hold"',
    'if fmean(gains) + half < -margin:\n        return "reject"',
)


# %% wrong ship: True or False
#    says: one of ship, reject, hold
ship = changed(
    'return "reject" if fmean(gains) + half < -margin else "hold"',
    "return False",
    '> -margin:\n        return "ship"',
    "> -margin:\n        return True",
)


# %% wrong ship: more than nine in ten pairs
#    idea: each-pair-must-stay-within
def ship(reference, candidate, margin, t):
    ours.ship(reference, candidate, margin, t)
    if any(math.isnan(x) for x in reference.values()):
        return "hold"
    if any(math.isnan(x) for x in candidate.values()):
        return "reject"
    within = [candidate[s] - reference[s] > -margin for s in reference]
    share = sum(within) / len(within)
    return "ship" if share > 0.9 else "reject" if share < 0.1 else "hold"


# %% wrong ship: seed by seed, the first crash decides
#    says: The reference's run of seed 4 crashed
def ship(reference, candidate, margin, t):
    if set(reference) != set(candidate) or len(reference) < 2:
        raise ValueError
    gains = []
    for seed in reference:
        if math.isnan(reference[seed]):
            return "hold"
        if math.isnan(candidate[seed]):
            return "reject"
        gains.append(candidate[seed] - reference[seed])
    half = t * stdev(gains) / math.sqrt(len(gains))
    if fmean(gains) - half > -margin:
        return "ship"
    return "reject" if fmean(gains) + half < -margin else "hold"


# %% right gate: betting, Laplace's rule
class Gate(Counting):
    log = 0.0

    def see(self, reference_right, candidate_right):
        if reference_right != candidate_right:
            won = self.worse if reference_right else self.better
            self.log += math.log(2 * (won + 1) / (self.worse + self.better + 2))
            self.worse += reference_right
            self.better += candidate_right
        return self.worse > self.better and self.log >= math.log(1 / self.alpha)


# %% right gate: whole numbers
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right and not candidate_right:
            self.worse += 1
        elif candidate_right and not reference_right:
            self.better += 1
        n = self.worse + self.better
        if self.worse <= self.better:
            return False
        return 2**n * Fraction(str(self.alpha)) >= (n + 1) * math.comb(n, self.worse)


# %% right gate: torch in float32
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += int(reference_right > candidate_right)
        self.better += int(candidate_right > reference_right)
        w, b = torch.tensor(float(self.worse)), torch.tensor(float(self.better))
        log_e = (
            (w + b) * math.log(2)
            + torch.lgamma(w + 1)
            + torch.lgamma(b + 1)
            - torch.lgamma(w + b + 2)
        )
        return (w > b) & (log_e >= math.log(1 / self.alpha))


# %% right gate: Python's exact division, early returns
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right == candidate_right:
            return False
        if candidate_right:
            self.better += 1
            return False
        self.worse += 1
        if self.worse <= self.better:
            return False
        n = self.worse + self.better
        e = 2**n * math.factorial(self.worse) * math.factorial(self.better) / math.factorial(n + 1)
        return e >= 1 / self.alpha


# %% right gate: sums of logarithms, a list of flips, numpy's bool
class Gate:
    def __init__(self, alpha=0.05):
        self.flips, self.limit = [], -np.log(alpha)

    def see(self, reference_right, candidate_right):
        if reference_right is not candidate_right:
            self.flips.append(reference_right)
        n, w = len(self.flips), sum(self.flips)
        logs = np.concatenate([[0.0], np.log(np.arange(1, n + 2))]).cumsum()
        return (
            np.bool_(2 * w > n)
            and n * np.log(2) + logs[w] + logs[n - w] - logs[n + 1] >= self.limit
        )


# %% right gate: 0 and 1, and a rollback that lasts
class Gate(Counting):
    done = False

    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        n = self.worse + self.better
        log_e = n * math.log(2) - math.log(n + 1) - math.log(math.comb(n, self.worse))
        self.done = self.done or (
            n and self.worse > self.better and log_e >= math.log(1 / self.alpha)
        )
        return int(self.done)


# %% right gate: numpy's logaddexp over a grid is not used; scipy-free betaln
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        match (reference_right, candidate_right):
            case (True, False):
                self.worse += 1
            case (False, True):
                self.better += 1
        w, b = self.worse, self.better
        betaln = math.lgamma(w + 1) + math.lgamma(b + 1) - math.lgamma(w + b + 2)
        return w > b and betaln / math.log(2) + w + b >= math.log2(1 / self.alpha)


# %% wrong gate: an exact binomial test after each request
#    says: A test with one look would have p = 0.03125
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right > candidate_right
        self.better += candidate_right > reference_right
        n = self.worse + self.better
        if n > 400:
            return False
        p = sum(math.comb(n, k) for k in range(self.worse, n + 1)) / 2**n
        return p < self.alpha


# %% wrong gate: a test of two proportions
#    says: E is 28.44 and 1/alpha is 20
class Gate(Counting):
    n = 0

    def see(self, reference_right, candidate_right):
        self.n += 1
        self.worse += not candidate_right
        self.better += not reference_right
        p = (self.worse + self.better) / (2 * self.n)
        error = math.sqrt(2 * p * (1 - p) / self.n)
        return self.n >= 30 and error > 0 and (self.worse - self.better) / self.n / error > 1.645


# %% wrong gate: 20 % more errors
#    says: E is 28.44 and 1/alpha is 20
class Gate(Counting):
    n = 0

    def see(self, reference_right, candidate_right):
        self.n += 1
        self.worse += not candidate_right
        self.better += not reference_right
        return self.n >= 50 and self.worse > 1.2 * self.better


# %% wrong gate: three in a row
#    says: is True
#    says: E is 2, below 1/alpha = 20
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right and not candidate_right:
            self.worse += 1
        elif candidate_right:
            self.worse = 0
        return self.worse >= 3


# %% wrong gate: five in a row
#    says: E is 5.333, below
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right and not candidate_right:
            self.worse += 1
        elif candidate_right:
            self.worse = 0
        return self.worse >= 5


# %% wrong gate: counts on the class
#    says: ten in a row, by another gate, alpha = 0.05: at request 1, `see(True, False)` is True
#    says: With what does a new gate begin?
class Gate:
    worse = better = 0

    def __init__(self, alpha=0.05):
        self.alpha = alpha

    def see(self, reference_right, candidate_right):
        Gate.worse += reference_right and not candidate_right
        Gate.better += candidate_right and not reference_right
        n = self.worse + self.better
        log_e = (
            n * math.log(2)
            + math.lgamma(self.worse + 1)
            + math.lgamma(self.better + 1)
            - math.lgamma(n + 2)
        )
        return self.worse > self.better and log_e >= -math.log(self.alpha)


# %% wrong gate: n! for (n + 1)!
#    says: with n! in place of (n + 1)!
Gate = changed("math.lgamma(n + 2)", "math.lgamma(n + 1)")


# %% wrong gate: lgamma(k) for k!
#    says: E is 28.44 and 1/alpha is 20
Gate = changed("math.lgamma(self.worse + 1)", "math.lgamma(self.worse)")


# %% wrong gate: both factorials one off
#    says: E is 20.84 and 1/alpha is 20
Gate = changed(
    "math.lgamma(self.worse + 1)",
    "math.lgamma(self.worse or 1)",
    "math.lgamma(self.better + 1)",
    "math.lgamma(self.better or 1)",
    "math.lgamma(n + 2)",
    "math.lgamma(n + 1)",
)


# %% wrong gate: log E against 1/alpha
#    says: E is 28.44 and 1/alpha is 20
Gate = changed("log_e >= -math.log(self.alpha)", "log_e >= 1 / self.alpha")


# %% wrong gate: E without logarithm against the logarithm
#    says: E is 3.2, below 1/alpha = 20
Gate = changed("log_e >= -math.log(self.alpha)", "math.exp(log_e) >= -math.log(self.alpha)")


# %% wrong gate: E against 1 - alpha
#    says: E is 1, below 1/alpha = 20
Gate = changed("log_e >= -math.log(self.alpha)", "math.exp(log_e) >= 1 - self.alpha")


# %% wrong gate: 0.05 for every alpha
#    says: E is 28.44, below 1/alpha = 1000
Gate = changed("-math.log(self.alpha)", "math.log(20)")


# %% wrong gate: the logarithm base 10
#    says: E is 28.44 and 1/alpha is 20
Gate = changed("n * math.log(2)", "n * math.log10(2)")


# %% wrong gate: worse and better exchanged
#    says: the reference alone was right on 8
#    says: so True is wanted
Gate = changed(
    "self.worse += bool(reference_right and not candidate_right)",
    "self.worse += bool(candidate_right and not reference_right)",
    "self.better += bool(candidate_right and not reference_right)",
    "self.better += bool(reference_right and not candidate_right)",
)


# %% wrong gate: n is all requests
#    idea: agreements-are-evidence
class Gate(Counting):
    n = 0

    def see(self, reference_right, candidate_right):
        self.n += 1
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        log_e = (
            self.n * math.log(2)
            + math.lgamma(self.worse + 1)
            + math.lgamma(self.better + 1)
            - math.lgamma(self.n + 2)
        )
        return self.worse > self.better and log_e >= -math.log(self.alpha)


# %% wrong gate: the integral forgotten
#    says: E is 5.333, below
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        return 2 ** (self.worse - self.better) >= 1 / self.alpha


# %% wrong gate: a simple alternative of 60 %
#    says: E is 28.44 and 1/alpha is 20
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        return self.worse * math.log(1.2) + self.better * math.log(0.8) >= -math.log(self.alpha)


# %% wrong gate: a product of floats that overflows
#    says: the range of a float ends
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        n = self.worse + self.better
        e = np.float64(2) ** n * np.exp(
            math.lgamma(self.worse + 1) + math.lgamma(self.better + 1) - math.lgamma(n + 2)
        )
        return self.worse > self.better and e >= 1 / self.alpha


# %% wrong gate: a running product, which only an E beyond 1e308 makes infinite
#    says: 1,100 better, then 1,101 worse, alpha = 0.05: at request 2201
#    says: At request 1100 of this stream the logarithm of E was 755.5
#    never: 2**n
class Gate(Counting):
    e = 1.0

    def see(self, reference_right, candidate_right):
        if reference_right == candidate_right:
            return False
        self.worse += reference_right
        self.better += candidate_right
        newest = self.worse if reference_right else self.better
        self.e *= 2 * newest / (self.worse + self.better + 1)
        return self.worse > self.better and self.e >= 1 / self.alpha


# %% wrong gate: whole numbers that are divided at the end
#    says: 1,100 better, then 1,101 worse
#    says: raised OverflowError
#    says: Here E itself is beyond the range of a float, and its logarithm is
#    never: and E does not
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right == candidate_right:
            return False
        self.worse += reference_right
        self.better += candidate_right
        n = self.worse + self.better
        e = 2**n * math.factorial(self.worse) * math.factorial(self.better) / math.factorial(n + 1)
        return e >= 1 / self.alpha and self.worse > self.better


# %% wrong gate: the exponential of the logarithm
#    says: Here E itself is beyond the range of a float, and its logarithm is
Gate = changed(
    "self.worse > self.better and log_e >= -math.log(self.alpha)",
    "math.exp(log_e) >= 1 / self.alpha and self.worse > self.better",
)


# %% wrong gate: an overflow of E is an alarm
#    says: 1,100 better, then 1,101 worse, alpha = 0.05: at request 1035, `see(False, True)` is True
#    says: E is about 10**309, but the candidate has lost no more than half of the disagreements
class Gate(ours.Gate):
    def see(self, reference_right, candidate_right):
        alarm = super().see(reference_right, candidate_right)
        n = self.worse + self.better
        try:
            2**n * math.factorial(self.worse) * math.factorial(self.better) / math.factorial(n + 1)
        except OverflowError:
            return True
        return alarm


# %% wrong gate: an overflow counts as no alarm
#    says: 520 against 520, then worse
#    says: Your gate never alarms in this stream. From n = 1024 on, 2**n is beyond the range of a float
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        if reference_right != candidate_right:
            self.worse += reference_right
            self.better += candidate_right
        w, b = self.worse, self.better
        try:
            beta = math.exp(math.lgamma(w + 1) + math.lgamma(b + 1) - math.lgamma(w + b + 2))
            e = 2.0 ** (w + b) * beta
        except OverflowError:
            return False
        return e >= 1 / self.alpha and w > b


# %% wrong gate: the window of the last 1,000
#    says: E is 8.575, below 1/alpha = 20. In the shorter streams before this one your gate is right.
#    never: 2**n
#    never: one look
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.last = alpha, []

    def see(self, reference_right, candidate_right):
        if reference_right != candidate_right:
            self.last = (self.last + [reference_right])[-1000:]
        n, w = len(self.last), sum(self.last)
        e = 2**n * math.factorial(w) * math.factorial(n - w) / math.factorial(n + 1)
        return e >= 1 / self.alpha and w > n - w


# %% wrong gate: one list of counts for all gates
#    says: With what does a new gate begin?
class Gate:
    def __init__(self, alpha=0.05, counts=[0, 0]):
        self.alpha, self.counts = alpha, counts

    def see(self, reference_right, candidate_right):
        if reference_right != candidate_right:
            self.counts[int(candidate_right)] += 1
        log_e = math.log(2) * sum(self.counts) - math.lgamma(sum(self.counts) + 2)
        log_e += sum(math.lgamma(count + 1) for count in self.counts)
        return self.counts[0] > self.counts[1] and log_e >= -math.log(self.alpha)


# %% wrong gate: True where nothing is wrong
#    says: two models that agree, alpha = 0.05: at request 1,
#    never: a new gate
class Gate(ours.Gate):
    def see(self, reference_right, candidate_right):
        return reference_right == candidate_right or super().see(reference_right, candidate_right)


# %% wrong gate: math.gamma
#    says: leave the range of a float
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        n = self.worse + self.better
        e = 2**n * math.gamma(self.worse + 1) * math.gamma(self.better + 1) / math.gamma(n + 2)
        return self.worse > self.better and e >= 1 / self.alpha


# %% wrong gate: at least 100 disagreements
#    says: E is 28.44 and 1/alpha is 20
class Gate(ours.Gate):
    def see(self, reference_right, candidate_right):
        alarm = super().see(reference_right, candidate_right)
        return alarm and self.worse + self.better >= 100


# %% wrong gate: no return
#    says: returns None
class Gate(ours.Gate):
    def see(self, reference_right, candidate_right):
        super().see(reference_right, candidate_right)


# %% wrong gate: E itself
#    says: True or False is asked for
class Gate(Counting):
    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        n = self.worse + self.better
        return 2.0**n / (n + 1) / math.comb(n, self.worse)


# %% wrong gate: a window of 100 requests
#    says: below 1/alpha = 20
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.last = alpha, []

    def see(self, reference_right, candidate_right):
        self.last = [*self.last[-99:], (reference_right, candidate_right)]
        gate = ours.Gate(self.alpha)
        return [gate.see(*one) for one in self.last][-1]


# %% wrong gate: half of alpha for each side
#    says: where E reaches 2/alpha
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        w, b = self.worse, self.better
        n = w + b
        log_e = n * math.log(2) + math.lgamma(w + 1) + math.lgamma(b + 1) - math.lgamma(n + 2)
        return log_e >= math.log(2 / self.alpha) and w > b


# %% wrong gate: asks before it counts
#    says: come one request late
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right, candidate_right):
        w, b = self.worse, self.better
        n = w + b
        log_e = n * math.log(2) + math.lgamma(w + 1) + math.lgamma(b + 1) - math.lgamma(n + 2)
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        return log_e >= -math.log(self.alpha) and w > b


# %% wrong gate: an overflow counts as a large E
#    says: the range of a float ends
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        w, b = self.worse, self.better
        n = w + b
        try:
            e = 2.0**n / ((n + 1) * math.comb(n, w))
        except OverflowError:
            e = math.inf
        return e >= 1 / self.alpha and w > b


# %% wrong gate: starts again when the evidence is gone
#    never: one look
class Gate:
    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right, candidate_right):
        self.worse += reference_right and not candidate_right
        self.better += candidate_right and not reference_right
        w, b = self.worse, self.better
        n = w + b
        log_e = n * math.log(2) + math.lgamma(w + 1) + math.lgamma(b + 1) - math.lgamma(n + 2)
        if log_e < 0:
            self.worse = self.better = 0
        return log_e >= -math.log(self.alpha) and w > b


# %% right experiment: arms outside, seeds inside
def experiment(arms, seeds, make, batches, fit, score):
    table = {}
    for arm in arms:
        table[arm] = {}
        for seed in seeds:
            torch.manual_seed(seed)
            network = make()
            loader = batches(seed)
            fit(network, loader, arm)
            table[arm][seed] = score(network)
    return table


# %% right experiment: comprehensions and a helper
def experiment(arms, seeds, make, batches, fit, score):
    def run(arm, seed):
        torch.random.manual_seed(seed)
        model = make()
        fit(model, batches(seed), arm)
        return score(model)

    return {arm: {seed: run(arm, seed) for seed in seeds} for arm in arms}


# %% right experiment: copies of one model, and a seed for each fit
def experiment(arms, seeds, make, batches, fit, score):
    results = defaultdict(dict)
    for seed in seeds:
        torch.manual_seed(seed)
        start = make()
        for arm in arms:
            model = copy.deepcopy(start)
            torch.manual_seed(seed + 1)
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results


# %% right experiment: batches kept in a list
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        data = list(batches(seed))
        for arm in arms:
            torch.manual_seed(seed)
            model = make()
            fit(model, data, arm)
            results[arm][seed] = score(model)
    return results


# %% right experiment: the state of the random numbers is put back
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: dict.fromkeys(seeds) for arm in arms}
    for seed in sorted(seeds):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        for arm in reversed(arms):
            torch.set_rng_state(state)
            model = make()
            fit(model, batches(seed), arm)
            results[arm][seed] = torch.tensor(score(model), dtype=torch.float64)
    return results


# %% right experiment: fork_rng, saved weights
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            weights = make().state_dict()
            weights = {name: value.clone() for name, value in weights.items()}
        for arm in arms:
            model = make()
            model.load_state_dict(weights)
            with torch.random.fork_rng():
                torch.manual_seed(10_000 + seed)
                fit(model, batches(seed), arm)
            results[arm] |= {seed: np.float64(score(model))}
    return results


# %% right experiment: numpy and random are seeded too
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        for arm in arms:
            random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
            data, model = batches(seed), None
            model = make()
            fit(model, data, arm)
            results[arm][seed] = float(score(model))
    return results


# %% wrong experiment: one model for everything
#    idea: arms-may-share-a-model
def experiment(arms, seeds, make, batches, fit, score):
    model = make()
    results = {arm: {} for arm in arms}
    for seed in seeds:
        for arm in arms:
            torch.manual_seed(seed)
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results


# %% wrong experiment: one model for each arm
#    says: They started from different weights
def experiment(arms, seeds, make, batches, fit, score):
    results = {}
    for arm in arms:
        torch.manual_seed(0)
        model = make()
        results[arm] = {}
        for seed in seeds:
            torch.manual_seed(seed)
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results


# %% wrong experiment: deepcopy without a seed for fit
#    idea: equal-weights-are-equal-runs
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        torch.manual_seed(seed)
        start = make()
        for arm in arms:
            model = copy.deepcopy(start)
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results


# %% wrong experiment: no seed at all
#    says: When make was called for them
experiment = changed("torch.manual_seed(seed)\n            ", "")


# %% wrong experiment: seeded once, at the start
#    says: When make was called for them
def experiment(arms, seeds, make, batches, fit, score):
    torch.manual_seed(0)
    return {
        arm: {
            seed: score(model)
            for seed in seeds
            for model in [make()]
            if fit(model, batches(seed), arm) is None
        }
        for arm in arms
    }


# %% wrong experiment: seeded after make
#    says: When make was called for them
experiment = changed(
    "torch.manual_seed(seed)\n            model = make()",
    "model = make()\n            torch.manual_seed(seed)",
)


# %% wrong experiment: seeded once for a seed, both arms draw on
#    says: When make was called for them
experiment = changed(
    "for arm in arms:\n            torch.manual_seed(seed)\n",
    "torch.manual_seed(seed)\n        for arm in arms:\n",
)


# %% wrong experiment: Python's seed only
#    says: When make was called for them
experiment = changed("torch.manual_seed(seed)", "__import__('random').seed(seed)")


# %% wrong experiment: always seed 0
#    says: start from the same weights
experiment = changed("torch.manual_seed(seed)", "torch.manual_seed(0)")


# %% wrong experiment: the same batches for all seeds
#    says: get the same batches
experiment = changed("batches(seed)", "batches(0)")


# %% wrong experiment: one loader of the first seed
#    says: the same weights, but got different batches
experiment = changed(
    "for seed in seeds:",
    "loader = batches(seeds[0])\n    for seed in seeds:",
    "batches(seed), arm",
    "loader, arm",
)


# %% wrong experiment: an iterator that is read twice
#    says: got 6 batches and "fp32 again" 0
experiment = changed(
    "for arm in arms:\n            torch",
    "data = iter(batches(seed))\n        for arm in arms:\n            torch",
    "fit(model, batches(seed), arm)",
    "fit(model, data, arm)",
)


# %% wrong experiment: the seed hangs on the arm's name
#    says: When make was called for them
experiment = changed("torch.manual_seed(seed)", "torch.manual_seed(seed + len(arm))")


# %% wrong experiment: the data's seed hangs on the arm
#    says: the same weights, but got different batches
experiment = changed("batches(seed)", "batches(seed + len(arm))")


# %% wrong experiment: NaN becomes 0
#    says: is 0.0, and score gave nan
experiment = changed(
    "results[arm][seed] = score(model)",
    "value = score(model)\n            results[arm][seed] = value if value == value else 0.0",
)


# %% wrong experiment: a crashed run is tried again
#    says: fit was called 7 times; 6 are asked for
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        for arm in arms:
            for again in range(3):
                torch.manual_seed(seed + 10_000 * again)
                model = make()
                fit(model, batches(seed), arm)
                results[arm][seed] = score(model)
                if results[arm][seed] == results[arm][seed]:
                    break
    return results


# %% wrong experiment: only arms without a crash
#    says: a dict with "fp32" and "fp16, scale 2**24" is asked for
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    return {arm: row for arm, row in results.items() if all(x == x for x in row.values())}


# %% wrong experiment: pairs with a crash are left out of both arms
#    idea: crashed-runs-are-missing-data
#    says: is in neither arm's table
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    alive = [s for s in seeds if all(results[arm][s] == results[arm][s] for arm in arms)]
    return {arm: {s: results[arm][s] for s in alive} for arm in arms}


# %% wrong experiment: seed first, arm second
#    says: a dict with "fp32" and "fp32 again" is asked for
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    return {seed: {arm: results[arm][seed] for arm in arms} for seed in seeds}


# %% wrong experiment: lists for dicts
#    says: a dict {seed: score} is asked for
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    return {arm: list(row.values()) for arm, row in results.items()}


# %% wrong experiment: means
#    says: a float; a dict {seed: score} is asked for
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    return {arm: fmean(row.values()) for arm, row in results.items()}


# %% wrong experiment: differences from the first arm
#    says: is 0.0, and score gave
def experiment(arms, seeds, make, batches, fit, score):
    results = ours.experiment(arms, seeds, make, batches, fit, score)
    first = results[arms[0]]
    return {arm: {s: x - first[s] for s, x in row.items()} for arm, row in results.items()}


# %% wrong experiment: rounded scores
#    says: and score gave
experiment = changed("= score(model)", "= round(score(model), 4)")


# %% wrong experiment: scored before it is trained
#    says: and score gave
experiment = changed(
    "fit(model, batches(seed), arm)\n            results[arm][seed] = score(model)",
    "results[arm][seed] = score(model)\n            fit(model, batches(seed), arm)",
)


# %% wrong experiment: always the first arm's precision
#    says: no model that fit got with "fp32 again"
experiment = changed("batches(seed), arm)", "batches(seed), arms[0])")


# %% wrong experiment: no return
#    says: what came back is None
experiment = changed("return results", "results")


# %% wrong experiment: fork_rng around make only
#    idea: equal-weights-are-equal-runs
#    never: copies
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        for arm in arms:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = make()
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results


# %% wrong experiment: pairs with a crashed run are dropped
#    idea: crashed-runs-are-missing-data
#    says: so does the score of the other arm
def experiment(arms, seeds, make, batches, fit, score):
    results = {arm: {} for arm in arms}
    for seed in seeds:
        row = {}
        for arm in arms:
            torch.manual_seed(seed)
            model = make()
            fit(model, batches(seed), arm)
            row[arm] = score(model)
        if not any(math.isnan(value) for value in row.values()):
            for arm, value in row.items():
                results[arm][seed] = value
    return results


# %% right checkpoints: a manifest of digests in JSON beside each file
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def _write(self, name, data):
        temporary = self.folder / (name + ".tmp")
        with temporary.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.rename(self.folder / name)

    def save(self, step):
        buffer = io.BytesIO()
        state = {k: v.state_dict() for k, v in self.parts.items()}
        torch.save((step, torch.random.get_rng_state(), state), buffer)
        digest = hashlib.blake2b(buffer.getvalue(), digest_size=20).hexdigest()
        self._write(f"{step}-{digest}.pt", buffer.getvalue())
        self._write(f"{step}.json", json.dumps({"step": step, "blake2b": digest}).encode())

    def resume(self):
        for path in sorted(self.folder.glob("*.json"), key=lambda p: -int(p.stem)):
            try:
                digest = json.loads(path.read_text())["blake2b"]
                data = (self.folder / f"{path.stem}-{digest}.pt").read_bytes()
            except (OSError, ValueError, KeyError):
                continue
            if hashlib.blake2b(data, digest_size=20).hexdigest() == digest:
                step, rng, state = torch.load(io.BytesIO(data))
                for k in self.parts:
                    self.parts[k].load_state_dict(state[k])
                torch.random.set_rng_state(rng)
                return step
        return 0


# %% right checkpoints: the digest in the name, one folder for each step
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder = folder
        self.parts = parts

    def save(self, step):
        data = io.BytesIO()
        content = {"rng": torch.get_rng_state()}
        for name in self.parts:
            content["part " + name] = self.parts[name].state_dict()
        torch.save(content, data)
        inside = os.path.join(self.folder, f"step_{step}")
        os.makedirs(inside, exist_ok=True)
        name = hashlib.sha256(data.getbuffer()).hexdigest()
        with open(os.path.join(inside, "half"), "wb") as file:
            file.write(data.getbuffer())
            os.fsync(file)
        before = os.listdir(inside)
        os.replace(os.path.join(inside, "half"), os.path.join(inside, name))
        for other in before:
            if other not in ("half", name):
                os.remove(os.path.join(inside, other))

    def resume(self):
        steps = [int(name[5:]) for name in os.listdir(self.folder) if name.startswith("step_")]
        for step in sorted(steps)[::-1]:
            inside = os.path.join(self.folder, f"step_{step}")
            for name in os.listdir(inside):
                with open(os.path.join(inside, name), "rb") as file:
                    data = file.read()
                if hashlib.sha256(data).hexdigest() != name:
                    continue
                content = torch.load(io.BytesIO(data), weights_only=True)
                for part in self.parts:
                    self.parts[part].load_state_dict(content["part " + part])
                torch.set_rng_state(content["rng"])
                return step
        return 0


# %% right checkpoints: a CRC-32 of everything, and pickle
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), dict(parts)

    def save(self, step):
        data = pickle.dumps(
            [step, torch.get_rng_state(), [part.state_dict() for part in self.parts.values()]]
        )
        (self.folder / "new").write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)
        os.rename(self.folder / "new", self.folder / f"{step:020d}")

    def resume(self):
        files = [path for path in self.folder.iterdir() if path.name.isdigit()]
        for path in sorted(files, reverse=True):
            data = path.read_bytes()
            if zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big"):
                step, state, parts = pickle.loads(data[4:])
                torch.set_rng_state(state)
                for part, saved in zip(self.parts.values(), parts):
                    part.load_state_dict(saved)
                return step
        return 0


# %% right checkpoints: the checksums that torch.save writes, asked by zipfile
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        state = {"parts": {n: p.state_dict() for n, p in self.parts.items()}}
        state |= {"step": step, "rng": torch.get_rng_state()}
        torch.save(state, self.folder / "new.tmp")
        with open(self.folder / "new.tmp", "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.folder / "new.tmp", self.folder / f"{step:09}.pt")

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"))[::-1]:
            try:
                with zipfile.ZipFile(path) as file:
                    if file.testzip() is not None:
                        continue
                state = torch.load(path, weights_only=True)
            except Exception:
                continue
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
            torch.set_rng_state(state["rng"])
            return state["step"]
        return 0


# %% wrong checkpoints: written directly, for a digest shows what a kill left
#    idea: a-write-is-atomic
#    says: After a second `save(8)`, killed in the middle of a file: `resume()` is 5; 8 is wanted.
#    says: what was whole stays whole
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        torch.save(
            [{n: p.state_dict() for n, p in self.parts.items()}, torch.get_rng_state()], buffer
        )
        data = buffer.getvalue()
        with open(self.folder / f"{step:015}", "wb") as f:
            f.write(data)
            f.write(hashlib.md5(data).digest())
            f.flush()
            os.fsync(f.fileno())

    def resume(self):
        steps = sorted((int(p.name) for p in self.folder.iterdir()), reverse=True)
        for step in steps:
            data = (self.folder / f"{step:015}").read_bytes()
            data, digest = data[:-16], data[-16:]
            if hashlib.md5(data).digest() == digest:
                parts, rng = torch.load(io.BytesIO(data))
                [p.load_state_dict(parts[n]) for n, p in self.parts.items()]
                torch.set_rng_state(rng)
                return step
        return 0


# %% right checkpoints: gzip, whose CRC-32 is read, and a helper outside of the class
def whole(path):
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        return None


class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "rng": torch.get_rng_state(), "state": state}, buffer)
        data = gzip.compress(buffer.getvalue(), mtime=0)
        digest = hashlib.sha1(data).hexdigest()
        with open(self.folder / ".part", "wb") as file:
            file.write(gzip.compress(digest.encode() + buffer.getvalue(), mtime=0))
        os.replace(self.folder / ".part", self.folder / f"{step:010}.gz")

    def resume(self):
        for path in sorted(self.folder.glob("*.gz"), reverse=True):
            data = whole(path)
            if data is None:
                continue
            state = torch.load(io.BytesIO(data[40:]), weights_only=True)
            for name in state["state"]:
                self.parts[name].load_state_dict(state["state"][name])
            torch.set_rng_state(state["rng"])
            return int(state["step"])
        return 0


# %% right checkpoints: os.write in a loop, and names sorted as numbers
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = str(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "rng": torch.get_rng_state(), "state": state}, buffer)
        left = hashlib.sha512(buffer.getvalue()).digest() + buffer.getvalue()
        number = os.open(self.folder + "/tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            while left:
                left = left[os.write(number, left) :]
            os.fsync(number)
        finally:
            os.close(number)
        os.replace(self.folder + "/tmp", f"{self.folder}/{step}.ckpt")

    def resume(self):
        files = [entry for entry in os.scandir(self.folder) if entry.name.endswith(".ckpt")]
        files.sort(key=lambda entry: int(Path(entry.name).stem))
        while files:
            with open(files.pop().path, "rb") as file:
                digest, data = file.read(64), file.read()
            if hashlib.sha512(data).digest() != digest:
                continue
            state = torch.load(io.BytesIO(data))
            for name, part in self.parts.items():
                part.load_state_dict(state["state"][name])
            torch.set_rng_state(state["rng"])
            return state["step"]
        return 0


# %% right checkpoints: a binary head, and the step comes from the content
class Checkpoints:
    HEAD = "<8sQ32s"

    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer, head = io.BytesIO(), struct.Struct(self.HEAD)
        states = [part.state_dict() for part in self.parts.values()]
        torch.save([torch.get_rng_state(), *states], buffer)
        digest = hashlib.sha256(step.to_bytes(8, "big") + buffer.getvalue()).digest()
        unfinished = self.folder / "unfinished"
        unfinished.mkdir(exist_ok=True)
        with open(unfinished / "now", "wb") as file:
            file.write(head.pack(b"CKPT0001", step, digest) + buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished / "now", self.folder / f"{step:x}.run")

    def _whole(self):
        head = struct.Struct(self.HEAD)
        for path in self.folder.glob("*.run"):
            file = path.read_bytes()
            if len(file) < head.size:
                continue
            magic, step, digest = head.unpack_from(file)
            data = file[head.size :]
            found = hashlib.sha256(step.to_bytes(8, "big") + data).digest()
            if magic == b"CKPT0001" and found == digest:
                yield step, data

    def resume(self):
        step, data = max(self._whole(), default=(0, b""))
        if step:
            rng, *states = torch.load(io.BytesIO(data), weights_only=True)
            torch.set_rng_state(rng)
            for part, state in zip(self.parts.values(), states):
                part.load_state_dict(state)
        return step


# %% wrong checkpoints: a head that cannot be pickled
#    says: your class cannot be sent to a second process: cannot pickle '_struct.Struct' object
#    says: Make such an object inside a method
class Checkpoints(ours.Checkpoints):
    HEAD = struct.Struct("<8sQQ32s")


# %% wrong checkpoints: digest in a file beside it
#    says: killed in the middle of a file: `resume()` is 5; 8 is wanted
#    says: Which single rename can exchange all that belongs to a checkpoint?
#    never: write over what was there
class Checkpoints(ours.Checkpoints):
    def put(self, name, data):
        with open(self.folder / "unfinished", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.folder / "unfinished", self.folder / name)

    def save(self, step):
        buffer = io.BytesIO()
        states = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "random": torch.get_rng_state(), "parts": states}, buffer)
        data = buffer.getvalue()
        self.put(f"{step:012d}.sha256", hashlib.sha256(data).hexdigest().encode())
        self.put(f"{step:012d}.pt", data)

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            data, side = path.read_bytes(), path.with_suffix(".sha256")
            if not side.exists() or hashlib.sha256(data).hexdigest().encode() != side.read_bytes():
                continue
            saved = torch.load(io.BytesIO(data), weights_only=True)
            for name, state in saved["parts"].items():
                self.parts[name].load_state_dict(state)
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% wrong checkpoints: each part in a file of its own, renamed one after the other
#    says: killed in the middle of a file: `resume()` returned 8, but then
#    says: must still be there as a whole, or what the killed one was writing
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        states = {name: part.state_dict() for name, part in self.parts.items()}
        states["no part"] = {"random": torch.get_rng_state()}
        (self.folder / f"{step:012}").mkdir(exist_ok=True)
        for i, state in enumerate(states.values()):
            buffer = io.BytesIO()
            torch.save(state, buffer)
            data, unfinished = buffer.getvalue(), self.folder / "unfinished"
            unfinished.write_bytes(hashlib.sha256(data).digest() + data)
            os.replace(unfinished, self.folder / f"{step:012}" / f"{i}.pt")

    def resume(self):
        for folder in sorted(self.folder.glob("0*"), reverse=True):
            files = [folder / f"{i}.pt" for i in range(len(self.parts) + 1)]
            data = [path.read_bytes() if path.exists() else b"" for path in files]
            if any(hashlib.sha256(one[32:]).digest() != one[:32] for one in data):
                continue
            *states, random = [torch.load(io.BytesIO(one[32:])) for one in data]
            for part, state in zip(self.parts.values(), states):
                part.load_state_dict(state)
            torch.set_rng_state(random["random"])
            return int(folder.name)
        return 0


# %% wrong checkpoints: the old file is removed first
#    says: The killed save had removed an old file
#    never: write over what was there
Checkpoints = changed(
    'with open(unfinished, "wb")',
    '(self.folder / f"{step:012}.pt").unlink(missing_ok=True)\n        with open(unfinished, "wb")',
)


# %% wrong checkpoints: the seed instead of the generator's state
#    says: The generator stands where its seed puts it, and the run had drawn numbers since.
Checkpoints = changed(
    "torch.get_rng_state()",
    "torch.initial_seed()",
    "torch.set_rng_state(",
    "torch.manual_seed(",
)


# %% wrong checkpoints: Python's hash()
#    says: Saved in one process, resumed in another: `resume()` is 0; 8 is wanted.
#    says: that is different in each process?
#    never: killed
Checkpoints = changed(
    "hashlib.sha256(data).digest() + data",
    'hash(data).to_bytes(32, "big", signed=True) + data',
    "hashlib.sha256(data).digest() != digest",
    'hash(data).to_bytes(32, "big", signed=True) != digest',
)


# %% wrong checkpoints: the steps are known to the class only
#    says: Saved in one process, resumed in another: `resume()` is 0; 8 is wanted.
class Checkpoints(ours.Checkpoints):
    known = set()

    def save(self, step):
        super().save(step)
        self.known.add(str(self.folder))

    def resume(self):
        return super().resume() if str(self.folder) in self.known else 0


# %% wrong checkpoints: no state of the random numbers, in another style
#    idea: random-numbers-are-no-state
#    says: torch's generator is not as it was when step 8 was saved
Checkpoints = changed(
    'torch.save({"step": step, "random": torch.get_rng_state(), "parts": state}, buffer)',
    'torch.save({"step": step, "parts": state}, buffer)',
    'torch.set_rng_state(saved["random"])',
    "pass",
)


# %% wrong checkpoints: the generator before the parts, then dropout draws
#    says: torch's generator is not as it was when step 8 was saved
Checkpoints = changed(
    'torch.set_rng_state(saved["random"])',
    'torch.set_rng_state(saved["random"])\n            torch.rand(1)',
)


# %% wrong checkpoints: weights in BF16 to halve the file
#    says: holds the saved values rounded to bfloat16
class Checkpoints(ours.Checkpoints):
    def __init__(self, folder, parts):
        super().__init__(folder, {name: Narrow(part) for name, part in parts.items()})


class Narrow:
    def __init__(self, part):
        self.part = part

    def state_dict(self):
        return narrow(self.part.state_dict())

    def load_state_dict(self, state):
        self.part.load_state_dict(state)


def narrow(value):
    if isinstance(value, dict):
        return {k: narrow(v) for k, v in value.items()}
    if torch.is_tensor(value) and value.dtype == torch.float32 and value.dim():
        return value.bfloat16()
    return value


# %% wrong checkpoints: steps without zeros, sorted as text, in another style
#    idea: text-counts-like-numbers
#    says: `resume()` is 9; 10 is wanted
Checkpoints = changed('f"{step:012}.pt"', 'f"step-{step}.pt"')


# %% wrong checkpoints: no look at the digest, in a try
#    idea: load-checks-the-bits
#    says: With one bit of a weight flipped in the newest file: `resume()` returned 8
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            try:
                saved = torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=False)
            except Exception as error:
                print(error)
                continue
            for name in saved["parts"]:
                self.parts[name].load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% wrong checkpoints: a digest of the weights alone
#    says: With one bit of Adam's moments flipped in the newest file
#    never: `torch.load` does not compare
class Checkpoints(ours.Checkpoints):
    def digest(self, state):
        first = next(iter(state.values()))
        tensors = [v for v in first.values() if torch.is_tensor(v)]
        return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        whole = {"step": step, "rng": torch.get_rng_state(), "digest": self.digest(state)}
        torch.save(whole | {"state": state}, self.folder / "tmp")
        os.replace(self.folder / "tmp", self.folder / f"{step:012}.pt")

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            try:
                saved = torch.load(path)
                if self.digest(saved["state"]) != saved["digest"]:
                    continue
                for name, part in self.parts.items():
                    part.load_state_dict(saved["state"][name])
                torch.set_rng_state(saved["rng"])
                return saved["step"]
            except Exception:
                continue
        return 0


# %% wrong checkpoints: damage raises
#    says: ValueError: damaged
Checkpoints = changed("            continue\n", '            raise ValueError("damaged")\n')


# %% wrong checkpoints: damage ends the search
#    says: With the newest file cut in half: `resume()` is 0; 5 is wanted
#    never: leave in the folder
Checkpoints = changed("            continue\n", "            break\n")


# %% wrong checkpoints: loaded before the digest is compared
#    says: has changed
#    says: What must be known of a file before any part loads it?
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            digest, data = path.read_bytes()[:32], path.read_bytes()[32:]
            try:
                saved = torch.load(io.BytesIO(data), weights_only=True)
                for name, part in self.parts.items():
                    part.load_state_dict(saved["parts"][name])
                torch.set_rng_state(saved["random"])
            except Exception:
                continue
            if hashlib.sha256(data).digest() == digest:
                return saved["step"]
        return 0


# %% wrong checkpoints: only the newest file is kept
#    idea: the-newest-is-enough
#    says: With the newest file gone: `resume()` is 0; 5 is wanted
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        super().save(step)
        for path in self.folder.glob("*.pt"):
            if path.name != f"{step:012}.pt":
                path.unlink()


# %% wrong checkpoints: half files stand among the others
#    says: After a second `save(8)`, killed in the middle of a file: your `resume()` raised ValueError
#    says: The folder still holds what the killed save had written.
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for step in sorted((int(path.stem) for path in self.folder.iterdir()), reverse=True):
            data = (self.folder / f"{step:012}.pt").read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                continue
            saved = torch.load(io.BytesIO(data[32:]))
            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% wrong checkpoints: the unfinished file must not exist yet
#    says: After that kill and a `save(8)` that came to its end: your `save(8)` raised FileExistsError
Checkpoints = changed('open(unfinished, "wb")', 'open(unfinished, "xb")')


# %% wrong checkpoints: a step is saved once
#    says: Step 100000 was saved twice; the second save counts.
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        if not (self.folder / f"{step:012}.pt").exists():
            super().save(step)


# %% wrong checkpoints: model and optimizer, by name
#    says: your `save(9)` raised KeyError: 'model'
#    says: Here the parts are called 'a box', 'step',
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        assert self.parts["model"]
        super().save(step)


# %% wrong checkpoints: the newest by its time
#    says: After another `save(10)`, of a run that went back: `resume()` is 10; 100000 is wanted.
#    says: The newest checkpoint is the one of the largest step.
Checkpoints = changed(
    "sorted(self.folder.glob(\"*.pt\"), reverse=True)",
    "sorted(self.folder.glob(\"*.pt\"), key=lambda p: p.stat().st_mtime_ns, reverse=True)",
)


# %% wrong checkpoints: the newest two are kept
#    says: with the files of all but the first one gone: `resume()` is 0; 9 is wanted.
#    says: the checkpoints of other steps stay
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        super().save(step)
        for path in sorted(self.folder.glob("*.pt"))[:-2]:
            path.unlink()


# %% wrong checkpoints: the parts stand beside the step, in one dict
#    says: your `resume()` raised
#    says: Here the parts are called 'a box', 'step',
Checkpoints = changed(
    '{"step": step, "random": torch.get_rng_state(), "parts": state}',
    '{**state, "step": step, "random": torch.get_rng_state()}',
    'part.load_state_dict(saved["parts"][name])',
    "part.load_state_dict(saved[name])",
)


# %% wrong checkpoints: step and generator are taken out of the dict of the parts
#    says: the part 'step' differs in 1 of 1 values
#    says: a part may have any name, also one that your file uses for something else
Checkpoints = changed(
    '{"step": step, "random": torch.get_rng_state(), "parts": state}',
    '{**state, "step": step, "random": torch.get_rng_state()}',
    """            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]""",
    """            step = saved.pop("step")
            torch.set_rng_state(saved.pop("random"))
            for name in saved:
                self.parts[name].load_state_dict(saved[name])
            return step""",
)


# %% wrong checkpoints: a part's state may replace the step
#    says: Here the parts are called 'a box', 'step',
Checkpoints = changed(
    '{"step": step, "random": torch.get_rng_state(), "parts": state}',
    '{"step": step, "random": torch.get_rng_state(), **state}',
    'part.load_state_dict(saved["parts"][name])',
    "part.load_state_dict(saved[name])",
)


# %% wrong checkpoints: each part has a digest, and is loaded once it is verified
#    says: in the only file: `resume()` returned 0, as it should, but
#    says: What must be known of a file before any part loads it?
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        states = [part.state_dict() for part in self.parts.values()]
        content = b""
        for state in (*states, {"step": step, "random": torch.get_rng_state()}):
            buffer = io.BytesIO()
            torch.save(state, buffer)
            size = len(buffer.getvalue()).to_bytes(8, "big")
            content += hashlib.sha256(buffer.getvalue()).digest() + size + buffer.getvalue()
        unfinished = self.folder / "unfinished"
        unfinished.write_bytes(content)
        os.replace(unfinished, self.folder / f"{step:012}.pt")

    def _next(self, file):
        digest, size = file.read(32), int.from_bytes(file.read(8), "big")
        data = file.read(min(size, 10**8))
        if hashlib.sha256(data).digest() != digest:
            raise ValueError("damaged")
        return torch.load(io.BytesIO(data))

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            file = io.BytesIO(path.read_bytes())
            try:
                for part in self.parts.values():
                    part.load_state_dict(self._next(file))
                last = self._next(file)
            except ValueError:
                continue
            torch.set_rng_state(last["random"])
            return last["step"]
        return 0


# %% wrong checkpoints: weights alone
#    says: `optimizer['state'][0]['step']` is missing
class Checkpoints(ours.Checkpoints):
    def __init__(self, folder, parts):
        super().__init__(folder, {k: p for k, p in parts.items() if k in ("model", "a box")})


# %% wrong checkpoints: the model is halved for the file
#    says: of the run that goes on
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        if "model" in self.parts:
            self.parts["model"].half()
        super().save(step)


# %% wrong checkpoints: None where nothing is whole
#    says: is there a `return` at the end of each path?
Checkpoints = changed("        return 0", "        return None")


# %% wrong checkpoints: keeps the last three
#    says: the checkpoints of other steps stay
#    never: No save
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        states = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "random": torch.get_rng_state(), "parts": states}, buffer)
        data = buffer.getvalue()
        with open(self.folder / "unfinished", "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.folder / "unfinished", self.folder / f"{step:012d}.pt")
        for old in sorted(self.folder.glob("*.pt"))[:-3]:
            old.unlink()

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            raw = path.read_bytes()
            if hashlib.sha256(raw[32:]).digest() != raw[:32]:
                continue
            saved = torch.load(io.BytesIO(raw[32:]), weights_only=True)
            for name, state in saved["parts"].items():
                self.parts[name].load_state_dict(state)
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% right respond: match
def respond(event, plan, patience=3):
    match event:
        case "ok":
            return ("go on", replace(plan, streak=0))
        case "corruption":
            return ("roll back", replace(plan, streak=0))
        case "out of memory" if plan.micro_batch != 1:
            return (
                "retry",
                replace(plan, micro_batch=plan.micro_batch >> 1, accumulate=plan.accumulate << 1),
            )
        case "non-finite" if plan.streak + 1 != patience:
            return ("skip", replace(plan, streak=plan.streak + 1))
        case "non-finite" if plan.precision != "fp32":
            up = "bf16" if plan.precision == "fp16" else "fp32"
            return ("roll back", replace(plan, precision=up, streak=0))
        case _:
            return ("save and stop", plan)


# %% right respond: a dict of functions
def respond(event, plan, patience=3):
    ladder = ["fp16", "bf16", "fp32"]

    def bad():
        streak = plan.streak + 1
        if streak < patience:
            return "skip", replace(plan, streak=streak)
        level = ladder.index(plan.precision) + 1
        if level == len(ladder):
            return None
        return "roll back", replace(plan, precision=ladder[level], streak=0)

    def full():
        half, odd = divmod(plan.micro_batch, 2)
        if odd:
            return None
        return "retry", replace(plan, micro_batch=half, accumulate=plan.accumulate * 2)

    table = {
        "ok": lambda: ("go on", replace(plan, streak=0)),
        "corruption": lambda: ("roll back", replace(plan, streak=0)),
        "non-finite": bad,
        "out of memory": full,
    }
    return table.get(event, lambda: None)() or ("save and stop", plan)


# %% right respond: new plans by the constructor, and a list for a tuple
def respond(event, plan, patience=3):
    p, m, a, s = plan.precision, plan.micro_batch, plan.accumulate, plan.streak
    answer = "save and stop"
    if event == "ok":
        answer, s = "go on", 0
    elif event == "non-finite":
        if s + 1 < patience:
            answer, s = "skip", s + 1
        elif p in ("fp16", "bf16"):
            answer, p, s = "roll back", {"fp16": "bf16", "bf16": "fp32"}[p], 0
    elif event == "out of memory" and m > 1:
        answer, m, a = "retry", m // 2, a * 2
    elif event == "corruption":
        answer, s = "roll back", 0
    return [answer, Plan(precision=p, micro_batch=m, accumulate=a, streak=s)]


# %% right respond: early ends first
def respond(event, plan, patience=3):
    stop = ("save and stop", plan)
    if event not in ("ok", "non-finite", "out of memory", "corruption"):
        return stop
    if event == "out of memory":
        if plan.micro_batch == 1:
            return stop
        halved = int(plan.micro_batch / 2)
        return "retry", replace(plan, micro_batch=halved, accumulate=plan.accumulate * 2)
    if event == "non-finite" and plan.streak >= patience - 1 and plan.precision == "fp32":
        return stop
    if event == "non-finite" and plan.streak < patience - 1:
        return "skip", replace(plan, streak=plan.streak + 1)
    wider = plan.precision
    if event == "non-finite":
        wider = "fp32" if wider == "bf16" else "bf16"
    return "go on" if event == "ok" else "roll back", replace(plan, precision=wider, streak=0)


# %% right respond: asdict, and numbers of numpy
def respond(event, plan, patience=3):
    new = dataclasses.asdict(plan)
    formats = np.array(["fp16", "bf16", "fp32"])
    level = int(np.flatnonzero(formats == plan.precision)[0])
    said = "save and stop"
    if event in ("ok", "corruption"):
        said, new["streak"] = ("go on" if event == "ok" else "roll back"), 0
    if event == "non-finite" and new["streak"] + 1 < patience:
        said, new["streak"] = "skip", np.int64(new["streak"] + 1)
    elif event == "non-finite" and level < 2:
        said, new["precision"], new["streak"] = "roll back", str(formats[level + 1]), 0
    if event == "out of memory" and new["micro_batch"] > 1:
        new["micro_batch"] = np.int64(new["micro_batch"]) // 2
        new["accumulate"], said = new["accumulate"] * 2, "retry"
    return said, Plan(**new)


# %% right respond: a helper for each event
def _non_finite(plan, patience):
    if plan.streak < patience - 1:
        return "skip", dataclasses.replace(plan, streak=1 + plan.streak)
    if plan.precision == "fp32":
        return "save and stop", plan
    names = "fp16 bf16 fp32".split()
    wider = names[names.index(plan.precision) + 1]
    return "roll back", dataclasses.replace(plan, precision=wider, streak=0)


def respond(event, plan, patience=3):
    if event == "non-finite":
        return _non_finite(plan, patience)
    if event == "out of memory" and plan.micro_batch >= 2:
        total = plan.micro_batch * plan.accumulate
        rows = plan.micro_batch // 2
        return "retry", dataclasses.replace(plan, micro_batch=rows, accumulate=total // rows)
    if event == "ok" or event == "corruption":
        word = "go on" if event == "ok" else "roll back"
        return word, dataclasses.replace(plan, streak=0)
    return "save and stop", plan


# %% wrong respond: patience is counted one too far
#    says: answers 'skip'; 'roll back' is wanted. That is 3 in a row
respond = changed("plan.streak + 1 < patience", "plan.streak < patience")


# %% wrong respond: the streak stays after a rollback
#    says: gives streak=2; streak=0 is wanted
respond = changed("precision=wider, streak=0", "precision=wider")


# %% wrong respond: from fp16 to fp32 at once
#    says: gives precision='fp32'; precision='bf16' is wanted
respond = changed('"fp16": "bf16"', '"fp16": "fp32"')


# %% wrong respond: a full device forgives the streak
#    says: gives streak=0; streak=1 is wanted. A full device says nothing about the streak.
respond = changed("accumulate=twice)", "accumulate=twice, streak=0)")


# %% wrong respond: half of one row
#    says: A micro-batch of 1 cannot be halved.
respond = changed(" and plan.micro_batch > 1", "")


# %% wrong respond: a KeyError in fp32
#    says: raised KeyError: 'fp32'
respond = changed(".get(plan.precision)", "[plan.precision]")


# %% wrong respond: skips do not count
#    says: gives streak=0; streak=1 is wanted. With the 0 of the plan that is 1 in a row
respond = changed("replace(plan, streak=plan.streak + 1)", "plan")


# %% wrong respond: patience is always 3
#    says: patience=1
respond = changed("plan.streak + 1 < patience", "plan.streak + 1 < 3")


# %% wrong respond: an unknown event goes on
#    says: respond('loader'
#    says: answers 'go on'; 'save and stop' is wanted
respond = changed(
    '    return "save and stop", plan',
    '    if event == "non-finite" or event == "out of memory":\n'
    '        return "save and stop", plan\n    return "go on", plan',
)


# %% wrong respond: the count stands in a global
#    says: streak
count = 0


def respond(event, plan, patience=3):
    global count
    if event == "non-finite":
        count += 1
        if count < patience:
            return "skip", plan
        count = 0
    else:
        count = 0
    return ours.respond(event, replace(plan, streak=patience - 1), patience)


# %% wrong respond: the rollback of a loader
#    says: answers 'roll back'; 'save and stop' is wanted
respond = changed('if event == "corruption"', 'if event in ("corruption", "loader")')


# %% wrong respond: the accumulation grows by one
#    says: passes: the global batch stays.
respond = changed("2 * plan.accumulate", "plan.accumulate + 1")


# %% wrong respond: the answer alone
#    says: 2 values are asked for
def respond(event, plan, patience=3):
    return ours.respond(event, plan, patience)[0]


# %% wrong respond: a dict for a plan
#    says: a `Plan` is asked for
def respond(event, plan, patience=3):
    answer, after = ours.respond(event, plan, patience)
    return answer, dataclasses.asdict(after)


# %% wrong respond: a stop forgets the streak
#    says: gives streak=0; streak=2 is wanted
respond = changed('return "save and stop", plan', 'return "save and stop", replace(plan, streak=0)')


# %% wrong respond: a rollback that changes nothing, written otherwise
#    idea: a-rollback-heals
def respond(event, plan, patience=3):
    answer, after = ours.respond(event, plan, patience)
    return answer, replace(after, precision=plan.precision)


# %% right respond: a dict of the fields, a new Plan from it, a named tuple returned
Reply = namedtuple("Reply", ["answer", "plan"])


def respond(event, plan, patience=3):
    new = asdict(plan)
    answer = "save and stop"
    if event == "ok":
        answer = "go on"
        new["streak"] = 0
    elif event == "corruption":
        answer = "roll back"
        new["streak"] = 0
    elif event == "out of memory":
        if plan.micro_batch > 1:
            answer = "retry"
            new["micro_batch"] //= 2
            new["accumulate"] *= 2
    elif event == "non-finite":
        new["streak"] += 1
        answer = "skip"
        if new["streak"] >= patience:
            wider = {"fp16": "bf16", "bf16": "fp32", "fp32": None}[plan.precision]
            if wider is None:
                return Reply("save and stop", plan)
            answer, new["precision"], new["streak"] = "roll back", wider, 0
    return Reply(answer, type(plan)(**new))


# %% wrong respond: fp32 stops at its first non-finite step
#    says: until it is reached, the step is skipped in every format
#    never: roll back
def respond(event, plan, patience=3):
    wider = {"fp16": "bf16", "bf16": "fp32"}
    if event == "ok":
        return "go on", replace(plan, streak=0)
    if event == "non-finite" and plan.precision in wider:
        if plan.streak + 1 < patience:
            return "skip", replace(plan, streak=plan.streak + 1)
        return "roll back", replace(plan, precision=wider[plan.precision], streak=0)
    if event == "out of memory" and plan.micro_batch > 1:
        half, twice = plan.micro_batch // 2, plan.accumulate * 2
        return "retry", replace(plan, micro_batch=half, accumulate=twice)
    if event == "corruption":
        return "roll back", replace(plan, streak=0)
    return "save and stop", plan


# %% wrong respond: an unknown event raises
#    says: Any event that no rule names gives "save and stop"
def respond(event, plan, patience=3):
    wider = {"fp16": "bf16", "bf16": "fp32"}
    if event == "ok":
        return "go on", replace(plan, streak=0)
    elif event == "non-finite":
        if plan.streak + 1 < patience:
            return "skip", replace(plan, streak=plan.streak + 1)
        if plan.precision in wider:
            return "roll back", replace(plan, precision=wider[plan.precision], streak=0)
        return "save and stop", plan
    elif event == "out of memory":
        if plan.micro_batch == 1:
            return "save and stop", plan
        half, twice = plan.micro_batch // 2, plan.accumulate * 2
        return "retry", replace(plan, micro_batch=half, accumulate=twice)
    elif event == "corruption":
        return "roll back", replace(plan, streak=0)
    elif event == "loader":
        return "save and stop", plan
    raise ValueError(f"unknown event {event!r}")


# %% wrong respond: corruption keeps the streak
#    says: the steps in a row are over
#    never: the damage
def respond(event, plan, patience=3):
    wider = {"fp16": "bf16", "bf16": "fp32"}
    if event == "ok":
        return "go on", replace(plan, streak=0)
    if event == "non-finite":
        if plan.streak + 1 < patience:
            return "skip", replace(plan, streak=plan.streak + 1)
        if plan.precision in wider:
            return "roll back", replace(plan, precision=wider[plan.precision], streak=0)
    if event == "out of memory" and plan.micro_batch > 1:
        half, twice = plan.micro_batch // 2, plan.accumulate * 2
        return "retry", replace(plan, micro_batch=half, accumulate=twice)
    if event == "corruption":
        return "roll back", plan
    return "save and stop", plan


# %% wrong respond: looks for a word in the event
#    says: Any event that no rule names
def respond(event, plan, patience=3):
    if event == "ok":
        return "go on", replace(plan, streak=0)
    if "corrupt" in event:
        return "roll back", replace(plan, streak=0)
    if "memory" in event and plan.micro_batch > 1:
        return "retry", replace(
            plan, micro_batch=plan.micro_batch // 2, accumulate=2 * plan.accumulate
        )
    if "finite" in event and plan.streak + 1 < patience:
        return "skip", replace(plan, streak=plan.streak + 1)
    if "finite" in event and plan.precision != "fp32":
        wider = "bf16" if plan.precision == "fp16" else "fp32"
        return "roll back", replace(plan, precision=wider, streak=0)
    return "save and stop", plan
