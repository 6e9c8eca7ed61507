"""What several checks of lab 08 need: the values of narrow formats, and which is nearest."""

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SLACK = 2.0**-20
"""Of a quotient, relative: sixteen roundings of float32 (2**-24); a right answer needs fewer."""

# OCP Microscaling Formats (MX) v1.0, section 5.3.3: FP4 E2M1.
E2M1_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def values_of(dtype):
    """The finite values of an FP8 dtype from 0 up, in the order of their codes, as float64."""
    values = torch.arange(128, dtype=torch.uint8).view(dtype).double()
    return values[values.isfinite()]


def nearest_of(x, values):
    """The nearest of ``values`` and their negatives, ties to the even code; beyond them the last.

    ``x`` is float64, and NaN stays NaN.
    """
    distance = (x.abs().unsqueeze(-1) - values).abs()
    least = distance.amin(dim=-1, keepdim=True)
    # Of two codes that are equally near, neighbours, the even one is half a step better.
    odd = torch.arange(len(values)) % 2
    best = torch.where(distance == least, odd, 2).argmin(dim=-1)
    return torch.where(x.isnan(), x, values[best].copysign(x))


def off(got, x, values):
    """Where ``got`` is not the nearest of ``values`` to ``x``, which is known to ``SLACK`` only."""
    least = (nearest_of(x, values) - x).abs()
    near = (got.double() - x).abs() <= least + SLACK * x.abs()
    return ~(near & torch.isin(got.double().abs(), values))


def first(where):
    """The index of the first True, as a tuple."""
    return tuple(where.nonzero()[0].tolist())


def close(got, want):
    """Whether two numbers differ by a few float32 roundings at most."""
    return abs(got - want) <= 2.0**-21 * abs(want) + 2.0**-148
