"""What the prose of lab 11 says: of the GPT's updates and gradients, and of a search's runs."""

from itertools import combinations

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.monitoring_and_debugging.solutions import must_stay
from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split


def gpt_batches(steps, seed):
    text, vocabulary = shakespeare_split()[0], characters(shakespeare())
    return character_batches(text, 64, 16, steps=steps, seed=seed, vocabulary=vocabulary)


def last_update(dtype, seed):
    """Of the last of ten steps: update over weight, and the share of weights that it changed."""
    model = trained_gpt().to(dtype)
    weight = model.blocks[0].qkv.weight
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
    for x, y in gpt_batches(10, seed):
        before = weight.detach().clone()
        adam.zero_grad()
        with emulate_gpu():
            cross_entropy(model(x).float(), y).backward()
        adam.step()
    moved = (weight != before).double().mean().item()
    return ((weight.detach() - before).norm() / before.norm()).item(), moved


@pytest.mark.seeds(range(3))
def test_bf16_weights_mostly_stay_while_the_update_looks_only_a_little_smaller(seed):
    (wide, all_move), (narrow, few_move) = (
        last_update(dtype, seed) for dtype in (torch.float32, torch.bfloat16)
    )
    assert all_move > 0.95 and 0.05 < few_move < 0.25
    assert 0.4 < narrow / wide < 1


@pytest.mark.seeds(range(3))
def test_the_gradient_of_the_keys_bias_is_rounding_noise(seed):
    model = trained_gpt()
    ((x, y),) = gpt_batches(1, seed)
    cross_entropy(model(x), y).backward()
    for block in model.blocks:
        query, key, value = block.qkv.bias.grad.chunk(3)
        assert key.abs().max() < 2.0**-25 < 1e-3 < min(query.abs().max(), value.abs().max())


def test_two_culprits_among_48_take_13_to_15_runs():
    names, counts = [f"layer{i}" for i in range(48)], set()
    for pair in map(set, combinations(names, 2)):
        runs = 0

        def good(wide, pair=pair):
            nonlocal runs
            runs += 1
            return pair <= wide

        assert must_stay(names, good) == pair
        counts.add(runs)
    assert counts == {13, 14, 15}
