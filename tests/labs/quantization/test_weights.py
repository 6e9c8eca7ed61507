"""Weights in few bits: bytes, scales, planted outliers."""

import pytest
import torch
from torch import nn

from labkit.formats import choose, fake_quantize
from labkit.labs.quantization.solutions import smooth
from labkit.labs.quantization.weights import (
    group_quantize,
    layer_inputs,
    matrices,
    plant_key_outliers,
    plant_outliers,
    scales_for,
    with_weights,
)
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

TEXT = shakespeare_split()[1][:6401]


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def gpt():
    return trained_gpt()


# Nearest


@pytest.mark.parametrize("group, scales", [("tensor", 1), ("row", 6), (32, 12), (16, 24)])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_bytes_count_packed_codes_and_fp16_scales(bits, group, scales):
    q = group_quantize(random(6, 64), bits=bits, group=group)
    assert q.scales.numel() == scales
    assert q.nbytes == 6 * 64 * bits // 8 + 2 * scales


@pytest.mark.parametrize("group", ["tensor", "row", 32, 16])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_each_weight_is_rounded_to_nearest(bits, group):
    w = random(6, 64) * torch.logspace(-3, 0, 6)[:, None]
    q, last = group_quantize(w, bits=bits, group=group), 2 ** (bits - 1) - 1
    steps = q.scales.float().repeat_interleave(64 // q.scales.shape[1], dim=1).expand(6, 64)
    assert q.codes.abs().max() == last
    # FP16 scales may end 2**-11 below the largest weight, which then saturates.
    assert ((q.dequantize() - w).abs() <= steps / 2 + 2**-10 * w.abs()).all()


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_a_row_is_rounded_as_affine_integers_are(bits):
    w = random(6, 64)
    # With scales that FP16 holds: a largest weight of last code * 2**-k.
    w = w / w.abs().amax(dim=1, keepdim=True) * (2 ** (bits - 1) - 1) / 8
    grid = choose(*w.aminmax(dim=1), bits=bits, symmetric=True, axis=0)
    assert torch.allclose(grid.scale, torch.tensor(0.125))
    near = group_quantize(w, bits=bits).dequantize()
    assert torch.allclose(near, fake_quantize(w, grid), atol=1e-6)


def test_searched_scales_have_no_larger_error_and_cut_the_largest():
    w = random(32, 64)
    for group in ("tensor", "row", 32):
        error = {
            clip: (group_quantize(w, bits=3, group=group, clip=clip).dequantize() - w).norm()
            for clip in (False, True)
        }
        assert error[True] < 0.95 * error[False]
        whole, cut = (scales_for(w, bits=3, group=group, clip=clip) for clip in (False, True))
        assert (cut <= whole).all() and (cut < whole).any()


def test_a_matrix_of_zeros_and_a_huge_one_have_scales():
    assert (group_quantize(torch.zeros(2, 4), bits=4).dequantize() == 0).all()
    assert (group_quantize(torch.zeros(2, 4), bits=4, clip=True).dequantize() == 0).all()
    assert group_quantize(torch.full((2, 4), 1e30), bits=4).dequantize().isfinite().all()


@pytest.mark.parametrize("bits", [1, 9, 2.5])
def test_other_bits_of_a_weight_are_refused(bits):
    with pytest.raises(ValueError, match="2 to 8"):
        group_quantize(random(2, 4), bits=bits)


@pytest.mark.parametrize("group", [0, -1, 3])
def test_a_group_that_does_not_divide_a_row_is_refused(group):
    with pytest.raises(ValueError, match="does not divide"):
        group_quantize(random(2, 4), bits=4, group=group)


# A model


def test_all_matrices_of_the_gpt_are_rounded(gpt):
    layers = matrices(gpt)
    assert {"token", "position", "head"} < set(layers) and len(layers) == 11
    sizes = [group_quantize(layer.weight, bits=8).nbytes for layer in layers.values()]
    assert sum(sizes) == 111_104 + 2 * 1_352  # weights of 1 byte, rows with an FP16 scale


def test_rounded_weights_go_into_a_copy(gpt):
    before = {name: value.clone() for name, value in gpt.state_dict().items()}
    weights = {"head": group_quantize(gpt.head.weight, bits=2)}
    rounded = with_weights(gpt, weights)
    assert torch.equal(rounded.head.weight, weights["head"].dequantize())
    assert all(torch.equal(value, before[name]) for name, value in gpt.state_dict().items())
    assert bits_per_character(rounded, TEXT) > bits_per_character(gpt, TEXT)


def test_layer_inputs_are_what_the_layers_read(gpt):
    tokens = torch.arange(6).view(2, 3)
    inputs = layer_inputs(gpt, [tokens, tokens])
    assert {n: x.shape[0] for n, x in inputs.items()} == dict.fromkeys(inputs, 12)
    assert torch.allclose(gpt.head(inputs["head"][:6]).view(2, 3, -1), gpt(tokens), atol=1e-6)
    assert not any(layer._forward_pre_hooks for layer in gpt.modules())


# Outliers


def normed(seed=0, outputs=8):
    norm, linear = nn.LayerNorm(16), nn.Linear(16, outputs)
    with torch.no_grad():
        norm.weight.copy_(1 + 0.3 * random(16, seed=seed))
        norm.bias.copy_(random(16, seed=seed + 1))
    return norm, linear


@pytest.mark.parametrize("outputs", [8, 16])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_smoothing_keeps_the_layer_and_moves_the_channels(alpha, outputs):
    norm, linear = normed(outputs=outputs)
    x = random(40, 16, seed=3)
    before, amax = linear(norm(x)), norm(x).abs().amax(dim=0).detach()
    columns = linear.weight.detach().abs().amax(dim=0)
    smooth(norm, linear, amax, alpha)
    assert torch.allclose(linear(norm(x)), before, atol=1e-5)
    want = amax ** (1 - alpha) * columns ** (1 - alpha)
    assert torch.allclose(norm(x).abs().amax(dim=0), want, rtol=1e-5)


def test_a_planted_outlier_keeps_the_function_and_ruins_eight_bits(gpt):
    planted = with_weights(gpt, {})
    block = planted.blocks[0]
    plant_outliers(block.attention_norm, block.qkv, [3, 40], 30.0)
    assert bits_per_character(planted, TEXT) == pytest.approx(
        bits_per_character(gpt, TEXT), abs=1e-5
    )
    tokens = torch.arange(64).view(1, 64)
    before, after = (layer_inputs(m, [tokens])["blocks.0.qkv"] for m in (gpt, planted))
    assert torch.allclose(after[:, [3, 40]], 30 * before[:, [3, 40]], rtol=1e-4, atol=1e-5)

    def relative_error(x):
        grid = choose(*x.aminmax(), bits=8, symmetric=False)
        others = torch.ones(64, dtype=torch.bool).index_fill(0, torch.tensor([3, 40]), False)
        return ((fake_quantize(x, grid) - x)[:, others].norm() / x[:, others].norm()).item()

    assert relative_error(after) > 5 * relative_error(before)


def test_smoothing_undoes_a_plant_for_any_alpha():
    x = random(40, 16, seed=3)
    for alpha in (0.3, 0.5, 0.8):
        seen = []
        for factor in (1.0, 30.0):
            norm, linear = normed()
            torch.manual_seed(0)
            linear.reset_parameters()
            plant_outliers(norm, linear, [5], factor)
            smooth(norm, linear, norm(x).abs().amax(dim=0).detach(), alpha)
            seen.append(norm(x).detach())
        assert torch.allclose(*seen, rtol=1e-4, atol=1e-6)


def test_planted_keys_keep_the_function(gpt):
    planted = with_weights(gpt, {})
    for block in planted.blocks:
        plant_key_outliers(block, 3, 16.0)
    assert bits_per_character(planted, TEXT) == pytest.approx(
        bits_per_character(gpt, TEXT), abs=1e-5
    )
    x = random(2, 64)
    q, k, v = gpt.blocks[0].qkv(x).view(2, 3, 4, 16).unbind(dim=1)
    q2, k2, v2 = planted.blocks[0].qkv(x).view(2, 3, 4, 16).unbind(dim=1)
    factor = torch.ones(16)
    factor[3] = 16
    assert torch.allclose(k2, k * factor, rtol=1e-4, atol=1e-4)
    assert torch.allclose(q2, q / factor, rtol=1e-4, atol=1e-4)
    assert torch.equal(v2, v)
