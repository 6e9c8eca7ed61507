"""The figures of lab 12: two errors of each matrix at few bits."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import nn

from labkit.labs.choosing_precision.sensitivity import round_weight
from labkit.plots import BLUE, GREY, Picture


def sensitivity_picture(
    model: nn.Module, cost: Mapping[str, Mapping[int, float]], *, bits: int
) -> Picture:
    """For each matrix the error of its weights and the KL that it costs, one panel above the other.

    Args:
        model: float32, has all matrices of ``cost``.
        cost: of each matrix, the KL in nats by its number of bits.
        bits: of the matrices in the picture.
    """
    errors, kls = [], []
    for name in cost:
        weight = model.get_submodule(name).weight.detach()
        errors.append(((round_weight(weight, bits) - weight).norm() / weight.norm()).item())
        kls.append(cost[name][bits])
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    places = range(len(cost))
    above.bar(places, [100 * error for error in errors], color=GREY)
    above.set(ylabel="rounding error,\n% of the weights")
    below.bar(places, kls, color=BLUE)
    below.set(ylabel="KL, nats")
    names = [name.removeprefix("blocks.").replace(".", "\n", 1).replace("_", "\n") for name in cost]
    below.set_xticks(list(places), names, fontsize=8)
    words = "; ".join(
        f"{name}: error {error:.1%}, KL {kl:.2g}"
        for name, error, kl in zip(cost, errors, kls, strict=True)
    )
    return Picture(
        figure,
        f"Computed at {bits} bits, one matrix at a time. The bars above are nearly equal, those "
        "below are not.",
        f"Two errors of each matrix at {bits} bits. {words}.",
    )
