"""Attention with the roundings of FlashAttention-2, computed with float32 kernels.

A fused attention kernel keeps everything in float32 except what it hands to a Tensor Core. A Tensor
Core takes 16-bit factors, so two intermediates are rounded: P, the exponentials before they are
divided by their sum, and dS in backward, where P is rounded once more after that division (Dao,
arXiv:2307.08691, algorithms 1 and 2).

Where several heads of queries share one of keys (``enable_gqa=True``), PyTorch's CUDA backward
writes the gradients of keys and values for each head of queries in 16 bits, and then sums them in
float32 (transformers/cuda/flash_attn/flash_api.cpp, ``mha_bwd``): two roundings, here as well.

A GPU sees the keys block by block and rounds P against the largest score so far; here P is rounded
against the largest score of the row. Heads are taken a few at a time: their scores stay in the
cache, and no more of them stand in memory at once.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)
"""Scores are kept in base 2, as in FlashAttention; exp of -inf would be ten times slower."""

SCORES_AT_ONCE = 1 << 17
"""Scores computed at once: 512 KiB of float32, about the cache of one core."""

LOWEST = torch.finfo(torch.float32).min


def _heads(x: Tensor, heads: int) -> Tensor:
    """(batch, its heads, length, width) in 16 bits -> (batch * heads, length, width) in float32.

    A head of keys or values stands once for each head of queries that it serves.
    """
    x = x.to(torch.float32, memory_format=torch.contiguous_format)
    if x.shape[1] != heads:
        x = x.repeat_interleave(heads // x.shape[1], dim=1)
    return x.reshape(-1, *x.shape[-2:])


def _gradient(grad: Tensor, like: Tensor) -> Tensor:
    """(batch * heads, length, width) in float32 -> rounded to 16 bits, in the shape of ``like``.

    Where several heads share one, each is rounded, and their float32 sum once more.
    """
    grad, (batch, heads, length, width) = grad.to(like.dtype), like.shape
    if grad.shape[0] == batch * heads:
        return grad.view(like.shape)
    return grad.view(batch, heads, -1, length, width).sum(2)  # in float32, as every sum


def _addend(query: Tensor, key: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    """What is added to the scores in base 2: -inf where a key is hidden, or the caller's mask."""
    batch, heads, queries, _ = query.shape
    shape = queries, key.shape[-2]
    if causal:
        hidden = torch.full(shape, -math.inf).triu_(1)
        return hidden.expand(batch * heads, *shape)
    if mask is not None:
        return mask.float().mul(LOG2_E).expand(batch, heads, *shape).reshape(-1, *shape)
    return None


def _parts(
    heads: int, queries: int, keys: int, dtypes: tuple[torch.dtype, ...]
) -> Iterator[tuple[slice, list[Tensor]]]:
    """A few heads at a time, and memory for their scores in each of the dtypes.

    All parts use the same memory, so that it stays in the cache.
    """
    size = max(1, SCORES_AT_ONCE // max(queries * keys, 1))
    memory = [torch.empty(min(size, heads), queries, keys, dtype=dtype) for dtype in dtypes]
    for start in range(0, heads, size):
        yield slice(start, start + size), [room[: heads - start] for room in memory]


def _round_(x: Tensor, narrow: Tensor) -> Tensor:
    """x, in place, rounded to the dtype of ``narrow``, which is overwritten."""
    return x.copy_(narrow.copy_(x))


def _scores(query: Tensor, key: Tensor, addend: Tensor | None, scale: float, out: Tensor) -> Tensor:
    """log2(e) times the scores."""
    scale *= LOG2_E
    if addend is None:
        return torch.bmm(query, key.mT, out=out).mul_(scale)
    return torch.baddbmm(addend, query, key.mT, alpha=scale, out=out)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    mask: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """The 16-bit output ``(batch, heads, queries, width)`` and the rows' float32 log-sum-exp.

    A row with every key hidden gives zeros and a log-sum-exp of inf, as FlashAttention does.
    """
    dtype, (batch, heads, queries, _) = query.dtype, query.shape
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    addend = _addend(query, key, causal, mask)
    output = torch.empty(batch * heads, queries, value.shape[-1])
    largest, total = (torch.empty(batch * heads, queries, 1) for _ in range(2))
    q, k, v = (_heads(x, heads) for x in (query, key, value))
    parts = _parts(batch * heads, queries, key.shape[-2], (torch.float32, dtype))
    for part, (room, narrow) in parts:
        hidden = None if addend is None else addend[part]
        scores = _scores(q[part], k[part], hidden, scale, room)
        torch.amax(scores, -1, keepdim=True, out=largest[part])
        exponentials = scores.sub_(largest[part].clamp(min=LOWEST)).exp2_()
        torch.sum(exponentials, -1, keepdim=True, out=total[part])
        torch.bmm(_round_(exponentials, narrow), v[part], out=output[part])
    empty = largest == -math.inf
    output = output.div_(total.masked_fill_(empty, 1.0)).to(dtype).view(batch, heads, queries, -1)
    logsumexp = ((largest + total.log2()) / LOG2_E).masked_fill_(empty, math.inf)
    return output, logsumexp.view(batch, heads, queries)


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    causal: bool,
    mask: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The 16-bit gradients of query, key and value, from what ``forward`` returned."""
    dtype, heads = query.dtype, query.shape[1]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    addend = _addend(query, key, causal, mask)
    g, q, k, v, out = (_heads(x, heads) for x in (grad, query, key, value, output))
    delta = (g * out).sum(-1, keepdim=True).neg_()
    rows = logsumexp.reshape(len(q), -1, 1) * LOG2_E
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dtypes = torch.float32, torch.float32, dtype
    for part, (room, more, narrow) in _parts(len(q), query.shape[-2], key.shape[-2], dtypes):
        hidden = None if addend is None else addend[part]
        weights = _scores(q[part], k[part], hidden, scale, room).sub_(rows[part]).exp2_()
        torch.bmm(more.copy_(narrow.copy_(weights)).mT, g[part], out=grad_v[part])
        from_sum = delta[part].expand_as(weights)
        grad_scores = torch.baddbmm(from_sum, g[part], v[part].mT, out=more).mul_(weights)
        _round_(grad_scores, narrow)
        torch.bmm(grad_scores, k[part], out=grad_q[part])
        torch.bmm(grad_scores.mT, q[part], out=grad_k[part])
    grad_q, grad_k = grad_q.mul_(scale), grad_k.mul_(scale)
    return _gradient(grad_q, query), _gradient(grad_k, key), _gradient(grad_v, value)
