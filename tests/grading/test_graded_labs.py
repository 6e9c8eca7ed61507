"""The labs themselves through the grader: solved they pass, unsolved nothing is attempted."""

import functools
import re
import zlib

import cloudpickle
import pytest
import submissions

from labkit.grading.judge import shipping
from labkit.grading.judge.seeds import derive_seed
from labkit.grading.sandbox import metering
from labkit.labs.engine import Check, KnownWrong, Slip
from labkit.labs.engine.slips import solutions_of

LABS = [
    "00_start_here",
    "01_three_crimes",
    "02_number_formats",
    "03_overflow_underflow_rounding",
    "04_loss_scaling",
    "05_automatic_mixed_precision",
    "06_hardware_and_benchmarks",
    "07_memory_and_many_gpus",
    "08_fp8_and_fp4",
    "09_quantization",
    "10_compression",
    "11_monitoring_and_debugging",
    "12_choosing_precision",
    "13_real_models",
    "14_other_frameworks",
    "15_production",
    "16_interview",
    "17_ship_it",
]


@pytest.fixture(scope="module")
def grade(grader):
    """Grades each work once: an old copy of which the same is run as today has its outcomes."""
    return functools.cache(grader.grade)


@pytest.mark.parametrize("lab", LABS)
def test_solved_passes(grade, lab):
    today = submissions.work(lab, submissions.cells(lab, solved=True))
    for work in (today, submissions.old_copy(lab, solved=True)):
        outcomes = grade(work)
        assert [o.exercise for o in outcomes] == [e.exercise for e in work.exercises]
        assert [o for o in outcomes if o.status != "passed"] == []


@pytest.mark.parametrize("lab", LABS)
def test_unsolved_is_not_attempted(grade, lab):
    today = submissions.work(lab, submissions.cells(lab, solved=False))
    for work in (today, submissions.old_copy(lab, solved=False)):
        outcomes = grade(work)
        assert [o for o in outcomes if (o.status, o.cause) != ("not attempted", "")] == []


def test_an_answer_that_builds_on_a_name_that_is_gone_is_told_what_to_run(grader):
    cell = "from labkit.widgets import gap\ndef ulp(x):\n    return gap(x)\n"
    (outcome,) = grader.grade(submissions.work("02_number_formats", [cell], only=("ulp",)))
    assert outcome.status == "error" and "Run `python -m labkit start`" in outcome.message


def test_a_line_that_tries_a_jax_function_costs_nothing(grader, monkeypatch):
    """A child hangs once JAX has computed in its parent, so nothing is forked after such a cell."""
    monkeypatch.setattr(metering, "CELL_SECONDS", 30.0)  # the cell imports JAX, its tracer too
    lab = "14_other_frameworks"
    tried = "print(matmul_dtypes(lambda x: jnp.tanh(x @ x), jnp.ones((2, 2)) + 1))"
    sources = [
        f"{source}\n{tried}" if "def matmul_dtypes" in source else source
        for source in submissions.cells(lab, solved=True)
    ]
    outcomes = grader.grade(submissions.work(lab, sources, only=("matmul-dtypes", "step")))
    assert [o.status for o in outcomes] == ["passed", "passed"], outcomes


SCORING_PATCHED = """
from labkit.labs.ship_it import checks, packed, scoring

def compress(weights, text, budget):
    for module in (checks, packed, scoring):
        for name in ("divergence", "nbytes"):
            setattr(module, name, lambda *_: 0.0)
    scoring.BUDGETS.clear()
    return {name: packed.pack(w, "fp32") for name, w in weights.items()}, 0.0
"""


def test_an_answer_that_patches_the_scoring_earns_nothing(grader):
    """It patches what stands beside it; the judge counts and measures outside the sandbox."""
    lab = "17_ship_it"
    sources = [
        SCORING_PATCHED if "def compress" in source else source
        for source in submissions.cells(lab, solved=True)
    ]
    (outcome,) = grader.grade(submissions.work(lab, sources))
    assert (outcome.status, outcome.score) == ("failed", 0.0), outcome
    assert outcome.message.startswith(
        "No budget earns points. 120,000 bytes: your artifact has 452,"
    )


CHECKS = [
    check
    for module in shipping.check_modules()
    for check in shipping.checks_in(module)
    if check.lab in LABS
]


def known_wrong(check: Check, seeds: int) -> list[KnownWrong | Slip]:
    """One known wrong answer of a check, or with more seeds all of them.

    tests/labs/test_labs.py judges them all, without the sandbox. The CRC-32 of the exercise's id
    says which one is sent here, so that it is a first answer in one check and a last in another,
    and stays the same when another exercise is added.
    """
    if seeds > 1:
        return list(check.known_wrong)
    return [check.known_wrong[zlib.crc32(check.exercise.encode()) % len(check.known_wrong)]]


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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.exercise)
def test_a_known_wrong_answer_fails_as_it_does_here(grader, check, seeds):
    """The wrong answer itself, sent along as bytes that a cell of the submission unpacks."""
    (exercise,) = (e for e in submissions.exercises(check.lab) if e.exercise == check.exercise)
    for wrong in known_wrong(check, seeds):
        answer = pickled(wrong.answer, check.lab)
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


SHORTCUTS = {
    "autocast": (
        "05_automatic_mixed_precision",
        "mini-autocast",
        "def mini_autocast(dtype):\n    return torch.autocast('cpu', dtype=dtype)",
        "torch.autocast",
    ),
    "scaler": (
        "04_loss_scaling",
        "scaler",
        "def Scaler(scale=65536.0, interval=2000):\n"
        "    return torch.amp.GradScaler('cpu', init_scale=scale, growth_interval=interval)",
        "torch.amp.GradScaler",
    ),
    "fsum": (
        "03_overflow_underflow_rounding",
        "kahan",
        "def kahan(x):\n    return math.fsum(x.tolist())",
        "math.fsum",
    ),
}


@pytest.mark.parametrize(("lab", "exercise", "cell", "name"), SHORTCUTS.values(), ids=SHORTCUTS)
def test_a_function_that_does_the_exercise_is_refused_by_its_name(
    grader, lab, exercise, cell, name
):
    setup, *_ = submissions.cells(lab, solved=True)
    work = submissions.work(lab, [f"import math, torch\n{setup}", cell], only=(exercise,))
    (outcome,) = grader.grade(work)
    line = cell.splitlines()[-1].strip()
    assert (outcome.status, outcome.shortcuts) == ("failed", ())
    assert outcome.message.startswith(f"Your line `{line}` uses `{name}`;")


def test_a_function_that_is_called_in_another_way_passes_and_is_flagged(grader):
    lab, exercise, cell, name = SHORTCUTS["scaler"]
    hidden = cell.replace("torch.amp.GradScaler(", "getattr(torch.amp, 'Grad' + 'Scaler')(")
    assert hidden != cell
    (outcome,) = grader.grade(submissions.work(lab, ["import torch", hidden], only=(exercise,)))
    assert (outcome.status, outcome.shortcuts) == ("passed", (name,))


def test_comparing_with_the_function_beside_the_answer_is_no_shortcut(grader):
    lab, exercise, _, _ = SHORTCUTS["fsum"]
    sources = submissions.cells(lab, solved=True)
    (cell,) = (source for source in sources if "def kahan" in source)
    beside = f"import math\n{cell}\nassert kahan(torch.ones(3).bfloat16()) == math.fsum([1.0] * 3)"
    mixed = [beside if source == cell else source for source in sources]
    (outcome,) = grader.grade(submissions.work(lab, mixed, only=(exercise,)))
    assert (outcome.status, outcome.shortcuts) == ("passed", ())
