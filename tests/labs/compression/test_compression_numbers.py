"""Numbers and reasons in the text of lab 10 that no cell prints, on several seeds."""

from functools import partial

import pytest
import torch
from torch.nn.utils import prune

from labkit.labs.compression.pipeline import adamw, linears, reader, tune
from labkit.labs.compression.pruning import hold_masks
from labkit.labs.compression.sparsity import sparsity
from labkit.labs.compression.storage import file_bytes
from labkit.training.data import digits

SEEDS = range(3)


def remember(seen, gradient):
    seen |= gradient != 0


@pytest.mark.seeds(SEEDS)
def test_zeros_that_are_left_had_no_gradient(seed):
    model, data = reader(seed), digits(seed)
    optimizer = adamw(model)
    hold_masks(model, optimizer, 0.9).remove()
    weights = [layer.weight for layer in linears(model)]
    pruned = [w == 0 for w in weights]
    had = [torch.zeros_like(mask) for mask in pruned]
    for weight, seen in zip(weights, had, strict=True):
        weight.register_hook(partial(remember, seen))
    tune(model, data, optimizer, epochs=1)
    for weight, mask, seen in zip(weights, pruned, had, strict=True):
        assert torch.equal(weight == 0, mask & ~seen)
    blank = (data.train_images.flatten(1) == 0).all(dim=0)
    assert blank.any() and not had[0][:, blank].any()


@pytest.mark.seeds(SEEDS)
def test_at_98_percent_the_middle_weight_keeps_0_4_percent(seed):
    model = reader(seed)
    hold_masks(model, adamw(model), 0.98)
    kept = [1 - sparsity(layer.weight, torch.float16).exact for layer in linears(model)]
    assert 0.003 < kept[1] < 0.005 < kept[2] < kept[0]


def test_torch_s_pruning_doubles_the_file_until_it_is_removed():
    model = reader(0)
    dense = file_bytes(model.state_dict())
    prune.global_unstructured(
        [(layer, "weight") for layer in linears(model)],
        pruning_method=prune.L1Unstructured,
        amount=0.9,
    )
    state = model.state_dict()
    assert {name.partition(".")[2] for name in state} == {"weight_orig", "weight_mask", "bias"}
    assert all(tensor.dtype is torch.float32 for tensor in state.values())
    assert file_bytes(state) > 1.98 * dense
    for layer in linears(model):
        prune.remove(layer, "weight")
    assert file_bytes(model.state_dict()) == dense == 340_440


@pytest.mark.seeds(SEEDS)
def test_without_an_integer_zero_point_no_zero_survives(seed):
    model = reader(seed)
    hold_masks(model, adamw(model), 0.9)
    for layer in linears(model):
        weight = layer.weight.detach()
        low, high = weight.amin(), weight.amax()
        step = (high - low) / 255
        back = ((weight - low) / step).round() * step + low
        assert not (back[weight == 0] == 0).any()
        symmetric = weight.abs().amax() / 127
        assert (((weight / symmetric).round() * symmetric)[weight == 0] == 0).all()
