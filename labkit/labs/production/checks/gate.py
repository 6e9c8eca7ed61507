"""Check of lab 15's gate: where it first alarms on streams of requests, beside exact integers."""

import math
import random
import sys

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, plain, several, truth
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.production.gates import log_e

LAB = "15_production"

NOT_MADE = "{name}: {call} raised {error}."
RAISED = "{where} raised {error}. {counts}"
TOO_LARGE = (
    "{where} raised {error}. {counts} With n = {n}, 2**n and the factorials leave the range of a "
    "float, and E does not."
)
TOO_LARGE_E = (
    "{where} raised {error}. {counts} Here E itself is beyond the range of a float, and its "
    "logarithm is {log_e}."
)
EARLY = "{where} is True. {counts} {why}"
LATE = "{where} is False. {counts} E is {e} and 1/alpha is {bar}, so True is wanted. {why}"
COUNTS = (
    "Of {count} requests that this gate has seen, the reference alone was right on {worse}, "
    "the candidate alone on {better}."
)
TOO_FEW = "{name}: of {want} requests only {got} were seen."
BELOW = "E is {e}, below 1/alpha = {bar}."
BEYOND = (
    "With n = {n}, the range of a float ends: what does your gate do where 2**n, a factorial or a "
    "binomial coefficient is inf?"
)
SILENT = (
    "Your gate never alarms in this stream. From n = 1024 on, 2**n is beyond the range of a float: "
    "what does your gate do there?"
)
E_WAS_BEYOND = (
    "At request {at:d} of this stream the logarithm of E was {log_e}: E itself was beyond the "
    "range of a float. What has your gate kept of it?"
)
LONG = (
    "In the shorter streams before this one your gate is right. Which requests of this stream does "
    "it still count?"
)
AGAIN = (
    "Another gate saw the same requests before this one, and was right. With what does a new gate "
    "begin?"
)
NOT_WORSE = "E is {e}, but the candidate has lost no more than half of the disagreements."
ONE_LOOK = (
    "A test with one look would have p = {p} here, below alpha; this gate looks after each request."
)

NO_AVERAGE = (
    "All alarms of yours come where E would be 1/alpha with n! in place of (n + 1)!: that is n + 1 "
    "times as large."
)
TWO_SIDES = "All alarms of yours come where E reaches 2/alpha; the limit is 1/alpha."
ONE_LATE = (
    "All alarms of yours come one request late. Does your gate count the request that it is asked "
    "about before it answers?"
)

_TWICE = "ten in a row, by another gate"
_LARGEST = math.log(sys.float_info.max)
_ENDS = 1020, 1024
"""Disagreements from which on (n + 1) * comb(n, n // 2) and 2**n are beyond a float."""
_STARTS = 1, 10, 20, 30
"""Disagreements from which on a test for one look may begin, as a rule of thumb."""

_BOTH, _NEITHER = (True, True), (False, False)
_WORSE, _BETTER = (True, False), (False, True)


def _drawn(draw, length, *, differ, worse):
    """Requests: a share of them on which the models differ, and of these a share against it."""
    return [
        (_WORSE if draw.random() < worse else _BETTER)
        if draw.random() < differ
        else (_BOTH if draw.random() < 0.7 else _NEITHER)
        for _ in range(length)
    ]


def _streams(seed):
    """By name: alpha, and the requests in their order."""
    draw = random.Random(seed)
    turns = [_WORSE, _BETTER] * 520
    return {
        "ten in a row": (0.05, [_WORSE] * 10),
        _TWICE: (0.05, [_WORSE] * 10),
        "two models that agree": (0.05, [_BOTH, _BOTH, _NEITHER] * 200),
        "two right answers between disagreements": (0.05, [_BOTH, _BOTH, _WORSE] * 12),
        "a candidate that loses 90 %": (0.05, _drawn(random.Random(1), 300, differ=0.1, worse=0.9)),
        "two equal models": (0.05, _drawn(random.Random(4), 1200, differ=0.2, worse=0.5)),
        "two more equal models": (0.05, _drawn(random.Random(19), 1200, differ=0.2, worse=0.5)),
        "a better candidate": (0.05, _drawn(random.Random(4), 700, differ=0.1, worse=0.25)),
        "a candidate that loses 60 %": (
            0.05,
            _drawn(random.Random(5), 700, differ=0.2, worse=0.6),
        ),
        "better 30 times, then worse": (0.05, [_BETTER] * 30 + [_WORSE] * 70),
        "520 against 520, then worse": (0.05, turns + [_WORSE] * 200),
        "1,100 better, then 1,101 worse": (0.05, [_BETTER] * 1100 + [_WORSE] * 1101),
        "a small alpha": (0.001, _drawn(draw, 800, differ=0.2, worse=0.75)),
        "a large alpha": (0.2, _drawn(draw, 800, differ=0.2, worse=0.65)),
        **{
            f"drawn requests {i}": (0.05, _drawn(draw, 800, differ=0.2, worse=worse))
            for i, worse in enumerate((0.7, 0.8, 0.65))
        },
    }


def run_gate(Gate, seed):
    """Of each stream: after how many requests the gate first gave something but False, and what."""
    shown = []
    for alpha, requests in _streams(seed).values():
        gate = attempt(Gate, alpha)
        shown.append([0, gate] if type(gate) is Raised else _first(gate, requests))
    return shown


def _first(gate, requests):
    for count, (reference_right, candidate_right) in enumerate(requests, 1):
        said = _plain(attempt(gate.see, reference_right, candidate_right))
        if said is not False:
            return [count, said]
    return [len(requests), False]


def _plain(said):
    """A truth value of another type, 0 and 1 included, as Python's own."""
    said = plain(said)
    if isinstance(said, torch.Tensor) and said.numel() == 1:
        said = said.item()
    return bool(said) if type(said) is int and said in (0, 1) else said


@check(
    run_gate,
    own_work=("labkit.labs.production.gates.Gate", "labkit.labs.production.gates.log_e"),
)
def check_gate(shown, seed):
    """A gate that may be asked after each request, and rolls a worse candidate back."""
    for (name, (alpha, requests)), found in zip(_streams(seed).items(), shown, strict=True):
        count, said = several(found, 2, call=name)
        if type(said) is Raised and count == 0:
            raise AnswerError(NOT_MADE, name=name, call=f"Gate({alpha})", error=failure(said))
        wanted, seen = _exact(alpha, requests)
        last = wanted or len(requests)
        count = number(count, call=name)
        at = int(count) if 1 <= count <= last else last
        call = f"see{requests[at - 1]}"
        where = f"{name}, alpha = {alpha}: at request {at}, `{call}`"
        if type(said) is Raised and at == count:
            _failed(said, where, at, seen[at - 1])
        alarm = said if type(said) is Raised else truth(said, call=call)
        if (count, alarm) == (last, wanted is not None):
            continue
        counts = fill(COUNTS, count=at, worse=seen[at - 1][0], better=seen[at - 1][1])
        if alarm and at != wanted:
            why = _pattern(shown, seed) or _why(alpha, seen[:at])
            why = f"{why} {AGAIN}" if name == _TWICE else why
            raise Mistake(EARLY, where=where, counts=counts, why=why)
        if wanted:
            e = math.exp(log_e(*seen[at - 1]))
            silent = not alarm and sum(seen[at - 1]) >= 1024
            why = _pattern(shown, seed)
            why = AGAIN if name == _TWICE else SILENT if silent else why
            raise Mistake(LATE, where=where, counts=counts, e=e, bar=1 / alpha, why=why)
        raise Mistake(TOO_FEW, name=name, got=count, want=len(requests))


def _failed(raised, where, at, seen):
    counts = fill(COUNTS, count=at, worse=seen[0], better=seen[1])
    said = {"where": where, "error": failure(raised), "counts": counts}
    if raised.type_name == "OverflowError" and log_e(*seen) > _LARGEST:
        raise Mistake(TOO_LARGE_E, log_e=log_e(*seen), **said)
    if raised.type_name == "OverflowError":
        raise Mistake(TOO_LARGE, n=sum(seen), **said)
    raise AnswerError(RAISED, **said)


def _exact(alpha, requests, averaged=True):
    """The first request at which to roll back, by whole numbers, and the counts after each.

    Without the average over all coins the factor n + 1 is missing.
    """
    worse = better = 0
    first, seen, bar = None, [], round(1 / alpha)
    for at, (reference_right, candidate_right) in enumerate(requests, 1):
        worse += reference_right > candidate_right
        better += candidate_right > reference_right
        seen.append((worse, better))
        n = worse + better
        against = reference_right > candidate_right and worse > better
        if first is None and against and 2**n >= bar * (n + 1) ** averaged * math.comb(n, worse):
            first = at
    return first, seen


def _pattern(shown, seed):
    """What is true of the alarms of all streams, as a sentence; "" if nothing is."""
    rules = {
        NO_AVERAGE: lambda alpha, requests: _exact(alpha, requests, averaged=False)[0],
        TWO_SIDES: lambda alpha, requests: _exact(alpha / 2, requests)[0],
        ONE_LATE: lambda alpha, requests: (_exact(alpha, requests)[0] or math.inf) + 1,
    }
    streams = _streams(seed).values()
    for said, first in rules.items():
        alarms = [(first(*stream), len(stream[1])) for stream in streams]
        alarms = [(None if at is None or at > length else at, length) for at, length in alarms]
        if shown == [[at or length, at is not None] for at, length in alarms]:
            return said
    return ""


def _why(alpha, seen):
    """Why there is no alarm yet, after these counts."""
    worse, better = seen[-1]
    logs, n = [log_e(*counts) for counts in seen], worse + better
    if logs[-1] >= -math.log(alpha):
        return fill(NOT_WORSE, e=_value(logs[-1]))
    below = fill(BELOW, e=math.exp(logs[-1]), bar=1 / alpha)
    # inf is above every limit: it alarms at the first request after which w > b.
    if _first_worse(seen, [one > _LARGEST for one in logs]):
        at = logs.index(max(logs))
        return f"{below} {fill(E_WAS_BEYOND, at=at + 1, log_e=logs[at])}"
    if any(_first_worse(seen, [sum(counts) >= end for counts in seen]) for end in _ENDS):
        return f"{below} {fill(BEYOND, n=n)}"
    if n >= 1024:
        return f"{below} {LONG}"
    before = next((counts for counts in reversed(seen) if sum(counts) < n), (0, 0))
    if _p(worse, better) < alpha and (_p(*before) >= alpha or n in _STARTS):
        return f"{below} {fill(ONE_LOOK, p=_p(worse, better))}"
    return below


def _p(worse, better):
    """The chance of a fair coin to land so often, or more often, against the candidate."""
    n = worse + better
    return sum(math.comb(n, k) for k in range(worse, n + 1)) / 2**n


def _value(log_e):
    """E of its logarithm: a number, or text where a float does not hold it."""
    return math.exp(log_e) if log_e <= _LARGEST else f"about 10**{log_e / math.log(10):.0f}"


def _first_worse(seen, beyond):
    """Whether w > b in the last counts, for the first time since a value was beyond."""
    since = seen[beyond.index(True) :] if any(beyond) else []
    return [worse > better for worse, better in since] == [False] * (len(since) - 1) + [True]


_COUNTED = """self.worse += bool(reference_right and not candidate_right)
        self.better += bool(candidate_right and not reference_right)"""
_JUDGED = """log_e = n * math.log(2) + math.lgamma(self.worse + 1) + math.lgamma(self.better + 1)
        log_e -= math.lgamma(n + 2)
        return self.worse > self.better and log_e >= -math.log(self.alpha)"""
_P_VALUES = [
    f"return n >= {least} and (self.worse - n / 2) / math.sqrt(n / 4) > {z}"
    for least in (1, 10, 20, 30)
    for z in (1.645, 1.96)
]
_OVERFLOWING = (
    "e = 2.0**n * math.exp(math.lgamma(self.worse + 1) + math.lgamma(self.better + 1)"
    " - math.lgamma(n + 2))",
    "e = 2.0**n * math.factorial(self.worse) * math.factorial(self.better) / math.factorial(n + 1)",
)

for _p_value in _P_VALUES:
    check_gate.slip(
        "looking-again-is-free",
        "A p-value is below alpha for a share alpha of equal candidates if you look once. How "
        "often do you look?",
        swap=(_JUDGED, _p_value),
    )
for _e in _OVERFLOWING:
    check_gate.slip(
        "likelihoods-fit-a-float",
        "Which function gives the logarithm of a factorial, and what is the logarithm of 2**n?",
        swap=(_JUDGED, f"{_e}\n        return self.worse > self.better and e >= 1 / self.alpha"),
    )
check_gate.slip(
    "the-best-fit-is-the-average",
    "You compare the fair coin with the coin that fits best. Which average is in E?",
    swap=(
        _JUDGED,
        "fit = sum(k * math.log(k / n) for k in (self.worse, self.better) if k)\n"
        "        return self.worse > self.better and "
        "n * math.log(2) + fit >= -math.log(self.alpha)",
    ),
)
check_gate.slip(
    "agreements-are-evidence",
    "You count requests on which both models do the same. What do they say about which one is "
    "worse?",
    swap=(
        "bool(candidate_right and not reference_right)",
        "not (reference_right and not candidate_right)",
    ),
)
check_gate.slip(
    "pairs-need-no-pairing",
    "You count the errors of each model. What do requests say that both get wrong?",
    swap=(
        _COUNTED,
        "self.worse += not candidate_right\n        self.better += not reference_right",
    ),
)
check_gate.slip(
    "e-grows-only-for-the-worse",
    "E says that the coin is not fair. Which count says to which side it falls?",
    cut="self.worse > self.better and ",
)
check_gate.slip(
    "a-small-e-is-evidence",
    "A p-value speaks against the fair coin where it is small. Where does E?",
    swap=("log_e >= -math.log(self.alpha)", "log_e <= math.log(self.alpha)"),
)
check_gate.slip(
    "starting-again-is-free",
    "You set the counts back to 0 where the candidate is ahead. What does each new start give to "
    "an equal candidate?",
    swap=(
        "n = self.worse + self.better",
        "if self.better >= self.worse:\n            self.worse = self.better = 0\n"
        "        n = self.worse + self.better",
    ),
)
