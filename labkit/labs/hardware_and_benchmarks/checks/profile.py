"""Check of lab 06, sitting B: the whole step, from a profile."""

import math
import random
from collections import Counter

from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.messages import fill
from labkit.labs.hardware_and_benchmarks.checks.shared import only_fit
from labkit.labs.hardware_and_benchmarks.profiles import STEPS, drawn_step, written_profile

LAB = "06_hardware_and_benchmarks"

_OTHER_SPEEDUP = (
    "{name}: `speedup(profile, {factor})` is {got}. The matmuls take {matmuls} of {before} us, so "
    "the step takes {after} us afterwards, and the speed-up is {want}. {why}"
)
_SPEEDUPS = {
    "inverse": "Your answer is the time after over the time before.",
    "after": "Your answer is the step's time afterwards, not how many times as fast the step is.",
    "saved": "Your answer is the share of the time that is saved.",
    "average": "Your answer averages the factors 1 and {factor:g} by share. Times add up instead.",
    "multiplied": "You multiply the matmuls' time by the factor; twice as fast is half the time.",
    "total": (
        "You add up `cpu_time_total`, which counts a matmul again in each operator that called it."
    ),
    "in the name": "You also count operators that only have mm in their names.",
    "left out": "You leave out the operator {one}.",
    "callers": "You also count what calls the matmuls, such as aten::linear.",
    "what they call": (
        "You take the matmuls' `cpu_time_total`, which also counts what they call, such as "
        "aten::copy_."
    ),
    "counted twice": (
        "You multiply by the number of calls, but `self_cpu_time_total` is the time of all calls."
    ),
    "one call": "You divide by the number of calls, but the step takes the time of all of them.",
    "aten": "You leave out the rows whose keys do not begin with `aten::`; they take time too.",
    "no rest": "You leave out the time of the other operators afterwards.",
    "microseconds": "Your answer is the microseconds that are saved.",
    "share": "Your answer is the matmuls' share of the time.",
    "percent": "Your answer is in percent; 1.5 times as fast is 1.5.",
}
_ROUNDED = "Your answer is rounded; leave it as it is."
_NO_MATMUL = "Your answer is 1, as if the step had no matmuls. Their keys begin with `aten::`."
_NOT_BELOW_1 = "Matmuls become slower here, so the step does too: the answer is below 1."
_MATMULS = ("aten::mm", "aten::addmm", "aten::bmm")
_CALLERS = ("aten::linear", "aten::matmul")


def _steps(seed):
    """The steps that are written down, and one whose times are drawn."""
    draw = random.Random(seed)
    step = drawn_step(draw.randrange(4, 9), draw.randrange(50, 300))
    drawn = step, draw.randrange(15, 60) / 10
    # The result of torch's addmm begins as a copy of the bias.
    addmm = "aten::addmm", 90.0, [("aten::expand", 4.0, []), ("aten::copy_", 30.0, [])]
    copied = [("aten::linear", 5.0, [("aten::t", 3.0, []), addmm]), ("aten::relu", 20.0, [])]
    return STEPS | {"a matmul that copies its bias": (copied, 3.0), "a drawn step": drawn}


def run_speedup(speedup, seed):
    """`speedup` of the profile of each step."""
    steps = _steps(seed).items()
    return {name: attempt(speedup, written_profile(calls), by) for name, (calls, by) in steps}


@check(run_speedup)
def check_speedup(answers, seed):
    """How much faster the whole step becomes, read from its profile."""
    for name, (calls, factor) in _steps(seed).items():
        value = number(answers[name], call=f"speedup(profile, {factor:g})")
        rows = _rows(calls)
        before = sum(own for _, own, _ in rows)
        matmuls = sum(own for operator, own, _ in rows if operator in _MATMULS)
        after = before - matmuls + matmuls / factor
        # In float32, and where nearly all of the time is taken away, fewer than 100 roundings.
        if math.isclose(value, before / after, rel_tol=100 * 2.0**-24):
            continue
        kind = only_fit(value, _other_speedups(rows, factor, before, matmuls))
        said = {"matmuls": matmuls, "before": before, "after": after, "want": before / after}
        why = _why(kind, factor) or _other_why(value, before / after)
        said |= {"name": name, "factor": f"{factor:g}", "got": value, "why": why}
        raise Mistake(_OTHER_SPEEDUP, **said)


def _rows(calls):
    """(operator, its own microseconds, its microseconds with what it called) of every call."""
    found = []
    for operator, own, inner in calls:
        below = _rows(inner)
        found += [(operator, own, own + sum(row[1] for row in below)), *below]
    return found


def _why(kind, factor):
    if kind is None:
        return ""
    kind, _, operator = kind.partition(":")
    return fill(_SPEEDUPS[kind], factor=factor, one=operator)


def _other_why(value, want):
    if value == 1:
        return _NOT_BELOW_1 if want < 1 else _NO_MATMUL
    return _ROUNDED if value in {round(want, places) for places in range(1, 5)} else ""


def _other_speedups(rows, factor, before, matmuls):
    """What people compute for a speed-up, wrongly."""

    def amdahl(share):
        return 1 / (1 - share + share / factor)

    share, after = matmuls / before, before - matmuls + matmuls / factor
    total = sum(whole for _, _, whole in rows)
    mm = sum(own for operator, own, _ in rows if "mm" in operator)
    callers = sum(own for operator, own, _ in rows if operator in _CALLERS)
    aten = sum(own for operator, own, _ in rows if operator.startswith("aten::"))
    with_called = sum(whole for operator, _, whole in rows if operator in _MATMULS)
    count = Counter(operator for operator, _, _ in rows)

    def counted(by):
        times = [(operator in _MATMULS, own * by(count[operator])) for operator, own, _ in rows]
        return amdahl(sum(own for fast, own in times if fast) / sum(own for _, own in times))

    others = {
        "inverse": after / before,
        "after": after,
        "saved": 1 - after / before,
        "average": 1 - share + share * factor,
        "multiplied": before / (before - matmuls + matmuls * factor),
        "total": amdahl(matmuls / total),
        "in the name": amdahl(mm / before),
        "callers": amdahl((matmuls + callers) / before),
        "what they call": before / (before - with_called + with_called / factor),
        "counted twice": counted(lambda calls: calls),
        "one call": counted(lambda calls: 1 / calls),
        "aten": amdahl(matmuls / aten) if aten else 1.0,
        "microseconds": matmuls - matmuls / factor,
        "share": share,
        "percent": 100 * before / after,
    }
    if matmuls:
        others["no rest"] = before / (matmuls / factor)
    for operator in _MATMULS:
        own = sum(mine for name, mine, _ in rows if name == operator)
        if 0 < own < matmuls:
            others[f"left out:{operator}"] = amdahl((matmuls - own) / before)
    return others


check_speedup.slip(
    "speed-ups-average",
    "Speed-ups do not average. By what must the time before be divided?",
    swap=("before / (before - matmuls + matmuls / factor)", "1 + matmuls / before * (factor - 1)"),
)
check_speedup.slip(
    "a-fast-part-is-a-fast-whole",
    "How long do the operators take that did not become faster?",
    swap=("before / (before - matmuls + matmuls / factor)", "factor"),
)
check_speedup.slip(
    "after-over-before",
    "Twice as fast is 2. Which time must be divided by which?",
    swap=(
        "before / (before - matmuls + matmuls / factor)",
        "(before - matmuls + matmuls / factor) / before",
    ),
)
_TOTAL = (
    "a-total-time-is-its-own",
    "aten::linear calls aten::addmm. In how many of the times that you add up is that matmul?",
)
check_speedup.slip(
    *_TOTAL, swap=("before = sum(e.self_cpu_time_total", "before = sum(e.cpu_time_total")
)


@check_speedup.wrong(*_TOTAL)
def speedup_of_totals(profile, factor):
    entries = profile.key_averages()
    before = sum(e.cpu_time_total for e in entries)
    matmuls = sum(e.cpu_time_total for e in entries if e.key in _MATMULS)
    return before / (before - matmuls + matmuls / factor)
