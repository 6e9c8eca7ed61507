"""The figures of lab 09: GPTQ's two errors, channels with outliers, and fine-tuning runs."""

from collections.abc import Mapping
from statistics import mean

from torch import Tensor

from labkit.labs.quantization.recorded import FineTuning
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes


def gptq_picture(
    layers: Mapping[str, tuple[Tensor, Tensor, Tensor]], inputs: Mapping[str, Tensor]
) -> Picture:
    """The errors of weights and outputs under GPTQ, as multiples of nearest's.

    Args:
        layers: by name, the weight (out, in) in float32, rounded to nearest, and by GPTQ.
        inputs: by name, what the layer reads (N, in).
    """
    weights, outputs = [], []
    for name, (w, near, moved) in layers.items():
        x = inputs[name]
        weights.append(((moved - w).norm() / (near - w).norm()).item())
        outputs.append((((moved - w) @ x.T).norm() / ((near - w) @ x.T).norm()).item())
    figure, axes = new_axes(height=3.2)
    places = range(len(layers))
    axes.bar([p - 0.2 for p in places], weights, 0.4, color=GREY, label="error of the weights")
    axes.bar([p + 0.2 for p in places], outputs, 0.4, color=BLUE, label="error of the outputs")
    axes.axhline(1, color=ORANGE, linestyle="--", label="rounding to nearest")
    names = [name.removeprefix("blocks.").replace(".", "\n") for name in layers]
    axes.set_xticks(list(places), names, fontsize=8)
    axes.set(ylabel="GPTQ's error / nearest's", ylim=(0, 2.1))
    axes.legend(loc="upper center", ncols=3, fontsize=8, frameon=False)
    words = "; ".join(
        f"{name}: weights {w:.2f}, outputs {o:.2f}"
        for name, w, o in zip(layers, weights, outputs, strict=True)
    )
    return Picture(
        figure,
        "Computed: in each layer GPTQ has the larger error of the weights and the smaller one of "
        "the outputs.",
        f"GPTQ's error as a multiple of nearest's at 4 bits. {words}.",
    )


def channels_picture(networks: Mapping[str, Tensor]) -> Picture:
    """The largest magnitude of each channel that a layer reads, a line a network."""
    figure, axes = new_axes(height=3)
    styles = (GREY, "-", 4), (ORANGE, "-", 1.5), (BLUE, "--", 1.5)
    words = []
    for (name, largest), (color, style, width) in zip(networks.items(), styles, strict=True):
        axes.plot(largest.tolist(), color=color, linestyle=style, linewidth=width, label=name)
        ratio = (largest.max() / largest.median()).item()
        words.append(f"{name}: the largest channel is {ratio:.1f} times the median one")
    axes.set(yscale="log", xlabel="channel", ylabel="largest magnitude")
    axes.legend(loc="upper center", bbox_to_anchor=(0.36, 1), fontsize=8, frameon=False)
    return Picture(
        figure,
        "Computed: the inputs of the first layer, on 8,192 characters.",
        f"Largest magnitude of each channel. {'; '.join(words)}.",
    )


def fine_tuning_picture(
    runs: Mapping[str, FineTuning], *, live: Mapping[int, float], caption: str
) -> Picture:
    """Bits a character on text in capitals over the steps of fine-tuning, means over seeds.

    Args:
        live: bits a character of the notebook's own run, by step.
        caption: what the notebook's own run is.
    """
    figure, axes = new_axes(height=3.4)
    words = []
    for name, run in runs.items():
        line = [mean(seeds) for seeds in zip(*run.bits, strict=True)]
        axes.plot(run.steps, line, marker="o", markersize=3, label=name)
        words.append(f"{name}: {line[0]:.2f} at first, {line[-1]:.2f} after {run.steps[-1]} steps")
    axes.plot(list(live), list(live.values()), color="black", linewidth=3, label=caption)
    axes.set(xlabel="step", ylabel="bits a character", ylim=(2, 4.5))
    axes.legend(fontsize=8, frameon=False)
    seeds = len(next(iter(runs.values())).bits)
    return Picture(
        figure,
        f"Recorded on a CPU with {seeds} seeds; black: {caption}, computed here.",
        f"Bits a character on text in capitals. {'; '.join(words)}.",
    )
