"""More of what is wrong with an answer, for the student's page, where a judge stops at the first.

Where a check's first half gives a list, labkit's own answer gives a list that passes. One element
of the answer's list at a time is put into it and judged: what the judge then says is about that
element. Its first sentence is kept, and the second where the first does not tell what is right: the
later ones may be about the answer as a whole.
"""

import contextlib
import functools
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.labs.engine import Check, codec
from labkit.labs.engine.checks import bind_seed
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.limit import limited
from labkit.labs.engine.own_work import reported
from labkit.labs.engine.reading import AnswerError, Mistake
from labkit.labs.engine.running import TookTooLong
from labkit.labs.engine.slips import SlipError, solutions_of

MOST_JUDGINGS = 200
"""Elements of one answer that are judged; with more wrong ones, how many are is not told."""

MOST_SENTENCES = 3

MOST_EARNED = 0.5
"""What an answer that fails is worth at most.

Of the labs' known wrong answers to such checks half are right in 52 % of the cases or more, and a
quarter in 81 %: many cases are ordinary, and an idea shows in a few.
"""

SECONDS = 10.0
"""CPU time for labkit's own answer, and again for the judgings; past it nothing further is told.

A check that trains takes longer; its own answer is then not run a second time. Not wall time: what
a page says must not depend on how busy the machine is.
"""

_WALL_SECONDS = 60.0  # for what never ends

_KEPT = 100  # lists of labkit's own answers: a grader meets another seed each time
_slow: set[Check] = set()
_SENTENCES = re.compile(r"(?:`[^`]*`|[^`])*?[.?!](?=\s|$)")
_TELLS_WHAT_IS_RIGHT = re.compile(r"\b(?:wanted|expected|should|raised)\b")
_OF_ALL = re.compile(r"(?:Yours?|You|Every|All|Each|Only)\b")


@dataclass(frozen=True, kw_only=True)
class Further:
    """Sentences on further wrong cases, and how many of ``cases`` are ``wrong``.

    ``commonest`` is how often the most common element of labkit's own list occurs: a constant
    answer may be right so often. All three are 0 where they are not known. ``judgings`` is how
    often the judge was asked.
    """

    sentences: tuple[str, ...] = ()
    wrong: int = 0
    cases: int = 0
    commonest: int = 0
    judgings: int = 0

    @property
    def score(self) -> float:
        """What the right cases are worth, from 0 to ``MOST_EARNED``.

        As many as a constant answer may get right are worth nothing.
        """
        beyond = self.cases - self.wrong - self.commonest
        if beyond <= 0:
            return 0.0
        return round(MOST_EARNED * beyond / (self.cases - self.commonest), 4)


def further(check: Check, collected: bytes, *, seed: int = 0) -> Further:
    """What else is wrong with an answer that has failed; empty where nothing can be said.

    Nothing is said of an answer that the check refuses for a forbidden function: no right case is
    its own work.

    Args:
        check: its check.
        collected: what the check's first half gave, as bytes of the codec.
        seed: the seed of the run.

    Never raises, whatever the bytes hold.
    """
    try:
        report = codec.decode_value(collected)
        if any(used.by_name for used in reported(report.get("shortcuts"), check.own_work)):
            return Further()
        value = report["value"]
        good = _good(check, seed) if type(value) is list else None
        if good is None or len(good) != len(value):
            return Further()
        with limited(_WALL_SECONDS):
            return _compared(bind_seed(check.judge, seed), value, good)
    except (Exception, SystemExit, TookTooLong):
        return Further()


def _compared(judge: Callable[[Any], None], value: list, good: list) -> Further:
    whole = _said(judge, value)
    differing = [place for place, one in enumerate(value) if not _equal(one, good[place])]
    judged = differing[:MOST_JUDGINGS]
    wrong, end = {}, time.process_time() + SECONDS
    for place in judged:
        if time.process_time() > end:
            return Further()
        if said := _said(judge, [*good[:place], value[place], *good[place + 1 :]]):
            wrong[place] = _beginning(said)
    places = list(wrong)
    # A judge that sees the list as a whole says other things of it than of its elements.
    if _said(judge, good) or not places or wrong[places[0]] != _beginning(whole):
        return Further(judgings=len(judged) + 2)
    kinds, sentences = {_kind(value[places[0]], wrong[places[0]])}, []
    for place in places[1:]:
        kind = _kind(value[place], wrong[place])
        if kind not in kinds and not _OF_ALL.match(wrong[place]):
            kinds.add(kind)
            sentences.append(wrong[place])
    judgings, told = len(judged) + 2, tuple(sentences[:MOST_SENTENCES])
    if len(differing) > len(judged):
        return Further(sentences=told, judgings=judgings)
    ((_, commonest),) = Counter(map(codec.encode_value, good)).most_common(1)
    return Further(
        sentences=told,
        wrong=len(wrong),
        cases=len(value),
        commonest=commonest,
        judgings=judgings,
    )


def _said(judge: Callable[[Any], None], value: list) -> str:
    """What the judge says of a list; "" if it passes. Raises what is no verdict."""
    try:
        judge(value)
    except (Mistake, AnswerError) as error:
        return " ".join(str(error).split())
    return ""


def _beginning(said: str) -> str:
    """The first sentence, and maybe the second: `snap(0.1)` is 0.0. The nearest value is 0.1."""
    first, *rest = [one.strip() for one in _SENTENCES.findall(said)] or [said]
    if rest and not _TELLS_WHAT_IS_RIGHT.search(first) and not _OF_ALL.match(rest[0]):
        return f"{first} {rest[0]}"
    return first


def _kind(element: object, sentence: str) -> object:
    """What makes two wrong cases one to a reader: the sentence, or the exception of both."""
    if type(element) is Raised:
        return element.type_name, element.message, element.line
    return sentence


def _equal(one: object, other: object) -> bool:
    return codec.encode_value(one) == codec.encode_value(other)


def _good(check: Check, seed: int) -> list | None:
    """What the check's first half gives for labkit's own answer; None where that is no list."""
    if check in _slow:
        return None
    begun = time.process_time()
    with contextlib.suppress(TookTooLong), limited(_WALL_SECONDS):
        good = _good_at(check, seed if check.takes_seed else 0)
        if time.process_time() - begun <= SECONDS:
            return good
    _slow.add(check)
    return None


@functools.lru_cache(maxsize=_KEPT)
def _good_at(check: Check, seed: int) -> list | None:
    try:
        solutions = solutions_of(check.lab)
        names = solutions.EXERCISES[check.exercise]
    except (SlipError, KeyError):
        return None
    answers = tuple(vars(solutions)[name] for name in names)
    collected = check.collect(answers[0] if len(answers) == 1 else answers, seed=seed)
    value = codec.decode_value(collected)["value"]
    if type(value) is Raised and value.type_name == TookTooLong.__name__:
        raise TookTooLong  # in the answer's own lines, where ``collect`` writes it down
    return value if type(value) is list else None
