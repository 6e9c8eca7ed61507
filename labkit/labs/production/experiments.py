"""``paired``: two arms over seeds with two controls, and a decision that says what it can see.

It is the exercise ``experiment`` with an A/A control and a broken arm. A/A shows that the pairs
share all that is drawn at random: the reference minus itself must be exactly 0. A broken arm shows
that the design can see a defect, which A/A alone does not. All seeds run before there is a score to
look at, so nobody can stop at a lucky one.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite, nan, sqrt
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from labkit.measuring.verdicts import TIME_MARGIN, Verdict, t_quantile, verdict

POWER = 0.9
"""The chance that an experiment of the planned size sees what it is planned for."""

_MOST_PAIRS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What an experiment says of a candidate, against a margin that was named beforehand.

    Args:
        answer: "ship": the interval lies above -margin. "reject": it lies below, or a run of the
            candidate died. "hold": neither; or a control is in trouble, or a run of the reference
            died, and nothing can be said.
        reason: the answer's reason, as a sentence.
        effect: candidate minus reference, the mean over seeds; NaN if a run died.
        low, high: ends of its 95 % interval; NaN likewise.
        margin: the largest loss of score that would not matter.
        pairs: how many there are.
        pairs_needed: so many pairs ship an equally good candidate with a chance of 90 %; None if
            a run died.
        minimum_detectable: with these pairs, the loss of score whose interval lies below 0 with a
            chance of 90 %; NaN if a run died. Both hold for normal differences with the standard
            deviation of these, which few pairs know badly.
    """

    answer: str
    reason: str
    effect: float
    low: float
    high: float
    margin: float
    pairs: int
    pairs_needed: int | None
    minimum_detectable: float

    def __str__(self) -> str:
        return (
            f"{self.answer}: {self.reason}. {self.effect:+.4f} (95 % CI {self.low:+.4f} to "
            f"{self.high:+.4f}, {self.pairs} pairs, margin {self.margin:g})"
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Scores of a reference and a candidate by seed, with their controls; higher is better.

    Args:
        reference, candidate: {seed: score}; a run that died has the score NaN.
        again: the reference once more.
        broken: an arm with a planted defect.
        seconds: of each run, {"reference": {seed: seconds}, ...}.

    Raises:
        ValueError: fewer than 2 seeds, or an arm with other seeds than the reference.
    """

    reference: dict[int, float]
    candidate: dict[int, float]
    again: dict[int, float]
    broken: dict[int, float]
    seconds: dict[str, dict[int, float]]

    def __post_init__(self) -> None:
        if len(self.reference) < 2:
            raise ValueError(f"{len(self.reference)} pairs have no spread: pass 2 seeds or more")
        for name in ("candidate", "again", "broken"):
            if unpaired := set(getattr(self, name)) ^ set(self.reference):
                raise ValueError(f"{name}: seed {min(unpaired)} has no pair in the reference")

    def over_reference(self, arm: str) -> list[float]:
        """The score of "candidate", "again" or "broken" minus the reference's, one a seed."""
        scores = getattr(self, arm)
        return [scores[seed] - score for seed, score in self.reference.items()]

    def trouble(self) -> str:
        """Why the experiment is not to be trusted; empty if it is.

        A/A must be exactly 0, and the interval of the broken arm must lie below 0.
        """
        pairs = [(score, self.again[seed]) for seed, score in self.reference.items()]
        # Two runs that both died did the same.
        moved = [b - a for a, b in pairs if a != b and (isfinite(a) or isfinite(b))]
        if moved:
            return (
                f"A/A differs in {len(moved)} of {len(pairs)} pairs, first by {moved[0]:+.3g}:"
                " the arms share an object or draw other random numbers, or a kernel is not "
                "deterministic"
            )
        # NaN where a broken run died, which is seen as well.
        if verdict(self.over_reference("broken"), 1.0).high >= 0:
            return "the broken arm is not seen as worse: this design would miss a defect"
        return ""

    def controls(self) -> str:
        """Both controls and the trouble, as lines of text."""
        again, broken = self.over_reference("again"), self.over_reference("broken")
        dead, high = _dead(self.broken), verdict(broken, 1.0).high
        found = f"{dead} runs died" if dead else f"the 95 % interval ends at {high:+.4f}"
        lines = [
            f"A/A: the difference is exactly 0 in {again.count(0)} of {len(again)} pairs",
            f"broken arm: {fmean(broken):+.4f} in the mean, {found}",
        ]
        return "\n".join(filter(None, [*lines, self.trouble()]))

    def decide(self, margin: float, *, step: float = 0.0) -> Ruling:
        """Ship, reject or hold: the 95 % interval of the differences against ``-margin``.

        A candidate that is truly worse by the margin ships in at most 2.5 % of experiments, for
        normal differences.

        Args:
            margin: the largest loss of score that would not matter, decided before the run.
            step: the smallest difference that the score can show, such as 1 / images.

        Raises:
            ValueError: a margin that is not above 0.
        """
        differences, pairs = self.over_reference("candidate"), len(self.reference)
        found = verdict(differences, margin, step=step)
        answer, reason = self._answer(found.low, found.high, margin)
        spread = stdev(differences) if all(map(isfinite, differences)) else nan
        return Ruling(
            answer=answer,
            reason=reason,
            effect=found.mean,
            low=found.low,
            high=found.high,
            margin=margin,
            pairs=pairs,
            pairs_needed=pairs_needed(spread, margin) if isfinite(spread) else None,
            minimum_detectable=_reach(pairs) * spread / sqrt(pairs),
        )

    def _answer(self, low: float, high: float, margin: float) -> tuple[str, str]:
        if trouble := self.trouble():
            return "hold", trouble
        for name, answer in (("reference", "hold"), ("candidate", "reject")):
            if dead := _dead(getattr(self, name)):
                return answer, f"{dead} of {len(self.reference)} runs of the {name} died"
        if low > -margin:
            return "ship", "the whole interval lies above -margin"
        if high < -margin:
            return "reject", "the whole interval lies below -margin"
        return "hold", "-margin lies inside the interval"

    def time(self) -> Verdict:
        """The time of a candidate's run over its reference's, against the A/A control's."""
        candidate, again = (
            [self.seconds[name][seed] / self.seconds["reference"][seed] for seed in self.reference]
            for name in ("candidate", "again")
        )
        return verdict(candidate, TIME_MARGIN, control=again, times=True)


def paired(
    arms: Sequence[str],
    seeds: Iterable[int],
    make: Callable[[], nn.Module],
    batches: Callable[[int], Any],
    fit: Callable[[nn.Module, Any, str], object],
    score: Callable[[nn.Module], float],
    *,
    broken: str,
) -> Experiment:
    """Train reference, candidate, the reference again and a broken arm, for each seed.

    Every run has a copy of the seed's first weights, a loader of its own and the same state of
    torch's generator; which arm goes first changes with the seed. The global random state is left
    as it was.

    Args:
        arms: the names of the reference and of the candidate.
        seeds: two or more, each once. Name them before the run; this is the whole experiment.
        make: draws a fresh model from torch's global generator.
        batches: seed -> a fresh loader.
        fit: trains the model in place on the loader, as the arm's name says.
        score: of a trained model, higher is better; NaN for a model that died.
        broken: the name of an arm that ``fit`` trains with a defect which must be seen.

    Raises:
        ValueError: other than two arms, fewer than 2 seeds, or one of them twice.
    """
    seeds = tuple(seeds)
    if isinstance(arms, str) or len(arms) != 2:
        raise ValueError(f"arms={arms!r}: pass the reference and the candidate")
    if len(seeds) < 2 or len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds={seeds}: pass 2 or more, each once, such as range(5)")
    runs = {"reference": arms[0], "candidate": arms[1], "again": arms[0], "broken": broken}
    scores: dict[str, dict[int, float]] = {role: {} for role in runs}
    seconds: dict[str, dict[int, float]] = {role: {} for role in runs}
    order = list(runs)
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.manual_seed(seed)
            start = make()
            for role in order:
                model, loader = copy.deepcopy(start), batches(seed)
                torch.manual_seed(seed)
                began = perf_counter()
                fit(model, loader, runs[role])
                seconds[role][seed] = perf_counter() - began
                scores[role][seed] = float(score(model))
            order = [*order[1:], order[0]]
    return Experiment(**scores, seconds=seconds)


def pairs_needed(spread: float, margin: float) -> int:
    """So many pairs ship an equally good candidate with a chance of 90 %.

    Args:
        spread: the standard deviation of the differences, which are taken to be normal.
        margin: what ``Experiment.decide`` will be given.

    Raises:
        ValueError: it takes more than 1,000,000.

    >>> pairs_needed(0.01, 0.01)
    13
    """
    found = 2 + bisect_left(
        range(2, _MOST_PAIRS), True, key=lambda n: _reach(n) * spread <= margin * sqrt(n)
    )
    if found >= _MOST_PAIRS:
        raise ValueError(f"a margin of {margin:g} is too small beside a spread of {spread:g}")
    return found


@cache
def _reach(pairs: int) -> float:
    """Standard errors between the truth and a bound that 90 % of intervals lie wholly beyond.

    The lower end of the interval of n differences with mean d and standard deviation 1 lies above 0
    where z + d sqrt(n) > t s: z is normal, and s**2 a chi-squared variate over its n - 1 degrees of
    freedom. So d sqrt(n) must reach the 90 % quantile of t s - z, which is simulated.
    """
    source = np.random.default_rng(0)
    z = source.standard_normal(100_000)
    s = np.sqrt(source.chisquare(pairs - 1, 100_000) / (pairs - 1))
    return float(np.quantile(t_quantile(pairs) * s - z, POWER))


def _dead(scores: dict[int, float]) -> int:
    return sum(not isfinite(score) for score in scores.values())
