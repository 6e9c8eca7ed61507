"""Rollout without a browser: how each export ends, what is counted, both goals, its words."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from traitlets import TraitError

from labkit.labs.production.canaries import CANARIES, REFERENCE, recorded_hits
from labkit.labs.production.widget_rollout import LIVES, SHADOWS, Rollout
from labkit.training import trained_gpt
from tests.record_scripts import record_script

SOUND = [name for name, canary in CANARIES.items() if canary.sound]
GATE = ["INT4 by 32", "INT4 by tensor", "half a norm"]
GUARDRAIL = ["FP16, large values", "one flipped bit"]


def press(widget: Rollout, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def done(widget: Rollout) -> list[bool]:
    return [target["done"] for target in widget.numbers["targets"]]


def every(widget: Rollout, shadow: int, live: int) -> dict[str, str]:
    """How all rollouts under one plan end."""
    widget.shadow, widget.live = shadow, live
    for name in CANARIES:
        widget.candidate = name
        widget.again()
        widget.run()
    return dict(widget.outcomes)


# ---------------------------------------------------------------- recorded requests


def test_what_is_recorded_is_what_the_exports_do():
    """Other processors round a few argmaxes otherwise: 1 in 1,000 where the arithmetic is FP32."""
    recorded, name = recorded_hits(), "half a norm"
    assert list(recorded) == [REFERENCE, *CANARIES]
    right, _ = record_script("record_rollout").answers(CANARIES[name].export(trained_gpt()))
    assert (right != recorded[name].right).mean() < 1e-3
    spoiled = {name: int((~each.finite).sum()) for name, each in recorded.items()}
    assert spoiled == dict.fromkeys(recorded, 0) | {
        "FP16, large values": 64, "one flipped bit": 37120
    }  # fmt: skip
    assert not any((each.right & ~each.finite).any() for each in recorded.values())


def test_what_an_export_loses():
    recorded = recorded_hits()
    points = {
        name: 100 * (each.right.mean() - recorded[REFERENCE].right.mean())
        for name, each in recorded.items()
    }
    assert all(abs(points[name]) < 0.1 for name in SOUND)
    assert points["INT4 by 32"] == pytest.approx(-2.3, abs=0.05)  # what the caption says
    assert points["FP16, large values"] > -0.1, "too few characters for the gate"


@pytest.mark.parametrize("name", ["half a norm", "one flipped bit", "FP16, large values"])
def test_an_export_leaves_the_model_as_it_was(name):
    model = trained_gpt()
    CANARIES[name].export(model)
    again = trained_gpt().state_dict()
    assert all(bool((again[k] == v).all()) for k, v in model.state_dict().items())


# ---------------------------------------------------------------- how rollouts end


@pytest.mark.seeds(range(5))
def test_a_long_shadow_ends_every_rollout_rightly_and_unseen_by_users(seed):
    widget = Rollout(seed=seed)
    ended = every(widget, 8_000, 500)
    assert all(ended[name].startswith("answers all requests") for name in SOUND)
    for names, by in ((GATE, "the gate"), (GUARDRAIL, "the guardrail")):
        for name in names:
            assert ended[name].startswith(f"rolled back by {by} in shadow"), (name, ended[name])
            assert ended[name].endswith("users saw 0 worse answers")
    assert done(widget) == [True, True]


def test_a_short_plan_lets_small_defects_through():
    widget = Rollout()
    ended = every(widget, 500, 1_000)
    for name in ("INT4 by 32", "half a norm"):
        assert ended[name].startswith("answers all requests, 2,110 compared"), ended[name]
    assert done(widget) == [False, False]


def test_a_plan_that_shows_users_worse_answers_reaches_the_first_goal_only():
    widget = Rollout()
    ended = every(widget, 2_000, 4_000)
    assert ended["half a norm"].startswith("rolled back by the gate at 100 %")
    assert done(widget) == [True, False]


def test_rollouts_under_different_plans_are_no_plan():
    widget = Rollout()
    for name in CANARIES:
        widget.candidate = name
        widget.live = LIVES[-1] if name in SOUND else LIVES[0]
        widget.shadow = SHADOWS[-1]
        widget.run()
    assert done(widget) == [False, False]


def test_the_list_is_that_of_the_plan_on_the_page():
    widget = Rollout()
    widget.run()
    widget.candidate = "half a norm"
    widget.run()
    assert [(name, right) for name, _, right in widget.numbers["here"]] == [
        ("BF16", True), ("half a norm", False)
    ]  # fmt: skip
    widget.shadow = 0
    assert widget.numbers["here"] == [] and len(widget.outcomes) == 2


def test_what_is_rolled_back_by_hand_is_not_taken_back_by_a_rule():
    widget = Rollout()
    every(widget, 8_000, 500)
    widget.candidate = "half a norm"
    widget.requests(200)
    widget.roll_back()
    assert widget.outcomes["half a norm"].startswith("rolled back by hand in shadow, 200 compared")
    assert done(widget) == [False, False]
    assert not widget.numbers["right"]
    widget.requests(500)
    assert "200 of 8,000" in widget.describe(), "nothing comes after the end"


def test_the_gate_that_is_given_decides():
    class Never:
        def see(self, reference_right, candidate_right):
            return False

    class Fifth:
        def __init__(self):
            self.seen = 0

        def see(self, reference_right, candidate_right):
            self.seen += 1
            return self.seen == 5

    widget = Rollout(gate=Never)
    widget.candidate = "INT4 by tensor"
    widget.run()
    assert widget.outcomes["INT4 by tensor"].startswith("answers all requests")
    assert "E = 1e" in widget.numbers["reading"]
    widget = Rollout(gate=Fifth)
    for _ in range(2):  # each rollout gets a gate of its own
        widget.again()
        widget.run()
        assert "rolled back by the gate in shadow, 5 compared" in widget.outcomes["BF16"]
        assert not widget.numbers["right"], "a sound export"
    widget.roll_back()
    assert "by the gate" in widget.outcomes["BF16"], "it had ended before"


# ---------------------------------------------------------------- what is counted


@pytest.mark.parametrize("shadow", [0, 500])
def test_users_see_the_candidate_in_live_stages_only(shadow):
    widget = Rollout(gate=type("Never", (), {"see": lambda *_: False}), seed=3)
    widget.candidate, widget.shadow, widget.live = "INT4 by 32", shadow, 500
    widget.run()
    reference, candidate = recorded_hits()[REFERENCE], recorded_hits()["INT4 by 32"]
    order = np.random.default_rng(3).permutation(len(reference.right))
    worse, better = reference.right & ~candidate.right, candidate.right & ~reference.right
    ends = np.cumsum([shadow] * bool(shadow) + [5, 50, 250, 500]).tolist()
    rows = widget.numbers["rows"]
    for row, start, end in zip(rows, [0, *ends], ends, strict=False):
        part = order[start:end]
        assert row["pairs"] == str(end - start)
        assert row["worse"] == str(worse[part].sum())
        assert row["better"] == str(better[part].sum())
        assert row["harmed"] == ("0" if row["stage"] == "shadow" else row["worse"])
    assert [row["stage"] for row in rows[-4:]] == ["1 %", "10 %", "50 %", "100 %"]
    assert [row["requests"] for row in rows[-4:]] == ["500 of 500"] * 4


def test_in_a_stage_of_one_percent_each_hundredth_request_is_compared():
    widget = Rollout()
    widget.shadow = 0
    for passed, pairs in ((99, "0"), (1, "1"), (199, "2"), (1, "3")):
        widget.requests(passed)
        assert widget.numbers["rows"][0]["pairs"] == pairs


def test_the_curve_is_the_e_value_of_the_counts_and_ends_at_the_alarm():
    widget = Rollout()
    widget.candidate = "INT4 by tensor"
    widget.run()
    row = widget.numbers["rows"][0]
    worse, better = int(row["worse"]), int(row["better"])
    n = worse + better
    e = Fraction(2**n * math.factorial(worse) * math.factorial(better), math.factorial(n + 1))
    assert e >= 20 and f"E = {float(e):.3g}" in widget.numbers["reading"]
    (_, start), *_, (across, up) = widget.numbers["curve"]
    assert start == pytest.approx(2 / 5) and up == pytest.approx((math.log10(e) + 2) / 5)
    assert across == pytest.approx(36 / 500 / 5)
    assert widget.numbers["limit"][0] == pytest.approx((math.log10(20) + 2) / 5)
    assert up >= widget.numbers["limit"][0]


@pytest.mark.parametrize("shadow", [0, 2_000])
def test_a_sound_export_ends_below_the_alarm_where_the_lane_ends(shadow):
    widget = Rollout()
    widget.shadow = shadow
    widget.run()
    assert {stage["state"] for stage in widget.numbers["lane"]} == {"done"}
    assert widget.numbers["curve"][-1][0] == 1.0
    assert all(up < widget.numbers["limit"][0] for _, up in widget.numbers["curve"])


# ---------------------------------------------------------------- the page and the words


def test_a_request_does_what_it_asks():
    widget = Rollout()
    assert press(widget, act="requests")["rows"][0]["requests"] == "100 of 500"
    assert press(widget, act="stage")["lane"][1]["state"] == "now"
    assert press(widget, act="roll back")["lane"][1]["state"] == "back"
    assert not press(widget, act="again")["over"]
    assert press(widget, act="run")["over"]
    shown = press(widget, candidate="INT4 by 32", shadow=0)
    assert (widget.candidate, widget.shadow, len(shown["lane"])) == ("INT4 by 32", 0, 4)
    assert shown["rows"][0]["requests"] == "0 of 1,000"
    assert press(widget, live=4_000)["rows"][0]["requests"] == "0 of 4,000"


def test_what_is_not_possible_is_refused():
    widget = Rollout()
    for name, wrong in (("candidate", "FP8"), ("shadow", 100), ("live", 0), ("outcomes", {})):
        with pytest.raises(TraitError):
            setattr(widget, name, wrong)


def test_the_words_say_what_the_picture_shows():
    widget = Rollout()
    widget.candidate = "FP16, large values"
    widget.run()
    words, numbers = widget.describe(), widget.numbers
    assert "Rolled back by the guardrail in shadow." in words
    assert numbers["guardrail"] == "Guardrail, finite logits: broken."
    for row in numbers["rows"]:
        assert f"{row['stage']}: {row['requests']} requests, {row['pairs']} compared" in words
    assert "Under this plan 1 of 7 rollouts have ended." in words
    assert f"FP16, large values: {widget.outcomes[widget.candidate]}." in words
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == words == numbers["sentence"]
    assert json.loads(json.dumps(numbers, allow_nan=False))["candidate"] == widget.candidate
