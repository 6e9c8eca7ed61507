"""Odd dimensions, casts and bytes, counted by hand beside the functions that count them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.measuring import Casts, Misaligned, count_casts, misaligned, work_and_memory
from labkit.training.models import SmallCNN, mlp


def test_every_dimension_that_is_no_multiple_is_named():
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(50257, 768, device="meta"),
            "first": nn.Conv2d(3, 16, 3),
            "up": nn.ConvTranspose1d(12, 8, 2),
            "norm": nn.LayerNorm(7),
            "head": nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10)),
        }
    )
    assert misaligned(model) == [
        Misaligned("tokens", "num_embeddings", 50257, 50264),
        Misaligned("first", "in_channels", 3, 8),
        Misaligned("up", "in_channels", 12, 16),
        Misaligned("head.1", "out_features", 10, 16),
    ]


def test_other_multiples_and_models_without_a_fault():
    # GPT-2's vocabulary as trainers pad it, for units that like 64.
    (found,) = misaligned(nn.Embedding(50257, 768, device="meta"), multiple=64)
    assert found.next_multiple == 50304
    assert misaligned(mlp(64, 32, 16)) == []
    assert misaligned(mlp(7, 3), multiple=1) == []
    shared = nn.Linear(10, 8)
    assert len(misaligned(nn.Sequential(shared, shared))) == 1


X = torch.ones(6, 10)


def test_casts_written_out_are_counted_with_their_bytes():
    found = count_casts(lambda: X.half().float().double())
    assert found.conversions == {
        ("float32", "float16"): 1,
        ("float16", "float32"): 1,
        ("float32", "float64"): 1,
    }
    assert (found.count, found.bytes) == (3, 60 * (6 + 6 + 12))
    assert "3 casts, 1,440 bytes read and written" in found.describe()


def test_a_copy_into_another_dtype_is_a_cast_and_a_copy_alone_is_none():
    masters, weights = torch.ones(60), torch.ones(60, dtype=torch.bfloat16)
    assert count_casts(lambda: weights.copy_(masters)) == Casts({("float32", "bfloat16"): 1}, 360)
    one = torch.ones((), dtype=torch.bfloat16)
    assert count_casts(lambda: masters.copy_(one)).bytes == 2 + 4 * 60
    nothing = count_casts(lambda: (X.clone(), X.float(), X.to("cpu", copy=True), weights + masters))
    assert nothing == Casts({}, 0)


def test_autocast_casts_inputs_and_parameters_and_each_parameter_once():
    layer = nn.Linear(10, 4)

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(X)
            layer(X)

    found = count_casts(forward)
    # X twice; the weight and the bias are kept until autocast ends.
    assert found.conversions == {("float32", "bfloat16"): 4}
    assert found.bytes == 6 * (2 * 60 + 40 + 4)


def test_backward_casts_the_gradients_back():
    layer = nn.Linear(10, 4)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = layer(X)
        output.sum().backward()

    found = count_casts(step)
    assert found.conversions == {("float32", "bfloat16"): 3, ("bfloat16", "float32"): 2}
    assert found.bytes == 6 * (60 + 40 + 4 + 40 + 4)


def test_what_the_emulation_casts_inside_its_kernels_is_not_counted():
    half = X.half()
    with emulate_gpu():
        assert count_casts(lambda: half @ half.T).count == 0
        assert count_casts(lambda: F.layer_norm(half, (10,))).count == 0


def test_casts_are_seen_under_inference_mode():
    with torch.inference_mode():
        assert count_casts(lambda: X.half()) == Casts({("float32", "float16"): 1}, 360)
        assert count_casts(lambda: F.linear(X, X)).count == 0


def batch(samples=64, channels=None):
    shape = (samples, 64) if channels is None else (samples, channels, 8, 8)
    return torch.ones(shape), torch.zeros(samples, dtype=torch.int64)


def test_work_and_memory_by_hand():
    # Kept: input, hidden layer after ReLU (once, though two operators keep it), log-probabilities,
    # labels of 8 bytes, and the total weight that nll_loss divides by.
    values = 64 * 64 + 64 * 256 + 64 * 10 + 1
    forward = 2 * 64 * (64 * 256 + 256 * 10)
    flop = 2 * forward + 2 * 64 * 256 * 10  # no gradient of the input
    assert work_and_memory(mlp(64, 256, 10), batch()) == (flop, 4 * values + 512)
    pure = work_and_memory(mlp(64, 256, 10), batch(), precision="pure_bf16")
    assert pure == (flop, 2 * values + 512)


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
def test_autocast_keeps_half_of_what_is_large_and_copies_of_weights(mode):
    flop, kept = work_and_memory(mlp(64, 256, 10), batch(), precision=mode)
    assert flop == work_and_memory(mlp(64, 256, 10), batch())[0]
    activations, second_weight = 2 * (64 * 64 + 64 * 256), 2 * 256 * 10
    # log_softmax runs in float32 and may keep its 16-bit input beside its float32 output.
    at_least = activations + second_weight + 4 * 640 + 512 + 4
    assert at_least <= kept <= at_least + 2 * 640


def test_a_batch_that_is_a_view_counts_only_itself():
    inputs, targets = torch.ones(1000, 64), torch.zeros(1000, dtype=torch.int64)
    view = (inputs[:64], targets[:64])
    assert work_and_memory(mlp(64, 16), view) == work_and_memory(mlp(64, 16), batch())


def test_a_convolution_has_work_too():
    flop, kept = work_and_memory(SmallCNN(), batch(channels=1))
    # Output pixels x output channels x inputs of each; 8 x 8, then 4 x 4, then 2 x 2 x 32 values.
    products = (64 * 16 * 9, 16 * 32 * 16 * 9, 10 * 128)
    # Backward: all three for their weights, the last two for their inputs.
    assert flop == 2 * 64 * (2 * sum(products) + sum(products[1:]))
    assert kept > 0
