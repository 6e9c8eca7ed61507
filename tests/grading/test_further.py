"""What is told beyond the first mistake: true of the answer, bounded, and never a verdict."""

import math
import time
import types
from dataclasses import replace

import attacks
import pytest
import submissions

from labkit.grading.judge import further as module
from labkit.grading.judge import worker
from labkit.grading.judge.further import MOST_EARNED, MOST_SENTENCES, Further, further
from labkit.grading.judge.judging import Judge, JudgeError, Shipment
from labkit.labs.engine import Mistake, calls, check, same_value
from labkit.labs.engine.checks import Check
from labkit.labs.number_formats.checks import check_snap, check_ulp
from labkit.labs.number_formats.checks.gaps import _gap_inputs

LAB = "02_number_formats"
INPUTS = [float(2**n) for n in range(10)]


def told(of: Check, answer, *, seed: int = 0) -> Further:
    return further(of, of.collect(answer, seed=seed), seed=seed)


def right(x):
    """The gap in FP16, without the functions that the lab's own check forbids."""
    return 2.0 ** (max(math.frexp(x)[1], -13) - 11)


@check(calls(INPUTS))
def check_ulp_each(gaps):
    """One after the other."""
    for x, gap in zip(INPUTS, gaps, strict=True):
        same_value(gap, right(x), call=f"ulp({x})")


@check(calls(INPUTS))
def check_ulp_total(gaps):
    """All of them together."""
    if sum(gaps) != sum(map(right, INPUTS)):
        raise Mistake(f"The gaps add up to {sum(gaps)}.")


@check(calls(INPUTS))
def check_ulp_odd(gaps):
    """A judge that breaks on what it did not foresee."""
    if gaps[0] != right(INPUTS[0]):
        raise Mistake("`ulp(1.0)` is wrong.")
    assert gaps[1] == right(INPUTS[1])


for one in (check_ulp_each, check_ulp_total, check_ulp_odd):
    one.exercise = "ulp"


@pytest.mark.parametrize("seed", [0, 3])
def test_as_many_are_wrong_as_are(seed):
    found = told(check_ulp, lambda x: right(x) if x > 0 else -1.0, seed=seed)
    inputs = _gap_inputs(seed=seed)
    assert (found.wrong, found.cases) == (sum(x <= 0 for x in inputs), len(inputs))
    assert 0 < len(found.sentences) <= MOST_SENTENCES
    assert all(said.startswith("`ulp(-") or "ulp(0.0)" in said for said in found.sentences)


def test_no_sentence_repeats_the_message_or_another():
    collected = check_snap.collect(lambda x: 1.0)
    message = check_snap.verdict(collected).message
    sentences = further(check_snap, collected).sentences
    assert len(set(sentences)) == len(sentences) == MOST_SENTENCES
    assert not any(said in message for said in sentences)


def test_what_holds_of_one_element_is_not_said_of_the_answer():
    """Alone among right ones a wrong gap below 0 reads as if it were the only kind."""
    found = told(check_ulp, lambda x: 2 * right(x) if x < 0 else 3 * right(x))
    assert found.sentences and "Yours" not in " ".join(found.sentences)


def test_one_wrong_case_has_no_further_ones():
    found = told(check_ulp_each, lambda x: 0.0 if x == 8 else right(x))
    assert (found.sentences, found.wrong, found.cases) == ((), 1, 10)


def test_the_same_exception_is_told_once():
    def raises(x):
        if x > 1:
            raise ValueError("no")
        return 0.0

    found = told(check_ulp_each, raises)
    assert (len(found.sentences), found.wrong) == (1, 10)


def test_half_of_the_points_is_for_what_no_constant_answer_gets_right():
    found = Further(wrong=3, cases=10, commonest=4)
    assert found.score == MOST_EARNED * 3 / 6
    assert replace(found, wrong=1).score < MOST_EARNED
    assert [replace(found, wrong=n).score for n in (6, 7, 10)] == [0.0] * 3
    assert Further().score == Further(wrong=4, cases=4, commonest=4).score == 0.0


def test_the_share_of_right_cases_comes_from_the_judge():
    assert (
        told(check_ulp_each, lambda x: 0.0 if x == 8 else right(x)).score == 0.4444
    )  # 8 of 9, halved
    assert told(check_ulp_each, lambda x: 2.0**-10).score == 0.0


def test_the_commonest_element_is_counted():
    assert told(check_ulp_each, lambda x: 0.0).commonest == 1
    same = check(calls([1.0] * 4))(check_ulp_each.judge)
    same.exercise = "ulp"
    assert module._good(same, 0) == [2.0**-10] * 4


def test_it_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_JUDGINGS", 4)
    asked = []

    def judge(gaps):
        asked.append(gaps)
        check_ulp_each.judge(gaps)

    judge.__globals__["LAB"] = LAB
    counted = Check(check_ulp_each.run, judge)
    counted.exercise = "ulp"
    found = told(counted, lambda x: 0.0)
    assert len(asked) == found.judgings == 4 + 2
    assert len(found.sentences) == 3 and found.wrong == found.cases == 0, "how many is not known"


@pytest.mark.parametrize("other", [check_ulp_total, check_ulp_odd])
def test_where_no_element_stands_for_itself_nothing_is_told(other):
    found = told(other, lambda x: -1.0)
    assert (found.sentences, found.wrong, found.cases) == ((), 0, 0)


def test_an_answer_that_is_refused_for_a_shortcut_earns_nothing_for_its_right_cases():
    judged = check(check_ulp_each.run, own_work=("math.ulp",))(check_ulp_each.judge)
    judged.exercise = "ulp"

    def calls_it(x):
        return right(x) if x != 8 else math.ulp(x)

    collected = judged.collect(calls_it)
    assert "uses `math.ulp`" in judged.verdict(collected).message
    assert told(check_ulp_each, calls_it).score > 0, "what the right cases would earn"
    assert further(judged, collected) == Further()


@pytest.mark.parametrize("collected", [b"", b"junk", check_ulp.collect(...), check_ulp.collect(1)])
def test_any_bytes_give_something(collected):
    assert not further(check_ulp, collected).sentences


def test_an_exercise_without_an_answer_of_labkit_gives_nothing():
    unknown = check(calls(INPUTS))(check_ulp_each.judge)
    unknown.exercise = "none-such"
    assert told(unknown, lambda x: 0.0) == Further()


def test_judgings_that_take_long_tell_nothing(monkeypatch):
    collected = check_ulp.collect(lambda x: 1.0)
    assert further(check_ulp, collected).sentences
    monkeypatch.setattr(module, "SECONDS", -1.0)
    monkeypatch.setattr(module, "_slow", set())
    monkeypatch.setattr(module, "_good", lambda check, seed: module._good_at(check, seed))
    assert further(check_ulp, collected) == Further()


def test_a_judge_that_ends_costs_no_verdict(monkeypatch):
    def ends(*_):
        raise JudgeError("the judge ended: it closed its pipe")

    judge = Judge()
    monkeypatch.setattr(judge, "_ask", ends)
    shipment = Shipment(exercise="ulp", run=b"", takes_seed=True, hidden=False, own_work=())
    assert judge.further(LAB, shipment, 0, check_ulp.collect(lambda x: 1.0)) == {}


def test_what_it_takes_is_no_time_of_the_submission(grader, monkeypatch):
    begun, waited = time.monotonic, []
    clock = types.SimpleNamespace(monotonic=lambda: begun() + sum(waited))
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(Judge, "further", lambda *_: waited.append(10_000) or {})
    wrong = "def e2m1_value(code):\n    return 7.0"
    work = submissions.work(LAB, [attacks.SETUP, wrong, attacks.RIGHT], only=attacks.ONLY)
    assert [one.status for one in grader.grade(work)] == ["failed", "passed"]
    assert waited == [10_000], "of the one that failed"


def test_an_answer_of_labkit_that_takes_long_runs_once(monkeypatch):
    runs = []

    def endless(x):
        runs.append(x)
        while True:
            pass

    slow = types.SimpleNamespace(EXERCISES={"ulp": ("ulp",)}, ulp=endless)
    monkeypatch.setattr(module, "solutions_of", lambda lab: slow)
    monkeypatch.setattr(module, "_WALL_SECONDS", 0.1)
    monkeypatch.setattr(module, "_slow", set())
    of = Check(check_ulp_each.run, check_ulp_each.judge)
    of.exercise = "ulp"
    assert told(of, lambda x: 0.0) == told(of, lambda x: 1.0) == Further()
    assert runs == [1.0]
