"""Check of lab 11's search for the modules that must stay in FP32, with planted culprits."""

import math

import numpy as np

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "11_monitoring_and_debugging"

RAISED = "{name}: `must_stay` raised {error}."
NO_SET = "{name}: `must_stay` returned {came}; a set of module names is asked for."
NO_NAME = "{name}: your set holds {strange}, which is the name of no module."
MISSING = (
    "{name}: with {got} in FP32, `good` is False, because {missing} {verb} missing. You made "
    "{runs:d} runs."
)
TOO_MANY = (
    "{name}: with {got} in FP32 `good` is True, and without {idle} it is True as well: {count:d} "
    "of your {all:d} need no FP32."
)
TOO_LONG = (
    "{name}: your set is right, after {runs:d} runs of the network; at most {most:d} are allowed. "
    "A run may have many modules in FP32. Which runs rule out half of the modules at once?"
)
ENDLESS = "{name}: your search went on after {limit:d} runs of the network. {why}"
KEPT = "Each of the last {last:d} runs had {kept} in FP32, and only {culprits} must stay there."
NO_SET_ASKED = "good takes a set of module names; it got {got}"
UNKNOWN = "good takes module names; {got} is none"

_STOPPED_AT = 1000
_LAST = 500
_SIZES = {
    "48 modules, one culprit": (48, 1),
    "48 modules, two neighbours": (48, 2),
    "48 modules, the first and the last": (48, 2),
    "48 modules, no culprit": (48, 0),
    "12 modules, four culprits": (12, 4),
    "30 modules, three culprits": (30, 3),
    "200 modules, three culprits": (200, 3),
}


def _cases(seed):
    """By name: the modules in the order of the forward pass, and how culprits are found."""
    draw = np.random.default_rng(seed)
    for name, (size, count) in _SIZES.items():
        names = [f"layer{i}" for i in range(size)]
        places = draw.permutation(size)[:count].tolist()
        if "neighbours" in name:
            first = int(draw.integers(5, 40))
            places = [first, first + 1]
        if "the last" in name:
            places = [0, size - 1]
        yield name, names, {names[place] for place in places}


def run_must_stay(must_stay, seed):
    """Of each case what comes back, sorted, and the number of runs.

    Of a search without end also the modules that each of its last runs had in FP32.
    """
    shown = {}
    for name, names, culprits in _cases(seed):
        good = _Network(names, culprits)
        found = attempt(must_stay, list(names), good)
        if isinstance(found, (set, frozenset, list, tuple)):
            found = sorted(found, key=str)
        endless = type(found) is Raised and good.runs > _STOPPED_AT
        shown[name] = (found, good.runs, *[sorted(good.kept)] * endless)
    return shown


class _Network:
    """`good`: a network that is right where all culprits are in FP32. It counts its runs."""

    def __init__(self, names, culprits):
        self.names, self.culprits, self.runs = set(names), culprits, 0
        self.kept = set(names)

    def __call__(self, wide):
        if isinstance(wide, str) or not hasattr(wide, "__iter__"):
            raise TypeError(NO_SET_ASKED.format(got=repr(wide)))
        wide = set(wide)
        if wide - self.names:
            raise ValueError(UNKNOWN.format(got=repr(min(wide - self.names, key=str))))
        self.runs += 1
        if self.runs > _STOPPED_AT:
            raise RuntimeError(f"{_STOPPED_AT} runs are enough")
        if self.runs > _STOPPED_AT - _LAST:
            self.kept &= wide
        return self.culprits <= wide


@check(run_must_stay)
def check_must_stay(shown, seed):
    """The modules that must stay in FP32, in few runs."""
    for name, names, culprits in _cases(seed):
        got, runs, *kept = shown[name]
        if type(got) is Raised and runs > _STOPPED_AT:
            said = {"why": _circle(*kept, names, culprits), "misconception": _idea(shown, seed)}
            raise Mistake(ENDLESS, name=name, limit=_STOPPED_AT, **said)
        if type(got) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(got))
        if type(got) is not list:
            raise Mistake(NO_SET, name=name, came=came(got))
        if strange := [one for one in got if one not in names]:
            raise Mistake(NO_NAME, name=name, strange=repr(strange[0]))
        found = set(got)
        if found != culprits:
            raise _other_set(name, names, found, culprits, runs, _idea(shown, seed))
    for name, names, culprits in _cases(seed):  # sets first: they say more than a number of runs
        runs = shown[name][1]
        most = math.ceil(2 * (len(culprits) + 1) * math.log2(len(names)))
        if not runs <= most:
            raise Mistake(TOO_LONG, name=name, runs=runs, most=most, search=False)


def _circle(kept, names, culprits):
    """What an endless search kept although it need not, if it also lacks a culprit."""
    if set(kept) <= culprits or culprits <= set(kept):
        return ""
    said = {"kept": _listed(kept, names), "culprits": _listed(culprits, names)}
    return fill(KEPT, last=_LAST, **said)


def _other_set(name, names, found, culprits, runs, idea):
    """What a set lacks, or else what it need not hold."""
    said = {"name": name, "got": _listed(found, names), "misconception": idea}
    if missing := culprits - found:
        verb = "is" if len(missing) == 1 else "are"
        return Mistake(MISSING, missing=_listed(missing, names), verb=verb, runs=runs, **said)
    idle = found - culprits
    count = len(idle)
    return Mistake(TOO_MANY, idle=_listed(idle, names), count=count, all=len(found), **said)


def _listed(found, names):
    """Some names in the order of the network."""
    ordered = [name for name in names if name in found]
    if len(ordered) > 4:
        return f"{ordered[0]}, {ordered[1]} ... {ordered[-1]} ({len(ordered)} modules)"
    return ", ".join(ordered) or "nothing"


def _idea(shown, seed):
    """The idea of the known wrong answers that find the same sets, in whatever number of runs."""
    ideas = {
        wrong.misconception
        for wrong in check_must_stay.known_wrong
        if _sets(run_must_stay(wrong.answer, seed)) == _sets(shown)
    }
    return ideas.pop() if len(ideas) == 1 else None


def _sets(shown):
    return [
        (got.type_name, *kept) if type(got) is Raised else got for got, _, *kept in shown.values()
    ]


_ONE_FOUND = (
    "With the module that you found in FP32, is the network good? If it is not, what must you "
    "search next?"
)


@check_must_stay.wrong(
    "one-fault-one-place",
    _ONE_FOUND,
)
def must_stay_by_halves(names, good):
    """Keep the half that repairs, or else the other."""
    found = list(names)
    while len(found) > 1:
        half = found[: len(found) // 2]
        found = half if good(set(half)) else found[len(half) :]
    return set(found)


@check_must_stay.wrong(
    "a-culprit-acts-alone",
    "Each run had one module in FP32. Can it be good while another culprit is in FP16?",
)
def must_stay_one_by_one(names, good):
    """Promote one module at a time."""
    return {name for name in names if good({name})}


check_must_stay.slip(
    "one-fault-one-place",
    _ONE_FOUND,
    swap=("while not good(keep):", "if not good(keep):"),
)
check_must_stay.slip(
    "widening-is-free",
    "The prefix is good because it holds the culprits. Which of its modules must be in the set?",
    swap=("{names[high - 1]}", "set(names[:high])"),
)
check_must_stay.slip(
    "there-is-always-a-culprit",
    "In one case all modules may run in FP16. Which call of `good` tells you?",
    swap=("while not good(keep):", "while not keep or not good(keep):"),
)
check_must_stay.slip(
    "each-search-starts-anew",
    "Two culprits repair the network only together. What does your second search keep of the "
    "first?",
    swap=("good(keep | set(names[:middle]))", "good(set(names[:middle]))"),
)
