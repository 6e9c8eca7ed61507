"""What the labs train on: data that ships with the course, and larger sets where you have them.

This module believes that data is tensors: images N x channels x height x width, float32 in [0, 1],
with labels N, int64; text is a row of int64 tokens. The rest of the file splits them and serves
them in batches, seeded, so that the same call gives the same numbers on every machine. Origins and
licences stand in data/README.md.
"""

import gzip
import json
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, TensorDataset

from labkit.base.paths import DATA
from labkit.downloads import PublishedFile

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = (
    PublishedFile(
        _MNIST + "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    PublishedFile(
        _MNIST + "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    PublishedFile(
        _MNIST + "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    PublishedFile(
        _MNIST + "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
"""Training images and labels, test images and labels, at torchvision's first address. The sums are
those of torchvision/prototype/datasets/_builtin/mnist.py, the sizes those of the authors' page."""

CIFAR10 = PublishedFile(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
"""The binary version at the author's page, which gives its MD5 (c32a1d4ab5d03f1284b67883e8d87530);
the SHA-256 is that of MLDatasets.jl, src/datasets/vision/cifar10.jl."""


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images to learn from and images to be tested on.

    Images are N x channels x height x width, float32 in [0, 1]; labels are N, int64.
    """

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


def mnist(folder: str | Path, *, download: bool = False) -> ImageSplit:
    """60,000 handwritten digits of 28 x 28 pixels to train on and 10,000 to test on.

    Reads the four ``.gz`` files of MNIST from the folder (torchvision keeps them in MNIST/raw).
    ``download=True`` first fetches those that are missing, 11 MB. Takes 220 MB of memory.

    Raises:
        FileNotFoundError: a file is missing, and ``download`` was not asked for.
        ValueError: a file is truncated or another one.
        ConnectionError: the download failed.
    """
    train_images, train_labels, test_images, test_labels = (
        _read_idx(_published(file, folder, download)) for file in MNIST
    )
    return ImageSplit(
        train_images.unsqueeze(1) / 255,
        train_labels.long(),
        test_images.unsqueeze(1) / 255,
        test_labels.long(),
    )


def cifar10(folder: str | Path, *, download: bool = False) -> ImageSplit:
    """50,000 colour photographs of 32 x 32 pixels to train on and 10,000 to test on, of 10 things.

    Reads ``cifar-10-binary.tar.gz`` from the folder: the binary version, because the Python version
    is a pickle, which may run any program. ``download=True`` first fetches it if it is missing,
    170 MB. Takes 740 MB of memory.

    Raises:
        FileNotFoundError: the file is missing, and ``download`` was not asked for.
        ValueError: the file is truncated or another one.
        ConnectionError: the download failed.
    """
    with tarfile.open(_published(CIFAR10, folder, download)) as archive:
        parts = [f"data_batch_{number}" for number in (1, 2, 3, 4, 5)]
        train_images, train_labels = _read_cifar(archive, parts)
        test_images, test_labels = _read_cifar(archive, ["test_batch"])
    return ImageSplit(train_images, train_labels, test_images, test_labels)


def _published(file: PublishedFile, folder: str | Path, download: bool) -> Path:
    return file.fetch(Path(folder)) if download else file.find(Path(folder))


def _read_idx(path: Path) -> Tensor:
    """The uint8 tensor of an IDX file: two zeros, its type and rank, its sizes, its bytes."""
    with gzip.open(path) as file:
        content = bytearray(file.read())
    sizes = np.frombuffer(content, ">i4", count=content[3], offset=4)
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + sizes.nbytes).view(*sizes)


def _read_cifar(archive: tarfile.TarFile, parts: list[str]) -> tuple[Tensor, Tensor]:
    """Images and labels of these files: a byte of label, then 1,024 of red, green and blue each."""
    content = bytearray()
    for part in parts:
        content += archive.extractfile(f"cifar-10-batches-bin/{part}.bin").read()
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32) / 255, records[:, 0].long()


def digits_mlp() -> dict[str, Tensor]:
    """One layer of a network that has learnt the digits, recorded late in a float32 run.

    Returns:
        "weights", "activations" and "gradients" (of the mean loss, by those activations):
        float32 tensors of 8,191 values each.
    """
    with np.load(DATA / "tensors" / "digits_mlp.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def autoencoder_gradients() -> list[tuple[dict[int, int], float]]:
    """The gradients of a float32 run at 60 moments, as counts; see data/emulated.

    Returns:
        for each moment {e: how many have 2**e <= abs(g) < 2**(e+1)}, and the largest abs(g).
    """
    path = DATA / "emulated" / "autoencoder_gradients.json"
    frames = json.loads(path.read_text(encoding="utf-8"))["frames"]
    return [(dict(f["exponents"]), f["largest"]) for f in frames]


def shakespeare() -> str:
    """*Julius Caesar*, *Macbeth* and *Othello* in a row: 371,255 characters, all ASCII."""
    return (DATA / "shakespeare.txt").read_text(encoding="ascii")


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
        unknown = sorted(set(text) - set(self.symbols))
        if unknown:
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
        wrong = [number for number in numbers if not 0 <= number < self.size]
        if wrong:
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
    _refuse_less_than_one(batch_size=batch_size)
    if len(images) < (batch_size if drop_last else 1):
        raise ValueError(
            f"{len(images)} images make no batch of {batch_size}"
            + ("; take smaller batches, or drop_last=False" if len(images) else "")
        )
    generator = torch.Generator().manual_seed(seed)
    order = RandomSampler(labels, generator=generator)
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
    _refuse_less_than_one(context=context, batch_size=batch_size, steps=steps)
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

    ``batch_size=None`` says that what the sampler names is a whole batch. Left to itself,
    DataLoader takes examples one by one and stacks them, which takes as long as a small network's
    step. The loader draws a number of its own each epoch: from the sampler's generator, so that
    the program's random numbers stay as they are.
    """
    whole: Sampler = BatchSampler(order, batch_size, drop_last)
    return DataLoader(dataset, sampler=whole, batch_size=None, generator=order.generator)


def _refuse_less_than_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} is {number}; it must be at least 1")
