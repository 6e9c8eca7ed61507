"""Lab 09's solutions beside other people's arithmetic, and what its checks say of a processor."""

import os
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from torch import nn

from labkit.labs.quantization import solutions
from labkit.labs.quantization.checks import (
    check_fake_quant,
    check_lora_linear,
)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# Solutions


def exact_linear(x, w, bias, sx, zx, sw, lo, hi):
    """The definition, one output at a time, in exact fractions."""
    low, high = min(Fraction(lo), 0), max(Fraction(hi), 0)
    sy = (high - low) / 255
    zy = round(-low / sy)
    rows = []
    for codes in x.tolist():
        rows.append([])
        for weights, scale, b in zip(w.tolist(), sw.tolist(), bias.tolist(), strict=True):
            unit = Fraction(sx) * Fraction(scale)
            total = sum((c - zx) * k for c, k in zip(codes, weights, strict=True))
            code = round((total + round(Fraction(b) / unit)) * unit / sy) + zy
            rows[-1].append(max(0, min(255, code)))
    return rows, float(sy), zy


@pytest.mark.seeds(range(3))
def test_integer_linear_equals_exact_fractions(seed):
    draw = seeded(seed)
    x = torch.randint(256, (8, 64), dtype=torch.uint8, generator=draw)
    w = torch.randint(-127, 128, (16, 64), generator=draw).to(torch.int8)
    bias = torch.randn(16, generator=draw)
    layer = x, w, bias, 0.016, 64 + seed, torch.rand(16, generator=draw) / 127, -3.0 - seed, 4.0
    y, sy, zy = solutions.integer_linear(*layer)
    rows, scale, zero = exact_linear(*layer)
    assert (y.tolist(), zy) == (rows, zero)
    assert sy == pytest.approx(scale, rel=1e-15)
    assert 0 < sum(code in (0, 255) for row in rows for code in row) < y.numel()


def test_the_example_of_integer_linear():
    x, w = torch.tensor([[130, 120]], dtype=torch.uint8), torch.tensor([[2, 1]], dtype=torch.int8)
    layer = x, w, torch.tensor([0.3]), 0.5, 128, torch.tensor([0.25]), -2.0, 3.0
    y, sy, zy = solutions.integer_linear(*layer)
    assert (y.tolist(), round(sy, 4), zy) == ([[89]], 0.0196, 102)


def solved_again(W, X, scale, damp=0.01):
    """GPTQ by least squares in float64 after each column: no Hessian and no Cholesky factor."""
    W, X, scale = W.double(), X.double(), scale.double()
    ridge = (damp * X.square().sum(0).mean()).sqrt() * torch.eye(W.shape[1]).double()
    A, now, Q = torch.cat([X, ridge]), W.clone(), torch.zeros_like(W)
    for j in range(W.shape[1]):
        Q[:, j] = (now[:, j] / scale[:, j]).round().clamp(-7, 7) * scale[:, j]
        if j + 1 < W.shape[1]:
            lost = A @ W.T - A[:, : j + 1] @ Q[:, : j + 1].T
            now[:, j + 1 :] = torch.linalg.lstsq(A[:, j + 1 :], lost).solution.T
    return Q


@pytest.mark.seeds(range(3))
def test_gptq_equals_least_squares_solved_after_each_column(seed):
    draw = seeded(seed)
    mix = torch.randn(24, 24, generator=draw) * torch.logspace(0, -1, 24)
    X = torch.randn(256, 24, generator=draw) @ mix
    W = torch.randn(8, 24, generator=draw)
    scale = (W.abs().amax(dim=1, keepdim=True) / 7).expand_as(W)
    Q, plain = solutions.gptq(W, X, scale), solutions.nearest(W, scale)
    torch.testing.assert_close(Q.double(), solved_again(W, X, scale), rtol=1e-6, atol=1e-6)
    assert ((Q - W) @ X.T).norm() < 0.7 * ((plain - W) @ X.T).norm()


def test_the_example_of_gptq():
    one = torch.ones(1, 2)
    W = torch.tensor([[0.6, 0.7]])
    assert solutions.nearest(W, one).tolist() == [[1, 1]]
    assert solutions.gptq(W, one, one).tolist() == [[1, 0]]


@pytest.mark.parametrize("scale", [0.1, torch.tensor([[0.1], [0.3]])])
def test_fake_quant_equals_torchs(scale):
    x = torch.linspace(-2, 2, 401).repeat(2, 1)
    rows = torch.as_tensor(scale).expand(2, 1)
    codes = x / rows
    # Off ties, and off the last half step, where torch's own functions differ.
    x = x[:, ((codes - codes.floor() - 0.5).abs() > 0.01).all(dim=0)].requires_grad_()
    ours = solutions.fake_quant(x, scale, 2, -5, 6)
    (mine,) = torch.autograd.grad(ours.square().sum(), x)
    zeros = torch.full((2,), 2, dtype=torch.int32)
    theirs = torch.fake_quantize_per_channel_affine(x, rows.flatten(), zeros, 0, -5, 6)
    (right,) = torch.autograd.grad(theirs.square().sum(), x)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(mine, right)
    assert (right == 0).any() and (right != 0).any()


@pytest.mark.parametrize(("outputs", "alpha"), [(8, 0.5), (16, 0.8)])
def test_smooth_keeps_the_output_and_moves_the_maxima(outputs, alpha):
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(16), nn.Linear(16, outputs)
    nn.init.normal_(norm.bias)
    norm.weight.data[3] = 40.0
    x = torch.randn(64, 16)
    before, amax = linear(norm(x)).detach(), norm(x).abs().amax(dim=0).detach()
    columns = linear.weight.detach().abs().amax(dim=0)
    solutions.smooth(norm, linear, amax, alpha)
    torch.testing.assert_close(linear(norm(x)), before, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm(x).abs().amax(dim=0), (amax * columns) ** (1 - alpha))
    torch.testing.assert_close(linear.weight.abs().amax(dim=0), (amax * columns) ** alpha)


def test_lora_linear_beside_a_dense_layer_in_float64():
    torch.manual_seed(0)
    codes, scale = torch.randint(-7, 8, (48, 64)).to(torch.int8), torch.rand(48, 2).half() / 8
    layer = solutions.LoRALinear(codes, scale, torch.randn(48), rank=4, alpha=12)
    nn.init.normal_(layer.B)
    x, sent = torch.randn(3, 5, 64, requires_grad=True), torch.randn(3, 5, 48)
    y = layer(x)
    y.backward(sent.bfloat16())
    wide = x.detach().double().requires_grad_()
    A, B = (p.detach().double().requires_grad_() for p in (layer.A, layer.B))
    dense = (codes.view(48, 2, 32) * scale.double()[..., None]).flatten(1) + 12 / 4 * B @ A
    right = wide @ dense.T + layer.bias.double()
    right.backward(sent.double())
    assert [(p.dtype, p.shape) for p in layer.parameters()] == [
        (torch.float32, (4, 64)), (torch.float32, (48, 4))
    ]  # fmt: skip
    for got, want in (
        (y, right),
        (x.grad, wide.grad),
        (layer.A.grad, A.grad),
        (layer.B.grad, B.grad),
    ):
        # Sums of terms of either sign, each of which is rounded to BF16 a few times.
        assert (got.double() - want).norm() < 2.0**-6 * want.norm()


def test_the_example_of_lora_linear():
    codes, scale = torch.tensor([[2, -1]], dtype=torch.int8), torch.tensor([[0.5]]).half()
    layer = solutions.LoRALinear(codes, scale, torch.tensor([0.25]), rank=1, alpha=2)
    x = torch.tensor([1.0, 3.0])
    assert layer(x).tolist() == [-0.25]
    with torch.no_grad():
        layer.A.fill_(1.0)
        layer.B.fill_(0.5)
    assert layer(x).tolist() == [3.75]


# Checks

AVX2 = """
import torch
from labkit.labs.quantization.checks import check_integer_linear

def by_int_mm(x, w, bias, sx, zx, sw, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    sy = (hi - lo) / 255
    zy = round(-lo / sy)
    acc = torch._int_mm((x.int() - 128).to(torch.int8), w.t().contiguous())
    acc = acc - (zx - 128) * w.sum(1, dtype=torch.int32) + torch.round(bias / (sx * sw)).int()
    y = torch.round(acc.double() * (sx * sw / sy).double()) + zy
    return y.clamp(0, 255).to(torch.uint8), sy, zy

full = torch.full((1, 16), 127, dtype=torch.int8)
result = check_integer_linear.result(by_int_mm)
print(torch._int_mm(full, full.t()).item(), result.status, result.message)
"""


def test_an_answer_by_int_mm_is_right_exactly_where_int_mm_is():
    """oneDNN without VNNI saturates in between: 2,040 for 258,064."""
    ran = subprocess.run(
        [sys.executable, "-c", AVX2], env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    full, status, message = ran.stdout.split(" ", 2)
    assert status == ("passed" if full == "258064" else "failed")
    assert ("it saturates inside" in message) == (full != "258064")


def test_a_layer_whose_forward_raises_is_told_torchs_error():
    class Broken(solutions.LoRALinear):
        def forward(self, x):
            return x @ self.codes

    result = check_lora_linear.result(Broken)
    assert (result.status, result.misconceptions) == ("error", ())
    assert "your layer raised RuntimeError" in result.message


def test_no_idea_is_named_where_two_fit():
    """Fake quantization that rounds down and ignores clipping is neither of the two alone."""

    def both(x, scale, zero, low, high):
        return x + ((x / scale).floor() * scale - x).detach()

    assert check_fake_quant.result(both).misconceptions == ()
