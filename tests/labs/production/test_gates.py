"""The gate's e-value against exact fractions, and its promise against exact probabilities."""

import math
from fractions import Fraction

import pytest

from labkit.labs.production.gates import Gate, log_e


def exact(worse: int, better: int) -> Fraction:
    n = worse + better
    return Fraction(2**n * math.factorial(worse) * math.factorial(better), math.factorial(n + 1))


@pytest.mark.parametrize("counts", [(0, 0), (7, 0), (8, 0), (0, 9), (60, 40), (250, 300)])
def test_the_e_value_is_the_exact_one(counts):
    assert math.exp(log_e(*counts)) == pytest.approx(float(exact(*counts)), rel=1e-9)


def test_an_e_value_beyond_float64_alarms():
    gate = Gate()
    gate.worse = 5000
    assert gate.see(True, False)


def test_only_disagreements_count_and_only_against_the_candidate():
    gate = Gate()
    assert not any(gate.see(right, right) for right in (True, False) * 500)
    assert (gate.worse, gate.better) == (0, 0)
    assert not any(gate.see(False, True) for _ in range(500)), "a better candidate"
    again = Gate()
    assert [again.see(True, False) for _ in range(8)] == [False] * 7 + [True]


def alarms(alpha: float, worse: int, better: int) -> bool:
    gate = Gate(alpha)
    gate.worse, gate.better = worse, better
    return gate.see(True, True)  # which is no disagreement


def ever(alpha: float, length: int) -> float:
    """The probability, exactly, that an equally good candidate is rolled back."""
    alive, alarmed = {0: Fraction(1)}, Fraction(0)  # by how many of the disagreements are against
    for n in range(1, length + 1):
        chances: dict[int, Fraction] = {}
        for worse, chance in alive.items():
            for now in (worse, worse + 1):
                chances[now] = chances.get(now, Fraction(0)) + chance / 2
        stops = {worse for worse in chances if alarms(alpha, worse, n - worse)}
        alarmed += sum((chances.pop(w) for w in stops), Fraction(0))
        alive = chances
    return float(alarmed)


@pytest.mark.parametrize("alpha", [0.05, 0.25])
def test_equal_candidates_are_rolled_back_no_more_often_than_alpha(alpha):
    assert alpha / 10 < ever(alpha, 150) < alpha


@pytest.mark.parametrize("alpha", [0, 1, 5, -0.05, math.nan])
def test_an_alpha_that_is_no_share_is_refused(alpha):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Gate(alpha)
