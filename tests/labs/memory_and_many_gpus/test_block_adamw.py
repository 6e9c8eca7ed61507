"""AdamW with moments in blocks of 8 bits, against torch's own."""

import copy

import pytest
import torch

from labkit.labs.memory_and_many_gpus.block_adamw import BLOCK, BlockAdamW
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import train
from labkit.training.data import batches, digits
from labkit.training.models import mlp


def test_the_first_step_is_adamws():
    """Moments of the first step are not rounded before they are used."""
    torch.manual_seed(0)
    weights = torch.randn(3 * 2**18 + 5)  # more than a slice, and no multiple of a block
    pair = [torch.nn.Parameter(weights.clone()) for _ in range(2)]
    gradient = torch.randn(len(weights))
    settings = {"lr": 0.1, "weight_decay": 0.2}
    for parameter, make in zip(pair, (torch.optim.AdamW, BlockAdamW), strict=True):
        parameter.grad = gradient.clone()
        make([parameter], **settings).step()
    # A few roundings of float32 in a step of 0.1 and a weight of at most 5.
    assert (pair[0] - pair[1]).abs().max() <= 4 * 2**-23 * 5


def test_the_moments_take_two_bytes_a_parameter():
    parameter = torch.nn.Parameter(torch.zeros(1000, 256))
    parameter.grad = torch.ones_like(parameter)
    optimizer = BlockAdamW([parameter])
    with LiveBytes().hold(parameter, optimizer) as card:
        optimizer.step()
        held = card.now
    assert held - 2 * parameter.nbytes == parameter.numel() * (2 + 2 * 4 / BLOCK)


def test_moments_follow_torchs_on_average():
    """Gradients are 100 times larger at first; to the nearest, v would never come down again."""
    torch.manual_seed(0)
    pair = [torch.nn.Parameter(torch.zeros(64 * BLOCK)) for _ in range(2)]
    optimizers = [torch.optim.AdamW(pair[:1]), BlockAdamW(pair[1:])]
    for step in range(1000):
        gradient = torch.randn(64 * BLOCK) * (100 if step < 3 else 1)
        for parameter, optimizer in zip(pair, optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    state, true = optimizers[1].state[pair[1]], optimizers[0].state[pair[0]]
    root = (state["second"] * state["second scale"]).flatten()
    # The mean of 16,384 codes, each off by less than one of 255 steps and right on average.
    want = true["exp_avg_sq"].sqrt().mean().item()
    assert root.mean().item() == pytest.approx(want, rel=0.01)
    first = (state["first"] * state["first scale"]).flatten()
    assert (first - true["exp_avg"]).abs().max() <= 12 * state["first scale"].max()


def test_it_goes_on_from_a_state_dict_with_the_same_bits():
    torch.manual_seed(0)
    gradients = torch.randn(3, BLOCK + 44)

    def step(parameter, optimizer, number):
        optimizer.generator = torch.Generator().manual_seed(number)
        parameter.grad = gradients[number].clone()
        optimizer.step()

    parameter = torch.nn.Parameter(torch.randn(BLOCK + 44))
    optimizer = BlockAdamW([parameter])
    step(parameter, optimizer, 0)
    step(parameter, optimizer, 1)
    again = torch.nn.Parameter(parameter.detach().clone())
    loaded = BlockAdamW([again])
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, other in ((parameter, optimizer), (again, loaded)):
        step(one, other, 2)
    assert torch.equal(again, parameter)
    for name, value in optimizer.state[parameter].items():
        torch.testing.assert_close(loaded.state[again][name], value, rtol=0, atol=0)


def test_where_gradients_are_zero_nothing_moves_but_by_decay():
    parameter = torch.nn.Parameter(torch.ones(2 * BLOCK))
    optimizer = BlockAdamW([parameter], lr=0.1, weight_decay=0.0)
    for _ in range(20):
        parameter.grad = torch.cat([torch.zeros(BLOCK), torch.full((BLOCK,), 1e-3)])
        optimizer.step()
    assert torch.equal(parameter[:BLOCK], torch.ones(BLOCK))
    assert parameter[BLOCK:].max() < 0


def test_a_network_learns_as_with_adamw():
    data, losses = digits(0), {}
    for make in (torch.optim.AdamW, BlockAdamW):
        torch.manual_seed(0)
        model = mlp(64, 64, 10)
        loader = batches(data.train_images, data.train_labels, 64, seed=0)
        optimizer = make(model.parameters(), lr=3e-3)
        run = train(model, loader, epochs=6, optimizer=optimizer, progress=False)
        losses[make] = sum(step.loss for step in run[-20:]) / 20
    assert losses[torch.optim.AdamW] < 0.2 * run[0].loss
    assert losses[BlockAdamW] == pytest.approx(losses[torch.optim.AdamW], rel=0.1)


def test_other_parameters_are_refused():
    with pytest.raises(ValueError, match=r"a parameter is torch\.bfloat16"):
        BlockAdamW([torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)])
    with pytest.raises(ValueError, match=r"strides \(1, 4\)"):
        BlockAdamW([torch.zeros(4, 4).T.requires_grad_()])
