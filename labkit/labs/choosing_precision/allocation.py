"""Bits for each layer: as little memory as a search finds while the summed cost stays in a budget.

Costs are those of ``sensitivity.kl_by_bits``: the KL of one layer rounded alone. They are added as
if layers did not disturb one another, so the choice is to be measured as a whole afterwards, with
``sensitivity.joint_kl``.
"""

from collections.abc import Mapping
from math import isnan

Costs = Mapping[str, Mapping[int, float]]
"""Cost by layer and bits."""


def memory(bits: Mapping[str, int], size: Mapping[str, int]) -> int:
    """Bits that the weights take; their scales are not counted.

    >>> memory({"embed": 4, "head": 8}, {"embed": 1000, "head": 100})
    4800
    """
    return sum(size[name] * b for name, b in bits.items())


def total(bits: Mapping[str, int], cost: Costs) -> float:
    """The costs of a choice, added."""
    return sum(cost[name][b] for name, b in bits.items())


def uniform(cost: Costs, budget: float) -> dict[str, int] | None:
    """The fewest bits that all layers can have alike within the budget; None where none fit."""
    shared = set.intersection(*(set(widths) for widths in cost.values()))
    for b in sorted(shared):
        if total(alike := dict.fromkeys(cost, b), cost) <= budget:
            return alike
    return None


def optimum(cost: Costs, size: Mapping[str, int], budget: float) -> dict[str, int]:
    """Bits for each layer with the least memory of all choices within the budget.

    Layer by layer it keeps the choices that no other one beats in memory and in cost (dynamic
    programming). Of equal memory it takes the least cost.

    Args:
        cost: of each layer in each width that it may have.
        size: weights of each layer.
        budget: for the sum of the costs.

    Raises:
        ValueError: no layer; costs and sizes of other layers; a NaN cost; a budget that no choice
            meets.
    """
    _check(cost, size, budget)
    front: list[tuple[int, float, dict[str, int]]] = [(0, 0.0, {})]
    for name, widths in cost.items():
        longer = sorted(
            (
                (used + size[name] * b, total({**bits, name: b}, cost), {**bits, name: b})
                for used, _, bits in front
                for b in widths
            ),
            key=lambda choice: choice[:2],
        )
        front = []
        for choice in longer:
            if choice[1] <= budget and (not front or choice[1] < front[-1][1]):
                front.append(choice)
    return front[0][2]


def _check(cost: Costs, size: Mapping[str, int], budget: float) -> None:
    if not cost or not all(cost.values()):
        raise ValueError(f"cost={cost!r}: pass at least one layer, each with one width or more")
    if set(cost) != set(size):
        raise ValueError(f"costs of {sorted(cost)} but sizes of {sorted(size)}: name the same")
    if unknown := [name for name, widths in cost.items() if any(map(isnan, widths.values()))]:
        raise ValueError(f"the cost of {', '.join(unknown)} is NaN: leave that width out")
    least = sum(min(widths.values()) for widths in cost.values())
    if not least <= budget:
        raise ValueError(f"budget={budget!r}: the least cost of any choice is {least:.3g}")
