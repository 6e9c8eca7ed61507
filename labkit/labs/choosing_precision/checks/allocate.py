"""Check of lab 12: bits for each layer, judged by the best choice there is."""

import copy
import random
import statistics

from labkit.labs.choosing_precision.allocation import memory, optimum, total
from labkit.labs.engine import Mistake, attempt, check, entries, number
from labkit.labs.engine.messages import fill

LAB = "12_choosing_precision"

CHANGED = (
    "{name}: after your allocate, the caller's `{what}` is not what it was. Which line writes into "
    "it?"
)
OFF_THE_MENU = "{name}: `{layer}` has {got} bits; one of {menu} is asked for."
OVER = "{name}: the costs of your bits add up to {got}, and the budget is {budget}. {why}"
ONE_BACK = "With `{layer}` at {wider:d} bits instead of {bits:d} they would be within it."
ABOVE_UNIFORM = (
    "{name}: your bits take {got:d} bits of memory. All layers at {bits:d} bits take {want:d}, and "
    "cost {cost} of the budget of {budget}. {why}"
)
NOT_SMALL = (
    "{name}: your bits take {got:d} bits of memory, {times:.2f} times the {want:d} that are "
    "possible. At most 1.6 times is asked for. {why}"
)
MEAN = (
    "In the mean of {count:d} cases your memory is {mean:.3f} times the smallest possible, and at "
    "most 1.03 is asked for. {name}: you take {got:d} bits, and {want:d} are possible. {why}"
)
NOT_DONE = (
    "`{layer}` could still go from {bits:d} to {fewer:d} bits: this adds {added}, and {left} of "
    "the budget is left."
)
TRADE = (
    "The smallest choice has `{down}` at {best_down:d} bits, where you have {down_bits:d}, and "
    "`{up}` at {best_up:d}, where you have {up_bits:d}. `{down}` has {down_size:d} weights, "
    "`{up}` {up_size:d}."
)

# Costs are multiples of 2**-40 below 2: sums in any order are exact.
_UNIT = 2.0**-40
_MENU = 2, 3, 4, 6, 8
_WORST, _MEAN = 1.6, 1.03
_EXAMPLE = (
    {"large": {2: 0.5, 4: 0.02, 8: 0.0}, "small": {2: 0.3, 4: 0.01, 8: 0.0}},
    {"large": 1000, "small": 10},
    0.02,
)


def _drawn(draw, *, sizes, menu=_MENU, tie=False):
    """Costs that grow about fourfold with each bit less, sizes, and a budget."""
    cost, size = {}, {}
    for layer, low_high in sizes.items():
        size[layer] = draw.randint(*low_high)
        level = 10 ** draw.uniform(-2.5, -0.5)
        falls = draw.uniform(1.0, 2.2)
        kl = {bits: level * 2.0 ** (-falls * (bits - 2)) * draw.uniform(0.8, 1.25) for bits in menu}
        if tie:
            kl[menu[1]] = kl[menu[0]]
            kl[menu[-1]] = kl[menu[-2]] = 0.0
        kl = {bits: round(value / _UNIT) * _UNIT for bits, value in kl.items()}
        cost[layer] = {b: max(kl[c] for c in menu if c >= b) for b in menu}
    widest = sum(kl[menu[-1]] for kl in cost.values())
    middle = sum(kl[menu[len(menu) // 2]] for kl in cost.values())
    share = draw.uniform(0.3, 3.0)
    return cost, size, max(widest, round(share * middle / _UNIT) * _UNIT)


_NATURAL = {"qkv": (40, 60), "out": (12, 20), "up": (50, 80), "down": (50, 80), "head": (60, 90)}
_ONE_LARGE = {"embed": (1500, 2500)} | _NATURAL
_COARSE = {"embed": (300, 500)} | _NATURAL
_ALIKE = {f"layer {i}": (64, 64) for i in range(6)}


def _instances(seed):
    """The arguments of each call, by what is special about it."""
    draw = random.Random(seed)
    made = {"the example": copy.deepcopy(_EXAMPLE)}  # an answer may take widths out of it
    for i in range(8):
        made |= {
            f"layers of unlike sizes {i}": _drawn(draw, sizes=_NATURAL),
            f"one layer with most of the weights {i}": _drawn(draw, sizes=_ONE_LARGE),
            f"layers of one size {i}": _drawn(draw, sizes=_ALIKE),
            f"2, 4 or 8 bits {i}": _drawn(draw, sizes=_COARSE, menu=(2, 4, 8)),
            f"two numbers of bits that cost the same {i}": _drawn(draw, sizes=_NATURAL, tie=True),
        }
    for i in range(2):
        # The best quotient is that of a step that does not fit; a shorter one does, and no uniform
        # choice but the widest.
        cost, size, _ = _drawn(draw, sizes=_NATURAL)
        cost = {layer: {b: kl[b] / 64 for b in kl} for layer, kl in cost.items()}
        cost["embed"] = {2: 1.0, 3: 0.96875, 4: 0.75, 6: 0.6875, 8: 0.0}
        cost["norm"] = {2: 4.0, 3: 3.0, 4: 2.0, 6: 1.5, 8: 0.0}
        size |= {"embed": draw.randint(1500, 2500), "norm": 2}
        budget = 0.875 + sum(kl[8] for kl in cost.values())
        made[f"a step that does not fit {i}"] = cost, size, budget
        # The small layers' steps have the best quotients, and leave too little for the large one.
        # Greedy ends above the uniform choice in memory, but not in the sum of the layers' bits.
        cost = {f"small {j}": {2: 17, 4: 11, 8: 0} for j in range(3)}
        cost["large"] = {2: 1600, 4: 400, 8: 0}
        cost = {layer: {b: kl / 4096 for b, kl in menu.items()} for layer, menu in cost.items()}
        size = dict.fromkeys(cost, 34) | {"large": draw.randint(950, 1000)}
        made[f"layers that take the budget {i}"] = cost, size, 438 / 4096
    cost = {"large": {2: 0.5, 4: 0.0, 8: 0.0}, "small": {2: 0.5, 4: 0.25, 8: 0.0}}
    made["only a step that adds nothing fits"] = cost, {"large": 1000, "small": 10}, 0.125
    cost = {"large": {2: 1.0, 4: 0.5, 8: 0.375}, "small": {2: 0.5, 4: 0.25, 8: 0.0}}
    made["8 bits that cost something"] = cost, {"large": 1000, "small": 10}, 0.5
    # Of two steps, the one that adds less for each saved bit leads to the larger cost.
    cost = {"large": {2: 0.5, 4: 0.4375, 8: 0.375}, "small": {2: 0.5, 4: 0.125, 8: 0.0}}
    made["8 bits that cost something, two steps"] = cost, {"large": 1000, "small": 400}, 0.5
    cost, size, _ = _drawn(draw, sizes=_NATURAL)
    made["a budget for the most bits alone"] = cost, size, sum(kl[8] for kl in cost.values())
    cost, size, _ = _drawn(draw, sizes=_NATURAL)
    made["a budget that 3 bits everywhere fill"] = cost, size, sum(kl[3] for kl in cost.values())
    return made


def run_allocate(allocate, seed):
    """Of each case: what came back, and whether cost and size are what they were."""
    seen = []
    for cost, size, budget in _instances(seed).values():
        kept = copy.deepcopy((cost, size))
        returned = attempt(allocate, cost, size, budget)
        seen.append([returned, [cost == kept[0], size == kept[1]]])
    return seen


@check(
    run_allocate,
    own_work=("labkit.labs.choosing_precision.allocation.optimum",),
)
def check_allocate(found, seed):
    """Bits for each layer within the budget, nearly as small as can be."""
    ratios = {}
    for (name, instance), (got, kept) in zip(_instances(seed).items(), found, strict=True):
        bits = _read(name, got, instance[0])
        for what, same in zip(("cost", "size"), kept, strict=True):
            if same is not True:
                raise Mistake(CHANGED, search=False, name=name, what=what)
        ratios[name] = _judge(name, bits, instance)
    mean = statistics.mean(ratio for ratio, _ in ratios.values())
    if not mean <= _MEAN:
        name = max(ratios, key=lambda one: ratios[one][0])
        said = ratios[name][1]
        raise Mistake(MEAN, count=len(ratios), mean=mean, name=name, **said)


def _read(name, got, cost):
    """The answer's {layer: bits}, with bits of the menu."""
    bits = {}
    for layer, b in entries(got, list(cost), call=f"allocate with {name}").items():
        value = number(b, call=f"allocate with {name}: bits of {layer}")
        if value not in cost[layer]:
            menu = ", ".join(map(str, sorted(cost[layer])))
            raise Mistake(OFF_THE_MENU, name=name, layer=layer, got=value, menu=menu)
        bits[layer] = int(value)
    return bits


def _judge(name, bits, instance):
    """The answer's memory as a multiple of the smallest, and what can be said of it."""
    cost, size, budget = instance
    spent, got = total(bits, cost), memory(bits, size)
    if spent > budget:
        raise Mistake(OVER, name=name, got=spent, budget=budget, why=_one_back(bits, instance))
    best = optimum(*instance)
    why = _not_done(bits, instance) or _trade(bits, best, size)
    even = next(b for b in _uniform(cost) if total(b, cost) <= budget)
    if got > (want := memory(even, size)):
        said = {"bits": next(iter(even.values())), "cost": total(even, cost), "budget": budget}
        raise Mistake(ABOVE_UNIFORM, name=name, got=got, want=want, why=why, **said)
    want = memory(best, size)
    said = {"got": got, "want": want, "why": why}
    if not got <= _WORST * want:
        raise Mistake(NOT_SMALL, name=name, times=got / want, **said)
    return got / want, said


def _uniform(cost):
    """All uniform choices, the smallest first."""
    return (dict.fromkeys(cost, b) for b in sorted(next(iter(cost.values()))))


def _one_back(bits, instance):
    """The layer whose last step leads beyond the budget, as a sentence, or ""."""
    cost, _, budget = instance
    for layer, b in bits.items():
        wider = min((w for w in cost[layer] if w > b), default=b)
        if total(bits | {layer: wider}, cost) <= budget:
            return fill(ONE_BACK, layer=layer, wider=wider, bits=b)
    return ""


def _not_done(bits, instance):
    """The step that saves most among those that are still possible, as a sentence, or ""."""
    cost, size, budget = instance
    left = budget - total(bits, cost)
    steps = [
        (size[layer] * (b - fewer), layer, fewer)
        for layer, b in bits.items()
        for fewer in cost[layer]
        if fewer < b and cost[layer][fewer] - cost[layer][b] <= left
    ]
    if not steps:
        return ""
    _, layer, fewer = max(steps)
    added = cost[layer][fewer] - cost[layer][bits[layer]]
    return fill(NOT_DONE, layer=layer, bits=bits[layer], fewer=fewer, added=added, left=left)


def _trade(bits, best, size):
    """Two layers in which the smallest choice differs, as a sentence, or ""."""
    saved = {layer: size[layer] * (bits[layer] - best[layer]) for layer in bits}
    down, up = max(saved, key=saved.get), min(saved, key=saved.get)
    if not saved[up] < 0 < saved[down]:
        return ""
    return fill(
        TRADE,
        down=down, best_down=best[down], down_bits=bits[down], down_size=size[down],
        up=up, best_up=best[up], up_bits=bits[up], up_size=size[up],
    )  # fmt: skip


check_allocate.slip(
    "a-layer-is-a-layer",
    "A bit less saves as many bits as the layer has weights. Where do the sizes enter your choice "
    "of a step?",
    swap=("size[layer] * (now - fewer)", "now - fewer"),
)
check_allocate.slip(
    "the-largest-saving-comes-first",
    "You take the step that saves most. What does each saved bit cost?",
    swap=("saved / max(added, 1e-300)", "saved"),
)
check_allocate.slip(
    "the-smallest-cost-comes-first",
    "You take the step that costs least. How much memory does each unit of cost save?",
    swap=("saved / max(added, 1e-300)", "-added"),
)
check_allocate.slip(
    "greedy-cannot-lose",
    "A greedy choice may end above the uniform one. With what do you compare yours at the end?",
    swap=(
        "min(bits, uniform(cost, budget), key=lambda choice: memory(choice, size))",
        "bits",
    ),
)
check_allocate.slip(
    "one-step-over-is-within",
    "When do you compare with the budget: before a step or after it?",
    swap=("added <= left", "left >= 0"),
)
check_allocate.slip(
    "a-full-budget-is-over",
    "A sum that is equal to the budget is within it. Which comparison says so?",
    swap=("added <= left", "added < left"),
)


@check_allocate.wrong(
    "greedy-is-done-when-stuck",
    "A step that does not fit ends your loop. May a shorter one, or one of another layer, still "
    "fit?",
)
def allocate(cost, size, budget):
    bits = {layer: max(menu) for layer, menu in cost.items()}
    while True:
        steps = [
            (size[n] * (b - f) / max(cost[n][f] - cost[n][b], 1e-300), n, f)
            for n, b in bits.items()
            for f in cost[n]
            if f < b
        ]
        _, layer, fewer = max(steps, default=(0, None, None))
        if layer is None or total(bits | {layer: fewer}, cost) > budget:
            even = next(b for b in _uniform(cost) if total(b, cost) <= budget)
            return min(bits, even, key=lambda one: memory(one, size))
        bits[layer] = fewer


@check_allocate.wrong(
    "fair-shares",
    "Each layer gets the same share of the budget. What happens to the part of its share that a "
    "layer does not need?",
)
def allocate_by_shares(cost, size, budget):
    share = budget / len(cost)
    return {n: min(b for b in cost[n] if cost[n][b] <= share or b == max(cost[n])) for n in cost}


@check_allocate.wrong(
    "uniform-is-good-enough",
    "All layers have the same bits. Which of them could do with fewer?",
)
def allocate_evenly(cost, size, budget):
    menu = sorted(next(iter(cost.values())))
    return next(dict.fromkeys(cost, b) for b in menu if sum(cost[n][b] for n in cost) <= budget)
