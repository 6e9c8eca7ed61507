"""The bytes of all tensors that are alive, counted op by op while a training step runs.

``LiveBytes`` counts; ``time_line`` draws what several steps held.
"""

import weakref
from collections.abc import Mapping

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.plots import Picture, new_axes


class LiveBytes(TorchDispatchMode):
    """Inside ``with LiveBytes(model) as live:`` each op that torch runs is one entry of a history.

    ``history`` holds the bytes alive after each op: the storages of the model's parameters and of
    every tensor that an op took or made, until Python and autograd let go of them. ``marks`` maps a
    name to (number of ops so far, bytes alive then). Memory that a kernel takes and gives back
    inside one op is not seen.

    >>> model = nn.Linear(4, 4, bias=False)
    >>> with LiveBytes(model) as live:
    ...     half = model.weight.half()
    >>> live.history
    [96]
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.bytes = 0
        self.history: list[int] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self._held: dict[int, weakref.ref] = {}
        for parameter in model.parameters():
            self._hold(parameter)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, out)):
            if isinstance(leaf, Tensor):
                self._hold(leaf)
        self.history.append(self.bytes)
        return out

    def restart(self) -> None:
        """Begin the history again; what is alive stays counted."""
        self.history.clear()
        self.marks.clear()

    def mark(self, name: str) -> None:
        """Note the bytes alive now under a name."""
        self.marks[name] = len(self.history), self.bytes

    def _hold(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._held and self._held[key]() is storage:
            return
        self._held[key] = weakref.ref(storage)
        self.bytes += size
        weakref.finalize(storage, self._drop, key, size).atexit = False

    def _drop(self, key: int, size: int) -> None:
        self.bytes -= size
        del self._held[key]


def time_line(steps: Mapping[str, LiveBytes], parameters: int) -> Picture:
    """Bytes alive for each parameter over the ops of one step, a line each, with its marks.

    Args:
        steps: what each line is called -> its step.
        parameters: how many the model has.
    """
    figure, axes = new_axes(height=3.4)
    said = []
    for number, (name, step) in enumerate(steps.items()):
        each = [size / parameters for size in step.history]
        (line,) = axes.plot(each, label=name, linestyle=("-", "--", ":")[number % 3], linewidth=1.8)
        places = [(max(ops - 1, 0), size / parameters) for ops, size in step.marks.values()]
        axes.plot(*zip(*places, strict=True), "o", color=line.get_color(), markersize=5)
        marks = ", ".join(
            f"{mark} {size:.1f}" for mark, (_, size) in zip(step.marks, places, strict=True)
        )
        said.append(f"{name}: {marks}; at most {max(each):.1f}.")
    axes.set(xlabel="ops of one training step", ylabel="bytes alive per parameter")
    axes.set(ylim=(0, None), yticks=range(0, int(axes.get_ylim()[1]) + 1, 2))
    axes.legend(loc="lower right", frameon=False)
    dots = ", ".join(next(iter(steps.values())).marks)
    caption = f"Measured here: bytes alive after each op. The dots of a line are, in order: {dots}."
    return Picture(figure, caption, " ".join(said))
