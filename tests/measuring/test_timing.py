"""Paired rounds: who runs when, what belongs to whom, and what a measurement says of its times."""

import dataclasses
import math
from itertools import islice

import numpy as np
import pytest

from labkit.measuring import Measurement, Timing
from labkit.measuring.timing import quartiles, take_turns


def turns(count, rounds, **settings):
    """The rounds of arms that give (who, when), and who ran in which order."""
    ran = []

    def arm(who):
        def run():
            ran.append(who)
            return who, len(ran) - 1

        return run

    given = take_turns([arm(n) for n in range(count)], **settings)
    return list(islice(given, rounds)), ran


def test_a_round_runs_every_arm_once_and_gives_its_own_to_each():
    rounds, ran = turns(4, 12)
    assert len(ran) == 48
    for number, given in enumerate(rounds):
        assert [who for who, _ in given] == [0, 1, 2, 3]
        assert sorted(when for _, when in given) == list(range(4 * number, 4 * number + 4))


def test_orders_are_shuffled_anew_each_round_and_follow_from_the_seed():
    _, ran = turns(4, 12, seed=1)
    assert len({tuple(ran[i : i + 4]) for i in range(0, 48, 4)}) > 3
    assert turns(4, 12, seed=1)[1] == ran != turns(4, 12, seed=2)[1]


def test_nothing_runs_before_a_round_is_asked_for():
    assert turns(3, 0) == ([], [])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_quartiles_are_those_of_numpy(count):
    values = np.random.default_rng(count).exponential(size=count)
    expected = np.quantile(values, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quartiles(values.tolist()), expected, rtol=1e-14)


@pytest.mark.parametrize("values", [[], [1.0, math.nan, 2.0], [math.nan]])
def test_no_values_or_a_nan_among_them_say_nothing(values):
    assert all(map(math.isnan, quartiles(values)))


# What a measurement says


def product(dtype, *seconds, size=64, again=(), work=1e9):
    return Timing("matmul", dtype, size, seconds, work=work, again=again)


def measured(*timings, **facts):
    given = {"device": "a device", "torch": "2.13", "measured": "2026-11-21T00:00:00"}
    return Measurement(timings=timings, **(given | facts))


def step(mode, *ratios, again=(), **facts):
    """A second for each round of fp32."""
    known = {"memory": 3 * 2**19, "waits for data": 0.0, "loss": 0.5, "skipped steps": 0}
    return Timing("training step", mode, 0, ratios, 6e3, "", again, known | facts)


BASE = product("fp32", *[1.0] * 8, again=(1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0))
HALF = product("bf16", 0.5, 0.5, 0.51, 0.49, 0.5, 0.5, 0.51, 0.5)
SILENT = Timing("matmul", "fp8", 64, why_not="no <fp8> here")
COPY = Timing("copy", "fp32", 2**27, (2.0,), work=16e9)
STEP = step("fp32", *[1.0] * 8, again=BASE.again)


def test_rates_are_work_over_the_median():
    assert product("fp32", 3.0, 1.0, 2.0, work=4.0).rate == 2.0
    assert math.isnan(SILENT.rate) and math.isnan(product("fp32", 0.0).rate)


def test_an_arm_is_compared_with_what_ran_twice_of_its_kind_and_size():
    slow = product("fp16", *[3.0] * 8, size=128)
    whole = measured(HALF, BASE, SILENT, slow, COPY, step("bf16", *[2.0] * 8), STEP)
    found = whole.verdict("bf16", 64)
    assert found.answer == "faster" and 0.49 <= found.low <= found.mean <= found.high <= 0.51
    assert whole.verdict("bf16").answer == "slower" and whole.verdict("bf16").mean == 2.0
    assert whole.verdict("fp32", 64).pairs == BASE.again, "its own A/A control"
    for dtype, size in (("fp8", 64), ("fp16", 128), ("fp32", 2**27)):
        with pytest.raises(ValueError, match="nothing to be compared with"):
            whole.verdict(dtype, size)
    with pytest.raises(KeyError, match=r"'fp64' with size 64.*bf16, 64 x 64; fp32, 64 x 64"):
        whole.timing("fp64", 64)


def test_a_verdict_is_by_the_control_and_the_margin_of_the_measurement():
    assert measured(BASE, HALF, margin=2.0).verdict("bf16", 64).answer == "equivalent"
    off = dataclasses.replace(BASE, again=(3.0,) * 8)
    assert measured(off, HALF).verdict("bf16", 64).answer == "inconclusive"


def test_a_measurement_is_a_table_a_figure_and_lines():
    whole = measured(BASE, HALF, SILENT, COPY, emulated=True, notes=("Energy: not measured.",))
    said, page, picture = whole.describe(), whole._repr_html_(), whole.plot()
    for shown in (said, page):
        assert "2026-11-21" in shown and "16 bits are emulated" in shown
        assert "A/A control of fp32, 64 x 64" in shown and "Energy: not measured." in shown
        assert "faster" in shown and "128 MiB" in shown and "134217728" not in shown
        assert "test accuracy" not in shown and "J a step" not in shown
    assert "no <fp8> here" in said and "no &lt;fp8&gt; here" in page
    assert page.count("<tr>") == 5 and "<td>2 GFLOP/s</td>" in page and "<td>8 GB/s</td>" in page
    assert "bf16, 64 x 64" in picture.alt and "faster" in picture.alt and "fp8" not in picture.alt
    assert "emulated" in picture.caption
    dots = [line.get_xdata() for line in picture.figure.axes[0].lines if line.get_marker() == "."]
    assert [tuple(values) for values in dots] == [BASE.again, HALF.seconds]


def test_the_facts_of_a_training_stand_in_the_table():
    facts = {"test accuracy": 0.75, "J a step": 0.125, "waits for data": 0.75}
    page = measured(STEP, step("bf16", *[0.5] * 8, **facts))._repr_html_()
    for cell in ("1.5 MiB", "0.125", "0.7500", "75 %", "faster", "A/A control"):
        assert f"<td>{cell}</td>" in page
    assert "bf16: more than half of a step waits for data" in page
    assert "fp32: more than half" not in page


@pytest.mark.parametrize(
    ("again", "bad"),
    [
        ([1.0, 1.04, 0.96, 1.03, 0.97, 1.0], False),
        ([1.0, 1.09, 0.93, 1.03, 0.97, 1.0], True),  # too wide
        ([1.06, 1.07, 1.06, 1.08, 1.06, 1.07], True),  # equal arms differ
        ([1.0, 1.0, 1.0, 1.0], True),  # too few
        ([1.0, 1.0, 0.0, 1.0, 1.0], True),  # the clock
    ],
)
def test_a_bad_control_is_said_in_text_table_and_figure(again, bad):
    ones = [1.0] * len(again)
    found = measured(product("fp32", *ones, again=tuple(again)), product("bf16", *ones))
    assert ("fp32, 64 x 64" in found.trouble) == bool(found.trouble) == bad
    for shown in (found.describe(), found._repr_html_(), found.plot().caption):
        assert ("Bad A/A control" in shown) == bad
