"""What the runs of lab 05 share: batches for the course's GPT, and their losses in one figure."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from labkit.plots import Picture, new_axes
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split

# Runs that agree lie on each other: the later ones are thinner, and the earlier ones show.
_STYLES = (("-", 7), ("-", 4), ("--", 1.5))


def gpt_batches(steps: int, device: str = "cpu") -> list[tuple[Tensor, Tensor]]:
    """Batches of 8 pieces of 64 characters, and the same pieces one character later.

    Tokens are int64, 8 x 64; the same steps give the same batches.
    """
    loader = character_batches(
        shakespeare_split()[0], 64, 8, steps=steps, vocabulary=characters(shakespeare())
    )
    return [(tokens.to(device), following.to(device)) for tokens, following in loader]


def loss_curves(losses: Mapping[str, Sequence[float]], *, provenance: str) -> Picture:
    """The loss at each step, a line a run.

    Args:
        losses: the name of a run -> its losses, one a step; at most three runs.
        provenance: how the runs were made, for the caption.
    """
    figure, axes = new_axes(height=3.2)
    for (name, values), (style, width) in zip(losses.items(), _STYLES[: len(losses)], strict=True):
        axes.plot(range(1, len(values) + 1), values, style, lw=width, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)
    ends = "; ".join(f"{name} from {v[0]:.2f} to {v[-1]:.2f}" for name, v in losses.items())
    return Picture(figure, provenance, f"Loss at each step. {ends}.")
