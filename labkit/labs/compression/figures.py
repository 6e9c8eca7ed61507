"""The figures of lab 10: accuracy after pruning, bytes by layout, and the weigh-in."""

from statistics import fmean

import numpy as np

from labkit.labs.compression.recorded import pruned, weighed_entries
from labkit.labs.compression.storage import break_even, layout_bytes
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes


def pruning_picture() -> Picture:
    """Mean accuracy by the share of zeros, before and after fine-tuning, two ways to choose."""
    figure, axes = new_axes(height=3.2)
    words = []
    for how, label, color in (
        ("together", "all layers together", BLUE),
        ("each layer", "the same share of each layer", ORANGE),
    ):
        runs = pruned(how)
        shares = [f"{share:.0%}" for share in runs]
        before, after = (
            [fmean(seed[i] for seed in seeds) for seeds in runs.values()] for i in (0, 1)
        )
        axes.plot(shares, before, color=color, linestyle=":", marker="o", label=f"{label}, pruned")
        axes.plot(shares, after, color=color, marker="o", label=f"{label}, 3 epochs later")
        words.append(
            f"{label}: "
            + "; ".join(
                f"{share} zeros: {b:.1%}, 3 epochs later {a:.1%}"
                for share, b, a in zip(shares, before, after, strict=True)
            )
        )
    axes.set(xlabel="share of zeros", ylabel="accuracy", ylim=(0, 1.02))
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    seeds = len(next(iter(runs.values())))
    return Picture(
        figure,
        f"Recorded on a CPU, means of {seeds} seeds. Dotted: right after pruning.",
        f"Accuracy of the pruned reader. {'. '.join(words)}.",
    )


def layout_picture(shape: tuple[int, int] = (256, 256)) -> Picture:
    """Bytes a weight by density, for INT8 values in five layouts."""
    densities = np.geomspace(0.01, 1, 60)
    sizes = [layout_bytes(density, shape, value_bytes=1) for density in densities]
    count = shape[0] * shape[1]
    figure, axes = new_axes(height=3.2)
    styles = {
        "dense": ("dense", GREY, "-"),
        "csr64": ("CSR, 8-byte column numbers", ORANGE, "-"),
        "csr16": ("CSR, 2-byte column numbers", ORANGE, "--"),
        "bitmask": ("bitmask", BLUE, "-"),
    }
    for layout, (label, color, line) in styles.items():
        bytes_each = [size[layout] / count for size in sizes]
        axes.plot(densities, bytes_each, color=color, linestyle=line, label=label)
    axes.axhline(1 / 8, color=BLUE, linestyle=":", linewidth=1)
    axes.text(1, 0.118, "one bit for each weight", fontsize=8, color=BLUE, ha="right", va="top")
    axes.set(xscale="log", yscale="log", xlabel="density", ylabel="bytes a weight")
    axes.set_xticks([0.01, 0.03, 0.1, 0.3, 1], ["1 %", "3 %", "10 %", "30 %", "100 %"])
    axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    axes.legend(fontsize=8, frameon=False)
    below = {name: break_even(name, "dense", value_bytes=1) for name in ("csr64", "bitmask")}
    return Picture(
        figure,
        f"Computed for INT8 values of a {shape[0]} x {shape[1]} weight; both axes are logarithmic. "
        "Row starts are drawn, scales are not.",
        "Bytes a weight by density. The dense tensor takes 1. Row starts and scales not counted, "
        f"CSR with 8-byte column numbers takes less below a density of {below['csr64']}, the "
        f"bitmask below {below['bitmask']}. The bitmask never takes less than 1/8. CSR with 2-byte "
        "column numbers takes less than the bitmask below "
        f"{break_even('csr16', 'bitmask', value_bytes=1)}.",
    )


def weigh_in_picture() -> Picture:
    """Accuracy by bytes of the recorded entries, a line for each width, with ranges over seeds."""
    figure, axes = new_axes(height=3.8)
    rows = [
        e for e in weighed_entries().values() if e.accuracy > _LOWEST and e.name not in _TO_FIND
    ]
    for size, units, color, marker in (
        ("large", 256, GREY, "s"),
        ("medium", 128, BLUE, "o"),
        ("small", 64, ORANGE, "^"),
        ("tiny", 32, "black", "v"),
    ):
        of_size = [e for e in rows if e.name.startswith(size) and "rank" not in e.name]
        axes.plot(
            [e.bytes for e in of_size],
            [e.accuracy for e in of_size],
            color=color,
            marker=marker,
            label=f"{size}: {units} units",
        )
    ranked = [e for e in rows if "rank" in e.name]
    axes.plot(
        [e.bytes for e in ranked],
        [e.accuracy for e in ranked],
        "D",
        color="black",
        fillstyle="none",
        label="large, rank 8",
    )
    for entry in rows:
        ends = min(entry.accuracies), max(entry.accuracies)
        axes.plot([entry.bytes] * 2, ends, color=GREY, linewidth=0.6, zorder=0)
    axes.set(xscale="log", xlabel="bytes of the file", ylabel="accuracy")
    axes.set_xticks([3e3, 1e4, 3e4, 1e5, 3e5], ["3 kB", "10 kB", "30 kB", "100 kB", "300 kB"])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    words = "; ".join(f"{e.name}: {e.bytes:,.0f} bytes, {e.accuracy:.1%}" for e in rows)
    return Picture(
        figure,
        f"Recorded on a CPU: means of {len(rows[0].accuracies)} seeds, their ranges as thin lines. "
        "Each line is one width: from its largest file on the right to INT8 and pruned weights.",
        f"Accuracy by bytes of the file. {words}.",
    )


_LOWEST = 0.9
"""Entries below it, of a network pruned to pieces, would flatten the picture."""

_TO_FIND = {"small, 70 % pruned, INT8", "small, rank 8, 50 % pruned, INT8"}
"""Answers to the exercise below the figure."""
