"""Checks of lab 06, sitting B: Amdahl's law, the timer, the verdict."""

import copy
import math
from statistics import fmean, stdev

from labkit.devices import AsyncDevice
from labkit.labs.engine import Mistake, attempt, calls, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.hardware_and_benchmarks import solutions

LAB = "06_hardware_and_benchmarks"


# Amdahl's law

_STEPS = [
    ({"matmul": 0.7, "rest": 0.3}, {"matmul": 2.0}),
    ({"matmul": 7.0, "rest": 3.0}, {"matmul": 2.0}),
    ({"matmul": 6.0, "norm": 2.0, "data": 2.0}, {"matmul": 8.0, "norm": 2.0}),
    ({"matmul": 5.0, "cast": 1.0}, {"matmul": 2.0, "cast": 0.5}),
    ({"data": 4.0}, {}),
    ({"matmul": 9.0, "rest": 1.0}, {"matmul": 1e9}),
]


def run_speedup(speedup):
    """`speedup` of each step, and its two arguments as it left them."""
    found = []
    for step in _STEPS:
        arguments = copy.deepcopy(step)
        found.append((attempt(speedup, *arguments), *arguments))
    return found


@check(run_speedup)
def check_speedup(answers):
    """How much faster the whole step is, from its parts."""
    for (seconds, faster), (got, *left) in zip(_STEPS, answers, strict=True):
        call = f"speedup({seconds}, {faster})"
        for name, before, after in zip(("seconds", "faster"), (seconds, faster), left, strict=True):
            if after != before and type(got) is not Raised:
                raise Mistake(
                    f"`{call}` leaves `{name}` as {after}. Whoever called you still needs the old "
                    "one: put your times into a value of your own."
                )
        value = number(got, call=call)
        want = solutions.speedup(seconds, faster)
        # Sums of three positive terms and two divisions: fewer than 10 roundings of 2**-53.
        if not abs(value / want - 1) <= 1e-14:
            took = sum(seconds.values())
            raise Mistake(
                f"`{call}` is {value:.4g}; the step took {took:.4g} and takes "
                f"{took / want:.4g}: {want:.4g}."
            )


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
_SCENES = {
    # seconds of the kernel, of pending work on the device before, of the warm-up; repeats, and by
    # how many seconds which call of any five in a row is off: five repeats meet each once, however
    # many calls warmed up. No two kernels are alike, so that no constant is right.
    "5 repeats": (0.002, 0.0, 0.0, 5, {}),
    "1 repeat on a device that is still busy for 1 s": (0.003, 1.0, 0.0, 1, {}),
    "1 repeat of a kernel that warms up in 0.5 s": (0.0025, 0.0, 0.5, 1, {}),
    "5 repeats, one of which is disturbed for 0.3 s": (0.0035, 0.0, 0.0, 5, {3: 0.3}),
    "5 repeats, one of which is 1 ms short": (0.004, 0.0, 0.0, 5, {2: -0.001}),
    "5 repeats of everything at once": (0.0045, 1.0, 0.5, 5, {4: 0.3}),
}


def run_timed(timed):
    """`timed` on simulated devices; how often it launched and read the clock comes back too."""
    return {name: _time(timed, *scene) for name, scene in _SCENES.items()}


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
def check_timed(answers):
    """Warm, synchronised on both sides, and a median."""
    for name, (kernel, _, _, repeats, _) in _SCENES.items():
        got, launched, reads = answers[name]
        call = f"timed(device, work, {repeats})"
        value = number(got, call=call)
        if launched < repeats:
            raise Mistake(f"{name}: `{call}` ran work() {launched} times; at least {repeats}.")
        if not reads:
            raise Mistake(
                f"{name}: `{call}` never read `device.clock()`. This device has a clock of its "
                "own, and `time.perf_counter()` knows nothing of it."
            )
        if not _is_time(value, kernel):
            raise Mistake(
                f"{name}: `{call}` is {1e3 * value:.4g} ms; the median run takes "
                f"{1e3 * kernel:g} ms.",
                misconception=_timer_idea(answers),
            )


def _is_time(value, kernel):
    # Launching and computing may overlap, or not.
    return kernel * (1 - 1e-9) <= value <= (kernel + _LAUNCH) * (1 + 1e-9)


def _timer_idea(answers):
    """The one fault that all wrong times share; None where it could be another."""
    off = {}
    for name, (got, *_) in answers.items():
        value = number(got, call=name)
        if not _is_time(value, _SCENES[name][0]):
            off[name] = value
    first, busy, cold, disturbed, short, _ = _SCENES
    if first in off:
        return "a-call-that-returned-is-done" if 0 <= off[first] <= 2 * _LAUNCH else None
    ideas = {
        # A warm-up that nobody waited for is somebody's work, too.
        (busy, cold): "the-device-was-idle",
        (cold,): "the-first-run-is-like-the-others",
        (disturbed, short): "the-mean-of-times",
    }
    return ideas.get(tuple(name for name in (busy, cold, disturbed, short) if name in off))


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
    "worse, but by the margin?": ([-0.7, -0.3, -0.5, -0.6, -0.4], 0.5),
    "three pairs": ([-0.30, 0.15, 0.0], 0.5),
    "a mean outside": ([-1.6, 0.1, -0.9, -0.2, -0.4], 0.5),
    "better": ([1.1, 0.9, 1.2, 1.0, 0.8], 0.5),
    # Dividing by n in the deviation would make it equivalent,
    "a little too wide": ([0.41, -0.38, 0.42, -0.4, 0.05], 0.5),
    # by the root of n - 1 in the error of the mean would not.
    "just within": ([-0.38, 0.36, -0.33, 0.36, -0.01], 0.46),
    "one seed far out": ([-0.55, -0.58, -0.53, -0.56, -1.4], 0.1),
    "a wide margin": ([-1.5, 0.9, -0.4, 1.1, -0.6], 2.0),
}
# Student's t, 97.5 %: for 2 and 4 degrees of freedom, four digits (any table of the distribution).
_T = {3: 4.303, 5: 2.776}


@check(calls([(list(pairs), margin, _T[len(pairs)]) for pairs, margin in _PAIRS.values()]))
def check_verdict(answers):
    """Equivalent, worse, better or inconclusive, against a margin."""
    for (name, (pairs, margin)), got in zip(_PAIRS.items(), answers, strict=True):
        call = f"verdict({pairs}, {margin}, {_T[len(pairs)]})"
        if type(got) is Raised:
            number(got, call=call)
        want = solutions.verdict(pairs, margin, _T[len(pairs)])
        if got != want:
            low, high = _interval(pairs, _T[len(pairs)])
            raise Mistake(
                f"{name}: `{call}` is {got!r}. The interval goes from {low:.3f} to {high:.3f} and "
                f"the margin is {margin}: {want!r}."
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
