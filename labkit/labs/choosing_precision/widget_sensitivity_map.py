"""SensitivityMap: bits for each matrix of a model, with the memory and the measured KL of a choice.

Costs and sizes are those of ``sensitivity``. Python computes every number; the page draws.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import traitlets

from labkit.labs.choosing_precision.allocation import Costs, memory, optimum, total
from labkit.labs.engine.described import AskingWidget

CLOSE = 0.01
"""The second goal: so much more memory than the best choice by the sum of single KLs."""


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Bits for each layer and what they cost, in nats and in bits of memory."""

    bits: Mapping[str, int]
    alone: float  # the KLs of single layers, added
    measured: float  # all layers at once
    memory: int


class SensitivityMap(AskingWidget):
    """Layers as columns as wide as their weights: the KL of each alone above, its bits below.

    ``bits`` (layer -> bits) and ``layer`` (the one that is chosen) can be read, set and observed.
    The widget begins with the best uniform choice: the fewest bits for all layers alike whose
    measured KL is within the budget. ``reached`` is the smallest choice so far that is within the
    budget and smaller than the uniform one, which is the first goal; {} before there is one. The
    second goal is a memory at most 1 % above that of ``optimum``, which adds the KLs of single
    layers and may miss the budget when they are measured together.

    Args:
        cost: KL of each layer alone, nats a prediction, for each number of bits; each layer has the
            same numbers of bits.
        size: weights of each layer.
        joint: the measured KL of a choice of bits for all layers.
        budget: for the measured KL.

    Raises:
        ValueError: as ``optimum``; layers with other numbers of bits; a budget that no uniform
            choice meets. TraitError: bits or a layer that there are not.

    >>> cost = {"embed": {4: 0.01, 8: 0.0}, "head": {4: 0.03, 8: 0.0}}
    >>> size = {"embed": 1000, "head": 100}
    >>> chosen = SensitivityMap(cost, size, lambda bits: total(bits, cost), 0.02)
    >>> chosen.bits = {"embed": 4, "head": 8}
    >>> print(chosen.describe().splitlines()[1])
    Measured together 0.01 nats, within the budget of 0.02. 4.36 bits a weight, 45 % less memory \
than 8 bits for all.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    bits = traitlets.Dict()
    layer = traitlets.Unicode()
    reached = traitlets.Dict(read_only=True)

    def __init__(
        self,
        cost: Costs,
        size: Mapping[str, int],
        joint: Callable[[Mapping[str, int]], float],
        budget: float,
    ) -> None:
        menus = {tuple(sorted(widths)) for widths in cost.values()}
        if len(menus) > 1:
            raise ValueError(f"numbers of bits {sorted(menus)}: give each layer the same")
        self._goal = (1 + CLOSE) * memory(optimum(cost, size, budget), size)
        self._cost, self._size, self._joint, self._budget = cost, size, joint, budget
        self._menu = sorted(next(iter(cost.values())))
        self._known: dict[tuple[int, ...], _Choice] = {}
        self._uniform = self._best_uniform()
        super().__init__(bits=dict(self._uniform.bits), layer=next(iter(cost)))
        self._show()

    @traitlets.validate("bits")
    def _bits_of_menu(self, proposal: dict) -> dict[str, int]:
        bits = proposal["value"]
        if set(bits) != set(self._cost) or not set(bits.values()) <= set(self._menu):
            raise traitlets.TraitError(
                f"bits={bits}: give each of {', '.join(self._cost)} one of {_listed(self._menu)}"
            )
        return {name: bits[name] for name in self._cost}

    @traitlets.validate("layer")
    def _layer_of_model(self, proposal: dict) -> str:
        if proposal["value"] not in self._cost:
            raise traitlets.TraitError(f"layer={proposal['value']!r}: {', '.join(self._cost)}")
        return proposal["value"]

    @traitlets.observe("bits", "layer")
    def _set(self, change: dict) -> None:
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, layer}, {seq, layer, bits}, {seq, all}; bits by place."""
        if "all" in asked:
            self.bits = dict.fromkeys(self._cost, self._menu[asked["all"]])
        if "layer" in asked:
            self.layer = asked["layer"]
        if "bits" in asked:
            self.bits = {**self.bits, self.layer: self._menu[asked["bits"]]}

    # ------------------------------------------------------------ what is computed

    def _choice(self, bits: Mapping[str, int]) -> _Choice:
        key = tuple(bits[name] for name in self._cost)
        if key not in self._known:
            self._known[key] = _Choice(
                bits=dict(bits),
                alone=total(bits, self._cost),
                measured=self._joint(bits),
                memory=memory(bits, self._size),
            )
        return self._known[key]

    def _within(self, choice: _Choice) -> bool:
        return choice.measured <= self._budget  # false for NaN

    def _best_uniform(self) -> _Choice:
        for b in self._menu:
            choice = self._choice(dict.fromkeys(self._cost, b))
            if self._within(choice):
                return choice
        raise ValueError(
            f"budget={self._budget:g}: {self._menu[-1]} bits for all measure {choice.measured:.3g}"
        )

    def _best(self) -> _Choice:
        """The smallest choice within the budget so far; the uniform one before there is another."""
        return self._choice(self.reached) if self.reached else self._uniform

    def _judge(self, choice: _Choice) -> None:
        if self._within(choice) and choice.memory < self._best().memory:
            self.set_trait("reached", dict(choice.bits))

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        choice = self._choice(self.bits)
        self._judge(choice)
        verdict, reading = self._verdict(choice), self._reading()
        alike = self._uniform.bits[self.layer]
        rows = [
            self._row("now", choice),
            self._row(f"{alike} bits for all", self._uniform),
        ]
        if self.reached:
            rows.append(self._row("smallest so far", self._best()))
        targets = self._targets()
        told = [
            reading,
            verdict,
            *(
                f"{name}: {self._size[name]:,} weights, {b} bits, KL {self._cost[name][b]:.2g}."
                for name, b in self.bits.items()
            ),
            *(
                f"{row['what']}: {row['mean']} bits a weight, {row['memory']}, sum of single KLs "
                f"{row['alone']}, measured {row['measured']}."
                for row in rows
            ),
            *(f"Goal{', reached' * target['done']}: {target['text']}" for target in targets),
        ]
        return {
            "layers": list(self._cost),
            "layer": self.layer,
            "menu": self._menu,
            "bits": self._menu.index(self.bits[self.layer]),
            "bits_text": f"{self.bits[self.layer]} bits",
            "columns": self._columns(),
            "uniform": alike / self._menu[-1],
            "decades": self._decades(),
            "gauges": self._gauges(choice),
            "reading": reading,
            "verdict": verdict,
            "holds": self._within(choice),
            "rows": rows,
            "targets": targets,
            "spoken": f"{reading} {verdict}",
            "sentence": "\n".join(told),
        }

    def _targets(self) -> list[dict]:
        alike, best = self._uniform.bits[self.layer], self._best().memory
        mean = self._goal / sum(self._size.values())
        return [
            {
                "done": bool(self.reached),
                "text": f"A measured KL within the budget, less memory than {alike} bits for all.",
            },
            {
                "done": bool(self.reached) and best <= self._goal,
                "text": f"The same, in at most {mean:.2f} bits a weight: {100 * CLOSE:g} % above "
                "the least that the sum of single KLs allows.",
            },
        ]

    def _mean(self, choice: _Choice) -> float:
        return choice.memory / sum(self._size.values())

    def _verdict(self, choice: _Choice) -> str:
        side = "within" if self._within(choice) else "above"
        less = 1 - choice.memory / self._uniform.memory
        words = f"{_percent(abs(less))} {'less' if less > 0 else 'more'}" if less else "as much"
        than = "than" if less else "as"
        return (
            f"Measured together {_short(choice.measured)} nats, {side} the budget of "
            f"{self._budget:g}. {self._mean(choice):.3g} bits a weight, {words} memory {than} "
            f"{self._uniform.bits[self.layer]} bits for all."
        )

    def _reading(self) -> str:
        """The chosen layer, and what its next narrower choice costs and saves."""
        name, now = self.layer, self.bits[self.layer]
        share = self._size[name] / sum(self._size.values())
        here = (
            f"{list(self._cost).index(name) + 1} {name}: {_percent(share)} of the weights, "
            f"{now} bits, KL alone {_short(self._cost[name][now])}."
        )
        narrower = [b for b in self._menu if b < now]
        if not narrower:
            return here
        b = narrower[-1]
        extra = self._cost[name][b] - self._cost[name][now]
        saved = self._size[name] * (now - b)
        return f"{here} At {b} bits: {extra:+.2g} nats, saves {_bytes(saved)}."

    def _row(self, what: str, choice: _Choice) -> dict:
        return {
            "what": what,
            "mean": f"{self._mean(choice):.3g}",
            "memory": _bytes(choice.memory),
            "alone": _short(choice.alone),
            "measured": _short(choice.measured),
        }

    def _ends(self) -> tuple[int, int]:
        """The decades below and above all costs."""
        costs = [value for widths in self._cost.values() for value in widths.values()]
        logs = [math.log10(value) for value in costs if 0 < value < math.inf] or [0.0]
        return math.floor(min(logs)), math.floor(max(logs)) + 1

    def _decades(self) -> list[list]:
        low, high = self._ends()
        return [[(e - low) / (high - low), _power(e)] for e in range(low, high + 1)]

    def _columns(self) -> list[dict]:
        """From left to right: edges as shares of all weights, heights from 0 to 1."""
        low, high = self._ends()
        weights, left, columns = sum(self._size.values()), 0, []

        def height(value: float) -> float:
            if value <= 0:
                return 0.0
            return min((math.log10(value) - low) / (high - low), 1.0)

        for name, widths in self._cost.items():
            right = left + self._size[name]
            columns.append(
                {
                    "edges": [left / weights, right / weights],
                    "kl": height(widths[self.bits[name]]),
                    "others": [height(widths[b]) for b in self._menu],
                    "bits": self.bits[name],
                    "tall": self.bits[name] / self._menu[-1],
                }
            )
            left = right
        return columns

    def _gauges(self, choice: _Choice) -> list[dict]:
        """KL and memory as shares of twice the budget and of the widest choice."""
        widest = self._menu[-1] * sum(self._size.values())
        measured = choice.measured / self._budget / 2
        return [
            {
                "title": f"measured KL {_short(choice.measured)}",
                "at": min(measured, 1.0) if measured >= 0 else 1.0,  # NaN fills it
                "mark": 0.5,
                "name": f"budget {self._budget:g}",
                "beyond": not measured <= 1,
            },
            {
                "title": f"memory {_bytes(choice.memory)}",
                "at": choice.memory / widest,
                "mark": self._uniform.memory / widest,
                "name": f"{self._uniform.bits[self.layer]} bits for all",
                "beyond": False,
            },
        ]


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _power(e: int) -> str:
    return f"{10.0**e:g}" if e > -4 else f"1e{e}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _short(nats: float) -> str:
    return f"{nats:.3g}"


def _bytes(bits: float) -> str:
    return f"{bits / 8:,.0f} B" if bits < 8000 else f"{bits / 8000:,.3g} kB"
