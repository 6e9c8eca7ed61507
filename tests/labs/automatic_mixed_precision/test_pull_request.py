"""The pull request of lab 05, run: hunks with a fault break as their ``why`` says, others train.

A hunk is run as it is printed, on a small network, beside a loop of the test's own.
"""

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.call_order import misuses, record_calls
from labkit.labs.automatic_mixed_precision.pull_request import HUNKS, pull_request


def data(count=4, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    return [
        (scale * torch.randn(8, 6, generator=generator), torch.arange(8) % 4) for _ in range(count)
    ]


class Classifier(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(6, 4))


def bench(loader=None, **more):
    """The names that a hunk uses."""
    names = {"torch": torch, "F": F, "device": "cpu", "Classifier": Classifier, "nn": nn}
    model = Classifier()
    names |= {"model": model, "loader": loader or data()}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    names["scaler"] = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    return names | more


def run(number, emulated=None, **more):
    """Run hunk ``number`` (from 1) and return its names afterwards."""
    names = bench(**more)
    with emulated or emulate_gpu(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(HUNKS[number - 1].lines), names)
    return names


def weights(model):
    return torch.cat([p.detach().float().flatten() for p in model.parameters()])


def trained(limit, loader):
    """Where a right loop ends: gradients of each batch alone, unscaled, clipped to the limit."""
    names = bench(loader=loader)
    model, optimizer = names["model"], names["optimizer"]
    with emulate_gpu():
        for inputs, targets in names["loader"]:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(inputs), targets)
            grads = torch.autograd.grad(2.0**10 * loss, list(model.parameters()))
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.grad = grad / 2.0**10
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
    return weights(model)


def test_hunk_1_leaves_no_float32_weight_and_the_scaler_refuses_it():
    names = run(1)
    assert {p.dtype for p in names["model"].parameters()} == {torch.float16}
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(names["model"](data()[0][0]), data()[0][1])
    names["scaler"].scale(loss).backward()
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        names["scaler"].step(names["optimizer"])


def test_hunk_2_never_steps_again_after_one_overflow():
    loader = data(6, scale=30.0)
    scale = 2.0**14  # the first steps overflow
    model = run(2, loader=loader, scaler=torch.amp.GradScaler("cpu", init_scale=scale))["model"]
    assert torch.equal(weights(model), weights(Classifier())), "not one step"
    right = run(3, loader=loader, scaler=torch.amp.GradScaler("cpu", init_scale=scale))["model"]
    assert not torch.equal(weights(right), weights(Classifier()))


def test_hunk_3_clips_true_gradients():
    end = weights(run(3, loader=data(scale=20.0))["model"])
    assert torch.allclose(end, trained(limit=1.0, loader=data(scale=20.0)), rtol=0, atol=2.0**-8)
    assert (end - weights(Classifier())).norm() > 0.05


def test_hunk_4_clips_scaled_gradients_and_updates_too_often():
    names = bench()
    with pytest.raises(AssertionError, match="No inf checks were recorded"), emulate_gpu():
        exec("\n".join(HUNKS[3].lines), names)
    # The one step it made is 0.1 / 1024 long: the limit of 1 on gradients times 1024.
    moved = (weights(names["model"]) - weights(Classifier())).norm()
    assert moved == pytest.approx(0.1 / 2.0**10, rel=1e-2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA torch.cuda.amp is live")
def test_hunk_5_computes_in_float32_without_a_scale():
    """On a plain CPU: inside emulate_gpu() it is refused."""
    with pytest.raises(RuntimeError, match="emulate_gpu"):
        run(5)
    names = run(5, emulated=nullcontext())
    assert not names["scaler"].is_enabled()
    assert torch.equal(weights(names["model"]), trained_in_float32())


def trained_in_float32():
    names = bench()
    for inputs, targets in names["loader"]:
        names["optimizer"].zero_grad()
        F.cross_entropy(names["model"](inputs), targets).backward()
        names["optimizer"].step()
    return weights(names["model"])


def gan(scale):
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(3, 5), nn.Linear(5, 1)
    bce = F.binary_cross_entropy_with_logits

    def loss_of_d(real, fake):
        on_real, on_fake = discriminator(real), discriminator(fake)
        return bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))

    def loss_of_g(fake):
        on_fake = discriminator(fake)
        return bce(on_fake, torch.ones_like(on_fake))

    return {
        "generator": generator, "discriminator": discriminator,
        "loss_of_d": loss_of_d, "loss_of_g": loss_of_g,
        "real": scale * torch.randn(8, 5), "noise": torch.randn(8, 3),
        "d_optimizer": torch.optim.SGD(discriminator.parameters(), lr=0.1),
        "g_optimizer": torch.optim.SGD(generator.parameters(), lr=0.1),
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**12),
    }  # fmt: skip


def test_hunk_6_steps_both_and_lets_g_go_on_where_d_overflows():
    fresh = gan(1.0)
    names = run(6, **gan(1.0))
    for network in ("generator", "discriminator"):
        assert not torch.equal(weights(names[network]), weights(fresh[network]))
    fresh, names = gan(3000.0), run(6, **gan(3000.0))
    assert torch.equal(weights(names["discriminator"]), weights(fresh["discriminator"]))
    assert not torch.equal(weights(names["generator"]), weights(fresh["generator"]))
    assert names["scaler"].get_scale() == 2.0**11


def test_the_recorder_finds_the_faults_of_order_and_none_in_right_hunks():
    said = {}
    for number in (2, 3, 6):
        with record_calls() as recorder:
            run(number, **({"loader": data(1)} if number < 6 else gan(1.0)))
        said[number] = [misuse.sentence for misuse in misuses(recorder.calls)]
    assert said[3] == said[6] == []
    assert len(said[2]) == 1 and "not emptied" in said[2][0]
    with record_calls() as recorder, pytest.raises(AssertionError):
        run(4, loader=data(1))
    sentences = [misuse.sentence for misuse in misuses(recorder.calls)]
    assert "clips scaled gradients" in sentences[0] and "no inf check" in sentences[1]


def test_hunks_are_numbered_and_four_of_six_are_faulty():
    text = pull_request()
    assert [f"@@ {n}. {hunk.about}" in text for n, hunk in enumerate(HUNKS, 1)] == [True] * 6
    assert [hunk.faulty for hunk in HUNKS] == [True, True, False, True, True, False]
    assert all(hunk.why.startswith("Right.") is not hunk.faulty for hunk in HUNKS)
