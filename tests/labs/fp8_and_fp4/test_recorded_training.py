"""The recorded training of lab 08: verdicts recomputed, facts, and the first steps done again."""

import json
import math
from statistics import fmean, stdev

import pytest

from labkit.base.home import DATA
from labkit.labs.fp8_and_fp4.figures import gaps_picture
from labkit.labs.fp8_and_fp4.recorded import (
    MARGIN,
    MECHANISMS,
    Mechanism,
    compare_recipes,
    mechanisms_table,
    training_runs,
)
from labkit.training.low_bit import RECIPES
from tests.record_scripts import record_script

T9 = 2.2622  # the 97.5 % quantile of Student's t, 9 degrees of freedom


@pytest.fixture(scope="module")
def record():
    return json.loads((DATA / "emulated" / "low_bit_training.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script():
    return record_script("record_low_bit_training")


def interval(differences):
    half = T9 * stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) - half, fmean(differences) + half


class TestRecord:
    def test_every_recipe_has_ten_seeds_and_the_recipe_it_names(self, record, script):
        assert list(record["runs"]) == [str(seed) for seed in range(10)]
        for arms in record["runs"].values():
            assert set(arms) == {*RECIPES, "fp32_reordered"}
            assert all(len(run["losses"]) == 30 for run in arms.values())
        for name, recipe in RECIPES.items():
            assert record["recipes"][name] == script.operands(recipe)

    def test_the_first_steps_again(self, record, script):
        """Ten of 300 steps; other processors add in another order."""
        losses = script.train(script.make("mxfp8", 0), 0, steps=10)
        again = fmean(losses) / math.log(2)
        assert again == pytest.approx(record["runs"]["0"]["mxfp8"]["losses"][0], abs=2e-3)


class TestVerdicts:
    def test_gaps_and_verdicts_follow_from_the_runs(self, record):
        runs = training_runs()
        assert list(runs) == [name for name in RECIPES if name != "fp32"]
        for name, found in runs.items():
            gaps = [a[name]["bits"] - a["fp32"]["bits"] for a in record["runs"].values()]
            assert found.gaps == pytest.approx(gaps)
            low, high = interval(gaps)
            # The control is below 1e-6 bits, and so is what it widens.
            assert found.verdict.mean == pytest.approx(-fmean(gaps))
            assert (-found.verdict.high, -found.verdict.low) == pytest.approx((low, high), abs=1e-5)
            expected = (
                "worse"
                if low > MARGIN
                else "better"
                if high < -MARGIN
                else "equivalent"
                if low > -MARGIN and high < MARGIN
                else "inconclusive"
            )
            assert found.verdict.answer == expected, name

    def test_the_control_is_far_below_the_margin(self, record):
        differences = [
            abs(a["fp32_reordered"]["bits"] - a["fp32"]["bits"]) for a in record["runs"].values()
        ]
        assert 0 < max(differences) < MARGIN / 1000

    def test_a_comparison_is_signed(self):
        one, other = (
            compare_recipes("nvfp4", "e4m3_unscaled"),
            compare_recipes("e4m3_unscaled", "nvfp4"),
        )
        assert (one.answer, other.answer) == ("better", "worse")
        assert one.pairs == tuple(-d for d in other.pairs)

    def test_the_three_findings(self):
        better, worse = ("nvfp4", "e4m3_unscaled"), ("e4m3_unscaled", "nvfp4")
        same = ("fp32", "fp32_reordered")
        for pair, only_if, finding in [
            (better, None, "mechanism visible"),
            (better, ("it rains", better), "mechanism visible"),
            (same, ("it rains", better), "visible only if it rains"),
            (worse, ("it rains", better), "visible only if it rains"),
            (same, ("it rains", same), "not visible at this scale"),
            (worse, ("it rains", worse), "not visible at this scale"),
            (worse, None, "not visible at this scale"),
        ]:
            assert Mechanism(claim="", pair=pair, only_if=only_if).finding == finding


class TestFindings:
    """What lab 08's text says of ten seeds."""

    def test_recipes_against_fp32(self):
        answers = {name: runs.verdict.answer for name, runs in training_runs().items()}
        assert {name for name, answer in answers.items() if answer == "equivalent"} == {
            "bf16",
            "fp8_tensorwise",
            "e4m3_tensorwise",
        }
        assert {name for name, answer in answers.items() if answer == "worse"} == {
            "e4m3_unscaled",
            "hybrid_unscaled",
            "e2m1_tensorwise",
            "mxfp4",
        }
        assert "better" not in answers.values()

    def test_mechanisms(self):
        findings = {m.pair: m.finding for m in MECHANISMS}
        assert findings == {
            ("e4m3_tensorwise", "e4m3_unscaled"): "mechanism visible",
            ("fp8_tensorwise", "e4m3_tensorwise"): "not visible at this scale",
            ("mxfp8", "e4m3_tensorwise"): "visible only if the values have four bits",
            ("nvfp4", "mxfp4"): "mechanism visible",
            ("nvfp4_sr", "nvfp4"): "not visible at this scale",
            ("nvfp4_sr_rht", "nvfp4_sr"): "not visible at this scale",
            ("nvfp4_square", "nvfp4"): "not visible at this scale",
        }

    def test_not_visible_means_within_the_margin_but_for_square_blocks(self):
        for pair in [
            ("fp8_tensorwise", "e4m3_tensorwise"),
            ("mxfp8", "e4m3_tensorwise"),
            ("nvfp4_sr", "nvfp4"),
            ("nvfp4_sr_rht", "nvfp4_sr"),
        ]:
            assert compare_recipes(*pair).answer == "equivalent"
        assert compare_recipes("nvfp4_square", "nvfp4").answer == "inconclusive"


class TestShown:
    def test_table_and_figure_say_what_the_runs_say(self):
        runs, picture = training_runs(), gaps_picture()
        assert all(run.describe() in picture.alt for run in runs.values())
        assert len(picture.alt.split("; ")) == len(runs)
        findings = mechanisms_table()
        assert list(findings["finding"]) == [m.finding for m in MECHANISMS]

    def test_the_figure_has_a_dot_a_seed_and_shows_them_all(self):
        (axes,) = gaps_picture().figure.axes
        dots = [line for line in axes.lines if len(line.get_xdata()) == 10]
        assert len(dots) == len(training_runs())
        low, high = axes.get_xlim()
        assert all(low < x < high for line in dots for x in line.get_xdata())


class TestUnscaled:
    def test_the_loss_falls_while_hardly_a_hidden_weight_learns(self, record):
        for arms in record["runs"].values():
            fp32, run = arms["fp32"]["losses"], arms["e4m3_unscaled"]
            assert run["losses"][0] - run["losses"][-1] > 2
            assert run["losses"][-1] - fp32[-1] > 0.1
            assert fmean(run["zero_share"]) >= 0.998  # as lab 08 says
            assert run["steps_with_gradient"] < record["steps"] / 4
            # Half of E4M3's smallest value, 2**-9, is reached now and then, the value itself never.
            assert 2.0**-10 < run["largest_gradient"] < 2.0**-9

    def test_with_scales_every_gradient_arrives(self, record):
        for arms in record["runs"].values():
            for name in ("fp32", "fp8_tensorwise"):
                assert arms[name]["steps_with_gradient"] == 300
                assert max(arms[name]["zero_share"]) < 0.001
