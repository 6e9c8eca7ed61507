"""An answer that was recorded at one seed and is replayed at another earns nothing.

Whoever runs labkit's check knows its inputs at seed 0. In a class the seed is made of the secret,
so an answer that only knows what comes back at seed 0 has to fail there.
"""

import pytest

from labkit.base.manifest import read_manifest
from labkit.grading.judge import shipping
from labkit.labs.engine import Check
from labkit.labs.engine.slips import solutions_of

NAMES = {
    (entry.lab, exercise.exercise): exercise.names
    for entry in read_manifest().labs
    for exercise in entry.exercises
}
CHECKS = {
    f"{check.lab[:2]} {check.exercise}": check
    for module in shipping.check_modules()
    for check in shipping.checks_in(module)
    if (check.lab, check.exercise) in NAMES
}
EXEMPT = {
    "01 pardon": "the answer is data: a setting for one training run",
    "02 e2m1-value": "all sixteen codes are asked for at every seed",
    "02 eight-bits": "the answer is data: the widths of a format",
    "03 hair": "the answer is data: one number",
    "08 recipe": "the answer is data: a format for each of six operands",
    "10 weigh-in": "the answer is data: settings of a network that the judge trains itself",
}
"""Exercises whose answer may be replayed, and why."""


def solution(check: Check) -> object:
    """labkit's own answer, as the check takes it."""
    names = NAMES[check.lab, check.exercise]
    values = tuple(getattr(solutions_of(check.lab), name) for name in names)
    return values[0] if len(values) == 1 else values


def passes(check: Check, report: bytes, seed: int) -> bool:
    return check.verdict(report, seed=seed).status == "passed"


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in EXEMPT])
def test_a_report_passes_at_its_own_seed_alone(name, monkeypatch):
    check = CHECKS[name]
    monkeypatch.setattr(check, "known_wrong", [])  # the verdict counts, not its explanation
    assert check.takes_seed, "give it a seed, or say in EXEMPT why it has none"
    replayed = check.collect(solution(check), seed=0)
    assert passes(check, replayed, 0)
    # Where the judge trains at each seed, one other is enough: there all numbers are drawn.
    others = [1] if len(check.seeds) == 2 else [1, 2, 3]
    assert [seed for seed in others if passes(check, replayed, seed)] == []
    assert passes(check, check.collect(solution(check), seed=1), 1)


@pytest.mark.parametrize("name", EXEMPT)
def test_an_exempt_exercise_has_the_same_inputs_at_every_seed(name):
    check = CHECKS[name]
    assert not check.takes_seed, "take it out of EXEMPT"
    assert passes(check, check.collect(solution(check), seed=0), 1)
