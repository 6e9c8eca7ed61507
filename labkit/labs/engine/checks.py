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
"""

import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from labkit.base import progress
from labkit.base.manifest import stale
from labkit.base.misconceptions import misconceptions
from labkit.labs.engine import codec, showing
from labkit.labs.engine.codec import CodecError, Raised
from labkit.labs.engine.comparing import AnswerError, Mistake
from labkit.labs.engine.running import collect
from labkit.labs.engine.slips import Slip

_LONGEST = 10_000
"""Characters of a message."""

_Answer = TypeVar("_Answer")
_Judge = Callable[..., None]

_passed: dict[int, object] = {}
_repeats: Counter[object] = Counter()


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    ``status`` is "passed", "failed", "error" or "not attempted"; ``message`` is one line for the
    learner; ``misconceptions`` holds the ids of the wrong ideas that the answer behaves like.
    """

    exercise: str
    status: str
    message: str
    misconceptions: tuple[str, ...] = ()


class CheckFailed(Exception):
    """An answer has not passed: shown as one line, with no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class KnownWrong:
    """A wrong answer shipped beside its check: the idea behind it and what to ask of its author."""

    answer: object
    misconception: str
    question: str


def check(run: Callable[..., object]) -> "Callable[[_Judge], Check]":
    """Make a check of a judge: ``@check(run)`` above ``def check_<exercise>(data)``.

    The judge's module names its lab in ``LAB``. The judge returns when the data is right and raises
    ``Mistake`` when it is not; the first line of its docstring says what a passed answer can do.
    """
    return lambda judge: Check(run, judge)


class Check:
    """One exercise's check: ``check_ulp(ulp)`` in a notebook, ``.result(ulp)`` for the record.

    A grader uses the two halves apart: ``collect`` in the answer's process, ``verdict`` in its own.
    """

    def __init__(self, run: Callable[..., object], judge: _Judge) -> None:
        self.run = run
        self.judge = judge
        self.lab: str = judge.__globals__["LAB"]
        self.exercise = judge.__name__.removeprefix("check_").replace("_", "-")
        self.known_wrong: list[KnownWrong | Slip] = []
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

    def collect(self, answer: object) -> bytes:
        """Beside the answer: run it and return what happened as bytes of the codec."""
        return collect(self.run, answer)

    def verdict(self, collected: bytes) -> CheckResult:
        """Inside the judge: what the collected bytes are worth. Never raises for hostile bytes."""
        try:
            report = codec.decode(collected)
            outcome, value = report["outcome"], report["value"]
        except (CodecError, KeyError, TypeError) as error:
            return self._result("error", f"The answer's data cannot be read: {error}")
        if outcome == "not attempted":
            return self._result(
                "not attempted", "Nothing is written yet: fill in its cell, then run that cell."
            )
        if outcome == "raised":
            return self._result("error", _crash(value))
        if outcome != "value":
            return self._result("error", f"The answer's data cannot be read: outcome {outcome!r}.")
        try:
            self.judge(value)
        except AnswerError as error:
            return self._result("error", str(error))
        except Mistake as mistake:
            return self._explain(mistake, value)
        except Exception as error:
            return self._result(
                "error",
                f"The check cannot make sense of what came back ({type(error).__name__}: {error}). "
                "Does your answer return what the exercise asks for?",
            )
        can_do = inspect.getdoc(self.judge) or "Your answer does what is asked."
        return self._result("passed", can_do.partition("\n")[0])

    def result(self, answer: object) -> CheckResult:
        """The record of one answer: nothing is shown, nothing is logged."""
        return self.verdict(self.collect(answer))

    def __call__(self, answer: object) -> None:
        """Check an answer in a notebook: one line, shown if it passed, raised if not."""
        collected = self.collect(answer)
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
        report = codec.decode(collected)
        showing.aside("This copy is not the newest:", _stale_copy())
        showing.aside("Your code printed:", report["printed"])
        showing.aside("Your code warned:", "\n".join(report["warned"]))
        if trouble:
            showing.aside("Progress:", trouble)
        if result.status == "passed":
            showing.passed(result.exercise, result.message)
            return
        raise CheckFailed(
            f"{result.exercise}: {result.status}. {result.message}{self._rung(result)}"
        )

    def _rung(self, result: CheckResult) -> str:
        """After three identical failures, and each further three, the next hint to open."""
        if result.status == "not attempted":
            return ""
        key = (self.lab, self.exercise, result.message)
        _repeats[key] += 1
        rung, first = divmod(_repeats[key], 3)
        if first or not rung:
            return ""
        return (
            f" The same result {_repeats[key]} times: open the next hint below, "
            "or the solved lab in solutions/."
        )

    def _explain(self, mistake: Mistake, value: object) -> CheckResult:
        """The judge's evidence, and the question of the known wrong answer that it isolates."""
        evidence, named = str(mistake), mistake.misconception
        if named:
            fitting = [w for w in self.known_wrong if w.misconception == named]
        else:
            behaviour = _behaviour(value)
            fitting = [w for w in self.known_wrong if self._wrong_behaviour(w) == behaviour]
        ids = tuple(dict.fromkeys(w.misconception for w in fitting))
        if not fitting:
            return self._result("failed", evidence)
        if len(ids) == 1:
            return self._result("failed", f"{evidence} {fitting[0].question}", ids)
        ideas = " Or: ".join(misconceptions()[i].en for i in ids)
        return self._result(
            "failed", f"{evidence} One of {len(ids)} ideas gives this. {ideas}", ids
        )

    def _wrong_behaviour(self, wrong: KnownWrong | Slip) -> object:
        return _behaviour(codec.decode(self.collect(wrong.answer))["value"])

    def _result(self, status: str, message: str, ids: tuple[str, ...] = ()) -> CheckResult:
        # An answer of 64 MB may be quoted in it: what nobody reads is cut before it is split.
        return CheckResult(self.exercise, status, " ".join(message[:_LONGEST].split()), ids)


def yours(answer: _Answer, ours: _Answer) -> _Answer:
    """The learner's own answer once its check has passed in this kernel, ours until then."""
    return answer if _passed.get(id(answer)) is answer else ours


def whose(thing: object) -> str:
    """ "your" for an answer that has passed, "labkit's" for anything else: a word for captions."""
    return "your" if _passed.get(id(thing)) is thing else "labkit's"


def _stale_copy() -> str:
    """What to say, once in a kernel, in a notebook of another version than the course's."""
    # Jupyter's server gives a kernel the path of its notebook.
    said = stale(os.environ.get("JPY_SESSION_NAME", ""))
    _repeats[said] += 1
    return said if said and _repeats[said] == 1 else ""


def _crash(value: object) -> str:
    if type(value) is not Raised:
        return "The answer's data cannot be read: an exception without its record."
    if value.type_name == "CodecError":
        return f"Your answer returned something that cannot be judged: {value.message}"
    place = f" in your line `{value.line}`" if value.line else ""
    return f"{value.type_name}: {value.message}{place}."


def _behaviour(value: Any) -> object:
    """What an answer did, comparable by ``==``: numbers by their bits, exceptions by their type."""
    kind = type(value)
    if kind is Raised:
        return "raised", value.type_name
    if kind in (list, tuple):
        return tuple(_behaviour(item) for item in value)
    if kind is dict:
        return tuple((_behaviour(k), _behaviour(v)) for k, v in value.items())
    if kind is int and -(2**53) <= value <= 2**53:
        value = float(value)
    elif hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
        value = float(value) if type(value) in (int, float) else value
    return codec.encode(value)
