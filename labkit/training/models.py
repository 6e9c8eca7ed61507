"""The networks that the labs train: small enough to read, and to train on a laptop's CPU.

A network says nothing about precision. Its parameters are float32 and its ``forward`` names no
dtype, so the same class serves float32, autocast and ``model.to(torch.bfloat16)``.
Every ``forward`` takes a batch first. An input of the wrong shape is refused with the shape that
was meant; a shape error from inside a layer says less.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def check_images(images: Tensor, expected: Sequence[int | str], fix: str) -> None:
    """Refuse images unless each number of ``expected`` (letters stand for any) is their size."""
    actual = tuple(images.shape)
    pairs = zip(expected, actual, strict=False)
    if len(actual) != len(expected) or any(a != b for a, b in pairs if not isinstance(a, str)):
        want, have = (" x ".join(map(str, shape)) for shape in (expected, actual))
        raise ValueError(f"expected images of shape {want}, got {have or 'a single number'}. {fix}")


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers of these widths with ReLU between them.

    Takes (N, widths[0]) or images that flatten to it, and gives (N, widths[-1]).

    Raises:
        ValueError: there are fewer than two widths.

    >>> mlp(64, 32, 10)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """
    if len(widths) < 2:
        raise ValueError(
            f"mlp{widths} has no layer; name an input and an output width: mlp(64, 10)"
        )
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Autoencoder(nn.Module):
    """Squeezes each input through a narrow code and rebuilds it.

    Takes (N, inputs), or images that flatten to it, and gives the same shape back.
    """

    def __init__(self, inputs: int = 64, hidden: int = 128, code: int = 16) -> None:
        super().__init__()
        self.encoder = mlp(inputs, hidden, code)
        self.decoder = mlp(code, hidden, inputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x)).view_as(x)


class SmallCNN(nn.Module):
    """Two convolutions, each followed by ReLU and a pooling by 2, and a linear layer.

    Takes N x channels x size x size (8 x 8 digits, 28 x 28 MNIST, 32 x 32 x 3 CIFAR-10, any size
    that two halvings leave whole) and gives logits, N x classes.

    Raises:
        ValueError: the size is no multiple of 4; the images have other channels or another size.

    >>> SmallCNN(channels=3, size=32)(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(self, channels: int = 1, size: int = 8, classes: int = 10) -> None:
        super().__init__()
        if size < 4 or size % 4:
            raise ValueError(f"size {size} cannot be halved twice; use a multiple of 4")
        self.channels, self.size = channels, size
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(32 * (size // 4) ** 2, classes)

    def forward(self, images: Tensor) -> Tensor:
        expected = ("N", self.channels, self.size, self.size)
        check_images(images, expected, "Build SmallCNN(channels=..., size=...) for your images.")
        return self.classifier(self.features(images).flatten(1))


class Block(nn.Module):
    """A transformer block: causal attention, then a feed-forward part, each normed and added.

    Takes and gives N x T x width.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attention(self, x: Tensor) -> Tensor:
        """Each position attends to itself and those before it, in all heads at once."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each N x heads x T x width/heads
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class SmallGPT(nn.Module):
    """A transformer that predicts the next token at every position.

    Takes tokens, int64, N x T with T at most ``context``, and gives logits, N x T x vocabulary;
    ``labkit.training.cross_entropy(logits, next_tokens)`` is their loss.

    Raises:
        ValueError: the heads do not divide the width; the tokens are longer than the context.

    >>> SmallGPT(vocabulary=65, context=32)(torch.zeros(5, 20, dtype=torch.int64)).shape
    torch.Size([5, 20, 65])
    """

    def __init__(
        self, vocabulary: int, context: int, width: int = 64, blocks: int = 2, heads: int = 4
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads cannot share a width of {width}; make it a multiple")
        self.context = context
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        # GPT-2's start (Radford et al. 2019): torch's own N(0, 1) drowns what the blocks add.
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.shape[1] > self.context:
            raise ValueError(
                f"expected tokens of shape N x T with T up to {self.context}, "
                f"got {' x '.join(map(str, tokens.shape))}. Cut them, or build a longer context."
            )
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        return self.head(self.norm(self.blocks(x)))
