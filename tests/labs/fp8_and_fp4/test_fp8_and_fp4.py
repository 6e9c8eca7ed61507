"""What lab 08 says of its tensors, its accumulators and its formats."""

import math

import pytest
import torch

from labkit.formats import E2M1, E4M3, mx, scaled
from labkit.labs.fp8_and_fp4 import figures
from labkit.labs.fp8_and_fp4.layer_tensors import layer_tensors, sqnr
from labkit.training import cross_entropy
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.low_bit import RECIPES, convert
from labkit.training.models import SmallGPT


def test_sqnr_is_the_ratio_of_the_squares_in_decibels():
    x = torch.tensor([3.0, 4.0])
    assert sqnr(x, torch.tensor([3.0, 4.5])) == 20.0
    assert sqnr(x, torch.tensor([3.0, 4.25])) == pytest.approx(20 + 20 * math.log10(2))


def test_the_gradient_is_that_of_the_layer_s_output():
    activation, gradient = layer_tensors(pieces=2)
    assert activation.shape == (128, 64) and gradient.shape == (128, 256)
    assert activation.dtype == gradient.dtype == torch.float32
    # A mean over twice as many characters halves each one's share of the loss.
    _, alone = layer_tensors(pieces=1)
    torch.testing.assert_close(gradient[:64] * 2, alone, rtol=1e-4, atol=1e-9)


def test_what_sitting_b_says_of_the_gradient():
    _, gradient = layer_tensors()
    amax = gradient.abs().max()
    assert round((amax / gradient.abs().median()).item(), -1) == 750
    assert amax / 6 < 2**-12


@pytest.mark.parametrize(("fmt", "ratio"), [(E4M3, 458_752), (E2M1, 24)])
def test_how_much_smaller_than_the_largest_a_value_survives(fmt, ratio):
    near = torch.tensor([1.0, 1.01 / ratio])
    assert scaled(near, fmt, overflow="saturate").codes[1].float() > 0
    far = torch.tensor([1.0, 1 / ratio])
    assert scaled(far, fmt, overflow="saturate").codes[1].float() == 0


def test_the_example_of_the_three_rules():
    block = torch.full((1, 32), 3.9)
    casts = {
        rule: mx(block, E4M3, rule=rule, overflow="saturate") for rule in ("floor", "up", "even")
    }
    assert {rule: cast.scales.item() for rule, cast in casts.items()} == {
        "floor": 2**-7,
        "up": 2**-6,
        "even": 2**-6,
    }
    assert round(3.9 * 2**7) == 499 and casts["floor"].codes.float().max() == 448
    assert round(100 * (1 - casts["floor"].dequantize().max().item() / 3.9)) == 10


def test_promotion_keeps_both_models_below_a_thousandth():
    each = figures.accumulator_errors((128, 256), together=1)
    many = figures.accumulator_errors((1024, 2048), together=32)
    assert each[128] < 0.1 < each[256] and many[1024] < 0.1 < many[2048]


def test_a_wrong_scale_s_picture_says_its_numbers():
    _, gradient = layer_tensors(pieces=4)
    picture = figures.wrong_scale_picture(gradient)
    assert "E4M3: " in str(picture) and "INT8: 0 dB at 2^-12" in str(picture)


def test_outliers_hold_most_of_the_gradient_s_energy():
    energy = layer_tensors()[1].double().square().flatten().sort(descending=True).values
    assert energy[: len(energy) // 100].sum() > energy.sum() / 2


def test_what_clips_keeps_the_mean_of_stochastic_casts_from_the_value():
    gradient, draw = layer_tensors()[1], torch.Generator().manual_seed(0)

    def gain(rule):
        how = {"rule": rule, "rounding": "stochastic", "generator": draw, "overflow": "saturate"}
        casts = [mx(gradient, E2M1, **how).dequantize().double() for _ in range(16)]
        return sqnr(gradient, sum(casts) / 16) - sqnr(gradient, casts[0])

    # Independent errors of mean 0 gain 10 log10(16) = 12.0 dB; the floor rule clips, "up" does not.
    assert gain("up") > 11 > 9 > gain("floor")


def test_without_scales_no_output_gradient_of_a_block_reaches_half_of_the_smallest_value():
    torch.manual_seed(0)
    model = convert(SmallGPT(68, 64), RECIPES["e4m3_unscaled"])
    largest = []
    for module in model.blocks.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_full_backward_hook(
                lambda _, __, out: largest.append(out[0].abs().max().item())
            )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text, vocabulary = shakespeare_split()[0], characters(shakespeare())
    for tokens, targets in character_batches(text, 64, 32, steps=40, vocabulary=vocabulary):
        optimizer.zero_grad()
        cross_entropy(model(tokens), targets).backward()
        optimizer.step()
    assert len(largest) == 40 * 8
    assert 0 < max(largest) < 2.0**-10
    learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert not {name for name in learning if "blocks" in name and name.endswith("weight")}
    assert {"head.weight", "blocks.0.attention_out.bias"} <= learning
