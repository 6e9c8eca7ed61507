"""The NaN detective: every cause really breaks, can be told from all others, and can be repaired.

What is compared here are findings, which are coarse; the losses behind them differ by processor.
"""

import json
import math
import statistics
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
import torch
from torch import Tensor

from labkit.labs.detective import causes, nan_detective
from labkit.labs.detective.broken_runs import RunSettings, traced_run
from labkit.labs.detective.causes import CAUSES
from labkit.labs.detective.instruments import INSTRUMENTS, Reading, first_bad_loss, learns
from labkit.labs.detective.nan_detective import (
    DIGITS,
    Case,
    accuse,
    cheapest_proof,
    left,
    new_case,
    price,
)
from labkit.labs.engine.misconceptions import misconceptions
from labkit.labs.texts import Text
from labkit.training.precision import PRECISIONS

SEEDS = range(5)


@cache
def case_of(cause: str, seed: int) -> tuple[Case, dict[str, Reading]]:
    """A closed case and all of its readings; a case takes up to two seconds.

    The tensors of its steps are dropped: those of all the cases take gigabytes.
    """
    case = Case(CAUSES[cause], seed)
    accuse(case, cause)
    readings = {name: case._measure(name) for name in case.tier.instruments}
    none = torch.empty(0)
    dropped = dict.fromkeys(("before", "after", "asked"), none)
    dropped |= {"batch": None, "outputs": {}, "gradients": {}}
    case._steps = [replace(step, **dropped) for step in case._steps]
    return case, readings


def fake(instrument: str, finding: str) -> Reading:
    return Reading(instrument, finding, Text(en="text", zh="文字"), {"kind": "chain"})


# The runs


# On a CPU a run in TF32 is one in FP32, and says so.
@pytest.mark.parametrize("precision", [name for name in PRECISIONS if name != "tf32"])
def test_the_sound_run_trains_in_every_precision(precision):
    losses = [
        step.loss for step in traced_run(RunSettings(precision=precision, empty_steps=(4, 11)))
    ]
    assert all(map(math.isfinite, losses)) and learns(losses)


@pytest.mark.seeds(SEEDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_case_breaks_as_its_cause_allows(cause, seed):
    case, readings = case_of(cause, seed)
    losses = [step.loss for step in case._steps]
    assert not all(map(math.isfinite, losses)) or not learns(losses)
    assert CAUSES[cause].can_show("symptom", case.finding)
    shown = {name: reading.finding for name, reading in readings.items()}
    contradicting = {n: f for n, f in shown.items() if not CAUSES[cause].can_show(n, f)}
    assert contradicting == {}


@pytest.mark.seeds(SEEDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_case_can_be_proved_within_the_budget(cause, seed):
    _, readings = case_of(cause, seed)
    proof = cheapest_proof(CAUSES[cause], readings)
    assert price(proof) <= DIGITS.budget
    assert left([readings[name] for name in proof]) == [cause]


def test_the_median_of_the_cheapest_proofs_has_three_queries(seeds):
    lengths = [
        len(cheapest_proof(CAUSES[cause], case_of(cause, seed)[1]))
        for cause in CAUSES
        for seed in SEEDS[:seeds]
    ]
    assert statistics.median(lengths) == 3


@pytest.mark.seeds(SEEDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_case_trains_once_its_cause_is_repaired(cause, seed):
    case, _ = case_of(cause, seed)
    repaired = CAUSES[cause].repaired(case._settings)
    changed = {k for k, v in vars(repaired).items() if v != getattr(case._settings, k)}
    assert changed == set(CAUSES[cause].repair), "the repair is the change of that and no more"
    losses = [step.loss for step in traced_run(repaired)]
    assert all(map(math.isfinite, losses)) and learns(losses)


@pytest.mark.parametrize("cause", CAUSES)
def test_float32_is_spared_where_the_cause_is_one_of_precision(cause):
    _, readings = case_of(cause, 0)
    assert (readings["fp32"].finding == causes.TRAINS) == CAUSES[cause].precision


def test_the_same_seed_gives_the_same_words_and_leaves_the_random_state_alone():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second = new_case(4), new_case(4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert repr(first) == repr(second)
    assert [first.ask(n) for n in ("first", "updates")] == [
        second.ask(n) for n in ("first", "updates")
    ]


def test_seeds_in_a_row_give_every_cause_once(monkeypatch):
    class Drawn:
        def __init__(self, cause, seed, *, draw, tier):
            self.cause, self.draw = cause.id, draw

        def is_fair(self):
            return self.draw == 2

    monkeypatch.setattr(nan_detective, "Case", Drawn)
    for start in (0, len(CAUSES)):
        drawn = [new_case(start + i).cause for i in range(len(CAUSES))]
        assert sorted(drawn) == sorted(CAUSES)
    first, second = ([new_case(start + i).cause for i in range(13)] for start in (0, 13))
    assert first != second
    assert new_case(0).draw == 2, "what is not fair is drawn anew"


def test_a_run_that_has_not_broken_makes_no_case(monkeypatch):
    sound = replace(CAUSES["nan-pixel"], broken=lambda source: {})
    assert not Case(sound, 0).is_fair()
    assert Case(CAUSES["nan-pixel"], 0).is_fair()
    tier = replace(nan_detective.DIGITS, causes={"nan-pixel": sound})
    with pytest.raises(RuntimeError, match="case 0: none of 5 runs"):
        new_case(0, tier)


def test_a_cause_breaks_in_other_settings_for_other_seeds():
    for cause in CAUSES.values():
        settings = {replace(cause.settings(seed), seed=0) for seed in range(8)}
        assert len(settings) > 1, cause.id


# The measurements


def test_the_first_bad_value_is_where_the_mistake_is():
    where = {
        "adam-eps": (causes.WEIGHTS, "the weights after the update"),
        "softmax-overflow": (causes.ATTENTION, "the output of attention"),
        "mask-overflow": (causes.ATTENTION, "the output of attention"),
        "nan-pixel": (causes.EMBED, "the output of embed"),
        "mean-of-nothing": (causes.LOSS, "the loss: NaN"),
        "root-of-zero": (causes.GRADIENTS, "the gradient of embed.weight: NaN"),
        "underflow": (causes.NOTHING, "finite"),
    }
    for cause, (finding, words) in where.items():
        _, readings = case_of(cause, 0)
        assert readings["first"].finding == finding, cause
        assert words in readings["first"].text.en, cause


def test_what_the_recipe_spoils_comes_at_its_step_and_is_read_there():
    for cause, words in (("nan-pixel", "1 NaN among the pixels"), ("mean-of-nothing", "0 with a")):
        case, readings = case_of(cause, 1)
        assert first_bad_loss(case._steps) == case._settings.bad_step
        assert f"Step {case._settings.bad_step}" in readings["batch"].text.en
        assert words in readings["batch"].text.en
    case, readings = case_of("mask-overflow", 1)
    assert first_bad_loss(case._steps) == case._settings.empty_steps[0]
    assert "1 with every row masked" in readings["batch"].text.en


def test_scaled_gradients_that_are_clipped_shrink_by_the_scale():
    case, readings = case_of("clip-before-unscale", 0)
    last = traced_run(case._settings)[-1]
    norm = torch.cat([g.flatten() for g in last.gradients.values()]).double().norm().item()
    # The limit of 1 was put on the gradients times 2**16.
    assert last.loss_scale == 2.0**16
    assert last.reached == pytest.approx(2.0**-16, rel=1e-2)
    assert norm > 0.1
    part = f"2**{round(math.log2(last.reached / norm))} times the gradient"
    assert part in readings["updates"].detail.en and part not in readings["updates"].text.en


def test_underflow_is_every_gradient_and_a_stall_is_none():
    _, lost = case_of("underflow", 0)
    _, stuck = case_of("bf16-stall", 0)
    assert "100% of the gradients are exactly 0" in lost["gradients"].text.en
    assert stuck["gradients"].finding == causes.ORDINARY
    assert stuck["updates"].finding == causes.HARDLY
    assert "gaps (ulp) of its weight" in stuck["updates"].detail.en


def reading_of(gradients: Tensor) -> Reading:
    """What the instrument reads of one sound step with these gradients."""
    (step,) = traced_run(RunSettings(steps=1))
    return INSTRUMENTS["gradients"].read(RunSettings(), [replace(step, gradients={"w": gradients})])


def test_gradients_that_dead_units_take_away_are_not_called_zeros():
    """Units that are off lose their share of the gradients; only underflow takes nearly all."""
    a_quarter_is_off, three_quarters, nearly_all = (
        torch.full((100,), 0.01).index_fill(0, torch.arange(off), 0.0) for off in (25, 75, 95)
    )
    assert reading_of(a_quarter_is_off).finding == causes.ORDINARY
    assert reading_of(three_quarters).finding == causes.ORDINARY
    assert reading_of(nearly_all).finding == causes.ZERO


def test_gradients_a_hundred_times_as_long_as_a_sound_run_s_are_large():
    (sound,) = traced_run(RunSettings(steps=1))
    norm = torch.cat([g.flatten() for g in sound.gradients.values()]).norm().item()
    unit = torch.full((100,), 0.1)  # its norm is 1
    assert reading_of(norm * unit).finding == causes.ORDINARY
    assert reading_of(4 * norm * unit).finding == causes.ORDINARY
    assert reading_of(100 * norm * unit).finding == causes.LARGE


def test_a_scale_that_nobody_checks_doubles_on_time():
    case, _ = case_of("unchecked-scale", 0)
    interval = case._settings.growth_interval
    assert [s.loss_scale for s in case._steps] == [2.0 ** (16 + s // interval) for s in range(60)]


def test_the_square_root_skips_every_step_and_moves_no_weight():
    steps = traced_run(CAUSES["root-of-zero"].settings(0))
    assert all(step.skipped for step in steps)
    assert torch.equal(steps[0].before, steps[-1].after)


@pytest.mark.parametrize("cause", CAUSES)
def test_readings_are_plain_data(cause):
    _, readings = case_of(cause, 0)
    for reading in readings.values():
        assert json.loads(json.dumps(reading.picture, allow_nan=False)) == reading.picture
        assert reading.text.en.endswith(".") and "nan" not in reading.text.en


# The table


def test_the_table_speaks_of_instruments_that_exist_and_findings_that_are_made():
    findings = {value for value in vars(causes).values() if type(value) is str}
    for cause in CAUSES.values():
        assert set(cause.allows) <= {"symptom", *INSTRUMENTS}, cause.id
        assert {f for allowed in cause.allows.values() for f in allowed} <= findings, cause.id


def test_a_fault_of_its_own_speaks_against_all_but_its_cause():
    for instrument, finding, cause in (
        ("batch", causes.NAN_PIXEL, "nan-pixel"),
        ("batch", causes.WRONG_LABELS, "shuffled-labels"),
    ):
        assert left([fake(instrument, finding)]) == [cause]


def test_what_the_loss_curve_leaves():
    level, sudden, climbs = (
        left([fake("loss", finding)]) for finding in (causes.LEVEL, causes.SUDDEN, causes.CLIMBS)
    )
    assert left([]) == list(CAUSES)
    assert len(level) == 5 and len({*sudden, *climbs}) == 9
    assert {*level} & {*sudden, *climbs} == {"root-of-zero"}


def test_a_proof_that_is_not_there_is_said():
    readings = {"loss": fake("loss", causes.SUDDEN)}
    with pytest.raises(LookupError, match=f"no queries for {DIGITS.budget} GPU-minutes"):
        cheapest_proof(CAUSES["adam-eps"], readings)


@pytest.mark.parametrize("cause", CAUSES)
def test_no_cheaper_queries_settle_a_case(cause):
    _, readings = case_of(cause, 0)
    proof = cheapest_proof(CAUSES[cause], readings)
    cheaper = [
        names
        for n in range(len(readings))
        for names in combinations(readings, n)
        if (price(names), n) < (price(proof), len(proof))
    ]
    assert not any(left([readings[name] for name in names]) == [cause] for names in cheaper)


# Queries and verdicts


def test_the_budget_is_spent_and_a_repeated_query_is_free():
    case = Case(CAUSES["nan-pixel"], 0)
    for name in ("fp32", "first", "fp32", "batch", "loss"):
        case.ask(name)
    assert case.minutes_left == DIGITS.budget - price(["fp32", "first", "batch", "loss"]) == 2
    assert case.ask("first") == case.readings[1]
    with pytest.raises(ValueError, match="Updates costs 12 GPU-minutes, and 2 are left: ask one"):
        case.ask("updates")
    assert len(case.readings) == 4 and case.minutes_left == 2
    case.ask("activations")
    with pytest.raises(ValueError, match="0 are left: accuse a cause"):
        case.ask("scaler")


def test_what_is_unknown_or_too_late_is_refused():
    case = Case(CAUSES["nan-pixel"], 0)
    with pytest.raises(ValueError, match="instrument 'x-ray': ask one of loss, scaler"):
        case.ask("x-ray")
    with pytest.raises(ValueError, match="cause 'gremlins': accuse one of adam-eps"):
        accuse(case, "gremlins")
    accuse(case, "nan-pixel")
    for late in (lambda: case.ask("loss"), lambda: accuse(case, "underflow")):
        with pytest.raises(ValueError, match="is closed"):
            late()


def test_right_and_proved():
    case = Case(CAUSES["nan-pixel"], 0)
    case.ask("batch")
    verdict = accuse(case, "nan-pixel")
    assert verdict.right and verdict.proved and verdict.misconception is None
    assert str(verdict).startswith("Proved: there is a NaN in the data.")
    assert verdict.repair.en in str(verdict)


def test_right_and_guessed():
    case = Case(CAUSES["mask-overflow"], 0)
    for name in ("first", "loss"):
        case.ask(name)
    verdict = accuse(case, "mask-overflow")
    assert verdict.right and not verdict.proved
    assert set(verdict.left) == {"mask-overflow", "softmax-overflow"}
    assert "Right, but not proved" in str(verdict) and "softmax without" in str(verdict)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_wrong_accusation_is_cleared_by_a_reading_that_contradicts_it(cause):
    case, readings = case_of(cause, 0)
    against = case.verdict.against
    assert set(against) == set(CAUSES) - {cause}
    for other, sentence in against.items():
        (named,) = [i for i in INSTRUMENTS.values() if f"{i.name.en} shows" in sentence.en]
        assert readings[named.id].finding in sentence.en
        assert not CAUSES[other].can_show(named.id, readings[named.id].finding)


@pytest.mark.parametrize(
    ("cause", "asked", "accused", "idea"),
    [
        ("nan-pixel", [], "underflow", "nan-and-stall-are-one-illness"),
        ("nan-pixel", ["fp32"], "mask-overflow", "a-hunch-outweighs-a-reading"),
        ("nan-pixel", [], "mask-overflow", "sixteen-bits-are-to-blame"),
        ("mask-overflow", [], "learning-rate", "formats-are-innocent"),
        ("bf16-stall", [], "underflow", "a-stall-is-underflow"),
        ("mask-overflow", [], "unchecked-scale", "the-loss-scale-rules-the-forward-pass"),
        ("adam-eps", [], "softmax-overflow", "nan-means-overflow"),
        ("mask-overflow", ["first"], "softmax-overflow", "one-symptom-one-cause"),
    ],
)
def test_a_wrong_accusation_names_its_idea(cause, asked, accused, idea):
    case = Case(CAUSES[cause], 0)
    for name in asked:
        case.ask(name)
    verdict = accuse(case, accused)
    assert not verdict.right and str(verdict).startswith("Not so.")
    assert verdict.misconception == idea and idea in misconceptions()
    if idea == "a-hunch-outweighs-a-reading":
        assert "Your own reading clears" in str(verdict)


def test_the_sign_is_a_reading_that_shows_what_the_cause_does():
    signs = {
        "adam-eps": causes.WRECKED,
        "softmax-overflow": causes.SHARP_SCORES,
        "mask-overflow": causes.EMPTY_DIGIT,
        "log-of-zero": causes.FAR_LOGITS,
        "unchecked-scale": causes.STEADY,
        "learning-rate": causes.CLIMBS,
        "root-of-zero": causes.BAD,
        "clip-before-unscale": causes.HARDLY,
    }
    for cause, finding in signs.items():
        case, _ = case_of(cause, 0)
        assert case.verdict.sign.finding == finding, cause
        assert f"The sign of it: {INSTRUMENTS[CAUSES[cause].sign].name.en}" in str(case.verdict)


def test_an_open_case_does_not_give_its_cause_away():
    case = new_case(0)
    assert not any(cause in repr(case) for cause in CAUSES)
