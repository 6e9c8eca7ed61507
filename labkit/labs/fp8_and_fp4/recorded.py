"""What lab 08 recorded: one small GPT, trained from scratch with FP8 and FP4 matmuls, ten seeds.

All recipes of a seed start from the same weights and see the same text, so runs are compared in
pairs, seed by seed. Losses are bits a character on the last 10 % of the text; how they were made
says data/records/record_low_bit_training.py.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pandas as pd

from labkit.base.home import DATA
from labkit.measuring import Verdict, verdict

MARGIN = 0.02
"""Bits a character that would not matter, named before the runs: 0.6 % of FP32's loss."""
CONTROL = "fp32_reordered"


@dataclass(frozen=True, kw_only=True)
class TrainingRuns:
    """One recipe, trained from the same start and on the same text as FP32, seed by seed.

    Args:
        name: of the recipe, as in ``labkit.training.low_bit.RECIPES``.
        bits: cross-entropy on the test text after the last step, bits a character, one a seed.
        gaps: the same minus FP32's of that seed; above 0 is worse.
        steps: the last of each group of steps whose losses were averaged.
        losses: these averages on the training text, bits a character, one tuple a seed.
        verdict: lab 06's, of the gaps with their sign turned (above 0 is better) against MARGIN.
            Its control is FP32 that adds up input features in reverse order.
    """

    name: str
    bits: tuple[float, ...]
    gaps: tuple[float, ...]
    steps: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    verdict: Verdict

    def describe(self) -> str:
        """One line: the gap, its interval and the verdict."""
        low, high = -self.verdict.high, -self.verdict.low
        return (
            f"{self.name}: {-self.verdict.mean:+.3f} bits a character against FP32 "
            f"(95 % CI {low:+.3f} to {high:+.3f}), {self.verdict.answer}"
        )


def training_runs() -> dict[str, TrainingRuns]:
    """All recipes but FP32, by name, in the order of RECIPES.

    >>> runs = training_runs()["mxfp8"]
    >>> len(runs.gaps), len(runs.losses[0]), runs.steps[-1]
    (10, 30, 300)
    """
    record = _record()
    runs, every = record["runs"], record["every"]
    control = _differences(runs, CONTROL, "fp32")
    return {
        name: TrainingRuns(
            name=name,
            bits=tuple(arms[name]["bits"] for arms in runs.values()),
            gaps=tuple(-difference for difference in _differences(runs, name, "fp32")),
            steps=tuple(range(every, record["steps"] + 1, every)),
            losses=tuple(tuple(arms[name]["losses"]) for arms in runs.values()),
            verdict=verdict(_differences(runs, name, "fp32"), MARGIN, control=control),
        )
        for name in record["recipes"]
        if name != "fp32"
    }


def compare_recipes(one: str, other: str) -> Verdict:
    """Lab 06's verdict on a recipe against another one: "better" where the first has less loss.

    >>> compare_recipes("nvfp4", "e4m3_unscaled").answer
    'better'
    """
    runs = _record()["runs"]
    control = _differences(runs, CONTROL, "fp32")
    return verdict(_differences(runs, one, other), MARGIN, control=control)


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A published claim about training, as a pair of recipes.

    Args:
        claim: in words.
        pair: the recipe with the mechanism, and the one without it.
        only_if: a condition in words, and a pair under it; None where none was recorded.
    """

    claim: str
    pair: tuple[str, str]
    only_if: tuple[str, tuple[str, str]] | None = None

    @property
    def finding(self) -> str:
        """ "mechanism visible", "visible only if ..." or "not visible at this scale"."""
        if compare_recipes(*self.pair).answer == "better":
            return "mechanism visible"
        if self.only_if and compare_recipes(*self.only_if[1]).answer == "better":
            return f"visible only if {self.only_if[0]}"
        return "not visible at this scale"


MECHANISMS = (
    Mechanism(
        claim="One scale a tensor rescues training in E4M3",
        pair=("e4m3_tensorwise", "e4m3_unscaled"),
    ),
    Mechanism(
        claim="Gradients in E5M2 train better than in E4M3",
        pair=("fp8_tensorwise", "e4m3_tensorwise"),
    ),
    Mechanism(
        claim="Block scales train better than one a tensor",
        pair=("mxfp8", "e4m3_tensorwise"),
        only_if=("the values have four bits", ("nvfp4", "e2m1_tensorwise")),
    ),
    Mechanism(
        claim="NVFP4's scales train better than MXFP4's",
        pair=("nvfp4", "mxfp4"),
    ),
    Mechanism(
        claim="Stochastic rounding of gradients trains better",
        pair=("nvfp4_sr", "nvfp4"),
    ),
    Mechanism(
        claim="A Hadamard rotation for dW trains better",
        pair=("nvfp4_sr_rht", "nvfp4_sr"),
    ),
    Mechanism(
        claim="Square blocks of weights train better",
        pair=("nvfp4_square", "nvfp4"),
    ),
)


def mechanisms_table() -> pd.DataFrame:
    """A row a claim: the pair of recipes, how much better the first is, and the finding."""
    rows = []
    for mechanism in MECHANISMS:
        found = compare_recipes(*mechanism.pair)
        rows.append(
            {
                "claim": mechanism.claim,
                "recipes": " against ".join(mechanism.pair),
                "better by (95 % CI)": f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})",
                "verdict": found.answer,
                "finding": mechanism.finding,
            }
        )
    return pd.DataFrame(rows).set_index("claim")


def _differences(runs: Mapping[str, Mapping], one: str, other: str) -> list[float]:
    """How much less loss the first has, seed by seed."""
    return [arms[other]["bits"] - arms[one]["bits"] for arms in runs.values()]


@cache
def _record() -> dict:
    path = DATA / "emulated" / "low_bit_training.json"
    return json.loads(path.read_text(encoding="utf-8"))
