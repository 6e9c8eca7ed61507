"""Rollouts: tokens that an engine samples in one format, scored again by a trainer in another.

Reinforcement learning draws its text with an inference engine, which holds the weights in 16 or 8
bits, and computes the gradient with a trainer under autocast. Both hold the same weights, and give
the same tokens different log-probabilities. On a CPU all engines run inside ``emulate_gpu()``.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.emulation import emulate_gpu
from labkit.formats import E4M3, E5M2, scaled
from labkit.labs.choosing_precision.sensitivity import text_pieces
from labkit.training import trained_gpt

PROMPT, STEPS = 8, 24
"""Characters of a prompt, and characters that follow it."""
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_FP8 = {"e4m3": E4M3, "e5m2": E5M2}
ENGINES = ("fp32", *_DTYPES, *_FP8)
TRAINERS = tuple(f"{name} autocast" for name in _DTYPES)
PAIRS = {
    "fp16": "fp16 autocast",
    "bf16": "bf16 autocast",
    "e4m3": "bf16 autocast",
    "e5m2": "bf16 autocast",
}
"""The trainer beside each engine."""


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """How two log-probabilities of the same tokens differ; ratios are trainer over engine.

    Args:
        mean_abs: of the log ratio, nats a token.
        outside: the share of tokens whose ratio lies outside 0.9 to 1.1.
        k1, k3: means of -log r and of r - 1 - log r, which estimate KL(engine || trainer) from
            tokens that the engine drew; k3 is never negative (Schulman, "Approximating KL
            Divergence", 2020).
        sequence_std: standard deviation of the log ratio of whole sequences.
    """

    mean_abs: float
    outside: float
    k1: float
    k3: float
    sequence_std: float


def log_probs(model: nn.Module, tokens: Tensor, *, engine: str = "bf16") -> Tensor:
    """Log-probabilities of the tokens behind the prompt: float32, N x (T - PROMPT).

    Args:
        model: a float32 language model; it is copied, not changed.
        tokens: int64, N x T with T above ``PROMPT``.
        engine: one of ``ENGINES``: "fp16" and "bf16" hold weights and activations in 16 bits;
            "e4m3" and "e5m2" round weights and inputs of linear layers with one scale a tensor and
            do the rest as "bf16 autocast". Or one of ``TRAINERS``: float32 weights under autocast.

    Raises:
        ValueError: another engine.
    """
    with torch.no_grad():
        logits = _forward(model, engine)(tokens)[:, PROMPT - 1 : -1].float()
    drawn = tokens[:, PROMPT:, None]
    return logits.log_softmax(-1).gather(-1, drawn).squeeze(-1)


def draw_rollouts(
    model: nn.Module, prompts: Tensor, *, engine: str = "bf16", steps: int = STEPS, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Tokens that the engine draws behind the prompts, and the log-probabilities it drew them with.

    Returns:
        The prompts with ``steps`` more tokens, int64, N x (T + steps), and float32, N x steps.
    """
    forward, generator = _forward(model, engine), torch.Generator().manual_seed(seed)
    tokens, reported = prompts, []
    with torch.no_grad():
        for _ in range(steps):
            log_p = forward(tokens)[:, -1].float().log_softmax(-1)
            drawn = torch.multinomial(log_p.exp(), 1, generator=generator)
            reported.append(log_p.gather(-1, drawn))
            tokens = torch.cat([tokens, drawn], dim=1)
    return tokens, torch.cat(reported, dim=1)


def compare_policies(trainer: Tensor, rollout: Tensor) -> Mismatch:
    """Compare log-probabilities of the same tokens, N x T, by the trainer and by the engine."""
    log_ratio = trainer.double() - rollout.double()
    ratio = log_ratio.exp()
    return Mismatch(
        mean_abs=log_ratio.abs().mean().item(),
        outside=((ratio < 0.9) | (ratio > 1.1)).double().mean().item(),
        k1=-log_ratio.mean().item(),
        k3=(ratio - 1 - log_ratio).mean().item(),
        sequence_std=log_ratio.sum(dim=1).std().item(),
    )


def mismatch(engine: str, *, seed: int = 0) -> Mismatch:
    """The trained GPT draws 128 texts in a format of ``PAIRS``, and the trainer beside scores them.

    The seed chooses the prompts, from the test text, and the tokens.
    """
    gpt, prompts = trained_gpt(), text_pieces(128, context=PROMPT, seed=seed)
    tokens, reported = draw_rollouts(gpt, prompts, engine=engine, seed=seed)
    return compare_policies(log_probs(gpt, tokens, engine=PAIRS[engine]), reported)


def policies(engine: str, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all next tokens on 32 test pieces, by the trainer and by the engine.

    Float64, 2048 x 68 each, of the trained GPT; the engine is one of ``PAIRS``.
    """
    gpt, tokens = trained_gpt(), text_pieces(32, seed=seed)
    with torch.no_grad():
        both = (_forward(gpt, name)(tokens).flatten(0, 1) for name in (PAIRS[engine], engine))
        trainer, rollout = (logits.double().log_softmax(-1) for logits in both)
    return trainer, rollout


def _forward(model: nn.Module, engine: str) -> Callable[[Tensor], Tensor]:
    if engine not in ENGINES + TRAINERS:
        raise ValueError(f"engine={engine!r}: one of {', '.join(ENGINES + TRAINERS)}")
    network = copy.deepcopy(model).eval()
    if engine in _DTYPES:
        network.to(_DTYPES[engine])
    if engine in _FP8:
        for layer in network.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.data = _rounded(layer.weight.data, engine)
                layer.register_forward_pre_hook(lambda _, x: (_rounded(x[0], engine),))
    computing = torch.float16 if engine == "fp16 autocast" else torch.bfloat16
    autocast = engine in (*TRAINERS, *_FP8)

    def forward(tokens: Tensor) -> Tensor:
        with emulate_gpu(), torch.autocast("cpu", dtype=computing, enabled=autocast):
            return network(tokens)

    return forward


def _rounded(x: Tensor, engine: str) -> Tensor:
    return scaled(x.detach().float(), _FP8[engine], overflow="saturate").dequantize()
