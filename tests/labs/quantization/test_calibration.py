"""Observers: what each keeps, when it freezes, and what percentiles cost in total."""

import pytest
import torch

from labkit.formats import choose, fake_quantize
from labkit.labs.quantization.calibration import Observer

KINDS = ["minmax", "percentile", "mse", "entropy"]


def normal(count=10_000, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def observed(kind, x, **settings):
    observer = Observer(kind, **settings)
    observer.observe(x)
    return observer.freeze()


def rmse(x, grid):
    return (fake_quantize(x, grid) - x).double().square().mean().sqrt().item()


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_before_calibration_is_an_error(kind):
    observer = Observer(kind)
    observer.observe(torch.empty(0))
    with pytest.raises(RuntimeError, match="seen no values"):
        observer.freeze()
    with pytest.raises(RuntimeError, match="seen no values"):
        _ = observer.grid


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_observer_keeps_its_grid(kind):
    observer = Observer(kind)
    observer.observe(normal())
    frozen = observer.freeze()
    observer.observe(100 * normal(seed=1))
    assert torch.equal(observer.grid.scale, frozen.scale)
    assert torch.equal(observer.grid.zero_point, frozen.zero_point)
    again = Observer(kind)
    again.load_state_dict(observer.state_dict())
    again.observe(100 * normal(seed=1))
    assert torch.equal(again.grid.scale, frozen.scale)


@pytest.mark.parametrize("kind", KINDS)
def test_an_observer_that_is_not_frozen_follows_its_batches(kind):
    observer = Observer(kind)
    observer.observe(normal())
    first = observer.grid.scale
    observer.observe(100 * normal(seed=1))
    assert observer.grid.scale > 10 * first


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_is_refused_and_changes_nothing(kind, bad):
    observer = Observer(kind)
    observer.observe(normal())
    before = observer.grid.scale
    with pytest.raises(ValueError, match="NaN or inf"):
        observer.observe(torch.tensor([1e6, bad]))
    assert torch.equal(observer.grid.scale, before)


def test_a_kind_or_a_number_of_bits_that_is_none_is_refused():
    with pytest.raises(ValueError, match="percentile"):
        Observer("median")
    with pytest.raises(ValueError, match="2 to 16"):
        Observer(bits=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_zero_has_a_grid(kind):
    grid = observed(kind, torch.zeros(50))
    assert fake_quantize(torch.zeros(3), grid).tolist() == [0, 0, 0]


def test_a_percentile_wins_on_the_bulk_and_loses_in_total():
    x = torch.cat([normal(), torch.tensor([100.0])])
    grids = {kind: observed(kind, x, symmetric=True) for kind in KINDS}
    bulk = {kind: rmse(x[:-1], grid) for kind, grid in grids.items()}
    total = {kind: rmse(x, grid) for kind, grid in grids.items()}
    # A step of 100 / 127 leaves an error of step / sqrt(12); that of 3.3 / 127 is 30 times less,
    # with a little clipping. The one value that was cut then costs 97**2 / 10,001.
    assert bulk["minmax"] == pytest.approx(100 / 127 / 12**0.5, rel=0.05)
    assert bulk["percentile"] < 0.02
    assert total["minmax"] == pytest.approx(bulk["minmax"], rel=0.05)
    assert total["percentile"] == pytest.approx(97 / 10_001**0.5, rel=0.01)
    assert total["mse"] <= min(total.values()) * 1.001
    assert bulk["entropy"] < bulk["minmax"]


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_the_search_finds_the_least_squared_error(bits, symmetric):
    x = normal(2000)
    found = rmse(x, observed("mse", x, bits=bits, symmetric=symmetric))
    low, high = x.aminmax()
    finer = [
        rmse(x, choose(max(low, -t), min(high, t), bits=bits, symmetric=symmetric))
        for t in x.abs().max() * torch.linspace(0.001, 1, 1000)
    ]
    assert found <= 1.01 * min(finer)


def test_at_four_bits_the_search_keeps_a_spike_and_rounds_the_rest_to_zero():
    x = torch.cat([normal(8000), torch.tensor([100.0])])
    kept = fake_quantize(x, observed("mse", x, bits=4, symmetric=True))
    assert kept[-1] > 90
    assert (kept[:-1] == 0).all()
    # Squared error is not the loss: to cut the spike would have kept 8000 values.
    cut = fake_quantize(x, observed("percentile", x, bits=4, symmetric=True))
    assert (cut[:-1] != 0).float().mean() > 0.5
