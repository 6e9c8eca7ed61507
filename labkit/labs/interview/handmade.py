"""The network that lab 16 ports to FP16."""

import torch
from torch import Tensor, nn


class HandmadeGPT(nn.Module):
    """A GPT of one block as it stands in many float32 repositories, its parts written by hand.

    Takes tokens, int64, N x T with T at most ``context``, and gives logits, N x T x vocabulary.
    Queries and keys are normed (QK-norm, Henry et al. 2020, arXiv:2010.04245). It trains in
    float32; what breaks under FP16 autocast is left in, for the learner to find.

    >>> HandmadeGPT(vocabulary=11, context=8)(torch.zeros(2, 5, dtype=torch.int64)).shape
    torch.Size([2, 5, 11])
    """

    def __init__(self, vocabulary: int, context: int, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def norm(self, x: Tensor) -> Tensor:
        """RMS norm over the last dimension, without a gain (Zhang and Sennrich 2019)."""
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-8)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention; all three are N x heads x T x width/heads."""
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        future = torch.ones(scores.shape[-2:], device=scores.device).triu(1).bool()
        return scores.masked_fill(future, -1e9).softmax(dim=-1) @ value

    def loss(self, logits: Tensor, next_tokens: Tensor) -> Tensor:
        """Mean cross-entropy over all positions; the targets are N x T."""
        log_p = torch.log_softmax(logits, dim=-1)
        return -log_p.gather(-1, next_tokens.unsqueeze(-1)).mean()

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        qkv = self.query_key_value(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        x = x + self.attention_out(self.attend(query, key, value).transpose(1, 2).flatten(2))
        return self.head(self.norm(x + self.feed_forward(self.norm(x))))
