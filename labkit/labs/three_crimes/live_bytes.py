"""The bytes of all tensors that are alive, counted op by op while a training step runs.

``LiveBytes`` counts; ``time_line`` draws what several steps held.
"""

from collections.abc import Mapping

from torch import nn

from labkit.measuring.card import Card
from labkit.plots import Picture, new_axes


class LiveBytes(Card):
    """Inside ``with LiveBytes(model) as live:`` each op that torch runs is one entry of a history.

    ``history`` holds the bytes alive after each op: a ``Card`` on which the model stands. ``marks``
    maps a name to (number of ops so far, bytes alive then).

    >>> model = nn.Linear(4, 4, bias=False)
    >>> with LiveBytes(model) as live:
    ...     half = model.weight.half()
    >>> live.history
    [96]
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.history: list[int] = []
        self.marks: dict[str, tuple[int, int]] = {}
        self.hold(model)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self.history.append(self.now)
        return out

    def restart(self) -> None:
        """Begin the history again; what is alive stays counted."""
        self.history.clear()
        self.marks.clear()

    def mark(self, name: str) -> None:
        """Note the bytes alive now under a name."""
        self.marks[name] = len(self.history), self.now


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
