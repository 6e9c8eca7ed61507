"""labkit's own answers pass at each seed; recorded at one and replayed at another, they do not.

Whoever runs labkit's check knows its inputs at seed 0. In a class the seed is made of the secret,
so an answer that only knows what comes back at seed 0 has to fail there.
"""

import pytest

from labkit.base.home import read_manifest
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
    verdict = check.verdict(report, seed=seed)
    return (verdict.status, verdict.shortcuts) == ("passed", ())


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in EXEMPT])
def test_a_report_passes_at_its_own_seed_alone(name, seeds, monkeypatch):
    check = CHECKS[name]
    monkeypatch.setattr(check, "known_wrong", [])  # the verdict counts, not its explanation
    assert check.takes_seed, "give it a seed, or say in EXEMPT why it has none"
    answer = solution(check)
    reports = {seed: check.collect(answer, seed=seed) for seed in check.seeds[: max(seeds, 2)]}
    assert [seed for seed, report in reports.items() if not passes(check, report, seed)] == []
    replayed = reports.pop(0)
    assert [seed for seed in reports if passes(check, replayed, seed)] == []


@pytest.mark.parametrize("name", EXEMPT)
def test_an_exempt_exercise_has_the_same_inputs_at_every_seed(name):
    check = CHECKS[name]
    assert not check.takes_seed, "take it out of EXEMPT"
    assert passes(check, check.collect(solution(check)), 0)
