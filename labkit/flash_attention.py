"""Attention with the roundings of FlashAttention-2, on float32 tensors that hold 16-bit values.

This module believes that a fused attention kernel keeps everything in float32 except what it hands
to a Tensor Core. A Tensor Core takes 16-bit factors, so two intermediates are rounded: P, the
exponentials before they are divided by their sum, and in backward P and dS (Dao, arXiv:2307.08691,
algorithms 1 and 2).

A GPU sees the keys block by block and rounds P against the largest score so far; here P is rounded
against the largest score of the row. The scores of all heads stand in memory at once.
"""

import math

import torch
from torch import Tensor


def _through(dtype: torch.dtype, x: Tensor) -> Tensor:
    """float32 values rounded to the dtype."""
    return x.to(dtype).float()


def _scores(
    query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float | None
) -> tuple[Tensor, float]:
    """Scaled and masked scores ``(batch, heads, queries, keys)``, and the scale."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.mT).mul_(scale)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(hidden, -math.inf)
    return (scores if mask is None else scores.add_(mask)), scale


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    *,
    dtype: torch.dtype,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Output in ``dtype`` ``(batch, heads, queries, width)`` and float32 log-sum-exp of each row.

    A row with every key masked gives zeros and a log-sum-exp of inf, as FlashAttention does.
    """
    scores, _ = _scores(query, key, causal, mask, scale)
    largest = scores.amax(-1, keepdim=True)
    largest.masked_fill_(largest == -math.inf, 0.0)
    weights = scores.sub_(largest).exp_()
    total = weights.sum(-1, keepdim=True)
    empty = total == 0
    batch, heads, queries, width = query.shape[:-1] + value.shape[-1:]
    output = torch.empty(batch, queries, heads, width, dtype=dtype).transpose(1, 2)
    product = torch.matmul(_through(dtype, weights), value)
    output.copy_(product.div_(total.masked_fill(empty, 1.0)))
    logsumexp = largest.add_(total.log_()).masked_fill_(empty, math.inf)
    return output, logsumexp.squeeze(-1)


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    causal: bool,
    *,
    dtype: torch.dtype,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, in ``dtype``."""
    scores, scale = _scores(query, key, causal, mask, scale)
    weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_()
    grad_value = torch.matmul(_through(dtype, weights).mT, grad)
    delta = (grad * output).sum(-1, keepdim=True)
    grad_scores = torch.matmul(grad, value.mT).sub_(delta).mul_(weights)
    grad_scores = _through(dtype, grad_scores)
    grad_query = torch.matmul(grad_scores, key).mul_(scale)
    grad_key = torch.matmul(grad_scores.mT, query).mul_(scale)
    return grad_query.to(dtype), grad_key.to(dtype), grad_value.to(dtype)
