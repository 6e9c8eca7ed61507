"""Datasets: the small data that the labs train on, which ships with the course.

Images are N x channels x height x width, float32 in [0, 1]; labels are N, int64; text is a string,
and its tokens int64. Everything is split and served in batches, seeded, so that the same call gives
the same numbers on every machine. Origins and licences stand in data/README.md.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, TensorDataset

from labkit.base.home import DATA


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images to learn from and images to be tested on, and their labels, N, int64."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits(seed: int = 0) -> ImageSplit:
    """1,797 handwritten digits of 8 x 8 pixels: 1,438 to train on, 359 to test on.

    A fifth of each digit, drawn by ``seed``, is for testing. The end of the file would be no fair
    test: other people wrote it, and networks lose two points there.

    >>> digits().train_images.shape
    torch.Size([1438, 1, 8, 8])
    """
    with np.load(DATA / "digits.npz") as arrays:
        images = torch.from_numpy(arrays["images"]).float().unsqueeze(1) / 16
        labels = torch.from_numpy(arrays["labels"]).long()
    generator = torch.Generator().manual_seed(seed)
    test = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        places = (labels == digit).nonzero().flatten()
        drawn = torch.randperm(len(places), generator=generator)[: round(0.2 * len(places))]
        test[places[drawn]] = True
    return ImageSplit(images[~test], labels[~test], images[test], labels[test])


def digits_mlp() -> dict[str, Tensor]:
    """One layer of a network that has learnt the digits, recorded late in a float32 run.

    Returns:
        "weights", "activations" and "gradients" (of the mean loss, by those activations):
        float32 tensors of 8,191 values each.
    """
    return _recorded("digits_mlp")


def gpt_layers() -> dict[str, Tensor]:
    """A gradient and an activation of ``trained_gpt()``, recorded in one pass over the test text.

    Returns:
        "gradient": of the mean loss, with respect to the output of the first block's feed-forward
        layer; float32, 64 characters x 64 channels. "activation": 4,093 float32 values of what
        enters the last linear layer of the second block, after GELU.
    """
    return _recorded("gpt_layers")


def _recorded(name: str) -> dict[str, Tensor]:
    with np.load(DATA / "tensors" / f"{name}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays if key != "about"}


def shakespeare() -> str:
    """*Julius Caesar*, *Macbeth* and *Othello* in a row: 371,255 characters, all ASCII."""
    return (DATA / "shakespeare.txt").read_text(encoding="ascii")


def shakespeare_split() -> tuple[str, str]:
    """The first 90 % of ``shakespeare()`` to train on, the last 10 % to be tested on.

    >>> [len(part) for part in shakespeare_split()]
    [334129, 37126]
    """
    text = shakespeare()
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


@dataclass(frozen=True)
class Vocabulary:
    """The characters that a text is made of; a token is a place in ``symbols``."""

    symbols: str

    @property
    def size(self) -> int:
        return len(self.symbols)

    @cached_property
    def _token(self) -> dict[str, int]:
        return {symbol: token for token, symbol in enumerate(self.symbols)}

    def encode(self, text: str) -> Tensor:
        """Tokens of the text, int64.

        Raises:
            ValueError: the text has a character that is no symbol.
        """
        if unknown := sorted(set(text) - set(self.symbols)):
            raise ValueError(
                f"{''.join(unknown)!r} is not in this vocabulary of {self.size} symbols; "
                "make one with characters() of the whole text"
            )
        return torch.tensor([self._token[symbol] for symbol in text], dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The text that these tokens, of any shape, spell.

        Raises:
            ValueError: a token is negative or not below ``size``.
        """
        numbers = tokens.flatten().tolist()
        if wrong := [number for number in numbers if not 0 <= number < self.size]:
            raise ValueError(f"token {wrong[0]} is not one of 0 to {self.size - 1}")
        return "".join(self.symbols[number] for number in numbers)


def characters(text: str) -> Vocabulary:
    """The vocabulary of a text: its characters in the order of their codes.

    >>> characters("to be").encode("bet")
    tensor([1, 2, 4])
    """
    return Vocabulary("".join(sorted(set(text))))


def batches(
    images: Tensor, labels: Tensor, batch_size: int, *, seed: int = 0, drop_last: bool = False
) -> DataLoader:
    """The images in batches, each once an epoch, in another order each epoch.

    ``for inputs, targets in ...`` is one epoch; ``len()`` is its number of batches. The orders
    follow from ``seed``, and go on from where the last loop ended: runs that are to see the
    same batches each need a loader of their own.

    Raises:
        ValueError: images and labels differ in number, or there is not one batch.
    """
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images but {len(labels)} labels; each needs the other")
    if batch_size < 1 or len(images) < (batch_size if drop_last else 1):
        raise ValueError(f"{len(images)} images make no batch of {batch_size}")
    order = RandomSampler(labels, generator=torch.Generator().manual_seed(seed))
    return _loader(TensorDataset(images, labels), order, batch_size, drop_last)


def character_batches(
    text: str,
    context: int,
    batch_size: int,
    *,
    steps: int,
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
) -> DataLoader:
    """Pieces of a text from random places: ``steps`` batches an epoch, other ones each epoch.

    Inputs are tokens, int64, batch_size x context; targets are the same pieces one character
    later. ``vocabulary`` is the text's own by default; parts of one text need that of the whole.

    Raises:
        ValueError: the text is not longer than the context; a number is below 1.
    """
    if min(context, batch_size, steps) < 1:
        raise ValueError(f"{context=}, {batch_size=}, {steps=}: each must be at least 1")
    if len(text) <= context:
        raise ValueError(f"a text of {len(text)} characters has no {context} and one to predict")
    tokens = (vocabulary or characters(text)).encode(text)
    pieces = tokens.unfold(0, context + 1, 1)  # a view: every piece, and no copy of the text
    places = RandomSampler(
        range(len(pieces)),
        replacement=True,
        num_samples=steps * batch_size,
        generator=torch.Generator().manual_seed(seed),
    )
    return _loader(TensorDataset(pieces[:, :-1], pieces[:, 1:]), places, batch_size)


def _loader(
    dataset: TensorDataset, order: RandomSampler, batch_size: int, drop_last: bool = False
) -> DataLoader:
    """A loader that takes each batch out of the tensors at once.

    ``batch_size=None`` says that what the sampler names is a whole batch; DataLoader would take
    examples one by one and stack them, as long as a small network's step. What the loader itself
    draws each epoch comes from the sampler's generator: the program's random numbers stay.
    """
    whole: Sampler = BatchSampler(order, batch_size, drop_last)
    return DataLoader(dataset, sampler=whole, batch_size=None, generator=order.generator)
