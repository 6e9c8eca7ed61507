"""``DataOrder``: a loader's place in its epochs, which a checkpoint can hold."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

Batch = tuple[Tensor, Tensor]


class LoaderFailed(Exception):
    """The loader raised; its own error is the cause."""


class DataOrder:
    """Gives what is left of an epoch, and goes on after ``load_state_dict`` where the other was.

    The order of an epoch follows from the state of the loader's generator at its beginning. So a
    checkpoint holds that state and how many batches are done, and batches that are done are read
    again and dropped.

    Attributes:
        epoch: 0 for the first.
        done: batches that are done, of all epochs.

    Raises:
        ValueError: a DataLoader without a generator, whose order nobody could bring back, or
            something that is read once.
    """

    def __init__(self, loader: Iterable[Batch]) -> None:
        if isinstance(loader, Iterator):
            raise ValueError("the loader can be read once: pass a list of batches or a DataLoader")
        self._generator = getattr(loader, "generator", None)
        if isinstance(loader, DataLoader) and self._generator is None:
            raise ValueError(
                "the loader draws its order from torch's global generator, so a resumed run would "
                "see other batches: pass generator=torch.Generator() to the DataLoader"
            )
        self.loader = loader
        self.epoch = self.done = self._done_here = 0
        self._begin_epoch()

    def __iter__(self) -> Iterator[Batch]:
        """The batches of this epoch that are not done.

        Raises:
            LoaderFailed: the loader raised.
        """
        if self._generator is not None:
            self._generator.set_state(self._beginning)
        try:
            yield from islice(self.loader, self._done_here, None)
        except Exception as error:
            raise LoaderFailed(f"{type(error).__name__}: {error}") from error

    def advance(self) -> None:
        """One more batch is done."""
        self.done += 1
        self._done_here += 1

    def next_epoch(self) -> None:
        """Begin the next epoch; the loader has been read to the end of this one."""
        self.epoch += 1
        self._done_here = 0
        self._begin_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The place, and the generator as it was at the beginning of the epoch."""
        return {
            "epoch": self.epoch,
            "done": self.done,
            "done_here": self._done_here,
            "beginning": None if self._generator is None else self._beginning.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self.done = state["epoch"], state["done"]
        self._done_here, self._beginning = state["done_here"], state["beginning"]

    def _begin_epoch(self) -> None:
        if self._generator is not None:
            self._beginning = self._generator.get_state()
