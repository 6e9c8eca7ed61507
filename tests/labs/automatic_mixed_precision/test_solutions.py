"""Lab 05's own loops, which its checks run as their judge, beside NumPy in float64.

NumPy knows no autocast and no scaler: it takes the gradients by hand, and leaves out a step that
has to overflow.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision import solutions

# A rounding is off by up to 2**-11 in FP16 and 2**-8 in BF16, and runs have up to four steps of
# some four roundings each: 16 times that. In FP32 the 2**-24 of a rounding is never near. Scaled or
# skipped wrongly, a run is off by 2**-2 or more.
NEAR = {torch.float32: 2.0**-16, torch.float16: 2.0**-7, torch.bfloat16: 2.0**-4}
LR = 0.5


def batch(seed, count, scale=1.0):
    source = np.random.default_rng(seed)
    return scale * source.standard_normal((count, 3)), source.integers(2, size=count)


def tensors(batches):
    return [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in batches]


def linear(weights):
    network = nn.Linear(3, len(weights), bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor(weights))
    return network, torch.optim.SGD(network.parameters(), lr=LR)


def softmax_regression(weights, x, y):
    """(mean cross entropy, its gradient) by NumPy."""
    logits = x @ weights.T
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = exps / exps.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(y)), y]).mean()
    return loss, (shares - np.eye(2)[y]).T @ x / len(y)


def moved(network, start):
    return network.weight.detach().double().numpy() - start


def is_near(got, want, dtype=torch.float16):
    got, want = np.asarray(got), np.asarray(want)
    return np.linalg.norm(got - want) <= NEAR[dtype] * np.linalg.norm(want)


START = np.array([[0.5, -0.25, 0.125], [0.25, 0.5, -0.5]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fit_is_gradient_descent(dtype):
    batches = [batch(i, 8) for i in range(4)]
    network, optimizer = linear(START)
    with emulate_gpu():
        losses = solutions.fit(
            network.eval(), tensors(batches), F.cross_entropy, optimizer, dtype, "cpu"
        )
    weights, wanted = START, []
    for inputs, targets in batches:
        loss, gradient = softmax_regression(weights, inputs, targets)
        weights, wanted = weights - LR * gradient, [*wanted, loss]
    assert is_near(losses, wanted, dtype) and len(losses) == 4
    assert is_near(moved(network, START), weights - START, dtype)


def test_fit_leaves_out_the_step_that_overflows():
    """65536 times a gradient of more than 1 is inf in FP16; 32768 times it is not."""
    x, y = np.eye(3)[:2] * 3.0, np.array([0, 1])
    network, optimizer = linear(np.array([[-1.0, 0, 0], [0, -1.0, 0]]))
    start = network.weight.detach().double().numpy()
    loss, gradient = softmax_regression(start, x, y)
    assert 65504 / 65536 < abs(gradient).max() < 65504 / 32768
    with emulate_gpu():
        losses = solutions.fit(
            network, tensors([(x, y)] * 2), F.cross_entropy, optimizer, torch.float16, "cpu"
        )
    assert is_near(losses, [loss, loss])
    assert is_near(moved(network, start), -LR * gradient)


@pytest.mark.parametrize("scale", [0.1, 4.0])
def test_a_clipped_step_has_the_length_of_the_limit_or_of_the_gradient(scale):
    x, y = batch(3, 8, scale)
    network, optimizer = linear(START)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with emulate_gpu():
        norm = solutions.clipped_step(network, *tensors([(x, y)])[0], optimizer, scaler, 0.5, "cpu")
    _, gradient = softmax_regression(START, x, y)
    length = np.linalg.norm(gradient)
    assert (length > 0.5) == (scale > 1)
    assert is_near(norm, length)
    assert is_near(moved(network, START), -LR * gradient * min(1, 0.5 / length))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_accumulation_is_descent_on_the_counted_tokens_put_together(dtype):
    counts = (8, 3, 0, 8, 2)
    batches = [batch(20 + i, 8) for i in range(5)]
    padded = [(x.unflatten(0, (2, 4)), y.unflatten(0, (2, 4))) for x, y in tensors(batches)]
    for (_, targets), count in zip(padded, counts, strict=True):
        targets.view(-1)[count:] = -100
    network, optimizer = linear(START)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=dtype is torch.float16)
    with emulate_gpu():
        losses = solutions.accumulate(network, padded, 3, optimizer, scaler, dtype, "cpu")
    weights, wanted = START, []
    for places in ((0, 1, 2), (3, 4)):
        parts = [(batches[i][0][: counts[i]], batches[i][1][: counts[i]]) for i in places]
        x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
        loss, gradient = softmax_regression(weights, x, y)
        weights, wanted = weights - LR * gradient, [*wanted, loss]
    assert is_near(losses, wanted, dtype) and len(losses) == 2
    assert is_near(moved(network, START), weights - START, dtype)


def sigmoid(scores):
    return 1 / (1 + np.exp(-scores))


def test_a_step_of_a_gan_trains_d_first_then_g_against_the_new_d():
    source = np.random.default_rng(7)
    g, d = source.standard_normal((3, 3)), source.standard_normal((1, 3))
    (generator, g_optimizer), (discriminator, d_optimizer) = linear(g), linear(d)
    g, d = (net.weight.detach().double().numpy() for net in (generator, discriminator))
    starts = g, d
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(2):  # the second would see gradients that the first left behind
        real, noise = source.standard_normal((2, 16, 3))
        with emulate_gpu():
            losses = solutions.gan_step(
                generator,
                discriminator,
                *(torch.tensor(x, dtype=torch.float32) for x in (real, noise)),
                d_optimizer,
                g_optimizer,
                scaler,
                "cpu",
            )
        fake = noise @ g.T
        on_real, on_fake = real @ d.T, fake @ d.T
        d_loss = np.logaddexp(0, -on_real).mean() + np.logaddexp(0, on_fake).mean()
        d = d - LR * (sigmoid(on_fake).T @ fake - sigmoid(-on_real).T @ real) / 16
        on_fake = fake @ d.T
        g_loss = np.logaddexp(0, -on_fake).mean()
        g = g + LR * (sigmoid(-on_fake) @ d).T @ noise / 16
        assert is_near(losses, (d_loss, g_loss))
    assert is_near(moved(generator, starts[0]), g - starts[0])
    assert is_near(moved(discriminator, starts[1]), d - starts[1])
