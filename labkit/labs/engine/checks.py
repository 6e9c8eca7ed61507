"""Run an answer, judge what came back, name the mistake.

A check is two functions. ``run`` runs beside the answer and returns plain data; it holds no right
answers. The judge sees that data only, after it has crossed ``codec``, so the same
check serves the learner's kernel and a grader that keeps the answer in a sandbox::

    @check(calls(INPUTS))
    def check_ulp(gaps):
        '''The gap above x in FP16.'''
        for x, gap in zip(INPUTS, gaps, strict=True):
            same_value(gap, ORACLE[x], call=f"ulp({x})")

    @check_ulp.wrong("ulp-is-relative", "2.0 and 3.0 share one gap. What changes between them?")
    def ulp(x):
        return 2.0**-10 * abs(x)

In a notebook ``check_ulp(ulp)`` shows one line or raises ``CheckFailed`` with one line;
``check_ulp.result(ulp)`` gives the record. A lab's checks are ``labkit.labs.TOPIC.checks``.

Evidence comes before ideas. The judge says what is true of the answer; the idea behind a known
wrong answer is named only if the answer behaves like it and like no other.
"""

import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from labkit.base import progress
from labkit.base.home import ManifestError, read_manifest
from labkit.labs.engine import codec, limit, messages, showing
from labkit.labs.engine.behaviour import alike
from labkit.labs.engine.codec import CodecError, Raised
from labkit.labs.engine.copies import stale_copy
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.own_work import Shortcut, reported
from labkit.labs.engine.reading import AnswerError, Mistake, Worth, failure, in_line
from labkit.labs.engine.running import TookTooLong, collect, raised
from labkit.labs.engine.slips import Slip

_LONGEST = 10_000
"""Characters of a message."""

KEPT = 100
"""Behaviours of known wrong answers that a check keeps: a grader meets another seed each time."""

_Answer = TypeVar("_Answer")
_Judge = Callable[..., Worth | None]

_passed: dict[int, object] = {}
_repeats: Counter[object] = Counter()


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    ``status`` is "passed", "failed", "error" or "not attempted"; ``message`` is one line for the
    learner; ``misconceptions`` holds the id of the wrong idea that the answer shows, if it shows
    one; ``score`` is from 0 to 1, and 1 for an answer that passed, unless its judge returned a
    ``Worth``; ``shortcuts`` holds the dotted names of forbidden functions that the answer used, but
    not by name; ``measured`` what a ``Worth`` measured, as pairs.
    """

    exercise: str
    status: str
    message: str
    misconceptions: tuple[str, ...] = ()
    score: float = 0.0
    shortcuts: tuple[str, ...] = ()
    measured: tuple[tuple[str, float], ...] = ()


class CheckFailed(Exception):
    """An answer has not passed: shown as one line, with no traceback.

    With ``shown`` a line above says all of it, and nothing is shown. The exception itself stays:
    without one, nbgrader gives full marks.
    """

    def __init__(self, said: str, *, shown: bool = False) -> None:
        super().__init__(said)
        self.shown = shown

    def _render_traceback_(self) -> list[str]:
        return [showing.UNSEEN if self.shown else str(self)]


@dataclass(frozen=True)
class KnownWrong:
    """A wrong answer shipped beside its check: the idea behind it and what to ask of its author."""

    answer: object
    misconception: str
    question: str


def check(
    run: Callable[..., object],
    *,
    bits: bool = False,
    seeds: int = 5,
    own_work: tuple[str, ...] = (),
) -> "Callable[[_Judge], Check]":
    """Make a check of a judge: ``@check(run)`` above ``def check_<exercise>(data)``.

    The judge's module names its lab in ``LAB``. The judge returns when the data is right and raises
    ``Mistake`` when it is not; the first line of its docstring says what a passed answer can do. An
    open-ended exercise has no single right answer: its judge returns a ``Worth``.

    Where ``run``, the judge or both have a parameter ``seed``, they get the same whole number: 0 in
    a notebook, one made of the class's secret in ``labkit grade``. The inputs that the exercise
    announces are among them at every seed.

    Args:
        run: the first half, beside the answer.
        bits: an answer is a known wrong one if all bits agree, and not a few roundings apart: for
            exercises whose subject the bits are.
        seeds: known wrong and right answers are tested at so many seeds, from 0 on, where the check
            takes one; 2 for a check that trains.
        own_work: dotted names of the functions and classes that do the exercise's work, such as
            "math.fsum". An answer that uses one by its name fails, and one that uses it in another
            way is flagged for the instructor. The exercise's text names each.
    """
    return lambda judge: Check(run, judge, bits=bits, seeds=seeds, own_work=own_work)


class Check:
    """One exercise's check: ``check_ulp(ulp)`` in a notebook, ``.result(ulp)`` for the record.

    A grader uses the two halves apart: ``collect`` in the answer's process, ``verdict`` in its own.
    """

    def __init__(
        self,
        run: Callable[..., object],
        judge: _Judge,
        *,
        bits: bool = False,
        seeds: int = 5,
        own_work: tuple[str, ...] = (),
    ) -> None:
        self.own_work = own_work
        self.run = run
        self.judge = judge
        self.bits = bits
        self.takes_seed = takes_seed(run) or takes_seed(judge)
        self.seeds = range(seeds if self.takes_seed else 1)
        self.lab: str = judge.__globals__["LAB"]
        self.exercise = judge.__name__.removeprefix("check_").replace("_", "-")
        self.known_wrong: list[KnownWrong | Slip] = []
        self._behaviours: dict[tuple[int, int], object] = {}
        functools.update_wrapper(self, judge)

    def wrong(self, misconception: str, question: str) -> Callable[[_Answer], _Answer]:
        """Ship a wrong answer beside the check, as a decorator or called on a value.

        Args:
            misconception: an id of data/misconceptions.toml.
            question: the sentence for a learner whose answer behaves the same on every input.
        """

        def ship(answer: _Answer) -> _Answer:
            self.known_wrong.append(KnownWrong(answer, misconception, question))
            return answer

        return ship

    def slip(
        self,
        misconception: str,
        question: str,
        *,
        cut: str | None = None,
        swap: tuple[str, str] | None = None,
    ) -> None:
        """Ship the lab's solution with one change as a known wrong answer.

        Args:
            misconception: an id of data/misconceptions.toml.
            question: the sentence for a learner whose answer behaves the same on every input.
            cut: what is taken out of the solution's text; of whole lines a ``pass`` is left.
            swap: what is replaced in it, and by what.

        The text to change stands exactly once in the exercise's solution. The answer is made when
        it is first needed; it raises SlipError then if the change does not apply.
        """
        self.known_wrong.append(
            Slip(self.lab, self.exercise, misconception, question, cut=cut, swap=swap)
        )

    def collect(self, answer: object, *, seed: int = 0) -> bytes:
        """Beside the answer: run it and return what happened as bytes of the codec."""
        return collect(bind_seed(self.run, seed), answer, self.own_work)

    def verdict(self, collected: bytes, *, seed: int = 0) -> CheckResult:
        """Inside the judge: what the collected bytes are worth. Never raises for hostile bytes."""
        try:
            report = codec.decode_value(collected)
            outcome, value = report["outcome"], report["value"]
        except (CodecError, KeyError, TypeError) as error:
            return self._result("error", fill(messages.UNREADABLE, why=str(error)))
        if outcome == "not attempted":
            return self._result("not attempted", messages.NOT_ATTEMPTED)
        used = reported(report.get("shortcuts"), self.own_work)
        if named := next((one for one in used if one.by_name), None):
            return self._result("failed", _refusal(named))
        hidden = tuple(dict.fromkeys(one.name for one in used))
        return replace(self._judged(outcome, value, seed), shortcuts=hidden)

    def _judged(self, outcome: object, value: object, seed: int) -> CheckResult:
        """What the judge says of what the run brought back."""
        if outcome == "raised":
            return self._result("error", _crash(value))
        if outcome != "value":
            return self._result("error", fill(messages.UNREADABLE, why=f"outcome {outcome!r}."))
        try:
            worth = bind_seed(self.judge, seed)(value)
        except AnswerError as error:
            return self._result("error", str(error))
        except Mistake as mistake:
            return self._explain(mistake, value, seed)
        except Exception as error:
            said = fill(
                messages.NO_SENSE, came=came(value), error=f"{type(error).__name__}: {error}"
            )
            return self._result("error", said)
        if isinstance(worth, Worth):
            earned = self._result("passed", worth.said, score=worth.score)
            return replace(earned, measured=tuple(worth.measured.items()))
        can_do = inspect.getdoc(self.judge) or messages.PASSES
        return self._result("passed", can_do.partition("\n")[0], score=1.0)

    def result(self, answer: object, *, seed: int = 0) -> CheckResult:
        """The record of one answer, within the limit on its time; nothing is shown or logged."""
        return self.verdict(self._collect_in_time(answer, seed), seed=seed)

    def __call__(self, answer: object) -> None:
        """Check an answer in a notebook: one line, shown if it passed, raised if not."""
        collected = self._collect_in_time(answer, 0)
        result = self.verdict(collected)
        if result.status == "passed":
            _passed[id(answer)] = answer
        trouble = None
        if result.status != "not attempted":
            trouble = progress.record(
                "check",
                lab=self.lab,
                item=self.exercise,
                status=result.status,
                message=result.message,
                misconceptions=list(result.misconceptions),
            )
        report = codec.decode_value(collected)
        showing.aside(messages.OLD_COPY, _stale_copy())
        showing.aside(messages.PRINTED, report["printed"])
        showing.aside(messages.WARNED, "\n".join(report["warned"]))
        if trouble:
            showing.aside(messages.PROGRESS, trouble)
        if result.status == "passed":
            showing.passed(result.exercise, result.message)
            return
        said = f"{result.exercise}: {result.status}. {result.message}"
        if result.status == "not attempted":
            showing.not_attempted(result.exercise, result.message)
            raise CheckFailed(said, shown=True)
        raise CheckFailed(said + self._rung(result))

    def _rung(self, result: CheckResult) -> str:
        """After three identical failures, and each further three, the next hint to open."""
        key = (self.lab, self.exercise, result.message)
        _repeats[key] += 1
        rung, first = divmod(_repeats[key], 3)
        if first or not rung:
            return ""
        return " " + fill(messages.AGAIN, times=_repeats[key])

    def _collect_in_time(self, answer: object, seed: int) -> bytes:
        """``collect``, stopped after a generous limit: an answer may loop for ever."""
        try:
            with limit.limited(max(limit.LEAST_SECONDS, limit.TIMES * self._seconds())):
                return self.collect(answer, seed=seed)
        except TookTooLong as error:  # it was stopped outside of its own lines
            report = {"outcome": "raised", "value": raised(error), "printed": "", "warned": []}
            return codec.encode_value(report)

    def _seconds(self) -> float:
        """What the check may take by its author's word; 0 where no lab has it."""
        try:
            labs = read_manifest().labs
        except ManifestError:
            return 0
        exercises = (e for entry in labs if entry.lab == self.lab for e in entry.exercises)
        return next((e.seconds for e in exercises if e.exercise == self.exercise), 0)

    def _explain(self, mistake: Mistake, value: object, seed: int) -> CheckResult:
        """The judge's evidence, and the question of the one idea that it shows."""
        evidence, named = str(mistake), mistake.misconception
        fitting: list[KnownWrong | Slip] = []
        if named:
            fitting = [w for w in self.known_wrong if w.misconception == named]
        elif mistake.search:
            fitting = [
                wrong
                for place, wrong in enumerate(self.known_wrong)
                if alike(value, self._behaviour(place, seed), bits=self.bits)
            ]
        # Of two ideas that fit, the answer has shown neither.
        if len({wrong.misconception for wrong in fitting}) != 1:
            return self._result("failed", evidence, score=mistake.score)
        question, idea = fitting[0].question, fitting[0].misconception
        return self._result("failed", f"{evidence} {question}", (idea,), mistake.score)

    def _behaviour(self, place: int, seed: int) -> object:
        """What a known wrong answer does with a seed; each is run once, as long as it is kept."""
        if (place, seed) not in self._behaviours:
            if len(self._behaviours) >= KEPT:
                self._behaviours.clear()
            answer = self.known_wrong[place].answer
            report = codec.decode_value(collect(bind_seed(self.run, seed), answer))
            self._behaviours[place, seed] = report["value"]
        return self._behaviours[place, seed]

    def _result(
        self, status: str, message: str, ids: tuple[str, ...] = (), score: float = 0.0
    ) -> CheckResult:
        # An answer of 64 MB may be quoted in it: what nobody reads is cut before it is split.
        return CheckResult(self.exercise, status, " ".join(message[:_LONGEST].split()), ids, score)


def takes_seed(function: Callable[..., object]) -> bool:
    """Whether a function of a check has a parameter ``seed``."""
    return "seed" in inspect.signature(function).parameters


def bind_seed(function: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """The function with its parameter ``seed`` filled in, where it has one."""
    return functools.partial(function, seed=seed) if takes_seed(function) else function


def yours(answer: _Answer, ours: _Answer) -> _Answer:
    """The learner's own answer once its check has passed in this kernel, ours until then."""
    return answer if _passed.get(id(answer)) is answer else ours


def whose(thing: object) -> str:
    """ "your" for an answer that has passed, "labkit's" for anything else: a word for captions."""
    return "your" if _passed.get(id(thing)) is thing else "labkit's"


def _stale_copy() -> str:
    """What to say, once in a kernel, in a notebook of another version than the course's."""
    # Jupyter's server gives a kernel the path of its notebook.
    said = stale_copy(os.environ.get("JPY_SESSION_NAME", ""))
    _repeats[said] += 1
    return said if said and _repeats[said] == 1 else ""


def _refusal(used: Shortcut) -> str:
    template = messages.USES if used.line else messages.MADE_OF
    return fill(template, line=used.line, name=used.name)


def _crash(value: object) -> str:
    if type(value) is not Raised:
        return fill(messages.UNREADABLE, why="an exception without its record.")
    if value.type_name == "CodecError":
        return fill(messages.NOT_JUDGED, why=value.message)
    if value.type_name == TookTooLong.__name__:
        return fill(messages.STOPPED, seconds=value.message, place=in_line(value))
    return f"{failure(value)}."
