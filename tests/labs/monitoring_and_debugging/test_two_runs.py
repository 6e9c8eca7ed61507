"""How far two runs lie apart: nothing, an order of additions, another GELU, BF16."""

from statistics import median

import pytest

from labkit.labs.monitoring_and_debugging.two_runs import losses_of


def gaps(first, **changed):
    other = losses_of(**changed)
    return [abs(a - b) / a for a, b in zip(first, other, strict=True)]


@pytest.mark.seeds(range(3))
def test_the_order_of_additions_explains_far_less_than_another_gelu(seed):
    first = losses_of(steps=20, seed=seed)
    assert losses_of(steps=20, seed=seed) == first
    order = gaps(first, steps=20, seed=seed, reverse=True)
    gelu = gaps(first, steps=20, seed=seed, gelu="tanh")
    bf16 = gaps(first, steps=20, seed=seed, bf16=True)
    assert max(order) < 2e-6
    assert 1e-5 < median(gelu) < max(gelu) < 1e-3
    assert median(bf16) > 2 * median(gelu)
