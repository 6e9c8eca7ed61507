"""S19: bytes of a step by what they hold, and a plan that takes one measure at a time."""

from itertools import accumulate

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from labkit.labs.memory_and_many_gpus.plan import plan_memory
from labkit.labs.production.memory import Memory, PlanExhausted
from labkit.measuring.card import Card
from labkit.training.models import SmallGPT


def gpt():
    torch.manual_seed(0)
    tokens = torch.randint(0, 2048, (16, 64))
    return SmallGPT(2048, 64, width=64, blocks=2), (tokens, tokens.roll(-1, dims=1))


def mlp():
    """Small, but for its activations: 4 rows of 256 places."""
    torch.manual_seed(0)
    layers = (nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 10))
    return nn.Sequential(*layers), (torch.randn(4, 256, 16), torch.randint(0, 10, (4, 256)))


def measured(memory, model, batch):
    """What the second step holds at most, by the events of torch's own allocator."""
    step = memory.plan.apply(model)
    step(*batch)
    step.optimizer.zero_grad()
    held = Card().hold(model, step.optimizer, batch).now
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step(*batch)
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return held + max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))


@pytest.mark.parametrize("make", [mlp, gpt])
def test_the_categories_sum_to_what_the_allocator_holds(make):
    model, batch = make()
    memory = Memory(plan_memory, model, batch)
    predicted = memory.predicted()
    assert predicted.keys() == {"params", "grads", "states", "casts", "activations"}
    assert min(predicted.values()) >= 0
    found = measured(memory, model, batch)
    assert sum(predicted.values()) == pytest.approx(found, rel=0.15)
    assert sum(predicted.values()) == pytest.approx(memory.plan.steps[-1].peak_bytes, rel=0.001)


def test_each_category_holds_what_it_says():
    model, batch = mlp()
    count = sum(p.numel() for p in model.parameters())
    steps = 4 * len(list(model.parameters()))  # AdamW counts the steps of each parameter
    memory = Memory(plan_memory, model, batch)
    plain = memory.predicted()
    assert plain["params"] == 4 * count and plain["states"] == 8 * count + steps
    assert plain["casts"] == 0
    assert memory.next_step().name == "BF16 autocast"
    cast = memory.predicted()
    assert 0 < cast["casts"] <= 2 * count
    assert cast["params"] == plain["params"] and cast["activations"] < plain["activations"]


def test_with_accumulation_all_gradients_are_there_when_most_bytes_are():
    model, batch = mlp()
    memory = Memory(plan_memory, model, batch)
    while memory.plan.ways.micro_batches == 1:
        memory.next_step()
    predicted = memory.predicted()
    assert predicted["grads"] == predicted["params"]


def test_each_step_lowers_the_peak_until_the_plan_is_exhausted():
    model, batch = mlp()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    memory = Memory(plan_memory, model, batch)
    assert memory.predicted() == memory.predicted()
    peak, names = memory.plan.steps[0].peak_bytes, []
    for _ in range(20):
        try:
            step = memory.next_step()
        except PlanExhausted as refusal:
            said = str(refusal)
            break
        assert step.before == peak > step.after
        peak = step.after
        names.append(step.name)
    assert "no measure is left" in said
    assert len(names) >= 4 and len(set(names)) == len(names) and all(names)
    # Asking again changes nothing.
    plan, predicted = memory.plan, memory.predicted()
    with pytest.raises(PlanExhausted):
        memory.next_step()
    assert memory.plan is plan and memory.predicted() == predicted
    assert sum(predicted.values()) == pytest.approx(peak, rel=0.001)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
