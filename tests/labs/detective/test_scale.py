"""Cases at scale: simulated; each finding is computed, fits the truth, and can be proved."""

import statistics

import pytest

from labkit.labs.detective.nan_detective import SCALE, accuse, cheapest_proof, left, new_case, price
from labkit.labs.detective.scale_causes import SCALE_CAUSES
from labkit.labs.detective.scale_instruments import SCALE_INSTRUMENTS, bad_step
from labkit.labs.detective.telemetry import simulate
from labkit.labs.detective.widget_nan_detective import NanDetective

SEEDS = range(26)  # every cause twice


def readings_of(cause, seed):
    job = SCALE_CAUSES[cause].settings(seed)
    telemetry = simulate(job)
    return telemetry, {n: i.read(job, telemetry) for n, i in SCALE_INSTRUMENTS.items()}


@pytest.mark.parametrize("cause", SCALE_CAUSES)
def test_every_job_fails_as_its_cause_allows_and_holds_without_it(cause):
    for seed in SEEDS:
        telemetry, readings = readings_of(cause, seed)
        assert bad_step(telemetry) is not None
        assert bad_step(simulate(SCALE_CAUSES[cause].repaired(telemetry.job))) is None
        shown = {name: reading.finding for name, reading in readings.items()}
        assert {n: f for n, f in shown.items() if not SCALE_CAUSES[cause].can_show(n, f)} == {}
        proof = cheapest_proof(SCALE_CAUSES[cause], readings, SCALE)
        assert price(proof, SCALE) <= SCALE.budget
        assert left([readings[name] for name in proof], SCALE) == [cause]


def test_the_median_case_at_scale_takes_three_queries():
    proofs = []
    for seed in SEEDS:
        case = new_case(seed, SCALE)
        verdict = accuse(case, "device-nan")
        assert verdict.cause == case._cause.id
        proofs.append(len(verdict.evidence))
    assert statistics.median(proofs) == 3


def test_the_page_of_a_case_at_scale_says_that_it_is_simulated(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    shown = NanDetective(0, tier="scale")
    assert "Simulated" in shown.describe() and "60 of 60 GPU-minutes" in shown.describe()
    for name in ("log", "curves", "amax", "twin", "replay", "state"):
        shown.ask(name)
    assert shown.numbers["left"] == 0 and len(shown.numbers["readings"]) == 6
    with pytest.raises(ValueError, match="Ranks costs 6 GPU-minutes, and 0 are left"):
        shown.ask("ranks")
    shown.accuse("stale-amax")
    assert shown.numbers["verdict"] and shown.numbers["closed"]
    with pytest.raises(ValueError, match="tier 'huge': take one of digits, scale"):
        NanDetective(0, tier="huge")
