"""S34: the ring is learnt in 16 bits, D's overflow does not hold G, and averages stay in float32.

One step of a GAN is an exercise of lab 05; its answer is judged there.
"""

import copy
import math

import pytest
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.digit_gan import Discriminator, Generator
from labkit.labs.automatic_mixed_precision.solutions import gan_step
from labkit.labs.real_models.gan import blobs_found, follow, ring_points, ring_run
from labkit.training.data import digits


@pytest.mark.parametrize("held", ["d", "g"])
def test_the_overflow_of_one_holds_this_one_and_halves_the_scale_once(held):
    torch.manual_seed(0)
    networks = {"g": Generator(), "d": Discriminator()}
    before = copy.deepcopy({name: network.state_dict() for name, network in networks.items()})
    adams = [torch.optim.Adam(networks[name].parameters(), lr=1e-3) for name in "dg"]
    passes = []  # D has two backward passes a step: its own, and that of G's loss

    def overflow(gradient):
        passes.append(1)
        return gradient * math.inf if len(passes) == 1 else gradient

    next(networks[held].parameters()).register_hook(overflow)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with emulate_gpu():
        real, noise = digits().train_images[:16], torch.randn(16, 16)
        gan_step(*networks.values(), real, noise, *adams, scaler, "cpu")
    assert scaler.get_scale() == 512
    for name, network in networks.items():
        stayed = all(torch.equal(before[name][n], x) for n, x in network.state_dict().items())
        assert stayed == (name == held)


def test_images_of_another_size_are_refused_with_the_size_that_was_meant():
    with pytest.raises(ValueError, match="shape N x 1 x 8 x 8, got 4 x 1 x 28 x 28"):
        Discriminator()(torch.zeros(4, 1, 28, 28))


def test_the_ring_has_its_mean_and_spread_and_its_blobs_are_counted():
    points = ring_points(4000, torch.Generator().manual_seed(0))
    assert points.mean(dim=0).abs().max() < 0.1
    assert points.std(dim=0).sub(math.sqrt(2 + 0.01)).abs().max() < 0.05
    assert blobs_found(points) == 8
    east = points[(points[:, 0] > 1.7) & (points[:, 1].abs() < 0.5)]
    assert blobs_found(east) == 1
    assert blobs_found(torch.cat([east, -east])) == 2
    assert blobs_found(east / 2) == 0
    few = torch.tensor([[2.0, 0.0]])
    assert blobs_found(torch.cat([few, torch.zeros(99, 2)])) == 1
    assert blobs_found(torch.cat([few, torch.zeros(100, 2)])) == 0
    # West lies where atan2 jumps from pi to -pi: still one blob.
    assert blobs_found(torch.tensor([[-2.0, 0.01], [-2.0, -0.01]])) == 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_ring_is_learnt_and_d_comes_nearer_to_a_coin(precision):
    found = ring_run(precision=precision, seed=0)
    highest, last = found.accuracy
    assert 0.5 < last < highest
    samples = found.samples["float32"]
    assert samples.mean(dim=0).abs().max() < 0.25
    assert samples.std(dim=0).sub(math.sqrt(2)).abs().max() < 0.15
    assert blobs_found(samples) == 8
    assert blobs_found(found.samples["bfloat16"]) < 8


def test_an_average_is_torch_s_and_stands_still_in_bf16():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.bias.fill_(1.0)
    wide, narrow = copy.deepcopy(model), copy.deepcopy(model).bfloat16()
    oracle = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
    oracle.update_parameters(model)
    with torch.no_grad():
        model.bias += 0.5
    for _ in range(300):
        follow(wide, model, 0.999)
        follow(narrow, model, 0.999)
        oracle.update_parameters(model)
    for mine, theirs in zip(wide.parameters(), oracle.module.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
    # From 1 a step of 0.0005 is less than half of BF16's gap, 2**-7.
    assert torch.equal(narrow.bias, torch.ones(4).bfloat16())
