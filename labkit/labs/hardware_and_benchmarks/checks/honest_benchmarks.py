"""Checks of lab 06, sitting B: Amdahl's law, the timer, the verdict."""

import copy
import math
import random
from statistics import fmean, stdev

from labkit.devices import AsyncDevice
from labkit.labs.engine import Mistake, attempt, calls, check, number, word
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.hardware_and_benchmarks import solutions
from labkit.labs.hardware_and_benchmarks.checks.shared import only_fit

LAB = "06_hardware_and_benchmarks"

_ARGUMENT_CHANGED = (
    "`{call}` leaves `{name}` as {after}. Whoever called you still needs the old one: put your "
    "times into a value of your own."
)
_OTHER_SPEEDUP = "`{call}` is {got}; the step took {before} and takes {after}: {want}. {why}"
_SPEEDUPS = {
    "inverse": "Yours is the time after over the time before.",
    "after": "Yours is the time after, not how many times faster that is.",
    "one over": "Yours is 1 over the time after; the time before was {before}.",
    "saved": "Yours is the share of the time that is saved.",
    "multiplied": "You multiply times by factors: what is twice as fast takes half the time.",
    "left out": "You leave out the parts that nothing made faster; they take {rest} as before.",
    "only": "You count only the parts that changed; the others take {rest} as before.",
    "slower": "You leave out a factor below 1: that part becomes slower.",
}

_OTHER_TIME = "{name}: `{call}` is {got} ms; the median run takes {want:g} ms. {why}"
_TIMES = {
    "launch": "Yours is what a launch takes: the kernel was still running.",
    "pending": "The device's work from before, {pending:g} s, is in it.",
    "warm-up": "The warm-up of the first call, {warm_up:g} s, is in it.",
    "both": "The work from before and the warm-up of the first call are in it.",
    "mean": "Yours is the mean of the runs.",
    "trimmed": "Yours is the mean without the largest and the smallest.",
    "all": "Yours is the time of all {repeats} runs together.",
    "least": "Yours is the least of the runs.",
    "most": "Yours is the largest of the runs.",
    "two": "Yours holds two runs: was your warm-up done when the clock started?",
    "milliseconds": "Yours is in milliseconds; seconds are asked for.",
}
_TOO_FEW = "{name}: `{call}` ran work() {launched} times; at least {repeats}."
_SAME_COUNT = (
    "`{call}` ran work() {launched} times, and as often for 1 repeat. `repeats` says of how many "
    "runs the median is."
)
_NO_CLOCK = (
    "{name}: `{call}` never read `device.clock()`. This device has a clock of its own, and "
    "`time.perf_counter()` knows nothing of it."
)

_OTHER_WORD = (
    "{name}: `{call}` is {got}. The interval goes from {low} to {high} and the margin is {margin}. "
    "{why}"
)
_WORDS = {
    "equivalent": "All of it lies inside ±{margin}: equivalent.",
    "worse": "All of it lies below -{margin}: worse.",
    "better": "All of it lies above {margin}: better.",
    "inconclusive": "Part of it lies inside ±{margin} and part outside: inconclusive.",
}


# Amdahl's law

_STEPS = [
    ({"matmul": 7.0, "rest": 3.0}, {"matmul": 2.0}),
    ({"matmul": 0.7, "rest": 0.3}, {"matmul": 2.0}),
    ({"matmul": 6.0, "norm": 2.0, "data": 2.0}, {"matmul": 8.0, "norm": 2.0}),
    ({"matmul": 5.0, "cast": 1.0}, {"matmul": 2.0, "cast": 0.5}),
    ({"data": 4.0}, {}),
    ({"matmul": 9.0, "rest": 1.0}, {"matmul": 1e9}),
]


def _steps(seed):
    """The steps above, and one of parts that are drawn."""
    draw = random.Random(seed)
    seconds = {part: round(draw.uniform(0.5, 9), 2) for part in ("matmul", "norm", "data", "rest")}
    faster = {part: round(draw.uniform(1.1, 8), 1) for part in ("norm", "matmul")}
    return [*_STEPS, (seconds, faster)]


def run_speedup(speedup, seed):
    """`speedup` of each step, and its two arguments as it left them."""
    found = []
    for step in _steps(seed):
        arguments = copy.deepcopy(step)
        found.append((attempt(speedup, *arguments), *arguments))
    return found


@check(run_speedup)
def check_speedup(answers, seed):
    """How much faster the whole step is, from its parts."""
    for (seconds, faster), (got, *left) in zip(_steps(seed), answers, strict=True):
        call = f"speedup({seconds}, {faster})"
        for name, before, after in zip(("seconds", "faster"), (seconds, faster), left, strict=True):
            if after != before and type(got) is not Raised:
                raise Mistake(_ARGUMENT_CHANGED, call=call, name=name, after=after)
        value = number(got, call=call)
        want = solutions.speedup(seconds, faster)
        # In float32, and where 10 - 9 cancels, fewer than 100 roundings of 2**-24.
        if math.isclose(value, want, rel_tol=100 * 2.0**-24):
            continue
        before = sum(seconds.values())
        rest = sum(time for part, time in seconds.items() if part not in faster)
        kind = only_fit(value, _other_speedups(seconds, faster, before, before / want))
        raise Mistake(
            _OTHER_SPEEDUP,
            call=call,
            got=value,
            before=before,
            after=before / want,
            want=want,
            why=fill(_SPEEDUPS.get(kind, ""), before=before, rest=rest),
        )


def _other_speedups(seconds, faster, before, after):
    """What people compute for a speed-up, wrongly."""
    changed = {part: seconds[part] for part in faster}
    changed_after = sum(time / faster[part] for part, time in changed.items())
    others = {
        "inverse": after / before,
        "after": after,
        "one over": 1 / after,
        "saved": 1 - after / before,
        "multiplied": before / sum(time * faster.get(part, 1) for part, time in seconds.items()),
    }
    if changed:
        others["left out"] = before / changed_after
        others["only"] = sum(changed.values()) / changed_after
        others["slower"] = before / sum(
            time / max(faster.get(part, 1), 1) for part, time in seconds.items()
        )
    return others


@check_speedup.wrong(
    "speed-ups-average", "What adds up, speed-ups or times? Write down the time after."
)
def speedup_averaged(seconds, faster):
    total = sum(seconds.values())
    return sum(time / total * faster.get(part, 1.0) for part, time in seconds.items())


check_speedup.slip(
    "a-fast-part-is-a-fast-whole",
    "What of the parts that nothing made faster?",
    swap=("return sum(seconds.values()) / after", "return max(faster.values(), default=1.0)"),
)
check_speedup.slip(
    "the-parts-take-one-second",
    "Your formula takes the parts for shares. What do they add up to?",
    swap=("sum(seconds.values()) / after", "1 / after"),
)
check_speedup.slip(
    "after-over-before",
    "Twice as fast is 2: which of the two times is the larger?",
    swap=("sum(seconds.values()) / after", "after / sum(seconds.values())"),
)


# The timer

_LAUNCH = 1e-5
# Clocks kept in float32: its gap at 8 s, later than any of these devices counts.
_GAP = 1e-6
_SCENES = {
    # seconds of the kernel, of pending work on the device before, of the warm-up; repeats, and by
    # how many seconds which call of any five in a row is off: five repeats meet each once, however
    # many calls warmed up. No two kernels are alike, so that no constant is right.
    "5 repeats": (0.002, 0.0, 0.0, 5, {}),
    "1 repeat on a device that is still busy for 1 s": (0.003, 1.0, 0.0, 1, {}),
    "1 repeat of a kernel that warms up in 0.5 s": (0.0025, 0.0, 0.5, 1, {}),
    "5 repeats, one of which is disturbed for 0.3 s": (0.0035, 0.0, 0.0, 5, {1: 0.3}),
    "5 repeats, one of which is 1 ms short": (0.004, 0.0, 0.0, 5, {2: -0.001}),
    "5 repeats, two of which are disturbed": (0.0032, 0.0, 0.0, 5, {2: 0.3, 4: 0.1}),
    "5 repeats of everything at once": (0.0045, 1.0, 0.5, 5, {4: 0.3}),
}


def _scenes(seed):
    """The scenes above, and one with a kernel that is drawn."""
    kernel = random.Random(seed).randrange(50, 90) / 1e4
    return _SCENES | {"3 repeats": (kernel, 0.0, 0.0, 3, {})}


def run_timed(timed, seed):
    """`timed` on simulated devices; how often it launched and read the clock comes back too."""
    return {name: _time(timed, *scene) for name, scene in _scenes(seed).items()}


class _Read(AsyncDevice):
    """Counts how often its clock is read."""

    reads = 0

    def clock(self):
        self.reads += 1
        return super().clock()


def _time(timed, kernel, pending, warm_up, repeats, hiccups):
    device = _Read(launch_seconds=_LAUNCH, warm_up_seconds=warm_up)
    if pending:
        # Somebody else's kernel: it was warm.
        device.launch("before", seconds=max(pending - warm_up, 0.0))
    launched = 0

    def work():
        nonlocal launched
        launched += 1
        device.launch("matmul", seconds=kernel + hiccups.get(launched % 5, 0.0))

    return attempt(timed, device, work, repeats), launched, device.reads


@check(run_timed)
def check_timed(answers, seed):
    """Warm, synchronised on both sides, and a median."""
    kinds, scenes = {}, _scenes(seed)
    for name, scene in scenes.items():
        got, launched, reads = answers[name]
        repeats = scene[3]
        call = f"timed(device, work, {repeats})"
        value = number(got, call=call)
        if launched < repeats:
            raise Mistake(_TOO_FEW, name=name, call=call, launched=launched, repeats=repeats)
        if not reads:
            raise Mistake(_NO_CLOCK, name=name, call=call)
        kinds[name] = _time_kind(value, *scene)
    wrong = [name for name, kind in kinds.items() if kind != "right"]
    if wrong:
        got, (kernel, pending, warm_up, repeats, _) = answers[wrong[0]][0], scenes[wrong[0]]
        why = _TIMES.get(kinds[wrong[0]], "")
        raise Mistake(
            _OTHER_TIME,
            name=wrong[0],
            call=f"timed(device, work, {repeats})",
            got=1e3 * number(got, call=""),
            want=1e3 * kernel,
            why=fill(why, pending=pending, warm_up=warm_up, repeats=repeats),
            misconception=_timer_idea([kinds[name] for name in wrong]),
        )
    five, once, *_ = (launched for _, launched, _ in answers.values())
    if five == once:
        raise Mistake(_SAME_COUNT, call="timed(device, work, 5)", launched=five)


def _time_kind(value, kernel, pending, warm_up, repeats, hiccups):
    """The name of the first time among those that people take that this is; "" if none is."""
    runs = sorted(kernel + hiccups.get(i, 0.0) for i in range(repeats))
    waits = {"pending": pending, "warm-up": warm_up, "both": pending + warm_up}
    # The least, and how much more it may be: launching and computing may overlap, or not.
    others = {
        "right": (kernel, _LAUNCH),
        "launch": (0.0, 2 * _LAUNCH),
        "mean": (fmean(runs), 2 * _LAUNCH),
        "trimmed": (fmean(runs[1:-1] or runs), 2 * _LAUNCH),
        "all": (sum(runs), 2 * _LAUNCH * repeats),
        "least": (runs[0], 2 * _LAUNCH),
        "most": (runs[-1], 2 * _LAUNCH),
        "two": (2 * kernel, 2 * _LAUNCH),
        "milliseconds": (1e3 * kernel, 2e3 * _LAUNCH),
        # A run of the kernel that warmed up may be in it.
        **{name: (kernel + wait, kernel + 2 * _LAUNCH) for name, wait in waits.items() if wait},
    }
    fitting = (
        name
        for name, (least, more) in others.items()
        if least - _GAP <= value <= least + more + _GAP
    )
    return next(fitting, "")


def _timer_idea(kinds):
    """The one fault that all wrong times share; None where it could be another."""
    ideas = {
        ("launch",): "a-call-that-returned-is-done",
        ("pending", "warm-up"): "the-device-was-idle",
        # A warm-up that nobody waited for is somebody's work, too.
        ("two", "warm-up"): "the-device-was-idle",
        ("warm-up",): "the-first-run-is-like-the-others",
        ("mean",): "the-mean-of-times",
    }
    return ideas.get(tuple(dict.fromkeys(kinds)))


check_timed.slip(
    "a-call-that-returned-is-done",
    "work() came back at once. What must the program wait for before it reads the clock?",
    swap=("device.synchronize()\n        times", "times"),
)
check_timed.slip(
    "the-device-was-idle",
    "Whose work ends inside your first interval? Wait for it before you start the clock.",
    swap=("device.synchronize()\n        start", "start"),
)
check_timed.slip(
    "the-first-run-is-like-the-others",
    "The first call also loads and chooses a kernel. When may the clock start?",
    swap=("work()\n    times", "times"),
)
check_timed.slip(
    "the-mean-of-times",
    "One disturbed run moves your result. Which middle would it not move?",
    swap=("return median(times)", "return sum(times) / len(times)"),
)


# The verdict

_PAIRS = {
    # differences in points of accuracy, margin
    "A/A": ([0.0, 0.0, 0.0, 0.0, 0.0], 0.5),
    "close": ([0.1, -0.1, 0.0, 0.1, -0.1], 0.5),
    "scattered": ([-0.3, 0.2, 0.1, -0.2, 0.1], 0.5),
    "wide": ([-1.5, 0.9, -0.4, 1.1, -0.6], 0.5),
    "small but certain": ([-0.2, -0.21, -0.19, -0.2, -0.2], 0.5),
    "broken": ([-3.1, -2.7, -3.3, -2.9, -3.0], 0.5),
    "worse, and perhaps by less than the margin": ([-0.7, -0.3, -0.5, -0.6, -0.35], 0.5),
    "three pairs": ([-0.30, 0.15, 0.0], 0.5),
    "a mean outside": ([-1.6, 0.1, -0.9, -0.2, -0.4], 0.5),
    "better": ([1.1, 0.9, 1.2, 1.0, 0.8], 0.5),
    # Dividing by n in the deviation would make it equivalent,
    "a little too wide": ([0.41, -0.38, 0.42, -0.4, 0.05], 0.5),
    # by the root of n - 1 in the error of the mean would not.
    "just within": ([-0.38, 0.36, -0.33, 0.36, -0.01], 0.46),
    "one seed far out": ([-0.55, -0.58, -0.53, -0.56, -1.4], 0.1),
    # An interval twice as wide would fit, one without the root of n would not.
    "a narrow margin": ([0.1, -0.1, 0.0, 0.1, -0.1], 0.26),
    "a wide margin": ([-1.5, 0.9, -0.4, 1.1, -0.6], 2.0),
}
# Student's t, 97.5 %: for 2 and 4 degrees of freedom, four digits (any table of the distribution).
_T = {3: 4.303, 5: 2.776}


def _pairs(seed):
    """The differences above, and four rows that are drawn."""
    draw, drawn = random.Random(seed), {}
    for place in range(1, 5):
        centre, spread = draw.uniform(-1, 1), draw.uniform(0.05, 0.5)
        drawn[f"row {place}"] = ([round(draw.gauss(centre, spread), 2) for _ in range(5)], 0.5)
    return _PAIRS | drawn


@check(calls(lambda seed: [(list(p), margin, _T[len(p)]) for p, margin in _pairs(seed).values()]))
def check_verdict(answers, seed):
    """Equivalent, worse, better or inconclusive, against a margin."""
    for (name, (pairs, margin)), got in zip(_pairs(seed).items(), answers, strict=True):
        call = f"verdict({pairs}, {margin}, {_T[len(pairs)]})"
        got = word(got, _WORDS, call=call)
        want = solutions.verdict(pairs, margin, _T[len(pairs)])
        if got != want:
            low, high = _interval(pairs, _T[len(pairs)])
            raise Mistake(
                _OTHER_WORD,
                name=name,
                call=call,
                got=got,
                low=low,
                high=high,
                margin=margin,
                why=fill(_WORDS[want], margin=margin),
            )


def _interval(pairs, t):
    half = t * stdev(pairs) / math.sqrt(len(pairs))
    return fmean(pairs) - half, fmean(pairs) + half


check_verdict.slip(
    "not-significant-means-equal",
    "No significant difference says that you could not see one. Could you have seen one as large "
    "as the margin?",
    swap=("if -margin < low", "if low <= 0 <= high or -margin < low"),
)
check_verdict.slip(
    "the-mean-decides",
    "Two more seeds would give another mean. How far may it move?",
    swap=("half = t * stdev(differences) / len(differences) ** 0.5", "half = 0"),
)
check_verdict.slip(
    "significant-means-it-matters",
    "The difference is certain and tiny. Which number says whether it matters?",
    swap=(
        "    if -margin < low",
        "    if high < 0 or low > 0:\n"
        '        return "worse" if high < 0 else "better"\n'
        "    if -margin < low",
    ),
)
check_verdict.slip(
    "the-spread-is-the-error-of-the-mean",
    "The mean of n pairs varies less than one pair. By which factor?",
    cut=" / len(differences) ** 0.5",
)
