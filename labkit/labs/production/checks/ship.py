"""Check of lab 15: whether paired scores let a candidate ship, reject it, or decide nothing."""

import math
import random
from statistics import StatisticsError, fmean, stdev

import numpy as np

from labkit.labs.engine import AnswerError, Mistake, attempt, check, word
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "15_production"

OTHER = "{name}: `{call}` is {got}; {want} is wanted. {why}"
INTERVAL = (
    "The {count} differences have mean {mean} and sample standard deviation {sd}, so their "
    "interval goes from {low} to {high}, and -margin is {bar}: {where}."
)
WHERE = {
    "ship": "all of the interval lies above it",
    "reject": "all of the interval lies below it",
    "hold": "it lies inside the interval",
}
DEAD_REFERENCE = "The reference's run of seed {seed} crashed, so there is nothing to compare with."
DEAD_CANDIDATE = (
    "The candidate's run of seed {seed} crashed, and all runs of the reference have a score."
)
NO_ERROR = "{name}: `{call}` is {came}; a ValueError is wanted. {why}"
OTHER_ERROR = "{name}: `{call}` raised {error}; a ValueError is wanted. {why}"
RAISED = "{name}: `{call}` raised {error}; {want} is wanted. {why}"
TOO_FEW = "One pair has no standard deviation."
NO_PAIR = "There is no pair at all."
CRASHED_COUNTS = "A pair with a crashed run counts as a pair: here are {count:d}."
UNPAIRED = "Of seed {seed} only the {arm} has a score."

_OF_THE_SCORE = (
    "Your words are those of a margin that is a share of the reference's score; the margin is a "
    "drop of the score itself."
)
# What people compute: in place of t / sqrt(n), and of the difference of a pair.
_RIVALS = (
    (
        "Your words are those of a standard deviation that divides by n; divide by n - 1.",
        {"factor": lambda t, n: t * math.sqrt(1 - 1 / n) / math.sqrt(n)},
    ),
    (
        "Your words are those of s over the root of n - 1; divide by the root of n.",
        {"factor": lambda t, n: t / math.sqrt(n - 1)},
    ),
    (
        "Your words are those of s over n; divide by the root of n.",
        {"factor": lambda t, n: t / n},
    ),
    (
        "Your words are those of an interval without t.",
        {"factor": lambda t, n: 1 / math.sqrt(n)},
    ),
    (_OF_THE_SCORE, {"unit": lambda scores: abs(scores.mean())}),
    (_OF_THE_SCORE, {"unit": abs}),
)
_NAN = float("nan")  # another object than math.nan, which `in` would find
# Student's t, 97.5 %, for n pairs: n - 1 degrees of freedom (any table of it).
_T = {0: _NAN, 1: _NAN, 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365}
_SCORES = 0.9012, 0.8634, 0.9321, 0.8475, 0.9158, 0.8823, 0.9407, 0.8719
_WORDS = "ship", "reject", "hold"


def _paired(gains, *, scores=_SCORES, margin=0.01, places=4):
    """A reference, a candidate with its seeds in another order, a margin and t.

    The gains are in units of 0.001.
    """
    n = len(gains)
    reference = dict(zip(range(n), scores, strict=False))
    by_seed = [(seed, round(reference[seed] + gains[seed] / 1000, places)) for seed in range(n)]
    return reference, dict(by_seed[1::2] + by_seed[::2]), margin, _T[n]


def _with(case, *, reference=(), candidate=()):
    """A case with other scores in it; None for a seed takes the seed away."""
    arms = [dict(case[0]) | dict(reference), dict(case[1]) | dict(candidate)]
    kept = [{seed: score for seed, score in arm.items() if score is not None} for arm in arms]
    return *kept, case[2], _T[max(map(len, kept))]


_FAR = 0.8812, 0.8821, 0.8805, 0.8816, 0.9534
_THREE = 0.9012, 0.9321, 0.8943
_LOSSES = -2.3105, -2.2874, -2.3342, -2.2951


def _cases(seed):
    """The arguments of each call, by what is special about it."""
    fine = _paired((-2, -4, -3, -3, -2, -4))
    bad = _paired((-30, -34, -33, -31, -35, -32))
    pair, two = _paired((2,)), _paired((-2, -3))
    made = {
        "the example": _paired((-2, -4, -3, -3)),
        "worse for certain, by less than the margin": _paired((-5, -6, -5, -6, -5)),
        "worse by more than the margin": _paired((-20, -23, -21, -24, -22)),
        "three pairs that differ much": _paired((-15, 12, -3)),
        "a mean below -margin, and few pairs": _paired((-25, -5, -12)),
        "better by more than the margin": _paired((25, 22, 24, 26)),
        "three pairs that differ a little": _paired((-1, -4, -7)),
        "worse for certain, perhaps by less than the margin": _paired((-11, -14, -8, -9, -13)),
        # With a deviation that divides by n it would ship.
        "a little too wide": _paired((0, -3.4, -6.6, -8.2)),
        # With the root of n - 1 in the error of the mean it would not.
        "just narrow enough": _paired((-1.5, -3.2, -6.3, -8.5)),
        "one pair below -margin": _paired((2, 3, -11, 4, 3, 2, 5, 3)),
        # Around the median it would ship.
        "one pair far below the others": _paired((-2, -2.5, -2, -2.5, -13)),
        "one large gain": _paired((-11, -9.5, -10.5, -11, 40)),
        "just within the margin": _paired((-9.4, -9.5, -9.6, -9.5)),
        "just beyond the margin": _paired((-10.4, -10.5, -10.6, -10.5)),
        "negative scores": _paired((-20, -26, -24, -22), scores=_LOSSES, margin=0.05),
        "negative scores, a small margin": _paired((-20, -26, -24, -22), scores=_LOSSES),
        # Paired by their place in the dicts, these runs would differ as little.
        "one seed far from the others": _paired((-2, -3, -2, -3, -2), scores=_FAR),
        "the same scores for other seeds": _paired((30.9, -37.8, 6.9), scores=_THREE),
        "two pairs": _paired((1, -2)),
        "equal scores": _paired((0, 0, 0)),
        # Halves of halves: the differences are equal in all bits.
        "the same drop in all pairs": _paired((-125, -125, -125), scores=(0.75, 0.875, 0.625)),
        "a candidate's run that crashed": _with(fine, candidate={4: _NAN}),
        "a bad candidate's run that crashed": _with(bad, candidate={2: _NAN}),
        "a reference run that crashed": _with(fine, reference={1: _NAN}),
        "a reference run that crashed, a bad candidate": _with(bad, reference={5: _NAN}),
        "both runs of a seed crashed": _with(fine, reference={3: _NAN}, candidate={3: _NAN}),
        "a run of each arm crashed": _with(fine, reference={0: _NAN}, candidate={5: _NAN}),
        # Seed 1 stands before seed 4 in both dicts.
        "a run of each arm crashed, the candidate's first": _with(
            fine, reference={4: _NAN}, candidate={1: _NAN}
        ),
        "two pairs, and a candidate's run that crashed": _with(two, candidate={1: _NAN}),
        "two pairs, and a reference run that crashed": _with(two, reference={0: _NAN}),
        "one pair": pair,
        "one pair of two runs that crashed": _with(pair, reference={0: _NAN}, candidate={0: _NAN}),
        "a candidate's run that is missing": _with(fine, candidate={4: None}),
        "a reference run that is missing": _with(fine, reference={2: None}),
        "other seeds": _with(fine, candidate={4: None, 17: 0.9}),
        "a missing run, and a candidate's run that crashed": _with(
            fine, candidate={4: None, 2: _NAN}
        ),
        "a missing run, and a reference run that crashed": _with(
            fine, reference={1: _NAN}, candidate={4: None}
        ),
        "no pair": ({}, {}, 0.01, _NAN),
    }
    draw = random.Random(seed)
    for i in range(8):
        mean, sd = draw.choice((-25, -13, -8, -3, 4)), draw.choice((1, 3, 8))
        count = draw.choice((3, 4, 5, 6))
        gains = tuple(round(draw.gauss(mean, sd), 1) for _ in range(count))
        made[f"drawn pairs {i}"] = _paired(gains, scores=draw.sample(_SCORES, count))
    return made


def run_ship(ship, seed):
    """What comes back for each case."""
    return [
        attempt(ship, dict(reference), dict(candidate), margin, t)
        for reference, candidate, margin, t in _cases(seed).values()
    ]


@check(run_ship, own_work=("labkit.measuring.verdict",))
def check_ship(answers, seed):
    """Ship, reject or hold: a margin, paired differences, and crashed runs that count."""
    for (name, case), got in zip(_cases(seed).items(), answers, strict=True):
        call = "ship({}, {}, margin={}, t={})".format(*map(_shown, case))
        said = {"name": name, "call": call}
        if wrong := _refused(*case):
            _raises_value_error(got, why=wrong, **said)
            continue
        want, why = _wanted(*case)
        if type(got) is Raised:
            if sum(math.isfinite(x + y) for x, y in _scores(*case)) < 2:
                why = f"{why} {fill(CRASHED_COUNTS, count=len(case[0]))}"
            raise AnswerError(RAISED, error=failure(got), want=want, why=why, **said)
        if (heard := word(got, _WORDS, call=call)) != want:
            why = f"{why} {_rival(answers, seed)}"
            raise Mistake(OTHER, got=heard, want=want, why=why, **said)


def _rival(answers, seed):
    """The sentence of the only rivals that give the answer's words in all cases; or ""."""
    cases = _cases(seed).values()
    given = [x.casefold() if type(x) is str else "" for x in answers]
    fitting = {
        sentence
        for sentence, terms in _RIVALS
        if given == ["" if _refused(*case) else _wanted(*case, **terms)[0] for case in cases]
    }
    return fitting.pop() if len(fitting) == 1 else ""


def _scores(reference, candidate, *_):
    """The scores of each pair."""
    return [(reference[seed], candidate[seed]) for seed in reference]


def _shown(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{seed}: {_shown(x)}" for seed, x in value.items()) + "}"
    return f"{value:.7g}"


def _refused(reference, candidate, *_):
    """Why these are no pairs, as a sentence; "" for pairs."""
    for seed in [*reference, *candidate]:
        if (seed in reference) != (seed in candidate):
            arm = "reference" if seed in reference else "candidate"
            return fill(UNPAIRED, seed=seed, arm=arm)
    return "" if len(reference) >= 2 else TOO_FEW if reference else NO_PAIR


def _raises_value_error(got, **said):
    if type(got) is not Raised:
        raise Mistake(NO_ERROR, came=came(got), **said)
    # StatisticsError, which statistics.stdev raises of one value, is a ValueError.
    if got.type_name not in ("ValueError", "StatisticsError"):
        raise Mistake(OTHER_ERROR, error=failure(got), **said)


def _wanted(reference, candidate, margin, t, factor=None, unit=None):
    """The word, and the sentence that says why.

    A rival has another ``factor`` than t / sqrt(n), or a ``unit`` of the differences.
    """
    for arm, word_of_arm, why in (
        (reference, "hold", DEAD_REFERENCE),
        (candidate, "reject", DEAD_CANDIDATE),
    ):
        dead = [seed for seed, score in arm.items() if math.isnan(score)]
        if dead:
            return word_of_arm, fill(why, seed=dead[0])
    scores, others = np.array(_scores(reference, candidate)).T
    gains = (others - scores) / (unit(scores) if unit else 1)
    mean, sd = gains.mean().item(), gains.std(ddof=1).item()
    half = sd * (factor(t, len(gains)) if factor else t / math.sqrt(len(gains)))
    low, high = mean - half, mean + half
    want = "ship" if low > -margin else "reject" if high < -margin else "hold"
    said = {"mean": mean, "sd": sd, "low": low, "high": high, "bar": -margin}
    return want, fill(INTERVAL, count=len(gains), where=WHERE[want], **said)


_DECIDED = (
    'if fmean(gains) - half > -margin:\n        return "ship"\n'
    '    return "reject" if fmean(gains) + half < -margin else "hold"'
)
_NOT_SIGNIFICANT = (
    "An interval that holds 0 says that you could not see a difference. Could you have seen one as "
    "large as the margin?"
)
_SIGNIFICANT = "The candidate is worse for certain. Which number says how much worse it may be?"

check_ship.slip(
    "the-mean-decides",
    "Five more seeds would give another mean. How far may it move?",
    swap=("half = t * stdev(gains) / math.sqrt(len(gains))", "half = 0.0"),
)
check_ship.slip(
    "three-runs-are-many",
    "Your factor fits many pairs. Which factor belongs to these few?",
    swap=("half = t *", "half = 1.96 *"),
)
check_ship.slip(
    "the-spread-is-the-error-of-the-mean",
    "The mean of n differences varies less than one difference. By which factor?",
    cut=" / math.sqrt(len(gains))",
)
check_ship.slip(
    "pairs-need-no-pairing",
    "You took the spread of the scores. What is left of it in the difference of two runs with the "
    "same seed?",
    swap=("stdev(gains)", "math.hypot(stdev(reference.values()), stdev(candidate.values()))"),
)
check_ship.slip(
    "dict-order-is-pairing",
    "The two dicts list their seeds in different orders. By what do you find the partner of a run?",
    swap=(
        "[candidate[seed] - reference[seed] for seed in reference]",
        "[c - r for r, c in zip(reference.values(), candidate.values())]",
    ),
)
check_ship.slip(
    "less-is-better",
    "A score is higher where a run is better. What does a positive difference say?",
    swap=("candidate[seed] - reference[seed]", "reference[seed] - candidate[seed]"),
)
check_ship.slip(
    "a-guardrail-has-two-sides",
    "May a candidate that is better by more than the margin ship?",
    swap=(
        "if fmean(gains) - half > -margin:",
        "if fmean(gains) - half > -margin and fmean(gains) + half < margin:",
    ),
)
check_ship.slip(
    "not-significant-means-equal",
    _NOT_SIGNIFICANT,
    swap=(_DECIDED, 'return "reject" if fmean(gains) + half < 0 else "ship"'),
)
check_ship.slip(
    "not-significant-means-equal",
    _NOT_SIGNIFICANT,
    swap=(
        "if fmean(gains) - half > -margin:",
        "if fmean(gains) - half > -margin or fmean(gains) + half > 0:",
    ),
)
check_ship.slip(
    "significant-means-it-matters",
    _SIGNIFICANT,
    swap=("fmean(gains) + half < -margin", "fmean(gains) + half < 0"),
)
check_ship.slip(
    "significant-means-it-matters",
    _SIGNIFICANT,
    swap=(
        _DECIDED,
        'if fmean(gains) + half < 0:\n        return "reject"\n'
        '    return "ship" if fmean(gains) - half > -margin else "hold"',
    ),
)
check_ship.slip(
    "each-pair-must-stay-within",
    "You look at each pair alone. What does the rule look at?",
    swap=(
        _DECIDED,
        'if min(gains) > -margin:\n        return "ship"\n'
        '    return "reject" if max(gains) < -margin else "hold"',
    ),
)


def _decided(gains, margin, t):
    half = t * stdev(gains) / math.sqrt(len(gains))
    if fmean(gains) - half > -margin:
        return "ship"
    return "reject" if fmean(gains) + half < -margin else "hold"


def _of_survivors(reference, candidate, margin, t):
    gains = [candidate[seed] - reference[seed] for seed in reference]
    return _decided([gain for gain in gains if math.isfinite(gain)], margin, t)


_CRASHED = (
    "You left out the pair of a run that crashed. What does a crash say about the arm that crashed?"
)


@check_ship.wrong("crashed-runs-are-missing-data", _CRASHED)
def ship_survivors(reference, candidate, margin, t):
    if len(reference) < 2 or reference.keys() != candidate.keys():
        raise ValueError("pairs")
    return _of_survivors(reference, candidate, margin, t)


@check_ship.wrong("crashed-runs-are-missing-data", _CRASHED)
def ship_survivors_of_the_candidate(reference, candidate, margin, t):
    if len(reference) < 2 or reference.keys() != candidate.keys():
        raise ValueError("pairs")
    if any(map(math.isnan, reference.values())):
        return "hold"
    return _of_survivors(reference, candidate, margin, t)


def _nan_holds(answer):
    """The answer in numpy: a single survivor has a NaN for a deviation, and no error."""

    @check_ship.wrong("crashed-runs-are-missing-data", _CRASHED)
    def ship_by_numpy(*arguments):
        try:
            return answer(*arguments)
        except StatisticsError:
            return "hold"

    return ship_by_numpy


ship_survivors_by_numpy = _nan_holds(ship_survivors)
ship_survivors_of_the_candidate_by_numpy = _nan_holds(ship_survivors_of_the_candidate)


@check_ship.wrong(
    "common-seeds-are-enough",
    "You compare the seeds that both arms have. What may have happened to the run that is missing?",
)
def ship_common_seeds(reference, candidate, margin, t):
    seeds = [seed for seed in reference if seed in candidate]
    if len(seeds) < 2:
        raise ValueError("pairs")
    if any(math.isnan(reference[seed]) for seed in seeds):
        return "hold"
    if any(math.isnan(candidate[seed]) for seed in seeds):
        return "reject"
    return _decided([candidate[seed] - reference[seed] for seed in seeds], margin, t)
