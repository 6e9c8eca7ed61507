"""Lab 06's own verdict, which its judge runs, against logarithms of 50 digits."""

import random
from decimal import Decimal, localcontext

import pytest

from labkit.labs.hardware_and_benchmarks import solutions
from labkit.labs.hardware_and_benchmarks.checks.verdict import _ROUNDS, _T

SEEDS = range(200)


def exact_verdict(ratios, control, margin, t):
    """The verdict in decimals: t and the margin as they are written, ratios as floats."""
    with localcontext() as context:
        context.prec = 50

        def interval(values):
            logs = [Decimal(value).ln() for value in values]
            n = len(logs)
            mean = sum(logs) / n
            variance = sum((x - mean) ** 2 for x in logs) / (n - 1)
            half = Decimal(t) * (variance / n).sqrt()
            return mean - half, mean + half

        (low, high), (least, most) = interval(ratios), interval(control)
        away = max(Decimal(0), least, -most)
        low, high, limit = low - away, high + away, (1 + Decimal(margin)).ln()
        if -limit < low and high < limit:
            return "equivalent"
        if high < -limit:
            return "faster"
        return "slower" if low > limit else "inconclusive"


@pytest.mark.parametrize("name", _ROUNDS)
def test_the_verdict_on_each_of_the_check_s_rounds_is_the_exact_one(name):
    ratios, control, margin = _ROUNDS[name]
    t = _T[len(ratios)]
    want = exact_verdict(ratios, control, margin, t)
    assert solutions.verdict(ratios, control, margin, t) == want


def test_the_verdict_on_drawn_rounds_is_the_exact_one():
    found = set()
    for seed in SEEDS:
        drawn = random.Random(seed)
        centre, drift = drawn.uniform(0.8, 1.2), drawn.uniform(0.95, 1.05)
        n = drawn.choice([3, 5])
        ratios = [centre * drawn.uniform(0.97, 1.03) for _ in range(n)]
        control = [drift * drawn.uniform(0.99, 1.01) for _ in range(n)]
        word = exact_verdict(ratios, control, 0.05, _T[n])
        assert solutions.verdict(ratios, control, 0.05, _T[n]) == word, (ratios, control)
        found.add(word)
    assert found == {"equivalent", "faster", "slower", "inconclusive"}
