"""Training with rounding in the course's loop (S23), and what a straight-through gradient gives."""

import copy

import pytest
import torch
from torch import nn

from labkit.labs.quantization import linear as linear_module
from labkit.labs.quantization.linear import QuantLinear, quant_layers, replace_linears
from labkit.training import evaluate, train
from labkit.training.data import batches, digits
from labkit.training.models import mlp


@pytest.fixture(scope="module")
def data():
    return digits()


@pytest.fixture(scope="module")
def floats(data):
    torch.manual_seed(0)
    model = mlp(64, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = batches(data.train_images, data.train_labels, 64)
    train(model, loader, optimizer=optimizer, epochs=10, progress=False)
    return model


def rounding(model, **settings):
    """A copy of the model with QuantLinear layers."""
    return replace_linears(
        copy.deepcopy(model), lambda _, linear: QuantLinear.from_linear(linear, **settings)
    )


def accuracy(model, data):
    return evaluate(model, data.test_images, data.test_labels)


def trained(model, data, epochs, precision="bf16", lr=3e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loader = batches(data.train_images, data.train_labels, 64)
    settings = {"precision": precision, "epochs": epochs, "progress": False}
    return [step.loss for step in train(model, loader, optimizer=optimizer, **settings)]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_loss_falls_and_the_integers_exported_are_as_right_as_floats(data, floats, precision):
    torch.manual_seed(0)
    model = rounding(mlp(64, 64, 10))
    losses = trained(model, data, epochs=10, precision=precision)
    assert losses[0] > 2 and sum(losses[-20:]) / 20 < 0.2
    for layer in quant_layers(model):
        layer.freeze()
    integers = replace_linears(model.eval(), lambda _, layer: layer.convert(), kind=QuantLinear)
    assert not list(integers.parameters())
    right = (integers(data.test_images).argmax(dim=1) == data.test_labels).float().mean().item()
    assert right >= accuracy(floats, data) - 0.01


def test_the_weights_get_a_gradient(data):
    model = rounding(mlp(64, 16, 10), bits=2)
    trained(model, data, epochs=1)
    assert all((layer.weight.grad != 0).any() for layer in quant_layers(model))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_rounding_is_computed_in_float32_inside_autocast(data, monkeypatch, precision):
    seen = []
    wrapped = linear_module.fake_quantize

    def watching(x, grid):
        y = wrapped(x, grid)
        seen.append((x.dtype, y.dtype, torch.equal(y, wrapped(x.float(), grid))))
        return y

    monkeypatch.setattr(linear_module, "fake_quantize", watching)
    trained(rounding(mlp(64, 16, 10)), data, epochs=1, precision=precision)
    sixteen = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert {dtype for dtype, _, _ in seen} == {torch.float32, sixteen}  # a layer's output is 16-bit
    assert all(y is torch.float32 and same for _, y, same in seen)


def test_a_model_without_rounding_is_refused():
    with pytest.raises(ValueError, match="no QuantLinear"):
        quant_layers(mlp(64, 16, 10))


# T09


@pytest.mark.parametrize("bits, gain", [(2, 0.05), (3, -0.005)])
def test_training_with_the_rounding_beats_rounding_afterwards(data, floats, bits, gain):
    after = rounding(floats, bits=bits)
    after.train()(data.train_images)
    for layer in quant_layers(after):
        layer.freeze()
    before = accuracy(after, data)
    trained(after, data, epochs=5, precision="fp32", lr=1e-3)
    assert accuracy(after, data) >= before + gain


class WithoutSTE(QuantLinear):
    """The published fault: rounding as autograd sees it, whose derivative is 0."""

    def forward(self, x):
        grid = self.weight_grid
        weight = (self.weight / grid.scale[:, None]).round() * grid.scale[:, None]
        return nn.functional.linear(x, weight, self.bias)


def test_without_the_estimator_accuracy_rises_and_no_weight_moves(data, floats):
    model = replace_linears(
        copy.deepcopy(floats), lambda _, layer: WithoutSTE.from_linear(layer, bits=2)
    )
    before, weights = accuracy(model, data), [layer.weight.clone() for layer in quant_layers(model)]
    trained(model, data, epochs=5, precision="fp32", lr=1e-3)
    assert all(
        torch.equal(layer.weight, weight)
        for layer, weight in zip(quant_layers(model), weights, strict=True)
    )
    assert accuracy(model, data) > before  # the biases learnt
