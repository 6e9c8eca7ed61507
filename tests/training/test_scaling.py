"""The loss scale against torch.amp.GradScaler: every number of the state, after every step."""

import dataclasses
import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.training.scaling import LossScale, NumericalInstability, to_float32

STEPS = 5000


class Torchs:
    """GradScaler("cpu"), moved by its public methods alone."""

    def __init__(self, state_dict):
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.scaler = torch.amp.GradScaler("cpu")
        self.scaler.load_state_dict(state_dict)
        self.scaler.scale(torch.zeros(()))  # makes its state

    def update(self, found_inf):
        self.weight.grad = torch.tensor(math.inf if found_inf else 0.0)
        self.scaler.unscale_(self.optimizer)
        self.scaler.update()
        return self.scaler.state_dict()


def flags(seed):
    """5,000 steps: stretches of many, few and no infs, so that the scale dives and climbs."""
    draw = random.Random(seed)
    stretches = itertools.cycle([0.5, 0.1, 0.01, 0.001, 0.9, 0.0, 0.0])
    found = []
    for share in itertools.islice(stretches, STEPS // 500 + 1):
        found += [draw.random() < share for _ in range(draw.randint(300, 700))]
    return (found + [False] * STEPS)[:STEPS]


@pytest.mark.parametrize("interval", [1, 3, 7, 2000])
@pytest.mark.parametrize("factors", [(2.0, 0.5), (1.1, 0.9), (1.5, 0.5)], ids=str)
def test_the_trajectory_is_torchs(factors, interval):
    growth, backoff = factors
    state = LossScale(growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
    torchs, scales = Torchs(state.to_state_dict()), set()
    for step, found_inf in enumerate(flags(seed=interval)):
        state = state.updated(found_inf)
        assert state.to_state_dict() == torchs.update(found_inf), f"after step {step}"
        scales.add(state.scale)
    assert len(scales) > 20, "the sequence moved the scale"


def test_float64_arithmetic_would_have_departed():
    """The control of the test above: with these factors it tells float32 from float64."""
    state, exact, departed = LossScale(65536.0, 1.1, 0.9, growth_interval=1), 65536.0, []
    for step, found_inf in enumerate(flags(seed=1)[:100]):
        state, exact = state.updated(found_inf), exact * (0.9 if found_inf else 1.1)
        departed += [step] if to_float32(exact) != state.scale else []
    assert departed


@given(
    scale=st.floats(2.0**-149, 2.0**127, width=32),
    growth=st.floats(1.0, 4.0, exclude_min=True),
    backoff=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
    interval=st.integers(1, 4),
    found=st.lists(st.booleans(), max_size=30),
)
@settings(deadline=None)
def test_any_rule_from_any_scale_is_torchs(scale, growth, backoff, interval, found):
    state = LossScale(scale, growth, backoff, interval)
    torchs = Torchs(state.to_state_dict())
    for found_inf in found:
        state = state.updated(found_inf)
        assert state.to_state_dict() == torchs.update(found_inf)


@given(start=st.integers(-20, 20), interval=st.integers(1, 5), found=st.lists(st.booleans()))
def test_with_factor_2_the_scale_is_a_power_of_2_times_the_first(start, interval, found):
    state = LossScale(2.0**start, growth_interval=interval)
    for found_inf in found[:90]:  # 20 + 90 stays inside float32's exponents
        before, state = state.scale, state.updated(found_inf)
        assert math.frexp(state.scale)[0] == 0.5
        assert state.scale in (before / 2, before, before * 2)
        assert 2.0 ** (start - sum(found)) <= state.scale <= 2.0 ** (start + len(found) // interval)


def test_a_loaded_count_beyond_the_interval_never_grows_as_torchs_does_not():
    state = LossScale(growth_interval=3, growth_tracker=5)
    torchs = Torchs(state.to_state_dict())
    for _ in range(9):
        state = state.updated(False)
        assert state.to_state_dict() == torchs.update(False)
    assert state.scale == 65536.0
    assert state.updated(True).growth_tracker == 0, "the first bad step begins to count again"


def test_growth_beyond_float32_is_refused_and_begins_to_count_again():
    state = LossScale(2.0**127, growth_interval=1)
    assert state.updated(False) == state
    assert LossScale(2.0**126, growth_interval=1).updated(False).scale == 2.0**127


def test_400_bad_steps_end_at_zero_and_zero_is_the_end():
    state, torchs = (
        LossScale(growth_interval=1),
        Torchs(LossScale(growth_interval=1).to_state_dict()),
    )
    below = 0
    for _ in range(400):
        state = state.updated(True)
        below += state.scale > 0
        assert state.scale == torchs.update(True)["scale"]
    # From 2**16 down to 2**-149, the smallest float32, are 165 halvings.
    assert (below, state.scale) == (165, 0.0)
    for _ in range(3):
        state = state.updated(False)
        assert state.scale == torchs.update(False)["scale"] == 0.0


def test_at_scale_zero_torch_ruins_the_parameters():
    """What the docstring of LossScale says of the end."""
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=0.0)
    scaler.scale(weight * 2).backward()
    scaler.step(optimizer)
    assert weight.isnan()


def test_a_static_scale_never_changes():
    state = LossScale.static(128.0)
    assert state.is_static and not LossScale().is_static
    for found_inf in [False] * 3000 + [True] * 5:
        assert state.updated(found_inf) is state
    torchs = Torchs(state.to_state_dict())
    assert {torchs.update(found_inf)["scale"] for found_inf in flags(seed=0)} == {128.0}


def test_a_state_is_what_it_was_made_from_in_float32():
    assert LossScale(0.1).scale == to_float32(0.1) == torch.tensor(0.1).item()
    with pytest.raises(dataclasses.FrozenInstanceError):
        LossScale().scale = 1.0
    before = LossScale(growth_interval=1)
    before.updated(True)
    assert before == LossScale(growth_interval=1), "updated() makes another state"
    assert isinstance(NumericalInstability("x"), RuntimeError)


@given(st.floats(width=64, allow_nan=False))
def test_to_float32_is_torchs_cast(x):
    assert to_float32(x) == torch.tensor(x, dtype=torch.float64).float().item()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scale": 0.0}, "scale is 0.0"),
        ({"scale": -8.0}, "scale is -8.0"),
        ({"scale": math.inf}, "scale is inf"),
        ({"scale": math.nan}, "scale is nan"),
        ({"scale": 1e39}, "scale is inf as a float32"),
        ({"scale": 1e-46}, "scale is 0.0 as a float32"),
        ({"growth_factor": 1.0}, "growth_factor=1.0 does not grow"),
        ({"growth_factor": 0.5}, "growth_factor=0.5 does not grow"),
        ({"growth_factor": math.nan}, "growth_factor=nan"),
        ({"growth_factor": math.inf}, "growth_factor=inf"),
        ({"backoff_factor": 1.0}, "backoff_factor=1.0 does not shrink"),
        ({"backoff_factor": 0.0}, "backoff_factor=0.0 does not shrink"),
        ({"backoff_factor": -0.5}, "backoff_factor=-0.5"),
        ({"backoff_factor": math.nan}, "backoff_factor=nan"),
        ({"growth_interval": 0}, "growth_interval=0 good steps: pass an int from 1 on"),
        ({"growth_interval": 2.5}, "growth_interval=2.5"),
        ({"growth_tracker": -1}, "growth_tracker=-1 good steps: pass an int from 0 on"),
    ],
)
def test_what_is_refused(wrong, said):
    with pytest.raises(ValueError) as error:
        LossScale(**wrong)
    assert said in str(error.value)
