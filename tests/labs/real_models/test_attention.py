"""Eager attention is torch's, QK-norm bounds its scores, and a run that is too fast says so."""

import math

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.real_models.attention import crash_run, small_gpt
from labkit.training.models import Block


def tokens(n=4):
    return torch.randint(68, (n, 32), generator=torch.Generator().manual_seed(0))


def test_eager_attention_is_that_of_small_gpt():
    model = small_gpt(qk_norm=False, seed=0)
    found = model(tokens())
    for block in model.blocks:
        block.__class__ = Block
    assert torch.allclose(found, model(tokens()), atol=1e-5)


@pytest.mark.parametrize("gain", [1, 1000])
def test_normed_scores_are_at_most_the_root_of_a_heads_width(gain):
    model = small_gpt(qk_norm=True, seed=0)
    for block in model.blocks:
        block.qkv.weight.data *= gain
    model(tokens())
    assert 1 < max(block.largest_score for block in model.blocks) <= math.sqrt(32) * (1 + 1e-6)


def test_the_largest_score_is_watched_in_float32_under_fp16():
    model = small_gpt(qk_norm=False, seed=0)
    for block in model.blocks:
        block.qkv.weight.data *= 300
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        logits = model(tokens())
    assert 65504 < max(block.largest_score for block in model.blocks) < math.inf
    assert not logits.isfinite().all()


@pytest.mark.parametrize("qk_norm", [False, True])
def test_at_a_rate_of_a_tenth_fp16_lives_with_qk_norm_alone(qk_norm):
    run = crash_run(small_gpt(qk_norm=qk_norm, seed=0), precision="fp16", seed=0)
    if qk_norm:
        assert run.died is None and len(run.losses) == 150 and run.final_loss < 3.35
        assert run.largest_score <= 5.66
    else:
        assert run.died == len(run.losses) < 150 and math.isnan(run.final_loss)
        assert run.largest_score > 1000
    assert all(map(math.isfinite, run.losses))
