"""Lab 06's own answers, which two of its judges run, against exact fractions."""

import random
from fractions import Fraction

import pytest

from labkit.labs.hardware_and_benchmarks import solutions
from labkit.labs.hardware_and_benchmarks.checks.honest_benchmarks import _PAIRS, _STEPS, _T

SEEDS = range(200)


@pytest.mark.parametrize(("seconds", "faster"), _STEPS)
def test_the_speed_up_of_a_step_is_before_over_after_in_fractions(seconds, faster):
    before = sum(map(Fraction, seconds.values()))
    after = sum(Fraction(time) / Fraction(faster.get(part, 1)) for part, time in seconds.items())
    # Fewer than 10 roundings of 2**-53 each.
    assert solutions.speedup(seconds, faster) == pytest.approx(float(before / after), rel=1e-14)


def exact_verdict(differences, margin, t):
    """The verdict without a root: the mean beyond a limit by more than t s / sqrt(n), squared."""
    values, n = [Fraction(d) for d in differences], len(differences)
    mean = sum(values) / n
    half_squared = Fraction(t) ** 2 * sum((v - mean) ** 2 for v in values) / (n - 1) / n

    def surely_above(limit, sign):
        away = sign * (mean - limit)
        return away > 0 and away**2 > half_squared

    margin = Fraction(margin)
    if surely_above(-margin, 1) and surely_above(margin, -1):
        return "equivalent"
    if surely_above(-margin, -1):
        return "worse"
    return "better" if surely_above(margin, 1) else "inconclusive"


@pytest.mark.parametrize("name", _PAIRS)
def test_the_verdict_on_each_of_the_check_s_pairs_is_the_exact_one(name):
    differences, margin = _PAIRS[name]
    t = _T[len(differences)]
    assert solutions.verdict(differences, margin, t) == exact_verdict(differences, margin, t)


def test_the_verdict_on_drawn_pairs_is_the_exact_one():
    found = set()
    for seed in SEEDS:
        drawn = random.Random(seed)
        centre = drawn.uniform(-1, 1)
        n = drawn.choice([3, 5])
        differences = [drawn.gauss(centre, 0.2) for _ in range(n)]
        word = exact_verdict(differences, 0.5, _T[n])
        assert solutions.verdict(differences, 0.5, _T[n]) == word, differences
        found.add(word)
    assert found == {"equivalent", "worse", "better", "inconclusive"}
