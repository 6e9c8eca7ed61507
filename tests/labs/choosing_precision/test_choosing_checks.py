"""Lab 12's solutions beside other people's arithmetic, and what its checks need of their inputs."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from labkit.formats import BF16, E4M3, E5M2, FP16
from labkit.labs.choosing_precision import solutions
from labkit.labs.choosing_precision.allocation import optimum
from labkit.labs.choosing_precision.checks import allocate as allocate_module
from labkit.labs.choosing_precision.checks import check_allocate, check_one_layer

NUMPY = {
    FP16: np.float16,
    BF16: ml_dtypes.bfloat16,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
}


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# one-layer


def numpy_kl(model, place, fmt, x):
    """The KL and the overflow of one linear layer of a Sequential, in numpy."""

    def cast(values):
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(np.float32).astype(NUMPY[fmt]).astype(np.float64)

    def run(narrow):
        h, output = x.double().numpy(), None
        for i, layer in enumerate(model):
            if isinstance(layer, nn.Linear):
                w, b = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
                if narrow and i == place:
                    h = output = cast(cast(h) @ cast(w).T + cast(b))
                else:
                    h = h @ w.T + b
            elif isinstance(layer, nn.ReLU):
                h = np.maximum(h, 0)
        h = h - h.max(axis=-1, keepdims=True)
        return h - np.log(np.exp(h).sum(axis=-1, keepdims=True)), output

    with np.errstate(invalid="ignore"):
        (p, _), (q, output) = run(False), run(True)
        return (np.exp(p) * (p - q)).sum(axis=-1).mean(), 1 - np.isfinite(output).mean()


@pytest.mark.parametrize("fmt", NUMPY)
@pytest.mark.parametrize("place", [0, 3])
def test_one_layer_equals_numpy_and_ml_dtypes(fmt, place):
    torch.manual_seed(place)
    layers = nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 32), nn.ReLU()
    model, x = nn.Sequential(*layers, nn.Linear(32, 10)), torch.randn(64, 16)
    kl, overflow = solutions.one_layer(model, str(place), fmt, x)
    # numpy's sums are in float64: a value near a tie may round the other way.
    assert kl == pytest.approx(numpy_kl(model, place, fmt, x)[0], rel=1e-3)
    assert overflow == 0 and model.training


def test_one_layer_sees_an_overflow_that_no_weight_shows():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)), torch.randn(64, 16)
    before = solutions.one_layer(model, "0", BF16, x)
    with torch.no_grad():
        model[0].weight.mul_(2.0**17), model[0].bias.mul_(2.0**17), model[2].weight.mul_(2.0**-17)
    assert model[0].weight.half().isfinite().all()
    kl, overflow = solutions.one_layer(model, "0", FP16, x)
    wanted = numpy_kl(model, 0, FP16, x)
    assert math.isnan(kl) and math.isnan(wanted[0]) and overflow == wanted[1] > 0.2
    assert solutions.one_layer(model, "0", BF16, x) == before


def test_the_example_of_one_layer():
    model = nn.Sequential(nn.Linear(1, 2))
    model.load_state_dict({"0.weight": torch.tensor([[1.1], [0.0]]), "0.bias": torch.zeros(2)})
    kl, overflow = solutions.one_layer(model, "0", E5M2, torch.tensor([[3.3]]))
    p, q = (1 / (1 + math.exp(-logit)) for logit in (3.63, 3.5))
    assert kl == pytest.approx(
        p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)), rel=1e-4
    )
    assert (f"{kl:.1e}", overflow) == ("2.2e-04", 0)


@pytest.mark.seeds(check_one_layer.seeds)
def test_a_kl_in_float64_differs_by_less_than_the_check_allows(seed):
    from labkit.labs.choosing_precision.checks import one_layer

    def in_float64(model, name, fmt, x):
        x = x.double() if x.is_floating_point() else x
        return solutions.one_layer(model.double(), name, fmt, x)

    for name in one_layer._NAMES:
        if name != one_layer._RAISES:
            kl = solutions.one_layer(*one_layer._case(name, seed, []))[0]
            wide = in_float64(*one_layer._case(name, seed, []))[0]
            same = math.isnan(kl) and math.isnan(wide)
            assert same or abs(wide - kl) < one_layer._ROOM / 4 * kl


# allocate


def cheapest(cost, size, budget):
    """The smallest memory, by trying every choice."""
    fits = (
        sum(size[n] * b for n, b in zip(cost, widths, strict=True))
        for widths in itertools.product(*cost.values())
        if sum(cost[n][b] for n, b in zip(cost, widths, strict=True)) <= budget
    )
    return min(fits)


def test_the_judges_smallest_memory_is_that_of_trying_every_choice():
    tried = 0
    for cost, size, budget in allocate_module._instances(0).values():
        if len(cost) <= 5:
            bits = optimum(cost, size, budget)
            assert sum(cost[n][b] for n, b in bits.items()) <= budget
            assert sum(size[n] * b for n, b in bits.items()) == cheapest(cost, size, budget)
            tried += 1
    assert tried >= 20


def test_the_greedy_search_stays_below_the_limits_for_any_seed(seeds):
    for seed in range(1000, 1000 + 20 * seeds):
        result = check_allocate.result(solutions.allocate, seed=seed)
        assert result.status == "passed", f"{seed}: {result.message}"


def test_costs_in_any_order_have_one_sum(seeds):
    for seed in check_allocate.seeds[:seeds]:
        for cost, _, budget in list(allocate_module._instances(seed).values())[1:]:
            values = [kl for menu in cost.values() for kl in menu.values()]
            assert all((x * 2.0**46).is_integer() and x < 8 for x in [*values, budget])


def test_the_example_of_allocate():
    cost = {"large": {2: 0.5, 4: 0.02, 8: 0}, "small": {2: 0.3, 4: 0.01, 8: 0}}
    size = {"large": 1000, "small": 10}
    assert solutions.uniform(cost, 0.02) == {"large": 8, "small": 8}
    bits = solutions.allocate(cost, size, 0.02)
    assert bits == {"large": 4, "small": 8} and solutions.memory(bits, size) == 4080


# off-policy


def numpy_loss(new, old, rollout, advantage, mask, clip, cap):
    ratio = np.exp(new - old)
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    weight = np.minimum(np.exp(old - rollout), cap)
    return -(weight * surrogate)[mask == 1].sum() / (mask == 1).sum()


@pytest.mark.parametrize(("seed", "clip", "cap"), [(0, 0.2, 2.0), (1, 0.1, 1.5), (2, 0.3, 5.0)])
def test_policy_loss_equals_numpy_and_finite_differences(seed, clip, cap):
    draw = seeded(seed)
    old = -3 * torch.rand(4, 6, generator=draw).double()
    new = old + 0.5 * torch.randn(4, 6, generator=draw).double()
    rollout = old + 0.6 * torch.randn(4, 6, generator=draw).double()
    advantage = torch.randn(4, 6, generator=draw).double()
    mask = (torch.rand(4, 6, generator=draw) < 0.7).double()
    new.requires_grad_()
    loss = solutions.policy_loss(new, old, rollout, advantage, mask, clip, cap)
    loss.backward()
    given = [t.detach().numpy() for t in (new, old, rollout, advantage, mask)]
    assert loss.item() == pytest.approx(numpy_loss(*given, clip, cap), rel=1e-12)
    slopes, h = np.zeros((4, 6)), 1e-6
    for place in np.ndindex(4, 6):
        for sign in (1, -1):
            moved = given[0].copy()
            moved[place] += sign * h
            slopes[place] += sign * numpy_loss(moved, *given[1:], clip, cap) / (2 * h)
    np.testing.assert_allclose(new.grad.numpy(), slopes, atol=1e-8)
    assert 0 < new.grad.count_nonzero() < mask.sum()


def test_one_tensor_as_new_and_old_has_the_gradient_of_two():
    log_p = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    given = torch.tensor([[-1.5, -2.0]]), torch.tensor([[2.0, 3.0]]), torch.ones(1, 2)
    solutions.policy_loss(log_p, log_p, *given).backward()
    wanted = -0.5 * torch.tensor([[2 * math.exp(0.5), 3.0]])
    torch.testing.assert_close(log_p.grad, wanted)


def test_the_example_of_policy_loss():
    one = torch.full((1, 1), -1.0)
    more = one, 1.5 * one, -2 * one, -one
    assert round(solutions.policy_loss(one, *more).item(), 4) == -3.2974
    new = (one / 2).requires_grad_()
    loss = solutions.policy_loss(new, *more)
    loss.backward()
    assert (round(loss.item(), 4), new.grad.item()) == (-3.9569, 0)


# escalate


def levels(signal, windows=1000, up=2):
    """The level after each window of a loop."""
    state, seen = solutions.START, []
    for window in range(windows):
        state = solutions.escalate(state, signal(window, state["level"]), up)
        seen.append(state["level"])
    return seen


def test_escalate_moves_ever_more_rarely_where_fp16_never_works():
    seen = levels(lambda window, level: level == 0)
    moves = [i for i, (a, b) in enumerate(itertools.pairwise([0, *seen])) if a != b]
    # Up after 2 windows; then wait, back, and 2 windows of FP16: 20, 40, 80, 160, 320.
    backs = [2 + sum(wait + 2 for wait in (20, 40, 80, 160, 320)[:i]) for i in range(6)]
    ups = [start - 1 for start in backs]
    downs = [start + wait - 1 for start, wait in zip(backs, (20, 40, 80, 160, 320), strict=False)]
    assert moves == sorted([*ups, *downs]) and len(moves) == 11


@pytest.mark.parametrize(
    ("signal", "last", "count"),
    [
        (lambda window, level: window % 2 == 0, 0, 0),
        (lambda window, level: True, 2, 2),
        (lambda window, level: False, 0, 0),
    ],
)
def test_escalate_on_signals_that_do_not_depend_on_the_level(signal, last, count):
    seen = levels(signal)
    assert (seen[-1], sum(a != b for a, b in itertools.pairwise([0, *seen]))) == (last, count)


def test_the_example_of_escalate():
    state = solutions.START
    for unstable in [True] * 2 + [False] * 20 + [True] * 2:
        state = solutions.escalate(state, unstable)
    assert state == {"level": 1, "bad": 0, "good": 0, "wait": 40, "trial": False}
