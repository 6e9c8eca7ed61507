"""T16 and T17: masks outlast the optimizer, narrow layers are equal units, and Eckart and Young."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.labs.compression.low_rank import factorise, rank_limit
from labkit.labs.compression.pruning import (
    hold_masks,
    hold_zeros,
    linears,
    narrow,
    smallest,
    two_of_four,
)
from labkit.labs.compression.sparsity import sparsity
from labkit.training.models import mlp

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2),
}


def trained(optimizer="adamw", seed=0):
    """A small network whose optimizer has a history, and a step to go on with."""
    torch.manual_seed(seed)
    model = mlp(64, 32, 10)
    images, labels = torch.randn(128, 64), torch.randint(10, (128,))
    optimizer = OPTIMIZERS[optimizer](model.parameters())

    def step():
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    for _ in range(10):
        step()
    return model, optimizer, step


def weights(model):
    return torch.cat([layer.weight.detach().flatten() for layer in linears(model)])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
def test_exactly_the_smallest_share_is_0_and_stays_0(optimizer, share):
    model, optimizer, step = trained(optimizer)
    before = weights(model)
    hold_masks(model, optimizer, share)
    zero = weights(model) == 0
    assert zero.sum() == round(share * len(before))
    if 0 < share < 1:
        assert before[zero].abs().max() <= before[~zero].abs().min()
    biases = [layer.bias.clone() for layer in linears(model)]
    for _ in range(20):
        step()
    after = weights(model)
    assert torch.equal(after == 0, zero)
    assert share == 1 or (after[~zero] != before[~zero]).any()
    assert all((layer.bias != b).any() for layer, b in zip(linears(model), biases, strict=True))


def test_ties_are_pruned_to_the_very_number():
    model, optimizer, _ = trained()
    with torch.no_grad():
        for layer in linears(model):
            layer.weight.copy_((layer.weight * 20).round() / 20)
    zeros = int((weights(model) == 0).sum())
    hold_masks(model, optimizer, 0.9)
    assert (weights(model) == 0).sum() == round(0.9 * 2368) > zeros


def test_each_layer_loses_the_same_share_only_if_asked():
    shares = {}
    for each_layer in (False, True):
        model, optimizer, _ = trained()
        hold_masks(model, optimizer, 0.9, each_layer=each_layer)
        shares[each_layer] = [
            (layer.weight == 0).double().mean().item() for layer in linears(model)
        ]
    assert shares[True] == pytest.approx([0.9, 0.9], abs=0.002)
    assert abs(shares[False][0] - shares[False][1]) > 0.05


def test_without_the_hook_zeros_come_back_and_masked_gradients_do_not_stop_a_used_optimizer():
    model, optimizer, step = trained()
    hold_masks(model, optimizer, 0.9).remove()
    for layer in linears(model):
        kept = (layer.weight != 0).float()
        layer.weight.register_hook(lambda gradient, kept=kept: gradient * kept)
    step()
    assert (weights(model) == 0).double().mean() < 0.5


def test_a_step_that_the_scaler_skips_changes_nothing():
    model, optimizer, step = trained()
    hold_masks(model, optimizer, 0.9)
    before = weights(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    optimizer.zero_grad()
    loss = model(torch.randn(8, 64)).sum()
    scaler.scale(loss).backward()
    linears(model)[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    assert torch.equal(weights(model), before)
    step()
    assert torch.equal(weights(model) == 0, before == 0)
    assert not torch.equal(weights(model), before)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_beyond_0_to_1_is_refused(share):
    model, optimizer, _ = trained()
    with pytest.raises(ValueError, match="0 to 1"):
        hold_masks(model, optimizer, share)


def test_narrower_scores_make_ties_which_float32_does_not():
    x = torch.arange(1, 4097) / 4096
    assert torch.equal(smallest(x, 0.5), x <= 0.5)
    assert x.bfloat16().unique().numel() < 1200
    tiny = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-9
    kept = tiny[~smallest(tiny, 0.5)].abs().min()
    assert kept > tiny[smallest(tiny, 0.5)].abs().max()
    assert (tiny.half() == 0).all()  # E091: in FP16 all of them are equal


def test_two_of_four_keeps_the_two_largest_of_each_group_and_is_held():
    model, optimizer, step = trained()
    layers = [linears(model)[0]]
    original = layers[0].weight.detach().clone()
    hold_zeros([layers[0].weight], [two_of_four(layers[0].weight)], optimizer)
    groups = original.abs().view(-1, 4).sort(dim=1).values
    kept = layers[0].weight.detach().abs().view(-1, 4)
    assert torch.equal(kept.sort(dim=1).values[:, 2:], groups[:, 2:])
    step()
    assert sparsity(layers[0].weight, torch.float16).two_of_four
    with pytest.raises(ValueError, match="groups of 4"):
        two_of_four(torch.zeros(4, 6))


def test_a_narrow_network_computes_what_the_wide_one_does_without_the_other_units():
    model, _, _ = trained()
    wide = mlp(64, 32, 16, 10)
    small = narrow(wide, 8)
    assert [layer.weight.shape for layer in linears(small)] == [(8, 64), (8, 8), (10, 8)]
    silent = copy.deepcopy(wide)
    with torch.no_grad():
        for layer in linears(silent)[:-1]:
            units = smallest(layer.weight.norm(dim=1), 1 - 8 / layer.out_features)
            layer.weight[units], layer.bias[units] = 0, 0
    x = torch.randn(5, 64)
    torch.testing.assert_close(small(x), silent(x))
    with pytest.raises(ValueError, match="keep 33"):
        narrow(model, 33)


# Low rank


@pytest.mark.parametrize("shape", [(64, 96), (96, 64)])
@pytest.mark.parametrize("rank", [1, 8, 64])
def test_the_error_is_that_of_the_other_singular_values(shape, rank):
    rows, columns = shape
    g = torch.Generator().manual_seed(rank)
    left, right = (torch.linalg.qr(torch.randn(n, 64, generator=g)).Q for n in (rows, columns))
    planted = 1e3 * 2.0 ** -torch.arange(64)
    linear = nn.Linear(columns, rows)
    with torch.no_grad():
        linear.weight.copy_((left * planted) @ right.T)
    thin = factorise(linear, rank)
    got = thin[1].weight.detach().double() @ thin[0].weight.detach().double()
    exact = linear.weight.detach().double()
    best = torch.linalg.svdvals(exact)[rank:].square().sum().sqrt()
    slack = (rows + columns) * 2.0**-24 * exact.norm()
    assert best - slack <= (got - exact).norm() <= best + slack
    x = torch.randn(5, columns, dtype=torch.float64)
    torch.testing.assert_close(
        thin.double()(x), x @ got.T + linear.bias.detach().double(), rtol=1e-9, atol=1e-9
    )


def test_factors_stand_on_the_device_of_the_layer():
    thin = factorise(nn.Linear(8, 6, device="meta"), 2)
    assert {parameter.device.type for parameter in thin.parameters()} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_factorised_in_float32_and_both_factors_are_finite(dtype):
    linear = nn.Linear(96, 64, bias=False)
    with torch.no_grad():
        linear.weight.add_(3e4)
    linear = linear.to(dtype)
    thin = factorise(linear, 8)
    assert {p.dtype for p in thin.parameters()} == {dtype}
    assert all(p.isfinite().all() for p in thin.parameters()) and thin[1].bias is None
    left, values, _ = torch.linalg.svd(linear.weight.float())
    assert (left[:, :8] * values[:8]).abs().max() > 65504  # all of s in one factor
    with pytest.raises(NotImplementedError):
        torch.linalg.svd(linear.weight)


def test_a_rank_that_the_matrix_does_not_have_is_refused():
    for rank in (0, 11):
        with pytest.raises(ValueError, match="10 x 20"):
            factorise(nn.Linear(20, 10), rank)


@pytest.mark.parametrize("shape", [(256, 256), (512, 256), (10, 3), (2, 2), (1, 5)])
def test_the_rank_limit_is_the_last_that_saves(shape):
    m, n = shape
    assert rank_limit(m, n) == max(r for r in range(m * n + 1) if r * (m + n) < m * n)
