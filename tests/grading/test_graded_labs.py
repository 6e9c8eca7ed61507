"""The labs themselves through the grader: solved they pass, unsolved nothing is attempted."""

import re

import cloudpickle
import pytest
import submissions

from labkit.grading.judge import shipping
from labkit.grading.judge.seeds import derive_seed
from labkit.labs.engine.slips import solutions_of

LABS = [
    "00_start_here",
    "01_three_crimes",
    "02_number_formats",
    "03_overflow_underflow_rounding",
    "04_loss_scaling",
    "05_automatic_mixed_precision",
    "06_hardware_and_benchmarks",
    "08_fp8_and_fp4",
    "09_quantization",
    "12_choosing_precision",
    "13_real_models",
    "16_interview",
]


@pytest.mark.parametrize("lab", LABS)
def test_solved_passes(grader, lab):
    outcomes = grader.grade(submissions.work(lab, submissions.cells(lab, solved=True)))
    assert [o.exercise for o in outcomes] == [e.exercise for e in submissions.exercises(lab)]
    assert [o for o in outcomes if o.status != "passed"] == []


@pytest.mark.parametrize("lab", LABS)
def test_unsolved_is_not_attempted(grader, lab):
    outcomes = grader.grade(submissions.work(lab, submissions.cells(lab, solved=False)))
    assert [o for o in outcomes if (o.status, o.cause) != ("not attempted", "")] == []


def wrong_answers(lab: str) -> list:
    """Each known wrong answer of a lab that can be written down as a cell: plain functions."""
    modules = shipping.check_modules()
    checks = [c for m in modules for c in shipping.checks_in(m) if c.lab == lab]
    return [
        pytest.param(check, wrong, id=f"{check.exercise}-{wrong.misconception}-{i}")
        for check in checks
        for i, wrong in enumerate(check.known_wrong)
    ]


WRONG = [
    pytest.param(*param.values, id=param.id, marks=[] if lab.startswith("02") else pytest.mark.slow)
    for lab in LABS
    for param in wrong_answers(lab)
]


def pickled(answer, lab: str) -> bytes:
    """A known wrong answer by value: the sandbox has no module to import it from."""
    modules = [m for m in shipping.check_modules() if m.__name__ not in shipping.BESIDE]
    modules.append(solutions_of(lab))
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(answer)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(("check", "wrong"), WRONG)
def test_known_wrong_answers_fail(grader, check, wrong):
    """The wrong answer itself, sent along as bytes that a cell of the submission unpacks."""
    answer = pickled(wrong.answer, check.lab)
    (exercise,) = (e for e in submissions.exercises(check.lab) if e.exercise == check.exercise)
    cell = f"import pickle\n{exercise.names[0]} = pickle.loads({answer!r})"
    work = submissions.work(check.lab, [cell], only=(check.exercise,))
    (outcome,) = grader.grade(work)
    assert outcome.status == "failed", outcome
    assert wrong.misconception in outcome.misconceptions
    seed = derive_seed(grader.settings.secret, work.digest, work.lab, check.exercise)
    # A line of the answer is quoted where its source is known: here, and not behind bytes.
    here = re.sub(" in your line `[^`]*`", "", check.result(wrong.answer, seed=seed).message)
    assert outcome.message == here


def test_labkit_s_own_answers_are_no_answers(grader):
    """labkit's own answer is lent to later exercises, never to the one it answers."""
    lab = "04_loss_scaling"
    setup, *_ = submissions.cells(lab, solved=True)
    taken = """
from labkit.labs.loss_scaling import solutions as ours
train_fp16, Masters = ours.train_fp16, ours.Masters
transition, scaled_step, Scaler = ours.transition, ours.scaled_step, ours.Scaler
"""
    only = ("amp-loop", "masters", "transition", "scaled-step", "scaler")
    outcomes = grader.grade(submissions.work(lab, [setup, taken], only=only))
    assert [o.exercise for o in outcomes] == list(only)
    assert not [o for o in outcomes if o.status == "passed"]


def test_a_run_beside_the_answer_cannot_be_forged(grader):
    """Lab 01's pardon is a setting; what a training run with it gives, the judge finds out."""
    lab = "01_three_crimes"
    forged = """
import functools, labkit.labs.three_crimes.trials as trials
from dataclasses import replace
honest = trials.run
fp32 = honest(replace(trials.RUNS["D"], precision="fp32"))
trials.run = functools.lru_cache(lambda trial: fp32)
pardon = {"precision": "pure_fp16"}
"""
    (outcome,) = grader.grade(submissions.work(lab, [forged], only=("pardon",)))
    assert (outcome.status, outcome.misconceptions) == (
        "failed",
        ("more-mantissa-bits-are-enough",),
    )


def test_one_exercise_of_a_lab_is_graded_as_among_all(grader):
    """``scaler`` builds on ``scaled-step``, which is not asked for here, nor answered."""
    lab = "04_loss_scaling"
    sources = submissions.cells(lab, solved=True)
    unsolved = submissions.cells(lab, solved=False)
    (stub,) = (source for source in unsolved if "def scaled_step" in source)
    mixed = [stub if "def scaled_step" in source else source for source in sources]
    assert mixed != sources
    (outcome,) = grader.grade(submissions.work(lab, mixed, only=("scaler",)))
    assert outcome.status == "passed"
