"""Check of lab 12: a selector that moves between formats, driven along open and closed loops."""

import random

from labkit.labs.engine import AnswerError, Mistake, attempt, check, entries, number, truth
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "12_choosing_precision"

RAISED = "{name}: in window {window:d} your escalate raised {error}."
CALLERS = (
    "{name}: in window {window:d} your escalate changed the caller's state. "
    "Which expression makes a new dict?"
)
OTHER = (
    "{name}: in window {window:d}, {what} is {got}; {want} is wanted. Before it the state was "
    "{before}, and the window was {kind}. {why}"
)
UP = "{bad:d} unstable windows in a row move it up."
UP_ENDS = "A move up ends a trial."
NOT_UP = "Unstable windows in a row so far: {bad:d}. {up:d} are needed."
DOWN = "{good:d} stable windows in a row move it down, on trial."
NOT_DOWN = "Stable windows in a row so far: {good:d}. {wait:d} are needed."
TOP = "There is no level above 2."
BOTTOM = "There is no level below 0."
FAILED = "This move up ends a trial, so wait doubles."
NO_TRIAL = "No trial was on, so wait stays."
WAIT_STAYS = "Only a move up that ends a trial changes wait."
PASSED = "{wait:d} stable windows in a row end a trial."
NOT_PASSED = "A trial lasts until {wait:d} stable windows in a row or a move up."
COUNTS = "A window adds 1 to one count and sets the other to 0, and a move sets both to 0."

_KEYS = "level", "bad", "good", "wait", "trial"
_START = {"level": 0, "bad": 0, "good": 0, "wait": 20, "trial": False}
_LOOPS = {  # up, wait at the start, windows
    "the example": (2, 20, 26),
    "FP16 is never stable": (2, 20, 1300),  # until wait has doubled six times
    "every second window is unstable": (2, 20, 60),
    "all windows are unstable": (2, 20, 8),
    "a bad stretch of 100 windows": (2, 20, 300),
    "BF16 is unstable too, from time to time": (2, 5, 300),
    "random windows, up = 3, wait = 4": (3, 4, 300),
    "random windows, up = 1, wait = 3": (1, 3, 200),
}


def _signal(name, seed):
    """Whether a window is unstable, by its number and the level."""
    draw = random.Random(seed + 1)
    noise = [draw.random() for _ in range(300)]
    return {
        "the example": lambda t, level: t not in range(2, 22),
        "FP16 is never stable": lambda t, level: level == 0,
        "every second window is unstable": lambda t, level: t % 2 == 0,
        "all windows are unstable": lambda t, level: True,
        "a bad stretch of 100 windows": lambda t, level: level == 0 and t < 100,
        "BF16 is unstable too, from time to time": lambda t, level: (
            level == 0 or (level == 1 and noise[t] < 0.3)
        ),
        "random windows, up = 3, wait = 4": lambda t, level: noise[t] < (0.7, 0.5, 0.3)[level],
        "random windows, up = 1, wait = 3": lambda t, level: noise[t] < (0.5, 0.3, 0.2)[level],
    }[name]


def run_escalate(escalate, seed):
    """The states of each loop, one after each window; the last may be an exception."""
    seen = {}
    for name, (up, wait, windows) in _LOOPS.items():
        signal, state, states = _signal(name, seed), _START | {"wait": wait}, []
        for window in range(windows):
            try:
                given = {key: state[key] for key in _KEYS}
                unstable = signal(window, int(state["level"]))
            except (LookupError, TypeError, ValueError):
                break  # the judge says what is wrong with this state
            kept = dict(given)
            state = attempt(escalate, given, unstable, up)
            states.append([state, given == kept])
        seen[name] = states
    return seen


@check(run_escalate, own_work=("labkit.labs.choosing_precision.selector.adjust",))
def check_escalate(seen, seed):
    """A selector that goes up, comes back on trial, and learns from a failed trial."""
    for name, (up, wait, windows) in _LOOPS.items():
        signal, state = _signal(name, seed), _START | {"wait": wait}
        for window in range(windows):
            unstable = signal(window, state["level"])
            got, kept = seen[name][window]
            where = {"name": name, "window": window + 1}
            if type(got) is Raised:
                raise AnswerError(RAISED, error=failure(got), **where)
            if kept is not True:
                raise Mistake(CALLERS, search=False, **where)
            got = _read(got, f"escalate, window {window + 1} of {name}")
            before, state = state, _next(state, unstable, up)
            for what in ("level", "wait", "trial", "bad", "good"):
                if got[what] != state[what]:
                    raise Mistake(
                        OTHER,
                        what=what,
                        got=got[what],
                        want=state[what],
                        before=", ".join(f"{key} {before[key]}" for key in _KEYS),
                        kind="unstable" if unstable else "stable",
                        why=_why(what, before, state, unstable, up),
                        **where,
                    )


def _read(got, call):
    state = entries(got, _KEYS, call=call)
    numbers = {key: number(state[key], call=f"{call}: {key}") for key in _KEYS[:4]}
    numbers = {key: int(x) if x.is_integer() else x for key, x in numbers.items()}
    return numbers | {"trial": truth(state["trial"], call=f"{call}: trial")}


def _next(state, unstable, up):
    """The next state, by a table of events."""
    bad, good = (state["bad"] + 1, 0) if unstable else (0, state["good"] + 1)
    level, wait, trial = state["level"], state["wait"], state["trial"]
    over = good >= wait
    event = "up" if bad >= up else "down" if over else "stay"
    if event == "stay" or (event, level) in (("up", 2), ("down", 0)):
        return {"level": level, "bad": bad, "good": good, "wait": wait, "trial": trial and not over}
    to, waits, on_trial = {"up": (1, wait * (1 + trial), False), "down": (-1, wait, True)}[event]
    return {"level": level + to, "bad": 0, "good": 0, "wait": waits, "trial": on_trial}


def _why(what, before, after, unstable, up):
    """The rule that decides this part of the next state, as a sentence."""
    bad, good = (before["bad"] + 1, 0) if unstable else (0, before["good"] + 1)
    said = {"bad": bad, "good": good, "up": up, "wait": before["wait"]}
    moved = after["level"] - before["level"]
    if what in ("bad", "good"):
        return COUNTS
    if what == "wait":
        return FAILED if after["wait"] != before["wait"] else NO_TRIAL if moved > 0 else WAIT_STAYS
    if moved > 0 and what == "trial":
        return UP_ENDS
    if moved:
        return fill(UP if moved > 0 else DOWN, **said)
    if what == "trial" and before["trial"]:
        return fill(PASSED if good >= before["wait"] else NOT_PASSED, **said)
    if unstable:
        return TOP if bad >= up else fill(NOT_UP, **said)
    return BOTTOM if good >= before["wait"] else fill(NOT_DOWN, **said)


check_escalate.slip(
    "a-controller-needs-no-memory",
    "One stable window says little. Which count must reach `wait` before the level goes down?",
    swap=("if good >= wait and level > 0", "if good >= 1 and level > 0"),
)
check_escalate.slip(
    "hysteresis-ends-flapping",
    "Each return to FP16 fails, and you try again after the same time. What has a failed trial "
    "taught you?",
    swap=("2 * wait if trial else wait", "wait"),
)
check_escalate.slip(
    "in-a-row-is-in-all",
    "Unstable windows that lie far apart count together. Which window sets the count back to 0?",
    swap=('state["bad"] + 1 if unstable else 0', 'state["bad"] + unstable'),
)
check_escalate.slip(
    "instability-needs-fp32",
    "BF16 has FP32's range and lies between. By how many levels does one move go up?",
    swap=('{"level": level + 1,', '{"level": 2,'),
)
check_escalate.slip(
    "each-move-back-is-a-failure",
    "A run that was stable for long enough has passed its trial. When does a trial end?",
    swap=('"trial": trial and good < wait', '"trial": trial'),
)
check_escalate.slip(
    "every-escalation-doubles-the-wait",
    "The first move up follows no trial. Of which moves does `wait` double?",
    swap=("2 * wait if trial else wait", "2 * wait"),
)
