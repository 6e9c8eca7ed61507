"""The figure of lab 01: what several steps held, op by op."""

from collections.abc import Mapping

from labkit.measuring.live_bytes import LiveBytes
from labkit.plots import Picture, new_axes


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
