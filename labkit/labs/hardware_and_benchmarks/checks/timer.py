"""Check of lab 06, sitting B: the timer, on simulated devices."""

import random
from statistics import fmean
from types import SimpleNamespace

from labkit.devices import AsyncDevice
from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill

LAB = "06_hardware_and_benchmarks"

_NOT_DONE = (
    "{name}: `{call}` raised {error} When you ask for the time, the device has not reached the end "
    "event yet. Wait for it first."
)
_OTHER_TIME = "{name}: `{call}` is {got} ms; the median call takes {want:g} ms. {why}"
_TIMES = {
    "nothing": "No kernel lies between your two events.",
    "warm-up": "The warm-up of the first call, {warm_up:g} ms, is in it.",
    "mean": "Your time is the mean of the calls.",
    "half the warm-up": "The first call, which warms up, is among those whose median you take.",
    "trimmed": "Your time is the mean without the largest and the smallest.",
    "all": "Your time is that of all {repeats} calls together.",
    "least": "Your time is the least of the calls.",
    "most": "Your time is the largest of the calls.",
    "one": "Your time is that of one call, whichever it is; take the median of all.",
    "two": "Two calls lie between your events.",
    "growing": "Your intervals grow from call to call: `start` lies before all of them.",
    "backwards": "Your time runs backwards: `start.elapsed_time(end)` is positive.",
    "seconds": "Your time is in seconds; `elapsed_time` and this exercise count milliseconds.",
    "microseconds": "Your time is a thousand times too large; `elapsed_time` is in milliseconds.",
}
_TOO_FEW = "{name}: `{call}` called work() {launched} times; it needs at least {repeats} calls."
_SAME_COUNT = (
    "`{call}` called work() {launched} times, and as often with 1 repeat. `repeats` is the number "
    "of calls whose median is wanted."
)
_NO_EVENT = (
    "{name}: `{call}` recorded no event of `cuda`. A clock of the host, such as "
    "`time.perf_counter()`, does not measure this device, and `torch.cuda` is another device. Use "
    "the argument `cuda`."
)
_NO_GPU = "{name}: `{call}` raised {error} `torch.cuda` is another device. Use the argument `cuda`."

# In milliseconds from here on.
_LAUNCH = 0.01
_GAP = 1e-3  # what float32 loses of a time of seconds
_SCENES = {
    # the kernel, somebody's work on the device before, the warm-up; repeats; and by how much which
    # call of any five in a row is off: five repeats meet each once, however many calls warmed up.
    # No two kernels are alike, so that no constant is right.
    "5 repeats": (2.0, 0.0, 0.0, 5, {}),
    "1 repeat on a device that is still busy for 1 s": (3.0, 1000.0, 0.0, 1, {}),
    "1 repeat of a kernel that warms up in 0.5 s": (2.5, 0.0, 500.0, 1, {}),
    "5 repeats, one of which is disturbed for 0.3 s": (3.5, 0.0, 0.0, 5, {1: 300.0}),
    "5 repeats, one of which is 1 ms shorter": (4.0, 0.0, 0.0, 5, {2: -1.0}),
    "5 repeats, two of which are disturbed": (3.2, 0.0, 0.0, 5, {2: 300.0, 4: 100.0}),
    "5 repeats with a warm-up on a busy device, one disturbed": (4.5, 1000.0, 500.0, 5, {4: 300.0}),
}

# The largest call is wrong in all of these.
_SLOWED = [name for name, scene in _SCENES.items() if any(off > 0 for off in scene[-1].values())]


def _scenes(seed):
    """The scenes above, and one with a kernel that is drawn."""
    kernel = random.Random(seed).randrange(50, 90) / 10
    return _SCENES | {"3 repeats": (kernel, 0.0, 0.0, 3, {})}


def run_timed(timed, seed):
    """`timed` on simulated devices; how often it launched and recorded comes back too."""
    return {name: _time(timed, *scene) for name, scene in _scenes(seed).items()}


def _time(timed, kernel, pending, warm_up, repeats, hiccups):
    device = AsyncDevice(launch_seconds=_LAUNCH / 1e3, warm_up_seconds=warm_up / 1e3)
    if pending:
        # Somebody else's kernel: it was warm.
        device.launch("before", seconds=(pending - warm_up) / 1e3)
    count = {"launched": 0, "recorded": 0}

    def event(*args, **kwargs):
        made = device.Event(*args, **kwargs)
        record, query = made.record, made.query

        def counted():
            count["recorded"] += 1
            record()

        def polled():
            reached = query()
            # Asking takes no simulated time: a loop that asks until it is so would never end.
            made.synchronize()
            return reached

        made.record, made.query = counted, polled
        return made

    def work():
        count["launched"] += 1
        milliseconds = kernel + hiccups.get(count["launched"] % 5, 0.0)
        device.launch("matmul", seconds=milliseconds / 1e3)

    # As of torch.cuda: this device's own clock is not among what an answer may use.
    cuda = SimpleNamespace(Event=event, synchronize=device.synchronize)
    return attempt(timed, cuda, work, repeats), count["launched"], count["recorded"]


@check(run_timed)
def check_timed(answers, seed):
    """Warm, waited for, and a median, in the device's own time."""
    kinds, scenes = {}, _scenes(seed)
    for name, scene in scenes.items():
        got, launched, recorded = answers[name]
        said = {"name": name, "call": f"timed(cuda, work, {scene[3]})"}
        if isinstance(got, Raised) and "must be completed" in got.message:
            idea = "a-call-that-returned-is-done"
            error = f"{got.type_name}: {got.message}"
            raise Mistake(_NOT_DONE, error=error, misconception=idea, **said)
        # What torch says of its own events where it is built without CUDA.
        if isinstance(got, Raised) and "dummy base class Event" in got.message:
            raise Mistake(_NO_GPU, error=f"{got.type_name}: {got.message}.", **said)
        value = number(got, call=said["call"])
        if not recorded:
            raise Mistake(_NO_EVENT, **said)
        if launched < scene[3]:
            raise Mistake(_TOO_FEW, launched=launched, repeats=scene[3], **said)
        kinds[name] = _time_kind(value, *scene)
    wrong = [name for name, kind in kinds.items() if kind != "right"]
    if wrong:
        (name, *_), idea = wrong, _timer_idea({kinds[name] for name in wrong})
        kernel, _, warm_up, repeats, _ = scenes[name]
        kind = kinds[name]
        if kind == "most" and any(kinds[other] == "right" for other in _SLOWED):
            kind = "one"
        if kind == "warm-up" and not warm_up:  # longer than one call, for another reason
            kind = ""
        why = fill(_TIMES.get(kind, ""), warm_up=warm_up, repeats=repeats)
        said = {"name": name, "call": f"timed(cuda, work, {repeats})", "why": why}
        got = number(answers[name][0], call="")
        raise Mistake(_OTHER_TIME, got=got, want=kernel, misconception=idea, **said)
    five, once, *_ = (launched for _, launched, _ in answers.values())
    if five == once:
        raise Mistake(_SAME_COUNT, call="timed(cuda, work, 5)", launched=five)


def _time_kind(value, kernel, pending, warm_up, repeats, hiccups):
    """The name of the first time among those that people take that this is; "" if none is."""
    runs = sorted(kernel + hiccups.get(i, 0.0) for i in range(repeats))
    # The least, and how much more it may be: a device that is idle waits for each launch.
    others = {
        "right": (kernel, _LAUNCH),
        "nothing": (0.0, 0.0),
        "mean": (fmean(runs), _LAUNCH),
        "trimmed": (fmean(runs[1:-1] or runs), _LAUNCH),
        "half the warm-up": (kernel + warm_up / 2, _LAUNCH),
        "all": (sum(runs), _LAUNCH * repeats),
        "least": (runs[0], _LAUNCH),
        "most": (runs[-1], _LAUNCH),
        "two": (2 * kernel, 2 * _LAUNCH),
        # of the first call, of the first two, and so on: the middle one
        "growing": (kernel * (repeats + 1) / 2, _LAUNCH * (repeats + 1) / 2),
        "backwards": (-runs[-1] - _LAUNCH, runs[-1] - runs[0] + _LAUNCH),
        "seconds": (kernel / 1e3, _LAUNCH / 1e3 - _GAP),
        "microseconds": (1e3 * kernel, 1e3 * _LAUNCH),
        # A run of the kernel that warmed up may be in it.
        "warm-up": (kernel + warm_up, kernel + 2 * _LAUNCH),
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
        "warm-up": "the-first-run-is-like-the-others",
        "half the warm-up": "the-first-run-is-like-the-others",
        "mean": "the-mean-of-times",
    }
    return ideas.get(kinds.pop()) if len(kinds) == 1 else None


check_timed.slip(
    "a-call-that-returned-is-done",
    "work() came back at once. What must the program wait for before it asks for the time?",
    cut="end.synchronize()",
)
check_timed.slip(
    "the-first-run-is-like-the-others",
    "The first call also loads and chooses a kernel. When may the first event be recorded?",
    swap=("work()\n    times", "times"),
)
_MEAN = "the-mean-of-times", "One disturbed call moves your result. Which average would not move?"
check_timed.slip(*_MEAN, swap=("return median(times)", "return sum(times) / len(times)"))


@check_timed.wrong(*_MEAN)
def timed_in_one_interval(cuda, work, repeats):
    work()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats
