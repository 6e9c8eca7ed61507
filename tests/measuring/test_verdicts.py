"""What an interval says against a margin: by hand, by published tables, and in simulations."""

import math
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest

from labkit.measuring import verdict, verdicts
from labkit.measuring.verdicts import TIME_MARGIN, without_stalls


def verdict_of_times(ratios, **settings):
    return verdict(ratios, **({"margin": TIME_MARGIN, "times": True} | settings))


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
    assert found.coarse
    assert ("one step of" if step else "a coarse measure") in found.describe()
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


def test_the_interval_without_stalls_by_hand():
    # 1 to 5 as above, and one value far off: as wide as for five, times 6 / 5.
    half = 2.776 * math.sqrt(2.5) / math.sqrt(5)
    assert without_stalls([5.0, 1.0, 3.0, 2.0, 4.0]) == pytest.approx((3, half, 0))
    half *= 6 / 5
    assert without_stalls([5.0, 1.0, 99.0, 3.0, 2.0, 4.0]) == pytest.approx((3, half, 1))
    assert without_stalls([1.0] * 5) == (1.0, 0.0, 0)
    for nothing in ([1.0] * 4, [1.0, 1.0, math.nan, 1.0, 1.0], [1.0] * 5 + [math.inf]):
        assert all(map(math.isnan, without_stalls(nothing)[:2]))


@pytest.mark.parametrize(
    ("logs", "left_out"),
    [
        ([0.0, 0.001, -0.001, 0.002, math.log(1.19)], 0),
        ([0.0, 0.001, -0.001, 0.002, math.log(1.25), -2.0], 2),
        ([0.0, 0.1, -0.1, 0.2, 1.2], 0),  # the median is 0.1, and so is that of the deviations
        ([0.0, 0.1, -0.1, 0.2, 1.4], 1),
        ([0.0, 0.0, 0.0, 0.0, 5.0], 0),  # a coarse clock
    ],
)
def test_what_is_far_off_and_further_than_the_scatter_is_left_out(logs, left_out):
    found = verdict_of_times([math.exp(log) for log in logs])
    assert found.left_out == left_out
    said = f"without {left_out} disturbed of {len(logs)}"
    assert (said in found.describe()) == bool(left_out)


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
    # Two log ratios on each side of the middle, d from it: s = d, half = 2.776 d / sqrt(5).
    middle = math.sqrt(low * high)
    off = (high / middle) ** (math.sqrt(5) / 2.776)
    ratios = [middle / off, middle / off, middle, middle * off, middle * off]
    found = verdict_of_times(ratios, control=[1.0] * 5)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.answer == answer and found.describe().endswith(f"2 %: {answer}")
    turned = {"faster": "slower", "slower": "faster"}.get(answer, answer)
    assert verdict_of_times([1 / ratio for ratio in ratios]).answer == turned


def test_a_control_off_one_widens_both_ends_by_what_it_leaves_out():
    times, off = [0.9] * 6, [1.04, 1.05, 1.05, 1.04, 1.05, 1.04]
    middle, half, _ = without_stalls([math.log(ratio) for ratio in off])
    least = math.exp(middle - half)
    found = verdict_of_times(times, control=off)
    assert least > 1.03 and found.mean == pytest.approx(0.9)
    assert (found.low, found.high) == pytest.approx((0.9 / least, 0.9 * least))
    turned = verdict_of_times(times, control=[1 / ratio for ratio in off])
    assert (turned.low, turned.high) == pytest.approx((found.low, found.high))
    assert verdict_of_times(times, control=[0.5, 2.0] * 3).high == pytest.approx(0.9)


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
    assert said in verdict_of_times(ratios, control=control).describe()


def test_a_time_verdict_needs_a_margin():
    with pytest.raises(ValueError, match="margin=0"):
        verdict_of_times([1.0] * 5, margin=0)


# Simulations of whole benchmarks: fp32 twice and a mode


def simulated(trials, rounds, ratio, *, noise, slow, draw="normal"):
    """Rounds of benchmarks of a mode that takes ``ratio`` of fp32's time: its ratios, the control.

    Args:
        noise: the standard deviation of the logarithm of a time.
        slow: the chance of each time to be twice as long.
        draw: "normal", "skewed" (exponential) or "slow drift", which all arms of a round share.
    """
    generator = np.random.default_rng([rounds, round(1000 * ratio), round(100 * noise)])
    shape = (trials, 3, rounds)
    if draw == "skewed":
        logs = noise * generator.exponential(size=shape)
    else:
        logs = generator.normal(scale=noise, size=shape)
    if draw == "slow drift":
        logs += generator.normal(scale=noise, size=(trials, 1, rounds)).cumsum(axis=2)
    times = np.exp(logs) * np.where(generator.random(shape) < slow, 2, 1)
    first, again, mode = times.swapaxes(0, 1)
    return zip(ratio * mode / first, again / first, strict=True)


def share_of(words, drawn):
    """How often one of the words is the answer on drawn benchmarks."""
    found = [verdict_of_times(ratios, control=control).answer in words for ratios, control in drawn]
    return fmean(found)


@pytest.mark.parametrize(
    ("noise", "slow", "draw"),
    [
        (0.05, 0.0, "normal"),
        (0.05, 0.03, "normal"),
        (0.01, 0.1, "normal"),
        (0.05, 0.03, "skewed"),
        (0.02, 0.03, "slow drift"),
    ],
)
@pytest.mark.parametrize("rounds", [5, 6, 9, 31])
def test_false_alarms_are_rare_at_any_number_of_rounds(rounds, noise, slow, draw):
    """Also where the times differ by the whole margin: there the chance is 2.5 %."""
    for ratio, wrong in (
        (1.0, {"faster", "slower"}),
        (1.02, {"faster", "slower"}),
        (1.021, {"faster", "equivalent"}),
    ):
        drawn = simulated(400, rounds, ratio, noise=noise, slow=slow, draw=draw)
        assert share_of(wrong, drawn) <= 0.05, ratio


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("slow", [0.0, 0.03, 0.1])
@pytest.mark.parametrize(("ratio", "word"), [(1.1, "slower"), (0.9, "faster")])
def test_more_rounds_find_a_true_difference_of_ten_percent_more_often(ratio, word, slow, noise):
    """The same benchmarks, cut short; 3 % allow for chance among 150."""
    drawn = [*simulated(150, 31, ratio, noise=noise, slow=slow)]
    power = [
        share_of({word}, [(ratios[:rounds], control[:rounds]) for ratios, control in drawn])
        for rounds in (5, 6, 7, 9, 15, 31)
    ]
    assert all(more >= fewer - 0.03 for fewer, more in pairwise(power)), power
    assert power[0] >= (0.8 if noise == 0.01 else 0.15) and power[-1] >= 0.8


def test_enough_rounds_find_equal_times_equivalent():
    share = [
        share_of({"equivalent"}, simulated(100, rounds, 1.0, noise=0.05, slow=0.0))
        for rounds in (25, 100, 200)
    ]
    assert share == sorted(share) and share[0] < 0.1 and share[-1] > 0.9


@pytest.mark.parametrize("rounds", [5, 9, 15])
def test_no_single_stalled_round_decides_or_hides_a_difference(rounds):
    generator = np.random.default_rng(0)
    for ratio in (1.0, 0.9):
        for arm in range(3):  # the first, its second run, the mode
            for stalled in range(rounds):
                first, again, mode = generator.lognormal(sigma=0.005, size=(3, rounds))
                mode *= ratio
                (first, again, mode)[arm][stalled] *= 1000
                found = verdict_of_times(mode / first, control=again / first)
                if ratio == 1.0:
                    assert found.answer in ("equivalent", "inconclusive")
                else:
                    assert found.answer == "faster"


def test_rounds_that_are_off_on_one_side_are_the_arm_s_own_and_no_stalls():
    often_slow = [1, 1.001, 0.999, 1.4, 1.4]
    assert verdict_of_times(often_slow).answer == "inconclusive"
    assert verdict_of_times(often_slow).left_out == 0
    assert verdict_of_times([*often_slow[:4], 1.0]).left_out == 1
