"""AlarmBench: one rule for a spike in the loss, tried on many recorded runs at once.

The rules are in ``alarm_rules``, the runs in ``recorded``. Python computes every number; the page
draws.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import traitlets

from labkit.labs.engine.described import AskingWidget
from labkit.labs.monitoring_and_debugging.alarm_rules import RULES, Normal, alarms, limits, normal
from labkit.labs.monitoring_and_debugging.recorded import NETWORKS, healthy_runs, planted

WINDOWS = (10, 20, 50)
MARGINS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
LEVELS = range(0, 11)
"""A spike multiplies the loss of its step by 2**level."""

SPIKE_AT = 300
"""The step at which a spike is set in the drawn run, and the smallest visible one is computed."""

VISIBLE = 40
"""The second goal: in each network a spike of so many times the loss is seen."""


class _Faulty(NamedTuple):
    losses: np.ndarray
    begins: tuple[int, ...]  # of its faults


class _Score(NamedTuple):
    """What a rule does in all runs of a network."""

    false: int
    caught: int
    planted: int
    smallest: float  # visible factor, median over the runs; inf where there is none


class AlarmBench(AskingWidget):
    """The loss of a run with the limit of a rule, and what the rule does in all recorded runs.

    ``rule`` (a key of ``alarm_rules.RULES``), ``window`` (10, 20 or 50 losses), ``k`` (1 to 12
    widths, in halves), ``margin`` (one of ``MARGINS``, nats), ``network`` ("MLP", "CNN", "GPT",
    whose first run is drawn) and ``level`` (the spike in that run multiplies one loss by 2**level)
    can be read, set and observed. ``reached`` says which setting reached a goal. Goal 1: no false
    alarm in the healthy runs, and an alarm where each planted fault begins. Goal 2: so, and a spike
    of 40 times the loss is seen in at least half of each network's runs.

    Raises:
        TraitError: a setting that there is not.

    >>> bench = AlarmBench()
    >>> bench.rule, bench.window, bench.k, bench.margin = "median", 50, 6, 1.0
    >>> print(bench.describe().splitlines()[0])
    Rule: median, MAD of those before; window 50, k 6, margin 1 nat.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    rule = traitlets.Enum(tuple(RULES), "own")
    window = traitlets.Enum(WINDOWS, 10)
    k = traitlets.Float(3.0)
    margin = traitlets.Enum(MARGINS, 0.0)
    network = traitlets.Enum(NETWORKS, NETWORKS[0])
    level = traitlets.Int(5)
    reached = traitlets.Dict(read_only=True)

    def __init__(self) -> None:
        self._runs = healthy_runs()
        self._faulty = {
            name: [_Faulty(*planted(losses, seed)) for seed, losses in enumerate(rows)]
            for name, rows in self._runs.items()
        }
        self._pasts: dict[tuple[str, int], dict[str, list[tuple[Normal, Normal]]]] = {}
        super().__init__()
        self._show()

    @traitlets.validate("k")
    def _k_in_halves(self, proposal: dict) -> float:
        if not 1 <= proposal["value"] <= 12:
            raise traitlets.TraitError(f"k={proposal['value']}: 1 to 12 widths")
        return round(2 * proposal["value"]) / 2

    @traitlets.validate("level")
    def _level_of_slider(self, proposal: dict) -> int:
        if proposal["value"] not in LEVELS:
            raise traitlets.TraitError(f"level={proposal['value']}: 0 to {LEVELS[-1]}")
        return proposal["value"]

    @traitlets.observe("rule", "window", "k", "margin", "network", "level")
    def _set(self, change: dict) -> None:
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, rule}, {seq, window}, {seq, margin}, an index, ..."""
        if "margin" in asked:
            self.margin = MARGINS[asked["margin"]]
        for name in asked.keys() & {"rule", "window", "k", "network", "level"}:
            setattr(self, name, asked[name])

    # ------------------------------------------------------------ what is computed

    def _pasts_of(self, rule: str) -> dict[str, list[tuple[Normal, Normal]]]:
        """For each run, healthy and faulty, what the rule takes for normal: the slow part."""
        key = (rule, self.window)
        if key not in self._pasts:
            self._pasts[key] = {
                name: [
                    (normal(losses, *key), normal(faulty.losses, *key))
                    for losses, faulty in zip(rows, self._faulty[name], strict=True)
                ]
                for name, rows in self._runs.items()
            }
        return self._pasts[key]

    def _limits(self, past: Normal, rule: str) -> np.ndarray:
        return limits(past, rule=rule, window=self.window, k=self.k, margin=self.margin)

    def _score(self, rule: str, name: str) -> _Score:
        false, caught, factors = 0, 0, []
        rows, faulty = self._runs[name], self._faulty[name]
        for losses, bad, (past, bad_past) in zip(
            rows, faulty, self._pasts_of(rule)[name], strict=True
        ):
            limit = self._limits(past, rule)
            false += len(alarms(losses, limit))
            factors.append(max(limit[SPIKE_AT] / losses[SPIKE_AT], 1.0))
            rung = alarms(bad.losses, self._limits(bad_past, rule))
            caught += len(set(bad.begins) & set(rung.tolist()))
        total = sum(len(bad.begins) for bad in faulty)
        return _Score(false, caught, total, float(np.median(factors)))

    def _shown(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The run that is drawn with its spike, the limit, and the steps of alarms."""
        losses = self._runs[self.network][0].copy()
        losses[SPIKE_AT] *= 2.0**self.level
        limit = self._limits(normal(losses, self.rule, self.window), self.rule)
        return losses, limit, alarms(losses, limit)

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        scores = {rule: {name: self._score(rule, name) for name in self._runs} for rule in RULES}
        setting = f"{RULES[self.rule]}; window {self.window}, k {self.k:g}, margin {self._nats()}."
        total = _sum(scores[self.rule])
        self._judge(total, setting)
        verdict = (
            f"{_many(total.false, 'false alarm')} in {self._count()} healthy runs, {total.caught} "
            f"of {total.planted} planted faults caught."
        )
        losses, limit, rung = self._shown()
        seen, targets = self._seen(losses, limit, rung), self._targets(total.planted)
        rows = [self._row(rule, scores[rule]) for rule in RULES]
        told = [
            f"Rule: {setting}",
            seen,
            verdict,
            *(
                f"{row['rule']}: {row['caught']} caught; "
                + "; ".join(
                    f"{name} {cell['false']} false, smallest spike seen {cell['smallest']}"
                    for name, cell in zip(self._runs, row["cells"], strict=True)
                )
                + "."
                for row in rows
            ),
            *(f"Goal{', reached' * target['done']}: {target['text']}" for target in targets),
        ]
        return {
            "rules": list(RULES.items()),
            "rule": self.rule,
            "windows": WINDOWS,
            "window": self.window,
            "k": self.k,
            "k_text": f"{self.k:g}",
            "margin": MARGINS.index(self.margin),
            "margins": len(MARGINS),
            "margin_text": self._nats(),
            "networks": [[name, f"{name}, {len(rows)} runs"] for name, rows in self._runs.items()],
            "network": self.network,
            "at": SPIKE_AT,
            "level": self.level,
            "levels": [LEVELS[0], LEVELS[-1]],
            "level_text": f"×{2**self.level:,}",
            "drawing": self._drawing(losses, limit, rung),
            "seen": seen,
            "rows": rows,
            "verdict": verdict,
            "holds": _faultless(total),
            "targets": targets,
            "spoken": f"{seen} {verdict}",
            "sentence": "\n".join(told),
        }

    def _nats(self) -> str:
        return f"{self.margin:g} nat{'s' * (self.margin != 1)}"

    def _count(self) -> int:
        return sum(len(rows) for rows in self._runs.values())

    def _judge(self, total: _Score, setting: str) -> None:
        if _faultless(total):
            self._reach(1, setting)
            if total.smallest <= VISIBLE:
                self._reach(2, setting)

    def _reach(self, goal: int, setting: str) -> None:
        self.set_trait("reached", {goal: setting} | self.reached)

    def _targets(self, planted: int) -> list[dict]:
        texts = {
            1: f"No false alarm in {self._count()} healthy runs, all {planted} faults caught",
            2: f"The same, and a spike of ×{VISIBLE} seen in half of each network's runs or more",
        }
        return [
            {"done": goal in self.reached, "text": f"{text}{self._by(goal)}"}
            for goal, text in texts.items()
        ]

    def _by(self, goal: int) -> str:
        return f": {self.reached[goal]}" if goal in self.reached else "."

    def _row(self, rule: str, scores: Mapping[str, _Score]) -> dict:
        total = _sum(scores)
        return {
            "rule": RULES[rule],
            "chosen": rule == self.rule,
            "caught": f"{total.caught}/{total.planted}",
            "cells": [
                {"false": str(score.false), "smallest": _times(score.smallest)}
                for score in scores.values()
            ],
        }

    def _seen(self, losses: np.ndarray, limit: np.ndarray, rung: np.ndarray) -> str:
        others = [int(step) for step in rung if step != SPIKE_AT]
        rings = "rings" if losses[SPIKE_AT] > limit[SPIKE_AT] else "is silent"
        at = f"{limit[SPIKE_AT]:.3g}" if math.isfinite(limit[SPIKE_AT]) else "infinite"
        return (
            f"First {self.network} run: the rule {rings} at step {SPIKE_AT}, where the loss is "
            f"{losses[SPIKE_AT]:.3g} (×{2**self.level:,}) and the limit {at}; "
            f"{_many(len(others), 'other alarm')}{_steps(others)}."
        )

    def _drawing(self, losses: np.ndarray, limit: np.ndarray, rung: np.ndarray) -> dict:
        """Curves as [x, y] from 0 to 1, y on a log axis that the largest spike fits into."""
        healthy = self._runs[self.network][0]
        highest = max(healthy.max(), healthy[SPIKE_AT] * 2.0 ** LEVELS[-1])
        low, high = math.floor(math.log10(healthy.min())), math.log10(highest) + 0.1
        last = len(losses) - 1

        def points(values: np.ndarray) -> list:
            # A limit beyond the drawing runs along its top; an infinite one is not drawn.
            heights = ((np.log10(values) - low) / (high - low)).clip(0, 1)
            return [
                [round(step / last, 4), round(height, 4)] if math.isfinite(value) else None
                for step, (value, height) in enumerate(zip(values, heights.tolist(), strict=True))
            ]

        loss = points(losses)
        return {
            "loss": loss,
            "limit": points(limit),
            "spike": loss[SPIKE_AT],
            "level": math.log10(2) / (high - low),  # of one level
            "alarms": [[int(step) / last, int(step) == SPIKE_AT] for step in rung],
            "rings": bool(losses[SPIKE_AT] > limit[SPIKE_AT]),
            "decades": [
                [(e - low) / (high - low), f"{10.0**e:g}"] for e in range(low, math.ceil(high))
            ],
            "steps": [[step / last, str(step)] for step in range(0, last + 1, 100)],
        }


def _sum(scores: Mapping[str, _Score]) -> _Score:
    """Over the networks: sums, and the largest of the smallest visible factors."""
    false, caught, faults, smallest = zip(*scores.values(), strict=True)
    return _Score(sum(false), sum(caught), sum(faults), max(smallest))


def _faultless(total: _Score) -> bool:
    return total.false == 0 and total.caught == total.planted


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _times(factor: float) -> str:
    if not math.isfinite(factor):
        return "none"
    return f"×{factor:.2g}" if factor < 99.5 else f"×{factor:.0f}" if factor < 1000 else ">×1000"


def _steps(steps: list[int]) -> str:
    if not steps:
        return ""
    named = ", ".join(map(str, steps[:5]))
    return f" (at {named}{', ...' * (len(steps) > 5)})"
