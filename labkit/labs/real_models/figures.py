"""The figures of lab 13: pictures drawn by a network, runs at a high learning rate, a ring."""

from collections.abc import Mapping
from itertools import cycle

from matplotlib.figure import Figure
from torch import Tensor

from labkit.base.home import COLORS
from labkit.labs.real_models.attention import CrashRun
from labkit.labs.real_models.gan import BLOBS, blobs_found
from labkit.plots import BLUE, GREY, Picture, new_axes


def pictures_picture(pictures: Mapping[str, Tensor]) -> Picture:
    """Pictures side by side on one gray scale, below each the standard deviation of its pixels.

    Args:
        pictures: title -> height x width, from 0 (black) to 1 (white).
    """
    figure = Figure(figsize=(8, 8 / len(pictures) + 0.6), layout="constrained")
    panels = figure.subplots(1, len(pictures), squeeze=False)[0]
    words = []
    for axes, (title, pixels) in zip(panels, pictures.items(), strict=True):
        spread = f"standard deviation {round(pixels.double().std().item(), 4):.2g}"
        axes.imshow(pixels.float().numpy(), cmap="gray", vmin=0, vmax=1)
        axes.set(title=title, xlabel=spread, xticks=[], yticks=[])
        words.append(f"{title}: {spread}")
    return Picture(
        figure,
        "Emulated here, on one gray scale from 0 to 1. Where the standard deviation is 0, every "
        "pixel is the same.",
        f"The pictures that a network draws from positions. {'; '.join(words)}.",
    )


def crash_picture(runs: Mapping[str, CrashRun]) -> Picture:
    """Losses over steps, a line a recorded run; a cross where a run became NaN."""
    figure, axes = new_axes(height=3.4)
    words = []
    styles = zip(cycle(COLORS), cycle(("-", "-", "--", "--")))
    for (name, run), (color, style) in zip(runs.items(), styles, strict=False):
        axes.plot(run.losses, color=color, linestyle=style, label=name)
        if run.died is not None:
            axes.plot(run.died - 1, run.losses[-1], "x", color=color, markersize=11, mew=3)
            words.append(f"{name}: inf or NaN at step {run.died}")
        else:
            words.append(f"{name}: loss {run.final_loss:.2f} after {len(run.losses)} steps")
    axes.set(xlabel="step", ylabel="loss, nats a character")
    axes.legend(fontsize=8, frameon=False)
    return Picture(
        figure,
        "Recorded, FP16 emulated on a CPU. A cross is the last loss before NaN.",
        f"Losses of a small GPT at a high learning rate. {'; '.join(words)}.",
    )


def ring_picture(samples: Mapping[str, Tensor], data: Tensor) -> Picture:
    """A generator's samples over the data's eight blobs, a panel each.

    Args:
        samples: title -> N x 2.
        data: N x 2, gray in every panel.
    """
    figure = Figure(figsize=(8, 8 / len(samples) + 0.6), layout="constrained")
    panels = figure.subplots(1, len(samples), sharex=True, sharey=True, squeeze=False)[0]
    words = []
    for axes, (title, points) in zip(panels, samples.items(), strict=True):
        found = f"{blobs_found(points)} of {BLOBS} blobs"
        axes.scatter(*data.float().T, s=4, color=GREY, alpha=0.5)
        axes.scatter(*points.float().T, s=2, color=BLUE, alpha=0.5)
        axes.set(title=title, xlabel=found, aspect="equal", xticks=[], yticks=[])
        words.append(f"{title}: {found}")
    return Picture(
        figure,
        "Gray: the data. Blue: samples of the generator, trained with FP16 or BF16 emulated.",
        f"Samples of a GAN on a ring of eight blobs. {'; '.join(words)}.",
    )
