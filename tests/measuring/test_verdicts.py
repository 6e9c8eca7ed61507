"""What an interval says against a margin: by hand, by published tables, and in simulations."""

import math

import numpy as np
import pytest

from labkit.measuring import Benchmark, ModeResult, time_verdict, verdict, verdicts
from labkit.measuring.verdicts import shift_interval

# A verdict on differences


def spread_over(mean, half):
    """Two differences whose 95 % interval is mean - half to mean + half: t is 12.706 for one."""
    return [mean - half / 12.706, mean + half / 12.706]


@pytest.mark.parametrize(
    ("mean", "half", "margin", "answer"),
    [
        (-0.1, 0.7, 0.5, "inconclusive"),  # -0.8 to +0.6
        (-0.1, 0.7, 0.9, "equivalent"),
        (-0.1, 0.7, 0.75, "inconclusive"),  # only the low end is out
        (-0.2, 0.1, 0.5, "equivalent"),  # it leaves 0 out, and is too small to matter
        (-1.0, 0.4, 0.5, "worse"),
        (-1.0, 0.6, 0.5, "inconclusive"),
        (1.0, 0.4, 0.5, "better"),
        (1.0, 0.6, 0.5, "inconclusive"),
    ],
)
def test_verdicts_by_hand(mean, half, margin, answer):
    found = verdict(spread_over(mean, half), margin)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=1e-12)
    assert found.answer == answer and not found.coarse
    assert found.describe().endswith(f"a margin of {margin:g}: {answer}")


@pytest.mark.parametrize(
    ("margin", "step", "answer"),
    [(0.01, 0.002, "equivalent"), (0.01, 0.02, "inconclusive"), (0.001, 0.0, "equivalent")],
)
def test_pairs_that_agree_show_the_step_of_the_measure_and_no_certainty(margin, step, answer):
    found = verdict([0.0] * 3, margin, step=step)
    assert (found.low, found.high, found.answer) == (-step, step, answer)
    assert found.coarse and found.coarseness in found.describe()
    fine = verdict([0.0, step, 0.0], margin, step=step / 100)
    assert fine.coarse == (step == 0)


@pytest.mark.parametrize("control", [[0.2, -0.3, 0.1], [0.0, 0.0], [0.1, 0.1]])
def test_a_control_that_finds_nothing_widens_nothing(control):
    """0.1 and 0.1 are one step of the measure."""
    alone = verdict([0.5, 0.4, 0.6], 1.0, step=0.1)
    assert verdict([0.5, 0.4, 0.6], 1.0, step=0.1, control=control) == alone


def test_a_control_that_is_no_number_leaves_no_interval():
    found = verdict([0.0, 0.1], 0.5, control=[math.nan, 0.0])
    assert found.answer == "inconclusive" and math.isnan(found.high)


def test_an_interval_of_five_pairs():
    # Deviations 2, 1, 0, -1, -2 from the mean 3: s = sqrt(10 / 4), half = 2.776 s / sqrt(5).
    found = verdict([5, 4, 3, 2, 1], margin=10)
    half = 2.776 * math.sqrt(2.5) / math.sqrt(5)
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_difference_that_is_no_number_decides_nothing(bad):
    found = verdict([0.0, bad, 0.0], margin=0.5)
    assert found.answer == "inconclusive"
    assert math.isnan(found.mean) and math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.parametrize(
    ("differences", "margin", "said"),
    [
        ([], 0.5, "0 paired differences"),
        ([0.1], 0.5, "1 paired differences have no spread: pass 2 or more"),
        ([0.1, 0.2], 0, "margin=0: pass a difference above 0"),
        ([0.1, 0.2], -0.5, "margin=-0.5"),
        ([0.1, 0.2], math.nan, "margin=nan"),
        ([0.1, 0.2], math.inf, "margin=inf"),
    ],
)
def test_no_verdict_without_pairs_and_a_margin(differences, margin, said):
    with pytest.raises(ValueError, match=said):
        verdict(differences, margin)


def student_below(t, freedom, slices=4000):
    """P(T <= t) by Simpson's rule: x = sqrt(v) tan(a) makes the density cos(a)**(v - 1)."""
    end = math.atan(t / math.sqrt(freedom))
    width = end / slices
    weights = [1] + [4, 2] * (slices // 2 - 1) + [4, 1]
    area = sum(w * math.cos(i * width) ** (freedom - 1) for i, w in enumerate(weights)) * width / 3
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(math.pi) * math.gamma(freedom / 2))
    return 0.5 + scale * area


def test_the_table_of_student_is_right_to_its_last_digit():
    for freedom, t in enumerate(verdicts._T, 1):
        assert student_below(t - 0.0005, freedom) < 0.975 < student_below(t + 0.0005, freedom)
    many = [1.0, -1.0] * 50
    deviation = math.sqrt(100 / 99)
    assert verdict(many, 1.0).high == pytest.approx(2.042 * deviation / 10)


def test_false_alarms_of_accuracies_are_rare_at_any_number_of_pairs():
    """Two runs disagree on about six of 360 images, which one is right on more of depends on bias.

    Without a bias no answer may say worse or better. With one of a whole margin, 0.005 or 1.8
    images, none may say better than that, nor equivalent.
    """
    generator, images, margin = np.random.default_rng(0), 360, 0.005

    def differences(pairs, bias):
        disagree = generator.poisson(6, size=pairs)
        won = generator.binomial(disagree, 0.5 + bias * images / 6 / 2)
        return ((2 * won - disagree) / images).tolist()

    for pairs in (3, 5, 10, 30, 100):
        for bias, wrong in ((0.0, {"worse", "better"}), (1.01 * margin, {"worse", "equivalent"})):
            found = [
                verdict(
                    differences(pairs, bias),
                    margin,
                    control=differences(pairs, 0.0),
                    step=1 / images,
                ).answer
                for _ in range(500)
            ]
            assert np.isin(found, list(wrong)).mean() <= 0.05, (pairs, bias)


# Times


def test_the_ranks_are_those_of_the_published_tables():
    """Critical values of Wilcoxon's signed rank sum, two-sided 5 %."""
    tables = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29}
    tables |= {17: 34, 18: 40, 19: 46, 20: 52, 25: 89, 30: 137, 50: 434}
    for count, critical in tables.items():
        assert verdicts._averages_outside(count) == critical + 1
    assert verdicts._averages_outside(5) == 1


def test_the_interval_of_shift_by_hand():
    # Six values: the interval is their range. The averages of pairs have their median at 3.5.
    assert shift_interval([6.0, 1.0, 3.0, 2.0, 5.0, 4.0]) == (1.0, 3.5, 6.0)
    assert shift_interval([1.0] * 5) == (1.0, 1.0, 1.0)
    # Eight values: the fourth of 36 averages from each end. 0, 1/2, 1, 1, 3/2, ...
    assert shift_interval([float(n) for n in range(8)]) == (1.0, 3.5, 6.0)
    for nothing in ([1.0] * 4, [1.0, 1.0, math.nan, 1.0, 1.0], [1.0] * 5 + [math.inf]):
        assert all(map(math.isnan, shift_interval(nothing)))


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (0.97, 0.979, "faster"),
        (0.97, 0.981, "inconclusive"),  # 1 / 1.02 is 0.9804
        (0.981, 1.019, "equivalent"),
        (0.981, 1.021, "inconclusive"),
        (1.005, 1.019, "equivalent"),  # it leaves 1 out, and is too small to matter
        (1.0201, 1.5, "slower"),
        (1.019, 1.5, "inconclusive"),
        (0.5, 2.0, "inconclusive"),
    ],
)
def test_time_verdicts_by_hand(low, high, answer):
    middle = math.sqrt(low * high)
    found = time_verdict([low, middle, middle, middle, high], control=[1.0] * 5)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.answer == answer and found.describe().endswith(f"2 %: {answer}")
    turned = {"faster": "slower", "slower": "faster"}.get(answer, answer)
    assert time_verdict([1 / low, 1 / high, *[1 / middle] * 3]).answer == turned


def test_a_control_off_one_widens_both_ends_by_what_it_leaves_out():
    times, off = [0.9] * 6, [1.05, 1.04, 1.06, 1.05, 1.05, 1.07]
    found = time_verdict(times, control=off)
    assert (found.low, found.ratio, found.high) == pytest.approx((0.9 / 1.04, 0.9, 0.9 * 1.04))
    turned = time_verdict(times, control=[1 / ratio for ratio in off])
    assert (turned.low, turned.high) == pytest.approx((found.low, found.high))
    assert time_verdict(times, control=[0.5, 2.0] * 3).high == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("ratios", "control", "said"),
    [
        ([0.9] * 4, [1.0] * 4, "not known from 4 rounds, take 5 or more"),
        ([0.9] * 4 + [math.nan], [1.0] * 5, "the clock showed 0"),
        ([0.9] * 5, [1.0] * 4 + [math.nan], "the clock showed 0"),
        ([0.9] * 5, [1.0] * 5, "as coarse as the clock"),
    ],
)
def test_an_interval_that_is_none_says_why(ratios, control, said):
    assert said in time_verdict(ratios, control=control).describe()


def test_a_time_verdict_needs_a_margin():
    with pytest.raises(ValueError, match="margin=0"):
        time_verdict([1.0] * 5, margin=0)


# Simulations of whole benchmarks: fp32 twice and two modes, with lognormal noise of 5 %


def simulated(generator, rounds, ratio, *, disturbed):
    """A benchmark of two modes that take ``ratio`` of fp32's time.

    In each round, with the chance ``disturbed``, one of the four arms takes twice as long.
    """
    times = generator.lognormal(sigma=0.05, size=(4, rounds))
    times[2:] *= ratio
    hit = np.flatnonzero(generator.random(rounds) < disturbed)
    times[generator.integers(4, size=len(hit)), hit] *= 2
    first, again, *modes = times

    def result(name, seconds):
        return ModeResult(
            mode=name,
            step_ms=tuple(seconds),
            time_ratios=tuple(seconds / first),
            **dict.fromkeys(("steps", "skipped_steps", "memory_bytes", "flop_per_step"), 0),
            **dict.fromkeys(("final_loss", "waiting_share"), 0.0),
            **dict.fromkeys(("test_accuracy", "joules_per_step"), None),
        )

    named = zip(("fp32", "bf16", "fp16"), (first, *modes), strict=True)
    return Benchmark(
        device="simulated",
        torch="",
        measured="",
        emulated=False,
        results=tuple(result(name, seconds) for name, seconds in named),
        control=tuple(again / first),
        memory="",
        energy="",
    )


def answers(rounds, ratio, *, disturbed, trials, seed=0):
    """The answers on both modes, a row a benchmark."""
    generator = np.random.default_rng([seed, rounds, round(1000 * ratio)])
    every = (simulated(generator, rounds, ratio, disturbed=disturbed) for _ in range(trials))
    return np.array([[done.verdict(mode).answer for mode in ("bf16", "fp16")] for done in every])


@pytest.mark.parametrize("disturbed", [0.0, 0.03])
@pytest.mark.parametrize("rounds", [5, 6, 9, 15, 25, 50, 100])
def test_false_alarms_are_rare_at_any_number_of_rounds(rounds, disturbed):
    """Also where the times differ by the whole margin, at which a verdict is hardest.

    The bounds are 5 % of modes and 10 % of benchmarks with two modes; the chance at the margin is
    2.5 % on one side, 3.1 % with five rounds, so 400 benchmarks do not pass 5 % by bad luck.
    """
    for ratio, wrong in (
        (1.0, {"faster", "slower"}),
        (1.02, {"slower", "faster"}),
        (1 / 1.02, {"faster", "slower"}),
        (1.021, {"equivalent", "faster"}),
    ):
        found = np.isin(answers(rounds, ratio, disturbed=disturbed, trials=400), list(wrong))
        assert found.mean() <= 0.05, ratio
        assert found.any(axis=1).mean() <= 0.10, ratio


@pytest.mark.parametrize("disturbed", [0.0, 0.03])
@pytest.mark.parametrize(("ratio", "word"), [(1.1, "slower"), (1 / 1.1, "faster")])
def test_more_rounds_find_a_true_difference_of_ten_percent_more_often(ratio, word, disturbed):
    power = [
        (answers(rounds, ratio, disturbed=disturbed, trials=300) == word).mean()
        for rounds in (5, 9, 15, 25, 50)
    ]
    assert power == sorted(power) and power[0] < 0.6
    assert power[2] >= 0.8 and power[-1] >= 0.99


def test_enough_rounds_find_equal_times_equivalent():
    share = [
        (answers(rounds, 1.0, disturbed=0.0, trials=100) == "equivalent").mean()
        for rounds in (25, 100, 200)
    ]
    assert share == sorted(share) and share[0] < 0.1 and share[-1] > 0.9


@pytest.mark.parametrize("rounds", [5, 9, 15])
def test_no_single_stalled_round_decides(rounds):
    generator = np.random.default_rng(0)
    for ratio in (1.0, 0.9):
        for arm in range(3):  # the first, its second run, the mode
            for stalled in range(rounds):
                first, again, mode = generator.lognormal(sigma=0.005, size=(3, rounds))
                mode *= ratio
                (first, again, mode)[arm][stalled] *= 1000
                found = time_verdict(mode / first, control=again / first)
                if ratio == 1.0:
                    assert found.answer in ("equivalent", "inconclusive")
                elif rounds == 15:
                    assert found.answer == "faster"
                else:
                    assert found.answer in ("faster", "inconclusive")
