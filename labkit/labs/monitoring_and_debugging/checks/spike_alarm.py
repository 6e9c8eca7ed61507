"""Check of lab 11's alarm: its traces, beside medians of numpy's."""

import math

import numpy as np

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "11_monitoring_and_debugging"

RAISED = "{where} `see({loss})` raised {error}."
NOT_MADE = "{call} raised {error}."
NOT_A_KIND = '{where} `see({loss})` is {came}; "nonfinite", "spike" or None is asked for.'
TOO_FEW = "{name}: of {want} losses only {got} were seen."
OTHER = "{where} `see({loss})` is {got}; {want} is wanted. {why}"
NOT_FINITE = "This loss is not finite."
STILL_THE_FAULT = (
    "The loss of step {before} was a fault too, so no new fault begins here. This one lasts "
    "{steps}, and you gave {alarms} for it."
)
NEW_FAULT = "The last fault before it ended with step {ended}, so this one is new."
NOT_FULL = "`past` holds {count} of {window} losses, so there is no baseline yet."
LIMITS = (
    "The {window} finite losses before it have a median of {median} and a MAD of {mad}. The limit "
    "is max({k:g} * 1.4826 * {mad}, {margin:g}) = {limit}, and the loss lies {away}."
)
OUTLIER = "(Their mean is {mean} and their standard deviation {sigma}.)"
ABOVE, BELOW = "{distance} above the median", "{distance} below the median"

_KINDS = ("nonfinite", "spike")


def _levels(window, half, seed):
    """The same ``window`` losses around 2 over and over: their median and MAD never change."""
    order = np.random.default_rng(seed).permutation(window)
    return np.resize(2 + np.linspace(-half, half, window)[order], 190)


def _traces(seed):
    """By name: the arguments of SpikeAlarm, and losses."""
    quiet, noisy = _levels(50, 0.1, seed), _levels(50, 0.5, seed + 9)
    steps = np.arange(190)
    drawn = int(np.random.default_rng(seed).integers(60, 180))

    def put(losses, faults):
        losses = np.array(losses)
        for step, loss in faults.items():
            losses[step] = loss
        return losses.tolist()

    plateau = quiet + 4 * (steps >= 70)
    nan = dict.fromkeys(range(80, 140), math.nan)
    return {
        "a run that learns": ({}, (quiet * 1.2 * 0.98**steps).tolist()),
        "one loss of 1000": ({}, put(quiet, {drawn: 1000.0})),
        "NaN twice, -inf and inf": (
            {},
            put(quiet, {10: math.nan, 30: math.nan, 70: -math.inf, 90: math.inf}),
        ),
        "a loss that falls by 1.5": ({}, (quiet - 1.5 * (steps >= 80)).tolist()),
        "0.71 and 1.95 after losses of 0.7": ({}, put(np.full(90, 0.7), {60: 0.71, 80: 1.95})),
        "a spike before `past` is full": ({}, put(quiet, {49: 30.0, 90: 30.0})),
        "1000, and 100 five steps later": ({}, put(quiet, {80: 1000.0, 85: 100.0})),
        "a noisy run": ({}, put(noisy, {60: 3.25, 80: 3.7, 100: 4.75})),
        "60 NaN, and 50 ten steps later": ({}, put(quiet, nan | {149: 50.0})),
        "2.7 and 3.5 after losses around 2": ({}, put(quiet, {60: 2.7, 80: 3.5})),
        "NaN, and 30 before `past` is full": ({}, put(quiet, {10: math.nan, 50: 30.0})),
        "NaN, 50, a normal loss, 50": ({}, put(quiet, {80: math.nan, 81: 50.0, 83: 50.0})),
        "4 higher from step 70 on, 50 at steps 80 and 130": (
            {},
            put(plateau, {80: 50.0, 130: 50.0}),
        ),
        "window=20, k=4, margin=0.2": (
            {"window": 20, "k": 4.0, "margin": 0.2},
            put(_levels(20, 0.1, seed + 5), {10: 3.0, 40: 2.26, 60: 2.45, 61: 2.45}),
        ),
        "2 and 2.5 after losses of 1": ({}, put(np.ones(90), {60: 2.0, 80: 2.5})),
        # In so short a window a loss of 9 moves a baseline that it is part of.
        "window=3": ({"window": 3}, [1.0, 2.0, 9.0, 9.0, 9.0, 2.0, 50.0]),
    }


def run_spike_alarm(SpikeAlarm, seed):
    """What `see` returns at each step of each trace; nothing after an exception."""
    shown = {}
    for name, (settings, losses) in _traces(seed).items():
        alarm = attempt(SpikeAlarm, **settings)
        shown[name] = alarm if type(alarm) is Raised else _seen(alarm, losses)
    return shown


def _seen(alarm, losses):
    seen = []
    for loss in losses:
        seen.append(attempt(alarm.see, loss))
        if type(seen[-1]) is Raised:
            break
    return seen


@check(
    run_spike_alarm,
    own_work=(
        "labkit.measuring.monitor.Monitor",
        "labkit.measuring.monitor.Baseline",
        "labkit.labs.monitoring_and_debugging.alarm_rules.normal",
    ),
)
def check_spike_alarm(shown, seed):
    """One alarm for each spike and each loss that is not finite, and none on a healthy run."""
    for name, (settings, losses) in _traces(seed).items():
        got, wanted = shown[name], _wanted(losses, **settings)
        if type(got) is Raised:
            made = ", ".join(f"{key}={value:g}" for key, value in settings.items())
            raise AnswerError(NOT_MADE, call=f"SpikeAlarm({made})", error=failure(got))
        for step, (loss, value) in enumerate(zip(losses, got, strict=False)):
            where = f"{name}: at step {step}"
            kind, want = _kind(value, where, loss), wanted[step]["alarm"]
            if kind != want:
                said = {"got": _shown(kind), "want": _shown(want), "why": _why(step, got, wanted)}
                raise Mistake(OTHER, where=where, loss=loss, **said)
        if len(got) < len(losses):
            raise Mistake(TOO_FEW, name=name, want=len(losses), got=len(got))


def _kind(value, where, loss):
    if type(value) is Raised:
        raise AnswerError(RAISED, where=where, loss=loss, error=failure(value))
    word = value.strip().casefold() if type(value) is str else value
    if word is not None and word not in _KINDS:
        raise Mistake(NOT_A_KIND, where=where, loss=loss, came=came(value))
    return word


def _shown(kind):
    return "None" if kind is None else f'"{kind}"'


def _wanted(losses, window=50, k=6.0, margin=1.0):
    """Of each step: the alarm, whether it is a fault, and the numbers that decide it."""
    past, found = [], []
    for loss in losses:
        now = {"fault": None, "window": window, "count": len(past), "k": k, "margin": margin}
        if not math.isfinite(loss):
            now["fault"] = "nonfinite"
        else:
            if len(past) == window:
                now["median"] = np.median(past).item()
                now["mad"] = np.median(np.abs(np.array(past) - now["median"])).item()
                now["limit"] = max(k * 1.4826 * now["mad"], margin)
                now["mean"], now["sigma"] = np.mean(past).item(), np.std(past).item()
                now["above"] = loss - now["median"]
                now["fault"] = "spike" if now["above"] > now["limit"] else None
            past = [*past, loss][-window:]
        now["alarm"] = None if found and found[-1]["fault"] else now["fault"]
        found.append(now)
    return found


def _why(step, got, wanted):
    """What is true of this step."""
    now = wanted[step]
    if now["fault"] and not now["alarm"]:
        start = max(i for i in range(step) if wanted[i]["alarm"])
        end = next((i for i in range(step, len(wanted)) if not wanted[i]["fault"]), len(wanted))
        return fill(
            STILL_THE_FAULT,
            before=step - 1,
            steps=_many(end - start, "step", "steps"),
            alarms=_many(sum(type(x) is str for x in got[start:end]), "alarm", "alarms"),
        )
    if now["fault"] == "nonfinite":
        ended = [i for i in range(step) if wanted[i]["fault"]]
        return " ".join([NOT_FINITE, *(fill(NEW_FAULT, ended=i) for i in ended[-1:])])
    if "median" not in now:
        return fill(NOT_FULL, **now)
    now = {key: float(f"{x:.5g}") if type(x) is float else x for key, x in now.items()}
    side = ABOVE if now["above"] >= 0 else BELOW
    said = fill(LIMITS, away=fill(side, distance=abs(now["above"])), **now)
    if now["sigma"] > 20:  # an outlier is among them
        said += " " + fill(OUTLIER, **now)
    return said


def _many(count, one, more):
    return f"{count} {one if count == 1 else more}"


_SOLVED = """if len(self.past) == self.past.maxlen:
                median = statistics.median(self.past)
                mad = statistics.median(abs(x - median) for x in self.past)
                if loss - median > max(self.k * 1.4826 * mad, self.margin):
                    kind = "spike"
            self.past.append(loss)"""
_MEDIANS = """median = statistics.median(self.past)
                mad = statistics.median(abs(x - median) for x in self.past)
                if loss - median > max(self.k * 1.4826 * mad, self.margin)"""
_MEANS = """mean = statistics.fmean(self.past)
                sigma = statistics.{deviation}(self.past)
                if loss - mean > max(self.k * sigma, self.margin)"""
_OWN_BASELINE = (
    "The loss was in `past` when you computed the baseline. Which losses may say what is normal?"
)
_SIGMA = (
    "One loss in fifty moved your mean and your standard deviation. Which centre and which width "
    "does one outlier not move?"
)


def _appended_first(text):
    return text.replace("            self.past.append(loss)", "").replace(
        "if len", "self.past.append(loss)\n            if len"
    ).rstrip()  # fmt: skip


check_spike_alarm.slip(
    "a-spike-leaves-its-own-baseline", _OWN_BASELINE, swap=(_SOLVED, _appended_first(_SOLVED))
)
for _deviation in ("pstdev", "stdev"):
    _means = _MEANS.format(deviation=_deviation)
    check_spike_alarm.slip("one-outlier-does-not-move-sigma", _SIGMA, swap=(_MEDIANS, _means))
    check_spike_alarm.slip(
        "a-spike-leaves-its-own-baseline",
        _OWN_BASELINE,
        swap=(_SOLVED, _appended_first(_SOLVED.replace(_MEDIANS, _means))),
    )
check_spike_alarm.slip(
    "any-change-is-an-alarm",
    "A loss that falls is what you train for. In which direction is it a fault?",
    swap=("loss - median >", "abs(loss - median) >"),
)
check_spike_alarm.slip(
    "statistics-knows-what-matters",
    "The MAD of a flat loss is 0, and then any rise is too much. Which part of the limit says how "
    "large a rise matters?",
    swap=("max(self.k * 1.4826 * mad, self.margin)", "self.k * 1.4826 * mad"),
)
check_spike_alarm.slip(
    "one-alarm-a-step",
    "How does `see` know that the fault is the one it reported before?",
    swap=("None if self.ringing else kind", "kind"),
)
check_spike_alarm.slip(
    "comparisons-find-nan",
    "Every comparison with NaN is False. Which function finds it?",
    swap=("not math.isfinite(loss)", "abs(loss) > 1e30"),
)
check_spike_alarm.slip(
    "nan-is-the-only-nonfinite",
    "A loss that overflows is inf before it is NaN. Which function finds both?",
    swap=("not math.isfinite(loss)", "math.isnan(loss)"),
)
check_spike_alarm.slip(
    "a-median-ignores-nan",
    "Sixty NaN filled your `past`, and no comparison with a median of NaN is True. Which losses "
    "may enter it?",
    swap=("    self.past.append(loss)\n        new", "self.past.append(loss)\n        new"),
)
check_spike_alarm.slip(
    "mad-is-sigma",
    "By which factor is the standard deviation of normal numbers larger than their MAD?",
    swap=("self.k * 1.4826 * mad", "self.k * mad"),
)
check_spike_alarm.slip(
    "a-few-losses-are-a-baseline",
    "From how many losses on does `past` say what is normal?",
    swap=("if len(self.past) == self.past.maxlen:", "if self.past:"),
)
check_spike_alarm.slip(
    "faults-are-no-history",
    "A loss that stays higher becomes the new normal, but only if it enters `past`. Which losses "
    "do you keep out?",
    swap=("            self.past.append(loss)\n        new",
          "            if kind is None:\n                self.past.append(loss)\n        new"),
)  # fmt: skip
