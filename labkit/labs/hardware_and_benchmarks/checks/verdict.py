"""Check of lab 06, sitting B: what paired rounds and their A/A control say against a margin."""

import math
import random
from statistics import fmean, stdev

from labkit.labs.engine import Mistake, calls, check, word
from labkit.labs.engine.messages import fill
from labkit.labs.hardware_and_benchmarks import solutions

LAB = "06_hardware_and_benchmarks"

_OTHER_WORD = (
    "{name}: `{call}` is {got}. The interval of the ratios goes from {low} to {high}, and that of "
    "the control from {least} to {most}{widened}. The margin allows {inside} to {outside}. {why}"
)
_WIDENED = (
    ". The control's interval leaves out 1: widened on both sides by the distance of its nearer "
    "end from 1, the interval of the ratios goes from {low} to {high}"
)
_WORDS = {
    "equivalent": "All of the interval lies inside the margin: equivalent.",
    "faster": "All of the interval lies below the margin: faster.",
    "slower": "All of the interval lies above the margin: slower.",
    "inconclusive": "The interval crosses an end of the margin: inconclusive.",
}

_STILL = [1.01, 0.99, 1.0, 1.01, 0.99]
_DRIFT = [1.05, 1.04, 1.06, 1.05, 1.05]
_ROUNDS = {
    # ratios of the rounds, the control's, the margin
    "A/A": ([1.0, 1.002, 0.999, 1.001, 0.998], _STILL, 0.02),
    "a quiet machine": ([0.91, 0.9, 0.92, 0.91, 0.9], _STILL, 0.02),
    "slower": ([1.3, 1.32, 1.29, 1.31, 1.3], _STILL, 0.02),
    "noisy": ([0.8, 1.1, 0.95, 1.2, 0.9], [0.9, 1.1, 1.05, 0.92, 1.04], 0.02),
    # With the variance for the deviation it is inconclusive too, with the mean alone equivalent.
    "very noisy": ([0.5, 2.0, 0.6, 1.8, 0.95], _STILL, 0.02),
    "small but certain": ([0.995, 0.994, 0.996, 0.995, 0.995], _STILL, 0.02),
    "small beside a wide margin": ([0.9, 0.902, 0.898, 0.9, 0.9], _STILL, 0.15),
    "faster, and perhaps by less than the margin": ([0.985, 0.96, 0.97, 0.975, 0.96], _STILL, 0.02),
    "slower, and perhaps by less than the margin": ([1.02, 1.05, 1.03, 1.025, 1.04], _STILL, 0.02),
    "within the margin by its mean": ([1.04, 0.99, 1.03, 1.0, 1.015], _STILL, 0.02),
    # Without logarithms it would be inconclusive, and against 1 - margin the next equivalent.
    "much faster and much slower": ([0.7, 1.43, 0.7, 1.43, 1.0], _STILL, 0.65),
    "below 1 / (1 + margin)": ([0.81, 0.82, 0.815, 0.82, 0.81], _STILL, 0.2),
    # Widened by the control's mean, half its width or its far end, it would be inconclusive.
    "a control that just leaves out 1": ([0.957, 0.955, 0.956, 0.956, 0.955],
                                         [1.01, 1.07, 1.06, 1.03, 1.035], 0.02),
    "a control that drifts": ([0.95, 0.951, 0.949, 0.95, 0.95], _DRIFT, 0.02),
    "a control that drifts the other way": ([1.04, 1.041, 1.039, 1.04, 1.04],
                                            [0.95, 0.96, 0.94, 0.95, 0.95], 0.02),
    "as slow as its control": ([1.05, 1.04, 1.05, 1.05, 1.06], _DRIFT, 0.02),
    "faster than the drift": ([0.7, 0.71, 0.69, 0.7, 0.7], _DRIFT, 0.02),
    "a control that holds 1": ([1.01, 1.011, 1.009, 1.01], [1.03, 0.98, 1.04, 0.99], 0.02),
    "three rounds": ([0.9, 0.97, 0.93], [1.0, 1.01, 0.99], 0.02),
    # Around the median it would be faster.
    "three fast rounds of five": ([0.9, 0.9, 0.9, 0.98, 0.99], _STILL, 0.02),
    "one round far out": ([0.9, 0.91, 0.9, 0.9, 0.6], _STILL, 0.05),
    # Dividing by n in the deviation would make it equivalent,
    "a little too wide": ([1.041, 0.962, 1.042, 0.96, 1.005], _STILL, 0.05),
    # by the root of n - 1 in the error of the mean would not.
    "just within": ([0.963, 1.036, 0.968, 1.036, 0.999], _STILL, 0.047),
    # Around the logarithm of the mean ratio it would be inconclusive.
    "as much faster as slower": ([0.7, 1.43, 0.7, 1.43, 1.0], _STILL, 0.6),
    "a wide margin": ([0.8, 1.1, 0.95, 1.2, 0.9], _STILL, 0.35),
}  # fmt: skip
# Student's t, 97.5 %: for 2, 3 and 4 degrees of freedom, four digits (any table of it).
_T = {3: 4.303, 4: 3.182, 5: 2.776}


def _rounds(seed):
    """The rounds above, and four rows that are drawn."""
    draw, drawn = random.Random(seed), {}
    for place in range(1, 5):
        centre, spread = draw.uniform(-0.2, 0.2), draw.uniform(0.005, 0.05)
        row = [round(math.exp(draw.gauss(centre, spread)), 3) for _ in range(5)]
        drawn[f"row {place}"] = row, _STILL, 0.05
    return _ROUNDS | drawn


def _inputs(seed):
    return [
        (list(ratios), list(control), margin, _T[len(ratios)])
        for ratios, control, margin in _rounds(seed).values()
    ]


@check(calls(_inputs), own_work=("labkit.measuring.verdict",))
def check_verdict(answers, seed):
    """Faster, slower, equivalent or inconclusive, from paired rounds and their control."""
    for (name, (ratios, control, margin)), got in zip(_rounds(seed).items(), answers, strict=True):
        t = _T[len(ratios)]
        call = f"verdict({ratios}, {control}, {margin}, {t})"
        got = word(got, _WORDS, call=call)
        want = solutions.verdict(ratios, control, margin, t)
        if got != want:
            (low, high), (least, most) = _interval(ratios, t), _interval(control, t)
            away = max(1.0, least, 1 / most)
            wide = fill(_WIDENED, low=low / away, high=high * away) if away > 1 else ""
            said = {"low": low, "high": high, "least": least, "most": most, "widened": wide}
            why = " ".join([_WORDS[want], *_rival(answers, seed)])
            said |= {"inside": 1 / (1 + margin), "outside": 1 + margin, "why": why}
            raise Mistake(_OTHER_WORD, name=name, call=call, got=got, **said)


def _rival(answers, seed):
    """The sentence of the only rival whose words are all those of the answer; [] without one."""
    words = {}
    for ratios, control, margin, t in _inputs(seed):
        for sentence, (over, over_control, factor) in _rivals(ratios, control, t).items():
            found = solutions.verdict(over, over_control, margin, factor)
            words.setdefault(sentence, []).append(found)
    fitting = [sentence for sentence, found in words.items() if found == answers]
    return fitting if len(fitting) == 1 else []


def _rivals(ratios, control, t):
    """The inputs with which the solution computes what people compute, wrongly, by the sentence."""
    one_less = math.sqrt(1 - 1 / len(ratios))  # of n - 1 and n, the ratio of the roots
    quotients = [ratio / same for ratio, same in zip(ratios, control, strict=True)]
    return {
        "Your answers are those of 1.96 in place of t.": (ratios, control, 1.96),
        "Your answers are those of an interval without t.": (ratios, control, 1.0),
        "Your answers are those of a standard deviation that divides by n; divide by n - 1.": (
            (ratios, control, t * one_less)
        ),
        "Your answers are those of s over the root of n - 1; divide by the root of n.": (
            (ratios, control, t / one_less)
        ),
        "Your answers are those of ratios divided by the control's; widen their interval instead.":
            (quotients, [1.0] * len(control), t),
        "Your answers are those of the logarithm of a mean; take the mean of the logarithms.":
            (_around_mean(ratios), _around_mean(control), t),
    }  # fmt: skip


def _around_mean(ratios):
    """Ratios that vary as these do, around the mean of these."""
    off = fmean(ratios) / math.exp(fmean(math.log(ratio) for ratio in ratios))
    return [ratio * off for ratio in ratios]


def _interval(ratios, t):
    logs = [math.log(ratio) for ratio in ratios]
    half = t * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


check_verdict.slip(
    "not-significant-means-equal",
    "An interval that holds 1 says that you could not see a difference. Could you have seen one as "
    "large as the margin?",
    swap=("if -limit < low", "if low <= 0 <= high or -limit < low"),
)
check_verdict.slip(
    "the-mean-decides",
    "Five more rounds would give another mean. How far may it move?",
    swap=("half = t * stdev(logs) / len(logs) ** 0.5", "half = 0"),
)
check_verdict.slip(
    "significant-means-it-matters",
    "The difference is certain and tiny. Which number says whether it matters?",
    swap=(
        "    if -limit < low",
        "    if high < 0 or low > 0:\n"
        '        return "faster" if high < 0 else "slower"\n'
        "    if -limit < low",
    ),
)
check_verdict.slip(
    "the-spread-is-the-error-of-the-mean",
    "The mean of n rounds varies less than one round. By which factor?",
    cut=" / len(logs) ** 0.5",
)
check_verdict.slip(
    "a-control-need-not-count",
    "In one of these runs the control, the same code twice, differs by 5 %. What does that say of "
    "a 5 % speed-up?",
    swap=("max(0.0, least, -most)", "0.0"),
)
