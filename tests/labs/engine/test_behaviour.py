"""Two answers behave alike: by value, by bits, and how they fail."""

import math

import numpy as np
import pytest
import torch

from labkit.labs.engine.behaviour import ULPS, alike
from labkit.labs.engine.codec import Foreign, Raised

E64, E32 = 2.0**-52, 2.0**-23


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1 / 3, 1 / 3 * (1 + (ULPS - 1) * E64)),
        (1 / 3, np.float32(1 / 3).item()),
        (2, 2.0),
        (0.0, -0.0),
        (math.nan, math.nan),
        ([1.0, (2,)], (1.0, [2.0])),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}),
        (torch.tensor(0.5), 0.5),
        (torch.ones(2), torch.ones(2) * (1 + 2 * E32)),
        (np.ones(2), np.ones(2) * (1 + 2 * E64)),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf])),
        (torch.float16, torch.float16),
        (Foreign("a set"), Foreign("a set")),
        ("fine", "fine"),
    ],
)
def test_alike_by_value(a, b):
    assert alike(a, b) and alike(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.1, 0.1 * (1 + 20 * E64)),
        (1.0, True),
        (1.0, "1.0"),
        (1.0, None),
        (1.0, math.inf),
        (math.inf, -math.inf),
        ([1.0], [1.0, 2.0]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 2}),
        (torch.ones(2), torch.ones(2).double()),
        (torch.ones(2), torch.ones(1, 2)),
        (torch.ones(2), torch.ones(2) * (1 + 20 * E32)),
        (torch.ones(2).half(), torch.ones(2).half() * (1 + 2.0**-10)),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor(1j), 1.0),
        (10**400, 10**400 + 1),
        (Foreign("a set"), Foreign("a dict")),
    ],
)
def test_not_alike_by_value(a, b):
    assert not alike(a, b) and not alike(b, a)


def test_by_bits_the_last_one_counts_and_the_sign_of_zero():
    assert alike([1 / 3, torch.ones(2)], (1 / 3, torch.ones(2)), bits=True)
    assert alike(2, 2.0, bits=True) and alike(10**400, 10**400, bits=True)
    assert not alike(1 / 3, 1 / 3 * (1 + E64), bits=True)
    assert not alike(0.0, -0.0, bits=True)
    assert not alike(torch.ones(2), torch.ones(2) * (1 + E32), bits=True)


def raised(name, message, line=""):
    return Raised(name, message, line)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (raised("KeyError", "'norm'", "x[k]"), raised("KeyError", "'data'", "y"), True),
        (raised("TypeError", "ulp() takes 1 argument but 2 were given"),
         raised("TypeError", "<lambda>() takes 1 argument but 3 were given"), True),
        (raised("RuntimeError", "unscale_() has already been called on this optimizer"),
         raised("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), False),
        (raised("AssertionError", "No inf checks were recorded for this optimizer."),
         raised("RuntimeError", "No inf checks were recorded for this optimizer."), False),
        (raised("ValueError", "two pairs, please", 'raise ValueError("two pairs, please")'),
         raised("ValueError", "one arm only", "raise ValueError(text)"), True),
        (raised("ValueError", "two pairs, please", 'raise ValueError("two pairs, please")'),
         raised("TypeError", "two pairs, please", 'raise TypeError("two pairs, please")'), False),
        (raised("ValueError", "two pairs, please", 'raise ValueError("two pairs, please")'),
         raised("ValueError", "math domain error", "math.sqrt(x)"), False),
        (raised("ValueError", ""), 0.0, False),
        (None, raised("ValueError", ""), False),
    ],
)  # fmt: skip
def test_exceptions_are_alike_by_type_and_words_and_not_by_values(a, b, same):
    assert alike(a, b) is same
