"""What pairs say against a margin that was named beforehand: an interval, and one of four words.

"No significant difference" is not "no difference". Two arms are equivalent when an interval of
their difference fits inside the margin, different when all of it lies beyond, and an interval that
does neither is an honest "inconclusive". An A/A control compares an arm with itself in the same
pairs. Where its own interval leaves out "no difference", equal arms differ here, and every other
interval is widened by that distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, isnan, log, log1p, nan, sqrt
from statistics import fmean, median, stdev

TIME_MARGIN = 0.02
"""A step that takes 2 % more or less: what ``benchmark`` and ``measure`` call no difference."""
CONTROL_MARGIN = 0.05
"""How far from 1 the interval of an A/A control of times may reach before it counts as bad."""
FEWEST_ROUNDS = 5
STALL = log(1.2)
"""Of a log ratio: a round that is off by less is never left out."""

# The 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook of
# Statistical Methods, section 1.3.6.7.2.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What pairs say against a margin.

    Args:
        pairs, margin, step, times: what ``verdict`` was asked.
        mean: of the pairs, of times the geometric one; NaN without an interval.
        low, high: ends of the 95 % interval of the mean, widened by the control; NaN if there is
            none: a pair is not finite, or there are fewer than five ratios of times.
        answer: "equivalent", "worse", "better" or "inconclusive"; of times "faster" and "slower".
        coarse: the pairs' own spread is no more than the step of the measure.
        left_out: how many rounds a stall disturbed, which count in no other number.
    """

    pairs: tuple[float, ...]
    margin: float
    step: float
    times: bool
    mean: float
    low: float
    high: float
    answer: str
    coarse: bool
    left_out: int

    @property
    def interval(self) -> str:
        """The mean with its interval, or why there is none."""
        if not self.times:
            return self._with_ends("one step" if self.coarse else "")
        rounds = len(self.pairs)
        if rounds < FEWEST_ROUNDS:
            return f"not known from {rounds} rounds, take {FEWEST_ROUNDS} or more"
        if isnan(self.low):
            return "not known: the clock showed 0, time more work at once"
        stalls = f"without {self.left_out} disturbed of {rounds}" if self.left_out else ""
        return self._with_ends("as coarse as the clock" if self.coarse else "", stalls)

    def _with_ends(self, *notes: str) -> str:
        form = ".3f" if self.times else "+.4f"
        ends = f"95 % CI {self.low:{form}} to {self.high:{form}}"
        return f"{self.mean:{form}} ({', '.join([ends, *filter(None, notes)])})"

    def describe(self) -> str:
        """One line, with the unit as it came in."""
        number, margin = len(self.pairs), f"{self.margin:g}"
        if self.times:
            margin = f"{100 * self.margin:g} %"
            line = f"time ratio {self.interval}, {number} rounds,"
        else:
            line = self._with_ends(f"{number} pairs")
        line += f" against a margin of {margin}: {self.answer}"
        if self.times or not self.coarse:
            return line
        step = f"is one step of the measure, {self.step:.2g}: it cannot show less"
        alike = "All pairs differ by as much: the interval shows a coarse measure, not certainty"
        return f"{line}. {f'The interval {step}' if self.step else alike}"


def verdict(
    pairs: Sequence[float],
    margin: float,
    *,
    control: Sequence[float] = (),
    step: float = 0.0,
    times: bool = False,
) -> Verdict:
    """Equivalent, worse, better or inconclusive, by a 95 % interval from Student's t.

    "equivalent": the interval lies inside -margin to +margin, also where it leaves out 0. "worse":
    all of it below -margin. "better": all of it above +margin. Anything else is "inconclusive".
    Each of these words is wrong in at most 2.5 % of cases, for normal differences: equivalence at
    the usual 5 % (two one-sided tests, Schuirmann 1987) would be a 90 % interval.
    Above 30 degrees of freedom the quantile stays that of 30, 2.042: the exact one falls to 1.960,
    so the interval is at most 4 % too wide and never too narrow.

    Ratios of times are judged by their logarithms, without stalled rounds (``without_stalls``):
    "faster" is an interval below 1/(1 + margin), "slower" one above 1 + margin. For equal arms
    these words are wrong in 2.5 % of cases on each side, in up to 4 % with five rounds that scatter
    by over 7 %, and in more where the noise of an arm lasts from round to round.

    A pair that is NaN or infinite (a run that left no number, a clock that showed 0) makes the
    interval NaN and the answer "inconclusive".

    Args:
        pairs: differences, above 0 is better; with ``times`` ratios, below 1 is faster.
        margin: decided before the run.
        control: pairs of an arm with itself. As far as their own interval leaves out "no
            difference", the interval is widened at both ends.
        step: the smallest difference that the measure can show, such as 1 / images for an accuracy.
            The interval reaches at least so far to both sides of the mean: pairs that agree to the
            last image do not show that nothing changed.
        times: the pairs are ratios of times; five or more have an interval.

    Raises:
        ValueError: fewer than 2 differences, or a margin that is not above 0.

    >>> verdict([0.2, -0.3, -0.1, 0.4, -0.7], margin=0.5).describe()
    '-0.1000 (95 % CI -0.6340 to +0.4340, 5 pairs) against a margin of 0.5: inconclusive'
    >>> faster = [0.90, 0.92, 0.89, 0.91, 0.90, 0.93, 0.91, 0.88]
    >>> again = [1.01, 0.99, 1.00, 1.02, 0.98, 1.00, 0.99, 1.01]
    >>> verdict(faster, margin=0.02, control=again, times=True).describe()
    'time ratio 0.905 (95 % CI 0.892 to 0.918), 8 rounds, against a margin of 2 %: faster'
    """
    pairs = tuple(map(float, pairs))
    if len(pairs) < 2 and not times:
        raise ValueError(
            f"{len(pairs)} paired differences have no spread: pass 2 or more, 5 is usual"
        )
    check_margin(margin)
    mean, half, left_out = _estimate(pairs, times)
    reach = max(half, step)
    if len(control):
        middle, own, _ = _estimate(control, times)
        reach += max(abs(middle) - max(own, step), 0.0)  # in this order a NaN stays one
    low, high = mean - reach, mean + reach
    limit, below, above = margin, "worse", "better"
    if times:
        limit, below, above = log1p(margin), "faster", "slower"
    if high < -limit:
        answer = below
    elif low > limit:
        answer = above
    else:
        answer = "equivalent" if -limit < low and high < limit else "inconclusive"
    if times:
        mean, low, high = exp(mean), exp(low), exp(high)
    return Verdict(
        pairs=pairs,
        margin=margin,
        step=step,
        times=times,
        mean=mean,
        low=low,
        high=high,
        answer=answer,
        coarse=low == high if times else half <= step,
        left_out=left_out,
    )


def _estimate(pairs: Sequence[float], times: bool) -> tuple[float, float, int]:
    """The mean, of times of their logarithms, half the width of its interval, and the stalls."""
    if times:
        return without_stalls([log(ratio) for ratio in pairs])
    if not all(map(isfinite, pairs)):
        return nan, nan, 0
    return fmean(pairs), t_quantile(len(pairs)) * stdev(pairs) / sqrt(len(pairs)), 0


def t_quantile(pairs: int) -> float:
    """The 97.5 % quantile of Student's t for 2 pairs or more; beyond 31 that of 31 pairs.

    >>> t_quantile(5)
    2.776
    """
    return _T[min(pairs - 1, len(_T)) - 1]


def without_stalls(values: Sequence[float]) -> tuple[float, float, int]:
    """Of log ratios the middle, half its 95 % interval, and how many were left out.

    NaN for fewer than 5 values or one that is not finite. Left out is what a stall explains better
    than scatter: values further from the median than ``STALL`` and than 6 + 30 / n median absolute
    deviations, which is 8 standard deviations of 5 normal values and 5 of 30; nothing where these
    are more than a third and all on one side, which is an arm's own and no stall. The middle is the
    mean of the others, at least half of all. The interval is Student's t of them, times n over
    their number (Tukey and McLaughlin's factor for a trimmed mean). Values must be independent and
    scatter alike to both sides, as log ratios of equally disturbed arms do, but need not be normal.
    In simulations it covers 95 % where they scatter by 7 % or less, 92 % or more beyond.

    Source: Davies and Gather 1993, The Identification of Multiple Outliers; Wilcox, Introduction to
    Robust Estimation and Hypothesis Testing, section 4.3.
    """
    if len(values) < FEWEST_ROUNDS or not all(map(isfinite, values)):
        return nan, nan, 0
    center = median(values)
    deviation = median(abs(value - center) for value in values)
    # A coarse clock shows no scatter that a stall could be told from.
    bound = max(STALL, (6 + 30 / len(values)) * deviation) if deviation else inf
    kept = [value for value in values if abs(value - center) <= bound]
    sides = {value > center for value in values if abs(value - center) > bound}
    if len(sides) == 1 and 3 * len(kept) < 2 * len(values):
        kept = list(values)
    middle, half, _ = _estimate(kept, times=False)
    return middle, half * len(values) / len(kept), len(values) - len(kept)


def check_margin(margin: float) -> None:
    """ValueError unless the margin is above 0 and finite."""
    if not 0 < margin < inf:
        raise ValueError(f"margin={margin!r}: pass a difference above 0 that would not matter")
