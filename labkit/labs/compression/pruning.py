"""Pruning: masks by magnitude that outlast the optimizer, the 2:4 pattern, and narrower layers."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from labkit.training.models import mlp


def linears(model: nn.Module) -> list[nn.Linear]:
    """The linear layers of a model, in its order."""
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def smallest(x: Tensor, share: float) -> Tensor:
    """True at the ``round(share * x.numel())`` values of the smallest magnitude, in x's shape.

    Magnitudes are compared in float32: a narrower format would make ties of different ones.
    """
    sizes = x.detach().float().abs().flatten()
    places = sizes.topk(round(share * sizes.numel()), largest=False).indices
    return torch.zeros_like(sizes, dtype=torch.bool).index_fill(0, places, True).view_as(x)


def two_of_four(weight: Tensor) -> Tensor:
    """True at the two smallest magnitudes of each group of four neighbours of a row.

    Raises:
        ValueError: the weight is no matrix whose rows are a multiple of four.
    """
    if weight.ndim != 2 or weight.shape[1] % 4:
        raise ValueError(
            f"a weight of shape {tuple(weight.shape)} has no groups of 4 along its inputs; pad it"
        )
    small = weight.detach().float().abs().view(-1, 4).topk(2, largest=False).indices
    mask = torch.zeros(weight.numel() // 4, 4, dtype=torch.bool, device=weight.device)
    return mask.scatter(1, small, True).view_as(weight)


def hold_zeros(
    weights: list[nn.Parameter], dropped: list[Tensor], optimizer: Optimizer
) -> RemovableHandle:
    """Set weights to 0 where their mask is True, now and after each step of the optimizer.

    A step that a GradScaler skips never reaches the optimizer, and changes no weight either.
    Where parameters are 16-bit copies, give the optimizer's own float32 masters.
    """

    @torch.no_grad()
    def to_zero(*_: object) -> None:
        for weight, mask in zip(weights, dropped, strict=True):
            weight.masked_fill_(mask, 0)

    to_zero()
    return optimizer.register_step_post_hook(to_zero)


def hold_masks(
    model: nn.Module, optimizer: Optimizer, share: float, *, each_layer: bool = False
) -> RemovableHandle:
    """Prune the smallest share of the weights of all linear layers, and hold the zeros.

    The magnitudes of all layers are compared together; with ``each_layer`` every layer loses the
    same share. Biases stay. Without the handle's ``remove()`` the zeros stay as long as the
    optimizer lives.

    >>> model = mlp(4, 5, 2)
    >>> adam = torch.optim.Adam(model.parameters())
    >>> handle = hold_masks(model, adam, share=0.5)
    >>> sum((layer.weight == 0).sum().item() for layer in linears(model))
    15
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share} of the weights: name a number from 0 to 1")
    weights = [layer.weight for layer in linears(model)]
    if each_layer:
        dropped = [smallest(w, share) for w in weights]
    else:
        of_all = smallest(torch.cat([w.detach().flatten() for w in weights]), share)
        parts = of_all.split([w.numel() for w in weights])
        dropped = [part.view_as(w) for part, w in zip(parts, weights, strict=True)]
    return hold_zeros(weights, dropped, optimizer)


@torch.no_grad()
def narrow(model: nn.Sequential, keep: int) -> nn.Sequential:
    """A narrower copy of an ``mlp``: of each hidden layer the ``keep`` units of the largest norm.

    A unit is a row of its layer's weight and its bias, and a column of the next weight. The copy
    is dense, so it takes fewer bytes and less time on any hardware.

    Raises:
        ValueError: a hidden layer has fewer than ``keep`` units.
    """
    old = linears(model)
    hidden = [layer.out_features for layer in old[:-1]]
    if not 1 <= keep <= min(hidden):
        raise ValueError(f"keep {keep} units of hidden layers of {hidden}: name at most the fewest")
    new = mlp(old[0].in_features, *[keep] * len(hidden), old[-1].out_features)
    read = torch.arange(old[0].in_features)
    for layer, copy in zip(old, linears(new), strict=True):
        units = torch.arange(layer.out_features)
        if layer is not old[-1]:
            units = layer.weight.norm(dim=1).topk(keep).indices.sort().values
        copy.weight.copy_(layer.weight[units][:, read])
        copy.bias.copy_(layer.bias[units])
        read = units
    return new
