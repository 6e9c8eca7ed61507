"""The figures of lab 14: losses in Keras, and the table of dtypes."""

from collections.abc import Mapping, Sequence

from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes

_FILLS = {"float16": BLUE, "float32": ORANGE}


def epochs_picture(curves: Mapping[str, Sequence[float]]) -> Picture:
    """The loss of each epoch, a line a run."""
    figure, axes = new_axes(height=3.2)
    words = []
    for name, losses in curves.items():
        color = ORANGE if "softmax" in name else BLUE
        style = {"linewidth": 7, "alpha": 0.3} if "float32" in name else {"linestyle": "--"}
        epochs = range(1, len(losses) + 1)
        axes.plot(epochs, losses, color=color, label=name, **style)
        words.append(f"{name}: {losses[-1]:.2f} after epoch {len(losses)}")
    axes.set(xlabel="epoch", ylabel="loss, nats", xticks=list(epochs))
    axes.legend(fontsize=8, frameon=False)
    return Picture(
        figure,
        "Keras on torch, on a CPU. The dashed lines, FP16, lie on the wide ones, FP32.",
        f"Training losses of four runs. {'; '.join(words)}.",
    )


def dtype_picture(columns: Mapping[str, Mapping[str, str]]) -> Picture:
    """The table of dtypes: a row a role, a column a framework, a colour a dtype."""
    roles = list(next(iter(columns.values())))
    figure, axes = new_axes(height=0.42 * (len(roles) + 1))
    cells = [[column[role] for column in columns.values()] for role in roles]
    table = axes.table(
        cellText=cells,
        cellColours=[[_pale(cell) for cell in row] for row in cells],
        rowLabels=roles,
        colLabels=list(columns),
        loc="center",
        cellLoc="center",
        bbox=(0.25, 0, 0.75, 1),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    axes.axis("off")
    words = "; ".join(
        f"{role}: " + ", ".join(f"{name} {column[role]}" for name, column in columns.items())
        for role in roles
    )
    return Picture(
        figure,
        "Blue is float16, orange float32. The matmul rows show the hidden layer. PyTorch follows "
        "CUDA's rules, emulated. The loss scale in JAX is your choice.",
        f"The dtypes of a training step. {words}.",
    )


def _pale(cell: str) -> tuple[float, float, float]:
    color = _FILLS.get(cell, GREY)
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(0.75 + 0.25 * channel for channel in channels)
