"""S17, S19: a plan whose predicted bytes come true, whose gradients are the plain step's."""

import copy
from itertools import accumulate, pairwise

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings, summed_loss
from labkit.labs.memory_and_many_gpus.plan import _count, plan_memory
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import cross_entropy
from labkit.training.models import SmallGPT

MIB = 2**20
ALL = frozenset(range(9))
WAYS = [
    StepSettings(),
    StepSettings(autocast=True),
    StepSettings(checkpointed=ALL),
    StepSettings(micro_batches=4),
    StepSettings(autocast=True, checkpointed=ALL, micro_batches=2, foreach=False),
]


def _mlp():
    """Smooth: with ReLU, values that round across 0 change gradients more than they themselves."""
    torch.manual_seed(0)
    x, y = torch.randn(509, 256), torch.randint(0, 10, (509,))  # no multiple of the micro-batches
    y[::3] = -100
    widths = (256, 512, 512, 512)
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10)), x, y


def _gpt():
    torch.manual_seed(0)
    tokens = torch.randint(0, 2048, (16, 64))
    return SmallGPT(2048, 64, width=64, blocks=2), tokens, tokens.roll(-1, dims=1)


def _accumulate(model, x, y, ways):
    """The gradients of the mean loss, as a learner writes the loop; the loss."""
    total = 0.0
    for part in zip(x.chunk(ways.micro_batches), y.chunk(ways.micro_batches), strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=ways.autocast):
            loss = summed_loss(model, *part, ways) / (y != -100).sum()
        loss.backward()
        total += loss.item()
        del loss
    return total


def _measured(model, x, y, ways):
    """What the second step holds at most, by the events of torch's own allocator."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=ways.foreach)
    _accumulate(model, x, y, ways)
    optimizer.step()
    optimizer.zero_grad()
    held = LiveBytes().hold(model, optimizer, x, y).now
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _accumulate(model, x, y, ways)
        optimizer.step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    taken = accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()))
    return held + max(taken)


def _predicted(model, x, y, ways):
    return _count(model, (x, y), ways).peak.total


@pytest.mark.parametrize("ways", WAYS)
def test_predicted_bytes_are_within_15_percent_of_the_allocators(ways):
    model, x, y = _mlp()
    assert _predicted(model, x, y, ways) == pytest.approx(_measured(model, x, y, ways), rel=0.15)


@pytest.mark.parametrize("ways", [StepSettings(), StepSettings(loss_chunks=16, checkpointed=ALL)])
def test_so_are_those_of_a_gpt(ways):
    model, x, y = _gpt()
    assert _predicted(model, x, y, ways) == pytest.approx(_measured(model, x, y, ways), rel=0.15)


def test_what_the_bytes_of_the_peak_hold():
    model, x, y = _mlp()
    count = sum(p.numel() for p in model.parameters())
    steps = 4 * len(list(model.parameters()))  # AdamW counts the steps of each parameter
    plain = _count(model, (x, y), StepSettings()).peak
    assert (plain.weights, plain.moments, plain.copies) == (4 * count, 8 * count + steps, 0)
    cast = _count(model, (x, y), StepSettings(autocast=True)).loss
    assert cast.weights == plain.weights and 0 < cast.copies <= 2 * count
    # With accumulation all gradients are there when most bytes are.
    assert _count(model, (x, y), StepSettings(micro_batches=2)).loss.gradients == 4 * count


CASES = [(make, ways) for make in (_mlp, _gpt) for ways in WAYS[1:]]
CHUNKED = [
    StepSettings(loss_chunks=16),
    StepSettings(autocast=True, loss_chunks=16, micro_batches=4),
]


@pytest.mark.parametrize(("make", "ways"), CASES + [(_gpt, ways) for ways in CHUNKED])
def test_loss_and_gradients_are_those_of_the_plain_step(make, ways):
    model, x, y = make()
    twin = copy.deepcopy(model)
    true_loss = cross_entropy(twin(x), y)
    true_loss.backward()
    true = torch.cat([parameter.grad.flatten() for parameter in twin.parameters()])
    with emulate_gpu():
        loss = _accumulate(model, x, y, ways)
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    # Sums of some thousand terms in another order; under autocast each matmul rounds to 2**-9.
    slack = 0.02 if ways.autocast else 1e-5
    assert loss == pytest.approx(true_loss.item(), rel=slack)
    assert (found - true).norm() <= slack * true.norm()


def _smallest(make):
    model, x, y = make()
    return model, (x, y), 10 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("make", [_mlp, _gpt])
def test_under_any_pressure_the_plan_fits_and_the_model_is_not_changed(make):
    model, batch, least = _smallest(make)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = plan_memory(2**40, model, batch).steps[0].peak.total
    taken = set()
    for budget in range(least, plain, (plain - least) // 4):
        try:
            plan = plan_memory(budget, model, batch)
        except ValueError as error:
            assert "cannot fit" in str(error)
            continue
        taken |= {step.name for step in plan.steps}
        assert plan.steps[-1].peak.total <= budget < plan.steps[-2].peak.total
        again = any(step.name == "checkpointed blocks" for step in plan.steps)
        again |= any(step.name.startswith("loss in") for step in plan.steps)
        assert 0.01 < plan.steps[-1].extra_flop < 0.5 if again else not plan.steps[-1].extra_flop
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(taken) >= 3


def test_measures_come_in_order_and_only_where_they_help():
    model, batch, _ = _smallest(_gpt)
    plain = plan_memory(2**40, model, batch)
    assert [step.name for step in plain.steps] == ["as it is"] and plain.settings == StepSettings(
        batch=16
    )
    peak = plain.steps[0].peak.total
    plan = plan_memory(peak // 2, model, batch)
    order = ["as it is", "BF16 autocast", "loss in 16 chunks", "checkpointed blocks"]
    names = [step.name for step in plan.steps]
    assert names == order[: len(names)] and len(names) >= 3
    assert f"fits {peak // 2 / MIB:.4g} MiB" in plan.describe()
    # With one row the update is the peak, and nothing that makes activations smaller is taken.
    one = tuple(x[:1, :4] for x in batch)
    update = plan_memory(2**40, model, one).steps[0].peak.total
    names = [step.name for step in plan_memory(update - 1, model, one).steps]
    assert names == ["as it is", "AdamW without foreach"]


@pytest.mark.parametrize("budget", [-1, 0, 1, 10_000])
def test_a_budget_below_what_the_update_needs_cannot_fit(budget):
    model = nn.Linear(100, 100)
    with pytest.raises(ValueError, match=r"cannot fit: 98\.63 KiB of weights, gradients and 8-bit"):
        plan_memory(budget, model, (torch.zeros(1, 100), torch.zeros(1, dtype=torch.int64)))


def test_parameters_that_are_not_trained_need_no_gradients_and_no_moments():
    torch.manual_seed(0)
    frozen, x, y = nn.Linear(256, 256), torch.randn(8, 256), torch.randint(0, 4, (8,))
    model = nn.Sequential(frozen.requires_grad_(False), nn.Linear(256, 4))
    held = sum(parameter.nbytes for parameter in frozen.parameters())
    plan = plan_memory(2 * held, model, (x, y))
    assert [step.name for step in plan.steps] == ["as it is"]
    assert plan.steps[0].peak.total == pytest.approx(
        _measured(model, x, y, StepSettings()), rel=0.15
    )
