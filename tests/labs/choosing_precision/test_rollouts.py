"""Rollouts: statistics against plain formulas, engines against torch, bias against enumeration."""

import copy
import math

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.choosing_precision.rollouts import (
    ENGINES,
    PAIRS,
    PROMPT,
    TRAINERS,
    compare_policies,
    draw_rollouts,
    log_probs,
    mismatch,
    policies,
)
from labkit.labs.choosing_precision.sensitivity import text_pieces
from labkit.training import trained_gpt


@pytest.fixture(scope="module")
def gpt():
    return trained_gpt()


def test_the_statistics_of_a_small_case():
    rollout = torch.tensor([[-1.0, -1.0], [-2.0, -3.0]])
    ratios = torch.tensor([[1.0, 1.2], [0.95, 2.5]])
    found = compare_policies(rollout + ratios.log(), rollout)
    d = [math.log(r) for r in (1.0, 1.2, 0.95, 2.5)]
    assert found.mean_abs == pytest.approx(sum(map(abs, d)) / 4, rel=1e-6)
    assert found.outside == 0.5
    assert found.k1 == pytest.approx(-sum(d) / 4, rel=1e-6)
    assert found.k3 == pytest.approx((5.65 - 4 - sum(d)) / 4, rel=1e-6)
    spread = abs(d[0] + d[1] - d[2] - d[3]) / math.sqrt(2)
    assert found.sequence_std == pytest.approx(spread, rel=1e-6)


def test_k1_may_be_negative_and_k3_may_not():
    found = compare_policies(torch.tensor([[0.1, 0.2], [0.3, 0.1]]), torch.zeros(2, 2))
    assert found.k1 < 0 < found.k3


def test_float32_scores_are_torch_s_cross_entropy(gpt):
    tokens = text_pieces(4, context=32)
    with torch.no_grad():
        logits = gpt(tokens)[:, PROMPT - 1 : -1]
    want = -torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), tokens[:, PROMPT:], reduction="none"
    )
    assert torch.allclose(log_probs(gpt, tokens, engine="fp32"), want, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_16_bit_engine_is_the_model_in_16_bits_and_a_trainer_is_autocast(gpt, dtype):
    tokens, engine = text_pieces(4, context=32), {torch.float16: "fp16"}.get(dtype, "bf16")
    pure = copy.deepcopy(gpt).to(dtype)
    with torch.no_grad(), emulate_gpu():
        logits = {engine: pure(tokens)}
        with torch.autocast("cpu", dtype=dtype):
            logits[f"{engine} autocast"] = gpt(tokens)
    for name, found in logits.items():
        log_p = found[:, PROMPT - 1 : -1].float().log_softmax(-1)
        want = log_p.gather(-1, tokens[:, PROMPT:, None]).squeeze(-1)
        assert torch.equal(log_probs(gpt, tokens, engine=name), want)
    assert not torch.equal(*logits.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_reports_the_log_probabilities_it_drew_with(gpt, engine):
    tokens, reported = draw_rollouts(gpt, text_pieces(8, context=PROMPT), engine=engine, steps=12)
    assert tokens.shape == (8, PROMPT + 12) and reported.shape == (8, 12)
    found = compare_policies(log_probs(gpt, tokens, engine=engine), reported)
    # FP8 scales an activation by its largest value, which may stand in a token that comes later.
    if engine in ("e4m3", "e5m2"):
        trainer = compare_policies(log_probs(gpt, tokens, engine=PAIRS[engine]), reported)
        assert 0 < found.mean_abs < trainer.mean_abs
    else:
        assert found.mean_abs < 3e-3


def test_the_same_seed_draws_the_same_tokens_and_changes_no_weight(gpt):
    prompts, before = text_pieces(4, context=PROMPT), [p.clone() for p in gpt.parameters()]
    one, other, third = (draw_rollouts(gpt, prompts, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, other) and not torch.equal(one, third)
    assert torch.equal(one[:, :PROMPT], prompts)
    log_probs(gpt, one, engine="e4m3")
    assert all(torch.equal(a, b) for a, b in zip(before, gpt.parameters(), strict=True))
    assert {p.dtype for p in gpt.parameters()} == {torch.float32}


@pytest.mark.seeds([0, 1, 2])
def test_bf16_differs_8_times_as_much_as_fp16_and_e4m3_much_more(seed):
    found = {engine: mismatch(engine, seed=seed) for engine in ("fp16", "bf16", "e4m3")}
    assert 6 < found["bf16"].mean_abs / found["fp16"].mean_abs < 10
    assert found["fp16"].outside == 0 and found["bf16"].outside < 0.01
    assert 0.2 < found["e4m3"].outside < 0.4


def test_policies_are_distributions_that_differ():
    trainer, rollout = policies("bf16")
    assert trainer.shape == rollout.shape == (2048, 68) and trainer.dtype is torch.float64
    for each in (trainer, rollout):
        assert torch.allclose(each.exp().sum(-1), torch.ones(2048, dtype=torch.float64))
    assert 0 < (trainer - rollout).abs().max() < 2


@pytest.mark.parametrize("engine", ["fp8", "autocast", ""])
def test_another_engine_is_refused(gpt, engine):
    with pytest.raises(ValueError, match=f"{TRAINERS[0]}"):
        log_probs(gpt, text_pieces(1, context=16), engine=engine)
