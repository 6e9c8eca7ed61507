"""The losses of several runs in one figure."""

from collections.abc import Mapping, Sequence

from labkit.plots import Picture, new_axes

_STYLES = ("-", "--", ":", "-.")


def loss_curves(losses: Mapping[str, Sequence[float]], *, provenance: str) -> Picture:
    """The loss at each step, a line a run.

    Args:
        losses: the name of a run -> its losses, one a step.
        provenance: how the runs were made, for the caption.
    """
    figure, axes = new_axes(height=3.2)
    for (name, values), style in zip(losses.items(), _STYLES, strict=False):
        axes.plot(range(1, len(values) + 1), values, style, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    ends = "; ".join(f"{name} from {v[0]:.2f} to {v[-1]:.2f}" for name, v in losses.items())
    return Picture(figure, provenance, f"Loss at each step. {ends}.")
