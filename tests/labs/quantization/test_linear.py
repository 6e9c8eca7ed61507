"""Integer layers: exact sums, S22's acceptance, and digits read in integers."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.formats import fake_quantize
from labkit.labs.quantization.linear import (
    IntegerLinear,
    QuantLinear,
    dynamic,
    integer_linear,
    quant_layers,
    replace_linears,
)
from labkit.training import evaluate, train
from labkit.training.data import batches, digits
from labkit.training.models import mlp


def codes(*shape, low, high, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def reader(data):
    torch.manual_seed(0)
    model = mlp(64, 64, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = batches(data.train_images, data.train_labels, 64)
    train(model, loader, optimizer=optimizer, epochs=10, progress=False)
    return model.eval()


@pytest.fixture
def layer(data):
    torch.manual_seed(0)
    layer = QuantLinear(64, 64)
    layer(data.train_images.flatten(1))
    return layer.freeze()


# integer_linear


@pytest.mark.parametrize("dtype, low, high", [(torch.uint8, 0, 255), (torch.int8, -128, 127)])
@pytest.mark.parametrize("zero", [0, 77])
def test_integer_sums_are_exact(dtype, low, high, zero):
    x = codes(5, 3, 300, low=low, high=high, dtype=dtype)
    w = codes(7, 300, low=-128, high=127, dtype=torch.int8, seed=1)
    want = (x.double() - zero) @ w.double().t()  # below 2**53, so exact
    got = integer_linear(x, w, zero)
    assert got.dtype is torch.int32
    assert torch.equal(got.double(), want)


def test_the_largest_sums_are_exact():
    x = torch.full((4, 4096), 255, dtype=torch.uint8)
    w = torch.full((4, 4096), -128, dtype=torch.int8)
    assert (integer_linear(x, w, 0) == -255 * 128 * 4096).all()


def test_columns_that_may_overflow_are_refused():
    x, w = torch.zeros(1, 66_000, dtype=torch.uint8), torch.zeros(1, 66_000, dtype=torch.int8)
    with pytest.raises(ValueError, match="66000 columns"):
        integer_linear(x, w, 0)


def test_int8_operands_of_a_matmul_wrap():
    a = torch.full((1, 16), 100, dtype=torch.int8)
    assert (a @ a.t()).item() == 0  # 160,000 is a multiple of 256
    assert integer_linear(a, a, 0).item() == 160_000


SATURATING = """
import torch
from labkit.devices.int8_products import int8_products_are_exact
from labkit.labs.quantization.linear import integer_linear
x = torch.full((16, 64), 127, dtype=torch.int8)
print(int8_products_are_exact(), torch._int_mm(x, x.t().contiguous())[0, 0].item())
print((integer_linear(x, x, 0) == 64 * 127 * 127).all().item())
"""


def test_without_vnni_the_sums_are_exact_all_the_same():
    done = subprocess.run(
        [sys.executable, "-c", SATURATING],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    (exact, product), (ours,) = (line.split() for line in done.stdout.splitlines())
    assert ours == "True", done.stderr
    # Where oneDNN heeds the variable the product saturates, and the machine is told not exact.
    assert (exact == "True") == (int(product) == 64 * 127 * 127)


# S22: QuantLinear


@pytest.mark.seeds([0, 1, 2])
def test_eight_bits_are_within_a_percent_of_the_float_layer(data, seed):
    torch.manual_seed(seed)
    layer = QuantLinear(64, 64)
    layer(data.train_images.flatten(1))
    layer.freeze()
    x = data.test_images.flatten(1)
    want = F.linear(x, layer.weight, layer.bias)
    assert (layer(x) - want).norm() / want.norm() < 0.01


def test_the_values_are_those_of_torchs_fake_quantize(data, layer):
    x = data.test_images.flatten(1)
    grid, rows = layer.inputs.grid, layer.weight_grid
    xq = torch.fake_quantize_per_tensor_affine(
        x, grid.scale.item(), grid.zero_point.item(), grid.low, grid.high
    )
    wq = torch.fake_quantize_per_channel_affine(
        layer.weight, rows.scale, rows.zero_point, 0, rows.low, rows.high
    )
    # A weight at a tie may get the neighbouring code: torch multiplies by 1 / scale.
    assert (fake_quantize(layer.weight, rows) != wq).float().mean() < 1e-3
    assert torch.equal(fake_quantize(x, grid), xq)
    want = F.linear(xq, wq, layer.bias)
    assert (layer(x) - want).abs().max() <= 2 * rows.scale.max() * x.abs().max()


def test_the_gradient_passes_inside_and_stops_outside():
    layer = QuantLinear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -0.5]]))
    layer(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    layer.freeze()
    x = torch.tensor([[0.5, 9.0], [-3.0, 0.25]], requires_grad=True)
    layer(x).sum().backward()
    w = fake_quantize(layer.weight, layer.weight_grid)
    assert torch.equal(x.grad, torch.tensor([[1.0, 0.0], [0.0, 1.0]]) * w.detach())
    rounded = fake_quantize(x.detach(), layer.inputs.grid)
    assert torch.equal(layer.weight.grad, rounded.sum(dim=0, keepdim=True))


@pytest.mark.parametrize("setting", ["bits", "input_bits"])
@pytest.mark.parametrize("bits", [0, 1, 17])
def test_bits_outside_two_to_sixteen_are_refused(setting, bits):
    with pytest.raises(ValueError, match="2 to 16"):
        QuantLinear(4, 4, **{setting: bits})


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
def test_zero_gives_exactly_the_bias(data, bits):
    layer = QuantLinear(64, 8, bits=bits, input_bits=bits)
    layer(data.train_images.flatten(1) - 0.3)
    y = layer.freeze()(torch.zeros(3, 64))
    assert torch.equal(y, layer.bias.expand(3, 8))
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(layer(torch.ones(3, 64)), layer.bias.expand(3, 8))


def test_nan_is_refused_in_training_and_in_eval(layer):
    x = torch.full((2, 64), torch.nan)
    for mode in (True, False):
        with pytest.raises(ValueError, match="NaN"):
            layer.train(mode)(x)
    with pytest.raises(ValueError, match="NaN"):
        QuantLinear(64, 4)(x)


def test_train_and_eval_agree_once_the_observer_is_frozen(data, layer):
    x = data.test_images.flatten(1)
    before = layer.eval()(x)
    layer.train()(3 * x)  # a layer that went on observing would widen its grid
    assert torch.equal(layer.train()(x), before)
    assert torch.equal(layer.eval()(x), before)


def test_a_layer_that_is_not_frozen_observes_in_training_only(data):
    layer, x = QuantLinear(64, 4), data.test_images.flatten(1)
    layer(x)
    scale = layer.inputs.grid.scale
    layer.eval()(3 * x)
    assert torch.equal(layer.inputs.grid.scale, scale)
    layer.train()(3 * x)
    assert layer.inputs.grid.scale > 2 * scale


@pytest.mark.parametrize("bits, input_bits", [(8, 8), (4, 8), (2, 5)])
def test_the_converted_layer_gives_the_same(data, bits, input_bits):
    torch.manual_seed(1)
    layer = QuantLinear(64, 32, bits=bits, input_bits=input_bits)
    layer(data.train_images.flatten(1))
    x = data.test_images.flatten(1)
    want, integers = layer.eval()(x), layer.convert()
    # The integer sum is exact. The float one rounds each of 64 products and sums to 2**-24 of what
    # is summed, and both round twice more.
    grid, rows = layer.inputs.grid, layer.weight_grid
    sizes = fake_quantize(x, grid).abs() @ fake_quantize(layer.weight, rows).abs().t()
    bound = (64 + 4) * 2**-24 * (sizes + layer.bias.abs())
    assert ((integers(x) - want).abs() <= bound).all()
    assert integers.weight.dtype is torch.int8


def test_a_layer_before_any_batch_cannot_be_used_or_converted():
    with pytest.raises(RuntimeError, match="calibration"):
        QuantLinear(4, 4).eval()(torch.zeros(1, 4))
    with pytest.raises(RuntimeError, match="calibration"):
        QuantLinear(4, 4).convert()


def test_wider_codes_than_int8_have_no_integer_layer():
    layer = QuantLinear(4, 4, bits=16)
    layer(torch.ones(1, 4))
    with pytest.raises(ValueError, match="16"):
        layer.convert()


def test_a_layer_made_from_a_linear_one_shares_its_parameters():
    linear = nn.Linear(4, 3).eval()
    layer = QuantLinear.from_linear(linear, bits=4)
    assert (layer.weight is linear.weight, layer.bias is linear.bias) == (True, True)
    assert (layer.bits, layer.training) == (4, False)


# T07, T08: after training


def test_the_digit_reader_calibrated_and_converted_answers_as_floats_do(data, reader):
    static = replace_linears(copy.deepcopy(reader), lambda _, x: QuantLinear.from_linear(x)).train()
    static(data.train_images[:256])
    for layer in quant_layers(static):
        layer.freeze()
    integers = replace_linears(static.eval(), lambda _, x: x.convert(), kind=QuantLinear)
    assert not list(integers.parameters())
    want, got = reader(data.test_images), integers(data.test_images)
    assert (got - want).norm() / want.norm() < 0.03
    right, floats = ((y.argmax(dim=1) == data.test_labels).float().mean() for y in (got, want))
    assert floats > 0.95
    assert (right - floats).abs() <= 0.01


def test_dynamic_layers_choose_a_grid_for_each_batch():
    linear = nn.Linear(64, 8)
    layer = dynamic(nn.Sequential(linear))[0]
    assert isinstance(layer, IntegerLinear)
    x = torch.rand(5, 64, generator=torch.Generator().manual_seed(0))
    for scale in (1e-3, 1.0, 1e3):
        want = F.linear(scale * x, linear.weight)
        got = layer(scale * x) - linear.bias
        assert (got - want).norm() / want.norm() < 0.02


def test_dynamic_quantization_keeps_the_answers_in_a_third_of_the_bytes(data, reader):
    model = dynamic(copy.deepcopy(reader))
    before, after = (sum(t.nbytes for t in m.state_dict().values()) for m in (reader, model))
    # A weight has 1 byte for 4; each of 138 outputs keeps a bias and gets a scale, 4 bytes each.
    weights, outputs = 64 * 64 * 2 + 64 * 10, 64 + 64 + 10
    assert before == 4 * weights + 4 * outputs == 35_880
    assert after == weights + 8 * outputs == 9_936
    right = (model(data.test_images).argmax(dim=1) == data.test_labels).float().mean().item()
    assert abs(right - evaluate(reader, data.test_images, data.test_labels)) <= 0.01


def test_layers_are_replaced_but_for_those_to_skip():
    model = mlp(4, 5, 3)
    replace_linears(model, lambda name, linear: QuantLinear.from_linear(linear), skip=("3",))
    assert len(quant_layers(model)) == 1
    assert type(model[3]) is nn.Linear
