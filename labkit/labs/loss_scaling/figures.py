"""The figures of lab 04: a backward pass from layer to layer, and weights kept in five ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor, nn

from labkit.emulation import emulate_gpu
from labkit.labs.loss_scaling.recorded import WeightRuns
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes


@dataclass(frozen=True, kw_only=True)
class LayerGradients:
    """Two gradients of one layer: of its output (N, out) and of its weight (out, in)."""

    output: Tensor
    weight: Tensor


def layer_gradients(
    model: nn.Module,
    images: Tensor,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    *,
    autocast: bool,
) -> list[LayerGradients]:
    """One backward pass through the linear layers, the last layer first.

    The gradients are as the pass computed them: with ``autocast`` those of outputs are FP16.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    outputs: dict[nn.Module, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda layer, _, output: outputs.__setitem__(layer, output))
        for layer in layers
    ]
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
        loss = loss_fn(model(images), images)
    for hook in hooks:
        hook.remove()
    wanted = [tensor for layer in reversed(layers) for tensor in (outputs[layer], layer.weight)]
    found = torch.autograd.grad(loss, wanted)
    return [
        LayerGradients(output=output, weight=weight)
        for output, weight in zip(found[::2], found[1::2], strict=True)
    ]


def backward_picture(fp32: Sequence[LayerGradients], fp16: Sequence[LayerGradients]) -> Picture:
    """What FP16 makes 0 in each layer, and how large the gradient is in float32."""
    names, true, computed = [], [], []
    for place, (full, half) in enumerate(zip(fp32, fp16, strict=True)):
        number = len(fp32) - place
        names += [f"output {number}", f"weight {number}"]
        true += [full.output, full.weight]
        computed += [half.output, half.weight]
    figure, axes = new_axes(height=5)
    axes.remove()
    sizes, shares = figure.subplots(2, 1, sharex=True)
    for place, gradient in enumerate(true):
        magnitudes = gradient.abs()[gradient != 0].log2()
        low, middle, high = magnitudes.quantile(torch.tensor([0.05, 0.5, 1.0])).tolist()
        sizes.plot([place, place], [low, high], color=BLUE, linewidth=9, solid_capstyle="butt")
        sizes.plot(place, middle, "o", color="white", markersize=4)
    sizes.axhline(-25, color=ORANGE, linestyle="--", label="below this line FP16 stores 0")
    sizes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    sizes.set_ylabel("float32 gradient\nlog2 of its magnitude")
    alone = [_zeros(gradient.half()) for gradient in true]
    here = [_zeros(gradient) for gradient in computed]
    places = range(len(names))
    shares.bar([p - 0.2 for p in places], alone, 0.4, color=GREY, label="float32 value, cast")
    shares.bar([p + 0.2 for p in places], here, 0.4, color=ORANGE, label="FP16 backward pass")
    shares.set(ylabel="% that are 0", xticks=list(places), xticklabels=names, ylim=(0, 118))
    shares.set_xlabel("from the loss back to the input; a layer's number counts from the input")
    shares.legend(loc="upper center", ncols=2, frameon=False)
    words = "; ".join(
        f"{name}: largest 2^{gradient.abs().max().log2():.1f}, {a:.0f} % are 0 after a cast, "
        f"{b:.0f} % in the FP16 pass"
        for name, gradient, a, b in zip(names, true, alone, here, strict=True)
    )
    return Picture(
        figure,
        "Computed here in float32, and emulated in FP16: the gradients of each layer's output and "
        "weight. Bars reach from the 5 % quantile to the largest, the point is the median.",
        words,
    )


def _zeros(gradient: Tensor) -> float:
    return 100 * (gradient == 0).double().mean().item()


def weights_picture(
    runs: Mapping[str, WeightRuns], *, live: Sequence[float], caption: str
) -> Picture:
    """The losses of five ways to keep weights, means over seeds, and a run of this notebook.

    Args:
        live: the losses of steps 0, 1, 2, ... of the notebook's own run.
        caption: what the notebook's own run is.
    """
    figure, axes = new_axes(height=3.4)
    styles = ("-", 7), (":", 2), ("-", 4), ("-", 2), ("--", 1)  # four lines lie on one another
    for (name, run), (style, width) in zip(runs.items(), styles, strict=True):
        line = [mean(losses) for losses in zip(*run.losses, strict=True)]
        label = f"{name}: accuracy {100 * mean(run.accuracy):.0f} %"
        axes.plot(run.steps, line, linestyle=style, linewidth=width, label=label)
    axes.plot(range(len(live)), live, color="black", linewidth=3, label=caption)
    axes.set(xlabel="step", ylabel="loss on 1,438 digits")
    axes.legend(fontsize=8, frameon=False)
    words = "; ".join(
        f"{name}: loss {mean(each[0] for each in run.losses):.2f} at first, "
        f"{mean(each[-1] for each in run.losses):.2f} after {run.steps[-1]} steps, "
        f"accuracy {100 * mean(run.accuracy):.0f} %"
        for name, run in runs.items()
    )
    return Picture(figure, f"Emulated, recorded with five seeds; black: {caption}.", words)
