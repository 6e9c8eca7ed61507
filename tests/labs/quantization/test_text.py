"""Numbers that lab 09's text states and no cell of it prints."""

from statistics import mean

import pytest
import torch

from labkit.labs.quantization.activations import norm_pairs, with_w8a8
from labkit.labs.quantization.recorded import fine_tuning
from labkit.labs.quantization.solutions import gptq
from labkit.labs.quantization.weights import (
    QuantizedWeight,
    group_quantize,
    layer_inputs,
    matrices,
    plant_outliers,
    scales_for,
    with_weights,
)
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import batches, characters, digits, shakespeare, shakespeare_split
from labkit.training.models import mlp

TEXT, TEST = shakespeare_split()
FP32 = 2.1044  # bits a character of the checkpoint, as its record says


def inputs_of(model, length):
    tokens = characters(shakespeare()).encode(TEXT[:length]).view(-1, 64)
    return layer_inputs(model, [tokens])


def cost(model):
    return bits_per_character(model, TEST) - FP32


def blocks_of(model):
    return {name: m for name, m in matrices(model).items() if "blocks" in name}


def by_gptq(w, x):
    scales = scales_for(w, bits=4)
    codes = gptq(w.detach(), x, scales.float().expand_as(w)) / scales.float()
    return QuantizedWeight(codes=codes.round().to(torch.int8), scales=scales, bits=4)


def blocks_by_gptq(model, length):
    inputs = inputs_of(model, length)
    return {name: by_gptq(m.weight, inputs[name]) for name, m in blocks_of(model).items()}


@pytest.fixture(scope="module")
def gpt():
    return trained_gpt()


def test_eight_bits_with_one_scale_a_matrix_cost_two_thousandths(gpt):
    weights = {
        n: group_quantize(m.weight, bits=8, group="tensor") for n, m in matrices(gpt).items()
    }
    assert cost(with_weights(gpt, weights)) == pytest.approx(0.002, abs=5e-4)


def test_gptq_from_64_characters_is_worse_than_nearest(gpt):
    nearest = {n: group_quantize(m.weight, bits=4) for n, m in blocks_of(gpt).items()}
    short = cost(with_weights(gpt, blocks_by_gptq(gpt, 64)))
    long = cost(with_weights(gpt, blocks_by_gptq(gpt, 8192)))
    assert round(short, 2) == 0.16
    assert round(cost(with_weights(gpt, nearest)), 2) == 0.10  # 0.1045; with INT8 elsewhere 0.1051
    assert round(long, 2) == 0.07


def test_gptq_in_the_first_feed_forward_layer(gpt):
    name = "blocks.0.feed_forward.0"
    w, x = gpt.get_submodule(name).weight.detach(), inputs_of(gpt, 8192)[name]
    near, moved = group_quantize(w, bits=4).dequantize(), by_gptq(w, x).dequantize()
    assert (moved - w).norm() / (near - w).norm() == pytest.approx(1.4, abs=0.05)
    outputs = ((moved - w) @ x.T).norm() / ((near - w) @ x.T).norm()
    assert outputs == pytest.approx(0.73, abs=0.01)


def test_w8a8_costs_little_as_trained_and_much_with_planted_outliers(gpt):
    assert cost(with_w8a8(gpt)) == pytest.approx(0.005, abs=1e-3)
    planted = trained_gpt()
    for _, norm, layer in norm_pairs(planted):
        plant_outliers(norm, layer, channels=[3, 40], factor=30.0)
    assert cost(planted) == pytest.approx(0, abs=1e-4)
    assert cost(with_w8a8(planted)) == pytest.approx(0.4, abs=0.05)


def test_capitals_are_worse_than_guessing(gpt):
    assert round(bits_per_character(gpt, TEST.upper()), 1) == 7.3
    assert torch.tensor(68.0).log2().item() == pytest.approx(6.1, abs=0.02)


def test_what_the_recorded_fine_tuning_ends_at():
    ends = {name: mean(seed[-1] for seed in run.bits) for name, run in fine_tuning().items()}
    everything, on_fp32, on_4_bits = ends.values()
    assert round(everything, 1) == 2.4
    assert round(on_fp32, 1) == 2.6
    assert round(on_4_bits - on_fp32, 2) == 0.01


def test_no_key_channel_of_the_trained_gpt_is_an_outlier(gpt):
    tokens = characters(shakespeare()).encode(TEXT[:8192]).view(-1, 64)
    keys = []
    for block in gpt.blocks:
        block.qkv.register_forward_hook(lambda _, __, out: keys.append(out.chunk(3, dim=-1)[1]))
    with torch.no_grad():
        gpt(tokens)
    for k in keys:
        largest = k.flatten(0, 1).unflatten(-1, (4, 16)).abs().amax(dim=0)
        # A planted one is 16 times as large as the others.
        assert (largest.amax(dim=1) < 2 * largest.median(dim=1).values).all()


def test_two_bits_cost_the_digit_reader_about_a_fifth_of_its_right_answers():
    data = digits()
    torch.manual_seed(1)
    reader = mlp(64, 64, 64, 10)
    adam = torch.optim.Adam(reader.parameters(), lr=3e-3)
    for epoch in range(10):
        for images, labels in batches(data.train_images, data.train_labels, 64, seed=epoch):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(reader(images), labels).backward()
            adam.step()

    def right():
        return (reader(data.test_images).argmax(1) == data.test_labels).sum().item()

    before = right()
    for layer in (layer for layer in reader if isinstance(layer, torch.nn.Linear)):
        scale = layer.weight.data.abs().amax(dim=1, keepdim=True)
        layer.weight.data = (layer.weight.data / scale).round() * scale
    lost = (before - right()) / before
    assert 0.15 < lost < 0.3, "nearer to a fifth or a quarter than to a tenth or a third"
