"""The checks of ship, gate and experiment: their oracles, and the promises of their exercises."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from labkit.labs.engine import codec
from labkit.labs.production import solutions
from labkit.labs.production.checks.experiment import _seeds, check_experiment
from labkit.labs.production.checks.gate import _exact, _streams, check_gate
from labkit.labs.production.checks.ship import _T, _cases, _refused, _wanted, check_ship

SEEDS = range(20)


@pytest.mark.parametrize("count", [n for n in _T if n > 1])
def test_the_check_hands_in_students_t(count):
    assert pytest.approx(stats.t.ppf(0.975, count - 1), abs=5e-4) == _T[count]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_words_are_those_of_two_one_sided_tests(seed):
    for name, case in _cases(seed).items():
        reference, candidate, margin, _ = case
        scores = [*reference.values(), *candidate.values()]
        if _refused(*case) or not all(map(math.isfinite, scores)):
            continue
        if len({candidate[one] - reference[one] for one in reference}) == 1:
            continue  # scipy divides by 0
        ours = np.array([candidate[one] for one in reference]) + margin
        theirs = np.array(list(reference.values()))
        better, worse = (
            stats.ttest_rel(ours, theirs, alternative=side).pvalue for side in ("greater", "less")
        )
        want = "ship" if better < 0.025 else "reject" if worse < 0.025 else "hold"
        assert _wanted(*case)[0] == want, name


@pytest.mark.parametrize("seed", SEEDS)
def test_no_end_of_an_interval_lies_on_the_margin(seed):
    """An answer in float32 is right, too: it is off by 1e-6 here at most."""
    for case in _cases(seed).values():
        reference, candidate, margin, t = case
        if _refused(*case) or any(map(math.isnan, [*reference.values(), *candidate.values()])):
            continue
        gains = np.array([candidate[one] - reference[one] for one in reference])
        half = t * gains.std(ddof=1) / math.sqrt(len(gains))
        assert min(abs(gains.mean() + end + margin) for end in (-half, half)) > 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_no_e_value_lies_on_its_limit(seed):
    """An answer in float32 is right, too: its logarithms are off by 1e-3 at most."""
    for alpha, requests in _streams(seed).values():
        first, seen = _exact(alpha, requests)
        for worse, better in seen[:first]:
            if worse > better:
                n = worse + better
                log_e = n * math.log(2) - math.log(n + 1) - math.log(math.comb(n, worse))
                assert abs(log_e + math.log(alpha)) > 1e-3 or n < 10


def test_equal_differences_are_equal_in_all_bits():
    reference, candidate, margin, _ = _cases(0)["the same drop in all pairs"]
    assert {candidate[one] - reference[one] for one in reference} == {-0.125}
    assert -margin > -0.125


def test_of_two_pairs_one_survives():
    for arm, name in enumerate(("a reference run", "a candidate's run")):
        case = _cases(0)[f"two pairs, and {name} that crashed"]
        assert [sum(map(math.isnan, scores.values())) for scores in case[:2]] == [1 - arm, arm]
        assert len(case[0]) == 2


def test_e_itself_leaves_the_range_of_a_float_and_comes_back():
    alpha, requests = _streams(0)["1,100 better, then 1,101 worse"]
    first, seen = _exact(alpha, requests)
    assert sys.float_info.max < 2**1100 // 1101
    assert first is None
    assert seen[1099] == (0, 1100)
    assert seen[-1] == (1101, 1100)
    assert 2202 * math.comb(2201, 1101) > 2**2201


def test_an_equal_candidate_never_alarms_and_a_test_with_one_look_would():
    streams = _streams(0)
    for name in ("two equal models", "two more equal models"):
        alpha, requests = streams[name]
        first, seen = _exact(alpha, requests)
        assert first is None
        assert any(
            stats.binomtest(worse, worse + better, alternative="greater").pvalue < alpha
            for worse, better in seen
            if worse + better >= 20
        )


def test_a_gate_that_is_asked_on_after_an_alarm_is_not_judged():
    class Once(solutions.Gate):
        alarmed = False

        def see(self, reference_right, candidate_right):
            assert not self.alarmed
            self.alarmed = super().see(reference_right, candidate_right)
            return self.alarmed

    assert check_gate.result(Once).status == "passed"


@pytest.mark.seeds([0, 1])
def test_equal_arms_end_alike_and_others_do_not(seed):
    report = codec.decode_value(check_experiment.collect(solutions.experiment, seed=seed))["value"]
    equal, two = report["equal"]["table"], report["two arms"]["table"]
    assert equal["fp32"] == equal["fp32 again"] == two["fp32"]
    assert all(two["fp32"][one] != two["bf16"][one] for one in _seeds(seed))
    assert sum(map(math.isnan, report["crashes"]["table"]["fp16, scale 2**24"].values())) == 1


def test_the_answer_gets_dicts_of_its_own():
    def writing(reference, candidate, margin, t):
        try:
            return solutions.ship(reference, candidate, margin, t)
        finally:
            reference.clear()
            candidate.clear()

    assert check_ship.result(writing).status == "passed"
