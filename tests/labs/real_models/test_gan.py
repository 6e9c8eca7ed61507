"""S34: one scaler, two optimizers, one update; D's overflow does not hold G; the ring is learnt."""

import copy
import math

import pytest
import torch
from torch import nn

from labkit.labs.real_models.gan import (
    MovingAverage,
    blobs_found,
    ring,
    ring_run,
    train_gan,
)
from labkit.training.data import batches, digits
from labkit.training.models import Discriminator, Generator


def optimizers(generator, discriminator, lr=1e-3):
    return {
        "d_optimizer": torch.optim.Adam(discriminator.parameters(), lr=lr),
        "g_optimizer": torch.optim.Adam(generator.parameters(), lr=lr),
    }


def networks():
    torch.manual_seed(0)
    return Generator(), Discriminator()


def run(generator, discriminator, data, **settings):
    settings = optimizers(generator, discriminator) | {"noise": 16} | settings
    return train_gan(generator, discriminator, data, **settings)


def images(n=4, batch_size=16):
    return digits().train_images[: n * batch_size].split(batch_size)


# What a batch may be


def test_labels_are_dropped_and_images_alone_make_the_same_steps():
    data = digits()
    pairs = list(batches(data.train_images[:64], data.train_labels[:64], 16))
    found = [run(*networks(), given) for given in (pairs, [images for images, _ in pairs])]
    assert found[0] == found[1] and len(found[0]) == 4


@pytest.mark.parametrize("shape", [(4, 1, 28, 28), (4, 3, 8, 8), (4, 64)])
def test_images_of_another_size_are_refused_before_a_step(shape):
    generator, discriminator = networks()
    before = copy.deepcopy(discriminator.state_dict())
    with pytest.raises(ValueError, match=r"generator makes \(4, 1, 8, 8\)"):
        run(generator, discriminator, [torch.zeros(shape)])
    assert all(torch.equal(before[n], x) for n, x in discriminator.state_dict().items())


def test_a_discriminator_that_ends_with_a_sigmoid_is_refused():
    generator, discriminator = networks()
    discriminator.layers.append(nn.Sigmoid())
    with pytest.raises(ValueError, match=r"ends with a Sigmoid.*with_logits"):
        run(generator, discriminator, images())


# The step


def test_the_first_losses_are_those_of_the_definition_and_d_s_step_comes_first():
    (real,) = images(1)
    generator, discriminator = networks()
    old = copy.deepcopy(discriminator)
    z = torch.randn(16, 16, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        fake = generator(z)
    (step,) = run(generator, discriminator, [real], precision="fp32", seed=5)
    with torch.no_grad():
        right = old(real).sigmoid().log().mean() + (1 - old(fake).sigmoid()).log().mean()
        told = ((old(real) > 0).float().mean() + (old(fake) <= 0).float().mean()) / 2
        fooled = discriminator(fake).sigmoid().log().mean()
    assert step.d_loss == pytest.approx(-right.item(), rel=1e-5)
    assert step.g_loss == pytest.approx(-fooled.item(), rel=1e-5)
    assert step.d_accuracy == pytest.approx(told.item()) and step.loss_scale == 1


def test_d_s_loss_sends_no_gradient_into_g_and_g_s_none_into_d_s_step():
    (real,) = images(1)
    generator, discriminator = networks()
    still = optimizers(generator, discriminator, lr=0.0)
    seen = []
    still["d_optimizer"].register_step_pre_hook(
        lambda *_: seen.append(all(p.grad is None for p in generator.parameters()))
    )
    fresh = []
    still["d_optimizer"].register_step_pre_hook(
        lambda *_: fresh.append([p.grad.clone() for p in discriminator.parameters()])
    )
    run(generator, discriminator, [real], precision="fp32", seed=1, **still)
    assert seen == [True]
    # A second run has G's gradients in D at its start, and D's step must not see them.
    run(generator, discriminator, [real], precision="fp32", seed=1, **still)
    assert all(map(torch.equal, *fresh))


def hook_inf(network, at):
    """Gradients of the network's first parameter are inf in the backward passes named."""
    passes = []

    def overflow(gradient):
        passes.append(1)
        return gradient * math.inf if len(passes) in at else gradient

    next(network.parameters()).register_hook(overflow)


def moved(network, before):
    return any(not torch.equal(before[n], x) for n, x in network.state_dict().items())


@pytest.mark.parametrize("name", ["d", "g"])
def test_the_overflow_of_one_holds_this_one_and_halves_the_scale_once(name):
    generator, discriminator = networks()
    # D has two backward passes a step: its own, and that of G's loss.
    hook_inf(discriminator if name == "d" else generator, at={1})
    before = {n: copy.deepcopy(m.state_dict()) for n, m in (("d", discriminator), ("g", generator))}
    first, *_ = run(generator, discriminator, images(1), precision="fp16")
    assert (first.d_skipped, first.g_skipped) == (name == "d", name == "g")
    assert moved(discriminator, before["d"]) == (name != "d")
    assert moved(generator, before["g"]) == (name != "g")

    generator, discriminator = networks()
    hook_inf(discriminator if name == "d" else generator, at={1})
    found = run(generator, discriminator, images(3), precision="fp16")
    assert [step.loss_scale / found[0].loss_scale for step in found] == [1, 0.5, 0.5]
    assert [step.d_skipped or step.g_skipped for step in found] == [True, False, False]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_overflow_without_a_scaler_is_skipped_as_well(precision):
    generator, discriminator = networks()
    hook_inf(discriminator, at={1})
    (step,) = run(generator, discriminator, images(1), precision=precision)
    assert step.d_skipped and not step.g_skipped and step.loss_scale == 1
    assert all(p.isfinite().all() for p in discriminator.parameters())


def test_both_forwards_are_in_autocast():
    generator, discriminator = networks()
    seen = set()
    for network in (generator, discriminator):
        for module in network.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                module.register_forward_hook(lambda _, x, y: seen.add(y.dtype))
    run(generator, discriminator, images(1), precision="fp16")
    assert seen == {torch.float16}


def test_parameters_of_another_network_are_refused():
    generator, discriminator = networks()
    swapped = optimizers(discriminator, generator)
    with pytest.raises(ValueError, match="holds no parameter of this model"):
        run(generator, discriminator, images(), **swapped)


# The ring


def test_the_ring_has_its_mean_and_spread_and_its_blobs_are_counted():
    points = ring(4000, torch.Generator().manual_seed(0))
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


# The average


def test_the_average_is_torch_s_and_stands_still_in_bf16():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    wide, narrow = MovingAverage(model, decay=0.999), MovingAverage(
        model, decay=0.999, dtype=torch.bfloat16
    )  # fmt: skip
    oracle = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
    oracle.update_parameters(model)
    start = model[0].bias.detach().clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5
        model[1].running_mean += 7
    for _ in range(300):
        wide.update(model)
        narrow.update(model)
        oracle.update_parameters(model)
    for mine, theirs in zip(wide.model.parameters(), oracle.module.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
    gone = 0.5 * (1 - 0.999**300)
    assert torch.allclose(wide.model[0].bias, start + gone, atol=1e-4)
    # From 1 a step of 0.0005 is less than half of BF16's gap, 2**-7.
    assert torch.equal(narrow.model[1].weight, torch.ones(4).bfloat16())
    assert not wide.model.training
    assert (wide.model[1].running_mean == 7).all() and (narrow.model[1].running_mean == 7).all()
