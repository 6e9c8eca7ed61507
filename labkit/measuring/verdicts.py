"""What paired runs say against a margin named beforehand: an interval, and one of four words.

"No significant difference" is not "no difference". Two arms are equivalent when an interval of
their difference fits inside the margin, different when all of it lies beyond, and an interval that
does neither is an honest "inconclusive". An A/A control compares an arm with itself in the same
pairs. Where its own interval leaves out "no difference", equal arms differ here, and every other
interval is widened by that distance. ``verdict`` judges differences, ``time_verdict`` ratios of
times.
"""

from collections.abc import Mapping, Sequence
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


# Differences


@dataclass(frozen=True)
class Verdict:
    """What paired differences say against a margin.

    Args:
        differences: one a pair, in the unit of the margin; above 0 is better.
        margin: the largest difference that would not matter.
        mean: of the differences; NaN if one of them is not finite.
        low, high: ends of the 95 % interval of the mean, widened by the control; NaN likewise.
        answer: "equivalent", "worse", "better" or "inconclusive".
        coarse: the width of the interval is the step of the measure and not the pairs' own spread.
        step: the smallest difference that the measure can show; 0 where it is not known.
    """

    differences: tuple[float, ...]
    margin: float
    mean: float
    low: float
    high: float
    answer: str
    coarse: bool
    step: float

    def describe(self) -> str:
        """One line, with the unit as it came in."""
        line = (
            f"{self.mean:+.4f} (95 % CI {self.low:+.4f} to {self.high:+.4f}, "
            f"{len(self.differences)} pairs) against a margin of {self.margin:g}: {self.answer}"
        )
        return f"{line}. {self.coarseness}" if self.coarse else line

    @property
    def coarseness(self) -> str:
        """What the width of a coarse interval is."""
        if self.step:
            return f"The interval is one step of the measure, {self.step:.2g}: it cannot show less"
        return "All pairs differ by as much: the interval shows a coarse measure, not certainty"


def verdict(
    differences: Sequence[float], margin: float, *, control: Sequence[float] = (), step: float = 0.0
) -> Verdict:
    """Equivalent, worse, better or inconclusive, by a 95 % interval from Student's t.

    "equivalent": the interval lies inside -margin to +margin, also where it leaves out 0. "worse":
    all of it below -margin. "better": all of it above +margin. Anything else is "inconclusive".
    Each of these words is wrong in at most 2.5 % of cases, for normal differences: equivalence at
    the usual 5 % (two one-sided tests, Schuirmann 1987) would be a 90 % interval.
    Above 30 degrees of freedom the quantile stays that of 30, 2.042: the exact one falls to 1.960,
    so the interval is at most 4 % too wide and never too narrow.

    A difference that is NaN or infinite (a run that left no number) makes the interval NaN and the
    answer "inconclusive": which of the two runs failed is not known here.

    Args:
        control: differences of an arm to itself. As far as their own interval leaves out 0, the
            interval is widened at both ends.
        step: the smallest difference that the measure can show, such as 1 / images for an accuracy.
            The interval reaches at least so far to both sides of the mean: pairs that agree to the
            last image do not show that nothing changed.

    Raises:
        ValueError: fewer than 2 differences, or a margin that is not above 0.

    >>> verdict([0.2, -0.3, -0.1, 0.4, -0.7], margin=0.5).describe()
    '-0.1000 (95 % CI -0.6340 to +0.4340, 5 pairs) against a margin of 0.5: inconclusive'
    """
    differences = tuple(map(float, differences))
    if len(differences) < 2:
        raise ValueError(
            f"{len(differences)} paired differences have no spread: pass 2 or more, 5 is usual"
        )
    check_margin(margin)
    mean, half = _mean_and_half(differences)
    reach = max(half, step)
    if control:
        middle, half_of_control = _mean_and_half(control)
        own = max(half_of_control, step)
        reach += _left_out(middle - own, middle + own)
    low, high = mean - reach, mean + reach
    return Verdict(
        differences=differences,
        margin=margin,
        mean=mean,
        low=low,
        high=high,
        answer=_answer(low, high, margin, ("worse", "better")),
        coarse=half <= step,
        step=step,
    )


def _mean_and_half(differences: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its interval; NaN for a difference that is not finite."""
    if not all(map(isfinite, differences)):
        return nan, nan
    half = t_quantile(len(differences)) * stdev(differences) / sqrt(len(differences))
    return fmean(differences), half


def t_quantile(pairs: int) -> float:
    """The 97.5 % quantile of Student's t for 2 pairs or more; beyond 31 that of 31 pairs.

    >>> t_quantile(5)
    2.776
    """
    return _T[min(pairs - 1, len(_T)) - 1]


# Times


@dataclass(frozen=True, kw_only=True)
class TimeVerdict:
    """What paired rounds say of the time of one arm over that of another.

    Args:
        ratio: the geometric mean of the rounds; below 1 is faster. NaN without an interval.
        low, high: ends of its 95 % interval, widened by the control; NaN likewise.
        rounds: how many ratios there were.
        left_out: how many of them a stall disturbed, which count in no other number.
        margin: 0.02 if times from 1/1.02 to 1.02 of the other's would not matter.
        answer: "equivalent", "faster", "slower" or "inconclusive".
    """

    ratio: float
    low: float
    high: float
    rounds: int
    left_out: int
    margin: float
    answer: str

    @property
    def interval(self) -> str:
        """The ratio with its interval, or why there is none."""
        if self.rounds < FEWEST_ROUNDS:
            return f"not known from {self.rounds} rounds, take {FEWEST_ROUNDS} or more"
        if isnan(self.low):
            return "not known: the clock showed 0, time more work at once"
        alike = ", as coarse as the clock" if self.low == self.high else ""
        stalls = f", without {self.left_out} disturbed of {self.rounds}" if self.left_out else ""
        return f"{self.ratio:.3f} (95 % CI {self.low:.3f} to {self.high:.3f}{alike}{stalls})"

    def describe(self) -> str:
        """One line."""
        return (
            f"time ratio {self.interval}, {self.rounds} rounds, "
            f"against a margin of {100 * self.margin:g} %: {self.answer}"
        )


def time_verdict(
    ratios: Sequence[float], *, control: Sequence[float] | None = None, margin: float = TIME_MARGIN
) -> TimeVerdict:
    """Equivalent, faster, slower or inconclusive: an interval on the log ratio against a margin.

    "equivalent": the interval lies inside 1/(1 + margin) to 1 + margin. "faster": all of it below.
    "slower": all of it above. Anything else is "inconclusive". The interval is that of
    ``shift_interval``. For arms that differ by no more than the margin, "faster" or "slower" is
    wrong in 2.5 % of cases on its side, in up to 4 % with five rounds that scatter by over 7 %, and
    in more where the noise of an arm lasts from round to round.

    Args:
        ratios: the time of one arm over that of the other, one a round; NaN where the clock
            showed 0, which leaves no interval.
        control: an arm's second time over its first, in the same rounds. As far as its interval
            leaves out 1, the other interval is widened at both ends. None for the control itself.
        margin: the largest difference that would not matter, decided before the run.

    Raises:
        ValueError: a margin that is not above 0.

    >>> faster = [0.90, 0.92, 0.89, 0.91, 0.90, 0.93, 0.91, 0.88]
    >>> again = [1.01, 0.99, 1.00, 1.02, 0.98, 1.00, 0.99, 1.01]
    >>> time_verdict(faster, control=again).describe()
    'time ratio 0.905 (95 % CI 0.892 to 0.918), 8 rounds, against a margin of 2 %: faster'
    """
    check_margin(margin)
    low, middle, high, left_out = shift_interval([log(ratio) for ratio in ratios])
    if control is not None:
        least, _, most, _ = shift_interval([log(ratio) for ratio in control])
        widening = _left_out(least, most)
        low, high = low - widening, high + widening
    return TimeVerdict(
        ratio=exp(middle),
        low=exp(low),
        high=exp(high),
        rounds=len(ratios),
        left_out=left_out,
        margin=margin,
        answer=_answer(low, high, log1p(margin), ("faster", "slower")),
    )


def shift_interval(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Low end, middle and high end of a 95 % interval of log ratios, and how many were left out.

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
        return nan, nan, nan, 0
    center = median(values)
    deviation = median(abs(value - center) for value in values)
    # A coarse clock shows no scatter that a stall could be told from.
    bound = max(STALL, (6 + 30 / len(values)) * deviation) if deviation else inf
    kept = [value for value in values if abs(value - center) <= bound]
    sides = {value > center for value in values if abs(value - center) > bound}
    if len(sides) == 1 and 3 * len(kept) < 2 * len(values):
        kept = list(values)
    middle, half = _mean_and_half(kept)
    half *= len(values) / len(kept)
    return middle - half, middle, middle + half, len(values) - len(kept)


def control_trouble(controls: Mapping[str, TimeVerdict]) -> str:
    """What is wrong with A/A controls, by what ran twice; empty if their intervals lie within 5 %.

    The bound is ``CONTROL_MARGIN``, which each control was judged by.
    """
    bad = [f"{of} {c.interval}" for of, c in controls.items() if c.answer != "equivalent"]
    if not bad:
        return ""
    return (
        f"Bad A/A control, time ratio of identical runs: {'; '.join(bad)}. The interval should lie "
        f"within {100 * CONTROL_MARGIN:g} % of 1."
    )


# Both


def check_margin(margin: float) -> None:
    """ValueError unless the margin is above 0 and finite."""
    if not 0 < margin < inf:
        raise ValueError(f"margin={margin!r}: pass a difference above 0 that would not matter")


def _left_out(low: float, high: float) -> float:
    """How far an interval lies from 0."""
    return nan if isnan(low) or isnan(high) else max(0.0, low, -high)


def _answer(low: float, high: float, margin: float, beyond: tuple[str, str]) -> str:
    if high < -margin:
        return beyond[0]
    if low > margin:
        return beyond[1]
    return "equivalent" if -margin < low and high < margin else "inconclusive"
